"""The seconds of a training step, term by term, as pure arithmetic.

Every field of a Case is a number or an array. Arrays of layouts, or of published runs, broadcast through the same
lines, so one job, a fit over all runs and a search over a million layouts are computed by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaling_lib.collectives import links_passed
from scaling_lib.ep import domains_reached
from scaling_lib.units import log2, maximum, minimum, where


@dataclass(frozen=True)
class Constants:
    """What no data sheet says. Values, origin and date stand in data/predictor.toml under the same names."""

    generic_stack: float  # matmul slowdown of stacks that are not tuned to the chip
    attention_fraction: float  # fused attention, fraction of the bf16 peak for long sequences
    attention_hopper: float  # gain of a kernel written for the chip on Hopper and newer
    attention_old: float  # what is left of it with a kernel of the generation before
    attention_backward: float  # time of fused attention backward over forward
    attention_half_length: float  # tokens at which fused attention reaches half its rate
    tp_overlap: float  # share of tensor-parallel traffic left in sight by pipelined matmuls
    tp_backward_overlap: float  # share left in sight when the all-reduce runs beside the weight gradient
    gemm_wave: float  # multiply-adds a compute unit idles at the end of a matmul, per element of the inner dimension
    element_traffic: float  # element-wise bytes, actual over counted
    element_backward: float  # element-wise bytes backward over forward
    recompute_share: float  # cost of a recomputed forward pass, over a first one
    chip_spread: float  # slowdown by the slowest of many chips, per doubling of their number
    misaligned: float  # slowdown of unfused attention matmuls whose head width is no multiple of 8
    block_scales: float  # slowdown of matmuls whose 8-bit operands carry a scale for each block
    row_scales: float  # and for each row
    generic_broadcast: float  # seconds a member, where an untuned stack sends sharded weights back rank by rank
    score_forward: float  # bytes per attention score and head, unfused, forward
    score_backward: float
    score_traffic: float
    layer_floor: float  # seconds that launching one layer's forward kernels takes
    exchange: float  # seconds in sight that a chunk's send to the next stage costs each pass
    hop: float  # seconds a step of a collective
    hbm_fraction: float  # reachable share of a data-sheet bandwidth
    link_fraction: float
    nic_fraction: float
    overlap_leak: float  # share of hidden communication that costs time anyway
    optimizer_bytes: float  # bytes moved per parameter by the optimizer
    expert_half_tokens: float  # tokens an expert needs to reach half its matmul rate
    expert_link_exposed: float  # share of the experts' all-to-all in sight, inside the domain
    expert_nic_exposed: float  # and across domains
    expert_launch: float  # seconds that launching routing, sorting and experts adds to one layer's forward kernels
    graph_launch: float  # launches left in sight when parts of each layer are captured as graphs
    permute_bytes: float  # bytes per element of a routed copy, for sorting tokens by expert and back
    window_forward: float = 1 / 3  # share of the exposed window under forward passes


@dataclass(frozen=True)
class Case:
    """One step as the terms see it. Lengths in elements or tokens, rates in FLOP/s and byte/s of one chip.

    weights: matmul weights of one layer without experts.
    """

    n_layers: Any
    d_model: Any
    d_ff: Any
    gated: Any  # 1 or 0
    n_heads: Any
    head_dim: Any
    query_width: Any  # H h
    key_width: Any  # K h
    attention_width: Any  # 2 H h when plain
    vocab: Any
    seq_len: Any
    weights: Any
    moe_share: Any  # share of the layers that have experts; the fields below are per such layer
    n_experts: Any
    experts_per_token: Any
    expert_params: Any
    expert_width: Any
    expert_tp: Any  # ranks that cut each expert as tensor parallelism cuts a layer; 1 when ranks hold whole experts
    n_groups: Any  # of experts, and of how many of them a token's may be
    groups_per_token: Any
    dispatch_bytes: Any  # of an element on its way to the experts
    chips: Any
    dp: Any
    tp: Any
    pp: Any
    cp: Any
    ep: Any
    chunks: Any
    micro_batch: Any
    microbatches: Any
    shard_group: Any
    gathers: Any  # 1 when weights are sharded and gathered for use (ZeRO-3)
    reshard: Any  # 1 when they are gathered again for the backward pass, and for each microbatch
    shards_optimizer: Any  # 1 for ZeRO-1 and above
    returns_shards: Any  # 1 for ZeRO-1: updated weights go back to all ranks after the step
    sequence_parallel: Any
    full_recompute: Any
    selective_recompute: Any
    half_recompute: Any
    unfused: Any
    old_kernel: Any
    hopper: Any
    generic: Any
    tp_overlap: Any
    tp_backward_overlap: Any
    dp_overlap: Any
    ep_overlap: Any  # 1 when the experts' all-to-all runs under the matmuls of another microbatch
    layer_graphs: Any  # 1 when parts of each layer are launched as one graph
    step_graph: Any  # 1 when the whole step is
    grad_bytes: Any
    narrow: Any  # 1 when layer matmuls take 8-bit or narrower operands
    units: Any  # compute units (SMs) that share a matmul
    inner_widths: Any  # inner dimensions of a layer's forward and input-gradient matmuls, not divided by TP
    inner_split: Any  # and divided by TP
    block_scales: Any  # 1 when 8-bit operands carry a scale for each block
    row_scales: Any  # or for each row
    layer_rate: Any  # matmul FLOP/s of the layers, tuned stack
    head_rate: Any  # matmul FLOP/s in bf16, tuned stack
    peak: Any  # dense bf16 peak
    hbm: Any
    link: Any
    link_axes: Any  # axes of the innermost level where it is a torus, 0 where it is a switch
    domain: Any
    nic: Any


def _all_reduce(size: Any, case: Case, k: Constants) -> Any:
    """Seconds of an all-reduce over the tensor group: inside the domain, then between domains."""
    inner = minimum(case.tp, case.domain)
    outer = maximum(1, case.tp / case.domain)
    inside = 2 * (inner - 1) / inner * size / (k.link_fraction * case.link)
    between = 2 * (outer - 1) / outer * (size / inner) / (k.nic_fraction * case.nic)
    return inside + between + where(case.tp > 1, 2 * outer * k.hop, 0.0)


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of one layer for one microbatch on one chip, forward and backward together where not said."""

    gemm: Any
    attention: Any
    elementwise: Any
    tp: Any
    cp: Any
    ep: Any
    floor: Any
    recompute: Any
    forward: Any
    total: Any


def _layer_rate(case: Case, k: Constants) -> Any:
    """Matmul rate of the layers, FLOP/s, on the stack and with the scaling recipe of the case."""
    scaling = 1 + (k.block_scales - 1) * case.block_scales + (k.row_scales - 1) * case.row_scales
    return case.layer_rate / ((1 + (k.generic_stack - 1) * case.generic) * scaling)


def _matmuls(case: Case, k: Constants, tokens: Any) -> Any:
    """Forward matmuls of one layer without experts: arithmetic, and the traffic of operands that adds to it."""
    rate = _layer_rate(case, k)
    inner = case.inner_widths + case.inner_split / case.tp + 4 * tokens  # of forward, input and weight gradient
    waves = 2 * k.gemm_wave * case.units * inner / 3 / rate
    return 2 * tokens * case.weights / case.tp / rate + waves


def _experts(case: Case, k: Constants, tokens: Any) -> tuple[Any, Any]:
    """Forward seconds of routed experts and of their all-to-all, for one layer that has them."""
    own = tokens / case.tp  # each tensor rank routes its own share
    cut = case.expert_tp
    rate = _layer_rate(case, k)
    idle = k.expert_half_tokens * case.n_experts / case.ep  # of each expert on the chip, in tokens
    gemm = 2 * case.expert_params / rate * (own * case.experts_per_token + idle / cut)
    size = own * case.d_model * (case.dispatch_bytes + 2)  # of one copy of each token, there, and back in 16 bits
    near = minimum(case.ep, case.domain)
    gathered = size * case.experts_per_token * (cut - 1)  # by ranks that share an expert: the copies of all of them
    # each copy passes the domain's own network once, those of tokens from elsewhere where they arrive
    inside = size * case.experts_per_token * links_passed(near, case.link_axes) + gathered
    inside = inside / (k.link_fraction * case.link)
    # a domain gets one copy of a token, whichever of its experts are meant
    domains = maximum(1.0, case.ep / near)
    reached = domains_reached(domains, case.experts_per_token, case.n_groups, case.groups_per_token)
    across = size * reached / (k.nic_fraction * case.nic)
    seen = k.expert_link_exposed * inside + k.expert_nic_exposed * across
    return gemm, seen * where(case.ep_overlap, k.overlap_leak, 1.0)


def layer_times(case: Case, k: Constants) -> LayerTimes:
    """Seconds of one layer and microbatch: matmuls, attention, element-wise work, tensor and context traffic."""
    hbm = k.hbm_fraction * case.hbm
    tokens = case.micro_batch * case.seq_len / case.cp
    gemm = _matmuls(case, k, tokens)
    routed: Any = 0.0
    if not (isinstance(case.moe_share, (int, float)) and case.moe_share == 0):
        experts, routed = _experts(case, k, tokens)
        gemm = gemm + case.moe_share * experts
        routed = case.moe_share * routed
    # attention: the causal half when fused, all of it (and its scores through memory) when not
    flops = 2 * tokens * case.seq_len * case.attention_width / case.tp
    kernel = 1 + (k.attention_hopper - 1) * case.hopper
    kernel = kernel * (1 + (k.attention_old - 1) * case.old_kernel)
    fused = 0.5 * flops / (case.peak * k.attention_fraction * kernel) * (1 + k.attention_half_length / case.seq_len)
    scores = k.score_traffic * case.n_heads / case.tp * tokens * case.seq_len / hbm
    plain = (
        where(case.head_dim % 8 > 0, k.misaligned, 1.0)
        * flops
        / (case.head_rate / (1 + (k.generic_stack - 1) * case.generic))
    )
    attention_f = where(case.unfused, plain + k.score_forward * scores, fused)
    attention_b = where(case.unfused, 2 * plain + k.score_backward * scores, k.attention_backward * fused)
    # element-wise
    spread = where(case.sequence_parallel, case.tp, 1)
    ff = case.d_ff / case.tp
    width = (
        20 * case.d_model / spread + (4 + 2 * case.gated) * ff + 4 * (case.query_width + 2 * case.key_width) / case.tp
    )
    casts = case.narrow * 4 * (2 * case.d_model + case.query_width / case.tp + ff)
    routed_copies = case.moe_share * case.experts_per_token / case.tp
    width = width + routed_copies * (k.permute_bytes * case.d_model + (4 + 2 * case.gated) * case.expert_width)
    element_f = tokens * (k.element_traffic * width + casts) / hbm
    element_b = k.element_backward * element_f
    # tensor parallelism: two all-reduces (or gather and scatter pairs) a pass
    reduce = 2 * _all_reduce(2 * tokens * case.d_model, case, k) * where(case.tp_overlap, k.tp_overlap, 1.0)
    tp_f, tp_b = reduce, reduce * where(case.tp_backward_overlap, k.tp_backward_overlap, 1.0)
    # context parallelism: keys and values go round a ring, under attention as long as it lasts
    ring = where(case.tp * case.cp <= case.domain, k.link_fraction * case.link, k.nic_fraction * case.nic)
    turn = (case.cp - 1) * (4 * tokens * case.key_width / case.tp / ring + k.hop)
    cp_f, cp_b = maximum(0.0, turn - attention_f), maximum(0.0, 2 * turn - attention_b)
    return _layer_total(
        case, k, gemm, (attention_f, attention_b), (element_f, element_b), (tp_f, tp_b), (cp_f, cp_b), routed
    )


def _layer_total(
    case: Case, k: Constants, gemm: Any, attention: Any, element: Any, tp: Any, cp: Any, routed: Any
) -> LayerTimes:
    """Sum of a layer's parts, not below the time that launching its kernels takes, and what is computed twice."""
    work_f = gemm + attention[0] + element[0] + tp[0] + cp[0] + routed
    work_b = 2 * gemm + attention[1] + element[1] + tp[1] + cp[1] + routed
    launches = (1 - case.step_graph) * (1 - (1 - k.graph_launch) * case.layer_graphs)
    floor = (k.layer_floor + k.expert_launch * case.moe_share) * launches
    forward = (work_f * work_f + floor * floor) ** 0.5
    backward = (work_b * work_b + 4 * floor * floor) ** 0.5
    again = (
        where(case.unfused, 1.0, k.recompute_share) * case.full_recompute * forward
        + case.selective_recompute * where(case.unfused, attention[0], 0.5 * element[0])
        + case.half_recompute * (0.5 * gemm + element[0])
    )
    return LayerTimes(
        3 * gemm,
        attention[0] + attention[1],
        element[0] + element[1],
        tp[0] + tp[1],
        cp[0] + cp[1],
        2 * routed,
        forward + backward - work_f - work_b,
        again,
        forward,
        forward + backward + again,
    )


def _group_bandwidth(case: Case, k: Constants, inner: Any, size: Any) -> Any:
    """Bandwidth of a gather over `size` ranks, `inner` ranks apart: all members in a domain send at once."""
    link, nic = k.link_fraction * case.link, k.nic_fraction * case.nic
    members = minimum(maximum(1, case.domain / inner), size)
    return where(inner * size <= case.domain, link, minimum(link, members * nic))


def step_parts(case: Case, k: Constants, layer: LayerTimes | None = None) -> dict[str, Any]:
    """Seconds of one step by part, on the chip that decides it; the values sum to the step time.

    layer: its times where they are known already; None computes them.
    """
    layer = layer_times(case, k) if layer is None else layer
    tokens = case.micro_batch * case.seq_len / case.cp
    hbm = k.hbm_fraction * case.hbm
    # weights gathered for use and given back: beside the layer's own work
    # weights of one layer
    owned = case.weights / case.tp + case.moe_share * case.n_experts * case.expert_params / case.ep / case.expert_tp
    group = case.shard_group
    bandwidth = _group_bandwidth(case, k, case.tp * case.cp, maximum(1, group / case.cp))
    left = (group - 1) / group
    fetch = (2 * owned / bandwidth * left + k.hop) * (1 + case.reshard) + case.grad_bytes * owned / bandwidth * left
    fetch = fetch * case.gathers * (group > 1)
    fsdp = maximum(0.0, fetch - layer.total) + k.overlap_leak * minimum(fetch, layer.total)
    per_layer = layer.total + fsdp
    # vocabulary: logits and their gradient on the last stage
    head = case.head_rate / (1 + (k.generic_stack - 1) * case.generic)
    loss = 6 * tokens * case.d_model * case.vocab / case.tp / head + 12 * tokens * case.vocab / case.tp / hbm
    # pipeline
    p, v, m = case.pp, case.chunks, case.microbatches
    deepest = v * -(-case.n_layers // (p * v))
    uneven = where(case.n_layers % (p * v) > 0, 1, 0)
    slowest = maximum(deepest * per_layer, (deepest - uneven) * per_layer + loss)
    stage = case.n_layers / p * per_layer
    wire = where(case.chips <= case.domain, k.link_fraction * case.link, k.nic_fraction * case.nic)
    p2p = (p - 1) * 2 * (2 * tokens * case.d_model / case.tp / wire + k.hop)
    fill = (p - 1) * stage / v + p2p
    busy = m * case.n_layers / p
    piped = where(p > 1, 1.0, 0.0)
    exchange = 2 * m * v * k.exchange * piped
    # an untuned pipeline waits for each transfer, so the launch of the next microbatch's kernels is not hidden
    restart = (3 + case.full_recompute) * k.layer_floor * case.generic * piped
    # gradients reduced and weights gathered once a step, partly under the first and last microbatches
    params = case.n_layers * owned / p + case.vocab * case.d_model / case.tp
    replicas = maximum(1, case.dp * case.cp / 1)
    wide = _group_bandwidth(case, k, case.tp, replicas)
    share = (replicas - 1) / replicas
    reduce = case.grad_bytes * params / wide * share * (1 - case.gathers)
    gather = 2 * params / wide * share * (1 - case.gathers)
    window = (1 / v + minimum(p, m) * (v - 1) / v) * slowest
    back, ahead = (1 - k.window_forward) * window, k.window_forward * window
    hidden = maximum(0.0, reduce - back) + k.overlap_leak * minimum(reduce, back)
    hidden = hidden + maximum(0.0, gather - ahead) + k.overlap_leak * minimum(gather, ahead)
    dp = where(case.dp_overlap, hidden, reduce + gather)
    dp = dp + k.generic_broadcast * case.generic * case.returns_shards * (1 - case.gathers) * (group - 1)
    optimizer = k.optimizer_bytes * params / where(case.shards_optimizer, maximum(1, group), 1) / hbm
    parts = {
        "compute/matmuls": busy * layer.gemm,
        "compute/attention": busy * layer.attention,
        "compute/element-wise": busy * layer.elementwise,
        "compute/recompute": busy * layer.recompute,
        "compute/loss": m * loss / p,
        "communication/tensor parallel": busy * layer.tp,
        "communication/context parallel": busy * layer.cp,
        "communication/expert parallel": busy * layer.ep,
        "communication/fsdp": busy * fsdp,
        "communication/data parallel": dp,
        "pipeline/fill and drain": fill,
        "pipeline/exchange": exchange,
        "pipeline/uneven stages": m * (slowest - stage - loss / p),
        "other/launch overhead": busy * (layer.floor + restart),
        "other/optimizer": optimizer,
    }
    late = k.chip_spread * log2(case.chips)
    parts["other/slowest chip"] = late * sum(parts.values())
    return parts
