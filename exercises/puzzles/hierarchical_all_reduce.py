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


# The checker's part: cases, and what people often write instead.


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n, 8), "ZX", cluster=cluster("dgx-h100"))
    a, b = rng.normal(size=(8 * n, 8 * size)), rng.normal(size=(8 * n, 3))
    partial = einsum("B D, B E -> D E", mesh.shard(a, "B_ZX D"), mesh.shard(b, "B_ZX E"))
    return mesh, (partial,), (a.T @ b,)


def order(trace: list[tuple[str, str]]) -> str:
    """What is wrong with the moves, empty when nothing is: the hierarchy is to be built, not asked for."""
    if any(kind == "network" and label.endswith(" ZX") for kind, label in trace):
        return "one collective over both axes plans the levels for you; build them from collectives over one axis each"
    return ""


MISTAKES = (
    ("one collective for both axes", "the mesh plans the levels of a collective over both axes; build them yourself, one axis at a time.",
     lambda g: all_reduce(g)),
    ("inside first, all of it", "an all-reduce inside leaves the whole gradient on each GPU, and all of it crosses the nodes; scatter inside.",
     lambda g: all_reduce(all_reduce(g, "X"), "Z")),
    ("across first, all of it", "the whole gradient crosses the nodes before anything is summed inside; scatter inside first.",
     lambda g: all_reduce(all_reduce(g, "Z"), "X")),
    ("scattered across the nodes", "the first step crosses the nodes with the whole gradient; scatter over X, inside the node.",
     lambda g: all_gather(all_reduce(reduce_scatter(g, "D", "Z"), "X"), "D", "Z")),
    ("no sum between nodes", "every node has summed its own GPUs alone; all-reduce the slices over Z.",
     lambda g: all_gather(reduce_scatter(g, "D", "X"), "D", "X")),
    ("left in slices", "each GPU still has a slice of D; gather inside the node.",
     lambda g: all_reduce(reduce_scatter(g, "D", "X"), "Z")),
    ("no collective", "the gradient is still a term on each device: sum it over both axes.", lambda g: g),
)
