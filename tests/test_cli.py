"""The command line as a stranger would use it: right numbers, JSON, clear errors, exit code 2, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scaling_lib import catalogue
from scaling_lib.__main__ import main
from scaling_lib.cli import whole

RUN = "budget --model llama-3-70b --cluster dgx-h100 --tokens 15e12 --tp 8"
BUDGET = (*RUN.split(), "--chips", "16384", "--batch-tokens", "16e6", "--pp", "16")
SMALL = (*RUN.split(), "--chips", "8192", "--seq-len", "4096")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, output and error text of one command."""
    try:
        code = main(list(args))
    except SystemExit as stop:  # argparse ends this way
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_budget_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *BUDGET)
    assert code == 0
    for part in ("6.35e24 FLOP", "11.3 days", "8.92 million USD", "4.46 million chip-hours", "DP 128 x TP 8 x PP 16"):
        assert part in out
    assert "nearest batch that divides" in out  # 16e6 tokens are no whole number of sequences: said, not refused


def test_budget_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *BUDGET, "--json", "--mfu", "50%", "--price", "3 USD/h")
    found = json.loads(out)
    assert code == 0
    assert found["params"] == 70_553_706_496
    assert found["flops"] == pytest.approx(6.34983358464e24)
    chip_hours = 6.34983358464e24 / (989e12 * 0.5) / 3600
    assert found["chip_hours"] == pytest.approx(chip_hours)
    assert found["days"] == pytest.approx(chip_hours / 16384 / 24)
    assert found["usd"] == pytest.approx(3 * chip_hours)
    assert found["memory_bytes"] == pytest.approx(sum(found["memory"].values()))
    assert {v["key"] for v in found["verdicts"]} == {"tokens", "tensor", "pipeline", "microbatches", "pods", "memory"}
    tokens = next(v for v in found["verdicts"] if v["key"] == "tokens")
    assert tokens["threshold"] == pytest.approx(2472.5 / 16 * 127 / 128)  # C / (W_node PP), for 128 ranks a group


def test_mfu_out_of_reach_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """1024 tokens per GPU allow 41% of peak, 512 half as much."""
    for batch, beyond in ((2**23, False), (2**22, True)):
        code, out, _ = run(capsys, *SMALL, "--batch-tokens", str(batch))
        assert code == 0
        assert ("40.0% is out of reach" in out) == beyond


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--model", "llama-3-7b"), "did you mean"),
        (("--cluster", "dgx-h10"), "dgx-h100"),
        (("--tp", "3"), "heads"),
        (("--tp", "16"), "domain"),
        (("--pp", "7"), "does not divide"),
        (("--batch-tokens", "1e5"), "some replicas get none"),
        (("--chips", "zero"), "not a number"),
        (("--chips", "0"), "whole number"),
        (("--mfu", "1.4"), "between 0 and 1"),
        (("--price", "-2"), "price"),
        (("--price", "article-clod"), "article-cloud"),
        (("--tokens", "inf"), "whole number"),
        (("--tokens", "15e300"), "at most 1e+18"),
        (("--mfu", "1e-300"), "at least 0.0001%"),
        (("--price", "1e308"), "is no price"),
        (("--price", "nan USD/h"), "cannot read"),
        (("--price", "3 EUR"), "write dollars per chip-hour"),
        (("--recipe", "bf17"), "bf16"),
        (("--precision", "fp9"), "did you mean fp8"),
        (("--model", "no/such/config.json"), "check the path"),
        (("--cluster", "no-such.toml"), "check the path"),
        (("--chunks", "2", "--pp", "1"), "without a pipeline"),
    ],
)
def test_bad_input_is_one_clear_message(capsys: pytest.CaptureFixture[str], change: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, *BUDGET, *change)
    assert code == 2
    assert said in err
    assert "Traceback" not in out + err


def test_own_model_and_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 16,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 128256,
                "tie_word_embeddings": True,
                "max_position_embeddings": 4096,
            }
        ),
        encoding="utf-8",
    )
    code, out, _ = run(
        capsys,
        "budget",
        "--model",
        str(config),
        *["--cluster", "dgx-h100", "--chips", "8", "--tokens", "1e9"],
        *["--batch-tokens", "524288", "--json"],
    )
    assert code == 0
    found = json.loads(out)
    assert found["model"] == "mine"
    assert found["params"] == 1_235_814_400  # Llama 3.2 1B, as published


@pytest.mark.parametrize(
    ("command", "stem"), [("models", "models"), ("chips", "chips"), ("clusters", "clusters"), ("claims", "claims")]
)
def test_lists_hold_the_whole_catalogue(capsys: pytest.CaptureFixture[str], command: str, stem: str) -> None:
    code, out, _ = run(capsys, command)
    assert code == 0
    names = list(catalogue.entries(stem))
    assert all(name in out for name in names)
    code, out, _ = run(capsys, command, "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["id" if command == "claims" else "name"] for row in rows] == names


def test_lists_stand_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "clusters")
    header, first, second, *_ = out.splitlines()
    assert [first.index(word) for word in ("dgx-a100-40gb", "nvlink", "switch", "8 ")] == [
        header.index(word) for word in ("cluster", "level", "topology", "chips")
    ]
    assert first.index("300 GB/s") + len("300 GB/s") == second.index("25.0 GB/s") + len("25.0 GB/s")


def test_claims_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "claims", "--json")
    rows = json.loads(out)
    assert len(rows) == 69
    assert all({"id", "section", "said", "ours", "verdict"} <= set(row) for row in rows)


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m scaling_lib claims | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("claim")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--tokens", "15X"), "write e.g. 16384, 16e6, 16M or 16Mi"),
        (("--mfu", "40"), "write 0.4 or 40%"),
        (("--price", "nebius-b200"), "is of b200, not h100-sxm"),
    ],
)
def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str], change: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, *BUDGET, *change)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_counts_may_carry_a_prefix() -> None:
    assert [whole(text) for text in ("16384", "16e6", "16M", "1.5T", "2k", "70B", "1_000", "1,000", "16Mi")] == [
        *(16384, 16_000_000, 16_000_000, 1_500_000_000_000, 2000, 70_000_000_000, 1000, 1000, 2**24),
    ]


def test_without_a_price_of_its_chip_a_run_costs_nothing_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *BUDGET, "--cluster", "dgx-b200")
    assert code == 0
    assert "no price: give --price" in out
    code, out, _ = run(capsys, *BUDGET, "--cluster", "dgx-b200", "--price", "nebius-b200", "--json")
    found = json.loads(out)
    assert found["usd"] == pytest.approx(5.5 * found["chip_hours"])


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "budget" in err


def test_a_path_that_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = ["schedule", "--name", "1f1b", "--stages", "2", "--microbatches", "2", "--svg"]
    code, _, err = run(capsys, *schedule, "/no/such/folder/x.svg")
    assert code == 2
    assert err == "scaling_lib: /no/such/folder/x.svg: No such file or directory; check the path\n"


def test_commands_run_without_numpy_and_plan_says_that_it_is_missing() -> None:
    program = "import sys; sys.modules['numpy'] = None; from scaling_lib.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", program]
    job = ["--model", "llama-3-8b", "--cluster", "dgx-h100", "--chips", "8", "--batch-tokens", "65536"]
    budget = subprocess.run([*command, "budget", *job, "--tokens", "1e9"], capture_output=True, text=True, check=False)
    assert (budget.returncode, budget.stderr) == (0, "")
    plan = subprocess.run([*command, "plan", *job, "--seq-len", "8192"], capture_output=True, text=True, check=False)
    assert (plan.returncode, plan.stdout) == (2, "")
    assert plan.stderr == "scaling_lib: this needs numpy, which is not installed: pip install numpy\n"
