from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scaling_lib.runs import RUNS, RowError, precision_of, read_row, read_rows, read_runs, source_of

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
    ],
)
def test_an_odd_row_says_why_it_is_skipped(change: dict[str, str], message: str) -> None:
    with pytest.raises(RowError, match=message):
        read_row(ROW | change)


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
