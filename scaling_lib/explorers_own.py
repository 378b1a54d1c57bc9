"""An explorer for a reader's own model, cluster and price: every number is theirs."""

from __future__ import annotations

from scaling_lib import budget, decide, memory
from scaling_lib.draw import bar_chart, readout
from scaling_lib.explore import Explorer, Slider
from scaling_lib.hardware import Chip, Cluster, Level
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.library import cluster, model
from scaling_lib.model import TransformerConfig, n_params
from scaling_lib.rules import require
from scaling_lib.units import HOUR, show

_H100, _LLAMA = cluster("dgx-h100"), model("llama-3-70b")
_IN, _OUT = _H100.levels[0], _H100.levels[1]


def own_model(layers: int, d_model: int, d_ff: int, heads: int, kv_heads: int, vocab: int) -> TransformerConfig:
    """A dense transformer with a gated MLP. Raises ValueError when the heads do not divide the width or each other."""
    if d_model % heads:
        raise ValueError(f"d_model {d_model:,} is not divided by {heads} heads: choose a multiple of {heads}")
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are not divided by {kv_heads} KV heads: choose a divisor of {heads}")
    return TransformerConfig(
        "your model", layers, d_model, d_ff, heads, kv_heads, d_model // heads, vocab, gated=True, tied_embeddings=False
    )


def own_cluster(peak: float, hbm: float, domain: int, inside: float, outside: float) -> Cluster:
    """A cluster of one chip: fast domains joined by a network. Peak in TFLOP/s, memory in GB, egress a chip in GB/s."""
    chip = Chip("your chip", "your chip", {"bf16": peak * 1e12}, hbm * 1e9, _H100.chip.hbm_bandwidth)
    inner = Level("domain", _IN.topology, domain, inside * 1e9, _IN.latency)
    return Cluster(
        "own", "your cluster", chip, (inner, Level("network", _OUT.topology, None, outside * 1e9, _OUT.latency))
    )


def draw_own(
    layers: int, d_model: int, d_ff: int, heads: int, kv_heads: int, vocab: int,
    peak: float, hbm: float, domain: int, inside: float, outside: float,
    tp: int, pp: int, dp: int, batch: float, seq_len: int, tokens: float, mfu: float, price: float,
) -> str:  # fmt: skip
    """What fills the memory of the fullest chip, and the days and dollars of the whole run."""
    m, c = own_model(layers, d_model, d_ff, heads, kv_heads, vocab), own_cluster(peak, hbm, domain, inside, outside)
    plan = ParallelPlan(dp=dp, tp=tp, pp=pp, zero=3 if pp == 1 else 1, recompute="selective")
    job = Job(m, c, plan, plan.chips, _whole_batches(batch, dp * seq_len), seq_len, tokens)
    require(job, first_only=True)
    ledger, found = memory.ledger(job), budget.budget(job, mfu, price / HOUR)
    total, cap = float(ledger.total), float(decide.mfu_cap(job))
    parts = [(p.name, float(p.value), show(p.value, "B")) for p in ledger if p.value]
    rows = [
        ("parameters", show(n_params(m), "param")),
        ("chips", f"{plan.chips:,}"),
        ("batch, whole microbatches", show(job.batch_tokens, "token")),
        ("tokens per chip", show(job.tokens_per_chip, "token/chip")),
        ("threshold", show(decide.critical_tokens(job), "token/chip")),
        ("MFU cap by bandwidth", show(cap, "%")),
        ("memory of the fullest chip", show(total, "B")),
        ("verdict", "fits" if total <= c.chip.hbm else f"over by {show(total - c.chip.hbm, 'B')}"),
        ("training FLOPs", show(found.flops, "FLOP")),
        ("time at your MFU", show(found.seconds, "s")),
        ("cost", show(found.usd or 0.0, "USD")),
    ]
    if mfu > cap:
        rows.append(("mind", f"your MFU of {show(mfu, '%')} is above the cap"))
    words = f"{show(total, 'B')} of {show(c.chip.hbm, 'B')} on the fullest chip; {show(found.seconds, 's')} on all."
    return bar_chart(
        "Memory of the fullest chip", words, parts, (c.chip.hbm, f"HBM {show(c.chip.hbm, 'B')}")
    ) + readout(rows)


def _whole_batches(batch: float, step: int) -> int:
    """The batch nearest to the wanted one that gives each replica whole sequences, at least one."""
    return max(1, round(batch / step)) * step


def model_sliders(
    config: TransformerConfig, least_layers: int = 2, heads_step: int = 1, most_kv_heads: int = 256
) -> tuple[Slider, ...]:
    """Sliders of a dense model's shape, set to one: the arguments of `own_model`, the same ranges in all explorers.

    The last three keep what one slider alone can reach within what the explorer's degrees divide.
    """
    return (
        Slider("layers", "layers", least_layers, 200, config.n_layers),
        Slider("d_model", "d_model", 512, 32_768, config.d_model, step=128),
        Slider("d_ff", "d_ff", 512, 131_072, config.d_ff, step=128),
        Slider("heads", "attention heads", heads_step, 256, config.n_heads, step=heads_step),
        Slider("kv_heads", "KV heads", 1, most_kv_heads, config.n_kv_heads),
        Slider("vocab", "vocabulary", 1000, 300_000, config.vocab_size),
    )


own_explorer = Explorer(
    "Your model, cluster and price",
    (
        *model_sliders(_LLAMA),
        Slider("peak", "peak, dense bf16 (TFLOP/s)", 50, 5000, _H100.chip.flops("bf16") / 1e12, log=True),
        Slider("hbm", "memory a chip (GB)", 16, 512, _H100.chip.hbm / 1e9),
        Slider("domain", "chips in the fast domain", 1, 256, _H100.domain),
        Slider("inside", "egress a chip, inside (GB/s)", 10, 2000, _IN.egress / 1e9, log=True),
        Slider("outside", "egress a chip, outside (GB/s)", 1, 400, _OUT.egress / 1e9, log=True),
        Slider("tp", "TP", 1, 64, 8),
        Slider("pp", "PP", 1, 64, 1),
        Slider("dp", "DP", 1, 8192, 128),
        Slider("batch", "batch, B (tokens)", 1e5, 1e8, 2.0**23, log=True),
        Slider("seq_len", "sequence, S (tokens)", 512, 131_072, 8192, step=512),
        Slider("tokens", "training tokens, T (tokens)", 1e9, 1e14, 15e12, log=True),
        Slider("mfu", "MFU you expect (fraction of peak)", 0.02, 0.8, 0.4, step=0.01),
        Slider("price", "price (USD per chip-hour)", 0.1, 20, 2.0, step=0.1),
    ),
    draw_own,
)
