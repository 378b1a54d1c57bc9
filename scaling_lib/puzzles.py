"""Build-it puzzles on the virtual mesh: the solution is kept, the question is the solution with marked cells cut out.

A learner's function is run on every size from the smallest up and compared with the kept one: results and their layout,
order of moves, bytes sent, memory held, seconds of the collectives; for a schedule its makespan and activations. Wrong
code is recognised by running the usual mistakes, which stand beside the solution, to find the one that does the same.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaling_lib import bank
from scaling_lib.answers import Verdict
from scaling_lib.catalogue import near
from scaling_lib.draw_schedule import schedule_svg
from scaling_lib.draw_trace import Event, trace_svg
from scaling_lib.mesh import Mesh
from scaling_lib.questions import QuestionError
from scaling_lib.schedules import ScheduleError, parse_schedule
from scaling_lib.simulate import Simulation, simulate
from scaling_lib.units import show

NAMES = (
    "ring_all_reduce", "dp_step", "fsdp_prefetch", "sequence_parallel", "hybrid_forward", "hierarchical_all_reduce",
    "zero1_step",
    "one_f_one_b", "interleaved",
)  # fmt: skip
SCHEDULES = ("one_f_one_b", "interleaved")
# from small to large, so that the first size that fails is the smallest
SIZES = tuple((n, size) for n in (2, 3, 4) for size in (1, 2, 3))
PIPELINES = tuple((p, p * rounds) for p in (2, 3, 4) for rounds in (1, 2, 3))
_CUT = re.compile(r"^( *)# cut: (.*)\n(?:.*\n)*?\1# end\n", re.MULTILINE)
_CHECKER = "\n\n\n# The checker's part"


def folder() -> Path:
    """Where the kept solutions stand: beside the bank. Raises QuestionError when absent."""
    path = bank.folder().parent / "puzzles"
    if not path.is_dir():
        raise QuestionError(f"no puzzles at {path}: work in a checkout of the course")
    return path


def source(name: str) -> str:
    """The kept solution. Raises QuestionError that lists near names."""
    if name not in NAMES:
        raise QuestionError(f"no puzzle {name!r}: {near(name, NAMES)}")
    return (folder() / f"{name}.py").read_text(encoding="utf-8")


@cache
def _module(name: str) -> types.ModuleType:
    """The kept solution as a module."""
    module = types.ModuleType(f"puzzle_{name}")
    exec(compile(source(name), f"exercises/puzzles/{name}.py", "exec"), module.__dict__)  # our own files, not input
    return module


def solution(name: str) -> str:
    """The kept solution as text, without the checker's part."""
    text = re.sub(r"# cut: |^ *# end\n", lambda m: "# " if m[0] == "# cut: " else "", source(name), flags=re.MULTILINE)
    return text.partition(_CHECKER)[0].rstrip() + "\n"


def mistakes(name: str) -> tuple[tuple[str, str], ...]:
    """Names and sentences of the usual mistakes of a puzzle."""
    source(name)
    return tuple((what, why) for what, why, _ in _module(name).MISTAKES)


def question(name: str) -> str:
    """The puzzle as text: the task, and the solution with its marked cells cut out and their hints left."""
    text = _CUT.sub(lambda m: f"{m[1]}# YOUR TURN: {m[2]}\n{m[1]}raise NotImplementedError\n", source(name))
    return text.partition(_CHECKER)[0].rstrip() + "\n"


@dataclass(frozen=True)
class Run:
    """What a function did on one case.

    results: whole arrays. layouts: how they were cut. sent, held: bytes of the busiest device. seconds: of the
    collectives, 0 without a cluster. trace: every move. error: "type: message" when it stopped, and nothing else holds.
    """

    results: tuple[np.ndarray, ...] = ()
    layouts: tuple[str, ...] = ()
    sent: float = 0.0
    held: float = 0.0
    seconds: float = 0.0
    trace: tuple[Event, ...] = ()
    error: str = ""

    def like(self, other: Run, budgets: bool = True) -> bool:
        """Whether two runs cannot be told apart, but for the order of their moves; budgets: by memory and time too."""
        return (
            (self.error, self.layouts) == (other.error, other.layouts)
            and all(map(_same, self.results, other.results))
            and math.isclose(self.sent, other.sent)
            and (not budgets or all(map(math.isclose, (self.held, self.seconds), (other.held, other.seconds))))
        )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-7, atol=1e-9)


def _watch(mesh: Mesh) -> list[Event]:
    """Have a mesh write down every move from now on."""
    events: list[Event] = []
    counted = len(mesh.log)

    def note(op: str | None) -> None:
        nonlocal counted
        fresh = mesh.log[counted:]
        counted = len(mesh.log)
        if op is None:
            events.append(Event("free", "", mesh.live))
        elif fresh:
            events.append(Event("network", f"{fresh[-1].op} {fresh[-1].axes}", mesh.live))
        else:
            events.append(Event(op or "local", "", mesh.live))

    mesh.watch = note
    return events


def wanted(name: str, n: int, size: int) -> tuple[np.ndarray, ...]:
    """The results that a puzzle on the mesh must give on one case, computed on whole arrays."""
    right: tuple[np.ndarray, ...] = _module(name).case(n, size, np.random.default_rng(n * 100 + size))[2]
    return right


def run(name: str, solve: Callable[..., Any], n: int, size: int) -> Run:
    """What a function does on one case of a puzzle on the mesh."""
    mesh, arguments, _ = _module(name).case(n, size, np.random.default_rng(n * 100 + size))
    before = len(mesh.log)
    mesh.peak = start = mesh.live
    events = _watch(mesh)
    try:
        found = solve(*arguments)
        outputs = found if isinstance(found, (tuple, list)) else (found,)
        for output in outputs:
            if not hasattr(output, "whole"):
                raise TypeError(f"`solve` returns {type(output).__name__} where an array of the mesh is wanted")
        results = tuple(r.whole() for r in outputs)
    except Exception as error:  # whatever the learner's code does wrong is their verdict
        return Run(error=f"{type(error).__name__}: {error}")
    mesh.watch = None
    trace = tuple(Event(e.kind, e.label, e.held - start) for e in events)
    del mesh.log[:before]
    seconds = mesh.seconds() if mesh.cluster else 0.0
    return Run(results, tuple(r.layout for r in outputs), mesh.sent(), mesh.peak - start, seconds, trace)


def check(name: str, solve: Callable[..., Any], sizes: Sequence[tuple[int, int]] | None = None) -> Verdict:
    """Verdict on a learner's function; the picture of what it does when it is right.

    sizes: (devices, size) of the cases, or (stages, microbatches) of a schedule; all of SIZES or PIPELINES when None.
    """
    source(name)
    if not callable(solve):
        return Verdict("unit", f"give the function `solve` of the puzzle, not {type(solve).__name__}")
    judge = _judge_schedule if name in SCHEDULES else _judge_mesh
    for n, size in sizes or (PIPELINES if name in SCHEDULES else SIZES):
        wrong = judge(name, solve, n, size)
        if wrong is not None:  # a verdict that is not "right" is false
            return wrong
    message = "Right at every size: results, bytes, memory and time are those of the kept solution."
    return Verdict("right", message, score=1.0, picture=picture(name, solve))


def picture(name: str, solve: Callable[..., Any]) -> str:
    """Timeline above memory, as SVG: of a schedule for 4 stages and 8 microbatches, else of a run on 4 devices."""
    if name in SCHEDULES:
        return schedule_svg(simulate(parse_schedule(solve(4, 8), name.replace("_", " "))))
    return trace_svg(name.replace("_", " "), run(name, solve, 4, 2).trace)


def _told(wrong: Verdict, mistakes: Sequence[tuple[int, str, str]]) -> Verdict:
    """The verdict with the name and sentence of the usual mistake that does the same, where there is one.

    mistakes: those that do, each with how like it is, as on other sizes and move by move; the likest is told.
    """
    if wrong.name == NotImplementedError.__name__:
        return Verdict("wrong", "The marked cells are not filled in yet.", wrong.name)
    if not mistakes:
        return replace(wrong, message=f"{wrong.message}.")
    _, name, why = max(mistakes, key=lambda m: m[0])
    return Verdict("trap", f"Not yet: {why} ({wrong.message}.)", name, wrong.score)


@cache
def _kept(name: str, n: int, size: int) -> Run:
    """The kept solution on one case: the budgets."""
    return run(name, _module(name).solve, n, size)


def _judge_mesh(name: str, solve: Callable[..., Any], n: int, size: int) -> Verdict | None:
    """What is wrong with a function on one mesh; None when nothing is."""
    module = _module(name)
    own, kept = run(name, solve, n, size), _kept(name, n, size)
    wrong = _difference(own, kept, wanted(name, n, size), f"On {n} devices", n, getattr(module, "order", None))
    if wrong is None:
        return None
    right = wrong.score > 0  # the numbers are: then only the budgets tell mistakes apart
    alike = [m for m in module.MISTAKES if run(name, m[2], n, size).like(own, right)]
    if not alike:
        return _told(wrong, [])
    large = run(name, solve, *SIZES[-1])  # on few devices different mistakes coincide
    ranks = [
        (other.like(large, right), other.trace == large.trace) for other in (run(name, m[2], *SIZES[-1]) for m in alike)
    ]
    return _told(
        wrong, [(10 * same + moves, what, why) for (same, moves), (what, why, _) in zip(ranks, alike, strict=True)]
    )


def _difference(
    own: Run, kept: Run, right: Sequence[np.ndarray], at: str, n: int, order: Callable[[Any], str] | None
) -> Verdict | None:
    """How a run differs from what is wanted: results first, then their layout, the order of moves, and the budgets."""
    if own.error:
        return Verdict("wrong", f"{at} it stops with {own.error}", own.error.partition(":")[0])
    if len(own.results) != len(right):
        return Verdict("wrong", f"{at} it returns {len(own.results)} arrays, {len(right)} are wanted", "count")
    for i, (found, good) in enumerate(zip(own.results, right, strict=True)):
        if found.shape != good.shape:
            return Verdict("wrong", f"{at} result {i} has shape {found.shape}, not {good.shape}", "shape")
        if not _same(found, good):
            return Verdict("wrong", f"{at} result {i} is {_slip(found, good, n)}", "numbers")
    for i, (layout, cut) in enumerate(zip(own.layouts, kept.layouts, strict=True)):
        if layout != cut:
            return Verdict("wrong", f"{at} the numbers are right, but result {i} is {layout}, not {cut}", "layout", 0.5)
    late = order([(e.kind, e.label) for e in own.trace]) if order else ""
    if late:
        return Verdict("factor", f"{at} the results are right, but {late}", "order", 0.5)
    for what, mine, most, unit, look in (
        ("sends", own.sent, kept.sent, "B", "look for a move too many, or for a whole array where a part would do"),
        ("holds", own.held, kept.held, "B", "look for what is gathered too early, or kept when it is done with"),
        ("takes", own.seconds, kept.seconds, "s", "look for moves that wait for each other and need not"),
    ):
        if mine > most * (1 + 1e-9):
            more = f"{mine / most:.3g} times as much as needed" if most else "where nothing is needed"
            said = f"{at} the results are right, but it {what} {show(mine, unit)}, {more}: {look}"
            return Verdict("factor", said, what, 0.5)
    return None


def _slip(found: np.ndarray, right: np.ndarray, n: int) -> str:
    """What a wrong result looks like."""
    scale = float(np.vdot(right, found) / np.vdot(right, right))
    if np.allclose(found, scale * right, rtol=1e-6, atol=1e-9) and not math.isclose(scale, 0, abs_tol=1e-9):
        why = (
            " (an average for a sum, or a sum taken twice?)"
            if math.isclose(scale, 1 / n) or scale == round(scale)
            else ""
        )
        return f"the right one times {scale:.4g}{why}"
    off = ~np.isclose(found, right)
    first = tuple(int(i) for i in np.argwhere(off)[0])
    there = f"{float(found[first]):.4g} stands where {float(right[first]):.4g} belongs"
    return f"wrong in {np.mean(off):.0%} of its elements, the first at {list(first)}: {there}"


def _simulated(solve: Callable[..., Any], p: int, m: int) -> Simulation | str:
    """A schedule as it runs, or "type: message" of what stopped it."""
    try:
        return simulate(parse_schedule(str(solve(p, m))))
    except Exception as error:  # whatever the learner's code does wrong is their verdict
        return f"{type(error).__name__}: {error}"


def _alike(own: Simulation | str, other: Simulation | str) -> bool:
    """Whether two schedules, or two errors, are the same."""
    if isinstance(own, str) or isinstance(other, str):
        return own == other
    return own.schedule.order == other.schedule.order or (
        (own.makespan, own.peak_activations, own.schedule.n_stages, own.schedule.placement)
        == (other.makespan, other.peak_activations, other.schedule.n_stages, other.schedule.placement)
    )


def _judge_schedule(name: str, solve: Callable[..., Any], p: int, m: int) -> Verdict | None:
    """What is wrong with a schedule as text; None when nothing is."""
    module = _module(name)
    own, kept = _simulated(solve, p, m), simulate(parse_schedule(module.solve(p, m)))
    wrong = _slower(own, kept, p, m)
    if wrong is None:
        return None
    large = _simulated(solve, *PIPELINES[-1])  # small schedules of different makers coincide
    return _told(
        wrong,
        [
            (_alike(_simulated(f, *PIPELINES[-1]), large), what, why)
            for what, why, f in module.MISTAKES
            if _alike(_simulated(f, p, m), own)
        ],
    )


def _slower(own: Simulation | str, kept: Simulation, p: int, m: int) -> Verdict | None:
    """How a schedule differs from what is wanted: whether it runs, its size, its makespan, what its devices hold."""
    at = f"For {p} stages and {m} microbatches"
    if isinstance(own, str):
        kind, _, why = own.partition(": ")
        said = f"{at}: {why}" if kind == ScheduleError.__name__ else f"{at} it stops with {own}"
        return Verdict("wrong", said, kind)
    if (len(own.busy), own.schedule.n_microbatches, own.schedule.n_stages) != (p, m, kept.schedule.n_stages):
        what = f"{len(own.busy)} devices, {own.schedule.n_stages} stages, {own.schedule.n_microbatches} microbatches"
        return Verdict("wrong", f"{at} it has {what}", "size")
    if own.makespan > kept.makespan + 1e-9:
        return Verdict(
            "factor", f"{at} it is legal but takes {own.makespan:g} slots, {kept.makespan:g} suffice", "time", 0.5
        )
    for rank, (mine, most) in enumerate(zip(own.peak_activations, kept.peak_activations, strict=True)):
        if mine > most + 1e-9:
            return Verdict("factor", f"{at} device {rank} holds {mine:g} microbatches, {most:g} suffice", "memory", 0.5)
    return None
