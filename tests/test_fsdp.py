"""Sharded data parallelism by hand on round numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import dp, fsdp
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan
from scaling_lib.model import TransformerConfig, n_params
from scaling_lib.precision import recipe


def test_seconds_by_hand() -> None:
    # two matrices of 32 elements in 2 bytes: gathered once forward; gathered and scattered backward
    assert fsdp.forward_t_comms(4, 8, 1.0) == 128
    assert fsdp.backward_t_comms(4, 8, 1.0) == 256


def test_both_passes_meet_at_the_same_threshold() -> None:
    peak, egress, chips = 459e12, 180e9, 32
    tokens = fsdp.critical_tokens(peak, egress)
    batch = tokens * chips
    assert tokens == 2550
    assert dp.forward_flops(batch, 64, 256, chips) / peak == pytest.approx(fsdp.forward_t_comms(64, 256, egress))
    assert dp.backward_flops(batch, 64, 256, chips) / peak == pytest.approx(fsdp.backward_t_comms(64, 256, egress))
    assert fsdp.critical_tokens(peak, egress, 3) == 850


def test_traffic_against_dp(round_job: Job) -> None:
    for reshard, ratio in ((True, 1.5), (False, 1.0)):
        job = with_plan(round_job, reshard_after_forward=reshard)
        assert fsdp.traffic_ratio(reshard) == ratio
        assert fsdp.wire_bytes(job).total / dp.wire_bytes(job).total == pytest.approx(ratio)
    assert fsdp.traffic_ratio() == 1.5


def test_state_of_llama_70b(llama: TransformerConfig) -> None:
    state = fsdp.state_bytes_per_chip(n_params(llama), recipe("bf16").total, 64)
    assert state == 70_553_706_496 * 16 / 64
    assert fsdp.state_bytes_per_chip(100, 16, 1) == 1600


def test_a_job_by_hand(round_job: Job) -> None:
    times = fsdp.times(round_job)
    assert times.forward_comms == 128 * (1 / 2) / 4 == 16
    assert times.backward_comms == 32
    assert times.bound == 48
    assert times.mfu_cap == pytest.approx(0.64)
    assert fsdp.is_compute_bound(round_job) is False
    assert fsdp.critical_batch(round_job) == pytest.approx(100)
    assert fsdp.flops(round_job).total == 3072


def test_a_job_by_hand_with_weights_kept(round_job: Job) -> None:
    kept = with_plan(round_job, reshard_after_forward=False)
    assert (fsdp.times(kept).forward_comms, fsdp.times(kept).backward_comms) == (16, 16)
    assert fsdp.critical_batch(kept) == pytest.approx(100)  # the forward gather decides


def test_fp32_gradients_move_the_backward_threshold(round_job: Job) -> None:
    wide = replace(round_job, recipe=recipe("megatron"))
    assert fsdp.times(wide).forward_comms == 16
    assert fsdp.times(wide).backward_comms == 16 + 32
    assert fsdp.critical_batch(wide) == pytest.approx(64 * 48 / 20.48)


def test_bytes_by_hand(round_job: Job) -> None:
    rows = {p.name: p.value for p in fsdp.wire_bytes(round_job)}
    assert rows == {
        "forward/all_gather weights": 112,
        "backward/all_gather weights": 112,
        "backward/reduce_scatter gradients": 112,
    }
    kept = fsdp.wire_bytes(with_plan(round_job, reshard_after_forward=False))
    assert kept["backward/all_gather weights"] == 0
    assert kept.parts[1].formula == "kept from forward"
    assert fsdp.wire_bytes(replace(round_job, recipe=recipe("megatron")))["backward/reduce_scatter gradients"] == 224


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_inner_tp_does_not_shrink_what_a_node_gathers(gpu_job: Job, tp: int) -> None:
    flat = fsdp.times(with_plan(gpu_job, dp=16384, tp=1, pp=1)).forward_comms
    inner = fsdp.times(with_plan(gpu_job, dp=16384 // tp, tp=tp, pp=1))
    assert inner.forward_comms == pytest.approx(flat)
    assert inner.forward_math == pytest.approx(fsdp.times(with_plan(gpu_job, dp=16384, tp=1, pp=1)).forward_math)


def test_at_the_critical_batch_the_job_is_just_compute_bound(gpu_job: Job) -> None:
    batch = fsdp.critical_batch(gpu_job)
    assert fsdp.is_compute_bound(replace(gpu_job, batch_tokens=batch * 1.0001))
    assert not fsdp.is_compute_bound(replace(gpu_job, batch_tokens=batch * 0.9999))


def test_a_grid_of_plans_is_one_call(gpu_job: Job) -> None:
    tp = np.array([1, 2, 4, 8])
    grid_job = with_plan(gpu_job, dp=1024 // tp, tp=tp, pp=1)
    for function in (fsdp.critical_batch, fsdp.is_compute_bound, lambda j: fsdp.wire_bytes(j).total):
        singles = [function(with_plan(gpu_job, dp=1024 // int(t), tp=int(t), pp=1)) for t in tp]
        np.testing.assert_allclose(function(grid_job), singles, rtol=1e-14)


def test_a_torus_gives_the_axes_of_the_plan(gpu_job: Job, v5p: Cluster) -> None:
    pod = with_plan(replace(gpu_job, cluster=v5p), dp=128, tp=8)
    gathered = 2 * 8192 * 28672 * 2 / 8 * 127 / 128
    for axes in (1, 2):
        assert fsdp.times(with_plan(pod, dp_axes=axes)).forward_comms == pytest.approx(gathered / (axes * 180e9))
    assert fsdp.times(pod).forward_comms == pytest.approx(gathered / (2 * 180e9))  # TP keeps one axis of three


def test_the_ledger_as_printed(round_job: Job) -> None:
    assert str(fsdp.wire_bytes(round_job)).splitlines() == [
        "Bytes sent by one chip for one layer, FSDP",
        "forward/all_gather weights         112 B  33.3%  V (X-1)/X",
        "backward/all_gather weights        112 B  33.3%  V (X-1)/X",
        "backward/reduce_scatter gradients  112 B  33.3%  V (X-1)/X",
        "total                              336 B   100%",
    ]
