"""A mixture-of-experts layer under expert parallelism on a virtual mesh, forward and backward.

Experts are SwiGLU; a token's k best router scores go through a softmax and weigh its experts. Dimensions: B tokens,
D d_model, E experts, c places an expert keeps for each sender, Q senders, F d_ff of an expert, k experts a token.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scaling_lib.mesh import Shards, all_to_all, einsum, local, reduce_to
from scaling_lib.mesh_algorithms import Array, MeshError
from scaling_lib.mesh_layers import silu, silu_gradient


def moe(
    x: Shards, weights: Mapping[str, Shards], d_out: Shards, experts_per_token: int, capacity: int
) -> tuple[Shards, Shards, dict[str, Shards]]:
    """One training pass: output, input gradient, weight gradients.

    x, d_out: "B_ZX D". weights: router "D E"; w_gate, w_up "E_X D F"; w_down "E_X F D", where X is the axis of experts
    and Z, where present, that of their replicas. capacity: places an expert keeps for each sender. Raises MeshError
    when a chip sends an expert more tokens than that.
    """
    axis = weights["w_up"].axes_of("E")
    with x.mesh.phase("forward"):
        scores = einsum("B D, D E -> B E", x, weights["router"])
        chosen, place, share = _route(scores, experts_per_token, capacity)
        sizes = (weights["router"].shape[1], capacity)
        inputs = _send(x, chosen, place, axis, sizes, "tokens")
        hidden, gate, up = _experts(inputs, weights)
        results = _return(einsum("Q E c F, E F D -> Q E c D", hidden, weights["w_down"]), "expert outputs")
        out = local(_combine, results, chosen, place, share, out=x.layout)
    with x.mesh.phase("backward"):
        d_share = local(
            lambda y, e, c, d: (y[0, e, c] * d[:, None, :]).sum(-1), results, chosen, place, d_out, out=share.layout
        )
        weighted = local(lambda s, d: s[..., None] * d[:, None, :], share, d_out, out=_cut("B", x) + " k D")
        dy = _send(weighted, chosen, place, axis, sizes, "output gradients")
        d_inputs, raw = _experts_backward(inputs, hidden, gate, up, dy, weights)
        back = _return(d_inputs, "token gradients")
        ones = local(np.ones_like, share)
        d_scores = local(_route_gradient, scores, chosen, share, d_share)
        d_x = local(_combine, back, chosen, place, ones, out=x.layout)
        d_x = d_x + einsum("B E, D E -> B D", d_scores, weights["router"])
        raw["router"] = einsum("B D, B E -> D E", x, d_scores)
        names = {key: "router gradients" if key == "router" else "expert gradients" for key in raw}
        return out, d_x, {key: reduce_to(g, weights[key], name=names[key]) for key, g in raw.items()}


def _cut(dim: str, like: Shards) -> str:
    """A dimension cut as the tokens of another array are."""
    axes = like.axes_of("B")
    return f"{dim}_{axes}" if axes else dim


def _route(scores: Shards, k: int, capacity: int) -> tuple[Shards, Shards, Shards]:
    """For each token its k experts, the place it takes at each, and the weights of their outputs."""

    def choose(s: Array) -> tuple[Array, Array, Array]:
        chosen = np.argsort(-s, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(s, chosen, axis=1)
        share = np.exp(best - best.max(axis=1, keepdims=True))
        flat = chosen.reshape(-1)
        place = np.array([np.sum(flat[:i] == e) for i, e in enumerate(flat)]).reshape(chosen.shape)
        if place.max() >= capacity:
            busiest = int(flat[place.reshape(-1).argmax()])
            raise MeshError(
                f"expert {busiest} gets {place.max() + 1} tokens from one device, its capacity is {capacity}: raise it"
            )
        return chosen, place, share / share.sum(axis=1, keepdims=True)

    chosen, place, share = local(choose, scores, out=[_cut("B", scores) + " k"] * 3)
    return chosen, place, share


def _route_gradient(s: Array, chosen: Array, share: Array, d_share: Array) -> Array:
    """Gradient of the router scores: softmax over the chosen ones, nothing for the others."""
    d = np.zeros_like(s)
    np.put_along_axis(d, chosen, share * (d_share - (share * d_share).sum(axis=1, keepdims=True)), axis=1)
    return d


def _send(x: Shards, chosen: Shards, place: Shards, axis: str, sizes: tuple[int, int], name: str) -> Shards:
    """Tokens laid out by expert and place on their own device, then exchanged: [Q_X, E, c, D] -> [Q, E_X, c, D]."""

    def lay_out(x: Array, e: Array, c: Array) -> Array:
        table = np.zeros((1, *sizes, x.shape[-1]))
        table[0, e, c] = x if x.ndim == 3 else x[:, None, :]
        return table

    table = local(lay_out, x, chosen, place, out=_cut("Q", x) + " E c D", name=name)
    return all_to_all(table, "Q", "E", axis) if axis else table


def _return(x: Shards, name: str) -> Shards:
    """Back from the experts: [Q, E_X, c, D] -> [Q_X, E, c, D]."""
    return all_to_all(x, "E", "Q", name=name) if x.axes_of("E") else x


def _combine(results: Array, chosen: Array, place: Array, share: Array) -> Array:
    """For each token the weighted sum of what its experts made."""
    return np.asarray((results[0, chosen, place] * share[..., None]).sum(axis=1))


def _experts(x: Shards, weights: Mapping[str, Shards]) -> tuple[Shards, Shards, Shards]:
    gate = einsum("Q E c D, E D F -> Q E c F", x, weights["w_gate"])
    up = einsum("Q E c D, E D F -> Q E c F", x, weights["w_up"])
    return local(lambda a, b: silu(a) * b, gate, up), gate, up


def _experts_backward(
    x: Shards, hidden: Shards, gate: Shards, up: Shards, dy: Shards, weights: Mapping[str, Shards]
) -> tuple[Shards, dict[str, Shards]]:
    d_hidden = einsum("Q E c D, E F D -> Q E c F", dy, weights["w_down"])
    d_gate = local(lambda a, b, d: silu_gradient(a, d * b), gate, up, d_hidden)
    d_up = local(lambda a, d: silu(a) * d, gate, d_hidden)
    raw = {
        "w_gate": einsum("Q E c D, Q E c F -> E D F", x, d_gate),
        "w_up": einsum("Q E c D, Q E c F -> E D F", x, d_up),
        "w_down": einsum("Q E c F, Q E c D -> E F D", hidden, dy),
    }
    d_x = einsum("Q E c F, E D F -> Q E c D", d_gate, weights["w_gate"])
    return d_x + einsum("Q E c F, E D F -> Q E c D", d_up, weights["w_up"]), raw
