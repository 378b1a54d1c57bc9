"""A full Llama block on a virtual mesh: RMSNorm, grouped-query attention with rotary embedding, SwiGLU; both passes.

Dimensions: B sequences, S positions, D d_model, K key-value heads, G query heads a key-value head, h head size, F d_ff.
The gradients are written out by hand, so that every collective of the backward pass is in sight.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scaling_lib.mesh import Mesh, Shards, einsum, local, permute, reduce_to
from scaling_lib.mesh_algorithms import Array
from scaling_lib.mesh_layers import Strategy, enter, leave, release, silu, silu_gradient, use

EPSILON, ROPE_BASE = 1e-5, 500000.0  # as in the published config of Llama 3

# D lies over the FSDP axes in every matrix; heads and F over the TP axis; the sequence over CP, then over TP
ACTIVATIONS = "B_b S_cy D"
LAYOUTS = {
    "norm1": "D_x",
    "wq": "D_x K_y G h",
    "wk": "D_x K_y h",
    "wv": "D_x K_y h",
    "wo": "K_y G h D_x",
    "norm2": "D_x",
    "w_gate": "D_x F_y",
    "w_up": "D_x F_y",
    "w_down": "F_y D_x",
}


def shapes(d_model: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of one block."""
    d, k, g = d_model, n_kv_heads, n_heads // n_kv_heads
    return {
        "norm1": (d,),
        "wq": (d, k, g, head_dim),
        "wk": (d, k, head_dim),
        "wv": (d, k, head_dim),
        "wo": (k, g, head_dim, d),
        "norm2": (d,),
        "w_gate": (d, d_ff),
        "w_up": (d, d_ff),
        "w_down": (d_ff, d),
    }


def place(mesh: Mesh, strategy: Strategy, weights: Mapping[str, Array]) -> dict[str, Shards]:
    """The weights of a block on a mesh, in the layouts of a strategy."""
    return {
        key: mesh.shard(w, strategy.layout(LAYOUTS[key]), "norm gains" if key.startswith("norm") else "weights")
        for key, w in weights.items()
    }


def block(
    strategy: Strategy, x: Shards, weights: Mapping[str, Shards], d_out: Shards
) -> tuple[Shards, Shards, dict[str, Shards]]:
    """One training pass: output, input gradient, weight gradients; x and d_out in the layout ACTIVATIONS.

    Gradients come back in the layouts of their arrays.
    """
    mesh = x.mesh
    with mesh.phase("forward"):
        middle, saved_attention = _attention_forward(strategy, x, weights)
        out, saved_mlp = _mlp_forward(strategy, middle, weights)
    with mesh.phase("backward"):
        d_middle, gradients = _mlp_backward(strategy, middle, weights, saved_mlp, d_out)
        d_x, more = _attention_backward(strategy, x, weights, saved_attention, d_middle)
    return out, d_x, more | gradients


# RMSNorm


def normalise(x: Array) -> Array:
    """x over its root mean square along the last axis."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON))


def normalise_gradient(x: Array, dy: Array) -> Array:
    """Gradient of `normalise`: (dy - y mean(y dy)) / rms."""
    rms = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    y = x / rms
    return np.asarray((dy - y * np.mean(y * dy, axis=-1, keepdims=True)) / rms)


def _norm(strategy: Strategy, x: Shards, gain: Shards) -> Shards:
    g = use(strategy, gain)
    return einsum("B S D, D -> B S D", local(normalise, x, whole="D"), g)


def _norm_backward(strategy: Strategy, x: Shards, gain: Shards, dy: Shards) -> tuple[Shards, Shards]:
    g = use(strategy, gain)
    d_gain = einsum("B S D, B S D -> D", dy, local(normalise, x, whole="D"))
    d_x = local(normalise_gradient, x, einsum("B S D, D -> B S D", dy, g), whole="D")
    return d_x, reduce_to(d_gain, gain, strategy.inner, "norm gradients")


# Rotary embedding


def rotate(x: Array, positions: Array, direction: int = 1) -> Array:
    """Turn each pair (i, i + h/2) of the last axis by an angle that grows with the position; direction -1 turns back.

    x: [B, S, heads…, h]. positions: [S]. A rotation's gradient is the rotation back.
    """
    half = x.shape[-1] // 2
    angle = direction * positions[:, None] * ROPE_BASE ** (-np.arange(half) / half)
    angle = angle.reshape(1, len(positions), *[1] * (x.ndim - 3), half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


# Attention, block by block: softmax is accumulated while keys and values travel round the ring


def scores(q: Array, k: Array, q_at: Array, k_at: Array) -> Array:
    """Causal scores [B, K, G, S, T] of queries at positions q_at against keys at k_at."""
    s = np.einsum("bskgh,btkh->bkgst", q, k, optimize=True) / np.sqrt(q.shape[-1])
    return np.where(k_at[None, :] <= q_at[:, None], s, -np.inf)


def attend(
    q: Array, kv: Array, q_at: Array, k_at: Array, top: Array, total: Array, mixed: Array
) -> tuple[Array, Array, Array]:
    """Take one more block of keys and values into a running softmax: its maximum, its sum, the mix of values."""
    s = scores(q, kv[0], q_at, k_at)
    new_top = np.maximum(top, s.max(axis=-1))
    p, fade = np.exp(s - new_top[..., None]), np.exp(top - new_top)
    mixed = mixed * np.moveaxis(fade, 3, 1)[..., None] + np.einsum("bkgst,btkh->bskgh", p, kv[1], optimize=True)
    return new_top, total * fade + p.sum(axis=-1), mixed


def attend_gradient(
    q: Array, kv: Array, q_at: Array, k_at: Array, log_total: Array, drift: Array, d_o: Array, d_q: Array, d_kv: Array
) -> tuple[Array, Array]:
    """Add one block's terms to the gradients of queries, and of the keys and values that came with it.

    log_total: log of the softmax's denominator. drift: sum over h of output times its gradient, [B, K, G, S].
    """
    p = np.exp(scores(q, kv[0], q_at, k_at) - log_total[..., None])
    d_v = np.einsum("bkgst,bskgh->btkh", p, d_o, optimize=True)
    d_s = p * (np.einsum("bskgh,btkh->bkgst", d_o, kv[1], optimize=True) - drift[..., None]) / np.sqrt(q.shape[-1])
    d_k = np.einsum("bkgst,bskgh->btkh", d_s, q, optimize=True)
    return d_q + np.einsum("bkgst,btkh->bskgh", d_s, kv[0], optimize=True), d_kv + np.stack([d_k, d_v])


def _positions(x: Shards, context: str, shift: int = 0) -> Shards:
    """Positions of the keys that a device holds after `shift` moves round the ring: known to all, so never sent."""
    s, mesh = x.shape[x.dims.index("S")], x.mesh
    return mesh.shard(np.roll(np.arange(s), shift * (s // mesh.degree(context))), f"S_{context}" if context else "S")


def ring_attention(strategy: Strategy, q: Shards, kv: Shards) -> tuple[Shards, Shards]:
    """Causal attention: output and the log of each softmax's denominator.

    q: [B, S, K, G, h]. kv: keys and values stacked, [N, B, S, K, h]. Under CP each device holds a piece of the
    sequence, attends to its own keys, and passes keys and values on, cp - 1 times.
    """
    context, running = strategy.context, strategy.layout("B_b K_y G S_c")
    at = _positions(q, context)
    start = local(lambda a: np.full((a.shape[0], *a.shape[2:4], a.shape[1]), -np.inf), q, out=running)
    top, total, mixed = start, local(lambda a: np.zeros_like(a), start), local(np.zeros_like, q)
    for step in range(n := q.mesh.degree(context)):
        k_at = _positions(q, context, step)
        top, total, mixed = local(attend, q, kv, at, k_at, top, total, mixed, out=[running, running, q.layout])
        if step < n - 1:
            kv = permute(kv, context)
    out = local(lambda m, t: m / np.moveaxis(t, 3, 1)[..., None], mixed, total)
    return out, local(lambda t, s: t + np.log(s), top, total)


def ring_attention_gradient(
    strategy: Strategy, q: Shards, kv: Shards, out: Shards, log_total: Shards, d_o: Shards
) -> tuple[Shards, Shards]:
    """Gradients of queries, and of keys and values.

    Keys and values go round again, cp - 1 moves; their gradients travel with them and on, cp moves, back to their home.
    """
    context = strategy.context
    at = _positions(q, context)
    drift = local(lambda o, d: np.moveaxis((o * d).sum(axis=-1), 1, 3), out, d_o, out=log_total.layout)
    d_q, d_kv = local(np.zeros_like, q), local(np.zeros_like, kv, name="key and value gradients")
    for step in range(n := q.mesh.degree(context)):
        k_at = _positions(q, context, step)
        d_q, d_kv = local(attend_gradient, q, kv, at, k_at, log_total, drift, d_o, d_q, d_kv, out=[q.layout, kv.layout])
        if context:
            d_kv = permute(d_kv, context, name="key and value gradients")
            kv = permute(kv, context) if step < n - 1 else kv
    return d_q, d_kv


def _project(full: Shards, w: Mapping[str, Shards]) -> tuple[Shards, Shards]:
    """Queries, and keys with values, turned by their positions."""
    at = _positions(full, full.axes_of("S"))
    q = local(rotate, einsum("B S D, D K G h -> B S K G h", full, w["wq"]), at)
    k = local(rotate, einsum("B S D, D K h -> B S K h", full, w["wk"]), at)
    v = einsum("B S D, D K h -> B S K h", full, w["wv"])
    return q, local(lambda a, b: np.stack([a, b]), k, v, out="N " + k.layout.strip("[]"), name="keys and values")


def _gathered(strategy: Strategy, weights: Mapping[str, Shards], keys: tuple[str, ...]) -> dict[str, Shards]:
    return {key: use(strategy, weights[key]) for key in keys}


def _released(weights: Mapping[str, Shards], ready: Mapping[str, Shards]) -> None:
    for key, w in ready.items():
        release(weights[key], w)


def _again(strategy: Strategy, full: Shards, x: Shards, gain: Shards) -> Shards:
    """The gathered input of a half block, gathered a second time when memory is dearer than bytes."""
    if not (strategy.regather and strategy.tensor):
        return full
    full.discard()
    return enter(strategy, _norm(strategy, x, gain), "S", "input again")


_ATTENTION, _MLP = ("wq", "wk", "wv", "wo"), ("w_gate", "w_up", "w_down")


def _attention_forward(
    strategy: Strategy, x: Shards, weights: Mapping[str, Shards]
) -> tuple[Shards, tuple[Shards, ...]]:
    full = enter(strategy, _norm(strategy, x, weights["norm1"]), "S", "input")
    w = _gathered(strategy, weights, _ATTENTION)
    q, kv = _project(full, w)
    o, log_total = ring_attention(strategy, q, kv)
    out = leave(strategy, einsum("B S K G h, K G h D -> B S D", o, w["wo"]), "S", "output")
    _released(weights, w)
    return x + out, (full, q, kv, o, log_total)


def _attention_backward(
    strategy: Strategy, x: Shards, weights: Mapping[str, Shards], saved: tuple[Shards, ...], d_out: Shards
) -> tuple[Shards, dict[str, Shards]]:
    full, q, kv, o, log_total = saved
    full = _again(strategy, full, x, weights["norm1"])
    dy = enter(strategy, d_out, "S", "output gradient")
    w = _gathered(strategy, weights, _ATTENTION)
    d_q, d_kv = ring_attention_gradient(
        strategy, q, kv, o, log_total, einsum("B S D, K G h D -> B S K G h", dy, w["wo"])
    )
    at = _positions(full, strategy.context)
    d_q = local(lambda d, p: rotate(d, p, -1), d_q, at)
    d_k, d_v = local(lambda d, p: (rotate(d[0], p, -1), d[1]), d_kv, at, out=[strategy.layout("B_b S_c K_y h")] * 2)
    raw = {
        "wq": einsum("B S D, B S K G h -> D K G h", full, d_q),
        "wk": einsum("B S D, B S K h -> D K h", full, d_k),
        "wv": einsum("B S D, B S K h -> D K h", full, d_v),
        "wo": einsum("B S K G h, B S D -> K G h D", o, dy),
    }
    gradients = {key: reduce_to(g, weights[key], strategy.inner, "gradients") for key, g in raw.items()}
    d_full = einsum("B S K G h, D K G h -> B S D", d_q, w["wq"])
    d_full = d_full + einsum("B S K h, D K h -> B S D", d_k, w["wk"]) + einsum("B S K h, D K h -> B S D", d_v, w["wv"])
    _released(weights, w)
    d_normed = leave(strategy, d_full, "S", "input gradient")
    d_x, gradients["norm1"] = _norm_backward(strategy, x, weights["norm1"], d_normed)
    return d_out + d_x, gradients


# SwiGLU


def _mlp_forward(strategy: Strategy, x: Shards, weights: Mapping[str, Shards]) -> tuple[Shards, tuple[Shards, ...]]:
    full = enter(strategy, _norm(strategy, x, weights["norm2"]), "S", "input")
    w = _gathered(strategy, weights, _MLP)
    gate = einsum("B S D, D F -> B S F", full, w["w_gate"])
    up = einsum("B S D, D F -> B S F", full, w["w_up"])
    hidden = local(lambda a, b: silu(a) * b, gate, up)
    out = leave(strategy, einsum("B S F, F D -> B S D", hidden, w["w_down"]), "S", "output")
    _released(weights, w)
    return x + out, (full, gate, up, hidden)


def _mlp_backward(
    strategy: Strategy, x: Shards, weights: Mapping[str, Shards], saved: tuple[Shards, ...], d_out: Shards
) -> tuple[Shards, dict[str, Shards]]:
    full, gate, up, hidden = saved
    full = _again(strategy, full, x, weights["norm2"])
    dy = enter(strategy, d_out, "S", "output gradient")
    w = _gathered(strategy, weights, _MLP)
    d_hidden = einsum("B S D, F D -> B S F", dy, w["w_down"])
    d_gate = local(lambda a, b, d: silu_gradient(a, d * b), gate, up, d_hidden)
    d_up = local(lambda a, d: silu(a) * d, gate, d_hidden)
    raw = {
        "w_gate": einsum("B S D, B S F -> D F", full, d_gate),
        "w_up": einsum("B S D, B S F -> D F", full, d_up),
        "w_down": einsum("B S F, B S D -> F D", hidden, dy),
    }
    gradients = {key: reduce_to(g, weights[key], strategy.inner, "gradients") for key, g in raw.items()}
    d_full = einsum("B S F, D F -> B S D", d_gate, w["w_gate"]) + einsum("B S F, D F -> B S D", d_up, w["w_up"])
    _released(weights, w)
    d_normed = leave(strategy, d_full, "S", "input gradient")
    d_x, gradients["norm2"] = _norm_backward(strategy, x, weights["norm2"], d_normed)
    return d_out + d_x, gradients
