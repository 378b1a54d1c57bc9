"""Execute the layers on real or simulated devices, on one process or several, and compare with a single device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling_lib import xla_table
from scaling_lib.mesh_algorithms import Array
from scaling_lib.mesh_layers import Strategy
from scaling_lib.xla_layers import MANUAL, load_jax, training_pass

TOLERANCE = 2e-5  # of the largest value: fp32 sums taken in another order


@dataclass(frozen=True)
class Result:
    """Largest difference from one device, as a fraction of the largest value, over outputs and gradients."""

    case: xla_table.Case
    error: float

    @property
    def equal(self) -> bool:
        """Whether the difference is rounding alone."""
        return self.error < TOLERANCE

    def __str__(self) -> str:
        verdict = "equal to one device" if self.equal else "DIFFERS from one device"
        return f"{self.case.layer}, {self.case.name} on {self.case.shape}: {verdict}, largest error {self.error:.0e}"


def execute(case: xla_table.Case, mode: str = MANUAL) -> Result:
    """Run a training pass with seeded numbers on the case's mesh and on one device."""
    jax = load_jax()
    arguments = [0.3 * np.random.default_rng(i).normal(size=s) for i, s in enumerate(xla_table.shapes_of(case))]
    step, cuts = training_pass(case.layer, case.strategy, case.shape, case.axes, mode)
    placed = [
        jax.make_array_from_callback(a.shape, cut, lambda index, a=a: a[index].astype(np.float32))
        for a, cut in zip(arguments, cuts, strict=True)
    ]
    alone, _ = training_pass(case.layer, Strategy(), (1,), "X", MANUAL, local=True)
    expected = alone(*(a.astype(np.float32) for a in arguments))
    got = step(*placed)
    return Result(case, max(_error(a, np.asarray(b)) for a, b in zip(got, expected, strict=True)))


def _error(got: Any, expected: Array) -> float:
    """Largest difference over the shards of all processes."""
    jax = load_jax()
    scale = float(np.abs(expected).max())
    worst = max(float(np.abs(np.asarray(s.data) - expected[s.index]).max()) for s in got.addressable_shards) / scale
    if jax.process_count() == 1:
        return worst
    from jax.experimental import multihost_utils

    return float(np.max(multihost_utils.process_allgather(np.float32(worst))))
