"""The bank of questions: found beside the package in a checkout, or handed over as text where there are no files.

exercises/bank/<stem>.py are plain Python files that define QUESTIONS, a tuple of `questions.Question`.
"""

from __future__ import annotations

import os
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from scaling_lib.catalogue import near
from scaling_lib.questions import Question, QuestionError

STEMS = (
    "scaling", "collectives", "memory", "dp", "fsdp", "tp", "hybrid", "pp", "crosspod", "budget", "decide", "reality",
    "interview",
)  # fmt: skip


def folder() -> Path:
    """The folder of the bank: $SCALING_BANK, else exercises/bank of the checkout. Raises QuestionError when absent."""
    named = os.environ.get("SCALING_BANK")
    path = Path(named) if named else Path(__file__).resolve().parent.parent / "exercises" / "bank"
    if not path.is_dir():
        raise QuestionError(
            f"no question bank at {path}: work in a checkout of the course, or set SCALING_BANK to its exercises/bank"
        )
    return path


def from_sources(sources: Mapping[str, str]) -> dict[str, Question]:
    """Questions from the texts of bank files by stem: `{"dp": "...Python..."}`, as a web page fetches them.

    Raises QuestionError for a file without QUESTIONS, an id of another chapter, or an id given twice.
    """
    found: dict[str, Question] = {}
    for stem, text in sources.items():
        module = types.ModuleType(f"bank_{stem}")
        exec(compile(text, f"exercises/bank/{stem}.py", "exec"), module.__dict__)  # our own files, not a reader's input
        questions = getattr(module, "QUESTIONS", None)
        if not isinstance(questions, tuple) or not all(isinstance(q, Question) for q in questions):
            raise QuestionError(f"exercises/bank/{stem}.py must define QUESTIONS, a tuple of questions")
        for question in questions:
            if question.stem != stem:
                raise QuestionError(f"question {question.id!r} stands in {stem}.py: its id must begin with {stem!r}")
            if question.id in found:
                raise QuestionError(f"two questions are called {question.id!r}: rename one")
            found[question.id] = question
    return found


@cache
def load(path: Path) -> Mapping[str, Question]:
    """Questions of a folder by id, chapters in the order of the course."""
    present = {p.stem: p for p in path.glob("*.py") if not p.stem.startswith("_")}
    unknown = sorted(set(present) - set(STEMS))
    if unknown:
        raise QuestionError(f"{path} holds {unknown[0]}.py, which is no chapter: {near(unknown[0], STEMS)}")
    stems = [stem for stem in STEMS if stem in present]
    return from_sources({stem: present[stem].read_text(encoding="utf-8") for stem in stems})


def questions() -> Mapping[str, Question]:
    """The whole bank by id."""
    return load(folder())


def question(name: str) -> Question:
    """One question by id. Raises QuestionError that lists near ids."""
    bank = questions()
    if name not in bank:
        raise QuestionError(f"no question {name!r}: {near(name, bank)}")
    return bank[name]
