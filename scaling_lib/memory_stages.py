"""Pipeline stages as memory sees them: layers of a rank, microbatches it keeps, parameters by what divides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaling_lib import pp
from scaling_lib.job import SCHEDULES, Job, ParallelPlan
from scaling_lib.model import TransformerConfig, attention_params, mlp_params, params
from scaling_lib.units import ceil_div, maximum, minimum, where

FOLDED = ("zb-v", "v-half", "v-min", "dualpipev")  # two chunks a rank: r and 2p - 1 - r
ALL_FORWARD_FIRST = ("gpipe", "looped-bfs")


def in_flight(schedule: str, stages: Any, microbatches: Any, chunks: Any = 1, rank: Any = 0) -> Any:
    """Microbatches whose activations a rank holds at its peak, each of 1/p of the model (a chunk counts 1/v).

    The closed forms of `pp.PEAKS`; 1 without a pipeline, where microbatches follow one another; 1F1B's for interleaving
    with one chunk, which is 1F1B.
    Raises ValueError for an unknown schedule.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}: use one of {', '.join(SCHEDULES)}")
    # PyTorch's interleaved zero-bubble order holds weight gradients back until p microbatches are in flight, as ZB-H1
    peak = pp.PEAKS["zb-h1" if schedule == "interleaved-zb" else schedule](stages, microbatches, chunks, rank)
    if schedule == "interleaved":
        peak = where(chunks > 1, peak, pp.peak_1f1b(stages, microbatches, rank))
    return where(stages > 1, minimum(microbatches, peak), 1)


@dataclass(frozen=True)
class Stage:
    """What one pipeline rank holds.

    dense_layers, moe_layers: layers whose weights it has. embedding, head: copies of the tables. copies: model copies
    in the pipeline (2 for DualPipe); a microbatch passes 1/copies of the rank's layers. in_flight: microbatches kept.
    """

    dense_layers: Any
    moe_layers: Any
    embedding: Any
    head: Any
    copies: Any
    in_flight: Any


def chunk_of(layer: Any, n_layers: Any, n_chunks: Any) -> Any:
    """Chunk that holds a layer, both from 0, when the first n_layers mod n_chunks chunks take one layer more."""
    size, longer = n_layers // n_chunks, n_layers % n_chunks
    return where(
        layer < longer * (size + 1), layer // (size + 1), longer + (layer - longer * (size + 1)) // maximum(size, 1)
    )


def n_chunks(plan: ParallelPlan) -> Any:
    """Pieces the layers are cut into: v a rank, 2 where the pipeline is folded; DualPipe's ranks share p pieces."""
    if plan.schedule == "dualpipe":
        return plan.pp
    return plan.pp * (2 if plan.schedule in FOLDED else plan.virtual_stages)


def stage(job: Job, rank: Any) -> Stage:
    """The stage of pipeline rank `rank`, from 0. Layers that do not divide go to the first chunks, one each.

    With light ends the tables count as a layer: the first and the last chunk get one layer less than their share.
    """
    plan, p = job.plan, job.plan.pp
    light = 1 * plan.light_ends
    n = job.model.n_layers + 2 * light
    both, folded = plan.schedule == "dualpipe", plan.schedule in FOLDED
    chunks = n_chunks(plan)
    mirror = chunks - 1 - rank
    again = 1 * (p > 1) if both else int(folded)  # without a pipeline DualPipe has no second copy

    def held(chunk: Any) -> Any:
        return 1 * (chunk % p == rank) if not (folded or both) else 1 * (chunk == rank) + again * (chunk == mirror)

    def length(chunk: Any) -> Any:
        return n // chunks + 1 * (chunk < n % chunks)

    layers = plan.virtual_stages * (n // chunks) + ceil_div(n % chunks - rank, p)
    if folded or both:
        layers = length(rank) + again * length(mirror)
    layers = layers - light * (held(0) + held(chunks - 1))
    dense = layers
    if job.model.moe:
        dense = sum(held(chunk_of(i + light, n, chunks)) for i in range(job.model.moe.n_dense_layers))
    return Stage(
        dense,
        layers - dense,
        held(0),
        held(chunks - 1),
        1 + again * both,
        in_flight(plan.schedule, p, job.microbatches, plan.virtual_stages, rank),
    )


def fullest_ranks(job: Job) -> list[Any]:
    """Ranks among which the fullest is: the first, the last, the first with experts in all its layers.

    With light ends also the second: it holds a layer more than the first, of fewer microbatches.
    Under DualPipe also a middle one, which holds two long chunks when more than half of them are long.
    """
    p, moe = job.plan.pp, job.model.moe
    ranks = [0, p - 1]
    if job.plan.light_ends is not False:
        ranks.append(minimum(p - 1, 1))
    if job.plan.schedule == "dualpipe":
        ranks.append((p - 1) // 2)
    if moe:
        light = 1 * job.plan.light_ends
        last_dense = moe.n_dense_layers - 1 + light
        layers = job.model.n_layers + 2 * light
        after = chunk_of(last_dense, layers, n_chunks(job.plan)) + 1 if moe.n_dense_layers else 0
        ranks.append(minimum(p - 1, after))
    return list(dict.fromkeys(ranks)) if all(isinstance(r, int) for r in ranks) else ranks


@dataclass(frozen=True)
class Groups:
    """Parameters by what divides them: `split` by TP, `experts` by TP and EP, `replicated` by neither."""

    split: Any
    replicated: Any
    experts: Any = 0

    def times(self, factor: Any) -> Groups:
        """Each group `factor` times."""
        return Groups(self.split * factor, self.replicated * factor, self.experts * factor)

    def plus(self, other: Groups) -> Groups:
        """Groups added."""
        return Groups(self.split + other.split, self.replicated + other.replicated, self.experts + other.experts)

    def on_chip(self, tp: Any, ep: Any = 1, expert_tp: Any = None) -> tuple[Any, Any]:
        """Parameters on one chip: those every rank of the data group has a copy of, and those of its experts."""
        return self.split / tp + self.replicated, self.experts / (ep * (tp if expert_tp is None else expert_tp))


def layer_groups(model: TransformerConfig, moe_layer: bool = False, tp: Any = 1) -> Groups:
    """Parameters of one layer by group. Key-value weights are copied when TP exceeds the key-value heads."""
    copies = 0 if model.mla else 2 * model.d_model * model.head_dim * (maximum(model.n_kv_heads, tp) - model.n_kv_heads)
    norms = (params(model)["norms"] - model.d_model) / model.n_layers
    moe = model.moe
    if not (moe_layer and moe):
        return Groups(attention_params(model) + copies + mlp_params(model), norms)
    expert = mlp_params(model, moe.d_ff_expert)
    return Groups(
        attention_params(model) + copies + moe.n_shared_experts * expert,
        norms + model.d_model * moe.n_experts,
        moe.n_experts * expert,
    )


def stage_groups(model: TransformerConfig, at: Stage, tp: Any = 1) -> Groups:
    """Parameters of a stage by group: its layers, the tables (one when tied and together) and the final norm."""
    tables = maximum(at.embedding, at.head) if model.tied_embeddings else at.embedding + at.head
    ends = Groups(tables * model.vocab_size * model.d_model, at.head * model.d_model)
    return (
        layer_groups(model, False, tp)
        .times(at.dense_layers)
        .plus(layer_groups(model, True, tp).times(at.moe_layers))
        .plus(ends)
    )


def resident_bytes(on_chip: tuple[Any, Any], bytes_per_param: Any, shards: tuple[Any, Any] = (1, 1)) -> Any:
    """Bytes of one kind of state on one chip: P b / X, experts by the smaller group that shares them."""
    return bytes_per_param * (on_chip[0] / shards[0] + on_chip[1] / shards[1])
