"""The explorers of the chapters on collectives and the compiler: what a collective costs, and what lacking one does."""

from __future__ import annotations

from typing import Any

from scaling_lib import collectives, ep, fsdp, hybrid, tp
from scaling_lib.draw import Axis, Mark, Series, bar_chart, line_chart, log_range, readout
from scaling_lib.explore import Choice, Explorer, Slider
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster, model
from scaling_lib.units import MB, show

CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-b200", "gb200-nvl72", "tpu-v5p")
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
GROUPS = ("2", "4", "8", "16", "64", "128", "512", "2048")


def seconds(op: str, size: float, cluster_name: str, n: int) -> tuple[float, float]:
    """Seconds that bandwidth and latency take, on the levels that a group of neighbours crosses.

    An all-to-all goes directly on a switch, one step a peer. On a torus it is forwarded along the rings of a block with
    as many chips along each axis: what crosses one ring is 1/n of the array for each of its chips.
    """
    hops = cluster(cluster_name).hops(n)
    level = hops[0].level
    wait = float(collectives.latency(hops)) * (2 if op == "all_reduce" else 1)
    if op == "all_to_all":
        if level.topology == "torus":
            axes = len(level.shape)
            wait = axes * n ** (1 / axes) / 2 * level.latency
        return float(ep.exchange_seconds(size / n, n, hops)), wait
    return float(collectives.hierarchical(op, size, hops)), wait


def draw_collectives(cluster_name: str, op: str, group: str, size: float) -> str:
    """Seconds of a collective against the bytes of its array, with its two parts."""
    n, c, here = int(group), cluster(cluster_name), size * MB
    x, every = Axis("size of the full array, V (MB)", 0.01, 10_000, log=True), log_range(0.01, 10_000)
    parts = [(v, *seconds(op, v * MB, cluster_name, n)) for v in every]
    lines = [
        Series("both", [(v, 1e6 * (a + b)) for v, a, b in parts]),
        Series("bandwidth alone", [(v, 1e6 * a) for v, a, b in parts]),
        Series("latency alone", [(v, 1e6 * b) for v, a, b in parts]),
    ]
    values = [y for line in lines for _, y in line.points]
    y = Axis("µs", min(values) / 2, max(values) * 2, log=True)
    moving, waiting = seconds(op, here, cluster_name, n)
    verdict = "bandwidth" if moving >= waiting else "latency"
    slowest = c.slowest(n)
    rows = [
        ("each chip sends", show(collectives.sent_bytes(op, here, n), "B")),
        ("bandwidth takes", show(moving, "s")),
        ("latency takes", show(waiting, "s")),
        ("both together", show(moving + waiting, "s")),
        ("levels crossed", _levels(c, n)),
        ("slowest level", slowest.name if slowest else "none"),
        ("both parts are equal at", show(here * waiting / moving, "B")),
        ("bound by", verdict),
    ]
    words = f"{op} of {show(here, 'B')} over {n} chips: {show(moving + waiting, 's')}, bound by {verdict}."
    mark = Mark(size, 1e6 * (moving + waiting), show(moving + waiting, "s"), above=True)
    return line_chart(f"{op} over {n} x {c.chip.name}", words, x, y, lines, [mark]) + readout(rows)


def _levels(c: Any, n: int) -> str:
    """For instance "8 on nvlink, 16 on infiniband"."""
    return ", ".join(f"{hop.members} on {hop.level.name}" for hop in c.hops(n) if hop.members > 1)


collectives_explorer = Explorer(
    "What does a collective cost?",
    (
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Choice("op", "collective", OPS, "all_gather"),
        Choice("group", "chips, n", GROUPS, "8"),
        Slider("size", "full array, V (MB)", 0.01, 10_000, 256, log=True),
    ),
    draw_collectives,
)


def written_and_sliced(job: Job, strategy: str) -> tuple[dict[str, float], dict[str, float]]:
    """Bytes of one layer by operation: as planned, and when each reduce-scatter becomes an all-reduce and a slice."""
    ledger = {"FSDP": fsdp, "TP": tp, "FSDP x TP": hybrid}[strategy].wire_bytes(job)
    planned = dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce"), 0.0)
    for part in ledger:
        op = part.name.partition("/")[2].split()[0]
        planned[op] = planned.get(op, 0.0) + float(part.value)
    scattered = planned["reduce_scatter"]
    return planned, planned | {"reduce_scatter": 0.0, "all_reduce": planned["all_reduce"] + 2 * scattered}


def draw_compiler(model_name: str, strategy: str, chips: int, degree: str, tokens: float) -> str:
    """Bytes of one layer and step: collectives as planned, and as a compiler without reduce-scatter emits them."""
    tp_degree = 1 if strategy == "FSDP" else int(degree)
    dp_degree = 1 if strategy == "TP" else max(1, int(chips) // tp_degree)
    plan = ParallelPlan(dp=dp_degree, tp=tp_degree)
    job = Job(model(model_name), cluster("dgx-h100"), plan, plan.chips, tokens * dp_degree, 8192)
    planned, sliced = written_and_sliced(job, strategy)
    bars = [
        (f"{op}, {side}", value, show(value, "B"))
        for side, found in (("planned", planned), ("sliced", sliced))
        for op, value in found.items()
        if value
    ]
    before, after = sum(planned.values()), sum(sliced.values())
    rows = [
        ("plan", f"FSDP {dp_degree} x TP {tp_degree}"),
        ("bytes a chip sends, planned", show(before, "B")),
        ("with all-reduce and slice", show(after, "B")),
        ("more by", f"{after / before:.2f} times" if before else "nothing is sent"),
    ]
    words = f"{strategy}: {show(before, 'B')} planned, {show(after, 'B')} when nothing is scattered."
    return bar_chart(f"One layer of {model_name}, {strategy}", words, bars or [("nothing", 0.0, "0 B")]) + readout(rows)


compiler_explorer = Explorer(
    "What a missing reduce-scatter costs",
    (
        Choice("model_name", "model", ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "llama-3-70b"),
        Choice("strategy", "strategy", ("FSDP", "TP", "FSDP x TP"), "FSDP x TP"),
        Slider("chips", "chips", 8, 4096, 1024, step=8),
        Choice("degree", "TP degree", ("2", "4", "8"), "8"),
        Slider("tokens", "tokens a data rank, B/X", 1e3, 1e6, 32768, log=True),
    ),
    draw_compiler,
)
