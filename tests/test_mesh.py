"""The virtual mesh: values equal those of one device, bytes equal the ledgers, misuse is explained."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_lib import collectives, cp, crosspod, dp, ep, fsdp, hybrid, pp, tp
from scaling_lib.hardware import Chip, Cluster, Level
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.ledger import Ledger
from scaling_lib.mesh import (
    Mesh,
    MeshError,
    Shards,
    all_gather,
    all_reduce,
    all_to_all,
    einsum,
    keep,
    local,
    permute,
    reduce_scatter,
    reduce_to,
)
from scaling_lib.mesh_block import ACTIVATIONS, attend, block, place, shapes
from scaling_lib.mesh_layers import (
    IN_LAYOUT,
    OUT_LAYOUT,
    STRATEGIES,
    X_LAYOUT,
    Strategy,
    two_matmul,
    two_matmul_reference,
)
from scaling_lib.mesh_moe import moe
from scaling_lib.mesh_pipeline import pipeline
from scaling_lib.mesh_zero import Adam, zero_layouts, zero_step
from scaling_lib.model import MoE, TransformerConfig

CHIP = Chip("toy", "Toy chip", {"bf16": 1e12}, 80e9, 1e12)
NODES = Cluster(  # nodes of four chips, so that a small mesh crosses the network
    "toy-nodes",
    "Toy nodes",
    CHIP,
    (Level("nvlink", "switch", 4, 400.0, 2e-3), Level("network", "switch", None, 50.0, 5e-3)),
)
RACKS = replace(NODES, name="toy-racks", levels=(Level("pair", "switch", 2, 900.0, 1e-3), *NODES.levels))
TORUS = Cluster("toy-torus", "Toy torus", CHIP, (Level("ici", "torus", 16, 90.0, 1e-3, shape=(4, 4)),))
MODEL = TransformerConfig("toy", 2, 8, 16, 8, 4, 4, 32, gated=True, tied_embeddings=False)


def job(batch: int, layer: str, seq_len: int = 8, model: TransformerConfig = MODEL, **plan: Any) -> Job:
    shape = ParallelPlan(**plan)
    return Job(model, NODES, shape, shape.chips, batch, seq_len, layer=layer)


def rows(ledger: Ledger) -> dict[str, float]:
    """Rows that carry bytes, without the strategy that a hybrid ledger appends."""
    return {p.name.removesuffix(" (FSDP)").removesuffix(" (TP)"): float(p.value) for p in ledger if p.value}


def counted(mesh: Mesh, but: str = "norm") -> dict[str, float]:
    return {name: value for name, value in rows(mesh.ledger()).items() if but not in name}


def close(a: Any, b: Any) -> None:
    scale = np.abs(b).max()
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * scale)


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def difference(f: Callable[[], float], a: np.ndarray[Any, Any], index: tuple[int, ...]) -> float:
    """Central difference of a scalar with respect to one element of an array that f reads."""
    old, e = a[index], 1e-5
    a[index] = old + e
    up = f()
    a[index] = old - e
    down = f()
    a[index] = old
    return (up - down) / (2 * e)


def check_gradient(
    f: Callable[[], float], a: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any], n: int = 12
) -> None:
    """A few elements against central differences."""
    assert a.shape == gradient.shape
    for flat in np.random.default_rng(1).choice(a.size, min(n, a.size), replace=False):
        index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
        assert difference(f, a, index) == pytest.approx(gradient[index], rel=1e-5, abs=1e-6)


# Collectives against numpy, their bytes against the formulas

MESHES = st.tuples(st.integers(1, 5), st.integers(1, 4))
ALGORITHM = st.sampled_from(["ring", "tree"])


@settings(max_examples=40, deadline=None)
@given(MESHES, st.integers(1, 3), st.integers(1, 3), ALGORITHM, st.sampled_from(["X", "Y", "XY", "YX"]))
def test_gather_and_reduce_equal_numpy(
    shape: tuple[int, int], rows_: int, cols: int, algorithm: str, axes: str
) -> None:
    mesh = Mesh(shape, "XY", algorithm=algorithm)
    n = mesh.degree(axes)
    full = numbers(rows_ * n, cols * n)
    steps = n - 1 if algorithm == "ring" else math.ceil(math.log2(n))

    gathered = all_gather(mesh.shard(full, f"B_{axes} D"), "B")
    np.testing.assert_array_equal(gathered.whole(), full)
    assert all(p.shape == full.shape for p in gathered.parts)
    assert mesh.sent(op="all_gather") == collectives.sent_bytes("all_gather", 2 * full.size, n)

    left, right = numbers(3, n), numbers(n, cols * n)
    for out in ("all_reduce", "reduce_scatter"):
        partial = einsum("B J, J D -> B D", mesh.shard(left, f"B J_{axes}"), mesh.shard(right, f"J_{axes} D"))
        assert set(partial.partial) == set(axes)
        total = all_reduce(partial) if out == "all_reduce" else reduce_scatter(partial, "D", axes)
        np.testing.assert_allclose(total.whole(), left @ right, atol=1e-12)
        assert total.partial == ""
        assert total.axes_of("D") == (axes if out == "reduce_scatter" else "")
    exact = collectives.sent_bytes("reduce_scatter", 2 * 3 * cols * n, n)
    assert mesh.sent(op="reduce_scatter") == exact
    assert mesh.sent(op="all_reduce") == pytest.approx(2 * exact, abs=0 if (3 * cols * n) % n == 0 else 4 * n)
    if n > 1:
        assert [t.steps for t in mesh.log] == [steps, 2 * steps, steps]
    else:
        assert mesh.log == []


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 3))
def test_all_to_all_moves_a_cut(n: int, a: int, b: int) -> None:
    mesh, full = Mesh((n,), "X"), numbers(a * n, b * n, 2)
    moved = all_to_all(mesh.shard(full, "Q_X E D"), "Q", "E")
    assert moved.layout == "[Q, E_X, D]"
    np.testing.assert_array_equal(moved.whole(), full)
    assert mesh.sent() == collectives.sent_bytes("all_to_all", 2 * full.size, n)
    back = all_to_all(moved, "E", "Q")
    np.testing.assert_array_equal(back.whole(), full)
    assert back.layout == "[Q_X, E, D]"
    assert [t.steps for t in mesh.log] == [n - 1] * (2 * (n > 1))


def test_all_to_all_over_one_of_two_axes() -> None:
    mesh, full = Mesh((2, 3), "ZX"), numbers(6, 3, 4)
    moved = all_to_all(mesh.shard(full, "Q_ZX E D"), "Q", "E", "X")
    assert moved.layout == "[Q_Z, E_X, D]"
    np.testing.assert_array_equal(moved.whole(), full)
    np.testing.assert_array_equal(all_to_all(moved, "E", "Q").whole(), full)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_all_to_all_on_a_torus_forwards_along_the_ring(n: int) -> None:
    torus = replace(TORUS, levels=(replace(TORUS.levels[0], size=n, shape=(n,)),))
    mesh, full = Mesh((n,), "X", torus), numbers(n, n, 4)
    moved = all_to_all(mesh.shard(full, "Q_X E D"), "Q", "E")
    np.testing.assert_array_equal(moved.whole(), full)
    hops = sum(min(d, n - d) for d in range(n))
    assert mesh.sent() == 2 * 4 * hops
    assert mesh.log[0].steps == n // 2
    if n % 2 == 0:  # both links busy alike: the closed form V/(4W) without latency
        exact = collectives.all_to_all_ring(2.0 * full.size, 90.0) + (n // 2) * 1e-3
        assert mesh.seconds() == pytest.approx(exact, rel=1e-12)


def test_permute_goes_round_or_along_pairs() -> None:
    mesh = Mesh((3, 2), "PX")
    x = mesh.shard(np.arange(6.0).reshape(3, 2), "L_P B_X", "a")
    np.testing.assert_array_equal(permute(x, "P").whole(), [[4, 5], [0, 1], [2, 3]])
    np.testing.assert_array_equal(permute(x, "P", [(2, 0), (1, 1)]).whole(), [[4, 5], [2, 3], [0, 0]])
    assert [t.sent.tolist() for t in mesh.log] == [[[2.0]] * 6, [[0.0]] * 4 + [[2.0]] * 2]
    assert {t.seconds for t in mesh.log} == {None}, "no cluster, no time"
    assert mesh.ledger()["permute a"] == 4.0


def test_dtype_counts_bytes_and_leaves_values() -> None:
    mesh = Mesh((2,), "X", dtype="fp32")
    x = mesh.shard(numbers(4, 3), "B_X D")
    all_gather(x, "B")
    all_gather(x.cast("fp8"), "B")
    assert [t.sent.max() for t in mesh.log] == [4 * 6, 6]
    np.testing.assert_array_equal(x.cast("fp8").whole(), x.whole())
    assert x.bytes == 24
    assert x.cast("bf16").bytes == 12


# Levels and seconds


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize(
    ("cluster", "shape", "axes", "group"),
    [
        (NODES, (8,), "X", "X"),
        (NODES, (2,), "X", "X"),
        (NODES, (4, 4), "XY", "X"),
        (NODES, (4, 4), "XY", "Y"),
        (NODES, (8, 2), "XY", "X"),
        (NODES, (3, 4), "ZX", "ZX"),
        (RACKS, (12,), "X", "X"),
        (RACKS, (6, 2), "XY", "X"),
        (TORUS, (16,), "X", "X"),
    ],
)
def test_seconds_over_levels_equal_the_formula(op: str, cluster: Cluster, shape: Any, axes: str, group: str) -> None:
    mesh = Mesh(shape, axes, cluster)
    n = mesh.degree(group)
    stride = math.prod(s for a, s in zip(axes, shape, strict=True) if a > max(group))
    full = numbers(2 * n, 3)
    if op == "all_gather":
        all_gather(mesh.shard(full, f"B_{group} D"), "B")
    else:
        x = einsum(
            "J, J B D -> B D",
            mesh.shard(np.ones(n), f"J_{group}"),
            mesh.shard(np.ones((n, 2 * n, 3)), f"J_{group} B D"),
        )
        (all_reduce(x, group) if op == "all_reduce" else reduce_scatter(x, "B", group))
    assert mesh.sent() == collectives.sent_bytes(op, 2 * full.size, n)
    assert mesh.seconds() == pytest.approx(
        collectives.collective_time(op, 2 * full.size, cluster, n, stride), rel=1e-12
    )


def test_a_tree_takes_fewer_rounds_and_sends_the_same() -> None:
    meshes = [Mesh((16,), "X", NODES, algorithm=a) for a in ("ring", "tree")]
    for mesh in meshes:
        all_gather(mesh.shard(numbers(16, 2), "B_X D"), "B")
    ring, tree = meshes
    assert ring.sent() == tree.sent()
    assert ring.sent(level="network") == tree.sent(level="network")
    assert (ring.log[0].steps, tree.log[0].steps) == (3 + 3, 2 + 2)
    assert ring.seconds() - tree.seconds() == pytest.approx(1 * 2e-3 + 1 * 5e-3)


def test_tensor_parallelism_leaves_a_nodes_gather_unchanged() -> None:
    """Model page: V/W_node whether or not each gathered slice is 1/Y of the weights."""
    seconds = []
    for shape in ((16, 1), (4, 4)):
        mesh = Mesh(shape, "XY", replace(NODES, levels=tuple(replace(v, latency=0.0) for v in NODES.levels)))
        all_gather(mesh.shard(numbers(16, 8), "D_X F_Y"), "D")
        seconds.append(mesh.seconds())
    assert seconds[0] == pytest.approx(seconds[1])
    assert seconds[0] == pytest.approx(2 * 128 * 3 / 4 / (4 * 50.0))


def test_two_nodes_are_bounded_by_the_domain_when_the_network_is_fast_enough() -> None:
    fast = replace(NODES, levels=(NODES.levels[0], replace(NODES.levels[1], egress=300.0)))
    assert 4 * 300 > 400
    assert fast.slowest(8) is fast.levels[0]
    mesh = Mesh((8,), "X", fast)
    all_gather(mesh.shard(numbers(8, 400), "B_X D"), "B")
    inner = mesh.sent(level="nvlink") / 400.0
    assert inner > mesh.sent(level="network") / 300.0
    assert mesh.seconds() == pytest.approx(inner + 3 * 2e-3 + 1 * 5e-3)


def test_torus_axes_divide_the_bandwidth() -> None:
    seconds = []
    for used in ({}, {"X": 1}):
        mesh = Mesh((4, 4), "XY", TORUS, torus_axes=used)
        all_gather(mesh.shard(numbers(4, 100), "B_X D"), "B")
        seconds.append(mesh.seconds() - 3 * 1e-3)
    assert seconds[1] == pytest.approx(2 * seconds[0])


@pytest.mark.parametrize(
    ("n", "rounds", "why"),
    [(16, 3 + 3, "a block of 4 x 4"), (8, 3 + 1, "of 4 x 2"), (3, 2, "a line"), (6, 5, "no block: one ring")],
)
def test_a_torus_has_a_ring_along_each_axis(n: int, rounds: int, why: str) -> None:
    mesh, full = Mesh((n,), "X", TORUS), numbers(n, 2 * n)
    np.testing.assert_array_equal(all_gather(mesh.shard(full, "B_X D"), "B").whole(), full)
    terms = einsum("J, J D -> D", mesh.shard(np.ones(n), "J_X"), mesh.shard(full, "J_X D"))
    np.testing.assert_allclose(reduce_scatter(terms, "D").whole(), full.sum(0), atol=1e-12)
    np.testing.assert_allclose(all_reduce(terms).whole(), full.sum(0), atol=1e-12)
    assert [t.steps for t in mesh.log] == [rounds, rounds, 2 * rounds], why
    assert mesh.sent(op="all_gather") == collectives.sent_bytes("all_gather", 2 * full.size, n)


def test_a_torus_of_nodes_rings_over_nodes() -> None:
    """Pairs of chips on 2 x 2 of the nodes of a torus: one round inside, one along each axis."""
    levels = (Level("pair", "switch", 2, 400.0, 1e-3), Level("ici", "torus", 16, 90.0, 1e-3, shape=(4, 2)))
    mesh = Mesh((8,), "X", replace(TORUS, levels=levels))
    full = numbers(8, 2)
    np.testing.assert_array_equal(all_gather(mesh.shard(full, "B_X D"), "B").whole(), full)
    assert mesh.log[0].steps == 1 + 1 + 1


# The two-matmul layer under every strategy

PLANS: dict[str, tuple[tuple[int, ...], str, dict[str, int]]] = {
    "DP": ((4,), "X", {"dp": 4}),
    "FSDP": ((4,), "X", {"dp": 4}),
    "TP": ((4,), "Y", {"tp": 4}),
    "FSDP x TP": ((4, 2), "XY", {"dp": 4, "tp": 2}),
    "cross-pod DP": ((2, 4), "ZX", {"dp": 8}),
    "FSDP in pods": ((2, 4), "ZX", {"dp": 8}),
}
LEDGERS: dict[str, Callable[[Job], Ledger]] = {
    "DP": dp.wire_bytes,
    "FSDP": fsdp.wire_bytes,
    "TP": tp.wire_bytes,
    "FSDP x TP": hybrid.wire_bytes,
}


def run_two_matmul(strategy: Strategy, mesh: Mesh, batch: int, d: int, f: int) -> list[tuple[Shards, Any]]:
    x, w_in, w_out, d_out = numbers(batch, d), numbers(d, f, seed=1), numbers(f, d, seed=2), numbers(batch, d, seed=3)
    layout = strategy.layout
    got = two_matmul(
        strategy,
        mesh.shard(x, layout(X_LAYOUT), "input"),
        mesh.shard(w_in, layout(IN_LAYOUT), "weights"),
        mesh.shard(w_out, layout(OUT_LAYOUT), "weights"),
        mesh.shard(d_out, layout(X_LAYOUT), "output gradient"),
    )
    return list(zip(got, two_matmul_reference(x, w_in, w_out, d_out), strict=True))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("name", list(PLANS))
def test_two_matmul_equals_one_device(name: str, algorithm: str) -> None:
    shape, axes, _ = PLANS[name]
    strategy, mesh = STRATEGIES[name], Mesh(shape, axes, algorithm=algorithm)
    results = run_two_matmul(strategy, mesh, 16, 8, 16)
    for mine, reference in results:
        close(mine.whole(), reference)
    stored = [X_LAYOUT, X_LAYOUT, IN_LAYOUT, OUT_LAYOUT]
    assert [m.axes for m, _ in results] == [mesh.read_layout(strategy.layout(s))[1] for s in stored]


def test_two_matmul_reference_against_differences() -> None:
    x, w_in, w_out, d_out = numbers(3, 4), numbers(4, 5, seed=1), numbers(5, 4, seed=2), numbers(3, 4, seed=3)
    _, d_x, d_w_in, d_w_out = two_matmul_reference(x, w_in, w_out, d_out)

    def loss() -> float:
        return float((two_matmul_reference(x, w_in, w_out, d_out)[0] * d_out).sum())

    for a, g in ((x, d_x), (w_in, d_w_in), (w_out, d_w_out)):
        check_gradient(loss, a, g)


@pytest.mark.parametrize("name", list(LEDGERS))
def test_two_matmul_bytes_equal_the_ledger(name: str) -> None:
    shape, axes, plan = PLANS[name]
    mesh = Mesh(shape, axes)
    run_two_matmul(STRATEGIES[name], mesh, 16, MODEL.d_model, MODEL.d_ff)
    ledger = LEDGERS[name](job(16, "two-matmul", **plan))
    assert counted(mesh) == rows(ledger)
    assert mesh.sent() == ledger.total > 0


@settings(max_examples=25, deadline=None)
@given(MESHES, st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), ALGORITHM)
def test_two_matmul_for_any_sizes(shape: tuple[int, int], b: int, d: int, f: int, algorithm: str) -> None:
    x, y = shape
    batch, d_model, d_ff = b * x, d * x * y, f * y
    mesh = Mesh(shape, "XY", algorithm=algorithm)
    for mine, reference in run_two_matmul(STRATEGIES["FSDP x TP"], mesh, batch, d_model, d_ff):
        close(mine.whole(), reference)
    model = replace(MODEL, d_model=d_model, d_ff=d_ff)
    ledger = hybrid.wire_bytes(job(batch, "two-matmul", model=model, dp=x, tp=y))
    assert counted(mesh) == rows(ledger)


def test_keeping_or_gathering_again_changes_bytes_as_the_ledger_says() -> None:
    mesh = Mesh((4, 2), "XY")
    strategy = replace(STRATEGIES["FSDP x TP"], reshard=False, regather=True)
    for mine, reference in run_two_matmul(strategy, mesh, 16, 8, 16):
        close(mine.whole(), reference)
    ledger = hybrid.wire_bytes(job(16, "two-matmul", dp=4, tp=2, reshard_after_forward=False), regather=True)
    assert counted(mesh) == rows(ledger)
    without = Mesh((4,), "X")  # nothing was gathered, so nothing is gathered again
    for mine, reference in run_two_matmul(replace(STRATEGIES["FSDP"], regather=True), without, 16, 8, 16):
        close(mine.whole(), reference)
    assert counted(without) == rows(fsdp.wire_bytes(job(16, "two-matmul", dp=4)))


def test_gradients_across_pods() -> None:
    """Scattered inside, summed across, gathered inside: the outer network carries what the ledger says."""
    plan = job(16, "two-matmul", dp=8)
    for mesh in (Mesh((2, 4), "ZX"), Mesh((2, 4), "ZX", NODES)):
        run_two_matmul(STRATEGIES["cross-pod DP"], mesh, 16, 8, 16)
        assert mesh.sent(axes="Z") == crosspod.wire_bytes(plan).total > 0
        assert mesh.sent() == dp.wire_bytes(plan).total
        if mesh.cluster:
            assert mesh.sent(level="network") == mesh.sent(axes="Z")
    flat = Mesh((2, 4), "ZX", NODES)  # an all-reduce over both axes at once goes the same way by itself
    run_two_matmul(Strategy(data="ZX"), flat, 16, 8, 16)
    assert {t.axes for t in flat.log} == {"ZX"}
    assert flat.sent(level="network") == crosspod.wire_bytes(plan).total
    pods = Mesh((2, 4), "ZX")
    run_two_matmul(STRATEGIES["FSDP in pods"], pods, 16, 8, 16)
    assert pods.sent(axes="Z") == crosspod.wire_bytes(plan).total
    assert counted(pods) == rows(fsdp.wire_bytes(job(16, "two-matmul", dp=4))) | {
        "backward/all_reduce gradients": pods.sent(axes="Z")
    }


def test_the_pod_scatters_along_a_dimension_that_is_whole() -> None:
    """D divides by the pod's axis, too, but each device holds one row of it."""
    mesh = Mesh((2, 2, 4), "ZXY")
    terms = mesh.shard(np.ones(4), "J_ZX"), mesh.shard(np.ones((4, 4, 2)), "J_ZX D_Y F")
    total = reduce_to(einsum("J, J D F -> D F", *terms), "D_Y F", inner="X")
    assert total.layout == "[D_Y, F]"
    np.testing.assert_array_equal(total.whole(), np.full((4, 2), 4.0))


def test_sharded_weights_lower_the_peak_of_memory() -> None:
    peaks = {}
    for name in ("DP", "FSDP"):
        mesh = Mesh((4,), "X")
        run_two_matmul(STRATEGIES[name], mesh, 16, 32, 128)
        peaks[name] = mesh.peak
    weights = 2 * 32 * 128 * 2
    assert peaks["DP"] >= 2 * weights  # weights and gradients
    assert peaks["FSDP"] <= peaks["DP"] - weights
    assert peaks["FSDP"] < 2 * weights, "a gathered weight is gone before the next gradient is whole"


# The Llama block


def reference_block(x: Any, w: dict[str, Any]) -> Any:
    """The block's forward pass, written apart from the library: complex rotations, plain softmax."""
    s = x.shape[1]

    def norm(a: Any, gain: Any) -> Any:
        return a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-5) * gain

    def turn(a: Any) -> Any:
        half = a.shape[-1] // 2
        pairs = a[..., :half] + 1j * a[..., half:]
        angle = np.arange(s)[:, None] * 500000.0 ** (-2 * np.arange(half) / (2 * half))
        pairs = pairs * np.exp(1j * angle).reshape(1, s, *[1] * (a.ndim - 3), half)
        return np.concatenate([pairs.real, pairs.imag], axis=-1)

    n = norm(x, w["norm1"])
    q, k = turn(np.einsum("bsd,dkgh->bskgh", n, w["wq"])), turn(np.einsum("bsd,dkh->bskh", n, w["wk"]))
    z = np.einsum("bskgh,btkh->bkgst", q, k) / np.sqrt(q.shape[-1])
    p = np.exp(np.where(np.tril(np.ones((s, s), bool)), z, -np.inf))
    p /= p.sum(-1, keepdims=True)
    o = np.einsum("bkgst,btkh->bskgh", p, np.einsum("bsd,dkh->bskh", n, w["wv"]))
    y = x + np.einsum("bskgh,kghd->bsd", o, w["wo"])
    n = norm(y, w["norm2"])
    gate = n @ w["w_gate"]
    return y + (gate / (1 + np.exp(-gate)) * (n @ w["w_up"])) @ w["w_down"]


def block_inputs(d: int = 8, heads: int = 8, kv: int = 4, h: int = 4, f: int = 16) -> tuple[Any, dict[str, Any], Any]:
    weights = {k: 0.4 * numbers(*s, seed=i) for i, (k, s) in enumerate(shapes(d, heads, kv, h, f).items())}
    return numbers(4, 8, d, seed=90), weights, numbers(4, 8, d, seed=91)


def run_block(strategy: Strategy, mesh: Mesh) -> tuple[Any, Any, dict[str, Any]]:
    x, weights, d_out = block_inputs()
    layout = strategy.layout(ACTIVATIONS)
    out, d_x, gradients = block(
        strategy, mesh.shard(x, layout), place(mesh, strategy, weights), mesh.shard(d_out, layout)
    )
    assert {k: g.axes for k, g in gradients.items()} == {k: w.axes for k, w in place(mesh, strategy, weights).items()}
    return out.whole(), d_x.whole(), {k: g.whole() for k, g in gradients.items()}


@pytest.fixture(scope="module")
def alone() -> tuple[Any, Any, dict[str, Any]]:
    """The block on one device."""
    return run_block(Strategy(), Mesh((1,), "X"))


def test_block_on_one_device_is_llamas(alone: Any) -> None:
    x, weights, d_out = block_inputs()
    out, d_x, gradients = alone
    close(out, reference_block(x, weights))

    def loss() -> float:
        return float((reference_block(x, weights) * d_out).sum())

    check_gradient(loss, x, d_x)
    assert set(gradients) == set(weights)
    for key, w in weights.items():
        check_gradient(loss, w, gradients[key])


def test_running_softmax_takes_the_maximum_of_each_query() -> None:
    """A query of large scores beside one of small ones: with a common maximum the latter would vanish."""
    q = np.array([1000.0, 1.0]).reshape(1, 2, 1, 1, 1)
    kv = np.stack([np.ones((1, 2, 1, 1)), numbers(1, 2, 1, 1)])
    start = np.full((1, 1, 1, 2), -np.inf), np.zeros((1, 1, 1, 2)), np.zeros_like(q)
    top, total, mixed = attend(q, kv, np.arange(2), np.arange(2), *start)
    np.testing.assert_array_equal(top.ravel(), [1000.0, 1.0])
    np.testing.assert_array_equal(total.ravel(), [1.0, 2.0])
    np.testing.assert_allclose(mixed.ravel(), [kv[1, 0, 0, 0, 0], kv[1].sum()], rtol=1e-15)


BLOCKS: dict[str, tuple[Strategy, tuple[int, ...], str]] = {
    "DP": (Strategy("X"), (4,), "X"),
    "FSDP": (Strategy("X", "X"), (4,), "X"),
    "TP": (Strategy(tensor="Y"), (4,), "Y"),
    "TP, input gathered again": (Strategy(tensor="Y", regather=True), (2,), "Y"),
    "FSDP x TP": (Strategy("X", "X", "Y"), (2, 4), "XY"),
    "CP": (Strategy(context="C"), (4,), "C"),
    "cross-pod DP": (Strategy("ZX", inner="X"), (2, 2), "ZX"),
    "FSDP over DP and CP, TP, pods": (Strategy("ZX", "XC", "Y", "C"), (2, 2, 2, 2), "ZXCY"),
}


@pytest.mark.parametrize("name", list(BLOCKS))
def test_block_equals_one_device(name: str, alone: Any) -> None:
    strategy, shape, axes = BLOCKS[name]
    out, d_x, gradients = run_block(strategy, Mesh(shape, axes))
    close(out, alone[0])
    close(d_x, alone[1])
    for key, g in gradients.items():
        close(g, alone[2][key])


@pytest.mark.parametrize(
    ("name", "plan", "wire"),
    [
        ("DP", {"dp": 4}, dp.wire_bytes),
        ("FSDP", {"dp": 4}, fsdp.wire_bytes),
        ("TP", {"tp": 4}, tp.wire_bytes),
        ("TP, input gathered again", {"tp": 2}, lambda j: tp.wire_bytes(j, regather=True)),
        ("FSDP x TP", {"dp": 2, "tp": 4}, hybrid.wire_bytes),
        ("cross-pod DP", {"dp": 4}, None),
    ],
)
def test_block_bytes_equal_the_ledger(name: str, plan: dict[str, int], wire: Callable[[Job], Ledger] | None) -> None:
    strategy, shape, axes = BLOCKS[name]
    mesh = Mesh(shape, axes)
    run_block(strategy, mesh)
    full = job(32, "full", **plan)
    if wire is None:
        assert sum(counted(mesh).values()) == dp.wire_bytes(full).total
        assert mesh.sent(axes="Z", name="gradients") == pytest.approx(0.5 * dp.wire_bytes(job(32, "full", dp=2)).total)
    else:
        assert counted(mesh) == rows(wire(full))


def test_norm_gains_are_what_the_ledgers_leave_out() -> None:
    """Two gains of D elements a layer: under FSDP x TP gathered, scattered over X, and summed over Y in slices."""
    mesh = Mesh((2, 4), "XY")
    run_block(BLOCKS["FSDP x TP"][0], mesh)
    gains = 2 * MODEL.d_model * 2
    assert {k: v for k, v in rows(mesh.ledger()).items() if "norm" in k} == {
        "forward/all_gather norm gains": collectives.sent_bytes("all_gather", gains, 2),
        "backward/all_gather norm gains": collectives.sent_bytes("all_gather", gains, 2),
        "backward/reduce_scatter norm gradients": collectives.sent_bytes("reduce_scatter", gains, 2),
        "backward/all_reduce norm gradients": collectives.sent_bytes("all_reduce", gains / 2, 4),
    }


def test_ring_attention_bytes_equal_the_ledger() -> None:
    mesh = Mesh((4,), "C")
    run_block(BLOCKS["CP"][0], mesh)
    plan = job(32, "full", cp=4)
    assert counted(mesh) == rows(cp.wire_bytes(plan)) | rows(dp.wire_bytes(plan))
    everything = Mesh((2, 2, 2, 2), "ZXCY")
    run_block(BLOCKS["FSDP over DP and CP, TP, pods"][0], everything)
    plan = job(32, "full", dp=4, cp=2, tp=2)
    assert {k: v for k, v in counted(everything).items() if "key" in k} == rows(cp.wire_bytes(plan))
    assert {k: v for k, v in counted(everything).items() if "put" in k} == rows(tp.wire_bytes(plan))


def test_ring_attention_knob() -> None:
    """At the largest cp a move takes as long as the causal work on one block."""
    plan = job(1024, "full", seq_len=1024, cp=4)
    egress, m = 400.0, MODEL
    width = plan.seq_len / cp.max_cp(plan)
    work = 4 * width * (width / 2) * m.n_heads * m.head_dim / 1e12
    assert work == pytest.approx(cp.kv_bytes(width, m.n_kv_heads, m.head_dim) / egress)
    now = cp.times(plan)
    assert bool(cp.is_compute_bound(plan)) == (now.forward_math >= now.forward_comms)
    assert now.forward_comms == cp.wire_bytes(plan)["forward"] / egress
    with pytest.raises(ValueError, match="key-value heads"):
        cp.wire_bytes(job(32, "full", tp=8))


# Experts, pipeline, optimizer


def reference_moe(x: Any, w: dict[str, Any], k: int) -> Any:
    """Token by token, expert by expert."""
    out = np.zeros_like(x)
    for i, t in enumerate(x):
        s = t @ w["router"]
        chosen = np.argsort(-s, kind="stable")[:k]
        share = np.exp(s[chosen]) / np.exp(s[chosen]).sum()
        for e, u in zip(chosen, share, strict=True):
            gate = t @ w["w_gate"][e]
            out[i] += u * ((gate / (1 + np.exp(-gate))) * (t @ w["w_up"][e])) @ w["w_down"][e]
    return out


def moe_inputs() -> tuple[Any, dict[str, Any], Any]:
    d, e, f = 6, 4, 5
    w = {"router": (d, e), "w_gate": (e, d, f), "w_up": (e, d, f), "w_down": (e, f, d)}
    return numbers(16, d), {k: numbers(*s, seed=i) for i, (k, s) in enumerate(w.items())}, numbers(16, d, seed=9)


def run_moe(mesh: Mesh, x: Any, w: dict[str, Any], d_out: Any, capacity: int) -> Any:
    batch = "B_" + str(mesh.axes) + " D" if mesh.size > 1 else "B D"
    e = "E_X" if mesh.size > 1 else "E"
    layouts = {"router": "D E", "w_gate": f"{e} D F", "w_up": f"{e} D F", "w_down": f"{e} F D"}
    shards = {key: mesh.shard(a, layouts[key]) for key, a in w.items()}
    return moe(mesh.shard(x, batch), shards, mesh.shard(d_out, batch), 2, capacity)


@pytest.mark.parametrize(("shape", "axes"), [((1,), "X"), ((2,), "X"), ((4,), "X"), ((2, 2), "ZX")])
def test_experts_equal_one_device_and_the_ledger(shape: tuple[int, ...], axes: str) -> None:
    x, w, d_out = moe_inputs()
    mesh = Mesh(shape, axes)
    tokens = len(x) // mesh.size
    out, d_x, gradients = run_moe(mesh, x, w, d_out, tokens)
    _, d_x1, alone = run_moe(Mesh((1,), "X"), x, w, d_out, len(x))
    close(out.whole(), reference_moe(x, w, 2))
    close(d_x.whole(), d_x1.whole())
    for key, g in gradients.items():
        close(g.whole(), alone[key].whole())
    model = replace(MODEL, d_model=6, moe=MoE(4, 2, 5))
    plan = job(16, "full", model=model, dp=mesh.size, ep=mesh.degree("X"))
    assert counted(mesh) == rows(ep.wire_bytes(plan, factor=2.0))


def test_expert_gradients_against_differences() -> None:
    x, w, d_out = moe_inputs()
    _, d_x, gradients = run_moe(Mesh((1,), "X"), x, w, d_out, len(x))

    def loss() -> float:
        return float((reference_moe(x, w, 2) * d_out).sum())

    check_gradient(loss, x, d_x.whole())
    for key, a in w.items():
        check_gradient(loss, a, gradients[key].whole())


def test_balanced_experts_send_each_token_k_times() -> None:
    plan = job(32, "full", model=replace(MODEL, moe=MoE(4, 2, 5)), dp=4, ep=4)
    ledger = ep.wire_bytes(plan)
    assert ledger["forward/all_to_all tokens"] == ep.exchange_bytes(8, 2, 8, 4) == 8 * 2 * 8 * 2 * 3 / 4
    x, w, d_out = moe_inputs()
    w["router"] = np.zeros_like(w["router"])  # equal scores: experts 0 and 1 get everything
    with pytest.raises(MeshError, match=r"expert 0 gets 8 tokens from one device, its capacity is 4"):
        run_moe(Mesh((2,), "X"), x, w, d_out, 4)


def test_expert_exchange_over_levels_and_its_knob() -> None:
    x, w, d_out = numbers(16, 6), moe_inputs()[1], numbers(16, 6)
    w = {"router": numbers(6, 8), **{k: numbers(8, *a.shape[1:]) for k, a in w.items() if k != "router"}}
    mesh = Mesh((8,), "X", replace(NODES, levels=tuple(replace(v, latency=0.0) for v in NODES.levels)))
    run_moe(mesh, x, w, d_out, 2)
    hops = NODES.hops(8)
    size = 8 * 2 * 6 * 2  # E c D e on one chip
    assert mesh.seconds(name="tokens") == pytest.approx(ep.exchange_seconds(size, 8, hops))
    assert ep.exchange_seconds(size, 8, hops) == size * 4 / 8 / 50.0
    plan = job(64, "full", model=replace(MODEL, moe=MoE(8, 2, 5)), dp=8, ep=8)
    wide = replace(plan, model=replace(plan.model, moe=MoE(8, 2, math.ceil(ep.min_d_ff_expert(plan)))))
    assert ep.is_compute_bound(wide)
    assert not ep.is_compute_bound(plan)
    one_level = job(64, "full", model=plan.model, dp=4, ep=4)
    assert ep.min_d_ff_expert(one_level) == pytest.approx(ep.critical_d_ff_expert(1e12, 400.0) * 3 / 4)
    with pytest.raises(ValueError, match="no experts"):
        ep.flops(job(8, "full"))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3))
def test_pipeline_equals_one_device_and_the_ledger(p: int, m: int, b: int) -> None:
    w_in, w_out = numbers(p, 3, 4), numbers(p, 4, 3, seed=1)
    batch, d_out = list(numbers(m, b, 3, seed=2)), list(numbers(m, b, 3, seed=3))
    mesh = Mesh((p,), "P")
    got = pipeline("P", mesh.shard(w_in, "L_P D F"), mesh.shard(w_out, "L_P F D"), batch, d_out)
    d_w_in, d_w_out = np.zeros_like(w_in), np.zeros_like(w_out)
    for i in range(m):
        seen = [batch[i]]
        for k in range(p):
            seen.append(two_matmul_reference(seen[-1], w_in[k], w_out[k], seen[-1])[0])
        close(got[0][i], seen[-1])
        d = d_out[i]
        for k in reversed(range(p)):
            _, d, a, c = two_matmul_reference(seen[k], w_in[k], w_out[k], d)
            d_w_in[k] += a
            d_w_out[k] += c
        close(got[1][i], d)
    close(got[2].whole(), d_w_in)
    close(got[3].whole(), d_w_out)
    sent = mesh.log and sum(t.sent[:, 0] for t in mesh.log)
    each = 2.0 * m * b * 3
    assert p == 1 or list(sent) == [each, *[2 * each] * (p - 2), each]
    if p > 2:
        plan = job(m * b, "two-matmul", seq_len=b, model=replace(MODEL, d_model=3, n_layers=p), pp=p)
        assert list(counted(mesh).values()) == list(rows(pp.wire_bytes(plan)).values())
        assert list(counted(mesh)) == ["forward/permute activations", "backward/permute activation gradients"]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_equals_the_unsharded_step(stage: int) -> None:
    adam, mesh = Adam(rate=0.1), Mesh((4,), "X")
    w, m, v = numbers(8, 6), np.zeros((8, 6)), np.zeros((8, 6))
    layouts = zero_layouts(stage, "X")
    shards = mesh.shard(w, layouts["weights"], "weights"), *(mesh.shard(m, layouts["optimizer"]) for _ in range(2))
    for step in (1, 2, 3):
        x, d = numbers(12, 8, seed=step), numbers(12, 6, seed=10 + step)
        g = einsum("B R, B C -> R C", mesh.shard(x, "B_X R"), mesh.shard(d, "B_X C"))
        shards = zero_step(adam, stage, shards[0], g, shards[1], shards[2], step)
        w, m, v = adam.update(step, w, x.T @ d, m, v)
        for mine, reference in zip(shards, (w, m, v), strict=True):
            close(mine.whole(), reference)
        with pytest.raises(MeshError, match="discarded"):
            g.whole()
    assert shards[0].layout == "[R_X, C]" if stage == 3 else shards[0].layout == "[R, C]"
    size = 2 * w.size
    wanted = {
        0: collectives.sent_bytes("all_reduce", size, 4),
        1: collectives.sent_bytes("all_reduce", size, 4) + collectives.sent_bytes("all_gather", size, 4),
        2: collectives.sent_bytes("all_reduce", size, 4),
        3: collectives.sent_bytes("reduce_scatter", size, 4),
    }
    assert mesh.sent(phase="optimizer") == 3 * wanted[stage]
    moves = {f"{t.op} {t.name}" for t in mesh.log}
    reduction = "all_reduce gradients" if stage < 2 else "reduce_scatter gradients"
    assert moves == {reduction} | ({"all_gather weights"} if stage in (1, 2) else set())
    assert shards[1].bytes == size / (4 if stage else 1)


def test_adam_against_numbers_worked_by_hand() -> None:
    assert Adam() == Adam(rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8), "as Kingma and Ba recommend"
    adam, zero = Adam(rate=0.5, epsilon=1.0), np.zeros(1)
    w, m, v = adam.update(1, np.ones(1), np.full(1, 4.0), zero, zero)
    assert (w[0], m[0], v[0]) == pytest.approx((1 - 0.5 * 4 / 5, 0.4, 0.016))
    w, m, v = adam.update(2, w, zero, m, v)
    assert (m[0], v[0]) == pytest.approx((0.36, 0.015984))
    assert w[0] == pytest.approx(0.6 - 0.5 * (0.36 / 0.19) / (math.sqrt(0.015984 / 0.001999) + 1))
    cut = {k: [stage for stage in range(4) if zero_layouts(stage, "X")[k] == "R_X C"] for k in zero_layouts(0, "X")}
    assert cut == {"weights": [3], "gradients": [2, 3], "optimizer": [1, 2, 3]}
    with pytest.raises(MeshError, match="no ZeRO stage 4"):
        zero_layouts(4, "X")


# Memory, names, misuse


def test_memory_is_counted_while_arrays_live() -> None:
    mesh = Mesh((2,), "X")
    x = mesh.shard(np.ones((4, 8)), "B_X D", "x")
    assert mesh.live == mesh.peak == 32
    full = all_gather(x, "B")
    assert (mesh.live, mesh.peak) == (96, 96)
    full.discard()
    assert (mesh.live, mesh.peak) == (32, 96)
    del full, x
    assert mesh.live == 0
    other = mesh.shard(np.ones((4, 8)), "B D", "y")
    assert (mesh.live, mesh.peak) == (64, 96)
    assert other.named("z").name == "z"
    assert mesh.live == 64
    with pytest.raises(AttributeError):
        other.name = "w"  # type: ignore[misc]


def test_a_watcher_is_told_what_makes_and_frees_arrays() -> None:
    mesh, told = Mesh((1,), "X"), []
    mesh.watch = told.append
    x = mesh.shard(np.ones((4, 2)), "B_X D")
    product = einsum("B D -> D", x)
    assert (product.name, product.layout) == ("", "[D]{U_X}")
    total = keep(all_reduce(product), "D", "X")
    assert total.layout == "[D_X]"
    local(np.sqrt, total).discard()
    assert told == ["", "einsum", "", "", None, "local", None]


def test_counts_can_be_asked_by_phase_name_and_level() -> None:
    mesh = Mesh((2, 4), "XY", NODES)
    with mesh.phase("forward"):
        all_gather(mesh.shard(np.ones((4, 8)), "D_X F", "w"), "D")
    all_gather(mesh.shard(np.ones((4, 8)), "D F_Y", "v"), "F", name="u")
    assert mesh.sent(phase="forward") == mesh.sent(name="w") == mesh.sent(level="network") == 32
    assert mesh.sent(axes="Y") == mesh.sent(level="nvlink") == mesh.sent(name="u") == 48
    assert mesh.sent(op="all_to_all") == 0
    assert mesh.sent() == 80
    assert mesh.seconds(name="w") == pytest.approx(32 / 50.0 + 5e-3)
    ledger = mesh.ledger()
    assert rows(ledger) == {"forward/all_gather w": 32.0, "all_gather u": 48.0}
    assert (ledger.title, ledger.unit) == ("Bytes sent by the busiest device", "B")
    assert {p.formula for p in ledger} == {"counted"}
    with pytest.raises(MeshError, match="unknown level 'nvlnk': use one of nvlink, network"):
        mesh.sent(level="nvlnk")


def test_layouts_are_cut_and_kept_in_order() -> None:
    mesh, full = Mesh((2, 3), "XY"), numbers(12, 4)
    for axes in ("XY", "YX"):
        x = mesh.shard(full, f"B_{axes} D")
        np.testing.assert_array_equal(x.whole(), full)
        for rank, part in enumerate(x.parts):
            where = mesh.position(rank, axes)
            np.testing.assert_array_equal(part, full[2 * where : 2 * where + 2])
    half = all_gather(mesh.shard(full, "B_XY D"), "B", "Y")
    assert half.layout == "[B_X, D]"
    np.testing.assert_array_equal(half.whole(), full)
    kept = keep(half, "B", "Y")
    assert kept.layout == "[B_XY, D]"
    assert len(mesh.log) == 1
    np.testing.assert_array_equal(kept.whole(), full)
    assert str(kept.named("In")) == "In[B_XY, D]"
    assert kept.shape == (12, 4)
    assert np.isnan(mesh.shard(np.full(2, np.nan), "B").whole()).all(), "a step that diverged can still be read"


def test_reduce_to_brings_a_gradient_to_its_weight() -> None:
    mesh = Mesh((2, 2), "XY")
    a, b = numbers(4, 4), numbers(4, 6)
    g = einsum("B D, B F -> D F", mesh.shard(a, "B_XY D"), mesh.shard(b, "B_XY F"))
    for layout in ("D_XY F", "D_X F", "D F_Y", "D F"):
        r = reduce_to(g, layout)
        assert r.partial == ""
        assert r.axes == mesh.read_layout(layout)[1]
        np.testing.assert_allclose(r.whole(), a.T @ b, atol=1e-12)
    done = reduce_to(g, "D F")
    assert reduce_to(done, "D F") is done


def example() -> tuple[Mesh, Shards, Shards]:
    mesh = Mesh((2, 4), "XY")
    return mesh, mesh.shard(np.ones((4, 8)), "B_X D", "In"), mesh.shard(np.ones((8, 4)), "D_Y F", "Win")


def partial(mesh: Mesh) -> Shards:
    x, w = mesh.shard(np.ones((4, 8)), "B D_Y", "In"), mesh.shard(np.ones((8, 4)), "D_Y F", "Win")
    return einsum("B D, D F -> B F", x, w, name="Out")


MISUSE: dict[str, tuple[Callable[[], Any], str]] = {
    "wrong axis": (lambda: all_gather(example()[1], "B", "Q"), r"no axis 'Q': it has X \(2\), Y \(4\)"),
    "wrong axis in a layout": (lambda: example()[0].shard(np.ones(4), "B_Z"), "no axis 'Z'"),
    "axis not of this dimension": (lambda: all_gather(example()[1], "B", "Y"), "B of In.* not cut over Y"),
    "nothing to gather": (lambda: all_gather(example()[1], "D"), "D of In.* not cut over any axis"),
    "unknown dimension": (lambda: all_gather(example()[1], "F"), r"In\[B_X, D\] has no dimension 'F': it has B, D"),
    "not divisible": (
        lambda: example()[0].shard(np.ones((6, 3)), "B_Y D", "x"),
        "dimension B of x, 6 long, does not divide by the 4 devices of axis Y",
    ),
    "scatter not divisible": (
        lambda: (
            reduce_scatter(partial(Mesh((1, 4), "XY")), "B", "Y") and reduce_scatter(partial(Mesh((1, 8), "XY")), "F")
        ),
        "dimension F of Out, 4 long, does not divide by the 8",
    ),
    "forgotten reduction on reading": (
        lambda: partial(Mesh((1, 4), "XY")).whole(),
        "partial sums over Y: all_reduce or",
    ),
    "forgotten reduction before a function": (
        lambda: local(np.tanh, partial(Mesh((1, 4), "XY"))),
        r"Out\[B, F\]\{U_Y\} holds partial sums over Y.*before applying a function",
    ),
    "forgotten reduction before an exchange": (
        lambda: all_to_all(einsum("B D, D F -> B F", *two_cuts()), "B", "F"),
        "partial sums over Y",
    ),
    "forgotten reduction before keeping": (lambda: keep(partial(Mesh((1, 4), "XY")), "B", "X"), "partial sums over Y"),
    "reduced twice": (
        lambda: all_reduce(all_reduce(partial(Mesh((1, 4), "XY")))),
        "no partial sums over any axis: reducing it would add equal values again",
    ),
    "reduced over the wrong axis": (lambda: all_reduce(partial(Mesh((2, 4), "XY")), "X"), "no partial sums over X"),
    "discarded": (lambda: discarded().whole(), r"Win\[D_Y, F\] was discarded: gather or compute it again"),
    "cut differently": (
        lambda: einsum("B D, D F -> B F", *example()[1:]),
        r"cut dimension D differently: gather or shard",
    ),
    "axis on two dimensions": (
        lambda: einsum("B D, D F -> B F", x := example()[1], x.mesh.shard(np.ones((8, 4)), "D F_X")),
        "axis X cuts both B and F",
    ),
    "axis twice in a layout": (lambda: example()[0].shard(np.ones((8, 8)), "B_X D_X"), "uses axis X twice"),
    "dimension twice": (lambda: example()[0].shard(np.ones((8, 8)), "B B"), "names a dimension twice"),
    "unreadable layout": (lambda: example()[0].shard(np.ones((8, 8)), "B_x D"), "cannot read 'B_x'"),
    "layout too short": (lambda: example()[0].shard(np.ones((8, 8)), "B"), "names 1 dimensions"),
    "product of partial sums": (
        lambda: einsum("B F, B F -> B", partial(m := Mesh((1, 4), "XY")), partial(m)),
        "single terms of a sum over Y",
    ),
    "partial times cut": (
        lambda: einsum("B F, B G -> F G", partial(m := Mesh((1, 4), "XY")), m.shard(np.ones((4, 4)), "B G_Y")),
        "single terms of a sum over Y",
    ),
    "sum of unlike layouts": (lambda: example()[1] + example()[2], r"cannot add In\[B_X, D\] and Win"),
    "sum of partial and whole": (
        lambda: partial(m := Mesh((1, 4), "XY")) + m.shard(np.ones((4, 4)), "B F"),
        "bring both to one layout",
    ),
    "names do not fit": (lambda: einsum("B E, D F -> B F", *example()[1:]), "does not describe In"),
    "no arrow": (lambda: einsum("B D, D F", *example()[1:]), "does not describe In"),
    "output from nowhere": (lambda: einsum("B D -> B E", example()[1]), "does not describe In"),
    "dimension must be whole": (lambda: local(np.sort, example()[2], whole="D"), "needs D whole: all_gather it first"),
    "block over a cut model dimension": (lambda: narrow(), "needs D whole: all_gather it first"),
    "hidden cut": (
        lambda: local(lambda a: a.sum(0), example()[1], out="D"),
        "claims equal values along axis X",
    ),
    "result of another shape": (lambda: local(lambda a: a[0], example()[1]), r"returns shape \(8,\), which layout"),
    "two meshes": (
        lambda: einsum("B D, D F -> B F", example()[1], Mesh((1,), "X").shard(np.ones((8, 4)), "D F")),
        "different meshes",
    ),
    "nothing to exchange": (lambda: all_to_all(example()[1], "D", "B"), "no cut to move to B"),
    "two senders": (
        lambda: permute(example()[1], "X", [(0, 1), (1, 1)]),
        "each place of axis X .0 to 1. at most once on either side",
    ),
    "place beyond the axis": (lambda: permute(example()[1], "X", [(0, 2)]), "each place of axis X .0 to 1."),
    "other dimensions": (lambda: reduce_to(partial(Mesh((1, 4), "XY")), "F B"), "cannot take the layout of F B"),
    "no dimension to scatter in the pod": (
        lambda: reduce_to(einsum("J, J D -> D", *odd()), "D", inner="X"),
        "no dimension of .* divides by the 2 devices of axis X",
    ),
    "axis names": (lambda: Mesh((2,), "x"), "axes are capital letters"),
    "axis names repeat": (lambda: Mesh((2, 2), "XX"), "needs 2 different axis letters"),
    "more sizes than axes": (lambda: Mesh((2, 2), "X"), "needs 2 different axis letters, given 'X'"),
    "groups along an axis that does not exist": (lambda: example()[0].groups("Q"), "the mesh has no axis 'Q'"),
    "axis sizes": (lambda: Mesh((0,), "X"), "of size 1 or more"),
    "dtype": (lambda: Mesh((2,), "X", dtype="int4"), "unknown dtype 'int4': use one of fp32, bf16"),
    "algorithm": (lambda: Mesh((2,), "X", algorithm="star"), "unknown algorithm 'star': use one of ring, tree"),
    "tree on a torus": (lambda: Mesh((4,), "X", TORUS, algorithm="tree"), "a tree jumps over neighbours"),
    "too many devices": (lambda: Mesh((5,), "X", replace(NODES, max_chips=4)), "5 devices do not fit toy-nodes of 4"),
    "beyond the last level": (
        lambda: all_gather(Mesh((32,), "X", TORUS).shard(np.ones(32), "B_X"), "B"),
        "32 ranks do not fit",
    ),
    "groups across domains": (
        lambda: all_gather(Mesh((6,), "X", NODES).shard(np.ones(6), "B_X"), "B"),
        "choose axis sizes that divide the domain",
    ),
    "groups that cross unlike": (
        lambda: all_gather(Mesh((3, 2), "XY", replace(NODES, levels=odd_levels())).shard(np.ones(6), "B_Y"), "B"),
        "align axis sizes with the domain",
    ),
    "one number for a shape": (lambda: Mesh(8, "X"), "no mesh of shape 8 and axes 'X': give whole numbers"),
    "half a device": (lambda: Mesh((2.5, 2), "XY"), r"no mesh of shape \(2.5, 2\)"),
    "a cluster by its name": (lambda: Mesh((2,), "X", "toy"), "cluster is 'toy': give a Cluster"),
    "a layout in pieces": (lambda: example()[0].shard(np.ones((2, 2)), ("B", "D")), "write it as one text"),
    "sharded twice": (lambda: example()[0].shard(example()[1], "B_X D"), "on a mesh already"),
    "a plain array gathered": (lambda: all_gather(np.ones(2), "B"), "ndarray is not on a mesh: place it first"),
    "a plain array reduced": (lambda: all_reduce(np.ones(2)), "ndarray is not on a mesh"),
    "a plain array reduced to": (lambda: reduce_to(np.ones(2), "B"), "ndarray is not on a mesh"),
    "a plain array scattered": (lambda: reduce_scatter(np.ones(2), "B"), "ndarray is not on a mesh"),
    "a plain array exchanged": (lambda: all_to_all(np.ones(2), "B", "D"), "ndarray is not on a mesh"),
    "a plain array sent": (lambda: permute(np.ones(2), "X"), "ndarray is not on a mesh"),
    "a plain array kept": (lambda: keep(np.ones(2), "B", "X"), "ndarray is not on a mesh"),
    "a plain array multiplied": (lambda: einsum("B, B -> B", np.ones(2), np.ones(2)), "ndarray is not on a mesh"),
    "a plain array within": (lambda: local(np.add, example()[1], np.ones(2)), "ndarray is not on a mesh"),
    "a number added": (lambda: example()[1] + 1, "cannot add int to .* mesh.shard it first"),
    "the wrong sign for a product": (lambda: example()[1] @ example()[2], "multiply with einsum"),
    "scaled": (lambda: 2 * example()[1], "with local"),
    "scaled by an array": (lambda: np.ones(2) * example()[1], "with local"),
    "no dimension to keep": (lambda: keep(example()[1], "Q", "X"), "has no dimension 'Q': it has B, D"),
    "no dimension to scatter to": (lambda: reduce_scatter(partial(Mesh((1, 4), "XY")), "Q"), "has no dimension 'Q'"),
    "no dimension to exchange": (lambda: all_to_all(example()[1], "B", "Q"), "has no dimension 'Q'"),
    "exchanged with itself": (lambda: all_to_all(example()[1], "B", "B"), "source and target are both B"),
    "sent along two axes": (lambda: permute(two_cuts()[0], "XY"), "along one axis, given 'XY': name one of X, Y"),
    "sent along none": (lambda: permute(example()[1], ""), "along one axis, given ''"),
    "a collective that does not exist": (lambda: example()[0].sent(op="gather"), "unknown operation 'gather': use"),
    "bytes of an axis that does not exist": (lambda: example()[0].sent(axes="Q"), "the mesh has no axis 'Q'"),
    "bytes by a word that does not exist": (lambda: example()[0].sent(over="X"), "unknown keyword 'over': use"),
    "time without a cluster": (lambda: example()[0].seconds(), r"no cluster, so bytes take no time"),
    "level without a cluster": (lambda: levelless(), "unknown level 'nvlink'"),
    "replicas differ": (lambda: diverged().whole(), r"should be the same .* rank 1 differs"),
    "layers and stages": (
        lambda: pipeline(
            "P",
            (m := Mesh((2,), "P")).shard(np.ones((4, 2, 2)), "L_P D F"),
            m.shard(np.ones((4, 2, 2)), "L_P F D"),
            [],
            [],
        ),
        "4 layers on 2 stages",
    ),
}


def two_cuts() -> tuple[Shards, Shards]:
    mesh = Mesh((2, 2), "XY")
    return mesh.shard(np.ones((4, 4)), "B_X D_Y"), mesh.shard(np.ones((4, 4)), "D_Y F")


def odd() -> tuple[Shards, Shards]:
    mesh = Mesh((2, 2), "ZX")
    return mesh.shard(np.ones(4), "J_ZX"), mesh.shard(np.ones((4, 3)), "J_ZX D")


def odd_levels() -> tuple[Level, ...]:
    return (replace(NODES.levels[0], size=3), NODES.levels[1])


def discarded() -> Shards:
    w = example()[2]
    w.discard()
    return w


def narrow() -> Any:
    mesh, (x, weights, d_out) = Mesh((2,), "X"), block_inputs()
    return block(Strategy(), mesh.shard(x, "B S D_X"), place(mesh, Strategy(), weights), mesh.shard(d_out, "B S D_X"))


def levelless() -> float:
    mesh, x, _ = example()
    all_gather(x, "B")
    return mesh.sent(level="nvlink")


def diverged() -> Shards:
    x = Mesh((2,), "X").shard(np.ones(3), "B")
    x.parts[1][0] = 2.0
    return x


@pytest.mark.parametrize("name", list(MISUSE))
def test_misuse_is_explained_in_one_sentence(name: str) -> None:
    act, message = MISUSE[name]
    with pytest.raises(MeshError, match=message) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 260
