"""Data parallelism: In[B_X, D] Win[D, F] Wout[F, D]. Every chip holds the weights; gradients are all-reduced.

Per layer: no bytes forward; backward an all-reduce of the gradients, 8DF bytes in bf16 for the two-matmul layer.
"""

from __future__ import annotations

from typing import Any

from scaling_lib import roofline
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times


def forward_flops(batch: Any, d_model: Any, d_ff: Any, dp: Any) -> Any:
    """Forward FLOPs of the two-matmul layer on one chip: 4 B D F / X. Equation: eq-dp-forward."""
    return 4 * batch * d_model * d_ff / dp


def backward_flops(batch: Any, d_model: Any, d_ff: Any, dp: Any) -> Any:
    """Backward FLOPs of the two-matmul layer on one chip: 8 B D F / X, twice the forward.

    Equation: eq-dp-backward.
    """
    return 8 * batch * d_model * d_ff / dp


def t_math(batch: Any, d_model: Any, d_ff: Any, dp: Any, peak: Any) -> Any:
    """Seconds of the backward compute: 8 B D F / (X C). Equation: eq-dp-math."""
    return backward_flops(batch, d_model, d_ff, dp) / peak


def t_comms(d_model: Any, d_ff: Any, egress: Any) -> Any:
    """Seconds of the gradients' all-reduce in bf16, many chips: 8 D F / W. Equation: eq-dp-comms.

    Two matrices of 2DF bytes; an all-reduce costs twice its bytes. egress: byte/s.
    """
    return 8 * d_model * d_ff / egress


def critical_tokens(peak: Any, egress: Any, axes: Any = 1) -> Any:
    """Tokens per chip above which DP is compute-bound: B/X = C / (M W). Equation: eq-dp-threshold.

    peak: FLOP/s dense. egress: byte/s along one axis. axes: M, network axes used at once
    (a torus has up to 3, a switch 1).
    Source: JAX Scaling Book, chapter 5.
    """
    return peak / (axes * egress)


def max_params(hbm: Any, bytes_per_param: Any) -> Any:
    """Most parameters whose training state fits one chip: HBM / (bytes per parameter). Equation: eq-dp-max-params."""
    return hbm / bytes_per_param


def flops(job: Job) -> Ledger:
    """FLOPs of one layer on one chip, by pass."""
    return roofline.layer_flops(job)


def wire_bytes(job: Job) -> Ledger:
    """Bytes that one chip sends for one layer in one step: the all-reduce of its gradient slice in backward."""
    return Ledger(
        "Bytes sent by one chip for one layer, DP",
        "B",
        (
            Part("forward/none", 0.0, "weights are local"),
            Part(
                "backward/all_reduce gradients",
                roofline.data_sent(job, "all_reduce", job.recipe.grad_wire),
                "2 V (X-1)/X",
            ),
        ),
    )


def times(job: Job) -> Times:
    """Seconds of compute and communication of one layer, exact for the group's size and the cluster's levels."""
    return roofline.times_of(job, 0.0, roofline.data_seconds(job, "all_reduce", job.recipe.grad_wire))


def is_compute_bound(job: Job) -> Any:
    """Whether the gradients' all-reduce hides behind the backward compute."""
    return times(job).compute_bound


def critical_batch(job: Job) -> Any:
    """The knob: batch in tokens at which backward compute equals the all-reduce, for this job's chips and plan.

    Exact: with (X-1)/X and the levels of the cluster. Its limit for many chips is `critical_tokens` x X.
    """
    now = times(job)
    return job.batch_tokens * now.backward_comms / now.backward_math
