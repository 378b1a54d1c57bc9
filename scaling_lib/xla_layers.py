"""The layers of `mesh_layers` and `mesh_block` in JAX: with every collective written out, or left to the compiler.

Only the forward pass is written. JAX derives the backward pass: the transpose of an all-gather is a reduce-scatter, and
a weight that all devices share gets its gradient summed. JAX is imported when a function runs, not with this module.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaling_lib import mesh_block, mesh_layers, xla_exchanges
from scaling_lib.mesh_layers import Strategy

MANUAL, AUTOMATIC = "shard_map", "automatic"


class CompilerError(ValueError):
    """JAX is missing, or a program cannot be built on the devices at hand."""


def load_jax() -> Any:
    """The jax module. Raises CompilerError that says how to get it."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise CompilerError("JAX is not installed: pip install 'scaling-lib[compiler]'") from None


def simulate_devices(n: int) -> Any:
    """JAX with at least n devices: simulated ones where it runs on a CPU that it has not started yet.

    Raises CompilerError when JAX already runs with fewer.
    """
    jax = load_jax()
    with contextlib.suppress(RuntimeError):  # refused once the devices exist; their number is checked below
        jax.config.update("jax_num_cpu_devices", n)
    if jax.device_count() < n:
        raise CompilerError(
            f"{n} devices are wanted, JAX started with {jax.device_count()}: "
            "set jax_num_cpu_devices before its first use"
        )
    return jax


def quick_options() -> dict[str, Any]:
    """Options by which XLA compiles for a CPU several times faster: they touch machine code, never a collective.

    Empty on other devices, whose programs are run in earnest.
    """
    if load_jax().devices()[0].platform != "cpu":
        return {}
    return {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def device_mesh(shape: Sequence[int], axes: str, local: bool = False) -> Any:
    """A JAX mesh with the axes of `mesh.Mesh`, last axis innermost. local: of this process's devices only.

    Raises CompilerError when there are too few.
    """
    n = math.prod(shape)
    jax = simulate_devices(n)
    devices = jax.local_devices()[:n] if local else _even_share(jax, n)
    automatic = jax.sharding.AxisType.Auto
    return jax.make_mesh(tuple(shape), tuple(axes), axis_types=(automatic,) * len(axes), devices=devices)


def _even_share(jax: Any, n: int) -> list[Any]:
    """n devices, equally many of each process: one without any could not place its inputs. Raises CompilerError."""
    processes = range(jax.process_count())
    if n % len(processes):
        raise CompilerError(f"{len(processes)} processes cannot share {n} devices evenly: start another number of them")
    owned = [[d for d in jax.devices() if d.process_index == i] for i in processes]
    return [d for own in owned for d in own[: n // len(processes)]]


def spec(layout: str) -> Any:
    """PartitionSpec of a layout such as "B_X D" or "S_CY"."""
    words = [word.partition("_")[2] for word in layout.split()]
    return load_jax().sharding.PartitionSpec(*(tuple(w) if len(w) > 1 else w or None for w in words))


class _Moves:
    """The collectives of a strategy, written out; in automatic mode the compiler is left to find its own."""

    def __init__(self, strategy: Strategy, mode: str, axes: str) -> None:
        self.jax, self.strategy, self.manual = load_jax(), strategy, mode == MANUAL
        self.axes = [a for a in axes if a in strategy.data + strategy.shard + strategy.tensor + strategy.context]

    def use(self, w: Any, layout: str) -> Any:
        """A weight gathered over the FSDP axes; first marked as different on every device, so that gradients of it are
        cut before they are summed over the other axes."""
        if not self.manual:
            return w
        lax, shard = self.jax.lax, self.strategy.shard
        stored = self.strategy.layout(layout)
        missing = tuple(a for a in self.axes if a not in "".join(word.partition("_")[2] for word in stored.split()))
        w = lax.pcast(w, missing, to="varying") if missing else w
        for place, word in enumerate(layout.split()):
            if shard and "x" in word.partition("_")[2]:
                w = lax.all_gather(w, tuple(shard), axis=place, tiled=True)
        return w

    def enter(self, x: Any, place: int) -> Any:
        """The input of a TP block, gathered along one of its dimensions."""
        if not (self.manual and self.strategy.tensor):
            return x
        return self.jax.lax.all_gather(x, self.strategy.tensor, axis=place, tiled=True)

    def leave(self, x: Any, place: int) -> Any:
        """The output of a TP block, summed and cut."""
        if not (self.manual and self.strategy.tensor):
            return x
        return self.jax.lax.psum_scatter(x, self.strategy.tensor, scatter_dimension=place, tiled=True)

    def remember(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Keep for the backward pass what the strategy keeps: all but weights, or inputs, that it gathers again."""
        st = self.strategy
        again = {tuple(st.shard)} if st.shard and st.reshard else set()
        again |= {(st.tensor,)} if st.tensor and st.regather else set()

        def kept(primitive: Any, *_: Any, **parameters: Any) -> bool:
            if primitive.name == "broadcast_in_dim":  # else a gathered norm gain would be kept in its widened form
                return False
            axes = parameters.get("axis_name")
            return not (primitive.name == "all_gather" and (axes if isinstance(axes, tuple) else (axes,)) in again)

        return self.jax.checkpoint(f, policy=kept) if self.manual and again else f


def two_matmul(moves: _Moves) -> Callable[..., Any]:
    """Forward pass of the two-matmul layer."""

    def forward(x: Any, w_in: Any, w_out: Any) -> Any:
        full = moves.enter(x, 1)
        hidden = moves.jax.nn.silu(full @ moves.use(w_in, mesh_layers.IN_LAYOUT))
        return moves.leave(hidden @ moves.use(w_out, mesh_layers.OUT_LAYOUT), 1)

    return forward


def block(moves: _Moves) -> Callable[..., Any]:
    """Forward pass of the Llama block; weights in the order of `mesh_block.LAYOUTS`."""
    np, layouts = moves.jax.numpy, mesh_block.LAYOUTS

    def norm(x: Any, gain: Any, key: str) -> Any:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + mesh_block.EPSILON)
        return x / scale * moves.use(gain, layouts[key])

    def forward(x: Any, *weights: Any) -> Any:
        w = dict(zip(layouts, weights, strict=True))

        def use(key: str) -> Any:
            return moves.use(w[key], layouts[key])

        full = moves.enter(norm(x, w["norm1"], "norm1"), 1)
        here = _positions(moves, full.shape[1])
        q = _rotate(np, np.einsum("bsd,dkgh->bskgh", full, use("wq")), here)
        k = _rotate(np, np.einsum("bsd,dkh->bskh", full, use("wk")), here)
        v = np.einsum("bsd,dkh->bskh", full, use("wv"))
        mixed = _attention(moves, q, np.stack([k, v]), here)
        x = x + moves.leave(np.einsum("bskgh,kghd->bsd", mixed, use("wo")), 1)
        full = moves.enter(norm(x, w["norm2"], "norm2"), 1)
        hidden = moves.jax.nn.silu(full @ use("w_gate")) * (full @ use("w_up"))
        return x + moves.leave(hidden @ use("w_down"), 1)

    return forward


def _positions(moves: _Moves, length: int, shift: int = 0) -> Any:
    """Positions that this device holds, or holds after `shift` moves of the ring."""
    at, context = moves.jax.numpy.arange(length), moves.strategy.context
    if not (moves.manual and context):
        return at
    n = moves.jax.lax.axis_size(context)
    return at + length * ((moves.jax.lax.axis_index(context) - shift) % n)


def _rotate(np: Any, x: Any, positions: Any) -> Any:
    half = x.shape[-1] // 2
    angle = positions[:, None] * mesh_block.ROPE_BASE ** (-np.arange(half) / half)
    angle = angle.reshape(1, positions.shape[0], *[1] * (x.ndim - 3), half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


def _attention(moves: _Moves, q: Any, kv: Any, here: Any) -> Any:
    """Causal attention; under CP keys and values pass round the ring, and the softmax is accumulated."""
    np, lax, context = moves.jax.numpy, moves.jax.lax, moves.strategy.context if moves.manual else ""
    n = lax.axis_size(context) if context else 1
    top: Any = None
    total: Any = None
    mixed: Any = None
    for step in range(n):
        at = _positions(moves, q.shape[1], step)
        scores = np.einsum("bskgh,btkh->bkgst", q, kv[0]) / q.shape[-1] ** 0.5
        scores = np.where(at[None, :] <= here[:, None], scores, -np.inf)
        new = scores.max(axis=-1) if top is None else np.maximum(top, scores.max(axis=-1))
        p = np.exp(scores - new[..., None])
        part, values = p.sum(axis=-1), np.einsum("bkgst,btkh->bskgh", p, kv[1])
        fade = None if top is None else np.exp(top - new)
        total = part if fade is None else total * fade + part
        mixed = values if fade is None else mixed * np.moveaxis(fade, 3, 1)[..., None] + values
        top = new
        if step < n - 1:
            kv = lax.ppermute(kv, context, [(i, (i + 1) % n) for i in range(n)])
    return mixed / np.moveaxis(total, 3, 1)[..., None]


LAYERS: Mapping[str, tuple[Callable[[_Moves], Callable[..., Any]], str, tuple[str, ...]]] = {
    "two-matmul": (two_matmul, mesh_layers.X_LAYOUT, (mesh_layers.IN_LAYOUT, mesh_layers.OUT_LAYOUT)),
    "block": (block, mesh_block.ACTIVATIONS, tuple(mesh_block.LAYOUTS.values())),
    "experts": (
        xla_exchanges.moe,
        xla_exchanges.TOKENS,
        (xla_exchanges.ROUTER, *[xla_exchanges.EXPERT_IN] * 2, xla_exchanges.EXPERT_OUT),
    ),
    "stages": (
        xla_exchanges.pipeline,
        xla_exchanges.MICROBATCHES,
        (xla_exchanges.STAGE_IN, xla_exchanges.STAGE_OUT),
    ),
}


def training_pass(
    layer: str, strategy: Strategy, shape: Sequence[int], axes: str, mode: str, local: bool = False
) -> tuple[Any, list[Any]]:
    """A jitted training pass (x, d_out, *weights) -> (output, input gradient, *weight gradients), and its shardings.

    layer: one of LAYERS. mode: "shard_map", where every collective is written out, or "automatic", where only
    the shardings of inputs and outputs are given. local: on this process's devices only. Raises CompilerError for
    another layer or mode.
    """
    if layer not in LAYERS or mode not in (MANUAL, AUTOMATIC):
        raise CompilerError(f"no layer {layer!r} in mode {mode!r}: use {', '.join(LAYERS)} in {MANUAL} or {AUTOMATIC}")
    build, activations, weights = LAYERS[layer]
    jax, mesh = load_jax(), device_mesh(shape, axes, local)
    moves = _Moves(strategy, mode, axes)
    x_spec, w_specs = spec(strategy.layout(activations)), [spec(strategy.layout(w)) for w in weights]
    forward = moves.remember(build(moves))
    if mode == MANUAL:
        forward = jax.shard_map(forward, mesh=mesh, in_specs=(x_spec, *w_specs), out_specs=x_spec)

    def step(x: Any, d_out: Any, *w: Any) -> Any:
        out, backward = jax.vjp(forward, x, *w)
        return out, *backward(d_out)

    cuts = [jax.sharding.NamedSharding(mesh, s) for s in (x_spec, x_spec, *w_specs)]
    jitted = jax.jit(step, in_shardings=cuts, out_shardings=tuple(cuts), compiler_options=quick_options())
    return jitted, cuts
