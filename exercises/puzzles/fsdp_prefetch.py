"""FSDP with prefetch: the forward pass of five layers whose weights are cut over the devices.

Gather a layer's weight before it is used, drop it afterwards, and have the next one gathered already while this one
computes. At most two gathered layers may live at a time.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, einsum


def solve(x: Shards, weights: list[Shards]) -> Shards:
    """x: [B_X, D]; weights: [D_X, E] each, square. Returns [B_X, D] after all layers."""
    # cut: gather the first layer; in each turn gather the next, compute this one, discard this one
    ready = all_gather(weights[0], "D")
    for layer in range(len(weights)):
        coming = all_gather(weights[layer + 1], "D") if layer + 1 < len(weights) else None
        x = _renamed(einsum("B D, D E -> B E", x, ready))
        ready.discard()
        if coming is not None:
            ready = coming
    # end
    return x


def _renamed(x: Shards) -> Shards:
    """The result as the next layer's input."""
    return Shards(x.mesh, x.name, ("B", "D"), x.axes, x.partial, x.dtype, x._store)


def case(
    n: int, size: int, rng: np.random.Generator
) -> tuple[Mesh, tuple[Shards, list[Shards]], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh, width = Mesh((n,), "X"), n * size
    x = rng.normal(size=(n, width))
    ws = [rng.normal(size=(width, width)) / width for _ in range(5)]
    wanted = x
    for w in ws:
        wanted = wanted @ w
    return mesh, (mesh.shard(x, "B_X D"), [mesh.shard(w, "D_X E") for w in ws]), (wanted,)
