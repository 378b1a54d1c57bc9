"""Layouts a second: our search and its terms, and llm-analysis beside them where it is installed.

Run: python benchmarks/bench_search.py  (for the comparison: pip install llm-analysis first).
Seconds are of the processor, the least of some repeats; one thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scaling_lib.hardware import cluster
from scaling_lib.model import model
from scaling_lib.search import WIDE, Question, Space, search

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


def ours() -> tuple[float, float]:
    """Print the rate of each question and of the terms alone; return the last question's and the terms'."""
    rate = 0.0
    for name, question in QUESTIONS:
        for words, space in (("", Space()), (", switches on and off", WIDE)):
            answer = search(question, space, progress=False)
            spent = cpu_seconds(lambda q=question, s=space: search(q, s, progress=False))
            rate = answer.evaluated / spent
            print(f"{name + words:<48}{answer.evaluated:>11,} layouts {spent:6.2f} s {rate / 1e6:6.2f} million/s")
    return rate, terms()


def terms() -> float:
    """Layouts a second where no rule rejects any: each one gets its memory and all terms of its step time."""
    asked = cluster("tpu-v5p")
    roomy = replace(asked, max_chips=None, chip=replace(asked.chip, hbm=float("inf")))
    config = replace(model("qwen3-235b-a22b"), n_layers=128, n_kv_heads=64)
    chips = 2**18
    question = Question(config, roomy, chips, chips * 2**22, 2**16)
    tp, pp, cp, ep, micro_batch = (
        tuple(2**i for i in range(low, high)) for low, high in ((1, 7), (1, 6), (0, 6), (0, 6), (0, 7))
    )
    space = Space(tp=tp, pp=pp, cp=cp, ep=ep, chunks=(1, 2, 4), micro_batch=micro_batch, zero=(0, 1))
    answer = search(question, space, progress=False)
    if answer.feasible != answer.evaluated:
        raise ValueError(f"some layouts were rejected, which the figure must not have: {answer.rejected}")
    rate = answer.feasible / cpu_seconds(lambda: search(question, space, progress=False), 5)
    print(f"{'mixture of experts, none rejected':<48}{answer.feasible:>11,} layouts {rate / 1e6:22.2f} million/s")
    return rate


def slope() -> float:
    """Print time against the size of the space, and return the exponent: 1 means proportional."""
    name, question = QUESTIONS[0]
    points = []
    print(f"time against size, {name}:")
    for tp, micro, space in (
        ((8,), (1,), Space()),
        ((8,), None, Space()),
        (None, (1, 2), Space()),
        (None, None, Space()),
        (None, None, Space(dp_overlap=(True, False))),
        (None, None, WIDE),
    ):
        some = replace(space, tp=tp, micro_batch=micro)
        size = search(question, some, progress=False).evaluated
        spent = cpu_seconds(lambda s=some: search(question, s, progress=False))
        points.append((size, spent))
        print(f"  {size:>9,} layouts {spent:6.3f} s {1e6 * spent / size:6.2f} us each")
    x, y = np.log(points).T
    exponent = float(np.polyfit(x, y, 1)[0])
    print(f"  time grows as size to the power {exponent:.2f}")
    return exponent


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
    print("load average of the machine:", *(f"{x:.2f}" for x in os.getloadavg()))
    (mine, alone), _, other = ours(), slope(), theirs()
    if other is None:
        print("llm-analysis is not installed: pip install llm-analysis to compare")
    else:
        print(
            f"llm-analysis: {other:,.0f} layouts/s; ours {mine / other:,.0f} times as many, "
            f"{alone / other:,.0f} times with nothing rejected early"
        )
