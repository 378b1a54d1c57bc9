"""Bytes and seconds of collectives: by hand, by counting a ring step by step, and over hierarchies."""

from __future__ import annotations

import inspect
import typing
from dataclasses import replace

import numpy as np
import pytest

from scaling_lib import collectives
from scaling_lib.collectives import collective_time, hierarchical, latency, sent_bytes
from scaling_lib.hardware import Cluster
from scaling_lib.job import Job


def ring_bytes(op: str, n: int) -> float:
    """Bytes that rank 0 of a ring sends when an array of n unit shards is gathered, reduced or exchanged."""
    if op == "all_gather":  # pass on what came last, until all have all
        held = [{r} for r in range(n)]
        last, sent = list(range(n)), 0
        while any(len(h) < n for h in held):
            sent += 1
            last = [last[r - 1] for r in range(n)]
            for r in range(n):
                held[r].add(last[r])
        return sent
    if op == "reduce_scatter":  # a partial sum goes round once and stops at its owner
        summed, sent = [1] * n, 0
        while min(summed) < n:
            sent += 1
            summed = [s + 1 for s in summed]
        return sent
    if op == "all_reduce":
        return ring_bytes("reduce_scatter", n) + ring_bytes("all_gather", n)
    return sum(1 / n for other in range(n) if other != 0)  # all_to_all: a piece of the own shard to each other rank


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_sent_bytes_are_what_a_ring_sends(op: str, n: int) -> None:
    assert sent_bytes(op, float(n), n) == pytest.approx(ring_bytes(op, n))


def test_p2p_and_unknown_operations() -> None:
    assert sent_bytes("p2p", 7.0, 2) == 7
    with pytest.raises(ValueError, match="unknown collective 'broadcast': use one of all_gather, reduce_scatter"):
        sent_bytes("broadcast", 1.0, 2)


def test_seconds_by_hand() -> None:
    # 80 bytes over 4 chips at 10 B/s, 0.5 s a step: 3 shards of 20 bytes, 3 steps
    assert collectives.all_gather(80, 4, 10) == 6
    assert collectives.all_gather(80, 4, 10, 0.5) == 7.5
    assert collectives.reduce_scatter(80, 4, 10, 0.5) == 7.5
    assert collectives.all_reduce(80, 4, 10, 0.5) == 15
    assert collectives.all_reduce_in_network(80, 10) == 8
    assert collectives.all_to_all(80, 4, 10) == 1.5  # three pieces of 5 bytes
    assert collectives.all_to_all_ring(80, 10) == 2
    assert collectives.p2p(80, 10, 0.5) == 8.5
    assert collectives.p2p(80, 10) == 8


def test_a_group_of_one_sends_nothing() -> None:
    assert collectives.all_gather(80, 1, 10, 0.5) == 0
    assert collectives.all_reduce(80, 1, 10, 0.5) == 0
    assert collectives.all_to_all(80, 1, 10) == 0


def test_time_is_sent_bytes_over_egress() -> None:
    for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        assert getattr(collectives, op)(96, 6, 4) == pytest.approx(sent_bytes(op, 96, 6) / 4)


def test_two_nodes_are_bounded_by_nvlink_not_by_the_cards(h100: Cluster) -> None:
    size = 1e9
    nvlink, cards = size * 7 / 8 / 450e9, size * 1 / 2 / 400e9
    assert hierarchical("all_gather", size, h100.hops(16)) == nvlink > cards
    assert hierarchical("all_gather", size, h100.hops(1024)) == size * 127 / 128 / 400e9 > nvlink


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_inner_tp_leaves_the_nodes_gather_unchanged(h100: Cluster, tp: int) -> None:
    # 1024 GPUs: each of the tp groups gathers 1/tp of the array with 8/tp cards a node
    size = 1e9
    group = h100.hops(1024 // tp, stride=tp)
    assert hierarchical("all_gather", size / tp, group) == pytest.approx(size * 127 / 128 / 400e9)


def test_beyond_the_node_tp_takes_cards_away(h100: Cluster) -> None:
    size, tp = 1e9, 32
    group = h100.hops(1024 // tp, stride=tp)
    assert hierarchical("all_gather", size / tp, group) == pytest.approx(size / tp * 31 / 32 / 50e9)


def test_torus_axes_add(v5p: Cluster) -> None:
    size = 1e9
    one, two, three = (hierarchical("all_gather", size, v5p.hops(64, axes=k)) for k in (1, 2, 3))
    assert (one / two, one / three) == (2, pytest.approx(3))
    open_axis = replace(v5p, levels=(replace(v5p.levels[0], wrap=False), v5p.levels[1]))
    assert hierarchical("all_gather", size, open_axis.hops(64, axes=1)) == 2 * one


def test_all_reduce_costs_twice_unless_the_switch_adds(round_job: Job) -> None:
    machine = round_job.cluster
    gather = hierarchical("all_gather", 80.0, machine.hops(8))
    assert gather == max(80 * 3 / 4 / 10, 80 * 1 / 2 / 4) == 10
    assert hierarchical("reduce_scatter", 80.0, machine.hops(8)) == gather
    assert hierarchical("all_reduce", 80.0, machine.hops(8)) == 20
    adding = replace(machine, levels=(machine.levels[0], replace(machine.levels[1], in_network_reduction=True)))
    assert hierarchical("all_reduce", 80.0, adding.hops(8)) == 80 / 4  # V / W of the node
    inside = replace(machine, levels=(replace(machine.levels[0], in_network_reduction=True), machine.levels[1]))
    assert hierarchical("all_reduce", 80.0, inside.hops(4)) == 80 / 10
    assert hierarchical("all_reduce", 80.0, inside.hops(1)) == 0
    assert hierarchical("all_gather", 80.0, inside.hops(4)) == 80 * 3 / 4 / 10


def test_no_hierarchical_all_to_all(round_job: Job) -> None:
    with pytest.raises(ValueError, match="no hierarchical form of 'all_to_all': use all_gather, reduce_scatter or"):
        hierarchical("all_to_all", 1.0, round_job.cluster.hops(8))


def test_latency_counts_the_steps_of_each_level(round_job: Job) -> None:
    machine = round_job.cluster  # 0.5 s inside domains of 4, 2 s between them
    assert latency(machine.hops(8)) == 3 * 0.5 + 1 * 2.0
    assert latency(machine.hops(2, stride=4)) == 2.0
    assert collective_time("all_gather", 80.0, machine, 8) == 10 + 3.5
    assert collective_time("all_reduce", 80.0, machine, 8) == 20 + 7
    assert collective_time("reduce_scatter", 80.0, machine, 2, 4) == 80 * 0.5 / 1 + 2


def test_a_torus_has_a_ring_along_each_axis(v5p: Cluster) -> None:
    hop = v5p.levels[0].latency
    assert latency(v5p.hops(64), 1) == 63 * hop
    assert latency(v5p.hops(64), 2) == pytest.approx(2 * 7 * hop)
    assert latency(v5p.hops(64)) == latency(v5p.hops(64), 3) == pytest.approx(3 * 3 * hop)
    assert latency(v5p.hops(1)) == 0


def test_collective_time_uses_the_axes_asked_for(v5p: Cluster) -> None:
    slow, fast = (collective_time("all_gather", 1e12, v5p, 64, 1, axes) for axes in (1, 3))
    assert slow - latency(v5p.hops(64), 1) == pytest.approx(3 * (fast - latency(v5p.hops(64), 3)))


def test_a_grid_of_groups_is_one_call(h100: Cluster) -> None:
    n, stride = np.array([1, 8, 16, 128]), np.array([1, 1, 1, 8])
    for op in ("all_gather", "all_reduce"):
        grid = collective_time(op, 1e9, h100, n, stride)
        singles = [collective_time(op, 1e9, h100, int(a), int(b)) for a, b in zip(n, stride, strict=True)]
        np.testing.assert_allclose(grid, singles, rtol=1e-15)
    np.testing.assert_allclose(sent_bytes("all_to_all", 1e9, n), [sent_bytes("all_to_all", 1e9, int(a)) for a in n])


def test_every_operation_has_a_function() -> None:
    for op in collectives.OPS:
        assert inspect.isfunction(getattr(collectives, op))
        assert "size" in typing.get_type_hints(getattr(collectives, op))
