"""Predicted against measured: errors, the interval's coverage, and whether layouts are ordered rightly.

APE is |predicted / measured - 1|; bias is the median of predicted / measured - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from scaling_lib.predict import step_time
from scaling_lib.runs import RUNS, Run, Skipped, read_runs

TIE = 0.02  # two measurements closer than this order no layouts


@dataclass(frozen=True)
class Scored:
    """One run with its prediction. Seconds and bytes; None where the run has no such measurement."""

    run: Run
    predicted: float
    low: float
    high: float
    unknown: tuple[str, ...]
    memory: float | None = None
    memory_low: float | None = None
    memory_high: float | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return None if self.run.measured is None else self.predicted / self.run.measured - 1


@dataclass(frozen=True)
class Group:
    """Errors of some runs: how many, median, mean and 90% quantile of APE, bias, share inside the 80% interval."""

    name: str
    n: int
    median_ape: float
    mean_ape: float
    p90_ape: float
    bias: float
    coverage: float


@dataclass(frozen=True)
class Ordering:
    """Pairs of layouts of one job that differ measurably, the share ordered rightly, and what the choice costs.

    regret: mean over jobs of measured(best predicted) / measured(best) - 1.
    """

    jobs: int
    pairs: int
    right: float
    regret: float


@dataclass(frozen=True)
class Report:
    """All of a validation."""

    rows: int
    scored: tuple[Scored, ...]
    skipped: tuple[Skipped, ...]
    overall: Group | None
    groups: dict[str, tuple[Group, ...]]
    ordering: Ordering | None
    memory: dict[str, Group]


def quantile(values: Iterable[float], q: float) -> float:
    """Quantile with linear interpolation. Raises ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values: a quantile needs at least one")
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def score(run: Run) -> Scored:
    """Predict one run. Raises ValueError when the model has no answer."""
    estimate = step_time(run.job, run.stack, run.assumed)
    seconds = (estimate.seconds, estimate.low, estimate.high)
    told = estimate.memory
    if run.memory is None or told is None:
        return Scored(run, *seconds, estimate.unknown)
    if run.memory_kind == "allocated":
        return Scored(run, *seconds, estimate.unknown, told.allocated, told.low, told.high)
    return Scored(run, *seconds, estimate.unknown, told.reserved, told.reserved_low, told.reserved_high)


def group(name: str, scored: Sequence[Scored]) -> Group:
    """Errors of a group of scored runs that were measured. Raises ValueError for an empty one."""
    errors = [s.error for s in scored if s.error is not None]
    inside = [s.low <= s.run.measured <= s.high for s in scored if s.run.measured is not None]
    return _group(name, errors, inside)


def _group(name: str, errors: Sequence[float], inside: Sequence[bool]) -> Group:
    sizes = [abs(e) for e in errors]
    return Group(
        name,
        len(errors),
        quantile(sizes, 0.5),
        sum(sizes) / len(sizes),
        quantile(sizes, 0.9),
        median(errors),
        sum(inside) / len(inside),
    )


def job_key(run: Run) -> tuple[Any, ...]:
    """What two runs share when only their layout differs."""
    job = run.job
    return (
        run.source,
        job.model,
        job.chips,
        job.cluster.chip.name,
        job.batch_tokens,
        job.seq_len,
        job.precision,
        run.stack.kernel,
        run.stack.tuning,
    )


def _layout(run: Run) -> tuple[Any, ...]:
    plan, stack = run.job.plan, run.stack
    return (
        plan.dp,
        plan.tp,
        plan.pp,
        plan.cp,
        plan.ep,
        plan.zero,
        plan.micro_batch,
        stack.virtual_stages,
        stack.recompute,
        stack.shard_group,
    )


def ordering(scored: Sequence[Scored]) -> Ordering | None:
    """How well layouts of one job are ordered; None when no job has two. Repeated runs of one layout count once."""
    jobs: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Scored]]] = {}
    for s in scored:
        if s.run.measured is not None:
            jobs.setdefault(job_key(s.run), {}).setdefault(_layout(s.run), []).append(s)
    right, pairs, regrets = 0, 0, []
    for layouts in jobs.values():
        if len(layouts) < 2:
            continue
        points = [(median(s.run.measured or 0.0 for s in same), same[0].predicted) for same in layouts.values()]
        for (m1, p1), (m2, p2) in combinations(points, 2):
            if abs(m1 / m2 - 1) > TIE:
                pairs += 1
                right += (m1 < m2) == (p1 < p2)
        chosen = min(points, key=lambda point: point[1])[0]
        regrets.append(chosen / min(m for m, _ in points) - 1)
    if not regrets:
        return None
    return Ordering(len(regrets), pairs, right / pairs if pairs else 1.0, sum(regrets) / len(regrets))


def _by(scored: Sequence[Scored], key: Callable[[Scored], str]) -> tuple[Group, ...]:
    names = sorted({key(s) for s in scored})
    return tuple(group(name or "(none)", [s for s in scored if key(s) == name]) for name in names)


def _memory(scored: Sequence[Scored]) -> dict[str, Group]:
    """Errors of memory by what the source reports: allocated as a point, used as the median of a range."""
    groups = {}
    for kind in ("allocated", "used"):
        rows = [(s.run.memory, s) for s in scored if s.run.memory_kind == kind and s.memory and s.run.memory]
        if rows:
            errors = [(s.memory or 0.0) / measured - 1 for measured, s in rows]
            inside = [(s.memory_low or 0.0) <= measured <= (s.memory_high or 0.0) for measured, s in rows]
            groups[kind] = _group(kind, errors, inside)
    return groups


def validate(path: str | Path = RUNS) -> Report:
    """Score every run of a CSV file with the columns of data/runs.csv. Raises RowError when the file is unreadable."""
    runs, skipped = read_runs(path)
    rows = len(runs) + len(skipped)
    scored: list[Scored] = []
    for run in runs:
        try:
            scored.append(score(run))
        except (ValueError, ArithmeticError) as error:
            skipped.append(Skipped(run.id, run.source, run.split, f"not predictable: {error}"))
    measured = [s for s in scored if s.run.measured is not None and not s.run.wrong]
    return Report(
        rows,
        tuple(scored),
        tuple(skipped),
        group("all", measured) if measured else None,
        {
            "split": _by(measured, lambda s: s.run.split),
            "source": _by(measured, lambda s: s.run.source),
            "chip": _by(measured, lambda s: s.run.chip),
        },
        ordering(measured),
        _memory([s for s in scored if not s.run.wrong]),
    )


def row(s: Scored) -> dict[str, Any]:
    """One scored run as plain data."""
    gib = 2.0**30
    return {
        "id": s.run.id,
        "split": s.run.split,
        "source": s.run.source,
        "model": s.run.model,
        "chip": s.run.chip,
        "measured_s": s.run.measured,
        "predicted_s": s.predicted,
        "low_s": s.low,
        "high_s": s.high,
        "memory_measured_gib": None if s.run.memory is None else s.run.memory / gib,
        "memory_predicted_gib": None if s.memory is None else s.memory / gib,
        "memory_low_gib": None if s.memory_low is None else s.memory_low / gib,
        "memory_high_gib": None if s.memory_high is None else s.memory_high / gib,
        "memory_kind": s.run.memory_kind,
        "unknown": list(s.unknown),
        "assumed": list(s.run.assumed),
        "suspect": s.run.suspect or None,
    }


def as_data(report: Report) -> dict[str, Any]:
    """The report as plain data, every row included."""
    reasons: dict[str, int] = {}
    for skip in report.skipped:
        reasons[skip.reason] = reasons.get(skip.reason, 0) + 1
    return {
        "rows": report.rows,
        "scored": sum(s.run.measured is not None for s in report.scored),
        "skipped": len(report.skipped),
        "skipped_reasons": dict(sorted(reasons.items(), key=lambda item: -item[1])),
        "skipped_rows": [asdict(s) for s in report.skipped],
        "overall": asdict(report.overall) if report.overall else None,
        "by": {kind: [asdict(g) for g in groups] for kind, groups in report.groups.items()},
        "ordering": asdict(report.ordering) if report.ordering else None,
        "memory": {kind: asdict(g) for kind, g in report.memory.items()},
        "results": [row(s) for s in report.scored],
    }
