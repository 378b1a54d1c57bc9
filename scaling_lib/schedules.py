"""Pipeline schedules as plain data: who does what, in which order.

An action is written as PyTorch writes it: `2F0` is stage 2, forward, microbatch 0. Kinds: F forward, B full backward,
I gradient of the input, W gradient of the weights; `(0F3;1B1)OVERLAP_F_B` is a forward and a backward run as one.
A schedule is a list of actions for each device. It fixes order only: times are given to `simulate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

KINDS = {"F": "forward", "B": "full backward", "I": "input gradient", "W": "weight gradient"}
_ACTION = re.compile(r"(\d+)([A-Za-z_]+)(\d+)\Z")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B\Z")


class ScheduleError(ValueError):
    """A schedule that cannot be built, read or run."""


class Action(NamedTuple):
    """One piece of work: a stage, a kind (F, B, I or W) and a microbatch, all counted from 0."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Pair(NamedTuple):
    """A forward and a backward that a device runs as one, each hiding the communication of the other."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Step = Action | Pair


def row(n_stages: int, n_microbatches: int, stage: int, kind: str) -> range:
    """Codes of one kind of action on one stage, by microbatch.

    Blocks F, B, I, W of n_stages rows each; backward rows count from the last stage, so that the code of an F or B is
    its place in the walk of a microbatch, forward through all stages and back.
    """
    block = "FBIW".index(kind) * n_stages + (stage if kind == "F" else n_stages - 1 - stage)
    return range(block * n_microbatches, (block + 1) * n_microbatches)


@dataclass(frozen=True)
class Schedule:
    """An order of work on each device.

    n_stages: pieces the model is cut into. placement: the stages whose weights each device holds (a stage may stand on
    two devices, as in DualPipe). codes: the steps of each device in order, as numbers (see `row`): half a million
    actions stay cheap; a pair is backward x 4 stages x microbatches + forward. `order` shows the same as actions.
    """

    name: str
    n_stages: int
    n_microbatches: int
    placement: tuple[tuple[int, ...], ...]
    codes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, name: str, n_stages: int, n_microbatches: int, placement: tuple[tuple[int, ...], ...],
           order: Iterable[Iterable[Step]]) -> Schedule:
        """A schedule from its steps. Raises ScheduleError for a stage, microbatch or kind that does not exist."""
        empty = cls(name, n_stages, n_microbatches, placement, ())
        return cls(name, n_stages, n_microbatches, placement, tuple(tuple(map(empty._code, steps)) for steps in order))

    @property
    def n_devices(self) -> int:
        """Pipeline degree p."""
        return len(self.codes)

    @property
    def chunks(self) -> int:
        """Stages that a device's share of the model (1/p of it) is cut into: v."""
        return self.n_stages // self.n_devices

    @property
    def block(self) -> int:
        """Actions of one kind: stages x microbatches."""
        return self.n_stages * self.n_microbatches

    @cached_property
    def order(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of each device, first to last."""
        return tuple(tuple(map(self._step, own)) for own in self.codes)

    def _code(self, step: Step) -> int:
        if isinstance(step, Pair):
            return self._code(step.backward) * 4 * self.block + self._code(step.forward)
        stage, kind, i = step
        if not (0 <= stage < self.n_stages and 0 <= i < self.n_microbatches and kind in KINDS):
            raise ScheduleError(f"action {step} does not exist: there are {self.n_stages} stages and "
                                f"{self.n_microbatches} microbatches, counted from 0, and the kinds {', '.join(KINDS)}")
        return row(self.n_stages, self.n_microbatches, stage, kind)[i]

    def _step(self, code: int) -> Step:
        backward, action = divmod(code, 4 * self.block)
        if backward:
            return Pair(self._action(action), self._action(backward))
        return self._action(action)

    def _action(self, code: int) -> Action:
        rows, i = divmod(code, self.n_microbatches)
        block, stage = divmod(rows, self.n_stages)
        return Action(stage if block == 0 else self.n_stages - 1 - stage, "FBIW"[block], i)

    def __str__(self) -> str:
        return show_schedule(self)


def parts(step: Step) -> tuple[Action, ...]:
    """The actions of a step: one, or the two of a pair."""
    return (step.forward, step.backward) if isinstance(step, Pair) else (step,)


def show_schedule(schedule: Schedule) -> str:
    """One line a device, actions separated by commas: the CSV that PyTorch reads as `compute_only`."""
    return "\n".join(",".join(map(str, steps)) for steps in schedule.order)


def parse_action(text: str) -> Step:
    """Read `2F0` or `(0F3;1B1)OVERLAP_F_B`. Raises ScheduleError for anything else."""
    text = text.strip()
    if pair := _PAIR.match(text):
        both = [part for part in map(parse_action, pair.groups()) if isinstance(part, Action)]  # no pair within a pair
        if [part.kind in kinds for part, kinds in zip(both, ("F", "BI"), strict=False)] == [True, True]:
            return Pair(*both)
        raise ScheduleError(f"{text!r} must pair a forward and a backward: write (0F3;1B1)OVERLAP_F_B")
    match = _ACTION.match(text)
    if match is None:
        raise ScheduleError(f"cannot read action {text!r}: write stage, kind and microbatch, e.g. 2F0")
    stage, kind, microbatch = match.groups()
    if kind not in KINDS:
        known = ", ".join(f"{k} ({name})" for k, name in KINDS.items())
        raise ScheduleError(f"action {text!r} has kind {kind!r}: use one of {known}")
    return Action(int(stage), kind, int(microbatch))


def _cells(line: str) -> Iterator[str]:
    """Cells of a line: split at commas and blanks; an empty cell is an idle slot and carries no order."""
    return (cell for cell in re.split(r"[,\s]+", line.strip()) if cell)


def parse_schedule(text: str, name: str = "own") -> Schedule:
    """Read a schedule, one line a device, and check it.

    Stages, microbatches and placement are taken from the actions. Raises ScheduleError that names the line, the cell
    or the first illegal action.
    """
    order: list[tuple[Step, ...]] = []
    for number, line in enumerate(filter(str.strip, text.splitlines())):
        try:
            order.append(tuple(parse_action(cell) for cell in _cells(line)))
        except ScheduleError as error:
            raise ScheduleError(f"device {number}: {error}") from None
    actions = [[a for step in steps for a in parts(step)] for steps in order]
    if not any(actions):
        raise ScheduleError("the schedule is empty: write one line a device, e.g. 0F0,0B0")
    everything = [a for own in actions for a in own]
    placement = tuple(tuple(sorted({a.stage for a in own})) for own in actions)
    n_stages = 1 + max(a.stage for a in everything)
    if n_stages % len(order):
        raise ScheduleError(f"{n_stages} stages on {len(order)} devices: give each device the same number of stages")
    schedule = Schedule.of(name, n_stages, 1 + max(a.microbatch for a in everything), placement, order)
    validate(schedule)
    return schedule


def first_error(schedule: Schedule, max_activations: float | None = None) -> str | None:
    """Explanation of the first illegal action, or None.

    max_activations: most activations a device may hold, in microbatches of its whole share of the model.
    Looked for in this order: an action out of its place, work that is missing, memory, a wait without end.
    """
    return (_wrong_action(schedule) or _missing(schedule) or _too_much_memory(schedule, max_activations)
            or _deadlock(schedule))


def validate(schedule: Schedule, max_activations: float | None = None) -> None:
    """Raise ScheduleError with `first_error`'s explanation unless the schedule can run to its end."""
    error = first_error(schedule, max_activations)
    if error:
        raise ScheduleError(error)


def _numbered(schedule: Schedule) -> Iterator[tuple[str, int, Step, Action]]:
    """Every action with a text that says where it stands."""
    for device, steps in enumerate(schedule.order):
        for number, step in enumerate(steps):
            for action in parts(step):
                yield f"device {device}, step {number} ({action})", device, step, action


def _wrong_action(schedule: Schedule) -> str | None:
    """An action that is misplaced, repeated, or earlier than what the same device must have done before it."""
    if len(schedule.placement) != schedule.n_devices:
        return f"placement lists {len(schedule.placement)} devices, order lists {schedule.n_devices}: give one each"
    done: dict[tuple[int, str, int], int] = {}
    for here, device, step, (stage, kind, i) in _numbered(schedule):
        if stage not in schedule.placement[device]:
            return f"{here}: stage {stage} is not on this device, it holds {list(schedule.placement[device])}"
        slot = "B" if kind == "I" else kind
        if (stage, slot, i) in done:
            return f"{here}: device {done[stage, slot, i]} has done it before; each microbatch passes a stage once"
        before = {"F": None, "B": "F", "I": "F", "W": "B"}[kind]
        if before and done.get((stage, before, i)) != device:
            return f"{here}: needs {stage}{'I' if kind == 'W' else before}{i} earlier on the same device"
        if isinstance(step, Pair) and step.forward[::2] == step.backward[::2]:
            return f"{here}: a backward cannot overlap its own forward"
        done[stage, slot, i] = device
        if kind == "B":
            done[stage, "W", i] = device
    return None


def _missing(schedule: Schedule) -> str | None:
    """The first action that no device does."""
    found = {(a.stage, "B" if a.kind == "I" else a.kind, a.microbatch) for *_, a in _numbered(schedule)}
    split = {(a.stage, a.microbatch) for *_, a in _numbered(schedule) if a.kind == "I"}
    for i in range(schedule.n_microbatches):
        for stage in range(schedule.n_stages):
            for kind in ("F", "B", *("W" if (stage, i) in split else "")):
                if (stage, kind, i) not in found:
                    name = f"{stage}{kind}{i}" + (" (or its split I and W)" if kind == "B" else "")
                    return f"{name} is missing: every microbatch needs a forward and a backward on every stage"
    return None


def _too_much_memory(schedule: Schedule, limit: float | None) -> str | None:
    """The first forward that takes a device over its limit."""
    if limit is None:
        return None
    held = [0] * schedule.n_devices
    for here, device, _, action in _numbered(schedule):
        held[device] += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        if held[device] > limit * schedule.chunks:
            return (f"{here}: the device would hold activations of {held[device] / schedule.chunks:g} microbatches, "
                    f"the limit is {limit:g}; do a backward (or the W that frees it) first")
    return None


def needs(action: Action, n_stages: int) -> Action | None:
    """The action on the neighbouring stage whose result this one waits for (a backward may be B or I)."""
    stage, kind, i = action
    if kind == "F":
        return Action(stage - 1, "F", i) if stage else None
    return Action(stage + 1, "B", i) if kind in "BI" and stage < n_stages - 1 else None


def _deadlock(schedule: Schedule) -> str | None:
    """Run the order without times; explain the first device that can never go on."""
    done: set[Action] = set()
    position = [0] * schedule.n_devices

    def blocker(step: Step) -> Action | None:
        wanted = (needs(a, schedule.n_stages) for a in parts(step))
        return next((w for w in wanted if w is not None and w not in done), None)

    moved = True
    while moved:
        moved = False
        for device, steps in enumerate(schedule.order):
            while position[device] < len(steps) and blocker(steps[position[device]]) is None:
                done.update(a._replace(kind="B") if a.kind == "I" else a for a in parts(steps[position[device]]))
                position[device] += 1
                moved = True
    stuck = [d for d, steps in enumerate(schedule.order) if position[d] < len(steps)]
    if not stuck:
        return None
    waits = [(schedule.order[d][position[d]], d) for d in stuck]
    told = "; ".join(f"device {d} at {step} waits for {blocker(step)}" for step, d in waits[:3])
    return f"device {stuck[0]}, step {position[stuck[0]]} ({waits[0][0]}): the devices wait for each other: {told}"
