"""Across pods: pure DP over the slow outer network, everything else inside the pod.

A pod is what the outermost network level joins: a TPU pod over DCN, a node or an NVL72 rack over NICs.
"""

from __future__ import annotations

from typing import Any

from scaling_lib import collectives, roofline
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times
from scaling_lib.units import ceil_div


def critical_pod_tokens(peak: Any, chip_egress: Any, pp: Any = 1) -> Any:
    """Tokens per pod above which DP across pods is compute-bound: C / (W p). Equation: eq-crosspod-threshold.

    peak: FLOP/s of a chip. chip_egress: byte/s of one chip on the outer network; the chips of a pod cancel.
    pp: pipeline stages that span pods: each chip then holds 1/p of the layers and reduces as much less per token.
    """
    return peak / (chip_egress * pp)


def pod_chips(job: Job) -> int:
    """Chips of one pod: the subtree below the outermost level. Raises ValueError on a cluster of one level."""
    levels = job.cluster.levels
    if len(levels) < 2:
        raise ValueError(f"{job.cluster.name} has one network level, so no pods: use a cluster with an outer network")
    return levels[-2].size or 1


def pods(job: Job) -> Any:
    """Pods the job spans."""
    return ceil_div(job.chips, pod_chips(job))


def flops(job: Job) -> Ledger:
    """FLOPs of one layer on one chip, by pass."""
    return roofline.layer_flops(job)


def wire_bytes(job: Job) -> Ledger:
    """Bytes that one chip sends across pods for one layer in one step: its share of the gradients' all-reduce.

    Inside the pod the gradients are reduce-scattered first, so each chip carries 1/k of its slice outward,
    k the members of its data group inside the pod.
    """
    outer = _outer_hop(job)
    size = roofline.gradient_bytes(job) / outer.below
    return Ledger(
        "Bytes sent by one chip across pods for one layer",
        "B",
        (
            Part("forward/none", 0.0, "weights are in the pod"),
            Part(
                "backward/all_reduce gradients",
                collectives.sent_bytes("all_reduce", size, outer.members),
                "2 (V/k)(n-1)/n",
            ),
        ),
    )


def times(job: Job) -> Times:
    """Seconds of compute and of the outer network alone, of one layer."""
    return roofline.times_of(
        job, 0.0, collectives.hierarchical("all_reduce", roofline.gradient_bytes(job), (_outer_hop(job),))
    )


def is_compute_bound(job: Job) -> Any:
    """Whether the all-reduce across pods hides behind the backward compute."""
    return times(job).compute_bound


def critical_batch(job: Job) -> Any:
    """The knob: batch in tokens at which backward compute equals the all-reduce across pods. Zero within one pod."""
    now = times(job)
    return job.batch_tokens * now.backward_comms / now.backward_math


def _outer_hop(job: Job) -> Any:
    """The outermost level as the data group sees it."""
    pod_chips(job)
    return job.cluster.hops(job.plan.shard_group, job.plan.tp, job.torus_axes[0])[-1]
