"""Puzzles: the kept solutions meet the closed forms, questions leave them out, usual mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_lib import collectives, pp, puzzles
from scaling_lib.__main__ import main
from scaling_lib.mesh import all_gather, all_reduce, einsum, keep, local
from scaling_lib.questions import QuestionError
from scaling_lib.schedules import parse_schedule
from scaling_lib.simulate import simulate

MESH = [name for name in puzzles.NAMES if name not in puzzles.SCHEDULES]


def kept(name: str) -> Any:
    return puzzles._module(name)


@pytest.mark.parametrize("name", MESH)
@settings(deadline=None, max_examples=8)
@given(n=st.integers(2, 5), size=st.integers(1, 4))
def test_kept_solutions_are_right_on_any_size(name: str, n: int, size: int) -> None:
    results, wanted, budget = puzzles._run(name, kept(name).solve, n, size)
    for found, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-10)
    assert budget.sent > 0
    assert puzzles.check(name, kept(name).solve, [(n, size)])


@settings(deadline=None, max_examples=10)
@given(n=st.integers(2, 6), size=st.integers(1, 5))
def test_budgets_are_the_closed_forms(n: int, size: int) -> None:
    sent = {name: puzzles._run(name, kept(name).solve, n, size)[2].sent for name in MESH}
    assert sent["ring_all_reduce"] == pytest.approx(collectives.sent_bytes("all_reduce", 2 * n * size, n))
    assert sent["dp_step"] <= 3 * collectives.sent_bytes("all_reduce", 2 * (size**2 + n), n)
    assert sent["fsdp_prefetch"] == pytest.approx(5 * collectives.sent_bytes("all_gather", 2 * (n * size) ** 2, n))
    assert sent["sequence_parallel"] == pytest.approx(2 * collectives.sent_bytes("all_gather", 2 * 5 * n * size, n))
    assert sent["zero1_step"] == pytest.approx(collectives.sent_bytes("all_reduce", 2 * 3 * n * size, n))


@settings(deadline=None, max_examples=15)
@given(p=st.integers(2, 6), rounds=st.integers(1, 4))
def test_kept_schedules_meet_the_closed_forms(p: int, rounds: int) -> None:
    m = p * rounds
    plain = simulate(parse_schedule(kept("one_f_one_b").solve(p, m)))
    assert plain.makespan == pytest.approx(3 * m + pp.bubble_1f1b(p, 1, 1, 1))
    assert plain.peak_activations == tuple(pp.peak_1f1b(p, m, r) for r in range(p))
    inter = simulate(parse_schedule(kept("interleaved").solve(p, m)))
    assert inter.makespan == pytest.approx(3 * m + pp.bubble_interleaved(p, 2, 1, 1, 1))
    assert inter.peak_activations == tuple(pp.peak_interleaved(p, m, 2, r) for r in range(p))


@pytest.mark.parametrize("name", puzzles.NAMES)
def test_a_question_keeps_the_task_and_cuts_the_solution(name: str) -> None:
    text, source = puzzles.question(name), puzzles.source(name)
    cuts = source.count("# cut: ")
    assert text.count("# YOUR TURN: ") == text.count("raise NotImplementedError") == cuts >= 1
    assert source.count("# end") == cuts
    assert "# cut:" not in text
    assert "def case" not in text
    module: dict[str, Any] = {}
    exec(compile(text, name, "exec"), module)  # it is a program
    verdict = puzzles.check(name, module["solve"])
    assert (verdict.kind, verdict.name) == ("wrong", "NotImplementedError")


def test_unreduced_gradients_are_told() -> None:
    verdict = puzzles.check("hierarchical_all_reduce", lambda g: g)
    assert verdict.kind == "wrong"
    assert "partial sums" in verdict.message


def test_a_flat_all_reduce_sends_more_between_nodes() -> None:
    both = puzzles.check("hierarchical_all_reduce", lambda g: all_reduce(all_reduce(g, "Z"), "X"))
    assert (both.kind, both.name) == ("factor", "sends")


def test_gathering_all_layers_at_once_holds_too_much() -> None:
    def greedy(x: Any, weights: list[Any]) -> Any:
        ready = [all_gather(w, "D") for w in weights]
        for w in ready:
            x = kept("fsdp_prefetch")._renamed(einsum("B D, D E -> B E", x, w))
        return x

    verdict = puzzles.check("fsdp_prefetch", greedy)
    assert (verdict.kind, verdict.name) == ("factor", "holds")
    assert "the results are right" in verdict.message


def test_an_update_everywhere_is_not_zero() -> None:
    def whole(weight: Any, gradient: Any, momentum: Any) -> Any:
        g, m = all_reduce(gradient), all_gather(momentum, "D")
        m = local(lambda a, b: 0.9 * a + b, m, g)
        return local(lambda w, a: w - 0.1 * a, weight, m), keep(m, "D", "X")

    verdict = puzzles.check("zero1_step", whole)
    assert verdict.kind == "factor"
    assert verdict.name in ("sends", "holds")


def test_an_average_for_a_sum_is_recognised() -> None:
    def averaged(x: Any, weights: Any, d_out: Any) -> Any:
        return [local(lambda a, n=g.mesh.size: a / n, g) for g in kept("dp_step").solve(x, weights, d_out)]

    verdict = puzzles.check("dp_step", averaged)
    assert "times 0.5" in verdict.message
    assert "average for a sum" in verdict.message


def test_slow_hungry_and_illegal_schedules_are_told() -> None:
    def gpipe(p: int, m: int) -> str:
        return "\n".join(",".join([f"{r}F{i}" for i in range(m)] + [f"{r}B{i}" for i in range(m)]) for r in range(p))

    def one_by_one(p: int, m: int) -> str:
        return "\n".join(",".join(f"{r}{k}{i}" for i in range(m) for k in "FB") for r in range(p))

    hungry, slow = puzzles.check("one_f_one_b", gpipe), puzzles.check("one_f_one_b", one_by_one)
    assert (hungry.kind, hungry.name) == ("factor", "memory")
    assert (slow.kind, slow.name) == ("factor", "time")
    assert puzzles.check("one_f_one_b", lambda p, m: "0B0").kind == "wrong"
    assert puzzles.check("one_f_one_b", lambda p, m: 3).kind == "wrong"
    assert puzzles.check("one_f_one_b", lambda p, m: gpipe(p, m + 1)).name == "size"
    assert puzzles.check("interleaved", gpipe).name == "size"


def test_what_is_no_function_or_no_puzzle_is_refused() -> None:
    assert puzzles.check("dp_step", 3).kind == "unit"  # type: ignore[arg-type]
    assert puzzles.check("dp_step", lambda *_: None).kind == "wrong"
    assert puzzles.check("dp_step", lambda x, w, d: kept("dp_step").solve(x, w, d)[:2]).name == "count"
    with pytest.raises(QuestionError, match="dp_step"):
        puzzles.question("dp_stp")


def test_the_command_shows_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["puzzle"]) == 0
    assert "zero1_step" in capsys.readouterr().out
    assert main(["puzzle", "sequence_parallel"]) == 0
    assert "YOUR TURN" in capsys.readouterr().out
    own = tmp_path / "own.py"
    own.write_text(puzzles.source("sequence_parallel"))
    assert main(["puzzle", "sequence_parallel", str(own)]) == 0
    own.write_text("solve = 1 +")
    assert main(["puzzle", "sequence_parallel", str(own)]) == 2
    own.write_text("x = 1")
    assert main(["puzzle", "sequence_parallel", str(own)]) == 2
