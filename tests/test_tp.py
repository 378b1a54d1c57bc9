"""Tensor parallelism by hand on round numbers, and the degree that Llama 3 70B bears."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import fsdp, tp
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan


@pytest.fixture
def tensor_job(round_job: Job) -> Job:
    """The round job as 2 replicas of TP 4: 32 tokens a rank, 256 bytes of activations."""
    return with_plan(round_job, dp=2, tp=4)


def test_seconds_by_hand() -> None:
    assert tp.t_math(6, 4, 8, 2, 384) == 1  # two matmuls of 2 x 6 x 4 x 8 over two chips
    assert tp.t_comms(6, 4, 1.0) == 2 * (6 * 4 * 2)  # a gather and a reduce-scatter of 24 elements in 2 bytes


def test_the_degree_is_where_the_times_meet() -> None:
    peak, egress, d_ff = 989e12, 450e9, 28672
    degree = tp.max_degree(d_ff, peak, egress)
    assert degree == pytest.approx(13.046, abs=0.001)
    assert tp.t_math(1, 8192, d_ff, degree, peak) == pytest.approx(tp.t_comms(1, 8192, egress))
    assert tp.critical_d_ff(degree, peak, egress) == pytest.approx(d_ff)
    assert tp.max_degree(d_ff, peak, egress, 2) == pytest.approx(2 * degree)
    assert tp.critical_d_ff(8, peak, egress) == pytest.approx(8 * 2197.78, rel=1e-5)


@pytest.mark.parametrize(("form", "width"), [("two-matmul", 28672), ("gated", 43008), ("full", 26112)])
def test_the_limit_of_llama_70b_by_layer_form(gpu_job: Job, form: str, width: int) -> None:
    assert tp.max_tp(replace(gpu_job, layer=form)) == pytest.approx(width * 450e9 / 989e12)


def test_the_limit_on_a_torus_counts_its_axes(gpu_job: Job, v5p: Cluster) -> None:
    pod = replace(gpu_job, cluster=v5p)
    assert tp.max_tp(pod) == pytest.approx(28672 / 2550)
    assert tp.max_tp(with_plan(pod, tp_axes=2)) == pytest.approx(2 * 28672 / 2550)


def test_a_job_by_hand(tensor_job: Job) -> None:
    times = tp.times(tensor_job)
    assert (times.forward_math, times.backward_math) == (10.24, 20.48)
    assert times.forward_comms == pytest.approx(2 * 256 * 3 / 4 / 10)
    assert times.backward_comms == pytest.approx(38.4)
    assert tp.times(tensor_job, regather=True).backward_comms == pytest.approx(57.6)
    assert tp.times(tensor_job, regather=True).forward_comms == times.forward_comms
    assert tp.flops(tensor_job).total == 3072
    assert not tp.is_compute_bound(tensor_job)


def test_no_tp_sends_nothing(round_job: Job) -> None:
    assert tp.times(round_job).comms == 0
    assert tp.wire_bytes(round_job).total == 0
    assert tp.is_compute_bound(round_job)


def test_bytes_by_hand(tensor_job: Job) -> None:
    sent = tp.wire_bytes(tensor_job)
    assert sent["forward"] == 2 * 192
    assert sent["backward"] == 2 * 192
    again = tp.wire_bytes(tensor_job, regather=True)
    assert again["backward"] == 3 * 192
    assert again.parts[-1].name == "backward/all_gather input again"
    assert tp.wire_bytes(replace(tensor_job, layer="full")).total == 2 * sent.total  # attention gathers as much
    assert tp.wire_bytes(replace(tensor_job, precision="fp32")).total == 2 * sent.total


def test_traffic_over_fsdp_is_the_ratio_of_the_bytes(tensor_job: Job) -> None:
    # 8 x 32 tokens x 4 wide, over 12 x 4 x 8 / 4, in bytes of the full arrays
    assert tp.traffic_over_fsdp(32, 8, 4) == 8 * 32 * 4 / (12 * 4 * 8 / 4)
    shares = (tensor_job.plan.tp - 1) / tensor_job.plan.tp, (tensor_job.plan.dp - 1) / tensor_job.plan.dp
    arrays = (tp.wire_bytes(tensor_job).total / shares[0]) / (fsdp.wire_bytes(tensor_job).total / shares[1])
    assert tp.traffic_over_fsdp(tensor_job.tokens_per_rank, 8, 4) == pytest.approx(arrays)


def at_egress(job: Job, egress: float) -> Job:
    """The job with another bandwidth inside the domain."""
    inner, outer = job.cluster.levels
    return replace(job, cluster=replace(job.cluster, levels=(replace(inner, egress=egress), outer)))


def test_regathering_never_tips_the_verdict(round_job: Job) -> None:
    # TP 2 of 16 tokens a rank: two collectives of 64 bytes against 10.24 s forward meet at 12.5 B/s
    job = with_plan(round_job, dp=4, tp=2)
    assert tp.times(at_egress(job, 12.5)).forward_comms == pytest.approx(10.24)
    for egress, hidden in ((12.4, False), (12.6, True)):
        assert bool(tp.is_compute_bound(at_egress(job, egress))) is hidden
        assert tp.times(at_egress(job, egress), regather=True).compute_bound is hidden


def test_a_torus_gives_the_axes_of_the_plan(gpu_job: Job, v5p: Cluster) -> None:
    pod = with_plan(replace(gpu_job, cluster=v5p), dp=128, tp=8)
    one, two = (tp.times(with_plan(pod, tp_axes=axes)) for axes in (1, 2))
    assert one.forward_comms == pytest.approx(2 * (131072 * 8192 * 2) * 7 / 8 / 180e9)
    assert one.forward_comms == pytest.approx(2 * two.forward_comms)


def test_a_grid_of_plans_is_one_call(gpu_job: Job) -> None:
    degrees = np.array([1, 2, 4, 8])
    grid_job = with_plan(gpu_job, dp=1024 // degrees, tp=degrees, pp=1)
    for function in (lambda j: tp.times(j).comms, tp.is_compute_bound, lambda j: tp.wire_bytes(j, True).total):
        singles = [function(with_plan(gpu_job, dp=1024 // int(t), tp=int(t), pp=1)) for t in degrees]
        np.testing.assert_allclose(function(grid_job), singles, rtol=1e-14)


def test_the_ledger_as_printed(tensor_job: Job) -> None:
    assert str(tp.wire_bytes(tensor_job, regather=True)).splitlines() == [
        "Bytes sent by one chip for one layer, TP",
        "forward/all_gather input                192 B  20.0%  V (Y-1)/Y",
        "forward/reduce_scatter output           192 B  20.0%  V (Y-1)/Y",
        "backward/all_gather output gradient     192 B  20.0%  V (Y-1)/Y",
        "backward/reduce_scatter input gradient  192 B  20.0%  V (Y-1)/Y",
        "backward/all_gather input again         192 B  20.0%  V (Y-1)/Y",
        "total                                   960 B   100%",
    ]
