"""Which links a group crosses, and what limits it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from scaling_lib.catalogue import CatalogueError
from scaling_lib.hardware import Cluster, Level, chip, cluster
from scaling_lib.job import Job


def members(machine: Cluster, n: int, stride: int = 1) -> list[tuple[int, int, float]]:
    return [(h.members, h.below, h.egress) for h in machine.hops(n, stride)]


def test_a_group_inside_the_domain_crosses_only_nvlink(h100: Cluster) -> None:
    assert members(h100, 8) == [(8, 1, 450e9), (1, 8, 400e9)]
    assert h100.egress(8) == 450e9
    assert h100.slowest(8) is h100.levels[0]


def test_a_whole_node_sends_with_all_its_cards(h100: Cluster) -> None:
    assert members(h100, 1024) == [(8, 1, 450e9), (128, 8, 400e9)]
    assert h100.egress(1024) == 400e9
    assert h100.slowest(1024) is h100.levels[1]


def test_one_rank_a_node_sends_with_one_card(h100: Cluster) -> None:
    assert members(h100, 128, stride=8) == [(1, 1, 450e9), (128, 1, 50e9)]
    assert h100.egress(128, stride=8) == 50e9


def test_a_stride_inside_the_node_leaves_fewer_members_there(h100: Cluster) -> None:
    assert members(h100, 128, stride=2) == [(4, 1, 450e9), (32, 4, 200e9)]


def test_a_stride_beyond_the_domain(h100: Cluster) -> None:
    assert members(h100, 16, stride=64) == [(1, 1, 450e9), (16, 1, 50e9)]


def test_a_group_that_does_not_fill_its_last_node(h100: Cluster) -> None:
    assert members(h100, 12) == [(8, 1, 450e9), (2, 8, 400e9)]


def test_two_nodes_are_limited_by_nvlink(h100: Cluster) -> None:
    # n/(n-1) of the link: NVLink 450 x 8/7 = 514, network 400 x 2 = 800
    assert h100.slowest(16) is h100.levels[0]
    assert h100.slowest(24) is h100.levels[0]  # 400 x 3/2 = 600
    assert h100.slowest(32) is h100.levels[0]  # 400 x 4/3 = 533
    assert h100.slowest(40) is h100.levels[1]  # 400 x 5/4 = 500


def test_a_group_of_one_crosses_nothing(h100: Cluster) -> None:
    assert h100.slowest(1) is None
    assert h100.egress(1) == math.inf


def test_torus_axes_add_and_an_open_axis_halves(v5p: Cluster) -> None:
    torus = v5p.levels[0]
    assert [torus.chip_egress(axes) for axes in (1, 2, 3, None)] == [180e9, 360e9, 540e9, 540e9]
    assert replace(torus, wrap=False).chip_egress(2) == 180e9
    assert v5p.egress(64, axes=1) == 180e9
    assert v5p.domain == 16 * 20 * 28


@pytest.mark.parametrize("axes", [0, 4])
def test_a_torus_has_the_axes_it_has(v5p: Cluster, axes: int) -> None:
    with pytest.raises(ValueError, match=rf"ici has 3 axes, {axes} asked for: use 1 to 3"):
        v5p.egress(64, axes=axes)


def test_a_pod_sends_with_the_cards_of_all_its_chips(v5p: Cluster) -> None:
    inner, outer = v5p.hops(2 * 8960)
    assert (inner.members, outer.members, outer.below) == (8960, 2, 8960)
    assert outer.egress == 8960 * 6.25e9


def test_three_levels_nest() -> None:
    machine = cluster("trn2-ultra")
    assert [(h.members, h.below) for h in machine.hops(256)] == [(16, 1), (4, 16), (4, 64)]
    assert [(h.members, h.below) for h in machine.hops(16, stride=16)] == [(1, 1), (4, 1), (4, 4)]


def test_an_open_first_level() -> None:
    flat = Cluster("flat", "flat", chip("h100-sxm"), (Level("net", "switch", None, 1e9, 0.0),))
    assert flat.domain == 1
    assert members(flat, 100, stride=5) == [(100, 1, 1e9)]


def test_a_grid_of_groups_is_one_call(h100: Cluster) -> None:
    n = np.array([1, 8, 16, 1024])
    stride = np.array([1, 1, 1, 8])
    assert h100.egress(n, stride).tolist() == [h100.egress(int(a), int(b)) for a, b in zip(n, stride, strict=True)]
    for level, hop in enumerate(h100.hops(n, stride)):
        scalars = [h100.hops(int(a), int(b))[level] for a, b in zip(n, stride, strict=True)]
        np.testing.assert_array_equal(np.broadcast_to(hop.members, n.shape), [s.members for s in scalars])
        np.testing.assert_array_equal(np.broadcast_to(hop.egress, n.shape), [s.egress for s in scalars])


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan])
def test_a_group_has_chips(h100: Cluster, wrong: float) -> None:
    with pytest.raises(ValueError, match="chips: use a number of at least 1"):
        h100.hops(wrong)
    with pytest.raises(ValueError, match="ranks apart: use a number of at least 1"):
        h100.egress(8, wrong)


def test_a_peak_the_chip_lacks() -> None:
    assert chip("h100-sxm").flops("bf16") == 989e12
    with pytest.raises(CatalogueError, match=r"a100-80gb has no 'fp8' peak: .*bf16"):
        chip("a100-80gb").flops("fp8")


def test_the_ledge_between_gpu_and_node_of_a_job(gpu_job: Job) -> None:
    assert gpu_job.cluster.egress(gpu_job.plan.tp) == 450e9
    # TP 8 fills the node: each rank of the data group has its own card
    assert gpu_job.cluster.egress(gpu_job.plan.shard_group, gpu_job.plan.tp) == 50e9
