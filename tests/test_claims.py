"""Every claim of the source article: our value recomputed, and the numbers in its explanation too."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import catalogue, claims

ENTRIES = catalogue.entries("claims")
NUMERIC = [name for name, entry in ENTRIES.items() if "expected" in entry]
REQUIRED = {"where", "chapter", "claim", "said", "verdict", "why"}
OPTIONAL = {"unit", "tol", "matters", "ours", "ours_expr", "expected"}
CHAPTERS = {"dp", "fsdp", "tp", "hybrid", "pp", "crosspod", "budget", "decide", "cheatsheet"}


def value(expression: str) -> float:
    """An expression over the library, as claims.toml writes them."""
    return float(eval(expression, claims.names()))


def test_there_are_69_claims_of_which_48_are_numbers() -> None:
    assert len(ENTRIES) == 69
    assert len(NUMERIC) == 48


@pytest.mark.parametrize("name", NUMERIC)
def test_ours_is_what_was_expected(name: str) -> None:
    entry = ENTRIES[name]
    assert claims.claim(name).ours == pytest.approx(entry["expected"], rel=entry.get("tol", 1e-2))


@pytest.mark.parametrize("name", NUMERIC)
def test_the_verdict_follows_from_the_numbers(name: str) -> None:
    """A number that holds is the article's; any other verdict has a number that is not, or a wrong label on it."""
    entry = ENTRIES[name]
    if not isinstance(entry["said"], (int, float)):
        return
    near = math.isclose(entry["said"], entry["expected"], rel_tol=max(entry.get("tol", 0), 0.01))
    if entry["verdict"] == "holds":
        assert near
    else:
        assert not near or name in ("ledger-total", "ib-node")  # its sum is right, its list is short


@pytest.mark.parametrize("name", ENTRIES)
def test_each_claim_is_complete(name: str) -> None:
    entry = ENTRIES[name]
    assert entry["verdict"] in claims.VERDICTS
    assert entry["chapter"] in CHAPTERS
    assert ("ours" in entry) != ("expected" in entry)
    assert bool(entry.get("ours_expr")) == ("expected" in entry)
    assert len(entry["why"]) > 20
    assert set(entry) >= REQUIRED
    assert set(entry) <= REQUIRED | OPTIONAL


def test_an_expression_types_no_hardware_number() -> None:
    """Peaks, bandwidths and prices come from the catalogue: the only large literals are batches and powers of ten."""
    for name in NUMERIC:
        tree = ast.parse(ENTRIES[name]["ours_expr"])
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
                assert node.value <= 16e6 or node.value in (1e9, 1e12), name


def test_conclusions_that_change_are_marked() -> None:
    marked = {name for name, entry in ENTRIES.items() if entry.get("matters")}
    assert len(marked) == 9
    assert "holds" not in {ENTRIES[name]["verdict"] for name in marked}


FLOPS = "budget.train_flops(n_params(llama), TOKENS)"
CLOUD, OWNED = "budget.price('article-cloud').rate", "budget.price('article-owned').rate"
SIX = "flops_per_token(llama, convention='6N')"
ATTENTION = "100 * (flops_per_token(llama, {}) - flops_per_token(llama, convention='matmul')) / " + SIX
KEPT = "memory.checkpoint_bytes(4e6, llama.d_model, llama.n_layers, 2)"
HOURS_3_1 = "budget.reported('llama-3.1-70b').chip_seconds"
TWO_NODES = "Job(llama, h100, ParallelPlan(tp=16), 16, 2**16, 8192)"
LARGE = "Job(llama, h100, ParallelPlan(dp=2048, tp=8), 16384, 16e6, 8192)"

# Numbers in the explanations: claim, the words that hold the number, the expression it comes from, decimals shown.
WHY: list[tuple[str, str, str, int]] = [
    ("max-model-v5p", "would give 9.6", "dp.max_params(v5p.chip.hbm, recipe('no-master-no-grads').total) / 1e9", 1),
    ("tp-threshold", "width of 26112", "roofline.layer(llama, 'full').effective_d_ff", 0),
    ("tp-threshold", "9% lower", "100 * (1 - roofline.layer(llama, 'full').effective_d_ff / llama.d_ff)", 0),
    ("tp-cross-node", "content with 19780", "tp.critical_d_ff(16 - 8, h100_peak, node_egress)", 0),
    ("tp-cross-node", "which 30769", "tp.critical_d_ff(16 * 7 / 8, h100_peak, nvlink_egress)", 0),
    ("tp-cross-node", "limit of 14.9", "tp.max_degree(llama.d_ff, h100_peak, nvlink_egress) / (7 / 8)", 1),
    ("tp-cross-node", "costs 2.4%", f"100 * (1 - tp.times({TWO_NODES}).mfu_cap)", 1),
    ("hybrid-threshold", "high, 454", "hybrid.critical_tokens(peak_v5p, 2 * v5p_axis, v5p_axis, llama.d_ff, 'sum')", 0),
    ("x-opt-value", "taken of 2.5e6", "hybrid.x_opt(4e6, llama.d_ff, 8960, 2, 1) ** 2 / 1e6", 1),
    ("ib-node", "an eighth, 2472", "crosspod.critical_pod_tokens(h100_peak, nic_egress) / h100.domain", 0),
    ("easy-to-reach", "exceed 39.5%", f"100 * fsdp.times({LARGE}).mfu_cap", 1),
    ("four-dp-axes", "and 155 tokens", "fsdp.critical_tokens(h100_peak, node_egress) / 16", 0),
    ("train-flops", "3.8% at", ATTENTION.format(4096), 1),
    ("train-flops", "7.6% at", ATTENTION.format(8192), 1),
    ("train-flops", "1.5%", "100 * llama.vocab_size * llama.d_model / n_params(llama)", 1),
    ("mfu-cap-h100", "below 19%", "100 * fsdp.times(article_job).mfu_cap", 0),
    ("mfu-cap-h100", "There are 468", "article_job.tokens_per_chip", 0),
    ("meta-54-days", "27.9%", f"100 * budget.mfu({FLOPS}, meta_hours.chip_seconds, h100_peak)", 1),
    (
        "meta-54-days",
        "25.5%",
        f"100 * budget.mfu({FLOPS}, {HOURS_3_1}, h100_peak)",
        1,
    ),
    ("cost-cloud", "be 12.8", f"budget.cost(meta_hours.chip_seconds, {CLOUD}) / 1e6", 1),
    ("cost-owned", "be 3.84", f"budget.cost(meta_hours.chip_seconds, {OWNED}) / 1e6", 2),
    ("five-million", "12.8 at 2 USD", f"budget.cost(meta_hours.chip_seconds, {CLOUD}) / 1e6", 1),
    (
        "ledger-total",
        "(428 MB at TP 4",
        "roofline.layer(llama, 'full').weights * recipe('bf16').weights / 4 / units.MB",
        0,
    ),
    ("min-gpus", "117 is what", f"memory.min_chips(n_params(llama) * 10 + {KEPT}, v5p.chip.hbm)", 0),
    ("min-gpus", "fits 15 H100", "units.ceil_div(n_params(llama) * recipe('bf16').total, h100.chip.hbm)", 0),
    ("ten-years", "take 9.4 years", f"budget.seconds({FLOPS}, 117, peak_v5p, ARTICLE_MFU) / units.YEAR", 1),
    ("b-must-grow", "125 tokens", "4e6 / 32000", 0),
    ("no-pp-needed", "to 309", "fsdp.critical_tokens(h100_peak, node_egress) / 8", 0),
    ("no-pp-needed", "leave 140 replicas", "8960 / ParallelPlan(tp=8, pp=8).chips", 0),
    ("no-pp-needed", "some 7 microbatches", "4 * 2**20 / 4096 / 140", 0),
]


@pytest.mark.parametrize(("name", "words", "expression", "decimals"), WHY)
def test_numbers_in_the_explanations(name: str, words: str, expression: str, decimals: int) -> None:
    text = ENTRIES[name]["why"] + str(ENTRIES[name].get("ours", ""))
    assert words in text
    assert f"{value(expression):.{decimals}f}" in words


def test_half_and_a_sixth_of_the_step_are_bubble() -> None:
    """no-pp-needed: 4M tokens on 140 replicas of 8 stages, plain and with five chunks a device."""
    m = 4 * 2**20 / 4096 / 140
    assert value(f"pp.bubble_of_total(8, {m})") == pytest.approx(1 / 2, abs=0.02)
    assert value(f"pp.bubble_of_total(8, {m}, 5)") == pytest.approx(1 / 6, abs=0.01)
    assert value("pp.bubble_of_total(4, 1)") == pytest.approx(3 / 4)  # one-microbatch-per-stage


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alpha-nvlink", "2,198 FLOP/B"),
        ("alpha-ib", "2,472 tokens per chip"),
        ("max-model-v5p", "6 billion parameters"),
        ("params", "70.55 billion parameters"),
        ("fsdp-bytes", "1.5, FSDP over DP"),
        ("hybrid-gain", "7.496"),
        ("tp-max-v5p", "11.24 ways"),
        ("tp-cross-node", "39,560"),
        ("one-microbatch-per-stage", "4 microbatches"),
        ("train-flops", "6.35e24 FLOP"),
        ("mfu-cap-h100", "43.77 days, at least (4*2^20 tokens)"),
        ("gpu-hours", "4.459 million GPU-hours"),
        ("cost-cloud", "8.917 million USD"),
        ("min-gpus", "146 GPUs (16 B/param + 2 checkpoints per layer, 4e6 tokens)"),
        ("ten-years", "4.347 years at 40% MFU"),
        ("bubble-formula", "(p-1)/(m+p-1)"),
        ("cost-meta", "not published"),
    ],
)
def test_a_value_is_printed_with_its_unit_in_words(name: str, shown: str) -> None:
    table = claims.ClaimTable((claims.claim(name),))
    assert f"ours {shown} (" in repr(table)
    assert f"<td>{shown}</td>" in table._repr_html_()


def test_no_printed_unit_is_a_power_of_ten_or_a_slug() -> None:
    for claim in claims.all_claims():
        row = claims.ClaimTable((claim,))._repr_html_().split("</th>")[-1]
        cells = claims.with_unit(claim) + claim.why
        assert not re.search(r"\d 1e\d", row), claim.id
        assert not [name for name in ENTRIES if "-" in name and re.search(rf"\b{name}\b", cells)], claim.id


def test_tp_of_16_on_two_nodes_fails_at_nvlink_and_not_at_the_network_cards() -> None:
    """tp-cross-node: F of the model against the width each level asks for, with the exact shares of a group of 16."""
    names: dict[str, Any] = claims.names()
    inner, outer = names["h100"].hops(16)
    wanted = [16 * (h.members - 1) / h.members * names["h100_peak"] / h.egress for h in (inner, outer)]
    assert wanted[0] > names["llama"].d_ff > wanted[1]
    assert wanted[1] == pytest.approx(19780)


def test_the_unsourced_sum_stays_unknown() -> None:
    assert claims.claim("cost-meta").verdict == "unsourced"
    assert claims.claim("cost-meta").ours == "not published"


def test_the_errata_show_the_claims_of_every_chapter() -> None:
    page = Path(__file__).parents[1] / "book" / "src" / "errata.md"
    shown = re.findall(r'(?m)^table\("(\w+)"\)$', page.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(CHAPTERS)
