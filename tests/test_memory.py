"""The memory ledger: every row by hand, references of papers and tools to the digit, grids equal to single plans."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_lib import catalogue, memory, memory_activations, memory_references, memory_stages
from scaling_lib.catalogue import CatalogueError
from scaling_lib.course import article_job, llama, llama_405b
from scaling_lib.hardware import cluster
from scaling_lib.job import SCHEDULES, Job, ParallelPlan, with_plan
from scaling_lib.ledger import Ledger
from scaling_lib.memory import Allowance
from scaling_lib.model import MLA, MoE, TransformerConfig, model, n_params, params
from scaling_lib.precision import RECIPES, recipe
from scaling_lib.rules import check
from scaling_lib.units import GB, GiB, MiB

NONE = Allowance(0.0, 0.0)
GPT3 = model("gpt-3-175b")
MIXTRAL = model("mixtral-8x7b")
DEEPSEEK = model("deepseek-v3")


def job(config: TransformerConfig, plan: ParallelPlan, seq_len: Any, m: Any, **more: Any) -> Job:
    """A job of m microbatches a replica on H100s."""
    batch = m * plan.micro_batch * seq_len * plan.dp
    return Job(config, cluster("dgx-h100"), plan, plan.chips, batch, seq_len, **more)


# --- vectors: Korthikanti et al., arXiv:2205.05198 -------------------------------------------------------------------

# heads, d_model, layers, TP, PP, chunks, microbatch; sequences of 2048
SHAPES = {
    "22B": (64, 6144, 48, 8, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 8, 3, 1),
    "530B": (128, 20480, 105, 8, 35, 3, 1),
    "1T": (160, 25600, 128, 8, 64, 1, 1),
}
SCORES = {"22B": 106.667, "175B": 80, "530B": 64, "1T": 64}
POLICIES = {  # column: TP on, sequence parallel, recomputation
    "none, no TP": (False, False, "none"),
    "TP": (True, False, "none"),
    "TP+SP": (True, True, "none"),
    "TP+sel": (True, False, "selective"),
    "TP+SP+sel": (True, True, "selective"),
    "full": (True, False, "full"),
}
# GiB of the first stage, MiB a layer
TABLE = {
    "22B": [(316.5, 6752), (59.25, 1264), (39.5625, 844), (29.25, 624), (9.5625, 204), (4.5, 96)],
    "175B": [(331.3125, 2736), (66.84375, 552), (41.4140625, 342), (37.78125, 312), (12.3515625, 102), (5.8125, 48)],
    "530B": [(532.109375, 3920), (114.0234375, 840), (66.513672, 490), (70.585938, 520), (23.076171875, 170),
             (10.859375, 80)],
    "1T": [(612.5, 4900), (131.25, 1050), (76.5625, 612.5), (81.25, 650), (26.5625, 212.5), (12.5, 100)],
}  # fmt: skip
STATES = {"22B": 45.5625, "175B": 45.5625, "530B": 31.640625, "1T": 32.958984375}
CELLS = [
    (name, column, gib, mib) for name, row in TABLE.items() for column, (gib, mib) in zip(POLICIES, row, strict=True)
]
# percent of the TP column, read off the bars of figure 7: with SP, selective, both, full
FIGURE_7 = {"22B": (66.84, 49.42, 16.18, 7.64), "175B": (62.04, 56.53, 18.49, 8.71),
            "530B": (58.31, 62.04, 20.27, 9.42), "1T": (58.31, 62.04, 20.27, 9.42)}  # fmt: skip


def korthikanti(name: str, column: str) -> Job:
    heads, d, layers, tp, pp, chunks, micro = SHAPES[name]
    on, sequence_parallel, recompute = POLICIES[column]
    config = TransformerConfig(name, layers, d, 4 * d, heads, heads, d // heads, 51200, False, True, "layernorm")
    plan = ParallelPlan(
        tp=tp if on else 1, pp=pp, virtual_stages=chunks, micro_batch=micro, zero=0, recompute=recompute,
        schedule="interleaved" if chunks > 1 else "1f1b", attention="unfused", sequence_parallel=sequence_parallel,
    )  # fmt: skip
    return job(config, plan, 2048, 4 * pp, recipe=recipe("megatron"))


@pytest.mark.parametrize(("name", "column", "gib", "mib"), CELLS)
def test_korthikanti_table(name: str, column: str, gib: float, mib: float) -> None:
    case = korthikanti(name, column)
    assert memory_references.korthikanti_layer(case) / MiB == mib
    assert memory_references.korthikanti_first_stage(case) / GiB == pytest.approx(gib, abs=5e-7)
    assert memory.ledger(case, NONE)["activations/kept"] / GiB == pytest.approx(gib, abs=5e-7)  # stage 0 is the fullest


@pytest.mark.parametrize("name", SHAPES)
def test_korthikanti_scores_states_and_checkpoints_sharded(name: str) -> None:
    case = korthikanti(name, "TP")
    scores = memory.layer_activations(case.model, 1, 2048, attention="unfused")["core"] / case.model.d_model
    assert scores == pytest.approx(SCORES[name], abs=5e-4)
    assert memory_references.korthikanti_state(case) / GiB == STATES[name]
    full = with_plan(korthikanti(name, "full"), sequence_parallel=True)
    assert memory_references.korthikanti_layer(full) / MiB == TABLE[name][5][1] / 8


@pytest.mark.parametrize(("name", "factor"), [("175B", 1.291667), ("530B", 1.323810)])
def test_korthikanti_interleaving(name: str, factor: float) -> None:
    case = korthikanti(name, "TP")
    plain = with_plan(case, schedule="1f1b", virtual_stages=1)
    ratio = memory_references.korthikanti_first_stage(case) / memory_references.korthikanti_first_stage(plain)
    assert ratio == pytest.approx(factor, abs=5e-7)


@pytest.mark.parametrize("name", SHAPES)
def test_korthikanti_figure_7(name: str) -> None:
    # the published figures are bar heights; the formula lies within 0.14 points of each
    base = memory_references.korthikanti_layer(korthikanti(name, "TP"))
    ours = [100 * memory_references.korthikanti_layer(korthikanti(name, c)) / base for c in list(POLICIES)[2:]]
    assert ours == pytest.approx(list(FIGURE_7[name]), abs=0.14)


def test_korthikanti_extras() -> None:
    one, many = korthikanti("22B", "TP+SP"), korthikanti("175B", "TP+SP")
    assert memory_references.korthikanti_extras(one) == 4 * 2048 * 6144 / 8 * (1 + 4 * (1 + 51200 / 6144))
    assert memory_references.korthikanti_extras(many) == 2048 * 12288 * 8 / 8
    rows = memory.ledger(one, NONE)
    assert rows["activations/embedding dropout"] + rows["activations/head inputs"] + rows["transient/fp32 loss"] == (
        memory_references.korthikanti_extras(one)
    )
    assert memory.ledger(many, NONE)["activations/embedding dropout"] == 2048 * 12288 / 8 * 8 * (1 + 7 / 24)


# --- vectors: Megatron-LM's theoretical memory report -------------------------------------------------------------

SP_SELECTIVE = {"zero": 1, "recompute": "selective"}
MEGATRON = {  # model, plan, sequence length, microbatches, weights and optimizer, activations, GiB
    "GPT-3 VP3": (GPT3, {"dp": 8, "tp": 8, "pp": 8, "virtual_stages": 3, "schedule": "interleaved"}, 2048, 64,
                  20_978_588_160, 13_294_916_267, 31.920),
    "GPT-3": (GPT3, {"tp": 8, "pp": 8, "zero": 0}, 2048, 64, 50_348_611_584, 10_292_838_400, 56.477),
    "GPT-3 no SP": (GPT3, {"tp": 8, "pp": 8, "zero": 0, "sequence_parallel": False}, 2048, 64,
                    50_348_611_584, 33_188_826_317, 77.800),
    "8B": (model("llama-3-8b"), {"dp": 8}, 8192, 1, 60_226_959_360, 38_730_268_672, 92.161),
    "70B": (llama, {"dp": 64, "tp": 8}, 8192, 1, 54_576_023_040, 22_042_124_288, 71.356),
    "70B PP4": (llama, {"dp": 16, "tp": 8, "pp": 4}, 8192, 8, 15_327_622_656, 21_508_423_680, 34.306),
    "70B PP4 m2": (llama, {"dp": 16, "tp": 8, "pp": 4}, 8192, 2, 15_327_622_656, 10_754_211_840, 24.291),
    "70B PP4 VP5": (llama, {"dp": 16, "tp": 8, "pp": 4, "virtual_stages": 5, "schedule": "interleaved"}, 8192, 8,
                    15_327_622_656, 24_734_687_232, 37.311),
    "405B": (llama_405b, {"dp": 64, "tp": 8, "pp": 16}, 8192, 16, 21_042_394_560, 65_800_372_224, 80.879),
    "Mixtral": (MIXTRAL, {"dp": 64, "ep": 8}, 4096, 1, 52_213_457_664, 17_788_076_032, 65.194),
    "DeepSeek-V3": (DEEPSEEK, {"dp": 128, "pp": 16, "ep": 64}, 4096, 16, 19_123_486_218, 51_129_090_048, 65.428),
}  # fmt: skip


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_report(name: str) -> None:
    config, degrees, seq_len, m, state, activations, gib = MEGATRON[name]
    case = job(config, ParallelPlan(**(SP_SELECTIVE | degrees)), seq_len, m, recipe=recipe("megatron"))
    ours = memory_references.megatron_state(case), memory_references.megatron_activations(case)
    assert round(ours[0]) == state
    assert round(ours[1]) == activations
    assert sum(ours) / GiB == pytest.approx(gib, abs=5e-4)


def test_megatron_own_unit_test() -> None:
    # two layers, the second with experts; experts with a TP degree of their own; the expected value is its own sum
    config = TransformerConfig("tiny", 2, 8, 16, 2, 2, 4, 32, False, True, moe=MoE(4, 1, 16, 0.5, 1))  # type: ignore[arg-type]
    plan = ParallelPlan(dp=16, tp=2, pp=2, ep=2, zero=1)
    split, replicated, experts = ((256 + 256 + 256 + 128) / 2 + 256) / 2, (16 + 16 + 32 + 8) / 2, 1024 / 2 / (4 * 2)
    expected = (split + replicated) * (6 + 12 / 16) + experts * (6 + 12 / 4)
    assert memory_references.megatron_state(job(config, plan, 64, 1), expert_tp=4) == expected == 3195
    without = replace(config, norm="layernorm")
    more = memory_references.megatron_state(job(without, plan, 64, 1), expert_tp=4) - expected
    assert more == (16 + 16 + 8) / 2 * (6 + 12 / 16)  # a bias for each norm


def test_megatron_counts_a_tied_table_once() -> None:
    case = job(GPT3, ParallelPlan(dp=8, tp=8, zero=1), 2048, 1)
    chip = (96 * 12 * 12288**2 + 51200 * 12288) / 8 + (96 * 2 + 1) * 2 * 12288
    assert memory_references.megatron_state(case) == pytest.approx(chip * (6 + 12 / 8), rel=1e-15)


def test_megatron_without_sequence_parallelism_counts_logits_in_16_bits() -> None:
    case = job(llama, ParallelPlan(dp=64, tp=8, zero=1, sequence_parallel=False), 8192, 1)
    layers = 80 * 8192 * 8192 * (10 + 24 / 8)
    ends = 8192 * 8 + 8192 * 8192 + 2 * 8192 * (128256 / 8 + 8192)
    assert memory_references.megatron_activations(case) == pytest.approx(1.05 * (layers + ends), rel=1e-15)


def test_megatron_knows_no_interleaving_with_few_microbatches() -> None:
    few = ParallelPlan(dp=16, tp=8, pp=4, virtual_stages=5, schedule="interleaved", **SP_SELECTIVE)  # type: ignore[arg-type]
    assert round(memory_references.megatron_activations(job(llama, few, 8192, 1))) == 24_734_687_232


# --- vectors: DeepSpeed and ZeRO --------------------------------------------------------------------------------------


def test_deepspeed() -> None:
    largest = memory_references.largest_module(llama)
    assert largest == 128256 * 8192 == pytest.approx(1.0507e9, rel=1e-4)
    ours = memory_references.deepspeed_zero3(n_params(llama), largest, 512)
    assert ours - 4 * largest == pytest.approx(2.480e9, rel=2e-4)
    assert ours == 4 * 1_050_673_152 + 18 * 70_553_706_496 / 512 == pytest.approx(6.68e9, rel=1e-3)
    assert memory_references.deepspeed_zero2(3e9, 8) == 2 * 3e9 + 18 * 3e9 / 8
    assert memory_references.largest_module(replace(llama, vocab_size=1000)) == 28672 * 8192
    assert memory_references.largest_module(replace(llama, vocab_size=1000, d_ff=64)) == 8192 * 8192


@pytest.mark.parametrize(("zero", "gb"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_paper_figure_1(zero: int, gb: float) -> None:
    ours = 7.5e9 * memory.state_bytes_per_param(recipe("bf16"), zero, 64) / GB
    assert round(ours, 1 if zero else 0) == gb


# --- rows by hand -----------------------------------------------------------------------------------------------------


def close(rows: Ledger, expected: dict[str, float]) -> None:
    """Every row is named, and equals what was worked out by hand."""
    assert {p.name: p.value for p in rows} == pytest.approx(expected, rel=1e-12)
    assert rows.total == pytest.approx(sum(expected.values()), rel=1e-12)


ZERO_ROWS = dict.fromkeys(
    ["activations/embedding dropout", "activations/head inputs", "transient/gathered layer",
     "transient/unreduced gradients", "transient/weight gradients", "transient/recomputed layer",
     "transient/activation gradients", "transient/logits", "transient/fp32 loss",
     "transient/communication buffers", "allowance/context", "allowance/fragmentation"], 0.0)  # fmt: skip

# Llama 3 70B by hand: one layer has 151M attention and 705M MLP weights
ATTENTION = 8192 * 128 * (2 * 64 + 2 * 8)
MLP = 3 * 8192 * 28672
TABLE_70B = 128256 * 8192


def test_rows_of_a_pipeline_by_hand() -> None:
    plan = ParallelPlan(dp=16, tp=8, pp=4, zero=1)
    rows = memory.ledger(job(llama, plan, 8192, 32), Allowance(1e9, 0.1))
    chip = (20 * (ATTENTION + MLP) + TABLE_70B) / 8 + 20 * 2 * 8192
    # bytes a token: norm and block inputs; queries, keys, values; output; gate, up and product; log-sum-exp
    token = 8 * 8192 + 2 * (8192 + 2 * 1024) + 2 * 8192 + 6 * 28672 + 4 * 64
    buffers = 8192 * 8192 * 2 + 2 * 8192 * 8192 * 2 / 8
    layer = (ATTENTION + MLP) / 8 + 2 * 8192
    back = 2 * 8192 * (2 * 8192 + 2 * 28672) / 8  # the stream twice; gate and up
    tensors = 4 * chip + 12 * chip / 16 + 4 * 20 * 8192 * token / 8 + buffers + 2 * layer + back
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * chip, "state/gradients": 2 * chip, "state/master": 4 * chip / 16,
        "state/adam m": 4 * chip / 16, "state/adam v": 4 * chip / 16, "activations/kept": 4 * 20 * 8192 * token / 8,
        "transient/weight gradients": 2 * layer, "transient/activation gradients": back,
        "transient/communication buffers": buffers, "allowance/context": 1e9,
        "allowance/fragmentation": 0.1 * tensors,
    })  # fmt: skip
    assert rows.title == "Memory of a chip of stage 0, in a layer's backward pass"
    assert rows.unit == "B"


def test_rows_of_fsdp_at_the_loss_by_hand() -> None:
    plan = ParallelPlan(dp=64, tp=8, zero=3, recompute="full", checkpoints_per_layer=2, prefetch=3)
    rows = memory.ledger(job(llama, plan, 8192, 1, recipe=recipe("megatron")), NONE)
    chip = (80 * (ATTENTION + MLP) + 2 * TABLE_70B) / 8 + (80 * 2 + 1) * 8192
    layer, logits = (ATTENTION + MLP) / 8 + 2 * 8192, 8192 * 128256 / 8
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * chip / 64, "state/gradients": 4 * chip / 64, "state/master": 4 * chip / 64,
        "state/adam m": 4 * chip / 64, "state/adam v": 4 * chip / 64,
        "activations/kept": 2 * 2 * 80 * 8192 * 8192 / 8, "activations/head inputs": 4 * 8192 * 8192 / 8,
        "transient/gathered layer": 2 * (TABLE_70B / 8 + 3 * layer), "transient/unreduced gradients": 4 * TABLE_70B / 8,
        "transient/logits": 2 * logits, "transient/fp32 loss": 4 * logits,
        "transient/communication buffers": 2 * 8192 * 8192,
    })  # fmt: skip
    assert rows.title == "Memory of a chip of stage 0, at the loss"


def test_rows_of_a_layer_recomputed_by_hand() -> None:
    plan = ParallelPlan(dp=8, cp=4, tp=2, zero=2, recompute="full", sequence_parallel=False, micro_batch=4)
    rows = memory.ledger(job(replace(llama, vocab_size=1024), plan, 8192, 2), NONE)
    tokens, table = 8192, 1024 * 8192  # 4 sequences over 4 context ranks
    chip = (80 * (ATTENTION + MLP) + 2 * table) / 2 + (80 * 2 + 1) * 8192
    layer = (ATTENTION + MLP) / 2 + 2 * 8192
    token = 8 * 8192 + (2 * (8192 + 2 * 1024) + 2 * 8192 + 6 * 28672 + 4 * 64) / 2
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * chip, "state/gradients": 2 * chip / 32, "state/master": 4 * chip / 32,
        "state/adam m": 4 * chip / 32, "state/adam v": 4 * chip / 32,
        "activations/kept": 2 * 80 * tokens * 8192, "activations/head inputs": 4 * tokens * 8192,
        "transient/unreduced gradients": 2 * layer, "transient/recomputed layer": tokens * token,
        "transient/activation gradients": 2 * tokens * (2 * 8192 + 2 * 28672 / 2),
        "transient/communication buffers": 2 * tokens * 4 * 128 * 8 / 2,
    })  # fmt: skip


def test_rows_of_mixtral_by_hand() -> None:
    plan = ParallelPlan(dp=16, tp=2, ep=4, zero=3)
    rows = memory.ledger(job(MIXTRAL, plan, 4096, 1), NONE)
    common = 32 * 4096 * 128 * (2 * 32 + 2 * 8) / 2 + 2 * 32000 * 4096 / 2 + 32 * (2 * 4096 + 8 * 4096) + 4096
    experts = 32 * 8 * 3 * 4096 * 14336 / 4 / 2
    state = common / 16 + experts / 4  # four ranks hold the same experts
    layer = (4096 * 128 * 80 + 8 * 3 * 4096 * 14336 / 4) / 2 + 10 * 4096
    stream = 8 * 4096 + 2 * 2 * 2 * 4096 + 4 * 8
    inner = 2 * (4096 + 2 * 1024) + 2 * 4096 + 2 * 6 * 14336 + 4 * 32
    head, logits = 32000 * 4096 / 2, 4096 * 32000 / 2
    loss = 2 * (head + layer) + 2 * head + 6 * logits
    assert loss < 2 * 2 * layer + 2 * layer  # so a layer's backward pass is the fuller moment
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * state, "state/gradients": 2 * state, "state/master": 4 * state, "state/adam m": 4 * state,
        "state/adam v": 4 * state, "activations/kept": 32 * 4096 * (stream + inner) / 2,
        "activations/head inputs": 4 * 4096 * 4096 / 2, "transient/gathered layer": 2 * 2 * layer,
        "transient/unreduced gradients": 2 * layer, "transient/communication buffers": 4096 * 2 * 4096,
        "transient/activation gradients": 2 * 4096 * (2 * 4096 + 2 * 2 * 14336) / 2,
    })  # fmt: skip


MLA_WEIGHTS = 1536 * (7168 + 128 * 192) + 7168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7168
EXPERT = 3 * 7168 * 2048


def test_rows_of_deepseek_by_hand() -> None:
    # 61 layers over 16 stages: 13 stages of 4, 3 of 3; the first three layers are dense, so stage 1 is the fullest
    plan = ParallelPlan(dp=128, pp=16, ep=64, zero=1)
    rows = memory.ledger(job(DEEPSEEK, plan, 4096, 64, recipe=recipe("megatron")), NONE)
    norms = 2 * 7168 + 1536 + 512
    common = 4 * (MLA_WEIGHTS + EXPERT + norms + 7168 * 256)
    experts = 4 * 256 * EXPERT / 64
    token = 8 * 7168 + 2 * 2 * 8 * 7168 + 4 * 256 + 2 * (2 * 1536 + 2 * 512 + 64)
    token += 2 * 128 * (192 + 192 + 128) + 2 * 128 * 128 + 6 * 9 * 2048 + 4 * 128
    optimizer = 4 * (common / 128 + experts / 2)
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * (common + experts), "state/gradients": 4 * (common + experts), "state/master": optimizer,
        "state/adam m": optimizer, "state/adam v": optimizer, "activations/kept": 15 * 4 * 4096 * token,
        "transient/weight gradients": 2 * common / 4,  # of one layer; experts are added to their buffer one by one
        "transient/activation gradients": 2 * 4096 * (2 * 7168 + 2 * 9 * 2048),
        "transient/communication buffers": 2 * 4096 * 7168 * 2,
    })  # fmt: skip
    assert rows.title.startswith("Memory of a chip of stage 1,")


def test_rows_of_gpipe_by_hand() -> None:
    # all microbatches wait with their loss; a tied table stands on both ends
    plan = ParallelPlan(pp=8, tp=8, zero=0, schedule="gpipe", attention="unfused", recompute="selective")
    rows = memory.ledger(job(GPT3, plan, 2048, 64), NONE)
    layer, table = 12 * 12288**2, 51200 * 12288
    chip = (12 * layer + table) / 8 + 12 * 2 * 12288 + 12288
    close(rows, ZERO_ROWS | {
        "state/weights": 2 * chip, "state/gradients": 2 * chip, "state/master": 4 * chip, "state/adam m": 4 * chip,
        "state/adam v": 4 * chip, "activations/kept": 64 * 12 * 2048 * 34 * 12288 / 8,
        "activations/head inputs": 64 * 4 * 2048 * 12288 / 8, "transient/recomputed layer": 5 * 96 * 2048 * 2048 / 8,
        "transient/weight gradients": 2 * (layer / 8 + 2 * 12288),
        "transient/activation gradients": 2 * 2048 * (2 * 12288 + 49152) / 8,
        "transient/fp32 loss": 63 * 4 * 2048 * 51200 / 8,
        "transient/communication buffers": 2 * 2048 * 12288 + 2 * 2 * 2048 * 12288 / 8,
    })  # fmt: skip
    assert rows.title == "Memory of a chip of stage 7, in a layer's backward pass"
    at_loss = memory._at(memory._sizes(job(GPT3, plan, 2048, 64)), 7, True, NONE)
    assert at_loss["transient/recomputed layer"] == at_loss["transient/activation gradients"] == 0
    assert at_loss["transient/weight gradients"] == 2 * (layer / 8 + 2 * 12288 + table / 8)
    assert at_loss["transient/logits"] == 2 * 2048 * 51200 / 8
    assert at_loss["transient/fp32 loss"] == 64 * 4 * 2048 * 51200 / 8
    first = memory._at(memory._sizes(job(GPT3, plan, 2048, 64)), 0, False, NONE)
    assert first["activations/embedding dropout"] == 64 * 2048 * 12288 / 8


def test_rows_of_dualpipe_hold_the_model_twice() -> None:
    plan = ParallelPlan(pp=8, tp=8, zero=0, attention="unfused")
    once, twice = (with_plan(job(GPT3, plan, 2048, 64), schedule=s) for s in ("zb-h1", "dualpipe"))
    a, b = (memory._at(memory._sizes(j), 0, False, NONE) for j in (once, twice))
    layers, table, norm = 12 * 12 * 12288**2 / 8 + 12 * 2 * 12288, 51200 * 12288 / 8, 12288
    assert a["state/weights"] == 2 * (layers + table)
    assert b["state/weights"] == 2 * (2 * layers + table + norm)  # both ends: one tied table, the final norm
    assert b["activations/kept"] == pytest.approx(a["activations/kept"] * 9 / 8)
    assert b["activations/embedding dropout"] == pytest.approx(a["activations/embedding dropout"] * 9 / 8 / 2)


def test_a_fused_loss_holds_no_logits_in_16_bits() -> None:
    case = job(llama, ParallelPlan(dp=8, tp=8, zero=1), 8192, 1)
    assert memory._at(memory._sizes(case), 0, True, NONE)["transient/logits"] == 0
    for changes in ({"attention": "unfused"}, {"zero": 2}, {"zero": 3}):
        at_loss = memory._at(memory._sizes(with_plan(case, **changes)), 0, True, NONE)
        assert at_loss["transient/logits"] == 2 * 8192 * 128256 / 8
        assert at_loss["transient/fp32 loss"] == 2 * at_loss["transient/logits"]
        assert (at_loss["transient/weight gradients"] > 0) is ("zero" not in changes)  # else they are "unreduced"


def test_measured_peaks() -> None:
    """Peaks of allocated memory on B200 that SimuMax publishes: the tensors alone come within 2%, nothing fitted."""
    for layers, config, tp, pp, cp, seq_len, gib in (
        (12, llama, 1, 2, 1, 4096, 66.55), (12, llama, 2, 1, 1, 4096, 60.68), (12, llama, 8, 1, 1, 4096, 28.29),
        (12, llama, 1, 1, 8, 131072, 147.99), (4, llama_405b, 1, 2, 1, 4096, 87.08),
        (4, llama_405b, 8, 1, 1, 4096, 38.57), (4, llama_405b, 2, 1, 4, 32768, 87.03),
    ):  # fmt: skip
        plan = ParallelPlan(dp=8 // (tp * pp * cp), tp=tp, pp=pp, cp=cp, zero=1)
        case = job(replace(config, n_layers=layers), plan, seq_len, 4, recipe=recipe("megatron"))
        assert memory.ledger(case, NONE).total / GiB == pytest.approx(gib, rel=0.02)


def test_lighter_ends_are_where_the_tables_are() -> None:
    # 126 layers on 16 stages, one taken from each end of 128: 7, 8, ..., 8, 7
    case = job(llama_405b, ParallelPlan(dp=8, tp=8, pp=16, zero=1, light_ends=True), 8192, 16)
    stages = [memory_stages.stage(case, rank) for rank in range(16)]
    assert [s.dense_layers for s in stages] == [7, *[8] * 14, 7]
    assert check(case) == []
    chunked = with_plan(case, virtual_stages=8, schedule="interleaved")
    assert [memory_stages.stage(chunked, rank).dense_layers for rank in (0, 1, 15)] == [7, 8, 7]
    even = with_plan(case, light_ends=False)
    assert [memory_stages.stage(even, rank).dense_layers for rank in (0, 13, 14)] == [8, 8, 7]
    assert memory.ledger(case).total < memory.ledger(even).total
    assert memory.ledger(case).title.startswith("Memory of a chip of stage 1,")  # fewer in flight, one layer more
    shifted = job(replace(DEEPSEEK, n_layers=62), ParallelPlan(dp=128, pp=16, ep=64, zero=1, light_ends=True), 4096, 64)
    found = [memory_stages.stage(shifted, rank) for rank in (0, 1, 15)]
    assert [(s.dense_layers, s.moe_layers) for s in found] == [(3, 0), (0, 4), (0, 3)]
    assert {v.rule for v in check(with_plan(case, pp=1, dp=128))} == {"layers"}


def test_weights_kept_between_passes_are_the_whole_stage() -> None:
    plan = ParallelPlan(dp=64, tp=8, zero=3)
    case = job(llama, plan, 8192, 1)
    kept = memory.ledger(with_plan(case, reshard_after_forward=False), NONE)
    assert kept["transient/gathered layer"] == pytest.approx(64 * kept["state/weights"])
    assert "kept for backward" in next(p.formula for p in kept if p.name == "transient/gathered layer")
    alone = memory.ledger(with_plan(case, dp=1), NONE)
    assert alone["transient/gathered layer"] == alone["transient/unreduced gradients"] == 0
    context = memory.ledger(with_plan(case, dp=1, cp=2), NONE)
    assert context["transient/gathered layer"] > 0


FORMULAS = {
    "state/weights": "2 P/(Y X)",
    "state/gradients": "2 P/(Y X)",
    "state/master": "4 P/(Y X)",
    "state/adam m": "4 P/(Y X)",
    "state/adam v": "4 P/(Y X)",
    "activations/kept": "in flight x layers x bytes kept a layer",
    "activations/embedding dropout": "in flight x T D/Y, unfused recipe only",
    "activations/head inputs": "2 T D e/Y for the final norm and the head",
    "transient/gathered layer": "(piece + prefetch x layer)/Y",
    "transient/unreduced gradients": "gradient of the piece/Y, before its reduce-scatter",
    "transient/weight gradients": "e for each weight of a layer (and of the head)/Y, before they join their buffer",
    "transient/recomputed layer": "whole layer/k (full), scores (selective)",
    "transient/activation gradients": "(2 T D + 2 T F) e/Y gated, (2 T D + T F) e/Y not",
    "transient/logits": "T V e/Y, none with a fused loss",
    "transient/fp32 loss": "4 T V/Y, softmax turned into its gradient in place",
    "transient/communication buffers": "T D e (TP gather) + 2 T D e/Y (PP) + 4 T K h e/Y (CP ring)",
    "allowance/context": "driver, kernels, NCCL: assumed",
    "allowance/fragmentation": "5% of the rows above: assumed",
}


def test_every_row_says_its_formula() -> None:
    case = job(llama, ParallelPlan(dp=8, tp=8, pp=4), 8192, 8)
    grid = memory.ledger(with_plan(case, dp=np.array([8, 16])))
    for rows in (memory.ledger(case), grid):
        assert {p.name: p.formula for p in rows} == FORMULAS
        assert rows.unit == "B"
    assert memory.ledger(with_plan(case, zero=0)).parts[1].formula == "2 P/Y"
    whole = memory.ledger(with_plan(case, reshard_after_forward=False))
    assert whole.parts[8].formula == "all of the stage/Y, kept for backward"
    texts = {p.name: p.formula for p in memory.layer_activations(DEEPSEEK, 1, 8192, moe_layer=True)}
    assert texts == {
        "stream/norm inputs": "2 T D e",
        "stream/block inputs": "2 T D e",
        "stream/dropout masks": "2 T D",
        "stream/routing": "2 k T D e into and out of experts, 4 T E scores",
        "stream/latents": "low-rank queries, keys and values, before and after their norms",
        "inner/queries, keys, values": "T h (H + 2K) e",
        "inner/attention output": "T H h e",
        "inner/MLP hidden": "3 T F e gated, 2 T F e not",
        "core/log-sum-exp": "4 T H",
    }
    assert memory.layer_activations(llama, 1, 8192, attention="unfused").parts[-1].formula == "T H S (2e + 1)"


def test_pieces_of_mixed_stages() -> None:
    # one layer a stage: rank 0 is dense, rank 5 has experts, neither has the head
    plan = ParallelPlan(dp=2, pp=61, zero=3, recompute="full", prefetch=2)
    sizes = memory._sizes(job(DEEPSEEK, plan, 4096, 64))
    norms = 2 * 7168 + 1536 + 512
    token = 8 * 7168 + 2 * (2 * 1536 + 2 * 512 + 64) + 2 * 128 * (192 + 192 + 128) + 2 * 128 * 128 + 4 * 128
    expected = {
        0: (MLA_WEIGHTS + 3 * 7168 * 18432 + norms, 4096 * (token + 6 * 18432)),
        5: (
            MLA_WEIGHTS + 257 * EXPERT + norms + 7168 * 256,
            4096 * (token + 6 * 9 * 2048 + 2 * 2 * 8 * 7168 + 4 * 256),
        ),
    }
    for rank, (layer, working) in expected.items():
        for at_loss in (False, True):
            rows = memory._at(sizes, rank, at_loss, NONE)
            assert rows["transient/gathered layer"] == pytest.approx(2 * 3 * layer, rel=1e-12)
            assert rows["transient/unreduced gradients"] == pytest.approx(2 * layer, rel=1e-12)
            assert rows["transient/recomputed layer"] == pytest.approx(0 if at_loss else working, rel=1e-12)
            assert rows["transient/logits"] == rows["transient/fp32 loss"] == rows["activations/head inputs"] == 0
    last = memory._at(sizes, 60, True, NONE)
    assert last["transient/gathered layer"] == pytest.approx(2 * (129280 * 7168 + 2 * expected[5][0]), rel=1e-12)
    wide = replace(DEEPSEEK, d_ff=2**17)  # a dense layer now outweighs the experts of one rank, but rank 5 has none
    experts = memory._at(memory._sizes(job(wide, replace(plan, dp=64, ep=64), 4096, 64)), 5, False, NONE)
    piece = MLA_WEIGHTS + 5 * EXPERT + norms + 7168 * 256
    assert experts["transient/unreduced gradients"] == pytest.approx(2 * piece, rel=1e-12)
    assert experts["transient/recomputed layer"] == pytest.approx(expected[5][1], rel=1e-12)
    mixed = memory._at(memory._sizes(job(DEEPSEEK, replace(plan, pp=16), 4096, 64)), 0, False, NONE)
    assert mixed["transient/gathered layer"] == pytest.approx(2 * 3 * expected[5][0], rel=1e-12)
    assert mixed["transient/recomputed layer"] == pytest.approx(expected[5][1], rel=1e-12)


def test_two_stages_are_a_pipeline() -> None:
    rows = memory.ledger(job(llama, ParallelPlan(dp=4, tp=8, pp=2), 8192, 4), NONE)
    assert rows["transient/communication buffers"] == 2 * 8192 * 8192 * (1 + 2 / 8)
    wide = korthikanti("22B", "TP+SP")
    assert memory_references.korthikanti_extras(with_plan(wide, pp=2)) == 4 * 2048 * 6144 * 2 / 8
    case = job(llama, ParallelPlan(dp=32, tp=8, pp=2, zero=1, recompute="selective"), 8192, 1)
    layers = 80 * 8192 * 8192 * (18 + 4 * 3.5) + 2 * 8192 * (8 + 8192)
    assert memory_references.megatron_activations(case) == pytest.approx(layers / 2 / 8, rel=1e-15)
    without = with_plan(case, sequence_parallel=False)
    layers = 80 * 8192 * 8192 * 13 + 2 * 8192 * (8 + 8192)
    assert memory_references.megatron_activations(without) == pytest.approx(1.05 * layers / 2, rel=1e-15)
    chip = (80 * (ATTENTION + MLP) / 2 + TABLE_70B) / 8 + (80 * 2 + 1) * 8192 / 2
    assert memory_references.megatron_state(case) == pytest.approx(chip * (6 + 12 / 32), rel=1e-15)


def test_wide_tp_gathers_copied_heads() -> None:
    case = job(llama, ParallelPlan(dp=4, tp=16), 8192, 1)
    layer = (ATTENTION + 2 * 8192 * 128 * 8 + MLP) / 16 + 2 * 8192
    at_layer = memory._at(memory._sizes(case), 0, False, NONE)
    assert at_layer["transient/unreduced gradients"] == 2 * layer
    whole = memory.ledger(with_plan(case, reshard_after_forward=False), NONE)
    assert whole["transient/gathered layer"] == 2 * (80 * layer + 2 * TABLE_70B / 16 + 8192)
    experts = job(MIXTRAL, ParallelPlan(dp=8, ep=8, reshard_after_forward=False), 4096, 1)
    held = 32 * (4096 * 128 * 80 + 3 * 4096 * 14336 + 10 * 4096) + 2 * 32000 * 4096 + 4096
    assert memory.ledger(experts, NONE)["transient/gathered layer"] == 2 * held


# --- one layer --------------------------------------------------------------------------------------------------------


def test_selective_saves_nearly_nothing_with_a_fused_kernel() -> None:
    for attention, least, most in (("flash", 0.998, 0.9995), ("unfused", 0.05, 0.15)):
        layer = memory.layer_activations(llama, 8192, 8192, 8, True, attention)
        saved = memory_activations.kept_bytes(layer, "selective", 0.0) / memory_activations.kept_bytes(
            layer, "none", 0.0
        )
        assert least < saved < most


def test_layer_rows_are_divided_by_what_cuts_them() -> None:
    whole = memory.layer_activations(llama, 1, 8192)
    sp, tp = memory.layer_activations(llama, 1, 8192, 8), memory.layer_activations(llama, 1, 8192, 8, False)
    assert sp.total == whole.total / 8
    assert (tp["stream"], tp["inner"], tp["core"]) == (whole["stream"], whole["inner"] / 8, whole["core"] / 8)
    assert memory.layer_activations(llama, 1, 8192, element_bytes=4)["inner"] == 2 * whole["inner"]
    assert memory.layer_activations(llama, 1, 8192, attention="unfused", element_bytes=4)["core"] == 9 * 64 * 8192
    assert whole["core/log-sum-exp"] == 256
    assert whole.unit == "B"
    assert whole.title == "Activations of one layer and microbatch"
    assert all(p.formula for p in memory.layer_activations(DEEPSEEK, 1, 8192, moe_layer=True))


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    eight, sixteen = (memory.layer_activations(llama, 1, 8192, tp) for tp in (8, 16))
    assert 8 * eight["inner/queries, keys, values"] == 2 * 128 * (64 + 2 * 8)
    assert 16 * sixteen["inner/queries, keys, values"] == 2 * 128 * (64 + 2 * 16)
    more = memory_stages.layer_groups(llama, tp=16).split - memory_stages.layer_groups(llama, tp=8).split
    assert more == 2 * 8192 * 128 * 8
    assert memory_stages.layer_groups(DEEPSEEK, tp=256).split == memory_stages.layer_groups(DEEPSEEK).split
    ring = memory.ledger(job(llama, ParallelPlan(tp=16, cp=2, sequence_parallel=False), 8192, 1), NONE)
    assert ring["transient/communication buffers"] == 2 * 4096 * 4 * 128 * 16 / 16


def test_checkpoints_may_be_fewer_than_layers() -> None:
    case = job(llama, ParallelPlan(dp=8, tp=8, pp=4, recompute="full"), 8192, 8)
    one, half = (memory.ledger(with_plan(case, checkpoints_per_layer=k), NONE) for k in (1, 0.5))
    assert half["activations/kept"] == one["activations/kept"] / 2
    assert half["transient/recomputed layer"] == one["transient/recomputed layer"] * 2


# --- stages -----------------------------------------------------------------------------------------------------------

PEAKS = {  # p = 4, m = 8, by rank
    ("gpipe", 1): [8, 8, 8, 8], ("1f1b", 1): [4, 3, 2, 1], ("interleaved", 2): [5.5, 4.5, 3.5, 2.5],
    ("interleaved", 4): [4.75, 4.25, 3.75, 3.25], ("looped-bfs", 2): [8] * 4, ("zb-h1", 1): [4] * 4,
    ("zb-h2", 1): [7] * 4, ("zb-v", 2): [4] * 4, ("interleaved-zb", 2): [4] * 4, ("v-half", 2): [3] * 4,
    ("v-min", 2): [2] * 4, ("dualpipe", 1): [5] * 4, ("dualpipev", 2): [4.5] * 4,
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "chunks"), PEAKS)
def test_microbatches_in_flight(schedule: str, chunks: int) -> None:
    ours = [memory.in_flight(schedule, 4, 8, chunks, r) for r in range(4)]
    assert ours == PEAKS[schedule, chunks]
    assert memory.in_flight(schedule, 4, 1, chunks) == 1  # never more than there are
    assert memory.in_flight(schedule, 1, 8, 1) == 1  # without a pipeline they follow one another


@given(
    st.integers(1, 130),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(SCHEDULES),
)
def test_stages_hold_each_layer_once(layers: int, p: int, v: int, dense: int, schedule: str) -> None:
    if schedule == "dualpipe":
        p += p % 2
    config = replace(MIXTRAL, n_layers=layers, moe=replace(MIXTRAL.moe, n_dense_layers=min(dense, layers)))
    case = job(config, ParallelPlan(pp=p, virtual_stages=v, schedule=schedule), 4096, 8)
    stages = [memory_stages.stage(case, r) for r in range(p)]
    copies = 2 if schedule == "dualpipe" else 1
    assert {s.copies for s in stages} == {copies}
    assert sum(s.dense_layers for s in stages) == copies * min(dense, layers)
    assert sum(s.dense_layers + s.moe_layers for s in stages) == copies * layers
    assert min(min(s.dense_layers, s.moe_layers) for s in stages) >= 0
    assert sum(s.embedding for s in stages) == sum(s.head for s in stages) == copies
    assert stages[0].embedding == 1
    folded = schedule in ("zb-v", "v-half", "v-min", "dualpipev", "dualpipe") or p == 1
    assert stages[0 if folded else -1].head == 1
    totals = [s.dense_layers + s.moe_layers for s in stages]
    assert max(totals) - min(totals) <= (v if schedule not in memory_stages.FOLDED else 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [llama, MIXTRAL, DEEPSEEK, GPT3], ids=lambda c: c.name)
@pytest.mark.parametrize(("p", "v"), [(2, 1), (4, 2), (16, 1)])
def test_the_fullest_rank_is_found(schedule: str, config: TransformerConfig, p: int, v: int) -> None:
    case = job(config, ParallelPlan(dp=2, pp=p, virtual_stages=v, schedule=schedule, zero=1), 4096, 2 * p)
    sizes = memory._sizes(case)
    every = [memory._at(sizes, r, at_loss, NONE).total for r in range(p) for at_loss in (False, True)]
    assert memory.ledger(case, NONE).total == max(every)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-v"])
def test_ranks_hold_all_parameters_together(schedule: str) -> None:
    plan = ParallelPlan(dp=4, tp=8, pp=4, cp=2, zero=3, virtual_stages=2 if schedule == "interleaved" else 1)
    for config in (llama, DEEPSEEK, MIXTRAL):
        case = job(config, replace(plan, schedule=schedule, ep=4 if config.moe else 1), 4096, 8)
        sizes = memory._sizes(case)
        held = sum(memory._at(sizes, r, False, NONE)["state/weights"] for r in range(4)) * 8 * 8
        router = config.n_moe_layers * config.d_model * config.moe.n_experts if config.moe else 0
        assert held == pytest.approx(2 * (n_params(config) + 7 * (params(config)["norms"] + router)), rel=1e-12)


def test_chunks_take_the_remainder_first() -> None:
    for layers in range(1, 24):
        for chunks in range(1, 12):
            sizes = [layers // chunks + (c < layers % chunks) for c in range(chunks)]
            holder = [c for c in range(chunks) for _ in range(sizes[c])]
            assert [memory_stages.chunk_of(i, layers, chunks) for i in range(layers)] == holder
    case = job(replace(llama, n_layers=126), ParallelPlan(pp=16), 8192, 16)
    assert [memory_stages.stage(case, r).dense_layers for r in (0, 13, 14, 15)] == [8, 8, 7, 7]


def test_ranks_that_may_be_the_fullest() -> None:
    def ranks(config: TransformerConfig, **plan: Any) -> list[Any]:
        return memory_stages.fullest_ranks(job(config, ParallelPlan(**plan), 4096, 64))

    def dense(n: int) -> TransformerConfig:
        return replace(DEEPSEEK, moe=replace(DEEPSEEK.moe, n_dense_layers=n))

    assert ranks(llama) == [0]
    assert ranks(llama, pp=4) == [0, 3]
    assert ranks(llama, pp=8, schedule="dualpipe") == [0, 7, 3]
    assert ranks(MIXTRAL, pp=4) == [0, 3]
    assert [ranks(dense(n), pp=16) for n in (1, 4, 5, 61)] == [[0, 15, 1], [0, 15, 1], [0, 15, 2], [0, 15]]
    assert ranks(dense(3), pp=16, virtual_stages=2, schedule="interleaved") == [0, 15, 2]  # two layers a chunk
    assert [np.ravel(r).tolist() for r in ranks(dense(3), pp=np.array([1, 16]))] == [[0], [0, 15], [0, 1]]
    middle = job(
        replace(llama, n_layers=73, vocab_size=1024), ParallelPlan(pp=16, schedule="dualpipe", zero=0), 8192, 64
    )
    assert memory.ledger(middle, NONE).title.startswith("Memory of a chip of stage 7,")  # chunks 7 and 8 are long


# --- grids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [llama, DEEPSEEK, GPT3], ids=lambda c: c.name)
@pytest.mark.parametrize("policy", [{}, {"recompute": "full", "checkpoints_per_layer": 2}, {"attention": "unfused",
                         "recompute": "selective", "zero": 1, "sequence_parallel": False}])  # fmt: skip
def test_a_grid_equals_its_plans(schedule: str, config: TransformerConfig, policy: dict[str, Any]) -> None:
    v = 2 if schedule in ("interleaved", "looped-bfs", "interleaved-zb") else 1
    dp, tp, pp, cp = (np.array(x) for x in ([8, 1, 4, 2], [1, 8, 4, 2], [1, 4, 8, 2], [1, 2, 1, 4]))
    plan = ParallelPlan(dp=dp, tp=tp, pp=pp, cp=cp, virtual_stages=np.array([1, v, v, v]), schedule=schedule, **policy)
    grid = memory.ledger(job(config, plan, 8192, np.array([4, 32, 8, 2])))
    assert grid.title == "Memory of the fullest chip"
    for i, m in enumerate([4, 32, 8, 2]):
        one = replace(plan, dp=int(dp[i]), tp=int(tp[i]), pp=int(pp[i]), cp=int(cp[i]), virtual_stages=v if i else 1)
        single = memory.ledger(job(config, one, 8192, m))
        assert grid.total[i] == pytest.approx(single.total, rel=1e-12)
        assert {p.name: p.value[i] for p in grid} == pytest.approx({p.name: p.value for p in single}, rel=1e-9)
    assert list(memory.fits(job(config, plan, 8192, np.array([4, 32, 8, 2])))) == list(grid.total <= 80 * GB)


def test_single_plans_need_no_numpy() -> None:
    code = ("import sys; from scaling_lib import memory; from scaling_lib.course import meta_405b_job as j; "
            "memory.ledger(j); assert 'numpy' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)


def test_defaults_and_small_pipelines() -> None:
    assert memory.in_flight("interleaved", 4, 8) == memory.in_flight("1f1b", 4, 8) == 4
    assert memory.in_flight("interleaved", 4, 8, 1, 3) == 1
    assert [memory.in_flight("gpipe", p, 8) for p in (1, 2)] == [1, 8]
    for p, copies in ((1, 1), (2, 2)):
        case = job(llama, ParallelPlan(pp=p, virtual_stages=3, schedule="dualpipe"), 8192, 8)  # chunks are ignored
        at = memory_stages.stage(case, 0)
        assert (at.copies, at.dense_layers, at.embedding, at.head) == (copies, 80, 1, 1)
    assert memory_stages.layer_groups(MIXTRAL) == memory_stages.layer_groups(MIXTRAL, False, 1)
    one_head = replace(llama, n_kv_heads=1)
    alone = memory_stages.Stage(1, 0, 0, 0, 1, 1)
    assert memory_stages.layer_groups(one_head).split == 8192 * 128 * (2 * 64 + 2) + MLP
    assert memory_stages.stage_groups(one_head, alone).split == 8192 * 128 * (2 * 64 + 2) + MLP
    assert memory_stages.Groups(6, 1, 8).on_chip(2) == (4, 4)
    layer = memory.layer_activations(llama, 1, 8192, attention="unfused")
    assert memory_activations.recomputed_bytes(layer, "full") == layer.total
    assert layer["core/scores"] == 5 * 64 * 8192


def test_losses_wait_only_in_a_pipeline() -> None:
    for p, waiting in ((1, 1), (2, 8)):
        case = job(llama, ParallelPlan(tp=8, pp=p, schedule="gpipe"), 8192, 8)
        rows = memory._at(memory._sizes(case), p - 1, True, NONE)
        assert rows["transient/fp32 loss"] == waiting * 4 * 8192 * 128256 / 8
        assert rows["activations/head inputs"] == waiting * 4 * 8192 * 8192 / 8


def test_wide_elements_and_segments_reach_every_row() -> None:
    plan = ParallelPlan(tp=2, recompute="full", checkpoints_per_layer=2)
    for config in (llama, MIXTRAL):
        half, wide = (
            memory._at(memory._sizes(job(config, plan, 4096, 1, precision=name)), 0, False, NONE)
            for name in ("bf16", "fp32")
        )
        assert wide["activations"] == 2 * half["activations"]
        layer = memory.layer_activations(config, 4096, 4096, 2, moe_layer=config.moe is not None, element_bytes=4)
        assert wide["transient/recomputed layer"] == layer.total / 2


def test_wide_tp_copies_heads_of_expert_layers_too() -> None:
    copied = 2 * 4096 * 128 * 8  # 16 ranks, 8 key-value heads
    plain, wide = (memory_stages.layer_groups(MIXTRAL, True, tp) for tp in (8, 16))
    assert wide.split - plain.split == copied
    case = job(MIXTRAL, ParallelPlan(tp=16, zero=0), 4096, 1)
    chip = (32 * (wide.split + wide.experts) + 2 * 32000 * 4096) / 16 + 32 * wide.replicated + 4096
    assert memory.ledger(case, NONE)["state/weights"] == pytest.approx(2 * chip, rel=1e-15)


# --- fits, chips, knob ------------------------------------------------------------------------------------------------


def test_article_ledger() -> None:
    plan = replace(article_job.plan, dp=2048, tp=4, recompute="full", checkpoints_per_layer=2)
    case = replace(article_job, plan=plan, chips=8192, seq_len=2048)
    rows = memory.ledger(case)
    assert (rows["state/weights"] + rows["state/master"]) / 1e6 == pytest.approx(51.7, rel=1e-3)
    assert rows["state/gradients"] / 1e6 == pytest.approx(17.2, rel=2e-3)
    assert (rows["state/adam m"] + rows["state/adam v"]) / 1e6 == pytest.approx(68.9, rel=1e-3)
    assert rows["activations/kept"] == memory.checkpoint_bytes(2048, 8192, 80, 2, 4) == 2 * 2048 * 8192 * 80 * 2 / 4
    assert (rows["state"] + rows["activations/kept"]) / 1e9 == pytest.approx(1.48, rel=1e-3)
    assert rows.total > 3.5 * (rows["state"] + rows["activations/kept"])  # what the article leaves out
    assert memory.fits(case)


def test_min_chips() -> None:
    state = 16 * n_params(llama)
    assert memory.min_chips(state, 80 * GB) == 15
    assert memory.min_chips(state + memory.checkpoint_bytes(4e6, 8192, 80, 2), 80 * GB) == 146
    assert memory.min_chips(10 * n_params(llama) + memory.checkpoint_bytes(4e6, 8192, 80, 2), 96 * GB) == 117
    assert memory.min_chips(160 * GB, 80 * GB) == 2
    assert list(memory.min_chips(np.array([1.0, 81.0]), 80.0)) == [1, 2]


def test_smallest_dp_is_where_it_begins_to_fit() -> None:
    case = job(llama, ParallelPlan(dp=128, tp=8, recompute="full", micro_batch=2), 8192, 1)
    assert memory.smallest_dp(case) == 4
    for degree, ok in ((2, False), (4, True)):
        assert bool(memory.fits(with_plan(case, dp=degree))) is ok
    assert memory.smallest_dp(case, Allowance(80 * GB, 0.0)) is None
    assert memory.smallest_dp(with_plan(case, recompute="none", tp=1)) is None
    assert memory.smallest_dp(replace(with_plan(case, tp=64), batch_tokens=2 * 8192)) == 1  # one microbatch
    assert memory.smallest_dp(replace(case, batch_tokens=2 * 2 * 8192)) is None  # two microbatches: dp 1 or 2


def test_fits_compares_with_the_chip() -> None:
    case = job(llama, ParallelPlan(dp=64, tp=8), 8192, 1)
    hbm = memory.ledger(case).total
    for size, ok in ((hbm, True), (hbm * 0.999, False)):
        chip = replace(case.cluster.chip, hbm=size)
        assert memory.fits(replace(case, cluster=replace(case.cluster, chip=chip))) is ok
    assert memory.fits(case, Allowance(80 * GB, 0.0)) is False


def test_assumptions_are_those_of_the_catalogue() -> None:
    found = catalogue.find
    assert memory.assumed_allowance() == Allowance(2 * GiB, 0.05)
    with pytest.MonkeyPatch.context() as patch:
        for name, key in (("context", "size"), ("fragmentation", "share")):
            patch.setattr(catalogue, "find", lambda stem, n, gone=name: {} if n == gone else found(stem, n))
            with pytest.raises(CatalogueError, match=f"^assumption {name}: figure '{key}' is missing"):
                memory.assumed_allowance()
    rows = memory.ledger(job(llama, ParallelPlan(dp=8, tp=8), 8192, 1))
    assert rows["allowance/context"] == 2 * GiB
    assert rows["allowance/fragmentation"] == pytest.approx(
        0.05 * (rows["state"] + rows["activations"] + rows["transient"])
    )


@pytest.mark.parametrize("name", RECIPES)
def test_unsharded_state_is_the_recipe(name: str) -> None:
    r = recipe(name)
    assert memory.state_bytes_per_param(r, 0, 64) == r.total
    assert memory.state_bytes_per_param(r, 3, 64) == pytest.approx(r.total / 64)
    assert memory.state_bytes_per_param(r, 2, 64) == pytest.approx(r.weights + (r.grads + r.optimizer) / 64)


def test_published_run_lands_near_its_memory() -> None:
    # Llama 3 405B ran on 80 GB without recomputation, on 16 stages whose first and last had one layer less than ours
    plan = ParallelPlan(dp=128, tp=8, pp=16, zero=2)
    case = job(replace(llama_405b, n_layers=112), plan, 8192, 16)
    assert 0.8 < memory.ledger(case).total / (80 * GB) < 1.0


# --- dimensions and misuse --------------------------------------------------------------------------------------------


def test_dimensions() -> None:
    u = pint.UnitRegistry()
    u.define("token = []")
    u.define("chip = []")
    kept = memory.checkpoint_bytes(2048 * u.token, 8192 / u.token, 80, 2, 4, 2 * u.byte)
    assert kept.check(u.byte.dimensionality)
    assert kept.to(u.byte).magnitude == memory.checkpoint_bytes(2048, 8192, 80, 2, 4)
    assert memory.min_chips(1.13e12 * u.byte, 80e9 * u.byte / u.chip).check(u.chip.dimensionality)


def test_unknown_choices_are_named() -> None:
    case = job(llama, ParallelPlan(dp=8, tp=8), 8192, 1)
    for changes, said in (
        ({"schedule": "2f2b"}, "schedule is '2f2b': use one of gpipe, 1f1b"),
        ({"attention": "sparse"}, "attention is 'sparse': use one of flash, unfused"),
        ({"recompute": "some"}, "recompute is 'some': use one of none, selective, full"),
        ({"zero": 4}, "zero is 4: use stage 0, 1, 2 or 3"),
    ):
        with pytest.raises(ValueError, match=said):
            memory.ledger(with_plan(case, **changes))
    with pytest.raises(ValueError, match="recompute is 'some'"):
        memory_activations.recomputed_bytes(memory.layer_activations(llama, 1, 8192), "some")


def test_smallest_dp_wants_whole_microbatches() -> None:
    case = replace(job(llama, ParallelPlan(dp=8, tp=8), 8192, 1), batch_tokens=100_000)
    with pytest.raises(ValueError, match=r"100000 tokens are 12\.207 microbatches of 1 x 8192 tokens: use a batch"):
        memory.smallest_dp(case)
    with pytest.raises(ValueError, match="0 microbatches"):
        memory.smallest_dp(replace(case, batch_tokens=0))


@pytest.mark.parametrize(
    ("changes", "rule", "fatal"),
    [
        ({"attention": "sparse"}, "choice", True),
        ({"prefetch": -1}, "degree", True),
        ({"prefetch": 0.5}, "degree", True),
        ({"prefetch": float("inf")}, "degree", True),
        ({"checkpoints_per_layer": 0}, "recompute", True),
        ({"checkpoints_per_layer": float("inf"), "recompute": "full"}, "recompute", True),
        ({"checkpoints_per_layer": 2}, "recompute", False),
    ],
)
def test_check_of_the_plan_fields(changes: dict[str, Any], rule: str, fatal: bool) -> None:
    case = job(llama, ParallelPlan(dp=8, tp=8), 8192, 1)
    assert check(case) == []
    assert [(v.rule, v.fatal) for v in check(with_plan(case, **changes))] == [(rule, fatal)]


def test_a_warning_hides_no_other_rule() -> None:
    case = with_plan(job(llama, ParallelPlan(dp=8, tp=8), 8192, 1), checkpoints_per_layer=2, tp=7)
    assert {"recompute", "chips", "heads"} <= {v.rule for v in check(case)}
    assert check(with_plan(case, tp=8, recompute="full")) == []


def test_stage_without_layers_is_allowed() -> None:
    # more chunks than layers: check() forbids it, the arithmetic stays sound
    at = memory_stages.stage(job(replace(llama, n_layers=2), ParallelPlan(pp=4), 8192, 4), 3)
    assert SimpleNamespace(**at.__dict__).dense_layers == 0


def test_mla_without_low_rank_queries_counts_none() -> None:
    thin = replace(DEEPSEEK, mla=MLA(0, 512, 128, 64, 128))
    rows = memory.layer_activations(thin, 1, 4096)
    assert rows["stream/latents"] == 2 * (2 * 512 + 64)
