"""Layouts a second: our search and its terms, and llm-analysis beside them where it is installed.

Run: python benchmarks/bench_search.py  (for the comparison: pip install llm-analysis first).
Seconds are of the processor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from scaling_lib.hardware import cluster
from scaling_lib.model import model
from scaling_lib.search import Question, Space, search

QUESTIONS = (
    ("Llama 3 70B, 16,384 H100", Question(model("llama-3-70b"), cluster("dgx-h100"), 16384, 16777216, 8192)),
    ("Llama 3 70B, 8,960 H100", Question(model("llama-3-70b"), cluster("dgx-h100"), 8960, 8960 * 2048, 8192)),
    ("GPT-3 175B, 512 A100", Question(model("gpt-3-175b"), cluster("dgx-a100"), 512, 1536 * 2048, 2048)),
)


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Least processor time of some repeats."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def ours() -> float:
    """Print the rate of each question and the slope of time against the size of the space; return the last rate."""
    rate = 0.0
    for name, question in QUESTIONS:
        answer = search(question, progress=False)
        spent = cpu_seconds(lambda q=question: search(q, progress=False))
        rate = answer.evaluated / spent
        print(f"{name:<28}{answer.evaluated:>10,} layouts {spent:6.2f} s {rate / 1e6:6.2f} million/s")
    name, question = QUESTIONS[2]
    print(f"time against size, {name}:")
    for micro in ((1,), (1, 2, 3, 4), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)):
        space = Space(micro_batch=micro)
        size = search(question, space, progress=False).evaluated
        spent = cpu_seconds(lambda s=space: search(question, s, progress=False))
        print(f"  {size:>9,} layouts {spent:6.3f} s {1e6 * spent / size:6.2f} us each")
    return rate


def theirs() -> float | None:
    """Rate of llm-analysis on one training layout of the same model, or None where it is not installed."""
    try:
        from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
        from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name
    except ImportError:
        return None
    logging.disable(logging.CRITICAL)
    gpt3 = ModelConfig("gpt-3-175b", 96, 96, 12288, 2048, 51200, 96, 49152)

    def one() -> None:
        for tp in (8,):
            for pp in (8, 12, 16):
                LLMAnalysis(
                    gpt3,
                    get_gpu_config_by_name("a100-sxm-80gb"),
                    get_dtype_config_by_name("w16a16e16"),
                    ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=4),
                ).training(
                    batch_size_per_gpu=1,
                    gradient_accumulation_steps=384,
                    seq_len=2048,
                    total_num_tokens=300e9,
                    activation_recomputation=ActivationRecomputation.FULL,
                    ds_zero=DSZeRO.STAGE_1,
                    output_dir=None,
                )

    return 3 / cpu_seconds(one)


if __name__ == "__main__":
    mine, other = ours(), theirs()
    if other is None:
        print("llm-analysis is not installed: pip install llm-analysis to compare")
    else:
        print(f"llm-analysis: {other:,.0f} layouts/s; ours {mine / other:,.0f} times as many")
