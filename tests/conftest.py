"""Nouns that tests share: the running case on GPUs and on a TPU pod, machines with round numbers, a small question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scaling_lib.hardware import Chip, Cluster, Level, cluster
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.model import TransformerConfig, model
from scaling_lib.questions import Question, Trap

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def llama() -> TransformerConfig:
    return model("llama-3-70b")


@pytest.fixture(scope="session")
def h100() -> Cluster:
    return cluster("dgx-h100")


@pytest.fixture(scope="session")
def v5p() -> Cluster:
    return cluster("tpu-v5p")


@pytest.fixture
def gpu_job(llama: TransformerConfig, h100: Cluster) -> Job:
    """Llama 3 70B on 16384 H100, TP 8, PP 16, 16 Mi tokens a step: 2048 sequences of 8192."""
    plan = ParallelPlan(dp=128, tp=8, pp=16)
    return Job(llama, h100, plan, chips=16384, batch_tokens=2048 * 8192, seq_len=8192, tokens=15e12)


@pytest.fixture
def round_job() -> Job:
    """D 4, F 8, one layer on 8 chips in domains of 4: 100 FLOP/s, 10 B/s inside, 1 B/s outside. All results by hand."""
    tiny = TransformerConfig("tiny", 1, 4, 8, 4, 2, 1, 16, gated=False, tied_embeddings=False)
    levels = (Level("in", "switch", 4, 10.0, 0.5), Level("out", "switch", None, 1.0, 2.0))
    machine = Cluster("round", "round numbers", Chip("round", "round", {"bf16": 100.0}, 1e3, 1e3), levels)
    return Job(tiny, machine, ParallelPlan(dp=8), chips=8, batch_tokens=64, seq_len=8)


def number(**changes: Any) -> Question:
    """A small question of the bank, with some of its fields changed."""
    given: dict[str, Any] = {
        "id": "dp.test",
        "kind": "numeric",
        "prompt": "How many bytes are {n} GB?",
        "hints": ("a", "b", "c"),
        "canonical": {"n": 50},
        "draw": {"n": (40, 60)},
        "derive": lambda p: {"bytes": p.n * 1e9, "half": p.n * 5e8},
        "answer": "bytes",
        "unit": "GB",
        "traps": (Trap("one direction", "half", "it sends both ways."),),
        "steps": {"bytes": "{n} x 1e9."},
    }
    return Question(**{**given, **changes})
