"""The loader refuses every figure that leaves a factor open, and says what to write instead."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import catalogue
from scaling_lib.catalogue import CatalogueError
from scaling_lib.hardware import chip_from, cluster_from
from scaling_lib.library import cluster, load, model

SHEET = {"source": "data sheet", "date": "2026-01", "kind": "datasheet"}
CHIP: dict[str, Any] = {
    "name": "Toy",
    "peak": {"bf16": {"value": "100 TFLOP/s", "dense": True, **SHEET}},
    "hbm": {"value": "80 GB", **SHEET},
    "hbm_bandwidth": {"value": "3 TB/s", "direction": "read+write", **SHEET},
    "tdp": {"value": "700 W", **SHEET},
}
LEVEL: dict[str, Any] = {
    "name": "nvlink",
    "topology": "switch",
    "size": 8,
    "egress": {"value": "450 GB/s", "direction": "egress", "per": "chip", **SHEET},
    "latency": {"value": "3 us", **SHEET},
    "in_network_reduction": False,
}
OUTER: dict[str, Any] = {k: v for k, v in LEVEL.items() if k != "size"} | {"name": "ib"}
CLUSTER: dict[str, Any] = {"chip": "toy", "levels": [LEVEL, OUTER]}
MODEL = """
[models.tiny]
n_layers = 2
d_model = 8
d_ff = 32
n_heads = 4
n_kv_heads = 2
head_dim = 2
vocab_size = 100
gated = true
tied_embeddings = false
norm = "rmsnorm"
source = "my notes"
date = "2026-01"
kind = "assumption"
"""


def changed(entry: dict[str, Any], path: str, value: Any = None, drop: bool = False) -> dict[str, Any]:
    """A copy of an entry with one place changed (path with slashes, numbers for list places)."""
    result = copy.deepcopy(entry)
    *steps, last = path.split("/")
    place: Any = result
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    if drop:
        del place[last]
    else:
        place[last] = value
    return result


def test_the_templates_are_accepted() -> None:
    toy = chip_from("toy", CHIP)
    assert (toy.flops("bf16"), toy.hbm, toy.hbm_bandwidth, toy.tdp) == (100e12, 80e9, 3e12, 700)
    assert chip_from("toy", changed(CHIP, "tdp", drop=True)).tdp is None
    machine = cluster_from("box", CLUSTER, {"toy": toy})
    assert (machine.domain, machine.levels[1].size, machine.chip) == (8, None, toy)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("hbm_bandwidth/direction", None, ["direction None", 'direction = "read+write"']),
        ("hbm_bandwidth/direction", "both", ["'both'", "twice the egress"]),
        ("hbm_bandwidth/value", "0 TB/s", ["zero"]),
        ("peak/bf16/dense", False, ["dense = true", "sparse"]),
        ("peak/bf16/dense", "true", ["dense = true"]),
        ("peak/bf16/dense", None, ["dense = true"]),
        ("peak/bf16/value", "0 TFLOP/s", ["zero"]),
        ("peak", {}, ["no peak", "[toy.peak]"]),
        ("peak", 3, ["no peak"]),
        ("hbm/source", "", ["lacks source", "value, source, date, kind"]),
        ("hbm/date", None, ["lacks date"]),
        ("hbm/kind", "guess", ["kind 'guess'", "datasheet, measured, assumption"]),
        ("hbm/value", "80", ["a bare number", "byte"]),
        ("hbm/value", 80, ["a bare number", "byte"]),
        ("hbm/value", "80 GX", ["unknown unit 'GX'"]),
        ("hbm/value", "80 GB/s", ["byte/second", "byte is wanted"]),
        ("hbm/value", "-80 GB", ["below zero", "sign"]),
        ("hbm/value", "0 GB", ["'hbm' is zero"]),
        ("hbm", "80 GB", ["'hbm' is missing", 'hbm = { value = "…"']),
        ("hbm_bandwith", {}, ["unknown key 'hbm_bandwith'", "hbm_bandwidth"]),
    ],
)
def test_an_ambiguous_chip_is_refused(path: str, value: Any, says: list[str]) -> None:
    entry = changed(CHIP, path, value)
    with pytest.raises(CatalogueError) as error:
        chip_from("toy", entry)
    assert "chip toy" in str(error.value)
    for words in says:
        assert words in str(error.value)


@pytest.mark.parametrize("key", ["value", "source", "date", "kind"])
@pytest.mark.parametrize("figure", ["hbm", "hbm_bandwidth", "tdp", "peak/bf16"])
def test_every_figure_says_value_source_date_and_kind(figure: str, key: str) -> None:
    with pytest.raises(CatalogueError, match=f"lacks {key}"):
        chip_from("toy", changed(CHIP, f"{figure}/{key}", drop=True))


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("levels/0/egress/direction", "both", ["level nvlink", "'both'", "twice the egress"]),
        ("levels/0/egress/per", "node", ["per 'node'", 'per = "chip"']),
        ("levels/0/topology", "mesh", ["topology is 'mesh'", "'switch', 'torus'"]),
        ("levels/0/topology", "torus", ["torus states its shape"]),
        ("levels/0/shape", [4, 2], ["switch has none", "(4, 2)"]),
        ("levels/0/size", 0, ["size is 0", "at least 1"]),
        ("levels/0/size", True, ["size is True", "whole number"]),
        ("levels/0/size", 8.0, ["size is 8.0", "whole number"]),
        ("levels/0/in_network_reduction", 1, ["in_network_reduction is 1", "True, False"]),
        ("levels/0/latency", None, ["'latency' is missing"]),
        ("levels/1/size", 8, ["[8, 8] must grow outwards"]),
        ("levels/0/sise", 8, ["unknown key 'sise'", "size"]),
        ("levels", [], ["no levels", "[[box.levels]]"]),
        ("levels", 3, ["no levels", "[[box.levels]]"]),
        ("levels/0/shape", 4, ["shape is 4", "[16, 20, 28]"]),
        ("levels/0/shape", [4, 0], ["shape is [4, 0]"]),
        ("levels/0/shape", [4, "2"], ["shape is [4, '2']"]),
        ("levels", ["nvlink"], ["'nvlink' is no table"]),
        ("chip", "h100", ["unknown chip 'h100'", "h100-sxm"]),
        ("max_chips", -1, ["max_chips is -1"]),
        ("chips", 4, ["unknown key 'chips'"]),
    ],
)
def test_an_ambiguous_cluster_is_refused(path: str, value: Any, says: list[str]) -> None:
    entry = changed(CLUSTER, path, value)
    with pytest.raises(CatalogueError) as error:
        cluster_from("box", entry, {"toy": chip_from("toy", CHIP)})
    assert "box" in str(error.value) or "unknown chip" in str(error.value)
    for words in says:
        assert words in str(error.value)


def test_only_the_last_level_may_be_open() -> None:
    entry = changed(CLUSTER, "levels/0/size", drop=True)
    with pytest.raises(CatalogueError, match="only the last may be open"):
        cluster_from("box", entry, {"toy": chip_from("toy", CHIP)})


def test_a_torus_states_shape_wrap_and_egress_per_axis() -> None:
    level = {k: v for k, v in LEVEL.items() if k != "size"}
    torus = level | {"topology": "torus", "shape": [4, 4], "wrap": False, "egress": LEVEL["egress"] | {"per": "axis"}}
    chips = {"toy": chip_from("toy", CHIP)}
    built = cluster_from("box", {"chip": "toy", "levels": [torus]}, chips).levels[0]
    assert (built.size, built.shape, built.wrap) == (16, (4, 4), False)
    with pytest.raises(CatalogueError, match=r'per .chip.; write per = "axis"'):
        cluster_from("box", {"chip": "toy", "levels": [torus | {"egress": LEVEL["egress"]}]}, chips)
    unsaid = {k: v for k, v in torus.items() if k != "wrap"}
    with pytest.raises(CatalogueError, match="wrap is None"):
        cluster_from("box", {"chip": "toy", "levels": [unsaid]}, chips)


@pytest.mark.parametrize(
    ("stem", "name", "close"),
    [
        ("chips", "h100", "h100-sxm"),
        ("models", "llama3-70b", "llama-3-70b"),
        ("clusters", "dgx-h10", "dgx-h100"),
        ("prices", "lambda", "lambda-h100"),
    ],
)
def test_unknown_names_list_near_ones(stem: str, name: str, close: str) -> None:
    with pytest.raises(CatalogueError, match=rf"unknown {stem[:-1]} '{name}': did you mean .*{close}"):
        catalogue.find(stem, name)


def test_a_name_like_none_lists_all() -> None:
    with pytest.raises(CatalogueError, match=r"unknown chip 'zzz': known: a100-40gb, a100-80gb"):
        catalogue.find("chips", "zzz")


def test_whole_and_choice() -> None:
    assert catalogue.whole({"n": 3}, "n", "here") == 3
    assert catalogue.whole({"n": 0}, "n", "here", least=0) == 0
    with pytest.raises(CatalogueError, match="here: n is missing; write a whole number of at least 1"):
        catalogue.whole({}, "n", "here")
    with pytest.raises(CatalogueError, match="use one of 'a', 'b'"):
        catalogue.choice({"k": "c"}, "k", "here", ("a", "b"))


def test_unreadable_files_say_where(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"cannot read .*none\.toml: No such file.*check the path"):
        catalogue.read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = \n")
    with pytest.raises(CatalogueError, match=r"bad\.toml is not valid TOML: .*line 1"):
        catalogue.read_toml(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(CatalogueError, match=r"latin\.toml is not valid TOML"):
        catalogue.read_toml(tmp_path / "latin.toml")


def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(
        """
[chips.toy.peak]
bf16 = { value = "100 TFLOP/s", dense = true, source = "sheet", date = "2026-01", kind = "datasheet" }
[chips.toy]
hbm = { value = "80 GB", source = "sheet", date = "2026-01", kind = "datasheet" }
hbm_bandwidth = { value = "3 TB/s", direction = "read+write", source = "sheet", date = "2026-01", kind = "datasheet" }
[clusters.box]
chip = "toy"
[[clusters.box.levels]]
name = "ring"
topology = "switch"
egress = { value = "10 GB/s", direction = "egress", per = "chip", source = "own", date = "2026-01", kind = "measured" }
latency = { value = "1 us", source = "guess", date = "2026-01", kind = "assumption" }
in_network_reduction = false
"""
        + MODEL
    )
    return path


def test_a_readers_own_file(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    library = load(path)
    assert library.clusters["box"].chip is library.chips["toy"]
    assert library.clusters["box"].levels[0].egress == 10e9
    assert load(path).models["tiny"].n_layers == 2
    assert model(str(path)) == library.models["tiny"]
    assert cluster(f"{path}:box") == library.clusters["box"]


def test_own_file_errors(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    with pytest.raises(CatalogueError, match=r"has no model 'tinny': did you mean tiny"):
        model(f"{path}:tinny")
    path.write_text(MODEL + MODEL.replace("tiny", "tiny2"))
    with pytest.raises(CatalogueError, match=r"holds 2 models \(tiny, tiny2\): name one"):
        model(str(path))
    with pytest.raises(CatalogueError, match="has no cluster 'x': it has none"):
        cluster(f"{path}:x")
    path.write_text(MODEL.replace("models", "model"))
    with pytest.raises(CatalogueError, match=r"unknown table 'model'; did you mean models"):
        load(path)
    path.write_text("")
    with pytest.raises(CatalogueError, match="holds no chips, clusters or models"):
        load(path)
    for text in ("models = 3", "[[models]]"):
        path.write_text(text)
        with pytest.raises(CatalogueError, match=r"models holds no entries by name; write \[models\.NAME\]"):
            load(path)
    path.write_text(MODEL.replace("d_ff = 32", 'd_ff = "32"'))
    with pytest.raises(CatalogueError, match="model tiny: d_ff is '32'; write a whole number"):
        load(path)
    path.write_text(MODEL.replace("qk_norm", "").replace("vocab_size", "vocab"))
    with pytest.raises(CatalogueError, match="unknown key 'vocab': did you mean vocab_size"):
        load(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('source = "my notes"\n', "", "source is missing"),
        ('kind = "assumption"\n', "", "kind is missing"),
        ('kind = "assumption"', 'kind = "guess"', "kind is 'guess'; use one of 'datasheet'"),
        ("gated = true", "gated = 1", "gated is 1; use one of True, False"),
        ('norm = "rmsnorm"', 'norm = "batchnorm"', "norm is 'batchnorm'"),
        ("n_kv_heads = 2", "n_kv_heads = 3", "4 heads do not divide into 3 key-value heads"),
        ("n_layers = 2", "n_layers = 0", "n_layers is 0"),
        ("gated = true", "gated = true\nlinear_bias = true", "linear_bias is not counted"),
        ('kind = "assumption"', 'kind = "assumption"\nmoe = { n_expert = 8 }', "unknown key 'n_expert'"),
        ('kind = "assumption"', 'kind = "assumption"\nmoe = { n_experts = 8 }', "experts_per_token is missing"),
    ],
)
def test_an_incomplete_model_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "m.toml"
    assert old in MODEL
    path.write_text(MODEL.replace(old, new))
    with pytest.raises(CatalogueError) as error:
        load(path)
    assert says in str(error.value)
