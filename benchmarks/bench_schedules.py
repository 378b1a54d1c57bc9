"""Speed of schedule generation and simulation, next to other public code that does the same work where it is installed.

Run: python -m pytest benchmarks/bench_schedules.py --benchmark-columns=min,median,rounds -q
Not part of the test suite: it needs pytest-benchmark. Goals for 1F1B after import: p 16, m 128 in 5 ms; p 64, m 512
in 1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scaling_lib.draw_schedule import schedule_svg
from scaling_lib.schedule_generators import SCHEDULES, generate
from scaling_lib.simulate import Simulation, simulate

Benchmark = Callable[..., Any]


def generate_and_simulate(name: str, pp: int, m: int) -> Simulation:
    return simulate(generate(name, pp, m))


@pytest.mark.parametrize(("pp", "m", "goal"), [(16, 128, 5e-3), (64, 512, 1.0)])
def test_one_f_one_b(benchmark: Any, pp: int, m: int, goal: float) -> None:
    result = benchmark(generate_and_simulate, "1f1b", pp, m)
    assert result.makespan == 3 * (m + pp - 1)
    assert result.peak_activations == tuple(map(float, range(pp, 0, -1)))
    if benchmark.stats:  # absent with --benchmark-disable
        assert benchmark.stats.stats.min <= goal


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(benchmark: Any, name: str) -> None:
    assert benchmark(generate_and_simulate, name, 8, 32).makespan > 96


def test_picture(benchmark: Any) -> None:
    result = generate_and_simulate("1f1b", 8, 32)
    assert len(benchmark(schedule_svg, result)) > 1000


def test_torch_order(benchmark: Any) -> None:
    """The order alone (no times) as torch.distributed.pipelining makes it, p 16, m 128; and it is ours."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch is not installed")
    pp, m = 16, 128

    def theirs() -> dict[int, list[Any]]:
        schedule = object.__new__(schedules.Schedule1F1B)  # the order needs no process group, the constructor does
        schedule._num_stages, schedule._n_microbatches = pp, m
        order = schedule._get_pipeline_order()
        return {r: [a for a in own if a is not None and a.computation_type.value in "FB"] for r, own in order.items()}

    order = benchmark(theirs)
    ours = [[str(a) for a in own] for own in generate("1f1b", pp, m).order]
    assert [[str(a) for a in order[r]] for r in range(pp - 1)] == ours[:-1]
    # torch 2.14 numbers the forwards of the last rank from 1 in this listing (its runtime does not), so kinds only
    assert [a.computation_type.value for a in order[pp - 1]] == [a[2:3] for a in ours[-1]]


@pytest.mark.parametrize("name", ["interleaved", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev"])
def test_torch_rank_orders(benchmark: Any, name: str) -> None:
    """The order of the other schedules, rank by rank, p 4, m 8, two stages a rank; and it is ours."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch is not installed")
    kind = {
        "interleaved": schedules.ScheduleInterleaved1F1B, "looped-bfs": schedules.ScheduleLoopedBFS,
        "interleaved-zb": schedules.ScheduleInterleavedZeroBubble, "zb-v": schedules.ScheduleZBVZeroBubble,
        "dualpipev": schedules.ScheduleDualPipeV,
    }[name]  # fmt: skip
    pp, m = 4, 8

    def theirs() -> list[list[Any]]:
        schedule = object.__new__(kind)  # as above, without a process group
        schedule.pp_group_size, schedule._n_microbatches, schedule.num_stages = pp, m, 2 * pp
        schedule.n_local_stages, schedule._stages = 2, [None, None]
        schedule.number_of_rounds, schedule.microbatches_per_round = m // pp, pp
        return [[a for a in schedule._calculate_single_rank_operations(r) if a is not None] for r in range(pp)]

    order = benchmark(theirs)
    assert [[str(a) for a in own] for own in order] == [[str(a) for a in own] for own in generate(name, pp, m).order]
