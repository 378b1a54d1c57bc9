"""The decision flow as a picture, drawn from the same steps that `decide.explain` asks."""

from __future__ import annotations

import textwrap
from html import escape

from scaling_lib import decide
from scaling_lib.draw import COLOURS, Picture, number, stroke, svg, text
from scaling_lib.job import Job
from scaling_lib.units import show

_BOX, _SIDE, _ROW, _GAP, _LINE = 300, 250, 62, 34, 17
_OK, _BAD = COLOURS[2], COLOURS[1]


def flow(job: Job | None = None, title: str = "Which plan?") -> str:
    """Questions from top to bottom, what to do on a no beside each. Returns SVG text.

    job: colours each answer and prints its two numbers; None draws the questions alone.
    """
    verdicts = {} if job is None else {v.key: v for v in decide.explain(job)}
    steps = [step for step in decide.FLOW if job is None or step.key in verdicts]
    body = [text(0, 16, title, extra=' font-weight="600"')]
    for i, step in enumerate(steps):
        body.append(_step(step, verdicts.get(step.key), 32 + i * (_ROW + _GAP), last=i == len(steps) - 1))
    said = [f"{s.question} {_answer(verdicts.get(s.key))}".strip() + f"; if not: {s.otherwise}." for s in steps]
    return svg(title, " ".join(said), "".join(body), _BOX + 70 + _SIDE, 32 + len(steps) * (_ROW + _GAP))


def _answer(verdict: decide.Verdict | None) -> str:
    """Yes or no with both numbers; empty without a job."""
    if verdict is None:
        return ""
    value, _, unit = show(verdict.value, verdict.unit).partition(" ")
    threshold = show(verdict.threshold, verdict.unit)
    if threshold.partition(" ")[2] != unit:  # 800 MB against 80 GB needs both units
        value = f"{value} {unit}"
    return f"{'Yes' if verdict.ok else 'No'}: {value} against {threshold}"


def _step(step: decide.Step, verdict: decide.Verdict | None, y: float, last: bool) -> str:
    """One question in its box, the arrow to the next, and the advice beside it."""
    colour = "currentColor" if verdict is None else _OK if verdict.ok else _BAD
    width = 1 if verdict is None else 2.5
    parts = [
        f'<rect x="1" y="{number(y)}" width="{_BOX}" height="{_ROW}" rx="6" fill="none" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    ]
    lines = (
        textwrap.wrap(step.question, 40) if verdict is None else [*textwrap.wrap(step.question, 40), _answer(verdict)]
    )
    top = y + _ROW / 2 - (len(lines) - 1) * _LINE / 2 + 4.5
    for i, line in enumerate(lines):
        strong = ' font-weight="600"' if verdict is not None and i == len(lines) - 1 else ""
        parts.append(text(_BOX / 2, top + i * _LINE, line, "middle", strong))
    if not last:
        parts += [stroke(_BOX / 2, y + _ROW, _BOX / 2, y + _ROW + _GAP), text(_BOX / 2 + 8, y + _ROW + 22, "yes")]
    chosen = verdict is None or not verdict.ok
    middle = y + _ROW / 2
    parts.append(
        stroke(_BOX + 1, middle, _BOX + 60, middle, colour if chosen else "currentColor", width if chosen else 1)
    )
    parts.append(text(_BOX + 22, middle - 6, "no"))
    advice = textwrap.wrap(step.otherwise, 34)
    for i, line in enumerate(advice):
        parts.append(text(_BOX + 68, middle + 4.5 + (i - (len(advice) - 1) / 2) * _LINE, line))
    return "".join(parts)


def verdicts(job: Job) -> Picture:
    """The verdicts of the flow as a table: question, yes or no, value, threshold, why."""
    found = decide.explain(job)
    rows = "".join(
        f"<tr><th scope='row'>{escape(v.question)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in ("yes" if v.ok else "NO", *_sides(v), v.why))
        + "</tr>"
        for v in found
    )
    head = "".join(f"<th>{word}</th>" for word in ("question", "answer", "value", "threshold", "why"))
    words = "; ".join(f"{v.question} {'yes' if v.ok else 'no'}" for v in found)
    return Picture(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>", words)


def _sides(verdict: decide.Verdict) -> tuple[str, str]:
    return show(verdict.value, verdict.unit), show(verdict.threshold, verdict.unit)
