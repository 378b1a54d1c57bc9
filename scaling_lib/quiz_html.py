"""Questions and verdicts as plain HTML: no script, everything folded in <details>, the same bytes at every run."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaling_lib.answers import Verdict
    from scaling_lib.questions import Instance

HINT_NAMES = ("nudge", "formula", "plug in")


def prose(text: str) -> str:
    """Text with `code` marked up and everything else escaped."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def fold(title: str, body: str) -> str:
    """A folded part."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def question_html(asked: Instance, shown: int = 0) -> str:
    """One question: prompt, options, hints, worked steps. shown: steps of a faded example printed in the open."""
    q = asked.question
    seed = "" if asked.seed is None else f' data-seed="{asked.seed}"'
    level = "●" * q.difficulty + "○" * (5 - q.difficulty)
    numbers = "" if asked.seed is None else f" · numbers {asked.seed}"
    head = f"{q.kind} · {level} · {q.minutes:g} min{numbers}"
    parts = [f'<p class="question-head"><code>{q.id}</code> <small>{head}</small></p>', f"<p>{prose(asked.prompt)}</p>"]
    if q.options:
        parts.append('<ol type="a">' + "".join(f"<li>{prose(o)}</li>" for o in asked.options) + "</ol>")
    if shown:
        parts.append(_steps(asked, 0, shown))
        parts.append(f"<p>Your turn: <strong>{', '.join(n for n, _ in asked.steps[shown:]).lower()}</strong>.</p>")
    from scaling_lib.given import lines

    figures = "".join(f"<li>{prose(line)}</li>" for line in lines(asked))
    if figures:
        parts.append(fold("Figures given", f"<ul>{figures}</ul>"))
    parts += [fold(f"Hint {i + 1}: {HINT_NAMES[i]}", f"<p>{prose(h)}</p>") for i, h in enumerate(asked.hints)]
    parts.append(fold("Worked steps" if not shown else "The other steps", _steps(asked, shown, None) + _after(asked)))
    return f'<div class="question" data-question="{q.id}"{seed}>{"".join(parts)}</div>'


def aloud_html(asked: Instance) -> str:
    """A question of an interview: the prompt, and folded its answers of three lengths, the rubric, what comes next."""
    from scaling_lib.questions import fill

    q = asked.question
    parts = [f"<p><strong>{prose(asked.prompt)}</strong> <small><code>{q.id}</code></small></p>"]
    for length, said in zip(("30 seconds", "2 minutes", "5 minutes"), q.says or (), strict=False):
        parts.append(fold(length, f"<p>{prose(fill(said, asked.values))}</p>"))
    for title, rows in (("A good answer names", [p.text for p in q.rubric]), ("The interviewer goes on", q.follow_ups)):
        if rows:
            parts.append(
                fold(title, "<ul>" + "".join(f"<li>{prose(fill(r, asked.values))}</li>" for r in rows) + "</ul>")
            )
    return f'<div class="question" data-question="{q.id}">{"".join(parts)}</div>'


def _steps(asked: Instance, start: int, stop: int | None) -> str:
    """Worked steps from one to another as a numbered list."""
    rows = "".join(f"<li><strong>{name}.</strong> {prose(text)}</li>" for name, text in asked.steps[start:stop])
    return f'<ol start="{start + 1}">{rows}</ol>' if start else f"<ol>{rows}</ol>"


def _after(asked: Instance) -> str:
    """What follows the steps: spoken answers, rubric, wrong answers and follow-ups."""
    from scaling_lib.questions import fill, in_unit

    q, parts = asked.question, []
    if q.says:
        rows = zip(("30 seconds", "2 minutes", "5 minutes"), q.says, strict=True)
        parts += [f"<p><strong>{t}.</strong> {prose(fill(s, asked.values))}</p>" for t, s in rows]
    if q.rubric:
        parts.append(
            "<p>Points:</p><ul>" + "".join(f"<li>{prose(fill(p.text, asked.values))}</li>" for p in q.rubric) + "</ul>"
        )
    wrong = [(t.name, in_unit(v, q.unit), fill(t.why, asked.values)) for t, v in asked.traps]
    wrong += [
        (o, "", fill(p.why, asked.values))
        for o, p in zip(asked.options, asked.choices, strict=True)
        if p.key != asked.answer
    ]
    if wrong:
        rows_html = "".join(
            f"<li>{prose(v + ': ' if v else '')}<em>{prose(n)}</em>. {prose(w)}</li>" for n, v, w in wrong
        )
        parts.append(f"<p>Wrong answers and what they betray:</p><ul>{rows_html}</ul>")
    if q.follow_ups:
        rows_html = "".join(f"<li>{prose(fill(f, asked.values))}</li>" for f in q.follow_ups)
        parts.append(f"<p>An interviewer goes on:</p><ul>{rows_html}</ul>")
    return "".join(parts)


def verdict_html(verdict: Verdict) -> str:
    """A verdict as one paragraph, announced to readers who hear the page, and its picture if it has one."""
    mark = {"right": "✓", "close": "≈", "partly": "≈", "unit": "?"}.get(verdict.kind, "✗")
    said = f'<p class="verdict verdict-{verdict.kind}" role="status">{mark} {prose(verdict.message)}</p>'
    return said + verdict.picture
