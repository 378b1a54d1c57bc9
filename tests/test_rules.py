"""Every rule of a plan: it fires, says what was given, and the change it proposes repairs it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scaling_lib.hardware import Cluster
from scaling_lib.job import SCHEDULES, Job, with_plan
from scaling_lib.model import model
from scaling_lib.rules import PlanError, check, require


def rules(job: Job) -> list[str]:
    return [v.rule for v in check(job)]


def changed(job: Job, plan: dict[str, Any], fields: dict[str, Any]) -> Job:
    return replace(with_plan(job, **plan), **fields)


def test_the_published_plan_breaks_no_rule(gpu_job: Job) -> None:
    assert check(gpu_job) == []
    assert require(gpu_job) == []


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
        ({}, {"chips": 16384.5}, "degree", True, "chips = 16384.5", "whole number"),
        ({}, {"seq_len": 2.5}, "degree", True, "seq_len = 2.5", "whole number"),
        ({}, {"tokens": 0}, "degree", True, "tokens = 0", "at least 1"),
        ({}, {"tokens": "15T"}, "degree", True, "tokens = 15T", "at least 1"),
        ({"tp": "8"}, {}, "degree", True, "tp = 8", "whole number of at least 1"),
        ({"dp": None}, {}, "degree", True, "dp = None", "whole number of at least 1"),
        ({"dp": np.array([64, 128])}, {}, "degree", True, "dp = [ 64 128]", "whole number"),
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
        ({"cp": 3}, {"seq_len": 10**17}, "sequence", True, "100000000000000000 tokens", "use CP 2"),
        ({}, {"batch_tokens": 2**24 + 1}, "batch", False, "16,777,217 tokens are 2,048.000122", "16,777,216"),
        ({}, {"batch_tokens": 64 * 8192}, "batch", True, "64 sequences of 8192 tokens", "at least 1,048,576 tokens"),
        ({}, {"batch_tokens": 16e6}, "batch", False, "1,953.125 sequences, not a multiple of dp 128", "15,728,640"),
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
            "4 microbatches for 16 stages never fill the pipeline",
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


def test_torus_axes_are_those_of_the_torus(gpu_job: Job, v5p: Cluster) -> None:
    pod = replace(gpu_job, cluster=v5p)
    assert rules(with_plan(pod, dp_axes=2, tp_axes=1)) == []
    for name in ("dp_axes", "tp_axes"):
        for value in (0, 4, 1.5):
            (violation,) = check(with_plan(pod, **{name: value}))
            assert (violation.rule, violation.fatal) == ("choice", True)
            assert str(violation) == f"choice: {name} = {value}; use one of None, 1, 2, 3"


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
    assert str(error.value).splitlines()[1:] == [f"  {v}" for v in found if v.fatal]
    with pytest.raises(PlanError) as error:
        require(job, first_only=True)
    assert str(error.value) == str(found[0])
    warned = replace(gpu_job, batch_tokens=16e6)
    assert [v.fatal for v in require(warned)] == [False, False]
    assert require(warned) == check(warned)


def test_impossible_values_hide_the_rules_that_divide_by_them(gpu_job: Job) -> None:
    assert rules(with_plan(gpu_job, tp=0, pp=3)) == ["degree"]
