"""The reader's progress: Leitner boxes, estimates and an unfinished drill, in one file that survives mishaps.

The file is replaced whole, so a crash leaves the old one; changes are made under a lock on a fresh reading, so two
sessions add up; a damaged file is set aside under another name and said, never overwritten.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scaling_lib.units import DAY

# days until a question in this box is asked again; a wrong answer moves it back to the first box
BOX_DAYS = (0.0, 1.0, 3.0, 7.0, 21.0)
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Card:
    """One question in its box. due: seconds since 1970. seen, right: answers so far."""

    box: int = 0
    due: float = 0.0
    seen: int = 0
    right: int = 0


@dataclass(frozen=True)
class Estimate:
    """One estimate: truth and answer in SI, with the reader's 90% interval where given."""

    question: str
    truth: float
    point: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Session:
    """A drill under way: what is still to be asked, and the seconds that remain. owner: the run that asks."""

    queue: tuple[tuple[str, int], ...]
    seconds_left: float
    owner: str = ""


@dataclass(frozen=True)
class Progress:
    """Everything the file holds."""

    cards: dict[str, Card] = field(default_factory=dict)
    estimates: tuple[Estimate, ...] = ()
    session: Session | None = None


class ProgressError(ValueError):
    """A file of progress that cannot be locked or written."""


def default_path() -> Path:
    """Where progress is kept: $XDG_DATA_HOME (else ~/.local/share)/scaling-course/progress.json."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "scaling-course" / "progress.json"


def answered(card: Card, right: bool, now: float) -> Card:
    """The card after an answer: one box up when right, back to the first when not."""
    box = min(card.box + 1, len(BOX_DAYS) - 1) if right else 0
    return Card(box, now + BOX_DAYS[box] * DAY, card.seen + 1, card.right + right)


def _decoded(text: str) -> Progress:
    """Progress from its text. Raises ValueError, KeyError or TypeError for anything else."""
    data = json.loads(text)
    cards = {
        str(k): Card(int(v["box"]), float(v["due"]), int(v["seen"]), int(v["right"])) for k, v in data["cards"].items()
    }
    if not all(0 <= c.box < len(BOX_DAYS) and 0 <= c.right <= c.seen for c in cards.values()):
        raise ValueError("a card outside its boxes")
    estimates = tuple(Estimate(**e) for e in data["estimates"])
    left = data["session"]
    if not left:
        return Progress(cards, estimates)
    queue = tuple((str(q), int(s)) for q, s in left["queue"])
    return Progress(cards, estimates, Session(queue, float(left["seconds_left"]), str(left.get("owner", ""))))


def load(path: Path) -> tuple[Progress, str]:
    """Progress and a message: empty progress for a missing file; for a damaged one too, after setting it aside."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Progress(), ""
    except (OSError, UnicodeDecodeError) as error:
        return Progress(), _set_aside(path, str(error))
    try:
        return _decoded(text), ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Progress(), _set_aside(path, f"{type(error).__name__}: {error}")


def _set_aside(path: Path, why: str) -> str:
    """Rename a damaged file to a free name and say so."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    try:
        path.rename(aside)
    except OSError as error:
        raise ProgressError(
            f"{path} is damaged ({why}) and cannot be set aside: {error.strerror}; move it away"
        ) from None
    return f"Your progress in {path} could not be read ({why}). It was kept as {aside.name}; a new file is begun."


def save(path: Path, progress: Progress) -> None:
    """Write progress whole: into a file beside it, flushed to disk, then renamed over the old one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(asdict(progress), file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise ProgressError(
            f"cannot write progress to {path}: {error.strerror}; set XDG_DATA_HOME to a folder of yours"
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock. Raises ProgressError when another session keeps it for long."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProgressError(
            f"cannot make {path.parent}: {error.strerror}; set XDG_DATA_HOME to a folder of yours"
        ) from None
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            # a lock is held for milliseconds; an old one belongs to a session that died
            try:
                if time.time() - lock.stat().st_mtime > _LOCK_SECONDS:
                    lock.unlink(missing_ok=True)
                    continue
            except FileNotFoundError:
                continue
            if time.monotonic() > deadline:
                raise ProgressError(f"another session holds {lock}; close it, or delete that file") from None
            time.sleep(0.02)
    try:
        yield
    finally:
        os.close(handle)
        lock.unlink(missing_ok=True)


def update(path: Path, change: Callable[[Progress], Progress]) -> tuple[Progress, str]:
    """Read, change and write progress under the lock; the new progress and what `load` had to say."""
    with locked(path):
        progress, message = load(path)
        progress = change(progress)
        save(path, progress)
    return progress, message


def renewed(progress: Progress, session: Session) -> Progress:
    """Progress with what is left of a drill; unchanged when another run has taken the drill's place."""
    if progress.session is None or progress.session.owner != session.owner:
        return progress
    return replace(progress, session=session if session.queue else None)


def record(
    path: Path, question: str, right: bool, now: float, estimate: Estimate | None = None, left: Session | None = None
) -> tuple[Progress, str]:
    """Put one answer on file, and in the same write what is left of its drill."""

    def change(p: Progress) -> Progress:
        cards = {**p.cards, question: answered(p.cards.get(question, Card()), right, now)}
        p = replace(p, cards=cards, estimates=(*p.estimates, estimate) if estimate else p.estimates)
        return renewed(p, left) if left else p

    return update(path, change)


@dataclass(frozen=True)
class Calibration:
    """How good estimates are. held: share of 90% intervals with the truth inside. mean_log_error: factors of ten."""

    n: int
    with_interval: int
    held: float | None
    mean_log_error: float | None
    curve: tuple[tuple[float, float], ...]


def calibration(estimates: Sequence[Estimate]) -> Calibration:
    """Score of estimates. curve: (widening of the intervals, share that then hold the truth), log scale, 1 as given."""
    import math

    errors = [abs(math.log10(e.point / e.truth)) for e in estimates if e.point * e.truth > 0]
    given = [e for e in estimates if e.low is not None and e.high is not None and 0 < e.low <= e.high]
    curve = []
    for widen in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
        inside = [
            e.point * ((e.low or 1) / e.point) ** widen <= e.truth <= e.point * ((e.high or 1) / e.point) ** widen
            for e in given
        ]
        if given:
            curve.append((widen, sum(inside) / len(given)))
    held = next((share for widen, share in curve if widen == 1.0), None)
    return Calibration(len(estimates), len(given), held, sum(errors) / len(errors) if errors else None, tuple(curve))


def choose(progress: Progress, ids: Sequence[str], now: float, n: int) -> list[str]:
    """Up to n questions: due ones first, lowest box first, unseen ones in the bank's order, chapters mixed."""

    def rank(name: str) -> tuple[bool, int, float]:
        card: Any = progress.cards.get(name)
        return (card.due > now, card.box, card.due) if card else (False, 0, 0.0)

    waiting: dict[str, list[str]] = {}
    for name in sorted(ids, key=rank):
        waiting.setdefault(name.partition(".")[0], []).append(name)
    chosen: list[str] = []
    while waiting and len(chosen) < n:
        for stem in list(waiting):
            if len(chosen) < n:
                chosen.append(waiting[stem].pop(0))
            if not waiting[stem]:
                del waiting[stem]
    return chosen
