"""How a collective runs: messages sent step by step between the ranks of a mesh, and counted as they leave.

Nothing here knows a formula. A message is blocks of an array on their way from one rank to another; the bytes of a
collective are the sum of what each rank really sent, its steps the number of rounds it took.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from scaling_lib.hardware import Cluster, Level

Array = npt.NDArray[Any]
Blocks = dict[int, Array]
Groups = Sequence[Sequence[int]]


class MeshError(ValueError):
    """A move that the mesh cannot make, explained in one sentence."""


@dataclass
class Count:
    """What one collective sent: bytes by rank and level, rounds, and the seconds their latency takes."""

    n_ranks: int
    element_bytes: float
    cluster: Cluster | None
    steps: int = 0
    latency: float = 0.0
    sent: Array = field(init=False)

    def __post_init__(self) -> None:
        self.sent = np.zeros((self.n_ranks, len(self.cluster.levels) if self.cluster else 1))

    def deliver(self, messages: Sequence[tuple[int, int, Blocks]]) -> dict[int, Blocks]:
        """One round: all messages leave at once. Returns what each rank received."""
        arrived: dict[int, Blocks] = {}
        slowest = 0.0
        for source, target, blocks in messages:
            level = self._level(source, target)
            self.sent[source, level] += self.element_bytes * sum(b.size for b in blocks.values())
            arrived.setdefault(target, {}).update(blocks)
            if self.cluster:
                slowest = max(slowest, self.cluster.levels[level].latency)
        if messages:
            self.steps += 1
            self.latency += slowest
        return arrived

    def seconds(self, axes: int | None) -> float | None:
        """Seconds on the cluster: the slowest level's bytes over one chip's egress there, plus latency.

        Levels work at the same time, as in `collectives.hierarchical`, and so do the axes of a torus: each takes a part
        of the array first. axes: torus axes used. None without a cluster.
        """
        if self.cluster is None:
            return None
        busiest = self.sent.max(axis=0)
        return self.latency + max(
            float(b) / v.chip_egress(axes) for b, v in zip(busiest, self.cluster.levels, strict=True)
        )

    def _level(self, source: int, target: int) -> int:
        if self.cluster is None:
            return 0
        return next(i for i, v in enumerate(self.cluster.levels) if _subtree(source, v) == _subtree(target, v))


def _subtree(rank: int, level: Level) -> int:
    """Which subtree of a level a rank sits in; an outermost level without a bound has one."""
    return rank // level.size if level.size else 0


def members_by_level(group: Sequence[int], cluster: Cluster | None) -> list[int]:
    """How many subtrees of each level a group joins, innermost first; their product is its size.

    Without a cluster there is one level. Raises MeshError when the group fills some subtrees more than others.
    """
    if cluster is None:
        return [len(group)]
    members, below = [], 1
    for level in cluster.levels:
        filled = set(Counter(_subtree(r, level) for r in group).values())
        if len(filled) > 1:
            raise MeshError(
                f"the group of ranks {list(group)} has {sorted(filled)} members in different {level.name} domains of "
                f"{level.size}: choose axis sizes that divide the domain"
            )
        members.append(filled.pop() // below)
        below *= members[-1]
    if below != len(group):
        raise MeshError(f"{len(group)} ranks do not fit into {cluster.name}: use fewer devices or a larger cluster")
    return members


def rings_by_level(group: Sequence[int], cluster: Cluster | None) -> list[int]:
    """Members of each ring a collective of the group runs in, innermost first: one a level, one an axis on a torus."""
    members = members_by_level(group, cluster)
    if cluster is None:
        return members
    rings, unit = [], 1
    for n, level in zip(members, cluster.levels, strict=True):
        rings += _torus_rings(group, n, level, unit) if level.topology == "torus" and level.shape else [n]
        unit = level.size or unit
    return rings


def _torus_rings(group: Sequence[int], n: int, level: Level, unit: int) -> list[int]:
    """A block of a torus has a ring along each of its axes, the last innermost; other members form one ring."""
    here = sorted({r // unit for r in group if _subtree(r, level) == _subtree(group[0], level)})
    places = np.unravel_index([r % math.prod(level.shape) for r in here], level.shape)
    sides = [len(set(along.tolist())) for along in reversed(places)]
    return sides if math.prod(sides) == n else [n]


def stages(groups: Groups, cluster: Cluster | None) -> list[list[list[int]]]:
    """The groups cut by level and torus axis, innermost first: in each stage the ranks that exchange there."""
    shapes = {tuple(rings_by_level(g, cluster)) for g in groups}
    if len(shapes) > 1:
        raise MeshError(
            f"groups of one axis cross the levels differently {sorted(shapes)}: align axis sizes with the domain"
        )
    (members,) = shapes
    result, below = [], 1
    for n in members:
        cut = [np.array(g).reshape(-1, n, below).transpose(0, 2, 1).reshape(-1, n) for g in groups]
        result.append([[int(r) for r in row] for block in cut for row in block])
        below *= n
    return result


def all_gather(groups: Groups, held: dict[int, Blocks], count: Count, algorithm: str) -> None:
    """Every rank of a group ends with the blocks of all. Across levels first, then inside each domain.

    ring: pass on to the next rank what arrived last, n-1 rounds. tree: every block spreads along a binomial tree,
    twice as far each round, ceil(log2 n) rounds (Bruck et al. 1997). Both send the same bytes.
    """
    for stage in reversed(stages(groups, count.cluster)):
        (_tree_gather if algorithm == "tree" else _ring_gather)(stage, held, count)


def reduce_scatter(groups: Groups, held: dict[int, Blocks], count: Count, algorithm: str) -> None:
    """Every rank of a group ends with the sum of one block: its own, numbered by its place in the sorted group.

    An all-gather run backwards: inside each domain first, so that less crosses the slower levels.
    """
    for stage in stages(groups, count.cluster):
        (_tree_scatter if algorithm == "tree" else _ring_scatter)(stage, _bundles(groups, stage), held, count)


def _bundles(groups: Groups, stage: Groups) -> dict[int, set[int]]:
    """For each rank of a stage, the blocks whose owners it will feed in the stages still to come."""
    owner = {(rank, i): g[i] for g in groups for rank in g for i in range(len(g))}
    by_rank = {rank: g for g in groups for rank in g}
    digit = {rank: i for members in stage for i, rank in enumerate(members)}
    return {r: {i for i in range(len(by_rank[r])) if digit[owner[r, i]] == digit[r]} for r in by_rank}


def _ring_gather(stage: Groups, held: dict[int, Blocks], count: Count) -> None:
    n = len(stage[0])
    last = {r: dict(held[r]) for g in stage for r in g}
    for _ in range(n - 1):
        last = count.deliver([(r, g[(i + 1) % n], last[r]) for g in stage for i, r in enumerate(g)])
        for rank, blocks in last.items():
            held[rank].update(blocks)


def _tree_gather(stage: Groups, held: dict[int, Blocks], count: Count) -> None:
    n, span = len(stage[0]), 1
    own = {r: list(held[r]) for g in stage for r in g}
    while span < n:
        reach = min(span, n - span)
        messages = []
        for g in stage:
            for i, rank in enumerate(g):
                keys = [k for j in range(reach) for k in own[g[(i + j) % n]]]
                messages.append((rank, g[i - span], {k: held[rank][k] for k in keys}))
        for rank, blocks in count.deliver(messages).items():
            held[rank].update(blocks)
        span *= 2


def _ring_scatter(stage: Groups, bundles: dict[int, set[int]], held: dict[int, Blocks], count: Count) -> None:
    n = len(stage[0])
    for step in range(n - 1):
        messages = []
        for g in stage:
            for i, rank in enumerate(g):
                leaving = bundles[g[(i - 1 - step) % n]]
                messages.append((rank, g[(i + 1) % n], _take(held[rank], leaving)))
        _add(count.deliver(messages), held)


def _tree_scatter(stage: Groups, bundles: dict[int, set[int]], held: dict[int, Blocks], count: Count) -> None:
    n = len(stage[0])
    for span in reversed([2**k for k in range((n - 1).bit_length())]):
        reach = min(span, n - span)
        messages = []
        for g in stage:
            for i, rank in enumerate(g):
                leaving = set().union(*(bundles[g[(i + span + j) % n]] for j in range(reach)))
                messages.append((rank, g[(i + span) % n], _take(held[rank], leaving)))
        _add(count.deliver(messages), held)


def _take(blocks: Blocks, keys: set[int]) -> Blocks:
    """Remove and return the blocks that leave."""
    return {k: blocks.pop(k) for k in sorted(keys & blocks.keys())}


def _add(arrived: dict[int, Blocks], held: dict[int, Blocks]) -> None:
    for rank, blocks in arrived.items():
        for key, block in blocks.items():
            held[rank][key] = held[rank][key] + block


def all_to_all(groups: Groups, held: dict[int, Blocks], count: Count, algorithm: str) -> dict[int, Blocks]:
    """Block i of each rank goes to rank i of its group; received blocks are numbered by their sender.

    direct: one round a distance, as on a switch. ring: neighbours only, the shorter way round, forwarding what is
    not yet there, as on a torus: n/2 rounds.
    """
    n = len(groups[0])
    got: dict[int, Blocks] = {r: {i: held[r][i]} for g in groups for i, r in enumerate(g)}
    # a block under way is numbered sender * n + receiver
    moving = {r: {i * n + j: held[r][j] for j in range(n) if j != i} for g in groups for i, r in enumerate(g)}
    for round_ in range(1, n // 2 + 1 if algorithm == "ring" else n):
        messages = []
        for g in groups:
            for i, rank in enumerate(g):
                for hop, keys in _departures(moving[rank], n, round_, algorithm).items():
                    messages.append((rank, g[(i + hop) % n], _take(moving[rank], keys)))
        place = {r: i for g in groups for i, r in enumerate(g)}
        for rank, blocks in count.deliver(messages).items():
            for key, block in blocks.items():
                if key % n == place[rank]:
                    got[rank][key // n] = block
                else:
                    moving[rank][key] = block
    return got


def _departures(blocks: Blocks, n: int, round_: int, algorithm: str) -> dict[int, set[int]]:
    """Which blocks leave a rank in this round, by the distance they jump."""
    distance = {key: (key % n - key // n) % n for key in blocks}
    if algorithm == "direct":
        return {round_: {key for key, d in distance.items() if d == round_}}
    forward = {key for key, d in distance.items() if d <= n // 2}
    return {hop: keys for hop, keys in ((1, forward), (-1, set(blocks) - forward)) if keys}
