"""Jobs: a model, a cluster, a parallel plan and a batch; and every rule that a plan breaks.

Ranks are laid out with TP innermost, then CP, then DP (EP inside it), PP outermost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from scaling_lib.catalogue import CatalogueError, near
from scaling_lib.hardware import Cluster
from scaling_lib.model import TransformerConfig
from scaling_lib.precision import BYTES, RECIPES, Recipe

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "unfused")
SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "interleaved-zb",
    "dualpipe",
    "dualpipev",
)
LAYER_FORMS = ("two-matmul", "gated", "full")


@dataclass(frozen=True)
class ParallelPlan:
    """How a job is cut. Degrees are whole numbers, or arrays of one shape for a grid of plans.

    dp: data-parallel replicas, the group that ZeRO shards over (with cp). zero: stage 0 to 3; 3 is FSDP.
    virtual_stages: model chunks a device (interleaving). micro_batch: sequences a microbatch.
    attention: "flash" keeps no scores, "unfused" writes them to memory, with dropout masks, as GPT-3 era code did;
    a prediction of step time goes by the kernel of its stack instead.
    checkpoints_per_layer: layer inputs kept when recompute is "full"; 0.5 keeps one for two layers.
    prefetch: layers gathered ahead under ZeRO 3. light_ends: the first and the last chunk of a pipeline hold one layer
    less, in exchange for the embedding and the head, as Llama 3 405B was cut.
    dp_axes, tp_axes: torus axes that the data and tensor groups use; None takes the rule of `torus_axes`.
    """

    dp: Any = 1
    tp: Any = 1
    pp: Any = 1
    cp: Any = 1
    ep: Any = 1
    zero: int = 3
    virtual_stages: Any = 1
    micro_batch: Any = 1
    schedule: str = "1f1b"
    recompute: str = "none"
    attention: str = "flash"
    checkpoints_per_layer: Any = 1
    prefetch: Any = 1
    sequence_parallel: bool = True
    reshard_after_forward: bool = True
    dp_axes: int | None = None
    tp_axes: int | None = None
    light_ends: Any = False

    @property
    def chips(self) -> Any:
        """Chips the plan uses: dp x tp x pp x cp (experts live inside dp x cp)."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def shard_group(self) -> Any:
        """Ranks that hold the same layer and TP slice: dp x cp, the group that reduces gradients."""
        return self.dp * self.cp


@dataclass(frozen=True)
class Job:
    """A training job. batch_tokens: tokens a step. seq_len: tokens. tokens: of the whole run, where wanted.

    layer: the layer form of the rooflines, "two-matmul" (In, Win, Wout), "gated" (three matrices)
    or "full" (MLP and attention).
    """

    model: TransformerConfig
    cluster: Cluster
    plan: ParallelPlan
    chips: Any
    batch_tokens: Any
    seq_len: Any
    tokens: Any = None
    precision: str = "bf16"
    recipe: Recipe = RECIPES["bf16"]
    layer: str = "two-matmul"

    @property
    def peak(self) -> float:
        """Dense peak of one chip at the job's precision, FLOP/s (C)."""
        return self.cluster.chip.flops(self.precision)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element on the wire: fp8 and fp4 multiply in fewer bits but communicate in 16.

        Raises CatalogueError for a precision whose width is not known.
        """
        if self.precision not in BYTES:
            raise CatalogueError(f"unknown precision {self.precision!r}: {near(self.precision, BYTES)}")
        return max(2, BYTES[self.precision])

    @property
    def tokens_per_chip(self) -> Any:
        """Tokens a step over all chips (B/N)."""
        return self.batch_tokens / self.chips

    @property
    def tokens_per_rank(self) -> Any:
        """Tokens a step that pass through one data-parallel rank: B / (dp cp), B/X in the rooflines."""
        return self.batch_tokens / self.plan.shard_group

    @property
    def microbatches(self) -> Any:
        """Microbatches a step in each replica (m), whole when the batch divides."""
        return self.batch_tokens / (self.seq_len * self.plan.micro_batch * self.plan.dp)

    @property
    def torus_axes(self) -> tuple[int | None, int | None]:
        """Torus axes of the data and the tensor group: as the plan says, else one axis for TP and the rest for data."""
        shape = self.cluster.levels[0].shape
        if not shape:
            return None, None
        alone = isinstance(self.plan.tp, int) and self.plan.tp == 1
        tp_axes = self.plan.tp_axes or 1
        return self.plan.dp_axes or (len(shape) if alone else max(1, len(shape) - tp_axes)), tp_axes

    @property
    def data_egress(self) -> Any:
        """Egress that limits a large collective of the data group, byte/s per group member's subtree (W_X)."""
        return self.cluster.egress(self.plan.shard_group, self.plan.tp, self.torus_axes[0])

    @property
    def tensor_egress(self) -> Any:
        """Egress that limits a large collective of the tensor group, byte/s (W_Y)."""
        return self.cluster.egress(self.plan.tp, 1, self.torus_axes[1])


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


def divisors(n: int) -> list[int]:
    """All divisors of a whole number, ascending."""
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def _closest_divisor(n: int, wanted: float) -> int:
    return min(divisors(n), key=lambda d: (abs(d - wanted), d))


def _fitting_tp(job: Job) -> int:
    """The TP degree nearest to the plan's that divides heads, d_ff and a switched domain, and suits the KV heads."""
    m, cluster = job.model, job.cluster
    common = math.gcd(m.n_heads, m.d_ff)
    if cluster.levels[0].topology == "switch" and len(cluster.levels) > 1:
        common = math.gcd(common, cluster.domain)
    fitting = [d for d in divisors(common) if m.n_kv_heads % d == 0 or d % m.n_kv_heads == 0]
    return min(fitting, key=lambda d: (abs(d - job.plan.tp), d))


def check(job: Job) -> list[Violation]:
    """Every rule a job breaks, fatal ones first, each with what to change; empty when it may run.

    For one plan (whole numbers), not a grid. Memory is not looked at here: see memory.ledger.
    """
    found = [*_check_values(job)]
    if not any(v.fatal for v in found):  # the other rules divide by these
        found += [*_check_sizes(job), *_check_model(job), *_check_batch(job), *_check_pipeline(job)]
    return sorted(found, key=lambda v: not v.fatal)


def _check_values(job: Job) -> list[Violation]:
    """Degrees that are whole and positive, choices that exist."""
    plan, found = job.plan, []
    for name in ("dp", "tp", "pp", "cp", "ep", "virtual_stages", "micro_batch"):
        value = getattr(plan, name)
        if not value >= 1 or value == math.inf or value != int(value):
            found.append(Violation("degree", True, f"{name} = {value}", "use a whole number of at least 1"))
    for name, value, least in (
        ("chips", job.chips, 1),
        ("batch_tokens", job.batch_tokens, 1),
        ("seq_len", job.seq_len, 1),
    ):
        if not least <= value < math.inf:
            found.append(Violation("degree", True, f"{name} = {value}", f"use a number of at least {least}"))
    if not 0 < plan.checkpoints_per_layer < math.inf:
        what = f"checkpoints_per_layer = {plan.checkpoints_per_layer}"
        found.append(Violation("recompute", True, what, "use a number above 0, such as 1, 2 or 0.5"))
    elif plan.checkpoints_per_layer != 1 and plan.recompute != "full":
        what = f"checkpoints_per_layer = {plan.checkpoints_per_layer} without full recomputation has no effect"
        found.append(Violation("recompute", False, what, 'use recompute "full"'))
    if not 0 <= plan.prefetch < math.inf or plan.prefetch != int(plan.prefetch):
        found.append(Violation("degree", True, f"prefetch = {plan.prefetch}", "use a whole number of at least 0"))
    for name, value, known in (
        ("zero", plan.zero, (0, 1, 2, 3)),
        ("recompute", plan.recompute, RECOMPUTE),
        ("attention", plan.attention, ATTENTION),
        ("schedule", plan.schedule, SCHEDULES),
        ("layer", job.layer, LAYER_FORMS),
    ):
        if value not in known:
            found.append(Violation("choice", True, f"{name} = {value!r}", f"use one of {', '.join(map(str, known))}"))
    return found


def _check_sizes(job: Job) -> list[Violation]:
    """Degrees against chips and domain."""
    plan, cluster, found = job.plan, job.cluster, []
    if plan.chips != job.chips:
        found.append(
            Violation(
                "chips",
                True,
                f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} x cp {plan.cp} = {plan.chips} chips, not {job.chips}",
                _fix_chips(job),
            )
        )
    if cluster.max_chips and job.chips > cluster.max_chips:
        found.append(
            Violation(
                "cluster",
                True,
                f"{cluster.name} has {cluster.max_chips} chips, {job.chips} asked for",
                f"use at most {cluster.max_chips} or another cluster",
            )
        )
    switched = cluster.levels[0].topology == "switch"
    if switched and plan.tp > cluster.domain and len(cluster.levels) > 1:
        found.append(
            Violation(
                "domain",
                True,
                f"TP {plan.tp} reaches beyond the {cluster.levels[0].name} domain of {cluster.domain} chips",
                f"use TP of at most {cluster.domain} and PP or FSDP beyond it",
            )
        )
    elif switched and len(cluster.levels) > 1 and cluster.domain % plan.tp:
        found.append(
            Violation(
                "domain",
                True,
                f"TP {plan.tp} does not divide the domain of {cluster.domain} chips, so groups straddle it",
                f"use TP {_fitting_tp(job)}",
            )
        )
    return found


def _fix_chips(job: Job) -> str:
    """What to change when the degrees do not multiply to the chips."""
    inner = job.plan.tp * job.plan.pp * job.plan.cp
    if job.chips % inner == 0:
        return f"use dp {int(job.chips // inner)}"
    lower = int(job.chips // inner) * inner
    near = f"{lower} or {lower + inner} chips" if lower else f"{inner} chips"
    return f"{job.chips} does not divide by tp x pp x cp = {inner}: use {near}, or other degrees"


def _check_model(job: Job) -> list[Violation]:
    """Degrees against the model's shape."""
    plan, m, found = job.plan, job.model, []
    if m.n_heads % plan.tp:
        found.append(
            Violation(
                "heads",
                True,
                f"{m.n_heads} attention heads do not divide by TP {plan.tp}",
                f"use TP {_fitting_tp(job)}",
            )
        )
    elif m.n_kv_heads % plan.tp and plan.tp % m.n_kv_heads:
        found.append(
            Violation(
                "heads",
                True,
                f"{m.n_kv_heads} key-value heads and TP {plan.tp} do not divide one another",
                f"use TP {_fitting_tp(job)}",
            )
        )
    if m.d_ff % plan.tp:
        found.append(
            Violation(
                "d_ff",
                True,
                f"d_ff {m.d_ff} does not divide by TP {plan.tp}",
                f"use TP {_fitting_tp(job)}",
            )
        )
    slots, chunks = m.n_layers + 2 * plan.light_ends, plan.pp * plan.virtual_stages
    if plan.light_ends and plan.pp == 1:
        found.append(Violation("layers", True, "light ends without a pipeline", "use light_ends=False"))
    elif slots % chunks:
        good = [d for d in divisors(slots) if d <= slots]
        cut = "layers, with two places for the tables," if plan.light_ends else "layers"
        found.append(
            Violation(
                "layers",
                chunks > slots,
                f"{m.n_layers} {cut} do not divide by PP {plan.pp} x {plan.virtual_stages} chunks; stages are unequal",
                f"use PP x chunks among {', '.join(map(str, good))}",
            )
        )
    if plan.ep > 1 and m.moe is None:
        found.append(Violation("experts", True, f"EP {plan.ep} on {m.name}, which has no experts", "use EP 1"))
    elif plan.ep > 1 and m.moe and (m.moe.n_experts % plan.ep or plan.shard_group % plan.ep):
        found.append(
            Violation(
                "experts",
                True,
                f"EP {plan.ep} must divide {m.moe.n_experts} experts and dp x cp = {plan.shard_group}",
                f"use EP {_closest_divisor(math.gcd(m.moe.n_experts, int(plan.shard_group)), plan.ep)}",
            )
        )
    return found


def _check_batch(job: Job) -> list[Violation]:
    """The batch against sequences, replicas and microbatches."""
    plan, found = job.plan, []
    if job.seq_len % plan.cp:
        found.append(
            Violation(
                "sequence",
                True,
                f"sequences of {job.seq_len} tokens do not divide by CP {plan.cp}",
                f"use CP {_closest_divisor(int(job.seq_len), plan.cp)}",
            )
        )
    sequences, each = job.batch_tokens / job.seq_len, plan.dp * plan.micro_batch
    least = f"{each * job.seq_len:,} tokens"  # exact: a rounded batch would be one that does not divide
    if sequences < each:
        found.append(
            Violation(
                "batch",
                True,
                f"{sequences:,.6g} sequences of {job.seq_len} tokens for {each} replicas x sequences a "
                "microbatch: some replicas get none",
                f"use a batch of at least {least} or a smaller dp",
            )
        )
    elif sequences % each:
        good = max(1, round(sequences / each)) * each * job.seq_len
        found.append(
            Violation(
                "batch",
                False,
                f"{job.batch_tokens:,} tokens are {sequences:,.6g} sequences, not a multiple of dp {plan.dp} "
                f"x microbatch {plan.micro_batch}",
                f"the nearest batch that divides is {good:,} tokens",
            )
        )
    return found


def _check_pipeline(job: Job) -> list[Violation]:
    """Schedule against stages, chunks and microbatches."""
    plan, found = job.plan, []
    each = plan.dp * plan.micro_batch
    chunked = plan.schedule in ("interleaved", "looped-bfs", "interleaved-zb")
    if plan.virtual_stages > 1 and plan.schedule in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
        found.append(
            Violation(
                "schedule",
                True,
                f"{plan.virtual_stages} chunks a device with schedule {plan.schedule}",
                "use schedule interleaved, or one chunk",
            )
        )
    if plan.pp == 1 and plan.virtual_stages > 1:
        found.append(
            Violation(
                "schedule", True, f"{plan.virtual_stages} chunks a device without a pipeline", "use PP of at least 2"
            )
        )
    if plan.schedule.startswith("dualpipe") and plan.pp % 2:
        found.append(
            Violation(
                "schedule",
                True,
                f"{plan.schedule} needs an even number of stages, PP is {plan.pp}",
                f"use PP {plan.pp + 1}",
            )
        )
    if chunked and plan.pp > 1 and int(job.microbatches) % plan.pp:
        found.append(
            Violation(
                "schedule",
                False,
                f"{int(job.microbatches)} microbatches are no multiple of PP {plan.pp}, which {plan.schedule} wants",
                "change the batch, dp or micro_batch",
            )
        )
    if plan.pp > 1 and job.microbatches < plan.pp:
        found.append(
            Violation(
                "schedule",
                False,
                f"{job.microbatches:.3g} microbatches for {plan.pp} stages: most of the step is bubble",
                f"use a batch of at least {plan.pp * each * job.seq_len:,} tokens or a smaller dp",
            )
        )
    return found


def require(job: Job) -> Job:
    """The job itself when it may run. Raises PlanError that lists every fatal rule it breaks."""
    fatal = [v for v in check(job) if v.fatal]
    if fatal:
        raise PlanError("; and ".join(map(str, fatal)))
    return job


def with_plan(job: Job, **changes: Any) -> Job:
    """The job with some fields of its plan changed, e.g. `with_plan(job, tp=4)`."""
    return replace(job, plan=replace(job.plan, **changes))
