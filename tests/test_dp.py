"""Data parallelism by hand on round numbers, and the thresholds of the course."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import dp
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan
from scaling_lib.precision import recipe


def test_two_matmuls_forward_four_backward() -> None:
    # 6 tokens on each of 2 chips, 4 x 8 matrices: a matmul is 2 x 6 x 4 x 8 = 384
    assert dp.forward_flops(12, 4, 8, 2) == 2 * 384
    assert dp.backward_flops(12, 4, 8, 2) == 4 * 384
    assert dp.t_math(12, 4, 8, 2, 1536) == 1


def test_gradients_travel_twice_in_two_bytes() -> None:
    # two matrices of 32 elements, 2 bytes each, sent twice
    assert dp.t_comms(4, 8, 1.0) == 2 * 32 * 2 * 2


def test_threshold_is_where_the_times_meet() -> None:
    peak, egress = 989e12, 400e9
    tokens = dp.critical_tokens(peak, egress)
    assert tokens == 2472.5
    assert dp.t_math(tokens * 64, 8192, 28672, 64, peak) == pytest.approx(dp.t_comms(8192, 28672, egress))
    assert dp.t_math(tokens * 63, 8192, 28672, 64, peak) < dp.t_comms(8192, 28672, egress)


def test_axes_of_a_torus_divide_the_threshold() -> None:
    assert [dp.critical_tokens(459e12, 180e9, axes) for axes in (1, 2, 3)] == [2550, 1275, 850]


def test_largest_model_on_one_chip() -> None:
    assert dp.max_params(80e9, 16) == 5e9
    assert dp.max_params(96e9, 10) == 9.6e9


def test_a_job_by_hand(round_job: Job) -> None:
    times = dp.times(round_job)
    assert (times.forward_math, times.backward_math) == (10.24, 20.48)
    assert times.forward_comms == 0
    assert times.backward_comms == 2 * 128 * (1 / 2) / 4 == 32  # two domains of 4; inside it takes 19.2 s
    assert dp.flops(round_job).total == 3072
    assert dp.is_compute_bound(round_job) is False
    assert dp.critical_batch(round_job) == pytest.approx(100)


def test_bytes_by_hand(round_job: Job) -> None:
    sent = dp.wire_bytes(round_job)
    assert [p.name for p in sent] == ["forward/none", "backward/all_reduce gradients"]
    assert sent["forward"] == 0
    assert sent["backward"] == 2 * 128 * 7 / 8
    assert dp.wire_bytes(with_plan(round_job, dp=4, cp=2)).total == sent.total  # CP ranks reduce too
    assert dp.wire_bytes(replace(round_job, recipe=recipe("megatron"))).total == 2 * sent.total
    assert dp.wire_bytes(with_plan(round_job, dp=2, tp=4)).total == 2 * 32 * 1 / 2


def test_at_the_critical_batch_the_job_is_just_compute_bound(round_job: Job) -> None:
    batch = dp.critical_batch(round_job)
    assert dp.is_compute_bound(replace(round_job, batch_tokens=batch * 1.0001))
    assert not dp.is_compute_bound(replace(round_job, batch_tokens=batch * 0.9999))


def test_many_chips_approach_the_threshold(gpu_job: Job) -> None:
    wide = with_plan(replace(gpu_job, chips=2**17), dp=2**17, tp=1, pp=1)
    exact = dp.critical_batch(wide) / 2**17
    assert exact == pytest.approx(dp.critical_tokens(989e12, 400e9), rel=1e-4)
    assert exact < dp.critical_tokens(989e12, 400e9)


def test_a_pipeline_across_nodes_lowers_the_threshold_per_chip(gpu_job: Job) -> None:
    # the same 16384 chips: with 16 stages a rank sees 16 times the tokens for the same gradient traffic
    flat = with_plan(gpu_job, dp=2048, tp=8, pp=1)
    deep = with_plan(gpu_job, dp=128, tp=8, pp=16)
    ratio = dp.critical_batch(flat) / dp.critical_batch(deep)
    assert ratio == pytest.approx(16 * (2047 / 2048) / (127 / 128))


def test_the_torus_of_a_job(v5p: Cluster, gpu_job: Job) -> None:
    pod = replace(with_plan(gpu_job, dp=4096, tp=1, pp=1), cluster=v5p, chips=4096)
    assert dp.critical_batch(pod) / 4096 == pytest.approx(850, rel=1e-3)
    one_axis = with_plan(pod, dp_axes=1)
    assert dp.critical_batch(one_axis) / 4096 == pytest.approx(2550, rel=1e-3)


def test_a_grid_of_plans_is_one_call(gpu_job: Job) -> None:
    degrees = np.array([64, 128, 1024, 2048])
    grid_job = with_plan(gpu_job, dp=degrees, tp=8, pp=1)
    for function in (
        dp.critical_batch,
        dp.is_compute_bound,
        lambda j: dp.times(j).mfu_cap,
        lambda j: dp.wire_bytes(j).total,
    ):
        singles = [function(with_plan(gpu_job, dp=int(d), tp=8, pp=1)) for d in degrees]
        np.testing.assert_allclose(function(grid_job), singles, rtol=1e-14)


def test_the_ledger_as_printed(round_job: Job) -> None:
    assert str(dp.wire_bytes(round_job)).splitlines() == [
        "Bytes sent by one chip for one layer, DP",
        "forward/none                     0 B    0%  weights are local",
        "backward/all_reduce gradients  224 B  100%  2 V (X-1)/X",
        "total                          224 B  100%",
    ]
