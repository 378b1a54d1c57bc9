"""The mock interview: one case, eight stages, 45 minutes, follow-ups that depend on the answers, a written debrief."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from scaling_lib import bank, quiz
from scaling_lib.answers import Verdict
from scaling_lib.drill import told
from scaling_lib.questions import Instance, fill, instance, pick

MINUTES = 45.0


@dataclass(frozen=True)
class Stage:
    """One stage: its title, minutes, and the questions among which the seed picks."""

    title: str
    minutes: float
    questions: tuple[str, ...]


STAGES = (
    Stage("Clarify the problem", 4, ("interview.mock_clarify",)),
    Stage("Size the model", 4, ("memory.state", "budget.params")),
    Stage("FLOPs and days", 6, ("budget.days",)),
    Stage("Memory", 6, ("fsdp.state_per_chip", "memory.gathered_layer")),
    Stage("Communication and plan", 9, ("decide.pp_needed", "dp.mfu_cap", "fsdp.mfu_cap")),
    Stage("Schedule", 6, ("decide.microbatches", "decide.bubble")),
    Stage("Money and risk", 5, ("budget.cost", "budget.mtbf")),
    Stage("A twist", 5, ("scaling.fp8", "tp.audit_often", "decide.audit_unique", "memory.audit_selective")),
)
# one setting for all stages; each question takes the parameters that it knows
CASES = (
    {"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 8192, "batch": 4194304, "tokens": 15e12, "pp": 4, "tp": 8},
    {"model": "llama-3-8b", "cluster": "dgx-h100", "chips": 1024, "batch": 1048576, "tokens": 3e12, "pp": 4, "tp": 2},
    {
        "model": "llama-3-405b",
        "cluster": "dgx-h100",
        "chips": 16384,
        "batch": 16777216,
        "tokens": 15.6e12,
        "pp": 16,
        "tp": 8,
    },
    {"model": "llama-2-13b", "cluster": "dgx-h100", "chips": 256, "batch": 1048576, "tokens": 1e12, "pp": 4, "tp": 2},
)


@dataclass(frozen=True)
class Turn:
    """What happened in a stage: the question, verdicts, what was asked further with its answers, seconds taken."""

    stage: Stage
    asked: Instance
    verdicts: tuple[Verdict, ...]
    notes: tuple[tuple[str, str], ...]
    seconds: float

    @property
    def score(self) -> float:
        """1 for right at once, half for right at the second try, else the part that was earned."""
        if not self.verdicts:
            return 0.0
        if self.verdicts[0]:
            return 1.0
        return 0.5 * max(float(bool(self.verdicts[-1])), *(v.score for v in self.verdicts))


def questions_of(seed: int) -> list[tuple[Stage, Instance]]:
    """The eight stages with their questions, all in the case that belongs to the seed."""
    case = pick(CASES, "mock", seed)
    chosen = [(stage, pick(stage.questions, "mock", seed, stage.title)) for stage in STAGES]
    return [(stage, instance(bank.question(name), seed, case)) for stage, name in chosen]


def interview(seed: int, clock: Callable[[], float] = time.monotonic) -> Generator[str, str, str]:
    """The interview as a conversation: yields what the interviewer says, takes an answer, returns the debrief.

    A wrong answer brings its diagnosis and a second try; a right one the next question of the interviewer's, which is
    noted and not judged. An answer that cannot be read may be said again. Empty answers pass.
    """
    turns: list[Turn] = []
    start = clock()
    for number, (stage, asked) in enumerate(questions_of(seed), 1):
        began = clock()
        head = f"[{_clock(began - start)} of {MINUTES:g} min] {number}. {stage.title} ({stage.minutes:g} min)"
        said = f"{head}\n{quiz.Asked(asked)!r}"
        answer = yield said
        verdicts, notes = [quiz.grade(asked, answer)] if answer.strip() else [], []
        if verdicts and verdicts[0].kind == "unit":
            answer = yield f"{verdicts[0]}\nSay it again."
            verdicts = [quiz.grade(asked, answer)] if answer.strip() else []
        if verdicts and not verdicts[0]:
            again = yield f"{verdicts[0]}\nThink of this: {asked.hints[1]}\nTry once more."
            verdicts += [quiz.grade(asked, again)] if again.strip() else []
        elif verdicts and asked.question.follow_ups:
            following = fill(asked.question.follow_ups[0], asked.values)
            notes.append((following, (yield f"{verdicts[0]}\nAnd: {following}")))
        turns.append(Turn(stage, asked, tuple(verdicts), tuple(notes), clock() - began))
    return debrief(seed, turns)


def _clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def debrief(seed: int, turns: Sequence[Turn]) -> str:
    """The written debrief, Markdown: score, time, what went wrong, the worked steps, what to revise."""
    score = sum(t.score for t in turns) / len(STAGES)
    spent = sum(t.seconds for t in turns)
    lines = [f"# Mock interview {seed}", "", f"Score {score:.0%}, {_clock(spent)} of {MINUTES:g} minutes.", ""]
    lines += ["| stage | question | first answer | score | time |", "|---|---|---|---|---|"]
    for t in turns:
        first = t.verdicts[0].name or t.verdicts[0].kind if t.verdicts else "none"
        over = " (over)" if t.seconds > 60 * t.stage.minutes else ""
        lines.append(
            f"| {t.stage.title} | {t.asked.question.id} | {first} | {t.score:.0%} | {_clock(t.seconds)}{over} |"
        )
    for t in turns:
        if t.score < 1 or t.notes:
            lines += ["", f"## {t.stage.title}", "", t.asked.prompt, ""]
            lines += [f"- {v}" for v in t.verdicts]
            lines += [f"- Asked further: {question} You said: {answer or '(nothing)'}" for question, answer in t.notes]
        if t.score < 1:
            lines += ["", *(f"{i}. {name}. {text}" for i, (name, text) in enumerate(t.asked.steps, 1))]
    weak = list(dict.fromkeys(t.asked.question.stem for t in turns if t.score < 1))
    lines += ["", f"To revise: {', '.join(weak)}." if weak else "Nothing to revise: try another seed."]
    return "\n".join(lines) + "\n"


def run(
    seed: int,
    read: Callable[[str], str] = input,
    say: Callable[[str], None] = told,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Hold the interview in a terminal; the debrief, also when it is broken off."""
    talk = interview(seed, clock)
    try:
        said = next(talk)
        while True:
            say(said)
            try:
                answer = read("> ")
            except (EOFError, KeyboardInterrupt):
                say("\nBroken off; stages not reached count as unanswered.")
                read, say, answer = (lambda _: ""), (lambda _: None), ""
            said = talk.send(answer)
    except StopIteration as end:
        text = str(end.value)
    print(text)  # Markdown: its lines are not to be broken
    return text
