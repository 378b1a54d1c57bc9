"""The source article's claims: what it says, what we compute, and the verdict.

scaling_lib/data/claims.toml holds the claims; `ours_expr` there is an expression over this library, evaluated here, so
that no number of ours is typed. `expected` is what a person found independently; a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from scaling_lib import catalogue
from scaling_lib.questions import figures_of, unit_words
from scaling_lib.units import digits

# what a unit's first word is read as where unit_words has another use for it
_WORDS = {"param": "parameters", "GPU-hour": "GPU-hours", "ratio": "", "fraction": ""}
_SCALES = {"1e6": "million", "1e9": "billion"}
VERDICTS = ("holds", "slip", "inconsistent", "model", "misattributed", "unsourced")


@dataclass(frozen=True)
class Claim:
    """One claim. said, ours: a number in `unit`, or words; ours is None where nobody can know.

    verdict: holds, slip (arithmetic), inconsistent (contradicts itself), model (applied where its assumptions fail),
    misattributed (right number, wrong run or chip), unsourced. matters: a conclusion of the article changes.
    """

    id: str
    section: str
    chapter: str
    claim: str
    said: float | str
    ours: float | str | None
    unit: str
    verdict: str
    matters: bool
    why: str


def names() -> dict[str, Any]:
    """Names that expressions in claims and in prose may use: the public API and the running case."""
    import scaling_lib
    from scaling_lib import course

    return {name: getattr(module, name) for module in (scaling_lib, course) for name in module.__all__}


@cache
def claim(name: str) -> Claim:
    """One claim by id, with ours computed. Raises CatalogueError for an unknown id or an incomplete entry."""
    entry, where = catalogue.find("claims", name), f"claim {name}"
    verdict = catalogue.choice(entry, "verdict", where, VERDICTS)
    lacking = [key for key in ("where", "chapter", "claim", "said", "why") if key not in entry]
    if lacking:
        raise catalogue.CatalogueError(f"{where} lacks {', '.join(lacking)}; add it to claims.toml")
    expression = entry.get("ours_expr")
    ours = float(eval(expression, names())) if expression else entry.get("ours")  # our own data file, not input
    return Claim(
        name,
        str(entry["where"]),
        entry["chapter"],
        entry["claim"],
        entry["said"],
        ours,
        entry.get("unit", ""),
        verdict,
        bool(entry.get("matters", False)),
        entry["why"],
    )


def all_claims() -> list[Claim]:
    """Every claim in the order of the article."""
    return [claim(name) for name in catalogue.entries("claims")]


def text(value: float | str | None, figures: int = 4) -> str:
    """A claim's value as text: our numbers with 4 figures, words as they are."""
    if isinstance(value, (int, float)):
        return digits(value, figures)
    return "not known" if value is None else value


def with_unit(c: Claim) -> str:
    """Our value as a sentence has it: (70.5537, "1e9 param") -> "70.55 billion parameters". Words as they are.

    A claim's unit reads [scale] name [remark], e.g. "day on 16384 GPUs" or "ratio, one direction".
    """
    if not isinstance(c.ours, float):
        return text(c.ours)
    scale, name, remark = re.fullmatch(r"(?:(1e\d) )?([^\s,]*)(.*)", c.unit).groups()  # type: ignore[union-attr]
    words = (figures_of(c.ours), _SCALES[scale] if scale else "", _WORDS.get(name, unit_words(name)))
    return " ".join(word for word in words if word) + remark


def as_printed(value: float | str) -> str:
    """A value of the article without figures that it does not print: 9.0 -> "9", 6.35e24 -> "6.35e24"."""
    return f"{value:,.6g}".replace("e+", "e") if isinstance(value, (int, float)) else value


def _row(c: Claim) -> str:
    """One claim as a row of an HTML table."""
    cells = (as_printed(c.said), with_unit(c), c.verdict + (" (matters)" if c.matters else ""), c.why)
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr class='claim {c.verdict}' id='claim-{c.id}'><th scope='row'>{escape(c.claim)}</th>{body}</tr>"


@dataclass(frozen=True)
class ClaimTable:
    """Claims as a table for a notebook; as text, one line a claim."""

    claims: tuple[Claim, ...]

    def __repr__(self) -> str:
        return "\n".join(f"{c.id}: says {as_printed(c.said)}, ours {with_unit(c)} ({c.verdict})" for c in self.claims)

    def _repr_html_(self) -> str:
        head = "<tr><th>claim</th><th>article</th><th>ours</th><th>verdict</th><th>why</th></tr>"
        rows = "".join(_row(c) for c in self.claims)
        return f"<table class='claims'><thead>{head}</thead><tbody>{rows}</tbody></table>"


def table(chapter: str | None = None, wrong_only: bool = False) -> ClaimTable:
    """The claims of a chapter (all when None), or only those that do not hold. ValueError when there are none."""
    found = tuple(c for c in all_claims() if chapter in (None, c.chapter) and not (wrong_only and c.verdict == "holds"))
    if not found:
        known = ", ".join(sorted({c.chapter for c in all_claims()}))
        raise ValueError(f"no claims of chapter {chapter!r}: chapters with claims are {known}")
    return ClaimTable(found)
