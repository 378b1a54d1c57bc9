"""An explorer of the step-time predictor: a reader's own model and layout, on a cluster whose chip was measured."""

from __future__ import annotations

from scaling_lib.draw import bar_chart, readout
from scaling_lib.explore import Choice, Explorer, Slider
from scaling_lib.explorers_own import model_sliders, own_model
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster, model
from scaling_lib.model import n_params
from scaling_lib.predict import FSDP_COMPILED, FSDP_EAGER, MEGATRON, Estimate, Stack, step_time
from scaling_lib.rules import require
from scaling_lib.units import show

MEASURED = ("dgx-a100", "dgx-h100", "dgx-h200", "h800-ib", "dgx-b200", "gb200-nvl72", "gb300-nvl72")
SOFTWARE = {
    "Megatron-LM or NeMo": MEGATRON,
    "FSDP, compiled": FSDP_COMPILED,
    "FSDP, eager": FSDP_EAGER,
    "not known": Stack(),
}
_405B = model("llama-3-405b")


def predict_state(
    layers: int, d_model: int, d_ff: int, heads: int, kv_heads: int, vocab: int,
    cluster_name: str, precision: str, software: str,
    dp: int, tp: str, pp: str, chunks: int, zero: str, micro_batch: int, recompute: str, batch: float, seq_len: int,
) -> tuple[Job, Estimate]:  # fmt: skip
    """The job of the explorer and its predicted step. The batch is rounded to whole microbatches on every replica.

    Raises ValueError for a layout that cannot run.
    """
    stages = int(pp)
    plan = ParallelPlan(
        dp=dp,
        tp=int(tp),
        pp=stages,
        zero=int(zero),
        virtual_stages=chunks if stages > 1 else 1,
        schedule="interleaved" if stages > 1 and chunks > 1 else "1f1b",
        micro_batch=micro_batch,
        recompute=recompute,
    )
    each = dp * micro_batch * seq_len
    job = Job(
        own_model(layers, d_model, d_ff, heads, kv_heads, vocab),
        cluster(cluster_name),
        plan,
        plan.chips,
        max(1, round(batch / each)) * each,
        seq_len,
        precision=precision,
    )
    require(job, first_only=True)
    return job, step_time(job, SOFTWARE[software])


def draw_predict(**state: object) -> str:
    """Where the seconds of one step go, as bars, and the step with its 80% interval."""
    job, estimate = predict_state(**state)  # type: ignore[arg-type]
    parts = [
        (p.name.rpartition("/")[2], float(p.value), show(p.value, "s")) for p in estimate.parts if float(p.value) > 0
    ]
    parts.sort(key=lambda part: -part[1])
    step = show(estimate.seconds, "s")
    low, high = show(estimate.low, "s"), show(estimate.high, "s")
    words = f"{step} a step, between {low} and {high} in four cases of five; most of it {parts[0][0]}, {parts[0][2]}."
    rows = [
        ("seconds a step", step),
        ("80% interval", f"{low} to {high}"),
        ("MFU, attention counted causal", show(estimate.mfu_causal, "%")),
        ("tokens a second and chip", f"{estimate.tokens_per_chip_second:,.0f}"),
        ("chips", f"{job.chips:,}"),
        ("parameters", show(n_params(job.model), "param")),
        ("batch, whole microbatches", show(job.batch_tokens, "token")),
        ("microbatches a replica", show(job.microbatches, "microbatch")),
    ]
    if estimate.memory:
        over = estimate.memory.allocated > job.cluster.chip.hbm
        rows.append(("peak of allocated memory", show(estimate.memory.allocated, "B") + (", too much" * over)))
    if estimate.unknown:
        rows.append(("not known, so wider", ", ".join(name.replace("_", " ") for name in estimate.unknown)))
    chart = bar_chart(f"One step on {job.chips:,} × {job.cluster.chip.name}", words, parts)
    return chart + readout(rows)


predict_explorer = Explorer(
    "Your layout: seconds a step",
    (
        *model_sliders(_405B, least_layers=64, heads_step=8, most_kv_heads=_405B.n_heads),
        Choice("cluster_name", "cluster", MEASURED, "dgx-h100"),
        Choice("precision", "matmuls in", ("bf16", "fp8"), "bf16"),
        Choice("software", "software", tuple(SOFTWARE), "Megatron-LM or NeMo"),
        Slider("dp", "DP", 1, 2048, 128),
        Choice("tp", "TP", ("1", "2", "4", "8"), "8"),
        Choice("pp", "PP", ("1", "2", "4", "8", "16"), "16"),
        Slider("chunks", "chunks a stage", 1, 7, 4),
        Choice("zero", "ZeRO stage", ("1", "2", "3"), "2"),
        Slider("micro_batch", "sequences a microbatch", 1, 16, 1),
        Choice("recompute", "recomputation", ("none", "selective", "full"), "none"),
        Slider("batch", "batch, B (tokens)", 1e6, 1e8, 2.0**24, log=True),
        Slider("seq_len", "sequence, S (tokens)", 1024, 131_072, 8192, step=1024),
    ),
    draw_predict,
)
