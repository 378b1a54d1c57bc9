"""Ring all-reduce from neighbour sends alone.

Each device of axis X holds its own row of numbers, cut into as many chunks as there are devices. Send chunks to the next
device round the ring until every device holds the sum of all rows. You may use `permute` and `local`, nothing else.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, local, permute


def solve(x: Shards, place: Shards) -> Shards:
    """x: [R_X, K, C], K chunks; place: [R_X], each device's place on the ring. Returns [R_X, K, C], every row the sum."""
    n = x.shape[0]

    def chunk(step: int) -> Shards:
        """The chunk that each device sends in a step."""
        return local(lambda a, r: a[:, (int(r[0]) - step) % n], x, place, out="R_X C")

    # cut: n - 1 steps in which each device adds what arrives to its own chunk
    for step in range(n - 1):
        arrived = permute(chunk(step), "X")
        x = local(lambda a, m, r, s=step: _put(a, (int(r[0]) - s - 1) % n, m, add=True), x, arrived, place)
    # end
    # cut: n - 1 steps in which finished chunks go round and replace what stands there
    for step in range(-1, n - 2):
        arrived = permute(chunk(step), "X")
        x = local(lambda a, m, r, s=step: _put(a, (int(r[0]) - s - 1) % n, m, add=False), x, arrived, place)
    # end
    return x


def _put(a: np.ndarray, k: int, chunk: np.ndarray, add: bool) -> np.ndarray:
    """A copy with one chunk added to or replaced."""
    a = a.copy()
    a[:, k] = a[:, k] + chunk if add else chunk
    return a


# The checker's part: cases, and what people often write instead.


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "X")
    rows = rng.normal(size=(n, n, size))
    wanted = np.broadcast_to(rows.sum(axis=0), rows.shape)
    return mesh, (mesh.shard(rows, "R_X K C"), mesh.shard(np.arange(n), "R_X")), (wanted,)


def _ring(x: Shards, place: Shards, adds: int, copies: int, add: bool = True, then: bool = False, at: int = 1) -> Shards:
    """The two rounds with something changed: how many steps, what is done with what arrives, and where it is put."""
    n = x.shape[0]
    for step, adding in [(s, add) for s in range(adds)] + [(s, then) for s in range(-1, copies - 1)]:
        chunk = local(lambda a, r, s=step: a[:, (int(r[0]) - s) % n], x, place, out="R_X C")
        arrived = permute(chunk, "X")
        x = local(lambda a, m, r, s=step, f=adding: _put(a, (int(r[0]) - s - at) % n, m, f), x, arrived, place)
    return x


def _whole_rows(x: Shards, place: Shards) -> Shards:
    total = moving = x
    for _ in range(x.shape[0] - 1):
        moving = permute(moving, "X")
        total = local(lambda a, b: a + b, total, moving)
    return total


MISTAKES = (
    ("one step too many", "after n - 1 steps every chunk is complete somewhere; one more adds a term a second time.",
     lambda x, place: _ring(x, place, x.shape[0], x.shape[0] - 1)),
    ("one step too few", "a chunk must meet n - 1 neighbours before it is complete, and your first round stops earlier.",
     lambda x, place: _ring(x, place, x.shape[0] - 2, x.shape[0] - 1)),
    ("no second round", "each device holds one finished chunk only; let the finished chunks go round too.",
     lambda x, place: _ring(x, place, x.shape[0] - 1, 0)),
    ("adding what is finished", "in the second round what arrives is complete, so it replaces and is not added.",
     lambda x, place: _ring(x, place, x.shape[0] - 1, x.shape[0] - 1, then=True)),
    ("replacing instead of adding", "no sums go round: add what arrives in the first round, and begin the second with the chunk just completed (step -1).",
     lambda x, place: _ring(x, place, x.shape[0] - 1, x.shape[0] - 1, add=False)),
    ("the wrong chunk", "what arrives is the chunk that your neighbour sent, one place before the one you sent yourself.",
     lambda x, place: _ring(x, place, x.shape[0] - 1, x.shape[0] - 1, at=0)),
    ("whole rows", "whole rows travel in each step; one chunk a step is enough, 2(n - 1)/n of a row in all.", _whole_rows),
)
