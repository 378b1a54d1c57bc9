"""Activations of one layer: what the forward pass leaves in memory for the backward pass, row by row.

Three groups, by how tensor parallelism cuts them: `stream` (full width; divided by Y only with sequence parallelism),
`inner` (between the two matmuls of a block; always divided by Y), `core` (scores of attention; divided by Y).
"""

from __future__ import annotations

from typing import Any

from scaling_lib.job import ATTENTION, RECOMPUTE
from scaling_lib.ledger import Ledger, Part
from scaling_lib.model import TransformerConfig
from scaling_lib.precision import BYTES
from scaling_lib.units import maximum, where

MASK_BYTES = 1  # a dropout mask takes one byte an element


def checkpoint_bytes(
    tokens: Any, d_model: Any, n_layers: Any, per_layer: Any = 1, tp: Any = 1, element_bytes: Any = 2
) -> Any:
    """Bytes of layer inputs kept for recomputation: k T D L e / Y. Equation: eq-checkpoint-bytes.

    tokens: T of the microbatches held. per_layer: k, which may be a fraction. tp: ways the checkpoint is cut (1 without
    sequence parallelism). Source: Korthikanti et al., arXiv:2205.05198, section 5.
    """
    return per_layer * tokens * d_model * n_layers * element_bytes / tp


def layer_activations(
    model: TransformerConfig,
    tokens: Any,
    seq_len: Any,
    tp: Any = 1,
    sequence_parallel: Any = True,
    attention: str = "flash",
    moe_layer: bool = False,
    element_bytes: Any = 2,
) -> Ledger:
    """Bytes that one layer and one microbatch leave on one chip when nothing is recomputed.

    tokens: of the microbatch on this chip (b S / context degree). seq_len: S, the length each token attends over.
    "unfused" is the layer of Korthikanti et al. with its dropout masks; "flash" keeps one fp32 number a head and token
    instead of scores, and has no dropout, as models are trained now. Approximations: 16-bit copies also under fp8;
    experts evenly loaded, without padding; of MLA the latents and the expanded heads, both kept.
    Raises ValueError for another attention. Source: arXiv:2205.05198, section 4, extended to gates, GQA, MoE and MLA.
    """
    _choice("attention", attention, ATTENTION)
    shared = where(sequence_parallel, tp, 1)
    width = (
        ("stream", _stream(model, attention, moe_layer, element_bytes), tokens / shared),
        ("inner", _inner(model, tp, moe_layer, element_bytes), tokens / tp),
        ("core", _core(model, seq_len, attention, element_bytes), tokens / tp),
    )
    return Ledger(
        "Activations of one layer and microbatch",
        "B",
        tuple(
            Part(f"{group}/{name}", value * scale, formula)
            for group, rows, scale in width
            for name, value, formula in rows
        ),
    )


Row = tuple[str, Any, str]


def _stream(model: TransformerConfig, attention: str, moe_layer: bool, e: Any) -> list[Row]:
    """Bytes a token at full width: inputs of norms and blocks, masks, and what routing and latents add."""
    d, moe, mla = model.d_model, model.moe, model.mla
    rows: list[Row] = [
        ("norm inputs", 2 * e * d, "2 T D e"),
        ("block inputs", 2 * e * d, "2 T D e"),
        ("dropout masks", 2 * MASK_BYTES * d if attention == "unfused" else 0, "2 T D"),
    ]
    if moe_layer and moe:
        copies = 2 * e * d * moe.experts_per_token + BYTES["fp32"] * moe.n_experts
        rows.append(("routing", copies, "2 k T D e into and out of experts, 4 T E scores"))
    if mla:
        latents = 2 * mla.q_lora_rank + 2 * mla.kv_lora_rank + mla.qk_rope_head_dim
        rows.append(("latents", e * latents, "low-rank queries, keys and values, before and after their norms"))
    return rows


def _inner(model: TransformerConfig, tp: Any, moe_layer: bool, e: Any) -> list[Row]:
    """Bytes a token between the matmuls: heads (key-value ones copied when Y exceeds them), hidden layer."""
    h, mla = model.head_dim, model.mla
    heads, out = model.n_heads * h + 2 * maximum(model.n_kv_heads, tp) * h, model.n_heads * h
    if mla:
        heads = model.n_heads * (2 * (mla.qk_nope_head_dim + mla.qk_rope_head_dim) + mla.v_head_dim)
        out = model.n_heads * mla.v_head_dim
    hidden = _hidden(model, moe_layer)
    return [
        ("queries, keys, values", e * heads, "T h (H + 2K) e"),
        ("attention output", e * out, "T H h e"),
        ("MLP hidden", model.mlp_matrices * e * hidden, "3 T F e gated, 2 T F e not"),
    ]


def _core(model: TransformerConfig, seq_len: Any, attention: str, e: Any) -> list[Row]:
    """Bytes a token of the scores: softmax, its mask and what dropout leaves; or the fused kernel's log-sum-exp."""
    if attention == "unfused":
        return [("scores", (2 * e + MASK_BYTES) * model.n_heads * seq_len, "T H S (2e + 1)")]
    return [("log-sum-exp", BYTES["fp32"] * model.n_heads, "4 T H")]


def kept_bytes(layer: Ledger, recompute: str, checkpoint: Any) -> Any:
    """Bytes of a layer that stay until its backward pass.

    "none": all. "selective": all but the scores. "full": `checkpoint` bytes, the inputs to recompute from.
    Raises ValueError for another policy.
    """
    _choice("recompute", recompute, RECOMPUTE)
    if recompute == "full":
        return checkpoint
    return layer.total - layer["core"] if recompute == "selective" else layer.total


def recomputed_bytes(layer: Ledger, recompute: str, per_layer: Any = 1) -> Any:
    """Bytes that recomputation brings back while one layer runs backward: its scores, or the layer over k segments.

    per_layer: k; segments are taken to be equal. Raises ValueError for another policy.
    """
    _choice("recompute", recompute, RECOMPUTE)
    if recompute == "full":
        return layer.total / per_layer
    return layer["core"] if recompute == "selective" else 0.0


def gradient_bytes(
    model: TransformerConfig, tokens: Any, tp: Any, shared: Any, moe_layer: bool = False, element_bytes: Any = 2
) -> Any:
    """Gradients of activations alive while a layer's MLP runs backward: of the stream twice, and of the hidden layer.

    The hidden layer's output gives way to its own gradient; its inputs, two when gated, get theirs beside them.
    tokens: of the microbatch on this chip. shared: ways that sequence parallelism cuts the stream.
    """
    hidden = _hidden(model, moe_layer)
    return tokens * element_bytes * (2 * model.d_model / shared + (model.mlp_matrices - 1) * hidden / tp)


def _hidden(model: TransformerConfig, moe_layer: bool) -> int:
    """Width of the hidden layer that one token passes."""
    moe = model.moe
    return moe.d_ff_expert * (moe.experts_per_token + moe.n_shared_experts) if moe_layer and moe else model.d_ff


def _choice(name: str, value: str, among: tuple[str, ...]) -> None:
    if value not in among:
        raise ValueError(f"{name} is {value!r}: use one of {', '.join(among)}")
