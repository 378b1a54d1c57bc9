"""Build-it puzzles on the virtual mesh: the solution is kept, the question is the solution with marked cells cut out.

A learner's function is run on several sizes and compared with the kept one: results, bytes sent, memory held, seconds
of the collectives; for a schedule its makespan and activations. The verdict is one sentence.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaling_lib import bank
from scaling_lib.answers import Verdict
from scaling_lib.catalogue import near
from scaling_lib.questions import QuestionError
from scaling_lib.schedules import ScheduleError, parse_schedule
from scaling_lib.simulate import simulate
from scaling_lib.units import show

NAMES = (
    "ring_all_reduce", "dp_step", "fsdp_prefetch", "sequence_parallel", "hybrid_forward", "hierarchical_all_reduce",
    "zero1_step",
    "one_f_one_b", "interleaved",
)  # fmt: skip
SCHEDULES = ("one_f_one_b", "interleaved")
SIZES = ((2, 1), (4, 3), (3, 2))
PIPELINES = ((2, 4), (4, 8), (3, 9))
_CUT = re.compile(r"^( *)# cut: (.*)\n(?:.*\n)*?\1# end\n", re.MULTILINE)


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


def question(name: str) -> str:
    """The puzzle as text: the task, and the solution with its marked cells cut out and their hints left."""
    text = _CUT.sub(lambda m: f"{m[1]}# YOUR TURN: {m[2]}\n{m[1]}raise NotImplementedError\n", source(name))
    return text.partition("\n\ndef case(")[0].rstrip() + "\n"


@dataclass(frozen=True)
class Budget:
    """What a run took. sent, held: bytes of the busiest device. seconds: of the collectives, 0 without a cluster."""

    sent: float
    held: float
    seconds: float


def _run(
    name: str, solve: Callable[..., Any], n: int, size: int
) -> tuple[list[np.ndarray], tuple[np.ndarray, ...], Budget]:
    """Results of a function on one case, what they should be, and what it took."""
    mesh, arguments, wanted = _module(name).case(n, size, np.random.default_rng(n * 100 + size))
    before = len(mesh.log)
    mesh.peak = start = mesh.live
    found = solve(*arguments)
    results = [r.whole() for r in (found if isinstance(found, (tuple, list)) else (found,))]
    del mesh.log[:before]
    seconds = mesh.seconds() if mesh.cluster else 0.0
    return results, wanted, Budget(mesh.sent(), mesh.peak - start, seconds)


def check(name: str, solve: Callable[..., Any], sizes: Sequence[tuple[int, int]] | None = None) -> Verdict:
    """Verdict on a learner's function, in one sentence.

    sizes: (devices, size) of the cases, or (stages, microbatches) of a schedule.
    """
    source(name)
    if not callable(solve):
        return Verdict("unit", f"give the function `solve` of the puzzle, not {type(solve).__name__}")
    judge = _judge_schedule if name in SCHEDULES else _judge_mesh
    for n, size in sizes or (PIPELINES if name in SCHEDULES else SIZES):
        wrong = judge(name, solve, n, size)
        if wrong is not None:  # a verdict that is not "right" is false
            return wrong
    return Verdict("right", "Right: results, bytes, memory and time are those of the kept solution.", score=1.0)


def _judge_mesh(name: str, solve: Callable[..., Any], n: int, size: int) -> Verdict | None:
    """What is wrong with a function on one mesh; None when nothing is."""
    at = f"On {n} devices"
    _, _, budget = _run(name, _module(name).solve, n, size)
    try:
        results, wanted, took = _run(name, solve, n, size)
    except Exception as error:  # whatever the learner's code does wrong is their verdict
        return Verdict("wrong", f"{at} it stops with {type(error).__name__}: {error}", type(error).__name__)
    if len(results) != len(wanted):
        return Verdict("wrong", f"{at} it returns {len(results)} arrays, {len(wanted)} are wanted", "count")
    for i, (found, right) in enumerate(zip(results, wanted, strict=True)):
        if found.shape != right.shape:
            return Verdict("wrong", f"{at} result {i} has shape {found.shape}, not {right.shape}", "shape")
        if not np.allclose(found, right, rtol=1e-7, atol=1e-9):
            return Verdict("wrong", f"{at} result {i} is {_slip(found, right, n)}", "numbers")
    for what, mine, most, unit in (
        ("sends", took.sent, budget.sent, "B"),
        ("holds", took.held, budget.held, "B"),
        ("takes", took.seconds, budget.seconds, "s"),
    ):
        if mine > most * (1 + 1e-9):
            more = f"{mine / most:.3g} times as much" if most else "where nothing is needed"
            return Verdict("factor", f"{at} the results are right, but it {what} {show(mine, unit)}, {more}", what, 0.5)
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
    return f"wrong in {np.mean(~np.isclose(found, right)):.0%} of its elements"


def _judge_schedule(name: str, solve: Callable[..., Any], p: int, m: int) -> Verdict | None:
    """What is wrong with a schedule as text; None when nothing is."""
    at = f"For {p} stages and {m} microbatches"
    kept = simulate(parse_schedule(_module(name).solve(p, m)))
    try:
        own = simulate(parse_schedule(str(solve(p, m))))
    except ScheduleError as error:
        return Verdict("wrong", f"{at}: {error}", "ScheduleError")
    except Exception as error:
        return Verdict("wrong", f"{at} it stops with {type(error).__name__}: {error}", type(error).__name__)
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
