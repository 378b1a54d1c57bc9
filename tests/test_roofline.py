"""The layer, its FLOPs and the cap on MFU, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import roofline
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan
from scaling_lib.model import TransformerConfig
from scaling_lib.precision import recipe
from scaling_lib.roofline import Layer, Times, layer


def test_intensities_of_the_course(h100: Cluster, v5p: Cluster) -> None:
    peak = h100.chip.flops("bf16")
    assert roofline.critical_intensity(peak, 450e9) == pytest.approx(2197.78, abs=0.005)
    assert roofline.critical_intensity(peak, h100.egress(1024)) == 2472.5
    assert roofline.critical_intensity(v5p.chip.flops("bf16"), 180e9) == 2550


def test_mfu_cap() -> None:
    assert roofline.mfu_cap(3.0, 4.0) == 0.75
    assert roofline.mfu_cap(4.0, 3.0) == 1.0
    np.testing.assert_array_equal(roofline.mfu_cap(np.array([1.0, 8.0]), 4.0), [0.25, 1.0])


def test_strong_scaling_stops_at_the_communication() -> None:
    assert roofline.strong_scaling_speedup(10.0, 1.0, 4) == 4  # still compute-bound at 2.5 s
    assert roofline.strong_scaling_speedup(10.0, 5.0, 4) == 2  # bound by the 5 s of communication
    assert roofline.strong_scaling_speedup(3.0, 5.0, 4) == 1  # bound by it from the start
    assert roofline.strong_scaling_speedup(10.0, 0.001, 1e9) == 10_000


@pytest.mark.parametrize(
    ("form", "weights", "gathers", "width"),
    [
        ("two-matmul", 2 * 8192 * 28672, 1, 28672),
        ("gated", 3 * 8192 * 28672, 1, 43008),
        ("full", 3 * 8192 * 28672 + 150_994_944, 2, 26112),  # less than F: attention gathers as much, computes less
    ],
)
def test_the_three_layers_of_llama_70b(
    llama: TransformerConfig, form: str, weights: int, gathers: int, width: float
) -> None:
    built = layer(llama, form)
    assert (built.form, built.weights, built.gathers, built.d_model) == (form, weights, gathers, 8192)
    assert built.effective_d_ff == width


def test_an_unknown_layer_form(llama: TransformerConfig) -> None:
    with pytest.raises(ValueError, match="unknown layer form 'mlp': use two-matmul, gated or full"):
        layer(llama, "mlp")


def test_flops_of_a_layer_by_hand(round_job: Job) -> None:
    assert roofline.layer_of(round_job) == Layer("two-matmul", 64, 1, 4)
    flops = roofline.layer_flops(round_job)
    assert flops["forward"] == 2 * 64 * 64 / 8 == 1024
    assert flops["backward"] == 2048
    assert flops["backward/input gradient"] == flops["backward/weight gradient"] == 1024
    assert roofline.layer_flops(with_plan(round_job, dp=2, tp=4)).total == flops.total
    assert roofline.layer_flops(with_plan(round_job, dp=4, cp=2)).total == flops.total
    assert roofline.layer_flops(with_plan(round_job, dp=4)).total == 2 * flops.total


def test_forward_flops_by_hand() -> None:
    assert roofline.forward_flops(10, 30, 2, 5) == 60


def test_seconds_come_from_peak_flops(round_job: Job) -> None:
    times = roofline.times_of(round_job, 1.0, 2.0)
    assert times == Times(10.24, 1.0, 20.48, 2.0)
    assert (times.math, times.comms) == (pytest.approx(30.72), 3.0)


def test_bound_takes_the_slower_in_each_pass() -> None:
    times = Times(10.0, 15.0, 20.0, 5.0)
    assert times.bound == 35
    assert times.mfu_cap == pytest.approx(30 / 35)
    assert not times.compute_bound
    assert Times(10.0, 10.0, 20.0, 20.0).compute_bound  # equal is hidden
    assert not Times(10.0, 5.0, 20.0, 21.0).compute_bound
    both = Times(10.0, 20.0, 20.0, 40.0)
    assert both.mfu_cap == roofline.mfu_cap(both.math, both.comms) == 0.5


def test_bytes_of_weights_and_gradients(round_job: Job) -> None:
    def weights(job: Job) -> float:
        [(size, _, _)] = roofline.arrays(job, job.element_bytes)
        return float(size)

    assert weights(round_job) == 128
    assert weights(with_plan(round_job, dp=2, tp=4)) == 32
    assert weights(replace(round_job, precision="fp32")) == 256
    assert weights(replace(round_job, precision="fp8")) == 128  # still sent in 16 bits
    fp32_gradients = replace(round_job, recipe=recipe("megatron"))
    assert roofline.gradient_bytes(round_job) == 128
    assert roofline.gradient_bytes(fp32_gradients) == 256
    assert roofline.gradient_bytes(with_plan(fp32_gradients, dp=2, tp=4)) == 64


def test_a_grid_of_plans_is_one_call(round_job: Job) -> None:
    dp, tp = np.array([8, 4, 2]), np.array([1, 2, 4])
    grid = roofline.layer_flops(with_plan(round_job, dp=dp, tp=tp)).total
    singles = [
        roofline.layer_flops(with_plan(round_job, dp=int(a), tp=int(b))).total for a, b in zip(dp, tp, strict=True)
    ]
    np.testing.assert_array_equal(grid, singles)


def test_the_ledger_as_printed(round_job: Job) -> None:
    assert str(roofline.layer_flops(round_job)).splitlines() == [
        "FLOPs of one layer on one chip",
        "forward/matmuls           1.02 kFLOP  33.3%  2 P B/(X Y)",
        "backward/input gradient   1.02 kFLOP  33.3%  2 P B/(X Y)",
        "backward/weight gradient  1.02 kFLOP  33.3%  2 P B/(X Y)",
        "total                     3.07 kFLOP   100%",
    ]
