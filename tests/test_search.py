from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scaling_lib import __main__ as program
from scaling_lib.hardware import cluster
from scaling_lib.memory import ledger
from scaling_lib.model import model
from scaling_lib.search import Question, Space, estimate, frontier, search, sensitivity

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


def _job(layout):  # type: ignore[no-untyped-def]
    from scaling_lib.job import Job

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


def test_slower_hardware_is_never_faster() -> None:
    moved = {name: a.best[0].seconds for name, a in sensitivity(ASKED, SMALL).items() if a.best}
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
    nothing = search(replace(ASKED, chips=8), SMALL)
    assert nothing.feasible == 0
    assert "memory: more than the chip's HBM" in nothing.rejected


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan --model llama-3-8b --cluster dgx-h100 --chips 64 --batch-tokens 1048576 --seq-len 8192 --tokens 1e12"
    assert program.main([*words.split(), "--json", "--top", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"evaluated", "feasible", "rejected", "seconds", "within_5pct", "best"} <= set(data)
    assert len(data["best"]) == 2
    assert program.main(words.split()) == 0
    assert "within 5% of the best" in capsys.readouterr().out
    assert program.main([*words.replace("dgx-h100", "dgx-h10").split()]) == 2
