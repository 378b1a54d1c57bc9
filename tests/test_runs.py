from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scaling_lib.model import n_params
from scaling_lib.runs import (
    RUNS,
    RowError,
    chip_cluster,
    number,
    precision_of,
    read_row,
    read_rows,
    read_runs,
    source_of,
    whole,
)

ROW: dict[str, str | None] = {
    "id": "own-001",
    "model": "LLAMA3_70B",
    "layers": "80",
    "hidden": "8192",
    "ffn": "28672",
    "heads": "64",
    "kv_heads": "8",
    "vocab": "128256",
    "seq_len": "8192",
    "chip": "H100",
    "n_chips": "64",
    "tp": "4",
    "pp": "4",
    "vpp": "5",
    "cp": "2",
    "micro_batch": "1",
    "global_batch_seqs": "128",
    "precision": "fp8",
    "step_time_s": "10.7",
    "tier": "A",
    "attention_kernel": "flash-native",
    "stack": "tuned",
    "recompute_kind": "none",
    "grad_bytes": "2",
}


def test_every_row_is_read_or_skipped_with_a_reason() -> None:
    runs, skipped = read_runs()
    assert len(runs) + len(skipped) == len(read_rows())
    assert all(s.reason for s in skipped)
    assert len([s for s in skipped if "LoRA" not in s.reason]) < 50
    assert len([r for r in runs if r.split == "dev" and r.measured]) > 600


def test_a_row_becomes_a_job() -> None:
    run = read_row(ROW)
    assert run.job.plan.dp == 2
    assert run.job.microbatches == 64
    assert run.stack.virtual_stages == 5
    assert run.stack.tp_overlap is None  # not in the row: unknown
    assert run.measured == 10.7
    assert run.assumed == ("gated_mlp",) or run.assumed == ()


def test_a_blank_interleaving_is_unknown_unless_the_source_printed_every_field() -> None:
    assert read_row(ROW | {"vpp": ""}).stack.virtual_stages == 1
    assert read_row(ROW | {"vpp": "", "tier": "B"}).stack.virtual_stages is None
    assert read_row(ROW | {"vpp": "", "tier": "", "pp": "1"}).stack.virtual_stages == 1


def test_rates_of_tokens_become_seconds() -> None:
    run = read_row(ROW | {"step_time_s": "", "tokens_per_s_per_chip": "1000"})
    assert run.measured == pytest.approx(128 * 8192 / 64 / 1000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chip": "H10"}, "did you mean"),
        ({"chip": ""}, "not in the catalogue"),
        ({"n_chips": ""}, "n_chips"),
        ({"n_chips": "many"}, "no number"),
        ({"n_chips": "-8"}, "positive"),
        ({"n_chips": "nan"}, "n_chips is not printed"),
        ({"n_chips": "inf"}, "positive"),
        ({"seq_len": "8192.5"}, "whole"),
        ({"tp": "3"}, "does not divide"),
        ({"precision": "ternary"}, "precision"),
        ({"precision": "fp4"}, "no fp4 peak"),
        ({"model": "mystery", "hidden": ""}, "shape"),
        ({"model": "mystery-8x7B"}, "experts"),
        ({"layers": "", "model": "mystery", "params_b": ""}, "layers"),
        ({"model": "LLAMA3_70B-LoRA"}, "adapters"),
        ({"notes": "task=QLoRA"}, "adapters"),
    ],
)
def test_an_odd_row_says_why_it_is_skipped(change: dict[str, str], message: str) -> None:
    with pytest.raises(RowError, match=message):
        read_row(ROW | change)


@pytest.mark.parametrize(
    ("text", "cluster", "peak"),
    [
        ("NVIDIA H100-SXM5-80GB", "dgx-h100", 989e12),
        ("H100 PCIe", "dgx-h100", 756e12),
        ("gb200 nvl72", "gb200-nvl72", 2500e12),
        ("A100-SXM4-40GB", "dgx-a100-40gb", 312e12),
        ("AMD Instinct MI325X", "mi300x-8", 1307e12),
        ("TPU v5e", "tpu-v5e", 197e12),
        ("Trillium", "tpu-v6e", 918e12),
        ("Gaudi2", "dgx-h100", 432e12),
    ],
)
def test_chips_are_known_by_many_names(text: str, cluster: str, peak: float) -> None:
    found = chip_cluster(text)
    assert found.name == cluster
    assert found.chip.flops("bf16") == pytest.approx(peak, rel=0.01)


def test_a_variant_differs_in_what_its_sheet_says() -> None:
    pcie, sxm = chip_cluster("H100 PCIe"), chip_cluster("H100")
    assert pcie.levels[0].egress == 63e9
    assert pcie.levels[-1].egress == sxm.levels[-1].egress
    assert pcie.chip.hbm_bandwidth == 2.0e12
    assert pcie.chip.hbm == sxm.chip.hbm
    assert chip_cluster("MI325X").chip.hbm == 256e9
    with pytest.raises(RowError, match="not in the catalogue"):
        chip_cluster("Abacus")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,024", 1024), ("1 024", 1024), ("1_024", 1024), (" 64 GPUs", 64), ("~64", 64), ("1e3", 1000), ("N/A", None)],
)
def test_numbers_are_read_as_people_write_them(text: str, value: float | None) -> None:
    assert number({"n_chips": text}, "n_chips") == value


def test_a_thousand_positions_are_1024() -> None:
    assert whole({"seq_len": "8k"}, "seq_len") == 8192
    with pytest.raises(RowError, match="no number"):
        whole({"n_chips": "8k"}, "n_chips")
    with pytest.raises(RowError, match="more than any run"):
        whole({"layers": "99999"}, "layers")


def test_degrees_tell_the_chips() -> None:
    run = read_row(ROW | {"n_chips": "", "dp": "2"})
    assert run.job.chips == 2 * 4 * 4 * 2
    assert "n_chips" in run.assumed


def test_memory_is_told_apart_by_what_the_notes_say() -> None:
    row = ROW | {"memory_gib": "60"}
    assert read_row(row).memory_kind == "used"
    run = read_row(row | {"notes": "max_allocated memory (reserved 66.5 GiB)"})
    assert (run.memory_kind, run.reserved) == ("allocated", 66.5 * 2**30)
    assert read_row(row | {"notes": 'mem-max-allocated 60 "GB"'}).memory_kind == "allocated"


def test_an_optional_cell_that_makes_no_sense_is_named_and_replaced() -> None:
    run = read_row(ROW | {"micro_batch": "-1", "cp": "many", "ep": "0", "n_chips": "32"})
    assert {"micro_batch", "cp"} <= set(run.assumed)
    assert "ep" not in run.assumed  # a printed 0 means unused
    assert run.job.plan.cp == run.job.plan.ep == run.job.plan.micro_batch == 1


def test_words_name_kernel_stack_and_recomputation() -> None:
    run = read_row(ROW | {"attention_kernel": "FlashAttention-2", "stack": "DeepSpeed ZeRO", "recompute_kind": "FULL"})
    assert (run.stack.kernel, run.stack.tuning, run.stack.recompute) == ("flash-old", "generic", "full")
    run = read_row(ROW | {"attention_kernel": "cuDNN", "stack": "", "source_repo_or_title": "NVIDIA/Megatron-LM"})
    assert (run.stack.kernel, run.stack.tuning) == ("flash-native", "tuned")
    assert "stack" in run.assumed  # the title is a hint, not a cell
    assert read_row(ROW | {"stack": ""}).stack.tuning is None


def test_a_model_is_known_by_name_or_guessed_from_its_size() -> None:
    blank = dict.fromkeys(("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "params_b"), "")
    known = read_row(ROW | blank | {"model": "meta-llama/Llama-3.1-70B-Instruct"}).job.model
    assert (known.n_layers, known.d_model, known.n_kv_heads) == (80, 8192, 8)
    run = read_row(ROW | blank | {"model": "Mystery-13B"})
    assert "architecture" in run.assumed
    assert n_params(run.job.model) == pytest.approx(13e9, rel=0.1)
    assert n_params(read_row(ROW | blank | {"model": "Mystery", "params_b": "70"}).job.model) == pytest.approx(
        70e9, rel=0.1
    )


def test_experts_may_stand_in_columns() -> None:
    experts = {"n_experts": "64", "experts_per_token": "6", "expert_ffn": "1408", "n_shared_experts": "2"}
    moe = read_row(ROW | experts | {"model": "Mystery-MoE", "ep": "8"}).job.model.moe
    assert moe is not None
    assert (moe.n_experts, moe.experts_per_token, moe.d_ff_expert, moe.n_shared_experts) == (64, 6, 1408, 2)


def test_a_schedule_that_hides_the_all_to_all_is_read_from_the_notes() -> None:
    row = ROW | {"model": "DeepSeek-V3", "notes": "DualPipe; balanced", "vpp": "", "tier": "", "ep": "16"}
    assert read_row(row).stack.ep_overlap is True
    assert read_row(row).stack.virtual_stages == 2
    assert read_row(row | {"notes": ""}).stack.ep_overlap is None


def test_a_published_recipe_says_what_a_table_does_not() -> None:
    table = {"source_repo_or_title": "Megatron-Bridge", "source_path_or_table": "26.06 NeMo Container / Pre-Training"}
    row = (
        ROW | table | {"model": "Qwen3_30B_a3B", "chip": "GB200", "precision": "MXFP8", "ep": "8", "recompute_kind": ""}
    )
    stack = read_row(row).stack
    assert (stack.graphs, stack.ep_overlap, stack.expert_tp, stack.recompute) == ("step", True, 1, "none")
    older = read_row(row | {"source_path_or_table": "26.02 NeMo Container"}).stack
    assert (older.graphs, older.ep_overlap) == ("layers", False)
    told = read_row(row | {"graphs": "none", "ep_overlap": "no", "expert_tp": "4", "recompute_kind": "full"}).stack
    assert (told.graphs, told.ep_overlap, told.expert_tp, told.recompute) == ("none", False, 4, "full")
    unknown = read_row(row | {"source_path_or_table": "a blog"}).stack
    assert (unknown.graphs, unknown.ep_overlap, unknown.expert_tp, unknown.recompute) == (None, None, None, None)
    assert read_row(ROW | table).stack.ep_overlap is None  # no experts, nothing to ask
    own = {"model": "DeepSeek-V3", "source_repo_or_title": "Insights into DeepSeek-V3", "ep": "16"}
    assert (read_row(ROW | own).stack.dispatch_bytes, stack.dispatch_bytes) == (1, 2)


def test_sequence_length_follows_from_tokens_or_is_assumed() -> None:
    run = read_row(ROW | {"seq_len": "", "tokens_per_step": "524288"})
    assert run.job.seq_len == 4096
    assert "seq_len" in run.assumed


def test_names_of_precisions_and_sources() -> None:
    assert [precision_of(p) for p in ("BF16", "fp16", "FP8-CS (FP8-MX)", "NVFP4", "int8/bf16")] == [
        "bf16",
        "bf16",
        "fp8",
        "fp4",
        "int8",
    ]
    assert source_of({"id": "dgxc-mem-004"}) == "dgxc-mem"
    assert source_of({}) == "unnamed"


def test_unreadable_files_are_explained(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="cannot read"):
        read_rows(tmp_path / "none.csv")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(RowError, match="no column 'chip'"):
        read_rows(other)


def test_suspect_rows_stay_with_their_reason() -> None:
    with RUNS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({r["id"] for r in rows}) == len(rows)
    assert sum(bool(r["suspect"]) for r in rows) > 50
