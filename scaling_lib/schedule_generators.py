"""Generators of pipeline schedules: GPipe to DualPipeV, each a rule for the order on one device.

Orders follow the published rules (papers and the public code of PyTorch, sail-sg and DeepSeek), written afresh.
ZB-H2 and ZB-V for unequal times are searched for, see `schedule_search`; V-Half and V-Min see `schedule_squeeze`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from scaling_lib.catalogue import near as near_names
from scaling_lib.schedule_search import zb_h2, zb_v_greedy
from scaling_lib.schedule_squeeze import v_half, v_min
from scaling_lib.schedules import Action, Pair, Schedule, ScheduleError, Step, row

Times = tuple[float, float, float]


def _loop(pp: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Placement round and round: device r holds stages r, r + p, r + 2p ..."""
    return tuple(tuple(range(r, pp * chunks, pp)) for r in range(pp))


def _vee(pp: int) -> tuple[tuple[int, int], ...]:
    """Placement there and back: device r holds stages r and 2p - 1 - r."""
    return tuple((r, 2 * pp - 1 - r) for r in range(pp))


def _in_turn(forwards: Sequence[int], backwards: Sequence[int], ahead: int) -> tuple[int, ...]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    steady = chain.from_iterable(zip(forwards[ahead:], backwards, strict=False))
    return *forwards[:ahead], *steady, *backwards[len(backwards) - ahead:]


def gpipe(pp: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards. Source: GPipe, arXiv 1811.06965."""
    return Schedule("gpipe", pp, microbatches, _loop(pp, 1), tuple(
        (*row(pp, microbatches, r, "F"), *row(pp, microbatches, r, "B")) for r in range(pp)))


def one_f_one_b(pp: int, microbatches: int) -> Schedule:
    """Rank r runs p - 1 - r forwards ahead, then a forward and a backward in turn. Source: arXiv 2104.04473."""
    return Schedule("1f1b", pp, microbatches, _loop(pp, 1), tuple(
        _in_turn(row(pp, microbatches, r, "F"), row(pp, microbatches, r, "B"), min(pp - 1 - r, microbatches))
        for r in range(pp)))


def looped_bfs(pp: int, microbatches: int, chunks: int) -> Schedule:
    """All microbatches through a chunk before the next chunk. Source: arXiv 2211.05953."""
    n, placement = pp * chunks, _loop(pp, chunks)
    return Schedule("looped-bfs", n, microbatches, placement, tuple(
        (*chain.from_iterable(row(n, microbatches, s, "F") for s in stages),
         *chain.from_iterable(reversed(row(n, microbatches, s, "B")) for s in reversed(stages)))
        for stages in placement))


def _round_size(pp: int, microbatches: int, name: str) -> int:
    """Microbatches that visit a chunk before the device turns to the next one."""
    rounds = max(1, microbatches // pp)
    if microbatches % rounds:
        raise ScheduleError(f"{name} runs in rounds of about one microbatch a stage: {microbatches} microbatches do "
                            f"not divide into {rounds} equal rounds on {pp} stages; use a multiple of {pp}")
    return microbatches // rounds


def _rounds(n_stages: int, stages: Sequence[int], kind: str, size: int, microbatches: int) -> list[int]:
    """Chunk by chunk within each round of microbatches."""
    rows = [row(n_stages, microbatches, s, kind) for s in stages]
    return [code for first in range(0, microbatches, size) for own in rows for code in own[first:first + size]]


def interleaved(pp: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B over v chunks a device. Source: arXiv 2104.04473; rounds that need not be p long as in PyTorch."""
    n, placement, size = pp * chunks, _loop(pp, chunks), _round_size(pp, microbatches, "interleaved")
    return Schedule("interleaved", n, microbatches, placement, tuple(
        _in_turn(_rounds(n, stages, "F", size, microbatches), _rounds(n, stages[::-1], "B", size, microbatches),
                 min((chunks - 1) * size + 2 * (pp - 1 - r), microbatches * chunks))
        for r, stages in enumerate(placement)))


def interleaved_overlap(pp: int, microbatches: int, chunks: int) -> Schedule:
    """Interleaved 1F1B with one more forward ahead, so that each later forward can overlap a backward.

    Source: the overlapped 1F1B of Megatron-LM, as drawn by PP-Schedule-Visualization.
    """
    n, placement, size = pp * chunks, _loop(pp, chunks), _round_size(pp, microbatches, "interleaved-overlap")
    order = []
    for r, stages in enumerate(placement):
        ahead = min((chunks - 1) * size + 2 * (pp - 1 - r) + 1, microbatches * chunks)
        forwards = _rounds(n, stages, "F", size, microbatches)
        backwards = _rounds(n, stages[::-1], "B", size, microbatches)
        pairs = (b * 4 * n * microbatches + f for f, b in zip(forwards[ahead:], backwards, strict=False))
        order.append((*forwards[:ahead], *pairs, *backwards[len(backwards) - ahead:]))
    return Schedule("interleaved-overlap", n, microbatches, placement, tuple(order))


def _late_weights(
    forwards: Sequence[int], backwards: Sequence[int], ahead: int, delay: int, block: int
) -> tuple[int, ...]:
    """One forward and one input gradient in turn, weight gradients `delay` microbatches behind, the rest at the
    end."""
    weights = [code + block for code in backwards]
    steps = list(forwards[:ahead])
    for k, backward in enumerate(backwards):
        steps += forwards[ahead + k:ahead + k + 1]
        steps.append(backward)
        steps += weights[k - delay:k - delay + 1] if k >= delay else []
    return *steps, *weights[max(0, len(backwards) - delay):]


def zb_h1(pp: int, microbatches: int) -> Schedule:
    """1F1B with weight gradients held back until the device has p microbatches in flight. Source: arXiv
    2401.10241."""
    return Schedule("zb-h1", pp, microbatches, _loop(pp, 1), tuple(
        _late_weights(row(pp, microbatches, r, "F"), row(pp, microbatches, r, "I"), min(pp - 1 - r, microbatches), r,
                      pp * microbatches) for r in range(pp)))


def interleaved_zb(pp: int, microbatches: int, chunks: int) -> Schedule:
    """ZB-H1 over v chunks a device. Source: PyTorch's ScheduleInterleavedZeroBubble."""
    n, placement, size = pp * chunks, _loop(pp, chunks), _round_size(pp, microbatches, "interleaved-zb")
    return Schedule("interleaved-zb", n, microbatches, placement, tuple(
        _late_weights(_rounds(n, stages, "F", size, microbatches), _rounds(n, stages[::-1], "I", size, microbatches),
                      min((chunks - 1) * size + pp - 1 - r, microbatches * chunks), r, n * microbatches)
        for r, stages in enumerate(placement)))


class _Desk:
    """Writes the steps of one device that holds two stages, and counts the microbatches of each."""

    def __init__(self, near_stage: int, far_stage: int, first: tuple[int, int] = (0, 0)) -> None:
        self.stages = (near_stage, far_stage)
        self.steps: list[Step] = []
        self.late: list[Action] = []  # weight gradients still to do, oldest first
        self._next = {"F": list(first), "B": list(first)}

    def _take(self, chunk: int, kind: str) -> Action:
        count = self._next["F" if kind == "F" else "B"]
        count[chunk] += 1
        return Action(self.stages[chunk], kind, count[chunk] - 1)

    def forward(self, chunk: int) -> None:
        self.steps.append(self._take(chunk, "F"))

    def backward(self, chunk: int, split: bool = False) -> None:
        action = self._take(chunk, "I" if split else "B")
        self.steps.append(action)
        if split:
            self.late.append(action._replace(kind="W"))

    def both(self, forward: int, backward: int) -> None:
        self.steps.append(Pair(self._take(forward, "F"), self._take(backward, "B")))

    def weight(self) -> None:
        self.steps.append(self.late.pop(0))


def _two_way(desk: _Desk, pp: int, r: int, microbatches: int) -> tuple[Step, ...]:
    """The eight phases DualPipe and DualPipeV share.

    desk: chunk 0 is the stage nearer the input, chunk 1 the other. r: place on the way, p - 1 at the turn.
    """
    after = pp - 1 - r
    for _ in range(2 * after):
        desk.forward(0)
    for _ in range(r + 1):
        desk.forward(0)
        desk.forward(1)
    for _ in range(after):
        desk.backward(1, split=True)
        desk.weight()
        desk.forward(1)
    for k in range(microbatches - 2 * pp + r + 1):
        if k == 0 and after == 0:  # at the turn these two are kept apart: overlapped, they would delay the neighbour
            desk.forward(0)
            desk.backward(1)
        else:
            desk.both(0, 1)
        desk.both(1, 0)
    for _ in range(after):
        desk.backward(1)
        desk.both(1, 0)
    middle = (r + 1) // 2
    for k in range(r + 1):  # the second half of these backwards leaves its weight gradients for the end
        desk.backward(1, split=k >= middle + (r + 1) % 2)
        desk.backward(0, split=k >= middle)
    for _ in range(after):
        desk.weight()
        desk.backward(0, split=True)
    while desk.late:
        desk.weight()
    return tuple(desk.steps)


def dualpipe(pp: int, microbatches: int) -> Schedule:
    """Microbatches enter from both ends; each device holds stage r and stage p - 1 - r.

    The first half of the microbatches starts at device 0, the second half at device p - 1.
    Source: DeepSeek-V3, arXiv 2412.19437 section 3.2.1, and its public code.
    """
    if pp % 2 or microbatches % 2 or microbatches < 2 * pp:
        raise ScheduleError(f"dualpipe needs an even number of stages, and an even number of microbatches of at least "
                            f"two a stage, got {pp} stages and {microbatches} microbatches")
    half = microbatches // 2
    order = []
    for device in range(pp):
        r = min(device, pp - 1 - device)
        first = (0, half) if device < pp // 2 else (half, 0)
        order.append(_two_way(_Desk(r, pp - 1 - r, first), pp // 2, r, half))
    placement = tuple(tuple(sorted((d, pp - 1 - d))) for d in range(pp))
    return Schedule.of("dualpipe", pp, microbatches, placement, order)


def dualpipev(pp: int, microbatches: int) -> Schedule:
    """DualPipe folded at its middle: one copy of the weights on p devices, two chunks each. Source: DeepSeek's
    DualPipe code."""
    if microbatches < 2 * pp:
        raise ScheduleError(f"dualpipev needs at least two microbatches a device, got {microbatches} on {pp} devices")
    order = tuple(_two_way(_Desk(near, far), pp, r, microbatches) for r, (near, far) in enumerate(_vee(pp)))
    return Schedule.of("dualpipev", 2 * pp, microbatches, _vee(pp), order)


def zb_v(pp: int, microbatches: int) -> Schedule:
    """The hand-made ZB-V, free of bubbles per device when t_F = t_B = t_W. Source: arXiv 2401.10241 section 6."""
    full = max(microbatches, 2 * pp - 1)  # the pattern needs a full pipeline: surplus microbatches are struck out below
    order = []
    for r, (near, far) in enumerate(_vee(pp)):
        steps = _zb_v_device(_Desk(near, far), pp, r, full)
        order.append(tuple(s for s in steps if isinstance(s, Action) and s.microbatch < microbatches))
    return Schedule.of("zb-v", 2 * pp, microbatches, _vee(pp), order)


def _zb_v_device(desk: _Desk, pp: int, r: int, microbatches: int) -> list[Step]:
    """Warm up, then forward, input and weight gradient of each chunk in turn, then drain."""
    for _ in range(2 * (pp - r) - 1):
        desk.forward(0)
    for _ in range(r):
        desk.forward(1)
        desk.forward(0)
    for _ in range(pp - r):
        _forward_and_back(desk, 1, 1)
    entered, middle = 2 * pp - 1 - r, pp
    while middle < entered or entered < microbatches:
        _forward_and_back(desk, 0 if entered < microbatches else None, 0)
        _forward_and_back(desk, 1, 1)
        entered, middle = min(entered + 1, microbatches), middle + 1
    for _ in range(r):
        desk.backward(0, split=True)
        desk.backward(1, split=True)
    for _ in range(pp - r):
        desk.backward(0, split=True)
        desk.steps.append(desk.late.pop(next(k for k, w in enumerate(desk.late) if w.stage == desk.stages[0])))
    desk.late.sort(key=lambda w: -w.stage)
    while desk.late:
        desk.weight()
    return desk.steps


def _forward_and_back(desk: _Desk, forward: int | None, backward: int) -> None:
    if forward is not None:
        desk.forward(forward)
    desk.backward(backward, split=True)
    desk.weight()


def _zb_v_for(pp: int, microbatches: int, times: Times, p2p: float) -> Schedule:
    """The pattern for equal times, a greedy order otherwise."""
    t_F, t_B, t_W = times
    return zb_v(pp, microbatches) if t_F == t_B == t_W and not p2p else zb_v_greedy(pp, microbatches, times, p2p)


# name -> (builder, chunks a device: a number, or None when it is the reader's choice)
_PLAIN: dict[str, Callable[[int, int], Schedule]] = {
    "gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "v-half": v_half, "v-min": v_min,
    "dualpipe": dualpipe, "dualpipev": dualpipev}
CHUNKED: dict[str, Callable[[int, int, int], Schedule]] = {
    "interleaved": interleaved, "looped-bfs": looped_bfs, "interleaved-zb": interleaved_zb,
    "interleaved-overlap": interleaved_overlap}
_TIMED: dict[str, Callable[[int, int, Times, float], Schedule]] = {"zb-h2": zb_h2, "zb-v": _zb_v_for}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min",
             "interleaved-zb", "dualpipe", "dualpipev", "interleaved-overlap")
_TWO_CHUNKS = ("zb-v", "v-half", "v-min", "dualpipev")


def _whole(value: int, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ScheduleError(f"{name} is {value!r}: give a whole number of at least 1")


def _check_chunks(name: str, chunks: int | None) -> int:
    """Chunks a device; 2 where it is the reader's choice and none is made."""
    fixed = None if name in CHUNKED else 2 if name in _TWO_CHUNKS else 1
    if chunks is None:
        return fixed or 2
    _whole(chunks, "chunks")
    if fixed and chunks != fixed:
        raise ScheduleError(f"{name} always has {fixed} chunk{'s' * (fixed > 1)} a device, got {chunks}; "
                            f"schedules with free chunks: {', '.join(CHUNKED)}")
    if not fixed and chunks < 2:
        raise ScheduleError(f"{name} needs at least 2 chunks a device, got {chunks}; with one it is "
                            f"{ {'looped-bfs': 'gpipe', 'interleaved-zb': 'zb-h1'}.get(name, '1f1b') }")
    return chunks


def generate(name: str, pp: int, microbatches: int, chunks: int | None = None, times: Times = (1.0, 1.0, 1.0),
             p2p: float = 0.0) -> Schedule:
    """A schedule by name.

    pp: devices in the pipeline. chunks: stages a device holds (interleaved, looped-bfs, interleaved-zb; 2 if not
    given). times: t_F, t_B, t_W of a device's whole share and one microbatch, and p2p seconds a hop: zb-h2 and zb-v fit
    their order to them, the other orders do not depend on time. Raises ScheduleError: unknown name with the near ones,
    or the rule that the numbers break.
    """
    if name not in SCHEDULES:
        raise ScheduleError(f"unknown schedule {name!r}: {near_names(name, SCHEDULES)}")
    _whole(pp, "stages")
    _whole(microbatches, "microbatches")
    v = _check_chunks(name, chunks)
    if name in _TIMED:
        return _TIMED[name](pp, microbatches, times, p2p)
    return CHUNKED[name](pp, microbatches, v) if name in CHUNKED else _PLAIN[name](pp, microbatches)
