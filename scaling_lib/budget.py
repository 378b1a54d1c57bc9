"""Budget: FLOPs, chip-hours, days, dollars, and the time that failures cost.

Times are seconds and prices USD per chip-second inside; `units.show` prints days and USD an hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from scaling_lib import catalogue
from scaling_lib.job import Job
from scaling_lib.model import flops_per_token


def train_flops(n_params: Any, tokens: Any) -> Any:
    """Training FLOPs by the rule of six: 6 N_params T. Equation: eq-train-flops.

    n_params: parameters (active ones of a mixture). tokens: T. Source: Kaplan et al. 2020.
    """
    return 6 * n_params * tokens


def seconds(flops: Any, chips: Any, peak: Any, mfu: Any) -> Any:
    """Seconds of a run: FLOPs / (N C MFU). Equation: eq-seconds. peak: FLOP/s of one chip, dense."""
    return flops / (chips * peak * mfu)


def chip_seconds(flops: Any, peak: Any, mfu: Any) -> Any:
    """Chip-seconds of a run, whatever the number of chips: FLOPs / (C MFU). Equation: eq-chip-seconds."""
    return flops / (peak * mfu)


def mfu(flops: Any, chip_seconds: Any, peak: Any) -> Any:
    """Model FLOPs utilisation that reported chip time implies: FLOPs / (chip-seconds x C). Equation: eq-mfu."""
    return flops / (chip_seconds * peak)


def hfu(mfu: Any, recomputed: Any) -> Any:
    """Hardware FLOPs utilisation: MFU (1 + r/3), r the share of the forward pass done twice. Equation: eq-hfu."""
    return mfu * (1 + recomputed / 3)


def cost(chip_seconds: Any, price: Any) -> Any:
    """Dollars: chip-seconds x price, USD per chip-second. Equation: eq-cost."""
    return chip_seconds * price


def chips_for(flops: Any, seconds: Any, peak: Any, mfu: Any) -> Any:
    """The knob: chips that finish a run in a given time. Equation: eq-chips."""
    return flops / (seconds * peak * mfu)


def mtbf(failure_rate: Any, chips: Any) -> Any:
    """Mean seconds between failures of a whole job. failure_rate: failures per chip-second. Equation: eq-mtbf."""
    return 1 / (failure_rate * chips)


def checkpoint_interval(checkpoint: Any, mtbf: Any) -> Any:
    """Interval between checkpoints that loses least, first order: sqrt(2 delta M). Equation: eq-young.

    checkpoint: seconds that training stands still for one (delta). mtbf: seconds (M). Source: Young 1974.
    """
    return (2 * checkpoint * mtbf) ** 0.5


def goodput(interval: Any, checkpoint: Any, mtbf: Any, restart: Any) -> Any:
    """Fraction of the wall clock that trains, with failures at random. Equation: eq-goodput.

    interval: seconds of training between checkpoints (tau). checkpoint: seconds of one (delta). restart: seconds from a
    failure to training again (R). Source: Daly 2006, complete model.
    """
    return interval / (mtbf * math.e ** (restart / mtbf) * (math.e ** ((interval + checkpoint) / mtbf) - 1))


def spares(failure_rate: Any, chips: Any, repair: Any) -> Any:
    """Chips under repair at a time, on average: rate x N x repair seconds (Little's law). Equation: eq-spares."""
    return failure_rate * chips * repair


@dataclass(frozen=True)
class Interval:
    """A value with its bounds: low, point, high, in one unit."""

    low: float
    point: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.point <= self.high:
            raise ValueError(
                f"interval {self.low}, {self.point}, {self.high} is out of order: give low <= point <= high"
            )

    def scaled(self, factor: float) -> Interval:
        """The interval times a positive factor."""
        return Interval(self.low * factor, self.point * factor, self.high * factor)


def spread(function: Callable[..., float], **arguments: float | Interval) -> Interval:
    """Ranges in, interval out: the extremes of a formula over every corner of its ranges.

    Exact for formulas that rise or fall in each argument by itself, as those of this module do, but for goodput in its
    interval. It is the widest interval: all bad things together. Arguments that are plain numbers stay fixed.
    """
    corners = [(a.low, a.high) if isinstance(a, Interval) else (a,) for a in arguments.values()]
    values = [function(**dict(zip(arguments, corner, strict=True))) for corner in product(*corners)]
    point = function(**{k: a.point if isinstance(a, Interval) else a for k, a in arguments.items()})
    return Interval(min(values), point, max(values))


@dataclass(frozen=True)
class Price:
    """A quoted price. rate: USD per chip-second."""

    name: str
    chip: str
    rate: float
    terms: str


def price(name: str) -> Price:
    """A price of the catalogue by name. Raises CatalogueError that lists near names."""
    entry = catalogue.find("prices", name)
    where = f"price {name}"
    terms = catalogue.choice(entry, "terms", where, ("on-demand", "reserved", "preemptible", "owned"))
    return Price(name, str(entry.get("chip")), catalogue.figure(entry, "price", "USD/s", where), terms)


@dataclass(frozen=True)
class Budget:
    """What a run takes. flops: FLOP. chip_seconds: chip s. seconds: s. usd: USD, None when no price was given."""

    flops: float
    chips: int
    mfu: float
    chip_seconds: float
    seconds: float
    usd: float | None


def budget(job: Job, mfu: float, price: float | None = None, convention: str = "6N") -> Budget:
    """FLOPs, chip time, days and dollars of a job whose MFU is given.

    price: USD per chip-second. convention: as in `model.flops_per_token`; MFU must be counted the same way.
    Raises ValueError when the job names no tokens or no chips, or MFU is not in (0, 1].
    """
    if job.tokens is None or not 0 < job.tokens < math.inf:
        raise ValueError(f"a budget needs the tokens of the run, given {job.tokens}: set Job.tokens, e.g. 15e12")
    if not 1 <= job.chips < math.inf:
        raise ValueError(f"a budget needs chips, given {job.chips}: set Job.chips to at least 1")
    if not 0 < mfu <= 1:
        raise ValueError(f"MFU is a fraction of peak, given {mfu}: use a value above 0 and at most 1, e.g. 0.4")
    if price is not None and not 0 <= price < math.inf:
        raise ValueError(f"price {price} USD per chip-second: give a finite price of at least 0")
    flops = flops_per_token(job.model, job.seq_len, convention) * job.tokens
    chip_time = chip_seconds(flops, job.peak, mfu)
    return Budget(
        flops,
        job.chips,
        mfu,
        chip_time,
        seconds(flops, job.chips, job.peak, mfu),
        None if price is None else cost(chip_time, price),
    )


@dataclass(frozen=True)
class ReportedRun:
    """A run as its makers report it. chip_seconds: chip s, downtime mostly included. tokens: trained on."""

    name: str
    model: str
    chip: str
    chip_seconds: float
    tokens: float


def reported(name: str) -> ReportedRun:
    """A reported run of the catalogue by name. Raises CatalogueError that lists near names."""
    entry, where = catalogue.find("reported_runs", name), f"reported run {name}"
    return ReportedRun(
        name,
        str(entry.get("model")),
        str(entry.get("chip")),
        catalogue.figure(entry, "chip_hours", "chip*s", where),
        catalogue.figure(entry, "tokens", "token", where),
    )


def failure_rate(name: str) -> float:
    """Failures per chip-second of a fleet or run in scaling_lib/data/failures.toml: failures / (span x chips)."""
    entry, where = catalogue.find("failures", name), f"failures {name}"
    return float(
        entry["failures"] / (catalogue.figure(entry, "span", "s", where) * catalogue.whole(entry, "chips", where))
    )
