"""Search: every layout of a job, the first rule that rejects it or its predicted step time.

The space is outer degrees (tp, pp, cp, ep) times inner choices (chunks, micro-batch, recomputation, ZeRO stage,
sequence parallelism). Rules on the outer degrees reject all their inner choices at once; the rest is computed as
arrays by the code that predicts one job. Needs numpy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np

from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, ParallelPlan, divisors
from scaling_lib.memory import ledger
from scaling_lib.model import TransformerConfig, flops_per_token
from scaling_lib.precision import RECIPES, Recipe
from scaling_lib.predict import MEGATRON, Estimate, Stack, case_of, rates, step_time
from scaling_lib.predict_terms import LayerTimes, layer_times, step_parts

RECOMPUTES = ("none", "selective", "full")
NEAR = 1.05  # layouts this close to the best form the plateau
BLOCK = 200_000  # layouts computed at a time: arrays that stay near the caches


@dataclass(frozen=True)
class Space:
    """The choices of each axis. None takes all that the model and the chips allow."""

    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    recompute: tuple[str, ...] = RECOMPUTES
    zero: tuple[int, ...] = (0, 1, 2, 3)
    sequence_parallel: tuple[bool, ...] = (True, False)


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


@dataclass(frozen=True)
class Layout:
    """A layout that runs: seconds a step, bytes on the fullest chip, causal MFU, and days and USD where asked."""

    plan: ParallelPlan
    seconds: float
    memory: float
    mfu: float
    days: float | None
    usd: float | None


@dataclass(frozen=True)
class Answer:
    """Ranked layouts; evaluated = rejected + feasible. within: layouts within 5% of the best. elapsed: seconds."""

    question: Question
    best: tuple[Layout, ...]
    evaluated: int
    feasible: int
    rejected: dict[str, int]
    within: int
    elapsed: float


_AXES = ("tp", "pp", "cp", "ep", "chunks", "micro_batch", "recompute", "zero", "sequence_parallel")


def axes(q: Question, space: Space) -> dict[str, tuple[Any, ...]]:
    """Values of each axis: as the space says, else all divisors that could fit. Raises ValueError for an empty one."""
    sequences = int(q.batch_tokens // q.seq_len)
    if sequences < 1:
        raise ValueError(
            f"a batch of {q.batch_tokens} tokens holds no sequence of {q.seq_len}: raise batch or lower seq_len"
        )
    if q.chips < 1:
        raise ValueError(f"chips = {q.chips}: use at least 1")
    layers, moe = q.model.n_layers, q.model.moe
    found: dict[str, tuple[Any, ...]] = {
        "tp": space.tp or tuple(d for d in divisors(q.chips) if d <= max(q.cluster.domain, 64)),
        "pp": space.pp or tuple(d for d in divisors(q.chips) if d <= layers),
        "cp": space.cp or tuple(d for d in divisors(q.chips) if d <= max(1, q.seq_len // 1024)),
        "ep": space.ep or (tuple(divisors(moe.n_experts)) if moe else (1,)),
        "chunks": space.chunks or tuple(v for v in range(1, layers + 1) if layers % v == 0),
        "micro_batch": space.micro_batch or tuple(d for d in divisors(sequences) if d <= 64),
        "recompute": space.recompute,
        "zero": space.zero,
        "sequence_parallel": space.sequence_parallel,
    }
    empty = [name for name, values in found.items() if not values]
    if empty:
        raise ValueError(f"no value of {empty[0]} to search: name some in Space({empty[0]}=…)")
    return found


def _outer_rule(q: Question, tp: int, pp: int, cp: int, ep: int) -> str | None:
    """The first rule that outer degrees break, or None."""
    m, level = q.model, q.cluster.levels[0]
    inner = tp * pp * cp
    if q.chips % inner:
        return "chips: tp x pp x cp does not divide them"
    if level.topology == "switch" and len(q.cluster.levels) > 1 and (tp > q.cluster.domain or q.cluster.domain % tp):
        return "domain: TP does not fit into it"
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
        return "experts: EP does not divide them and dp x cp"
    return None


_RULES = (
    "layers: they do not divide by PP x chunks",
    "schedule: chunks need a pipeline",
    "batch: a replica's sequences do not divide by the micro-batch",
    "schedule: interleaving needs microbatches in multiples of PP",
    "zero: gathering or scattering for each microbatch of a pipeline",
    "sequence parallelism: nothing to split without TP",
)


def _inner_rules(q: Question, c: dict[str, Any]) -> Any:
    """Number of the first rule in _RULES that each layout breaks, or their count."""
    replicas = q.chips // (c["tp"] * c["pp"] * c["cp"])
    each = q.batch_tokens // q.seq_len // replicas
    m = each // c["micro_batch"]
    broken = (
        q.model.n_layers % (c["pp"] * c["chunks"]) > 0,
        (c["chunks"] > 1) & (c["pp"] == 1),
        each % c["micro_batch"] > 0,
        (c["chunks"] > 1) & (m % c["pp"] > 0),
        (c["zero"] >= 2) & (c["pp"] > 1),
        c["sequence_parallel"] & (c["tp"] == 1),
    )
    first = np.full(replicas.shape, len(_RULES), np.int8)
    for number in reversed(range(len(broken))):
        first = np.where(broken[number], np.int8(number), first)
    return first


def _plan(q: Question, c: dict[str, Any], recompute: str, zero: int, interleaved: bool, sp: bool) -> ParallelPlan:
    """Arrays of layouts that share the choices that are no numbers, as one plan."""
    return ParallelPlan(
        dp=q.chips // (c["tp"] * c["pp"] * c["cp"]),
        tp=c["tp"],
        pp=c["pp"],
        cp=c["cp"],
        ep=c["ep"],
        zero=zero,
        virtual_stages=c["chunks"],
        micro_batch=c["micro_batch"],
        schedule="interleaved" if interleaved else "1f1b",
        recompute=recompute,
        attention="unfused" if q.stack.kernel == "unfused" else "flash",
        sequence_parallel=sp,
    )


def _job(q: Question, plan: ParallelPlan) -> Job:
    return Job(q.model, q.cluster, plan, q.chips, q.batch_tokens, q.seq_len, None, q.precision, q.recipe)


def _blocks(space: dict[str, tuple[Any, ...]], outer: Sequence[tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    """All layouts of the outer degrees, some blocks of them, each axis an array (recompute as its number)."""
    values = [np.array(space[name]) if name != "recompute" else np.arange(len(space[name])) for name in _AXES[4:]]
    grid = [g.ravel() for g in np.meshgrid(*values, indexing="ij")]
    size = len(grid[0])
    step = max(1, BLOCK // size)
    for i in range(0, len(outer), step):
        some = np.array(outer[i : i + step])
        columns = [np.repeat(some[:, j], size) for j in range(4)] + [np.tile(g, len(some)) for g in grid]
        yield dict(zip(_AXES, columns, strict=True))


def _take(c: dict[str, Any], where: Any) -> dict[str, Any]:
    return {name: column[where] for name, column in c.items()}


def _groups(c: dict[str, Any]) -> Iterator[tuple[tuple[int, int, bool, bool], Any]]:
    """Layouts that share recompute, ZeRO stage, interleaving and sequence parallelism: key and their places."""
    code = ((c["recompute"] * 4 + c["zero"]) * 2 + (c["chunks"] > 1)) * 2 + c["sequence_parallel"]
    for value in np.unique(code):
        rest, sp = divmod(int(value), 2)
        rest, interleaved = divmod(rest, 2)
        recompute, zero = divmod(rest, 4)
        yield (recompute, zero, bool(interleaved), bool(sp)), np.flatnonzero(code == value)


def search(q: Question, space: Space | None = None, top: int = 20, progress: bool | None = None) -> Answer:
    """Every layout of a question, ranked by predicted step time; for each rejected one the first rule it breaks.

    progress: show a bar on standard error once a second has passed; None does so on a terminal.
    Raises ValueError for a question without layouts to try. Unknown inputs of the stack take their likeliest value.
    """
    started = time.perf_counter()
    choices = axes(q, space or Space())
    inner = int(np.prod([len(choices[name]) for name in _AXES[4:]]))
    rejected: dict[str, int] = {}
    outer: list[tuple[int, ...]] = []
    for degrees in product(*(choices[name] for name in _AXES[:4])):
        rule = _outer_rule(q, *degrees)
        if rule:
            rejected[rule] = rejected.get(rule, 0) + inner
        else:
            outer.append(degrees)
    total = inner * (sum(rejected.values()) // inner + len(outer))
    bar = _bar(started, sys.stderr.isatty() if progress is None else progress)
    kept: list[tuple[dict[str, Any], Any, Any]] = []
    for c in _blocks(choices, outer):
        first = _inner_rules(q, c)
        counts = np.bincount(first, minlength=len(_RULES) + 1)
        for rule, n in zip(_RULES, counts, strict=False):
            if n:
                rejected[rule] = rejected.get(rule, 0) + int(n)
        c = _take(c, np.flatnonzero(first == len(_RULES)))
        for (recompute, zero, interleaved, sp), where in _groups(c):
            some = _take(c, where)
            job = _job(q, _plan(q, some, choices["recompute"][recompute], zero, interleaved, sp))
            memory = np.broadcast_to(ledger(job).total, len(where))
            fits = np.flatnonzero(memory <= q.cluster.chip.hbm)
            if len(fits) < len(where):
                rule = "memory: more than the chip's HBM"
                rejected[rule] = rejected.get(rule, 0) + len(where) - len(fits)
            if len(fits):
                some = _take(some, fits)
                plan = _plan(q, some, choices["recompute"][recompute], zero, interleaved, sp)
                kept.append((some, seconds(q, plan), memory[fits]))
        bar(sum(rejected.values()) + sum(len(k[2]) for k in kept), total)
    return _ranked(q, choices, kept, rejected, top, started)


def seconds(q: Question, plan: ParallelPlan) -> Any:
    """Predicted seconds a step of arrays of plans that share recomputation and ZeRO stage.

    A layer's times depend on few of the degrees: they are computed once for each distinct set and then looked up.
    """
    table = rates()
    case = case_of(_job(q, plan), q.stack, table)
    width = [int(np.max(d)) + 1 for d in (plan.tp, plan.cp, plan.ep, plan.micro_batch)]
    code = ((plan.tp * width[1] + plan.cp) * width[2] + plan.ep) * width[3] + plan.micro_batch
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    few = replace(
        case, **{f.name: v[first] for f in fields(case) if isinstance(v := getattr(case, f.name), np.ndarray)}
    )
    layer = layer_times(few, table.constants)
    spread = LayerTimes(
        **{f.name: v[back] if isinstance(v := getattr(layer, f.name), np.ndarray) else v for f in fields(layer)}
    )
    return sum(step_parts(case, table.constants, spread).values())


def _ranked(
    q: Question,
    choices: dict[str, tuple[Any, ...]],
    kept: list[tuple[dict[str, Any], Any, Any]],
    rejected: dict[str, int],
    top: int,
    started: float,
) -> Answer:
    """The answer from the layouts that run."""
    feasible = sum(len(memory) for _, _, memory in kept)
    refused = sum(rejected.values())
    best: tuple[Layout, ...] = ()
    within = 0
    if feasible:
        times = np.concatenate([np.broadcast_to(t, len(m)) for _, t, m in kept])
        memory = np.concatenate([m for _, _, m in kept])
        columns = {name: np.concatenate([c[name] for c, _, _ in kept]) for name in _AXES}
        within = int((times <= NEAR * times.min()).sum())
        order = np.lexsort((memory, times))[:top]
        best = tuple(_layout(q, choices, _take(columns, i), float(times[i]), float(memory[i])) for i in order)
    ordered = dict(sorted(rejected.items(), key=lambda item: -item[1]))
    return Answer(q, best, refused + feasible, feasible, ordered, within, time.perf_counter() - started)


def _layout(q: Question, choices: dict[str, tuple[Any, ...]], c: dict[str, Any], step: float, memory: float) -> Layout:
    """One layout with plain numbers."""
    numbers = {name: int(c[name]) for name in ("tp", "pp", "cp", "ep", "chunks", "micro_batch")}
    recompute = choices["recompute"][int(c["recompute"])]
    plan = _plan(q, numbers, recompute, int(c["zero"]), numbers["chunks"] > 1, bool(c["sequence_parallel"]))
    mfu = q.batch_tokens * flops_per_token(q.model, q.seq_len) / (step * q.chips * q.cluster.chip.flops(q.precision))
    run = None if q.tokens is None else q.tokens / q.batch_tokens * step
    cost = None if run is None or q.price is None else run * q.chips * q.price
    return Layout(plan, step, memory, float(mfu), None if run is None else run / 86400, cost)


def _bar(started: float, shown: bool) -> Callable[[int, int], None]:
    """A progress bar that appears after a second."""

    def update(done: int, total: int) -> None:
        if shown and time.perf_counter() - started > 1:
            full = int(30 * done / max(total, 1))
            end = "\n" if done >= total else ""
            print(f"\r[{'#' * full}{'.' * (30 - full)}] {done:,} of {total:,} layouts{end}", end="", file=sys.stderr)

    return update


def estimate(q: Question, layout: Layout) -> Estimate:
    """The full prediction of one layout: interval, parts and memory."""
    return step_time(_job(q, layout.plan), q.stack)


def sensitivity(q: Question, space: Space | None = None, factor: float = 2.0) -> dict[str, Answer]:
    """Answers when one thing moves by a factor: network, links inside the domain, HBM, matmul rate, batch."""

    def levels(which: Iterable[int], by: float) -> Cluster:
        chosen = [i % len(q.cluster.levels) for i in which]
        return replace(
            q.cluster,
            levels=tuple(
                replace(level, egress=level.egress * by) if i in chosen else level
                for i, level in enumerate(q.cluster.levels)
            ),
        )

    def chip(**by: Any) -> Cluster:
        return replace(q.cluster, chip=replace(q.cluster.chip, **by))

    peaks = {p: v / factor for p, v in q.cluster.chip.peak.items()}
    moved = {
        "as asked": q,
        f"network bandwidth / {factor:g}": replace(q, cluster=levels([-1], 1 / factor)),
        f"network bandwidth x {factor:g}": replace(q, cluster=levels([-1], factor)),
        f"domain bandwidth / {factor:g}": replace(q, cluster=levels([0], 1 / factor)),
        f"matmul rate / {factor:g}": replace(q, cluster=chip(peak=peaks)),
        f"HBM / {factor:g}": replace(q, cluster=chip(hbm=q.cluster.chip.hbm / factor)),
        f"batch / {factor:g}": replace(q, batch_tokens=int(q.batch_tokens / factor)),
        f"batch x {factor:g}": replace(q, batch_tokens=int(q.batch_tokens * factor)),
    }
    return {name: search(asked, space, top=1, progress=False) for name, asked in moved.items()}


def frontier(q: Question, chips: Iterable[int], space: Space | None = None) -> list[Layout]:
    """Best layout for each number of chips that another beats neither in days nor in USD. Needs tokens and price.

    Raises ValueError without them.
    """
    if q.tokens is None or q.price is None:
        raise ValueError("a frontier of days against USD needs tokens and price in the question")
    found = [a.best[0] for n in chips if (a := search(replace(q, chips=n), space, top=1, progress=False)).best]
    days = [(x.days or 0.0, x.usd or 0.0, x) for x in found]
    return [x for d, u, x in days if not any(d2 <= d and u2 <= u and (d2, u2) != (d, u) for d2, u2, _ in days)]
