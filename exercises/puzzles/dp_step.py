"""Data parallelism with buckets: one training step of three linear layers.

Every device has all weights and its own rows of the batch. Compute the gradient of each layer and reduce it as soon as it
exists, layer by layer from the last to the first (its bucket), so that the reduction could hide behind the rest of backward.
"""

from __future__ import annotations

import numpy as np

from scaling_lib.mesh import Mesh, Shards, all_reduce, einsum, local


def solve(x: Shards, weights: list[Shards], d_out: Shards) -> list[Shards]:
    """x, d_out: [B_X, D]; weights: [D, E] each, square. Returns the reduced gradients, first layer first."""
    kept = [x]
    for w in weights:
        kept.append(_renamed(einsum("B D, D E -> B E", kept[-1], w), ("B", "D")))
    gradients: list[Shards] = []
    d = d_out
    # cut: walk the layers backwards; reduce each gradient before you go on to the layer below
    for layer in reversed(range(len(weights))):
        own = einsum("B D, B E -> D E", kept[layer], _renamed(d, ("B", "E")), name=f"layer {layer}")
        gradients.insert(0, all_reduce(own, "X", name=f"layer {layer}"))
        d = einsum("B E, D E -> B D", _renamed(d, ("B", "E")), weights[layer])
    # end
    return gradients


def _renamed(x: Shards, dims: tuple[str, str]) -> Shards:
    """The same shards with other names of their dimensions."""
    return Shards(x.mesh, x.name, dims, x.axes, x.partial, x.dtype, x._store)


# The checker's part: cases, and what people often write instead.


def case(
    n: int, size: int, rng: np.random.Generator
) -> tuple[Mesh, tuple[Shards, list[Shards], Shards], tuple[np.ndarray, ...]]:
    """A mesh, the arguments of solve, and what it must return."""
    mesh = Mesh((n,), "X")
    x, d = rng.normal(size=(2 * n, size)), rng.normal(size=(2 * n, size))
    ws = [rng.normal(size=(size, size)) for _ in range(3)]
    inputs = [x]
    for w in ws:
        inputs.append(inputs[-1] @ w)
    wanted, grad = [], d
    for i in reversed(range(3)):
        wanted.insert(0, inputs[i].T @ grad)
        grad = grad @ ws[i].T
    arguments = (mesh.shard(x, "B_X D"), [mesh.shard(w, "D E") for w in ws], mesh.shard(d, "B_X D"))
    return mesh, arguments, tuple(wanted)


def order(trace: list[tuple[str, str]]) -> str:
    """What is wrong with the order of moves, empty when nothing is: each bucket leaves before the next is made."""
    computed = 0
    for i, (kind, _) in enumerate(trace):
        computed += kind == "einsum"
        buckets = sum(k == "network" for k, _ in trace[:i])
        if computed > 3 + 2 * (buckets + 1):  # forward, then two products a layer
            return "a gradient waits while the layer below is computed; reduce it as soon as it exists"
    return ""


def _backward(
    x: Shards, weights: list[Shards], d: Shards, reduce: bool = True, at: int = 0, transposed: bool = True, scale: float = 1.0
) -> list[Shards]:
    """The step with something changed; gradients last layer first."""
    kept = [x]
    for w in weights:
        kept.append(_renamed(einsum("B D, D E -> B E", kept[-1], w), ("B", "D")))
    gradients = []
    for layer in reversed(range(len(weights))):
        own = einsum("B D, B E -> D E", kept[layer + at], _renamed(d, ("B", "E")))
        gradients.append(all_reduce(own, "X") if reduce else own)
        if scale != 1.0:
            gradients[-1] = local(lambda a: a * scale, gradients[-1])
        if transposed:
            d = einsum("B E, D E -> B D", _renamed(d, ("B", "E")), weights[layer])
        else:
            d = _renamed(einsum("B D, D E -> B E", d, weights[layer]), ("B", "D"))
    return gradients


def _late(x: Shards, weights: list[Shards], d: Shards) -> list[Shards]:
    return [all_reduce(g, "X") for g in reversed(_backward(x, weights, d, reduce=False))]


MISTAKES = (
    ("no reduction", "each device has the gradient of its own rows only; all_reduce every layer's over X.",
     lambda x, w, d: _backward(x, w, d, reduce=False)[::-1]),
    ("an average for a sum", "the loss is summed over the batch, so the gradients are summed and not averaged.",
     lambda x, w, d: _backward(x, w, d, scale=1 / x.mesh.size)[::-1]),
    ("the last layer first", "you walk backwards, so each gradient belongs in front of those that you have.",
     lambda x, w, d: _backward(x, w, d)),
    ("the output for the input", "the gradient of a weight multiplies what went into its layer, not what came out.",
     lambda x, w, d: _backward(x, w, d, at=1)[::-1]),
    ("no transpose", "backward sums over the outputs of a layer: multiply by the transposed weight.",
     lambda x, w, d: _backward(x, w, d, transposed=False)[::-1]),
    ("one bucket at the end", "all gradients wait for the last one; reduced one by one they hide behind the rest of backward.",
     _late),
)
