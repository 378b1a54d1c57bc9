"""Printed and carried practice: exams with their keys, decks of cards, and the sources of the exercise notebooks.

All of it is derived from the bank; the same seed gives the same bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from scaling_lib import bank, given, quiz
from scaling_lib.catalogue import near
from scaling_lib.questions import Instance, Question, QuestionError, fill, in_unit, instance, pick, unit_words
from scaling_lib.quiz_html import prose

STYLE = """
body { font: 11pt/1.4 Georgia, serif; color: #111; max-width: 46em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 16pt; margin: 0; } .meta { color: #444; } ol.sheet > li { margin: 1.2em 0; break-inside: avoid; }
.room { height: 3.2cm; border-bottom: 1px solid #999; } code { font-size: 95%; } small { color: #444; }
details > summary { display: none; } .key p, .key ol { margin: .4em 0; }
.given { break-inside: avoid; } .given table { border-collapse: collapse; font-size: 8pt; margin: .8em 0 0; }
.given :is(td, th) { border: 1px solid #999; padding: .15em .4em; text-align: left; vertical-align: top; }
.given caption { text-align: left; font-weight: bold; } .given th { font-weight: normal; }
.given td { white-space: nowrap; } .given p { font-size: 9pt; line-height: 1.3; }
@page { size: A4; margin: 18mm; } @media print { body { margin: 0; max-width: none; padding: 0; } }
"""
ANKI_DECK, ANKI_MODEL = "Planning large training runs", "Planning large training runs: question"


def exam_questions(seed: int, n: int, minutes: float, topics: Sequence[str] | None = None) -> list[Instance]:
    """n questions that mix the chapters and fit the minutes, chosen by the seed, easy ones first.

    Raises QuestionError when the minutes do not suffice or a chapter is unknown.
    """
    for name in topics or ():
        if name not in bank.STEMS:
            raise QuestionError(f"no chapter {name!r}: {near(name, bank.STEMS)}")
    pool = [q for q in quiz.items() if q.kind in ("numeric", "choice", "audit") and (not topics or q.stem in topics)]
    if not 1 <= n <= len(pool):
        raise QuestionError(f"{n} questions asked for: the pool has {len(pool)}, use 1 to {len(pool)}")
    chosen: list[Question] = []
    stems = [s for s in bank.STEMS if any(q.stem == s for q in pool)]
    while len(chosen) < n:
        stem = stems[len(chosen) % len(stems)] if stems else ""
        left = [q for q in pool if q not in chosen and q.stem == stem] or [q for q in pool if q not in chosen]
        chosen.append(pick(left, "exam", seed, len(chosen)))
    needed = sum(q.minutes for q in chosen)
    if not needed <= minutes < math.inf:
        raise QuestionError(
            f"{n} questions take about {needed:g} minutes, {minutes:g} are given: ask fewer or give a number above that"
        )
    return [instance(q, seed) for q in sorted(chosen, key=lambda q: (q.difficulty, q.id))]


def exam_html(seed: int, asked: Sequence[Instance], minutes: float, key: bool) -> str:
    """One page: the exam with room to write, or its key."""
    title = f"{'Key to exam' if key else 'Exam'} {seed}"
    rows = []
    for one in asked:
        if key:
            steps = "".join(f"<li><strong>{name}.</strong> {prose(text)}</li>" for name, text in one.steps)
            traps = "; ".join(f"{in_unit(v, one.question.unit)} ({t.name})" for t, v in one.traps)
            extra = f"<p><small>Wrong answers: {prose(traps)}.</small></p>" if traps else ""
            rows.append(
                f"<li class='key'><p>{prose(one.prompt)}</p><p><strong>{prose(one.answer_text)}</strong></p>"
                f"<ol>{steps}</ol>{extra}</li>"
            )
        else:
            options = "".join(f"<li>{prose(o)}</li>" for o in one.options)
            unit = unit_words(one.question.unit)
            wanted = f" <small>[{escape(unit)}]</small>" if unit and not options else ""
            room = f"<ol type='a'>{options}</ol>" if options else "<div class='room'></div>"
            rows.append(f"<li><p>{prose(one.prompt)}{wanted}</p>{room}</li>")
    meta = "" if key else f"<p class='meta'>{len(asked)} questions, {minutes:g} minutes. Name: ____________________</p>"
    sheet = "" if key else figures_html(asked)
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{STYLE}</style></head>"
        f"<body><h1>{title}: planning large training runs</h1>{meta}{sheet}"
        f"<ol class='sheet'>{''.join(rows)}</ol></body></html>\n"
    )


def figures_html(asked: Sequence[Instance]) -> str:
    """The figures of the catalogue that the questions build on; empty when their prompts say everything."""
    found = "".join(table.html() for table in given.tables(asked))
    return f"<section class='given'>{found}<p><small>{escape(given.NOTE)}</small></p></section>" if found else ""


def browser() -> str | None:
    """A Chromium that prints: $CHROMIUM, or one that is installed."""
    named = os.environ.get("CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((path for path in map(shutil.which, names) if path), None)


def print_pdf(page: Path) -> Path | None:
    """The PDF of a page beside it; None when no Chromium is at hand. Raises OSError when it fails to print."""
    program, target = browser(), page.with_suffix(".pdf")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as profile:
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--no-sandbox",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
        ]
        done = subprocess.run(
            [*command, f"--print-to-pdf={target}", page.resolve().as_uri()],
            capture_output=True,
            timeout=120,
            check=False,
        )
    if done.returncode or not target.exists():
        raise OSError(f"{program} could not print {page}: {done.stderr.decode(errors='replace')[-300:]}")
    return target


def write_exam(folder: Path, seed: int, n: int, minutes: float, topics: Sequence[str] | None = None) -> list[Path]:
    """Exam and key as HTML, and as PDF where a Chromium is installed; the paths."""
    asked = exam_questions(seed, n, minutes, topics)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, key in ((f"exam-{seed}", False), (f"exam-{seed}-key", True)):
        page = folder / f"{name}.html"
        page.write_text(exam_html(seed, asked, minutes, key), encoding="utf-8")
        pdf = print_pdf(page)
        written += [page, *([pdf] if pdf else [])]
    return written


def stable_id(text: str) -> int:
    """A whole number that stays with a name, in the range that Anki uses for its ids."""
    return (1 << 30) + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % (1 << 30)


def card(question: Question) -> tuple[str, str, str]:
    """Id, front and back of a card, with the book's numbers."""
    asked = instance(question)
    front = f"<p>{prose(asked.prompt)}</p>" + (
        "<ol type='a'>" + "".join(f"<li>{prose(o)}</li>" for o in asked.options) + "</ol>" if asked.options else ""
    )
    steps = "".join(f"<li><b>{name}.</b> {prose(text)}</li>" for name, text in asked.steps)
    says = f"<p>{prose(fill(question.says[0], asked.values))}</p>" if question.says else ""
    answer = "" if question.says or question.kind == "code" else f"<p><b>{prose(asked.answer_text)}</b></p>"
    return question.id, front, f"{answer}{says}<ol>{steps}</ol>"


def changed() -> float:
    """When what the cards say last changed, seconds since 1970: $SOURCE_DATE_EPOCH, else the newest source file.

    Anki takes a card from a deck only when it is newer than the one it has. Raises QuestionError for no such time.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None and not given.isdecimal():
        raise QuestionError(f"SOURCE_DATE_EPOCH={given!r} is no whole number of seconds since 1970")
    package = Path(__file__).resolve().parent
    files = [*bank.folder().glob("*.py"), *package.glob("*.py"), *package.glob("data/*")]
    return float(given) if given else float(int(max(file.stat().st_mtime for file in files)))


def _without_dates(package: Path) -> None:
    """Pack a deck again with one date on every file, so that two runs give the same bytes."""
    with zipfile.ZipFile(package) as old:
        files = {name: old.read(name) for name in sorted(old.namelist())}
    with zipfile.ZipFile(package, "w") as new:
        for name, content in files.items():
            new.writestr(zipfile.ZipInfo(name), content)


def write_cards(folder: Path) -> list[Path]:
    """The deck as .apkg, whose cards replace those of an older deck, and as a table of tabs.

    Raises QuestionError when genanki, which packs the deck, is not installed.
    """
    try:
        import genanki
    except ImportError:
        raise QuestionError("the deck is packed by genanki, which is not installed: pip install genanki") from None
    rows = [(*card(q), q) for q in quiz.items()]
    sides = [{"name": "One", "qfmt": "{{Front}}", "afmt": "{{FrontSide}}<hr id=answer>{{Back}}"}]
    kind = genanki.Model(
        stable_id(ANKI_MODEL), ANKI_MODEL, fields=[{"name": "Id"}, {"name": "Front"}, {"name": "Back"}], templates=sides
    )
    deck = genanki.Deck(stable_id(ANKI_DECK), ANKI_DECK)
    for name, front, back, q in rows:
        deck.add_note(
            genanki.Note(
                model=kind, fields=[name, front, back], guid=genanki.guid_for(name), tags=[q.stem, q.kind, *q.tags]
            )
        )
    folder.mkdir(parents=True, exist_ok=True)
    package, table = folder / "cards.apkg", folder / "cards.tsv"
    genanki.Package(deck).write_to_file(str(package), timestamp=changed())
    _without_dates(package)
    table.write_text(
        "".join(f"{name}\t{front}\t{back}\t{' '.join(q.tags)}\n" for name, front, back, q in rows), encoding="utf-8"
    )
    return [package, table]


def _cell(code: str) -> str:
    return f"```{{code-cell}} python\n{code}\n```\n"


_HEAD = """\
---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

"""


def sheet_source(stem: str) -> str:
    """MyST source of a chapter's question sheet: each question, and a cell to check an answer in."""
    intro = (
        "Made from the bank, not by hand. Put your answer into the cell below a question and run it; hints and "
        "steps are folded under the question.\n"
    )
    parts = [_HEAD, f"# Exercises: {stem}\n\n{intro}", _cell("from scaling_lib.quiz import ask, check")]
    for q in quiz.items(chapter=stem):
        parts.append(f"## {q.id}\n")
        parts.append(_cell(f'ask("{q.id}")'))
        parts.append(
            _cell(
                "answer = None  # yours, e.g. a number with its unit\n"
                f'check("{q.id}", answer) if answer is not None else "no answer yet"'
            )
        )
    return "\n".join(parts)


def solution_source(stem: str) -> str:
    """MyST source of a chapter's worked solutions, with a check that the engine agrees."""
    parts = [
        _HEAD,
        f"# Worked solutions: {stem}\n\nMade from the bank, not by hand.\n",
        _cell("from scaling_lib.quiz import check, solve"),
    ]
    for q in quiz.items(chapter=stem):
        parts.append(f"## {q.id}\n")
        parts.append(_cell(f'print(solve("{q.id}"))'))
        if q.answer:
            asked = instance(q)
            typed = asked.answer_text[1] if q.options else asked.answer_text
            parts.append(_cell(f'check("{q.id}", {typed!r})'))
    return "\n".join(parts)


def puzzles_source(solved: bool) -> str:
    """MyST source of the puzzles' notebook, or of their solutions: task, code, verdict with its picture."""
    from scaling_lib import puzzles  # needs numpy, which the rest of this module does without

    intro = (
        "The kept solutions, each with its timeline above its memory, and what people often write instead."
        if solved
        else "Fill in what is marked YOUR TURN and run the cell below it. Right code is shown as a timeline above the "
        "memory it holds; wrong code is told why. The same in a terminal: `python -m scaling_lib puzzle`."
    )
    parts = [
        _HEAD,
        f"# {'Solutions of the puzzles' if solved else 'Puzzles'}\n\nMade from `exercises/puzzles`. {intro}\n",
        _cell("from scaling_lib.puzzles import check"),
    ]
    for name in puzzles.NAMES:
        text = puzzles.solution(name) if solved else puzzles.question(name)
        _, task, code = text.split('"""', 2)
        parts += [f"## {name}\n\n{task.strip()}\n", _cell(code.strip()), _cell(f'check("{name}", solve)')]
        if solved:
            parts.append("\n".join(f"- *{what}*: {why}" for what, why in puzzles.mistakes(name)) + "\n")
    return "\n".join(parts)


def drills_source() -> str:
    """MyST source of the notebook of drills: choose a chapter, get new numbers, answer, see the verdict."""
    return "\n".join([
        _HEAD,
        "# Drills\n\nNew numbers each time. The same in a terminal: "
            "`python -m scaling_lib drill`, with a clock and boxes that remember.\n",
        _cell("from scaling_lib.practice_widgets import drills\n\ndrills()"),
    ])  # fmt: skip


def mock_source() -> str:
    """MyST source of the mock interview's notebook."""
    return "\n".join([
        _HEAD,
        "# Mock interview\n\n45 minutes, eight stages, one case; choose another seed for another case. At the end "
            "stands a written debrief. The same in a "
        "terminal: `python -m scaling_lib mock --seed 1`.\n",
        _cell("from scaling_lib.practice_widgets import interview\n\ninterview(seed=1)"),
    ])  # fmt: skip


def sources() -> dict[str, str]:
    """Every generated source by its path below exercises/src."""
    stems = list(dict.fromkeys(q.stem for q in quiz.items()))
    files = {f"{stem}.md": sheet_source(stem) for stem in stems}
    files |= {f"solutions/{stem}.md": solution_source(stem) for stem in stems}
    files |= {"puzzles.md": puzzles_source(False), "solutions/puzzles.md": puzzles_source(True)}
    return {**files, "drills.md": drills_source(), "mock_interview.md": mock_source()}
