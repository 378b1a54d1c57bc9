from __future__ import annotations

import csv
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scaling_lib import __main__ as program
from scaling_lib import catalogue, reality
from scaling_lib.fit import TOML, fit
from scaling_lib.runs import RUNS
from scaling_lib.validate import as_data, quantile, validate

STUDY = catalogue.DATA / "predictor_study.toml"


@pytest.fixture(scope="module")
def report() -> dict:  # type: ignore[type-arg]
    return as_data(validate())


def test_errors_on_the_development_rows_stay_low(report: dict) -> None:  # type: ignore[type-arg]
    dev = next(g for g in report["by"]["split"] if g["name"] == "dev")
    assert dev["n"] > 600
    assert dev["median_ape"] < 0.045
    assert dev["p90_ape"] < 0.12
    assert abs(dev["bias"]) < 0.02
    assert 0.80 < dev["coverage"] < 0.90  # runs that the fit saw: see below for those it did not


def test_the_report_is_json_and_complete(report: dict) -> None:  # type: ignore[type-arg]
    json.dumps(report, allow_nan=False)
    assert report["rows"] == sum(1 for _ in csv.DictReader(RUNS.open(encoding="utf-8")))
    assert report["skipped"] == sum(report["skipped_reasons"].values())
    assert report["ordering"]["pairs"] > 100
    assert report["ordering"]["right"] > 0.86
    assert report["ordering"]["regret"] < 0.02
    assert all(r["low_s"] < r["predicted_s"] < r["high_s"] for r in report["results"])


def test_memory_is_scored_by_what_sources_report(report: dict) -> None:  # type: ignore[type-arg]
    assert report["memory"]["allocated"]["median_ape"] < 0.035
    assert report["memory"]["allocated"]["n"] > 35
    assert report["memory"]["used"]["n"] > 50
    assert report["memory"]["used"]["coverage"] > 0.65


def test_rows_never_seen_do_not_crash(tmp_path: Path) -> None:
    """Cells blanked, swapped and spoiled at random: every row is scored or skipped."""
    rows = list(csv.DictReader(RUNS.open(encoding="utf-8")))
    dice = random.Random(7)
    odd = ["", "nan", "-1", "0", "1e99", "text", "3", "0.5", "12x", " 8 ", "True", "NaN", "1,024"]
    spoiled = []
    for row in dice.sample(rows, 400):
        changed = dict(row)
        for key in dice.sample(list(row), 4):
            changed[key] = dice.choice(odd)
        changed["id"] = f"never-seen-{len(spoiled)}"
        spoiled.append(changed)
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(spoiled)
    report = as_data(validate(path))
    assert report["rows"] == 400
    assert len(report["results"]) + report["skipped"] == 400
    json.dumps(report, allow_nan=False)


GOOD = "id,model,chip,n_chips,tp,pp,dp,seq_len,global_batch_seqs,step_time_s,recompute_kind\n"
ROW = "x-1,Llama3-70B,H100,64,4,4,4,8192,128,11,none\n"


def scored(tmp_path: Path, content: bytes | str) -> dict[str, Any]:
    """The report on a file with this content, through JSON as a reader gets it."""
    path = tmp_path / "runs.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found: dict[str, Any] = json.loads(json.dumps(as_data(validate(path)), allow_nan=False))
    return found


@pytest.mark.parametrize(
    "content",
    [
        ("\ufeff" + GOOD + ROW).encode(),
        (GOOD + ROW).replace("\n", "\r\n").encode(),
        (GOOD + ROW).encode("utf-16"),
        (GOOD + ROW).replace(",", ";").encode(),
        (GOOD + ROW).replace(",", "\t").encode(),
        (GOOD + ROW).replace("\n", ",,,\n").encode(),
        (GOOD + ROW).replace("\n", "\n\n").encode(),
        (GOOD + ROW).replace(",", " , ").encode(),
        (GOOD.upper() + ROW).encode(),
    ],
    ids=["bom", "crlf", "utf-16", "semicolons", "tabs", "empty columns", "blank lines", "spaces", "capitals"],
)
def test_tables_are_read_as_spreadsheets_write_them(tmp_path: Path, content: bytes) -> None:
    plain = scored(tmp_path, GOOD + ROW)["results"]
    assert len(plain) == 1
    assert scored(tmp_path, content)["results"] == plain


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("64,4,4,4", "64,4,4,5"), "dp"),  # does not multiply to the chips
        (("64,4,4,4", "48,3,4,4"), "tp"),  # 64 heads
        (("64,4,4,4", "64,4,four,4"), "pp"),
        (("64,4,4,4", "64,-4,4,4"), "tp"),
    ],
)
def test_a_degree_that_cannot_be_widens_and_is_named(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    plain, odd = (scored(tmp_path, GOOD + row)["results"][0] for row in (ROW, ROW.replace(*change)))
    assert named in odd["assumed"]
    assert named not in plain["assumed"]


def test_an_unknown_word_is_unknown(tmp_path: Path) -> None:
    assert "recompute" not in scored(tmp_path, GOOD + ROW)["results"][0]["unknown"]
    assert "recompute" in scored(tmp_path, GOOD + ROW.replace("none", "banana"))["results"][0]["unknown"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW.replace("H100", "Abacus"), "not in the catalogue"),
        (ROW.replace("64,4,4,4", "64,5,4,4"), "does not divide 64"),
        (ROW.replace("64,4,4,4", "0,4,4,4"), "no positive number"),
        (ROW.replace("64,4,4,4", "1e30,4,4,4"), "no positive number"),
        (ROW.replace("64,4,4,4", "1e9,4,4,4"), "more than any run"),
        (ROW.replace("64,4,4,4", "NaN,,,"), "n_chips is not printed"),
        (ROW.replace("8192", "-8192"), "seq_len is '-8192'"),
        (ROW.replace("8192", "long"), "seq_len is 'long'"),
    ],
)
def test_a_row_that_cannot_be_read_is_skipped_with_its_reason(tmp_path: Path, row: str, reason: str) -> None:
    report = scored(tmp_path, GOOD + ROW + row.replace("x-1", "x-2"))
    assert (report["rows"], report["scored"], report["skipped"]) == (2, 1, 1)
    assert reason in report["skipped_rows"][0]["reason"]


def test_rows_are_counted_with_repeats_and_without_names(tmp_path: Path) -> None:
    again = scored(tmp_path, GOOD + ROW + ROW)
    assert (again["rows"], again["scored"], again["skipped"]) == (2, 1, 1)
    assert "repeats a row" in again["skipped_rows"][0]["reason"]
    other = scored(tmp_path, GOOD + ROW + ROW.replace(",11,", ",12,"))
    assert (other["rows"], other["scored"]) == (2, 2)
    nameless = scored(tmp_path, GOOD + 2 * ROW.replace("x-1", "") + 2 * ROW.replace("x-1", "").replace("H100", "?"))
    assert (nameless["rows"], nameless["scored"], nameless["skipped"]) == (4, 2, 2)
    assert scored(tmp_path, "")["rows"] == scored(tmp_path, GOOD)["rows"] == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10), st.text(max_size=8) | st.floats().map(str)), min_size=1, max_size=4))
@example([(9, "2.2e-309")])
def test_any_cell_is_scored_or_skipped(tmp_path: Path, cells: list[tuple[int, str]]) -> None:
    row = ROW.strip().split(",")
    for at, value in cells:
        row[at] = value
    out = io.StringIO()
    csv.writer(out).writerow(row)
    report = scored(tmp_path, (GOOD + out.getvalue()).encode("utf-8", errors="replace"))
    assert len(report["results"]) + report["skipped"] == report["rows"]


def test_a_file_with_few_columns_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,model,chip,n_chips,seq_len,global_batch_seqs,step_time_s\nx-1,Llama3-70B,H100,64,8192,128,11\n")
    report = as_data(validate(path))
    assert len(report["results"]) == 1
    assert report["results"][0]["unknown"]
    assert report["results"][0]["assumed"]


def test_the_command_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["validate"]) == 0
    out = capsys.readouterr().out
    assert "by source" in out
    assert "ordered rightly" in out
    assert program.main(["validate", "--runs", "/nonexistent.csv"]) == 2


def test_quantiles_interpolate() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.9) == 9.0
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


def test_the_constants_are_what_the_rows_say(tmp_path: Path) -> None:
    copy = tmp_path / "predictor.toml"
    text = fit(toml=copy)
    assert copy.read_text(encoding="utf-8") == TOML.read_text(encoding="utf-8")
    told = {}
    for line in text.splitlines():
        if found := re.match(
            r"  (\S+) left out +(\d+) rows  median +([\d.]+)%.*p90 +([\d.]+)%  bias +([-+\d.]+)%", line
        ):
            told[found[1]] = (int(found[2]), *(float(figure) for figure in found.groups()[2:]))
    pattern = r"sources alone, (.+): holds ([\d.]+)% of \d+ rows, ([\d.]+)% wide"
    held = {found[1]: (float(found[2]), float(found[3])) for found in re.finditer(pattern, text)}
    assert held == {r["runs"]: (r["share"], r["width"]) for r in catalogue.read_toml(STUDY)["held"]}
    assert all(77 < held[runs][0] < 83 for runs in ("every field printed", "with guessed fields"))
    study = catalogue.read_toml(STUDY)["left_out"]
    kept = {r["source"]: (r["rows"], r["median"], r["p90"], r["bias"]) for r in study}
    assert len(told) > 10
    assert {name: figures for name, figures in kept.items() if name not in reality.TOGETHER} == told
