"""The engine of the questions: reading answers, naming slips, drills that can be left, a file that survives."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaling_lib import answers, bank, drill, leitner, quiz
from scaling_lib.questions import (
    KINDS,
    Option,
    Point,
    QuestionError,
    fill,
    in_unit,
    instance,
    pick,
    unit_of,
)
from scaling_lib.units import DAY, UnitError
from tests.conftest import number

# reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("20.7 days", 20.7 * DAY, "second"),
        ("2.2k tokens", 2200, "token"),
        ("1e6 GPUh", 3.6e9, "second"),
        ("4.46M GPU-hours", 4.46e6 * 3600, "second"),
        ("4.46 million GPU hours", 4.46e6 * 3600, "second"),
        ("$8.9M", 8.9e6, "USD"),
        ("8.9 million USD", 8.9e6, "USD"),
        ("8.9M $", 8.9e6, "USD"),
        ("$2/h", 2 / 3600, "USD/second"),
        ("~ 6.35e24 FLOPs", 6.35e24, "FLOP"),
        ("6.35 x 10^24 FLOP", 6.35e24, "FLOP"),
        ("6.35×10^24 FLOP", 6.35e24, "FLOP"),
        ("4*2^20 tokens", 4 * 2**20, "token"),
        ("2^20 tokens", 2**20, "token"),
        ("2,198 tokens per GPU", 2198, "token"),
        ("2198 tok/chip", 2198, "token"),
        ("70.55B params", 70.55e9, "param"),
        ("70.55 billion parameters", 70.55e9, "param"),
        ("80 GiB", 80 * 2**30, "byte"),
        ("400 Gb/s", 50e9, "byte/second"),
        ("450 GB/s", 450e9, "byte/second"),
        ("3/7", 3 / 7, ""),
        ("42.9%", 0.429, ""),
        ("42.9 percent", 0.429, ""),
        ("12 ms", 0.012, "second"),
        ("2 weeks", 14 * DAY, "second"),
        ("18.2 microbatches", 18.2, ""),
        ("989 TFLOP/s", 989e12, "FLOP/second"),
        ("7.5x", 7.5, ""),
        (".5 GB", 5e8, "byte"),
        ("20.7 Days", 20.7 * DAY, "second"),
        ("3 WEEKS", 21 * DAY, "second"),
        ("2 Hours", 7200, "second"),
        ("4.46M H100 hours", 4.46e6 * 3600, "second"),
        ("5 MI300X days", 5 * DAY, "second"),
        ("2 GPU-years", 730.5 * DAY, "second"),
        ("1129 GBytes", 1.129e12, "byte"),
        ("14 tokens/week", 2 / DAY, "token/second"),
        ("5 k token\n/chip", 5000, "token"),
        ("5 tokens each", 5, "token"),
        ("5 per second", 5, "1/second"),
        ("5 / s", 5, "1/second"),
        ("2 GiBytes", 2 * 2**30, "byte"),
    ],
)
def test_what_people_type_is_read(text: str, value: float, dimension: str) -> None:
    reading = answers.read(text)
    assert reading.value == pytest.approx(value, rel=1e-12)
    assert reading.dimension == dimension


@pytest.mark.parametrize(
    "text", ["", "many", "1,5 GB", "1.2.3 GB", "5 parsec", "1e999 B", "9^9999", "1/0", "nan", "GB 5"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        answers.read(text)


@pytest.mark.parametrize("text", ["3,5 GB", "20,7 days", "1129,5", "$3,5", "-0,4"])
def test_a_decimal_comma_is_named(text: str) -> None:
    with pytest.raises(UnitError, match=r"a comma parts thousands, a decimal takes a point: write e\.g\. '20\.7 days'"):
        answers.read(text)


@settings(deadline=None)  # the first example loads the bank
@given(st.text(max_size=30))
@example("1" * 400)
@example("9**99999999")
@example("0x10")
def test_any_text_gives_a_verdict_or_a_reason(text: str) -> None:
    verdict = quiz.check("dp.critical_tokens", text)
    assert verdict.kind in ("right", "close", "trap", "factor", "ratio", "unit")
    assert verdict.message


@settings(deadline=None)
@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.floats(allow_nan=True),
        st.integers(),
        st.lists(st.integers(), max_size=2),
        st.binary(max_size=3),
    )
)
@example(2.2e-311)  # further from any truth than a float can say
def test_any_object_gives_a_verdict_or_a_reason(answer: object) -> None:
    for name in (
        "dp.critical_tokens",
        "dp.which_network",
        "dp.code_threshold",
        "dp.explain_threshold",
        "budget.estimate_cost",
    ):
        assert quiz.check(name, answer).message


@given(
    st.floats(1e-6, 1e18), st.sampled_from(["GB", "GiB", "day", "h", "TFLOP", "token/chip", "USD", "%", "GPU*h", "us"])
)
def test_what_is_printed_can_be_typed(value: float, unit: str) -> None:
    text = in_unit(value, unit, 9)
    assert answers.read(text).value == pytest.approx(value, rel=1e-6, abs=1e-300)
    assert answers.read(text).dimension == unit_of(unit)[1]


# judging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "name"),
    [
        (50, "right", ""),
        ("50e9 bytes", "right", ""),
        ("400 Gb", "right", ""),
        (50.9, "right", ""),
        (52, "close", "rounding"),
        (25, "trap", "one direction"),
        (100, "factor", "2"),
        (150, "factor", "3"),
        (12.5, "factor", "4"),
        (400, "factor", "bits/bytes"),
        (50e3, "factor", "1000"),
        (50 * 1.073741824, "factor", "GB and GiB"),
        ("46.566", "factor", "GB and GiB"),
        (68, "ratio", ""),
        (-50, "ratio", "sign"),
        (0, "ratio", "sign"),
        ("5 days", "unit", ""),
        ("fifty", "unit", ""),
    ],
)
def test_a_verdict_names_the_slip(answer: Any, kind: str, name: str) -> None:
    verdict = quiz.grade(instance(number()), answer)
    assert (verdict.kind, verdict.name) == (kind, name)
    assert bool(verdict) == (kind == "right")


def test_the_message_says_which_way_and_how_far() -> None:
    asked = instance(number())
    assert "too large by a factor of 1.36" in quiz.grade(asked, 68).message
    assert "too small by a factor of 4" in quiz.grade(asked, 12.5).message
    assert "it sends both ways" in quiz.grade(asked, 25).message
    assert "3 GB" in quiz.grade(asked, "5 days").message
    assert "4.0% too large" in quiz.grade(asked, 52).message


@pytest.mark.parametrize(
    ("seconds", "name"), [(86400, "seconds/days"), (3600, "seconds/hours"), (24, "hours/days"), (60, "60")]
)
def test_slips_of_time_are_named(seconds: float, name: str) -> None:
    asked = instance(bank.question("budget.days"))
    assert answers.judge(asked, asked.answer * seconds).name == name
    assert answers.judge(asked, asked.answer / seconds).name == name


def test_a_percentage_may_be_given_as_a_fraction() -> None:
    assert quiz.check("scaling.mfu_cap", 40)
    assert quiz.check("scaling.mfu_cap", "40%")
    assert quiz.check("scaling.mfu_cap", 0.4)
    assert not quiz.check("scaling.mfu_cap", 4)


def test_choices_take_letter_number_key_or_text() -> None:
    asked = instance(bank.question("dp.model_size"))
    place = [o.key for o in asked.choices].index("same")
    for answer in ("abcd"[place], f"({'ABCD'[place]})", place + 1, "same", asked.options[place]):
        assert quiz.grade(asked, answer), answer
    wrong = quiz.grade(asked, "up")
    assert (wrong.kind, wrong.name) == ("trap", "up")
    assert "Compute grows by the same factor" in wrong.message
    assert quiz.grade(asked, "z").kind == "unit"


def test_the_right_option_has_no_favourite_place() -> None:
    asked = [instance(bank.question("dp.model_size"), seed) for seed in range(40)]
    assert {[o.key for o in a.choices].index("same") for a in asked} == {0, 1, 2, 3}


def test_estimates_are_scored_by_size_and_interval() -> None:
    truth = instance(bank.question("dp.estimate_days")).answer / DAY
    assert quiz.check("dp.estimate_days", f"{truth * 1.9:.4g} days")
    assert quiz.check("dp.estimate_days", f"{truth * 3.9:.4g}").kind in ("close", "trap")
    inside = quiz.check("dp.estimate_days", f"{truth:.4g} days ({truth / 2:.4g} to {truth * 2:.4g})")
    assert "holds it" in inside.message
    assert inside.score == pytest.approx(1, abs=0.01)
    outside = quiz.check("dp.estimate_days", f"{truth * 1.5:.4g} days ({truth * 1.2:.4g} to {truth * 2:.4g})")
    assert "outside" in outside.message
    assert quiz.check("dp.estimate_days", "20 days (30 to 10)").kind == "unit"
    assert quiz.check("dp.estimate_days", "-3 days").kind == "unit"
    assert quiz.log_error(10, 1) == pytest.approx(1)


def test_explanations_are_held_against_the_rubric() -> None:
    asked = instance(bank.question("interview.q4_tp_batch"))
    full = quiz.grade(
        asked,
        "FLOPs and activations both grow with B so it cancels; F, C and W are left; good for inference at small batch",
    )
    assert full.kind == "right"
    part = quiz.grade(asked, "because both of them grow with the batch")
    assert part.kind == "partly"
    assert "Not found" in part.message
    assert quiz.grade(asked, "no idea whatsoever").kind == "wrong"
    assert quiz.grade(asked, "dunno").kind == "unit"


def test_code_is_tried_on_several_cases() -> None:
    assert quiz.check("dp.code_threshold", lambda peak, egress, axes: peak / (axes * egress))
    wrong = quiz.check("dp.code_threshold", lambda peak, egress, axes: peak / egress)
    assert (wrong.kind, "3 times as much" in wrong.message) == ("ratio", True)
    assert "ZeroDivisionError" in quiz.check("dp.code_threshold", lambda peak, egress, axes: 1 / 0).message
    assert quiz.check("dp.code_threshold", lambda peak, egress, axes: "x").kind == "unit"
    assert quiz.check("dp.code_threshold", 3).kind == "unit"


# asking -------------------------------------------------------------------------------------------


def test_ask_shows_steps_of_a_faded_example_and_hides_the_rest() -> None:
    page = quiz.ask("dp.critical_batch", shown=2)._repr_html_()
    before, _, after = page.partition("<details>")
    assert "Count FLOPs" in before
    assert "Count bytes" in before
    assert "Solve for the knob.</strong>" not in before
    assert "Solve for the knob.</strong>" in after
    assert page.count("<details>") == page.count("</details>") == 5  # figures, three hints, the other steps
    with pytest.raises(QuestionError, match="steps"):
        quiz.ask("dp.critical_batch", shown=9)


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(QuestionError, match=r"dp\.critical_batch"):
        quiz.ask("dp.critical_bach")
    with pytest.raises(QuestionError, match="budget"):
        quiz.items(chapter="buget")
    with pytest.raises(QuestionError, match="numeric"):
        quiz.items(kind="numerical")
    with pytest.raises(QuestionError, match="level"):
        quiz.hint("dp.critical_batch", 4)
    with pytest.raises(QuestionError, match="whole number"):
        quiz.ask("dp.critical_batch", seed=1.5)  # type: ignore[arg-type]


def test_hints_lead_from_a_nudge_to_the_numbers() -> None:
    assert [quiz.hint("dp.critical_tokens", i) for i in (1, 2, 3)] == list(
        instance(bank.question("dp.critical_tokens")).hints
    )
    assert "989" in quiz.hint("dp.critical_tokens", 3)


def test_items_can_be_filtered() -> None:
    assert {q.stem for q in quiz.items(chapter="dp")} == {"dp"}
    assert {q.kind for q in quiz.items(kind="audit")} == {"audit"}
    assert all("moe" in q.tags for q in quiz.items(tag="moe"))
    assert {q.kind for q in quiz.items()} == set(KINDS)


def test_seeds_are_the_same_everywhere() -> None:
    assert [pick((1, 2, 3, 4, 5), "dp.test", seed, "n") for seed in range(6)] == [5, 5, 1, 5, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "dp"}, "id"),
        ({"kind": "essay"}, "kind"),
        ({"hints": ("a",)}, "hints"),
        ({"steps": {}}, "steps"),
        ({"steps": {"knob": "x", "bytes": "y"}}, "steps"),
        ({"answer": ""}, "answer"),
        ({"canonical": {}}, "canonical"),
        ({"kind": "choice", "options": (Option("a", "a"),)}, "three options"),
        ({"kind": "explain", "rubric": (Point("a", ("a",)),)}, "30 s"),
        ({"kind": "code"}, "reference"),
        ({"difficulty": 6}, "difficulty"),
        ({"needs": ("peek",)}, "needs"),
    ],
)
def test_an_incomplete_question_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        number(**changes)


def test_a_trap_equal_to_the_answer_is_refused() -> None:
    same = number(derive=lambda p: {"bytes": p.n * 1e9, "half": p.n * 1.01e9})
    with pytest.raises(QuestionError, match="cannot be told apart"):
        instance(same)


def test_a_template_must_name_what_is_computed() -> None:
    with pytest.raises(QuestionError, match="'m'"):
        fill("{m} GB", {"n": 1})
    assert (
        fill("{n}, {x}, {b:GB}, {m:model}", {"n": 4194304, "x": 0.5, "b": 5e9, "m": "llama-3-70b"})
        == "4,194,304, 0.5, 5 GB, Llama 3 70B"
    )
    assert fill("{n:token/chip} {n:token/chip|5} {n:|6} {n:GB|3}", {"n": 2472.531}) == (
        "2,473 tokens per chip 2,472.5 tokens per chip 2,472.53 2.47e-6 GB"
    )


def test_banks_are_checked_when_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuestionError, match="QUESTIONS"):
        bank.from_sources({"dp": "x = 1"})
    text = (bank.folder() / "dp.py").read_text(encoding="utf-8")
    with pytest.raises(QuestionError, match="must begin with 'tp'"):
        bank.from_sources({"tp": text})
    assert "dp.critical_batch" in bank.from_sources({"dp": text})
    (tmp_path / "nope.py").write_text("QUESTIONS = ()")
    with pytest.raises(QuestionError, match="no chapter"):
        bank.load(tmp_path)
    monkeypatch.setenv("SCALING_BANK", str(tmp_path / "missing"))
    with pytest.raises(QuestionError, match="SCALING_BANK"):
        bank.folder()


# progress -----------------------------------------------------------------------------------------


def test_boxes_go_up_one_by_one_and_back_to_the_first() -> None:
    card = leitner.Card()
    for box in (1, 2, 3, 4, 4):
        card = leitner.answered(card, True, 1000.0)
        assert (card.box, card.due) == (box, 1000.0 + leitner.BOX_DAYS[box] * DAY)
    card = leitner.answered(card, False, 2000.0)
    assert (card.box, card.due, card.seen, card.right) == (0, 2000.0, 6, 5)


def test_progress_is_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "progress.json"
    estimate = leitner.Estimate("dp.estimate_days", 10.0, 12.0, 5.0, None)
    leitner.record(path, "dp.critical_batch", True, 5.0, estimate)
    leitner.update(
        path, lambda p: leitner.Progress(p.cards, p.estimates, leitner.Session((("dp.max_params", 3),), 90.0))
    )
    progress, message = leitner.load(path)
    assert message == ""
    assert progress.cards["dp.critical_batch"] == leitner.Card(1, 5.0 + DAY, 1, 1)
    assert progress.estimates == (estimate,)
    assert progress.session == leitner.Session((("dp.max_params", 3),), 90.0)
    assert [p.name for p in path.parent.iterdir()] == ["progress.json"]


EMPTY = '"estimates": [], "session": null}'
DAMAGED = ["", "{", "[]", "null", '{"cards": {"a": 3}, ' + EMPTY, '{"cards": {}}', "\x00\xff"]
DAMAGED += ['{"cards": {"a": {"box": 99, "due": 0, "seen": 0, "right": 0}}, ' + EMPTY]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "progress.json"
    for number_ in (1, 2):
        path.write_bytes(text.encode("latin-1"))
        progress, message = leitner.load(path)
        assert progress == leitner.Progress()
        assert f"progress.damaged-{number_}.json" in message
        assert (tmp_path / f"progress.damaged-{number_}.json").read_bytes() == text.encode("latin-1")
        assert not path.exists()


def test_a_crash_in_the_middle_of_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    leitner.record(path, "dp.max_params", True, 1.0)
    old = path.read_bytes()

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        leitner.record(path, "dp.max_params", True, 2.0)
    assert path.read_bytes() == old
    monkeypatch.undo()
    assert leitner.record(path, "dp.max_params", True, 2.0)[0].cards["dp.max_params"].seen == 2


MANY = """import pathlib, sys
from scaling_lib import leitner
for _ in range(15): leitner.record(pathlib.Path(sys.argv[1]), sys.argv[2], True, 1.0)"""


def test_two_sessions_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    root = Path(__file__).parents[1]
    names = ("dp.one", "dp.one", "dp.two")
    others = [subprocess.Popen([sys.executable, "-c", MANY, str(path), name], cwd=root) for name in names]
    assert [process.wait(120) for process in others] == [0, 0, 0]
    cards = json.loads(path.read_text())["cards"]
    assert (cards["dp.one"]["seen"], cards["dp.two"]["seen"]) == (30, 15)


def test_the_lock_of_a_dead_session_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    lock = tmp_path / "progress.json.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    leitner.record(path, "dp.one", True, 1.0)
    assert not lock.exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(leitner.ProgressError, match="XDG_DATA_HOME"):
        leitner.record(blocked / "progress.json", "dp.one", True, 1.0)


def test_progress_lives_in_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert leitner.default_path() == tmp_path / "scaling-course" / "progress.json"


def test_due_questions_come_first_and_chapters_mix() -> None:
    ids = ["dp.a", "dp.b", "dp.c", "tp.a", "tp.b"]
    cards = {
        "dp.a": leitner.Card(2, 100.0),
        "dp.b": leitner.Card(1, 10.0),
        "dp.c": leitner.Card(0, 0.0),
        "tp.a": leitner.Card(4, 500.0),
    }
    assert leitner.choose(leitner.Progress(cards), ids, 50.0, 5) == ["dp.c", "tp.b", "dp.b", "tp.a", "dp.a"]
    assert leitner.choose(leitner.Progress(cards), ids, 50.0, 2) == ["dp.c", "tp.b"]


def test_a_file_of_an_older_drill_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text('{"cards": {}, "estimates": [], "session": {"queue": [["dp.max_params", 3]], "seconds_left": 9}}')
    progress, message = leitner.load(path)
    assert (progress.session, message) == (leitner.Session((("dp.max_params", 3),), 9.0, ""), "")


def test_an_answer_outside_a_drill_leaves_the_drill_alone(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    left = leitner.Session((("dp.max_params", 3),), 90.0, "one")
    leitner.save(path, leitner.Progress(session=left))
    assert leitner.record(path, "dp.critical_batch", True, 1.0)[0].session == left
    other = leitner.Session((("tp.bytes", 1),), 60.0, "two")
    assert leitner.record(path, "dp.critical_batch", True, 1.0, left=other)[0].session == left
    shorter = leitner.Session((), 60.0, "one")
    assert leitner.record(path, "dp.critical_batch", True, 1.0, left=shorter)[0].session is None


def test_calibration_counts_intervals_and_widths() -> None:
    e = leitner.Estimate
    score = leitner.calibration([e("a", 10, 10, 5, 20), e("b", 100, 10, 5, 20), e("c", 1, 10, None, None)])
    assert (score.n, score.with_interval, score.held) == (3, 2, 0.5)
    assert score.mean_log_error == pytest.approx(2 / 3)
    assert dict(score.curve)[3.0] == 0.5
    assert leitner.calibration([]).held is None
    assert leitner.calibration([e("a", 0, 10, None, None)]).mean_log_error is None


# the drill ----------------------------------------------------------------------------------------


def talk(path: Path, lines: list[str], clock: Any = None, **options: Any) -> tuple[int, str]:
    """Run a drill with scripted lines; the count and everything said."""
    said: list[str] = []
    waiting = iter(lines)

    def read(_: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    count = drill.run(path=path, read=read, say=said.append, clock=clock or (lambda: 1000.0), **options)
    return count, "\n".join(said)


def answer_of(path: Path, names: list[str], place: int = 0) -> str:
    """The right answer to the question that a drill on some chapters asks first."""
    progress, _ = leitner.load(path)
    session = progress.session or drill.plan(progress, names, 3, 1000.0)
    name, seed = session.queue[place]
    return instance(bank.question(name), seed).answer_text


def test_a_drill_takes_hints_wrong_and_right_answers(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    right = answer_of(path, ["dp"])
    count, said = talk(path, ["h", "what?", "1 token", right, "n", "s"], names=["dp"], minutes=3)
    assert count == 0
    assert "cannot read" in said
    assert "Right" in said
    assert "0 of 3 right at the first try" in said
    progress, _ = leitner.load(path)
    assert len(progress.cards) == 3
    assert progress.session is None


def test_what_a_drill_says_from_first_to_last(tmp_path: Path) -> None:
    path, said, prompts = tmp_path / "progress.json", list[str](), list[str]()
    names = ("memory.audit_gib", "pp.bubble", "dp.estimate_days", "tp.batch")
    leitner.save(path, leitner.Progress(session=leitner.Session(tuple((n, 1) for n in names), 125.0)))
    asked = {n: instance(bank.question(n), 1) for n in names}
    lines = iter(
        ["h", "h", "h", "h", asked["memory.audit_gib"].answer_text, "what", "steps", "22 days (10 to 90)", "next"]
    )

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    assert drill.run(path=path, read=read, say=said.append, clock=lambda: 1000.0) == 2
    assert set(prompts) == {"> "}
    assert said[:2] == ["You left a drill with 4 questions; it goes on. (--new begins another.)", drill.HELP]
    assert said[2] == f"\n[2:05 left] {quiz.Asked(asked['memory.audit_gib'])!r}"
    hints = asked["memory.audit_gib"].hints
    assert said[3:7] == [*hints, hints[2]]
    assert said[9].startswith("cannot read 'what'")
    assert said[10] == "\n".join(f"{name}. {text}" for name, text in asked["pp.bubble"].steps)
    truth = asked["dp.estimate_days"].answer / DAY
    progress, _ = leitner.load(path)
    (kept,) = progress.estimates
    assert (kept.question, kept.truth / DAY) == ("dp.estimate_days", truth)
    assert kept.point / DAY == pytest.approx(22)
    held = "100%" if 10 <= truth <= 90 else "0%"
    off = 10 ** abs(math.log10(22 / truth))
    assert said[-1].split("\n")[:6] == [
        "",
        "2 of 4 right at the first try.",
        "right 2, skipped 2",
        "Boxes: 1: 3, 2: 1, 3: 0, 4: 0, 5: 0",
        f"Estimates: 1, off by a factor of {off:.2g} on average.",
        f"Your 90% intervals held the truth in {held} of 1.",
    ]
    boxes = {name: progress.cards[name].box for name in names}
    assert boxes == dict(zip(names, (0, 0, 1, 0), strict=True)), "all three hints: right, but asked again"


def test_a_summary_draws_the_calibration() -> None:
    estimates = (leitner.Estimate("a", 10, 10, 5, 20), leitner.Estimate("b", 100, 10, 5, 20))
    text = drill.summary(leitner.Progress({"dp.a": leitner.Card(2)}, estimates), Counter())
    assert text.split("\n") == [
        "Boxes: 1: 0, 2: 0, 3: 1, 4: 0, 5: 0",
        "Estimates: 2, off by a factor of 3.2 on average.",
        "Your 90% intervals held the truth in 50% of 2.",
        *(f"  widened {w:g} times: ##########           50%" for w in (0.25, 0.5, 1, 1.5, 2, 3)),
    ]


def test_the_words_of_leaving_are_not_graded(tmp_path: Path) -> None:
    for word in ("q", "quit", " q "):
        _, said = talk(tmp_path / "progress.json", [word], names=["tp"], minutes=2, fresh=True)
        assert said.endswith("Left with 2 questions to go. The same command takes it up again.")
        assert "cannot read" not in said


def test_a_drill_keeps_the_time_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    now = [1000.0]
    for asleep, left in ((0, 180), (50, 130), (100, 80), (150, 60)):  # a minute at least, to take it up again

        def read(_: str, asleep: int = asleep) -> str:
            now[0] += asleep
            raise EOFError

        drill.run(["dp"], 3, path, True, read, lambda _: None, lambda: now[0])
        session = leitner.load(path)[0].session
        assert session is not None
        assert session.seconds_left == left


def test_numbers_are_new_each_time() -> None:
    ids = drill.topics(["dp"])
    fresh = drill.plan(leitner.Progress(), ["dp"], 2, 0.0)
    assert fresh.queue == tuple((name, 1) for name in ids[:2])
    assert fresh.seconds_left == 120
    cards = {name: leitner.Card(0, 0.0, 4, 0) for name in ids}
    assert {seed for _, seed in drill.plan(leitner.Progress(cards), ["dp"], 2, 0.0).queue} == {5}


def test_text_is_told_in_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, width in ((30, 30), (500, 120)):
        monkeypatch.setenv("COLUMNS", str(columns))
        drill.told("one  two " * 30 + "\n\nend")
        lines = capsys.readouterr().out.split("\n")
        assert width - 5 < max(map(len, lines)) <= width
        assert lines[0].startswith("one  two one  two")
        assert lines[1].startswith("  ")
        assert lines[-3:] == ["", "end", ""]
    drill.told("a\tb")
    assert capsys.readouterr().out == "a       b\n"


def test_a_drill_shows_the_figures_given_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    _, said = talk(path, ["g", "q"], names=["dp"], minutes=3)
    assert said.count("dense bf16 peak") == 1
    leitner.save(path, leitner.Progress(session=leitner.Session((("pp.bubble", 1),), 90.0)))
    _, said = talk(path, ["g", "q"])
    assert "The prompt says all that is needed." in said


def test_a_drill_is_left_and_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    right = answer_of(path, ["budget"])
    count, said = talk(path, [right, "q"], names=["budget"], minutes=3)
    assert (count, "2 questions to go" in said) == (1, True)
    following = answer_of(path, ["budget"])
    count, said = talk(path, [following, "n"])
    assert "it goes on" in said
    assert count == 1
    progress, _ = leitner.load(path)
    assert progress.session is None
    assert sum(c.right for c in progress.cards.values()) == 2


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_drill_that_is_killed_goes_on_with_what_was_left(tmp_path: Path, end: signal.Signals) -> None:
    path = tmp_path / "scaling-course" / "progress.json"
    order = drill.plan(leitner.Progress(), ["dp"], 3, 0.0).queue
    command = [sys.executable, "-m", "scaling_lib", "drill", "dp", "--minutes", "3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)}, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("n\n")
        process.stdin.flush()
        said = ""
        while order[1][0] not in said:  # the second question stands on the screen
            said += process.stdout.read(1)
        process.send_signal(end)
        said = process.stdout.read()
    assert process.returncode == (-signal.SIGKILL if end == signal.SIGKILL else 0)
    assert ("2 questions to go" in said) == (end != signal.SIGKILL)
    progress, _ = leitner.load(path)
    assert list(progress.cards) == [order[0][0]]
    assert progress.session is not None
    assert progress.session.queue == order[1:]
    _, said = talk(path, ["n", "n"])
    assert "You left a drill with 2 questions; it goes on." in said
    assert set(leitner.load(path)[0].cards) == {name for name, _ in order}


def test_an_answer_that_is_on_file_is_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    first, *rest = drill.plan(leitner.Progress(), ["dp"], 3, 1000.0).queue
    _, said = talk(path, ["1 token", "q"], names=["dp"], minutes=3)  # left while the wrong answer is thought over
    assert "Left with 2 questions to go." in said
    progress, _ = leitner.load(path)
    assert progress.cards == {first[0]: leitner.Card(0, 1000.0, 1, 0)}
    assert progress.session is not None
    assert progress.session.queue == tuple(rest)
    assert progress.session.seconds_left == 180
    _, said = talk(path, ["1 token", "n", "1 token", "q"])
    assert "0 of 1 right" in said, "left over the last question: the drill is done"
    assert leitner.load(path)[0].session is None


def test_a_drill_begun_meanwhile_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"

    def other(_: str) -> str:
        talk(path, ["q"], names=["tp"], minutes=5, fresh=True)
        raise EOFError

    drill.run(["dp"], 3, path, read=other, say=lambda _: None, clock=lambda: 1000.0)
    progress, _ = leitner.load(path)
    assert progress.session is not None
    assert {name.partition(".")[0] for name, _ in progress.session.queue} == {"tp"}


def test_a_drill_goes_on_without_questions_that_are_no_more(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    leitner.save(path, leitner.Progress(session=leitner.Session((("dp.gone", 1), ("dp.max_params", 1)), 90.0)))
    _, said = talk(path, ["n"])
    assert "You left a drill with 1 question; it goes on." in said
    leitner.save(path, leitner.Progress(session=leitner.Session((("dp.gone", 1),), 90.0)))
    _, said = talk(path, ["q"], names=["dp"], minutes=2)
    assert "You left" not in said
    assert "Left with 2 questions to go." in said


def test_a_drill_ends_when_the_time_is_over(tmp_path: Path) -> None:
    ticks = iter(range(0, 10**6, 50))
    _, said = talk(tmp_path / "p.json", ["n"] * 50, clock=lambda: float(next(ticks)), names=["tp"], minutes=4)
    assert 1 <= said.count(" left] ") < 4


def test_a_drill_says_that_progress_was_damaged(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text("{")
    _, said = talk(path, ["q"], names=["tp"], minutes=2)
    assert "damaged-1" in said


def test_a_drill_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="no chapter 'dpp'"):
        talk(tmp_path / "p.json", [], names=["dpp"])
    for minutes in (0, -1, math.nan, 1e9):
        with pytest.raises(QuestionError, match="minutes"):
            talk(tmp_path / "p.json", [], minutes=minutes)


def test_estimates_in_a_drill_feed_the_calibration(tmp_path: Path) -> None:
    asked = instance(bank.question("dp.estimate_days"), 1)
    point = asked.answer / DAY
    kept = drill.estimate_of(asked, f"{point:.4g} days ({point / 3:.4g} to {point * 3:.4g})")
    assert kept is not None
    assert kept.low == pytest.approx(asked.answer / 3, rel=1e-3)
    assert drill.estimate_of(asked, "soon") is None
    leitner.record(tmp_path / "p.json", "dp.estimate_days", True, 1.0, kept)
    progress, _ = leitner.load(tmp_path / "p.json")
    assert "held the truth in 100% of 1" in drill.summary(progress, Counter({"right": 1}))
