"""Refit of the predictor's constants from the development rows: `make fit`.

Needs numpy. A robust least squares in log time, each source and chip weighted by the root of its rows, every constant
held by its prior. Started from the priors alone, so the same rows give the same file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from scaling_lib import catalogue, predict
from scaling_lib.catalogue import DATA
from scaling_lib.predict import Rates, Stack, case_of, chunk_choices, memory_of
from scaling_lib.predict_terms import Case, Constants, step_parts
from scaling_lib.runs import RUNS, Run, read_runs

TOML = DATA / "predictor.toml"
NOISE = 0.05  # scale in log beyond which an error counts linearly
ASSUMED_WEIGHT = 0.3  # of a row with a field that its source did not print
Z80 = 1.2816  # standard deviations on either side that hold 80% of a normal distribution
MOE = ("expert_half_tokens", "expert_link_exposed", "expert_nic_exposed", "expert_launch")
STAND_IN = "architecture"  # marks a run whose model is a guess: it is predicted, but teaches nothing
CENTRAL: dict[str, Any] = {
    "kernel": "flash-native",
    "tuning": "tuned",
    "recompute": "none",
    "tp_overlap": True,
    "tp_backward_overlap": True,
    "dp_overlap": True,
    "ep_overlap": False,
    "graphs": "none",
    "grad_bytes": 2,
    "fp8_recipe": "tensor",
}


@dataclass(frozen=True)
class Parameter:
    """One fitted figure: where it stands in the file, and its prior with its standard deviation in log."""

    table: str
    name: str
    prior: float
    sd: float


@dataclass(frozen=True)
class Rows:
    """Runs as arrays: the case, log of the measured seconds, weights, and the row of the chip table each one uses."""

    runs: tuple[Run, ...]
    case: Case
    logs: Any
    weights: Any
    chips: tuple[str, ...]

    @property
    def sure(self) -> Any:
        """Whether the source of each run printed every field."""
        return np.array([not r.assumed for r in self.runs])

    @property
    def sources(self) -> Any:
        """Source of each run."""
        return np.array([r.source for r in self.runs])


def known(run: Run) -> Stack:
    """The run's stack with central values for what is unknown."""
    changes = {k: v for k, v in CENTRAL.items() if getattr(run.stack, k) is None}
    if run.stack.virtual_stages is None:
        chunks = chunk_choices(run.job.model.n_layers, int(run.job.plan.pp))
        changes["virtual_stages"] = chunks[len(chunks) // 2] if run.stack.tuning == "tuned" else 1
    return replace(run.stack, **changes)


def pack(runs: Sequence[Run]) -> Rows:
    """Runs as one case of arrays."""
    table = predict.rates()
    cases = [case_of(r.job, known(r), table) for r in runs]
    columns: dict[str, Any] = {f.name: np.array([getattr(c, f.name) for c in cases]) for f in fields(Case)}
    columns = {name: c if c.dtype == bool else c.astype(float) for name, c in columns.items()}
    if not columns["moe_share"].any():
        columns["moe_share"] = 0.0
    groups = [(r.source, r.chip) for r in runs]
    counts = {g: groups.count(g) for g in set(groups)}
    weights = np.array([counts[g] ** -0.5 for g in groups]) * np.array(
        [ASSUMED_WEIGHT if r.assumed else 1.0 for r in runs]
    )
    own = catalogue.read_toml(TOML)["chips"]
    names = tuple(str(own.get(n, {}).get("same_as", n)) for n in (r.job.cluster.chip.name for r in runs))
    measured = np.log(np.array([r.measured for r in runs], float))
    return Rows(tuple(runs), Case(**columns), measured, weights, names)


def parameters(tables: Iterable[str]) -> list[Parameter]:
    """Fitted figures of the file in order, from the named tables ("constants", "chips.gb200", ...)."""
    data = catalogue.read_toml(TOML)
    found = []
    for table in tables:
        inner: Any = data
        for step in table.split(".", 1):
            inner = inner[step]
        for name, entry in inner.items():
            if isinstance(entry, dict) and entry.get("kind") == "fitted" and "prior" in entry:
                found.append(Parameter(table, name, float(entry["prior"]), float(entry["sd"])))
    return found


def model(rows: Rows, free: Sequence[Parameter], base: Rates) -> Callable[[Any], Any]:
    """Log of the predicted seconds as a function of the log of the free figures."""
    index = {(p.table, p.name): i for i, p in enumerate(free)}
    precisions = [r.job.precision for r in rows.runs]
    peaks = np.array([r.job.peak for r in rows.runs])
    bf16 = np.array([r.job.cluster.chip.flops("bf16") for r in rows.runs])

    def pick(precision: Sequence[str]) -> tuple[Any, Any]:
        at = np.array([index.get((f"chips.{c}", p), -1) for c, p in zip(rows.chips, precision, strict=True)])
        fixed = np.array(
            [
                base.fractions.get(c, {}).get(p, base.interval["prior_fraction"])
                for c, p in zip(rows.chips, precision, strict=True)
            ]
        )
        return at, fixed

    layer_at, layer_fixed = pick(precisions)
    head_at, head_fixed = pick(["bf16"] * len(precisions))
    named = [(p.name, i) for i, p in enumerate(free) if p.table == "constants"]

    def predicted(x: Any) -> Any:
        values = np.exp(x)
        constants = replace(base.constants, **{name: float(values[i]) for name, i in named})
        case = replace(
            rows.case,
            layer_rate=peaks * np.where(layer_at >= 0, values[layer_at], layer_fixed),
            head_rate=bf16 * np.where(head_at >= 0, values[head_at], head_fixed),
        )
        return np.log(sum(step_parts(case, constants).values()))

    return predicted


def solve(rows: Rows, free: Sequence[Parameter], base: Rates, keep: Any = None) -> Any:
    """Log of the free figures that fit best: damped Gauss-Newton on a soft absolute error, with priors."""
    predicted = model(rows, free, base)
    prior = np.log(np.array([p.prior for p in free]))
    sd = np.array([p.sd for p in free])
    weights = np.sqrt(rows.weights) * (1.0 if keep is None else keep)

    def residuals(x: Any) -> Any:
        r = (predicted(x) - rows.logs) / NOISE
        soft = np.sign(r) * np.sqrt(2 * (np.sqrt(1 + r * r) - 1))
        return np.concatenate([weights * soft, (x - prior) / sd])

    x, damping = prior.copy(), 1e-2
    now = residuals(x)
    for _ in range(60):
        jacobian = np.stack([(residuals(x + 1e-5 * unit) - now) / 1e-5 for unit in np.eye(len(x))], axis=1)
        normal = jacobian.T @ jacobian
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), jacobian.T @ now)
        then = residuals(x + step)
        if then @ then < now @ now:
            done = bool(np.abs(step).max() < 1e-6)
            x, now, damping = x + step, then, damping / 5
            if done:
                break
        else:
            damping *= 5
    return x


def left_out(rows: Rows, free: Sequence[Parameter], base: Rates) -> Any:
    """Log of measured over predicted, each source predicted by a fit without its runs."""
    errors = np.zeros(len(rows.runs))
    sources = rows.sources
    for source in sorted(set(sources)):
        x = solve(rows, free, base, sources != source)
        errors = np.where(sources == source, rows.logs - model(rows, free, base)(x), errors)
    return errors


def summary(name: str, errors: Any) -> str:
    """One line: rows, median, mean and 90% quantile of APE, bias."""
    ape = np.abs(np.exp(-errors) - 1)
    return (
        f"{name:<44}{len(ape):>5} rows  median {100 * np.median(ape):5.2f}%  mean {100 * ape.mean():5.2f}%  "
        f"p90 {100 * np.quantile(ape, 0.9):5.1f}%  bias {100 * np.median(np.exp(-errors) - 1):+5.1f}%"
    )


def _rounded(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"


def write(text: str, values: Iterable[tuple[str, str, float]], sources: Mapping[tuple[str, str], int]) -> str:
    """The file with new values: (table, name, value) each, three figures; and on how many sources a figure rests."""
    lines, table = text.splitlines(), ""
    wanted = {(t, n): _rounded(v) for t, n, v in values}
    for i, line in enumerate(lines):
        if head := re.match(r"\[(.+)\]\s*\Z", line):
            table = head[1]
        elif (entry := re.match(r"(\w+) = \{ value = ", line)) and (table, entry[1]) in wanted:
            lines[i] = re.sub(r"value = [^,]+", f"value = {wanted[table, entry[1]]}", line, count=1)
            lines[i] = re.sub(r"sources = \d+", f"sources = {sources.get((table, entry[1]), 0)}", lines[i], count=1)
    return "\n".join(lines) + "\n"


def _refit(base: Rates, free: Sequence[Parameter], x: Any) -> Rates:
    """Rates with the fitted figures in place, rounded as the file will hold them."""
    values = [float(_rounded(v)) for v in np.exp(x)]
    constants: Constants = replace(
        base.constants, **{p.name: v for p, v in zip(free, values, strict=True) if p.table == "constants"}
    )
    fractions = {chip: dict(table) for chip, table in base.fractions.items()}
    for p, v in zip(free, values, strict=True):
        if p.table.startswith("chips."):
            fractions[p.table[6:]][p.name] = v
    own = catalogue.read_toml(TOML)["chips"]
    for chip, table in own.items():
        if "same_as" in table:
            fractions[chip] = fractions[table["same_as"]]
    return replace(base, constants=constants, fractions=fractions)


def evidence(rows: Rows) -> dict[tuple[str, str], int]:
    """Sources that each figure of the chip table rests on, by (table, precision)."""
    found: dict[tuple[str, str], set[str]] = {}
    for chip, run in zip(rows.chips, rows.runs, strict=True):
        found.setdefault((f"chips.{chip}", run.job.precision), set()).add(run.source)
    return {key: len(names) for key, names in found.items()}


def spreads(rows: Rows, errors: Any) -> dict[str, float]:
    """How runs of one model, chip and source scatter around their common error, and how those errors do."""
    sure = rows.sure
    jobs = np.array([f"{r.source} {r.chip} {r.job.precision} {r.model}" for r in rows.runs])
    kept = [j for j in sorted(set(jobs[sure])) if (sure & (jobs == j)).sum() >= 3]
    middles = np.array([np.median(errors[sure & (jobs == j)]) for j in kept])
    inner = np.concatenate([errors[sure & (jobs == j)] - m for j, m in zip(kept, middles, strict=True)])
    return {
        "within": float(np.quantile(np.abs(inner), 0.8)) / Z80,  # tails are heavy: what holds 80% counts
        "between": float(np.std(middles)),
    }


def beyond(rows: Rows, errors: Any, table: Rates) -> Any:
    """How far, in log, each measurement lies from the predictions with every value of its unknown inputs; signed.

    errors: log of measured over the prediction with central values."""

    def seconds(run: Run, stack: Stack) -> float:
        return float(sum(step_parts(case_of(run.job, stack, table), table.constants).values()))

    found = np.zeros(len(rows.runs))
    for i, (run, error) in enumerate(zip(rows.runs, errors, strict=True)):
        stacks = predict.completions(run.stack, predict.choices(run.job, run.stack))
        if len(stacks) == 1:
            found[i] = error
            continue
        totals, middle = [seconds(run, told) for told in stacks], seconds(run, known(run))
        down, up = float(np.log(min(totals) / middle)), float(np.log(max(totals) / middle))
        found[i] = min(error - down, 0.0) + max(error - up, 0.0)
    return found


def _missing(distance: Any, half: Any) -> float:
    """What half-widths need beside them, in squares, so that they hold 80% of these distances."""
    return float(max(np.quantile(distance**2 - half**2, 0.8), 1e-6) ** 0.5)


def _held(distance: Any, low: Any, high: Any) -> Any:
    return (distance >= -low) & (distance <= high)


def interval(rows: Rows, distance: Any, base: Rates) -> dict[str, float]:
    """Figures of the interval, from errors of sources that were left out: four of five runs lie inside.

    low, high: quantiles of runs whose every field is printed, on chips that enough sources tell of. few: what chips
    need beside that of which one or two tell. guess: factor on the widths of fields that a rule filled.
    """
    sure = rows.sure
    firm = _firm(rows, base)
    low, high = (float(np.quantile(distance[sure & firm], q)) for q in (0.1, 0.9))
    half = np.where(distance < 0, low, high)
    few = _missing(distance[sure & ~firm], half[sure & ~firm])
    half = np.sqrt(half**2 + np.where(firm, 0.0, few) ** 2)[~sure]
    left = np.maximum(distance[~sure] ** 2 - half**2, 0.0) ** 0.5 / _guesses(rows, base)[~sure]
    return {"low": low, "high": high, "few": few, "guess": float(np.quantile(left, 0.8))}


def _firm(rows: Rows, base: Rates) -> Any:
    """Whether enough sources tell the matmul rate of each run's chip."""
    counts = evidence(rows)
    told = [counts[f"chips.{c}", r.job.precision] for c, r in zip(rows.chips, rows.runs, strict=True)]
    return np.array(told) >= base.interval["firm_sources"]


def _guesses(rows: Rows, base: Rates) -> Any:
    """Half-width in log that each run's guessed fields add before the factor `guess`."""
    return np.array([predict.guess_width(r.assumed, base) for r in rows.runs])


def coverage(rows: Rows, distance: Any, base: Rates) -> tuple[Any, Any]:
    """Whether each run lies in an interval made from the other sources alone, and that interval's width in log.

    Its own source teaches neither the prediction nor the widths."""
    held, width = np.zeros(len(rows.runs), bool), np.zeros(len(rows.runs))
    firm, guesses, sources = _firm(rows, base), _guesses(rows, base), rows.sources
    for source in sorted(set(sources)):
        own = sources == source
        others = [i for i in range(len(rows.runs)) if not own[i]]
        rest = replace(rows, runs=tuple(rows.runs[i] for i in others), chips=tuple(rows.chips[i] for i in others))
        told = interval(rest, distance[others], base)
        extra = np.where(firm, 0.0, told["few"]) ** 2 + (told["guess"] * guesses) ** 2
        low, high = np.sqrt(told["low"] ** 2 + extra), np.sqrt(told["high"] ** 2 + extra)
        held[own], width[own] = _held(distance, low, high)[own], (low + high)[own]
    return held, width


def _ratios(runs: Sequence[Run], bytes_of: Callable[[Run], float | None]) -> tuple[Any, Any]:
    """Log of measured bytes over the ledger of each run that tells them, and the sources of those runs."""
    rows = [(r, told) for r in runs if (told := bytes_of(r)) and STAND_IN not in r.assumed]
    ratios = [float(np.log(told / float(memory_of(r.job, r.stack).tensors.total))) for r, told in rows]
    return np.array(ratios), np.array([r.source for r, _ in rows])


def _memory_figures(runs: Sequence[Run]) -> tuple[list[tuple[str, str, float]], list[str]]:
    """Figures of [memory], and what they hold when the source that is asked about teaches nothing.

    Peak of allocated tensors over the ledger: median of the source with the most rows, half-width of 80% of all rows.
    Used memory: the range that holds 80% of what allocators and drivers show.
    """
    peaks, names = _ratios(runs, lambda r: r.memory if r.memory_kind == "allocated" else None)
    most = max(sorted(set(names)), key=lambda name: int((names == name).sum()))
    middle = float(np.median(peaks[names == most]))
    inner = float(np.quantile(np.abs(peaks[names == most] - middle), 0.8))
    others = float(np.max(np.abs(peaks[names != most] - middle)))
    both = (
        _ratios(runs, lambda r: r.memory if r.memory_kind == "used" else None),
        _ratios(runs, lambda r: r.reserved),
    )
    shown, sources = (np.concatenate([part[i] for part in both]) for i in (0, 1))
    shown = shown - middle

    def ends(ratios: Any) -> tuple[float, float]:
        return float(np.quantile(ratios, 0.1)), float(np.quantile(ratios, 0.9))

    held = np.zeros(len(shown), bool)
    for source in set(sources):
        low, high = ends(shown[sources != source])
        held |= (sources == source) & (shown >= low) & (shown <= high)
    low, high = ends(shown)
    report = [
        f"memory, allocated: {len(peaks)} rows of {len(set(names))} sources; one source alone within "
        f"{100 * (np.exp(inner) - 1):.1f}% of its median, the others within {100 * (np.exp(others) - 1):.1f}%",
        f"interval from other sources alone, used memory: holds {100 * held.mean():.1f}% of {len(shown)} rows, "
        f"{100 * (np.exp(high - low) - 1):.1f}% wide",
    ]
    figures = {"allocated": np.exp(middle), "allocated_spread": inner, "allocated_between": others}
    figures |= {"reserved_low": np.exp(low), "reserved": np.exp(np.median(shown)), "reserved_high": np.exp(high)}
    return [("memory", name, float(value)) for name, value in figures.items()], report


def fit(path: str | Path = RUNS, toml: Path = TOML) -> str:
    """Refit from the rows of `path`, write `toml`, and return the report."""
    everything = [r for r in read_runs(path)[0] if not r.wrong]
    runs = [r for r in everything if r.measured and STAND_IN not in r.assumed]
    chips = [f"chips.{name}" for name, table in catalogue.read_toml(TOML)["chips"].items() if "same_as" not in table]
    gpu = [c for c in chips if "tpu" not in c]
    base = predict.rates()
    dense = pack([r for r in runs if r.split == "dev" and r.job.model.moe is None])
    free = [p for p in parameters(["constants", *gpu]) if p.name not in MOE]
    x = solve(dense, free, base)
    errors = dense.logs - model(dense, free, base)(x)
    outside = left_out(dense, free, base)
    sure = dense.sure
    named = [p for p in free if p.table == "constants"]
    report = [
        f"{len(named)} constants and {len(free) - len(named)} figures of the chip table, {len(dense.runs)} dense rows",
        summary("fit, all rows", errors),
        summary("fit, every field printed", errors[sure]),
        summary("each source left out, all rows", outside),
        summary("each source left out, every field printed", outside[sure]),
        *(summary(f"  {name} left out", outside[dense.sources == name]) for name in sorted(set(dense.sources))),
    ]
    values = [(p.table, p.name, float(np.exp(v))) for p, v in zip(free, x, strict=True)]
    base, counts = _refit(base, free, x), evidence(dense)
    distance = beyond(dense, outside, base)
    wide = interval(dense, distance, base) | spreads(dense, outside)
    values += [("interval", name, v) for name, v in wide.items()]
    held, width = coverage(dense, distance, base)
    for name, mask in (("every field printed", sure), ("with guessed fields", ~sure)):
        report.append(
            f"interval from other sources alone, {name}: holds {100 * held[mask].mean():.1f}% of {mask.sum()} rows, "
            f"{100 * (np.exp(width[mask]).mean() - 1):.1f}% wide"
        )
    figures, told = _memory_figures(everything)
    values += figures
    report += told
    for name, rows, tables, only in (
        ("mixtures of experts", [r for r in runs if r.split == "moe" and r.job.model.moe], ["constants"], MOE),
        (
            "TPU",
            [r for r in runs if "TPU" in r.chip and r.job.model.moe is None],
            [c for c in chips if "tpu" in c],
            None,
        ),
    ):
        packed = pack(rows)
        part = [p for p in parameters(tables) if only is None or p.name in only]
        x = solve(packed, part, base)
        report.append(summary(f"{name}: fit", packed.logs - model(packed, part, base)(x)))
        if len(set(packed.sources)) > 2:
            away = left_out(packed, part, base)
            report.append(summary(f"{name}: each source left out", away))
            if only is MOE:
                table = _refit(base, part, x)
                apart = beyond(packed, away, table)
                half = (wide["high"] - wide["low"]) / 2
                values.append(("interval", "experts", _missing(apart, np.full(len(apart), half))))
        if only is None:
            counts |= evidence(packed)
        values += [(p.table, p.name, float(np.exp(v))) for p, v in zip(part, x, strict=True)]
    toml.write_text(write(TOML.read_text(encoding="utf-8"), values, counts), encoding="utf-8")
    return "\n".join(report)


if __name__ == "__main__":
    print(fit())
