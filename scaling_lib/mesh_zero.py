"""Adam under ZeRO stages 0 to 3 on a virtual mesh: what each rank keeps, and what it must send."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling_lib.mesh import Shards, all_gather, all_reduce, keep, local, reduce_scatter
from scaling_lib.mesh_algorithms import Array, MeshError


@dataclass(frozen=True)
class Adam:
    """Hyperparameters of Adam; the defaults are those of Kingma and Ba 2015."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def update(self, step: int, w: Array, g: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """Weights and both moments after step number `step`, counted from 1."""
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g * g
        direction = (m / (1 - self.beta1**step)) / (np.sqrt(v / (1 - self.beta2**step)) + self.epsilon)
        return w - self.rate * direction, m, v


def zero_layouts(stage: int, axis: str) -> dict[str, str]:
    """Layouts of a weight matrix, its gradient after reduction, and the optimizer state under a ZeRO stage.

    Raises MeshError for a stage other than 0 to 3.
    """
    if stage not in (0, 1, 2, 3):
        raise MeshError(f"there is no ZeRO stage {stage}: use 0 to 3")
    cut, full = f"R_{axis} C", "R C"
    return {
        "weights": cut if stage >= 3 else full,
        "gradients": cut if stage >= 2 else full,
        "optimizer": cut if stage >= 1 else full,
    }


def zero_step(
    adam: Adam, stage: int, w: Shards, g: Shards, m: Shards, v: Shards, step: int
) -> tuple[Shards, Shards, Shards]:
    """One Adam step: new weights and both moments, in the layouts of `zero_layouts`.

    g: gradient with partial sums over the data axis, as backward leaves it; it is discarded once reduced.
    0: all-reduce, every rank updates everything. 1: the same all-reduce, then each rank updates its rows and all gather
    them. 2: a reduce-scatter suffices, half the bytes of the all-reduce. 3: the same, and nothing is gathered, since
    weights stay cut until the next pass needs them.
    """
    axis = g.partial
    layouts = zero_layouts(stage, axis)
    with g.mesh.phase("optimizer"):
        reduced = reduce_scatter(g, "R", name="gradients") if stage >= 2 else all_reduce(g, name="gradients")
        g.discard()
        mine = keep(reduced, "R", axis) if stage == 1 else reduced
        old = keep(w, "R", axis) if stage in (1, 2) else w
        results = local(lambda *a: adam.update(step, *a), old, mine, m, v, out=[layouts["optimizer"]] * 3)
        new = results[0].named("weights")
        return (all_gather(new, "R") if stage in (1, 2) else new), results[1], results[2]
