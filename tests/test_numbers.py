"""The number tie: a number in the prose of a chapter is computed by the library, or is visibly given.

How to write numbers in book/src/*.md:

* Computed: `20.7 days<!--= show(budget.seconds(...), "s") -->`. The expression sees `from scaling_lib import *` and
  `from scaling_lib.course import *` (the running case). It yields a string, or a number that prints with three
  figures, and the prose that ends at the tail must end with exactly that text. The tail is invisible to readers.
* Given: a number that a reader can look up needs no tail. Given are numbers of the chapter's own code cells and inputs
  of its tails, figures of the data sheets (same dimension), the batch, chips and tokens of the running jobs, whole
  counts up to 20, a reader's time (`RUBRICS`), and what the article or a paper says inside a {said} role.
* Anything else with a unit (bytes, FLOPs, seconds, tokens, chips, %, USD, times ...) looks computed and must be tied,
  or end in `<!--~ reason -->`, which says where it comes from. It covers the clause it ends.

Code, math, links, citations and front matter are not prose. Headings, tables, lists and admonitions are.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import catalogue, units

SOURCES = Path(__file__).parents[1] / "book" / "src"
SMALL = 20  # whole counts up to here are words in digits
RUBRICS = ("30 seconds", "2 minutes", "5 minutes", "20 minutes")  # a reader's time, not a machine's

# prose ---------------------------------------------------------------------------------------------------------------

_CODE_FENCES = ("code-cell", "code", "code-block", "math", "footbibliography", "bibliography", "raw", "eval-rst", "toc")
_FENCE = re.compile(r"^[ \t]*(`{3,}|:{3,})[ \t]*(?:\{([\w-]+)\})?(.*)$")
_SILENT = [
    re.compile(r"\A---\n.*?\n---\n", re.DOTALL),  # front matter
    re.compile(r"\$\$.*?\$\$(?:\s*\(eq-[\w-]+\))?", re.DOTALL),
    re.compile(r"\{said\}`[^`]*`"),
    re.compile(r"(?:\{[\w:-]+\})?(?<!`)`[^`\n]+`"),  # inline code and roles
    re.compile(r"(?<![\\$])\$[^$\n]+\$"),
    re.compile(r"\]\([^)\n]*\)"),  # the address of a link
    re.compile(r"<!--(?![=~]).*?-->", re.DOTALL),
]
_TAIL = re.compile(r"<!--([=~])(.*?)-->", re.DOTALL)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def prose(text: str) -> str:
    """The chapter with everything that is no prose blanked out; offsets stay, tails stay."""
    lines: list[str] = []
    opened: list[tuple[str, bool]] = []  # fences around this line: their marker, whether they hold code
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line.rstrip("\n"))
        silent = any(code for _, code in opened)
        if match and opened and not match[2] and not match[3].strip() and len(match[1]) >= len(opened[-1][0]):
            opened.pop()
            lines.append(_blank(line))
        elif match and not silent:
            code = match[2] is None or match[2] in _CODE_FENCES
            opened.append((match[1], code))
            lines.append(_blank(line) if code else _blank(line[: match.start(3)]) + line[match.start(3) :])
        else:
            option = bool(opened) and bool(re.match(r"\s*:[\w-]+:", line))
            lines.append(_blank(line) if silent or option else line)
    result = "".join(lines)
    for pattern in _SILENT:
        result = pattern.sub(lambda m: _blank(m[0]), result)
    return result


def code(text: str) -> Iterator[str]:
    """The code cells of a chapter."""
    for match in re.finditer(r"^(`{3,})\{code-cell\}.*?\n(.*?)^\1\s*$", text, re.MULTILINE | re.DOTALL):
        yield re.sub(r"^:\w+:.*\n", "", match[2], flags=re.MULTILINE)


# numbers that are given ----------------------------------------------------------------------------------------------

_FOLD = {ast.Mult: operator.mul, ast.Pow: operator.pow, ast.Div: operator.truediv, ast.Add: operator.add}


def constants(source: str, strings: bool = True) -> set[float]:
    """Numbers of a code cell, products and powers of numbers folded; those inside its strings too, where asked."""
    found: set[float] = set()

    def fold(node: ast.AST) -> float | None:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _FOLD:
            left, right = fold(node.left), fold(node.right)
            if left is not None and right is not None and abs(right) < 1e20:
                return float(_FOLD[type(node.op)](left, right))
        return None

    for node in ast.walk(ast.parse(source)):
        if (value := fold(node)) is not None:
            found.add(value)
        if strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", node.value)}
    return found


@cache
def figures() -> frozenset[tuple[float, str]]:
    """(SI value, dimension) of every figure of the data sheets; whole numbers of models and runs have none."""
    found: set[tuple[float, str]] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
        elif type(node) in (int, float):
            found.add((float(node), ""))
        elif isinstance(node, str) and (match := re.fullmatch(r"(\d[\d.,]*(?:e\d+)?) ?(\S*)", node)):
            try:
                factor, dimension = units.unit_factor(match[2])
            except ValueError:
                return
            found.add((float(match[1].replace(",", "")) * factor, dimension))

    for path in sorted(catalogue.DATA.glob("*.toml")):
        sheet = catalogue.read_toml(path)
        if sheet.pop("sources", None) and path.stem != "claims":  # claims hold computed values
            walk(sheet)
    return frozenset(found)


@cache
def namespace() -> dict[str, Any]:
    """What expressions see. Names of a star import stay as they are, so that a tail reads like a code cell."""
    names: dict[str, Any] = {}
    exec("from scaling_lib import *\nfrom scaling_lib.course import *", names)
    return names


@cache
def running_case() -> frozenset[float]:
    """Chips, batches, sequence lengths and tokens of the running jobs."""
    jobs = [v for v in namespace().values() if type(v).__name__ == "Job"]
    return frozenset(float(x) for j in jobs for x in (j.chips, j.batch_tokens, j.seq_len, j.tokens) if x)


# numbers that look computed ------------------------------------------------------------------------------------------

_SCALES = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_DIMENSIONS = {
    "": "times x",
    "byte": "bytes byte B kB MB GB TB PB KiB MiB GiB TiB",
    "byte/second": "B/s kB/s MB/s GB/s TB/s Gb/s",
    "FLOP/second": "FLOP/s GFLOP/s TFLOP/s PFLOP/s EFLOP/s",
    "FLOP": "FLOP FLOPs GFLOP TFLOP PFLOP",
    "FLOP/byte": "FLOP/byte FLOP/B FLOPs/byte",
    "second": "ns µs us ms s seconds second min minutes minute h hours hour days day weeks week months month years",
    "token": "tokens token tokens/chip tokens/GPU",
    "chip": "GPUs GPU chips chip TPUs TPU H100s H100 A100s B200s nodes node pods pod hosts",
    "chip*second": "GPU-hours GPU-hour chip-hours chip-hour GPU-days chip-days",
    "param": "parameters params param Gparam Mparam Tparam",
    "USD": "USD dollars dollar cents",
    "%": "% percent",
    "count": "microbatches microbatch layers stages stage sequences steps failures",
}
_UNIT_DIMENSION = {word: dimension for dimension, words in _DIMENSIONS.items() for word in words.split()}
_UNIT_WORDS = "|".join(sorted(map(re.escape, _UNIT_DIMENSION), key=len, reverse=True))
_NUMBER = re.compile(
    r"(?<![\w.,^/-])(?P<number>\d[\d,]*(?:\.\d+)?(?:e\d+)?)(?P<scale>[kMBT](?![\w/]))?"
    rf"(?:[ \u00a0-](?P<word>thousand|million|billion|trillion))?(?P<gap>[ \u00a0]?)(?P<unit>{_UNIT_WORDS})(?![\w/])"
)


def readings(match: re.Match[str]) -> tuple[set[float], str]:
    """Values that a number with its unit may mean, in SI, and its dimension."""
    printed = float(match["number"].rstrip(",").replace(",", ""))
    scale = match["scale"] or match["word"] or ""
    scaled = {printed * _SCALES.get(scale, 1.0)}
    if scale in ("k", "M", "B"):  # 4M tokens may be 2^22
        scaled.add(printed * 2.0 ** {"k": 10, "M": 20, "B": 30}[scale])
    try:
        factor, _ = units.unit_factor(match["unit"])
    except ValueError:
        factor = 1.0
    return {value * factor for value in scaled}, _UNIT_DIMENSION[match["unit"]]


def is_given(match: re.Match[str], known: set[float]) -> bool:
    """Whether a reader can look the number up: see the head of this file."""
    if match[0] in RUBRICS:
        return True
    values, dimension = readings(match)
    counted = dimension in ("byte", "chip", "count", "FLOP") and match["unit"] not in ("GB", "TB", "PB", "MB", "kB")
    if counted and match["scale"] is None and float(match["number"].replace(",", "")) in range(SMALL + 1):
        return True
    if any(math.isclose(v, k, rel_tol=1e-12) for v in values for k in known | running_case()):
        return True
    wanted = {dimension, ""} if dimension in ("%", "count", "chip", "token", "") else {dimension}
    return any(math.isclose(v, f, rel_tol=1e-12) for v in values for f, d in figures() if d in wanted)


# the rule ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tie:
    """A tail: where it begins and ends, what it says, and where the text that it covers begins."""

    begin: int
    end: int
    kind: str
    content: str


def ties(text: str) -> list[Tie]:
    return [Tie(m.start(), m.end(), m[1], m[2].strip()) for m in _TAIL.finditer(prose(text))]


@cache
def printed(expression: str) -> str:
    """Text that an expression yields. Raises ValueError when it yields neither text nor a number."""
    value = eval(" ".join(expression.split()), dict(namespace()))
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return units.digits(value)
    raise ValueError(f"yields {value!r}: give text or a number")


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def problems(stem: str, text: str) -> list[str]:
    """Everything wrong with the numbers of one chapter."""
    visible, found, covered = prose(text), [], []
    known = set().union(*(constants(cell) for cell in code(text)), set())
    for tie in ties(text):
        place = f"{stem}.md:{line_of(text, tie.begin)}"
        clause = max((m.end() for m in re.finditer(r"[.;:!?|]\s|\n\n|-->", visible[: tie.begin])), default=0)
        if tie.kind == "~":
            covered.append((clause, tie.begin))
            if len(tie.content) < 3:
                found.append(f"{place}: a tail <!--~ --> must give a reason")
            continue
        try:
            value = printed(tie.content)
        except Exception as error:  # an expression is code: whatever it raises is its fault
            found.append(f"{place}: {tie.content} raises {type(error).__name__}: {error}")
            continue
        known |= constants(" ".join(tie.content.split()), strings=False)  # what a neighbour was computed from
        begin = tie.begin - len(value)
        before = text[begin - 1] if begin else " "
        if text[max(begin, 0) : tie.begin] != value or before.isalnum() or (before in ".,-" and value[:1].isdigit()):
            said = text[clause : tie.begin].strip()[-40:]
            found.append(f"{place}: prose ends in {said!r}, but {tie.content} gives {value!r}")
        covered.append((begin, tie.begin))
    bare = _TAIL.sub(lambda m: _blank(m[0]), visible)
    for match in _NUMBER.finditer(bare):
        if match["unit"] in ("B", "h", "s") and not match["gap"]:
            continue  # 70B is the name of a model
        tied = any(begin <= match.start() and match.start("number") < end for begin, end in covered)
        if not tied and not is_given(match, known):
            found.append(f"{stem}.md:{line_of(text, match.start())}: {match[0]!r} looks computed: tie it or say whence")
    return found


def chapters() -> Mapping[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.md"))}


@pytest.mark.parametrize("stem", sorted(chapters()))
def test_the_numbers_of_a_chapter_are_computed_or_given(stem: str) -> None:
    found = problems(stem, chapters()[stem])
    assert not found, "\n" + "\n".join(found)


# It bites ------------------------------------------------------------------------------------------------------------

TIED = 'A node sends 400 GB/s<!--= show(node_egress, "B/s") --> and needs 2,470 tokens<!--= "2,470 tokens" -->.'


def test_a_tied_number_passes_and_a_digit_more_does_not() -> None:
    assert problems("page", TIED) == []
    (said,) = problems("page", TIED.replace("400 GB/s<", "410 GB/s<"))
    assert "prose ends in 'A node sends 410 GB/s', but show(node_egress, \"B/s\") gives '400 GB/s'" in said


@pytest.mark.parametrize("stem", sorted(s for s, t in chapters().items() if "<!--=" in t))
def test_one_digit_changed_in_each_tie_of_a_chapter_fails(stem: str) -> None:
    text = chapters()[stem]
    for tie in (t for t in ties(text) if t.kind == "="):
        digit = max(i for i in range(tie.begin) if text[i].isdigit())
        changed = f"{text[:digit]}{(int(text[digit]) + 1) % 10}{text[digit + 1 :]}"
        line = f"{stem}.md:{line_of(text, tie.begin)}"
        assert any(p.startswith(line) and "prose ends in" in p for p in problems(stem, changed)), (line, tie.content)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("It takes 21.3 days.", "'21.3 days' looks computed"),
        ("It costs 12.9 million USD.", "'12.9 million USD' looks computed"),
        ("MFU is 27.9%.", "'27.9%' looks computed"),
        ("| a | 37 GB |", "'37 GB' looks computed"),
        ("# A heading of 37 GB", "'37 GB' looks computed"),
        ("```{admonition} Title\n:class: tip\nIt is 37 GB.\n```", "page.md:3: '37 GB' looks computed"),
        ("````{note}\n```{tip}\nIt is 37 GB.\n```\nAnd 38 GB.\n````", "'38 GB' looks computed"),
        ("a 1.37x speed-up", "looks computed"),
        ("37 times as much", "'37 times' looks computed"),
        ("1420 GB/s<!--= show(node_egress, 'B/s') -->", "prose ends in"),
        (
            "1400 GB/s<!--= show(node_egress, 'B/s') -->",
            "prose ends in",
        ),  # ends in the right text, begins in a wrong one
        ("1.400 GB/s<!--= show(node_egress, 'B/s') -->", "prose ends in"),
        ("400 GB/s<!--= show(nod_egress, 'B/s') -->", "raises NameError"),
        ("It is 37 GB or 37 GB<!--= '37 GB' -->.", "page.md:1: '37 GB' looks computed"),
        ("400 GB/s<!--= None -->", "yields None: give text or a number"),
        ("It is 37 GB<!--~ -->.", "must give a reason"),
        ("It is 37 GB. So be it<!--~ from the paper -->.", "'37 GB' looks computed"),  # another clause
        ("It is 37 GB and 400 GB/s<!--= show(node_egress, 'B/s') -->.", "'37 GB' looks computed"),
    ],
)
def test_what_is_untied_or_wrong_is_said(text: str, says: str) -> None:
    found = problems("page", text)
    assert any(says in p for p in found), found


@pytest.mark.parametrize(
    "text",
    [
        "```{code-cell} python\nprint('37 GB')\n```",
        "```python\nx = '37 GB'\n```",
        "`37 GB` and $37$ GB of math, $$37 GB$$ (eq-x)",
        "{said}`37 GB` of the article",
        "[the paper](https://example.org/37-days)",
        "---\ntitle: 37 GB\n---\n",
        "It is 37 GB<!--~ read off figure 2 of the paper -->.",
        "37.5<!--= 37.5 --> and 0.279<!--= 0.2791 -->",
        "Each of 8 GPUs holds 2 bytes.",
        "```{code-cell} python\nn = 37\n```\nOn 37 GPUs.",
        "```{code-cell} python\nbatch = 37 * 2**20\n```\nA batch of 37M tokens.",
        "An 80 GB H100 of 989 TFLOP/s with 405B and 70B on 16,384 GPUs, 40%<!--= show(ARTICLE_MFU, '%', 2) -->.",
        "<!-- 37 GB, a comment -->",
        "Say it in **30 seconds.**",
        "An array of 256 MB takes 512 kB<!--= show(256e6 / 500, 'B') -->.",
    ],
)
def test_what_is_tied_or_given_passes(text: str) -> None:
    assert problems("page", text) == []


def test_a_figure_is_given_only_in_its_own_dimension() -> None:
    assert problems("page", "It holds 80 GB.") == []  # the memory of an H100
    assert problems("page", "It sends 80 GB/s.") != []


def test_offsets_survive_the_blanking() -> None:
    for text in chapters().values():
        assert len(prose(text)) == len(text)
        assert [i for i, c in enumerate(text) if c == "\n"] == [i for i, c in enumerate(prose(text)) if c == "\n"]
