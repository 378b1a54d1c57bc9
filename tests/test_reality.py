"""The chapter's view of the validation: what it shows is what the validation and the study say."""

from __future__ import annotations

from collections import Counter

import pytest

from scaling_lib import reality
from scaling_lib.catalogue import CatalogueError
from scaling_lib.runs import read_runs
from scaling_lib.validate import quantile


def test_families_part_the_dense_runs() -> None:
    runs = reality.split("dev")
    found = reality.points(runs, lambda s, measured: s.predicted / measured)
    assert sum(len(places) for _, places in found) == len(runs) == reality.total("split", "dev").n
    assert [name for name, _ in found] == [*reality.FAMILIES, "other"]
    ratios = [ratio for _, places in found for _, ratio in places]
    assert quantile([abs(r - 1) for r in ratios], 0.5) == pytest.approx(reality.total("split", "dev").median_ape)


def test_sources_left_out_are_the_sources_of_the_fit() -> None:
    rows = [r for r in read_runs()[0] if r.measured and not r.wrong and r.split == "dev" and r.job.model.moe is None]
    assert {r.source: r.rows for r in reality.left_out_sources()} == Counter(r.source for r in rows)
    assert reality.left_out("all").rows == len(rows)
    assert reality.left_out("printed").rows == sum(not r.assumed for r in rows)
    assert reality.left_out("mosaic").median > reality.total("source", "mosaic").median_ape
    with pytest.raises(CatalogueError, match="no source 'nobody' left out"):
        reality.left_out("nobody")


def test_the_rule_of_a_fixed_mfu_is_right_for_a_run_that_reaches_it() -> None:
    s = reality.bf16_dense()[0]
    mfu = reality.measured_mfu(s)
    assert reality.rule_seconds(s.run.job, mfu) == pytest.approx(s.run.measured)
    assert 0 < mfu < 1
    assert reality.reaches(0.0) == 1
    assert reality.reaches(0.4) > reality.reaches(0.5) > reality.reaches(0.99) == 0
    assert reality.own_ape() < reality.rule_ape(0.4)


def test_the_405b_falls_into_the_interval_where_its_layout_is_printed() -> None:
    published = reality.published_405b()
    assert [p.job.chips for p in published] == [8192, 16384, 16384]
    assert [p.job.plan.chips for p in published] == [p.job.chips for p in published]
    for i in (0, 1):
        estimate = reality.predicted_405b(i)
        assert estimate.low < published[i].seconds("causal") < estimate.high
        assert estimate.unknown == ("tp_overlap", "tp_backward_overlap")
    # the chunks at both ends hold a table and no layer, so all others hold one
    assert {p.job.plan.virtual_stages for p in published} == {8}


def test_the_interval_is_as_wide_as_its_evidence_is_thin() -> None:
    low, high = reality.band("h100-sxm", "bf16")
    assert -0.12 < low < 0 < high < 0.12
    assert reality.band("gb300", "fp8")[0] < low
    assert reality.held("with guessed fields").width > reality.held("every field printed").width
    assert 0 < reality.peaks_of_others() < 0.2
    low, middle, high = reality.used_memory()
    assert 0.9 < low < middle < high < 2
    with pytest.raises(CatalogueError, match="no coverage of runs 'all'"):
        reality.held("all")


def test_repeats_are_one_configuration_each() -> None:
    found = reality.repeats(reality.split("moe"))
    assert [r.spread for r in found] == sorted((r.spread for r in found), reverse=True)
    assert all(len(r.seconds) > 1 and r.seconds[0] <= r.seconds[-1] for r in found)
    assert reality.repeat_spread("moe", 1.0) == found[0].spread
    assert reality.repeat_spread("dev") < 0.1


def test_no_single_prediction_is_nearer_than_the_floor() -> None:
    for r in reality.repeats(reality.split("dev")):
        low, high = r.seconds[0], r.seconds[-1]
        tried = [low + (high - low) * i / 1000 for i in range(1001)]
        best = min(max(abs(x / low - 1), abs(x / high - 1)) for x in tried)
        assert best == pytest.approx(r.floor, abs=1e-3 * r.spread)
    spread = reality.repeat_spread("dev")
    assert reality.repeat_floor("dev") == pytest.approx(spread / (2 + spread), rel=1e-4)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no measured run in split 'test': use one of context, dev, moe"):
        reality.split("test")
    with pytest.raises(ValueError, match="no source 'nobody' among the scored runs"):
        reality.total("source", "nobody")
    with pytest.raises(ValueError, match="no scored run 'x-1'"):
        reality.run("x-1")
