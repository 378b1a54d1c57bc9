"""Layouts as grids: arrays of the axes that broadcast, so that a term is computed once for each value of its axes.

Needs numpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

_INNER = ("zero", "sequence_parallel", "chunks", "micro_batch")


@dataclass(frozen=True)
class Grid:
    """Layouts: arrays of their axes, by name, which broadcast to the shape of ok; ok says which layouts are meant."""

    columns: Mapping[str, Any]
    ok: Any

    @property
    def size(self) -> int:
        """Layouts that are meant."""
        return int(np.count_nonzero(self.ok))

    def of(self, values: Any) -> Any:
        """Values of the layouts that are meant, in a row, from those of all."""
        return np.broadcast_to(values, self.ok.shape)[self.ok]

    def only(self, where: Any) -> Grid:
        """Those of the layouts that are meant where a condition holds."""
        return Grid(self.columns, self.ok & where)

    def compact(self) -> Grid:
        """The same layouts as a grid that is half full at least, or else in a row."""
        if 2 * self.size < self.ok.size:
            trimmed = self._trimmed()
            return trimmed if 2 * self.size >= trimmed.ok.size else join([self])
        return self

    def _trimmed(self) -> Grid:
        """Without values of an axis at which no layout is meant."""
        n = self.ok.ndim
        used = [self.ok.any(axis=tuple(j for j in range(n) if j != i)) for i in range(n)]
        columns = {}
        for name, values in self.columns.items():  # of n axes an array has the last ones, and varies along the first
            keep = used[n - values.ndim]
            columns[name] = values[keep] if len(values) == len(keep) else values
        return Grid(columns, self.ok[np.ix_(*used)])


def join(grids: Sequence[Grid]) -> Grid:
    """The layouts of some grids in a row."""
    columns = {name: np.concatenate([g.of(g.columns[name]) for g in grids]) for name in grids[0].columns}
    return Grid(columns, np.ones(sum(g.size for g in grids), bool))


def column(values: Sequence[Any]) -> Any:
    """An array of choices whose whole numbers have 64 bits: in a browser numpy's own have 32, too few for bytes."""
    found = np.array(values)
    return found.astype(np.int64) if found.dtype.kind == "i" else found


def grids(choices: Mapping[str, tuple[Any, ...]], outer: Sequence[tuple[int, ...]], block: int) -> Iterator[Grid]:
    """Layouts of outer degrees (tp, pp, cp, ep), about `block` of one kind a grid.

    One PP at a time, which says what chunks there are; then an axis each for ZeRO stage, sequence parallelism, chunks,
    micro-batch and the other degrees, those last: the longest axis runs fastest. No rule asks for recomputation, so it
    has no axis here.
    """
    inner = {name: choices[name] for name in _INNER}
    step = max(1, block // math.prod(len(inner[name]) for name in _INNER[1:]))
    for pp, group in groupby(sorted(outer, key=_depth), key=_depth):
        same = list(group)
        for i in range(0, len(same), step):
            tp, _, cp, ep = column(same[i : i + step]).T.copy()
            axes = {name: column(v).reshape(-1, *[1] * (4 - k)) for k, (name, v) in enumerate(inner.items())}
            shape = (*map(len, inner.values()), len(tp))
            yield Grid({"tp": tp, "pp": column([pp]), "cp": cp, "ep": ep, **axes}, np.ones(shape, bool))


def _depth(degrees: tuple[int, ...]) -> int:
    return degrees[1]


def at_stage(grid: Grid, number: int) -> Grid:
    """The layouts of a grid with one ZeRO stage, told by its place among the choices."""
    return Grid({name: values for name, values in grid.columns.items() if name != "zero"}, grid.ok[number])
