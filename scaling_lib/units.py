"""Units: SI floats inside, text with units outside.

Every function of the library takes and returns plain numbers in FLOP, byte, second, token and USD.
This module is the only place where a unit becomes text or text becomes a number.
"""

from __future__ import annotations

import math
import re
from typing import Any

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KiB, MiB, GiB, TiB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
YEAR = 365.25 * DAY

PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Z": 1e21,
    "Y": 1e24,
    "m": 1e-3,
    "u": 1e-6,
    "µ": 1e-6,
    "n": 1e-9,
    "Ki": KiB,
    "Mi": MiB,
    "Gi": GiB,
    "Ti": TiB,
}

# base unit -> (factor to SI, dimension); a bit is an eighth of a byte, so "400 Gb/s" and "50 GB/s" agree
_BASES: dict[str, tuple[float, str]] = {
    "B": (1.0, "byte"),
    "byte": (1.0, "byte"),
    "bytes": (1.0, "byte"),
    "b": (0.125, "byte"),
    "bit": (0.125, "byte"),
    "FLOP": (1.0, "FLOP"),
    "FLOPs": (1.0, "FLOP"),
    "s": (1.0, "second"),
    "min": (MINUTE, "second"),
    "h": (HOUR, "second"),
    "hour": (HOUR, "second"),
    "hours": (HOUR, "second"),
    "day": (DAY, "second"),
    "days": (DAY, "second"),
    "year": (YEAR, "second"),
    "years": (YEAR, "second"),
    "token": (1.0, "token"),
    "tokens": (1.0, "token"),
    "param": (1.0, "param"),
    "params": (1.0, "param"),
    "USD": (1.0, "USD"),
    "W": (1.0, "watt"),
    "chip": (1.0, "chip"),
    "chips": (1.0, "chip"),
    "GPU": (1.0, "chip"),
    "GPUs": (1.0, "chip"),
    "": (1.0, ""),
    "1": (1.0, ""),
    "%": (0.01, ""),
}
_COMPOUND = {
    "FLOPS": "FLOP/s",
    "FLOP/S": "FLOP/s",
    "GPUh": "GPU*h",
    "chip-hour": "chip*h",
    "chip-hours": "chip*h",
    "GPU-hour": "GPU*h",
    "GPU-hours": "GPU*h",
}
# commas only between groups of three digits: "1,5 GB" is refused, not read as 15 GB
_NUMBER = re.compile(
    r"\s*([-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d+)*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\d,._])\s*(.*?)\s*\Z",
    re.DOTALL,
)
_EXAMPLES = {
    "byte": "80 GB",
    "byte/second": "450 GB/s",
    "FLOP/second": "989 TFLOP/s",
    "second": "20 days",
    "USD/second": "2.0 USD/h",
    "watt": "700 W",
    "token": "15e12 tokens",
}


class UnitError(ValueError):
    """A text that is no quantity, or a quantity of the wrong kind."""


def _term(text: str) -> tuple[float, str]:
    """Factor and dimension of one term such as `GB` or `USD`."""
    if text in _BASES:
        return _BASES[text]
    for cut in (2, 1):
        prefix, base = text[:cut], text[cut:]
        if base and prefix in PREFIXES and base in _BASES and base != "%":
            factor, dimension = _BASES[base]
            return PREFIXES[prefix] * factor, dimension
    raise UnitError(
        f"unknown unit {text!r}: use B, b, FLOP, s, min, h, day, year, token, param, USD, W, chip with a "
        "prefix such as k, M, G, T, P or Ki, Mi, Gi"
    )


def unit_factor(unit: str) -> tuple[float, str]:
    """SI factor of a unit and its dimension, e.g. `GB/s` -> (1e9, "byte/second").

    Raises UnitError for an unknown unit.
    """
    for name, meaning in _COMPOUND.items():
        if unit.endswith(name):
            unit = unit[: len(unit) - len(name)] + meaning
    factor = 1.0
    powers: dict[str, int] = {}
    for i, side in enumerate(unit.split("/")):
        sign = 1 if i == 0 else -1
        for part in side.split("*"):
            if unit and not part.strip():
                raise UnitError(f"unit {unit!r} has an empty term: write e.g. 'GB/s'")
            scale, dimension = _term(part.strip())
            factor *= scale**sign
            if dimension:
                powers[dimension] = powers.get(dimension, 0) + sign
    over = "*".join(sorted(d for d, p in powers.items() for _ in range(p)))
    under = "".join("/" + d for d in sorted(d for d, p in powers.items() for _ in range(-p)))
    return factor, (over or ("1" if under else "")) + under


def parse(text: str, unit: str) -> float:
    """Read a quantity as an SI float: `parse("450 GB/s", "B/s")` -> 4.5e11.

    `unit` names the dimension wanted; the text may use any unit of that dimension.
    Raises UnitError when the text is no number with a unit or measures something else.
    """
    _, wanted = unit_factor(unit)
    example = _EXAMPLES.get(wanted, f"3 {unit}")
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None:
        raise UnitError(f"cannot read {text!r} as a quantity: write a number and a unit, e.g. {example!r}")
    factor, dimension = unit_factor(match[2])
    if dimension != wanted:
        raise UnitError(
            f"{text!r} measures {dimension or 'a bare number'}, but {wanted or 'a bare number'} is wanted: "
            f"write e.g. {example!r}"
        )
    value = float(match[1].replace(",", "").replace("_", "")) * factor
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is not a finite number: write e.g. {example!r}")
    return value


def digits(value: float, figures: int = 3) -> str:
    """A number with `figures` significant figures: 2472 -> "2,470", 20.73 -> "20.7", 6.35e24 -> "6.35e24"."""
    value = float(value)
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = f"{value:.{figures - 1}e}"
    mantissa, _, power = rounded.partition("e")
    exponent = int(power)
    if exponent >= 9 or exponent < -4:
        return f"{mantissa}e{exponent}"
    return f"{float(rounded):,.{max(0, figures - 1 - exponent)}f}"


_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_PREFIXED = {"B", "B/s", "b/s", "FLOP", "FLOP/s", "W", "FLOP/token"}


def show(value: Any, unit: str = "", figures: int = 3) -> str:
    """Text of an SI value: `show(4.5e11, "B/s")` -> "450 GB/s", `show(2472.5, "token/chip")` -> "2,470 tokens/chip".

    `unit` may be "s" (a duration is chosen), "USD", "USD/s" (printed per hour), "%" (value is a fraction), "GiB"
    (value in bytes), any SI unit, or "" for a bare number. A whole number (int) of counted things below a million is
    exact and printed whole; from a million on, counted things are told in millions, billions or trillions.
    """
    if hasattr(value, "__len__"):
        raise UnitError(f"{value!r} is not one number: show its elements one by one")
    noun = unit.partition("/")[0]
    if noun in _COUNTED:
        return _count(value, unit, figures)
    value = float(value)
    if unit == "s":
        return duration(value, figures)
    if unit == "USD":
        return usd(value, figures)
    if unit == "USD/s":
        return f"{digits(value * HOUR, figures)} USD/h"
    if unit == "%":
        return f"{digits(100 * value, figures)}%"
    if unit == "GiB":
        return f"{digits(value / GiB, figures)} GiB"
    if unit in _PREFIXED and value and math.isfinite(value) and abs(value) < 1e21:
        rounded = float(f"{value:.{figures - 1}e}")
        step, prefix = next((s for s in _STEPS if abs(rounded) >= s[0]), (1.0, ""))
        return f"{digits(value / step, figures)} {prefix}{unit}"
    return f"{digits(value, figures)} {unit}".rstrip()


_COUNTED = (
    "token",
    "chip",
    "param",
    "microbatch",
    "stage",
    "layer",
    "sequence",
    "node",
    "pod",
    "chip-hour",
    "way",
    "element",
)


def _count(value: Any, unit: str, figures: int) -> str:
    """Counted things: exact while small and whole, else in millions, billions or trillions."""
    noun, slash, rest = unit.partition("/")
    unit = (noun if value == 1 else noun + ("es" if noun.endswith("ch") else "s")) + slash + rest
    if isinstance(value, int) and abs(value) < 1e6:
        return f"{value:,} {unit}"
    size = abs(float(f"{float(value):.{figures - 1}e}"))
    for step, word in ((1e12, "trillion "), (1e9, "billion "), (1e6, "million ")):
        if step <= size < 1000 * step:
            return f"{digits(value / step, figures)} {word}{unit}"
    return f"{digits(value, figures)} {unit}"


_TIMES = (
    (2 * YEAR, YEAR, "years"),
    (2 * DAY, DAY, "days"),
    (2 * HOUR, HOUR, "h"),
    (2 * MINUTE, MINUTE, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "µs"),
    (0.0, 1e-9, "ns"),
)


def duration(seconds: float, figures: int = 3) -> str:
    """Seconds as text in the unit a reader would use: 1.79e6 -> "20.7 days"."""
    size = abs(float(seconds))
    if not math.isfinite(size) or size == 0:
        return f"{digits(seconds)} s"
    factor, name = next((f, n) for least, f, n in _TIMES if size >= least)
    return f"{digits(seconds / factor, figures)} {name}"


def usd(value: float, figures: int = 3) -> str:
    """US dollars as text: 8.92e6 -> "8.92 million USD"."""
    size = abs(float(f"{float(value):.{figures - 1}e}"))  # as it will be printed: 999.6 million is a billion
    for step, word in ((1e9, " billion"), (1e6, " million")):
        if step <= size < math.inf:
            return f"{digits(value / step, figures)}{word} USD"
    return f"{digits(value, figures)} USD"


def maximum(a: Any, b: Any) -> Any:
    """Larger of two values, element by element when either is an array."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a if a >= b else b
    import numpy  # only arrays (or quantities) reach this line, so numpy is there already

    return numpy.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    """Smaller of two values, element by element when either is an array."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a if a <= b else b
    import numpy

    return numpy.minimum(a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`, element by element when the condition is an array."""
    if isinstance(condition, (bool, int)):
        return a if condition else b
    import numpy

    return numpy.where(condition, a, b)


def log2(a: Any) -> Any:
    """Logarithm to base 2, element by element for an array."""
    if isinstance(a, (int, float)):
        return math.log2(a)
    import numpy

    return numpy.log2(a)


def ceil_div(a: Any, b: Any) -> Any:
    """Quotient rounded up, for integers and arrays of integers."""
    return -(-a // b)
