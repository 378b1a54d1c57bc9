"""Questions of the chapter on data parallelism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scaling_lib import Job, ParallelPlan, budget, cluster, dp, model, recipe
from scaling_lib.claims import claim
from scaling_lib.questions import Option, Point, Question, Trap
from scaling_lib.roofline import Times

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "mi300x-8", "mi355x-8", "h800-ib")
TORUS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7")
DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b", "gpt-3-175b")
BOTH = "both directions of a link"
WHY_BOTH = (
    "the data sheet's bandwidth adds what is sent and what is received; a collective is limited by what one chip sends."
)


def _inside(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, egress = c.chip.flops("bf16"), c.levels[0].egress
    return {
        "peak": peak,
        "egress": egress,
        "nic": c.levels[1].egress,
        "tokens": dp.critical_tokens(peak, egress),
        "both": dp.critical_tokens(peak, 2 * egress),
        "sparse": dp.critical_tokens(2 * peak, egress),
        "one_nic": dp.critical_tokens(peak, c.levels[1].egress),
    }


def _across(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, node = c.chip.flops("bf16"), c.egress(p.chips)
    return {
        "peak": peak,
        "nic": c.levels[1].egress,
        "node": node,
        "size": c.domain,
        "tokens": dp.critical_tokens(peak, node),
        "one_nic": dp.critical_tokens(peak, c.levels[1].egress),
        "inside": dp.critical_tokens(peak, c.levels[0].egress),
        "both": dp.critical_tokens(peak, 2 * node),
        "batch": dp.critical_tokens(peak, node) * p.chips,
        "batch_nic": dp.critical_tokens(peak, c.levels[1].egress) * p.chips,
        "batch_inside": dp.critical_tokens(peak, c.levels[0].egress) * p.chips,
        "batch_nodes": dp.critical_tokens(peak, node) * p.chips / c.domain,
    }


def _torus(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, axis = c.chip.flops("bf16"), c.levels[0].egress
    axes = len(c.levels[0].shape)
    return {
        "peak": peak,
        "axis": axis,
        "axes": axes,
        "tokens": dp.critical_tokens(peak, axis, axes),
        "one_axis": dp.critical_tokens(peak, axis),
        "one_link": dp.critical_tokens(peak, axis / 2, axes),
        "open": dp.critical_tokens(peak, c.levels[1].egress),
    }


def _layer(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    peak, egress = c.chip.flops("bf16"), c.egress(p.chips)
    comms = dp.t_comms(m.d_model, m.d_ff, egress)
    forward = dp.forward_flops(p.batch, m.d_model, m.d_ff, p.chips)
    backward = dp.backward_flops(p.batch, m.d_model, m.d_ff, p.chips)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "peak": peak,
        "egress": egress,
        "bytes": 8 * m.d_model * m.d_ff,
        "forward": forward,
        "backward": backward,
        "no_split": backward * p.chips,
        "all_gather_only": comms / 2,
        "fp32": 2 * comms,
        "three_matrices": 1.5 * comms,
        "comms": comms,
        "one_nic": dp.t_comms(m.d_model, m.d_ff, c.levels[1].egress),
        "math": dp.t_math(p.batch, m.d_model, m.d_ff, p.chips, peak),
    }


def _cap(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak = c.chip.flops("bf16")
    have, need = p.batch / p.chips, dp.critical_tokens(peak, c.egress(p.chips))

    def cap(threshold: float) -> float:
        """Forward sends nothing; backward has twice its compute. Both in units of forward time for a token."""
        return float(Times(have, 0.0, 2 * have, 2 * threshold).mfu_cap)

    return {
        "peak": peak,
        "node": c.egress(p.chips),
        "have": have,
        "need": need,
        "ratio": need / have,
        "cap": cap(need),
        "both_passes": have / need,
        "inside": cap(dp.critical_tokens(peak, c.levels[0].egress)),
        "one_nic": cap(dp.critical_tokens(peak, c.levels[1].egress)),
        "both": cap(need / 2),
    }


def _max_params(p: Any) -> dict[str, Any]:
    hbm = cluster(p.cluster).chip.hbm
    full = recipe(p.recipe)
    return {
        "hbm": hbm,
        "title": full.title,
        "each": full.total,
        "params": dp.max_params(hbm, full.total),
        "weights_only": dp.max_params(hbm, full.weights),
        "no_master": dp.max_params(hbm, recipe("no-master-no-grads").total),
        "no_moments": dp.max_params(hbm, full.weights + full.grads),
    }


def _max_chips(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak = c.chip.flops("bf16")
    need = dp.critical_tokens(peak, c.egress(10**5))
    return {
        "need": need,
        "node": c.egress(10**5),
        "chips": p.batch / need,
        "nodes": p.batch / need / c.domain,
        "inside": p.batch / dp.critical_tokens(peak, c.levels[0].egress),
        "one_nic": p.batch / dp.critical_tokens(peak, c.levels[1].egress),
    }


def _small(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    job = Job(m, c, ParallelPlan(dp=p.chips, zero=0), p.chips, p.chips * 4096, 4096)
    exact = dp.critical_batch(job) / p.chips
    limit = dp.critical_tokens(job.peak, c.levels[0].egress)
    return {
        "peak": job.peak,
        "egress": c.levels[0].egress,
        "share": (p.chips - 1) / p.chips,
        "tokens": exact,
        "limit": limit,
        "both": exact / 2,
        "flipped": limit * p.chips / (p.chips - 1),
    }


def _wire(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    plain = Job(model(p.model), c, ParallelPlan(dp=p.chips, zero=0), p.chips, p.chips * 4096, 4096)
    fp32 = replace(plain, recipe=recipe("megatron"))
    return {
        "bf16": dp.critical_batch(plain) / p.chips,
        "tokens": dp.critical_batch(fp32) / p.chips,
        "wire": fp32.recipe.grad_wire,
        "quarter": dp.critical_batch(plain) / p.chips / 2,
        "state": dp.critical_batch(plain) / p.chips * recipe("megatron").total / recipe("bf16").total,
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _audit_max(name: str, chip_cluster: str) -> Any:
    def derive(p: Any) -> dict[str, Any]:
        hbm = cluster(chip_cluster).chip.hbm
        return {
            "said": float(claim(name).said) * 1e9,
            "hbm": hbm,
            "ours": dp.max_params(hbm, recipe("bf16").total),
            "no_master": dp.max_params(hbm, recipe("no-master").total),
            "weights_only": dp.max_params(hbm, recipe("bf16").weights),
        }

    return derive


def _accumulate(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    need = dp.critical_tokens(c.chip.flops("bf16"), c.egress(p.chips))
    return {
        "need": need,
        "rounds": need / p.micro,
        "inside": dp.critical_tokens(c.chip.flops("bf16"), c.levels[0].egress) / p.micro,
        "total": need * p.chips / p.micro,
        "one_nic": dp.critical_tokens(c.chip.flops("bf16"), c.levels[1].egress) / p.micro,
    }


QUESTIONS = (
    Question(
        "dp.critical_tokens",
        "numeric",
        "Pure data parallelism inside one node of {cluster:cluster}. How many tokens per GPU does a step need, at least, so "
        "that the bf16 gradient all-reduce hides behind the backward pass? (Many-chip limit; answer in tokens per GPU.)",
        (
            "Both times of the backward pass carry the size of the layer. What is left when you set them equal?",
            "B/X = C/W, with W what one GPU sends.",
            "C = {peak:FLOP/s}, W = {egress:B/s} of egress.",
        ),
        canonical={"cluster": "dgx-h100"},
        draw={"cluster": NODES},
        derive=_inside,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap(BOTH, "both", WHY_BOTH),
            Trap(
                "the sparse peak", "sparse", "data sheets print a peak that skips zeros, twice the dense {peak:FLOP/s}."
            ),
            Trap("one network card", "one_nic", "inside a node the traffic takes the {egress:B/s} domain, not a card."),
        ),
        steps={
            "flops": "Backward, one layer, one GPU: 8BDF/X FLOPs.",
            "bytes": "An all-reduce of 4DF bytes of gradients costs twice its bytes: 8DF.",
            "rates": "T_math = 8BDF/(XC), T_comms = 8DF/W with C = {peak:FLOP/s} and W = {egress:B/s}.",
            "compare": "D and F cancel: compute-bound when B/X > C/W.",
            "knob": "B/X = {peak:FLOP/s} / {egress:B/s}.",
        },
        follow_ups=("What changes with fp32 gradients on the wire?", "And when the group spans two nodes?"),
        difficulty=1,
        importance=5,
        minutes=2,
        tags=("threshold", "gpu", "whiteboard"),
        book="dp.critical_tokens(h100_peak, nvlink_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "dp.critical_tokens_nodes",
        "numeric",
        "{chips} GPUs of {cluster:cluster}, pure data parallelism over all of them. How many tokens per GPU hide the "
        "gradient all-reduce? (Hierarchical collective, many-node limit; tokens per GPU.)",
        (
            "Which level of the network is slowest, and how many cards of a node share the work there?",
            "B/X = C/W_node, W_node = {size} cards together.",
            "C = {peak:FLOP/s}, W_node = {size} x {nic:B/s} = {node:B/s}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 8960},
        draw={"cluster": NODES, "chips": (128, 512, 1024, 4096, 8960, 16384)},
        derive=_across,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap(
                "one card for one GPU",
                "one_nic",
                "a hierarchical collective splits the array over the {size} GPUs of a "
                "node first, so all {size} cards send: {node:B/s}.",
            ),
            Trap(
                "the inner network",
                "inside",
                "the group leaves the node, so the node's egress decides, not the domain.",
            ),
            Trap(BOTH, "both", WHY_BOTH),
        ),
        steps={
            "flops": "8BDF/X per GPU backward.",
            "bytes": "Each node must send 8DF in all, whatever its {size} GPUs do inside.",
            "rates": "W_node = {size} x {nic:B/s} = {node:B/s}; C = {peak:FLOP/s}.",
            "compare": "8BDF/(XC) against 8DF/W_node.",
            "knob": "B/X = C/W_node.",
        },
        follow_ups=("Does TP 8 inside each node lower this threshold?",),
        difficulty=3,
        importance=5,
        tags=("threshold", "gpu", "hierarchy"),
        book="dp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "dp.critical_tokens_torus",
        "numeric",
        "A full pod of a torus ({cluster:machine}): the gradient all-reduce uses all {axes} torus axes at once. How many tokens per chip "
        "make pure data parallelism compute-bound in bf16?",
        (
            "Axes work in parallel.",
            "B/X = C/(M W), W the egress along one closed ring.",
            "C = {peak:FLOP/s}, M = {axes}, W = {axis:B/s}.",
        ),
        canonical={"cluster": "tpu-v5p"},
        draw={"cluster": TORUS},
        derive=_torus,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap("a single axis", "one_axis", "the all-reduce is split over {axes} axes, each with its own links."),
            Trap("one link of a ring", "one_link", "on a closed ring a chip sends through both its links of an axis."),
            Trap("the data-centre network", "open", "inside the pod nothing crosses the data-centre network."),
        ),
        steps={
            "flops": "8BDF/X per chip backward.",
            "bytes": "8DF per layer.",
            "rates": "{axes} axes of {axis:B/s} each; C = {peak:FLOP/s}.",
            "compare": "8BDF/(XC) against 8DF/({axes} W).",
            "knob": "B/X = {peak:FLOP/s} / ({axes} x {axis:B/s}).",
        },
        importance=4,
        minutes=2,
        tags=("threshold", "tpu"),
        book="dp.critical_tokens(peak_v5p, v5p_axis, 3)",
        needs=("peak", "network"),
    ),
    Question(
        "dp.critical_batch",
        "numeric",
        "You get {chips} GPUs of {cluster:cluster} and want pure data parallelism to be compute-bound. What is the smallest "
        "global batch, in tokens (many-node limit)?",
        (
            "First the tokens per GPU, then all GPUs.",
            "B = X C/W_node.",
            "C/W_node = {tokens:token/chip|5}, X = {chips}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 1024},
        draw={"cluster": NODES, "chips": (64, 128, 256, 512, 1024, 2048, 4096)},
        derive=_across,
        answer="batch",
        unit="token",
        traps=(
            Trap("one card for one GPU", "batch_nic", "all {size} cards of a node carry the all-reduce."),
            Trap("the inner network", "batch_inside", "{chips} GPUs span nodes, so the node's {node:B/s} decides."),
            Trap("nodes counted as GPUs", "batch_nodes", "the threshold {tokens:token/chip} is per GPU, not per node."),
        ),
        steps={
            "flops": "8BDF/X per GPU backward.",
            "bytes": "8DF per layer leaves each node.",
            "rates": "C = {peak:FLOP/s}, W_node = {node:B/s}.",
            "compare": "Compute-bound above {tokens:token/chip|5}.",
            "knob": "B = {chips} x {tokens:token/chip|5}.",
        },
        follow_ups=("Does the optimizer still converge well at this batch?",),
        importance=5,
        tags=("threshold", "gpu", "batch"),
        book="1024 * dp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "dp.max_chips",
        "numeric",
        "Your global batch is {batch} tokens and cannot grow. On {cluster:cluster}, up to how many GPUs can pure data "
        "parallelism use before it becomes comms-bound across nodes (many-node limit)?",
        (
            "Each GPU must keep enough tokens.",
            "X = B W_node / C.",
            "C/W_node = {need:token/chip|5}.",
        ),
        canonical={"cluster": "dgx-h100", "batch": 4194304},
        draw={"cluster": NODES, "batch": (524288, 1048576, 2097152, 4194304, 8388608, 16777216)},
        derive=_max_chips,
        answer="chips",
        unit="GPU",
        traps=(
            Trap("the inner network", "inside", "beyond one node the node's egress {node:B/s} decides."),
            Trap("one card for one GPU", "one_nic", "a node sends with all its cards."),
        ),
        steps={
            "flops": "8BDF/X per GPU.",
            "bytes": "8DF per layer and node.",
            "rates": "C/W_node = {need:token/chip|5}.",
            "compare": "B/X must stay above it.",
            "knob": "X = {batch} / {need:token/chip|5}.",
        },
        tags=("threshold", "gpu", "batch"),
        book="4194304 / dp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "dp.backward_flops",
        "numeric",
        "One two-matmul layer of {model:model} (D = {d_model}, F = {d_ff}), a batch of {batch} tokens over {chips} "
        "data-parallel GPUs. How many FLOPs does one GPU do in the backward pass of this layer?",
        (
            "Each matmul of the forward pass has two in the backward pass.",
            "8BDF/X.",
            "B/X = {batch}/{chips} tokens, D = {d_model}, F = {d_ff}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "batch": 4194304, "chips": 1024},
        draw={"model": DENSE, "batch": (1048576, 2097152, 4194304), "chips": (64, 256, 512, 1024)},
        derive=_layer,
        answer="backward",
        unit="TFLOP",
        traps=(
            Trap(
                "the forward count",
                "forward",
                "4BDF/X is forward; backward computes a gradient for the input and one for "
                "the weights, each as costly.",
            ),
            Trap("the whole batch", "no_split", "one GPU sees only B/X tokens."),
        ),
        steps={
            "flops": "Forward 2 matmuls of 2BDF/X each = {forward:TFLOP}; backward twice that: 8BDF/X with B/X = "
            "{batch}/{chips}.",
        },
        difficulty=1,
        minutes=2,
        tags=("flops",),
        book="dp.backward_flops(4194304, llama.d_model, llama.d_ff, 1024)",
    ),
    Question(
        "dp.t_comms",
        "numeric",
        "How long does the gradient all-reduce of one two-matmul layer of {model:model} take on {chips} GPUs of "
        "{cluster:cluster}, bf16 gradients, many-node limit? (milliseconds)",
        (
            "How many bytes are two matrices of D x F in bf16, and what does an all-reduce cost in terms of its bytes?",
            "8DF/W_node.",
            "D = {d_model}, F = {d_ff}, W_node = {egress:B/s}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 1024, "batch": 4194304},
        draw={"model": DENSE, "cluster": NODES, "chips": (64, 256, 1024)},
        derive=_layer,
        answer="comms",
        unit="ms",
        traps=(
            Trap(
                "half an all-reduce",
                "all_gather_only",
                "an all-reduce is a reduce-scatter and an all-gather, so its bytes count twice.",
            ),
            Trap("fp32 gradients", "fp32", "the gradients are bf16 here, 2 bytes each."),
            Trap(
                "three matrices",
                "three_matrices",
                "the two-matmul layer has two matrices; a gated layer would have three.",
            ),
            Trap("one card", "one_nic", "a node sends with all its cards together."),
        ),
        steps={
            "bytes": "Two matrices of {d_model} x {d_ff} at 2 bytes; the all-reduce doubles them: {bytes:B}.",
            "rates": "{bytes:B} over {egress:B/s}.",
        },
        tags=("comms", "gpu"),
        book="dp.t_comms(llama.d_model, llama.d_ff, node_egress)",
        needs=("network", "shape"),
    ),
    Question(
        "dp.mfu_cap",
        "numeric",
        "{batch} tokens a step over {chips} GPUs of {cluster:cluster}, data parallel across nodes. What share of the peak can "
        "the run reach at most, if only the gradient all-reduce held it back (many-node limit)?",
        (
            "Which pass waits for the network, and how much longer does it take below the threshold?",
            "Forward 1, backward 2 times (C/W_node)/(B/X): MFU cap = 3 / (1 + 2 (C/W_node)/(B/X)).",
            "B/X = {have:token/chip}, C/W_node = {need:token/chip|5}.",
        ),
        canonical={"cluster": "dgx-h100", "batch": 4194304, "chips": 8960},
        draw={
            "cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "dgx-b300"),
            "batch": (1048576, 2097152, 4194304),
            "chips": (4096, 6144, 8960, 12288),
        },
        derive=_cap,
        answer="cap",
        unit="%",
        traps=(
            Trap("forward waits too", "both_passes", "under DP forward sends nothing; only backward waits."),
            Trap("the inner network", "inside", "the group leaves the node: {need:token/chip} are needed."),
            Trap("one card for one GPU", "one_nic", "a node sends with all its cards together."),
            Trap(BOTH, "both", WHY_BOTH),
        ),
        steps={
            "flops": "Call forward 1, then backward is 2: each GPU has {have:token/chip}.",
            "bytes": "Forward none, backward the all-reduce.",
            "rates": "C = {peak:FLOP/s}, W_node = {node:B/s}: it hides from {need:token/chip|5} on.",
            "compare": "Backward waits: it takes {ratio} times its compute.",
            "knob": "3 / (1 + 2 x {ratio}).",
        },
        follow_ups=("Which knob lifts the cap without a larger batch?",),
        difficulty=3,
        importance=5,
        tags=("mfu", "gpu"),
        book="3 / (1 + 2 * dp.critical_tokens(h100_peak, node_egress) / (4194304 / 8960))",
        needs=("peak", "network"),
    ),
    Question(
        "dp.max_params",
        "numeric",
        "Pure data parallelism keeps the whole training state on each chip. Recipe: {title} ({each} bytes a parameter). "
        "What is the largest model that one {cluster:gpu} can hold, activations left out?",
        (
            "What does one parameter cost in memory while training?",
            "parameters = HBM / bytes per parameter.",
            "HBM = {hbm:B}, {each} bytes a parameter.",
        ),
        canonical={"cluster": "dgx-h100", "recipe": "bf16"},
        draw={"cluster": (*NODES, *TORUS), "recipe": ("bf16", "megatron", "adam-8bit")},
        derive=_max_params,
        answer="params",
        unit="Gparam",
        traps=(
            Trap("weights alone", "weights_only", "gradients, master copy and Adam's moments are resident too."),
            Trap("no optimizer", "no_moments", "Adam keeps two moments, and mixed precision a master copy."),
            Trap("10 bytes a parameter", "no_master", "that recipe keeps neither a master copy nor stored gradients."),
        ),
        steps={
            "bytes": "{title}: {each} bytes a parameter.",
            "compare": "The chip has {hbm:B}.",
            "knob": "{hbm:B} / {each} bytes.",
        },
        importance=4,
        minutes=2,
        tags=("memory",),
        book="dp.max_params(h100.chip.hbm, recipe('bf16').total)",
        needs=("hbm",),
    ),
    Question(
        "dp.small_group",
        "numeric",
        "A small cluster: {chips} GPUs in one node ({cluster:cluster}) train {model:model} data parallel. With the exact ring "
        "cost, from how many tokens per GPU does the gradient all-reduce hide?",
        (
            "A ring of few chips sends less than its whole array.",
            "B/X = (C/W)(X-1)/X.",
            "C = {peak:FLOP/s}, W = {egress:B/s}, (X-1)/X = {share}.",
        ),
        canonical={"cluster": "dgx-h100", "model": "llama-3-8b", "chips": 2},
        draw={"cluster": NODES, "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"), "chips": (2, 3, 4, 8)},
        derive=_small,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap("the limit of many chips", "limit", "with {chips} chips a ring sends only {share} of the array."),
            Trap("the inverse share", "flipped", "(X-1)/X multiplies the time, it does not divide it."),
        ),
        steps={
            "flops": "8BDF/X per GPU.",
            "bytes": "Sent by one GPU: 8DF (X-1)/X, with (X-1)/X = {share}.",
            "rates": "C/W = {limit:token/chip}.",
            "compare": "8BDF/(XC) against 8DF (X-1)/(XW).",
            "knob": "B/X = {limit:token/chip} x {share}.",
        },
        difficulty=3,
        tags=("small", "gpu"),
        book="dp.critical_tokens(h100_peak, nvlink_egress) / 2",
        needs=("peak", "network"),
    ),
    Question(
        "dp.fp32_gradients",
        "numeric",
        "{chips} GPUs of {cluster:cluster} train {model:model}. Gradients are now reduced in fp32 as Megatron does by default. "
        "How many tokens per GPU does the exact threshold become?",
        (
            "Compute does not change. What happens to the bytes?",
            "threshold = (wire bytes / 2) x the bf16 threshold.",
            "The bf16 threshold of this group is {bf16:token/chip}; fp32 sends {wire} bytes an element.",
        ),
        canonical={"cluster": "dgx-h100", "model": "llama-3-70b", "chips": 1024},
        draw={"cluster": NODES, "model": DENSE, "chips": (64, 128, 512, 1024, 4096)},
        derive=_wire,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap("bf16 gradients", "bf16", "four bytes go over the wire for each gradient, not two."),
            Trap("the wrong way round", "quarter", "more bytes raise the threshold."),
            Trap(
                "the state's bytes",
                "state",
                "what is resident ({wire} bytes of gradients among 18) does not travel; the gradients do.",
            ),
        ),
        steps={
            "flops": "8BDF/X, as before.",
            "bytes": "16DF instead of 8DF.",
            "rates": "T_comms doubles.",
            "compare": "8BDF/(XC) against 16DF/W.",
            "knob": "2 x {bf16:token/chip}.",
        },
        difficulty=3,
        tags=("precision", "gpu"),
        needs=("peak", "network"),
    ),
    Question(
        "dp.accumulation",
        "numeric",
        "A GPU of {cluster:cluster} fits a microbatch of {micro} tokens. With {chips} data-parallel GPUs, over how many "
        "microbatches must gradients be accumulated so that one all-reduce a step hides (many-node limit, not rounded)?",
        (
            "The all-reduce runs once a step, the compute once a microbatch.",
            "rounds = (C/W_node) / tokens a microbatch.",
            "C/W_node = {need:token/chip|5}, {micro} tokens a microbatch.",
        ),
        canonical={"cluster": "dgx-h100", "micro": 512, "chips": 512},
        draw={"cluster": NODES, "micro": (128, 256, 512), "chips": (64, 128, 512, 2048)},
        derive=_accumulate,
        answer="rounds",
        unit="microbatch",
        traps=(
            Trap("the inner network", "inside", "the group spans nodes."),
            Trap(
                "the global batch",
                "total",
                "every GPU accumulates its own microbatches; do not count those of the others.",
            ),
            Trap("one card for one GPU", "one_nic", "all cards of a node send."),
        ),
        steps={
            "flops": "Each microbatch of {micro} tokens adds compute.",
            "bytes": "Gradients are sent once a step.",
            "rates": "The all-reduce takes as long as {need:token/chip|5} compute.",
            "compare": "rounds x {micro} against {need:token/chip|5}.",
            "knob": "{need:token/chip|5} / {micro}; round up in practice.",
        },
        tags=("small", "batch"),
        book="dp.critical_tokens(h100_peak, node_egress) / 512",
        needs=("peak", "network"),
    ),
    Question(
        "dp.which_network",
        "choice",
        "{chips} GPUs of {cluster:cluster} run pure data parallelism with a hierarchical all-reduce. Which bandwidth sets the "
        "threshold?",
        (
            "Follow the slowest level that every node's gradients must cross.",
            "seconds = max over levels of V (n_i - 1)/(n_i W_i), W_i of a whole subtree.",
            "Per GPU {inner:B/s} inside; per node {node:B/s} outside.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 1024},
        draw={"cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8"), "chips": (256, 512, 1024, 4096)},
        derive=lambda p: {
            "inner": cluster(p.cluster).levels[0].egress,
            "nic": cluster(p.cluster).levels[1].egress,
            "node": cluster(p.cluster).egress(p.chips),
            "right": "node",
        },
        answer="right",
        options=(
            Option(
                "nvlink",
                "{inner:B/s}, what a GPU sends inside its node",
                "That holds only for a group inside one node.",
            ),
            Option("node", "{node:B/s}, what a node sends with all its cards"),
            Option(
                "nic",
                "{nic:B/s}, what one card sends",
                "The GPUs of a node first share the array, then each sends its part through its own card.",
            ),
            Option(
                "sum",
                "{inner:B/s} and {node:B/s} added, as both networks work at once",
                "The levels pass on the same data, one after the other or overlapped; they do not add.",
            ),
        ),
        steps={
            "bytes": "Each node sends the whole gradient once and receives it once, in {node:B/s}.",
            "compare": "{node:B/s} a node is slower than {inner:B/s} a GPU.",
        },
        tags=("hierarchy", "gpu"),
        needs=("network",),
    ),
    Question(
        "dp.model_size",
        "choice",
        "You replace an 8B model by a 70B one on the same GPUs at the same batch and could fit both. What happens to the "
        "data-parallel threshold in tokens per GPU?",
        (
            "Write both times of the backward pass. Which letters occur in each?",
            "8BDF/(XC) against 8DF/W.",
            "D and F stand on both sides.",
        ),
        derive=lambda p: {"right": "same"},
        answer="right",
        options=(
            Option("up", "It rises, as more gradients are sent", "Compute grows by the same factor as the gradients."),
            Option("down", "It falls, as there is more compute to hide behind", "Gradients grow by the same factor."),
            Option("same", "It stays the same"),
            Option("square", "It grows with the square of d_model", "D and F cancel between FLOPs and bytes."),
        ),
        steps={
            "flops": "8BDF/X.",
            "bytes": "8DF.",
            "compare": "DF cancels, so the threshold C/W knows only hardware.",
        },
        difficulty=1,
        minutes=1,
        tags=("concept",),
    ),
    Question(
        "dp.audit_nvlink",
        "audit",
        "Audit. A text divides the 989 TFLOP/s of an H100 by NVLink's 900 GB/s and concludes that {said} tokens per GPU make "
        "data parallelism compute-bound inside a node. In the row above it uses 180 GB/s for one axis of a TPU v5p, which is "
        "egress. What number should stand there?",
        (
            "Compare what the two bandwidths count.",
            "W is what one participant sends while it receives at the same rate.",
            "The 900 GB/s add both directions.",
        ),
        derive=_claim("alpha-nvlink"),
        answer="ours",
        unit="token/chip",
        traps=(Trap("the text's number", "said", WHY_BOTH),),
        steps={
            "rates": "NVLink sends 450 GB/s per GPU; 900 GB/s is the sum of both directions.",
            "compare": "A collective is limited by egress, as in the TPU row.",
            "knob": "C/W doubles.",
        },
        importance=5,
        tags=("claim", "direction"),
        claim="alpha-nvlink",
        book="dp.critical_tokens(h100_peak, nvlink_egress)",
    ),
    Question(
        "dp.audit_infiniband",
        "audit",
        "Audit. A text asks for {said} tokens per GPU when H100 gradients cross 400 Gb/s InfiniBand. A node has 8 GPUs and 8 "
        "cards. What is the threshold per GPU?",
        (
            "How many cards does a hierarchical all-reduce keep busy?",
            "C / (8 W_card).",
            "{said} is the threshold of a node.",
        ),
        derive=_claim("alpha-ib"),
        answer="ours",
        unit="token/chip",
        traps=(Trap("the text's number", "said", "this many tokens are needed per node; its 8 GPUs share them."),),
        steps={
            "bytes": "A node sends 8DF per layer through 8 cards.",
            "rates": "8 x 50 GB/s = 400 GB/s.",
            "knob": "{said} / 8.",
        },
        importance=5,
        tags=("claim", "hierarchy"),
        claim="alpha-ib",
        book="dp.critical_tokens(h100_peak, node_egress)",
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "dp.audit_backward",
        "audit",
        "Audit. A text writes: 'Backward FLOPs per layer and chip = 4BDF/X.' Two lines further it uses the right value. What is "
        "wrong?",
        (
            "Count the matmuls of the forward pass.",
            "A matmul A[B,D] W[D,F] takes 2BDF FLOPs.",
            "Forward: two of them. Backward: two for each.",
        ),
        derive=lambda p: {"right": "forward"},
        answer="right",
        options=(
            Option("forward", "It is the forward count; backward is 8BDF/X"),
            Option(
                "nothing",
                "Nothing, backward costs as much as forward",
                "Backward has two matmuls for each of the forward pass: input gradient and weight gradient.",
            ),
            Option("two", "A multiply-add is one FLOP, so it should be 2BDF/X", "A multiply-add counts as two FLOPs."),
            Option("chips", "It must not be divided by X", "The batch is split over X chips."),
        ),
        steps={
            "flops": "Forward 2 x 2BDF/X = 4BDF/X. Backward needs the gradient of the input and of the weights of each matmul: "
            "twice that.",
        },
        difficulty=1,
        minutes=2,
        tags=("claim", "flops"),
        claim="bwd-flops",
    ),
    Question(
        "dp.audit_max_h100",
        "audit",
        "Audit. A text keeps a ledger of 16 bytes a parameter for training in bf16 with fp32 Adam. A few lines further it says one "
        "H100 can hold {said:Gparam} under pure data parallelism. What does its own ledger give?",
        (
            "What does one parameter cost by that ledger?",
            "HBM / 16 bytes.",
            "HBM = {hbm:B}.",
        ),
        derive=_audit_max("max-model-h100", "dgx-h100"),
        answer="ours",
        unit="Gparam",
        traps=(
            Trap(
                "10 bytes a parameter",
                "said",
                "the text divides by 10 here, which forgets the master copy and the gradients.",
            ),
            Trap("12 bytes a parameter", "no_master", "the ledger has a master copy too."),
            Trap("weights alone", "weights_only", "2 bytes hold the weights and nothing of the optimizer."),
        ),
        steps={"bytes": "2 + 2 + 4 + 4 + 4 = 16 bytes a parameter.", "knob": "{hbm:B} / 16 bytes."},
        importance=3,
        minutes=2,
        tags=("claim", "memory"),
        claim="max-model-h100",
        book="dp.max_params(h100.chip.hbm, recipe('bf16').total)",
        canonical={"chip": "h100-sxm"},
        needs=("hbm",),
    ),
    Question(
        "dp.audit_max_v5p",
        "audit",
        "Audit. A text with a ledger of 16 bytes a parameter says that one TPU v5p holds {said:Gparam}, '96/10'. What does the "
        "ledger give?",
        (
            "What does one parameter cost by that ledger?",
            "HBM / 16 bytes.",
            "HBM = {hbm:B}.",
        ),
        derive=_audit_max("max-model-v5p", "tpu-v5p"),
        answer="ours",
        unit="Gparam",
        traps=(
            Trap(
                "10 bytes a parameter",
                "said",
                "10 bytes forget the master copy and the gradients of the text's own ledger.",
            ),
            Trap("12 bytes a parameter", "no_master", "the ledger has a master copy too."),
            Trap("weights alone", "weights_only", "2 bytes hold the weights and nothing of the optimizer."),
        ),
        steps={"bytes": "2 + 2 + 4 + 4 + 4 = 16 bytes a parameter.", "knob": "{hbm:B} / 16 bytes."},
        minutes=2,
        tags=("claim", "memory"),
        claim="max-model-v5p",
        book="dp.max_params(v5p.chip.hbm, recipe('bf16').total)",
        canonical={"chip": "tpu-v5p"},
        needs=("hbm",),
    ),
    Question(
        "dp.explain_threshold",
        "explain",
        "Why does data parallelism need a minimum number of tokens per GPU, and why does neither the model's width nor its "
        "depth enter?",
        (
            "Which of the two times depends on the batch?",
            "8BDF/(XC) against 8DF/W.",
            "Divide one by the other.",
        ),
        rubric=(
            Point(
                "compute grows with the tokens per GPU",
                (
                    r"comput\w+ .*(grow|scale|proportional|linear)",
                    r"(grow|scale)s? with .*(batch|token)",
                    r"FLOPs? .*(batch|token)",
                ),
            ),
            Point(
                "gradient traffic does not depend on the batch",
                (r"(gradient|traffic|comm\w*|byte|all-?reduce).*(not|n't|independent|constant|fixed|same|regardless)",),
            ),
            Point("weights cancel, per layer and in sum", (r"cancel", r"both sides", r"drop(s)? out")),
            Point(
                "the ratio C/W of hardware is left", (r"C\s*/\s*W", r"peak .*(bandwidth|egress)", r"FLOPs? per byte")
            ),
        ),
        says=(
            "Compute of a step grows with the tokens per GPU; the all-reduce moves the gradients once, however many tokens made "
            "them. Both are proportional to the weights, which cancel. What is left is C over W, FLOPs per byte sent.",
            "Per layer, backward compute is 8BDF over X C. The gradients of two matrices are 4DF bytes in bf16, and an all-reduce "
            "costs twice its bytes over W: 8DF/W. D and F stand on both sides, so width drops out; depth too, as every layer has "
            "the same ratio. Compute-bound when B/X > C/W. On H100 inside a node that is 989e12/450e9, about 2200 tokens; across "
            "nodes 989e12/400e9, about 2470.",
            "Start from the two times. T_math = 8BDF/(XC): it falls with more chips at a fixed batch. T_comms = 8DF/W: it does not, "
            "apart from (X-1)/X. Overlap lets the all-reduce of one layer run while earlier layers still compute their gradients, so "
            "the condition is T_math > T_comms. The weights cancel. W must be egress: 450e9 on NVLink, not the 900e9 of the sheet, "
            "and 8 x 50e9 across nodes. Where it breaks: the last layer's all-reduce has nothing to hide behind; small messages pay "
            "latency; fp32 gradients double the threshold; gradient accumulation raises tokens per all-reduce and is the usual "
            "remedy on small clusters. Below the threshold MFU is capped at the ratio of the two.",
        ),
        steps={
            "flops": "8BDF/X, proportional to the tokens per GPU.",
            "bytes": "8DF, whatever the batch.",
            "compare": "DF cancels: B/X against C/W.",
        },
        follow_ups=("What does gradient accumulation change?", "Which layer's all-reduce cannot hide?"),
        importance=5,
        minutes=4,
        tags=("concept", "aloud"),
    ),
    Question(
        "dp.estimate_days",
        "estimate",
        "Without paper: {model:model} on {tokens:Ttoken}, {chips} GPUs of {cluster:cluster} at 40% MFU. How many days? Give a "
        "90% interval too, e.g. '30 days (10 to 90)'.",
        (
            "How much work is it, and how fast is it done?",
            "6 N_params T / (chips x C x MFU).",
            "6 x {params:Gparam} x {tokens:Ttoken} over {chips} x {peak:FLOP/s} x 0.4.",
        ),
        canonical={"model": "llama-3-8b", "tokens": 1e12, "chips": 64, "cluster": "dgx-h100"},
        draw={
            "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"),
            "tokens": (1e11, 3e11, 1e12, 2e12),
            "chips": (8, 16, 32, 64),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8"),
        },
        derive=lambda p: _days(p),
        answer="seconds",
        unit="day",
        traps=(
            Trap("forward alone", "forward", "training does three times the forward FLOPs: six a parameter, not two."),
            Trap("the full peak", "full_peak", "40% of the peak is what arrives."),
        ),
        steps={
            "flops": "6 x {params:Gparam} x {tokens:Ttoken} = {flops:FLOP}.",
            "rates": "{chips} x {peak:FLOP/s} x 0.4.",
            "knob": "Divide and turn seconds into days.",
        },
        minutes=2,
        tags=("estimate", "small"),
        book="budget.seconds(budget.train_flops(n_params(model('llama-3-8b')), 1e12), 64, h100_peak, ARTICLE_MFU)",
    ),
    Question(
        "dp.code_threshold",
        "code",
        "Write a function of `peak` (FLOP/s), `egress` (byte/s of one participant) and `axes` that returns the tokens per chip "
        "at which data parallelism becomes compute-bound.",
        (
            "Set the two times of the backward pass equal.",
            "8BDF/(XC) = 8DF/(M W).",
            "Return peak over axes times egress.",
        ),
        canonical={"cluster": "tpu-v5p", "axes": 3},
        draw={"cluster": TORUS, "axes": (1, 2)},
        derive=lambda p: {"peak": cluster(p.cluster).chip.flops("bf16"), "egress": cluster(p.cluster).levels[0].egress},
        reference=dp.critical_tokens,
        arguments=("peak", "egress", "axes"),
        steps={"knob": "`def tokens(peak, egress, axes): return peak / (axes * egress)`"},
        difficulty=1,
        tags=("code",),
    ),
)


def _days(p: Any) -> dict[str, Any]:
    from scaling_lib import n_params

    n, peak = n_params(model(p.model)), cluster(p.cluster).chip.flops("bf16")
    flops = budget.train_flops(n, p.tokens)
    seconds = budget.seconds(flops, p.chips, peak, 0.4)
    return {
        "params": n, "peak": peak, "flops": flops, "seconds": seconds, "forward": seconds / 3, "full_peak": seconds * 0.4,
    }  # fmt: skip
