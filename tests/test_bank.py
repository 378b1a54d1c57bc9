"""Every question of the bank: complete, computable at any seed, traps told apart, tied to book and claims."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaling_lib import answers, bank, claims, given, quiz
from scaling_lib.hardware import Chip, Cluster, chip, cluster
from scaling_lib.model import TransformerConfig, model
from scaling_lib.questions import NEEDS, Question, ambiguous, in_unit, instance, parameters, unit_of

SEEDS = range(200)
BANK = list(bank.questions().values())
NUMERIC = [q for q in BANK if q.numeric]
IDS = [q.id for q in BANK]
# the issue of variety: no chapter without each of these
QUOTA = {"numeric": 3, "audit": 1, "explain": 1, "estimate": 1}
CHAPTERS = [stem for stem in bank.STEMS if stem != "interview"]


@pytest.mark.parametrize("question", BANK, ids=IDS)
def test_two_hundred_seeds_are_well_posed(question: Question) -> None:
    seen = []
    for seed in SEEDS:
        drawn = parameters(question, seed)
        if drawn in seen:  # the same parameters give the same question
            continue
        seen.append(drawn)
        asked = instance(question, seed)  # raises when a trap cannot be told from the answer
        if question.numeric:
            assert math.isfinite(asked.answer), f"seed {seed}: {asked.answer}"
            assert asked.answer > 0, f"seed {seed}: {asked.answer}"
            assert all(math.isfinite(v) and v > 0 for _, v in asked.traps), f"seed {seed}: {asked.traps}"
        if question.options:
            assert asked.answer in {o.key for o in question.options}


@pytest.mark.parametrize("question", BANK, ids=IDS)
def test_the_text_of_a_question_is_complete(question: Question) -> None:
    for seed in (None, 0, 1, 2):
        asked = instance(question, seed)
        assert not ambiguous(asked)
        texts = [asked.prompt, *asked.hints, *(t for _, t in asked.steps), *asked.options]
        page = quiz.ask(question.id, seed)._repr_html_()
        assert all(texts), "an empty text"
        assert not re.search(r"\{\w+", " ".join(texts)), "an unfilled template"
        assert "<script" not in page
        assert page == quiz.ask(question.id, seed)._repr_html_(), "two prints differ"
        assert quiz.solve(question.id, seed).startswith(asked.prompt)
    if question.draw and question.kind not in ("explain", "code"):
        assert len({instance(question, seed).prompt for seed in SEEDS}) >= 2, "a draw that never changes the question"


@pytest.mark.parametrize("question", [q for q in BANK if q.answer], ids=lambda q: q.id)
def test_worked_steps_end_in_the_answer(question: Question) -> None:
    for seed in (None, 3, 11):
        asked = instance(question, seed)
        assert asked.steps[-1][1].endswith(asked.answer_text)
        assert quiz.check(
            question.id, asked.answer_text.split(")")[0].strip("(") if question.options else asked.answer_text, seed
        )


@pytest.mark.parametrize("question", [q for q in BANK if q.book], ids=lambda q: q.id)
def test_the_canonical_answer_is_the_books(question: Question) -> None:
    book = float(eval(question.book, dict(claims.names())))
    assert instance(question).answer == pytest.approx(book, rel=1e-9)


@pytest.mark.parametrize("question", [q for q in BANK if q.claim], ids=lambda q: q.id)
def test_an_audit_agrees_with_its_claim(question: Question) -> None:
    claim = claims.claim(question.claim)
    assert claim.verdict != "holds", "an audit asks what is wrong"
    if question.numeric and isinstance(claim.ours, float):
        ratio = instance(question).answer / unit_of(question.unit)[0] / claim.ours
        assert math.isclose(ratio, 1, rel_tol=0.01) or any(math.isclose(ratio, r, rel_tol=0.01) for r in (1e6, 100)), (
            ratio
        )


def test_every_claim_that_does_not_hold_is_audited() -> None:
    wrong = {c.id for c in claims.all_claims() if c.verdict != "holds"}
    assert wrong == {q.claim for q in BANK if q.claim}


def test_the_bank_has_its_size_and_every_chapter_its_quota() -> None:
    assert len(BANK) >= 200
    counts = {stem: Counter(q.kind for q in BANK if q.stem == stem) for stem in CHAPTERS}
    for stem, kinds in counts.items():
        least = 9 if stem == "reality" else 15  # its other drills are questions of budget
        assert sum(kinds.values()) >= least, f"{stem} has {sum(kinds.values())} questions"
        lacking = {k: n for k, n in QUOTA.items() if kinds[k] < n}
        assert not lacking, f"{stem} lacks {lacking}"
    assert len([q for q in BANK if re.match(r"interview\.q\d+_", q.id)]) == 10
    assert all(q.says and q.rubric and q.follow_ups for q in BANK if q.stem == "interview")


def test_the_settings_vary() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in bank.folder().glob("*.py"))
    for name in ("dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-8", "tpu-v5p", "tpu-v6e", "tpu-v7",
                 "llama-3-8b", "llama-3-405b", "deepseek-v3", "mixtral-8x7b"):  # fmt: skip
        assert name in text, f"no question about {name}"
    assert {"small", "moe", "long-context"} <= {t for q in BANK for t in q.tags}


@pytest.mark.parametrize("question", NUMERIC, ids=lambda q: q.id)
def test_spoken_units_are_understood(question: Question) -> None:
    asked = instance(question)
    factor, _ = unit_of(question.unit)
    assert quiz.check(question.id, asked.answer / factor)
    assert quiz.check(question.id, f"{asked.answer / factor:.6g}")
    assert quiz.check(question.id, f"about {in_unit(asked.answer, question.unit, 5)}")


def slips(question: Question, seed: int | None) -> list[tuple[float, set[str]]]:
    """Wrong answers that the usual slips produce, each with the kinds of verdict that name it."""
    asked = instance(question, seed)
    right = float(asked.answer)
    named = {"trap"}
    found: list[tuple[float, set[str]]] = [(v, named) for _, v in asked.traps]
    for ratio in (2, 1 / 2, 3, 1 / 3, 4, 1 / 4, 8, 1 / 8, 1000, 1 / 1000, 1.5, 16, 1e6, 100, 10):
        found.append((right * ratio, {"factor", "trap"}))
    if "byte" in unit_of(question.unit)[1]:
        found += [(right * r, {"factor", "trap"}) for r in (2**30 / 1e9, 1e9 / 2**30)]
    if unit_of(question.unit)[1] == "second":
        found += [(right * r, {"factor", "trap"}) for r in (86400, 1 / 3600, 24)]
    found += [
        (right * 1.045, {"close"}),
        (right * 0.957, {"close"}),
        (right * 1.37, {"ratio"}),
        (right * 5.3, {"ratio"}),
    ]
    return found


def test_wrong_answers_are_diagnosed_as_intended() -> None:
    """At least 10 for each numeric question, 95% of them named as intended; estimates are judged by size."""
    wrong, total = [], 0
    for question in [q for q in NUMERIC if q.kind != "estimate"]:
        for seed in (None, 5):
            corpus = slips(question, seed)
            assert len(corpus) >= 10
            for value, wanted in corpus:
                verdict = answers.judge(instance(question, seed), value)
                total += 1
                if verdict.kind not in wanted:
                    wrong.append((question.id, seed, value, verdict.kind, wanted))
    assert len(wrong) <= 0.05 * total, f"{len(wrong)} of {total}: {wrong[:20]}"


@pytest.mark.parametrize("question", [q for q in NUMERIC if q.traps], ids=lambda q: q.id)
def test_each_trap_is_caught_by_its_name(question: Question) -> None:
    if question.kind == "estimate":
        return
    for seed in (None, 1, 2, 3):
        asked = instance(question, seed)
        for trap, value in asked.traps:
            verdict = answers.judge(asked, value)
            assert (verdict.kind, verdict.name) == ("trap", trap.name)


def test_the_bank_needs_only_the_standard_library() -> None:
    for path in Path(bank.folder()).glob("*.py"):
        imports = re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(imports) <= {"__future__", "typing", "dataclasses", "scaling_lib"}, path.name


def scaled(group: str, factor: float) -> dict[str, Any]:
    """`cluster`, `chip` and `model` of a catalogue in which one figure is another one."""

    def chip_(c: Chip) -> Chip:
        figures: dict[str, Any] = {
            "peak": {"peak": {**c.peak, "bf16": c.peak["bf16"] * factor}},
            "fp8": {"peak": {**c.peak, "fp8": c.peak.get("fp8", 1) * factor}},
            "hbm": {"hbm": c.hbm * factor},
            "hbm_bandwidth": {"hbm_bandwidth": c.hbm_bandwidth * factor},
        }
        return replace(c, **figures.get(group, {}))

    def cluster_(c: Cluster) -> Cluster:
        wider = group == "network"
        levels = tuple(replace(level, egress=level.egress * factor) if wider else level for level in c.levels)
        return replace(c, chip=chip_(c.chip), levels=levels)

    def model_(m: TransformerConfig) -> TransformerConfig:
        changed = {"params": ("vocab_size",), "shape": ("n_layers", "d_model", "d_ff")}.get(group, ())
        return replace(m, **{name: getattr(m, name) * 2 for name in changed})

    return {
        "cluster": lambda name: cluster_(cluster(name)),
        "chip": lambda name: chip_(chip(name)),
        "model": lambda name: model_(model(name)),
    }


# these state a figure of their own making: a layer's parameters, an effective width, a peak that is the answer
OWN = {"memory.gathered_layer": "shape", "tp.max_degree_full": "shape", "scaling.audit_v5p": "peak"}
GIVEN = [q for q in BANK if q.derive and q.answer and q.kind != "estimate"]


@pytest.mark.parametrize("question", GIVEN, ids=lambda q: q.id)
def test_what_an_answer_builds_on_is_said_or_given(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that moves with a figure of the catalogue has it in its prompt or among the figures given."""
    asked, values = instance(question), parameters(question, None)
    derive: Any = question.derive
    for group in NEEDS if "params" not in question.needs else [n for n in NEEDS if n != "shape"]:
        with monkeypatch.context() as patch:
            for name, function in scaled(group, 1.37).items():
                if name in derive.__globals__:
                    patch.setitem(derive.__globals__, name, function)
            moved = {**values, **derive(SimpleNamespace(**values))}[question.answer] != asked.answer
        if moved and group not in question.needs and OWN.get(question.id) != group:
            columns = MODEL if group in ("params", "shape") else [c for need, c, _ in given.MACHINES if need == group]
            known = [row[c] for row in given.rows(asked, NEEDS).values() for c in columns if c in row]
            assert any(text in asked.prompt for text in known), f"builds on {group}: state it, or add it to needs"


MODEL = [column for _, column, _ in given.MODELS]


@pytest.mark.parametrize("question", [q for q in BANK if q.needs], ids=lambda q: q.id)
def test_figures_needed_are_found(question: Question) -> None:
    """A question that needs figures names where they stand, under every seed."""
    for seed in (None, 1, 2, 3):
        asked = instance(question, seed)
        found = given.rows(asked, question.needs).values()
        for need in question.needs:
            columns = [column for name, column, _ in (*given.MACHINES, *given.MODELS) if name == need]
            assert any(row.get(column) for row in found for column in columns), need
