"""Fully sharded data parallelism (ZeRO-3): In[B_X, D] Win[D_X, F] Wout[F, D_X].

Weights are gathered before use in both passes and discarded after; gradients are reduce-scattered.
Per two-matmul layer in bf16: 4DF bytes forward, 8DF backward.
"""

from __future__ import annotations

from typing import Any

from scaling_lib import roofline
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times
from scaling_lib.units import maximum


def forward_t_comms(d_model: Any, d_ff: Any, egress: Any) -> Any:
    """Seconds of the forward gathers in bf16, many chips: 4 D F / W. Equation: eq-fsdp-forward-comms."""
    return 4 * d_model * d_ff / egress


def backward_t_comms(d_model: Any, d_ff: Any, egress: Any) -> Any:
    """Seconds of backward gathers and reduce-scatters in bf16, many chips: 8 D F / W.

    Equation: eq-fsdp-backward-comms.
    """
    return 8 * d_model * d_ff / egress


def critical_tokens(peak: Any, egress: Any, axes: Any = 1) -> Any:
    """Tokens per chip above which FSDP is compute-bound: B/X = C / (M W), as for DP. Equation: eq-fsdp-threshold.

    peak: FLOP/s dense. egress: byte/s along one axis. axes: M. Source: JAX Scaling Book, chapter 5.
    """
    return peak / (axes * egress)


def traffic_ratio(reshard_after_forward: bool = True) -> float:
    """Bytes of FSDP over bytes of DP: 12DF / 8DF, or 1 when the weights are kept between the passes.

    Equation: eq-fsdp-traffic.
    """
    return 1.5 if reshard_after_forward else 1.0


def state_bytes_per_chip(n_params: Any, bytes_per_param: Any, chips: Any) -> Any:
    """Training state on one chip when it is sharded over all of them: N_params b / X. Equation: eq-fsdp-state."""
    return n_params * bytes_per_param / chips


def flops(job: Job) -> Ledger:
    """FLOPs of one layer on one chip, by pass."""
    return roofline.layer_flops(job)


def wire_bytes(job: Job) -> Ledger:
    """Bytes that one chip sends for one layer in one step without gradient accumulation."""
    gather = roofline.data_sent(job, "all_gather", job.element_bytes)
    scatter = roofline.data_sent(job, "reduce_scatter", job.recipe.grad_wire)
    again = gather if job.plan.reshard_after_forward else 0.0
    return Ledger(
        "Bytes sent by one chip for one layer, FSDP",
        "B",
        (
            Part("forward/all_gather weights", gather, "V (X-1)/X"),
            Part(
                "backward/all_gather weights",
                again,
                "V (X-1)/X" if job.plan.reshard_after_forward else "kept from forward",
            ),
            Part("backward/reduce_scatter gradients", scatter, "V (X-1)/X"),
        ),
    )


def times(job: Job) -> Times:
    """Seconds of compute and communication of one layer, exact for the group's size and the cluster's levels."""
    gather = roofline.data_seconds(job, "all_gather", job.element_bytes)
    scatter = roofline.data_seconds(job, "reduce_scatter", job.recipe.grad_wire)
    return roofline.times_of(job, gather, (gather if job.plan.reshard_after_forward else 0.0) + scatter)


def is_compute_bound(job: Job) -> Any:
    """Whether gathers and reduce-scatters hide in both passes."""
    return times(job).compute_bound


def critical_batch(job: Job) -> Any:
    """The knob: batch in tokens above which both passes are compute-bound, for this job's chips and plan.

    Exact: with (X-1)/X and the levels of the cluster. Its limit for many chips is `critical_tokens` x X.
    """
    now = times(job)
    return job.batch_tokens * maximum(now.forward_comms / now.forward_math, now.backward_comms / now.backward_math)
