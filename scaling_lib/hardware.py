"""Hardware nouns: chips, levels of a network, clusters, and the links a group of chips crosses.

Bandwidth is egress throughout: what one participant can send while it receives at the same rate.
A level states the egress of ONE chip at that level, so a node of 8 GPUs with one 50 GB/s NIC each sends 400 GB/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from scaling_lib import catalogue
from scaling_lib.catalogue import CatalogueError
from scaling_lib.units import ceil_div, maximum, minimum, where


@dataclass(frozen=True)
class Chip:
    """One accelerator.

    peak: dense FLOP/s by precision. hbm: bytes. hbm_bandwidth: byte/s, reads and writes together.
    tdp: watts, or None where unpublished.
    """

    name: str
    title: str
    peak: Mapping[str, float] = field(hash=False)
    hbm: float
    hbm_bandwidth: float
    tdp: float | None = None

    def flops(self, precision: str) -> float:
        """Dense peak at a precision, FLOP/s. Raises CatalogueError when the chip has none."""
        if precision not in self.peak:
            raise CatalogueError(f"{self.name} has no {precision!r} peak: {catalogue.near(precision, self.peak)}")
        return self.peak[precision]


@dataclass(frozen=True)
class Level:
    """One level of a cluster's network.

    size: chips inside one subtree of this level (None on an outermost level without a published bound).
    egress: byte/s that one chip sends at this level; on a torus, along one axis over both its links.
    latency: seconds a step. shape and wrap: a torus' axes and whether they close into rings.
    """

    name: str
    topology: str
    size: int | None
    egress: float
    latency: float
    in_network_reduction: bool = False
    shape: tuple[int, ...] = ()
    wrap: bool = True

    def rings(self, axes: int | None = None) -> int:
        """Rings of a collective: one along each torus axis used (all when None); none on a switch."""
        return (axes or len(self.shape)) if self.topology == "torus" else 0

    def chip_egress(self, axes: int | None = None) -> float:
        """Egress of one chip, byte/s: on a torus `axes` of its axes together (all when None).

        An axis that does not close into a ring gives half. Raises ValueError for more axes than there are.
        """
        if self.topology != "torus":
            return self.egress
        used = len(self.shape) if axes is None else axes
        if not 1 <= used <= len(self.shape):
            raise ValueError(f"{self.name} has {len(self.shape)} axes, {axes} asked for: use 1 to {len(self.shape)}")
        return used * self.egress * (1.0 if self.wrap else 0.5)


@dataclass(frozen=True)
class Cluster:
    """A chip and the levels of network that join it, innermost first."""

    name: str
    title: str
    chip: Chip
    levels: tuple[Level, ...]
    max_chips: int | None = None

    @property
    def domain(self) -> int:
        """Chips in the innermost domain (NVLink domain, or torus pod)."""
        return self.levels[0].size or 1

    def hops(self, n: Any, stride: Any = 1, axes: int | None = None) -> tuple[Hop, ...]:
        """The levels that a group of `n` chips, `stride` ranks apart, crosses, innermost first.

        Ranks are laid out domain by domain. `n` and `stride` are whole numbers or arrays of them; a level that the
        group does not cross has members = 1. `axes`: torus axes the group uses (all when None).
        Raises ValueError for a group or a stride below one, or of no finite size.
        """
        for what, value in (("chips", n), ("ranks apart", stride)):
            if isinstance(value, (int, float)) and not 1 <= value < math.inf:
                raise ValueError(f"a group of {value} {what}: use a number of at least 1")
        result, below = [], 1
        for level in self.levels:
            inside = minimum(n, maximum(1, level.size // stride)) if level.size is not None else n
            result.append(Hop(level, ceil_div(inside, below), below, below * level.chip_egress(axes)))
            below = inside
        return tuple(result)

    def egress(self, n: Any, stride: Any = 1, axes: int | None = None) -> Any:
        """Bandwidth that limits a large gather over such a group, byte/s: the slowest level it crosses.

        This is the limit for many members, without the (n-1)/n of the exact cost; infinite for a group of one.
        """
        slowest: Any = math.inf
        for hop in self.hops(n, stride, axes):
            slowest = minimum(slowest, where(hop.members > 1, hop.egress, math.inf))
        return slowest

    def slowest(self, n: int, stride: int = 1, axes: int | None = None) -> Level | None:
        """The level that limits a group of `n` chips `stride` ranks apart; None for a group of one."""
        crossed = [h for h in self.hops(n, stride, axes) if h.members > 1]
        return min(crossed, key=lambda h: h.egress * h.members / (h.members - 1)).level if crossed else None


@dataclass(frozen=True)
class Hop:
    """One level as a group sees it.

    members: subtrees of the level below that hold members of the group. below: members inside each subtree.
    egress: byte/s that one subtree sends for this group, all its members together.
    """

    level: Level
    members: Any
    below: Any
    egress: Any


def chip_from(name: str, entry: Mapping[str, Any]) -> Chip:
    """A chip from its data-sheet table. Raises CatalogueError for what is missing or ambiguous."""
    where_ = f"chip {name}"
    catalogue.only(entry, ("vendor", "peak", "hbm", "hbm_bandwidth", "tdp", "traps"), where_)
    peaks = entry.get("peak")
    if not isinstance(peaks, Mapping) or not peaks:
        raise CatalogueError(f"{where_}: no peak; write [{name}.peak] with at least bf16")
    return Chip(
        name,
        str(entry.get("name", name)),
        {p: catalogue.peak(peaks, p, where_) for p in peaks},
        catalogue.positive(entry, "hbm", "B", where_),
        catalogue.bandwidth(entry, "hbm_bandwidth", where_, "read+write"),
        catalogue.figure(entry, "tdp", "W", where_) if "tdp" in entry else None,
    )


_LEVEL_KEYS = ("topology", "size", "shape", "wrap", "egress", "latency", "in_network_reduction")


def level_from(entry: Mapping[str, Any], where_: str) -> Level:
    """One level from its table. Raises CatalogueError for what is missing or ambiguous."""
    catalogue.only(entry, _LEVEL_KEYS, where_)
    name = str(entry.get("name", "?"))
    where_ = f"{where_}, level {name}"
    topology = catalogue.choice(entry, "topology", where_, ("switch", "torus"))
    shape = _shape(entry, where_)
    if (topology == "torus") != bool(shape):
        raise CatalogueError(
            f"{where_}: a torus states its shape, a switch has none; given {topology} with shape {shape}"
        )
    size = math.prod(shape) if shape else catalogue.whole(entry, "size", where_) if "size" in entry else None
    return Level(
        name,
        topology,
        size,
        catalogue.bandwidth(entry, "egress", where_, "egress", "axis" if shape else "chip"),
        catalogue.figure(entry, "latency", "s", where_),
        catalogue.choice(entry, "in_network_reduction", where_, (True, False)),
        shape,
        catalogue.choice(entry, "wrap", where_, (True, False)) if shape else True,
    )


def _shape(entry: Mapping[str, Any], where_: str) -> tuple[int, ...]:
    """Chips along each axis of a torus; empty when the entry states none. Raises CatalogueError for anything else."""
    shape = entry.get("shape", [])
    if not isinstance(shape, list) or any(type(side) is not int or side < 1 for side in shape):
        raise CatalogueError(f"{where_}: shape is {shape!r}; write the chips along each axis, as in [16, 20, 28]")
    return tuple(shape)


def cluster_from(name: str, entry: Mapping[str, Any], chips: Mapping[str, Chip] | None = None) -> Cluster:
    """A cluster from its table; its chip comes from `chips` first, else from the product's catalogue."""
    where_ = f"cluster {name}"
    catalogue.only(entry, ("chip", "levels", "max_chips"), where_)
    key = str(entry.get("chip", ""))
    tables = entry.get("levels")
    if not isinstance(tables, list) or not tables:
        raise CatalogueError(f"{where_}: no levels; write [[{name}.levels]] innermost first")
    levels = tuple(level_from(level, where_) for level in tables)
    sizes = [level.size for level in levels]
    if None in sizes[:-1] or any(a >= b for a, b in pairwise(sizes) if a and b):
        raise CatalogueError(
            f"{where_}: level sizes {sizes} must grow outwards and only the last may be open; sort them"
        )
    return Cluster(
        name,
        str(entry.get("name", name)),
        (chips or {}).get(key) or chip(key),
        levels,
        catalogue.whole(entry, "max_chips", where_) if "max_chips" in entry else None,
    )


@cache
def chip(name: str) -> Chip:
    """A chip of the catalogue by name. Raises CatalogueError that lists near names."""
    return chip_from(name, catalogue.find("chips", name))


@cache
def cluster(name: str) -> Cluster:
    """A cluster of the catalogue by name. Raises CatalogueError that lists near names."""
    return cluster_from(name, catalogue.find("clusters", name))
