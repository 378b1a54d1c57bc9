"""The data sheets: every figure sourced and dated, and facts checked against an independent statement of them."""

from __future__ import annotations

import copy
import csv
import re
from collections.abc import Iterator
from typing import Any

import pytest

from scaling_lib import catalogue, hardware
from scaling_lib.catalogue import DATA, CatalogueError
from scaling_lib.model import model, n_active_params, n_params
from scaling_lib.units import DAY, GB, HOUR, TB, parse

TOML = sorted(path.stem for path in DATA.glob("*.toml"))
SHEETS = [stem for stem in TOML if "sources" in catalogue.read_toml(DATA / f"{stem}.toml")]
UNIT_OF = {
    "hbm": "B",
    "hbm_bandwidth": "B/s",
    "tdp": "W",
    "egress": "B/s",
    "latency": "s",
    "price": "USD/s",
    "span": "s",
    "effective_time": "",
    "share": "",
    "size": "B",
    "time": "s",
    "interval": "s",
    "chip_hours": "chip*s",
    "tokens": "token",
    "rate": "FLOP/s",
}
DATE = re.compile(r"20[12]\d(-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?)?\Z")


def figures(node: Any, where: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every figure below a TOML node: where it stands, its key, its table."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        here = f"{where}.{key}".strip(".")
        if isinstance(value, dict) and "value" in value:
            yield here, str(key), value
        elif isinstance(value, (dict, list)):
            yield from figures(value, here)


def cited(node: Any) -> Iterator[str]:
    """Every source that a TOML node cites, at any depth."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key == "source":
            yield value
        elif isinstance(value, (dict, list)):
            yield from cited(value)


def entries(stem: str) -> dict[str, Any]:
    return catalogue.read_toml(DATA / f"{stem}.toml")


def measured_bandwidths() -> list[dict[str, str]]:
    with (DATA / "measured_bandwidth.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_sheets_are_here() -> None:
    assert {"chips", "clusters", "models", "prices", "failures", "checkpoints", "reported_runs", "measured"} <= set(
        SHEETS
    )


@pytest.mark.parametrize("stem", SHEETS)
def test_every_figure_has_value_unit_source_date_and_kind(stem: str) -> None:
    data = entries(stem)
    for where, key, table in figures({k: v for k, v in data.items() if k != "sources"}):
        assert {"value", "source", "date", "kind"} <= set(table), where
        assert table["source"] in data["sources"], f"{where}: source {table['source']!r} is not in [sources]"
        assert DATE.match(table["date"]), f"{where}: date {table['date']!r}"
        assert table["kind"] in catalogue.KINDS, where
        assert parse(table["value"], UNIT_OF.get(key, "FLOP/s")) > 0, where


@pytest.mark.parametrize("stem", SHEETS)
def test_every_source_is_used_and_said_in_full(stem: str) -> None:
    data = entries(stem)
    used = set(cited({k: v for k, v in data.items() if k != "sources"}))
    if stem == "measured":
        used |= {row["source"] for row in measured_bandwidths()}
    assert set(data["sources"]) == used
    assert all(len(text) > 30 for text in data["sources"].values())


def test_a_figure_from_memory_is_an_assumption() -> None:
    for stem in SHEETS:
        data = entries(stem)
        for where, _, table in figures(data):
            text = data["sources"][table["source"]].lower()
            if "from memory" in text or "at hand" in text or table["source"] == "article":
                assert table["kind"] == "assumption", f"{stem} {where}"


# Dense bf16 TFLOP/s, HBM GB, HBM TB/s, stated here apart from the catalogue.
CHIPS = {
    "a100-40gb": (312, 40, 1.555),
    "a100-80gb": (312, 80, 2.0),
    "h100-sxm": (989, 80, 3.35),
    "h200": (989, 141, 4.8),
    "h800": (989, 80, 3.35),
    "b200": (2250, 180, 8.0),
    "b300": (2250, 288, 8.0),
    "gb200": (2500, 186, 8.0),
    "gb300": (2500, 288, 8.0),
    "mi300x": (1307, 192, 5.3),
    "mi355x": (2500, 288, 8.0),
    "tpu-v4": (275, 34.36, 1.2),
    "tpu-v5e": (197, 16, 0.819),
    "tpu-v5p": (459, 96, 2.765),
    "tpu-v6e": (918, 34.36, 1.638),
    "tpu-v7": (2307, 206.2, 7.38),
    "trainium2": (667, 103.1, 2.9),
}


def test_chips_agree_with_an_independent_table() -> None:
    assert set(catalogue.entries("chips")) == set(CHIPS)
    for name, (tflops, hbm, bandwidth) in CHIPS.items():
        chip = hardware.chip(name)
        assert chip.flops("bf16") == pytest.approx(tflops * 1e12, rel=1e-12), name
        assert chip.hbm == pytest.approx(hbm * GB, rel=1e-3), name
        assert chip.hbm_bandwidth == pytest.approx(bandwidth * TB, rel=1e-12), name


# Multiply-adds a clock times units times clock, from the vendors' architecture papers: a second road to the dense peak.
@pytest.mark.parametrize(
    ("name", "mhz", "multiply_adds", "units"),
    [
        ("a100-80gb", 1410, 256, 432),
        ("h100-sxm", 1830, 512, 528),
        ("mi300x", 2100, 256, 1216),
        ("tpu-v5e", 1500, 128 * 128, 4),
    ],
)
def test_dense_peak_follows_from_the_clock(name: str, mhz: float, multiply_adds: int, units: int) -> None:
    assert hardware.chip(name).flops("bf16") == pytest.approx(2 * mhz * 1e6 * multiply_adds * units, rel=3e-3)


# Peaks printed with sparsity, TFLOP/s by chip and precision: none may stand in the catalogue.
SPARSE = {
    ("a100-40gb", "bf16"): 624,
    ("a100-80gb", "bf16"): 624,
    ("h100-sxm", "bf16"): 1979,
    ("h100-sxm", "fp8"): 3958,
    ("h200", "bf16"): 1979,
    ("h200", "fp8"): 3958,
    ("h800", "bf16"): 1979,
    ("b200", "bf16"): 4500,
    ("b200", "fp8"): 9000,
    ("b200", "fp4"): 18000,
    ("b300", "fp4"): 18000,
    ("gb200", "bf16"): 5000,
    ("gb200", "fp4"): 20000,
    ("gb300", "fp4"): 20000,
    ("mi300x", "bf16"): 2614,
    ("mi355x", "fp8"): 10100,
    ("trainium2", "bf16"): 2563,
}


def test_no_sparse_peak() -> None:
    for name, entry in catalogue.entries("chips").items():
        assert all(table.get("dense") is True for table in entry["peak"].values()), name
    for (name, precision), tflops in SPARSE.items():
        assert hardware.chip(name).flops(precision) < 0.9 * tflops * 1e12, (name, precision)


def test_eight_bits_at_most_double_the_bf16_peak() -> None:
    for name in CHIPS:
        peak = hardware.chip(name).peak
        for precision in ("fp8", "int8"):
            if precision in peak:
                assert 1 <= peak[precision] / peak["bf16"] <= 2.01, (name, precision)


# Egress of one chip inside the domain, GB/s, as links x one-way GB/s of a link.
DOMAIN = {
    "dgx-a100-40gb": (8, 12 * 25),
    "dgx-a100": (8, 12 * 25),
    "dgx-h100": (8, 18 * 25),
    "dgx-h200": (8, 18 * 25),
    "h800-ib": (8, 8 * 25),
    "dgx-b200": (8, 18 * 50),
    "dgx-b300": (8, 18 * 50),
    "gb200-nvl72": (72, 18 * 50),
    "gb300-nvl72": (72, 18 * 50),
    "mi300x-8": (8, 7 * 64),
    "mi355x-8": (8, 7 * 76.5),
    "tpu-v4": (4096, 2 * 45),
    "tpu-v5e": (256, 2 * 45),
    "tpu-v5p": (8960, 2 * 90),
    "tpu-v6e": (256, 2 * 90),
    "tpu-v7": (9216, 2 * 100),
    "trn2-ultra": (16, 2 * 128),
}
# Egress of one chip on the outermost network, Gb/s.
OUTER = {
    "dgx-a100-40gb": 200,
    "dgx-a100": 200,
    "dgx-h100": 400,
    "dgx-h200": 400,
    "h800-ib": 400,
    "dgx-b200": 400,
    "dgx-b300": 800,
    "gb200-nvl72": 400,
    "gb300-nvl72": 800,
    "mi300x-8": 400,
    "mi355x-8": 400,
    "tpu-v4": 50,
    "tpu-v5e": 25,
    "tpu-v5p": 50,
    "tpu-v6e": 100,
    "tpu-v7": 100,
    "trn2-ultra": 16 * 200 / 16,
}


def test_clusters_agree_with_independent_tables() -> None:
    assert set(catalogue.entries("clusters")) == set(DOMAIN) == set(OUTER)
    for name, (domain, gigabytes) in DOMAIN.items():
        cluster = hardware.cluster(name)
        assert cluster.domain == domain, name
        assert cluster.levels[0].egress == pytest.approx(gigabytes * 1e9), name
        assert cluster.levels[-1].egress == pytest.approx(OUTER[name] / 8 * 1e9), name
        assert cluster.levels[-1].size is None, f"{name}: the outermost network is open"


def test_a_node_of_eight_h100_sends_400_gigabytes_a_second() -> None:
    hop = hardware.cluster("dgx-h100").hops(1024)[-1]
    assert (hop.members, hop.below, hop.egress) == (128, 8, 400e9)


# What data sheets print when they add both directions, GB/s.
BOTH_WAYS = {
    "dgx-a100": 600,
    "dgx-h100": 900,
    "dgx-h200": 900,
    "h800-ib": 400,
    "dgx-b200": 1800,
    "gb200-nvl72": 1800,
    "mi300x-8": 896,
    "tpu-v5p": 1200,
    "tpu-v7": 1200,
    "trn2-ultra": 1280,
}


def test_no_bandwidth_adds_both_directions() -> None:
    for name, entry in catalogue.entries("clusters").items():
        assert all(level["egress"]["direction"] == "egress" for level in entry["levels"]), name
    for name, printed in BOTH_WAYS.items():
        levels = list(hardware.cluster(name).levels[:-1])
        assert sum(level.chip_egress() for level in levels) <= printed / 2 * 1e9, name


def test_every_level_says_what_it_does_not_know() -> None:
    for name, entry in catalogue.entries("clusters").items():
        assert all(level["in_network_reduction"] is False for level in entry["levels"]), name
        assert {level["latency"]["kind"] for level in entry["levels"]} <= {"measured", "assumption"}, name


# Why no level promises in-network reduction: 16 GiB over 8 H100 with the switch adding.
def test_in_network_reduction_is_measured_far_from_its_ideal() -> None:
    row = next(r for r in measured_bandwidths() if r["source"] == "dgxc-benchmarking" and r["payload"] == "16 GiB")
    seconds_per_byte = 2 * 7 / 8 / parse(row["bandwidth"], "B/s")
    egress = hardware.cluster("dgx-h100").levels[0].egress
    assert seconds_per_byte * egress == pytest.approx(1.64, abs=0.01)
    assert seconds_per_byte * egress / (2 * 7 / 8) == pytest.approx(0.94, abs=0.01)


MODELS = {  # parameters, active parameters; printed totals in 1e9 where no exact count is published
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
}
MODELS_PRINTED = {
    "llama-3-405b": (405.85, 405.85),
    "mixtral-8x7b": (46.70, 12.88),
    "deepseek-v3": (671.03, 37.55),
    "gpt-3-175b": (174.58, 174.58),
    "qwen3-235b-a22b": (235.09, 22.19),
}


def test_model_parameters() -> None:
    assert set(catalogue.entries("models")) == set(MODELS) | set(MODELS_PRINTED)
    for name, exact in MODELS.items():
        assert n_params(model(name)) == exact, name
    for name, (total, active) in MODELS_PRINTED.items():
        config = model(name)
        assert round(n_params(config) / 1e9, 2) == total, name
        assert round(n_active_params(config) / 1e9, 2) == active, name


def test_model_shapes_are_consistent() -> None:
    for name, entry in catalogue.entries("models").items():
        assert entry["source"] in entries("models")["sources"], name
        assert entry["kind"] == "datasheet", name
        assert DATE.match(entry["date"]), name
        assert entry["linear_bias"] is False, name
        if name != "qwen3-235b-a22b" and "mla" not in entry:  # these two choose the head width freely
            assert entry["n_heads"] * entry["head_dim"] == entry["d_model"], name


def test_prices() -> None:
    prices = catalogue.entries("prices")
    for name, entry in prices.items():
        assert entry["chip"] in CHIPS, name
        assert entry["terms"] in ("on-demand", "reserved", "preemptible", "owned"), name
        assert entry["price"]["per"] == "chip", name
        assert isinstance(entry["price"]["verified"], bool), name
        assert 0.3 < parse(entry["price"]["value"], "USD/s") * HOUR < 15, name
    assert catalogue.figure(prices["aws-p5-on-demand-2026"], "price", "USD/s", "aws") * HOUR * 8 == pytest.approx(55.04)
    assert catalogue.figure(prices["gcp-tpu-v5p"], "price", "USD/s", "gcp") * HOUR * 6144 == pytest.approx(25804.8)
    assert {prices[n]["price"]["kind"] for n in ("article-cloud", "article-owned")} == {"assumption"}
    assert {prices[n]["chip"] for n in prices} >= {"a100-80gb", "h100-sxm", "h200", "b200", "tpu-v5p", "tpu-v6e"}


def test_failures() -> None:
    llama = catalogue.entries("failures")["llama-3-405b"]
    assert sum(llama["causes"].values()) == llama["failures"] == 419
    assert llama["failures"] + llama["planned"] == 466

    def per_thousand_chip_days(name: str) -> float:
        entry = catalogue.entries("failures")[name]
        return float(1000 * entry["failures"] / (catalogue.figure(entry, "span", "s", name) / DAY * entry["chips"]))

    for name, rate in {"llama-3-405b": 0.4736, "rsc-1": 0.8125, "opt-175b": 2.016, "bloom-176b": 0.372}.items():
        assert per_thousand_chip_days(name) == pytest.approx(rate, rel=1e-3), name


def test_reported_runs() -> None:
    runs = catalogue.entries("reported_runs")
    for name, millions in {
        "llama-3-70b": 6.4,
        "llama-3.1-70b": 7.0,
        "llama-3.1-405b": 30.84,
        "deepseek-v3": 2.788,
    }.items():
        assert catalogue.figure(runs[name], "chip_hours", "chip*s", name) / HOUR == pytest.approx(millions * 1e6), name
    for name, entry in runs.items():
        assert entry["chip"] in CHIPS, name
        assert entry.get("model", "llama-3-70b") in catalogue.entries("models"), name
        for layout in entry.get("layouts", ()):
            assert layout["dp"] * layout["tp"] * layout["pp"] * layout["cp"] == layout["chips"], name
            assert layout["sequences"] * layout["seq_len"] == 2**24, name


def test_checkpoints_hold_twelve_to_fourteen_bytes_a_parameter() -> None:
    for name, entry in catalogue.entries("checkpoints").items():
        params = 176e9 if name == "bloom-176b" else n_params(model(name))
        assert 12 < catalogue.figure(entry, "size", "B", name) / params < 14, name


def test_no_measured_matmul_beats_its_peak() -> None:
    rows = catalogue.entries("measured")
    assert len(rows) >= 20
    for name, entry in rows.items():
        reached = catalogue.figure(entry, "rate", "FLOP/s", name) / hardware.chip(entry["chip"]).flops(
            entry["precision"]
        )
        assert 0.3 < reached < 0.95, (name, reached)
    h100 = catalogue.figure(rows["h100-sxm-bf16"], "rate", "FLOP/s", "h100")
    assert h100 / hardware.chip("h100-sxm").flops("bf16") == pytest.approx(0.803, abs=5e-4)


def test_measured_bandwidths() -> None:
    rows = measured_bandwidths()
    assert len(rows) >= 200
    domain = {
        entry["chip"]: hardware.cluster(name).levels[0].egress for name, entry in catalogue.entries("clusters").items()
    }
    for row in rows:
        assert row["op"] in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"), row
        assert row["bandwidth_is"] in ("bus", "link", "egress"), row
        assert row["in_network"] in ("yes", "no", "not stated"), row
        assert DATE.match(row["date"]), row
        assert row["conditions"], row
        assert row["payload"] == "large" or parse(row["payload"], "B") > 0, row
        inside = row["link"].startswith(("NVLink", "xGMI"))
        if inside and row["in_network"] == "no":  # a ring cannot pass more than a chip sends
            assert parse(row["bandwidth"], "B/s") < domain[row["chip"]], row


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e["peak"]["bf16"].pop("dense"), "dense"),
        (lambda e: e["peak"]["bf16"].update(dense=False), "dense"),
        (lambda e: e["hbm"].pop("source"), "source"),
        (lambda e: e["hbm"].update(kind="guess"), "guess"),
        (lambda e: e["hbm"].update(value="80"), "bare number"),
        (lambda e: e["hbm_bandwidth"].update(direction="both"), "direction"),
        (lambda e: e.pop("hbm"), "missing"),
    ],
)
def test_an_incomplete_chip_is_refused(change: Any, message: str) -> None:
    entry = copy.deepcopy(catalogue.entries("chips")["h100-sxm"])
    change(entry)
    with pytest.raises(CatalogueError, match=message):
        hardware.chip_from("h100-sxm", entry)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda level: level["egress"].update(direction="both"), "twice the egress"),
        (lambda level: level["egress"].update(per="node"), "per"),
        (lambda level: level.pop("latency"), "latency"),
        (lambda level: level.pop("in_network_reduction"), "in_network_reduction"),
    ],
)
def test_an_incomplete_level_is_refused(change: Any, message: str) -> None:
    entry = copy.deepcopy(catalogue.entries("clusters")["dgx-h100"])
    change(entry["levels"][0])
    with pytest.raises(CatalogueError, match=message):
        hardware.cluster_from("dgx-h100", entry)
