"""What a job says of itself: tokens, microbatches, peak, bytes on the wire, torus axes; one plan or a grid of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, ParallelPlan, divisors, with_plan


def test_quantities_of_a_job(gpu_job: Job) -> None:
    assert gpu_job.peak == 989e12
    assert gpu_job.tokens_per_chip == 1024
    assert gpu_job.tokens_per_rank == 131_072
    assert gpu_job.microbatches == 16
    assert with_plan(gpu_job, dp=64, cp=2).plan.chips == 16384
    assert with_plan(gpu_job, dp=64, cp=2).plan.shard_group == 128
    assert with_plan(gpu_job, dp=64, cp=2).microbatches == 32
    assert with_plan(gpu_job, micro_batch=2).microbatches == 8


def test_the_peak_follows_the_precision_but_the_wire_stays_at_16_bits(gpu_job: Job) -> None:
    assert replace(gpu_job, precision="fp8").peak == 1979e12
    assert [replace(gpu_job, precision=p).element_bytes for p in ("fp32", "bf16", "fp8")] == [4, 2, 2]


def test_a_precision_of_unknown_width(gpu_job: Job) -> None:
    with pytest.raises(ValueError, match="unknown precision 'bf8': did you mean"):
        _ = replace(gpu_job, precision="bf8").element_bytes


def test_torus_axes(gpu_job: Job, v5p: Cluster) -> None:
    assert gpu_job.torus_axes == (None, None)
    pod = replace(gpu_job, cluster=v5p)
    assert with_plan(pod, tp=1).torus_axes == (3, 1)
    assert pod.torus_axes == (2, 1)
    assert with_plan(pod, tp_axes=2).torus_axes == (1, 2)
    assert with_plan(pod, dp_axes=1, tp_axes=1).torus_axes == (1, 1)
    assert with_plan(pod, tp_axes=3).torus_axes == (1, 3)


def test_divisors() -> None:
    assert divisors(80) == [1, 2, 4, 5, 8, 10, 16, 20, 40, 80]
    assert divisors(1) == [1]
    assert divisors(49) == [1, 7, 49]
    assert all(d * (d2 := n // d) == n and d2 for n in range(1, 200) for d in divisors(n))
    assert [len(divisors(n)) for n in range(1, 50)] == [sum(n % d == 0 for d in range(1, n + 1)) for n in range(1, 50)]


def test_a_grid_of_plans_is_one_job(gpu_job: Job) -> None:
    dp = np.array([64, 128])
    grid = with_plan(gpu_job, dp=dp, pp=2048 // dp)
    np.testing.assert_array_equal(grid.plan.chips, [16384, 16384])
    np.testing.assert_array_equal(grid.tokens_per_rank, [2**24 / 64, 2**24 / 128])
    np.testing.assert_array_equal(grid.microbatches, [32, 16])


def test_plans_have_the_defaults_of_fsdp() -> None:
    plan = ParallelPlan()
    assert (plan.chips, plan.zero, plan.schedule, plan.recompute) == (1, 3, "1f1b", "none")
    assert plan.sequence_parallel
    assert plan.reshard_after_forward
