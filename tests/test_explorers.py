"""Explorers: the numbers they show are the library's, for the default state and for moved sliders."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from scaling_lib import (
    budget,
    collectives,
    crosspod,
    dp,
    explorers,
    explorers_plan,
    explorers_predict,
    fsdp,
    hybrid,
    tp,
)
from scaling_lib.explore import Choice, Explorer, Slider, log_values
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster
from scaling_lib.model import model
from scaling_lib.predict import step_time
from scaling_lib.units import DAY, HOUR, MINUTE, show

ALL = {name: value for name, value in vars(explorers).items() if isinstance(value, Explorer)}


def read(html: str) -> dict[str, str]:
    """Labels and values of an explorer's readout."""
    return dict(re.findall(r"<dt[^>]*>(.*?)</dt><dd[^>]*>(.*?)</dd>", html))


def states(explorer: Explorer) -> list[dict[str, object]]:
    """Each control at its ends, the others at their defaults."""
    return [
        {control.name: value}
        for control in explorer.controls
        for value in (control.options if isinstance(control, Choice) else (control.low, control.high))
    ]


@pytest.mark.parametrize("name", ALL)
def test_every_corner_draws_the_same_each_time(name: str) -> None:
    explorer = ALL[name]
    for state in [{}, *states(explorer)]:
        assert "<svg" in explorer.html(**state)
        assert explorer.html(**state) == explorer.html(**state)


def test_dp_explorer_shows_the_formulas_numbers() -> None:
    job = explorers.dp_state("dgx-h100", 2048, 2**22)
    shown = read(explorers.dp_explorer.html(chips=2048))
    assert shown["tokens per chip"] == show(2**22 / 2048, "token/chip")
    assert shown["smallest batch for these chips"] == show(dp.critical_batch(job), "token")
    assert shown["verdict"] == "comms-bound"
    assert read(explorers.dp_explorer.html(chips=1024))["verdict"] == "compute-bound"


def test_budget_explorer_shows_the_formulas_numbers() -> None:
    shown = read(explorers.budget_explorer.html(failures=0, price=3.0))
    flops = 6 * 70_553_706_496 * 15e12
    assert shown["time, compute alone"] == show(flops / (16384 * 989e12 * 0.4), "s")
    assert shown["goodput"] == "100%"
    assert shown["cost"] == show(flops / (989e12 * 0.4) / HOUR * 3.0, "USD")
    mean = budget.mtbf(0.5 / (1000 * DAY), 16384)
    tau = budget.checkpoint_interval(explorers.CHECKPOINT, mean)
    good = budget.goodput(tau, explorers.CHECKPOINT, mean, 20 * MINUTE)
    assert read(explorers.budget_explorer.html(restart=20))["goodput"] == show(good, "%")


def test_the_other_explorers_show_the_formulas_numbers() -> None:
    assert (
        read(explorers.scaling_explorer.html(peak=1000, egress=100, batch=1e7))["largest useful cluster"]
        == "1,000 chips"
    )
    shown = read(explorers.fsdp_explorer.html(chips=64))
    assert shown["state per chip"] == show(fsdp.state_bytes_per_chip(70_553_706_496, 16, 64), "B")
    assert read(explorers.tp_explorer.html())["limit by the width"] == f"{tp.max_degree(28672, 989e12, 450e9):.1f} ways"
    shown = read(explorers.hybrid_explorer.html())
    assert shown["threshold, they add"] == show(
        hybrid.critical_tokens(4.59e14, 3.6e11, 1.8e11, 28672, "sum"), "token/chip"
    )
    assert read(explorers.crosspod_explorer.html())["pods before it binds"] == "217 pods"  # 217.9 do not hold a 218th
    shown = read(explorers.crosspod_explorer.html(cluster_name="dgx-h100", pp=4))
    assert shown["threshold a pod"] == show(crosspod.critical_pod_tokens(989e12, 50e9, 4), "token")


def test_predict_explorer_shows_the_predictors_numbers() -> None:
    explorer = explorers.predict_explorer
    for changes in ({}, {"software": "not known"}, {"pp": "1", "zero": "3"}, {"cluster_name": "dgx-a100"}):
        job, estimate = explorers_predict.predict_state(**{**explorer.state, **changes})
        again = step_time(job, explorers_predict.SOFTWARE[str(changes.get("software", "Megatron-LM or NeMo"))])
        assert estimate == again
        shown = read(explorer.html(**changes))
        assert shown["seconds a step"] == show(again.seconds, "s")
        assert shown["80% interval"] == f"{show(again.low, 's')} to {show(again.high, 's')}"
        assert f"between {show(again.low, 's')} and {show(again.high, 's')}" in explorer.html(**changes)
        assert shown["MFU, attention counted causal"] == show(again.mfu_causal, "%")
        assert ("not known, so wider" in shown) == bool(again.unknown)
    widths = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', explorer.html())]
    assert widths == sorted(widths, reverse=True)
    job, estimate = explorers_predict.predict_state(**explorer.state)
    parts = sorted((float(p.value) for p in estimate.parts if p.value > 0), reverse=True)
    assert len(widths) == len(parts)
    assert widths[1] / widths[0] == pytest.approx(parts[1] / parts[0], rel=1e-2)
    assert job.model == replace(model("llama-3-405b"), name="your model", max_seq_len=None)


def test_plan_explorer_shows_the_best_layouts() -> None:
    explorer = explorers.plan_explorer
    for changes in ({}, {"chips": "64", "cluster_name": "dgx-b200"}):
        state = {**explorer.state, **changes}
        answer = explorers_plan.plan_answer(**state)
        shown, html = read(explorer.html(**changes)), explorer.html(**changes)
        best = answer.best[0]
        assert shown["seconds a step, best"] == show(best.seconds, "s")
        assert shown["within 5% of the best"] == f"{answer.within:,}"
        assert f"DP {best.plan.dp} TP {best.plan.tp} PP {best.plan.pp} CP {best.plan.cp}" in html
        widths = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', html)]
        assert widths == sorted(widths)
        assert len(widths) == explorers_plan.SHOWN
    with pytest.raises(ValueError, match="no layout of 64 h100-sxm fits: the leanest needs"):
        explorer.html(chips="64", d_model=32768, d_ff=131072)


def test_log_slider_passes_through_its_default() -> None:
    stops = log_values(Slider("x", "x", 1e5, 1e8, 4e6, log=True))
    assert 4e6 in stops
    assert stops == sorted(stops)
    assert 1e5 <= stops[0] < 1.11e5
    assert 0.9e8 < stops[-1] <= 1e8


def test_wrong_controls_are_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        Explorer("t", (Slider("x", "x", 0, 1, 2),), lambda x: "")
    with pytest.raises(ValueError, match="not among"):
        Explorer("t", (Choice("x", "x", ("a", "b"), "c"),), lambda x: "")
    with pytest.raises(ValueError, match="no control 'y'"):
        Explorer("t", (Slider("x", "x", 0, 1, 1),), lambda x: "").html(y=1)


def test_widgets_redraw_and_explain() -> None:
    """Moving a widget redraws; a state that makes no sense is explained in the picture's place."""

    def draw(x: float) -> str:
        if x > 5:
            raise ValueError("x <is> too large")
        return f"<b>{x:g}</b>"

    box = Explorer("t", (Slider("x", "x", 0, 10, 1),), draw).widget()
    slider, picture = box.children
    assert "<b>1</b>" in picture.value
    slider.value = 4
    assert "<b>4</b>" in picture.value
    slider.value = 7
    assert "x &lt;is&gt; too large" in picture.value
    assert replace(Slider("x", "x", 0, 10, 1), value=2).value == 2


def test_collectives_explorer_shows_the_formulas_numbers() -> None:
    shown = read(explorers.collectives_explorer.html())
    h100 = cluster("dgx-h100")
    assert shown["both together"] == show(collectives.collective_time("all_gather", 256e6, h100, 8), "s")
    assert shown["each chip sends"] == show(256e6 * 7 / 8, "B")
    assert (shown["levels crossed"], shown["bound by"]) == ("8 on nvlink", "bandwidth")
    wide = read(explorers.collectives_explorer.html(group="128", size=1))
    assert (wide["slowest level"], wide["bound by"]) == ("infiniband", "latency")
    exchange = read(explorers.collectives_explorer.html(op="all_to_all"))
    assert exchange["bandwidth takes"] == show(collectives.all_to_all(256e6, 8, 450e9), "s")
    torus = read(explorers.collectives_explorer.html(op="all_to_all", group="64", cluster_name="tpu-v5p"))
    links = 3 * 64 * cluster("tpu-v5p").levels[0].egress  # 4 x 4 x 4 chips, a pair 3 hops apart on average
    assert torus["bandwidth takes"] == show(256e6 * 3 / links, "s")
    assert torus["latency takes"] == show(3 * 2 * cluster("tpu-v5p").levels[0].latency, "s")


def test_compiler_explorer_doubles_what_is_scattered() -> None:
    plan = ParallelPlan(dp=128, tp=8)
    job = Job(model("llama-3-70b"), cluster("dgx-h100"), plan, 1024, 128 * 32768, 8192)
    planned = hybrid.wire_bytes(job).total
    scattered = sum(p.value for p in hybrid.wire_bytes(job) if "reduce_scatter" in p.name)
    shown = read(explorers.compiler_explorer.html())
    assert shown["bytes a chip sends, planned"] == show(planned, "B")
    assert shown["with all-reduce and slice"] == show(planned + scattered, "B")
    alone = read(explorers.compiler_explorer.html(strategy="TP"))
    assert alone["more by"] == "1.50 times"
