"""Search: every layout of a job, the first rule that rejects it or its predicted step time.

The space is outer degrees (tp, pp, cp, ep) times inner choices (chunks, micro-batch, recomputation, ZeRO stage,
sequence parallelism) times switches of the software (what overlaps). Rules on the outer degrees reject all their inner
choices at once, rules of shape do not ask for recomputation, and switches cost no memory, so they are tried on what
fits. The rest is computed by the code that predicts one job, on grids: see `search_grid`. Needs numpy.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from scaling_lib.hardware import Cluster
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.memory import peak_bytes
from scaling_lib.model import flops_per_token
from scaling_lib.predict import Estimate, Stack, case_of, rates, step_time
from scaling_lib.predict_terms import step_parts
from scaling_lib.search_grid import Grid, at_stage, grids, join
from scaling_lib.search_space import AXES, RULES, SWITCHES, axes, inner_rules, light, outer_rule
from scaling_lib.search_space import WIDE as WIDE
from scaling_lib.search_space import Question as Question
from scaling_lib.search_space import Space as Space
from scaling_lib.units import DAY, show

NEAR = 1.05  # layouts this close to the best form the plateau
BLOCK = 16_384  # layouts of a kind computed at a time: arrays that stay in the caches
FEW = 1_000  # layouts of a kind that are not worth arrays of their own
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
    light: bool


def _plan(q: Question, c: Mapping[str, Any], kind: _Kind) -> ParallelPlan:
    """Layouts of one kind, arrays or one of them, as one plan."""
    pp = c["pp"] if np.size(c["pp"]) > 1 else int(np.ravel(c["pp"])[0])  # one depth has fewer stages to look at
    return ParallelPlan(
        dp=q.chips // (c["tp"] * pp * c["cp"]),
        tp=c["tp"],
        pp=pp,
        cp=c["cp"],
        ep=c["ep"],
        zero=kind.zero,
        virtual_stages=c["chunks"],
        micro_batch=c["micro_batch"],
        schedule="interleaved" if np.any(c["chunks"] > 1) else "1f1b",  # with one chunk they are the same
        recompute=kind.recompute,
        attention=q.stack.attention,
        sequence_parallel=c["sequence_parallel"],
        light_ends=kind.light,
    )


def _job(q: Question, plan: ParallelPlan) -> Job:
    return Job(q.model, q.cluster, plan, q.chips, q.batch_tokens, q.seq_len, None, q.precision, q.recipe)


@dataclass(frozen=True)
class _Found:
    """Layouts of one kind that run under some switches: their grid, and seconds and bytes of those meant in it."""

    kind: _Kind
    stack: Stack
    grid: Grid
    seconds: Any
    memory: Any


@dataclass
class _Tally:
    """What a search has seen: rejections by reason, layouts that run, least memory of those that do not fit."""

    rejected: dict[str, int]
    found: list[_Found]
    leanest: float | None = None
    seen: int = 0

    def reject(self, rule: str, n: int) -> None:
        if n:
            self.rejected[rule] = self.rejected.get(rule, 0) + n
            self.seen += n

    def add(self, found: _Found) -> None:
        if n := len(found.memory):
            self.found.append(found)
            self.seen += n


def _stacks(q: Question, space: Space) -> list[Stack]:
    """The question's stack under each setting of the space's switches. Raises ValueError for a switch without one."""
    chosen = {name: getattr(space, name) for name in SWITCHES if getattr(space, name) is not None}
    if q.model.moe is None:
        chosen.pop("ep_overlap", None)
    if empty := [name for name, values in chosen.items() if not values]:
        raise ValueError(f"no value of {empty[0]} to search: name some in Space({empty[0]}=…), or leave it out")
    return [replace(q.stack, **dict(zip(chosen, values, strict=True))) for values in product(*chosen.values())]


def _useful(stack: Stack, first: Stack, c: Mapping[str, Any], q: Question) -> Any:
    """Where a layout has the traffic that the switches of a stack, other than the first's, are about."""
    useful: Any = np.True_
    if (stack.tp_overlap, stack.tp_backward_overlap) != (first.tp_overlap, first.tp_backward_overlap):
        useful = useful & (c["tp"] > 1)
    if stack.dp_overlap != first.dp_overlap:
        useful = useful & (q.chips // (c["tp"] * c["pp"]) > 1)
    if stack.ep_overlap != first.ep_overlap:
        useful = useful & (c["ep"] > 1)
    return useful


def _try(
    q: Question, recomputes: Iterable[str], grid: Grid, kind: _Kind, stacks: Sequence[Stack], tally: _Tally
) -> None:
    """Layouts of one kind under each recomputation and stack."""
    for recompute in recomputes:
        _try_one(q, grid, replace(kind, recompute=recompute), stacks, tally)


def _try_one(q: Question, grid: Grid, kind: _Kind, stacks: Sequence[Stack], tally: _Tally) -> None:
    """Memory of layouts of one kind, then the seconds of those that fit, under each stack."""
    memory = np.broadcast_to(peak_bytes(_job(q, _plan(q, grid.columns, kind))), grid.ok.shape)
    fits = grid.only(memory <= q.cluster.chip.hbm)
    some = fits.size
    if some < grid.size:
        tally.reject(_MEMORY, (grid.size - some) * len(stacks))
        least = float(memory[grid.ok & ~fits.ok].min())
        tally.leanest = least if tally.leanest is None else min(least, tally.leanest)
    for stack in stacks:
        useful = fits.only(_useful(stack, stacks[0], fits.columns, q))
        tally.reject(_OVERLAP, some - useful.size)
        if useful.size:
            bytes_ = useful.of(memory)
            useful = useful.compact()
            times = seconds(replace(q, stack=stack), _plan(q, useful.columns, kind))
            tally.add(_Found(kind, stack, useful, useful.of(times), bytes_))


def search(q: Question, space: Space | None = None, top: int = 20, progress: bool | None = None) -> Answer:
    """Every layout of a question, ranked by predicted step time; for each rejected one the first rule it breaks.

    progress: show a bar on standard error once a second has passed; None does so on a terminal.
    Raises ValueError for a question without layouts to try. Unknown inputs of the stack take their likeliest value.
    """
    started = time.perf_counter()
    space = space or Space()
    choices, stacks = axes(q, space), _stacks(q, space)
    inner = math.prod(len(choices[name]) for name in AXES[4:]) * len(stacks)
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
    waiting: dict[_Kind, list[Grid]] = {}
    for grid in grids(choices, outer, BLOCK):
        for kind, some in _shaped(q, choices, grid, len(stacks), tally):
            for ready in _ready(waiting.setdefault(kind, []), some):
                _try(q, choices["recompute"], ready, kind, stacks, tally)
        bar(tally.seen, total)
    for kind, parts in waiting.items():
        if parts:
            _try(q, choices["recompute"], join(parts), kind, stacks, tally)
            bar(tally.seen, total)
    return _ranked(q, tally, top, started)


def _shaped(
    q: Question, choices: Mapping[str, tuple[Any, ...]], grid: Grid, stacks: int, tally: _Tally
) -> Iterator[tuple[_Kind, Grid]]:
    """Layouts of a grid that break no rule of shape, by kind; the others are counted."""
    first = inner_rules(q, grid.columns)
    counts = np.bincount(first.ravel(), minlength=len(RULES) + 1)
    for rule, n in zip(RULES, counts, strict=False):
        tally.reject(rule, int(n) * len(choices["recompute"]) * stacks)
    shaped, ends = grid.only(first == len(RULES)), bool(light(q, grid.columns)[0])
    for i, zero in enumerate(choices["zero"]):
        yield _Kind("none", zero, ends), at_stage(shaped, i)


def _ready(waiting: list[Grid], some: Grid) -> Iterator[Grid]:
    """A grid of many layouts as it is; few of them wait for others of their kind, to be computed in a row."""
    size = some.size
    if size > FEW:
        yield some.compact()
    elif size:
        waiting.append(some)
        if sum(g.size for g in waiting) > BLOCK:
            yield join(waiting)
            waiting.clear()


def seconds(q: Question, plan: ParallelPlan) -> Any:
    """Predicted seconds a step of arrays of plans that broadcast and share recomputation and ZeRO stage."""
    table = rates()
    parts = step_parts(case_of(_job(q, plan), q.stack, table), table.constants)
    return sum(sorted(parts.values(), key=np.size))  # small arrays first: fewer sums of large ones


def _ranked(q: Question, tally: _Tally, top: int, started: float) -> Answer:
    """The answer from the layouts that run."""
    best: tuple[Layout, ...] = ()
    feasible = within = 0
    if tally.found:
        times, memory = (np.concatenate([getattr(f, name) for f in tally.found]) for name in ("seconds", "memory"))
        feasible, within = len(times), int((times <= NEAR * times.min()).sum())
        ends = np.cumsum([len(f.memory) for f in tally.found])
        picked = []
        for i in _first(times, memory, top):
            place = int(np.searchsorted(ends, i, side="right"))
            f = tally.found[place]
            picked.append(_layout(q, f, int(i - ends[place] + len(f.memory))))
        best = tuple(picked)
    ordered = dict(sorted(tally.rejected.items(), key=lambda item: -item[1]))
    spent = time.perf_counter() - started
    return Answer(q, best, tally.seen, feasible, ordered, within, spent, tally.leanest)


def _first(times: Any, memory: Any, top: int) -> Any:
    """Places of the fastest layouts, in order; of equally fast ones the leaner comes first."""
    few = np.arange(len(times))
    if 0 < top < len(times):  # to sort a million to see twenty would take longer than the search
        few = np.flatnonzero(times <= np.partition(times, top - 1)[top - 1])
    return few[np.lexsort((memory[few], times[few]))][:top]


def _layout(q: Question, f: _Found, i: int) -> Layout:
    """One layout with plain numbers."""
    place = np.unravel_index(np.flatnonzero(f.grid.ok)[i], f.grid.ok.shape)
    plan = _plan(q, {n: np.broadcast_to(v, f.grid.ok.shape)[place].item() for n, v in f.grid.columns.items()}, f.kind)
    step, memory = float(f.seconds[i]), float(f.memory[i])
    mfu = q.batch_tokens * flops_per_token(q.model, q.seq_len) / (step * q.chips * q.cluster.chip.flops(q.precision))
    run = None if q.tokens is None else q.tokens / q.batch_tokens * step
    cost = None if run is None or q.price is None else run * q.chips * q.price
    return Layout(plan, f.stack, step, memory, float(mfu), None if run is None else run / DAY, cost)


def _bar(started: float, shown: bool, what: str = "layouts") -> Callable[[int, int], None]:
    """A progress bar on standard error that appears after a second and is wiped out at the end.

    A package for it would be the only one that the command line and the explorers in the page need beside numpy.
    """
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
        most = next(iter(answer.rejected), "none was asked about")
        return (
            f"no layout of {q.chips:,} {q.cluster.chip.name} obeys the rules of shape ({most}): take chips that share "
            f"factors with the {q.model.n_layers} layers, {q.model.n_heads} heads and "
            f"{q.batch_tokens // q.seq_len:,} sequences"
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
