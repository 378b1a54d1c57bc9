"""Verdicts of the flow: each says yes on one side of its threshold and no on the other, with the reason."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from scaling_lib import decide, dp, fsdp, memory, roofline
from scaling_lib.decide import FLOW, Verdict, explain
from scaling_lib.hardware import Cluster, cluster
from scaling_lib.job import Job, ParallelPlan, with_plan
from scaling_lib.model import model


def verdicts(job: Job) -> dict[str, Verdict]:
    return {v.key: v for v in explain(job)}


def test_the_flow_asks_in_order(gpu_job: Job) -> None:
    assert [v.key for v in explain(gpu_job)] == ["tokens", "tensor", "pipeline", "microbatches", "pods", "memory"]
    assert [s.key for s in FLOW] == [v.key for v in explain(gpu_job)]
    assert all(s.question.endswith("?") and s.otherwise for s in FLOW)


def test_one_network_has_no_pods(gpu_job: Job) -> None:
    flat = replace(gpu_job, cluster=replace(gpu_job.cluster, levels=gpu_job.cluster.levels[1:]))
    assert "pods" not in verdicts(flat)


def test_tokens_per_chip(gpu_job: Job) -> None:
    flat = with_plan(gpu_job, dp=2048, pp=1)
    few = verdicts(flat)["tokens"]
    assert (few.value, few.ok, few.unit) == (1024, False, "token/chip")
    assert few.threshold == pytest.approx(2472.5 * 2047 / 2048)
    assert few.why.startswith("the infiniband network sets the threshold; MFU is capped at 41.4%")
    assert verdicts(replace(flat, batch_tokens=16384 * 2473))["tokens"].ok
    assert not verdicts(replace(flat, batch_tokens=16384 * 2471))["tokens"].ok
    deep = verdicts(gpu_job)["tokens"]
    assert deep.ok
    assert deep.why == "the infiniband network sets the threshold"


def test_zero_stage_chooses_the_traffic(gpu_job: Job) -> None:
    flat = with_plan(gpu_job, dp=2048, pp=1)
    assert decide.data_times(flat) == fsdp.times(flat)
    plain = with_plan(flat, zero=1)
    assert decide.data_times(plain) == dp.times(plain)
    assert decide.mfu_cap(flat) == fsdp.times(flat).mfu_cap
    assert decide.mfu_cap(plain) > decide.mfu_cap(flat)  # nothing is sent forward
    assert decide.critical_tokens(plain) == dp.critical_batch(plain) / 16384
    assert decide.critical_tokens(flat) == fsdp.critical_batch(flat) / 16384


def test_one_replica_reduces_nothing(gpu_job: Job) -> None:
    alone = replace(with_plan(gpu_job, dp=1, pp=16), chips=128)
    verdict = verdicts(alone)["tokens"]
    assert (verdict.threshold, verdict.ok, verdict.why) == (0, True, "one replica: nothing to reduce")


def test_tensor_degree(gpu_job: Job, v5p: Cluster) -> None:
    assert verdicts(gpu_job)["tensor"] == Verdict(
        "tensor", "TP degree stays within its limit?", 8, 8, "way", True, "the domain sets the limit"
    )
    assert not verdicts(with_plan(gpu_job, tp=16, dp=64))["tensor"].ok
    assert verdicts(with_plan(gpu_job, tp=1, dp=1024))["tensor"].why == "no TP"
    pod = replace(gpu_job, cluster=v5p)
    wide = verdicts(with_plan(pod, tp=16, dp=64))["tensor"]
    assert wide.threshold == pytest.approx(28672 / 2550)
    assert (wide.ok, wide.why) == (False, "the width 28672 of the layer sets the limit")


def test_pipeline_depth(gpu_job: Job) -> None:
    # 1024 tokens a chip against 2472.5/p: p = 4 is the first divisor of 80 that lowers it enough
    assert decide.smallest_pp(gpu_job) == 4
    assert verdicts(with_plan(gpu_job, dp=1024, pp=2))["pipeline"].ok is False
    enough = verdicts(with_plan(gpu_job, dp=512, pp=4))["pipeline"]
    assert (enough.value, enough.threshold, enough.ok) == (4, 4, True)
    assert enough.why == "each stage reduces only its own layers"
    rich = replace(gpu_job, batch_tokens=16384 * 4096)
    assert decide.smallest_pp(rich) == 1
    assert verdicts(rich)["pipeline"].why == "no pipeline is needed for bandwidth"


def test_no_pipeline_mends_a_tiny_batch(gpu_job: Job) -> None:
    # 2 tokens a chip against 2472.5/80, the deepest pipeline of 80 layers
    tiny = replace(gpu_job, batch_tokens=16384 * 2)
    assert decide.smallest_pp(tiny) is None
    verdict = verdicts(tiny)["pipeline"]
    assert (verdict.ok, verdict.threshold) == (False, 80)
    assert "use fewer chips or a larger batch" in verdict.why


def test_only_whole_replicas_are_tried(gpu_job: Job) -> None:
    odd = replace(gpu_job, chips=8 * 5 * 64, batch_tokens=8 * 5 * 64 * 600)
    found = decide.smallest_pp(odd)
    assert found == 5
    assert odd.chips % (8 * found) == 0


def test_microbatches(gpu_job: Job) -> None:
    few = verdicts(gpu_job)["microbatches"]
    assert (few.value, few.threshold, few.ok) == (16, 64, False)
    assert few.why == "the bubble takes 48.4% of the step"  # 15/31
    assert verdicts(with_plan(gpu_job, virtual_stages=5, schedule="interleaved"))["microbatches"].ok  # 16 >= 64/5
    exact = with_plan(gpu_job, virtual_stages=4)
    assert verdicts(exact)["microbatches"].threshold == 16
    assert verdicts(exact)["microbatches"].ok
    flat = verdicts(with_plan(gpu_job, dp=2048, pp=1))["microbatches"]
    assert (flat.threshold, flat.ok, flat.why) == (1, True, "no pipeline")
    assert decide.bubble(with_plan(gpu_job, dp=2048, pp=1)) == 0
    assert decide.bubble(with_plan(gpu_job, virtual_stages=5)) == 15 / (80 + 15)


def test_pods(gpu_job: Job, v5p: Cluster) -> None:
    two = replace(with_plan(gpu_job, dp=2240, tp=8, pp=1), cluster=v5p, chips=17920, batch_tokens=2 * 40_000)
    verdict = verdicts(two)["pods"]
    assert verdict.why == "2 pods of 8960 chips"
    assert verdict.value == 40_000
    assert verdict.threshold == pytest.approx(73_440 / 2)  # 2 (n-1)/n of the gradients for two pods
    assert verdict.ok
    assert not verdicts(replace(two, batch_tokens=2 * 36_000))["pods"].ok
    one = replace(with_plan(gpu_job, dp=1120, tp=8, pp=1), cluster=v5p, chips=8960)
    assert verdicts(one)["pods"].why == "one pod"
    assert verdicts(one)["pods"].ok


def test_memory(gpu_job: Job) -> None:
    verdict = verdicts(gpu_job)["memory"]
    assert verdict.value == memory.ledger(gpu_job).total
    assert verdict.threshold == 80e9
    assert verdict.ok is (verdict.value <= 80e9)
    plain = verdicts(replace(with_plan(gpu_job, dp=16384, tp=1, pp=1, zero=0), batch_tokens=16384 * 8192))["memory"]
    assert not plain.ok
    assert plain.why.endswith("of 80.0 GB")


MOE = Job(model("mixtral-8x7b"), cluster("dgx-h100"), ParallelPlan(dp=64, ep=8, zero=1), 64, 64 * 4096, 4096)


def test_experts_count_where_they_work() -> None:
    """FLOPs of the experts a token visits, bytes of those a chip holds, among the ranks that hold the same."""
    d, width = MOE.model.d_model, MOE.model.d_ff
    form = roofline.layer_of(MOE)
    assert (form.weights, form.routed, form.experts) == (2 * 2 * d * width, 2 * 2 * d * width, 8 * 2 * d * width)
    # each chip holds one expert, which the 8 nodes reduce: 2 x 7/8 of its bytes on one NIC, against 12 P B/N FLOPs
    one = 2 * d * width * 2
    assert dp.wire_bytes(MOE).total == pytest.approx(2 * 7 / 8 * one)
    assert dp.times(MOE).backward_comms == pytest.approx(2 * 7 / 8 * one / 50e9)
    spread, whole = decide.critical_tokens(MOE), decide.critical_tokens(with_plan(MOE, ep=1))
    assert spread == pytest.approx(7 / 8 * one * 2 / 50e9 * MOE.peak / (4 * form.weights))
    assert whole == pytest.approx(spread)  # a node holds all experts either way, and sends them with all its NICs
    dense = replace(MOE, model=replace(MOE.model, moe=None))
    assert spread > 3 * decide.critical_tokens(dense)  # four times the bytes for each FLOP
    v3 = roofline.layer(model("deepseek-v3"), "full")
    assert v3.experts / v3.routed == 256 / 8
    assert v3.weights > v3.routed + 58 / 61 * 7168 * 3 * 2048  # the shared expert, dense layers and attention


def test_the_all_to_all_is_asked_about_only_where_experts_are_spread(gpu_job: Job) -> None:
    assert [v.key for v in explain(MOE)][2] == "experts"
    assert "experts" not in verdicts(with_plan(MOE, ep=1)) | verdicts(gpu_job)
    near, far = verdicts(MOE)["experts"], verdicts(with_plan(MOE, dp=32, pp=2, ep=8, tp=1))["experts"]
    assert near == far
    assert near.ok
    assert "nvlink" in near.why
    deepseek = replace(MOE, model=model("deepseek-v3"), plan=replace(MOE.plan, ep=64))
    across = verdicts(deepseek)["experts"]
    assert (across.value, across.ok) == (2048, False)
    assert across.threshold == pytest.approx(2 * MOE.peak / (3 * 50e9) * 56 / 64)
    assert "infiniband" in across.why


def test_a_pipeline_leaves_room_for_the_experts() -> None:
    small = replace(MOE, batch_tokens=64 * 1000)
    depth = decide.smallest_pp(small)
    assert depth is None or 64 // depth % 8 == 0
    assert decide.smallest_pp(with_plan(small, ep=1)) is not None


def test_a_verdict_reads_as_a_sentence() -> None:
    yes = Verdict("k", "enough?", 3000.0, 2472.5, "token/chip", True, "NICs")
    assert str(yes) == "yes  enough? 3,000 tokens/chip against 2,470 tokens/chip: NICs"
    assert str(replace(yes, ok=False)).startswith(" NO  enough?")


def test_smallest_pipeline_of_layers_that_do_not_divide() -> None:
    """126 layers and 2048 groups of TP 8 share only depth 2: it needs 1236 tokens a chip of 1024; depth 4 needs 618."""
    from scaling_lib.course import meta_405b_job

    assert decide.smallest_pp(meta_405b_job) == 4


def test_the_verdicts_as_a_table(gpu_job: Job) -> None:
    from scaling_lib.draw_flow import verdicts as table

    shown = table(with_plan(gpu_job, dp=2048, pp=1))._repr_html_()
    found = explain(with_plan(gpu_job, dp=2048, pp=1))
    rows = re.findall(r"<tr><th scope='row'>(.*?)</th>" + 4 * "<td>(.*?)</td>", shown)
    assert [unescape(row[0]) for row in rows] == [v.question for v in found]
    assert [row[1] == "yes" for row in rows] == [v.ok for v in found]
    assert rows[0][2:4] == ("1,020 tokens/chip", "2,470 tokens/chip")
    assert [unescape(row[4]) for row in rows] == [v.why for v in found]
