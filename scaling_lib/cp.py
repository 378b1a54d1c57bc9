"""Context parallelism (ring attention): Q[B, S_C], K[B, S_C], V[B, S_C]. Keys and values travel, queries stay.

Each chip holds S/cp positions of every sequence, attends to its own keys, and passes keys and values round the ring.
Forward they make cp - 1 moves. Backward they make them again, and their gradients make cp, back to where they began.
"""

from __future__ import annotations

from typing import Any

from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times


def kv_bytes(tokens: Any, n_kv_heads: Any, head_dim: Any, element_bytes: Any = 2) -> Any:
    """Bytes of the keys and values of some tokens in one layer: 2 T K h e. Equation: eq-cp-kv.

    Grouped-query attention shrinks them: Llama 3 70B has 8 key-value heads for 64 query heads.
    """
    return 2 * tokens * n_kv_heads * head_dim * element_bytes


def critical_tokens(peak: Any, egress: Any, n_heads: Any, n_kv_heads: Any, element_bytes: Any = 2) -> Any:
    """Positions per chip (S/cp) above which one move of keys and values hides behind attention to one block.

    e K C / (2 H W), scores counted in full; twice that when a causal mask halves the work of every chip alike.
    Equation: eq-cp-threshold. Independent of the batch and of the head size. Source: Liu et al. 2023, Ring Attention.
    """
    return element_bytes * n_kv_heads * peak / (2 * n_heads * egress)


def flops(job: Job) -> Ledger:
    """FLOPs of attention scores and mixing of one layer on one chip, causal: S/2 positions attended on average.

    Backward runs five matmuls to the forward's two, since the scores are computed anew.
    """
    forward = 2 * job.tokens_per_rank * (job.seq_len / 2) * job.model.attention_width / job.plan.tp
    return Ledger(
        "FLOPs of attention scores of one layer on one chip",
        "FLOP",
        (
            Part("forward/scores and mixing", forward, "4 T (S/2) H h"),
            Part("backward/scores again, gradients", 2.5 * forward, "10 T (S/2) H h"),
        ),
    )


def wire_bytes(job: Job) -> Ledger:
    """Bytes that one chip sends for one layer in one step, beside the collectives of its weights.

    T = B/(dp cp) tokens a rank. Each TP rank carries its own heads. Raises ValueError when TP exceeds the key-value
    heads, which would then be copied.
    """
    each, n = _block(job), job.plan.cp
    return Ledger(
        "Bytes sent by one chip for one layer, CP",
        "B",
        (
            Part("forward/permute keys and values", each * (n - 1), "2 T K h e (cp-1)"),
            Part("backward/permute keys and values", each * (n - 1), "2 T K h e (cp-1)"),
            Part("backward/permute key and value gradients", each * n * (n > 1), "2 T K h e cp"),
        ),
    )


def times(job: Job) -> Times:
    """Seconds of attention and of the moves it hides, on the slowest link of the ring.

    A ring that crosses nodes has one neighbour outside its node, and tp rings cross side by side: each has the network
    card of its chip. Attention is taken at peak, and causal work as shared equally (a zigzag order of the sequence).
    """
    work, sent = flops(job), wire_bytes(job)
    level = job.cluster.slowest(job.plan.cp, job.plan.tp)
    egress = level.chip_egress(1 if level.shape else None) if level else float("inf")
    return Times(
        work["forward"] / job.peak, sent["forward"] / egress, work["backward"] / job.peak, sent["backward"] / egress
    )


def is_compute_bound(job: Job) -> Any:
    """Whether keys, values and their gradients travel behind the attention they feed."""
    return times(job).compute_bound


def max_cp(job: Job) -> Any:
    """The knob: most chips a sequence may be cut over before a move takes longer than a causal block, forward.

    Raises ValueError on a cluster without a link.
    """
    level = job.cluster.slowest(max(job.plan.cp, 2), job.plan.tp)
    if level is None:
        raise ValueError(f"{job.cluster.name} has no level for a ring of 2 chips: use a larger cluster")
    egress, m = level.chip_egress(1 if level.shape else None), job.model
    return job.seq_len / (2 * critical_tokens(job.peak, egress, m.n_heads, m.n_kv_heads, job.element_bytes))


def _block(job: Job) -> Any:
    """Bytes of keys and values that one chip holds in one layer."""
    if isinstance(job.plan.tp, int) and job.plan.tp > job.model.n_kv_heads:
        raise ValueError(
            f"TP {job.plan.tp} exceeds the {job.model.n_kv_heads} key-value heads, which would be copied: "
            f"use TP of at most {job.model.n_kv_heads}"
        )
    return kv_bytes(job.tokens_per_rank, job.model.n_kv_heads, job.model.head_dim, job.element_bytes) / job.plan.tp
