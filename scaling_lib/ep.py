"""Expert parallelism: experts E_X live on different chips; each token travels to its experts and back.

In[B_X, D] -> all-to-all -> In[E_X, c, D] -> experts -> all-to-all -> Out[B_X, D]; the same two ways backward.
"""

from __future__ import annotations

import math
from typing import Any

from scaling_lib import collectives
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.model import MoE, mlp_params
from scaling_lib.roofline import Times
from scaling_lib.units import maximum


def expert_capacity(tokens: float, experts_per_token: int, n_experts: int, factor: float = 1.0) -> int:
    """Places that each expert keeps for the tokens of one chip: T k f / E, rounded up. Equation: eq-ep-capacity.

    factor: head-room over an even spread; 1 when routing is perfectly balanced.
    """
    return math.ceil(tokens * experts_per_token * factor / n_experts)


def exchange_bytes(tokens: Any, experts_per_token: Any, d_model: Any, ep: Any, element_bytes: Any = 2) -> Any:
    """Bytes one chip sends in one all-to-all of balanced tokens: T k D e (n-1)/n. Equation: eq-ep-bytes.

    A token is sent once for each of its k experts.
    """
    return tokens * experts_per_token * d_model * element_bytes * (ep - 1) / ep


def critical_d_ff_expert(peak: Any, egress: Any, mlp_matrices: Any = 3, element_bytes: Any = 2) -> Any:
    """Expert width above which the exchanges hide behind the experts, many chips: e C / (n_matrices W).

    Equation: eq-ep-threshold. Tokens, k and D cancel: no batch mends experts that are too thin.
    """
    return element_bytes * peak / (mlp_matrices * egress)


def flops(job: Job) -> Ledger:
    """FLOPs of the routed experts of one layer on one chip: 2 T k (3 D F_e) forward, twice that backward."""
    forward = 2 * job.tokens_per_rank * _moe(job).experts_per_token * _expert(job)
    return Ledger(
        "FLOPs of the experts of one layer on one chip",
        "FLOP",
        (
            Part("forward/experts", forward, "2 T k 3 D F_e"),
            Part("backward/experts", 2 * forward, "4 T k 3 D F_e"),
        ),
    )


def wire_bytes(job: Job, factor: float = 1.0) -> Ledger:
    """Bytes that one chip sends for the experts of one layer in one step, TP 1.

    factor: capacity factor; buffers are sent full, padding included. Raises ValueError for a model without experts.
    """
    moe, n = _moe(job), job.plan.ep
    places = moe.n_experts * expert_capacity(job.tokens_per_rank, moe.experts_per_token, moe.n_experts, factor)
    each = exchange_bytes(places, 1, job.model.d_model, n, job.element_bytes)
    experts = moe.n_experts / n * _expert(job) * job.recipe.grad_wire
    router = moe.n_experts * job.model.d_model * job.recipe.grad_wire
    group, replicas = job.plan.shard_group, job.plan.shard_group / n
    return Ledger(
        "Bytes sent by one chip for the experts of one layer, EP",
        "B",
        (
            Part("forward/all_to_all tokens", each, "E c D e (n-1)/n"),
            Part("forward/all_to_all expert outputs", each, "E c D e (n-1)/n"),
            Part("backward/all_to_all output gradients", each, "E c D e (n-1)/n"),
            Part("backward/all_to_all token gradients", each, "E c D e (n-1)/n"),
            Part(
                "backward/all_reduce expert gradients",
                collectives.sent_bytes("all_reduce", experts, replicas),
                "2 V (r-1)/r, r = X/n",
            ),
            Part(
                "backward/all_reduce router gradients",
                collectives.sent_bytes("all_reduce", router, group),
                "2 V (X-1)/X",
            ),
        ),
    )


def times(job: Job) -> Times:
    """Seconds of the experts and of their exchanges, balanced, on the levels the group crosses; gradients left out."""
    work = flops(job)
    hops = job.cluster.hops(job.plan.ep, job.plan.tp, job.torus_axes[0])
    size = job.tokens_per_rank * _moe(job).experts_per_token * job.model.d_model * job.element_bytes
    seconds = 2 * exchange_seconds(size, job.plan.ep, hops, job.torus_axes[0])
    return Times(work["forward"] / job.peak, seconds, work["backward"] / job.peak, seconds)


def exchange_seconds(size: Any, n: Any, hops: Any, axes: int | None = None) -> Any:
    """Seconds of an all-to-all over levels: each chip sends its peers beyond a level with its own link there.

    A switch delivers directly; on a torus the chips between pass the bytes on, a quarter of each axis' ring. size:
    bytes of one chip's array, padding included. axes: torus axes used, all when None, as in the egress of the hops.
    The slowest level decides; latency left out. Source: JAX Scaling Book, chapter 3.
    """
    slowest: Any = 0.0
    for hop in hops:
        passed = collectives.links_passed(hop.members, hop.level.rings(axes))
        sent = size * hop.below * hop.members * passed / n
        slowest = maximum(slowest, sent / (hop.egress / hop.below))
    return slowest


def domains_reached(domains: Any, experts_per_token: Any, n_groups: Any = 1, groups_per_token: Any = 1) -> Any:
    """Domains beside its own that a token's experts stand in, on average, when any expert is as likely as another.

    N - 1 times 1 - (1 - 1/N)^k for k experts over N domains. A router that takes them from M of G groups, which lie
    side by side in the domains, reaches a group with M/G (1 - (1 - 1/M)^k). Experts are drawn as if with replacement,
    and groups of one domain as if each on its own: a few percent too few where a domain holds several.
    Source: expected occupancy, Feller, volume 1, chapter IV; the limit: DeepSeek-V3, arXiv:2412.19437, section 2.1.2.
    """
    parts = maximum(1.0, domains / n_groups)  # domains that share a group
    groups = maximum(1.0, n_groups / domains)  # or groups that share a domain
    met = groups_per_token / n_groups * (1 - (1 - 1 / (groups_per_token * parts)) ** experts_per_token)
    return (domains - 1) * (1 - (1 - met) ** groups)


def is_compute_bound(job: Job) -> Any:
    """Whether the exchanges would hide behind the experts if they overlapped perfectly."""
    return times(job).compute_bound


def min_d_ff_expert(job: Job) -> Any:
    """The knob: expert width at which the forward exchanges take as long as the experts, exact for this group."""
    now = times(job)
    return _moe(job).d_ff_expert * now.forward_comms / now.forward_math


def _moe(job: Job) -> MoE:
    if job.model.moe is None:
        raise ValueError(f"{job.model.name} has no experts, so nothing to spread: use EP 1")
    return job.model.moe


def _expert(job: Job) -> int:
    """Weights of one expert."""
    return mlp_params(job.model, _moe(job).d_ff_expert)
