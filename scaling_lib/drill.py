"""The drill in a terminal: questions with new numbers, a clock, hints, verdicts; can be left and taken up again."""

from __future__ import annotations

import secrets
import shutil
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from scaling_lib import bank, given, leitner, quiz
from scaling_lib.catalogue import near
from scaling_lib.leitner import Estimate, Progress, Session
from scaling_lib.questions import Instance, QuestionError, instance
from scaling_lib.units import UnitError, digits

# kinds that a terminal can judge; explanations and code are for the notebook and the mock interview
KINDS = ("numeric", "choice", "audit", "estimate")
HELP = (
    "Answer with a unit, or: g the figures given by the catalogue, h a hint, s the steps, n the next one, "
    "q leave (progress is kept)."
)


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
        taken = None if fresh else unfinished(progress)
        session = replace(taken or plan(progress, names, minutes, clock()), owner=secrets.token_hex(8))
        leitner.save(path, replace(progress, session=session))
    if message:
        say(message)
    if taken:
        say(f"You left a drill with {counted(len(taken.queue))}; it goes on. (--new begins another.)")
    say(HELP)
    queue, started, results = list(session.queue), clock(), Counter[str]()

    def seconds() -> float:
        return session.seconds_left - (clock() - started)

    def left(rest: list[tuple[str, int]]) -> Session:
        return replace(session, queue=tuple(rest), seconds_left=max(60.0, seconds()))

    def put(right: bool, estimate: Estimate | None = None) -> None:
        # answer and queue go to disk together, so a drill that is killed asks nothing twice and skips nothing
        _, trouble = leitner.record(path, queue[0][0], right, clock(), estimate, left(queue[1:]))
        del queue[0]
        if trouble:
            say(trouble)

    try:
        while queue and seconds() > 0:
            results[_one(*queue[0], seconds(), put, read, say)] += 1
    except (EOFError, KeyboardInterrupt):
        if queue:
            leitner.update(path, lambda p: leitner.renewed(p, left(queue)))
            say(f"\nLeft with {counted(len(queue))} to go. The same command takes it up again.")
            return results["right"]
    progress, _ = leitner.update(path, lambda p: leitner.renewed(p, left([])))
    say(summary(progress, results))
    return results["right"]


def counted(n: int) -> str:
    """How many questions, in words."""
    return f"{n} question{'' if n == 1 else 's'}"


def unfinished(progress: Progress) -> Session | None:
    """What is left of the last drill; None for nothing. Questions that the bank has no more are left out."""
    queue = tuple(one for one in progress.session.queue if one[0] in bank.questions()) if progress.session else ()
    return replace(progress.session, queue=queue) if progress.session and queue else None


def _one(
    name: str, seed: int, left: float, put: Callable[..., None], read: Callable[[str], str], say: Callable[[str], None]
) -> str:
    """Ask one question until it is right, given up or skipped; the kind of the first verdict, which is put on file."""
    asked = instance(bank.question(name), seed)
    say(f"\n[{int(left // 60)}:{int(left % 60):02d} left] {quiz.Asked(asked, sheet=False)!r}")
    first, hints = "", 0
    while True:
        text = read("> ").strip()
        if text in ("q", "quit"):
            raise EOFError
        if text in ("g", "given"):
            say("\n".join(given.lines(asked)) or "The prompt says all that is needed.")
            continue
        if text in ("h", "hint"):
            say(asked.hints[min(hints, 2)])
            hints += 1
            continue
        if text in ("n", "next", "s", "steps"):
            if text.startswith("s"):
                say("\n".join(f"{step}. {line}" for step, line in asked.steps))
            if not first:
                put(False)
            return first or "skipped"
        verdict = quiz.grade(asked, text)
        say(str(verdict))
        if verdict.kind == "unit":
            continue
        if not first:
            first = verdict.kind
            put(bool(verdict) and hints < 3, estimate_of(asked, text))
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
