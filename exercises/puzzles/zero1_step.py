"""A ZeRO-1 step: gradients are summed, each device updates its slice of the weights, all get the new weights.

The optimizer here is plain momentum. Its state is cut over X and must stay so; weights are whole on each device. An all-reduce
of the gradients followed by an update everywhere would need the whole state.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, keep, local, reduce_scatter

RATE, DECAY = 0.1, 0.9


def solve(weight: Shards, gradient: Shards, momentum: Shards) -> tuple[Shards, Shards]:
    """weight: [D, E]; gradient: [D, E]{U_X}; momentum: [D_X, E]. Returns the new weight [D, E] and momentum [D_X, E]."""
    # cut: sum into slices, update the slices, give everyone the weights
    slices = reduce_scatter(gradient, "D")
    momentum = local(lambda m, g: DECAY * m + g, momentum, slices)
    updated = local(lambda w, m: w - RATE * m, keep(weight, "D", "X"), momentum)
    weight = all_gather(updated, "D")
    # end
    return weight, momentum


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    from scaling_lib.mesh import einsum

    mesh, d = Mesh((n,), "X"), n * size
    a, b = rng.normal(size=(2 * n, d)), rng.normal(size=(2 * n, 3))
    w, m = rng.normal(size=(d, 3)), rng.normal(size=(d, 3))
    gradient = einsum("B D, B E -> D E", mesh.shard(a, "B_X D"), mesh.shard(b, "B_X E"))
    moved = DECAY * m + a.T @ b
    return mesh, (mesh.shard(w, "D E"), gradient, mesh.shard(m, "D_X E")), (w - RATE * moved, moved)
