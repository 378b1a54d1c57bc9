"""Two more layers in JAX: experts, which exchange tokens, and a pipeline, whose stages pass microbatches on.

As in `xla_layers` only the forward pass is written. Without written-out collectives the same code runs on whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EXPERTS_PER_TOKEN = 2
TOKENS, ROUTER, EXPERT_IN, EXPERT_OUT = "B_b D", "D E", "E_b D F", "E_b F D"
MICROBATCHES, STAGE_IN, STAGE_OUT = "L_b M B D", "L_b D F", "L_b F D"


def moe(moves: Any) -> Callable[..., Any]:
    """Forward pass of the layer of `mesh_moe`; data: the axis of tokens and experts.

    Each expert keeps a place for every token of a sender, so none is dropped and no routing changes the bytes.
    """
    np, lax = moves.jax.numpy, moves.jax.lax
    axis = moves.strategy.data if moves.manual else ""

    def exchange(table: Any, split: int, join: int) -> Any:
        return lax.all_to_all(table, axis, split, join, tiled=True) if axis else table

    def forward(x: Any, router: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:
        scores = x @ moves.use(router, ROUTER)
        least = np.sort(lax.stop_gradient(scores), axis=1)[:, -EXPERTS_PER_TOKEN, None]
        chosen = scores >= least
        share = moves.jax.nn.softmax(np.where(chosen, scores, -np.inf), axis=1)
        table = exchange(np.einsum("te,td->etd", chosen.astype(x.dtype), x), 0, 1)
        hidden = moves.jax.nn.silu(np.einsum("etd,edf->etf", table, w_gate)) * np.einsum("etd,edf->etf", table, w_up)
        results = exchange(np.einsum("etf,efd->etd", hidden, w_down), 1, 0)
        return np.einsum("te,etd->td", share, results)

    return forward


def pipeline(moves: Any) -> Callable[..., Any]:
    """Forward pass of the pipeline of `mesh_pipeline`; data: the axis of stages.

    Microbatches [L, M, B, D] enter at the first stage and leave at the last; the places of other stages are not read,
    and hold zeros on the way out. Left to the compiler, a shift of the stage dimension takes the place of the sends.
    """
    np, lax = moves.jax.numpy, moves.jax.lax
    axis = moves.strategy.data if moves.manual else ""

    def shift(y: Any, tick: int, p: int, m: int) -> Any:
        if not axis:
            return np.roll(y, 1, axis=0)
        return lax.ppermute(y, axis, [(s, s + 1) for s in range(p - 1) if 0 <= tick - s < m])

    def forward(x: Any, w_in: Any, w_out: Any) -> Any:
        m, p = x.shape[1], lax.axis_size(axis) if axis else x.shape[0]
        stage = (lax.axis_index(axis)[None] if axis else np.arange(p))[:, None, None]
        outputs, moving = [], np.zeros_like(x[:, 0])
        for tick in range(m + p - 1):
            inputs = np.where(stage == 0, x[:, min(tick, m - 1)], moving)
            hidden = moves.jax.nn.silu(np.einsum("lbd,ldf->lbf", inputs, w_in))
            y = np.einsum("lbf,lfd->lbd", hidden, w_out)
            if tick >= p - 1:
                outputs.append(np.where(stage == p - 1, y, 0))
            if tick < m + p - 2:
                moving = shift(y, tick, p, m)
        return np.stack(outputs, axis=1)

    return forward
