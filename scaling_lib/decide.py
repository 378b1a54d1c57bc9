"""Decision: which plan, and why. The flow as data, so that the list of verdicts and the drawn chart are one thing.

Order of the questions: tokens per chip against the network the data group runs on, TP against the domain, a pipeline
when the batch is too small for the network, microbatches against its bubble, pods, memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaling_lib import crosspod, dp, ep, fsdp, memory, pp, roofline, tp
from scaling_lib.job import Job, with_plan
from scaling_lib.units import show


@dataclass(frozen=True)
class Verdict:
    """An answer: the question, value against threshold, their unit, whether it is well, and why."""

    key: str
    question: str
    value: float
    threshold: float
    unit: str
    ok: bool
    why: str

    def __str__(self) -> str:
        mark = "yes" if self.ok else "NO"
        sides = f"{show(self.value, self.unit)} against {show(self.threshold, self.unit)}"
        return f"{mark:>3}  {self.question} {sides}: {self.why}"


@dataclass(frozen=True)
class Step:
    """One question of the flow and what to do when the answer is no."""

    key: str
    question: str
    ask: Callable[[Job], Verdict]
    otherwise: str


def data_times(job: Job) -> roofline.Times:
    """Times of the data group's traffic: FSDP at ZeRO 3, else DP."""
    return fsdp.times(job) if job.plan.zero == 3 else dp.times(job)


def critical_tokens(job: Job) -> Any:
    """Tokens per chip (B/N) above which the data group's traffic hides, at this plan and cluster."""
    critical = fsdp.critical_batch(job) if job.plan.zero == 3 else dp.critical_batch(job)
    return critical / job.chips


def mfu_cap(job: Job) -> Any:
    """Largest MFU that the data group's traffic allows, before bubble, latency and kernels take theirs."""
    return data_times(job).mfu_cap


def smallest_pp(job: Job) -> int | None:
    """The knob: smallest pipeline degree with whole replicas whose threshold is at most the tokens per chip.

    Depths that cut the layers into equal stages come first; unequal ones are taken when no equal one does. None when
    no depth does.
    """
    depths = range(1, job.model.n_layers + 1)
    for depth in sorted(depths, key=lambda depth: (job.model.n_layers % depth != 0, depth)):
        inner = job.plan.tp * job.plan.cp * depth
        replicas = job.chips // inner
        if job.chips % inner == 0 and replicas * job.plan.cp % job.plan.ep == 0:
            trial = with_plan(job, pp=depth, dp=replicas)
            if job.tokens_per_chip >= critical_tokens(trial):
                return depth
    return None


def bubble(job: Job) -> float:
    """Share of the step that stages idle, by the closed form of 1F1B and its interleaving."""
    return float(pp.bubble_of_total(job.plan.pp, job.microbatches, job.plan.virtual_stages))


def _ask_tokens(job: Job) -> Verdict:
    level = job.cluster.slowest(job.plan.shard_group, job.plan.tp, job.torus_axes[0])
    where = f"the {level.name} network sets the threshold" if level else "one replica: nothing to reduce"
    needed = critical_tokens(job)
    ok = bool(job.tokens_per_chip >= needed)
    why = where if ok else f"{where}; MFU is capped at {show(mfu_cap(job), '%')}"
    return Verdict(
        "tokens",
        "tokens per chip hide the weight and gradient traffic?",
        job.tokens_per_chip,
        needed,
        "token/chip",
        ok,
        why,
    )


def _ask_tensor(job: Job) -> Verdict:
    limit = min(tp.max_tp(job), job.cluster.domain)
    ok = job.plan.tp <= limit
    edge = (
        "domain" if limit == job.cluster.domain else f"width {roofline.layer_of(job).effective_d_ff:.0f} of the layer"
    )
    return Verdict(
        "tensor",
        "TP degree stays within its limit?",
        job.plan.tp,
        limit,
        "way",
        ok,
        f"the {edge} sets the limit" if job.plan.tp > 1 else "no TP",
    )


def _ask_pipeline(job: Job) -> Verdict:
    needed = smallest_pp(job)
    if needed is None:
        return Verdict(
            "pipeline",
            "pipeline deep enough for the batch?",
            job.plan.pp,
            job.model.n_layers,
            "stage",
            False,
            "no pipeline depth makes this batch large enough: use fewer chips or a larger batch",
        )
    ok = job.plan.pp >= needed
    return Verdict(
        "pipeline",
        "pipeline deep enough for the batch?",
        job.plan.pp,
        needed,
        "stage",
        ok,
        "each stage reduces only its own layers" if needed > 1 else "no pipeline is needed for bandwidth",
    )


def _ask_bubble(job: Job) -> Verdict:
    p, v = job.plan.pp, job.plan.virtual_stages
    wanted = 4 * p / v if p > 1 else 1.0
    ok = bool(job.microbatches >= wanted)
    return Verdict(
        "microbatches",
        "enough microbatches to fill the pipeline?",
        job.microbatches,
        wanted,
        "microbatch",
        ok,
        f"the bubble takes {show(bubble(job), '%')} of the step" if p > 1 else "no pipeline",
    )


def _ask_pods(job: Job) -> Verdict:
    pods = crosspod.pods(job)
    value, needed = job.batch_tokens / pods, crosspod.critical_batch(job) / pods
    return Verdict(
        "pods",
        "batch per pod hides the all-reduce across pods?",
        value,
        needed,
        "token/pod",
        bool(value >= needed),
        f"{pods} pods of {crosspod.pod_chips(job)} chips" if pods > 1 else "one pod",
    )


def _ask_experts(job: Job) -> Verdict:
    now, width = ep.times(job), ep.min_d_ff_expert(job)
    hops = job.cluster.hops(job.plan.ep, job.plan.tp, job.torus_axes[0])
    slowest = max(hops, key=lambda hop: ep.exchange_seconds(1.0, job.plan.ep, [hop], job.torus_axes[0]))
    hidden = min(1.0, now.forward_math / now.forward_comms)
    return Verdict(
        "experts",
        "experts wide enough to hide the all-to-all?",
        job.model.moe.d_ff_expert if job.model.moe else 0,
        width,
        "element",
        bool(now.compute_bound),
        f"the {slowest.level.name} network sets the threshold; at most {show(hidden, '%')} of it can hide",
    )


def _ask_memory(job: Job) -> Verdict:
    total, hbm = float(memory.ledger(job).total), job.cluster.chip.hbm
    return Verdict(
        "memory",
        "the fullest chip fits its memory?",
        total,
        hbm,
        "B",
        total <= hbm,
        f"{show(total / hbm, '%')} of {show(hbm, 'B')}",
    )


FLOW: tuple[Step, ...] = (
    Step(
        "tokens",
        "Tokens per chip above the threshold of the network the data group crosses?",
        _ask_tokens,
        "raise the batch, or go on: a pipeline lowers the threshold",
    ),
    Step("tensor", "TP inside the domain and below its limit?", _ask_tensor, "lower TP to the domain"),
    Step(
        "pipeline", "Pipeline deep enough for the batch?", _ask_pipeline, "raise PP to the next divisor of the layers"
    ),
    Step("microbatches", "At least 4 PP microbatches, or interleaved?", _ask_bubble, "interleave, or use fewer chips"),
    Step(
        "pods",
        "Batch per pod above the threshold of the outer network?",
        _ask_pods,
        "raise the batch, or keep PP across pods",
    ),
    Step("memory", "Fullest chip within its memory?", _ask_memory, "recompute, shard more, or raise TP or PP"),
)


EXPERTS = Step(
    "experts",
    "Experts wide enough to hide their all-to-all?",
    _ask_experts,
    "lower EP to the domain, or overlap by hand",
)


def explain(job: Job) -> list[Verdict]:
    """Verdicts of the flow for one job, in order: question, value, threshold, unit, ok, why.

    A mixture of experts counts the experts that a token visits as FLOPs, all that a chip holds as bytes; when they are
    spread, their all-to-all is asked about too.
    Rules that forbid the job outright are not asked here: see `job.check`.
    """
    steps = (*FLOW[:2], EXPERTS, *FLOW[2:]) if job.model.moe and job.plan.ep > 1 else FLOW
    return [step.ask(job) for step in steps if step.key != "pods" or len(job.cluster.levels) > 1]
