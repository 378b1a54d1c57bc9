"""The nouns of the virtual mesh: devices on named axes, arrays cut over them, and the traffic that was counted."""

from __future__ import annotations

import math
import operator
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaling_lib.hardware import Cluster
from scaling_lib.ledger import Ledger, Part
from scaling_lib.mesh_algorithms import Array, MeshError
from scaling_lib.precision import BYTES

ALGORITHMS = ("ring", "tree")
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
_DIM = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:_([A-Z]+))?\Z")


@dataclass(frozen=True)
class Traffic:
    """One collective as it ran. steps: rounds. sent: bytes by rank and level. seconds: None without a cluster."""

    op: str
    name: str
    axes: str
    phase: str
    steps: int
    sent: Array
    seconds: float | None


@dataclass(eq=False)
class Mesh:
    """Devices on named axes, the last axis innermost: neighbours along it share a node.

    axes: one capital letter an axis. dtype: bytes that one element counts for, in memory and on the wire; values stay
    float64. algorithm: "ring" or "tree". torus_axes: for each mesh axis (or axes used together), how many axes of a
    torus it runs on, all when absent. Raises MeshError for a shape, name, dtype or algorithm that does not exist.
    """

    shape: tuple[int, ...]
    axes: Sequence[str]
    cluster: Cluster | None = None
    dtype: str = "bf16"
    algorithm: str = "ring"
    torus_axes: Mapping[str, int] = field(default_factory=dict)
    log: list[Traffic] = field(default_factory=list, repr=False)
    live: float = field(default=0.0, repr=False)
    peak: float = field(default=0.0, repr=False)
    current_phase: str = field(default="", repr=False)
    # told of every array: the operation that made it ("" for a collective), None when it goes
    watch: Callable[[str | None], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            self.shape, self.axes = tuple(map(operator.index, self.shape)), "".join(self.axes)
        except TypeError:
            raise MeshError(
                f'no mesh of shape {self.shape!r} and axes {self.axes!r}: give whole numbers and letters, as in '
                'Mesh((2, 4), "XY")'
            ) from None
        if self.cluster is not None and not isinstance(self.cluster, Cluster):
            raise MeshError(f"cluster is {self.cluster!r}: give a Cluster, as cluster('dgx-h100') returns it")
        if len(self.shape) != len(self.axes) or len(set(self.axes)) != len(self.axes):
            raise MeshError(f"shape {self.shape} needs {len(self.shape)} different axis letters, given {self.axes!r}")
        if not all(a.isascii() and a.isupper() for a in self.axes) or min(self.shape, default=1) < 1:
            raise MeshError(f"axes are capital letters of size 1 or more, given {self.axes!r} of sizes {self.shape}")
        choice("dtype", self.dtype, tuple(BYTES))
        choice("algorithm", self.algorithm, ALGORITHMS)
        if self.cluster and self.algorithm == "tree" and any(v.topology == "torus" for v in self.cluster.levels):
            raise MeshError(f"a tree jumps over neighbours, which the torus of {self.cluster.name} cannot: use a ring")
        if self.cluster and self.cluster.max_chips and self.size > self.cluster.max_chips:
            raise MeshError(f"{self.size} devices do not fit {self.cluster.name} of {self.cluster.max_chips} chips")

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    def degree(self, axes: str) -> int:
        """Devices along one or several axes together. Raises MeshError for an axis the mesh does not have."""
        return math.prod(self.shape[self._axis(a)] for a in axes)

    def position(self, rank: int, axes: str) -> int:
        """Place of a rank along axes, the first of them the most significant."""
        place = 0
        for a in axes:
            place = place * self.degree(a) + int(np.unravel_index(rank, self.shape)[self._axis(a)])
        return place

    def groups(self, axes: str) -> list[list[int]]:
        """Ranks that differ along `axes` only, each group in rank order."""
        others = "".join(a for a in self.axes if a not in axes)
        groups: dict[int, list[int]] = {}
        for rank in range(self.size):
            groups.setdefault(self.position(rank, others), []).append(rank)
        self.degree(axes)
        return list(groups.values())

    def shard(self, array: Array, layout: str, name: str = "", dtype: str | None = None) -> Shards:
        """Place an array on the devices, e.g. layout "B_X D_Y". Free: this is where a step starts.

        Raises MeshError when the layout does not fit the array or a dimension does not divide by its axis.
        """
        if isinstance(array, Shards):
            raise MeshError(f"{array} is on a mesh already: cut it further with keep, or move it with a collective")
        array = np.asarray(array)
        dims, axes = self.read_layout(layout)
        if len(dims) != np.ndim(array):
            raise MeshError(
                f"{layout!r} names {len(dims)} dimensions but {name or 'the array'} has shape {np.shape(array)}"
            )
        for d, a, n in zip(dims, axes, np.shape(array), strict=True):
            divide(n, self.degree(a), d, a, name)
        parts = [np.array(array[self.slices(rank, axes, array.shape)]) for rank in range(self.size)]
        return Shards(self, name, dims, axes, "", dtype or self.dtype, Store(self, parts, dtype or self.dtype))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Collectives inside the block are counted under this name, e.g. "forward"."""
        before, self.current_phase = self.current_phase, name
        try:
            yield
        finally:
            self.current_phase = before

    def sent(self, **where: str) -> float:
        """Bytes that the busiest device sent, e.g. `sent(phase="forward", op="all_gather", axes="X")`.

        Keywords: phase, op, name, axes; and level, the name of a network level of the cluster.
        """
        level = where.pop("level", None)
        rows = self._rows(where)
        if not rows:
            return 0.0
        sent = np.sum([t.sent for t in rows], axis=0)
        if level is not None:
            names = [v.name for v in self.cluster.levels] if self.cluster else []
            choice("level", level, tuple(names))
            return float(sent[:, names.index(level)].max())
        return float(sent.sum(axis=1).max())

    def seconds(self, **where: str) -> float:
        """Seconds of the collectives, one after another. Raises MeshError on a mesh without a cluster."""
        if self.cluster is None:
            raise MeshError("this mesh has no cluster, so bytes take no time: give Mesh(…, cluster=…)")
        return sum(t.seconds or 0.0 for t in self._rows(where))

    def _rows(self, where: Mapping[str, str]) -> list[Traffic]:
        """The collectives that were asked for. A misspelt operation or axis is an error, not a count of 0."""
        for key, value in where.items():
            choice("keyword", key, ("phase", "op", "name", "axes"))
            if key == "op":
                choice("operation", value, OPERATIONS)
            if key == "axes":
                self.degree(value)
        return [t for t in self.log if all(getattr(t, k) == v for k, v in where.items())]

    def ledger(self, title: str = "Bytes sent by the busiest device") -> Ledger:
        """What the busiest device sent, by phase, operation and array: comparable with a strategy's `wire_bytes`."""
        sent: dict[str, Array] = {}
        for t in self.log:
            label = f"{t.phase}/{t.op} {t.name}".strip("/ ")
            sent[label] = sent.get(label, 0.0) + t.sent.sum(axis=1)
        busiest = int(np.argmax(np.sum(list(sent.values()), axis=0))) if sent else 0
        return Ledger(title, "B", tuple(Part(label, float(v[busiest]), "counted") for label, v in sent.items()))

    def _axis(self, axis: str) -> int:
        if axis not in self.axes:
            known = ", ".join(f"{a} ({n})" for a, n in zip(self.axes, self.shape, strict=True))
            raise MeshError(f"the mesh has no axis {axis!r}: it has {known or 'none'}")
        return str(self.axes).index(axis)

    def read_layout(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Dimensions and their axes, from a text such as "B_X D"."""
        if not isinstance(text, str):
            raise MeshError(f'layout is {text!r}: write it as one text, such as "B_X D"')
        found = [(_DIM.match(word), word) for word in text.strip(" []").replace(",", " ").split()]
        for match, word in found:
            if match is None:
                raise MeshError(f"cannot read {word!r} in layout {text!r}: write dimensions as B or B_X")
        dims = tuple(m[1] for m, _ in found if m)
        axes = tuple(m[2] or "" for m, _ in found if m)
        for a in (used := "".join(axes)):
            self._axis(a)
            if used.count(a) > 1:
                raise MeshError(f"layout {text!r} uses axis {a} twice, but a device holds one place along it")
        if len(set(dims)) != len(dims):
            raise MeshError(f"layout {text!r} names a dimension twice")
        return dims, axes

    def slices(self, rank: int, axes: Sequence[str], shape: Sequence[int]) -> tuple[slice, ...]:
        """Which part of a global array a rank holds."""
        cut = []
        for a, n in zip(axes, shape, strict=True):
            width = n // self.degree(a)
            cut.append(slice(self.position(rank, a) * width, (self.position(rank, a) + 1) * width))
        return tuple(cut)


class Store:
    """The parts of an array on the devices; the mesh's memory falls when the store is emptied or forgotten."""

    def __init__(self, mesh: Mesh, parts: list[Array], dtype: str, op: str = "") -> None:
        self.parts = parts
        held = BYTES[dtype] * max((p.size for p in parts), default=0)
        mesh.live += held
        mesh.peak = max(mesh.peak, mesh.live)
        if mesh.watch:
            mesh.watch(op)
        self.release = weakref.finalize(self, _forget, weakref.ref(mesh), held)


def _forget(mesh: weakref.ref[Mesh], held: float) -> None:
    if (alive := mesh()) is not None:
        alive.live -= held
        if alive.watch:
            alive.watch(None)


@dataclass(frozen=True, eq=False)
class Shards:
    """An array spread over a mesh. axes: mesh axes that cut each dimension. partial: axes it must be summed over."""

    mesh: Mesh = field(repr=False)
    name: str
    dims: tuple[str, ...]
    axes: tuple[str, ...]
    partial: str
    dtype: str
    _store: Store = field(repr=False)

    @property
    def parts(self) -> list[Array]:
        """The array on each rank. Raises MeshError after `discard`."""
        if not self._store.parts:
            raise MeshError(f"{self} was discarded: gather or compute it again before using it")
        return self._store.parts

    @property
    def layout(self) -> str:
        """As on the whiteboard: "[B_X, D]{U_Y}"."""
        dims = ", ".join(d + (f"_{a}" if a else "") for d, a in zip(self.dims, self.axes, strict=True))
        return f"[{dims}]" + (f"{{U_{self.partial}}}" if self.partial else "")

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return tuple(n * self.mesh.degree(a) for n, a in zip(self.parts[0].shape, self.axes, strict=True))

    @property
    def bytes(self) -> float:
        """Bytes on one device."""
        return float(BYTES[self.dtype] * self.parts[0].size)

    def place_of(self, dim: str) -> int:
        """Which dimension it is, from 0. Raises MeshError for one that the array does not have."""
        if dim not in self.dims:
            raise MeshError(f"{self} has no dimension {dim!r}: it has {', '.join(self.dims)}")
        return self.dims.index(dim)

    def axes_of(self, dim: str) -> str:
        """Mesh axes that cut a dimension. Raises MeshError for a dimension the array does not have."""
        return self.axes[self.place_of(dim)]

    def named(self, name: str) -> Shards:
        """The same shards under another name."""
        return Shards(self.mesh, name, self.dims, self.axes, self.partial, self.dtype, self._store)

    def cast(self, dtype: str) -> Shards:
        """A copy whose elements count as another dtype; values stay float64."""
        return made(self, self.parts, dtype=choice("dtype", dtype, tuple(BYTES)))

    def discard(self) -> None:
        """Free the shards on all devices; using them afterwards is an error."""
        self._store.parts = []
        self._store.release()

    def whole(self) -> Array:
        """The full array, to compare with an unsharded one. Free: nothing a device could do.

        Raises MeshError when a reduction was forgotten, or when devices that should hold the same values do not.
        """
        shape = self.shape
        summed(self, "reading it")
        full, filled = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        for rank, part in enumerate(self.parts):
            here = self.mesh.slices(rank, self.axes, shape)
            if filled[here].any() and not np.allclose(full[here], part, rtol=1e-9, atol=1e-12, equal_nan=True):
                raise MeshError(f"{self} should be the same on devices that share a shard, but rank {rank} differs")
            full[here], filled[here] = part, True
        return full

    def __add__(self, other: Shards) -> Shards:
        """Sum of two arrays of one layout; partial terms may be added to partial terms only."""
        if not isinstance(other, Shards):
            raise MeshError(f"cannot add {type(other).__name__} to {self}: mesh.shard it first, or use local")
        if (self.dims, self.axes, self.partial) != (other.dims, other.axes, other.partial):
            raise MeshError(f"cannot add {self} and {other}: bring both to one layout first")
        return made(self, [a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def _refused(self, other: object) -> Shards:
        raise MeshError(
            f'{self} takes part in + alone: multiply with einsum("B D, D F -> B F", x, w), and do what goes element by '
            "element with local(f, x)"
        )

    __mul__ = __rmul__ = __matmul__ = __rmatmul__ = __sub__ = __rsub__ = __truediv__ = _refused
    __array_ufunc__ = None  # numpy leaves `array * shards` to the line above

    def __str__(self) -> str:
        return (self.name or "array") + self.layout


def choice(what: str, value: str, among: tuple[str, ...]) -> str:
    """The value, when it is one of a few. Raises MeshError otherwise."""
    if value not in among:
        raise MeshError(f"unknown {what} {value!r}: use one of {', '.join(among) or 'none'}")
    return value


def on_mesh(x: Shards) -> Shards:
    """The same shards. Raises MeshError for a plain array."""
    if not isinstance(x, Shards):
        raise MeshError(f'{type(x).__name__} is not on a mesh: place it first, as in mesh.shard(array, "B_X D")')
    return x


def divide(size: int, n: int, dim: str, axes: str, name: str) -> int:
    """Length of a piece of a dimension on n devices. Raises MeshError when it does not divide."""
    if size % n:
        raise MeshError(
            f"dimension {dim} of {name or 'the array'}, {size} long, does not divide by the {n} devices of axis {axes}"
        )
    return size // n


def summed(x: Shards, purpose: str) -> None:
    """Raises MeshError when an array still holds partial sums."""
    if x.partial:
        raise MeshError(f"{x} holds partial sums over {x.partial}: all_reduce or reduce_scatter it before {purpose}")


def made(like: Shards, parts: list[Array], **changes: Any) -> Shards:
    """New shards that differ from `like` in the given fields."""
    fields = {k: changes.get(k, getattr(like, k)) for k in ("mesh", "name", "dims", "axes", "partial", "dtype")}
    return Shards(**fields, _store=Store(like.mesh, parts, fields["dtype"]))
