"""Every rule of a plan: it fires, says what was given, and the change it proposes repairs it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scaling_lib.hardware import Cluster
from scaling_lib.job import SCHEDULES, Job, ParallelPlan, PlanError, check, divisors, require, with_plan
from scaling_lib.model import model


def rules(job: Job) -> list[str]:
    return [v.rule for v in check(job)]


def changed(job: Job, plan: dict[str, Any], fields: dict[str, Any]) -> Job:
    return replace(with_plan(job, **plan), **fields)


def test_the_published_plan_breaks_no_rule(gpu_job: Job) -> None:
    assert check(gpu_job) == []
    assert require(gpu_job) is gpu_job


@pytest.mark.parametrize(
    ("plan", "fields", "rule", "fatal", "what", "fix"),
    [
        ({"dp": 0}, {}, "degree", True, "dp = 0", "whole number of at least 1"),
        ({"tp": 1.5}, {}, "degree", True, "tp = 1.5", "whole number"),
        ({"pp": math.nan}, {}, "degree", True, "pp = nan", "whole number"),
        ({"ep": math.inf}, {}, "degree", True, "ep = inf", "whole number"),
        ({"micro_batch": -1}, {}, "degree", True, "micro_batch = -1", "whole number"),
        ({"prefetch": -1}, {}, "degree", True, "prefetch = -1", "at least 0"),
        ({}, {"batch_tokens": 0}, "degree", True, "batch_tokens = 0", "at least 1"),
        ({}, {"batch_tokens": math.inf}, "degree", True, "batch_tokens = inf", "at least 1"),
        ({}, {"seq_len": math.nan}, "degree", True, "seq_len = nan", "at least 1"),
        ({}, {"chips": 0}, "degree", True, "chips = 0", "at least 1"),
        ({"zero": 4}, {}, "choice", True, "zero = 4", "0, 1, 2, 3"),
        ({"recompute": "some"}, {}, "choice", True, "recompute = 'some'", "none, selective, full"),
        ({"schedule": "pipedream"}, {}, "choice", True, "schedule = 'pipedream'", "gpipe, 1f1b"),
        ({"attention": "fast"}, {}, "choice", True, "attention = 'fast'", "flash, unfused"),
        ({}, {"layer": "mlp"}, "choice", True, "layer = 'mlp'", "two-matmul, gated, full"),
        ({"checkpoints_per_layer": 0}, {}, "recompute", True, "checkpoints_per_layer = 0", "above 0"),
        ({"checkpoints_per_layer": 2}, {}, "recompute", False, "no effect", 'recompute "full"'),
        ({"dp": 64}, {}, "chips", True, "dp 64 x tp 8 x pp 16 x cp 1 = 8192 chips, not 16384", "use dp 128"),
        ({}, {"chips": 16400}, "chips", True, "= 16384 chips, not 16400", "16384 or 16512 chips"),
        ({}, {"chips": 100}, "chips", True, "not 100", "use 128 chips"),
        ({"tp": 16, "dp": 64}, {}, "domain", True, "TP 16 reaches beyond the nvlink domain of 8", "TP of at most 8"),
        ({"tp": 3}, {}, "domain", True, "TP 3 does not divide the domain of 8", "use TP 2"),
        ({"tp": 3}, {}, "heads", True, "64 attention heads do not divide by TP 3", "use TP 2"),
        ({"tp": 3}, {}, "d_ff", True, "d_ff 28672 does not divide by TP 3", "use TP 2"),
        ({"pp": 3}, {}, "layers", False, "80 layers do not divide by PP 3 x 1 chunks", "1, 2, 4, 5, 8, 10, 16"),
        ({"pp": 96}, {}, "layers", True, "80 layers do not divide by PP 96", "40, 80"),
        ({"ep": 2}, {}, "experts", True, "EP 2 on llama-3-70b, which has no experts", "use EP 1"),
        ({"cp": 3}, {}, "sequence", True, "8192 tokens do not divide by CP 3", "use CP 2"),
        ({}, {"batch_tokens": 64 * 8192}, "batch", True, "64 sequences of 8192 tokens", "at least 1,048,576 tokens"),
        ({}, {"batch_tokens": 16e6}, "batch", False, "1,953.12 sequences, not a multiple of dp 128", "15,728,640"),
        ({"virtual_stages": 5, "schedule": "1f1b"}, {}, "schedule", True, "5 chunks a device", "interleaved"),
        (
            {"pp": 1, "dp": 2048, "virtual_stages": 2, "schedule": "interleaved"},
            {},
            "schedule",
            True,
            "2 chunks a device without a pipeline",
            "PP of at least 2",
        ),
        ({"schedule": "dualpipe", "pp": 5}, {}, "schedule", True, "even number of stages, PP is 5", "use PP 6"),
        (
            {"schedule": "interleaved", "virtual_stages": 5},
            {"batch_tokens": 128 * 8192 * 20},
            "schedule",
            False,
            "20 microbatches are no multiple of PP 16",
            "change the batch",
        ),
        (
            {},
            {"batch_tokens": 128 * 8192 * 4},
            "schedule",
            False,
            "4 microbatches for 16 stages",
            "at least 16,777,216 tokens",
        ),
    ],
)
def test_every_rule_fires(
    gpu_job: Job, plan: dict[str, Any], fields: dict[str, Any], rule: str, fatal: bool, what: str, fix: str
) -> None:
    job = changed(gpu_job, plan, fields)
    hits = [v for v in check(job) if v.rule == rule and what in v.what]
    assert hits, [str(v) for v in check(job)]
    assert all(v.fatal is fatal for v in hits)
    assert re.search(fix, hits[0].fix), hits[0].fix
    assert str(hits[0]) == f"{rule}: {hits[0].what}; {hits[0].fix}"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_is_known(gpu_job: Job, schedule: str) -> None:
    assert check(with_plan(gpu_job, schedule=schedule)) == []


def test_a_cluster_ends_somewhere(gpu_job: Job) -> None:
    small = replace(gpu_job, cluster=replace(gpu_job.cluster, max_chips=8192))
    assert rules(small) == ["cluster"]
    assert "use at most 8192 or another cluster" in check(small)[0].fix
    assert check(replace(gpu_job, cluster=replace(gpu_job.cluster, max_chips=16384))) == []


def test_key_value_heads_may_be_copied_but_not_split(gpu_job: Job, v5p: Cluster) -> None:
    pod = replace(gpu_job, cluster=v5p)
    assert rules(with_plan(pod, tp=16, dp=64)) == []  # 8 KV heads, each copied twice
    odd = replace(pod, model=replace(pod.model, n_heads=96, n_kv_heads=12), chips=8 * 16 * 128)
    (violation,) = [v for v in check(odd) if v.rule == "heads"]
    assert "12 key-value heads and TP 8 do not divide one another" in violation.what
    assert violation.fix == "use TP 4"


def test_one_level_has_no_domain_rule(gpu_job: Job) -> None:
    flat = replace(gpu_job.cluster, levels=(replace(gpu_job.cluster.levels[0], size=None),))
    assert rules(with_plan(replace(gpu_job, cluster=flat), tp=16, dp=64)) == []


def test_experts_divide_over_experts_and_ranks(gpu_job: Job) -> None:
    moe = replace(gpu_job, model=model("mixtral-8x7b"))
    assert rules(with_plan(moe, ep=8)) == []
    assert rules(with_plan(moe, ep=3)) == ["experts"]
    few = replace(with_plan(moe, dp=4, ep=8), chips=4 * 8 * 16, batch_tokens=4 * 8192 * 16)
    (violation,) = check(few)
    assert "EP 8 must divide 8 experts and dp x cp = 4" in violation.what
    assert violation.fix == "use EP 4"


FIXES = re.compile(r"use (?P<name>dp|TP|EP|CP|PP) (?P<value>\d+)$")


def repaired(job: Job) -> Job:
    """The job after the first fix that names one degree, or the batch that divides."""
    for violation in check(job):
        if match := FIXES.match(violation.fix):
            return with_plan(job, **{match["name"].lower(): int(match["value"])})
        if match := re.search(r"nearest batch that divides is ([\d,]+) tokens", violation.fix):
            return replace(job, batch_tokens=int(match[1].replace(",", "")))
    raise AssertionError([str(v) for v in check(job)])


@pytest.mark.parametrize(
    ("name", "plan", "fields"),
    [
        ("llama-3-70b", {"tp": 3}, {}),
        ("llama-3-70b", {"tp": 5}, {}),
        ("llama-3-70b", {"tp": 7}, {}),
        ("llama-3-70b", {"dp": 100}, {}),
        ("llama-3-70b", {"cp": 3}, {}),
        ("llama-3-70b", {"cp": 5}, {"seq_len": 8190}),
        ("llama-3-70b", {"schedule": "dualpipe", "pp": 5}, {}),
        ("llama-3-70b", {}, {"batch_tokens": 16e6}),
        ("llama-3-70b", {}, {"batch_tokens": 2**24 + 8192}),
        ("mixtral-8x7b", {"ep": 3}, {}),
        ("mixtral-8x7b", {"ep": 5, "dp": 6}, {}),
        ("deepseek-v3", {"ep": 100, "dp": 96}, {}),
    ],
)
def test_following_the_fix_removes_the_rule(
    gpu_job: Job, name: str, plan: dict[str, Any], fields: dict[str, Any]
) -> None:
    job = changed(replace(gpu_job, model=model(name)), plan, fields)
    first = next(v for v in check(job) if FIXES.match(v.fix) or "nearest batch" in v.fix)
    assert first.rule not in rules(repaired(job)), first


def test_fatal_rules_come_first_and_require_lists_them(gpu_job: Job) -> None:
    job = changed(gpu_job, {"tp": 3, "pp": 3}, {"batch_tokens": 16e6})
    found = check(job)
    assert [v.fatal for v in found] == sorted([v.fatal for v in found], reverse=True)
    assert not found[-1].fatal
    with pytest.raises(PlanError) as error:
        require(job)
    assert str(error.value) == "; and ".join(str(v) for v in found if v.fatal)
    warned = replace(gpu_job, batch_tokens=16e6)
    assert [v.fatal for v in check(warned)] == [False, False]
    assert require(warned) is warned


def test_impossible_values_hide_the_rules_that_divide_by_them(gpu_job: Job) -> None:
    assert rules(with_plan(gpu_job, tp=0, pp=3)) == ["degree"]


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
    assert pod.data_egress == 2 * 180e9
    assert pod.tensor_egress == 180e9


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
    np.testing.assert_array_equal(grid.data_egress, [50e9, 50e9])


def test_plans_have_the_defaults_of_fsdp() -> None:
    plan = ParallelPlan()
    assert (plan.chips, plan.zero, plan.schedule, plan.recompute) == (1, 3, "1f1b", "none")
    assert plan.sequence_parallel
    assert plan.reshard_after_forward
