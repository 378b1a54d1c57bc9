"""`python -m scaling_lib schedule`: numbers, files, and one line of explanation for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaling_lib.__main__ import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["schedule", *arguments])
    except SystemExit as stop:  # argparse ends this way
        code = int(str(stop.code))
    out = capsys.readouterr()
    return code, out.out, out.err


ONE = ("--name", "1f1b", "--stages", "4", "--microbatches", "8")


def test_json_has_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ONE, "--times", "1,1,1", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["makespan"] == 33
    assert data["bubble_per_device"] == [9, 6, 3, 0]
    assert data["bubble_per_device_in_makespan"] == [9, 9, 9, 9]
    assert data["bubble_of_total"] == pytest.approx(3 / 11)
    assert data["bubble_of_ideal"] == pytest.approx(3 / 8)
    assert data["bubble_of_total_own_clock"] == pytest.approx(18 / 114)
    assert data["bubble_of_ideal_own_clock"] == pytest.approx(18 / 96)
    assert data["peak_activations_per_rank"] == [4, 3, 2, 1]
    assert data["weights_held_per_rank"] == [1, 1, 1, 1]
    assert data["busy_per_device"] == [24, 24, 24, 24]
    assert (data["schedule"], data["stages"], data["microbatches"], data["chunks"]) == ("1f1b", 4, 8, 1)


def test_text_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ONE)
    assert code == 0
    assert "makespan 33, busiest device 24" in out
    assert "27.3% of the total, 37.5% of the ideal time (common clock)" in out
    assert out.splitlines()[-1].split() == ["3", "0", "9.00", "1.00", "1.00"]


def test_options_reach_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    def makespan(*arguments: str) -> float:
        return float(json.loads(run(capsys, *arguments, "--json")[1])["makespan"])

    assert makespan("--name", "interleaved", "--stages", "4", "--microbatches", "8", "--chunks", "4") == 26.25
    assert makespan("--name", "dualpipe", "--stages", "4", "--microbatches", "8", "--overlap", "0.75") == 23
    assert makespan(*ONE, "--times", "2,3,1") == 66
    assert makespan(*ONE, "--p2p", "1") > 33 + 6


def test_order_goes_out_and_comes_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, order, _ = run(capsys, *ONE, "--order")
    path = tmp_path / "mine.csv"
    path.write_text(order)
    code, out, _ = run(capsys, "--file", str(path), "--json")
    assert code == 0
    assert json.loads(out)["makespan"] == 33
    assert json.loads(out)["schedule"] == "mine"
    path.write_text("0F0,0B0\n1B0,1F0")
    code, _, err = run(capsys, "--file", str(path))
    assert code == 2
    assert err == "scaling_lib: device 1, step 0 (1B0): needs 1F0 earlier on the same device\n"


def test_svg_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    assert run(capsys, *ONE, "--svg", str(path))[0] == 0
    assert path.read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ONE[:1], "1f1", *ONE[2:]), "unknown schedule '1f1': did you mean 1f1b?"),
        (("--name", "dualpipe", "--stages", "3", "--microbatches", "8"), "dualpipe needs an even number of stages"),
        ((*ONE, "--chunks", "2"), "1f1b always has 1 chunk a device, got 2"),
        ((*ONE, "--chunks", "x"), "'x' is not a whole number of at least 1"),
        ((*ONE[:3], "0", *ONE[4:]), "'0' is not a whole number of at least 1"),
        ((*ONE, "--times", "1,1"), "'1,1' has 2 times: write t_F,t_B,t_W"),
        ((*ONE, "--times", "1,1,-1"), "'-1' is not a time"),
        ((*ONE, "--times", "0,0,0"), "no action takes time, so there is no bubble ratio"),
        ((*ONE, "--p2p", "inf"), "'inf' is not a time"),
        ((*ONE, "--p2p", "soon"), "'soon' is not a time"),
        ((*ONE, "--overlap", "2"), "overlap is 2.0"),
        ((*ONE[:2], "--stages", "1000", "--microbatches", "1000"), "2,000,000 actions to simulate"),
        (ONE[:4], "--microbatches missing: e.g. --stages 4 --microbatches 8"),
        (ONE[:2], "--stages and --microbatches missing"),
        ((), "give either --name, e.g. --name 1f1b, or --file"),
        (("--file", "x.csv", "--stages", "4"), "x.csv already says its sizes: leave out --stages"),
        (("--file", "no-such.csv"), "No such file"),
        ((*ONE, "--svg", "no-such-folder/a.svg"), "No such file"),
    ],
)
def test_bad_input_is_explained_in_a_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
