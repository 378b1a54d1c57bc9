"""Closed form against simulation: where the formulas of `pp` hold, and by how much they miss where they do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scaling_lib import pp
from scaling_lib.schedule_generators import generate
from scaling_lib.schedules import ScheduleError
from scaling_lib.simulate import simulate

Times = tuple[float, float, float]


@dataclass(frozen=True)
class Row:
    """One schedule, computed and simulated. Seconds; times are t_F, t_B, t_W; why: the reason for a difference."""

    schedule: str
    pp: int
    microbatches: int
    chunks: int
    times: Times
    overlap: float
    formula: float
    own_clock: float
    common_clock: float
    why: str

    @property
    def holds(self) -> bool:
        """Whether the formula gives the idle time by the device's own clock."""
        return abs(self.formula - self.own_clock) <= 1e-9 * max(1.0, self.own_clock)

    @property
    def holds_in_makespan(self) -> bool:
        """Whether the formula gives the idle time by the common clock."""
        return abs(self.formula - self.common_clock) <= 1e-9 * max(1.0, self.common_clock)


_TURN = "for ω below 1 the formula gives the common clock, on the devices at the turn, where most work is paired"
# name, p, m, chunks, times, overlap, why it differs (empty: it does not)
CASES: tuple[tuple[str, int, int, int | None, Times, float, str], ...] = (
    ("gpipe", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("1f1b", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("1f1b", 4, 12, None, (2, 3, 1), 1.0, ""),
    ("interleaved", 4, 8, 2, (1, 1, 1), 1.0, ""),
    ("interleaved", 4, 2, 2, (1, 1, 1), 1.0, "fewer microbatches than stages leave a chunk waiting for the last"),
    ("looped-bfs", 4, 8, 2, (1, 1, 1), 1.0, ""),
    ("zb-h1", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("zb-h1", 4, 12, None, (2, 3, 1), 1.0, ""),
    ("zb-h1", 4, 12, None, (1, 1, 3), 1.0, "idle time cannot be negative: here t_W is longer than the gap it fills"),
    ("zb-h2", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("zb-h2", 4, 12, None, (2, 3, 1), 1.0, "the formula is for 2p - 1 microbatches in memory, this search may hold 2p"),
    ("zb-v", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("zb-v", 4, 12, None, (2, 3, 1), 1.0, "no idle time holds for equal times only"),
    ("dualpipe", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("dualpipe", 4, 8, None, (1, 1, 1), 0.75, ""),
    ("dualpipe", 8, 32, None, (1, 1, 1), 0.75, _TURN),
    ("dualpipe", 4, 12, None, (2, 3, 1), 1.0, "holds for equal times only"),
    ("dualpipev", 4, 8, None, (1, 1, 1), 1.0, ""),
    ("dualpipev", 4, 8, None, (1, 1, 1), 0.75, _TURN),
    ("dualpipev", 4, 12, None, (2, 3, 1), 1.0, "holds for equal times only"),
)


def compare(name: str, n_devices: int, microbatches: int, chunks: int | None, times: Times, overlap: float = 1.0,
            why: str = "") -> Row:
    """One row. own_clock and common_clock are the idle seconds of the most idle device.

    Raises ScheduleError for a schedule without a closed form.
    """
    if name not in pp.BUBBLES:
        raise ScheduleError(f"{name} has no closed form of its bubble: with one are {', '.join(pp.BUBBLES)}")
    schedule = generate(name, n_devices, microbatches, chunks, times)
    result = simulate(schedule, *times, overlap=overlap)
    formula = pp.BUBBLES[name](n_devices, schedule.chunks, *times, overlap)
    return Row(name, n_devices, microbatches, schedule.chunks, times, overlap, formula, max(result.idle_per_device),
               max(result.idle_in_makespan), why)


def table(cases: Iterable[tuple[str, int, int, int | None, Times, float, str]] = CASES) -> tuple[Row, ...]:
    """Rows of closed form and simulation; the cases of the chapter if none are given."""
    return tuple(compare(*case) for case in cases)
