"""What the compiler emits: collectives read from programs, equal to the formulas and to the mesh; measured devices."""

from __future__ import annotations

import importlib.util
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import library, roofline, xla, xla_cli, xla_layers, xla_measure, xla_run, xla_table
from scaling_lib.catalogue import CatalogueError
from scaling_lib.mesh_layers import Strategy
from scaling_lib.xla_layers import AUTOMATIC, MANUAL, CompilerError

ROOT = Path(__file__).parents[1]
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install 'scaling-lib[compiler]'"
)

# Lines as XLA prints them on CPU, GPU and TPU; numbers small enough to work out by hand.
HEADER = "HloModule jit_step, is_scheduled=true, num_partitions=8\n"
GATHER = (
    "  %ag = f32[8,16]{1,0} all-gather(%p), channel_id=1, replica_groups={{0,2,4,6},{1,3,5,7}}, dimensions={0}, "
    'metadata={op_name="jit(step)/all_gather" stack_frame_id=3}\n'
)


def one(line: str) -> xla.Collective:
    (found,) = xla.read(HEADER + line)
    return found


def test_a_gather_is_read() -> None:
    c = one(GATHER)
    assert (c.op, c.dtype, c.size, c.source) == ("all_gather", "f32", 512.0, "jit(step)/all_gather")
    assert c.groups == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert c.sent == 512 * 3 / 4


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("{}", (tuple(range(8)),)),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=4,'b'=2] {'a'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=4,'b'=2] {'b'}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=2,'b'=2,'c'=2] {'a', 'c'}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=4], device_ids=([8]) {'b'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ],
)
def test_every_form_of_groups_is_read(groups: str, expected: tuple[tuple[int, ...], ...]) -> None:
    assert one(GATHER.replace("{{0,2,4,6},{1,3,5,7}}", groups)).groups == expected


@pytest.mark.parametrize(
    ("text", "op", "size", "sent"),
    [
        ("%r = bf16[4]{0} all-reduce(%p), replica_groups=[2,4]<=[8], to_apply=%add", "all_reduce", 8, 12),
        ("%r = (f32[4]{0}, f32[2,2]{1,0}) all-reduce(%p, %q), replica_groups=[2,4]<=[8]", "all_reduce", 32, 48),
        ("%r = (f32[4]{0}, /*index=1*/f32[]) all-reduce(%p, %q), replica_groups=[2,4]<=[8]", "all_reduce", 20, 30),
        ("%r = f32[4]{0} all-reduce-start(%p), replica_groups=[2,4]<=[8]", "all_reduce", 16, 24),
        ("%r = (f32[2]{0}, f32[8]{0}) all-gather-start(%p), replica_groups=[2,4]<=[8]", "all_gather", 32, 24),
        ("%r = f32[2]{0} reduce-scatter(%p), replica_groups=[2,4]<=[8], dimensions={0}", "reduce_scatter", 32, 24),
        ("%r = f32[8]{0} all-to-all(%p), replica_groups=[2,4]<=[8], dimensions={0}", "all_to_all", 128, 24),
        ("%r = (f32[4], f32[4]) all-to-all(%p, %q), replica_groups=[4,2]<=[8]", "all_to_all", 64, 16),
        ("%r = f32[4]{0} collective-permute(%p), source_target_pairs={{0,1},{1,0}}", "permute", 16, 16),
        (
            "%r = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}",
            "permute",
            16,
            16,
        ),
    ],
)
def test_every_operation_is_read(text: str, op: str, size: float, sent: float) -> None:
    c = one(text + "\n")
    assert (c.op, c.size, c.sent) == (op, size, sent)


def test_what_is_no_collective_is_left_out() -> None:
    lines = (
        "  %done = f32[8]{0} all-gather-done(%ag)\n"
        "  %f = f32[4,8]{1,0} fusion(%all-gather.1, %all-reduce.2), kind=kLoop\n"
        "  %g = f32[4]{0} get-tuple-element(%all-reduce.4), index=0\n"
        "  %alone = f32[4]{0} all-reduce(%p), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}\n"
    )
    assert xla.read(HEADER + lines) == []
    assert [c.op for c in xla.read(HEADER + lines + GATHER * 2)] == ["all_gather"] * 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{0,2,4,6},{1,3,5,7}}", "hypercube(3)", "unknown form of replica_groups"),
        ("replica_groups={{0,2,4,6},{1,3,5,7}}, ", "", "unknown form of replica_groups"),
        ("f32[8,16]", "e2m1[8,16]", "cannot read the type"),
        ("all-gather(%p)", "collective-permute(%p)", "unknown form of source_target_pairs"),
    ],
)
def test_what_cannot_be_read_is_an_error(old: str, new: str, message: str) -> None:
    with pytest.raises(CompilerError, match=message):
        xla.read(HEADER + GATHER.replace(old, new))


# Formula = mesh, without a compiler

CASES = xla_table.cases()
NAMES = [f"{c.layer} {c.name}" for c in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_formula_and_mesh_agree(case: xla_table.Case) -> None:
    counted = xla_table.counted(case)
    assert counted == xla_table.formula(case)
    assert sum(counted.values()) > 0
    assert case.devices == case.plan.chips


def test_cases_are_found_by_name() -> None:
    assert xla_table.find("block", "CP") in CASES
    with pytest.raises(CompilerError, match="use one of two-matmul DP"):
        xla_table.find("block", "EP")


# The compiler


@pytest.fixture(scope="module")
def devices() -> Any:
    return xla_layers.simulate_devices(16)


@needs_jax
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_compiler_emits_what_is_written(case: xla_table.Case, devices: Any) -> None:
    found = xla_table.by_operation(xla_table.compiled(case, MANUAL))
    mesh = xla_table.counted(case)
    if not case.written:
        assert found == mesh
    elif case.name == "CP":
        n = case.plan.cp
        assert found["permute"] / mesh["permute"] == pytest.approx(2 * (n - 1) / (3 * n - 2))
        assert found["all_reduce"] == mesh["all_reduce"]
    else:
        assert case.name == "cross-pod DP"
        assert found == {"all_reduce": sum(mesh.values())}


@needs_jax
def test_groups_are_the_axes_of_the_mesh(devices: Any) -> None:
    found = xla_table.compiled(xla_table.find("two-matmul", "FSDP in pods"), MANUAL)
    inside, across = (tuple(range(8)), tuple(range(8, 16))), tuple((i, i + 8) for i in range(8))
    assert {(c.op, c.groups) for c in found} == {
        ("all_gather", inside),
        ("reduce_scatter", inside),
        ("all_reduce", across),
    }


@needs_jax
@pytest.mark.parametrize("case", [c for c in CASES if c.layer == "two-matmul" or c.name == "CP"], ids=lambda c: c.name)
def test_left_alone_the_compiler_differs_as_the_notes_say(case: xla_table.Case, devices: Any) -> None:
    found = xla_table.by_operation(xla_table.compiled(case, AUTOMATIC, separate_passes=False))
    mesh = xla_table.counted(case)
    assert (found == mesh) == (not case.automatic)
    assert "reduce_scatter" not in found and "permute" not in found  # noqa: PT018
    if case.layer == "two-matmul" and case.name != "cross-pod DP":
        assert found["all_reduce"] == mesh.get("all_reduce", 0.0) + 2 * mesh.get("reduce_scatter", 0.0)
    if "weights are kept from" in case.automatic:
        assert found["all_gather"] == mesh["all_gather"] / 2


@needs_jax
def test_left_alone_experts_are_gathered(devices: Any) -> None:
    case = xla_table.find("experts", "EP")
    router, *experts = (4 * math.prod(shape) for shape in xla_table.shapes_of(case)[2:])
    assert xla_table.by_operation(xla_table.compiled(case, AUTOMATIC, separate_passes=False)) == {
        "all_gather": sum(experts) * 3 / 4,
        "all_reduce": 2 * (sum(experts) + router) * 3 / 4,
    }


@needs_jax
def test_left_alone_stages_send_when_idle(devices: Any) -> None:
    case = xla_table.find("stages", "PP")
    found = xla_table.by_operation(xla_table.compiled(case, AUTOMATIC, separate_passes=False))
    m, p = xla_table.N_MICROBATCHES, xla_table.N_STAGES
    assert found == {"permute": xla_table.counted(case)["permute"] * (m + p - 2) / m}


def test_the_busiest_device_is_counted() -> None:
    text = HEADER + "".join(
        f"  %r = f32[4]{{0}} collective-permute(%p), source_target_pairs={pairs}\n"
        for pairs in ("{{0,1}}", "{{0,1},{1,2}}", "{{1,2},{2,3}}", "{{1,2}}")
    )
    assert xla_table.by_operation(xla.read(text)) == {"permute": 3 * 16}


@needs_jax
def test_the_barrier_is_what_makes_a_cpu_gather_again(devices: Any) -> None:
    case = xla_table.find("two-matmul", "FSDP")
    merged = xla_table.by_operation(xla_table.compiled(case, MANUAL, separate_passes=False))
    assert merged["all_gather"] == xla_table.counted(case)["all_gather"] / 2


@needs_jax
def test_a_comparison_prints_its_columns_and_notes(devices: Any) -> None:
    text = xla_table.compare(xla_table.find("two-matmul", "FSDP")).text()
    assert "formula      mesh   written  automatic" in text
    assert "total              10,752    10,752    10,752     10,752" in text
    assert "automatic: weights are kept" in text
    assert "written out" not in text
    unexplained = xla_table.Comparison(
        xla_table.find("two-matmul", "DP"), {}, {"all_reduce": 1.0}, {}, {"all_reduce": 1.0}
    )
    assert unexplained.notes == ["written out: differs"]


@needs_jax
@pytest.mark.parametrize(
    ("layer", "name"), [("two-matmul", "FSDP x TP"), ("block", "CP"), ("experts", "EP"), ("stages", "PP")]
)
def test_values_equal_one_device(layer: str, name: str, devices: Any) -> None:
    result = xla_run.execute(xla_table.find(layer, name))
    assert result.equal
    assert 0 < result.error < xla_run.TOLERANCE
    assert "equal to one device" in str(result)
    assert not xla_run.Result(result.case, 1.0).equal


@needs_jax
def test_the_block_is_the_mesh_block(devices: Any) -> None:
    """One device in JAX against the block of the virtual mesh, which finite differences have checked."""
    import numpy as np

    from scaling_lib import mesh_block
    from scaling_lib.mesh import Mesh

    case = xla_table.find("block", "DP")
    arrays = [0.3 * np.random.default_rng(i).normal(size=s) for i, s in enumerate(xla_table.shapes_of(case))]
    step, _ = xla_layers.training_pass("block", Strategy(), (1,), "X", MANUAL)
    got = step(*(a.astype(np.float32) for a in arrays))
    mesh = Mesh((1,), "X")
    weights = mesh_block.place(mesh, Strategy(), dict(zip(mesh_block.LAYOUTS, arrays[2:], strict=True)))
    out, d_x, gradients = mesh_block.block(
        Strategy(), mesh.shard(arrays[0], "B S D"), weights, mesh.shard(arrays[1], "B S D")
    )
    for mine, theirs in zip(got, [out, d_x, *(gradients[key] for key in mesh_block.LAYOUTS)], strict=True):
        reference = theirs.whole()
        np.testing.assert_allclose(np.asarray(mine), reference, rtol=0, atol=2e-5 * np.abs(reference).max())


@needs_jax
def test_too_few_devices_and_wrong_names(devices: Any) -> None:
    with pytest.raises(CompilerError, match="JAX started with 16"):
        xla_layers.simulate_devices(64)
    with pytest.raises(CompilerError, match="use two-matmul, block, experts, stages in shard_map or automatic"):
        xla_layers.training_pass("gpt", Strategy(), (1,), "X", MANUAL)


def test_a_missing_jax_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    assert xla.main(["table"]) == 2
    assert "pip install 'scaling-lib[compiler]'" in capsys.readouterr().err


# Several processes, measured devices


def jax_command(*arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scaling_lib.xla", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@needs_jax
def test_two_processes_of_four_devices() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = ("--devices", "4", "--coordinator", f"localhost:{port}", "--processes", "2", "--process")
    run = ("run", "--strategy", "EP")  # on four devices: two of each process
    both = [jax_command(*shared, str(i), *run) for i in range(2)]
    texts = [p.communicate(timeout=300)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], texts
    assert "2 processes x 4 cpu devices" in texts[0]
    assert "experts, EP on (4,): equal to one device" in texts[0]
    assert "equal to one device" not in texts[1]


@needs_jax
def test_measured_devices_become_a_catalogue_entry(
    tmp_path: Path, devices: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    sizes = ("--bytes", "65536")
    assert (
        xla.main(["--devices", "16", "measure", "--name", "mine", "--out", str(path), "--budget", "0.02", *sizes]) == 0
    )
    printed = capsys.readouterr().out
    assert all(op in printed for op in xla_measure.OPS)
    assert "matmul bf16" in printed
    own = library.cluster(str(path))
    assert (own.name, own.chip.name, own.domain, own.max_chips) == ("mine", "mine", 16, 16)
    alpha = roofline.critical_intensity(own.chip.flops("bf16"), own.egress(16))
    assert 0 < alpha < float("inf")
    assert own.levels[0].latency > 0
    assert own.chip.hbm > 1e8
    assert path.read_text().count('kind = "measured"') == 6


def measurement(**changes: Any) -> xla_measure.Measurement:
    timings = (
        xla_measure.Timing("all_gather", "process", 4, 1000.0, 750.0, 0.5),
        xla_measure.Timing("all_gather", "process", 4, 4000.0, 3000.0, 1.0),
        xla_measure.Timing("p2p", "process", 4, 4000.0, 4000.0, 0.1),
        xla_measure.Timing("p2p", "process", 4, 8.0, 8.0, 0.002),
        xla_measure.Timing("all_gather", "network", 2, 4000.0, 2000.0, 10.0),
        xla_measure.Timing("p2p", "network", 2, 8.0, 8.0, 0.01),
    )
    found: dict[str, Any] = {
        "device": "toy",
        "devices": 8,
        "peak": {"bf16": 1e12},
        "hbm": 8e9,
        "hbm_bandwidth": 1e11,
        "levels": (("process", 4), ("network", 2)),
        "timings": timings,
    }
    return xla_measure.Measurement(**(found | changes))


@needs_jax
def test_two_levels_are_written_innermost_first(tmp_path: Path) -> None:
    found = measurement()
    assert found.egress("process") == 3000.0
    assert found.latency("process") == 0.002
    path = tmp_path / "two.toml"
    path.write_text(xla_measure.toml(found, "two"))
    own = library.cluster(str(path))
    assert [(v.name, v.size, v.egress, v.latency) for v in own.levels] == [
        ("process", 4, 3000.0, 0.002),
        ("network", 8, 200.0, 0.01),
    ]
    assert "200 B/s" in xla_measure.table(found)


@needs_jax
def test_one_device_is_a_chip_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(xla_measure.toml(measurement(devices=1, levels=(), timings=()), "one"))
    own = library.load(path)
    assert list(own.chips) == ["one"]
    assert own.clusters == {}
    with pytest.raises(CatalogueError, match="holds no cluster"):
        library.cluster(str(path))
    with pytest.raises(CompilerError, match="no name for an entry"):
        xla_measure.toml(measurement(), "my chip")


@needs_jax
def test_wrong_calls_say_what_to_do(capsys: pytest.CaptureFixture[str], devices: Any) -> None:
    assert xla.main(["run", "--strategy", "magic"]) == 2
    assert "use DP (8 devices)" in capsys.readouterr().err
    assert xla.main(["--coordinator", "localhost:1", "run"]) == 2
    assert "--coordinator needs --processes and --process" in capsys.readouterr().err
    assert xla.main(["--coordinator", "localhost:1", "--processes", "2", "--process", "2", "run"]) == 2
    assert "--process 2 of 2: count from 0 to 1" in capsys.readouterr().err
    for call in (["measure", "--bytes", "-5"], ["measure", "--budget", "0"], ["--devices", "0", "run"], ["walk"], []):
        with pytest.raises(SystemExit, match="2"):
            xla.main(call)
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.endswith("--help\n")
    for wrong, why in (("--name", "no name for an entry"), ("--out", "there is no folder no/such for chip.toml")):
        assert xla.main(["measure", wrong, "no/such/chip.toml"]) == 2
        assert why in capsys.readouterr().err
    assert xla_cli.run(["--devices", "16", "table", "--layer", "two-matmul", "--strategy", "DP"]) == 0
    assert "all_reduce          7,168" in capsys.readouterr().out
