"""Answers: read what a person types, and say what is wrong with it.

Reading is lenient ("2.2k tokens per GPU", "$8.9M", "1.2 x 10^24 FLOPs", "3/7"); judging is strict and ordered: right, a
named misconception, a binary prefix, close, a plain factor, else the ratio.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from scaling_lib.questions import NOUNS, TRAP_TOLERANCE, Instance, fill, in_unit, unit_of
from scaling_lib.units import DAY, HOUR, MINUTE, YEAR, GiB, KiB, MiB, TiB, UnitError, digits

_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:[,\u202f\u00a0]\d{3})+(?!\d)|\d+(?:_\d+)*)(?:\.\d*)?(?:[eE][-+]?\d+)?"
    r"|[-+]?\.\d+(?:[eE][-+]?\d+)?"
)
_QUANTITY = re.compile(
    rf"(?P<number>{_NUMBER})(?![\d_]|[.,]\d)\s*"
    r"(?:(?P<op>[x×*·])\s*(?P<base>10|2)\s*(?:\^|\*\*)\s*(?P<power>-?\d+)"
    r"|(?:\^|\*\*)\s*(?P<own>-?\d+)|/\s*(?P<over>\d+(?:\.\d+)?))?"
    r"\s*(?P<rest>.*)\Z",
    re.DOTALL,
)
MAGNITUDES = {"thousand": 1e3, "million": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9, "trillion": 1e12}
_LETTERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SPELLINGS = {
    "tok": "token", "toks": "token", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "hr": "h", "hrs": "h",
    "minute": "min", "minutes": "min", "mins": "min", "d": "day", "yr": "year", "yrs": "year",
    "wk": "week", "wks": "week", "days": "day", "hour": "h", "hours": "h", "weeks": "week", "years": "year",
    "tokens": "token",
    "percent": "%", "dollars": "USD", "dollar": "USD", "usd": "USD", "$": "USD", "parameter": "param",
    "parameters": "param", "flop": "FLOP", "flops": "FLOP", "gpus": "GPU", "gpu": "GPU", "tpus": "TPU", "tpu": "TPU",
    "Bytes": "byte", "Byte": "byte", "bits": "bit", "ranks": "rank", "axes": "axis", "microbatches": "microbatch",
    "times": "", "x": "", "×": "", "ways": "way",
}  # fmt: skip
_WEEK = 7 * DAY
# a chip's own name counts chips: "4.46M H100 hours"
_CHIP = re.compile(r"(?:[ABHV]\d{2,3}|GB\d{3}|MI\d{3}X?|v\d[ep]?)s?")


@dataclass(frozen=True)
class Reading:
    """A number as typed. bare: no unit was given. value: SI (in the typed unit), or the bare number."""

    value: float
    dimension: str
    bare: bool


def _matched(text: str) -> tuple[re.Match[str], bool]:
    """The parts of a typed number, and whether dollars stand before it. Raises UnitError for no number."""
    cleaned = re.sub(r"^\s*(?:~|≈|about|approx\.?|circa|ca\.?|=)\s*", "", str(text).strip(), flags=re.IGNORECASE)
    match = _QUANTITY.match(cleaned.removeprefix("$").strip())
    if match is None and re.match(r"\$?[-+]?\d+,\d", cleaned):
        raise UnitError(
            f"cannot read {text!r}: a comma parts thousands, a decimal takes a point: write e.g. '20.7 days'"
        )
    if match is None:
        raise UnitError(f"cannot read {text!r} as a number: write e.g. '20.7 days', '2.2k tokens' or '6.35e24 FLOP'")
    return match, cleaned.startswith("$")


def unit_part(text: str) -> str:
    """What stands after the number: "5e10 B" -> "B". Raises UnitError for no number."""
    return _matched(text)[0]["rest"].strip()


def read(text: str, wanted: str = "") -> Reading:
    """Read a typed number. wanted: the dimension asked for, which tells "5 B" of bytes from 5 billion.

    Raises UnitError that says how to write one.
    """
    match, dollars = _matched(text)
    value = float(re.sub(r"[,_\u202f\u00a0]", "", match["number"]))
    try:
        if match["base"]:
            value *= float(match["base"]) ** int(match["power"])
        elif match["own"]:
            value **= int(match["own"])
        elif match["over"]:
            value /= float(match["over"])
    except (OverflowError, ZeroDivisionError):
        raise UnitError(f"{text!r} is no finite number: write e.g. '6.35e24 FLOP'") from None
    magnitude, unit = _magnitude(match["rest"].strip().rstrip("."), wanted.startswith("byte"))
    if dollars:
        unit = f"USD {unit}".strip() if not unit or unit.startswith(("/", "per ")) else unit
    value *= magnitude
    if not math.isfinite(value) or isinstance(value, complex):
        raise UnitError(f"{text!r} is no finite number: write e.g. '6.35e24 FLOP'")
    if not unit:
        return Reading(value, "", True)
    factor, dimension = _unit(unit)
    return Reading(value * factor, dimension, False)


def _magnitude(rest: str, of_bytes: bool) -> tuple[float, str]:
    """A leading magnitude word or letter ("million", "k") and the unit that remains. of_bytes: B is a byte."""
    if of_bytes and rest.startswith("B"):
        return 1.0, rest
    word = re.match(r"([a-z]+)\b\s*(.*)\Z", rest, re.DOTALL)
    if word and word[1] in MAGNITUDES:
        return MAGNITUDES[word[1]], word[2]
    letter = re.match(r"([kKMGBTPE])(?:\s+(?=\S)|\Z|(?=\s*\$))(.*)\Z", rest, re.DOTALL)
    if letter and not (letter[1] == "B" and re.match(r"\s*(?:per\b|/)", letter[2])):
        return _LETTERS[letter[1]], letter[2].strip()
    return 1.0, rest


def _unit(text: str) -> tuple[float, str]:
    """Factor and dimension of a typed unit, spellings of everyday use allowed. Raises UnitError."""
    text = re.sub(r"\s*\b(?:per|a|an|each)\b\s*", "/", text).rstrip("/ ").lstrip()
    text = re.sub(r"[\s-]+(?=h\b|hours?\b|hrs?\b|days?\b|years?\b|seconds?\b|s\b)", "*", text).replace("GPUh", "GPU*h")
    factor, sides = 1.0, []
    for i, side in enumerate(text.split("/")):
        kept = []
        for part in re.split(r"[*\s]+", side.strip()):
            part = re.sub(r"^([kKMGTP]i?)[Bb]ytes?$", r"\1B", part)
            word = "chip" if _CHIP.fullmatch(part) else _SPELLINGS.get(part, _SPELLINGS.get(part.lower(), part))
            if word.removesuffix("s") == "week":
                factor, word = factor * (_WEEK / DAY) ** (1 if i == 0 else -1), "day"
            if word and word.removesuffix("s") not in NOUNS:
                kept.append(word)
        sides.append("*".join(kept))
    unit = "/".join([sides[0] or "1", *(s for s in sides[1:] if s)])
    found, dimension = unit_of(unit)
    return found * factor, dimension


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth, and what to think about.

    kind: "right", "close", "trap", "factor", "ratio", "unit" (not judged: the answer cannot be read or measures
    something else), "partly" or "wrong" (answers that are no number). name: the trap or factor. score: 0 to 1.
    picture: SVG that belongs to it, empty for none.
    """

    kind: str
    message: str
    name: str = ""
    score: float = 0.0
    picture: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return self.kind == "right"

    def __str__(self) -> str:
        return self.message

    def _repr_html_(self) -> str:
        from scaling_lib.quiz_html import verdict_html

        return verdict_html(self)


# (ratio, name, dimensions it makes sense in or "" for any, what to look at)
_BINARY = tuple(
    (ratio, name, "byte token FLOP param", f"{name} differ by this factor: a power of two stands for a power of ten")
    for ratio, name in (
        (KiB / 1e3, "k and Ki"),
        (MiB / 1e6, "M and Mi"),
        (GiB / 1e9, "GB and GiB"),
        (TiB / 1e12, "TB and TiB"),
    )
)
_FACTORS = (
    (2.0, "2", "", "one direction or both, forward or backward, 2 bytes an element, 2 FLOPs a multiply-add?"),
    (3.0, "3", "", "forward alone or forward and backward, one torus axis or three, three matrices of a gated layer?"),
    (4.0, "4", "", "two slips of 2, or fp32 bytes?"),
    (8.0, "bits/bytes", "byte", "bits for bytes"),
    (8.0, "8", "", "per node or per GPU?"),
    (1.5, "1.5", "", "two matrices or three, two passes or three?"),
    (6.0, "6", "", "the rule of six, forgotten or used twice?"),
    (16.0, "16", "", "bytes a parameter of training state, or four slips of 2?"),
    (10.0, "10", "", "a power of ten"),
    (24.0, "hours/days", "second", "hours for days"),
    (MINUTE, "60", "second", "minutes for seconds or hours"),
    (HOUR, "seconds/hours", "second USD", "seconds for hours"),
    (DAY, "seconds/days", "second USD", "seconds for days"),
    (YEAR / DAY, "days/years", "second", "days for years"),
    (100.0, "100", "", "a percentage for a fraction, or two powers of ten"),
    (1e3, "1000", "", "a prefix: k, M, G or T"),
    (1e6, "1e6", "", "two prefixes off"),
    (1e9, "1e9", "", "three prefixes off"),
    (1e12, "1e12", "", "four prefixes off"),
)  # fmt: skip
CLOSE = 0.06


def _near(value: float, other: float, tolerance: float) -> bool:
    """Whether two numbers agree within a relative tolerance; zero agrees with zero alone."""
    return math.isclose(value, other, rel_tol=tolerance, abs_tol=1e-300)


def _factor(
    table: tuple[tuple[float, str, str, str], ...], ratio: float, dimension: str, tolerance: float = 0.012
) -> tuple[str, str] | None:
    """Name and explanation of the factor a ratio is, in either direction."""
    for size, name, dimensions, why in table:
        fits = not dimensions or any(d in dimension for d in dimensions.split())
        if fits and (_near(ratio, size, tolerance) or _near(ratio, 1 / size, tolerance)):
            return name, why
    return None


def judge(asked: Instance, value: float) -> Verdict:
    """Verdict on a number in SI."""
    q, right = asked.question, float(asked.answer)
    shown = asked.answer_text
    if _near(value, right, q.tolerance):
        return Verdict("right", f"Right: {shown}.", score=1.0)
    trap = next((t for t, v in asked.traps if _near(value, v, TRAP_TOLERANCE)), None)  # traps lie apart: one at most
    if trap:
        return Verdict("trap", f"Not yet. This is {trap.name}: {fill(trap.why, asked.values)}", trap.name)
    if value == 0 or right == 0 or (value < 0) != (right < 0):
        return Verdict("ratio", "Not yet: check the sign and whether the quantity can vanish.", "sign")
    ratio, dimension = value / right, unit_of(q.unit)[1]
    binary = _factor(_BINARY, ratio, dimension, 0.003)  # narrow: beside it lie honest rounding errors
    if binary:
        return Verdict("factor", f"Not yet, but near: {binary[1]}.", binary[0], 0.5)
    if _near(value, right, max(CLOSE, 2 * q.tolerance)):
        return Verdict(
            "close", f"Close: {percent(ratio)}. Carry three figures through and round at the end.", "rounding", 0.5
        )
    side = "too large" if ratio > 1 else "too small"
    found = _factor(_FACTORS, ratio, dimension)
    if found:
        why = found[1][0].upper() + found[1][1:] + ("" if found[1].endswith("?") else ".")
        return Verdict("factor", f"Not yet: {side} by a factor of {_times(ratio)}. {why}", found[0])
    return Verdict(
        "ratio", f"Not yet: {side} by a factor of {_times(ratio)}. Write down each factor and compare with hint 2.", ""
    )


def percent(ratio: float) -> str:
    """How far a ratio is from one, in words."""
    return f"{digits(abs(100 * (ratio - 1)), 2)}% too {'large' if ratio > 1 else 'small'}"


def _times(ratio: float) -> str:
    return digits(max(ratio, 1 / ratio), 3)


def number(asked: Instance, answer: object) -> float:
    """An answer as an SI value. A bare number is read in the question's unit.

    Raises UnitError when it is no number or measures something else.
    """
    unit = asked.question.unit
    factor, wanted = unit_of(unit)
    if isinstance(answer, bool) or not isinstance(answer, (int, float, str)):
        raise UnitError(f"{answer!r} is no number: give e.g. {in_unit_example(asked)}")
    if not isinstance(answer, str):
        if not math.isfinite(answer):
            raise UnitError(f"{answer!r} is no finite number: give e.g. {in_unit_example(asked)}")
        return _bare(asked, float(answer), factor)
    reading = read(answer, wanted)
    if reading.bare:
        return _bare(asked, reading.value, factor)
    if reading.dimension != wanted:
        raise UnitError(
            f"{answer!r} measures {reading.dimension or 'a plain number'}, but {wanted or 'a plain number'} is wanted: "
            f"write e.g. {in_unit_example(asked)}"
        )
    return reading.value


def _bare(asked: Instance, value: float, factor: float) -> float:
    """A bare number in the question's unit; where percent are asked, one below 1 is a fraction: 0.12 for 12%."""
    if asked.question.unit == "%" and (abs(value) < 1 <= 100 * abs(float(asked.answer))):
        return value
    return value * factor


def in_unit_example(asked: Instance) -> str:
    """An example of the form wanted, which is not the answer."""
    return f"'{in_unit(3 * unit_of(asked.question.unit)[0], asked.question.unit)}'"
