"""FSDP with prefetch: the forward pass of five layers whose weights are cut over the devices.

Gather a layer's weight before it is used, drop it afterwards, and have the next one gathered already while this one
computes. At most two gathered layers may live at a time.
`einsum` names dimensions without their axes, as in "B D, D E -> B E"; `discard` frees an array.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_gather, einsum


def solve(x: Shards, weights: list[Shards]) -> Shards:
    """x: [B_X, D]; weights: [D_X, E] each, square. Returns [B_X, D] after all layers."""
    # cut: gather the first layer; in each turn gather the next, compute this one, discard this one
    ready = all_gather(weights[0], "D")
    for layer in range(len(weights)):
        coming = all_gather(weights[layer + 1], "D") if layer + 1 < len(weights) else None
        x = _renamed(einsum("B D, D E -> B E", x, ready))
        ready.discard()
        if coming is not None:
            ready = coming
    # end
    return x


def _renamed(x: Shards) -> Shards:
    """The result as the next layer's input."""
    return Shards(x.mesh, x.name, ("B", "D"), x.axes, x.partial, x.dtype, x._store)


# The checker's part: cases, and what people often write instead.


def case(
    n: int, size: int, rng: np.random.Generator
) -> tuple[Mesh, tuple[Shards, list[Shards]], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh, width = Mesh((n,), "X"), n * size
    x = rng.normal(size=(n, width))
    ws = [rng.normal(size=(width, width)) / width for _ in range(5)]
    wanted = x
    for w in ws:
        wanted = wanted @ w
    return mesh, (mesh.shard(x, "B_X D"), [mesh.shard(w, "D_X E") for w in ws]), (wanted,)


def order(trace: list[tuple[str, str]]) -> str:
    """What is wrong with the order of moves, empty when nothing is: a gather runs ahead of the layer that computes."""
    gathers = computed = 0
    for kind, _ in trace:
        gathers += kind == "network"
        computed += kind == "einsum"
        if kind == "einsum" and computed < 5 and gathers < computed + 1:
            return "nothing is prefetched: gather the next layer before this one computes, so that the two overlap"
    return ""


def _greedy(x: Shards, weights: list[Shards]) -> Shards:
    for w in [all_gather(w, "D") for w in weights]:
        x = _renamed(einsum("B D, D E -> B E", x, w))
    return x


def _hoarding(x: Shards, weights: list[Shards]) -> Shards:
    gathered = [all_gather(weights[0], "D")]
    for layer in range(len(weights)):
        gathered += [all_gather(weights[layer + 1], "D")] if layer + 1 < len(weights) else []
        x = _renamed(einsum("B D, D E -> B E", x, gathered[layer]))
    return x


def _lazy(x: Shards, weights: list[Shards]) -> Shards:
    for w in weights:
        ready = all_gather(w, "D")
        x = _renamed(einsum("B D, D E -> B E", x, ready))
        ready.discard()
    return x


def _twice(x: Shards, weights: list[Shards]) -> Shards:
    for layer, w in enumerate(weights):
        ready = all_gather(w, "D")
        coming = all_gather(weights[layer + 1], "D") if layer + 1 < len(weights) else None
        x = _renamed(einsum("B D, D E -> B E", x, ready))
        ready.discard()
        if coming is not None:
            coming.discard()
    return x


def _past_the_end(x: Shards, weights: list[Shards]) -> Shards:
    ready = all_gather(weights[0], "D")
    for layer in range(len(weights)):
        coming = all_gather(weights[layer + 1], "D")
        x = _renamed(einsum("B D, D E -> B E", x, ready))
        ready.discard()
        ready = coming
    return x


MISTAKES = (
    ("all layers at once", "every layer is gathered before the first one computes; that is the memory FSDP is to save.", _greedy),
    ("nothing discarded", "gathered weights stay after their layer; discard each as soon as it was used.", _hoarding),
    ("no prefetch", "each gather waits for the layer before it; begin the next one before this layer computes.", _lazy),
    ("gathered twice", "what was prefetched is thrown away and gathered again; keep it for the next turn.", _twice),
    ("past the last layer", "the last layer has no next one to gather.", _past_the_end),
    ("weights still cut", "the weight is still cut over X; gather it before the layer computes.",
     lambda x, weights: einsum("B D, D E -> B E", x, weights[0])),
    ("the layers backwards", "forward goes from the first layer to the last.", lambda x, weights: solve(x, weights[::-1])),
)
