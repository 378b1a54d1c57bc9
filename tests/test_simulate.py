"""Simulation: published makespans, hand-computed small cases, properties, misuse."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_lib.schedule_generators import SCHEDULES, generate, zb_v
from scaling_lib.schedules import Action, Schedule, ScheduleError, parse_schedule
from scaling_lib.simulate import simulate

# Makespans of orders taken from torch.distributed.pipelining, sail-sg and DeepSeek, replayed by another simulator;
# 1F1B, interleaved, ZB-H1, DualPipe and DualPipeV also agree with PP-Schedule-Visualization.
# (p, m, times): {(schedule, chunks, overlap): makespan}
VECTORS: dict[tuple[int, int, tuple[float, float, float]], dict[tuple[str, int | None, float], float]] = {
    (4, 8, (1, 1, 1)): {
        ("gpipe", None, 1): 33, ("1f1b", None, 1): 33, ("interleaved", 2, 1): 28.5, ("interleaved", 4, 1): 26.25,
        ("looped-bfs", 2, 1): 28.5, ("zb-h1", None, 1): 27, ("zb-h2", None, 1): 27, ("zb-v", None, 1): 25.5,
        ("interleaved-zb", 2, 1): 25.5, ("v-half", None, 1): 26.5, ("v-min", None, 1): 29.5,
        ("dualpipe", None, 1): 26, ("dualpipe", None, 0.75): 23,
        ("dualpipev", None, 1): 27, ("dualpipev", None, 0.75): 23.25,
    },
    (8, 32, (1, 1, 1)): {
        ("gpipe", None, 1): 117, ("1f1b", None, 1): 117, ("interleaved", 2, 1): 106.5, ("interleaved", 4, 1): 101.25,
        ("zb-h1", None, 1): 103, ("zb-h2", None, 1): 103, ("zb-v", None, 1): 99.5, ("interleaved-zb", 2, 1): 99.5,
        ("v-half", None, 1): 104.5, ("v-min", None, 1): 109.5, ("dualpipe", None, 1): 102,
        ("dualpipe", None, 0.75): 82.5, ("dualpipev", None, 1): 103, ("dualpipev", None, 0.75): 82.75,
    },
    (8, 16, (1, 1, 1)): {
        ("gpipe", None, 1): 69, ("1f1b", None, 1): 69, ("interleaved", 2, 1): 58.5, ("interleaved", 4, 1): 53.25,
        ("zb-h1", None, 1): 55, ("zb-h2", None, 1): 55, ("zb-v", None, 1): 51.5, ("dualpipe", None, 1): 54,
        ("dualpipe", None, 0.75): 46.5, ("dualpipev", None, 1): 55, ("dualpipev", None, 0.75): 46.75,
        ("v-half", None, 1): 56.5, ("v-min", None, 1): 61.5,
    },
    (4, 12, (2, 3, 1)): {
        ("gpipe", None, 1): 90, ("1f1b", None, 1): 90, ("interleaved", 2, 1): 81, ("interleaved", 4, 1): 76.5,
        ("zb-h1", None, 1): 84, ("zb-h2", None, 1): 80, ("zb-v", None, 1): 77.5, ("dualpipe", None, 1): 78,
        ("dualpipe", None, 0.75): 66, ("dualpipev", None, 1): 81.5, ("dualpipev", None, 0.75): 68,
        ("v-half", None, 1): 88, ("v-min", None, 1): 119.5,
    },
    (4, 12, (10, 11, 8)): {
        ("1f1b", None, 1): 435, ("interleaved", 2, 1): 391.5, ("interleaved", 4, 1): 369.75, ("zb-h1", None, 1): 387,
        ("zb-v", None, 1): 364.5, ("dualpipe", None, 1): 371, ("dualpipev", None, 1): 382.5,
    },
    (8, 24, (10, 12, 9)): {
        ("1f1b", None, 1): 961, ("interleaved", 2, 1): 852.5, ("interleaved", 4, 1): 798.25, ("zb-h1", None, 1): 835,
        ("zb-h2", None, 1): 814, ("zb-v", None, 1): 786, ("dualpipe", None, 1): 813, ("dualpipe", None, 0.75): 673.5,
        ("dualpipev", None, 1): 826.5, ("dualpipev", None, 0.75): 679.25, ("v-half", None, 1): 854.5,
        ("v-min", None, 1): 1006,
    },
    (4, 16, (2, 2, 2)): {("dualpipev", None, 5.5 / 6): 95.5},
}  # fmt: skip
FLAT = [(*size, *key, want) for size, rows in VECTORS.items() for key, want in rows.items()]


@pytest.mark.parametrize(("pp", "m", "times", "name", "chunks", "overlap", "makespan"), FLAT)
def test_published_makespans(
    pp: int, m: int, times: tuple[float, float, float], name: str, chunks: int | None, overlap: float, makespan: float
) -> None:
    result = simulate(generate(name, pp, m, chunks, times), *times, overlap=overlap)
    assert result.makespan == pytest.approx(makespan, rel=1e-14)


def test_published_fixed_zb_v_pattern() -> None:
    """PyTorch's order does not look at the times: 78 where the greedy search finds 77.5."""
    assert simulate(zb_v(4, 12), 2, 3, 1).makespan == 78


@pytest.mark.parametrize(("pp", "m", "times", "ideal"), [(4, 8, (1, 1, 1), 24), (8, 32, (1, 1, 1), 96),
    (8, 16, (1, 1, 1), 48), (4, 12, (2, 3, 1), 72), (4, 12, (10, 11, 8), 348), (8, 24, (10, 12, 9), 744)])  # fmt: skip
def test_published_ideals(pp: int, m: int, times: tuple[float, float, float], ideal: float) -> None:
    for name in SCHEDULES:
        assert simulate(generate(name, pp, m, None, times), *times).busy == pytest.approx((ideal,) * pp, rel=1e-14)


# (p, m): {(schedule, chunks, overlap): most idle device by its own clock}
BUBBLES: dict[tuple[int, int], dict[tuple[str, int | None, float], float]] = {
    (4, 8): {
        ("gpipe", None, 1): 9, ("1f1b", None, 1): 9, ("interleaved", 2, 1): 4.5, ("interleaved", 4, 1): 2.25,
        ("looped-bfs", 2, 1): 4.5, ("zb-h1", None, 1): 3, ("zb-h2", None, 1): 0, ("zb-v", None, 1): 0,
        ("interleaved-zb", 2, 1): 1.5, ("v-half", None, 1): 2.5, ("v-min", None, 1): 5.5, ("dualpipe", None, 1): 2,
        ("dualpipe", None, 0.75): 1.25, ("dualpipev", None, 1): 3,
    },
    (8, 32): {
        ("1f1b", None, 1): 21, ("interleaved", 2, 1): 10.5, ("interleaved", 4, 1): 5.25, ("zb-h1", None, 1): 7,
        ("zb-h2", None, 1): 0, ("zb-v", None, 1): 0, ("v-half", None, 1): 8.5, ("dualpipe", None, 1): 6,
        ("dualpipev", None, 1): 7,
    },
}  # fmt: skip

# (p, m): {(schedule, chunks): peak of each rank}
PEAKS: dict[tuple[int, int], dict[tuple[str, int | None], list[float]]] = {
    (4, 8): {
        ("gpipe", None): [8] * 4, ("1f1b", None): [4, 3, 2, 1], ("interleaved", 2): [5.5, 4.5, 3.5, 2.5],
        ("interleaved", 4): [4.75, 4.25, 3.75, 3.25], ("looped-bfs", 2): [8] * 4, ("zb-h1", None): [4] * 4,
        ("zb-h2", None): [8] * 4, ("zb-v", None): [4] * 4, ("interleaved-zb", 2): [4] * 4, ("v-half", None): [3] * 4,
        ("v-min", None): [2] * 4, ("dualpipe", None): [5] * 4, ("dualpipev", None): [4.5] * 4,
    },
    (8, 32): {
        ("1f1b", None): [8, 7, 6, 5, 4, 3, 2, 1], ("interleaved", 2): [11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5],
        ("interleaved", 4): [9.75, 9.25, 8.75, 8.25, 7.75, 7.25, 6.75, 6.25], ("zb-h1", None): [8] * 8,
        ("zb-h2", None): [16] * 8, ("zb-v", None): [8] * 8, ("v-half", None): [5] * 8, ("dualpipe", None): [9] * 8,
        ("dualpipev", None): [8.5] * 8,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("pp", "m", "name", "chunks", "overlap", "idle"),
    [(*size, *key, idle) for size, rows in BUBBLES.items() for key, idle in rows.items()],
)
def test_published_bubbles(pp: int, m: int, name: str, chunks: int | None, overlap: float, idle: float) -> None:
    assert max(simulate(generate(name, pp, m, chunks), overlap=overlap).idle_per_device) == idle


@pytest.mark.parametrize(
    ("pp", "m", "name", "chunks", "peaks"),
    [(*size, *key, peaks) for size, rows in PEAKS.items() for key, peaks in rows.items()],
)
def test_published_peaks(pp: int, m: int, name: str, chunks: int | None, peaks: list[float]) -> None:
    assert list(simulate(generate(name, pp, m, chunks)).peak_activations) == peaks
    if name.startswith("dualpipe"):
        assert list(simulate(generate(name, pp, m, chunks), overlap=0.75).peak_activations) == peaks


def test_published_peak_of_v_min() -> None:
    """The source gives one number: the most that any rank holds."""
    assert max(simulate(generate("v-min", 8, 32)).peak_activations) == 4


def test_two_devices_by_hand() -> None:
    """F 2, B 3 + 1, p2p 1. Device 1 waits 1 for each hop; device 0 for the way there and back."""
    result = simulate(generate("1f1b", 2, 2), 2, 3, 1, p2p=1)
    assert result.starts == ((0, 2, 10, 16), (3, 5, 9, 11))
    assert result.ends == ((2, 4, 14, 20), (5, 9, 11, 15))
    assert result.makespan == 20
    assert result.busy == (12, 12)
    assert result.idle_per_device == (8, 0)
    assert result.idle_in_makespan == (8, 8)
    assert result.bubble_of_total() == pytest.approx(16 / 40)
    assert result.bubble_of_ideal() == pytest.approx(16 / 24)
    assert result.bubble_of_total("device") == pytest.approx(8 / 32)
    assert result.bubble_of_ideal("device") == pytest.approx(8 / 24)
    assert result.activations(0) == ((0, 1), (2, 2), (14, 1), (20, 0))
    assert result.activations(1) == ((3, 1), (15, 0)), "one goes as the next comes"
    assert result.peak_activations == (2, 1)
    assert result.weights_held == (1, 1)


def test_split_backward_by_hand() -> None:
    """The gradient goes on after I, 1 before the weights are done; activations stay until W ends."""
    result = simulate(generate("zb-h1", 2, 2), 2, 3, 1)
    assert result.starts == ((0, 2, 7, 10, 12, 15), (2, 4, 7, 9, 12, 13))
    assert result.makespan == 16
    assert result.activations(1) == ((2, 1), (7, 2), (13, 1), (14, 0))
    assert result.peak_activations == (2, 2)


def test_pairs_by_hand() -> None:
    """Last stage of DualPipe on two devices: a pair takes overlap x 3, both parts end with it, memory counts both."""
    result = simulate(generate("dualpipe", 2, 4), overlap=0.75)
    assert result.starts[0] == (0, 1, 2, 3, 5, 7.25, 9.25, 10.25)
    assert result.busy == (11.25, 11.25)
    assert result.weights_held == (2, 2)
    assert result.activations(0) == ((0, 1), (1, 2), (2, 3), (7.25, 2), (9.25, 1), (11.25, 0))


def test_hops_within_a_device_are_free() -> None:
    """The fold of a V and the turn at the loss stay on one device: 4 hops there and 4 back for one microbatch.

    One weight gradient delays the fold on device 2, one ends the step on device 0.
    """
    assert simulate(generate("zb-v", 3, 1), p2p=10).makespan == 12 * 0.5 + 2 * 0.5 + 8 * 10
    assert simulate(generate("1f1b", 3, 1), p2p=10).makespan == 9 + 4 * 10
    assert simulate(generate("interleaved", 3, 1, 2), p2p=10).makespan == 9 + 10 * 10
    assert simulate(generate("dualpipe", 2, 4), p2p=10).starts[1][1] == 11


def test_unequal_stages() -> None:
    """The slow stage sets the pace: it starts after 1, waits 1 for its first gradient, works 48, and 2 follow."""
    result = simulate(generate("1f1b", 3, 8), stage_factors=(1, 2, 1))
    assert result.busy == (24, 48, 24)
    assert result.makespan == 1 + 1 + 48 + 2
    chunked = simulate(generate("interleaved", 2, 4, 2), stage_factors=(1, 1, 3, 1))
    assert chunked.busy == (4 * 1.5 * 4, 4 * 1.5 * 2)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(SCHEDULES), pp=st.sampled_from((2, 4, 6)), extra=st.integers(0, 2),
    times=st.tuples(*[st.integers(0, 8)] * 3), p2p=st.integers(0, 4),
    factors=st.lists(st.integers(1, 4), min_size=24, max_size=24),
)  # fmt: skip
def test_simulation_obeys_every_dependency(
    name: str, pp: int, extra: int, times: tuple[int, int, int], p2p: int, factors: list[int]
) -> None:
    """The timeline checked afresh: no overlap on a device, no input before it was made, nothing later than need be."""
    schedule = generate(name, pp, pp * (2 + extra), None, times, p2p)
    scale = [float(f) for f in factors[: schedule.n_stages]]
    result = simulate(schedule, *times, p2p=p2p, stage_factors=scale)
    spans = {}
    for d, steps in enumerate(schedule.order):
        for step, start, end in zip(steps, result.starts[d], result.ends[d], strict=True):
            for a in (step.forward, step.backward) if hasattr(step, "forward") else (step,):
                spans[a.stage, "B" if a.kind == "I" else a.kind, a.microbatch] = (d, start, end)
    for d, steps in enumerate(schedule.order):
        clock = 0.0
        for step, start, end in zip(steps, result.starts[d], result.ends[d], strict=True):
            ready, length = clock, 0.0
            for a in (step.forward, step.backward) if hasattr(step, "forward") else (step,):
                each = {"F": times[0], "I": times[1], "W": times[2], "B": times[1] + times[2]}[a.kind]
                length += each / schedule.chunks * scale[a.stage]
                last = a.stage == schedule.n_stages - 1
                before = {"F": (a.stage - 1, "F"), "W": (a.stage, "B")}.get(
                    a.kind, (a.stage, "F") if last else (a.stage + 1, "B"))
                if before[0] >= 0:
                    where, _, made = spans[*before, a.microbatch]
                    ready = max(ready, made + (p2p if where != d else 0))
            assert start == pytest.approx(ready)
            assert end - start == pytest.approx(length)
            clock = end
    assert result.makespan == pytest.approx(max(e[-1] for e in result.ends) - min(s[0] for s in result.starts))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 12), st.integers(1, 5))
def test_longer_hops_never_help(pp: int, m: int, p2p: int) -> None:
    schedule = generate("1f1b", pp, m)
    assert simulate(schedule, p2p=p2p).makespan >= simulate(schedule).makespan + 2 * (pp - 1) * p2p - 1e-9


def test_activations_end_at_zero_and_reach_the_peak() -> None:
    for name in SCHEDULES:
        result = simulate(generate(name, 4, 8))
        for device, peak in enumerate(result.peak_activations):
            curve = result.activations(device)
            assert curve[-1][1] == 0
            assert max(held for _, held in curve) <= peak
            assert [t for t, _ in curve] == sorted({t for t, _ in curve})


def test_integers_and_fractions_of_time() -> None:
    assert simulate(generate("1f1b", 3, 3), 1, 1, 1).makespan == 15
    with pytest.raises(ScheduleError, match="t_F is Fraction"):
        simulate(generate("1f1b", 3, 3), Fraction(1, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"t_F": -1}, "t_F is -1: give a finite number of seconds, zero or more"),
        ({"t_B": float("nan")}, "t_B is nan"),
        ({"t_W": float("inf")}, "t_W is inf"),
        ({"p2p": "1"}, "p2p is '1'"),
        ({"p2p": True}, "p2p is True"),
        ({"stage_factors": (1, 1)}, "2 stage factors for 4 stages: give one each"),
        ({"stage_factors": (1, 1, -1, 1)}, "stage factor 2 is -1"),
        ({"overlap": 1.5}, "give a number from 0.6667 to 1"),
        ({"overlap": 0.5}, "cannot end before the longer of the two; give a number from 0.6667 to 1"),
        ({"overlap": 0.7, "t_W": 4}, "give a number from 0.8333 to 1"),
        ({"overlap": 0.6, "t_F": 3}, None),
        ({"overlap": 0.59, "t_F": 3}, "give a number from 0.6 to 1"),
    ],
)
def test_misuse_is_explained(options: dict[str, object], message: str | None) -> None:
    schedule = generate("dualpipe", 4, 8)
    if message is None:
        assert simulate(schedule, **options).makespan > 0  # type: ignore[arg-type]
        return
    with pytest.raises(ScheduleError) as error:
        simulate(schedule, **options)  # type: ignore[arg-type]
    text = str(error.value)
    assert text.startswith(message) or (text.startswith("overlap is") and message in text)


def test_unknown_clock_is_explained() -> None:
    with pytest.raises(ScheduleError, match="clock is 'wall': use 'makespan'"):
        simulate(generate("1f1b", 2, 2)).bubble_of_total("wall")


def own(*lines: str) -> Schedule:
    """A schedule that was never checked."""
    order = [[Action(int(c[0]), c[1], int(c[2])) for c in line.split()] for line in lines]
    placement = tuple(tuple(sorted({a.stage for a in steps})) for steps in order)
    every = [a for steps in order for a in steps]
    return Schedule.of("own", 1 + max(a.stage for a in every), 1 + max(a.microbatch for a in every), placement, order)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1"), "the devices wait for each other"),
        (("0F0 0B0", "1F0"), "1B0 (or its split I and W) is missing"),
        (("0F0 0I0", "1F0 1I0 1W0"), "0W0 is missing"),
        (("0F0 0W0 0I0", "1F0 1I0 1W0"), "device 0, step 1 (0W0): needs 0I0 earlier"),
        (("0F0 0F0 0B0", "1F0 1B0"), "device 0, step 1 (0F0): device 0 has done it before"),
        (("0F0 0B0 0I0 0W0", "1F0 1B0"), "device 0, step 2 (0I0): device 0 has done it before"),
        (("0F0 1B0 0B0", "1F0"), "device 0, step 1 (1B0): needs 1F0 earlier on the same device"),
    ],
)
def test_illegal_orders_do_not_run(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        simulate(own(*lines))
    assert message in str(error.value)


def test_work_done_twice_is_refused_whatever_else_is_right() -> None:
    """A copy of a whole legal microbatch runs to its end, but not as a training step."""
    once = generate("1f1b", 2, 2)
    twice = Schedule("own", 2, 2, once.placement, tuple(own + own for own in once.codes))
    with pytest.raises(ScheduleError, match=r"device 0, step 4 \(0F0\): device 0 has done it before"):
        simulate(twice)


def test_weights_held_are_copies_of_a_share() -> None:
    for name in SCHEDULES:
        held = simulate(generate(name, 4, 8)).weights_held
        assert held == (2,) * 4 if name == "dualpipe" else held == (1,) * 4


def test_overlap_at_its_ends() -> None:
    schedule = generate("dualpipe", 2, 4)
    assert simulate(schedule, 0, 0, 0, overlap=0.1).makespan == 0, "no work, no least length"
    assert simulate(schedule, 2, 1, 1, overlap=0.5).busy[0] == 4 * 4 - 2
    with pytest.raises(ScheduleError, match=r"give a number from 0\.5 to 1"):
        simulate(schedule, 2, 1, 1, overlap=0.4)
    with pytest.raises(ScheduleError, match="overlap is nan: give a finite number"):
        simulate(schedule, overlap=float("nan"))


def test_a_device_without_work_is_refused() -> None:
    with pytest.raises(ScheduleError, match="device 1 has nothing to do"):
        simulate(Schedule("own", 2, 1, ((0, 1), ()), ((0,), ())))


def test_reading_and_running_a_readers_schedule() -> None:
    """Depth-first on two devices: each microbatch alone, so nothing overlaps."""
    result = simulate(parse_schedule("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1"))
    assert result.makespan == 12
    assert result.bubble_of_total() == 0.5
