"""Questions to ask, hints, verdicts and worked solutions.

>>> from scaling_lib import quiz
>>> quiz.check("dp.critical_tokens", 2198).kind
'right'
>>> quiz.check("dp.critical_tokens", "1.1k tokens").name
'both directions of a link'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaling_lib import answers, bank
from scaling_lib.answers import Verdict
from scaling_lib.catalogue import near
from scaling_lib.given import lines
from scaling_lib.questions import KINDS, Instance, Question, QuestionError, fill, instance
from scaling_lib.quiz_html import HINT_NAMES, aloud_html, question_html
from scaling_lib.units import UnitError, digits


@dataclass(frozen=True)
class Asked:
    """A question on a page.

    shown: how many worked steps stand in the open (a faded example). sheet: whether its text ends with the figures
    that its machines and models have in the catalogue.
    """

    instance: Instance
    shown: int = 0
    sheet: bool = True

    def _repr_html_(self) -> str:
        return question_html(self.instance, self.shown)

    def __repr__(self) -> str:
        options = [f"  ({'abcdefgh'[i]}) {o}" for i, o in enumerate(self.instance.options)]
        given = [f"  {name}: {text}" for name, text in self.instance.steps[: self.shown]]
        figures = [f"  Given: {line}" for line in lines(self.instance)] if self.sheet else []
        return "\n".join([f"{self.instance.question.id}: {self.instance.prompt}", *options, *figures, *given])


def items(chapter: str | None = None, kind: str | None = None, tag: str | None = None) -> list[Question]:
    """Questions of the bank in the order of the course, all or those of a chapter, kind or tag.

    Raises QuestionError for a chapter, kind or tag that no question has.
    """
    found = list(bank.questions().values())
    for name, wanted, values in (
        ("chapter", chapter, lambda q: (q.stem,)),
        ("kind", kind, lambda q: (q.kind,)),
        ("tag", tag, lambda q: q.tags),
    ):
        if wanted is not None:
            known = {*(v for q in bank.questions().values() for v in values(q)), *(KINDS if name == "kind" else ())}
            if wanted not in known:
                raise QuestionError(f"no {name} {wanted!r}: {near(wanted, known)}")
            found = [q for q in found if wanted in values(q)]
    return found


def ask(name: str, seed: int | None = None, shown: int = 0) -> Asked:
    """A question to put on a page: prompt, three hints and the worked steps, each folded.

    seed: new numbers (a whole number), or the book's when None. shown: worked steps printed in the open, the rest is
    for the reader to finish. Raises QuestionError for an unknown id or too many steps.
    """
    asked = instance(bank.question(name), seed)
    if not 0 <= shown < len(asked.steps):
        raise QuestionError(f"{name} has {len(asked.steps)} steps, {shown} to show: use 0 to {len(asked.steps) - 1}")
    return Asked(asked, shown)


@dataclass(frozen=True)
class Aloud:
    """A question with its spoken answers, rubric and follow-ups, each folded."""

    instance: Instance

    def _repr_html_(self) -> str:
        return aloud_html(self.instance)

    def __repr__(self) -> str:
        return solve(self.instance.question.id, self.instance.seed)


def aloud(name: str) -> Aloud:
    """A question to answer aloud in 30 s, 2 min and 5 min. Raises QuestionError when it has no such answers."""
    asked = instance(bank.question(name))
    if asked.question.says is None:
        raise QuestionError(f"{name} has no spoken answers: use ask, or a question of kind explain")
    return Aloud(asked)


def hint(name: str, level: int = 1, seed: int | None = None) -> str:
    """One of three hints: 1 a nudge, 2 the formula, 3 the numbers put in."""
    if level not in (1, 2, 3):
        raise QuestionError(
            f"hint level {level!r}: use 1 ({HINT_NAMES[0]}), 2 ({HINT_NAMES[1]}) or 3 ({HINT_NAMES[2]})"
        )
    return instance(bank.question(name), seed).hints[level - 1]


def solve(name: str, seed: int | None = None) -> str:
    """The worked steps as text."""
    asked = instance(bank.question(name), seed)
    rows = [f"{i}. {step}. {text}" for i, (step, text) in enumerate(asked.steps, 1)]
    if asked.question.says:
        times = ("30 seconds", "2 minutes", "5 minutes")
        rows += [f"{t}: {fill(s, asked.values)}" for t, s in zip(times, asked.question.says, strict=True)]
    return "\n".join([asked.prompt, *rows])


def check(name: str, answer: Any, seed: int | None = None) -> Verdict:
    """Verdict on an answer: a number, text with a unit, an option's letter, an explanation, or a function for code.

    An estimate may come with an interval: `"20 days (10 to 40)"`. Raises QuestionError for an unknown id; an answer
    that cannot be read gives a verdict of kind "unit", not an exception.
    """
    return grade(instance(bank.question(name), seed), answer)


def grade(asked: Instance, answer: Any) -> Verdict:
    """Verdict on an answer to an instance."""
    q = asked.question
    try:
        if q.kind == "code":
            return _code(asked, answer)
        if q.options:
            return _choice(asked, answer)
        if q.kind == "estimate":
            return _estimate(asked, answer)
        if q.numeric:
            return answers.judge(asked, answers.number(asked, answer))
    except UnitError as error:
        return Verdict("unit", str(error))
    return _explanation(asked, answer)


def _choice(asked: Instance, answer: Any) -> Verdict:
    """An option by letter, number (from 1), key or text."""
    options = asked.choices
    letters = "abcdefgh"[: len(options)]
    text = str(answer).strip().strip("().").lower()
    matches = [
        i
        for i, o in enumerate(options)
        if text in (letters[i], str(i + 1), o.key.lower(), asked.options[i].strip().strip(".").lower())
    ]
    if not matches:
        return Verdict("unit", f"{answer!r} names no option: answer {', '.join(letters[:-1])} or {letters[-1]}")
    option = options[matches[0]]
    if option.key == asked.answer:
        return Verdict("right", f"Right: {asked.options[matches[0]]}", score=1.0)
    return Verdict("trap", f"Not yet. {fill(option.why, asked.values)}", option.key)


_INTERVAL = re.compile(r"^(.*?)[(\[](.+?)(?:\bto\b|\.\.|…|–|;|,(?!\d{3}\b)| - |(?<=\d)-(?=\d))(.+?)[)\]]\s*$")


def interval(asked: Instance, answer: Any) -> tuple[float, float | None, float | None]:
    """Point and 90% interval of an estimate in SI; the bounds are None when none were given. Raises UnitError."""
    match = _INTERVAL.match(answer.strip()) if isinstance(answer, str) else None
    if match is None:
        if isinstance(answer, str) and re.search(r"[(\[±]|\+/-", answer):
            raise UnitError(f"cannot read the interval in {answer!r}: write e.g. '20 days (10 to 40)'")
        return answers.number(asked, answer), None, None
    point = answers.number(asked, match[1].strip())
    unit = answers.unit_part(match[1])
    low, high = (
        answers.number(asked, text if answers.unit_part(text) else f"{text.strip()} {unit}".strip())
        for text in (match[2], match[3])
    )
    if not low <= point <= high:
        raise UnitError(
            f"interval {answer!r} is out of order: write e.g. '20 days (10 to 40)' with low <= point <= high"
        )
    return point, low, high


def log_error(value: float, truth: float) -> float:
    """Size of an estimate's error in factors of ten: |log10(value / truth)|; infinite when a sign or zero differs."""
    return abs(math.log10(value / truth)) if value * truth > 0 else math.inf


def _estimate(asked: Instance, answer: Any) -> Verdict:
    """An estimate: right within a factor of 2, close within 4; its interval is held against the truth."""
    point, low, high = interval(asked, answer)
    truth = float(asked.answer)
    exact = answers.judge(asked, point)
    error = log_error(point, truth)
    if error == math.inf:
        return Verdict(
            "unit", f"an estimate must be above zero, given {answer!r}: write e.g. {answers.in_unit_example(asked)}"
        )
    held = "" if low is None or high is None else (
        " Your interval holds it." if low <= truth <= high else " It lies outside your 90% interval."
    )  # fmt: skip
    score = max(0.0, 1 - error)
    off = 10 ** min(error, 99)  # more is no float
    said = f"{asked.answer_text}; you were off by a factor of {f'{off:.2g}' if off < 99 else digits(off, 2)}."
    if error <= math.log10(2):
        return Verdict("right", f"Good estimate: {said}{held}", score=score)
    if exact.kind == "trap":
        return Verdict("trap", exact.message + held, exact.name, score)
    kind = "close" if error <= math.log10(4) else ("factor" if exact.kind == "factor" else "ratio")
    return Verdict(kind, f"{'Near' if kind == 'close' else 'Far off'}: {said}{held}", exact.name, score)


def _explanation(asked: Instance, answer: Any) -> Verdict:
    """Points of the rubric that an explanation names. A machine finds words, not thoughts."""
    if not isinstance(answer, str) or len(answer.split()) < 3:
        return Verdict("unit", "write your explanation as a sentence or more, e.g. 'AllReduce is ...'")
    rubric = asked.question.rubric
    got = [p for p in rubric if any(re.search(w, answer, re.IGNORECASE) for w in p.words)]
    missing = [fill(p.text, asked.values) for p in rubric if p not in got]
    score = len(got) / len(rubric)
    kind = "right" if not missing else ("partly" if got else "wrong")
    rest = f" Not found: {'; '.join(missing)}." if missing else ""
    return Verdict(
        kind, f"{len(got)} of {len(rubric)} points found.{rest} Compare with the spoken answers.", score=score
    )


def _code(asked: Instance, answer: Any) -> Verdict:
    """A function tried on the drawn values against the reference."""
    q, reference = asked.question, asked.question.reference
    if reference is None or not callable(answer):
        return Verdict(
            "unit", f"give a function of {', '.join(q.arguments)}, e.g. `lambda {', '.join(q.arguments)}: ...`"
        )
    for trial in (asked, *(instance(q, seed) for seed in range(5))):
        arguments = [trial.values[a] for a in q.arguments]
        wanted = float(reference(*arguments))
        found = _call(answer, arguments)
        given = ", ".join(f"{a}={v!r}" for a, v in zip(q.arguments, arguments, strict=True))
        if isinstance(found, Exception):
            return Verdict("wrong", f"It raises {type(found).__name__} for {given}: {found}", type(found).__name__)
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            return Verdict("unit", f"it returns {found!r} for {given}: return a number")
        if not math.isclose(found, wanted, rel_tol=1e-6):
            ratio = found / wanted if wanted else math.inf
            return Verdict(
                "ratio", f"It gives {found:.6g} for {given}, {wanted:.6g} is wanted: {ratio:.4g} times as much"
            )
    return Verdict("right", "Right: it agrees with the library on every trial.", score=1.0)


def _call(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """What a reader's function returns, or the exception it raises."""
    try:
        return function(*arguments)
    except Exception as error:  # whatever their code does wrong is their verdict, not our crash
        return error
