"""Verdicts of the flow: each says yes on one side of its threshold and no on the other, with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaling_lib import decide, dp, fsdp, memory
from scaling_lib.decide import FLOW, Verdict, explain
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, with_plan


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


def test_a_verdict_reads_as_a_sentence() -> None:
    yes = Verdict("k", "enough?", 3000.0, 2472.5, "token/chip", True, "NICs")
    assert str(yes) == "yes  enough? 3,000 tokens/chip against 2,470 tokens/chip: NICs"
    assert str(replace(yes, ok=False)).startswith(" NO  enough?")


def test_smallest_pipeline_of_layers_that_do_not_divide() -> None:
    """126 layers and 2048 groups of TP 8 share only depth 2: it needs 1236 tokens a chip of 1024; depth 4 needs 618."""
    from scaling_lib.course import meta_405b_job

    assert decide.smallest_pp(meta_405b_job) == 4
