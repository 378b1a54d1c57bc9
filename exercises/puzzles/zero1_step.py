"""A ZeRO-1 step: gradients are summed, each device updates its slice of the weights, all get the new weights.

The optimizer here is plain momentum. Its state is cut over X and must stay so; weights are whole on each device. An all-reduce
of the gradients followed by an update everywhere would need the whole state.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, all_reduce, keep, local, reduce_scatter

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


# The checker's part: cases, and what people often write instead.


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, ...], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    from scaling_lib.mesh import einsum

    mesh, d = Mesh((n,), "X"), n * size
    a, b = rng.normal(size=(2 * n, d)), rng.normal(size=(2 * n, 3))
    w, m = rng.normal(size=(d, 3)), rng.normal(size=(d, 3))
    gradient = einsum("B D, B E -> D E", mesh.shard(a, "B_X D"), mesh.shard(b, "B_X E"))
    moved = DECAY * m + a.T @ b
    return mesh, (mesh.shard(w, "D E"), gradient, mesh.shard(m, "D_X E")), (w - RATE * moved, moved)


def _step(
    weight: Shards, gradient: Shards, momentum: Shards, decay: float = DECAY, rate: float = RATE, scale: float = 1.0
) -> tuple[Shards, Shards]:
    """The step with another number somewhere; the weight still in slices."""
    slices = reduce_scatter(gradient, "D")
    momentum = local(lambda m, g: decay * m + scale * g, momentum, slices)
    return local(lambda w, m: w - rate * m, keep(weight, "D", "X"), momentum), momentum


def _everywhere(weight: Shards, gradient: Shards, momentum: Shards, cut: bool = True) -> tuple[Shards, Shards]:
    summed, whole = all_reduce(gradient), all_gather(momentum, "D")
    whole = local(lambda m, g: DECAY * m + g, whole, summed)
    return local(lambda w, m: w - RATE * m, weight, whole), keep(whole, "D", "X") if cut else whole


def _all_reduced(weight: Shards, gradient: Shards, momentum: Shards) -> tuple[Shards, Shards]:
    slices = keep(all_reduce(gradient), "D", "X")
    momentum = local(lambda m, g: DECAY * m + g, momentum, slices)
    return all_gather(local(lambda w, m: w - RATE * m, keep(weight, "D", "X"), momentum), "D"), momentum


def _given(step: tuple[Shards, Shards]) -> tuple[Shards, Shards]:
    return all_gather(step[0], "D"), step[1]


MISTAKES = (
    ("an update everywhere", "the state is gathered and every device updates all weights; update your own slice alone.", _everywhere),
    ("the state left whole", "the momentum must stay cut over X; you return all of it, which is what ZeRO is to save.",
     lambda w, g, m: _everywhere(w, g, m, cut=False)),
    ("an all-reduce for a reduce-scatter", "the update needs a slice of the summed gradient alone; a reduce-scatter sends half.", _all_reduced),
    ("the weights left in slices", "every device needs the new weights for the next forward pass; gather them.", _step),
    ("unreduced gradients", "the gradient holds terms of each device's own rows; sum them before the update.",
     lambda w, g, m: local(lambda a, b: DECAY * a + b, m, keep(g, "D", "X"))),
    ("an average for a sum", "the loss is summed over the batch, so the gradients are summed and not averaged.",
     lambda w, g, m: _given(_step(w, g, m, scale=1 / w.mesh.size))),
    ("no decay", "the old momentum counts DECAY times.", lambda w, g, m: _given(_step(w, g, m, decay=1.0))),
    ("uphill", "the weights go against the gradient: w - RATE m.", lambda w, g, m: _given(_step(w, g, m, rate=-RATE))),
)
