"""The explorers of the chapters: each a function from values to HTML, and the controls that feed it.

They compute with the library alone and draw SVG text, so that the same function runs in Jupyter and in a browser.
"""

from __future__ import annotations

from dataclasses import replace

from scaling_lib import budget, crosspod, decide, dp, fsdp, hybrid, memory, roofline, tp
from scaling_lib.draw import Axis, Mark, Series, bar_chart, line_chart, log_range, readout
from scaling_lib.draw_flow import flow
from scaling_lib.explore import Choice, Explorer, Slider
from scaling_lib.explorers_collectives import collectives_explorer as collectives_explorer
from scaling_lib.explorers_collectives import compiler_explorer as compiler_explorer
from scaling_lib.explorers_plan import plan_explorer as plan_explorer
from scaling_lib.explorers_predict import predict_explorer as predict_explorer
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster, model
from scaling_lib.model import n_params
from scaling_lib.rules import require
from scaling_lib.units import DAY, HOUR, MINUTE, show

CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-b200", "gb200-nvl72", "mi300x-8", "tpu-v5p", "tpu-v6e")
_H100 = cluster("dgx-h100")
DENSE = ("llama-3-8b", "llama-3-70b", "llama-3-405b", "llama-2-70b", "gpt-3-175b")
MODELS = ("llama-3-8b", "llama-3-70b", "llama-3-405b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3")


def dp_state(cluster_name: str, chips: int, batch: float) -> Job:
    """The job of the DP explorer: pure data parallelism of Llama 3 70B's two-matmul layer over all chips."""
    c = cluster(cluster_name)
    return Job(model("llama-3-70b"), c, ParallelPlan(dp=chips, zero=0), chips, batch, 8192)


def draw_dp(cluster_name: str, chips: int, batch: float) -> str:
    """MFU cap of pure DP against tokens per chip, with the job's point and its threshold."""
    job = dp_state(cluster_name, chips, batch)
    times, critical = dp.times(job), dp.critical_batch(job) / chips
    x = Axis("tokens per chip, B/X", 50, 50_000, log=True)
    curve = [(t, float(dp.times(replace(job, batch_tokens=t * chips)).mfu_cap)) for t in log_range(x.low, x.high)]
    each = job.tokens_per_chip
    verdict = "compute-bound" if dp.is_compute_bound(job) else "comms-bound"
    rows = [
        ("tokens per chip", show(each, "token/chip")),
        ("threshold", show(critical, "token/chip")),
        ("smallest batch for these chips", show(critical * chips, "token")),
        ("backward compute per layer", show(times.backward_math, "s")),
        ("gradient all-reduce per layer", show(times.backward_comms, "s")),
        ("MFU cap", show(times.mfu_cap, "%")),
        ("verdict", verdict),
    ]
    marks = [
        Mark(each, float(times.mfu_cap), f"this job: {show(times.mfu_cap, '%')}"),
        Mark(critical, 1.0, "threshold", above=True),
    ]
    words = f"{show(each, 'token/chip')} against a threshold of {show(critical, 'token/chip')}: {verdict}."
    return line_chart(
        f"DP on {chips} x {job.cluster.chip.name}", words, x, Axis("MFU cap", 0, 1.2), [Series("cap", curve)], marks
    ) + readout(rows)


dp_explorer = Explorer(
    "Smallest batch for data parallelism",
    (
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Slider("chips", "chips, X", 8, 4096, 1024, step=8),
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 2.0**22, log=True),
    ),
    draw_dp,
)


def draw_scaling(peak: float, egress: float, batch: float) -> str:
    """Speed-up against chips for a layer whose weight traffic does not shrink, and the largest useful cluster."""
    alpha = roofline.critical_intensity(peak * 1e12, egress * 1e9)
    knee = batch / alpha
    x, y = Axis("chips", 1, 100_000, log=True), Axis("speed-up over one chip", 1, 100_000, log=True)
    real = [(n, float(roofline.strong_scaling_speedup(batch, alpha, n))) for n in log_range(x.low, x.high)]
    words = f"Up to {show(knee, 'chip')} each chip adds its share; beyond, none does."
    marks = [Mark(knee, knee, show(knee, "chip"), above=True)] if x.low < knee < x.high else []
    lines = [Series("with communication", real), Series("ideal", [(x.low, y.low), (x.high, y.high)])]
    rows = [("FLOPs a byte, C/W", show(alpha, "FLOP/B")), ("largest useful cluster", show(knee, "chip"))]
    return line_chart("Strong scaling at a fixed batch", words, x, y, lines, marks) + readout(rows)


scaling_explorer = Explorer(
    "Largest useful cluster",
    (
        Slider("peak", "peak, C (TFLOP/s)", 50, 5000, _H100.chip.flops("bf16") / 1e12, log=True),
        Slider("egress", "egress a chip, W (GB/s)", 5, 2000, _H100.domain * _H100.levels[1].egress / 1e9, log=True),
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 2.0**22, log=True),
    ),
    draw_scaling,
)


def draw_fsdp(cluster_name: str, chips: int, batch: float, bytes_per_param: float) -> str:
    """Compute and communication of one layer against chips under FSDP, and the state each chip keeps."""
    c, m = cluster(cluster_name), model("llama-3-70b")

    def job(n: float) -> Job:
        return Job(m, c, ParallelPlan(dp=n), n, batch, 8192)

    times = [(n, fsdp.times(job(n))) for n in log_range(8, 32_768)]
    here, state = fsdp.times(job(chips)), fsdp.state_bytes_per_chip(n_params(m), bytes_per_param, chips)
    lines = [
        Series("compute", [(n, t.math * 1e3) for n, t in times]),
        Series("gathers and scatters", [(n, t.comms * 1e3) for n, t in times]),
    ]
    values = [y for line in lines for _, y in line.points]
    y = Axis("ms per layer and step", min(values) / 1.5, max(values) * 1.5, log=True)
    words = f"{chips} chips: compute {show(here.math, 's')}, communication {show(here.comms, 's')} per layer."
    mark = Mark(chips, float(here.bound) * 1e3, f"MFU cap {show(here.mfu_cap, '%')}", above=True)
    rows = [
        ("tokens per chip", show(batch / chips, "token/chip")),
        ("threshold", show(fsdp.critical_batch(job(chips)) / chips, "token/chip")),
        ("state per chip", show(state, "B")),
        ("share of its memory", show(state / c.chip.hbm, "%")),
    ]
    return line_chart(
        f"FSDP of Llama 3 70B on {c.chip.name}", words, Axis("chips", 8, 32_768, log=True), y, lines, [mark]
    ) + readout(rows)


fsdp_explorer = Explorer(
    "What sharding costs",
    (
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Slider("chips", "chips, X", 8, 32_768, 1024, step=8),
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 2.0**22, log=True),
        Slider("bytes_per_param", "bytes a parameter, b", 8, 20, 16),
    ),
    draw_fsdp,
)


def draw_tp(model_name: str, cluster_name: str, form: str) -> str:
    """Compute over communication of one layer against the TP degree, on the links each degree crosses."""
    c, m = cluster(cluster_name), model(model_name)
    degrees = [2**i for i in range(1, 8)]
    jobs = [Job(m, c, ParallelPlan(dp=1, tp=d), d, 2**16, 8192, layer=form) for d in degrees]
    caps = [float(tp.times(job).mfu_cap) for job in jobs]
    limit = tp.max_degree(
        roofline.layer(m, form).effective_d_ff, c.chip.flops("bf16"), c.levels[0].chip_egress(jobs[0].torus_axes[1])
    )
    bars = [
        (f"TP {d}" + (", beyond the domain" if d > c.domain else ""), cap, show(cap, "%"))
        for d, cap in zip(degrees, caps, strict=True)
    ]
    words = f"The width allows {limit:.1f} ways; the domain holds {c.domain} chips."
    rows = [
        ("effective width F", f"{roofline.layer(m, form).effective_d_ff:,.0f}"),
        ("limit by the width", f"{limit:.1f} ways"),
        ("chips in the domain", str(c.domain)),
    ]
    return bar_chart(f"MFU cap of {model_name} by TP degree on {c.chip.name}", words, bars) + readout(rows)


tp_explorer = Explorer(
    "How wide can TP go?",
    (
        Choice("model_name", "model", DENSE, "llama-3-70b"),
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Choice("form", "layer", ("two-matmul", "gated", "full"), "two-matmul"),
    ),
    draw_tp,
)


def draw_hybrid(batch: float, chips: int, axes_x: int, axes_y: int) -> str:
    """Both collectives against the FSDP degree on a TPU v5p torus, where the split is free."""
    c, m = cluster("tpu-v5p"), model("llama-3-70b")
    w_x, w_y = axes_x * c.levels[0].egress, axes_y * c.levels[0].egress
    peak, best = c.chip.flops("bf16"), float(hybrid.x_opt(batch, m.d_ff, chips, w_x, w_y))
    x = Axis("FSDP degree, X (TP is N/X)", 1, chips, log=True)
    gathers = [(d, hybrid.t_fsdp(m.d_model, m.d_ff, chips / d, w_x) * 1e3) for d in log_range(x.low, x.high)]
    activations = [(d, hybrid.t_tp(batch, m.d_model, d, w_y) * 1e3) for d in log_range(x.low, x.high)]
    math_ms = 4 * batch * m.d_model * m.d_ff / (chips * peak) * 1e3
    values = [y for _, y in gathers + activations] + [math_ms]
    y = Axis("ms per layer, forward", min(values) / 1.5, max(values) * 1.5, log=True)
    lines = [
        Series("FSDP gathers", gathers),
        Series("TP activations", activations),
        Series("compute", [(x.low, math_ms), (x.high, math_ms)]),
    ]
    mark = [Mark(best, hybrid.t_tp(batch, m.d_model, best, w_y) * 1e3, f"X = {best:.0f}")] if 1 <= best <= chips else []
    rows = [("tokens per chip", show(batch / chips, "token/chip")), ("best FSDP degree", f"{best:.0f}")]
    rows += [
        (f"threshold, {name}", show(hybrid.critical_tokens(peak, w_x, w_y, m.d_ff, combine), "token/chip"))
        for combine, name in (("max", "they overlap"), ("sum", "they add"))
    ]
    words = f"Best split: FSDP {best:.0f} by TP {chips / best:.1f}."
    return line_chart(f"FSDP x TP of Llama 3 70B on {chips} TPU v5p", words, x, y, lines, mark) + readout(rows)


hybrid_explorer = Explorer(
    "Best split on one fabric",
    (
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 4e6, log=True),
        Slider("chips", "chips, N", 64, 8960, 8960, step=64),
        Slider("axes_x", "torus axes for FSDP", 1, 2, 2),
        Slider("axes_y", "torus axes for TP", 1, 2, 1),
    ),
    draw_hybrid,
)


def draw_crosspod(cluster_name: str, pods: int, batch: float, pp: int) -> str:
    """Tokens a pod against the threshold of the outer network, by pods."""
    c = cluster(cluster_name)
    inner, outer = c.levels[-2].size or 1, c.levels[-1].egress
    needed = crosspod.critical_pod_tokens(c.chip.flops("bf16"), outer, pp)
    x = Axis("pods", 1, 4096, log=True)
    each = [(n, batch / n) for n in log_range(x.low, x.high)]
    lines = [Series("tokens a pod", each), Series("threshold", [(x.low, needed), (x.high, needed)])]
    y = Axis("tokens a pod", min(batch / x.high, needed) / 2, max(batch, needed) * 2, log=True)
    here = batch / pods
    verdict = "hidden" if here >= needed else f"capped at {show(roofline.mfu_cap(here, needed), '%')} in backward"
    rows = [
        ("a pod", f"{inner:,} chips"),
        ("tokens a pod", show(here, "token")),
        ("threshold a pod", show(needed, "token")),
        ("threshold a chip", show(needed / inner, "token/chip")),
        ("pods before it binds", show(int(batch // needed), "pod")),
        ("gradient traffic", verdict),
    ]
    words = f"{pods} pods: {show(here, 'token')} each against {show(needed, 'token')}."
    return line_chart(
        f"DP across pods of {inner:,} {c.chip.name}", words, x, y, lines, [Mark(pods, here, verdict)]
    ) + readout(rows)


crosspod_explorer = Explorer(
    "How many pods?",
    (
        Choice("cluster_name", "cluster", CLUSTERS, "tpu-v5p"),
        Slider("pods", "pods", 1, 4096, 2),
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 16e6, log=True),
        Slider("pp", "pipeline stages across pods", 1, 32, 1),
    ),
    draw_crosspod,
)


def draw_memory(
    model_name: str, cluster_name: str, tp: str, pp: str, dp: int, zero: str, recompute: str, seq_len: int
) -> str:
    """The memory ledger of the fullest chip as bars against its HBM."""
    c, m = cluster(cluster_name), model(model_name)
    plan = ParallelPlan(dp=dp, tp=int(tp), pp=int(pp), zero=int(zero), recompute=recompute)
    job = Job(m, c, plan, plan.chips, plan.pp * dp * seq_len, seq_len)
    require(job, first_only=True)
    ledger = memory.ledger(job)
    parts = [(p.name, float(p.value), show(p.value, "B")) for p in ledger if p.value]
    total = float(ledger.total)
    words = f"{show(total, 'B')} of {show(c.chip.hbm, 'B')} on {plan.chips} chips."
    chart = bar_chart(
        f"Memory of the fullest {c.chip.name} for {model_name}",
        words,
        parts,
        (c.chip.hbm, f"HBM {show(c.chip.hbm, 'B')}"),
    )
    rows = [
        ("total", show(total, "B")),
        ("share of the chip", show(total / c.chip.hbm, "%")),
        ("verdict", "fits" if total <= c.chip.hbm else "does not fit"),
        ("chips", f"{plan.chips:,}"),
    ]
    return chart + readout(rows)


memory_explorer = Explorer(
    "What fills the memory?",
    (
        Choice("model_name", "model", MODELS, "llama-3-70b"),
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Choice("tp", "TP", ("1", "2", "4", "8"), "8"),
        Choice("pp", "PP", ("1", "2", "4", "8", "16"), "1"),
        Slider("dp", "DP", 1, 512, 64),
        Choice("zero", "ZeRO stage", ("0", "1", "2", "3"), "3"),
        Choice("recompute", "recomputation", ("none", "selective", "full"), "none"),
        Slider("seq_len", "sequence, S (tokens)", 1024, 131_072, 8192, step=1024),
    ),
    draw_memory,
)


def draw_decide(model_name: str, cluster_name: str, dp_degree: int, tp: str, pp: str, batch: float) -> str:
    """The flow with its verdicts for one plan."""
    c, m = cluster(cluster_name), model(model_name)
    plan = ParallelPlan(dp=dp_degree, tp=int(tp), pp=int(pp), zero=3 if pp == "1" else 1)
    job = Job(m, c, plan, plan.chips, batch, 8192)
    require(job, first_only=True)
    rows = [
        ("chips", f"{plan.chips:,}"),
        ("MFU cap by bandwidth", show(decide.mfu_cap(job), "%")),
        ("bubble", show(decide.bubble(job), "%")),
    ]
    return flow(job, f"{model_name} on {plan.chips:,} x {c.chip.name}") + readout(rows)


decide_explorer = Explorer(
    "Which plan, and why?",
    (
        Choice("model_name", "model", MODELS, "llama-3-70b"),
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Slider("dp_degree", "DP", 1, 2048, 128),
        Choice("tp", "TP", ("1", "2", "4", "8"), "8"),
        Choice("pp", "PP", ("1", "2", "4", "8", "16"), "8"),
        Slider("batch", "batch, B (tokens)", 2**24, 1e9, 2**24, log=True),
    ),
    draw_decide,
)


def draw_budget(
    model_name: str,
    cluster_name: str,
    chips: int,
    tokens: float,
    mfu: float,
    price: float,
    failures: float,
    restart: float,
) -> str:
    """Days against chips, and the days, dollars and goodput of one choice."""
    c = cluster(cluster_name)
    job = Job(model(model_name), c, ParallelPlan(dp=chips), chips, 1, 1, tokens)
    found, good = budget.budget(job, mfu, price / HOUR), budget_goodput(chips, failures, restart)
    x, chip_days = Axis("chips", 64, 65_536, log=True), found.chip_seconds / DAY
    alone = [(n, chip_days / n) for n in log_range(x.low, x.high)]
    lines = [
        Series("compute alone", alone),
        Series("with failures", [(n, days / budget_goodput(n, failures, restart)) for n, days in alone]),
    ]
    rows = [
        ("training FLOPs, 6 N_params T", show(found.flops, "FLOP")),
        ("time, compute alone", show(found.seconds, "s")),
        ("goodput", show(good, "%")),
        ("time, with failures", show(found.seconds / good, "s")),
        ("chip-hours", show(found.chip_seconds / HOUR / good, "chip-hour")),
        ("cost", show((found.usd or 0.0) / good, "USD")),
    ]
    words = f"{show(found.seconds, 's')} on {chips} chips, {show(found.seconds / good, 's')} with failures."
    mark = Mark(chips, found.seconds / good / DAY, show(found.seconds / good, "s"))
    y = Axis("days", chip_days / x.high, chip_days / x.low, log=True)
    return line_chart(f"{model_name} on {c.chip.name}", words, x, y, lines, [mark]) + readout(rows)


CHECKPOINT = 30.0  # seconds that training stands still for one checkpoint, as assumed in the budget explorer


def budget_goodput(chips: float, failures: float, restart: float) -> float:
    """Goodput at the best checkpoint interval. failures: per 1000 chip-days. restart: minutes."""
    if failures <= 0:
        return 1.0
    mean = budget.mtbf(failures / (1000 * DAY), chips)
    return float(budget.goodput(budget.checkpoint_interval(CHECKPOINT, mean), CHECKPOINT, mean, restart * MINUTE))


budget_explorer = Explorer(
    "How many days, how many dollars",
    (
        Choice("model_name", "model", MODELS, "llama-3-70b"),
        Choice("cluster_name", "cluster", CLUSTERS, "dgx-h100"),
        Slider("chips", "chips, N", 64, 65_536, 16_384, step=64),
        Slider("tokens", "tokens, T", 1e11, 1e14, 15e12, log=True),
        Slider("mfu", "MFU (fraction of peak)", 0.05, 0.7, 0.4, step=0.01),
        Slider("price", "price (USD per chip-hour)", 0.5, 15, 2.0, step=0.1),
        Slider("failures", "failures per 1000 chip-days", 0, 8, 0.5, step=0.1),
        Slider("restart", "minutes to restart", 1, 60, 10),
    ),
    draw_budget,
)
