"""Notation: the letters of the course, from one table that the page and the check of the equations share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from html.entities import html5

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


def written(letter: str) -> str:
    """A letter as HTML that reads the same in a notebook, on the site and in an e-book: t_hop -> t with "hop" below."""
    base, _, below = letter.partition("_")
    base = f"&{base};" if len(base) > 1 and f"{base};" in html5 else escape(base)
    return f"<var>{base}</var>" + (f"<sub>{escape(below)}</sub>" if below else "")


@dataclass(frozen=True)
class NotationTable:
    """The letters as a table for a notebook."""

    rows: tuple[Symbol, ...]

    def __repr__(self) -> str:
        return "\n".join(f"{s.letter}: {s.meaning} [{s.unit or 'bare number'}]" for s in self.rows)

    def _repr_html_(self) -> str:
        head = "<tr><th>letter</th><th>meaning</th><th>in code</th><th>Hugging Face key</th><th>unit</th></tr>"
        return f"<table class='notation'><thead>{head}</thead><tbody>{''.join(self._body())}</tbody></table>"

    def _body(self) -> Iterator[str]:
        """Rows, each group under its own heading."""
        for group in dict.fromkeys(s.group for s in self.rows):
            yield f"<tr><th colspan='5' scope='rowgroup'>{escape(group)}</th></tr>"
            for s in (s for s in self.rows if s.group == group):
                names = ", ".join(f"<code>{escape(n)}</code>" for n in s.names)
                key = f"<code>{escape(s.hugging_face)}</code>" if s.hugging_face else ""
                cells = (written(s.letter), escape(s.meaning), names, key, escape(s.unit))
                yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def table() -> NotationTable:
    """All letters, for the notation page."""
    return NotationTable(symbols())
