"""What crosses the slow network: by hand on two domains of four, and the published pods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import crosspod
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan


def test_the_chips_of_a_pod_cancel() -> None:
    # 8DF bytes on 100 chips' egress against 8 B D F FLOPs on 100 chips
    peak, egress, d, f, chips = 459e12, 6.25e9, 64, 256, 100
    batch = crosspod.critical_pod_tokens(peak, egress)
    assert 8 * batch * d * f / (chips * peak) == pytest.approx(8 * d * f / (chips * egress))
    assert batch == pytest.approx(73_440)
    assert crosspod.critical_pod_tokens(peak, egress, 4) == batch / 4


def test_pods_of_a_job(round_job: Job) -> None:
    assert crosspod.pod_chips(round_job) == 4
    assert crosspod.pods(round_job) == 2
    assert crosspod.pods(replace(round_job, chips=9)) == 3


def test_one_level_has_no_pods(round_job: Job) -> None:
    flat = replace(round_job, cluster=replace(round_job.cluster, levels=round_job.cluster.levels[:1]))
    for ask in (crosspod.pod_chips, crosspod.times):
        with pytest.raises(ValueError, match="round has one network level, so no pods: use a cluster with an outer"):
            ask(flat)


def test_a_job_by_hand(round_job: Job) -> None:
    times = crosspod.times(round_job)
    assert times.forward_comms == 0
    assert times.backward_comms == 2 * 128 * (1 / 2) / 4  # the pod sends with its four cards
    assert times.backward_math == 20.48
    assert crosspod.critical_batch(round_job) == pytest.approx(100)
    assert not crosspod.is_compute_bound(round_job)
    assert crosspod.is_compute_bound(replace(round_job, batch_tokens=104))
    assert crosspod.flops(round_job).total == 3072


def test_bytes_by_hand(round_job: Job) -> None:
    sent = crosspod.wire_bytes(round_job)
    assert sent["forward"] == 0
    assert sent["backward"] == 2 * (128 / 4) * (1 / 2)
    inner_tp = with_plan(round_job, dp=2, tp=4)
    assert crosspod.wire_bytes(inner_tp)["backward"] == 2 * 32 * (1 / 2)  # one rank a pod, a quarter of the layer


def test_inside_one_pod_nothing_crosses(round_job: Job) -> None:
    inside = replace(with_plan(round_job, dp=4), chips=4)
    assert crosspod.wire_bytes(inside).total == 0
    assert crosspod.critical_batch(inside) == 0
    assert crosspod.is_compute_bound(inside)


def test_many_pods_approach_the_threshold(v5p: Cluster, gpu_job: Job) -> None:
    pods = 512
    job = replace(with_plan(gpu_job, dp=8960 * pods, tp=1, pp=1), cluster=v5p, chips=8960 * pods)
    per_pod = crosspod.critical_batch(job) / pods
    assert per_pod == pytest.approx(crosspod.critical_pod_tokens(459e12, 6.25e9), rel=0.003)


def test_a_pipeline_across_pods_divides_the_threshold(gpu_job: Job) -> None:
    flat = with_plan(gpu_job, dp=2048, tp=8, pp=1)
    deep = with_plan(gpu_job, dp=128, tp=8, pp=16)
    assert crosspod.critical_batch(flat) / crosspod.critical_batch(deep) == pytest.approx(16, rel=0.01)


def test_a_grid_of_plans_is_one_call(gpu_job: Job) -> None:
    degrees = np.array([1, 8, 64, 2048])
    grid_job = with_plan(gpu_job, dp=degrees, tp=8, pp=1)
    for function in (crosspod.critical_batch, crosspod.is_compute_bound, lambda j: crosspod.wire_bytes(j).total):
        singles = [function(with_plan(gpu_job, dp=int(d), tp=8, pp=1)) for d in degrees]
        np.testing.assert_allclose(function(grid_job), singles, rtol=1e-14)
    np.testing.assert_array_equal(crosspod.pods(replace(gpu_job, chips=np.array([8, 9]))), [1, 2])


def test_the_ledger_as_printed(round_job: Job) -> None:
    assert str(crosspod.wire_bytes(round_job)).splitlines() == [
        "Bytes sent by one chip across pods for one layer",
        "forward/none                      0 B    0%  weights are in the pod",
        "backward/all_reduce gradients  32.0 B  100%  2 (V/k)(n-1)/n",
        "total                          32.0 B  100%",
    ]
