"""Event-driven simulation of a pipeline schedule: when each action starts, who idles, who holds what.

The schedule fixes the order on each device; an action starts when its device is free and its input has arrived. Times
belong to a device's whole share of the model (1/p of it) and one microbatch; a schedule with v chunks runs actions
of t/v.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, repeat

from scaling_lib.schedules import Schedule, ScheduleError, first_error, parts

_HOLDS = {"F": 1, "B": -1, "I": 0, "W": -1}  # a split backward needs its activations until W


@dataclass(frozen=True)
class Simulation:
    """What happened, device by device.

    starts, ends: seconds of each step, parallel to schedule.order. busy: seconds of work. peak_activations: most
    activations held at once, in microbatches of a device's whole share (a chunk counts 1/v). weights_held: copies of a
    device's share of the parameters (2 for DualPipe).
    """

    schedule: Schedule
    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]
    busy: tuple[float, ...]
    peak_activations: tuple[float, ...]
    weights_held: tuple[float, ...]

    @cached_property
    def makespan(self) -> float:
        """Seconds from the first start to the last end on any device."""
        return max(own[-1] for own in self.ends) - min(own[0] for own in self.starts)

    @cached_property
    def idle_per_device(self) -> tuple[float, ...]:
        """Idle seconds by the device's own clock: between its first start and its last end.

        The honest clock when one step follows the next without a barrier, so that devices start and stop in turn.
        """
        return tuple(e[-1] - s[0] - b for s, e, b in zip(self.starts, self.ends, self.busy, strict=True))

    @cached_property
    def idle_in_makespan(self) -> tuple[float, ...]:
        """Idle seconds by the common clock: waiting for the first and after the last own action counts too."""
        return tuple(self.makespan - b for b in self.busy)

    def _idle(self, clock: str) -> tuple[float, ...]:
        if clock not in ("makespan", "device"):
            raise ScheduleError(f"clock is {clock!r}: use 'makespan' (common clock) or 'device' (each its own)")
        return self.idle_in_makespan if clock == "makespan" else self.idle_per_device

    def bubble_of_total(self, clock: str = "makespan") -> float:
        """Idle share of all device time, (p - 1)/(m + p - 1) for 1F1B. clock: "makespan" or "device"."""
        idle = sum(self._idle(clock))
        return idle / (idle + self._work())

    def bubble_of_ideal(self, clock: str = "makespan") -> float:
        """Idle time over busy time, (p - 1)/m for 1F1B. clock: "makespan" or "device"."""
        return sum(self._idle(clock)) / self._work()

    def _work(self) -> float:
        """Seconds that all devices work. Raises ScheduleError when that is none, since there is then no share of it."""
        if not any(self.busy):
            raise ScheduleError("no action takes time, so there is no bubble ratio: give one time above zero")
        return sum(self.busy)

    def activations(self, device: int) -> tuple[tuple[float, float], ...]:
        """(second, activations held from then on) at every change on a device, in microbatches of its whole share.

        A forward takes its memory at its start; a backward (or W, when split) gives it back at its end.
        """
        changes: dict[float, int] = {}
        for step, start, end in zip(self.schedule.order[device], self.starts[device], self.ends[device], strict=True):
            for action in parts(step):
                time = start if action.kind == "F" else end
                changes[time] = changes.get(time, 0) + _HOLDS[action.kind]
        times = sorted(time for time, change in changes.items() if change)
        held = accumulate(changes[time] for time in times)
        return tuple((time, h / self.schedule.chunks) for time, h in zip(times, held, strict=True))


def _number(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ScheduleError(f"{name} is {value!r}: give a finite number of seconds, zero or more")
    return float(value)


def _scales(stage_factors: Sequence[float] | None, n_stages: int) -> list[float]:
    """One factor a stage."""
    if stage_factors is None:
        return [1.0] * n_stages
    if len(stage_factors) != n_stages:
        raise ScheduleError(f"{len(stage_factors)} stage factors for {n_stages} stages: give one each")
    return [_number(f, f"stage factor {s}") for s, f in enumerate(stage_factors)]


def _hops(schedule: Schedule, p2p: float) -> list[float]:
    """Seconds between the end of an action and the arrival of its result at the next place of the walk.

    The walk of a microbatch is the forward through all S stages, then the backward through all: 2S places. A hop
    between two devices costs p2p; the turn at the last stage and the fold of a V cost nothing.
    """
    m, block = schedule.n_microbatches, schedule.block
    if not p2p:
        return [0.0] * (2 * block + m)
    device_of = [-1] * (2 * block)
    for device, codes in enumerate(schedule.codes):
        for code in _flat(schedule, codes):
            if code < 3 * block:
                device_of[code - block if code >= 2 * block else code] = device
    inner = [p2p if here != before else 0.0 for before, here in zip(device_of, device_of[m:], strict=False)]
    return [*[0.0] * m, *inner, *[0.0] * m]


def _flat(schedule: Schedule, codes: Sequence[int]) -> Sequence[int]:
    """Codes with each pair as its forward, then its backward."""
    width = 4 * schedule.block
    if max(codes) < width:
        return codes
    return [part for code in codes for part in ((code % width, code // width) if code >= width else (code,))]


def simulate(schedule: Schedule, t_F: float = 1.0, t_B: float = 1.0, t_W: float = 1.0, p2p: float = 0.0,
             stage_factors: Sequence[float] | None = None, overlap: float = 1.0) -> Simulation:
    """Run a schedule.

    t_F, t_B, t_W: seconds of forward, input gradient and weight gradient of a device's share and one microbatch; a full
    backward takes t_B + t_W. p2p: seconds between the end on one device and the arrival at the next. stage_factors: one
    multiplier a stage. overlap: time of a forward and backward run as a pair, over their sum (1: no gain). Raises
    ScheduleError that explains the first illegal action when the schedule cannot finish.
    """
    v, m = schedule.chunks, schedule.n_microbatches
    t_F, t_B, t_W, p2p = (_number(t, n) for t, n in ((t_F, "t_F"), (t_B, "t_B"), (t_W, "t_W"), (p2p, "p2p")))
    _check_overlap(overlap, t_F, t_B + t_W)
    scales = _scales(stage_factors, schedule.n_stages)
    seconds = [t for kind, stages in ((t_F, scales), *((t, scales[::-1]) for t in (t_B + t_W, t_B, t_W)))
               for s in stages for t in repeat(kind / v * s, m)]  # by code
    if not all(schedule.codes):
        raise ScheduleError(f"device {schedule.codes.index(())} has nothing to do: give every device a stage")
    starts, ends = _run(schedule, seconds, _hops(schedule, p2p), overlap)
    return Simulation(schedule, starts, ends, tuple(_busy(schedule, own, seconds, overlap) for own in schedule.codes),
                      _peaks(schedule), tuple(len(stages) / v for stages in schedule.placement))


def _check_overlap(overlap: float, t_F: float, backward: float) -> None:
    least = max(t_F, backward) / (t_F + backward) if t_F + backward else 0.0
    if not least - 1e-12 <= _number(overlap, "overlap") <= 1:
        raise ScheduleError(f"overlap is {overlap!r}: a pair takes overlap x (F + B) and cannot end before the longer "
                            f"of the two; give a number from {least:.4g} to 1")


def _busy(schedule: Schedule, codes: Sequence[int], seconds: list[float], overlap: float) -> float:
    width = 4 * schedule.block
    if max(codes) < width:
        return sum(map(seconds.__getitem__, codes))
    return sum(seconds[c] if c < width else overlap * (seconds[c % width] + seconds[c // width]) for c in codes)


def _peaks(schedule: Schedule) -> tuple[float, ...]:
    """Most activations each device holds. Raises ScheduleError when a backward runs where its forward did not."""
    block, peaks = schedule.block, []
    change = [1] * block + [-1] * block + [0] * block + [-1] * block
    for codes in schedule.codes:
        held = list(accumulate(map(change.__getitem__, _flat(schedule, codes))))
        if held[-1]:
            raise _illegal(schedule)
        peaks.append(max(held) / schedule.chunks)
    return tuple(peaks)


def _illegal(schedule: Schedule) -> ScheduleError:
    return ScheduleError(first_error(schedule) or f"schedule {schedule.name!r} does some work twice")


_Timeline = tuple[tuple[float, ...], ...]


def _run(schedule: Schedule, seconds: list[float], hops: list[float], overlap: float) -> tuple[_Timeline, _Timeline]:
    """Start and end of every step. A device runs until an input is missing and is woken when it is made."""
    m, block = schedule.n_microbatches, schedule.block
    walk, width = 2 * block, 4 * block
    arrived: list[float | None] = [0.0] * m + [None] * walk  # when the input of each place of the walk is there
    waiting: dict[int, Iterator[int]] = {}  # place -> device that waits for its input
    half_done: set[int] = set()  # weight gradients that may run
    n_split = 0

    def run_device(codes: tuple[int, ...], starts: list[float], ends: list[float]) -> Iterator[int]:
        """Do the steps in order; yield the place whose input is missing. Ends early at a W that came before its I."""
        nonlocal n_split
        start, end, clock = starts.append, ends.append, 0.0
        for code in codes:
            if code < walk:  # F or B: the common case, kept short
                came = arrived[code]
                while came is None:
                    yield code
                    came = arrived[code]
                if came > clock:
                    clock = came
                start(clock)
                clock += seconds[code]
                end(clock)
                made = code + m
                arrived[made] = clock + hops[made]
                if made in waiting:
                    ready.append(waiting.pop(made))
            elif walk + block <= code < width:  # W
                if code not in half_done:
                    return
                half_done.remove(code)
                start(clock)
                clock += seconds[code]
                end(clock)
            else:  # I, or a pair
                actions = (code,) if code < width else (code % width, code // width)
                places = [a - block if a >= walk else a for a in actions]
                for place in places:
                    while (came := arrived[place]) is None:
                        yield place
                    clock = max(clock, came)
                start(clock)
                length = sum(seconds[a] for a in actions)
                clock += length if code < width else overlap * length
                end(clock)
                for action, place in zip(actions, places, strict=True):
                    arrived[place + m] = clock + hops[place + m]
                    if place + m in waiting:
                        ready.append(waiting.pop(place + m))
                    if action != place:
                        half_done.add(action + block)
                        n_split += 1

    starts: list[list[float]] = [[] for _ in schedule.codes]
    ends: list[list[float]] = [[] for _ in schedule.codes]
    ready = [run_device(*own) for own in zip(schedule.codes, starts, ends, strict=True)]
    while ready:
        device = ready.pop()
        place = next(device, None)
        if place is not None:
            waiting[place] = device
    all_run = all(len(e) == len(own) for e, own in zip(ends, schedule.codes, strict=True))
    n_actions = sum(len(_flat(schedule, own)) for own in schedule.codes)
    if not all_run or half_done or None in arrived or n_actions != walk + n_split:
        raise _illegal(schedule)
    return tuple(map(tuple, starts)), tuple(map(tuple, ends))
