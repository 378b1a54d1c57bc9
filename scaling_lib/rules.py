"""Rules: everything a job must obey to run, each breach told with what to change.

Memory is not looked at here: see `memory.ledger`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

from scaling_lib.job import ATTENTION, LAYER_FORMS, RECOMPUTE, SCHEDULES, Job, divisors

_CHUNKED = ("interleaved", "looped-bfs", "interleaved-zb")  # want whole rounds of microbatches
_UNCHUNKED = ("gpipe", "1f1b", "zb-h1", "zb-h2")


@dataclass(frozen=True)
class Violation:
    """A rule that a job breaks: its name, whether it forbids the job or only warns, what is wrong, what to change."""

    rule: str
    fatal: bool
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}; {self.fix}"


class PlanError(ValueError):
    """A job that cannot run; the message lists each rule it breaks."""


def check(job: Job) -> list[Violation]:
    """Every rule a job breaks, fatal ones first, each with what to change; empty when it may run.

    For one plan (numbers), not for a grid (arrays).
    """
    found = [*_values(job), *_choices(job)]
    if not any(v.fatal for v in found):  # the other rules divide by these
        found += [*_sizes(job), *_heads(job), *_layers(job), *_experts(job), *_batch(job), *_pipeline(job)]
    return sorted(found, key=lambda v: not v.fatal)


def require(job: Job, first_only: bool = False) -> list[Violation]:
    """The rules that only warn. Raises PlanError with every fatal one, a line each.

    first_only: name the first alone, as there is room for beside a slider.
    """
    found = check(job)
    if fatal := [str(v) for v in found if v.fatal]:
        raise PlanError(fatal[0] if first_only else "\n  ".join(["this plan cannot run:", *fatal]))
    return found


def _broken(rule: str, what: str, fix: str) -> Violation:
    return Violation(rule, True, what, fix)


def _doubtful(rule: str, what: str, fix: str) -> Violation:
    return Violation(rule, False, what, fix)


def _within(value: Any, least: float, whole: bool = True) -> bool:
    """Whether a value is one finite number of at least `least`, and whole where wanted."""
    is_number = issubclass(type(value), Real)  # numpy registers its scalars here; an array is none
    return is_number and least <= value < math.inf and (not whole or value == int(value))


def _values(job: Job) -> Iterator[Violation]:
    """Numbers that are numbers, in their range."""
    plan = job.plan
    degrees = ("dp", "tp", "pp", "cp", "ep", "virtual_stages", "micro_batch")
    whole = [(name, getattr(plan, name), 1) for name in degrees]
    whole += [("chips", job.chips, 1), ("seq_len", job.seq_len, 1), ("prefetch", plan.prefetch, 0)]
    for name, value, least in whole:
        if not _within(value, least):
            yield _broken("degree", f"{name} = {value}", f"use a whole number of at least {least}")
    tokens = [("batch_tokens", job.batch_tokens)] + ([("tokens", job.tokens)] if job.tokens is not None else [])
    for name, value in tokens:
        if not _within(value, 1, whole=False):
            yield _broken("degree", f"{name} = {value}", "use a number of at least 1")
    kept = plan.checkpoints_per_layer
    if not (_within(kept, 0, whole=False) and kept > 0):
        yield _broken("recompute", f"checkpoints_per_layer = {kept}", "use a number above 0, such as 1, 2 or 0.5")
    elif kept != 1 and plan.recompute != "full":
        what = f"checkpoints_per_layer = {kept} without full recomputation has no effect"
        yield _doubtful("recompute", what, 'use recompute "full"')


def _choices(job: Job) -> Iterator[Violation]:
    """Choices that exist."""
    plan, axes = job.plan, len(job.cluster.levels[0].shape)
    for name, value, known in (
        ("zero", plan.zero, (0, 1, 2, 3)),
        ("recompute", plan.recompute, RECOMPUTE),
        ("attention", plan.attention, ATTENTION),
        ("schedule", plan.schedule, SCHEDULES),
        ("layer", job.layer, LAYER_FORMS),
        ("dp_axes", plan.dp_axes, (None, *range(1, axes + 1)) if axes else (plan.dp_axes,)),
        ("tp_axes", plan.tp_axes, (None, *range(1, axes + 1)) if axes else (plan.tp_axes,)),
    ):
        if value not in known:
            yield _broken("choice", f"{name} = {value!r}", f"use one of {', '.join(map(str, known))}")


def _sizes(job: Job) -> Iterator[Violation]:
    """Degrees against chips and domain."""
    plan, cluster = job.plan, job.cluster
    if plan.chips != job.chips:
        product = f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} x cp {plan.cp} = {plan.chips} chips"
        yield _broken("chips", f"{product}, not {job.chips}", _fitting_chips(job))
    if cluster.max_chips and job.chips > cluster.max_chips:
        what = f"{cluster.name} has {cluster.max_chips} chips, {job.chips} asked for"
        yield _broken("cluster", what, f"use at most {cluster.max_chips} or another cluster")
    if cluster.levels[0].topology != "switch" or len(cluster.levels) == 1:
        return
    if plan.tp > cluster.domain:
        what = f"TP {plan.tp} reaches beyond the {cluster.levels[0].name} domain of {cluster.domain} chips"
        yield _broken("domain", what, f"use TP of at most {cluster.domain} and PP or FSDP beyond it")
    elif cluster.domain % plan.tp:
        what = f"TP {plan.tp} does not divide the domain of {cluster.domain} chips, so groups straddle it"
        yield _broken("domain", what, f"use TP {_fitting_tp(job)}")


def _heads(job: Job) -> Iterator[Violation]:
    """TP against the model's heads and width."""
    m, tp = job.model, job.plan.tp
    if m.n_heads % tp:
        yield _broken("heads", f"{m.n_heads} attention heads do not divide by TP {tp}", f"use TP {_fitting_tp(job)}")
    elif m.n_kv_heads % tp and tp % m.n_kv_heads:
        what = f"{m.n_kv_heads} key-value heads and TP {tp} do not divide one another"
        yield _broken("heads", what, f"use TP {_fitting_tp(job)}")
    if m.d_ff % tp:
        yield _broken("d_ff", f"d_ff {m.d_ff} does not divide by TP {tp}", f"use TP {_fitting_tp(job)}")


def _layers(job: Job) -> Iterator[Violation]:
    """Stages and chunks against the model's layers."""
    plan, layers = job.plan, job.model.n_layers
    slots, chunks = layers + 2 * plan.light_ends, plan.pp * plan.virtual_stages
    if plan.light_ends and plan.pp == 1:
        yield _broken("layers", "light ends without a pipeline", "use light_ends=False")
    elif slots % chunks:
        cut = "layers, with two places for the tables," if plan.light_ends else "layers"
        cuts = f"PP {plan.pp} x {plan.virtual_stages} chunks"
        what = f"{layers} {cut} do not divide by {cuts}; stages are unequal"
        yield Violation("layers", chunks > slots, what, f"use PP x chunks among {', '.join(map(str, divisors(slots)))}")


def _experts(job: Job) -> Iterator[Violation]:
    """EP against the experts and the ranks that hold them."""
    ep, ranks, moe = job.plan.ep, job.plan.shard_group, job.model.moe
    if ep == 1:
        return
    if moe is None:
        yield _broken("experts", f"EP {ep} on {job.model.name}, which has no experts", "use EP 1")
    elif moe.n_experts % ep or ranks % ep:
        fix = f"use EP {_closest_divisor(math.gcd(moe.n_experts, int(ranks)), ep)}"
        yield _broken("experts", f"EP {ep} must divide {moe.n_experts} experts and dp x cp = {ranks}", fix)


def _batch(job: Job) -> Iterator[Violation]:
    """The batch against sequences, replicas and microbatches."""
    plan, seq_len = job.plan, int(job.seq_len)
    if seq_len % plan.cp:
        what = f"sequences of {seq_len} tokens do not divide by CP {plan.cp}"
        yield _broken("sequence", what, f"use CP {_closest_divisor(seq_len, plan.cp)}")
    sequences, each = job.batch_tokens / seq_len, plan.dp * plan.micro_batch
    if sequences < each:
        what = (
            f"{sequences:,.10g} sequences of {seq_len} tokens for {plan.dp} replicas with microbatches of "
            f"{plan.micro_batch}: some replicas get none"
        )
        yield _broken("batch", what, f"use a batch of at least {each * seq_len:,} tokens or a smaller dp")
    elif sequences % each:
        what = (
            f"{job.batch_tokens:,} tokens are {sequences:,.10g} sequences, not a multiple of dp {plan.dp} "
            f"x microbatch {plan.micro_batch}"
        )
        nearest = max(1, round(sequences / each)) * each * seq_len
        yield _doubtful("batch", what, f"the nearest batch that divides is {nearest:,} tokens")


def _pipeline(job: Job) -> Iterator[Violation]:
    """Schedule against stages, chunks and microbatches."""
    plan, filled = job.plan, job.microbatches
    if plan.virtual_stages > 1 and plan.schedule in _UNCHUNKED:
        what = f"{plan.virtual_stages} chunks a device with schedule {plan.schedule}"
        yield _broken("schedule", what, "use schedule interleaved, or one chunk")
    if plan.pp == 1 and plan.virtual_stages > 1:
        what = f"{plan.virtual_stages} chunks a device without a pipeline"
        yield _broken("schedule", what, "use PP of at least 2")
    if plan.schedule.startswith("dualpipe") and plan.pp % 2:
        what = f"{plan.schedule} needs an even number of stages, PP is {plan.pp}"
        yield _broken("schedule", what, f"use PP {plan.pp + 1}")
    if plan.schedule in _CHUNKED and plan.pp > 1 and int(filled) % plan.pp:
        what = f"{int(filled)} microbatches are no multiple of PP {plan.pp}, which {plan.schedule} wants"
        yield _doubtful("schedule", what, "change the batch, dp or micro_batch")
    if plan.pp > 1 and filled < plan.pp:
        what = f"{filled:.3g} microbatches for {plan.pp} stages never fill the pipeline"
        least = plan.pp * plan.dp * plan.micro_batch * int(job.seq_len)
        yield _doubtful("schedule", what, f"use a batch of at least {least:,} tokens or a smaller dp")


def _closest_divisor(n: int, wanted: int) -> int:
    """The divisor of n nearest to a wanted degree, the smaller of two as near; found from there outwards."""
    start = min(int(wanted), n)
    return next(d for step in range(n) for d in (start - step, start + step) if d >= 1 and n % d == 0)


def _fitting_chips(job: Job) -> str:
    """What to change when the degrees do not multiply to the chips."""
    inner = job.plan.tp * job.plan.pp * job.plan.cp
    if job.chips % inner == 0:
        return f"use dp {int(job.chips // inner)}"
    lower = int(job.chips // inner) * inner
    near = f"{lower} or {lower + inner} chips" if lower else f"{inner} chips"
    return f"{job.chips} does not divide by tp x pp x cp = {inner}: use {near}, or other degrees"


def _fitting_tp(job: Job) -> int:
    """The TP degree nearest to the plan's that divides heads, d_ff and a switched domain, and suits the KV heads."""
    m, cluster = job.model, job.cluster
    common = math.gcd(m.n_heads, m.d_ff)
    if cluster.levels[0].topology == "switch" and len(cluster.levels) > 1:
        common = math.gcd(common, cluster.domain)
    fitting = [d for d in divisors(common) if m.n_kv_heads % d == 0 or d % m.n_kv_heads == 0]
    return min(fitting, key=lambda d: (abs(d - job.plan.tp), d))
