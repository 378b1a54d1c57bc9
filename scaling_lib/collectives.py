"""Collectives: bytes that one participant sends, and seconds on one level or over a hierarchy.

n: participants. size: bytes of the full, gathered array (V). egress: byte/s of one participant. hop: seconds a step.
Sources: JAX Scaling Book, chapters 3 and 12; Thakur, Rabenseifner and Gropp 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaling_lib.hardware import Cluster, Hop
from scaling_lib.units import maximum, where

OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p")


def sent_bytes(op: str, size: Any, n: Any) -> Any:
    """Bytes that one participant sends in a bandwidth-optimal algorithm.

    all_gather and reduce_scatter V(n-1)/n, all_reduce twice that, all_to_all V(n-1)/n^2, p2p V.
    Raises ValueError for another operation.
    """
    if op in ("all_gather", "reduce_scatter"):
        return size * (n - 1) / n
    if op == "all_reduce":
        return 2 * size * (n - 1) / n
    if op == "all_to_all":
        return size * (n - 1) / n**2
    if op == "p2p":
        return size
    raise ValueError(f"unknown collective {op!r}: use one of {', '.join(OPS)}")


def all_gather(size: Any, n: Any, egress: Any, hop: Any = 0.0) -> Any:
    """Seconds of an all-gather on a ring: V (n-1)/(n W) + (n-1) t_hop. Equation: eq-all-gather."""
    return size * (n - 1) / (n * egress) + (n - 1) * hop


def reduce_scatter(size: Any, n: Any, egress: Any, hop: Any = 0.0) -> Any:
    """Seconds of a reduce-scatter on a ring: as an all-gather, which runs backwards. Equation: eq-reduce-scatter."""
    return size * (n - 1) / (n * egress) + (n - 1) * hop


def all_reduce(size: Any, n: Any, egress: Any, hop: Any = 0.0) -> Any:
    """Seconds of an all-reduce: a reduce-scatter, then an all-gather. Equation: eq-all-reduce."""
    return reduce_scatter(size, n, egress, hop) + all_gather(size, n, egress, hop)


def all_reduce_in_network(size: Any, egress: Any) -> Any:
    """Seconds of an all-reduce when the switch adds: each participant sends its array once, V / W.

    Equation: eq-in-network.
    """
    return size / egress


def all_to_all(size: Any, n: Any, egress: Any) -> Any:
    """Seconds of an all-to-all on a switch: V (n-1)/(n^2 W). Equation: eq-all-to-all."""
    return size * (n - 1) / (n**2 * egress)


def all_to_all_ring(size: Any, egress: Any) -> Any:
    """Seconds of an all-to-all on a closed ring: V / (4 W); W over both links of a chip.

    Equation: eq-all-to-all-ring.
    """
    return size / (4 * egress)


def links_passed(n: Any, axes: Any = 0) -> Any:
    """Links that a byte of an all-to-all of n chips passes, on average, the bytes that stay among them counted.

    (n-1)/n on a switch; a n^(1/a) / 4 on the rings of a torus' a axes, a quarter of each ring. axes: 0 on a switch.
    """
    rings = maximum(1, axes)
    return where(axes == 0, (n - 1) / n, where(n > 1, rings * n ** (1 / rings) / 4, 0.0))


def p2p(size: Any, egress: Any, hop: Any = 0.0) -> Any:
    """Seconds to send an array to one neighbour: V / W + t_hop. Equation: eq-p2p."""
    return size / egress + hop


def level_gather(size: Any, members: Any, below: Any, chip_egress: Any) -> Any:
    """Seconds of a gather at one level of a hierarchy: V (n_i - 1)/(n_i k_i W_i). Equation: eq-level-gather.

    members: n_i subtrees that exchange. below: k_i participants inside each, which send together, W_i byte/s each.
    """
    return size * ((members - 1) / members) / (below * chip_egress)


def hierarchical(op: str, size: Any, hops: Sequence[Hop]) -> Any:
    """Seconds of a collective over the levels a group crosses, bandwidth only: the slowest level decides.

    At each level the group's subtrees exchange the array with the egress of all their members together:
    V (n_i - 1)/(n_i k_i W_i), k_i members in a subtree. An all-reduce doubles it, unless the level's switches add.
    op: all_gather, reduce_scatter or all_reduce. Raises ValueError for another.
    """
    if op not in ("all_gather", "reduce_scatter", "all_reduce"):
        raise ValueError(f"no hierarchical form of {op!r}: use all_gather, reduce_scatter or all_reduce")
    slowest: Any = 0.0
    for hop in hops:
        if op == "all_reduce" and hop.level.in_network_reduction:
            seconds = (hop.members > 1) * all_reduce_in_network(size, hop.egress)
        else:
            once = level_gather(size, hop.members, 1, hop.egress)  # the egress of a hop is that of a whole subtree
            seconds = (2.0 if op == "all_reduce" else 1.0) * once
        slowest = maximum(slowest, seconds)
    return slowest


def latency(hops: Sequence[Hop], axes: int | None = None) -> Any:
    """Seconds that the steps of a ring over each level take: sum of (n_i - 1) t_i.

    On a torus the group is a block with as many chips along each of its axes, and there is a ring along every axis:
    a (n^(1/a) - 1) steps. axes: torus axes used, all when None, as in the egress of the hops.
    """
    return sum(_steps(hop, axes) * hop.level.latency for hop in hops)


def _steps(hop: Hop, axes: int | None) -> Any:
    """Steps of the rings of one level."""
    rings = hop.level.rings(axes)
    return hop.members - 1 if rings < 2 else rings * (hop.members ** (1 / rings) - 1)


def collective_time(op: str, size: Any, cluster: Cluster, n: Any, stride: Any = 1, axes: int | None = None) -> Any:
    """Seconds of a collective of `n` chips, `stride` ranks apart, on a cluster: bandwidth and ring latency.

    size: bytes of the full array. axes: torus axes used, all when None.
    """
    hops = cluster.hops(n, stride, axes)
    return hierarchical(op, size, hops) + latency(hops, axes) * (2 if op == "all_reduce" else 1)
