"""Ledger: named parts that sum to a total.

Bytes in memory, FLOPs of a layer and seconds of a step are all told as ledgers, so that every total can be
opened and each part confronted with a second witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scaling_lib.units import show


@dataclass(frozen=True)
class Part:
    """One row: a path such as "state/weights", its value in the ledger's unit, and the formula it came from."""

    name: str
    value: Any
    formula: str = ""


@dataclass(frozen=True, repr=False)
class Ledger:
    """Rows that sum to a total.

    unit: an SI unit understood by `units.show`. Values are floats, or arrays of one shape for a grid of plans.
    Names are paths; the first step is the group.
    """

    title: str
    unit: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        names = [p.name for p in self.parts]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"ledger {self.title!r} has two parts named {twice[0]!r}: give each part its own name")

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __getitem__(self, name: str) -> Any:
        """Value of a part, or the sum of a group when `name` is a group."""
        found = [p.value for p in self.parts if p.name == name or p.name.startswith(name + "/")]
        if not found:
            raise KeyError(
                f"ledger {self.title!r} has no part {name!r}: it has {', '.join(p.name for p in self.parts)}"
            )
        return sum(found)

    @property
    def total(self) -> Any:
        """Sum of all parts, in the ledger's unit."""
        return sum(p.value for p in self.parts)

    def share(self, name: str) -> Any:
        """Part (or group) as a fraction of the total."""
        return self[name] / self.total

    def grouped(self) -> Ledger:
        """The same total with one row a group (first step of the path)."""
        groups = dict.fromkeys(p.name.partition("/")[0] for p in self.parts)
        return Ledger(self.title, self.unit, tuple(Part(g, self[g]) for g in groups))

    def scaled(self, factor: Any, title: str | None = None) -> Ledger:
        """Every part times `factor`, e.g. one layer to a whole model."""
        return Ledger(
            title or self.title, self.unit, tuple(Part(p.name, p.value * factor, p.formula) for p in self.parts)
        )

    @property
    def _is_grid(self) -> bool:
        """Whether the values are arrays, one number a plan."""
        return any(hasattr(p.value, "__len__") for p in self.parts)

    def _rows(self, figures: int) -> list[tuple[str, str, str, str]]:
        if self._is_grid:
            raise ValueError(f"ledger {self.title!r} holds a grid of plans, which has no one table: take one plan")
        total = self.total
        rows = [
            (
                p.name,
                show(p.value, self.unit, figures),
                show(p.value / total if total else 0.0, "%", figures),
                p.formula,
            )
            for p in self.parts
        ]
        return [*rows, ("total", show(total, self.unit, figures), show(1.0 if total else 0.0, "%", figures), "")]

    def text(self, figures: int = 3) -> str:
        """Plain table: part, value, share, formula. Raises ValueError for a grid of plans."""
        rows = self._rows(figures)
        widths = [max(len(r[i]) for r in rows) for i in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
        return "\n".join([self.title, *lines])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        if self._is_grid:
            return f"Ledger({self.title!r}, {self.unit!r}, grid of {', '.join(p.name for p in self.parts)})"
        return self.text()

    def _repr_html_(self) -> str:
        """Table for notebooks, with a caption and a header for readers who hear the page."""
        from html import escape  # 8 ms at import, needed only in notebooks

        rows = self._rows(3)
        has_formula = any(r[3] for r in rows)
        head = "<tr><th>part</th><th>value</th><th>share</th>" + ("<th>formula</th>" if has_formula else "") + "</tr>"
        body = ""
        for i, (name, value, share, formula) in enumerate(rows):
            cells = f"<th scope='row'>{escape(name)}</th><td>{escape(value)}</td><td>{escape(share)}</td>"
            cells += f"<td>{escape(formula)}</td>" if has_formula else ""
            body += f"<tr{' class=total' if i == len(rows) - 1 else ''}>{cells}</tr>"
        return (
            f"<table class='ledger'><caption>{escape(self.title)}</caption><thead>{head}</thead>"
            f"<tbody>{body}</tbody></table>"
        )
