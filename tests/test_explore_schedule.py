"""The pipeline explorer: what it shows is what the simulation gives; impossible states are explained."""

from __future__ import annotations

import pytest

from scaling_lib.explore_schedule import draw_pp, pp_explorer
from scaling_lib.schedule_generators import SCHEDULES
from scaling_lib.schedules import ScheduleError


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_drawn(name: str) -> None:
    html = pp_explorer.html(schedule=name)
    assert html.count("<svg") == 1
    assert "microbatches</dd>" in html


def test_numbers_are_the_simulations() -> None:
    html = pp_explorer.html()
    for value in ("33", "27.3%", "37.5%", "15.8%", "4 microbatches", "1"):
        assert f">{value}</dd>" in html, value
    assert ">28.5</dd>" in pp_explorer.html(schedule="interleaved")
    assert ">26.25</dd>" in draw_pp("interleaved", 4, 8, 4, 1, 1, 1, 0, 1)
    assert ">2</dd>" in pp_explorer.html(schedule="dualpipe")


def test_a_state_without_a_schedule_is_explained() -> None:
    with pytest.raises(ScheduleError, match="dualpipe needs an even number of stages"):
        pp_explorer.html(schedule="dualpipe", pp=3)
    with pytest.raises(ScheduleError, match=r"give a number from 0\.8 to 1"):
        pp_explorer.html(schedule="dualpipe", t_W=3, overlap=0.75)
