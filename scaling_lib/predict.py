"""Step time: what one training step takes, with an interval, opened into its parts.

Facts about the software that move a step by 10 to 50% are inputs. One that is None is unknown: the step is computed for
each of its possible values; the point takes the likeliest, says so, and the interval covers them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import exp, hypot, isfinite, log
from types import MappingProxyType
from typing import Any

from scaling_lib.catalogue import DATA, near, read_toml
from scaling_lib.hardware import Chip
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.memory import Allowance, ledger
from scaling_lib.model import attention_params, flops_per_token, mlp_params
from scaling_lib.precision import RECIPES
from scaling_lib.predict_terms import Case, Constants, step_parts
from scaling_lib.units import where

KERNELS = ("unfused", "flash-old", "flash-native")
STACKS = ("tuned", "generic")
RECOMPUTE_KINDS = ("none", "selective", "half", "full")
GRAPHS = ("none", "layers", "step")
FP8_RECIPES = ("tensor", "block", "row")
NARROW = ("fp8", "fp4", "int8")


@dataclass(frozen=True)
class Stack:
    """The software a job runs on, as far as it moves the step time. None means unknown.

    kernel: attention; "unfused" writes the scores to memory, "flash-old" is FlashAttention 1 or 2 or Triton on Hopper
    and newer, "flash-native" is written for the chip. tuning: "tuned" (Megatron-LM, NeMo, MaxText,
    torch.compile) or "generic" (DeepSpeed pipelines, eager FSDP). recompute: none, selective, half, full; "plan" takes
    the plan's. tp_overlap: matmuls pipelined with tensor-parallel traffic. tp_backward_overlap: the backward all-reduce
    beside the weight gradient. grad_bytes: of a gradient on the wire. shard_group: ranks that share one copy of the
    sharded state; "plan" takes dp x cp. virtual_stages: model chunks a device; "plan" takes
    the plan's. fp8_recipe: "tensor" (one scale a tensor), "block" (MXFP8, DeepSeek) or "row". ep_overlap: the experts'
    all-to-all runs under the matmuls of another microbatch (DualPipe). graphs: what is captured once and launched as
    one: "none", "layers" (attention, router) or the whole "step". expert_tp: ranks that cut each expert; None: the
    tensor group, unless expert parallelism takes its ranks. dispatch_bytes: of an activation, or of its gradient, on
    the way to the experts (1 when sent in 8 bits); it comes back in 16 bits.
    """

    kernel: str | None = None
    tuning: str | None = None
    recompute: str | None = "plan"
    tp_overlap: bool | None = None
    tp_backward_overlap: bool | None = None
    dp_overlap: bool | None = None
    grad_bytes: float | None = None
    shard_group: Any = "plan"
    virtual_stages: Any = "plan"
    fp8_recipe: str | None = "tensor"
    ep_overlap: bool | None = None
    graphs: str | None = None
    expert_tp: int | None = None
    dispatch_bytes: float = 2

    def __post_init__(self) -> None:
        for name, known in (
            ("kernel", KERNELS),
            ("tuning", STACKS),
            ("fp8_recipe", FP8_RECIPES),
            ("graphs", GRAPHS),
            ("recompute", (*RECOMPUTE_KINDS, "plan")),
        ):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise ValueError(f"unknown {name} {value!r}: {near(str(value), known)}, or None when unknown")
        if not self.dispatch_bytes > 0:
            raise ValueError(f"dispatch_bytes {self.dispatch_bytes}: give bytes of an element, 2 in bf16, 1 in 8 bits")

    @property
    def attention(self) -> str:
        """What the kernel means for memory: a prediction goes by this, not by the plan's own attention."""
        return "unfused" if self.kernel == "unfused" else "flash"


MEGATRON = Stack("flash-native", "tuned", "plan", True, True, True, 2, ep_overlap=False, graphs="none")
FSDP_COMPILED = Stack("flash-native", "tuned", "plan", False, False, True, 2, ep_overlap=False, graphs="none")
FSDP_EAGER = Stack("flash-old", "generic", "plan", False, False, True, 4, ep_overlap=False, graphs="none")


@dataclass(frozen=True)
class Rates:
    """What data/predictor.toml holds: constants of the terms, matmul fraction of a chip's peak by precision, how many
    sources of runs each of them rests on, and the widths of intervals in log."""

    constants: Constants
    fractions: Mapping[str, Mapping[str, float]]
    kernels: Mapping[str, str]
    units: Mapping[str, float]
    sources: Mapping[str, Mapping[str, int]]
    interval: Mapping[str, float]
    assumed: Mapping[str, float]
    memory: Mapping[str, float]


def _values(table: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(entry["value"]) for name, entry in table.items() if isinstance(entry, Mapping)}


@cache
def rates() -> Rates:
    """Constants and tables of data/predictor.toml."""
    data = read_toml(DATA / "predictor.toml")
    own = data["chips"]
    chips = {name: own[table.get("same_as", name)] for name, table in own.items()}
    return Rates(
        Constants(**_values(data["constants"])),
        MappingProxyType({name: _values(table) for name, table in chips.items()}),
        MappingProxyType({name: str(table["kernels"]) for name, table in chips.items()}),
        MappingProxyType({name: float(table["units"]) for name, table in chips.items()}),
        MappingProxyType(
            {
                name: {p: int(e.get("sources", 0)) for p, e in table.items() if isinstance(e, Mapping)}
                for name, table in chips.items()
            }
        ),
        MappingProxyType(_values(data["interval"])),
        MappingProxyType(_values(data["assumed"])),
        MappingProxyType(_values(data["memory"])),
    )


def fraction(chip: Chip, precision: str, table: Rates) -> tuple[float, bool]:
    """Matmul fraction of the dense peak that layers reach, and whether it rests on runs of that chip."""
    known = table.fractions.get(chip.name, {})
    if precision in known:
        return known[precision], table.sources[chip.name][precision] > 0
    return table.interval["prior_fraction"], False


def case_of(job: Job, stack: Stack, table: Rates | None = None) -> Case:
    """The job as the terms see it. Every field of the stack must be known; `step_time` sees to that.

    Raises CatalogueError for a precision the chip lacks.
    """
    table = table or rates()
    m, plan, chip = job.model, job.plan, job.cluster.chip
    levels = job.cluster.levels
    layer_rate = chip.flops(job.precision) * fraction(chip, job.precision, table)[0]
    head_rate = chip.flops("bf16") * fraction(chip, "bf16", table)[0]
    share = m.n_moe_layers / m.n_layers
    moe = m.moe
    shared = moe.n_shared_experts * moe.d_ff_expert if moe else 0
    width = (1 - share) * m.d_ff + share * shared
    weights = attention_params(m) + mlp_params(m, 1) * width + share * (m.d_model * moe.n_experts if moe else 0)
    query, key = m.n_heads * m.head_dim, m.n_kv_heads * m.head_dim
    recompute = plan.recompute if stack.recompute == "plan" else stack.recompute
    gathers = (plan.zero >= 3) * (plan.pp == 1)
    native = table.kernels.get(chip.name, "ampere") != "ampere"
    return Case(
        n_layers=m.n_layers,
        d_model=m.d_model,
        d_ff=width,
        gated=1 if m.gated else 0,
        n_heads=m.n_heads,
        head_dim=m.head_dim,
        query_width=query,
        key_width=key,
        attention_width=m.attention_width,
        vocab=m.vocab_size,
        seq_len=job.seq_len,
        weights=weights,
        moe_share=share,
        n_experts=moe.n_experts if moe else 1,
        experts_per_token=moe.experts_per_token if moe else 0,
        expert_params=mlp_params(m, moe.d_ff_expert) if moe else 0,
        expert_width=moe.d_ff_expert if moe else 0,
        # frameworks cut experts over the tensor group too, unless expert parallelism takes its ranks
        expert_tp=(stack.expert_tp or where(plan.ep <= plan.dp * plan.cp, plan.tp, 1)) if moe else 1,
        chips=job.chips,
        dp=plan.dp,
        tp=plan.tp,
        pp=plan.pp,
        cp=plan.cp,
        ep=plan.ep,
        chunks=plan.virtual_stages if isinstance(stack.virtual_stages, str) else stack.virtual_stages,
        micro_batch=plan.micro_batch,
        microbatches=job.microbatches,
        shard_group=plan.shard_group if isinstance(stack.shard_group, str) else stack.shard_group,
        gathers=gathers,
        reshard=1 if plan.reshard_after_forward else 0,
        shards_optimizer=plan.zero >= 1,
        returns_shards=plan.zero == 1,
        sequence_parallel=plan.sequence_parallel,
        full_recompute=1 if recompute == "full" else 0,
        selective_recompute=1 if recompute == "selective" else 0,
        half_recompute=1 if recompute == "half" else 0,
        unfused=stack.kernel == "unfused",
        old_kernel=1 if stack.kernel == "flash-old" and native else 0,
        hopper=1 if native else 0,
        generic=1 if stack.tuning == "generic" else 0,
        tp_overlap=bool(stack.tp_overlap),
        tp_backward_overlap=bool(stack.tp_backward_overlap),
        dp_overlap=bool(stack.dp_overlap),
        ep_overlap=bool(stack.ep_overlap),
        layer_graphs=1 if stack.graphs == "layers" else 0,
        step_graph=1 if stack.graphs == "step" else 0,
        grad_bytes=stack.grad_bytes,
        narrow=1 if job.precision in NARROW else 0,
        units=table.units.get(chip.name, 0.0),
        inner_widths=4 * m.d_model,
        inner_split=2 * query + 2 * key + (2 + (1 if m.gated else 0)) * width,
        block_scales=1 if stack.fp8_recipe == "block" and job.precision == "fp8" else 0,
        row_scales=1 if stack.fp8_recipe == "row" and job.precision == "fp8" else 0,
        layer_rate=layer_rate,
        head_rate=head_rate,
        peak=chip.flops("bf16"),
        hbm=chip.hbm_bandwidth,
        link=levels[0].chip_egress(),
        n_groups=moe.n_groups if moe else 1,
        groups_per_token=moe.groups_per_token if moe else 1,
        dispatch_bytes=stack.dispatch_bytes,
        link_axes=levels[0].rings(),
        domain=levels[0].size or job.chips,
        nic=levels[-1].chip_egress(),
    )


@dataclass(frozen=True)
class Calibration:
    """What measured runs of one's own cluster and stack say: a factor on the step time, and how sure it is (log)."""

    factor: float = 1.0
    spread: float | None = None
    runs: int = 0


@dataclass(frozen=True)
class Estimate:
    """Seconds of one step, the 80% interval around them, and where they go.

    mfu_causal, mfu_full: fraction of the peak at the job's precision, attention counted half or whole. unknown: inputs
    that were None; assumed: inputs that a rule filled. Both widen the interval.
    """

    seconds: float
    low: float
    high: float
    parts: Ledger
    mfu_causal: float
    mfu_full: float
    tokens_per_chip_second: float
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    memory: Memory | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest chip: tensors by kind, their peak as frameworks report it (max_allocated) with an 80%
    interval, and what allocator or nvidia-smi show, in the median and as an 80% range."""

    tensors: Ledger
    allocated: float
    low: float
    high: float
    reserved_low: float
    reserved: float
    reserved_high: float


def memory_of(job: Job, stack: Stack) -> Memory:
    """Memory of the job on the stack, with the likeliest value of each input that is unknown.

    Raises ValueError for a plan whose memory is not defined.
    """
    likeliest = {name: values[0] for name, values in choices(job, stack).items()}
    if "grad_bytes" in likeliest and job.plan.zero < 2:
        likeliest["grad_bytes"] = 4  # buffers are kept in fp32 unless a recipe says so, whatever the wire carries
    stack = replace(stack, **likeliest)
    plan = job.plan
    kind = plan.recompute if stack.recompute == "plan" else str(stack.recompute)
    if not isinstance(stack.virtual_stages, str):
        chunks = int(stack.virtual_stages)
        plan = replace(plan, virtual_stages=chunks, schedule="interleaved" if chunks > 1 else "1f1b")
    recipe = job.recipe
    if stack.grad_bytes is not None and recipe in (RECIPES["bf16"], RECIPES["megatron"]):
        recipe = RECIPES["megatron" if stack.grad_bytes == 4 else "bf16"]
    plan = replace(
        plan,
        recompute={"half": "full"}.get(kind, kind),
        checkpoints_per_layer=0.5 if kind == "half" else plan.checkpoints_per_layer,
        attention=stack.attention,
    )
    tensors = ledger(replace(job, plan=plan, recipe=recipe), Allowance(0.0, 0.0))
    told = rates().memory
    peak = float(tensors.total) * told["allocated"]
    width = hypot(told["allocated_spread"], told["allocated_between"])
    return Memory(
        tensors,
        peak,
        peak * exp(-width),
        peak * exp(width),
        peak * told["reserved_low"],
        peak * told["reserved"],
        peak * told["reserved_high"],
    )


def chunk_choices(layers: int, pp: int) -> tuple[int, ...]:
    """Numbers of chunks a device that cut the layers evenly, give or take two that embedding and loss make up for."""
    return tuple(v for v in range(1, max(1, -(-layers // pp)) + 1) if -layers % (pp * v) <= 2) or (1,)


def choices(job: Job, stack: Stack) -> dict[str, tuple[Any, ...]]:
    """Possible values of each input of the stack that is None, the likeliest first."""
    native = rates().kernels.get(job.cluster.chip.name, "ampere") != "ampere"
    layers, pp = job.model.n_layers, int(job.plan.pp)
    chunks = chunk_choices(layers, pp) if pp > 1 else ()
    everyone = int(job.plan.shard_group)
    found: dict[str, tuple[Any, ...]] = {
        "kernel": ("flash-native", "flash-old") if native else ("flash-native", "unfused"),
        "tuning": STACKS,
        "fp8_recipe": ("tensor", "block") if job.precision == "fp8" else ("tensor",),
        "recompute": ("none", "full"),
        "tp_overlap": (True, False) if job.plan.tp > 1 else (False,),
        "tp_backward_overlap": (True, False) if job.plan.tp > 1 else (False,),
        "dp_overlap": (True, False) if everyone > 1 else (False,),
        "ep_overlap": (False, True) if job.model.moe is not None and job.plan.ep > 1 else (False,),
        # experts are many small kernels: without them, launching matters little
        "graphs": ("none", "step") if job.model.moe is not None else ("none",),
        "grad_bytes": (2, 4) if everyone > 1 else (2,),
        "shard_group": tuple(dict.fromkeys((everyone, min(everyone, job.cluster.domain)))),
        "virtual_stages": tuple(dict.fromkeys((chunks[len(chunks) // 2], chunks[0], chunks[-1]))) if chunks else (1,),
    }
    return {name: values for name, values in found.items() if getattr(stack, name) is None}


def completions(stack: Stack, unknown: Mapping[str, tuple[Any, ...]]) -> list[Stack]:
    """The stack with each combination of values of its unknown inputs, as `choices` gives them, the likeliest first."""
    return [replace(stack, **dict(zip(unknown, values, strict=True))) for values in product(*unknown.values())]


def _seconds(job: Job, stack: Stack) -> dict[str, Any]:
    table = rates()
    return step_parts(case_of(job, stack, table), table.constants)


def step_time(job: Job, stack: Stack, assumed: Iterable[str] = (), calibration: Calibration | None = None) -> Estimate:
    """Seconds of one training step with an 80% interval, and the ledger of its parts.

    stack: facts about the software; what is None is unknown and widens the interval. assumed: names of inputs that were
    filled by a rule, which widens it too. calibration: from `calibrate`, narrows it.
    Raises ValueError for a job without sense, CatalogueError for a precision that the chip lacks.
    """
    if not (job.batch_tokens > 0 and job.seq_len > 0 and job.chips >= 1 and job.plan.micro_batch >= 1):
        raise ValueError(
            f"a step needs tokens and chips: batch_tokens {job.batch_tokens}, seq_len {job.seq_len}, chips "
            f"{job.chips}, "
            f"micro_batch {job.plan.micro_batch}; give positive numbers"
        )
    unknown = choices(job, stack)
    found = [_seconds(job, told) for told in completions(stack, unknown)]
    totals = [sum(parts.values()) for parts in found]
    if not all(isfinite(t) and t > 0 for t in totals):
        raise ValueError(
            f"the step of {job.model.name} on {job.chips} {job.cluster.chip.name} has no finite time: check its degrees"
        )
    assumed = tuple(assumed)
    down, up = _widths(job, assumed, calibration)
    factor = calibration.factor if calibration else 1.0
    point = totals[0] * factor
    parts = Ledger("One training step", "s", tuple(Part(name, value * factor) for name, value in found[0].items()))
    rate = job.batch_tokens / (point * job.chips)
    return Estimate(
        point,
        min(totals) * factor * exp(-down),
        max(totals) * factor * exp(up),
        parts,
        rate * flops_per_token(job.model, job.seq_len, "causal") / job.peak,
        rate * flops_per_token(job.model, job.seq_len, "full") / job.peak,
        rate,
        tuple(name for name, values in unknown.items() if len(values) > 1),
        assumed,
        memory_of(job, stack),
    )


def _widths(job: Job, assumed: tuple[str, ...], calibration: Calibration | None) -> tuple[float, float]:
    """Log widths of the 80% interval, downwards and upwards."""
    table = rates()
    wide = table.interval
    extra = (wide["guess"] * guess_width(assumed, table)) ** 2
    if calibration and calibration.spread is not None:
        width = (calibration.spread**2 + extra) ** 0.5
        return width, width
    extra += evidence_width(job.cluster.chip.name, job.precision, table) ** 2
    if job.model.moe is not None:
        extra += wide["experts"] ** 2
    return (wide["low"] ** 2 + extra) ** 0.5, (wide["high"] ** 2 + extra) ** 0.5


def guess_width(assumed: Iterable[str], table: Rates) -> float:
    """Half-width in log that fields filled by a rule add, before the factor `guess` of the interval."""
    return float(sum(table.assumed.get(_kind(name), 0.0) ** 2 for name in assumed) ** 0.5)


def evidence_width(chip: str, precision: str, table: Rates) -> float:
    """Half-width in log that is added where few sources of runs, or none, tell the matmul rate of a chip."""
    sources = table.sources.get(chip, {}).get(precision, 0)
    if sources >= table.interval["firm_sources"]:
        return 0.0
    return table.interval["few" if sources else "prior_spread"]


def _kind(name: str) -> str:
    """The row of [assumed] that a field's name falls under."""
    kinds = {
        "layout": "layout",
        "architecture": "architecture",
        "recompute": "recompute",
        "micro_batch": "micro_batch",
        "mbs": "micro_batch",
        "vpp": "vpp",
    }
    return next((kind for word, kind in kinds.items() if word in name), "other")


_Z80 = 1.2816  # standard deviations on either side that hold 80% of a normal distribution


def calibrate(runs: Iterable[tuple[Job, Stack, float]]) -> Calibration:
    """Learn from measured runs of one cluster and stack: (job, stack, seconds a step) each.

    The factor is a robust mean of the errors in log, drawn to 1 as far as a few runs can be off by chance; with more
    runs the interval narrows to the spread between runs of one source. Raises ValueError without runs.
    """
    errors = []
    for job, stack, measured in runs:
        if not (isfinite(measured) and measured > 0):
            raise ValueError(f"a measured step of {measured} s: give seconds a step, above zero")
        errors.append(log(measured / step_time(job, stack).seconds))
    if not errors:
        raise ValueError("no runs to calibrate with: give at least one (job, stack, seconds a step)")
    wide = rates().interval
    within, between = wide["within"] ** 2, wide["between"] ** 2
    n = len(errors)
    middle = sorted(errors)[n // 2] if n % 2 else sum(sorted(errors)[n // 2 - 1 : n // 2 + 1]) / 2
    kept = [min(max(e, middle - 2 * within**0.5), middle + 2 * within**0.5) for e in errors]
    trust = n * between / (n * between + within)
    spread = _Z80 * (within + (1 - trust) * between) ** 0.5
    return Calibration(exp(trust * sum(kept) / n), spread, n)
