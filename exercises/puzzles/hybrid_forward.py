"""FSDP x TP: the forward pass of the two-matmul layer on a mesh of two axes.

Weights are stored cut over X (FSDP) and Y (TP); activations over X in the batch and over Y in D. Gather weights over X only,
the input over Y only.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, einsum, reduce_scatter


def solve(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """x: [B_X, D_Y]; w_in: [D_X, F_Y]; w_out: [F_Y, D_X]. Returns [B_X, D_Y]."""
    # cut: open the input over Y, each weight over X; sum over Y into slices
    full = all_gather(x, "D", "Y")
    hidden = einsum("B D, D F -> B F", full, all_gather(w_in, "D", "X"))
    out = reduce_scatter(einsum("B F, F D -> B D", hidden, all_gather(w_out, "D", "X")), "D", "Y")
    # end
    return out


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n, 2), "XY")
    d, f = 2 * n * size, 4 * n
    x, a, b = rng.normal(size=(3 * n, d)), rng.normal(size=(d, f)), rng.normal(size=(f, d))
    return mesh, (mesh.shard(x, "B_X D_Y"), mesh.shard(a, "D_X F_Y"), mesh.shard(b, "F_Y D_X")), (x @ a @ b,)
