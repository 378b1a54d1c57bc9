"""A pipeline on a virtual mesh: each stage sends its activations on, and gradients back, one microbatch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaling_lib.mesh import Shards, einsum, local, permute
from scaling_lib.mesh_algorithms import Array, MeshError
from scaling_lib.mesh_layers import silu, silu_gradient


def pipeline(
    axis: str, w_in: Shards, w_out: Shards, batch: Sequence[Array], d_out: Sequence[Array]
) -> tuple[list[Array], list[Array], Shards, Shards]:
    """A pipeline with one two-matmul layer a stage: outputs, input gradients, gradients of both weights.

    w_in "L_P D F", w_out "L_P F D": one layer a device along `axis`. batch, d_out: microbatches [B, D], which enter at
    the first stage and, as gradients, at the last. Order of GPipe; bytes are the same in any order.
    Raises MeshError unless there is one layer a stage.
    """
    p = w_in.mesh.degree(axis)
    if w_in.shape[0] != p:
        raise MeshError(f"{w_in.shape[0]} layers on {p} stages: this pipeline holds one layer a stage")
    with w_in.mesh.phase("forward"):
        outputs, seen = _forward(axis, w_in, w_out, batch)
    with w_in.mesh.phase("backward"):
        return outputs, *_backward(axis, w_in, w_out, seen, d_out)


def _forward(axis: str, w_in: Shards, w_out: Shards, batch: Sequence[Array]) -> tuple[list[Array], list[Shards]]:
    """Outputs, and what each stage saw at each tick: at tick t stage s works on microbatch t - s."""
    p, m = w_in.mesh.degree(axis), len(batch)
    stage, moving = _stages(axis, w_in, batch[0])
    outputs, seen = [], []
    for tick in range(m + p - 1):
        fresh = batch[min(tick, m - 1)]
        x = local(lambda s, y, fresh=fresh: fresh[None] if s[0] == 0 else y, stage, moving, out=moving.layout)
        seen.append(x)
        hidden = local(silu, einsum("L B D, L D F -> L B F", x, w_in))
        y = einsum("L B F, L F D -> L B D", hidden, w_out, name="activations")
        if tick >= p - 1:
            outputs.append(y.parts[-1][0])
        moving = permute(y, axis, [(s, s + 1) for s in range(p - 1) if 0 <= tick - s < m])
    return outputs, seen


def _backward(
    axis: str, w_in: Shards, w_out: Shards, seen: list[Shards], d_out: Sequence[Array]
) -> tuple[list[Array], Shards, Shards]:
    """Input gradients and weight gradients; stage s works on microbatch t - (p - 1 - s), the last stage first."""
    p, m = w_in.mesh.degree(axis), len(d_out)
    stage, moving = _stages(axis, w_in, d_out[0])
    d_inputs, d_w_in, d_w_out = [], local(np.zeros_like, w_in), local(np.zeros_like, w_out)
    for tick in range(m + p - 1):
        x, dy = _arrived(stage, moving, seen, tick, p, d_out)
        a = einsum("L B D, L D F -> L B F", x, w_in)
        da = local(silu_gradient, a, einsum("L B D, L F D -> L B F", dy, w_out))
        d_w_out = d_w_out + einsum("L B F, L B D -> L F D", local(silu, a), dy)
        d_w_in = d_w_in + einsum("L B D, L B F -> L D F", x, da)
        dx = einsum("L B F, L D F -> L B D", da, w_in, name="activation gradients")
        if tick >= p - 1:
            d_inputs.append(dx.parts[0][0])
        moving = permute(dx, axis, [(s, s - 1) for s in range(1, p) if 0 <= tick - (p - 1 - s) < m])
    return d_inputs, d_w_in, d_w_out


def _arrived(
    stage: Shards, moving: Shards, seen: list[Shards], tick: int, p: int, d_out: Sequence[Array]
) -> tuple[Shards, Shards]:
    """For each stage the input it once saw and the gradient that reaches it now; zeros while it idles."""

    def pick(s: Array, dy: Array, *inputs: Array) -> tuple[Array, Array]:
        microbatch = tick - (p - 1 - int(s[0]))
        if not 0 <= microbatch < len(d_out):
            return np.zeros_like(dy), np.zeros_like(dy)
        return inputs[microbatch + int(s[0])], d_out[microbatch][None] if s[0] == p - 1 else dy

    x, dy = local(pick, stage, moving, *seen, out=[moving.layout] * 2)
    return x, dy


def _stages(axis: str, w: Shards, microbatch: Array) -> tuple[Shards, Shards]:
    """The number of each stage, and an empty inbox."""
    p = w.mesh.degree(axis)
    empty = w.mesh.shard(np.zeros((p, *microbatch.shape)), f"L_{axis} B D", "activations")
    return w.mesh.shard(np.arange(p), f"L_{axis}"), empty
