"""What a web page asks of Python: the face of an explorer, a verdict on an answer, the output of a cell.

Everything a page shows is made here, in text and JSON; its script only carries values to and fro. It runs in a browser
on the standard library alone.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
from collections.abc import Callable, Mapping
from html import escape
from html.parser import HTMLParser
from typing import Any

from scaling_lib import answers, live_cells, quiz
from scaling_lib.explore import Choice, Control, Explorer, Slider, log_values
from scaling_lib.questions import Instance
from scaling_lib.quiz_html import verdict_html
from scaling_lib.units import UnitError, unit_factor


def explorer(address: str) -> Explorer:
    """The explorer at `module:name`, as in `scaling_lib.explorers:dp_explorer`. Raises ValueError for another."""
    module, _, name = address.partition(":")
    if not re.fullmatch(r"scaling_lib\.\w+", module):
        raise ValueError(f"{address!r} is no explorer of scaling_lib: write scaling_lib.MODULE:NAME")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, Explorer):
        raise ValueError(f"{module} has no explorer {name!r}")
    return found


# values and their text ----------------------------------------------------------------------------


def whole(control: Slider) -> bool:
    """Whether a slider moves in whole numbers."""
    return not control.log and all(float(v).is_integer() for v in (control.low, control.high, control.step))


def text_of(control: Control, value: Any) -> str:
    """A value as a page writes it, which `read` understands."""
    if isinstance(control, Choice):
        return str(value)
    number = float(value)
    if number.is_integer() and abs(number) < 1e9:
        return f"{number:,.0f}"
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{number:.6g}")


def unit_of(control: Control) -> str:
    """The unit in the brackets of a label, empty when there is none."""
    match = re.search(r"\(([^()]*)\)\s*$", control.label)
    return match[1] if match else ""


def read(control: Control, text: str) -> Any:
    """A control's value from its text: "4M", "2.5e6", "900 GB/s". Raises ValueError that says what is allowed."""
    if isinstance(control, Choice):
        if text not in control.options:
            raise ValueError(f"{control.label}: {text!r} is not among {', '.join(control.options)}")
        return text
    if text.strip() == text_of(control, control.value):
        return control.value
    value = _number(control, text)
    if not control.low * (1 - 1e-9) <= value <= control.high * (1 + 1e-9):
        ends = f"{text_of(control, control.low)} to {text_of(control, control.high)}"
        raise ValueError(f"{control.label}: {text.strip()} is outside {ends}")
    if whole(control):
        if not value.is_integer():
            raise ValueError(f"{control.label}: {text.strip()} is not whole; write {value:.0f}")
        return int(value)
    return value


def _number(control: Slider, text: str) -> float:
    """A typed number in the unit of a slider's label. Raises ValueError."""
    unit = unit_of(control)
    try:
        typed = answers.read(text.strip().removeprefix("$") if unit.startswith("USD") else text)
    except UnitError as error:
        raise ValueError(f"{control.label}: {error}") from None
    if typed.bare:
        return typed.value
    try:
        factor, dimension = unit_factor(unit)
    except UnitError:  # a unit in words, such as a fraction of something
        factor, dimension = 1.0, "?"
    if typed.dimension != dimension:
        raise ValueError(f"{control.label}: write {text.strip()} as a plain number{f', in {unit}' if unit else ''}")
    return typed.value / factor


def stops(control: Slider) -> list[str]:
    """What a logarithmic slider stops at, as text: three figures, and the default exactly."""
    default = text_of(control, control.value)
    return [
        default if abs(v / control.value - 1) < 1e-9 else text_of(control, float(f"{v:.3g}"))
        for v in log_values(control)
    ]


def position(control: Slider, value: float) -> float:
    """Where a slider's knob stands: the value, or the number of the nearest stop."""
    if not control.log:
        return value
    values = log_values(control)
    return min(range(len(values)), key=lambda i: abs(values[i] / value - 1))


# explorers ----------------------------------------------------------------------------------------


def values(found: Explorer, state: Mapping[str, str]) -> dict[str, Any]:
    """All values of a state given as text; what is missing keeps its default. Raises ValueError."""
    unknown = set(state) - set(found.state)
    if unknown:
        raise ValueError(f"there is no control {sorted(unknown)[0]!r}: there are {', '.join(found.state)}")
    return {c.name: read(c, state[c.name]) if c.name in state else c.value for c in found.controls}


def face(address: str, state: Mapping[str, str]) -> dict[str, Any]:
    """The picture of a state and how its controls stand; or the packages that have to be loaded first.

    Raises ValueError for a state that makes no sense.
    """
    found = explorer(address)
    now = values(found, state)
    try:
        html = found.html(**now)
    except ModuleNotFoundError as error:
        if error.name not in live_cells.LOADABLE:
            raise
        return {"needs": [error.name]}
    spoken = re.search(r'<svg[^>]* aria-label="([^"]*)"', html)
    return {"html": html, "controls": standing(found, now), "spoken": spoken[1] if spoken else found.title}


def standing(found: Explorer, now: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Text, knob and whether it is the default, of each control."""
    return {
        c.name: {
            "text": text_of(c, now[c.name]),
            "position": position(c, now[c.name]) if isinstance(c, Slider) else now[c.name],
            "default": now[c.name] == c.value,
        }
        for c in found.controls
    }


BUTTONS = (("reset", "Reset"), ("link", "Copy link"), ("csv", "Download CSV"), ("toml", "Download TOML"))


def form(address: str, key: str) -> str:
    """The controls of an explorer as HTML, in their default state. key: what ids on the page begin with."""
    found = explorer(address)
    rows = "".join(_row(c, f"{key}-{c.name}") for c in found.controls)
    buttons = "".join(f'<button type="button" data-do="{name}">{label}</button>' for name, label in BUTTONS)
    return (
        f'<form class="live-controls" aria-label="{escape(found.title)}"><fieldset disabled>'
        f'<legend>{escape(found.title)}</legend>{rows}<div class="live-buttons">{buttons}</div></fieldset></form>'
    )


def _row(control: Control, key: str) -> str:
    """One control with its label: a list, or a slider beside a box to type in."""
    label = escape(control.label)
    if isinstance(control, Choice):
        options = "".join(
            f"<option{' selected' if o == control.value else ''}>{escape(o)}</option>" for o in control.options
        )
        field = f'<select id="{key}" data-name="{control.name}">{options}</select>'
        return f'<div class="live-control"><label for="{key}">{label}</label>{field}</div>'
    text, ends, extra = text_of(control, control.value), (control.low, control.high, control.step), ""
    if control.log:
        found = stops(control)
        ends, extra = (0, len(found) - 1, 1), f' data-stops="{escape(json.dumps(found))}"'
    low, high, step = ends
    unit = unit_of(control)
    knob = (
        f'<input type="range" id="{key}" data-name="{control.name}" '
        f'min="{low:.12g}" max="{high:.12g}" step="{step:.12g}" '
        f'value="{position(control, control.value):.12g}" aria-valuetext="{escape(f"{text} {unit}".strip())}" '
        f'data-unit="{escape(unit)}"{extra}>'
    )
    box = (
        f'<input type="text" inputmode="decimal" autocomplete="off" spellcheck="false" data-name="{control.name}" '
        f'value="{escape(text)}" aria-label="{label}, typed">'
    )
    return f'<div class="live-control"><label for="{key}">{label}</label>{knob}{box}</div>'


class _Readout(HTMLParser):
    """Collects the labelled values below a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a label or its value."""
        if tag in ("dt", "dd"):
            self.tag = tag
            if tag == "dt":
                self.rows.append(["", ""])

    def handle_endtag(self, tag: str) -> None:
        """Close it."""
        self.tag = "" if tag == self.tag else self.tag

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        if self.tag:
            self.rows[-1][self.tag == "dd"] += data


def results(html: str) -> list[tuple[str, str]]:
    """The labelled values of a picture."""
    parser = _Readout()
    parser.feed(html)
    return [(label, value) for label, value in parser.rows]


def measured(text: str) -> tuple[float, str] | None:
    """The number and the unit of a result that is one quantity, such as "10.2 million USD"; None for another text."""
    found = re.fullmatch(r"(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(\D*)", text.strip())
    if not found:
        return None
    word, _, unit = found[2].partition(" ")
    scale, unit = (answers.MAGNITUDES[word], unit) if word in answers.MAGNITUDES else (1.0, found[2])
    return float(found[1].replace(",", "")) * scale, unit


def _plain(value: Any) -> Any:
    """A setting as a file holds it: a choice among numbers is a number, a float without its noise."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?\d+", value) else value
    return int(value) if float(value).is_integer() and abs(value) < 1e9 else value


def _toml(value: Any) -> str:
    """A value of TOML, short where that is exact: 1.5e+13 for fifteen million million."""
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return json.dumps(value, ensure_ascii=False)


def _toml_result(text: str) -> str:
    """A result of TOML: its text, and where it is one quantity its number and unit."""
    if (quantity := measured(text)) is None:
        return _toml(text)
    return f"{{ text = {_toml(text)}, number = {_toml(quantity[0])}, unit = {_toml(quantity[1])} }}"


def table(address: str, state: Mapping[str, str], kind: str) -> str:
    """Settings and results of a state as a file to keep. kind: csv or toml. Raises ValueError."""
    found = explorer(address)
    now = values(found, state)
    rows = results(found.html(**now))
    if kind == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["part", "name", "value", "number", "unit"])
        writer.writerow(["title", "", found.title, "", ""])
        for control in found.controls:
            value = _plain(now[control.name])
            number = "" if isinstance(value, str) else value
            writer.writerow(["setting", control.label, value, number, unit_of(control)])
        writer.writerows(["result", label, value, *(measured(value) or ("", ""))] for label, value in rows)
        return out.getvalue()
    if kind == "toml":
        settings = [f"{c.name} = {_toml(_plain(now[c.name]))}  # {c.label}" for c in found.controls]
        told = [f"{_toml(label)} = {_toml_result(value)}" for label, value in rows]
        head = [f"title = {json.dumps(found.title)}", "", "[settings]"]
        return "\n".join([*head, *settings, "", "[results]", *told, ""])
    raise ValueError(f"no file format {kind!r}: use csv or toml")


# questions ----------------------------------------------------------------------------------------


def answer_form(asked: Instance, key: str) -> str:
    """A place to answer a question, after its kind: a box, options or lines of text. key: what ids begin with."""
    q = asked.question
    if q.options:
        choices = "".join(
            f'<label><input type="radio" name="{key}" value="{x}"> {x}</label>'
            for x in "abcdefgh"[: len(asked.options)]
        )
        field = f'<span role="radiogroup" aria-label="Your choice" class="live-choices">{choices}</span>'
    elif q.kind == "code":
        field = _lines(key, "A function", f"lambda {', '.join(q.arguments)}: ")
    elif q.numeric:
        hint = f" ({q.unit})" if q.unit else ""
        hint = " with an interval, as in 20 days (10 to 40)" if q.kind == "estimate" else hint
        field = (
            f'<label for="{key}">Your answer{escape(hint)}</label>'
            f'<input id="{key}" type="text" autocomplete="off" spellcheck="false">'
        )
    else:
        field = _lines(key, "Your answer, in a sentence or more", "")
    fresh = '<button type="button" data-do="fresh">New numbers</button>' if q.draw else ""
    return (
        f'<form class="live-answer"><fieldset disabled><legend>Answer {escape(q.id)}</legend>{field} '
        f'<button type="submit">Check</button>{fresh}</fieldset><div class="live-verdict"></div></form>'
    )


def _lines(key: str, label: str, text: str) -> str:
    """A field of several lines with its label."""
    return f'<label for="{key}">{label}</label><textarea id="{key}" rows="3">{escape(text)}</textarea>'


def verdict(name: str, answer: str, seed: int | None) -> str:
    """The verdict on an answer, as HTML. Raises QuestionError for an unknown question."""
    asked = quiz.ask(name, seed).instance
    given: Any = answer
    if asked.question.kind == "code":
        try:
            given = eval(answer, {"__builtins__": __builtins__})  # a reader's own code, in the reader's own browser
        except Exception as error:  # whatever is wrong with it is told to its author
            return f'<p class="verdict verdict-unit" role="status">? {escape(f"{type(error).__name__}: {error}")}</p>'
    return verdict_html(quiz.grade(asked, given))


def question(name: str, seed: int | None, key: str) -> str:
    """A question with its place to answer, as HTML."""
    return with_form(quiz.ask(name, seed)._repr_html_(), key)


def with_form(html: str, key: str) -> str:
    """A stored question with a place to answer put before its hints. Raises ValueError when it is no question."""
    match = re.search(r'<div class="question" data-question="([^"]+)"(?: data-seed="(\d+)")?>', html)
    if match is None:
        raise ValueError(f"no question in {html[:80]!r}")
    seed = int(match[2]) if match[2] else None
    first, fold, rest = html.partition("<details>")
    return first + answer_form(quiz.ask(match[1], seed).instance, key) + fold + rest


# the door ------------------------------------------------------------------------------------------

DOOR: dict[str, Callable[..., Any]] = {
    "face": face,
    "table": table,
    "verdict": verdict,
    "question": question,
    "run": live_cells.run,
}


def call(name: str, arguments: str) -> str:
    """Call one of DOOR with JSON arguments; what it returns, what it needs loaded, or why it could not, as JSON."""
    try:
        return json.dumps({"value": DOOR[name](*json.loads(arguments))})
    except ModuleNotFoundError as error:
        if error.name not in live_cells.LOADABLE:
            raise
        return json.dumps({"value": {"needs": [error.name]}})
    except ValueError as error:
        return json.dumps({"error": str(error)})
