"""Reference formulas of papers and tools for memory, so that our ledger has witnesses.

Each is written with the parts of the ledger where the physics is the same; what differs is said in its docstring.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from scaling_lib.job import Job
from scaling_lib.memory import state_bytes_per_param
from scaling_lib.memory_activations import checkpoint_bytes, kept_bytes, layer_activations
from scaling_lib.memory_stages import Groups, in_flight, layer_groups
from scaling_lib.model import TransformerConfig, attention_params, mlp_params
from scaling_lib.precision import BYTES, recipe
from scaling_lib.units import where

TOKEN_ID_BYTES = 8  # Megatron keeps 64-bit token ids
MEGATRON_SLACK = 1.05  # what Megatron adds for temporaries in the form without sequence parallelism


def plain(model: TransformerConfig, d_ff: int | None = None) -> TransformerConfig:
    """The GPT shape that Korthikanti's table is written for: no gate, no GQA, no MLA, heads that fill d_model."""
    return replace(
        model,
        d_ff=model.d_ff if d_ff is None else d_ff,
        gated=False,
        n_kv_heads=model.n_heads,
        head_dim=model.d_model // model.n_heads,
        mla=None,
    )


def _tokens(job: Job) -> Any:
    """Tokens of a microbatch (s b); these formulas know no context parallelism."""
    return job.plan.micro_batch * job.seq_len


def _layer(job: Job, model: TransformerConfig, recompute: str) -> Any:
    """Bytes that a layer of a plain model keeps: the ledger's unfused layer."""
    plan, tokens = job.plan, _tokens(job)
    layer = layer_activations(model, tokens, job.seq_len, plan.tp, plan.sequence_parallel, "unfused")
    shared = plan.tp if plan.sequence_parallel else 1
    return kept_bytes(layer, recompute, checkpoint_bytes(tokens, model.d_model, 1, tp=shared))


def korthikanti_layer(job: Job) -> Any:
    """Activation bytes of one layer, table 2 of arXiv:2205.05198: s b h (34 + 5 a s/h) without parallelism."""
    return _layer(job, plain(job.model), job.plan.recompute)


def _first_stage_layers(job: Job, microbatches: Any) -> Any:
    """Layers x microbatches that the first stage keeps: L/p of each in flight."""
    plan = job.plan
    return job.model.n_layers / plan.pp * in_flight(plan.schedule, plan.pp, microbatches, plan.virtual_stages)


def korthikanti_first_stage(job: Job) -> Any:
    """Activation bytes of the first stage: L layers under 1F1B, times 1 + (p-1)/(pv) interleaved."""
    return korthikanti_layer(job) * _first_stage_layers(job, math.inf)


def korthikanti_extras(job: Job) -> Any:
    """Bytes beside the layers: s b h p/t of dropout masks, and 4 s b h/t (1 + V/h) at the end when p = 1."""
    plan, wide = job.plan, _tokens(job) * job.model.d_model
    return (wide * plan.pp + where(plan.pp > 1, 0, _ends(job))) / plan.tp


def _ends(job: Job) -> Any:
    """Inputs of the final norm and the head in 16 bits, logits in 32, uncut: 4 s b h (1 + V/h)."""
    return _tokens(job) * (2 * BYTES["bf16"] * job.model.d_model + BYTES["fp32"] * job.model.vocab_size)


def korthikanti_state(job: Job) -> Any:
    """State bytes of figure 1 of arXiv:2205.05198: the layers' matrices, 12 L h^2/(t p), at 18 bytes each."""
    weights = job.model.n_layers * (attention_params(job.model) + mlp_params(job.model))
    return weights / (job.plan.tp * job.plan.pp) * recipe("megatron").total


def _megatron_layer(model: TransformerConfig, moe_layer: bool, arrays: int) -> Groups:
    """Parameters of a layer as Megatron sorts them: latent norms with attention, biases of LayerNorm counted."""
    ours = layer_groups(model, moe_layer)
    latents = model.mla.q_lora_rank + model.mla.kv_lora_rank if model.mla else 0
    router = model.d_model * model.moe.n_experts if moe_layer and model.moe else 0
    return Groups(ours.split + arrays * latents, 2 * arrays * model.d_model + router, ours.experts)


def megatron_state(job: Job, expert_tp: Any = None) -> Any:
    """Weight, gradient and optimizer bytes of Megatron-LM's theoretical memory report.

    18 bytes a parameter, or 6 + 12/dp with the distributed optimizer (ZeRO 1 here). The fullest stage is taken as 1/p
    of all layers and the final norm, one table, and the second table when p = 1 and they are untied.
    expert_tp: TP degree of the experts; None takes that of the rest.
    Source: Megatron-LM, megatron/training/theoretical_memory_usage.py, state of 2026.
    """
    model, plan = job.model, job.plan
    arrays = 1 if model.norm == "rmsnorm" else 2
    layers = (
        _megatron_layer(model, False, arrays)
        .times(model.n_layers - model.n_moe_layers)
        .plus(_megatron_layer(model, True, arrays).times(model.n_moe_layers))
        .plus(Groups(0, arrays * model.d_model))
        .times(1 / plan.pp)
    )
    tables = 1 if model.tied_embeddings else where(plan.pp > 1, 1, 2)
    chip = layers.plus(Groups(tables * model.vocab_size * model.d_model, 0)).on_chip(plan.tp, plan.ep, expert_tp)
    expert_ways = (plan.tp if expert_tp is None else expert_tp) * plan.ep * plan.pp
    mixed = recipe("megatron")
    return chip[0] * state_bytes_per_param(mixed, plan.zero, plan.dp) + chip[1] * state_bytes_per_param(
        mixed, plan.zero, job.chips / expert_ways
    )


def megatron_activations(job: Job) -> Any:
    """Activation bytes of Megatron-LM's report: sequence parallelism with selective recomputation, or its other form.

    The first ignores gates, GQA and experts: s b h (18 + 4 F/h) a layer. The other has F = 4 h and adds 5%. Both take
    token ids and dropout masks of p microbatches, and shrink everything when fewer are in flight.
    """
    model, plan = job.model, job.plan
    sharded = plan.sequence_parallel and plan.recompute == "selective"
    layer = _layer(job, plain(model, None if sharded else 4 * model.d_model), "selective")
    entry = _tokens(job) * (TOKEN_ID_BYTES + model.d_model) * plan.pp
    microbatches = where(plan.virtual_stages == 1, job.microbatches, math.inf)
    held = _first_stage_layers(job, microbatches) / model.n_layers
    if sharded:
        stages = (layer * plan.tp * model.n_layers + entry) * held
        return (stages + where(plan.pp > 1, 0, _ends(job))) / plan.tp
    logits = BYTES["bf16"] * _tokens(job) * (model.vocab_size / plan.tp + model.d_model)
    return MEGATRON_SLACK * ((layer * model.n_layers + entry) * held + where(plan.pp > 1, 0, logits))


def deepspeed_zero2(n_params: Any, chips: Any) -> Any:
    """State bytes a GPU by DeepSpeed's ZeRO-2 estimator: 2 P + 18 P/N; gradients in 16 and in 32 bits are sharded."""
    return n_params * state_bytes_per_param(recipe("two-grads"), 2, chips)


def deepspeed_zero3(n_params: Any, largest_module: Any, chips: Any) -> Any:
    """State bytes a GPU by DeepSpeed's ZeRO-3 estimator: 4 x the largest module + 18 P/N.

    The module's weights and gradients are whole while it works. DeepSpeed counts weights and gradients as 6 bytes, as
    the recipe with fp32 gradients does.
    """
    whole = 2 * BYTES["bf16"] * largest_module
    return whole + n_params * state_bytes_per_param(recipe("megatron"), 3, chips)


def largest_module(model: TransformerConfig) -> int:
    """Most parameters that one module holds itself, as DeepSpeed counts: a matrix, often the embedding."""
    widest = max(model.d_ff, model.n_heads * model.head_dim, model.vocab_size)
    return model.d_model * widest
