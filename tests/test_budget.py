"""FLOPs, time, money and failures: by hand, against reports, and against a simulation of failures at random."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scaling_lib import budget, catalogue
from scaling_lib.budget import Interval, spread
from scaling_lib.catalogue import CatalogueError
from scaling_lib.job import Job
from scaling_lib.model import flops_per_token, model, n_active_params
from scaling_lib.units import DAY, HOUR


def test_by_hand() -> None:
    assert budget.train_flops(10, 20) == 1200
    assert budget.seconds(1200, 3, 10, 0.5) == 80
    assert budget.chip_seconds(1200, 10, 0.5) == 240
    assert budget.mfu(1200, 240, 10) == 0.5
    assert budget.chips_for(1200, 80, 10, 0.5) == 3
    assert budget.cost(240, 0.25) == 60
    assert budget.hfu(0.3, 1.0) == pytest.approx(0.4)  # one more forward: 8 passes' worth for 6
    assert budget.hfu(0.3, 0.0) == 0.3
    assert budget.mtbf(0.5, 4) == 0.5
    assert budget.checkpoint_interval(8, 100) == 40
    assert budget.spares(1e-6, 16384, 86400) == pytest.approx(1415.5776)


@pytest.mark.parametrize(
    ("name", "percent"),
    [("llama-3-70b", "27.9"), ("llama-3.1-70b", "25.5"), ("llama-3.1-405b", "34.6"), ("llama-2-70b", "42.8")],
)
def test_mfu_that_reported_hours_imply(name: str, percent: str) -> None:
    run = budget.reported(name)
    peak = {"h100-sxm": 989e12, "a100-80gb": 312e12}[run.chip]
    flops = budget.train_flops(n_active_params(model(run.model)), run.tokens)
    assert f"{100 * budget.mfu(flops, run.chip_seconds, peak):.1f}" == percent


def test_reported_runs() -> None:
    run = budget.reported("deepseek-v3")
    assert (run.name, run.model, run.chip, run.tokens) == ("deepseek-v3", "deepseek-v3", "h800", 14.8e12)
    assert run.chip_seconds == pytest.approx(2.788e6 * 3600)
    with pytest.raises(CatalogueError, match=r"unknown reported run 'llama-3.2': did you mean .*llama-3"):
        budget.reported("llama-3.2")


def test_the_budget_of_a_job(gpu_job: Job) -> None:
    plan = budget.budget(gpu_job, 0.4, 2 / HOUR)
    assert plan.flops == 6 * 70_553_706_496 * 15e12
    assert plan.chip_seconds / HOUR == pytest.approx(4.4587e6, rel=1e-4)
    assert plan.seconds / DAY == pytest.approx(4.4587e6 / 16384 / 24, rel=1e-4)
    assert plan.usd == pytest.approx(8.917e6, rel=1e-3)
    assert (plan.chips, plan.mfu) == (16384, 0.4)
    assert budget.budget(gpu_job, 0.4).usd is None
    assert budget.budget(gpu_job, 0.4, 0.0).usd == 0
    assert budget.budget(replace(gpu_job, tokens=0.5), 0.4).flops == 3 * 70_553_706_496
    assert budget.budget(gpu_job, 1.0).chip_seconds == pytest.approx(plan.chip_seconds * 0.4)


def test_the_convention_is_the_one_asked_for(gpu_job: Job) -> None:
    causal = budget.budget(gpu_job, 0.4, convention="causal")
    assert causal.flops == 449_222_541_312 * 15e12
    assert causal.flops == flops_per_token(gpu_job.model, 8192, "causal") * 15e12
    with pytest.raises(ValueError, match="unknown FLOPs convention 'palm'"):
        budget.budget(gpu_job, 0.4, convention="palm")


@pytest.mark.parametrize(
    ("changes", "mfu", "price", "says"),
    [
        ({"tokens": None}, 0.4, None, "needs the tokens of the run, given None: set Job.tokens"),
        ({"tokens": 0}, 0.4, None, "needs the tokens of the run, given 0"),
        ({}, 0, None, "MFU is a fraction of peak, given 0: use a value above 0 and at most 1"),
        ({}, 1.01, None, "MFU is a fraction of peak, given 1.01"),
        ({}, 40, None, "MFU is a fraction of peak, given 40"),
        ({}, float("nan"), None, "MFU is a fraction of peak, given nan"),
        ({"tokens": float("inf")}, 0.4, None, "needs the tokens of the run, given inf"),
        ({"chips": 0}, 0.4, None, "needs chips, given 0"),
        ({}, 0.4, -1, "price -1 USD per chip-second: give a finite price of at least 0"),
        ({}, 0.4, float("inf"), "price inf USD per chip-second"),
        ({}, 0.4, float("nan"), "price nan USD per chip-second"),
    ],
)
def test_misuse(gpu_job: Job, changes: dict[str, Any], mfu: float, price: float | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        budget.budget(replace(gpu_job, **changes), mfu, price)


def simulated_goodput(interval: float, checkpoint: float, mtbf: float, restart: float) -> float:
    """Trained share of the wall clock when failures come at random, restarts included."""
    chance, clock, trained = random.Random(1), 0.0, 0.0
    failure = chance.expovariate(1 / mtbf)
    while trained < 20_000 * interval:
        need = interval + checkpoint
        while failure < need:  # lost: start again after a restart that may itself fail
            clock += failure
            failure, need_restart = chance.expovariate(1 / mtbf), restart
            while failure < need_restart:
                clock += failure
                failure = chance.expovariate(1 / mtbf)
            clock += need_restart
            failure -= need_restart
        clock += need
        failure -= need
        trained += interval
    return trained / clock


@pytest.mark.parametrize(
    ("interval", "checkpoint", "mtbf", "restart"), [(60, 5, 200, 30), (10, 5, 50, 0), (300, 1, 250, 90)]
)
def test_goodput_is_what_a_simulation_measures(interval: float, checkpoint: float, mtbf: float, restart: float) -> None:
    closed = budget.goodput(interval, checkpoint, mtbf, restart)
    assert simulated_goodput(interval, checkpoint, mtbf, restart) == pytest.approx(closed, rel=0.02)


def test_goodput_limits() -> None:
    assert budget.goodput(100, 0, 1e12, 0) == pytest.approx(1, abs=1e-4)
    assert budget.goodput(100, 10, 1e12, 500) == pytest.approx(100 / 110, rel=1e-4)


def test_youngs_interval_is_nearly_the_best() -> None:
    checkpoint, mtbf, restart = 30.0, 11_000.0, 600.0
    scan = np.geomspace(10, 20_000, 4000)
    best = budget.goodput(scan, checkpoint, mtbf, restart).max()
    young = budget.checkpoint_interval(checkpoint, mtbf)
    assert young == pytest.approx((2 * 30 * 11_000) ** 0.5)
    assert budget.goodput(young, checkpoint, mtbf, restart) > 0.9995 * best


def test_failures_of_llama_405b() -> None:
    rate = budget.failure_rate("llama-3-405b")
    assert budget.mtbf(rate, 16384) == pytest.approx(54 * DAY / 419)
    with pytest.raises(CatalogueError, match="unknown failure 'llama'"):
        budget.failure_rate("llama")


def test_prices() -> None:
    price = budget.price("nebius-h100")
    assert (price.name, price.chip, price.terms) == ("nebius-h100", "h100-sxm", "on-demand")
    assert budget.price("article-cloud").rate == pytest.approx(2 / 3600)
    with pytest.raises(CatalogueError, match=r"unknown price 'nebius': did you mean nebius-"):
        budget.price("nebius")


def test_ranges_in_interval_out() -> None:
    found = spread(budget.seconds, flops=1200, chips=3, peak=10, mfu=Interval(0.25, 0.4, 0.5))
    assert (found.low, found.point, found.high) == (80, 100, 160)
    both = spread(budget.cost, chip_seconds=Interval(100, 200, 300), price=Interval(1, 2, 4))
    assert (both.low, both.point, both.high) == (100, 400, 1200)
    fixed = spread(budget.cost, chip_seconds=100, price=2)
    assert (fixed.low, fixed.point, fixed.high) == (200, 200, 200)


def test_the_interval_holds_every_draw_of_its_ranges() -> None:
    ranges = {"flops": Interval(1e3, 2e3, 3e3), "peak": Interval(8, 10, 12), "mfu": Interval(0.2, 0.4, 0.5)}
    found, chance = spread(budget.chip_seconds, **ranges), random.Random(0)
    draws = [budget.chip_seconds(**{k: chance.uniform(r.low, r.high) for k, r in ranges.items()}) for _ in range(500)]
    assert found.low <= min(draws)
    assert max(draws) <= found.high


def test_intervals_are_in_order() -> None:
    assert Interval(1, 2, 3).scaled(2) == Interval(2, 4, 6)
    with pytest.raises(ValueError, match="interval 3, 2, 1 is out of order: give low <= point <= high"):
        Interval(3, 2, 1)
    with pytest.raises(ValueError, match="out of order"):
        Interval(1, 3, 2)
    with pytest.raises(ValueError, match="out of order"):
        Interval(1, float("nan"), 2)


def test_arrays_are_one_call() -> None:
    mfu = np.array([0.25, 0.5])
    np.testing.assert_array_equal(budget.seconds(1200, 3, 10, mfu), [160, 80])
    interval = np.array([10.0, 60.0])
    np.testing.assert_allclose(
        budget.goodput(interval, 5, 200, 30), [budget.goodput(float(i), 5, 200, 30) for i in interval]
    )


def test_every_price_and_reported_run_reads() -> None:
    terms = {budget.price(name).terms for name in catalogue.entries("prices")}
    assert terms == {"on-demand", "reserved", "preemptible", "owned"}
    assert all(budget.reported(name).chip_seconds > 0 for name in catalogue.entries("reported_runs"))


@pytest.mark.parametrize(
    ("read", "where", "key"),
    [
        (budget.price, "price x", "price"),
        (budget.price, "price x", "terms"),
        (budget.reported, "reported run x", "chip_hours"),
        (budget.reported, "reported run x", "tokens"),
        (budget.failure_rate, "failures x", "span"),
        (budget.failure_rate, "failures x", "chips"),
    ],
)
def test_a_faulty_entry_is_named(monkeypatch: pytest.MonkeyPatch, read: Any, where: str, key: str) -> None:
    sheet = {"source": "a", "date": "2026", "kind": "measured"}
    whole = {
        "price": {"value": "2 USD/h", **sheet},
        "terms": "owned",
        "chip_hours": {"value": "2 chip-hours", **sheet},
        "tokens": {"value": "2 tokens", **sheet},
        "span": {"value": "2 s", **sheet},
        "chips": 2,
        "failures": 8,
    }
    monkeypatch.setattr(catalogue, "find", lambda stem, name: whole)
    read("x")
    assert budget.failure_rate("x") == 2
    del whole[key]
    with pytest.raises(CatalogueError, match=f"^{where}: .*{key}"):
        read("x")
