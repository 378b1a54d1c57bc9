"""A sequence-parallel block: the two matmuls of an MLP under tensor parallelism.

Between blocks each device keeps a slice of D. Open the input once, multiply with the own slice of F, and hand the
output back in slices, with a gather and a reduce-scatter and no all-reduce.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, einsum, reduce_scatter


def solve(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """x: [B, D_Y]; w_in: [D, F_Y]; w_out: [F_Y, D]. Returns [B, D_Y]."""
    # cut: gather the input, multiply twice, sum the terms into slices
    full = all_gather(x, "D")
    hidden = einsum("B D, D F -> B F", full, w_in)
    out = reduce_scatter(einsum("B F, F D -> B D", hidden, w_out), "D")
    # end
    return out


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "Y")
    x, a, b = rng.normal(size=(5, n * size)), rng.normal(size=(n * size, 4 * n)), rng.normal(size=(4 * n, n * size))
    return mesh, (mesh.shard(x, "B D_Y"), mesh.shard(a, "D F_Y"), mesh.shard(b, "F_Y D")), (x @ a @ b,)
