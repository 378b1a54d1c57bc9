"""A sequence-parallel block: the two matmuls of an MLP under tensor parallelism.

Between blocks each device keeps a slice of D. Open the input once, multiply with the own slice of F, and hand the
output back in slices, with a gather and a reduce-scatter and no all-reduce.
`einsum` names dimensions without their axes, as in "B D, D F -> B F"; `all_gather` takes the dimension to be whole.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, all_reduce, einsum, keep, reduce_scatter


def solve(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """x: [B, D_Y]; w_in: [D, F_Y]; w_out: [F_Y, D]. Returns [B, D_Y]."""
    # cut: gather the input, multiply twice, sum the terms into slices
    full = all_gather(x, "D")
    hidden = einsum("B D, D F -> B F", full, w_in)
    out = reduce_scatter(einsum("B F, F D -> B D", hidden, w_out), "D")
    # end
    return out


# The checker's part: cases, and what people often write instead.


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "Y")
    x, a, b = rng.normal(size=(5, n * size)), rng.normal(size=(n * size, 4 * n)), rng.normal(size=(4 * n, n * size))
    return mesh, (mesh.shard(x, "B D_Y"), mesh.shard(a, "D F_Y"), mesh.shard(b, "F_Y D")), (x @ a @ b,)


def _block(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    """Terms of the output, not summed."""
    hidden = einsum("B D, D F -> B F", all_gather(x, "D"), w_in)
    return einsum("B F, F D -> B D", hidden, w_out)


def _weights_travel(x: Shards, w_in: Shards, w_out: Shards) -> Shards:
    hidden = einsum("B D, D F -> B F", all_gather(x, "D"), all_gather(w_in, "F"))
    return keep(einsum("B F, F D -> B D", hidden, all_gather(w_out, "F")), "D", "Y")


MISTAKES = (
    ("an all-reduce, then a slice", "an all-reduce sends twice what a reduce-scatter does, and gives all of D, of which you keep a slice.",
     lambda x, a, b: keep(all_reduce(_block(x, a, b), "Y"), "D", "Y")),
    ("an all-reduce", "between blocks each device keeps a slice of D; you return all of it, at twice the bytes.",
     lambda x, a, b: all_reduce(_block(x, a, b), "Y")),
    ("no sum", "each device has the terms of its own slice of F; sum them over Y, into slices.", _block),
    ("a closed input", "the input is a slice of D, but the first matmul needs all of D: gather it.",
     lambda x, a, b: einsum("B D, D F -> B F", x, a)),
    ("the weights travel", "the weights are gathered, but each device can multiply with the slice of F it has.", _weights_travel),
    ("opened again", "the output is gathered at the end; the next block does that itself, when it needs it.",
     lambda x, a, b: all_gather(solve(x, a, b), "D")),
)
