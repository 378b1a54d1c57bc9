"""Generators: legal for all sizes they accept, hand-written small cases, misuse explained."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scaling_lib import job
from scaling_lib.schedule_generators import SCHEDULES, generate
from scaling_lib.schedule_search import zb_h2, zb_v_greedy
from scaling_lib.schedules import Pair, ScheduleError, first_error, parts, show_schedule
from scaling_lib.simulate import simulate

seconds = st.integers(1, 9).map(float)


def order(name: str, *sizes: int) -> list[str]:
    return show_schedule(generate(name, *sizes)).splitlines()


def test_small_cases_by_hand() -> None:
    assert order("gpipe", 2, 2) == ["0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1"]
    assert order("1f1b", 2, 3) == ["0F0,0F1,0B0,0F2,0B1,0B2", "1F0,1B0,1F1,1B1,1F2,1B2"]
    assert order("1f1b", 3, 1) == ["0F0,0B0", "1F0,1B0", "2F0,2B0"]
    assert order("zb-h1", 2, 2) == ["0F0,0F1,0I0,0W0,0I1,0W1", "1F0,1I0,1F1,1I1,1W0,1W1"]
    assert order("looped-bfs", 2, 2, 2)[0] == "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0"
    assert order("interleaved", 2, 2, 2) == [
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1",
        "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1",
    ]
    assert order("dualpipe", 2, 4) == [
        "0F0,1F2,0F1,1B2,(1F3;0B0)OVERLAP_F_B,1B3,0I1,0W1",
        "0F2,1F0,0F3,1B0,(1F1;0B2)OVERLAP_F_B,1B1,0I3,0W3",
    ]


def test_published_order_of_one_f_one_b() -> None:
    """Rank 0 of 4 with 8 microbatches, as drawn in arXiv 2104.04473, figure 4."""
    assert order("1f1b", 4, 8)[0] == "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7"


@pytest.mark.parametrize("name", SCHEDULES)
@settings(max_examples=25, deadline=None)
@given(pp=st.integers(1, 7), m=st.integers(1, 16), chunks=st.integers(2, 4), times=st.tuples(seconds, seconds, seconds))
def test_every_schedule_is_legal_and_conserves_work(
    name: str, pp: int, m: int, chunks: int, times: tuple[float, float, float]
) -> None:
    if name in ("dualpipe", "dualpipev"):  # both need a full pipeline, dualpipe even numbers
        pp += pp % 2
        m += m % 2 + 2 * pp
    free = name in ("interleaved", "looped-bfs", "interleaved-zb", "interleaved-overlap")
    assume(name == "looped-bfs" or not free or m % max(1, m // pp) == 0)
    schedule = generate(name, pp, m, chunks if free else None, times)
    assert first_error(schedule) is None
    result = simulate(schedule, *times)
    work = m * sum(times)
    assert sum(result.busy) == pytest.approx(pp * work)
    assert result.makespan >= work * (1 - 1e-12)
    assert all(idle >= -1e-9 for idle in (*result.idle_per_device, *result.idle_in_makespan))
    held = result.peak_activations
    assert min(held) > 0
    assert max(held) <= m


def test_only_the_dualpipes_and_the_overlapped_interleave_run_pairs() -> None:
    steps = {n: [s for own in generate(n, 4, 8).order for s in own] for n in SCHEDULES}
    paired = {n for n in SCHEDULES if any(isinstance(s, Pair) for s in steps[n])}
    assert paired == {"dualpipe", "dualpipev", "interleaved-overlap"}
    split = {n for n in SCHEDULES if any(a.kind == "W" for s in steps[n] for a in parts(s))}
    assert split == {"zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-zb", "dualpipe", "dualpipev"}


def test_jobs_know_the_same_schedules() -> None:
    assert set(job.SCHEDULES) == set(SCHEDULES) - {"interleaved-overlap"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1f1", 4, 8), "unknown schedule '1f1': did you mean 1f1b?"),
        (("dual-pipe", 4, 8), "did you mean dualpipe, dualpipev, gpipe?"),
        (("zzz", 4, 8), "unknown schedule 'zzz': known: 1f1b, dualpipe"),
        (("1f1b", 0, 8), "stages is 0: give a whole number of at least 1"),
        (("1f1b", 4, 2.5), "microbatches is 2.5"),
        (("1f1b", True, 2), "stages is True"),
        (("1f1b", 4, 8, 2), "1f1b always has 1 chunk a device, got 2; schedules with free chunks: interleaved, "),
        (("zb-v", 4, 8, 3), "zb-v always has 2 chunks a device, got 3"),
        (("interleaved", 4, 8, 1), "interleaved needs at least 2 chunks a device, got 1; with one it is 1f1b"),
        (("looped-bfs", 4, 8, 1), "with one it is gpipe"),
        (("interleaved-zb", 4, 8, 1), "with one it is zb-h1"),
        (("interleaved", 4, 8, 0), "chunks is 0"),
        (("interleaved", 4, 9), "9 microbatches do not divide into 2 equal rounds on 4 stages; use a multiple of 4"),
        (("dualpipe", 3, 8), "dualpipe needs an even number of stages"),
        (("dualpipe", 4, 9), "an even number of microbatches"),
        (("dualpipe", 4, 6), "of at least two a stage, got 4 stages and 6 microbatches"),
        (("dualpipev", 4, 7), "dualpipev needs at least two microbatches a device, got 7 on 4 devices"),
    ],
)
def test_misuse_is_explained(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        generate(*arguments)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_chunks_default_to_two() -> None:
    assert generate("interleaved", 4, 8) == generate("interleaved", 4, 8, 2)
    assert generate("zb-v", 4, 8, 2).chunks == 2
    assert generate("1f1b", 4, 8, 1).chunks == 1


def test_zb_h2_keeps_to_its_memory() -> None:
    for limit in (5, 6, 7, 8):
        result = simulate(zb_h2(4, 12, (1, 1, 1), limit=limit))
        assert max(result.peak_activations) == limit
    hand_made = simulate(zb_h2(4, 12, (1, 1, 1), limit=7))
    assert hand_made.idle_per_device == (0, 0, 0, 0), "2p - 1 microbatches are enough for no idle time"
    with pytest.raises(ScheduleError, match="cannot run its next forward within a limit of"):
        zb_h2(4, 12, (1, 1, 1), limit=-1)


def test_greedy_zb_v_is_no_worse_than_the_pattern() -> None:
    for times in ((2, 3, 1), (10, 11, 8), (10, 12, 9), (1, 2, 1)):
        greedy = simulate(zb_v_greedy(4, 12, times), *times)
        pattern = simulate(generate("zb-v", 4, 12), *times)
        assert max(greedy.idle_per_device) <= max(pattern.idle_per_device)
        assert max(greedy.peak_activations) <= 4


def test_searches_use_the_hop_time() -> None:
    slow = simulate(generate("zb-h2", 4, 12, None, (1, 1, 1), 0.5), p2p=0.5)
    blind = simulate(generate("zb-h2", 4, 12, None, (1, 1, 1)), p2p=0.5)
    assert max(slow.idle_per_device) < max(blind.idle_per_device)
    v_slow = simulate(generate("zb-v", 4, 12, None, (1, 1, 1), 0.5), p2p=0.5)
    v_blind = simulate(generate("zb-v", 4, 12), p2p=0.5)
    assert sum(v_slow.idle_per_device) < sum(v_blind.idle_per_device)
