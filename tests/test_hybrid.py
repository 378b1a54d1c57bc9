"""FSDP x TP: the best split found by search, the threshold of one fabric, and the two networks of a GPU cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import fsdp, hybrid, tp
from scaling_lib.job import Job, with_plan


@pytest.fixture
def mixed_job(round_job: Job) -> Job:
    return with_plan(round_job, dp=2, tp=4)


def test_seconds_by_hand() -> None:
    assert hybrid.t_fsdp(4, 8, 2, 1.0) == 2 * 4 * 8 * 2 / 2
    assert hybrid.t_tp(6, 4, 3, 1.0) == 2 * (6 / 3) * 4 * 2


def test_the_best_split_found_by_search() -> None:
    batch, d_model, d_ff, chips, wx, wy = 2**20, 8192, 28672, 4096, 360e9, 180e9
    degrees = np.geomspace(1, chips, 200_001)
    slower = np.maximum(hybrid.t_fsdp(d_model, d_ff, chips / degrees, wx), hybrid.t_tp(batch, d_model, degrees, wy))
    best = hybrid.x_opt(batch, d_ff, chips, wx, wy)
    assert best == pytest.approx(degrees[slower.argmin()], rel=1e-3)
    assert best == pytest.approx((2**20 / 28672 * 2 * 4096) ** 0.5)


@pytest.mark.parametrize(("combine", "overlap"), [("max", np.maximum), ("sum", np.add)])
def test_the_threshold_found_by_search(combine: str, overlap: np.ufunc) -> None:
    peak, d_model, d_ff, chips, wx, wy = 459e12, 8192, 28672, 4096, 360e9, 180e9
    degrees = np.geomspace(1, chips, 20_001)
    tokens = hybrid.critical_tokens(peak, wx, wy, d_ff, combine)
    for factor, hidden in ((1.001, True), (0.999, False)):
        batch = tokens * factor * chips
        math = 4 * batch * d_model * d_ff / (chips * peak)
        weights = hybrid.t_fsdp(d_model, d_ff, chips / degrees, wx)
        activations = hybrid.t_tp(batch, d_model, degrees, wy)
        assert bool((overlap(weights, activations) <= math).any()) is hidden


def test_the_threshold_of_a_v5p_pod() -> None:
    # alpha 2550 on one axis, two axes for FSDP and one for TP
    tokens = hybrid.critical_tokens(459e12, 2 * 180e9, 180e9, 28672)
    assert tokens == pytest.approx(2550**2 / (2 * 28672))
    assert hybrid.critical_tokens(459e12, 2 * 180e9, 180e9, 28672, "sum") == 4 * tokens


def test_unknown_combinations(mixed_job: Job) -> None:
    with pytest.raises(ValueError, match="unknown combine 'mean': use one of max, sum"):
        hybrid.critical_tokens(1.0, 1.0, 1.0, 1.0, "mean")
    with pytest.raises(ValueError, match="unknown combine 'mean': use one of max, sum"):
        hybrid.times(mixed_job, "mean")


def test_a_job_by_hand(mixed_job: Job) -> None:
    # weights: 32 bytes over two nodes at 1 B/s, 16 s a gather; activations: 19.2 s a collective
    times = hybrid.times(mixed_job)
    assert (times.forward_comms, times.backward_comms) == (pytest.approx(38.4), pytest.approx(38.4))
    added = hybrid.times(mixed_job, "sum")
    assert (added.forward_comms, added.backward_comms) == (pytest.approx(54.4), pytest.approx(70.4))
    assert hybrid.times(mixed_job, regather=True).backward_comms == pytest.approx(57.6)
    assert hybrid.times(mixed_job, "sum", regather=True).backward_comms == pytest.approx(89.6)
    assert (times.forward_math, times.backward_math) == (10.24, 20.48)
    assert hybrid.flops(mixed_job).total == 3072
    assert not hybrid.is_compute_bound(mixed_job)
    assert hybrid.critical_batch(mixed_job) == pytest.approx(max(16 / 10.24, 32 / 20.48) * 64)


def test_weights_decide_at_a_small_batch(mixed_job: Job) -> None:
    small = replace(mixed_job, batch_tokens=16)
    assert hybrid.times(small).forward_comms == 16
    assert hybrid.times(small).backward_comms == 32


def test_bytes_are_both_kinds(mixed_job: Job) -> None:
    sent = hybrid.wire_bytes(mixed_job)
    assert sent.total == fsdp.wire_bytes(mixed_job).total + tp.wire_bytes(mixed_job).total == 3 * 16 + 4 * 192
    assert hybrid.wire_bytes(mixed_job, regather=True).total == sent.total + 192
    assert sent.parts[0].name == "forward/all_gather weights (FSDP)"
    assert sent.parts[3].name == "forward/all_gather input (TP)"
    assert sent.parts[0].formula == "V (X-1)/X"


def test_on_gpus_the_split_does_not_change_the_threshold(gpu_job: Job) -> None:
    limits = [hybrid.critical_batch(with_plan(gpu_job, dp=16384 // y, tp=y, pp=1)) / 16384 for y in (1, 2, 4, 8)]
    assert limits == pytest.approx([2472.5 * 2047 / 2048] * 4)


def test_sum_is_stricter_than_max(gpu_job: Job) -> None:
    # between the two thresholds the one says yes and the other no
    job = replace(with_plan(gpu_job, dp=2048, tp=8, pp=1), batch_tokens=16384 * 2600)
    assert hybrid.is_compute_bound(job)
    assert not hybrid.is_compute_bound(job, "sum")


def test_a_grid_of_plans_is_one_call(gpu_job: Job) -> None:
    degrees = np.array([1, 2, 4, 8])
    grid_job = with_plan(gpu_job, dp=1024 // degrees, tp=degrees, pp=1)
    for function in (hybrid.is_compute_bound, lambda j: hybrid.times(j, "sum").comms, lambda j: hybrid.times(j).bound):
        singles = [function(with_plan(gpu_job, dp=1024 // int(t), tp=int(t), pp=1)) for t in degrees]
        np.testing.assert_allclose(function(grid_job), singles, rtol=1e-14)
    batches = np.array([1e6, 4e6])
    np.testing.assert_allclose(
        hybrid.x_opt(batches, 28672, 64, 2.0, 1.0), [hybrid.x_opt(b, 28672, 64, 2.0, 1.0) for b in batches]
    )


def test_the_ledger_as_printed(mixed_job: Job) -> None:
    assert str(hybrid.wire_bytes(mixed_job)).splitlines() == [
        "Bytes sent by one chip for one layer, FSDP x TP",
        "forward/all_gather weights (FSDP)            16.0 B  1.96%  V (X-1)/X",
        "backward/all_gather weights (FSDP)           16.0 B  1.96%  V (X-1)/X",
        "backward/reduce_scatter gradients (FSDP)     16.0 B  1.96%  V (X-1)/X",
        "forward/all_gather input (TP)                 192 B  23.5%  V (Y-1)/Y",
        "forward/reduce_scatter output (TP)            192 B  23.5%  V (Y-1)/Y",
        "backward/all_gather output gradient (TP)      192 B  23.5%  V (Y-1)/Y",
        "backward/reduce_scatter input gradient (TP)   192 B  23.5%  V (Y-1)/Y",
        "total                                         816 B   100%",
    ]
