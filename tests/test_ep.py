"""Expert parallelism: the exchange over levels, on switches and on a torus."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from scaling_lib import collectives, ep
from scaling_lib.hardware import Cluster, Level, cluster


def torus(side: int, axes: int, egress: float) -> Cluster:
    """A closed torus of so many chips along each axis; egress along one axis, both links together."""
    level = Level("torus", "torus", side**axes, egress, 0.0, shape=(side,) * axes)
    return replace(cluster("tpu-v5p"), levels=(level,))


def busiest_link(side: int, axes: int) -> float:
    """Pieces over the busiest link when each chip sends one piece to every other, axis after axis, the short way.

    Half a piece goes each way where both are equally long.
    """
    load: dict[tuple[tuple[int, ...], int, int], float] = {}
    chips = list(product(range(side), repeat=axes))
    for source, target in product(chips, chips):
        at = list(source)
        for axis in range(axes):
            ahead = (target[axis] - source[axis]) % side
            short = min(ahead, side - ahead)
            ways = [way for way, steps in ((1, ahead), (-1, side - ahead)) if steps == short]
            for way in ways:
                for step in range(short):
                    here = [*at[:axis], (at[axis] + way * step) % side, *at[axis + 1 :]]
                    link = (tuple(here), axis, way)
                    load[link] = load.get(link, 0.0) + 1 / len(ways)
            at[axis] = target[axis]
    return max(load.values())


@pytest.mark.parametrize(("side", "axes"), [(4, 1), (8, 1), (4, 2), (4, 3), (6, 2)])
def test_an_exchange_on_a_torus_takes_what_its_busiest_link_takes(side: int, axes: int) -> None:
    n = side**axes
    here = torus(side, axes, 90.0)
    size = 512.0  # bytes of one chip's array, so 512 / n to each peer
    counted = busiest_link(side, axes) * size / n / 45.0
    assert ep.exchange_seconds(size, n, here.hops(n)) == pytest.approx(counted, rel=1e-12)
    if axes == 1:  # the closed form for one ring, of the array of all chips
        assert counted == pytest.approx(collectives.all_to_all_ring(size * n, 90.0), rel=1e-12)


def test_the_axes_that_a_group_uses_count() -> None:
    here = torus(4, 3, 90.0)
    # 4x4x4: on average one link along each axis, three axes at once
    assert ep.exchange_seconds(512.0, 64, here.hops(64)) == pytest.approx(512 / 90)
    # 16 chips as 4x4 on two axes: the same; as one ring of 16: four links
    assert ep.exchange_seconds(512.0, 16, here.hops(16, axes=2), 2) == pytest.approx(512 / 90)
    assert ep.exchange_seconds(512.0, 16, here.hops(16, axes=1), 1) == pytest.approx(4 * 512 / 90)
    assert ep.exchange_seconds(512.0, 1, here.hops(1)) == 0


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_a_switch_delivers_directly(n: int) -> None:
    switch = replace(cluster("dgx-h100"), levels=(Level("switch", "switch", None, 50.0, 0.0),))
    assert ep.exchange_seconds(96.0, n, switch.hops(n)) == pytest.approx(collectives.all_to_all(96.0 * n, n, 50.0))
