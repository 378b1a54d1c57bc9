"""A virtual device mesh: arrays really cut into shards, collectives that really move them, bytes counted on the way.

An array is written as on the whiteboard: `In[B_X, D]` has its rows spread over mesh axis X and all of D everywhere;
`Out[B, D]{U_Y}` is one of several terms that must still be summed over Y.

>>> mesh = Mesh((2, 4), "XY")
>>> tokens, w = np.ones((6, 8)), np.ones((8, 4))
>>> out = einsum("B D, D F -> B F", mesh.shard(tokens, "B_X D_Y"), mesh.shard(w, "D_Y F"))
>>> out.layout
'[B_X, F]{U_Y}'
>>> all_reduce(out, "Y").layout, mesh.sent()
('[B_X, F]', 36.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaling_lib import mesh_algorithms as algorithms
from scaling_lib.mesh_algorithms import Array, Blocks, Count, MeshError
from scaling_lib.mesh_shards import Mesh, Shards, Store, Traffic, divide, made, on_mesh, summed
from scaling_lib.precision import BYTES

__all__ = [
    "Mesh",
    "MeshError",
    "Shards",
    "Traffic",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "einsum",
    "keep",
    "local",
    "permute",
    "reduce_scatter",
    "reduce_to",
]


def _same_cut(arrays: Sequence[Shards]) -> dict[str, str]:
    """Axes of each dimension. Raises MeshError when two arrays cut one dimension differently."""
    cut: dict[str, tuple[str, Shards]] = {}
    for x in map(on_mesh, arrays):
        if x.mesh is not arrays[0].mesh:
            raise MeshError(f"{x} and {arrays[0]} live on different meshes: shard both on one")
        for d, a in zip(x.dims, x.axes, strict=True):
            before, first = cut.setdefault(d, (a, x))
            if before != a:
                raise MeshError(f"{first} and {x} cut dimension {d} differently: gather or shard one of them first")
    return {d: a for d, (a, _) in cut.items()}


def einsum(spec: str, *arrays: Shards, name: str = "") -> Shards:
    """Multiply shards on each device, without communication: `einsum("B D, D F -> B F", x, w)`.

    A summed dimension that is cut over an axis leaves partial sums over that axis. The result counts as the mesh's
    dtype. Raises MeshError when operands are cut differently, or when the product of partial sums would be wrong.
    """
    arrays = tuple(map(on_mesh, arrays))
    inputs, arrow, output = spec.partition("->")
    dims = [tuple(part.replace(",", " ").split()) for part in inputs.split(",")]
    kept = tuple(output.split())
    if not arrow or dims != [x.dims for x in arrays] or not set(kept) <= {d for ds in dims for d in ds}:
        raise MeshError(
            f"{spec!r} does not describe {', '.join(map(str, arrays))}: name each dimension as the arrays do"
        )
    cut = _same_cut(arrays)
    used = "".join(cut[d] for d in cut)
    for a in (a for a in used if used.count(a) > 1):
        clash = [d for d in cut if a in cut[d]]
        raise MeshError(f"axis {a} cuts both {' and '.join(clash)} in {spec!r}: gather one of them over {a} first")
    pending = "".join(x.partial for x in arrays)
    for a in pending:
        if pending.count(a) > 1 or a in used:
            raise MeshError(
                f"{spec!r} multiplies single terms of a sum over {a}, not the sums themselves: reduce first"
            )
    letter = {d: chr(ord("a") + i) for i, d in enumerate(cut)}
    form = ",".join("".join(letter[d] for d in ds) for ds in dims) + "->" + "".join(letter[d] for d in kept)
    parts = [np.einsum(form, *(x.parts[r] for x in arrays), optimize=True) for r in range(arrays[0].mesh.size)]
    left = {a for d in cut if d not in kept for a in cut[d]} | set(pending)
    mesh = arrays[0].mesh
    axes, partial = tuple(cut[d] for d in kept), "".join(a for a in mesh.axes if a in left)
    return Shards(mesh, name, kept, axes, partial, mesh.dtype, Store(mesh, parts, mesh.dtype, "einsum"))


def local(
    f: Callable[..., Any], *arrays: Shards, out: str | Sequence[str] = "", whole: Sequence[str] = (), name: str = ""
) -> Any:
    """Apply a function to the shards of each device, without communication.

    out: layout of the result (of each result), by default that of the first array. whole: dimensions that the function
    needs complete, such as D for a norm. Raises MeshError for partial sums (a function of a sum is no sum of
    functions), for operands cut differently, for a cut dimension that must be whole, and for a result that hides a cut.
    """
    cut, mesh = _same_cut(arrays), arrays[0].mesh
    for x in arrays:
        summed(x, "applying a function to it")
        for d in (d for d in whole if d in x.dims and x.axes_of(d)):
            raise MeshError(
                f"{x} is cut along {d} over {cut[d]}, but this function needs {d} whole: all_gather it first"
            )
    results = [f(*(x.parts[r] for x in arrays)) for r in range(mesh.size)]
    several = not isinstance(out, str)
    layouts = [out or arrays[0].layout] if isinstance(out, str) else list(out)
    made = []
    for i, text in enumerate(layouts):
        dims, axes = mesh.read_layout(text)
        lost = "".join(a for a in mesh.axes if any(a in "".join(x.axes) for x in arrays) and a not in "".join(axes))
        if lost:
            raise MeshError(
                f"layout {text!r} claims equal values along axis {lost}, over which the operands are cut: name that "
                "cut, or sum with einsum, which remembers that the terms are partial"
            )
        parts = [np.asarray(r[i] if several else r) for r in results]
        if any(p.ndim != len(dims) or p.shape != parts[0].shape for p in parts):
            raise MeshError(f"the function returns shape {parts[0].shape}, which layout {text!r} does not describe")
        made.append(Shards(mesh, name, dims, axes, "", mesh.dtype, Store(mesh, parts, mesh.dtype, "local")))
    return tuple(made) if several else made[0]


def keep(x: Shards, dim: str, axes: str) -> Shards:
    """Cut a dimension by keeping each device's own piece of it. Free, since every device had it all."""
    summed(on_mesh(x), f"keeping a piece of {dim}")
    place, before, mesh = x.place_of(dim), x.axes_of(dim), x.mesh
    mesh.read_layout(
        " ".join(f"{d}_{a}" if a else d for d, a in zip(x.dims, x.axes, strict=True) if d != dim)
        + f" {dim}_{before}{axes}"
    )
    width = divide(x.parts[0].shape[place], mesh.degree(axes), dim, axes, x.name)
    parts = [
        np.array(np.take(p, range(mesh.position(r, axes) * width, (mesh.position(r, axes) + 1) * width), axis=place))
        for r, p in enumerate(x.parts)
    ]
    return made(x, parts, axes=_replaced(x, dim, before + axes))


def all_gather(x: Shards, dim: str, axes: str = "", name: str = "") -> Shards:
    """Every device gets all of a dimension: `In[B, D_Y] -> In[B, D]`.

    axes: the last of the axes that cut it, all by default. Raises MeshError when the dimension is not cut over them.
    """
    before = on_mesh(x).axes_of(dim)
    axes = axes or before
    x.mesh.degree(axes)
    if not before or not before.endswith(axes):
        raise MeshError(f"{dim} of {x} is not cut over {axes or 'any axis'}, so there is nothing to gather")
    mesh, place, groups = x.mesh, x.dims.index(dim), x.mesh.groups(axes)
    count = _count(x)
    held = {r: {mesh.position(r, axes): p} for r, p in enumerate(x.parts)}
    algorithms.all_gather(groups, held, count, mesh.algorithm)
    parts = [np.concatenate([held[r][i] for i in sorted(held[r])], axis=place) for r in range(mesh.size)]
    return _logged(x, "all_gather", axes, count, parts, name, axes=_replaced(x, dim, before.removesuffix(axes)))


def reduce_scatter(x: Shards, dim: str, axes: str = "", name: str = "") -> Shards:
    """Sum over devices, and leave each with its piece of a dimension: `Out[B, D]{U_Y} -> Out[B, D_Y]`.

    axes: those to sum over, all pending ones by default. Raises MeshError when the array has no partial sums there or
    the dimension does not divide.
    """
    axes = _pending(x, axes)
    mesh, place, groups, before = x.mesh, x.place_of(dim), x.mesh.groups(axes), x.axes_of(dim)
    n = mesh.degree(axes)
    divide(x.parts[0].shape[place], n, dim, axes, x.name)
    count = _count(x)
    owner = _owners(mesh, groups, axes)
    held = {r: {owner[r, i]: b for i, b in enumerate(np.split(p, n, axis=place))} for r, p in enumerate(x.parts)}
    algorithms.reduce_scatter(groups, held, count, mesh.algorithm)
    parts = [_only(held[r]) for r in range(mesh.size)]
    left = "".join(a for a in x.partial if a not in axes)
    return _logged(x, "reduce_scatter", axes, count, parts, name, axes=_replaced(x, dim, before + axes), partial=left)


def all_reduce(x: Shards, axes: str = "", name: str = "") -> Shards:
    """Sum over devices, the result on all of them: `Out[B, D]{U_Y} -> Out[B, D]`; a reduce-scatter, then an all-gather.

    axes: those to sum over, all pending ones by default. Raises MeshError when the array has no partial sums there.
    """
    axes = _pending(x, axes)
    mesh, groups = x.mesh, x.mesh.groups(axes)
    count = _count(x)
    held = {r: dict(enumerate(np.array_split(p.reshape(-1), mesh.degree(axes)))) for r, p in enumerate(x.parts)}
    algorithms.reduce_scatter(groups, held, count, mesh.algorithm)
    algorithms.all_gather(groups, held, count, mesh.algorithm)
    parts = [np.concatenate([held[r][i] for i in sorted(held[r])]).reshape(p.shape) for r, p in enumerate(x.parts)]
    left = "".join(a for a in x.partial if a not in axes)
    return _logged(x, "all_reduce", axes, count, parts, name, partial=left)


def all_to_all(x: Shards, source: str, target: str, axes: str = "", name: str = "") -> Shards:
    """Move a cut from one dimension to another: `A[Q_X, E] -> A[Q, E_X]` is `all_to_all(a, "Q", "E")`.

    axes: the last of those that cut `source`, all by default. Direct on a switch; on a torus forwarded along the ring.
    Raises MeshError when `source` is not cut there or `target` does not divide.
    """
    before = on_mesh(x).axes_of(source)
    axes = axes or before
    if source == target:
        raise MeshError(f"source and target are both {source}: name the dimension that the cut moves to")
    n = x.mesh.degree(axes)
    if not before or not before.endswith(axes):
        raise MeshError(f"{source} of {x} is not cut over {axes or 'any axis'}, so there is no cut to move to {target}")
    summed(x, "exchanging it")
    mesh, groups, here, there = x.mesh, x.mesh.groups(axes), x.place_of(source), x.place_of(target)
    divide(x.parts[0].shape[there], n, target, axes, x.name)
    count, owner = _count(x), _owners(mesh, groups, axes)
    held = {r: {owner[r, i]: b for i, b in enumerate(np.split(p, n, axis=there))} for r, p in enumerate(x.parts)}
    torus = mesh.cluster is not None and any(v.topology == "torus" for v in mesh.cluster.levels)
    got = algorithms.all_to_all(groups, held, count, "ring" if torus else "direct")
    parts = [np.concatenate([got[r][owner[r, i]] for i in range(n)], axis=here) for r in range(mesh.size)]
    cut = dict(zip(x.dims, x.axes, strict=True)) | {source: before.removesuffix(axes), target: x.axes_of(target) + axes}
    return _logged(x, "all_to_all", axes, count, parts, name, axes=tuple(cut[d] for d in x.dims))


def permute(x: Shards, axis: str, pairs: Sequence[tuple[int, int]] | None = None, name: str = "") -> Shards:
    """Send shards along an axis, by default each to the next device round the ring.

    pairs: (from, to) places along the axis; who receives nothing holds zeros. Raises MeshError when two devices send
    to one, or one device to two.
    """
    mesh, n = on_mesh(x).mesh, x.mesh.degree(axis)
    if len(axis) != 1:
        raise MeshError(f"a permute goes along one axis, given {axis!r}: name one of {', '.join(mesh.axes)}")
    pairs = [(i, (i + 1) % n) for i in range(n)] if pairs is None else list(pairs)
    for ends in ([a for a, _ in pairs], [b for _, b in pairs]):
        if len(set(ends)) != len(ends) or not set(ends) <= set(range(n)):
            raise MeshError(
                f"pairs {pairs} must name each place of axis {axis} (0 to {n - 1}) at most once on either side"
            )
    count = _count(x)
    place = {(g[0], mesh.position(r, axis)): r for g in mesh.groups(axis) for r in g}
    messages = [
        (place[g[0], a], place[g[0], b], {0: x.parts[place[g[0], a]]}) for g in mesh.groups(axis) for a, b in pairs
    ]
    got: dict[int, Blocks] = {b: blocks for a, b, blocks in messages if a == b}
    got |= count.deliver([m for m in messages if m[0] != m[1]])
    parts = [got[r][0] if r in got else np.zeros_like(p) for r, p in enumerate(x.parts)]
    return _logged(x, "permute", axis, count, parts, name)


def reduce_to(x: Shards, like: Shards | str, inner: str = "", name: str = "") -> Shards:
    """Sum what is pending and cut the result as another array is: how a gradient reaches the layout of its weight.

    Dimensions that `like` cuts over pending axes are reduce-scattered, the rest is all-reduced. inner: an axis inside a
    pod; what remains pending over it and over others is reduced pod by pod: scattered inside, summed across, gathered.
    """
    on_mesh(x)
    dims, axes = (like.dims, like.axes) if isinstance(like, Shards) else x.mesh.read_layout(like)
    if dims != x.dims:
        raise MeshError(f"{x} cannot take the layout of {like}: its dimensions are {', '.join(x.dims)}")
    for dim, wanted, had in zip(dims, axes, x.axes, strict=True):
        more = wanted.removeprefix(had)
        if more and set(more) <= set(x.partial):
            x = reduce_scatter(x, dim, more, name)
    if inner and inner in x.partial and len(x.partial) > 1:
        n = x.mesh.degree(inner)
        free = [d for d, a, size in zip(x.dims, x.axes, x.shape, strict=True) if not a and size % n == 0]
        if not free:
            raise MeshError(f"no dimension of {x} divides by the {n} devices of axis {inner}: pad one")
        return all_gather(all_reduce(reduce_scatter(x, free[0], inner, name), name=name), free[0], inner, name)
    return all_reduce(x, name=name) if x.partial else x


def _pending(x: Shards, axes: str) -> str:
    """The axes to reduce over; they must hold partial sums, else equal values would be added n times."""
    on_mesh(x).mesh.degree(axes)
    axes = axes or x.partial
    if not axes or not set(axes) <= set(x.partial):
        raise MeshError(
            f"{x} holds no partial sums over {axes or 'any axis'}: reducing it would add equal values again"
        )
    return axes


def _replaced(x: Shards, dim: str, axes: str) -> tuple[str, ...]:
    return tuple(axes if d == dim else a for d, a in zip(x.dims, x.axes, strict=True))


def _owners(mesh: Mesh, groups: algorithms.Groups, axes: str) -> dict[tuple[int, int], int]:
    """(rank, piece of the array) -> place in the rank's sorted group of the device that this piece is for."""
    return {(r, mesh.position(other, axes)): i for g in groups for r in g for i, other in enumerate(g)}


def _only(blocks: Blocks) -> Array:
    (block,) = blocks.values()
    return block


def _count(x: Shards) -> Count:
    return Count(x.mesh.size, BYTES[x.dtype], x.mesh.cluster)


def _logged(x: Shards, op: str, over: str, count: Count, parts: list[Array], name: str, **changes: Any) -> Shards:
    """Enter a collective into the mesh's log and return its result. A group of one sends nothing and leaves no row."""
    mesh, name = x.mesh, name or x.name
    if count.steps:
        seconds = count.seconds(mesh.torus_axes.get(over))
        mesh.log.append(Traffic(op, name, over, mesh.current_phase, count.steps, count.sent, seconds))
    return made(x, parts, name=name, **changes)
