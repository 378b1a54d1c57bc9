"""Notation: the letters of the course, from one table that the page and the check of the equations share."""

from __future__ import annotations

from dataclasses import dataclass

from scaling_lib.catalogue import DATA, CatalogueError, read_toml


@dataclass(frozen=True)
class Symbol:
    """One letter with one meaning.

    latex: as equations write it. names: what functions call it. hugging_face: keys of a config.json, or "".
    unit: SI, "" for a bare number.
    """

    letter: str
    latex: str
    names: tuple[str, ...]
    unit: str
    meaning: str
    group: str
    hugging_face: str = ""


def symbols() -> tuple[Symbol, ...]:
    """All letters, in the order of the table. Raises CatalogueError for a row that is incomplete or misspelt."""
    rows = []
    for number, row in enumerate(read_toml(DATA / "notation.toml")["symbol"], start=1):
        try:
            rows.append(Symbol(**{**row, "names": tuple(row.get("names", ()))}))
        except TypeError as error:
            raise CatalogueError(f"notation.toml, symbol {number} ({row.get('letter')}): {error}; see Symbol") from None
    return tuple(rows)
