"""Closed forms of pipelining: against published values, against the simulation, and on a job."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_lib import pp
from scaling_lib.hardware import cluster
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.model import model
from scaling_lib.schedule_check import CASES, compare, table
from scaling_lib.schedule_generators import generate
from scaling_lib.schedule_search import zb_h2
from scaling_lib.schedules import ScheduleError
from scaling_lib.simulate import simulate

EQUAL = (1.0, 1.0, 1.0)
unequal = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


def test_both_ratios_by_hand() -> None:
    """4 stages, 4 microbatches: 3 of 7 slots idle, 3 idle slots for 4 of work."""
    assert pp.bubble_of_total(4, 4) == 3 / 7
    assert pp.bubble_of_ideal(4, 4) == 3 / 4
    assert pp.bubble_of_total(8, 32, 2) == 7 / 71
    assert pp.bubble_of_ideal(8, 32, 2) == 7 / 64
    assert pp.share_of_total(3, 4) == 3 / 7
    assert pp.share_of_ideal(3, 4) == 3 / 4
    assert pp.ideal_seconds(8, 1, 2, 3) == 48


@given(st.integers(2, 64), st.floats(0.01, 0.9), st.integers(1, 8))
def test_knob_gives_the_bubble_asked_for(p: int, share: float, v: int) -> None:
    assert pp.bubble_of_total(p, pp.microbatches_for_bubble(p, share, v), v) == pytest.approx(share)


def test_knob_by_hand() -> None:
    assert pp.microbatches_for_bubble(8, 0.1) == pytest.approx(63)
    assert pp.microbatches_for_bubble(8, 0.1, 3) == pytest.approx(21)
    assert pp.microbatches_for_bubble(1, 0.1) == 0


def test_published_table_of_zero_bubble() -> None:
    """arXiv 2401.10241, table 2, and DeepSeek-V3's way to write it with B the full backward."""
    f, b, w, p = 2.0, 3.0, 1.0, 6
    assert pp.bubble_1f1b(p, f, b, w) == 30
    assert pp.bubble_zb_h1(p, f, b, w) == 20 == (p - 1) * (f + (b + w) - 2 * w)
    assert pp.bubble_zb_h2(p, f, b, w) == 15
    assert pp.bubble_dualpipe(4, *EQUAL) == 2
    assert pp.bubble_dualpipe(4, *EQUAL, 0.75) == 1.25
    assert pp.bubble_dualpipev(4, *EQUAL) == 3
    assert pp.bubble_dualpipe(4, f, b, w) == 7, "simulated: 6"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(2, 4), unequal)
def test_one_f_one_b_forms_hold_for_all_times(p: int, rounds: int, v: int, times: tuple[int, int, int]) -> None:
    m = p * rounds
    for name, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", v), ("looped-bfs", v)):
        result = simulate(generate(name, p, m, chunks if chunks > 1 else None), *times)
        bubble = pp.BUBBLES[name](p, chunks, *times, 1.0)
        assert result.idle_in_makespan == pytest.approx([bubble] * p)
        assert result.idle_per_device[0] == pytest.approx(bubble)
        assert result.bubble_of_total() == pytest.approx(pp.bubble_of_total(p, m, chunks))
        assert result.bubble_of_ideal() == pytest.approx(pp.bubble_of_ideal(p, m, chunks))
        assert result.bubble_of_total() == pytest.approx(pp.share_of_total(bubble, pp.ideal_seconds(m, *times)))
        assert result.bubble_of_ideal() == pytest.approx(pp.share_of_ideal(bubble, pp.ideal_seconds(m, *times)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_zb_h1_form_holds_while_w_fits_the_gap(p: int, rounds: int, f: int, b: int, w: int) -> None:
    w = min(w, f, b)
    result = simulate(generate("zb-h1", p, p * rounds), f, b, w)
    assert max(result.idle_per_device) == pytest.approx(pp.bubble_zb_h1(p, f, b, w))


@pytest.mark.parametrize("p", range(1, 9))
def test_zero_bubble_forms_hold_for_equal_times(p: int) -> None:
    hand_made = simulate(zb_h2(p, 3 * p, EQUAL, limit=2 * p - 1))
    assert max(hand_made.idle_per_device) == pp.bubble_zb_h2(p, *EQUAL) == 0
    assert max(hand_made.idle_in_makespan) == (p - 1) * 1.0, "by the common clock the start-up remains"
    assert max(hand_made.peak_activations) == pp.peak_zb_h2(p, 3 * p)
    vee = simulate(generate("zb-v", p, 3 * p))
    assert max(vee.idle_per_device) == 0
    assert max(vee.idle_in_makespan) == (p - 1) / 2


@pytest.mark.parametrize("p", [2, 4, 6, 8])
@pytest.mark.parametrize("overlap", [1.0, 0.75, 0.7])
def test_dualpipe_forms_hold_for_equal_times(p: int, overlap: float) -> None:
    """By the common clock, on the devices at the turn: with overlap they run most pairs, so their work is shortest."""
    two_way = simulate(generate("dualpipe", p, 2 * p + 4), overlap=overlap)
    assert two_way.idle_in_makespan[p // 2] == pytest.approx(pp.bubble_dualpipe(p, *EQUAL, overlap))
    folded = simulate(generate("dualpipev", p, 2 * p + 3), overlap=overlap)
    assert folded.idle_in_makespan[-1] == pytest.approx(pp.bubble_dualpipev(p, *EQUAL, overlap))
    if overlap == 1:
        assert max(two_way.idle_per_device) == pytest.approx(pp.bubble_dualpipe(p, *EQUAL))
        assert max(folded.idle_per_device) == pytest.approx(pp.bubble_dualpipev(p, *EQUAL))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(2, 4), st.integers(2, 4), unequal, st.floats(0, 1))
def test_overlapped_interleave(p: int, rounds: int, v: int, times: tuple[int, int, int], part: float) -> None:
    f, b = times[0], times[1] + times[2]
    least = max(f, b) / (f + b)
    overlap = least + part * (1 - least)
    result = simulate(generate("interleaved-overlap", p, p * rounds, v), *times, overlap=overlap)
    assert result.makespan == pytest.approx(pp.total_interleaved_overlap(p, p * rounds, v, *times, overlap))


def test_overlapped_interleave_by_hand() -> None:
    """Victarry's form (p-1)(F+B)/v + (p(v-1)+1)(F+B)/v + (mv-p(v-1)-1) F&B/v, p 4, m 8, v 2, F+B 3, F&B 2.25."""
    assert pp.total_interleaved_overlap(4, 8, 2, *EQUAL, 0.75) == 3 * 1.5 + 5 * 1.5 + 11 * 1.125


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 7), st.integers(1, 20), st.integers(2, 4))
def test_peaks_equal_simulation(p: int, m: int, v: int) -> None:
    for name in ("gpipe", "1f1b", "zb-h1", "zb-v", "v-half", "v-min", "looped-bfs"):
        got = simulate(generate(name, p, m, v if name == "looped-bfs" else None)).peak_activations
        want = [pp.PEAKS[name](p, m, v, r) for r in range(p)]
        if name in ("zb-v", "v-half", "v-min"):
            assert max(got) <= max(want) + 1e-9
            assert m < 2 * p or max(got) == pytest.approx(max(want))
        else:
            assert list(got) == pytest.approx(want)
    if m % p == 0:
        got = simulate(generate("interleaved", p, m, v)).peak_activations
        assert list(got) == pytest.approx([pp.PEAKS["interleaved"](p, m, v, r) for r in range(p)])


def test_peaks_by_hand() -> None:
    assert [pp.peak_interleaved(4, 8, 2, r) for r in range(4)] == [5.5, 4.5, 3.5, 2.5]
    assert pp.peak_interleaved(8, 64, 3) == pytest.approx(8 * (1 + 7 / 24)), "1.2917 p: arXiv 2205.05198, GPT-3"
    assert pp.peak_interleaved(4, 3, 2) == 3
    assert [pp.peak_1f1b(4, 8, r) for r in range(4)] == [4, 3, 2, 1]
    assert (pp.peak_zb_h1(4, 2), pp.peak_zb_h2(4, 5), pp.peak_v_half(8, 3), pp.peak_v_min(9, 2)) == (2, 5, 3, 2)
    assert (pp.peak_v_half(8, 32), pp.peak_v_min(8, 32), pp.peak_v_min(9, 32)) == (5, 4, 4)
    for p in (2, 4, 8):
        assert max(simulate(generate("dualpipe", p, 4 * p)).peak_activations) == pp.PEAKS["dualpipe"](p, 4 * p, 1, 0)
        assert max(simulate(generate("dualpipev", p, 4 * p)).peak_activations) == pp.PEAKS["dualpipev"](p, 4 * p, 2, 0)


def test_table_says_where_the_forms_fail() -> None:
    rows = {(r.schedule, r.microbatches, r.times, r.overlap): r for r in table()}
    assert len(rows) == len(CASES)
    for row in rows.values():
        assert row.holds == (row.why == ""), row
    unequal_dualpipe = rows["dualpipe", 12, (2, 3, 1), 1.0]
    assert (unequal_dualpipe.formula, unequal_dualpipe.own_clock) == (7, 6)
    for name, common in (("zb-h2", 3), ("zb-v", 1.5)):
        row = rows[name, 8, (1, 1, 1), 1.0]
        assert (row.formula, row.own_clock, row.common_clock) == (0, 0, common)
        assert row.holds
        assert not row.holds_in_makespan
    for row in (rows["dualpipev", 8, (1, 1, 1), 0.75], rows["dualpipe", 32, (1, 1, 1), 0.75]):
        assert row.holds_in_makespan
        assert not row.holds
    assert rows["1f1b", 8, (1, 1, 1), 1.0].holds_in_makespan
    with pytest.raises(ScheduleError, match="v-min has no closed form of its bubble: with one are gpipe, 1f1b"):
        compare("v-min", 4, 8, None, (1, 1, 1))


def test_forms_take_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    m = numpy.array([4, 8, 64])
    assert pp.bubble_of_total(4, m).tolist() == [3 / 7, 3 / 11, 3 / 67]
    assert pp.peak_1f1b(numpy.array([2, 8]), 4, 1).tolist() == [1, 4]
    for form in (*pp.BUBBLES.values(),):
        assert numpy.shape(form(numpy.array([2, 4]), 2, numpy.array([1.0, 2.0]), 1.0, 1.0, 1.0)) == (2,)


def _job(**plan: object) -> Job:
    degrees = {"dp": 16, "tp": 8, "pp": 4, "zero": 1, "schedule": "interleaved", "virtual_stages": 2, **plan}
    chosen = ParallelPlan(**degrees)  # type: ignore[arg-type]
    return Job(model("llama-3-70b"), cluster("dgx-h100"), chosen, chosen.chips, 16 * 64 * 8192, 8192)


def test_job_flops_are_the_stages_share() -> None:
    job = _job()
    whole = pp.flops(_job(pp=1, virtual_stages=1))
    assert pp.flops(job).total == pytest.approx(whole.total / 4)
    d, f, tokens = 8192, 28672, 64 * 8192
    assert pp.flops(job)["forward"] == pytest.approx(4 * tokens * d * f * 20 / 8)


def test_job_bytes_are_activations_there_and_gradients_back() -> None:
    job = _job()
    tokens = 64 * 8192
    assert pp.wire_bytes(job)["forward"] == tokens * 8192 * 2 * 2 / 8
    assert pp.wire_bytes(job)["backward"] == pp.wire_bytes(job)["forward"]
    assert pp.wire_bytes(_job(sequence_parallel=False)).total == 8 * pp.wire_bytes(job).total
    assert pp.wire_bytes(_job(pp=1, virtual_stages=1)).total == 0


def test_job_times_use_one_chips_nic() -> None:
    job = _job()
    times = pp.times(job)
    assert pp.hop_egress(job) == 50e9
    assert times.forward_comms == pytest.approx(pp.wire_bytes(job)["forward"] / 50e9)
    assert times.backward_math == pytest.approx(pp.flops(job)["backward"] / job.peak)
    assert pp.is_compute_bound(job)
    assert pp.hop_egress(_job(dp=1, tp=2)) == 450e9, "a small pipeline stays inside the NVLink domain"
    alone = _job(pp=1, virtual_stages=1)
    assert pp.hop_egress(alone) == float("inf")
    assert pp.times(alone).comms == 0


def test_job_knob_and_stage_times() -> None:
    job = _job()
    assert job.microbatches == 64
    assert pp.critical_microbatches(job, 0.1) == pytest.approx(13.5)
    t_F, t_B, t_W = pp.stage_seconds(job)
    assert t_F == t_B == t_W == pytest.approx(pp.flops(job)["forward"] / job.peak / 64)
    ideal = simulate(generate("1f1b", 1, 64), t_F, t_B, t_W).makespan
    assert ideal == pytest.approx(pp.times(job).math)


def test_forms_depend_on_each_time_as_written() -> None:
    """Times that no slip confuses: 2 t_W is not 2 / t_W."""
    assert pp.bubble_zb_h2(3, 10, 20, 5) == 2 * (10 + 20 - 10)
    assert pp.bubble_dualpipe(8, 10, 20, 5) == 3 * (35 + 25 - 15)
    assert pp.bubble_dualpipev(3, 10, 20, 5, 0.8) == 28 + 25 - 15
    assert pp.peak_1f1b(4, 8) == 4, "the first rank when none is named"
    assert pp.peak_interleaved(4, 8, 2) == 5.5


def test_boundary_bytes_by_hand() -> None:
    """1000 tokens of width 10: 2 bytes each in bf16, once a boundary, whole."""
    assert pp.boundary_bytes(1000, 10) == 20_000
    assert pp.boundary_bytes(1000, 10, 3, 2, 4) == 60_000


def test_job_ledgers_say_what_they_count() -> None:
    job = _job(cp=2, dp=8)
    assert (pp.flops(job).title, pp.flops(job).unit) == ("FLOPs of one stage on one chip", "FLOP")
    sent = pp.wire_bytes(job)
    assert (sent.title, sent.unit) == ("Bytes sent by one chip to the next stage, PP", "B")
    assert {part.formula for part in sent} == {"B/X D e v / Y"}
    wide = replace(job, precision="fp32")
    assert pp.wire_bytes(wide).total == 2 * sent.total, "fp32 activations have 4 bytes"


def test_a_hop_skips_all_inner_ranks() -> None:
    """Neighbouring stages are dp x tp x cp ranks apart: here 8, so each stage is a node of its own."""
    assert pp.hop_egress(_job(dp=2, tp=2, cp=2, pp=2)) == 50e9
    assert pp.hop_egress(_job(dp=2, tp=1, cp=2, pp=2)) == 450e9
    torus = replace(_job(dp=1, tp=4, cp=1, pp=4), cluster=cluster("tpu-v5p"))
    assert pp.hop_egress(torus) == torus.cluster.levels[0].egress, "one axis leads to the neighbour"


def test_a_single_microbatch_takes_the_whole_step() -> None:
    job = replace(_job(), batch_tokens=16 * 8192)
    assert job.microbatches == 1
    assert sum(pp.stage_seconds(job)) == pytest.approx(pp.times(job).math)


def test_import_needs_neither_numpy_nor_files() -> None:
    """The modules a browser loads: no numpy, no matplotlib."""
    names = "pp,schedules,schedule_generators,schedule_search,schedule_squeeze,schedule_check,simulate,draw_schedule"
    code = (f"import sys, json; from scaling_lib import {names}; "
            "print(json.dumps([m for m in ('numpy', 'matplotlib', 'pint') if m in sys.modules]))")  # fmt: skip
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []
