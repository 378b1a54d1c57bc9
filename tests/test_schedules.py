"""Schedules as data: notation, reading, and the explanation of the first illegal action."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_lib.schedule_generators import SCHEDULES, generate
from scaling_lib.schedules import (
    Action,
    Pair,
    Schedule,
    ScheduleError,
    first_error,
    needs,
    parse_action,
    parse_schedule,
    row,
    show_schedule,
    validate,
)

TWO = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"


def test_notation_is_pytorchs() -> None:
    assert str(Action(2, "F", 0)) == "2F0"
    assert str(Pair(Action(0, "F", 3), Action(1, "B", 1))) == "(0F3;1B1)OVERLAP_F_B"
    assert parse_action(" 12W34 ") == Action(12, "W", 34)
    assert parse_action("(0F3;1I1)OVERLAP_F_B") == Pair(Action(0, "F", 3), Action(1, "I", 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0", "cannot read action 'F0'"),
        ("0F", "cannot read action '0F'"),
        ("-1F0", "cannot read action"),
        ("0X0", "kind 'X': use one of F (forward), B (full backward), I (input gradient), W (weight gradient)"),
        ("0f0", "kind 'f'"),
        ("(0F0;0F1)OVERLAP_F_B", "must pair a forward and a backward"),
        ("(0B0;0F1)OVERLAP_F_B", "must pair a forward and a backward"),
        ("(0F0;0W1)OVERLAP_F_B", "must pair a forward and a backward"),
    ],
)
def test_bad_actions_are_explained(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse_action(text)
    assert message in str(error.value)


@given(st.integers(1, 5), st.integers(1, 7), st.data())
def test_codes_number_every_action_once(n_stages: int, m: int, data: st.DataObject) -> None:
    schedule = Schedule("any", n_stages, m, (tuple(range(n_stages)),), ((),))
    codes = [c for kind in "FBIW" for stage in range(n_stages) for c in row(n_stages, m, stage, kind)]
    assert sorted(codes) == list(range(4 * n_stages * m))
    stage, i = data.draw(st.integers(0, n_stages - 1)), data.draw(st.integers(0, m - 1))
    step = Action(stage, data.draw(st.sampled_from("FBIW")), i)
    there_and_back = Schedule.of("any", n_stages, m, schedule.placement, [[step]])
    assert there_and_back.order == ((step,),)


def test_reading_takes_sizes_from_the_actions() -> None:
    schedule = parse_schedule(TWO)
    assert (schedule.n_devices, schedule.n_stages, schedule.n_microbatches, schedule.chunks) == (2, 2, 2, 1)
    assert schedule.placement == ((0,), (1,))
    assert schedule == parse_schedule("0F0 0F1,, 0B0  0B1\n\n1F0,,,1B0,1F1,1B1\n"), "blanks carry no order"


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_printed_reads_back(name: str) -> None:
    schedule = generate(name, 4, 8)
    again = parse_schedule(show_schedule(schedule), name)
    assert again.codes == schedule.codes
    assert str(again) == str(schedule)
    assert {frozenset(p) for p in again.placement} == {frozenset(p) for p in schedule.placement}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schedule is empty"),
        ("0F0,0B0\n\n1F0,x", "device 1: cannot read action 'x'"),
        ("0F0,0B0,1F0,1B0,2F0,2B0\n1F1", "3 stages on 2 devices"),
        ("0F0,0F0,0B0\n1F0,1B0", "device 0, step 1 (0F0): device 0 has done it before"),
        ("0F0,0B0\n1F0,1B0,1F0", "device 1, step 2 (1F0): device 1 has done it before"),
        ("0F0,0I0,0B0,0W0", "device 0, step 2 (0B0): device 0 has done it before"),
        ("0B0,0F0", "device 0, step 0 (0B0): needs 0F0 earlier on the same device"),
        ("0F0,0W0,0I0", "device 0, step 1 (0W0): needs 0I0 earlier on the same device"),
        ("0F0,0B0,0W0", "device 0, step 2 (0W0): device 0 has done it before"),
        ("0F0,1F0,1B0\n0B0,1F1,1B1", "device 1, step 0 (0B0): needs 0F0 earlier on the same device"),
        ("(0F0;0B0)OVERLAP_F_B", "device 0, step 0 (0F0): a backward cannot overlap its own forward"),
        ("0F0,0B0,0F1\n1F0,1B0,1F1,1B1", "0B1 (or its split I and W) is missing"),
        ("0F0,0I0", "0W0 is missing"),
        ("0F0,0B0\n1F1,1B1", "1F0 is missing"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1", "device 0, step 1 (0B0): the devices wait for each other: "
         "device 0 at 0B0 waits for 1B0; device 1 at 1F1 waits for 0F1"),
    ],
)
def test_first_illegal_action_is_explained(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse_schedule(text)
    assert message in str(error.value)


def test_hand_made_schedules_are_checked_too() -> None:
    misplaced = Schedule.of("own", 2, 1, ((0,), (0, 1)), [[Action(0, "F", 0), Action(1, "F", 0)], []])
    assert first_error(misplaced) == "device 0, step 1 (1F0): stage 1 is not on this device, it holds [0]"
    assert "placement lists 1 devices, order lists 2" in str(first_error(Schedule("own", 2, 1, ((0,),), ((), ()))))
    for outside in (Action(2, "F", 0), Action(0, "F", 1), Action(-1, "F", 0), Action(0, "Q", 0)):
        with pytest.raises(ScheduleError, match="does not exist: there are 2 stages and 1 microbatches"):
            Schedule.of("own", 2, 1, ((0,), (1,)), [[outside], []])


def test_memory_limit_names_the_forward_that_breaks_it() -> None:
    gpipe, one = generate("gpipe", 4, 8), generate("1f1b", 4, 8)
    assert first_error(one, 4) is None
    assert first_error(gpipe, 8) is None
    assert first_error(gpipe, 4) == (
        "device 0, step 4 (0F4): the device would hold activations of 5 microbatches, the limit is 4; "
        "do a backward (or the W that frees it) first"
    )
    assert first_error(generate("interleaved", 4, 8, 2), 5.5) is None
    assert "would hold activations of 5.5 microbatches, the limit is 5" in str(
        first_error(generate("interleaved", 4, 8, 2), 5)
    )
    assert first_error(generate("zb-h1", 4, 8), 4) is None, "a split backward frees its activations at W"
    assert "limit is 3" in str(first_error(generate("zb-h1", 4, 8), 3))
    with pytest.raises(ScheduleError, match="limit is 3"):
        validate(one, 3)


def test_needs_is_the_neighbour() -> None:
    assert needs(Action(0, "F", 3), 4) is None
    assert needs(Action(2, "F", 3), 4) == Action(1, "F", 3)
    assert needs(Action(2, "I", 3), 4) == Action(3, "B", 3)
    assert needs(Action(3, "B", 3), 4) is None
    assert needs(Action(2, "W", 3), 4) is None
