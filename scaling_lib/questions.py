"""Questions as typed data: a template, a seeded draw of its parameters, and names of what is computed from them.

A question holds text and one function, `derive`, which computes every number of the text with this library. A seed
turns a question into an instance: parameters chosen, numbers computed, templates filled. Seed None takes the book's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from scaling_lib.hardware import chip, cluster
from scaling_lib.units import digits, show, unit_factor

KINDS = ("numeric", "choice", "explain", "audit", "estimate", "code")
STEPS = {
    "flops": "Count FLOPs",
    "bytes": "Count bytes",
    "rates": "Divide by rates",
    "compare": "Compare",
    "knob": "Solve for the knob",
}
# things that are counted, not measured: "2,198 tokens per GPU" and "2,198 tokens" answer the same question
NOUNS = (
    "chip", "GPU", "TPU", "node", "rank", "pod", "rack", "layer", "stage", "step", "way", "microbatch",
    "sequence", "slot",
    "hop", "failure", "checkpoint", "spare", "replica", "expert", "collective", "axis", "element", "layout", "ratio",
)  # fmt: skip
# figures of the catalogue that an answer may build on
NEEDS = ("peak", "fp8", "hbm", "hbm_bandwidth", "network", "params", "shape")
_PRETTY = {"gpt": "GPT", "opt": "OPT", "deepseek": "DeepSeek"}


class QuestionError(ValueError):
    """A question that is incomplete or contradicts itself, or an id that does not exist."""


@dataclass(frozen=True)
class Trap:
    """A wrong answer that a known misconception leads to.

    name: what the slip is called. value: name of the derived number it gives. why: what went wrong, one sentence.
    """

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Option:
    """One option of a choice. key: what `answer` names when it is right. why: what is wrong with it when it is not."""

    key: str
    text: str
    why: str = ""


@dataclass(frozen=True)
class Point:
    """One point of a rubric. words: regular expressions, any of which in an answer earns the point."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """One question of the bank.

    prompt, hints, steps and traps are templates: `{name}` is a parameter or derived value, `{name:unit}` shows it with
    a unit, `{name:unit|5}` with 5 figures where 4 would not lead to the answer; `{name:model}`, `{name:chip}`,
    `{name:cluster}`, `{name:machine}` and `{name:gpu}` show a catalogue entry.
    draw: options of each parameter; an option that is a mapping is merged into the parameters.
    answer: name of the derived SI value, or of the key of the right option. unit: what a bare number is read in.
    steps: templates under the keys of STEPS, in that order. says: the answer in 30 s, 2 min and 5 min.
    book: the canonical answer as the chapters write it, an expression over the public names of the library.
    reference, arguments: for code, the function to reproduce and the derived values it is tried on.
    needs: figures of the catalogue (of NEEDS) that the answer builds on and the prompt does not say.
    Raises QuestionError for an incomplete one.
    """

    id: str
    kind: str
    prompt: str
    hints: tuple[str, str, str]
    canonical: Mapping[str, Any] = field(default_factory=dict)
    draw: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    derive: Callable[[Any], Mapping[str, Any]] | None = None
    answer: str = ""
    unit: str = ""
    tolerance: float = 0.02
    traps: tuple[Trap, ...] = ()
    options: tuple[Option, ...] = ()
    rubric: tuple[Point, ...] = ()
    steps: Mapping[str, str] = field(default_factory=dict)
    says: tuple[str, str, str] | None = None
    follow_ups: tuple[str, ...] = ()
    difficulty: int = 2
    importance: int = 3
    minutes: float = 3
    tags: tuple[str, ...] = ()
    claim: str = ""
    book: str = ""
    reference: Callable[..., Any] | None = None
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise QuestionError(f"question {self.id!r}: {problem}")

    @property
    def stem(self) -> str:
        """The chapter: what stands before the dot of the id."""
        return self.id.partition(".")[0]

    @property
    def numeric(self) -> bool:
        """Whether the answer is a number."""
        return bool(self.answer) and not self.options


def _problem(q: Question) -> str:
    """What is wrong with a question, empty when nothing is."""
    if not re.fullmatch(r"[a-z]+\.[a-z0-9_]+", q.id):
        return "the id must read chapter.name in small letters"
    if q.kind not in KINDS:
        return f"unknown kind {q.kind!r}: use one of {', '.join(KINDS)}"
    if len(q.hints) != 3:
        return f"{len(q.hints)} hints: give three, nudge, formula, plug-in"
    if list(q.steps) != [s for s in STEPS if s in q.steps] or not q.steps:
        return f"steps {list(q.steps)}: use {', '.join(STEPS)} in this order, at least one"
    if set(q.draw) and not q.canonical:
        return "it draws parameters but has no canonical ones"
    if q.kind in ("numeric", "estimate") and not q.numeric:
        return "a number is asked, so `answer` must name a derived value"
    if q.kind == "choice" and len(q.options) < 3:
        return "a choice needs at least three options"
    if q.kind == "explain" and not (q.rubric and q.says):
        return "an explanation needs a rubric and the answers for 30 s, 2 min and 5 min"
    if q.kind == "audit" and not (q.answer or q.rubric):
        return "an audit needs an answer or a rubric"
    if q.kind == "code" and not (q.reference and q.arguments):
        return "code needs a reference function and its arguments"
    if set(q.needs) - set(NEEDS):
        return f"needs {q.needs}: use {', '.join(NEEDS)}"
    if not (1 <= q.difficulty <= 5 and 1 <= q.importance <= 5 and q.minutes > 0):
        return "difficulty and importance go from 1 to 5, minutes are above 0"
    return ""


def pick(options: Sequence[Any], *key: object) -> Any:
    """One of several options, chosen by a hash of the key: the same on every machine and Python version."""
    return options[_digest(*key) % len(options)]


def _digest(*key: object) -> int:
    """A whole number from the hash of a key."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, key)).encode()).digest()[:8], "big")


def parameters(question: Question, seed: int | None, attempt: int = 0) -> dict[str, Any]:
    """Parameters of an instance: the canonical ones, or for a seed one option of each draw."""
    values = dict(question.canonical)
    if seed is not None:
        for name, options in question.draw.items():
            chosen = pick(options, question.id, seed, name, *([attempt] if attempt else []))
            values.update(chosen if isinstance(chosen, Mapping) else {name: chosen})
    return values


@cache
def unit_of(unit: str) -> tuple[float, str]:
    """SI factor and dimension of a unit with counted nouns left out: "token/chip" -> (1.0, "token").

    Raises UnitError for an unknown unit.
    """
    kept = []
    for i, side in enumerate(unit.split("/")):
        parts = [part for part in side.split("*") if part.strip().removesuffix("s") not in NOUNS and part.strip()]
        kept.append("*".join(parts) if parts else ("1" if i == 0 else ""))
    text = "/".join([kept[0], *(side for side in kept[1:] if side)])
    factor, dimension = unit_factor(text)
    return factor, "" if dimension == "1" else dimension


# units as words; the rest is plain enough as it is written
_SAID = {
    "Gparam": "billion parameters", "Ttoken": "trillion tokens", "Mtoken": "million tokens", "Gtoken": "billion tokens",
    "Mparam": "million parameters", "GPU*h": "GPU-hours",
    "TFLOP/s": "TFLOP/s", "FLOP/B": "FLOP/B", "token/s": "tokens/s",
    "chip*h": "chip-hours", "microbatch": "microbatches", "axis": "axes", "way": "ways", "h": "h", "s": "s", "ms": "ms",
    "us": "µs", "min": "min", "USD": "USD", "%": "%", "GB": "GB", "MB": "MB", "TB": "TB", "GiB": "GiB",
    "ratio": "times",
}  # fmt: skip


def trim(text: str) -> str:
    """A number without the zeros at the end of its decimals: "450.0 GB/s" -> "450 GB/s"."""
    return re.sub(r"(\.\d*?)0+(?=\D|$)", lambda m: m[1].rstrip("."), text)


def figures_of(value: float, figures: int = 4) -> str:
    """A number with 4 figures, whole numbers below a million in full: 26112.0 -> "26,112"."""
    if abs(value) < 1e6 and abs(value - round(value)) <= 1e-9 * abs(value):
        return f"{round(value):,}"
    return trim(digits(value, figures))


def unit_words(unit: str) -> str:
    """A unit as it is read aloud: "token/chip" -> "tokens per chip"."""
    if unit in _SAID:
        return _SAID[unit]
    over, *under = unit.split("/")
    plain = over in _SAID or any(c.isupper() for c in over[1:]) or not over
    words = _SAID.get(over, over if plain else f"{over}s")
    return " per ".join([f"{over}s" if over in ("GPU", "TPU") else words, *under])


def in_unit(value: float, unit: str, figures: int = 4) -> str:
    """An SI value in a question's unit: (1.79e6, "day") -> "20.72 days"."""
    if not unit:
        return figures_of(value, figures)
    factor, _ = unit_of(unit)
    return f"{figures_of(value / factor, figures)}{'' if unit == '%' else ' '}{unit_words(unit)}"


def pretty(name: str) -> str:
    """A model's catalogue name as it is printed: "llama-3-70b" -> "Llama 3 70B"."""
    words = [
        _PRETTY.get(w)
        or (w.capitalize() if w[0].isalpha() else w).replace("b", "B" if any(c.isdigit() for c in w) else "b")
        for w in name.split("-")
    ]
    return " ".join(words)


# "cluster" names the network too, "machine" only what it is joined from, "gpu" one chip of it
_TITLES: dict[str, Callable[[str], str]] = {
    "model": pretty,
    "chip": lambda name: chip(name).title,
    "cluster": lambda name: cluster(name).title,
    "machine": lambda name: re.split(r" with |, ", cluster(name).title)[0],
    "gpu": lambda name: cluster(name).chip.title,
}


def _shown(value: Any, spec: str) -> str:
    """One value of a template as text."""
    spec, _, told = spec.partition("|")
    figures = int(told or 4)
    if spec in _TITLES:
        return _TITLES[spec](value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not spec:
        return f"{value:,}" if isinstance(value, int) else figures_of(value, figures)
    if spec in ("s", "USD", "USD/s", "B", "B/s", "FLOP", "FLOP/s", "GiB", "%"):
        return trim(show(value, spec, figures))
    return in_unit(value, spec, figures)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """A template with its values. Raises QuestionError for a name that is not there."""

    def put(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise QuestionError(f"template {template!r} names {match[1]!r}, which is not computed")
        return _shown(values[match[1]], match[2] or "")

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", put, template)


@dataclass(frozen=True)
class Instance:
    """A question with its numbers: what is asked, and everything needed to judge an answer."""

    question: Question
    seed: int | None
    values: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The question as it is read."""
        return fill(self.question.prompt, self.values)

    @property
    def answer(self) -> Any:
        """The SI value, or the key of the right option; None for an explanation or code."""
        return self.values[self.question.answer] if self.question.answer else None

    @property
    def answer_text(self) -> str:
        """The answer as it is printed."""
        q = self.question
        if q.options:
            number = next(i for i, o in enumerate(self.choices) if o.key == self.answer)
            return f"({'abcdefgh'[number]}) {self.options[number]}"
        if q.numeric:
            return in_unit(self.answer, q.unit)
        return fill(q.says[0], self.values) if q.says else "see the steps"

    @property
    def hints(self) -> tuple[str, ...]:
        """Three hints: nudge, formula, plug-in."""
        return tuple(fill(h, self.values) for h in self.question.hints)

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """Worked steps as (step name, text); the last one of a question with an answer ends in it."""
        rows = [(STEPS[k], fill(t, self.values)) for k, t in self.question.steps.items()]
        if self.question.answer:
            name, text = rows[-1]
            rows[-1] = (name, f"{text} Answer: {self.answer_text}")
        return tuple(rows)

    @property
    def traps(self) -> tuple[tuple[Trap, float], ...]:
        """Traps with their values, in SI."""
        return tuple((t, float(self.values[t.value])) for t in self.question.traps)

    @property
    def choices(self) -> tuple[Option, ...]:
        """The options in an order that depends on the seed, so that the right one has no favourite place."""
        q = self.question
        return tuple(sorted(q.options, key=lambda o: _digest(q.id, self.seed, o.key)))

    @property
    def options(self) -> tuple[str, ...]:
        """Texts of the options, in that order."""
        return tuple(fill(o.text, self.values) for o in self.choices)


# a trap is told apart from the answer and from other traps when it lies further away than this share
TRAP_TOLERANCE = 0.012
_ATTEMPTS = 40


def ambiguous(asked: Instance) -> str:
    """Which two of answer and traps cannot be told apart, empty when all can."""
    named = [("the answer", float(asked.answer), asked.question.tolerance)] if asked.question.numeric else []
    named += [(t.name, v, TRAP_TOLERANCE) for t, v in asked.traps]
    for i, (name, value, tolerance) in enumerate(named):
        for other, another, its in named[i + 1 :]:
            if abs(value - another) <= (tolerance + its) * max(abs(value), abs(another)):
                return f"{name} and {other}"
    return ""


def instance(question: Question, seed: int | None = None, case: Mapping[str, Any] | None = None) -> Instance:
    """A question with the book's numbers, or with those of a seed (a whole number).

    case: parameters of a setting that several questions share; a question takes those it has, if they suit it.
    Draws whose traps cannot be told from the answer are skipped. Raises QuestionError for another seed, or when no draw
    is left.
    """
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise QuestionError(f"seed {seed!r} is no whole number: use e.g. 7, or leave it out for the book's numbers")
    for attempt in range(_ATTEMPTS if seed is not None and question.draw else 1):
        values = parameters(question, seed, attempt)
        if case and attempt == 0:
            values.update({name: value for name, value in case.items() if name in values})
        if question.derive is not None:
            values.update(question.derive(SimpleNamespace(**values)))
        asked = Instance(question, seed, values)
        if not ambiguous(asked):
            return asked
    raise QuestionError(
        f"question {question.id!r}, seed {seed}: {ambiguous(asked)} cannot be told apart; change its draw"
    )
