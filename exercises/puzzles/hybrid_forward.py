"""FSDP x TP: the forward pass of the two-matmul layer on a mesh of two axes.

Weights are stored cut over X (FSDP) and Y (TP); activations over X in the batch and over Y in D. Gather weights over X only,
the input over Y only.
`einsum` names dimensions without their axes, as in "B D, D F -> B F"; `all_gather` takes the dimension to be whole, then the axis.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, all_reduce, einsum, keep, reduce_scatter


def solve(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """x: [B_X, D_Y]; w_in: [D_X, F_Y]; w_out: [F_Y, D_X]. Returns [B_X, D_Y]."""
    # cut: open the input over Y, each weight over X; sum over Y into slices
    full = all_gather(x, "D", "Y")
    hidden = einsum("B D, D F -> B F", full, all_gather(w_in, "D", "X"))
    out = reduce_scatter(einsum("B F, F D -> B D", hidden, all_gather(w_out, "D", "X")), "D", "Y")
    # end
    return out


# The checker's part: cases, and what people often write instead.


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n, 2), "XY")
    d, f = 2 * n * size, 4 * n
    x, a, b = rng.normal(size=(3 * n, d)), rng.normal(size=(d, f)), rng.normal(size=(f, d))
    return mesh, (mesh.shard(x, "B_X D_Y"), mesh.shard(a, "D_X F_Y"), mesh.shard(b, "F_Y D_X")), (x @ a @ b,)


def _terms(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """Terms of the output, not summed over Y."""
    hidden = einsum("B D, D F -> B F", all_gather(x, "D", "Y"), all_gather(w_in, "D", "X"))
    return einsum("B F, F D -> B D", hidden, all_gather(w_out, "D", "X"))


def _no_tensor_parallelism(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    full, first = all_gather(x, "D", "Y"), all_gather(all_gather(w_in, "D", "X"), "F", "Y")
    second = all_gather(all_gather(w_out, "D", "X"), "F", "Y")
    return keep(einsum("B F, F D -> B D", einsum("B D, D F -> B F", full, first), second), "D", "Y")


def _whole_batch(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    return keep(solve(all_gather(x, "B", "X"), w_in, w_out), "B", "X")


MISTAKES = (
    ("weights gathered over both axes", "TP keeps its slice of F; gather weights over X alone.", _no_tensor_parallelism),
    ("the batch gathered", "FSDP keeps the batch cut over X; it is the weights that are gathered over X.", _whole_batch),
    ("a closed input", "the input is a slice of D over Y, but the first matmul needs all of D: gather it over Y.",
     lambda x, a, b: einsum("B D, D F -> B F", x, all_gather(a, "D", "X"))),
    ("weights still cut", "the weight is still cut over X in D; gather it before the layer computes.",
     lambda x, a, b: einsum("B D, D F -> B F", all_gather(x, "D", "Y"), a)),
    ("an all-reduce", "sum over Y into slices of D, as the next layer wants its input; an all-reduce sends twice the bytes.",
     lambda x, a, b: all_reduce(_terms(x, a, b), "Y")),
    ("no sum", "each TP rank has the terms of its own slice of F; sum them over Y, into slices.", _terms),
)
