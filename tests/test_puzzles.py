"""Puzzles: the kept solutions meet the closed forms, questions leave them out, usual mistakes are told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_lib import collectives, pp, puzzles
from scaling_lib.__main__ import main
from scaling_lib.draw_trace import trace_svg
from scaling_lib.mesh import all_gather, local
from scaling_lib.questions import QuestionError
from scaling_lib.schedules import parse_schedule
from scaling_lib.simulate import simulate

MESH = [name for name in puzzles.NAMES if name not in puzzles.SCHEDULES]


def kept(name: str) -> Any:
    return puzzles._module(name)


@pytest.mark.parametrize("name", MESH)
@settings(deadline=None, max_examples=8)
@given(n=st.integers(2, 4), size=st.integers(1, 4))
def test_kept_solutions_are_right_on_any_size(name: str, n: int, size: int) -> None:
    kept_run = puzzles.run(name, kept(name).solve, n, size)
    for found, right in zip(kept_run.results, puzzles.wanted(name, n, size), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-10)
    assert kept_run.sent > 0
    assert puzzles.check(name, kept(name).solve, [(n, size)])


ALL_MISTAKES = [(name, *row) for name in puzzles.NAMES for row in kept(name).MISTAKES]


@pytest.mark.parametrize(
    ("name", "what", "why", "wrong"), ALL_MISTAKES, ids=[f"{name}-{what}" for name, what, _, _ in ALL_MISTAKES]
)
def test_a_usual_mistake_is_told_in_one_sentence(name: str, what: str, why: str, wrong: Any) -> None:
    verdict = puzzles.check(name, lambda *given: wrong(*given))
    assert (verdict.kind, verdict.name) == ("trap", what)
    assert verdict.message.startswith(f"Not yet: {why}")
    assert re.fullmatch(r"[^.]+\.", why), "one sentence"


@pytest.mark.parametrize("name", puzzles.NAMES)
def test_each_puzzle_knows_five_mistakes(name: str) -> None:
    assert len(puzzles.mistakes(name)) >= 5
    assert len({what for what, _ in puzzles.mistakes(name)}) == len(puzzles.mistakes(name))


@settings(deadline=None, max_examples=20)
@given(
    row=st.sampled_from([row for row in ALL_MISTAKES if row[0] in MESH]),
    n=st.integers(3, 4), size=st.integers(2, 4),
)  # fmt: skip
def test_a_mistake_is_refused_on_any_size(row: tuple[str, str, str, Any], n: int, size: int) -> None:
    name, _, _, wrong = row
    assert not puzzles.check(name, wrong, [(n, size)])


@pytest.mark.parametrize("name", puzzles.NAMES)
def test_success_is_shown_as_a_timeline_above_memory(name: str) -> None:
    picture = puzzles.check(name, kept(name).solve).picture
    assert len(re.findall(r"<rect|h[\d.]+v[\d.]+h-", picture)) >= 3  # boxes, or a path of them
    assert picture.count("<path") >= 1
    assert "hold" in picture
    assert picture == puzzles.picture(name, kept(name).solve), "two pictures differ"
    wrong = puzzles.check(name, kept(name).MISTAKES[0][2])
    assert wrong.picture == ""


def test_the_picture_shows_prefetch_and_what_is_held() -> None:
    trace = puzzles.run("fsdp_prefetch", kept("fsdp_prefetch").solve, 4, 2).trace
    moves = [e for e in trace if e.kind != "free"]
    assert "".join(e.kind[0] for e in moves) == "nn" + "en" * 3 + "ee"
    layer = 2 * (4 * 2) ** 2  # bytes of a gathered weight
    assert 2 * layer < max(e.held for e in moves) < 3 * layer
    picture = trace_svg("prefetch", trace)
    assert picture.count("matmul</title>") == picture.count("all-gather X</title>") == 5
    assert "At most" in picture
    with pytest.raises(ValueError, match="no move"):
        trace_svg("nothing", [])


@settings(deadline=None, max_examples=10)
@given(n=st.integers(2, 6), size=st.integers(1, 5))
def test_budgets_are_the_closed_forms(n: int, size: int) -> None:
    sent = {name: puzzles.run(name, kept(name).solve, n, size).sent for name in MESH}
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
    assert "MISTAKES" not in text
    assert "MISTAKES" not in puzzles.solution(name)
    assert "# cut" not in puzzles.solution(name)
    module: dict[str, Any] = {}
    exec(compile(text, name, "exec"), module)  # it is a program
    verdict = puzzles.check(name, module["solve"])
    assert (verdict.kind, verdict.name) == ("wrong", "NotImplementedError")


def test_what_no_known_mistake_does_is_still_told() -> None:
    scaled = puzzles.check("dp_step", lambda *a: [local(lambda g: 3 * g, r) for r in kept("dp_step").solve(*a)])
    assert (scaled.kind, scaled.name) == ("wrong", "numbers")
    assert "times 3" in scaled.message
    noisy = puzzles.check("sequence_parallel", lambda *a: local(np.tanh, kept("sequence_parallel").solve(*a)))
    assert "of its elements" in noisy.message
    block = kept("sequence_parallel").solve
    thrice = puzzles.check("sequence_parallel", lambda x, a, b: [all_gather(x, "D"), block(x, a, b)][1])
    assert (thrice.kind, thrice.name) == ("factor", "sends")
    held = puzzles.check("zero1_step", lambda w, g, m: [local(np.copy, w), kept("zero1_step").solve(w, g, m)][1])
    assert (held.kind, held.name) == ("factor", "holds")


def test_slow_hungry_and_illegal_schedules_are_told() -> None:
    def gpipe(p: int, m: int) -> str:
        return "\n".join(",".join([f"{r}F{i}" for i in range(m)] + [f"{r}B{i}" for i in range(m)]) for r in range(p))

    def one_by_one(p: int, m: int) -> str:
        return "\n".join(",".join(f"{r}{k}{i}" for i in range(m) for k in "FB") for r in range(p))

    hungry, slow = puzzles.check("one_f_one_b", gpipe), puzzles.check("one_f_one_b", one_by_one)
    assert hungry.name == "all forwards first"
    assert "device 1 holds 2 microbatches, 1 suffice" in hungry.message
    assert slow.name == "no warm-up"
    assert "takes 12 slots, 9 suffice" in slow.message
    assert puzzles.check("one_f_one_b", lambda p, m: "0B0").kind == "wrong"
    assert puzzles.check("one_f_one_b", lambda p, m: 3).kind == "wrong"
    assert puzzles.check("one_f_one_b", lambda p, m: gpipe(p, m + 1)).name == "size"
    assert puzzles.check("interleaved", gpipe).name == "size"
    swapped = puzzles.check("one_f_one_b", lambda p, m: gpipe(p, m) if p > 2 else kept("one_f_one_b").solve(p, m))
    assert "For 3 stages and 3 microbatches" in swapped.message


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
    assert main(["puzzle", "sequence_parallel", str(own), "--picture", str(tmp_path / "own.svg")]) == 0
    assert (tmp_path / "own.svg").read_text().startswith("<svg")
    own.write_text("solve = 1 +")
    assert main(["puzzle", "sequence_parallel", str(own)]) == 2
    own.write_text("x = 1")
    assert main(["puzzle", "sequence_parallel", str(own)]) == 2
