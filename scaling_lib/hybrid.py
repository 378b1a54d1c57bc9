"""FSDP x TP: In[B_X, D_Y] Win[D_X, F_Y] Wout[F_Y, D_X], XY = N.

On one homogeneous fabric (a torus) X and Y are free and there is a best split. On GPUs the two groups run on
different networks: TP inside the NVLink domain, FSDP across nodes, and the split does not shrink what a node gathers.
"""

from __future__ import annotations

from typing import Any

from scaling_lib import fsdp, roofline, tp
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times
from scaling_lib.units import maximum

COMBINE = ("max", "sum")


def x_opt(batch: Any, d_ff: Any, chips: Any, egress_x: Any, egress_y: Any) -> Any:
    """FSDP degree at which both collectives take equally long: sqrt((B/F)(W_X/W_Y) N). Equation: eq-x-opt.

    egress_x, egress_y: byte/s of the data and the tensor axes (M_X W and M_Y W on one fabric).
    """
    return (batch / d_ff * (egress_x / egress_y) * chips) ** 0.5


def t_fsdp(d_model: Any, d_ff: Any, tp_degree: Any, egress_x: Any) -> Any:
    """Seconds of the forward weight gathers: 4 D F / (Y W_X). Equation: eq-hybrid-fsdp."""
    return 4 * d_model * d_ff / (tp_degree * egress_x)


def t_tp(batch: Any, d_model: Any, fsdp_degree: Any, egress_y: Any) -> Any:
    """Seconds of the forward activation collectives: 4 B D / (X W_Y). Equation: eq-hybrid-tp."""
    return 4 * batch * d_model / (fsdp_degree * egress_y)


def critical_tokens(peak: Any, egress_x: Any, egress_y: Any, d_ff: Any, combine: str = "max") -> Any:
    """Tokens per chip above which the best split on ONE FABRIC is compute-bound: C^2 / (W_X W_Y F).

    Equation: eq-hybrid-threshold.

    combine: "max" when the two collectives overlap each other; "sum" when they add, which costs four times as much.
    Not for a GPU cluster, where X and Y are not free: see `critical_batch`. Raises ValueError for another `combine`.
    """
    if combine not in COMBINE:
        raise ValueError(f"unknown combine {combine!r}: use one of {', '.join(COMBINE)}")
    return (4 if combine == "sum" else 1) * peak**2 / (egress_x * egress_y * d_ff)


def flops(job: Job) -> Ledger:
    """FLOPs of one layer on one chip, by pass."""
    return roofline.layer_flops(job)


def wire_bytes(job: Job, regather: bool = False) -> Ledger:
    """Bytes that one chip sends for one layer in one step: FSDP on a 1/Y slice, and TP on B/X tokens."""
    rows = []
    for name, ledger in (("FSDP", fsdp.wire_bytes(job)), ("TP", tp.wire_bytes(job, regather))):
        rows += [Part(f"{p.name} ({name})", p.value, p.formula) for p in ledger]
    return Ledger("Bytes sent by one chip for one layer, FSDP x TP", "B", tuple(rows))


def times(job: Job, combine: str = "max", regather: bool = False) -> Times:
    """Seconds of compute and communication of one layer on the links each group really crosses.

    combine: "max" when FSDP and TP traffic overlap each other, "sum" when they add. Raises ValueError for another.
    """
    if combine not in COMBINE:
        raise ValueError(f"unknown combine {combine!r}: use one of {', '.join(COMBINE)}")
    a, b = fsdp.times(job), tp.times(job, regather)
    if combine == "sum":
        return roofline.times_of(job, a.forward_comms + b.forward_comms, a.backward_comms + b.backward_comms)
    return roofline.times_of(
        job, maximum(a.forward_comms, b.forward_comms), maximum(a.backward_comms, b.backward_comms)
    )


def is_compute_bound(job: Job, combine: str = "max") -> Any:
    """Whether both collectives hide in both passes."""
    return times(job, combine).compute_bound


def critical_batch(job: Job) -> Any:
    """The knob on a cluster of unlike links: batch in tokens above which the FSDP traffic hides, at this plan.

    TP traffic grows with the batch as compute does, so no batch mends a TP degree above `tp.max_tp`.
    """
    return fsdp.critical_batch(job)
