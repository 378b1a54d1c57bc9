"""V-Half and V-Min: a short pattern, repeated, then squeezed within the same memory.

The rules are those of sail-sg's controllable-memory code (arXiv 2405.15362), written afresh. Slots are one unit long;
the legs are those of `schedule_search`: forward down, forward up, input gradient down, input gradient up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from scaling_lib.schedule_search import from_legs, leg_action
from scaling_lib.schedules import Schedule, Step


def v_half(pp: int, microbatches: int) -> Schedule:
    """V-Half: about half the activations of 1F1B, p/2 + 1 microbatches for even p. Source: arXiv 2405.15362."""
    gap = 3 if pp % 2 == 0 else 0
    pattern = [(2 * d, 3 * pp - d - 2, 3 * pp + gap + 2 * d - 1, 6 * pp + gap - d - 2) for d in range(pp)]
    return _squeezed("v-half", pattern, microbatches)


def v_min(pp: int, microbatches: int) -> Schedule:
    """V-Min: about a third of the activations of 1F1B. Source: arXiv 2405.15362."""
    gap = 2 if pp % 3 == 0 else 0
    pattern = [(d, 2 * pp - d - 1, 2 * pp + gap + d, 4 * pp + gap - d - 1) for d in range(pp)]
    return _squeezed("v-min", pattern, microbatches)


_WEIGHT = 4  # index of the list of weight slots behind those of the four legs
_Slots = list[list[int]]  # of one device: for each leg the time slot of each microbatch


def _squeezed(name: str, pattern: list[tuple[int, int, int, int]], microbatches: int) -> Schedule:
    """Repeat a pattern of unit slots every six slots, then pull warm-up and drain together within the same memory."""
    pp = len(pattern)
    slots = [[list(range(first, first + 6 * microbatches, 6)) for first in legs] for legs in pattern]
    slots = [s[:_WEIGHT] for s in _eager(_pull([_with_weights(s) for s in slots], everything=True))]
    pulled = [_with_weights(s) for s in _pull(slots, everything=False)]
    order: list[list[Step]] = []
    for device, own in enumerate(s[:_WEIGHT] for s in _eager(pulled)):
        order.append([leg_action(pp, 4, leg, device, i, is_weight) for _, leg, i, is_weight in _split_weights(own)])
    return from_legs(name, pp, microbatches, 4, order)


def _occupants(slots: _Slots) -> dict[int, tuple[int, int]]:
    """Slot -> (leg, microbatch) of one device."""
    return {slot: (leg, i) for leg, own in enumerate(slots) for i, slot in enumerate(own)}


def _with_weights(slots: _Slots) -> _Slots:
    """Add the weight gradients, oldest first, in the first free slots."""
    taken, free, waiting = _occupants(slots), [], 0
    last = max(taken)
    for slot in range(last + 1):
        if slot in taken:
            waiting += taken[slot][0] >= 2
        elif waiting:
            free.append(slot)
            waiting -= 1
    return [*slots, [*free, *range(last + 1, last + 1 + waiting)]]


def _split_weights(slots: _Slots) -> Iterator[tuple[int, int, int, bool]]:
    """Slots of one device in order, as (slot, leg, microbatch, is weight); later chunk's weight gradients go
    first."""
    taken = _occupants(slots)
    late: tuple[deque[int], deque[int]] = (deque(), deque())
    slot, last = 0, max(taken)
    while slot <= last or late[0] or late[1]:
        if slot in taken:
            leg, i = taken[slot]
            yield slot, leg, i, False
            if leg >= 2:
                late[leg - 2].append(i)
        elif late[0] or late[1]:
            which = 0 if late[0] else 1
            yield slot, which + 2, late[which].popleft(), True
        slot += 1


def _peak(slots: _Slots) -> int:
    """Most activations held; without weight slots each free slot is taken by a weight gradient that waits."""
    taken, held, peak, waiting = _occupants(slots), 0, 0, 0
    given = len(slots) > _WEIGHT
    for slot in range(max(taken) + 1):
        if slot in taken:
            leg = taken[slot][0]
            held += 1 if leg < 2 else -1 if leg == _WEIGHT else 0
            waiting += 2 <= leg < _WEIGHT
            peak = max(peak, held)
        elif waiting and not given:
            held -= 1
            waiting -= 1
    return peak


def _in_order(slots: list[_Slots]) -> list[tuple[int, int, int, int]]:
    """All (slot, device, leg, microbatch) of all devices, by time."""
    return sorted((slot, d, leg, i) for d, own in enumerate(slots) for leg, row in enumerate(own)
                  for i, slot in enumerate(row))


def _inputs_at(slots: list[_Slots], device: int, leg: int, i: int) -> int:
    """Latest slot among those that must come before: neighbour, previous leg, previous microbatch."""
    before = [-1]
    if leg < _WEIGHT:
        neighbour = device - 1 if leg % 2 == 0 else device + 1
        before += [slots[neighbour][leg][i]] if 0 <= neighbour < len(slots) else []
        before += [slots[device][leg - 1][i]] if leg else []
    else:
        before += [sorted(slots[device][2] + slots[device][3])[i]]
    return max(before + ([slots[device][leg][i - 1]] if i else []))


def _pull(slots: list[_Slots], everything: bool) -> list[_Slots]:
    """Move warm-up and drain to earlier free slots while no device's peak grows.

    everything: move warm-up too; otherwise the drain only.
    """
    limit = max(map(_peak, slots))
    slots = [[list(row) for row in own] for own in slots]
    taken: list[set[int]] = [set() for _ in slots]
    microbatches = len(slots[0][0])
    phase = 0  # warm-up, steady, drain
    for slot, device, leg, i in _in_order(slots):
        if phase == 0 and leg == 3 and device == 0:
            phase = 1
        if phase == 2 or (phase == 0 and everything):
            slot = _earliest(slots, taken[device], device, leg, i, limit)
        elif phase == 1 and leg == 0 and i == microbatches - 1:
            phase = 2
        taken[device].add(slot)
    return slots


def _earliest(slots: list[_Slots], taken: set[int], device: int, leg: int, i: int, limit: int) -> int:
    """Put one action in the first free slot its inputs and the memory allow, and return the slot."""
    now = slots[device][leg][i]
    for slot in range(_inputs_at(slots, device, leg, i) + 1, now):
        if slot not in taken:
            slots[device][leg][i] = slot
            if _peak(slots[device]) <= limit:
                return slot
    slots[device][leg][i] = now
    return now


def _eager(slots: list[_Slots]) -> list[_Slots]:
    """Same order, each action as early as its inputs and its device allow, one slot long."""
    result = [[list(row) for row in own] for own in slots]
    free = [0] * len(slots)
    for _, device, leg, i in _in_order(slots):
        after = 0 if leg == _WEIGHT else _inputs_at(result, device, leg, i) + 1
        result[device][leg][i] = max(after, free[device])
        free[device] = result[device][leg][i] + 1
    return result
