from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import __main__ as program
from scaling_lib.hardware import cluster
from scaling_lib.job import Job
from scaling_lib.memory import ledger, peak_bytes
from scaling_lib.model import model
from scaling_lib.rules import check
from scaling_lib.search import WIDE, Question, Space, _bar, estimate, frontier, search, sensitivity
from scaling_lib.search_space import spare_places

ASKED = Question(model("llama-3-70b"), cluster("dgx-h100"), 512, 512 * 8192, 8192, tokens=15e12, price=2 / 3600)
SMALL = Space(tp=(1, 4, 8), pp=(1, 4), cp=(1,), chunks=(1, 5), micro_batch=(1, 2), zero=(1, 3))


@pytest.fixture(scope="module")
def answer():  # type: ignore[no-untyped-def]
    return search(ASKED, SMALL, top=1000)


def test_every_layout_is_ranked_or_rejected_once(answer) -> None:  # type: ignore[no-untyped-def]
    assert answer.evaluated == 3 * 2 * 2 * 2 * 3 * 2 * 2
    assert answer.feasible + sum(answer.rejected.values()) == answer.evaluated
    assert len(answer.best) == answer.feasible
    assert [x.seconds for x in answer.best] == sorted(x.seconds for x in answer.best)
    assert answer.within == sum(x.seconds <= 1.05 * answer.best[0].seconds for x in answer.best)


def test_batched_and_single_predictions_agree(answer) -> None:  # type: ignore[no-untyped-def]
    for layout in answer.best[:: max(1, len(answer.best) // 12)]:
        single = estimate(ASKED, layout)
        assert layout.seconds == pytest.approx(single.seconds, rel=1e-9)
        assert layout.mfu == pytest.approx(single.mfu_causal, rel=1e-9)
        job_memory = ledger(replace(_job(layout))).total
        assert layout.memory == pytest.approx(job_memory, rel=1e-9)
        assert layout.memory <= ASKED.cluster.chip.hbm


def test_grids_and_rows_give_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts computed as broadcasting axes, in a row, and in blocks: the same numbers and reasons."""
    moe = Question(model("deepseek-v3"), cluster("dgx-h100"), 2048, 4096 * 4096, 4096)
    space = replace(SMALL, pp=(1, 8, 16), ep=(1, 8, 64), dp_overlap=(True, False))
    answers = []
    for few, block in ((0, 16_384), (10**9, 16_384), (10**9, 100), (0, 50)):
        monkeypatch.setattr("scaling_lib.search.FEW", few)
        monkeypatch.setattr("scaling_lib.search.BLOCK", block)
        answers.append(search(moe, space, top=10_000))
    first = answers[0]
    assert first.feasible > 100
    for other in answers[1:]:
        assert (other.rejected, other.leanest) == (first.rejected, pytest.approx(first.leanest))
        assert {(x.plan, x.stack): (x.seconds, x.memory) for x in other.best} == {
            (x.plan, x.stack): pytest.approx((x.seconds, x.memory)) for x in first.best
        }
    for layout in first.best[:: len(first.best) // 8]:
        assert layout.seconds == pytest.approx(estimate(moe, layout).seconds, rel=1e-9)


def _job(layout):  # type: ignore[no-untyped-def]
    return Job(ASKED.model, ASKED.cluster, layout.plan, 512, ASKED.batch_tokens, 8192, recipe=ASKED.recipe)


def test_days_and_dollars_follow_from_the_step(answer) -> None:  # type: ignore[no-untyped-def]
    best = answer.best[0]
    assert best.days == pytest.approx(15e12 / (512 * 8192) * best.seconds / 86400)
    assert best.usd == pytest.approx(best.days * 24 * 512 * 2)


def test_what_the_article_asks_has_many_answers() -> None:
    wide = search(replace(ASKED, chips=8960, batch_tokens=8960 * 2048), top=3)
    assert wide.within > 10  # a plateau, not one answer
    assert wide.evaluated > 1e6
    assert {r.split(":")[0] for r in wide.rejected} >= {"chips", "domain", "memory", "batch", "layers"}


def test_experts_are_laid_out() -> None:
    moe = Question(model("deepseek-v3"), cluster("gb200-nvl72"), 512, 4096 * 4096, 4096)
    found = search(moe, Space(tp=(1,), cp=(1,), chunks=(1,), micro_batch=(1,), zero=(1,), sequence_parallel=(False,)))
    assert any(x.plan.ep > 1 for x in found.best)


@pytest.fixture(scope="module")
def moved_answers():  # type: ignore[no-untyped-def]
    return sensitivity(ASKED, SMALL, progress=False)


def test_slower_hardware_is_never_faster(moved_answers) -> None:  # type: ignore[no-untyped-def]
    moved = {name: a.best[0].seconds for name, a in moved_answers.items() if a.best}
    assert moved["matmul rate / 2"] > 1.5 * moved["as asked"]
    assert moved["network bandwidth / 2"] >= moved["as asked"] >= moved["network bandwidth x 2"]
    assert moved["batch x 2"] > moved["as asked"]


def test_the_frontier_holds_no_beaten_point() -> None:
    found = frontier(ASKED, (128, 256, 512), SMALL)
    assert found
    assert all(not (a.days <= b.days and a.usd <= b.usd) or a is b for a in found for b in found)
    with pytest.raises(ValueError, match="tokens and price"):
        frontier(replace(ASKED, price=None), (128,))


def test_impossible_questions_are_explained() -> None:
    with pytest.raises(ValueError, match="holds no sequence"):
        search(replace(ASKED, batch_tokens=100))
    with pytest.raises(ValueError, match="no whole number of sequences of 8192: use 8192 or 16384 tokens"):
        search(replace(ASKED, batch_tokens=10_000))
    with pytest.raises(ValueError, match="chips = 0"):
        search(replace(ASKED, chips=0))
    with pytest.raises(ValueError, match="use at most 1,000,000,000"):
        search(replace(ASKED, chips=10**18))
    with pytest.raises(ValueError, match="tpu-v5e has 256 chips, 512 asked for"):
        search(replace(ASKED, cluster=replace(cluster("tpu-v5e"), max_chips=256)))
    with pytest.raises(ValueError, match=r"no value of dp_overlap to search"):
        search(ASKED, replace(SMALL, dp_overlap=()))
    nothing = search(replace(ASKED, chips=8), SMALL)
    assert nothing.feasible == 0
    assert "memory: more than the chip's HBM" in nothing.rejected
    assert nothing.leanest is not None
    assert nothing.leanest > ASKED.cluster.chip.hbm


def test_switches_are_searched_too(answer) -> None:  # type: ignore[no-untyped-def]
    wide = search(ASKED, replace(SMALL, **{s: getattr(WIDE, s) for s in ("tp_overlap", "dp_overlap")}), top=10_000)
    assert wide.evaluated == 4 * answer.evaluated
    assert wide.feasible + sum(wide.rejected.values()) == wide.evaluated
    assert wide.best[0].seconds == pytest.approx(answer.best[0].seconds)  # to overlap never costs
    alone = [x for x in wide.best if x.plan.tp == 1]
    assert {x.stack.tp_overlap for x in alone} == {True}  # nothing to hide: not counted twice
    assert {x.stack.dp_overlap for x in alone} == {True, False}
    some = next(x for x in wide.best if not x.stack.dp_overlap and not x.stack.tp_overlap)
    assert estimate(ASKED, some).seconds == pytest.approx(some.seconds, rel=1e-9)
    on = next(x for x in wide.best if x.plan == some.plan and x.stack == ASKED.stack)
    assert on.seconds < some.seconds
    assert on.memory == some.memory


def test_layers_that_do_not_divide_get_light_ends() -> None:
    meta = Question(model("llama-3-405b"), cluster("dgx-h100"), 16384, 2**24, 8192)
    found = search(meta, Space(tp=(8,), pp=(14, 16), cp=(1,), micro_batch=(1,), zero=(1,)))
    best = found.best[0].plan
    assert (best.pp, best.virtual_stages, best.light_ends) == (16, 8, True)
    for layout in found.best:
        assert layout.plan.light_ends is (126 % layout.plan.pp > 0)
        job = Job(meta.model, meta.cluster, layout.plan, 16384, 2**24, 8192, recipe=meta.recipe)
        assert check(job) == []  # what the search lets through breaks no rule, even of those that only warn
        assert layout.memory == pytest.approx(ledger(job).total)


def test_layers_that_cannot_be_even_leave_as_few_places_as_stages_allow() -> None:
    """61 layers on 16 stages: four places each, three of 64 empty; five chunks a stage would leave 19."""
    v3 = Question(model("deepseek-v3"), cluster("h800-ib"), 2048, 16384 * 4096, 4096, precision="fp8")
    found = search(v3, Space(tp=(1,), pp=(16,), cp=(1,), ep=(16,), micro_batch=(1,), zero=(1,)), top=100)
    assert {x.plan.virtual_stages for x in found.best} == {1, 2}
    assert not any(x.plan.light_ends for x in found.best)
    for layout in found.best:
        job = Job(v3.model, v3.cluster, layout.plan, 2048, v3.batch_tokens, 4096, recipe=v3.recipe)
        assert [(v.rule, v.fatal) for v in check(job)] == [("layers", False)]
        assert layout.seconds == pytest.approx(estimate(v3, layout).seconds, rel=1e-9)
    assert [spare_places(126, p) for p in (2, 16, 4, 5)] == [0, 2, 2, 4]


def test_experts_may_overlap_too() -> None:
    v3 = Question(model("deepseek-v3"), cluster("h800-ib"), 2048, 15360 * 4096, 4096, precision="fp8")
    space = Space(tp=(1,), pp=(8,), cp=(1,), ep=(1, 16), micro_batch=(1,), zero=(1,), ep_overlap=(False, True))
    found = search(v3, space, top=100)
    assert {(x.plan.ep, x.stack.ep_overlap) for x in found.best} == {(16, False), (16, True)}
    assert found.best[0].stack.ep_overlap
    dense = replace(ASKED, chips=64)
    assert search(dense, replace(SMALL, ep_overlap=(False, True))).evaluated == search(dense, SMALL).evaluated


def test_peak_is_the_total_of_the_ledger() -> None:
    plan = replace(search(ASKED, SMALL).best[0].plan, tp=np.array([1, 2, 4, 8]), dp=np.array([512, 256, 128, 64]), pp=1)
    job = Job(ASKED.model, ASKED.cluster, plan, 512, ASKED.batch_tokens, 8192)
    assert peak_bytes(job) == pytest.approx(ledger(job).total)


def test_the_bar_waits_a_second_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    bar = _bar(now, True)
    now += 0.9
    bar(10, 100)
    assert shown.getvalue() == ""
    now += 0.2
    bar(50, 100)
    assert "[###############...............] 50 of 100 layouts" in shown.getvalue()
    bar(100, 100)
    last = shown.getvalue().split("\r")[-2]
    assert shown.getvalue().endswith("\r")
    assert not last.strip()  # wiped out
    silent = _bar(now - 10, False)
    silent(1, 2)
    assert shown.getvalue().count("50 of 100") == 1


def test_the_price_moves_only_the_cost(moved_answers) -> None:  # type: ignore[no-untyped-def]
    asked, dear = moved_answers["as asked"].best[0], moved_answers["price x 2"].best[0]
    assert (dear.plan, dear.usd) == (asked.plan, pytest.approx(2 * (asked.usd or 0)))
    odd = replace(ASKED, chips=8, batch_tokens=3 * 8192, price=None)
    assert not {"price x 2", "batch / 2"} & set(sensitivity(odd, replace(SMALL, tp=(8,))))


WORDS = "plan --model llama-3-8b --cluster dgx-h100 --chips 16 --batch-tokens 131072 --seq-len 8192 --tokens 1e12"


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--price", "2", "--sensitivity", "--frontier")
    assert program.main([*WORDS.split(), *more, "--json", "--top", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"evaluated", "feasible", "rejected", "seconds", "within_5pct", "best"} <= set(data)
    assert len(data["best"]) == 2
    assert data["sensitivity"]["price x 2"]["best"][0]["usd"] == pytest.approx(2 * data["best"][0]["usd"])
    low, high = data["step_interval_s"]
    assert low < data["best"][0]["step_time_s"] < high
    assert data["rate_is_measured"]
    sizes = [x["chips"] for x in data["frontier"]]
    assert sizes == sorted(sizes)
    assert set(sizes) <= {2, 4, 8, 16, 32}
    assert len(sizes) > 1
    days = [x["days"] for x in data["frontier"]]
    assert days == sorted(days, reverse=True)


def test_the_command_answers_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([*WORDS.split(), "--overlap", "--top", "40"]) == 0
    out = capsys.readouterr().out
    assert "within 5% of the best" in out
    assert "overlapped" in out
    assert "in four cases of five\n" in out
    assert program.main(WORDS.replace("dgx-h100", "mi300x-8").split()) == 0
    assert "no run of mi300x in bf16 was published: its matmul rate is a guess" in capsys.readouterr().out
    assert program.main([*WORDS.replace("--tokens 1e12", "--price 2").split()]) == 2
    assert "--price alone" in capsys.readouterr().err
    assert program.main([*WORDS.replace("dgx-h100", "dgx-h10").split()]) == 2
    assert program.main([*WORDS.split(), "--frontier"]) == 2
    assert "give --tokens and --price too" in capsys.readouterr().err


def test_the_command_says_why_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(WORDS.replace("--chips 16", "--chips 1").split()) == 1
    assert "the leanest needs" in capsys.readouterr().err
    assert program.main(WORDS.replace("--chips 16", "--chips 61").split()) == 1
    said = capsys.readouterr()
    assert "(batch: its sequences do not divide by DP): take chips that share factors with the 32 layers, " in said.err
    assert "step" not in said.out  # no head of an empty table
    assert program.main(WORDS.replace("131072", "131073").split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
