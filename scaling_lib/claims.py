"""The source article's claims: what it says, what we compute, and the verdict.

scaling_lib/data/claims.toml holds the claims; `ours_expr` there is an expression over this library, evaluated here, so
that no number of ours is typed. `expected` is what a person found independently; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from scaling_lib import catalogue
from scaling_lib.units import digits

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
        name, str(entry["where"]), entry["chapter"], entry["claim"], entry["said"], ours, entry.get("unit", ""), verdict,
        bool(entry.get("matters", False)), entry["why"],
    )


def all_claims() -> list[Claim]:
    """Every claim in the order of the article."""
    return [claim(name) for name in catalogue.entries("claims")]


def text(value: float | str | None, figures: int = 4) -> str:
    """A claim's value as text: a number with 4 figures, words as they are."""
    if isinstance(value, (int, float)):
        return digits(value, figures)
    return "not known" if value is None else value
