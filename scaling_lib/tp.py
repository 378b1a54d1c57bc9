"""Tensor parallelism (Megatron, with sequence parallelism): In[B, D_Y] Win[D, F_Y] Wout[F_Y, D].

Activations move: an all-gather of the input and a reduce-scatter of the output, 2BD bytes each in bf16, forward;
the same backward, and 2BD more when the input is gathered again for the weight gradient.
"""

from __future__ import annotations

from typing import Any

from scaling_lib import collectives, roofline
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times


def t_math(batch: Any, d_model: Any, d_ff: Any, tp: Any, peak: Any) -> Any:
    """Seconds of the forward compute: 4 B D F / (Y C). Equation: eq-tp-math."""
    return 4 * batch * d_model * d_ff / (tp * peak)


def t_comms(batch: Any, d_model: Any, egress: Any) -> Any:
    """Seconds of the forward gather and reduce-scatter in bf16, many chips: 4 B D / W. Equation: eq-tp-comms."""
    return 4 * batch * d_model / egress


def max_degree(d_ff: Any, peak: Any, egress: Any, axes: Any = 1) -> Any:
    """Largest TP degree that stays compute-bound: Y = F M W / C. Equation: eq-tp-threshold.

    d_ff: F, or `roofline.Layer.effective_d_ff` of another layer form. peak: FLOP/s. egress: byte/s along one axis.
    Source: JAX Scaling Book, chapter 5.
    """
    return d_ff * axes * egress / peak


def critical_d_ff(tp: Any, peak: Any, egress: Any) -> Any:
    """Smallest width F that keeps a TP degree compute-bound: F = Y C / W. Equation: eq-tp-width."""
    return tp * peak / egress


def traffic_over_fsdp(tokens_per_rank: Any, d_ff: Any, tp: Any) -> Any:
    """Bytes of TP over bytes of FSDP per two-matmul layer: 8 (B/X) D over 12 D F / Y. Equation: eq-tp-over-fsdp."""
    return 8 * tokens_per_rank * tp / (12 * d_ff)


def flops(job: Job) -> Ledger:
    """FLOPs of one layer on one chip, by pass."""
    return roofline.layer_flops(job)


def wire_bytes(job: Job, regather: bool = False) -> Ledger:
    """Bytes that one chip sends for one layer in one step.

    regather: the input was kept sharded and is gathered a second time for the weight gradient.
    """
    each = collectives.sent_bytes("all_gather", _activation_bytes(job), job.plan.tp)
    rows = [
        Part("forward/all_gather input", each, "V (Y-1)/Y"),
        Part("forward/reduce_scatter output", each, "V (Y-1)/Y"),
        Part("backward/all_gather output gradient", each, "V (Y-1)/Y"),
        Part("backward/reduce_scatter input gradient", each, "V (Y-1)/Y"),
    ]
    if regather:
        rows.append(Part("backward/all_gather input again", each, "V (Y-1)/Y"))
    return Ledger("Bytes sent by one chip for one layer, TP", "B", tuple(rows))


def times(job: Job, regather: bool = False) -> Times:
    """Seconds of compute and communication of one layer, exact for the group's size and the cluster's levels."""
    each = collectives.hierarchical(
        "all_gather", _activation_bytes(job), job.cluster.hops(job.plan.tp, 1, job.torus_axes[1])
    )
    return roofline.times_of(job, 2 * each, (3 if regather else 2) * each)


def is_compute_bound(job: Job) -> Any:
    """Whether the activation collectives would hide with perfect overlap. They rarely do: each waits for its input.

    Gathering the input again never tips it: backward then has three collectives against twice the forward's compute.
    """
    return times(job).compute_bound


def max_tp(job: Job) -> float:
    """The knob: largest TP degree whose forward collectives hide, on the innermost level, many-chip limit."""
    egress = job.cluster.levels[0].chip_egress(job.torus_axes[1])
    return float(max_degree(roofline.layer_of(job).effective_d_ff, job.peak, egress))


def _activation_bytes(job: Job) -> Any:
    """Bytes of the activations gathered at once in one layer: B/X tokens of D, once a gather."""
    form = roofline.layer_of(job)
    return form.gathers * job.tokens_per_rank * form.d_model * job.element_bytes
