"""Memory: what fills the fullest chip, row by row, at the fullest moment of a step.

Steps as elsewhere: count parameters, count bytes, add what lives at the same time, compare with HBM, solve for chips.
Two moments compete: the `loss`, with logits, and the backward pass of a `layer`, with what is recomputed for it.
Left out: workspaces of kernels and 8-bit copies of weights; the allowance covers the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from scaling_lib import catalogue
from scaling_lib.job import Job, divisors, with_plan
from scaling_lib.ledger import Ledger, Part
from scaling_lib.memory_activations import (
    checkpoint_bytes,
    gradient_bytes,
    kept_bytes,
    layer_activations,
    recomputed_bytes,
)
from scaling_lib.memory_stages import (
    ALL_FORWARD_FIRST,
    Stage,
    fullest_ranks,
    in_flight,
    layer_groups,
    resident_bytes,
    stage,
    stage_groups,
)
from scaling_lib.precision import BYTES, Recipe
from scaling_lib.units import ceil_div, maximum, where

__all__ = [
    "Allowance",
    "assumed_allowance",
    "checkpoint_bytes",
    "fits",
    "in_flight",
    "layer_activations",
    "ledger",
    "min_chips",
    "peak_bytes",
    "smallest_dp",
    "state_bytes_per_param",
]


@dataclass(frozen=True)
class Allowance:
    """Memory that no tensor of the ledger uses. context: bytes a process. fragmentation: share of all tensors."""

    context: float
    fragmentation: float


def assumed_allowance() -> Allowance:
    """The catalogue's assumption; its reasons stand there."""
    context, fragmentation = catalogue.find("assumptions", "context"), catalogue.find("assumptions", "fragmentation")
    return Allowance(
        catalogue.figure(context, "size", "B", "assumption context"),
        catalogue.figure(fragmentation, "share", "", "assumption fragmentation"),
    )


def state_bytes_per_param(recipe: Recipe, zero: int, shards: Any) -> Any:
    """Training state on one chip per parameter it works on, bytes: each kind whole or over X.

    zero: 1 shards the optimizer, 2 the gradients too, 3 the weights too. Source: ZeRO, arXiv:1910.02054, figure 1.
    Raises ValueError for another stage.
    """
    return sum(b / (shards if over else 1) for _, b, over in _state(recipe, zero))


def _state(recipe: Recipe, zero: int) -> list[tuple[str, float, bool]]:
    """Kinds of state: name, bytes per parameter, whether this ZeRO stage shards it."""
    if zero not in (0, 1, 2, 3):
        raise ValueError(f"zero is {zero!r}: use stage 0, 1, 2 or 3")
    kinds = (
        ("weights", recipe.weights, 3),
        ("gradients", recipe.grads, 2),
        ("master", recipe.master, 1),
        ("adam m", recipe.adam_m, 1),
        ("adam v", recipe.adam_v, 1),
    )
    return [(name, b, zero >= least) for name, b, least in kinds]


@dataclass(frozen=True)
class _Sizes:
    """Bytes and counts that all rows of one job share, so that each is worked out once.

    tokens: of a microbatch on one chip. shared: ways that sequence parallelism cuts the stream. kept, working,
    gradients, params: of one dense and one MoE layer, parameters as `Groups.on_chip` tells them.
    """

    job: Job
    tokens: Any
    shared: Any
    kept: tuple[Any, Any]
    working: tuple[Any, Any]
    gradients: tuple[Any, Any]
    params: tuple[tuple[Any, Any], tuple[Any, Any]]


def _sizes(job: Job) -> _Sizes:
    """What the rows of a job share."""
    plan, e = job.plan, job.element_bytes
    tokens, shared = plan.micro_batch * job.seq_len / plan.cp, where(plan.sequence_parallel, plan.tp, 1)
    point = checkpoint_bytes(tokens, job.model.d_model, 1, plan.checkpoints_per_layer, shared, e)
    cut = plan.tp, plan.sequence_parallel, plan.attention
    dense = layer_activations(job.model, tokens, job.seq_len, *cut, False, e)
    moe = layer_activations(job.model, tokens, job.seq_len, *cut, True, e) if job.model.moe else dense
    k = plan.checkpoints_per_layer
    kept = kept_bytes(dense, plan.recompute, point), kept_bytes(moe, plan.recompute, point)
    working = recomputed_bytes(dense, plan.recompute, k), recomputed_bytes(moe, plan.recompute, k)
    back = [gradient_bytes(job.model, tokens, plan.tp, shared, moe_layer, e) for moe_layer in (False, True)]
    layers = [layer_groups(job.model, moe_layer, plan.tp).on_chip(plan.tp, plan.ep) for moe_layer in (False, True)]
    return _Sizes(job, tokens, shared, kept, working, (back[0], back[1]), (layers[0], layers[1]))


def _state_rows(job: Job, at: Stage) -> list[Part]:
    """Weights, gradients and optimizer of a stage on one chip."""
    plan = job.plan
    on_chip = stage_groups(job.model, at, plan.tp).on_chip(plan.tp, plan.ep)
    groups = plan.shard_group, plan.shard_group / plan.ep
    return [
        Part(
            f"state/{name}",
            resident_bytes(on_chip, b, groups if over else (1, 1)),
            f"{b:g} P/(Y X)" if over else f"{b:g} P/Y",
        )
        for name, b, over in _state(job.recipe, plan.zero)
    ]


def _activation_rows(s: _Sizes, at: Stage, heads: Any) -> list[Part]:
    """What forward leaves for backward. heads: microbatches whose loss waits for backward."""
    wide = s.tokens * s.job.model.d_model / s.shared
    mask = wide * at.embedding * at.in_flight / at.copies if s.job.plan.attention == "unfused" else 0.0
    layers = at.dense_layers * s.kept[0] + at.moe_layers * s.kept[1]
    return [
        Part("activations/kept", at.in_flight / at.copies * layers, "in flight x layers x bytes kept a layer"),
        Part("activations/embedding dropout", mask, "in flight x T D/Y, unfused recipe only"),
        Part(
            "activations/head inputs",
            2 * s.job.element_bytes * wide * (at.head > 0) * heads,
            "2 T D e/Y for the final norm and the head",
        ),
    ]


def _weights_rows(s: _Sizes, at: Stage, at_loss: bool) -> list[Part]:
    """Whole weights and gradients of the piece at work: a layer, or the head at the loss."""
    job, (dense, moe) = s.job, s.params
    plan, m = job.plan, job.model
    layer = maximum(where(at.dense_layers > 0, sum(dense), 0), where(at.moe_layers > 0, sum(moe), 0))
    head = where(at.head > 0, m.vocab_size * m.d_model / plan.tp, 0)
    piece = where(at.head > 0, head, layer) if at_loss else layer
    gathered = (
        piece + plan.prefetch * layer
        if plan.reshard_after_forward
        else sum(stage_groups(m, at, plan.tp).on_chip(plan.tp, plan.ep))
    )
    several = plan.shard_group > 1
    shapes = maximum(where(at.dense_layers > 0, dense[0], 0), where(at.moe_layers > 0, moe[0], 0))
    return [
        Part(
            "transient/gathered layer",
            where(several, gathered, 0.0) * job.recipe.weights * (plan.zero == 3),
            "(piece + prefetch x layer)/Y" if plan.reshard_after_forward else "all of the stage/Y, kept for backward",
        ),
        Part(
            "transient/unreduced gradients",
            where(several, piece, 0.0) * job.recipe.grad_wire * (plan.zero >= 2),
            "gradient of the piece/Y, before its reduce-scatter",
        ),
        Part(
            "transient/weight gradients",
            (shapes + head * at_loss) * job.element_bytes * (plan.zero < 2),
            "e for each weight of a layer (and of the head)/Y, before they join their buffer",
        ),
    ]


def _other_rows(s: _Sizes, at: Stage, heads: Any, at_loss: bool) -> list[Part]:
    """Recomputed activations, gradients of activations, logits and buffers of the collectives."""
    plan, m, e = s.job.plan, s.job.model, s.job.element_bytes
    none = 0.0 * s.tokens
    working = maximum(where(at.dense_layers > 0, s.working[0], 0.0), where(at.moe_layers > 0, s.working[1], 0.0))
    back = maximum(where(at.dense_layers > 0, s.gradients[0], 0.0), where(at.moe_layers > 0, s.gradients[1], 0.0))
    logits = s.tokens * m.vocab_size / plan.tp * (at.head > 0)
    fused_loss = plan.attention != "unfused" and plan.zero < 2  # others hold the 16-bit logits beside the fp32 ones
    buffers = (
        s.tokens
        * e
        * (
            where(plan.tp > 1, m.d_model, 0) * plan.sequence_parallel
            + where(plan.pp > 1, 2 * m.d_model / s.shared, 0)
            + where(plan.cp > 1, 4 * m.head_dim * maximum(m.n_kv_heads, plan.tp) / plan.tp, 0)
        )
    )
    return [
        Part("transient/recomputed layer", none if at_loss else working, "whole layer/k (full), scores (selective)"),
        Part(
            "transient/activation gradients",
            none if at_loss else back,
            "(2 T D + 2 T F) e/Y gated, (2 T D + T F) e/Y not",
        ),
        Part("transient/logits", logits * e * (at_loss and not fused_loss), "T V e/Y, none with a fused loss"),
        Part(
            "transient/fp32 loss",
            logits * BYTES["fp32"] * (heads if at_loss else heads - 1),
            "4 T V/Y, softmax turned into its gradient in place",
        ),
        Part("transient/communication buffers", buffers, "T D e (TP gather) + 2 T D e/Y (PP) + 4 T K h e/Y (CP ring)"),
    ]


@dataclass(frozen=True)
class _Held:
    """What one rank holds at both moments: its stage, microbatches whose loss waits for backward, rows."""

    at: Stage
    heads: Any
    rows: list[Part]


def _held(s: _Sizes, rank: Any) -> _Held:
    job, at = s.job, stage(s.job, rank)
    late = job.plan.schedule in ALL_FORWARD_FIRST
    heads = where(job.plan.pp > 1, job.microbatches, 1) if late else 1
    return _Held(at, heads, [*_state_rows(job, at), *_activation_rows(s, at, heads)])


def _at(s: _Sizes, rank: Any, at_loss: bool, allowance: Allowance, held: _Held | None = None) -> Ledger:
    """The ledger of one rank at one of the two moments. held: of that rank, where it is known already."""
    held = held or _held(s, rank)
    at, heads = held.at, held.heads
    rows = [*held.rows, *_weights_rows(s, at, at_loss), *_other_rows(s, at, heads, at_loss)]
    rows += [
        Part("allowance/context", allowance.context, "driver, kernels, NCCL: assumed"),
        Part(
            "allowance/fragmentation",
            allowance.fragmentation * sum(r.value for r in rows),
            f"{allowance.fragmentation:.0%} of the rows above: assumed",
        ),
    ]
    moment = "at the loss" if at_loss else "in a layer's backward pass"
    whose = rank if isinstance(rank, int) else "of each plan"  # to print an array takes longer than to compute it
    return Ledger(f"Memory of a chip of stage {whose}, {moment}", "B", tuple(rows))


def _fuller(a: Ledger, b: Ledger) -> Ledger:
    """The ledger with the larger total; plan by plan for a grid."""
    more = b.total > a.total
    if isinstance(more, bool):
        return b if more else a
    return Ledger(
        "Memory of the fullest chip",
        a.unit,
        tuple(Part(p.name, where(more, q.value, p.value), p.formula) for p, q in zip(a.parts, b.parts, strict=True)),
    )


def _moments(job: Job, allowance: Allowance | None) -> Iterator[Ledger]:
    """Ledgers among which the fullest is: the ranks that may be the fullest, at both moments."""
    allowance = assumed_allowance() if allowance is None else allowance
    sizes = _sizes(job)
    for rank in fullest_ranks(job):
        held = _held(sizes, rank)
        for at_loss in (False, True):
            yield _at(sizes, rank, at_loss, allowance, held)


def ledger(job: Job, allowance: Allowance | None = None) -> Ledger:
    """Bytes on the fullest chip at its fullest moment, every kind a row. Rows that do not live at that moment are 0.

    allowance: for context, NCCL and fragmentation; None takes `assumed_allowance`. Plans may be arrays.
    Letters: P parameters of the stage, X data group, Y TP, T tokens of a microbatch on the chip, e bytes an element.
    Rows of T D/Y are cut so by sequence parallelism; without it they are whole.
    Raises ValueError for an unknown schedule, attention, recomputation or ZeRO stage.
    """
    return reduce(_fuller, _moments(job, allowance))


def peak_bytes(job: Job, allowance: Allowance | None = None) -> Any:
    """The total of `ledger` alone: for a grid of plans this spares the choice of its rows."""
    return reduce(maximum, (now.total for now in _moments(job, allowance)))


def fits(job: Job, allowance: Allowance | None = None) -> Any:
    """Whether the fullest chip's ledger is within its HBM."""
    return peak_bytes(job, allowance) <= job.cluster.chip.hbm


def min_chips(total: Any, hbm: Any) -> Any:
    """Fewest chips whose memory together holds `total` bytes, if it could be cut at will. Equation: eq-min-chips.

    A lower bound: what each chip holds anyway (gathered layers, logits, context) is left out; see `smallest_dp`.
    """
    return ceil_div(total, hbm)


def smallest_dp(job: Job, allowance: Allowance | None = None) -> int | None:
    """The knob: smallest data-parallel degree at which the job fits, its other degrees and its batch as they are.

    Tried are the degrees that divide the batch. None when none fits; chips are then dp x tp x pp x cp.
    Raises ValueError when the batch is no whole number of microbatches.
    """
    slots = job.batch_tokens / (job.seq_len * job.plan.micro_batch)
    if slots != int(slots) or slots < 1:
        raise ValueError(
            f"{job.batch_tokens:g} tokens are {slots:g} microbatches of {job.plan.micro_batch} x {job.seq_len} tokens: "
            "use a batch that divides"
        )
    for dp in divisors(int(slots)):
        if fits(with_plan(job, dp=dp), allowance):  # the ledger reads the plan's degrees, not job.chips
            return dp
    return None
