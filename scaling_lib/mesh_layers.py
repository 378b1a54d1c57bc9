"""The two-matmul layer under every strategy of the course, run on a virtual mesh.

In[B, D] Win[D, F] Wout[F, D] with a SiLU between the two. Each pass is written once; a strategy only says which mesh
axes cut what, and the collectives follow from the layouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling_lib.mesh import Shards, all_gather, einsum, local, reduce_scatter, reduce_to
from scaling_lib.mesh_algorithms import Array


@dataclass(frozen=True)
class Strategy:
    """Which mesh axes play which part; "" for a part not played.

    data: axes that cut the batch. shard: axes that cut stored weights (FSDP). tensor: TP with sequence parallelism.
    context: cuts the sequence (CP). inner: the axis of `data` inside a pod, when gradients are reduced pod by pod.
    reshard: discard gathered weights after the forward pass. regather: discard the gathered input too.
    """

    data: str = ""
    shard: str = ""
    tensor: str = ""
    context: str = ""
    inner: str = ""
    reshard: bool = True
    regather: bool = False

    def layout(self, text: str) -> str:
        """Fill a template: after the underscore b, x, y, c stand for data, shard, tensor, context.

        >>> Strategy(data="X", shard="X", tensor="Y").layout("B_b D_y"), Strategy(data="X").layout("D_x F_y")
        ('B_X D_Y', 'D F')
        """
        letters = str.maketrans({"b": self.data, "x": self.shard, "y": self.tensor, "c": self.context})
        words = [w.partition("_") for w in text.split()]
        return " ".join(d + (f"_{cut}" if (cut := a.translate(letters)) else "") for d, _, a in words)


STRATEGIES = {
    "DP": Strategy(data="X"),
    "FSDP": Strategy(data="X", shard="X"),
    "TP": Strategy(tensor="Y"),
    "FSDP x TP": Strategy(data="X", shard="X", tensor="Y"),
    "cross-pod DP": Strategy(data="ZX", inner="X"),
    "FSDP in pods": Strategy(data="ZX", shard="X"),
}

X_LAYOUT, IN_LAYOUT, OUT_LAYOUT = "B_b D_y", "D_x F_y", "F_y D_x"


def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return np.asarray(x / (1 + np.exp(-x)))


def silu_gradient(x: Array, dy: Array) -> Array:
    """Gradient of `silu` for an upstream gradient dy."""
    s = 1 / (1 + np.exp(-x))
    return np.asarray(dy * (s + x * s * (1 - s)))


def use(strategy: Strategy, w: Shards) -> Shards:
    """A weight as the matmul needs it: gathered over the FSDP axes, its TP cut kept."""
    for dim, axes in zip(w.dims, w.axes, strict=True):
        if strategy.shard and axes.endswith(strategy.shard):
            return all_gather(w, dim, strategy.shard)
    return w


def release(stored: Shards, used: Shards) -> None:
    """Discard a gathered weight; one that was used as stored stays."""
    if used is not stored:
        used.discard()


def enter(strategy: Strategy, x: Shards, dim: str, name: str) -> Shards:
    """Open the activations that TP keeps cut between layers."""
    return all_gather(x, dim, strategy.tensor, name) if strategy.tensor else x


def leave(strategy: Strategy, x: Shards, dim: str, name: str) -> Shards:
    """Sum the terms of the TP ranks and cut the activations again."""
    return reduce_scatter(x, dim, strategy.tensor, name) if strategy.tensor else x


def two_matmul(
    strategy: Strategy, x: Shards, w_in: Shards, w_out: Shards, d_out: Shards
) -> tuple[Shards, Shards, Shards, Shards]:
    """One training pass: output, and gradients of input, Win and Wout for an upstream gradient.

    x, d_out: X_LAYOUT. w_in, w_out: IN_LAYOUT, OUT_LAYOUT. Gradients come back in the layouts of their arrays.
    """
    with x.mesh.phase("forward"):
        full = enter(strategy, x, "D", "input")
        win = use(strategy, w_in)
        a = einsum("B D, D F -> B F", full, win)
        wout = use(strategy, w_out)
        out = leave(strategy, einsum("B F, F D -> B D", local(silu, a), wout), "D", "output")
    with x.mesh.phase("backward"):
        if strategy.regather and strategy.tensor:
            full.discard()
            full = enter(strategy, x, "D", "input again")
        if strategy.reshard:
            release(w_in, win)
            release(w_out, wout)
            wout = use(strategy, w_out)
        dy = enter(strategy, d_out, "D", "output gradient")
        d_w_out = reduce_to(einsum("B F, B D -> F D", local(silu, a), dy), w_out, strategy.inner, "gradients")
        da = local(silu_gradient, a, einsum("B D, F D -> B F", dy, wout))
        release(w_out, wout)
        win = use(strategy, w_in) if strategy.reshard else win
        d_w_in = reduce_to(einsum("B D, B F -> D F", full, da), w_in, strategy.inner, "gradients")
        d_x = leave(strategy, einsum("B F, D F -> B D", da, win), "D", "input gradient")
        release(w_in, win)
    return out, d_x, d_w_in, d_w_out


def two_matmul_reference(x: Array, w_in: Array, w_out: Array, d_out: Array) -> tuple[Array, Array, Array, Array]:
    """The same pass on one device in plain numpy."""
    a = x @ w_in
    da = silu_gradient(a, d_out @ w_out.T)
    return silu(a) @ w_out, da @ w_in.T, x.T @ da, silu(a).T @ d_out
