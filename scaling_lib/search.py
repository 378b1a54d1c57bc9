"""Search: every layout of a job, the first rule that rejects it or its predicted step time.

The space is outer degrees (tp, pp, cp, ep) times inner choices (chunks, micro-batch, recomputation, ZeRO stage,
sequence parallelism) times switches of the software (what overlaps). Rules on the outer degrees reject all their inner
choices at once, and switches cost no memory, so they are tried on what fits; the rest is computed as arrays by the code
that predicts one job. Needs numpy.
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
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.memory import peak_bytes
from scaling_lib.model import flops_per_token
from scaling_lib.predict import Estimate, Stack, case_of, rates, step_time
from scaling_lib.predict_terms import LayerTimes, layer_times, step_parts
from scaling_lib.search_space import AXES, RULES, SWITCHES, axes, inner_rules, light, outer_rule
from scaling_lib.search_space import WIDE as WIDE
from scaling_lib.search_space import Question as Question
from scaling_lib.search_space import Space as Space
from scaling_lib.units import DAY, show

NEAR = 1.05  # layouts this close to the best form the plateau
BLOCK = 200_000  # layouts computed at a time: arrays that stay near the caches
_MEMORY = "memory: more than the chip's HBM"
_OVERLAP = "overlap: no traffic of that kind to hide, so the switch changes nothing"


@dataclass(frozen=True)
class Layout:
    """A layout that runs: seconds a step, bytes on the fullest chip, causal MFU, and days and USD where asked.

    stack: the question's, with the switches of this layout.
    """

    plan: ParallelPlan
    stack: Stack
    seconds: float
    memory: float
    mfu: float
    days: float | None
    usd: float | None


@dataclass(frozen=True)
class Answer:
    """Ranked layouts; evaluated = rejected + feasible. within: layouts within 5% of the best. elapsed: seconds.

    leanest: bytes of the least memory among those rejected for memory; None where there are none.
    """

    question: Question
    best: tuple[Layout, ...]
    evaluated: int
    feasible: int
    rejected: dict[str, int]
    within: int
    elapsed: float
    leanest: float | None = None


@dataclass(frozen=True)
class _Kind:
    """Choices that layouts computed together share."""

    recompute: str
    zero: int
    interleaved: bool
    light: bool
    sequence_parallel: bool


def _plan(q: Question, c: dict[str, Any], kind: _Kind) -> ParallelPlan:
    """Arrays of layouts of one kind, as one plan."""
    return ParallelPlan(
        dp=q.chips // (c["tp"] * c["pp"] * c["cp"]),
        tp=c["tp"],
        pp=c["pp"],
        cp=c["cp"],
        ep=c["ep"],
        zero=kind.zero,
        virtual_stages=c["chunks"],
        micro_batch=c["micro_batch"],
        schedule="interleaved" if kind.interleaved else "1f1b",
        recompute=kind.recompute,
        attention=q.stack.attention,
        sequence_parallel=kind.sequence_parallel,
        light_ends=kind.light,
    )


def _job(q: Question, plan: ParallelPlan) -> Job:
    return Job(q.model, q.cluster, plan, q.chips, q.batch_tokens, q.seq_len, None, q.precision, q.recipe)


def _column(values: Sequence[Any]) -> Any:
    """An array of choices whose whole numbers have 64 bits: in a browser numpy's own have 32, too few for bytes."""
    column = np.array(values)
    return column.astype(np.int64) if column.dtype.kind == "i" else column


def _blocks(space: dict[str, tuple[Any, ...]], outer: Sequence[tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    """All layouts of the outer degrees, some blocks of them, each axis an array (recompute as its number)."""
    values = [_column(space[name] if name != "recompute" else range(len(space[name]))) for name in AXES[4:]]
    grid = [g.ravel() for g in np.meshgrid(*values, indexing="ij")]
    size = len(grid[0])
    step = max(1, BLOCK // size)
    for i in range(0, len(outer), step):
        some = _column(outer[i : i + step])
        columns = [np.repeat(some[:, j], size) for j in range(4)] + [np.tile(g, len(some)) for g in grid]
        yield dict(zip(AXES, columns, strict=True))


def _take(c: dict[str, Any], where: Any) -> dict[str, Any]:
    return {name: column[where] for name, column in c.items()}


def _groups(q: Question, c: dict[str, Any], recomputes: Sequence[str]) -> Iterator[tuple[_Kind, Any]]:
    """Layouts by kind: the kind and their places."""
    code = (c["recompute"] * 4 + c["zero"]) * 8 + (c["chunks"] > 1) * 4 + light(q, c) * 2 + c["sequence_parallel"]
    for value in np.unique(code):
        number, flags = divmod(int(value), 8)
        kind = _Kind(recomputes[number // 4], number % 4, flags >= 4, flags % 4 >= 2, flags % 2 == 1)
        yield kind, np.flatnonzero(code == value)


@dataclass(frozen=True)
class _Found:
    """Layouts of one kind that run under some switches: their axes, seconds and bytes."""

    kind: _Kind
    stack: Stack
    columns: dict[str, Any]
    seconds: Any
    memory: Any


@dataclass
class _Tally:
    """What a search has seen: rejections by reason, layouts that run, least memory of those that do not fit."""

    rejected: dict[str, int]
    found: list[_Found]
    leanest: float | None = None

    def reject(self, rule: str, n: int) -> None:
        if n:
            self.rejected[rule] = self.rejected.get(rule, 0) + n

    @property
    def seen(self) -> int:
        return sum(self.rejected.values()) + sum(len(f.memory) for f in self.found)


def _stacks(q: Question, space: Space) -> list[Stack]:
    """The question's stack under each setting of the space's switches. Raises ValueError for a switch without one."""
    chosen = {name: getattr(space, name) for name in SWITCHES if getattr(space, name) is not None}
    if empty := [name for name, values in chosen.items() if not values]:
        raise ValueError(f"no value of {empty[0]} to search: name some in Space({empty[0]}=…), or leave it out")
    return [replace(q.stack, **dict(zip(chosen, values, strict=True))) for values in product(*chosen.values())]


def _useful(stack: Stack, first: Stack, c: dict[str, Any], q: Question) -> Any:
    """Where a layout has the traffic that the switches of a stack, other than the first's, are about."""
    useful = np.ones(len(c["tp"]), bool)
    if (stack.tp_overlap, stack.tp_backward_overlap) != (first.tp_overlap, first.tp_backward_overlap):
        useful &= c["tp"] > 1
    if stack.dp_overlap != first.dp_overlap:
        useful &= q.chips // (c["tp"] * c["pp"]) > 1
    return useful


def _try(q: Question, c: dict[str, Any], kind: _Kind, stacks: Sequence[Stack], tally: _Tally) -> None:
    """Memory of layouts of one kind, then the seconds of those that fit, under each stack."""
    memory = np.broadcast_to(peak_bytes(_job(q, _plan(q, c, kind))), len(c["tp"]))
    fits = np.flatnonzero(memory <= q.cluster.chip.hbm)
    if len(fits) < len(memory):
        tally.reject(_MEMORY, (len(memory) - len(fits)) * len(stacks))
        least = float(memory[memory > q.cluster.chip.hbm].min())
        tally.leanest = least if tally.leanest is None else min(least, tally.leanest)
    c, memory = _take(c, fits), memory[fits]
    for stack in stacks:
        useful = np.flatnonzero(_useful(stack, stacks[0], c, q))
        tally.reject(_OVERLAP, len(memory) - len(useful))
        if len(useful):
            some = _take(c, useful)
            times = np.broadcast_to(seconds(replace(q, stack=stack), _plan(q, some, kind)), len(useful))
            tally.found.append(_Found(kind, stack, some, times, memory[useful]))


def search(q: Question, space: Space | None = None, top: int = 20, progress: bool | None = None) -> Answer:
    """Every layout of a question, ranked by predicted step time; for each rejected one the first rule it breaks.

    progress: show a bar on standard error once a second has passed; None does so on a terminal.
    Raises ValueError for a question without layouts to try. Unknown inputs of the stack take their likeliest value.
    """
    started = time.perf_counter()
    space = space or Space()
    choices, stacks = axes(q, space), _stacks(q, space)
    inner = int(np.prod([len(choices[name]) for name in AXES[4:]])) * len(stacks)
    tally = _Tally({}, [])
    outer: list[tuple[int, ...]] = []
    for degrees in product(*(choices[name] for name in AXES[:4])):
        rule = outer_rule(q, *degrees)
        if rule:
            tally.reject(rule, inner)
        else:
            outer.append(degrees)
    total = tally.seen + inner * len(outer)
    bar = _bar(started, sys.stderr.isatty() if progress is None else progress)
    for c in _blocks(choices, outer):
        first = inner_rules(q, c)
        counts = np.bincount(first, minlength=len(RULES) + 1)
        for rule, n in zip(RULES, counts, strict=False):
            tally.reject(rule, int(n) * len(stacks))
        c = _take(c, np.flatnonzero(first == len(RULES)))
        for kind, where in _groups(q, c, choices["recompute"]):
            _try(q, _take(c, where), kind, stacks, tally)
        bar(tally.seen, total)
    return _ranked(q, tally, top, started)


def seconds(q: Question, plan: ParallelPlan) -> Any:
    """Predicted seconds a step of arrays of plans that share recomputation and ZeRO stage.

    A layer's times depend on few of the degrees: they are computed once for each distinct set and then looked up.
    """
    table = rates()
    case = case_of(_job(q, plan), q.stack, table)
    width = [int(np.max(d)) + 1 for d in (plan.tp, plan.cp, plan.ep, plan.micro_batch)]
    code = ((plan.tp * width[1] + plan.cp) * width[2] + plan.ep) * width[3] + plan.micro_batch
    code = 2 * code + (case.expert_tp == 1)  # how experts are cut depends on the depth too
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    few = replace(
        case, **{f.name: v[first] for f in fields(case) if isinstance(v := getattr(case, f.name), np.ndarray)}
    )
    layer = layer_times(few, table.constants)
    spread = LayerTimes(
        **{f.name: v[back] if isinstance(v := getattr(layer, f.name), np.ndarray) else v for f in fields(layer)}
    )
    return sum(step_parts(case, table.constants, spread).values())


def _ranked(q: Question, tally: _Tally, top: int, started: float) -> Answer:
    """The answer from the layouts that run."""
    best: tuple[Layout, ...] = ()
    feasible = within = 0
    if tally.found:
        times, memory = (np.concatenate([getattr(f, name) for f in tally.found]) for name in ("seconds", "memory"))
        feasible, within = len(times), int((times <= NEAR * times.min()).sum())
        ends = np.cumsum([len(f.memory) for f in tally.found])
        picked = []
        for i in np.lexsort((memory, times))[:top]:
            place = int(np.searchsorted(ends, i, side="right"))
            f = tally.found[place]
            picked.append(_layout(q, f, int(i - ends[place] + len(f.memory))))
        best = tuple(picked)
    ordered = dict(sorted(tally.rejected.items(), key=lambda item: -item[1]))
    spent = time.perf_counter() - started
    return Answer(q, best, tally.seen, feasible, ordered, within, spent, tally.leanest)


def _layout(q: Question, f: _Found, i: int) -> Layout:
    """One layout with plain numbers."""
    plan = _plan(q, {name: int(column[i]) for name, column in f.columns.items()}, f.kind)
    step, memory = float(f.seconds[i]), float(f.memory[i])
    mfu = q.batch_tokens * flops_per_token(q.model, q.seq_len) / (step * q.chips * q.cluster.chip.flops(q.precision))
    run = None if q.tokens is None else q.tokens / q.batch_tokens * step
    cost = None if run is None or q.price is None else run * q.chips * q.price
    return Layout(plan, f.stack, step, memory, float(mfu), None if run is None else run / DAY, cost)


def _bar(started: float, shown: bool, what: str = "layouts") -> Callable[[int, int], None]:
    """A progress bar on standard error that appears after a second and is wiped out at the end."""
    width = 0

    def update(done: int, total: int) -> None:
        nonlocal width
        if not shown or not (width or time.perf_counter() - started > 1):
            return
        full = int(30 * done / max(total, 1))
        line = f"[{'#' * full}{'.' * (30 - full)}] {done:,} of {total:,} {what}"
        width = max(width, len(line))
        print(f"\r{line:<{width}}", end="", file=sys.stderr, flush=True)
        if done >= total:
            print(f"\r{' ' * width}\r", end="", file=sys.stderr, flush=True)

    return update


def why_nothing(answer: Answer) -> str:
    """Why no layout runs, and what to change, as one sentence."""
    q = answer.question
    if answer.leanest is None:
        return (
            f"no layout of {q.chips:,} {q.cluster.chip.name} obeys the rules of shape: take chips that share factors "
            f"with the {q.model.n_layers} layers, {q.model.n_heads} heads and {q.batch_tokens // q.seq_len:,} sequences"
        )
    return (
        f"no layout of {q.chips:,} {q.cluster.chip.name} fits: the leanest needs {show(answer.leanest, 'GiB')} of "
        f"{show(q.cluster.chip.hbm, 'GiB')} a chip; use more chips or shorter sequences"
    )


def estimate(q: Question, layout: Layout) -> Estimate:
    """The full prediction of one layout: interval, parts and memory."""
    return step_time(_job(q, layout.plan), layout.stack)


def sensitivity(
    q: Question, space: Space | None = None, factor: float = 2.0, progress: bool | None = None
) -> dict[str, Answer]:
    """Answers when one thing moves by a factor: network, links inside the domain, HBM, matmul rate, batch, price.

    A halved batch that is no whole number of sequences is left out; price is there when the question has one.
    """

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
    if q.batch_tokens / factor % q.seq_len:
        del moved[f"batch / {factor:g}"]
    if q.price is not None:
        moved[f"price x {factor:g}"] = replace(q, price=q.price * factor)
    bar = _bar(time.perf_counter(), sys.stderr.isatty() if progress is None else progress, "questions")
    found: dict[str, Answer] = {}
    for name, asked in moved.items():
        found[name] = search(asked, space, top=1, progress=False)
        bar(len(found), len(moved))
    return found


def frontier(
    q: Question, chips: Iterable[int], space: Space | None = None, progress: bool | None = None
) -> list[Layout]:
    """Best layout for each number of chips that another beats neither in days nor in USD. Needs tokens and price.

    Raises ValueError without them.
    """
    if q.tokens is None or q.price is None:
        raise ValueError("a frontier of days against USD needs tokens and price in the question")
    sizes = list(chips)
    found: list[Layout] = []
    bar = _bar(time.perf_counter(), sys.stderr.isatty() if progress is None else progress, "sizes")
    for i, n in enumerate(sizes):
        found += search(replace(q, chips=n), space, top=1, progress=False).best
        bar(i + 1, len(sizes))
    days = [(x.days or 0.0, x.usd or 0.0, x) for x in found]
    return [x for d, u, x in days if not any(d2 <= d and u2 <= u and (d2, u2) != (d, u) for d2, u2, _ in days)]
