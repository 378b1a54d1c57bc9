r"""The equation tie: labelled equations of the chapters compute what the functions they name compute.

A chapter writes `$$T = \frac{8 B D F}{X C}$$ (eq-dp-math)`, or a {math} block with a label; the docstring of a function
says `Equation: eq-dp-math.` The test parses what stands right of the first `=`, puts random numbers in for the letters
and compares with the function. Letters become arguments through scaling_lib/data/notation.toml and nothing else: a
letter that the table does not know, or that fits two arguments, is an error. A letter that the function has no argument
for must cancel. An equation may have several right sides; each is compared.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import random
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sympy
from sympy.parsing.latex import parse_latex

import scaling_lib
from scaling_lib.notation import symbols

SOURCES = Path(__file__).parents[1] / "book" / "src"
CHAPTER_OF = {"roofline": "scaling"}  # the other modules carry the stem of their chapter, before the first underscore
POINTS = 12
TOLERANCE = 1e-9


class EquationError(ValueError):
    """An equation that cannot be read or does not fit its function."""


# what the chapters say ----------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^(`{3,})(.*?)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
_DOLLARS = re.compile(r"\$\$(.+?)\$\$(?:[ \t]*\(([^)\s]+)\))?", re.DOTALL)


def labelled(text: str) -> list[tuple[str, str]]:
    """Label and LaTeX of every labelled display equation of a chapter."""
    found = []
    for _, head, body in _FENCE.findall(text):
        if head.strip() == "{math}" and (label := re.search(r"^:label:\s*(\S+)", body, re.MULTILINE)):
            found.append((label[1], re.sub(r"^:\w+:.*\n", "", body, flags=re.MULTILINE).strip()))
    prose = _FENCE.sub("", text)
    return found + [(label, latex) for latex, label in _DOLLARS.findall(prose) if label]


def equations(chapters: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Label -> (chapter, LaTeX). Raises EquationError for a label that stands twice or does not begin with eq-."""
    found: dict[str, tuple[str, str]] = {}
    for stem, text in chapters.items():
        for label, latex in labelled(text):
            if label in found:
                raise EquationError(f"label {label} stands in {found[label][0]} and in {stem}: give each its own")
            if not label.startswith("eq-"):
                raise EquationError(f"label {label} in {stem}: labels of equations begin with eq-")
            found[label] = (stem, latex)
    return found


# what the library says ----------------------------------------------------------------------------------------------


@cache
def tagged() -> dict[str, tuple[str, Callable[..., Any]]]:
    """Label -> (module, function) for every docstring that names an equation."""
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    for info in pkgutil.iter_modules(scaling_lib.__path__):
        if info.name.startswith("__"):
            continue
        module = importlib.import_module(f"scaling_lib.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            label = re.search(r"Equation: (eq-[\w-]+)", function.__doc__ or "")
            if function.__module__ == module.__name__ and label:
                assert label[1] not in found, f"{info.name}.{name} and {found[label[1]]} name one equation, {label[1]}"
                found[label[1]] = (info.name, function)
    return found


# LaTeX to numbers ---------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\\text\{[^{}]*\}|\\[A-Za-z]+|\\[,;:! ]|[A-Za-z]|\d+(?:\.\d+)?|[-+/^_(){}\[\],]|\s+",
)
_LETTERS = "abcfghjklmnopqrstuvwxyz"  # without d, e and i, which the parser reads as more than letters
_DROPPED = {r"\left", r"\right", r"\,", r"\;", r"\:", r"\!", r"\ ", r"\quad", r"\big", r"\Big", r"\bigl", r"\bigr"}
_COMMANDS = {r"\frac", r"\sqrt", r"\min", r"\max", r"\exp", r"\log", r"\ln", r"\cdot", r"\times"}
_COMMANDS |= {r"\lceil", r"\rceil", r"\lfloor", r"\rfloor"}
_CLOSERS = {")", "}", r"\rceil", r"\rfloor"}
_OPENERS = {"(", r"\frac", r"\sqrt", r"\min", r"\max", r"\exp", r"\log", r"\ln", r"\lceil", r"\lfloor"}


def plain(latex: str) -> str:
    r"""One spelling for upright text: \mathrm, \operatorname and \text alike, with braces around a subscript."""
    latex = re.sub(r"\\(?:mathrm|operatorname|mathit|textrm)\b", r"\\text", latex)
    latex = re.sub(r"\\[dt]frac\b", r"\\frac", latex)
    latex = re.sub(r"_\\text\{([^{}]*)\}", r"_{\\text{\1}}", latex)
    return re.sub(r"_\{([A-Za-z])\}", r"_\1", latex)


@cache
def names_of() -> dict[str, tuple[str, ...]]:
    """LaTeX of a letter -> the argument names it may stand for, over all its meanings."""
    found: dict[str, tuple[str, ...]] = {}
    for symbol in symbols():
        key = plain(symbol.latex)
        found[key] = found.get(key, ()) + symbol.names
    return found


def right_sides(latex: str) -> list[str]:
    """The sides after the first relation."""
    sides = re.split(r"=|\\approx|\\geq?\b|\\leq?\b|>|<", plain(latex))
    if len(sides) < 2:
        raise EquationError(f"{latex!r} has no right side: write name = formula")
    return [side.strip().rstrip(".,") for side in sides[1:]]


def tokens(latex: str) -> list[str]:
    """Tokens of LaTeX without space; a letter and its subscript are one token."""
    found, at = [], 0
    while at < len(latex):
        match = _TOKEN.match(latex, at)
        if match is None:
            raise EquationError(f"cannot read {latex[at:]!r} in {latex!r}")
        token, at = match[0], match.end()
        if latex[at : at + 1] == "_" and (token[0] == "\\" or token.isalpha()):
            subscript = re.compile(r"_(?:\{(?:[^{}]|\{[^{}]*\})*\}|[A-Za-z0-9])").match(latex, at)
            if subscript is None:
                raise EquationError(f"cannot read the subscript {latex[at:]!r} in {latex!r}")
            token, at = token + subscript[0], subscript.end()
        if token.strip() and token not in _DROPPED:
            found.append(token)
    return found


@cache  # parsing is slow, and several tests read the same equation
def parse_side(latex: str) -> tuple[sympy.Expr, dict[str, str]]:
    """Expression in placeholder letters, and placeholder -> LaTeX of the letter it stands for."""
    placeholders: dict[str, str] = {}
    written: list[str] = []
    parts = tokens(latex)
    for token, following in zip(parts, [*parts[1:], ""], strict=True):
        operand = False
        if token == "e" and following == "^":
            operand = True  # Euler's number; e alone is the bytes of an element
        elif token[0].isdigit():
            operand = True
        elif token[0].isalpha() or (token[0] == "\\" and token not in _COMMANDS):
            if token not in names_of():
                raise EquationError(f"letter {token} in {latex!r} is not in notation.toml: add it, or use one that is")
            if token not in placeholders:
                placeholders[token] = _LETTERS[len(placeholders)]
            token, operand = placeholders[token], True
        if written and (written[-1] in _CLOSERS or written[-1][0].isalnum()) and (operand or token in _OPENERS):
            written.append(r"\cdot")
        written.append(token)
    try:
        expression = parse_latex(" ".join(written), backend="lark")
    except Exception as error:  # the parser raises whatever its grammar raises
        raise EquationError(f"cannot parse {latex!r}: {error}") from error
    if not isinstance(expression, sympy.Expr):
        raise EquationError(f"{latex!r} can be read in two ways: write out the products")
    return expression.subs(sympy.Symbol("e"), sympy.E), {v: k for k, v in placeholders.items()}


# the comparison -----------------------------------------------------------------------------------------------------


def argument_of(letter: str, function: Callable[..., Any]) -> str | None:
    """The argument a letter stands for in a function, None when it has none. Raises EquationError for two."""
    fitting = [name for name in names_of()[letter] if name in inspect.signature(function).parameters]
    if len(fitting) > 1:
        raise EquationError(f"letter {letter} may be {' or '.join(fitting)} of {function.__name__}: use another letter")
    return fitting[0] if fitting else None


def compare(latex: str, function: Callable[..., Any]) -> None:
    """Raise EquationError unless each right side equals the function at random points."""
    for side in right_sides(latex):
        expression, letters = parse_side(side)
        arguments = {p: argument_of(letter, function) for p, letter in letters.items()}
        given = [a for a in arguments.values() if a]
        if len(set(given)) < len(given):
            raise EquationError(f"two letters of {side!r} stand for one argument of {function.__name__}")
        parameters = inspect.signature(function).parameters.values()
        lacking = [p.name for p in parameters if p.default is p.empty and p.name not in given]
        if lacking:
            raise EquationError(f"{side!r} does not contain {', '.join(lacking)} of {function.__name__}")
        call = sympy.lambdify([sympy.Symbol(p) for p in arguments], expression, "math")
        chance = random.Random(0)
        for _ in range(POINTS):
            values = {p: chance.uniform(1.5, 9.5) for p in arguments}
            wanted = function(**{a: values[p] for p, a in arguments.items() if a})
            got = call(**values)
            if not math.isclose(got, wanted, rel_tol=TOLERANCE):
                shown = ", ".join(f"{letters[p]} = {v:.4g}" for p, v in values.items())
                raise EquationError(f"{side!r} gives {got:.6g}, {function.__name__} {wanted:.6g} at {shown}")


def chapters() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.md"))}


def problems(texts: Mapping[str, str]) -> list[str]:
    """Everything that is wrong between these chapters and the library."""
    found = []
    written = equations(texts)
    for label, (stem, latex) in written.items():
        if label not in tagged():
            found.append(f"{stem}: no docstring says 'Equation: {label}.'")
            continue
        try:
            compare(latex, tagged()[label][1])
        except EquationError as error:
            found.append(f"{stem}, {label}: {error}")
    for label, (module, function) in tagged().items():
        chapter = CHAPTER_OF.get(module, module.partition("_")[0])
        if chapter in texts and label not in written:
            found.append(f"{module}.{function.__name__}: no chapter shows its equation {label}; {chapter}.md should")
    return found


# the tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", sorted(equations(chapters())))
def test_the_equation_computes_what_its_function_computes(label: str) -> None:
    stem, latex = equations(chapters())[label]
    assert label in tagged(), f"{stem}.md: no docstring says 'Equation: {label}.'"
    compare(latex, tagged()[label][1])


def test_every_tag_of_a_written_chapter_is_shown_there() -> None:
    assert [p for p in problems(chapters()) if "no chapter shows" in p] == []


def test_the_table_of_letters_is_sound() -> None:
    meanings = [(plain(s.latex), name) for s in symbols() for name in s.names]
    assert len(set(meanings)) == len(meanings), "a letter is listed twice with one name"
    for symbol in symbols():
        assert tokens(plain(symbol.latex)) == [plain(symbol.latex)], f"{symbol.latex} is no single letter"
        assert symbol.meaning
        assert symbol.names


# It bites -----------------------------------------------------------------------------------------------------------

GOOD = r"T_{\text{math}} = \frac{8 B D F}{X C}"


def found_in(latex: str, label: str = "eq-dp-math") -> str:
    """What is wrong with a chapter that holds this one equation."""
    return "; ".join(p for p in problems({"page": f"$$ {latex} $$ ({label})"}) if "no chapter shows" not in p)


def test_the_unchanged_equation_passes() -> None:
    assert found_in(GOOD) == ""
    block = f"```{{math}}\n:label: eq-dp-math\n\n{GOOD}\n```\n"
    assert equations({"page": block}) == {"eq-dp-math": ("page", GOOD)}


@pytest.mark.parametrize(
    ("old", "new"),
    [("8", "4"), ("8 B", "8"), ("X C", "X"), ("X C", "X + C"), ("D F", "D D"), ("B D F", "B^2 D F"), ("X C", "C")],
)
def test_a_changed_equation_fails(old: str, new: str) -> None:
    assert old in GOOD
    said = found_in(GOOD.replace(old, new))
    assert "gives" in said or "does not contain" in said


@pytest.mark.parametrize(
    ("latex", "label", "says"),
    [
        (GOOD, "eq-nobody", "no docstring says 'Equation: eq-nobody.'"),
        (r"T = \frac{8 B D Q}{X C}", "eq-dp-math", "letter Q in"),
        (r"T = \frac{8 B D F}{X_3 C}", "eq-dp-math", "letter X_3 in"),
        (r"\frac{8 B D F}{X C}", "eq-dp-math", "no right side"),
        (r"T = \frac{8 B D F}{X C", "eq-dp-math", "cannot parse"),
        (r"T = 8 B D F & X C", "eq-dp-math", "cannot read '& X C'"),
        (r"T = \frac{8 B D F}{X C} = \frac{9 B D F}{X C}", "eq-dp-math", "gives"),
        (r"T = \frac{12 D F}{8 D}", "eq-fsdp-traffic", "gives"),
        (r"\alpha = \frac{C}{W W_{\text{dcn}}}", "eq-crosspod-threshold", "two letters"),
    ],
)
def test_what_is_wrong_is_said(latex: str, label: str, says: str) -> None:
    assert says in found_in(latex, label)


def test_labels_are_unique_and_named() -> None:
    with pytest.raises(EquationError, match="stands in a and in b"):
        equations({"a": "$$x=1$$ (eq-x)", "b": "$$x=1$$ (eq-x)"})
    with pytest.raises(EquationError, match="begin with eq-"):
        equations({"a": "$$x=1$$ (x)"})
    assert equations({"a": "```python\n'$$x=1$$ (eq-x)'\n```\n$$y = 2$$\n"}) == {}


def test_a_chapter_without_its_equations_is_reported() -> None:
    assert any("dp.t_math: no chapter shows its equation eq-dp-math" in p for p in problems({"dp": "No equations."}))


FACTORS = [
    ("dp", "return 8 * d_model * d_ff / egress", "return 4 * d_model * d_ff / egress", "eq-dp-comms"),
    ("dp", "return 4 * batch", "return 2 * batch", "eq-dp-forward"),
    ("tp", "return d_ff * axes * egress / peak", "return d_ff * egress / peak", "eq-tp-threshold"),
    ("budget", "return 6 * n_params * tokens", "return 8 * n_params * tokens", "eq-train-flops"),
    ("budget", "(1 + recomputed / 3)", "(1 + recomputed / 2)", "eq-hfu"),
    ("budget", "(2 * checkpoint * mtbf) ** 0.5", "(checkpoint * mtbf) ** 0.5", "eq-young"),
    ("roofline", "return minimum(1.0, t_math / t_comms)", "return minimum(1.0, t_comms / t_math)", "eq-mfu-cap"),
]


@pytest.mark.parametrize(("stem", "old", "new", "label"), FACTORS)
def test_a_changed_factor_in_a_formula_fails(stem: str, old: str, new: str, label: str) -> None:
    latex = equations(chapters())[label][1]
    module, function = tagged()[label]
    source = inspect.getsource(importlib.import_module(f"scaling_lib.{module}"))
    assert (module, old in source) == (stem, True)
    changed = ModuleType(f"scaling_lib.{stem}")
    exec(source.replace(old, new), changed.__dict__)
    compare(latex, function)
    with pytest.raises(EquationError, match="gives"):
        compare(latex, getattr(changed, function.__name__))


@pytest.mark.parametrize("label", sorted(equations(chapters())))
def test_a_function_that_is_a_little_off_fails(label: str) -> None:
    latex, function = equations(chapters())[label][1], tagged()[label][1]

    @wraps(function)
    def off(**arguments: float) -> float:
        return float(function(**arguments)) * (1 + 1e-6)

    with pytest.raises(EquationError, match="gives"):
        compare(latex, off)


FIRST = {stem: label for label, (stem, _) in reversed(equations(chapters()).items())}  # parsing each anew is slow


@pytest.mark.parametrize("label", sorted(FIRST.values()))
def test_a_digit_more_in_the_first_equation_of_a_chapter_fails(label: str) -> None:
    latex = equations(chapters())[label][1]
    left, _, right = latex.partition("=")
    number = re.search(r"\d+", right)
    wrong = f"{right[: number.start()]}{int(number[0]) + 1}{right[number.end() :]}" if number else f"2 \\cdot {right}"
    with pytest.raises(EquationError):
        compare(f"{left}={wrong}", tagged()[label][1])
