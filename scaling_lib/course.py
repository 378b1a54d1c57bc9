"""The running case of the course: Llama 3 70B, the article's jobs and the names that chapters share.

Chapters and number ties use `from scaling_lib.course import *`, so that prose and code speak of the same objects.
"""

from __future__ import annotations

from scaling_lib import budget, catalogue, claims, reality
from scaling_lib.hardware import cluster
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.model import model, n_params

__all__ = [
    "ARTICLE_MFU",
    "TOKENS",
    "article_job",
    "h100",
    "h100_peak",
    "llama",
    "llama_405b",
    "meta_405b_job",
    "meta_405b_rate",
    "meta_405b_rate_small",
    "meta_hours",
    "meta_mfu",
    "nic_egress",
    "node_egress",
    "nvlink_egress",
    "ours",
    "peak_v5p",
    "plateau",
    "reality",
    "said",
    "v5p",
    "v5p_axis",
]

llama = model("llama-3-70b")
llama_405b = model("llama-3-405b")
h100 = cluster("dgx-h100")
v5p = cluster("tpu-v5p")
h100_peak = h100.chip.flops("bf16")
peak_v5p = v5p.chip.flops("bf16")

nvlink_egress = h100.levels[0].egress
nic_egress = h100.levels[1].egress
node_egress = h100.domain * nic_egress
v5p_axis = v5p.levels[0].egress

meta_hours = budget.reported("llama-3-70b")
TOKENS = meta_hours.tokens
ARTICLE_MFU = 0.4

# The article's plan: FSDP 2048 x TP 4, which is 8192 chips where it says 8960.
article_job = Job(llama, h100, ParallelPlan(dp=2240, tp=4), 8960, 4 * 2**20, 4096, TOKENS)

# Llama 3 405B as published for 16384 GPUs: TP 8, PP 16, DP 128, sequences of 8192 in a batch of 16M tokens.
meta_405b_job = Job(
    llama_405b,
    h100,
    ParallelPlan(dp=128, tp=8, pp=16, zero=1),
    16384,
    2048 * 8192,
    8192,
    budget.reported("llama-3.1-405b").tokens,
)
_layouts = catalogue.find("reported_runs", "llama-3.1-405b")["layouts"]
meta_405b_rate_small = catalogue.figure(_layouts[0], "rate", "FLOP/s", "llama-3.1-405b on 8192 GPUs")
meta_405b_rate = catalogue.figure(_layouts[1], "rate", "FLOP/s", "llama-3.1-405b on 16384 GPUs")

# Fraction of peak to plan with: from what Meta's hours for the 70B amount to, to what the 405B reached on as many GPUs.
_low = budget.mfu(budget.train_flops(n_params(llama), TOKENS), meta_hours.chip_seconds, h100_peak)
_high = meta_405b_rate / h100_peak
meta_mfu = budget.Interval(_low, (_low + _high) / 2, _high)


def said(name: str) -> str:
    """What the article says in one claim, as it prints it, without unit."""
    return claims.as_printed(claims.claim(name).said)


def ours(name: str, figures: int = 4) -> str:
    """What we compute for one claim, as text without unit."""
    return claims.text(claims.claim(name).ours, figures)


def plateau(chips: int, batch_tokens: int, seq_len: int) -> int:
    """Layouts of Llama 3 70B on H100s within 5% of the best one."""
    from scaling_lib.search import Question, search  # needs numpy, which only this name does

    return search(Question(llama, h100, chips, batch_tokens, seq_len), top=1, progress=False).within
