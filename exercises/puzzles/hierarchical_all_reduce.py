"""Hierarchical all-reduce: nodes along Z, GPUs of a node along X.

Sum a gradient over all devices so that as little as possible crosses between nodes: scatter inside the node, all-reduce
the slices across nodes, gather inside.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.hardware import cluster
from scaling_lib.mesh import Mesh, Shards, all_gather, all_reduce, einsum, reduce_scatter


def solve(gradient: Shards) -> Shards:
    """gradient: [D, E]{U_ZX}, partial over both axes. Returns [D, E], the sum on every device."""
    # cut: three collectives, the middle one alone between nodes
    slices = reduce_scatter(gradient, "D", "X")
    summed = all_reduce(slices, "Z")
    whole = all_gather(summed, "D", "X")
    # end
    return whole


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n, 8), "ZX", cluster=cluster("dgx-h100"))
    a, b = rng.normal(size=(8 * n, 8 * size)), rng.normal(size=(8 * n, 3))
    partial = einsum("B D, B E -> D E", mesh.shard(a, "B_ZX D"), mesh.shard(b, "B_ZX E"))
    return mesh, (partial,), (a.T @ b,)
