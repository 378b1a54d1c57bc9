"""Predicted against measured, as the chapter shows it: families of sources, the fixed-MFU rule, repeated measurements.

Every number comes from data/runs.csv through the predictor, or from what the study of the predictor recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot
from typing import Any

from scaling_lib import budget, catalogue
from scaling_lib.catalogue import DATA, CatalogueError, read_toml
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster, model
from scaling_lib.model import flops_per_token, n_active_params
from scaling_lib.predict import MEGATRON, Estimate, Stack, evidence_width, rates, step_time
from scaling_lib.validate import Group, Report, Scored, quantile, validate

# what a reader calls a group of sources, and the sources in it; the rest is "other"
FAMILIES = {
    "NVIDIA recipes": ("bridge", "dgxc", "dgxc-mem", "gpurecipes", "jaxtoolbox", "nemo2407", "nemotron4"),
    "MosaicML": ("mosaic",),
    "BLOOM sweep": ("bloom",),
    "Megatron tables": ("sc21", "korthikanti", "mcore"),
    "MegaScale": ("megascale",),
    "InternEvo": ("internevo",),
}
MEGATRON_TABLES = {
    "sc21": "Narayanan et al. 2021, A100",
    "korthikanti": "Korthikanti et al. 2022, A100",
    "mcore": "Megatron-Core, H100",
}


@cache
def confronted() -> Report:
    """Every published run of data/runs.csv with its prediction."""
    return validate()


def split(name: str) -> tuple[Scored, ...]:
    """Measured runs of one split ("dev": dense, the fit saw them; "moe"; "context"), without contradictory rows.

    Raises ValueError for a split without runs.
    """
    usable = [s for s in confronted().scored if s.run.measured and not s.run.wrong]
    if not (found := tuple(s for s in usable if s.run.split == name)):
        known = ", ".join(sorted({s.run.split for s in usable}))
        raise ValueError(f"no measured run in split {name!r}: use one of {known}")
    return found


def total(kind: str, name: str) -> Group:
    """Errors of one group of the validation: kind "split", "source" or "chip". ValueError for an unknown one."""
    groups = confronted().groups.get(kind, ())
    if not (found := [g for g in groups if g.name == name]):
        raise ValueError(f"no {kind} {name!r} among the scored runs: there are {', '.join(g.name for g in groups)}")
    return found[0]


def family(s: Scored) -> str:
    """The family of a run's source."""
    return next((name for name, sources in FAMILIES.items() if s.run.source in sources), "other")


def points(
    scored: Sequence[Scored], value: Callable[[Scored, float], float]
) -> list[tuple[str, list[tuple[float, float]]]]:
    """(family, [(measured seconds, value(run, measured))]) in the order of FAMILIES, empty families left out."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in [*FAMILIES, "other"]}
    for s in scored:
        if s.run.measured:
            found[family(s)].append((s.run.measured, value(s, s.run.measured)))
    return [(name, places) for name, places in found.items() if places]


# the rule of a fixed MFU -----------------------------------------------------------------------------------------


def rule_seconds(job: Job, mfu: float) -> float:
    """Seconds a step by 6N and one fraction of the peak for every run, which is what a back of an envelope does."""
    flops = budget.train_flops(n_active_params(job.model), job.batch_tokens)
    return float(budget.seconds(flops, job.chips, job.peak, mfu))


def measured_mfu(s: Scored) -> float:
    """Fraction of the dense peak that a measured run reached, by 6N. Raises ValueError without a measurement."""
    if not s.run.measured:
        raise ValueError(f"run {s.run.id} has no measured step: choose one that has")
    return rule_seconds(s.run.job, 1.0) / s.run.measured


def bf16_dense() -> tuple[Scored, ...]:
    """Dense development runs in bf16, the ones that a rule about bf16 peaks speaks of."""
    return tuple(s for s in split("dev") if s.run.job.precision == "bf16")


def rule_ape(mfu: float, q: float = 0.5) -> float:
    """Quantile of the error of the fixed-MFU rule over `bf16_dense`."""
    return quantile([abs(rule_seconds(s.run.job, mfu) / (s.run.measured or 0.0) - 1) for s in bf16_dense()], q)


def own_ape(q: float = 0.5) -> float:
    """Quantile of the predictor's error over the same runs."""
    return quantile([abs(s.error or 0.0) for s in bf16_dense()], q)


def reaches(mfu: float) -> float:
    """Share of `bf16_dense` that reached this fraction of peak by 6N."""
    runs = bf16_dense()
    return sum(measured_mfu(s) >= mfu for s in runs) / len(runs)


# one configuration, measured more than once ----------------------------------------------------------------------


@dataclass(frozen=True)
class Repeat:
    """Runs that no column tells apart. seconds: as measured, ascending."""

    first: Scored
    seconds: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Slowest over fastest, less 1."""
        return self.seconds[-1] / self.seconds[0] - 1

    @property
    def floor(self) -> float:
        """How far off the best single prediction is at the two ends: 2ab/(a+b) for a and b seconds, (b-a)/(b+a) off."""
        return (self.seconds[-1] - self.seconds[0]) / (self.seconds[-1] + self.seconds[0])


def repeats(scored: Sequence[Scored]) -> list[Repeat]:
    """Configurations measured more than once by one source, the widest spread first."""
    same: dict[tuple[str, Job, Stack], list[Scored]] = {}
    for s in scored:
        same.setdefault((s.run.source, s.run.job, s.run.stack), []).append(s)
    found = [Repeat(group[0], tuple(sorted(s.run.measured or 0.0 for s in group))) for group in same.values()]
    return sorted((r for r in found if len(r.seconds) > 1), key=lambda r: (-r.spread, r.first.run.id))


def repeat_spread(name: str, q: float = 0.5) -> float:
    """Quantile of the spread of repeated measurements of one split."""
    return quantile([r.spread for r in repeats(split(name))], q)


def repeat_floor(name: str, q: float = 0.5) -> float:
    """Quantile of the least error that one prediction for each configuration of a split can have."""
    return quantile([r.floor for r in repeats(split(name))], q)


# runs by name ----------------------------------------------------------------------------------------------------


def run(name: str) -> Scored:
    """One scored run by id. Raises ValueError for an unknown one."""
    found = [s for s in confronted().scored if s.run.id == name]
    if not found:
        raise ValueError(f"no scored run {name!r}: ids are those of data/runs.csv")
    return found[0]


def estimate(name: str) -> Estimate:
    """The prediction of one run by id, with its parts. Raises ValueError for an unknown one."""
    found = run(name).run
    return step_time(found.job, found.stack, found.assumed)


def of_source(name: str) -> list[Scored]:
    """Measured runs of one source, in the order of the file."""
    return [s for s in confronted().scored if s.run.source == name and s.run.measured and not s.run.wrong]


@dataclass(frozen=True)
class Published:
    """One layout of the Llama 3 405B as its paper prints it. rate: FLOP/s of one GPU."""

    job: Job
    rate: float

    def seconds(self, convention: str) -> float:
        """Seconds a step that the printed rate means when attention is counted "causal" or "full"."""
        each = float(flops_per_token(self.job.model, self.job.seq_len, convention))
        return each * float(self.job.batch_tokens) / (float(self.job.chips) * self.rate)


# The paper says that optimizer and gradients are sharded, that stages are interleaved, and that the first and the last
# chunk have one layer less, which leaves them the embedding and the output alone: so chunks hold one layer. It does not
# say what overlaps: unknown.
META = replace(MEGATRON, tp_overlap=None, tp_backward_overlap=None)


def published_405b() -> tuple[Published, ...]:
    """The layouts of Llama 3 405B in its paper's table, with the printed rates."""
    entry, found = catalogue.find("reported_runs", "llama-3.1-405b"), []
    for row in entry["layouts"]:
        config, degrees = model(entry["model"]), {name: row[name] for name in ("dp", "tp", "pp", "cp")}
        chunks = (config.n_layers + 2) // row["pp"]
        plan = ParallelPlan(**degrees, zero=2, virtual_stages=chunks, schedule="interleaved", light_ends=True)
        tokens = row["sequences"] * row["seq_len"]
        job = Job(config, cluster("dgx-h100"), plan, row["chips"], tokens, row["seq_len"])
        found.append(Published(job, catalogue.figure(row, "rate", "FLOP/s", f"405B on {row['chips']} GPUs")))
    return tuple(found)


def predicted_405b(i: int) -> Estimate:
    """Our step time for layout i of `published_405b`, with unknown overlaps."""
    return step_time(published_405b()[i].job, META)


# what the study recorded -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Errors of one source, predicted by a fit without its runs. median, p90, bias: fractions."""

    source: str
    rows: int
    median: float
    p90: float
    bias: float


TOGETHER = ("all", "printed", "mixtures of experts")


@cache
def study() -> dict[str, Any]:
    """data/predictor_study.toml as it stands."""
    return read_toml(DATA / "predictor_study.toml")


def left_out(source: str) -> LeftOut:
    """Errors of a source that was left out of the fit; "all" dense ones together, "printed": those of their rows
    without a guess, "mixtures of experts": theirs.

    Raises CatalogueError for a source that the study does not list.
    """
    for row in study()["left_out"]:
        if row["source"] == source:
            return LeftOut(source, int(row["rows"]), *(row[key] / 100 for key in ("median", "p90", "bias")))
    raise CatalogueError(f"no source {source!r} left out: {', '.join(r['source'] for r in study()['left_out'])}")


@dataclass(frozen=True)
class Held:
    """Share of runs inside the interval when their source taught neither prediction nor width, and how wide it is."""

    runs: str
    share: float
    width: float


def held(runs: str) -> Held:
    """Coverage of the 80% interval: runs "every field printed", "with guessed fields", or rows of "used memory".

    Raises CatalogueError for others.
    """
    for row in study()["held"]:
        if row["runs"] == runs:
            return Held(runs, row["share"] / 100, row["width"] / 100)
    raise CatalogueError(f"no coverage of runs {runs!r}: {', '.join(r['runs'] for r in study()['held'])}")


def used_memory() -> tuple[float, float, float]:
    """What allocators or drivers show over the allocated peak: low end, median and high end of the 80% range."""
    told = rates().memory
    return told["reserved_low"], told["reserved"], told["reserved_high"]


def peaks_of_others() -> float:
    """How far off the allocated peak of another source than the one with the most rows lies at most, a fraction."""
    return exp(rates().memory["allocated_between"]) - 1


def band(chip: str, precision: str) -> tuple[float, float]:
    """How far below and above the prediction the 80% interval of a dense run reaches whose every field is printed."""
    table = rates()
    low, high = (table.interval[side] for side in ("low", "high"))
    extra = evidence_width(chip, precision, table)
    return exp(-hypot(low, extra)) - 1, exp(hypot(high, extra)) - 1


def left_out_sources() -> list[LeftOut]:
    """Every source that was left out, the most rows first."""
    rows = [left_out(r["source"]) for r in study()["left_out"] if r["source"] not in TOGETHER]
    return sorted(rows, key=lambda r: (-r.rows, r.source))
