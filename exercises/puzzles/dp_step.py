"""Data parallelism with buckets: one training step of three linear layers.

Every device has all weights and its own rows of the batch. Compute the gradient of each layer and reduce it as soon as it
exists, layer by layer from the last to the first (its bucket), so that the reduction could hide behind the rest of backward.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_reduce, einsum


def solve(x: Shards, weights: list[Shards], d_out: Shards) -> list[Shards]:
    """x, d_out: [B_X, D]; weights: [D, E] each, square. Returns the reduced gradients, first layer first."""
    kept = [x]
    for w in weights:
        kept.append(_renamed(einsum("B D, D E -> B E", kept[-1], w), ("B", "D")))
    gradients: list[Shards] = []
    d = d_out
    # cut: walk the layers backwards; reduce each gradient before you go on to the layer below
    for layer in reversed(range(len(weights))):
        own = einsum("B D, B E -> D E", kept[layer], _renamed(d, ("B", "E")), name=f"layer {layer}")
        gradients.insert(0, all_reduce(own, "X", name=f"layer {layer}"))
        d = einsum("B E, D E -> B D", _renamed(d, ("B", "E")), weights[layer])
    # end
    return gradients


def _renamed(x: Shards, dims: tuple[str, str]) -> Shards:
    """The same shards with other names of their dimensions."""
    return Shards(x.mesh, x.name, dims, x.axes, x.partial, x.dtype, x._store)


def case(
    n: int, size: int, rng: np.random.Generator
) -> tuple[Mesh, tuple[Shards, list[Shards], Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "X")
    x, d = rng.normal(size=(2 * n, size)), rng.normal(size=(2 * n, size))
    ws = [rng.normal(size=(size, size)) for _ in range(3)]
    inputs = [x]
    for w in ws:
        inputs.append(inputs[-1] @ w)
    wanted, grad = [], d
    for i in reversed(range(3)):
        wanted.insert(0, inputs[i].T @ grad)
        grad = grad @ ws[i].T
    arguments = (mesh.shard(x, "B_X D"), [mesh.shard(w, "D E") for w in ws], mesh.shard(d, "B_X D"))
    return mesh, arguments, tuple(wanted)
