"""Expert parallelism: the exchange over levels, on switches and on a torus."""

from __future__ import annotations

import random
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


def domains_met(domains: int, k: int, groups: int, open_: int, experts: int, draws: int = 4000) -> float:
    """Domains beside its own that a token's experts stand in: mean over random tokens, each expert drawn once."""
    rng = random.Random(1)
    found = 0
    for _ in range(draws):
        allowed = set(rng.sample(range(groups), open_))
        pool = [e for e in range(experts) if e * groups // experts in allowed]
        found += len({e * domains // experts for e in rng.sample(pool, k)} - {0})
    return found / draws


@pytest.mark.parametrize(
    ("domains", "k", "groups", "open_", "rel"),
    [
        (8, 8, 1, 1, 0.03),
        (2, 2, 1, 1, 0.03),
        (32, 8, 1, 1, 0.03),
        (8, 8, 8, 4, 0.03),  # DeepSeek-V3 as trained
        (16, 8, 8, 4, 0.03),
        (4, 8, 8, 4, 0.06),
        (2, 8, 8, 4, 0.10),
        (8, 8, 8, 8, 0.03),  # a limit that limits nothing
    ],
)
def test_domains_reached_are_those_that_random_tokens_meet(
    domains: int, k: int, groups: int, open_: int, rel: float
) -> None:
    met = domains_met(domains, k, groups, open_, 256)
    assert ep.domains_reached(domains, k, groups, open_) == pytest.approx(met, rel=rel)
    assert ep.domains_reached(1, k, groups, open_) == 0
