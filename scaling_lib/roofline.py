"""Rooflines of a cluster: when is a layer compute-bound, and what does that cap?

The five questions of every strategy: count FLOPs, count bytes, divide by rates, compare, solve for the knob.
Nouns of the answers live here: the layer, and the seconds of its two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaling_lib import collectives
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.model import TransformerConfig, attention_params
from scaling_lib.units import maximum, minimum


def critical_intensity(peak: Any, egress: Any) -> Any:
    """FLOPs a chip can do while it sends one byte: alpha = C / W, FLOP/byte.

    Equation: eq-alpha. peak: FLOP/s dense. egress: byte/s of one participant. Source: JAX Scaling Book, chapter 5.
    """
    return peak / egress


def mfu_cap(t_math: Any, t_comms: Any) -> Any:
    """Largest fraction of peak when communication hides behind compute: min(1, T_math / T_comms).

    Equation: eq-mfu-cap. Seconds in, a fraction out.
    """
    return minimum(1.0, t_math / t_comms)


def strong_scaling_speedup(t_math: Any, t_comms: Any, factor: Any) -> Any:
    """Speed-up of `factor` times more chips at a fixed batch, when compute divides and communication does not.

    Equation: eq-strong-scaling. Seconds at the starting size; T = max(T_math, T_comms) before and after.
    """
    return maximum(t_math, t_comms) / maximum(t_math / factor, t_comms)


@dataclass(frozen=True)
class Layer:
    """A layer as the rooflines see it.

    weights: elements that a token is multiplied with (P). gathers: pairs of an activation gather and a reduce-scatter
    under TP in the forward pass (1 an MLP, 2 a full layer). d_model: D. Of a mixture of experts also, each a mean over
    the layers, routed: elements of the experts that a token visits, a part of P; experts: elements of all of them.
    """

    form: str
    weights: float
    gathers: int
    d_model: int
    routed: float = 0
    experts: float = 0

    @property
    def effective_d_ff(self) -> float:
        """Width F of the two-matmul layer with the same ratio of FLOPs to TP traffic: P / (2 D gathers)."""
        return self.weights / (2 * self.d_model * self.gathers)


def layer(model: TransformerConfig, form: str) -> Layer:
    """The layer of a model in one of three forms: "two-matmul" 2DF, "gated" 3DF, "full" MLP and attention.

    Of a mixture of experts the mean over its layers: F of the dense ones, k F_e and the shared experts of the others.
    Raises ValueError for another form.
    """
    matrices = {"two-matmul": 2, "gated": 3, "full": model.mlp_matrices}
    if form not in matrices:
        raise ValueError(f"unknown layer form {form!r}: use two-matmul, gated or full")
    each, gathers = matrices[form] * model.d_model, 2 if form == "full" else 1
    around = attention_params(model) if form == "full" else 0
    moe = model.moe
    if moe is None:
        return Layer(form, each * model.d_ff + around, gathers, model.d_model)
    share = model.n_moe_layers / model.n_layers
    common = (1 - share) * model.d_ff + share * moe.n_shared_experts * moe.d_ff_expert
    routed, experts = (share * n * moe.d_ff_expert * each for n in (moe.experts_per_token, moe.n_experts))
    return Layer(form, each * common + around + routed, gathers, model.d_model, routed, experts)


def layer_of(job: Job) -> Layer:
    """The layer of a job in the form it names."""
    return layer(job.model, job.layer)


def forward_flops(weights: Any, batch: Any, dp: Any, tp: Any) -> Any:
    """Forward matmul FLOPs of one layer on one chip in one step: 2 P B / (X Y). Equation: eq-layer-flops.

    weights: elements that are multiplied (P). batch: tokens. dp, tp: degrees.
    """
    return 2 * weights * batch / (dp * tp)


def layer_flops(job: Job) -> Ledger:
    """Matmul FLOPs of one layer on one chip in one step: 2 P B/(X Y) forward, twice that backward.

    Attention scores are left out here, so compute is understated at long sequences.
    """
    forward = forward_flops(layer_of(job).weights, job.batch_tokens, job.plan.shard_group, job.plan.tp)
    return Ledger(
        "FLOPs of one layer on one chip",
        "FLOP",
        (
            Part("forward/matmuls", forward, "2 P B/(X Y)"),
            Part("backward/input gradient", forward, "2 P B/(X Y)"),
            Part("backward/weight gradient", forward, "2 P B/(X Y)"),
        ),
    )


@dataclass(frozen=True)
class Times:
    """Seconds of one layer on one chip in one step, each pass apart.

    Communication is taken to overlap with the compute of its own pass; latency is left out.
    """

    forward_math: Any
    forward_comms: Any
    backward_math: Any
    backward_comms: Any

    @property
    def math(self) -> Any:
        """Seconds of compute, both passes."""
        return self.forward_math + self.backward_math

    @property
    def comms(self) -> Any:
        """Seconds of communication, both passes."""
        return self.forward_comms + self.backward_comms

    @property
    def bound(self) -> Any:
        """Least seconds with perfect overlap inside each pass."""
        return maximum(self.forward_math, self.forward_comms) + maximum(self.backward_math, self.backward_comms)

    @property
    def mfu_cap(self) -> Any:
        """Largest fraction of peak: compute over the bound; min(1, T_math/T_comms) when both passes have one ratio."""
        return self.math / self.bound

    @property
    def compute_bound(self) -> Any:
        """Whether communication hides in both passes."""
        return (self.forward_math >= self.forward_comms) & (self.backward_math >= self.backward_comms)


def times_of(job: Job, forward_comms: Any, backward_comms: Any) -> Times:
    """Times of a job's layer, given the seconds its communication takes in each pass."""
    flops = layer_flops(job)
    return Times(flops["forward"] / job.peak, forward_comms, flops["backward"] / job.peak, backward_comms)


def arrays(job: Job, element_bytes: Any) -> list[tuple[Any, Any, Any]]:
    """What the data group moves of one layer: bytes on a chip, ranks that share them, and how far apart those are.

    Weights that all ranks use, P/Y elements; and experts, E/(Y ep) elements that every ep-th rank of the group has.
    """
    form, plan = layer_of(job), job.plan
    common = (form.weights - form.routed) * element_bytes / plan.tp
    if job.model.moe is None:
        return [(common, plan.shard_group, plan.tp)]
    experts = form.experts * element_bytes / (plan.tp * plan.ep)
    return [(common, plan.shard_group, plan.tp), (experts, plan.shard_group // plan.ep, plan.tp * plan.ep)]


def data_seconds(job: Job, op: str, element_bytes: Any) -> Any:
    """Seconds of a collective of the data group over one layer, on the levels its members cross, latency left out."""
    return sum(
        collectives.hierarchical(op, size, job.cluster.hops(n, stride, job.torus_axes[0]))
        for size, n, stride in arrays(job, element_bytes)
    )


def data_sent(job: Job, op: str, element_bytes: Any) -> Any:
    """Bytes that one chip sends in a collective of the data group over one layer."""
    return sum(collectives.sent_bytes(op, size, n) for size, n, _ in arrays(job, element_bytes))


def gradient_bytes(job: Job) -> Any:
    """Bytes of one layer's gradients in one TP slice, as sent on the wire; of all experts where there are some."""
    form = layer_of(job)
    return (form.weights - form.routed + form.experts) * job.recipe.grad_wire / job.plan.tp
