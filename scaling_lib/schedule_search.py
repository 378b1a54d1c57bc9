"""Pipeline schedules found by a greedy search with given times: ZB-H2, and ZB-V for unequal times.

The rules are those of sail-sg's zero-bubble code (arXiv 2401.10241), written afresh on a board of legs. A microbatch
walks along legs of p rooms each: down the devices on even legs, up on odd ones. With one chunk the legs are F, I; on a
V they are F, F, I, I.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import product

from scaling_lib.schedules import Action, Schedule, ScheduleError, Step

Times = tuple[float, float, float]


def room(pp: int, leg: int, device: int) -> int:
    """Place of a device on a leg, counted along the whole walk."""
    return leg * pp + (device if leg % 2 == 0 else pp - 1 - device)


def leg_action(pp: int, legs: int, leg: int, device: int, microbatch: int, weight: bool = False) -> Action:
    """The action done in a room: forward on the first half of the walk, backward on the way home."""
    place = room(pp, leg, device)
    if leg < legs // 2:
        return Action(place, "F", microbatch)
    return Action(legs * pp - 1 - place, "W" if weight else "I", microbatch)


def from_legs(name: str, pp: int, microbatches: int, legs: int, order: list[list[Step]]) -> Schedule:
    """The schedule of an order found on legs."""
    placement = tuple(tuple(sorted(room(pp, leg, d) for leg in range(legs // 2))) for d in range(pp))
    return Schedule.of(name, pp * legs // 2, microbatches, placement, order)


@dataclass
class _Board:
    """A schedule in the making: clocks, idle time and memory of each device while actions are put down one by one.

    limit: activations (stage-microbatches) a device may hold. allowed: idle time of each device in an earlier try,
    used as the aim of the next one.
    """

    pp: int
    microbatches: int
    legs: int
    times: Times
    p2p: float
    limit: int
    allowed: list[float] | None = None

    def __post_init__(self) -> None:
        rooms = range(self.legs * self.pp)
        self.done = [[0] * self.legs for _ in range(self.pp)]
        self.end: list[list[float]] = [[] for _ in rooms]
        self.clock = [0.0] * self.pp
        self.idle = [0.0] * self.pp
        self.held = [0] * self.pp
        self.late: list[deque[Action]] = [deque() for _ in range(self.pp)]
        self.order: list[list[Step]] = [[] for _ in range(self.pp)]

    def cost(self, leg: int) -> float:
        return self.times[0] if leg < self.legs // 2 else self.times[1]

    def arrival(self, device: int, leg: int) -> float | None:
        """When the neighbour's result for the next microbatch is here; 0 at a turn, None if it is not scheduled
        yet."""
        place, i = room(self.pp, leg, device), self.done[device][leg]
        if place % self.pp == 0:
            return 0.0
        return self.end[place - 1][i] + self.p2p if i < len(self.end[place - 1]) else None

    def put(self, device: int, leg: int) -> None:
        """The device's next microbatch on this leg."""
        came = self.arrival(device, leg)
        if came is None:
            raise AssertionError(f"device {device} leg {leg} put before its input")
        start = max(self.clock[device], came)
        if self.done[device][0]:
            self.idle[device] += start - self.clock[device]
        action = leg_action(self.pp, self.legs, leg, device, self.done[device][leg])
        self.order[device].append(action)
        self.done[device][leg] += 1
        self.clock[device] = start + self.cost(leg)
        self.end[room(self.pp, leg, device)].append(self.clock[device])
        if action.kind == "F":
            self.held[device] += 1
        else:
            self.late[device].append(action._replace(kind="W"))

    def put_weight(self, device: int) -> None:
        self.order[device].append(self.late[device].popleft())
        self.clock[device] += self.times[2]
        self.held[device] -= 1

    def makeroom(self, device: int) -> None:
        """Weight gradients until one more forward fits."""
        while self.held[device] >= self.limit:
            if not self.late[device]:
                raise ScheduleError(f"device {device} cannot run its next forward within a limit of {self.limit} "
                                    "activations: raise the limit")
            self.put_weight(device)

    def slack(self, device: int) -> float:
        """Idle time the device may still take without becoming the worst."""
        worst = max(self.idle)
        if self.allowed:
            worst = max(worst, max(self.allowed) - self.allowed[device])
        return worst - self.idle[device]

    def fill(self, device: int, leg: int, within: bool, beyond: bool) -> None:
        """Weight gradients that fit before the next input arrives, and perhaps one that does not quite.

        within, beyond: put that last one when the wait is within the slack, or beyond it.
        """
        came = self.arrival(device, leg)
        if came is None or room(self.pp, leg, device) % self.pp == 0:
            return
        while self.late[device] and self.clock[device] + self.times[2] <= came:
            self.put_weight(device)
        wait = came - self.clock[device]
        if self.late[device] and wait > 0 and (within if wait <= self.slack(device) else beyond):
            self.put_weight(device)

    def finish(self) -> None:
        """All weight gradients that are left."""
        for device in range(self.pp):
            while self.late[device]:
                self.put_weight(device)


def zb_h2(pp: int, microbatches: int, times: Times, p2p: float = 0.0, limit: int | None = None) -> Schedule:
    """ZB-H2: more forwards ahead than 1F1B, so that no device idles between its first and last action.

    limit: microbatches a device may hold, 2p if not given. Of eight variants of the heuristic the one with the shortest
    busy span wins. Raises ScheduleError when the limit is too small.
    """
    best: tuple[float, list[list[Step]]] | None = None
    for early, patient, greedy in product((True, False), repeat=3):
        board = _Board(pp, microbatches, 2, times, p2p, limit or 2 * pp)
        first_end = _zb_h2_warm_up(board, early)
        for _ in range(1, microbatches):
            _zb_h2_round(board, patient, greedy)
        board.finish()
        span = max(clock - first for clock, first in zip(board.clock, first_end, strict=True))
        if best is None or span < best[0]:
            best = span, board.order
    assert best is not None
    return from_legs("zb-h2", pp, microbatches, 2, best[1])


def _zb_h2_warm_up(board: _Board, early: bool) -> list[float]:
    """Forwards ahead until the first gradient comes back, and that gradient; returns when each first forward ended.

    early: leave a short wait before the first gradient rather than run a forward into it.
    """
    pp, (t_F, t_B, _) = board.pp, board.times
    for device in range(pp):
        board.put(device, 0)
    first_end = list(board.clock)
    extra = [0] * pp
    back = board.clock[-1] + t_B
    for device in reversed(range(pp - 1)):
        clock = board.clock[device]
        while 1 + extra[device] < min(board.microbatches, board.limit):
            if (clock + t_F > back + board.p2p) if early else (clock >= back + board.p2p):
                break
            clock += t_F
            extra[device] += 1
        back = max(clock, back + board.p2p) + t_B
    for device in range(1, pp):
        while 0 < extra[device] >= extra[device - 1] and 1 + extra[device] < board.microbatches:
            extra[device] -= 1
    for device, count in enumerate(extra):
        for _ in range(count):
            board.put(device, 0)
    for device in reversed(range(pp)):
        board.put(device, 1)
    return first_end


def _zb_h2_wants_forward(board: _Board, device: int, patient: bool) -> bool:
    """Whether the device runs a forward before its next input gradient.

    patient: skip it when the neighbour is behind and would not need the result before its own next gradient.
    """
    ahead = board.done[device][0]
    if ahead >= board.microbatches:
        return False
    if not patient or device + 1 == board.pp or ahead < board.done[device + 1][0] + 2:
        return True
    t_F, t_B, t_W = board.times
    needed = board.clock[device + 1] + t_F + t_B + board.p2p
    if board.clock[device] >= needed:
        return False
    weights = min(max(0, board.held[device] + 1 - board.limit), len(board.late[device]))
    return board.clock[device] + t_F + weights * t_W <= needed or needed - board.clock[device] > board.slack(device)


def _zb_h2_round(board: _Board, patient: bool, greedy: bool) -> None:
    """One forward (where wanted) down the devices and one input gradient up, weight gradients in the gaps."""
    pp = board.pp
    wanted = [_zb_h2_wants_forward(board, device, patient) for device in range(pp)]
    for device in reversed(range(pp - 1)):
        wanted[device] = wanted[device] and wanted[device + 1]
    for device in range(pp):
        if wanted[device]:
            board.makeroom(device)
            board.fill(device, 0, within=greedy, beyond=True)
            board.put(device, 0)
    for device in reversed(range(pp)):
        board.fill(device, 1, within=greedy, beyond=True)
        if device == 0 and board.done[0][0] == board.microbatches:
            while board.late[0]:
                board.put_weight(0)
        board.put(device, 1)


def zb_v_greedy(pp: int, microbatches: int, times: Times, p2p: float = 0.0) -> Schedule:
    """ZB-V fitted to unequal times, within the activations 1F1B holds on its first device (p microbatches).

    Of four variants the one with the least idle time wins, each repeated with its own idle time as the aim while
    that helps.
    """
    best: tuple[float, list[list[Step]]] | None = None
    for fill_backward, fill_forward in product((True, False), repeat=2):
        allowed: list[float] | None = None
        while True:
            board = _Board(pp, microbatches, 4, times, p2p, 2 * pp, allowed)
            _zb_v_warm_up(board)
            for _ in range(2 * microbatches):
                _zb_v_round(board, fill_backward, fill_forward)
            board.finish()
            if best is None or max(board.idle) < best[0]:
                best = max(board.idle), board.order
            if allowed is not None and max(board.idle) >= max(allowed):
                break
            allowed = board.idle
    assert best is not None
    return from_legs("zb-v", pp, microbatches, 4, best[1])


def _zb_v_warm_up(board: _Board) -> None:
    """Fill the V: first microbatch down and up, more behind it while they fit, then level the devices."""
    pp, m, t_F = board.pp, board.microbatches, board.times[0]
    for device in range(pp):
        board.put(device, 0)
    board.put(pp - 1, 1)
    for device in reversed(range(pp - 1)):
        came = board.arrival(device, 1) or 0.0
        while (board.held[device] + 2 + 2 * device <= board.limit and board.clock[device] + t_F <= came
               and board.done[device][0] < m):
            for upstream in range(device + 1):
                board.put(upstream, 0)
        board.put(device, 1)
    leg = 0
    for device in range(1, pp):
        mine, above = board.done[device], board.done[device - 1]
        while mine[0] + mine[1] < above[0] + above[1] or mine[1] <= above[1] < m:
            for j in reversed(range(device, pp)):
                if board.done[j][leg] < m:
                    board.put(j, leg)
            leg = 1 - leg


def _zb_v_round(board: _Board, fill_backward: bool, fill_forward: bool) -> None:
    """One input gradient and one forward on each device, the later leg first where its input is there."""
    devices, m = range(board.pp), board.microbatches
    last_leg = [board.done[d][3] < board.done[d][2] and (board.arrival(d, 3) is not None or board.done[d][2] >= m)
                for d in devices]
    home = [(d, 3) for d in reversed(devices) if last_leg[d]]
    for device, leg in [*home, *((d, 2) for d in devices if not last_leg[d])]:
        board.fill(device, leg, within=False, beyond=leg == 3 or fill_backward)
        board.put(device, leg)
    for device in devices:
        entered, turned = board.done[device][:2]
        if turned >= m:
            continue
        if turned < entered and board.arrival(device, 1) is not None:
            leg = 1
        elif turned >= entered or (entered < m and board.arrival(device, 0) is not None):
            leg = 0
        else:
            continue
        board.makeroom(device)
        board.fill(device, leg, within=False, beyond=fill_forward)
        board.put(device, leg)
