"""The drill in a terminal: questions with new numbers, a clock, hints, verdicts; can be left and taken up again."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from scaling_lib import bank, leitner, quiz
from scaling_lib.catalogue import near
from scaling_lib.leitner import Estimate, Progress, Session
from scaling_lib.questions import Instance, QuestionError, instance
from scaling_lib.units import UnitError, digits

# kinds that a terminal can judge; explanations and code are for the notebook and the mock interview
KINDS = ("numeric", "choice", "audit", "estimate")
HELP = "Answer with a unit, or: h a hint, s the steps, n the next one, q leave (progress is kept)."


def told(text: str) -> None:
    """Print text in lines that end between words, at the width of the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    for line in text.split("\n"):
        print(textwrap.fill(line, width, subsequent_indent="  ", replace_whitespace=False) if line else "")


def topics(names: Sequence[str] | None) -> list[str]:
    """Ids of the questions of some chapters, all when None. Raises QuestionError for an unknown chapter."""
    for name in names or ():
        if name not in bank.STEMS:
            raise QuestionError(f"no chapter {name!r}: {near(name, bank.STEMS)}")
    return [q.id for q in quiz.items() if q.kind in KINDS and (not names or q.stem in names)]


def plan(progress: Progress, names: Sequence[str] | None, minutes: float, now: float) -> Session:
    """Questions for the minutes at hand, each with a seed that it was not asked with before."""
    if not 0 < minutes <= 600:
        raise QuestionError(f"{minutes:g} minutes: use more than 0 and at most 600")
    chosen = leitner.choose(progress, topics(names), now, max(1, round(minutes)))
    seeds = [(name, progress.cards[name].seen + 1 if name in progress.cards else 1) for name in chosen]
    return Session(tuple(seeds), 60 * minutes)


def estimate_of(asked: Instance, answer: str) -> Estimate | None:
    """What an answer to an estimate says about calibration; None for other kinds and unreadable answers."""
    if asked.question.kind != "estimate":
        return None
    try:
        point, low, high = quiz.interval(asked, answer)
    except UnitError:
        return None
    return Estimate(asked.question.id, float(asked.answer), point, low, high)


def run(
    names: Sequence[str] | None = None,
    minutes: float = 20,
    path: Path | None = None,
    fresh: bool = False,
    read: Callable[[str], str] = input,
    say: Callable[[str], None] = told,
    clock: Callable[[], float] = time.time,
) -> int:
    """Drill until the time is over, the questions are done or the reader leaves; the number of right answers.

    path: the file of progress, the reader's own when None. fresh: forget a drill that was left. read, say, clock: the
    terminal and the time, which tests replace.
    """
    path = path or leitner.default_path()
    with leitner.locked(path):
        progress, message = leitner.load(path)
    if message:
        say(message)
    session = progress.session if progress.session and not fresh else plan(progress, names, minutes, clock())
    if session is progress.session:
        say(f"You left a drill with {len(session.queue)} questions; it goes on. (--new begins another.)")
    say(HELP)
    results: Counter[str] = Counter()
    queue, started, seconds = list(session.queue), clock(), session.seconds_left
    try:
        while queue and clock() - started < seconds:
            name, seed = queue[0]
            kind = _one(path, name, seed, seconds - (clock() - started), read, say, clock)
            results[kind] += 1
            queue.pop(0)
    except (EOFError, KeyboardInterrupt):
        left = Session(tuple(queue), max(60.0, seconds - (clock() - started)))
        leitner.update(path, lambda p: replace(p, session=left))
        say(f"\nLeft with {len(queue)} questions to go. The same command takes it up again.")
        return results["right"]
    progress, _ = leitner.update(path, lambda p: replace(p, session=None))
    say(summary(progress, results))
    return results["right"]


def _one(
    path: Path, name: str, seed: int, left: float,
    read: Callable[[str], str], say: Callable[[str], None], clock: Callable[[], float],
) -> str:  # fmt: skip
    """Ask one question until it is right, given up or skipped; the kind of the first verdict."""
    asked = instance(bank.question(name), seed)
    say(f"\n[{int(left // 60)}:{int(left % 60):02d} left] {quiz.Asked(asked)!r}")
    first, hints = "", 0
    while True:
        text = read("> ").strip()
        if text in ("q", "quit"):
            raise EOFError
        if text in ("h", "hint"):
            say(asked.hints[min(hints, 2)])
            hints += 1
            continue
        if text in ("n", "next", "s", "steps"):
            if text.startswith("s"):
                say("\n".join(f"{step}. {line}" for step, line in asked.steps))
            if not first:
                leitner.record(path, name, False, clock())
            return first or "skipped"
        verdict = quiz.grade(asked, text)
        say(str(verdict))
        if verdict.kind == "unit":
            continue
        if not first:
            first = verdict.kind
            _, message = leitner.record(path, name, bool(verdict) and hints < 3, clock(), estimate_of(asked, text))
            if message:
                say(message)
        if verdict or asked.question.kind == "estimate":
            return first


def summary(progress: Progress, results: Counter[str]) -> str:
    """What a drill brought: verdicts, boxes, calibration."""
    total, lines = sum(results.values()), []
    if total:
        lines = [f"\n{results['right']} of {total} right at the first try."]
        lines.append(", ".join(f"{kind} {n}" for kind, n in sorted(results.items())))
    boxes = Counter(c.box for c in progress.cards.values())
    lines.append("Boxes: " + ", ".join(f"{i + 1}: {boxes[i]}" for i in range(len(leitner.BOX_DAYS))))
    score = leitner.calibration(progress.estimates)
    if score.mean_log_error is not None:
        lines.append(f"Estimates: {score.n}, off by a factor of {digits(10**score.mean_log_error, 2)} on average.")
    if score.held is not None:
        lines.append(f"Your 90% intervals held the truth in {score.held:.0%} of {score.with_interval}.")
        lines += [f"  widened {w:g} times: {'#' * round(20 * s):<20} {s:.0%}" for w, s in score.curve]
    return "\n".join(lines)
