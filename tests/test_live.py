"""What a page asks of Python, without a browser: values and text, faces, files, verdicts, cells; vendored wheels."""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling_lib
from scaling_lib import bank, live, live_cells, quiz
from scaling_lib.explore import Choice, Explorer, Slider

VENDOR = Path(__file__).parents[1] / "book" / "_vendor" / "pyodide"
DP, BUDGET = "scaling_lib.explorers:dp_explorer", "scaling_lib.explorers:budget_explorer"
LOG = Slider("rate", "rate, W (GB/s)", 1, 1e4, 450, log=True)
WHOLE = Slider("chips", "chips", 8, 4096, 1024, step=8)


def explorers() -> list[str]:
    """Return the address of every explorer of the library."""
    names = [m.name for m in pkgutil.iter_modules(scaling_lib.__path__) if m.name.startswith("explore")]
    modules = [importlib.import_module(f"scaling_lib.{name}") for name in names]
    return sorted(
        {f"{m.__name__}:{name}" for m in modules for name, value in vars(m).items() if isinstance(value, Explorer)}
    )


@pytest.mark.parametrize(
    ("control", "text", "value"),
    [
        (LOG, "900 GB/s", 900.0),
        (LOG, "0.4 TB/s", 400.0),
        (LOG, "3.2 Tb/s", 400.0),
        (LOG, " 450 ", 450),
        (LOG, "1e3", 1000.0),
        (WHOLE, "1k", 1000),
        (WHOLE, "2,048", 2048),
        (Slider("price", "price (USD per chip-hour)", 0, 9, 2, step=0.1), "$3.5", 3.5),
        (Choice("c", "cluster", ("a", "b"), "a"), "b", "b"),
    ],
)
def test_typed_values_are_read(control: Slider | Choice, text: str, value: object) -> None:
    assert live.read(control, text) == value


@pytest.mark.parametrize(
    ("control", "text", "told"),
    [
        (WHOLE, "5000", "outside 8 to 4,096"),
        (WHOLE, "9.5", "not whole"),
        (WHOLE, "many", "cannot read 'many'"),
        (WHOLE, "20 days", "plain number"),
        (LOG, "3 days", "plain number, in GB/s"),
        (LOG, "nan", "cannot read"),
        (Choice("c", "cluster", ("a", "b"), "a"), "z", "among a, b"),
    ],
)
def test_values_that_make_no_sense_are_explained(control: Slider | Choice, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        live.read(control, text)


@given(st.floats(1e-3, 1e15))
def test_what_is_written_is_read_back(value: float) -> None:
    control = Slider("x", "x", 1e-4, 1e16, 1.0, log=True)
    assert live.read(control, live.text_of(control, value)) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("address", explorers())
def test_the_face_of_the_default_state_is_what_the_notebook_stores(address: str) -> None:
    found = live.explorer(address)
    face = live.face(address, {})
    assert face["html"] == found.html()
    assert all(control["default"] for control in face["controls"].values())
    assert len(face["spoken"]) > 20


@pytest.mark.parametrize("address", explorers())
def test_every_stop_of_every_control_draws_or_explains(address: str) -> None:
    """The ends of each slider, and each choice: a picture, or a sentence, never a traceback."""
    found = live.explorer(address)
    for control in found.controls:
        if isinstance(control, Choice):
            texts = list(control.options)
        elif control.log:
            texts = [live.stops(control)[0], live.stops(control)[-1]]
        else:
            texts = [f"{control.low:.12g}", f"{control.high:.12g}"]
        for text in texts:
            reply = json.loads(live.call("face", json.dumps([address, {control.name: text}])))
            assert reply.get("error", "") or "<svg" in reply["value"]["html"]
            if "value" in reply:
                assert "nan" not in re.sub(r"<[^>]*>", " ", reply["value"]["html"]).lower().split()


@pytest.mark.parametrize("address", explorers())
def test_a_form_names_every_control(address: str) -> None:
    html, found = live.form(address, "key"), live.explorer(address)
    for control in found.controls:
        assert f'<label for="key-{control.name}">' in html
        assert html.count(f'data-name="{control.name}"') == (1 if isinstance(control, Choice) else 2)


def test_files_hold_settings_and_results() -> None:
    rows = list(csv.reader(io.StringIO(live.table(BUDGET, {"chips": "8k"}, "csv"))))
    assert rows[0] == ["part", "name", "value", "number", "unit"]
    assert ["setting", "chips, N", "8000", "8000", ""] in rows
    assert ["setting", "cluster", "dgx-h100", "", ""] in rows
    cost = next(r for r in rows if r[1] == "cost")
    assert cost[2].startswith(f"{float(cost[3]) / 1e6:.3g} million")
    assert cost[4] == "USD"
    assert {r[1] for r in rows if r[0] == "result"} >= {"goodput", "cost"}
    told = tomllib.loads(live.table(BUDGET, {"chips": "8k"}, "toml"))
    assert told["settings"]["chips"] == 8000
    assert told["settings"]["tokens"] == 15e12
    assert told["results"]["cost"] == {"text": cost[2], "number": float(cost[3]), "unit": "USD"}
    with pytest.raises(ValueError, match="csv or toml"):
        live.table(BUDGET, {}, "xlsx")


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("10.2 million USD", 10.2e6, "USD"),
        ("8,192", 8192.0, ""),
        ("42.9%", 42.9, "%"),
        ("6.35e24 FLOP", 6.35e24, "FLOP"),
        ("-3.5 ms", -3.5, "ms"),
    ],
)
def test_one_quantity_has_a_number_and_a_unit(text: str, number: float, unit: str) -> None:
    assert live.measured(text) == (pytest.approx(number), unit)


@pytest.mark.parametrize("text", ["5.54 s to 6.44 s", "compute-bound", "FSDP 128 x TP 8", "TP 8", ""])
def test_another_text_is_no_quantity(text: str) -> None:
    assert live.measured(text) is None


@pytest.mark.parametrize("address", ["os:path", "scaling_lib.explorers:nothing", "scaling_lib.dp:critical_tokens"])
def test_only_explorers_can_be_addressed(address: str) -> None:
    with pytest.raises(ValueError, match="explorer"):
        live.explorer(address)


def test_every_question_gets_a_place_to_answer() -> None:
    for name in bank.questions():
        html = live.question(name, None, "key")
        assert html.count("<form") == html.count("</form>") == 1
        assert html.index("<form") < html.index("<details>")


def test_the_verdict_on_a_page_is_that_of_the_library() -> None:
    for answer in ("2198", "1.1k tokens", "3 days", "7"):
        assert quiz.check("dp.critical_tokens", answer).kind in live.verdict("dp.critical_tokens", answer, None)


def test_cells_run_in_order_and_show_what_a_notebook_shows() -> None:
    assert "<pre>8\n</pre>" in live_cells.run("print(a * 2); b = 1", ["a = 4\nprint('hidden')"])["html"]
    assert live_cells.run("a + b", [])["html"] == "<pre>5</pre>"
    assert "<svg" in live_cells.run("from scaling_lib.explorers import dp_explorer\ndp_explorer", [])["html"]
    assert live_cells.run("a;", [])["html"] == ""
    told = live_cells.run("print('first')\n1 / 0", [])
    assert not told["good"]
    assert "first" in told["html"]
    assert "line 2: ZeroDivisionError" in told["html"]
    assert "make lab" in live_cells.run("import no_such_package", [])["html"]


def test_wheels_are_the_ones_of_the_runtime() -> None:
    """Pyodide's own lock file, of the same release, holds the digest of each official wheel."""
    lock = json.loads((VENDOR / "pyodide-lock.json").read_text(encoding="utf-8"))
    assert lock["info"]["version"] == "0.27.7"
    wanted = {entry["file_name"]: entry["sha256"] for entry in lock["packages"].values()}
    wheels = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in VENDOR.glob("*.whl")}
    assert wheels == {name: wanted[name] for name in wheels}
    needed, seen = ["numpy", "matplotlib"], set[str]()
    while needed:
        name = needed.pop()
        if name not in seen:
            seen.add(name)
            needed += lock["packages"][name]["depends"]
    assert {lock["packages"][name]["file_name"] for name in seen} == set(wheels)


def test_an_explorer_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from scaling_lib import explorers_plan

    address = "scaling_lib.explorers_plan:plan_explorer"
    explorers_plan.plan_answer.cache_clear()
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "scaling_lib.search", raising=False)
    assert live.face(address, {}) == {"needs": ["numpy"]}
    told = live.call("table", json.dumps([address, {}, "csv"]))
    assert json.loads(told) == {"value": {"needs": ["numpy"]}}, "a file can be asked for before any picture"
    monkeypatch.undo()
    assert "<svg" in live.face(address, {})["html"]
