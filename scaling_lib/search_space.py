"""The space of a search: what is asked, the values of each axis, and the rules of shape that layouts break.

Needs numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling_lib.hardware import Cluster
from scaling_lib.job import divisors
from scaling_lib.model import TransformerConfig
from scaling_lib.precision import RECIPES, Recipe
from scaling_lib.predict import MEGATRON, Stack

RECOMPUTES = ("none", "selective", "full")
SWITCHES = ("tp_overlap", "tp_backward_overlap", "dp_overlap", "ep_overlap")
AXES = ("tp", "pp", "cp", "ep", "chunks", "micro_batch", "recompute", "zero", "sequence_parallel")


@dataclass(frozen=True)
class Space:
    """The choices of each axis. None takes all that the model and the chips allow; of a switch, what the stack says.

    tp_overlap, tp_backward_overlap, dp_overlap, ep_overlap: switches of the software, see `predict.Stack`; the last
    is asked about only where there are experts.
    """

    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    recompute: tuple[str, ...] = RECOMPUTES
    zero: tuple[int, ...] = (0, 1, 2, 3)
    sequence_parallel: tuple[bool, ...] = (True, False)
    tp_overlap: tuple[bool, ...] | None = None
    tp_backward_overlap: tuple[bool, ...] | None = None
    dp_overlap: tuple[bool, ...] | None = None
    ep_overlap: tuple[bool, ...] | None = None


_MOST_CHIPS = 10**9  # the divisors of more take seconds to find
_BOTH = (True, False)
# every switch on and off, first as Megatron-LM has it
WIDE = Space(tp_overlap=_BOTH, tp_backward_overlap=_BOTH, dp_overlap=_BOTH, ep_overlap=(False, True))


@dataclass(frozen=True)
class Question:
    """What is asked: train a model on so many chips of a cluster, batch_tokens a step, sequences of seq_len tokens.

    tokens: of the whole run, for days. price: USD a chip-second, for USD.
    """

    model: TransformerConfig
    cluster: Cluster
    chips: int
    batch_tokens: int
    seq_len: int
    tokens: float | None = None
    price: float | None = None
    precision: str = "bf16"
    stack: Stack = MEGATRON
    recipe: Recipe = RECIPES["megatron"]


def axes(q: Question, space: Space) -> dict[str, tuple[Any, ...]]:
    """Values of each axis: as the space says, else all divisors that could fit. Raises ValueError for an empty one."""
    _check(q)
    sequences = int(q.batch_tokens // q.seq_len)
    layers, moe = q.model.n_layers, q.model.moe
    depths = space.pp or tuple(d for d in divisors(q.chips) if d <= layers)
    even = {v for v in divisors(layers) if 2 * v <= layers}  # two stages at least
    deep = [p for p in depths if p > 1]
    even |= {v for p in deep for v in divisors(layers + int(spare_places(layers, p))) if _cut(layers, p, v)}
    found: dict[str, tuple[Any, ...]] = {
        "tp": space.tp or tuple(d for d in divisors(q.chips) if d <= max(q.cluster.domain, 64)),
        "pp": depths,
        "cp": space.cp or tuple(d for d in divisors(q.chips) if d <= max(1, q.seq_len // 1024)),
        "ep": space.ep or (tuple(divisors(moe.n_experts)) if moe else (1,)),
        "chunks": space.chunks or tuple(sorted(even | {1})),
        "micro_batch": space.micro_batch or tuple(d for d in divisors(sequences) if d <= 64),
        "recompute": space.recompute,
        "zero": space.zero,
        "sequence_parallel": space.sequence_parallel,
    }
    empty = [name for name, values in found.items() if not values]
    if empty:
        raise ValueError(f"no value of {empty[0]} to search: name some in Space({empty[0]}=…)")
    return found


def _check(q: Question) -> None:
    """Raise ValueError for a question that no layout can answer."""
    if q.chips < 1 or q.seq_len < 1:
        raise ValueError(f"chips = {q.chips}, seq_len = {q.seq_len}: use at least 1")
    if q.chips > _MOST_CHIPS:
        raise ValueError(f"chips = {q.chips:,}: more than anyone has; use at most {_MOST_CHIPS:,}")
    most = q.cluster.max_chips
    if most and q.chips > most:
        raise ValueError(
            f"{q.cluster.name} has {most} chips, {q.chips} asked for: use at most {most} or another cluster"
        )
    if q.batch_tokens < q.seq_len:
        raise ValueError(
            f"a batch of {q.batch_tokens} tokens holds no sequence of {q.seq_len}: raise batch or lower seq_len"
        )
    if q.batch_tokens % q.seq_len:
        lower = q.batch_tokens // q.seq_len * q.seq_len
        raise ValueError(
            f"a batch of {q.batch_tokens} tokens is no whole number of sequences of {q.seq_len}: "
            f"use {lower} or {lower + q.seq_len} tokens"
        )


def outer_rule(q: Question, tp: int, pp: int, cp: int, ep: int) -> str | None:
    """The first rule that outer degrees break, in words; None when they break none."""
    m, level = q.model, q.cluster.levels[0]
    inner = tp * pp * cp
    if q.chips % inner:
        return "chips: tp x pp x cp does not divide them"
    if level.topology == "switch" and len(q.cluster.levels) > 1 and (tp > q.cluster.domain or q.cluster.domain % tp):
        return "domain: TP is wider than it or does not divide it"
    if m.n_heads % tp or (m.n_kv_heads % tp and tp % m.n_kv_heads):
        return "heads: they do not divide by TP"
    if m.d_ff % tp:
        return "d_ff: it does not divide by TP"
    if q.seq_len % (2 * cp if cp > 1 else 1):
        return "sequence: it does not divide by CP"
    dp = q.chips // inner
    if q.batch_tokens // q.seq_len % dp:
        return "batch: its sequences do not divide by DP"
    if ep > 1 and (not m.moe or m.moe.n_experts % ep or (dp * cp) % ep):
        return "experts: EP does not divide both their number and dp x cp"
    return None


RULES = (
    "layers: PP x chunks leaves more places empty than PP alone",
    "schedule: more than one chunk needs a pipeline",
    "batch: a replica's sequences do not divide by the micro-batch",
    "schedule: interleaving needs microbatches in multiples of PP",
    "zero: stages 2 and 3 communicate for each microbatch of a pipeline",
    "sequence parallelism: nothing to split without TP",
)


def inner_rules(q: Question, c: Mapping[str, Any]) -> Any:
    """Number of the first rule of RULES that each layout breaks; their count where it breaks none.

    c: arrays of the axes, by name, which broadcast.
    """
    replicas = q.chips // (c["tp"] * c["pp"] * c["cp"])
    each = q.batch_tokens // q.seq_len // replicas
    m = each // c["micro_batch"]
    broken = (
        ~_cut(q.model.n_layers, c["pp"], c["chunks"]),
        (c["chunks"] > 1) & (c["pp"] == 1),
        each % c["micro_batch"] > 0,
        (c["chunks"] > 1) & (m % c["pp"] > 0),
        (c["zero"] >= 2) & (c["pp"] > 1),
        c["sequence_parallel"] & (c["tp"] == 1),
    )
    first: Any = np.int8(len(RULES))
    for number in reversed(range(len(broken))):
        first = np.where(broken[number], np.int8(number), first)
    return first


def spare_places(layers: int, pp: Any) -> Any:
    """Places without a layer when PP stages have as many each: none where the layers divide by PP; two where that makes
    them divide, one at either end, for the tables; else as many as it takes."""
    return np.where(layers % pp == 0, 0, np.where((layers + 2) % pp == 0, 2, -layers % pp))


def _cut(layers: int, pp: Any, chunks: Any) -> Any:
    """Where chunks have as many places each, no more spare than the stages need, and none is empty but at the ends."""
    pieces, spare = pp * chunks, spare_places(layers, pp)
    return ((layers + spare) % pieces == 0) & (pieces <= layers + np.where(spare == 2, 2, 0))


def light(q: Question, c: Mapping[str, Any]) -> Any:
    """Where the layers divide by PP only with one less at both ends."""
    layers, pp = q.model.n_layers, c["pp"]
    return (layers % pp > 0) & ((layers + 2) % pp == 0)
