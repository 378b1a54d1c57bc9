from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from scaling_lib import ep
from scaling_lib.catalogue import CatalogueError
from scaling_lib.hardware import cluster
from scaling_lib.job import Job, ParallelPlan, with_plan
from scaling_lib.model import model
from scaling_lib.predict import (
    MEGATRON,
    Calibration,
    Stack,
    calibrate,
    case_of,
    evidence_width,
    guess_width,
    rates,
    step_time,
)
from scaling_lib.predict_terms import Case, layer_times, step_parts


def job(**plan: object) -> Job:
    degrees = {"dp": 128, "tp": 8, "pp": 16, "zero": 1, "schedule": "1f1b"} | plan
    p = ParallelPlan(**degrees)  # type: ignore[arg-type]
    return Job(model("llama-3-405b"), cluster("dgx-h100"), p, p.chips, 2048 * 8192, 8192)


def test_llama_405b_on_16384_gpus_is_near_the_published_rate() -> None:
    # Llama 3, table 4: 400 TFLOP/s, 41% MFU at 16,384 GPUs, TP 8, PP 16, which nothing here was fitted to.
    # The paper prints neither the number of chunks nor what overlaps, so these are unknown.
    estimate = step_time(job(), replace(MEGATRON, virtual_stages=None, tp_overlap=None, tp_backward_overlap=None))
    published = 0.41 / estimate.mfu_causal
    assert estimate.low < estimate.seconds / published < estimate.high
    assert estimate.seconds < estimate.high
    assert estimate.mfu_causal == pytest.approx(0.41, rel=0.2)


def test_parts_sum_to_the_step() -> None:
    estimate = step_time(job(), MEGATRON)
    assert estimate.parts.total == pytest.approx(estimate.seconds, rel=1e-12)
    assert all(p.value >= -1e-12 for p in estimate.parts)
    assert estimate.tokens_per_chip_second == pytest.approx(2048 * 8192 / 16384 / estimate.seconds)


def test_full_attention_counts_more_than_causal() -> None:
    estimate = step_time(job(), MEGATRON)
    assert 1.01 < estimate.mfu_full / estimate.mfu_causal < 1.1


@pytest.mark.parametrize(
    "name", ["kernel", "tuning", "recompute", "tp_overlap", "dp_overlap", "grad_bytes", "virtual_stages"]
)
def test_an_unknown_input_widens_and_is_named(name: str) -> None:
    sure = step_time(job(), replace(MEGATRON, virtual_stages=1))
    unsure = step_time(job(), replace(replace(MEGATRON, virtual_stages=1), **{name: None}))
    assert name in unsure.unknown
    assert name not in sure.unknown
    assert unsure.high / unsure.low > sure.high / sure.low * 1.001


def test_an_assumed_field_widens() -> None:
    sure, unsure = step_time(job(), MEGATRON), step_time(job(), MEGATRON, ["layout"])
    assert unsure.high / unsure.low > sure.high / sure.low
    assert unsure.assumed == ("layout",)


def test_arrays_and_single_jobs_are_the_same_code() -> None:
    plans = [
        {"tp": tp, "pp": pp, "dp": 2048 // tp // pp, "micro_batch": b}
        for tp in (1, 4, 8)
        for pp in (1, 4)
        for b in (1, 2)
    ]
    cases = [case_of(job(**p), replace(MEGATRON, recompute="full")) for p in plans]
    columns = {f.name: np.array([getattr(c, f.name) for c in cases]) for f in fields(Case)}
    batched = step_parts(Case(**columns), rates().constants)
    for i, case in enumerate(cases):
        single = step_parts(case, rates().constants)
        for name, value in single.items():
            assert np.broadcast_to(batched[name], len(cases))[i] == pytest.approx(value, rel=1e-12, abs=1e-15)


def test_recomputation_and_old_kernels_cost_time() -> None:
    base = step_time(job(), MEGATRON).seconds
    assert 1.15 < step_time(job(), replace(MEGATRON, recompute="full")).seconds / base < 1.35
    assert step_time(job(), replace(MEGATRON, kernel="flash-old")).seconds > base
    assert step_time(job(), replace(MEGATRON, tuning="generic")).seconds > base


def test_more_microbatches_shrink_the_bubble() -> None:
    few, many = step_time(job(), MEGATRON), step_time(replace(job(), batch_tokens=8 * 2048 * 8192), MEGATRON)
    assert many.parts.share("pipeline/fill and drain") < few.parts.share("pipeline/fill and drain") / 4


def test_a_chip_without_runs_is_predicted_with_a_wider_interval() -> None:
    mi300 = replace(job(), cluster=cluster("mi300x-8"))
    h100 = step_time(job(), MEGATRON)
    guess = step_time(mi300, MEGATRON)
    assert guess.high / guess.low > 1.1 * h100.high / h100.low


def test_a_precision_the_chip_lacks_is_refused() -> None:
    with pytest.raises(CatalogueError, match="no 'fp4' peak"):
        step_time(replace(job(), precision="fp4"), MEGATRON)


@pytest.mark.parametrize("bad", [{"batch_tokens": 0}, {"seq_len": 0}, {"chips": 0}])
def test_a_job_without_work_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="give positive numbers"):
        step_time(replace(job(), **bad), MEGATRON)


def test_an_unknown_kernel_lists_near_names() -> None:
    with pytest.raises(ValueError, match="flash-native"):
        Stack(kernel="flash-natve")


def test_calibration_moves_the_point_and_narrows_the_interval() -> None:
    truth = 1.2
    measured = [(j, MEGATRON, truth * step_time(j, MEGATRON).seconds) for j in (job(), with_plan(job(), micro_batch=2))]
    one, two = calibrate(measured[:1]), calibrate(measured)
    assert 1 < one.factor < two.factor < truth
    before, after = step_time(job(), MEGATRON), step_time(job(), MEGATRON, calibration=two)
    assert after.high / after.low < before.high / before.low
    assert after.seconds == pytest.approx(before.seconds * two.factor)
    assert isinstance(two, Calibration)
    with pytest.raises(ValueError, match="no runs"):
        calibrate([])
    with pytest.raises(ValueError, match="above zero"):
        calibrate([(job(), MEGATRON, math.nan)])


def test_memory_comes_with_point_and_ranges() -> None:
    memory = step_time(job(), replace(MEGATRON, virtual_stages=8)).memory
    assert memory is not None
    assert memory.low < memory.allocated < memory.high < memory.reserved_high
    assert 20e9 < memory.allocated < 120e9


def test_experts_are_counted() -> None:
    plan = ParallelPlan(dp=64, tp=1, pp=4, ep=64, zero=1)
    moe = Job(model("deepseek-v3"), cluster("gb200-nvl72"), plan, 256, 4096 * 4096, 4096, precision="fp8")
    estimate = step_time(moe, MEGATRON)
    assert estimate.parts["communication/expert parallel"] > 0
    assert estimate.parts["compute/matmuls"] > 0
    narrow = step_time(replace(moe, plan=replace(plan, ep=8)), MEGATRON)
    assert narrow.parts["communication/expert parallel"] != estimate.parts["communication/expert parallel"]


def test_small_microbatches_cost_more_where_a_pipeline_waits() -> None:
    def gain(stack: Stack) -> float:
        return step_time(job(micro_batch=2), stack).seconds / step_time(job(), stack).seconds

    assert gain(replace(MEGATRON, tuning="generic")) < gain(MEGATRON)
    alone = replace(job(pp=1, dp=2048), batch_tokens=2048 * 8192)
    parts = step_time(alone, replace(MEGATRON, tuning="generic")).parts
    assert parts["pipeline/exchange"] == 0
    assert parts["other/launch overhead"] == pytest.approx(
        step_time(alone, replace(MEGATRON, tuning="generic", recompute="none")).parts["other/launch overhead"]
    )


def test_each_chunk_sends_once_a_pass() -> None:
    few, many = (step_time(job(virtual_stages=v, schedule="interleaved"), MEGATRON).parts for v in (2, 4))
    assert many["pipeline/exchange"] == pytest.approx(2 * few["pipeline/exchange"], rel=1e-12)
    assert few["pipeline/exchange"] == pytest.approx(2 * 16 * 2 * rates().constants.exchange, rel=1e-12)


def test_weights_return_rank_by_rank_under_zero_1_alone() -> None:
    slow = replace(MEGATRON, tuning="generic")
    one, two = (step_time(job(zero=z), slow).parts["communication/data parallel"] for z in (1, 2))
    assert one - two == pytest.approx(127 * rates().constants.generic_broadcast, rel=1e-6)


def moe_case(**plan: object) -> Case:
    p = ParallelPlan(**({"dp": 32, "tp": 2, "pp": 4, "ep": 8, "zero": 1} | plan))  # type: ignore[arg-type]
    return case_of(Job(model("deepseek-v3"), cluster("dgx-h100"), p, p.chips, 1024 * 4096, 4096), MEGATRON)


def test_experts_are_cut_over_the_tensor_group_unless_their_own_takes_its_ranks() -> None:
    assert moe_case().expert_tp == 2
    assert moe_case(ep=64).expert_tp == 1


def test_a_domain_gets_one_copy_of_a_token() -> None:
    k = replace(rates().constants, expert_link_exposed=0.0)
    free = {"n_groups": 1, "groups_per_token": 1}
    two, many = (layer_times(replace(moe_case(ep=n, tp=1, dp=64), **free), k).ep for n in (16, 64))
    assert many / two == pytest.approx(7 * (1 - (7 / 8) ** 8) / (1 - (1 / 2) ** 8))
    hidden = layer_times(replace(moe_case(ep=16, tp=1, dp=64), **free, ep_overlap=True), k).ep
    assert hidden == pytest.approx(two * k.overlap_leak)
    # a group on each of eight nodes, four of them open to a token: 7/8 of those that it meets are other nodes
    limited = layer_times(moe_case(ep=64, tp=1, dp=64), k).ep
    assert limited / many == pytest.approx(4 * (1 - (3 / 4) ** 8) / (8 * (1 - (7 / 8) ** 8)))
    narrow = layer_times(replace(moe_case(ep=64, tp=1, dp=64), dispatch_bytes=1), k).ep
    assert narrow == pytest.approx(limited * 3 / 4)  # 1 byte there and 2 back, of 2 and 2


def test_copies_from_other_domains_pass_the_own_network_too() -> None:
    k = replace(rates().constants, expert_nic_exposed=0.0)
    near, far = (layer_times(moe_case(ep=n, tp=1, dp=64), k).ep for n in (8, 64))
    assert far == pytest.approx(near)


def test_experts_on_a_torus_exchange_along_its_rings() -> None:
    here = cluster("tpu-v5p")
    p = ParallelPlan(dp=64, ep=64, zero=3)
    asked = Job(model("deepseek-v3"), here, p, 64, 1024 * 4096, 4096)
    k = replace(rates().constants, expert_link_exposed=1.0, link_fraction=1.0)
    one_way = ep.exchange_seconds(4096 * 8 * 7168 * 2, 64, here.hops(64))  # tokens, copies, width, bytes
    assert layer_times(case_of(asked, MEGATRON), k).ep == pytest.approx(58 / 61 * 4 * one_way)
    with pytest.raises(ValueError, match="dispatch_bytes 0: give bytes of an element"):
        replace(MEGATRON, dispatch_bytes=0)


def test_graphs_take_launches_out_of_sight() -> None:
    k = rates().constants
    plain = layer_times(moe_case(), k).floor
    layers = layer_times(replace(moe_case(), layer_graphs=1), k).floor
    assert 0 < layers < plain
    assert layer_times(replace(moe_case(), step_graph=1), k).floor == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="unknown graphs 'all'"):
        Stack(graphs="all")


def test_few_sources_of_a_chip_widen_and_a_guess_widens_further() -> None:
    table = rates()
    assert evidence_width("h100-sxm", "bf16", table) == 0
    assert 0 < evidence_width("gb300", "fp8", table) < evidence_width("mi300x", "bf16", table)
    assert evidence_width("abacus", "bf16", table) == table.interval["prior_spread"]
    assert guess_width(["layout", "mbs"], table) == pytest.approx((0.10**2 + 0.06**2) ** 0.5)


def test_an_unknown_overlap_of_experts_widens() -> None:
    plan = ParallelPlan(dp=64, tp=1, pp=4, ep=64, zero=1)
    moe = Job(model("deepseek-v3"), cluster("dgx-h100"), plan, 256, 1024 * 4096, 4096)
    sure, unsure = step_time(moe, MEGATRON), step_time(moe, replace(MEGATRON, ep_overlap=None))
    assert "ep_overlap" in unsure.unknown
    assert unsure.seconds == pytest.approx(sure.seconds)
    assert unsure.low < sure.low
