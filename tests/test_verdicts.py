"""Every word of a verdict, kind by kind, and how readings and progress behave at their edges."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import answers, bank, leitner, quiz
from scaling_lib.answers import Verdict
from scaling_lib.questions import Option, Point, Question, QuestionError, Trap, instance
from scaling_lib.units import DAY, UnitError
from tests.conftest import number

NUMBER = number()
ESTIMATE = number(kind="estimate")
TIME = number(unit="day", derive=lambda p: {"bytes": p.n * DAY, "half": p.n * DAY / 2})
DOLLAR = number(unit="USD", derive=lambda p: {"bytes": p.n * 1.0, "half": p.n * 0.5})
OPTIONS = (Option("a", "{n} GB", "{n2} is twice {n}."), Option("b", "{n2} GB."), Option("c", "an X", "There is one."))
BARE: dict[str, Any] = {"unit": "", "traps": ()}
CHOICE = number(**BARE, kind="choice", answer="key", options=OPTIONS, derive=lambda p: {"key": "b", "n2": 2 * p.n})
POINTS = (Point("names {n}", ("fifty", "50")), Point("says both", ("both",)))
SPOKEN = number(**BARE, kind="explain", answer="", rubric=POINTS, says=("a {n}", "b", "c"))
CODE = number(**BARE, kind="code", answer="", reference=lambda n, half: n * 1e9 + half, arguments=("n", "half"))
# (answer, kind, name, score, message)
# fmt: off
# ruff: noqa: E501 (messages are compared whole)
ESTIMATES = [
    ('50', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1.'),
    ('50 GB (40 to 60)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50 (50 to 60)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50 (40 to 50)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('40 (30 to 45)', 'right', '', 0.9031, 'Good estimate: 50 GB; you were off by a factor of 1.2. It lies outside your 90% interval.'),
    ('60 (51 to 70)', 'right', '', 0.9208, 'Good estimate: 50 GB; you were off by a factor of 1.2. It lies outside your 90% interval.'),
    ('100', 'right', '', 0.699, 'Good estimate: 50 GB; you were off by a factor of 2.'),
    ('101', 'close', '2', 0.6946, 'Near: 50 GB; you were off by a factor of 2.'),
    ('25 GB', 'right', '', 0.699, 'Good estimate: 50 GB; you were off by a factor of 2.'),
    ('24.9', 'trap', 'one direction', 0.6972, 'Not yet. This is one direction: it sends both ways.'),
    ('24.9 (20 to 60)', 'trap', 'one direction', 0.6972, 'Not yet. This is one direction: it sends both ways. Your interval holds it.'),
    ('200', 'close', '4', 0.3979, 'Near: 50 GB; you were off by a factor of 4.'),
    ('201', 'factor', '4', 0.3958, 'Far off: 50 GB; you were off by a factor of 4.'),
    ('150', 'close', '3', 0.5229, 'Near: 50 GB; you were off by a factor of 3.'),
    ('12.5', 'close', '4', 0.3979, 'Near: 50 GB; you were off by a factor of 4.'),
    ('12.4', 'factor', '4', 0.3945, 'Far off: 50 GB; you were off by a factor of 4.'),
    ('130', 'close', '', 0.585, 'Near: 50 GB; you were off by a factor of 2.6.'),
    ('400', 'factor', 'bits/bytes', 0.0969, 'Far off: 50 GB; you were off by a factor of 8.'),
    ('5000', 'factor', '100', 0.0, 'Far off: 50 GB; you were off by a factor of 100.'),
    ('1e6 GB', 'ratio', '', 0.0, 'Far off: 50 GB; you were off by a factor of 20,000.'),
    ('1e200', 'ratio', '', 0.0, 'Far off: 50 GB; you were off by a factor of 1.0e99.'),
    ('5 days', 'unit', '', 0.0, "'5 days' measures second, but byte is wanted: write e.g. '3 GB'"),
    ('-3', 'unit', '', 0.0, "an estimate must be above zero, given '-3': write e.g. '3 GB'"),
    ('0', 'unit', '', 0.0, "an estimate must be above zero, given '0': write e.g. '3 GB'"),
    ('50 GB (40 GB to 60 GB)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50000 MB (40 GB - 60 GB)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('0.05 TB (0.04 .. 0.06)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50 (40-60)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50 GB ± 5', 'unit', '', 0.0, "cannot read the interval in '50 GB ± 5': write e.g. '20 days (10 to 40)'"),
    ('50 +/- 5', 'unit', '', 0.0, "cannot read the interval in '50 +/- 5': write e.g. '20 days (10 to 40)'"),
    ('50 (5)', 'unit', '', 0.0, "cannot read the interval in '50 (5)': write e.g. '20 days (10 to 40)'"),
    ('50 (60 to 70)', 'unit', '', 0.0, "interval '50 (60 to 70)' is out of order: write e.g. '20 days (10 to 40)' with low <= point <= high"),
    ('50 (10 to 40)', 'unit', '', 0.0, "interval '50 (10 to 40)' is out of order: write e.g. '20 days (10 to 40)' with low <= point <= high"),
    ('9 (8 to 60)', 'ratio', '', 0.2553, 'Far off: 50 GB; you were off by a factor of 5.6. Your interval holds it.'),
    ('500 (0.5 TB to 1 TB)', 'factor', '10', 0.0, 'Far off: 50 GB; you were off by a factor of 10. It lies outside your 90% interval.'),
    ('50 (40 GB to 60)', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
    ('50 GB [40, 60]', 'right', '', 1.0, 'Good estimate: 50 GB; you were off by a factor of 1. Your interval holds it.'),
]
CHOICES = [
    ('a', 'trap', 'a', 0.0, 'Not yet. 100 is twice 50.'),
    ('B', 'right', '', 1.0, 'Right: 100 GB.'),
    ('(c)', 'trap', 'c', 0.0, 'Not yet. There is one.'),
    ('2', 'right', '', 1.0, 'Right: 100 GB.'),
    ('b', 'right', '', 1.0, 'Right: 100 GB.'),
    ('100 GB', 'right', '', 1.0, 'Right: 100 GB.'),
    ('100 GB.', 'right', '', 1.0, 'Right: 100 GB.'),
    ('z', 'unit', '', 0.0, "'z' names no option: answer a, b or c"),
    ('Xa', 'unit', '', 0.0, "'Xa' names no option: answer a, b or c"),
    ('An X', 'trap', 'c', 0.0, 'Not yet. There is one.'),
    (' 50 gb ', 'trap', 'a', 0.0, 'Not yet. 100 is twice 50.'),
    (1, 'trap', 'a', 0.0, 'Not yet. 100 is twice 50.'),
]
EXPLANATIONS = [
    ('it is fifty, for both', 'right', '', 1.0, '2 of 2 points found. Compare with the spoken answers.'),
    ('it is 50 I guess', 'partly', '', 0.5, '1 of 2 points found. Not found: says both. Compare with the spoken answers.'),
    ('IN BOTH CASES', 'partly', '', 0.5, '1 of 2 points found. Not found: names 50. Compare with the spoken answers.'),
    ('no idea whatsoever', 'wrong', '', 0.0, '0 of 2 points found. Not found: names 50; says both. Compare with the spoken answers.'),
    ('too short', 'unit', '', 0.0, "write your explanation as a sentence or more, e.g. 'AllReduce is ...'"),
    (3, 'unit', '', 0.0, "write your explanation as a sentence or more, e.g. 'AllReduce is ...'"),
]
NUMBERS = [
    ('50', 'right', '', 1.0, 'Right: 50 GB.'),
    ('51.0', 'right', '', 1.0, 'Right: 50 GB.'),
    ('49.0', 'right', '', 1.0, 'Right: 50 GB.'),
    ('51.1', 'factor', 'k and Ki', 0.5, 'Not yet, but near: k and Ki differ by this factor: a power of two stands for a power of ten.'),
    ('52.9', 'close', 'rounding', 0.5, 'Close: 5.8% too large. Carry three figures through and round at the end.'),
    ('53.1', 'close', 'rounding', 0.5, 'Close: 6.2% too large. Carry three figures through and round at the end.'),
    ('47.1', 'close', 'rounding', 0.5, 'Close: 5.8% too small. Carry three figures through and round at the end.'),
    ('46.9', 'ratio', '', 0.0, 'Not yet: too small by a factor of 1.07. Write down each factor and compare with hint 2.'),
    ('25', 'trap', 'one direction', 0.0, 'Not yet. This is one direction: it sends both ways.'),
    ('25.2', 'trap', 'one direction', 0.0, 'Not yet. This is one direction: it sends both ways.'),
    ('25.4', 'ratio', '', 0.0, 'Not yet: too small by a factor of 1.97. Write down each factor and compare with hint 2.'),
    ('53.6871', 'factor', 'GB and GiB', 0.5, 'Not yet, but near: GB and GiB differ by this factor: a power of two stands for a power of ten.'),
    ('46.566', 'factor', 'GB and GiB', 0.5, 'Not yet, but near: GB and GiB differ by this factor: a power of two stands for a power of ten.'),
    ('48.828', 'factor', 'k and Ki', 0.5, 'Not yet, but near: k and Ki differ by this factor: a power of two stands for a power of ten.'),
    ('52.4288', 'factor', 'M and Mi', 0.5, 'Not yet, but near: M and Mi differ by this factor: a power of two stands for a power of ten.'),
    ('54.9756', 'factor', 'TB and TiB', 0.5, 'Not yet, but near: TB and TiB differ by this factor: a power of two stands for a power of ten.'),
    ('100', 'factor', '2', 0.0, 'Not yet: too large by a factor of 2.00. One direction or both, forward or backward, 2 bytes an element, 2 FLOPs a multiply-add?'),
    ('98.9', 'factor', '2', 0.0, 'Not yet: too large by a factor of 1.98. One direction or both, forward or backward, 2 bytes an element, 2 FLOPs a multiply-add?'),
    ('101.3', 'ratio', '', 0.0, 'Not yet: too large by a factor of 2.03. Write down each factor and compare with hint 2.'),
    ('150', 'factor', '3', 0.0, 'Not yet: too large by a factor of 3.00. Forward alone or forward and backward, one torus axis or three, three matrices of a gated layer?'),
    ('75', 'factor', '1.5', 0.0, 'Not yet: too large by a factor of 1.50. Two matrices or three, two passes or three?'),
    ('300', 'factor', '6', 0.0, 'Not yet: too large by a factor of 6.00. The rule of six, forgotten or used twice?'),
    ('800', 'factor', '16', 0.0, 'Not yet: too large by a factor of 16.0. Bytes a parameter of training state, or four slips of 2?'),
    ('3.125', 'factor', '16', 0.0, 'Not yet: too small by a factor of 16.0. Bytes a parameter of training state, or four slips of 2?'),
    ('400', 'factor', 'bits/bytes', 0.0, 'Not yet: too large by a factor of 8.00. Bits for bytes.'),
    ('500', 'factor', '10', 0.0, 'Not yet: too large by a factor of 10.0. A power of ten.'),
    ('50e3', 'factor', '1000', 0.0, 'Not yet: too large by a factor of 1,000. A prefix: k, M, G or T.'),
    ('5e7', 'factor', '1e6', 0.0, 'Not yet: too large by a factor of 1,000,000. Two prefixes off.'),
    ('50e9', 'factor', '1e9', 0.0, 'Not yet: too large by a factor of 1.00e9. Three prefixes off.'),
    ('50e12', 'factor', '1e12', 0.0, 'Not yet: too large by a factor of 1.00e12. Four prefixes off.'),
    ('5000', 'factor', '100', 0.0, 'Not yet: too large by a factor of 100. A percentage for a fraction, or two powers of ten.'),
    ('37.5', 'ratio', '', 0.0, 'Not yet: too small by a factor of 1.33. Write down each factor and compare with hint 2.'),
    ('68', 'ratio', '', 0.0, 'Not yet: too large by a factor of 1.36. Write down each factor and compare with hint 2.'),
    ('-50', 'ratio', 'sign', 0.0, 'Not yet: check the sign and whether the quantity can vanish.'),
    ('0', 'ratio', 'sign', 0.0, 'Not yet: check the sign and whether the quantity can vanish.'),
]
TIMES = [
    ('50 days', 'right', '', 1.0, 'Right: 50 days.'),
    ('1200', 'factor', 'hours/days', 0.0, 'Not yet: too large by a factor of 24.0. Hours for days.'),
    ('50 h', 'factor', 'hours/days', 0.0, 'Not yet: too small by a factor of 24.0. Hours for days.'),
    ('50 min', 'ratio', '', 0.0, 'Not yet: too small by a factor of 1,440. Write down each factor and compare with hint 2.'),
    ('50 s', 'factor', 'seconds/days', 0.0, 'Not yet: too small by a factor of 86,400. Seconds for days.'),
    ('50 years', 'factor', 'days/years', 0.0, 'Not yet: too large by a factor of 365. Days for years.'),
    ('50 weeks', 'ratio', '', 0.0, 'Not yet: too large by a factor of 7.00. Write down each factor and compare with hint 2.'),
    ('400', 'factor', '8', 0.0, 'Not yet: too large by a factor of 8.00. Per node or per GPU?'),
]
DOLLARS = [
    ('$50', 'right', '', 1.0, 'Right: 50 USD.'),
    ('$50k', 'factor', '1000', 0.0, 'Not yet: too large by a factor of 1,000. A prefix: k, M, G or T.'),
    ('180000', 'factor', 'seconds/hours', 0.0, 'Not yet: too large by a factor of 3,600. Seconds for hours.'),
    ('53.6871', 'ratio', '', 0.0, 'Not yet: too large by a factor of 1.07. Write down each factor and compare with hint 2.'),
    ('1200', 'ratio', '', 0.0, 'Not yet: too large by a factor of 24.0. Write down each factor and compare with hint 2.'),
    ('50 days', 'unit', '', 0.0, "'50 days' measures second, but USD is wanted: write e.g. '3 USD'"),
]
# fmt: on
ROWS = [
    *((ESTIMATE, row) for row in ESTIMATES),
    *((CHOICE, row) for row in CHOICES),
    *((SPOKEN, row) for row in EXPLANATIONS),
    *((NUMBER, row) for row in NUMBERS),
    *((TIME, row) for row in TIMES),
    *((DOLLAR, row) for row in DOLLARS),
]  # fmt: skip


@pytest.mark.parametrize(("question", "row"), ROWS, ids=[f"{q.kind} {q.unit} {row[0]}" for q, row in ROWS])
def test_what_is_said_of_an_answer(question: Question, row: tuple[Any, str, str, float, str]) -> None:
    answer, kind, name, score, message = row
    verdict = quiz.grade(instance(question), answer)
    assert (verdict.kind, verdict.name, verdict.message) == (kind, name, message)
    assert verdict.score == pytest.approx(score, abs=1e-4)


GIVEN = "for n=50, half=25000000000.0"


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (lambda n, half: n * 1e9 + half, Verdict("right", "Right: it agrees with the library on every trial.", "", 1.0)),
        (lambda n, half: (n * 1e9 + half) * (1 + 5e-7), Verdict("right", "Right: it agrees with the library on every trial.", "", 1.0)),
        (lambda n, half: 2 * (n * 1e9 + half), Verdict("ratio", f"It gives 1.5e+11 {GIVEN}, 7.5e+10 is wanted: 2 times as much")),
        (lambda n, half: (n * 1e9 + half) * (1 + 2e-6), Verdict("ratio", f"It gives 7.50002e+10 {GIVEN}, 7.5e+10 is wanted: 1 times as much")),
        (lambda n, half: 75e9, Verdict("ratio", "It gives 7.5e+10 for n=40, half=20000000000.0, 6e+10 is wanted: 1.25 times as much")),
        (lambda n, half: 1 / 0, Verdict("wrong", f"It raises ZeroDivisionError {GIVEN}: division by zero", "ZeroDivisionError")),
        (lambda n, half: True, Verdict("unit", f"it returns True {GIVEN}: return a number")),
        (lambda n, half: "x", Verdict("unit", f"it returns 'x' {GIVEN}: return a number")),
        (3, Verdict("unit", "give a function of n, half, e.g. `lambda n, half: ...`")),
    ],
)  # fmt: skip
def test_what_is_said_of_code(function: Any, verdict: Verdict) -> None:
    assert quiz.grade(instance(CODE), function) == verdict


def test_code_with_a_reference_of_zero_is_judged() -> None:
    none = number(**BARE, kind="code", answer="", reference=lambda n: 0, arguments=("n",))
    assert quiz.grade(instance(none), lambda n: 0)
    assert "inf times as much" in quiz.grade(instance(none), lambda n: 1).message
    assert quiz.grade(instance(none), lambda n: 1e-9).kind == "ratio"


def test_a_code_question_is_tried_on_the_numbers_asked_and_five_more() -> None:
    tried: list[int] = []
    asked = instance(CODE, 3)
    assert quiz.grade(asked, lambda n, half: tried.append(n) or n * 1e9 + half)  # type: ignore[func-returns-value]
    assert tried == [asked.values["n"], *(instance(CODE, seed).values["n"] for seed in range(5))]


def test_zero_is_right_where_zero_is_wanted() -> None:
    none = number(derive=lambda p: {"bytes": 0.0, "half": 1.0})
    sign = "Not yet: check the sign and whether the quantity can vanish."
    assert quiz.grade(instance(none), "0")
    assert quiz.grade(instance(none), 3) == Verdict("ratio", sign, "sign")
    # a trap of the other sign is a trap all the same
    other = number(derive=lambda p: {"bytes": 50e9, "half": -20e9})
    assert quiz.grade(instance(other), -20).kind == "trap"


def test_the_nearer_of_two_traps_is_named() -> None:
    two = (Trap("low", "half", "low."), Trap("high", "more", "high."))
    close = number(traps=two, derive=lambda p: {"bytes": 5e10, "half": 20e9, "more": 20.6e9})
    assert [quiz.grade(instance(close), v).name for v in (20.0, 20.2, 20.4, 20.6)] == ["low", "low", "high", "high"]


def test_log_errors_need_one_sign() -> None:
    assert quiz.log_error(5, 50) == quiz.log_error(50, 5) == pytest.approx(1)
    assert quiz.log_error(0.5, 0.5) == 0
    assert quiz.log_error(-2, -20) == pytest.approx(1)
    assert math.inf == quiz.log_error(0, 5) == quiz.log_error(5, -5) == quiz.log_error(5, 0)


def test_an_interval_is_read_in_the_unit_of_its_point() -> None:
    asked = instance(ESTIMATE)
    assert quiz.interval(asked, "50") == (50e9, None, None)
    assert quiz.interval(asked, 50) == (50e9, None, None)
    assert quiz.interval(asked, "0.05 TB (0.04 to 0.06)") == pytest.approx((50e9, 40e9, 60e9))
    assert quiz.interval(asked, "5e10 B (4e10; 6e10)") == pytest.approx((50e9, 40e9, 60e9))
    assert quiz.interval(asked, "50000M (40000M to 60000)") == pytest.approx((5e19, 4e19, 6e19))
    assert quiz.interval(asked, "50 (0.04 TB to 6e10 B)") == pytest.approx((50e9, 40e9, 60e9))
    assert quiz.interval(asked, "0.05 TB (40 GB to 0.06)") == pytest.approx((50e9, 40e9, 60e9))
    with pytest.raises(UnitError, match=r"interval '5 \(6 to 7\)' is out of order: write e.g. '20 days"):
        quiz.interval(asked, "5 (6 to 7)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quiz.ask("dp.critical_tokens", shown=5), "dp.critical_tokens has 5 steps, 5 to show: use 0 to 4"),
        (lambda: quiz.ask("dp.critical_tokens", shown=-1), "dp.critical_tokens has 5 steps, -1 to show: use 0 to 4"),
        (lambda: quiz.hint("dp.critical_tokens", 0), "hint level 0: use 1 (nudge), 2 (formula) or 3 (plug in)"),
        (lambda: quiz.aloud("dp.max_params"), "dp.max_params has no spoken answers: use ask, or a question of kind explain"),
        (lambda: quiz.items(tag="moee"), "no tag 'moee': did you mean"),
        (lambda: quiz.items(chapter="dpp"), "no chapter 'dpp': did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said(call: Any, message: str) -> None:
    with pytest.raises(QuestionError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_filters_add_up_and_a_kind_nobody_has_is_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    both = quiz.items(chapter="dp", kind="audit")
    assert both == [q for q in quiz.items() if q.stem == "dp" and q.kind == "audit"]
    monkeypatch.setattr(bank, "questions", lambda: {"dp.test": NUMBER})
    assert quiz.items(kind="code") == []


def test_a_seed_reaches_questions_hints_verdicts_and_steps() -> None:
    name, seed = "dp.max_params", 2
    asked = instance(bank.question(name), seed)
    assert asked.answer != instance(bank.question(name)).answer
    assert quiz.ask(name, seed) == quiz.Asked(asked, 0)
    assert quiz.hint(name, 3, seed) == asked.hints[2] != quiz.hint(name, 3)
    assert quiz.hint(name, seed=seed) == asked.hints[0]
    assert quiz.check(name, asked.answer_text, seed)
    assert not quiz.check(name, asked.answer_text)
    numbered = [f"{i}. {step}. {text}" for i, (step, text) in enumerate(asked.steps, 1)]
    assert quiz.solve(name, seed) == "\n".join([asked.prompt, *numbered])


def test_a_spoken_answer_is_solved_in_three_lengths() -> None:
    asked = instance(bank.question("interview.q4_tp_batch"))
    lines = quiz.solve("interview.q4_tp_batch").split("\n")
    assert lines[0] == asked.prompt
    assert [line.partition(":")[0] for line in lines[-3:]] == ["30 seconds", "2 minutes", "5 minutes"]
    assert lines[-3] == f"30 seconds: {asked.answer_text}"
    assert quiz.aloud("interview.q4_tp_batch").instance.question is asked.question
    assert repr(quiz.aloud("interview.q4_tp_batch")) == quiz.solve("interview.q4_tp_batch")


def test_a_question_in_a_terminal_has_letters_and_given_steps() -> None:
    shown = repr(quiz.Asked(instance(CHOICE)))
    letters = [f"  ({'abc'[i]}) {text}" for i, text in enumerate(instance(CHOICE).options)]
    assert shown.split("\n") == ["dp.test: How many bytes are 50 GB?", *letters]
    assert repr(quiz.Asked(instance(NUMBER), 1)).split("\n")[1:] == ["  Count bytes: 50 x 1e9. Answer: 50 GB"]


@pytest.mark.parametrize(
    ("text", "value", "dimension", "bare"),
    [
        ("about 5 GB", 5e9, "byte", False), ("Approx. 5 GB", 5e9, "byte", False), ("circa 5", 5, "", True),
        ("ca. 5", 5, "", True), ("= 5", 5, "", True), ("≈ 5 %", 0.05, "", False), ("$5", 5, "USD", False),
        ("$5 per day", 5 / DAY, "USD/second", False), ("$5/h", 5 / 3600, "USD/second", False),
        ("$ 5 million", 5e6, "USD", False), ("5 million", 5e6, "", True), ("5 mn tokens", 5e6, "token", False),
        ("5 thousand tokens", 5e3, "token", False), ("5 bn tokens", 5e9, "token", False),
        ("5 trillion tokens", 5e12, "token", False), ("5T tokens", 5e12, "token", False), ("5k", 5e3, "", True),
        ("5K", 5e3, "", True), ("5M", 5e6, "", True), ("5G", 5e9, "", True), ("5B", 5e9, "", True),
        ("5P FLOP", 5e15, "FLOP", False), ("5E FLOP", 5e18, "FLOP", False), ("5 B/s", 5, "byte/second", False),
        ("5 B per second", 5, "byte/second", False), ("5 GB each", 5e9, "byte", False), ("1/4", 0.25, "", True),
        ("1/4.", 0.25, "", True), ("2**10 byte", 1024, "byte", False), ("2^-1", 0.5, "", True), ("3 * 10^2", 300, "", True),
        ("3 · 2**3", 24, "", True), ("1,000,000", 1e6, "", True), ("1_000", 1e3, "", True), ("1\u202f000", 1e3, "", True),
        ("1\u00a0000", 1e3, "", True), ("+5", 5, "", True), ("-.5", -0.5, "", True), ("5 GPU-days", 5 * DAY, "second", False),
        ("5 GPU hours", 18000, "second", False), ("5 chip-seconds", 5, "second", False),
        ("3 wks", 21 * DAY, "second", False), ("2 yrs", 2 * 365.25 * DAY, "second", False), ("5 hrs", 18000, "second", False),
        ("5 mins", 300, "second", False), ("5 secs", 5, "second", False), ("5 d", 5 * DAY, "second", False),
        ("5 FLOPS", 5, "FLOP", False), ("5 GPUs", 5, "", False), ("5 ways", 5, "", False), ("5×", 5, "", False),
        ("5 Bytes", 5, "byte", False), ("8 bits", 1, "byte", False), ("5 dollars", 5, "USD", False),
    ],
)  # fmt: skip
def test_spellings_are_read(text: str, value: float, dimension: str, bare: bool) -> None:
    reading = answers.read(text)
    assert reading.value == pytest.approx(value, rel=1e-3 if "yr" in text else 1e-12)
    assert (reading.dimension, reading.bare) == (dimension, bare)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "cannot read 'many' as a number: write e.g. '20.7 days', '2.2k tokens' or '6.35e24 FLOP'"),
        ("9^9999", "'9^9999' is no finite number: write e.g. '6.35e24 FLOP'"),
        ("1/0", "'1/0' is no finite number: write e.g. '6.35e24 FLOP'"),
        ("1e999 B", "'1e999 B' is no finite number: write e.g. '6.35e24 FLOP'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        answers.read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (True, "True is no number: give e.g. '3 GB'"),
        (None, "None is no number: give e.g. '3 GB'"),
        (math.inf, "inf is no finite number: give e.g. '3 GB'"),
        ("3/7 x", "'3/7 x' measures a plain number, but byte is wanted: write e.g. '3 GB'"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_said(answer: Any, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        answers.number(instance(NUMBER), answer)
    assert str(caught.value) == message


def test_a_b_is_a_byte_where_bytes_are_asked() -> None:
    assert answers.read("5 B") == answers.read("5B") == answers.Reading(5e9, "", True)
    assert answers.read("5e10 B", "byte") == answers.Reading(5e10, "byte", False)
    assert answers.read("5 B", "byte/second") == answers.Reading(5.0, "byte", False)
    assert quiz.grade(instance(NUMBER), "5e10 B")
    params = number(unit="Gparam")
    assert quiz.grade(instance(params), "50B params")
    assert quiz.grade(instance(params), "50e9 params")


def test_a_plain_number_is_wanted_by_name() -> None:
    plain = number(unit="")
    with pytest.raises(UnitError, match=r"measures byte, but a plain number is wanted: write e\.g\. '3'"):
        answers.number(instance(plain), "5 GB")
    assert answers.number(instance(NUMBER), 7) == 7e9
    assert answers.number(instance(NUMBER), "7") == 7e9


def test_percentages_are_taken_either_way() -> None:
    share = number(unit="%", derive=lambda p: {"bytes": 0.4, "half": 0.2})
    assert answers.number(instance(share), 0.4) == 0.4
    assert answers.number(instance(share), "0.404") == 0.404
    assert answers.number(instance(share), 40) == pytest.approx(0.4)
    assert answers.number(instance(share), 0.12) == 0.12
    assert answers.number(instance(share), -0.12) == -0.12
    assert answers.number(instance(share), 1) == 0.01
    tiny = number(unit="%", derive=lambda p: {"bytes": 0.004, "half": 0.002})
    assert answers.number(instance(tiny), 0.4) == pytest.approx(0.004), "below one percent a bare number is percent"
    edge = number(unit="%", derive=lambda p: {"bytes": 0.01, "half": 0.005})
    assert answers.number(instance(edge), 0.01) == 0.01
    assert answers.percent(1.0421) == "4.2% too large"
    assert answers.percent(0.958) == "4.2% too small"


# progress -----------------------------------------------------------------------------------------


def test_calibration_is_a_curve_over_widths() -> None:
    e = leitner.Estimate
    score = leitner.calibration(
        [e("a", 10, 10, 5, 20), e("b", 40, 10, 5, 20), e("c", 14, 10, 5, 20), e("d", -1, 1, 0, 2)]
    )
    assert (score.n, score.with_interval, score.held) == (4, 3, 2 / 3)
    assert score.mean_log_error == pytest.approx((0 + math.log10(4) + math.log10(1.4)) / 3)
    assert score.curve == ((0.25, 1 / 3), (0.5, 2 / 3), (1.0, 2 / 3), (1.5, 2 / 3), (2.0, 1.0), (3.0, 1.0))
    below = leitner.calibration(
        [e("a", 5, 10, 5, 20), e("b", 3, 10, 5, 20), e("c", 5, 10, None, 20), e("d", 5, 10, 5, None)]
    )
    assert (below.with_interval, below.held) == (2, 0.5)
    assert dict(below.curve) == {0.25: 0, 0.5: 0, 1.0: 0.5, 1.5: 0.5, 2.0: 1.0, 3.0: 1.0}
    point = leitner.calibration([e("a", 10, 10, 10, 10), e("b", 10, 10, 20, 5)])
    assert (point.with_interval, point.held) == (1, 1.0)
    assert leitner.calibration([]) == leitner.Calibration(0, 0, None, None, ())


def test_what_is_due_comes_before_what_is_new_only_in_its_box() -> None:
    c = leitner.Card
    cards = {
        "dp.low": c(1, 5.0),
        "dp.later": c(0, 60.0),
        "dp.old": c(0, -5.0),
        "dp.now": c(2, 50.0),
        "dp.high": c(3, 1.0),
    }
    order = leitner.choose(leitner.Progress(cards), ["dp.new", *cards], 50.0, 9)
    assert order == ["dp.old", "dp.new", "dp.low", "dp.now", "dp.high", "dp.later"]
    assert leitner.choose(leitner.Progress({"dp.b": c(0, 0.5)}), ["dp.b", "dp.a"], 50.0, 2) == ["dp.a", "dp.b"]
    assert leitner.choose(leitner.Progress(), ["dp.a", "tp.a", "dp.b"], 0.0, 1) == ["dp.a"]
    assert leitner.choose(leitner.Progress(), ["dp.a.x", "dp.b.x", "tp.c"], 0.0, 3) == ["dp.a.x", "tp.c", "dp.b.x"]


def test_the_file_is_readable_text_in_a_fixed_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "progress.json"
    assert leitner.load(path) == (leitner.Progress(), "")
    leitner.save(path, leitner.Progress({"tp.b": leitner.Card(1, 2.0, 3, 2), "dp.a": leitner.Card()}))
    text = path.read_text(encoding="utf-8")
    assert text.startswith(
        '{\n "cards": {\n  "dp.a": {\n   "box": 0,\n   "due": 0.0,\n   "right": 0,\n   "seen": 0\n  },'
    )
    assert leitner.load(path)[0].cards["tp.b"] == leitner.Card(1, 2.0, 3, 2)


def test_why_a_file_is_set_aside_is_said(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    tail = " It was kept as progress.damaged-1.json; a new file is begun."
    for content, why in (
        (b'{"cards": {}}', "KeyError: 'estimates'"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'{"cards": {"a": {"box": 5, "due": 0, "seen": 0, "right": 0}}, "estimates": [], "session": null}',
         "ValueError: a card outside its boxes"),
        (b'{"cards": {"a": {"box": 0, "due": 0, "seen": 0, "right": 1}}, "estimates": [], "session": null}',
         "ValueError: a card outside its boxes"),
    ):  # fmt: skip
        path.write_bytes(content)
        assert leitner.load(path)[1] == f"Your progress in {path} could not be read ({why}).{tail}"
        (tmp_path / "progress.damaged-1.json").unlink()


def test_trouble_with_the_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "progress.json"
    path.write_text("{")
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(leitner.ProgressError) as caught:
        leitner.load(path)
    assert str(caught.value).endswith("and cannot be set aside: No space left on device; move it away")
    assert str(caught.value).startswith(f"{path} is damaged (JSONDecodeError")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(leitner.ProgressError) as caught:
        leitner.save(path, leitner.Progress())
    said = f"cannot write progress to {path}: No space left on device; set XDG_DATA_HOME to a folder of yours"
    assert str(caught.value) == said


def test_a_lock_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    lock = tmp_path / "progress.json.lock"
    lock.touch()
    monkeypatch.setattr(leitner, "_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(time, "time", lambda: lock.stat().st_mtime)
    with pytest.raises(leitner.ProgressError) as caught:
        leitner.record(path, "dp.one", True, 1.0)
    assert str(caught.value) == f"another session holds {lock}; close it, or delete that file"


def test_without_a_setting_progress_lives_under_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert leitner.default_path() == tmp_path / ".local/share/scaling-course/progress.json"
    assert json.dumps(str(leitner.default_path()))
