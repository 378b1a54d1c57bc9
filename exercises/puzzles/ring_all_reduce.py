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


def case(n: int, size: int, rng: np.random.Generator) -> tuple[Mesh, tuple[Shards, Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "X")
    rows = rng.normal(size=(n, n, size))
    wanted = np.broadcast_to(rows.sum(axis=0), rows.shape)
    return mesh, (mesh.shard(rows, "R_X K C"), mesh.shard(np.arange(n), "R_X")), (wanted,)
