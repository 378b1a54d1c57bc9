"""Questions of the chapter on fully sharded data parallelism."""

from __future__ import annotations

from typing import Any

from scaling_lib import Job, ParallelPlan, cluster, collectives, fsdp, model, n_params, recipe
from scaling_lib.claims import claim
from scaling_lib.memory import state_bytes_per_param
from scaling_lib.questions import Option, Point, Question, Trap

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "mi300x-8", "mi355x-8")
DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b")
BOTH = "both directions of a link"
WHY_BOTH = "a data sheet adds what is sent and what is received; a collective is limited by what one participant sends."


def _job(p: Any, **plan: Any) -> Job:
    """A job of the drawn model, cluster and chips, FSDP over all of them."""
    return Job(
        model(p.model), cluster(p.cluster), ParallelPlan(dp=p.chips, **plan), p.chips, p.chips * 4096, 4096
    )  # fmt: skip


def _traffic(p: Any) -> dict[str, Any]:
    job = _job(p)
    own = fsdp.wire_bytes(job)
    m = job.model
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "share": (p.chips - 1) / p.chips,
        "sent": own.total,
        "forward": own["forward"],
        "like_dp": own.total / fsdp.traffic_ratio(),
        "one_pass": own["forward"],
        "gated": own.total * 1.5,
        "whole": own.total * p.chips / (p.chips - 1),
    }


def _threshold(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, node, inner = c.chip.flops("bf16"), c.egress(p.chips), c.levels[0].egress
    need = fsdp.critical_tokens(peak, node)
    return {
        "peak": peak,
        "node": node,
        "nic": c.levels[1].egress,
        "need": need,
        "batch": need * p.chips,
        "batch_inner": fsdp.critical_tokens(peak, inner) * p.chips,
        "batch_nic": fsdp.critical_tokens(peak, c.levels[1].egress) * p.chips,
        "batch_sum": need * p.chips * fsdp.traffic_ratio(),
        "tokens": need,
        "tokens_inner": fsdp.critical_tokens(peak, inner),
        "tokens_sum": need * fsdp.traffic_ratio(),
        "tokens_nic": fsdp.critical_tokens(peak, c.levels[1].egress),
        "tokens_both": need / 2,
    }


def sent_in_a_step(size: float, chips: int, zero: int) -> float:
    """Bytes of one layer that a chip sends in a step of one microbatch; size: its bf16 weights, zero: ZeRO stage."""
    if zero == 0:
        return float(collectives.sent_bytes("all_reduce", size, chips))
    gather, scatter = (collectives.sent_bytes(op, size, chips) for op in ("all_gather", "reduce_scatter"))
    return float((2 if zero == 3 else 1) * gather + scatter)


def _state(p: Any) -> dict[str, Any]:
    m, r = model(p.model), recipe(p.recipe)
    n = n_params(m)
    each = fsdp.state_bytes_per_chip(n, r.total, p.chips)
    return {
        "params": n,
        "title": r.title,
        "each": r.total,
        "total": n * r.total,
        "state": each,
        "weights": fsdp.state_bytes_per_chip(n, r.weights, p.chips),
        "whole": n * r.total,
        "optimizer": fsdp.state_bytes_per_chip(n, r.optimizer, p.chips),
        "zero1": n * state_bytes_per_param(r, 1, p.chips),
        "zero2": n * state_bytes_per_param(r, 2, p.chips),
    }


def _gather(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    node = c.egress(p.chips)
    forward = fsdp.forward_t_comms(m.d_model, m.d_ff, node)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "node": node,
        "bytes": 4 * m.d_model * m.d_ff,
        "seconds": forward,
        "backward": fsdp.backward_t_comms(m.d_model, m.d_ff, node),
        "nic": fsdp.forward_t_comms(m.d_model, m.d_ff, c.levels[1].egress),
        "one": forward / 2,
        "gated": forward * 1.5,
    }


def _cap(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak = c.chip.flops("bf16")
    need, have = fsdp.critical_tokens(peak, c.egress(p.chips)), p.batch / p.chips
    return {
        "need": need,
        "have": have,
        "cap": min(1.0, have / need),
        "inner": have / fsdp.critical_tokens(peak, c.levels[0].egress),
        "sum": have / need / fsdp.traffic_ratio(),
        "nic": have / fsdp.critical_tokens(peak, c.levels[1].egress),
    }


def _min_chips(p: Any) -> dict[str, Any]:
    m, r = model(p.model), recipe("bf16")
    hbm = cluster(p.cluster).chip.hbm
    n = n_params(m)
    return {
        "params": n,
        "hbm": hbm,
        "room_bytes": p.room * hbm,
        "chips": n * r.total / (p.room * hbm),
        "all_room": n * r.total / hbm,
        "weights": n * r.weights / (p.room * hbm),
        "no_grads": n * (r.weights + r.optimizer) / (p.room * hbm),
    }


def _two_nodes(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    job = _job(p)
    exact = fsdp.critical_batch(job) / p.chips
    return {
        "exact": exact,
        "size": c.domain,
        "limit": fsdp.critical_tokens(job.peak, c.egress(p.chips)),
        "inner": c.levels[0].egress,
        "node": c.egress(p.chips),
        "nic": fsdp.critical_tokens(job.peak, c.levels[1].egress),
        "half": fsdp.critical_tokens(job.peak, c.egress(p.chips)) / 2,
    }


def _tokens_claim(p: Any) -> dict[str, Any]:
    return {"said": float(claim("tokens-per-chip").said), "ours": float(claim("tokens-per-chip").ours or 0)}


def _bound_claim(p: Any) -> dict[str, Any]:
    c = cluster("dgx-h100")
    peak = c.chip.flops("bf16")
    return {
        "said": float(claim("fsdp-h100-bound").said),
        "ours": float(claim("fsdp-h100-bound").ours or 0),
        "inner": fsdp.critical_tokens(peak, c.levels[0].egress),
        "nic": fsdp.critical_tokens(peak, c.levels[1].egress),
    }


def _ratio_claim(p: Any) -> dict[str, Any]:
    return {"said": float(claim("fsdp-bytes").said), "ours": fsdp.traffic_ratio(), "two": 2.0}


STATE_DRAW = {
    "model": (*DENSE, "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b"),
    "chips": (16, 32, 64, 128, 256, 1024, 2048),
    "recipe": ("bf16", "megatron", "adam-8bit"),
}
THRESHOLD_DRAW = {"cluster": NODES, "chips": (64, 128, 256, 512, 1024, 2048, 4096, 8960)}

QUESTIONS = (
    Question(
        "fsdp.traffic",
        "numeric",
        "One two-matmul layer of {model:model} (D = {d_model}, F = {d_ff}) under FSDP on {chips} chips, bf16, weights dropped "
        "after each pass. How many bytes does one chip send for this layer in a step without accumulation?",
        (
            "How often do the weights travel, and how often the gradients?",
            "Gather forward, gather backward, reduce-scatter: 3 x 4DF (X-1)/X.",
            "4DF = 4 x {d_model} x {d_ff}, (X-1)/X = {share}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 1024},
        draw={"model": DENSE, "chips": (8, 16, 64, 256, 1024)},
        derive=_traffic,
        answer="sent",
        unit="GB",
        traps=(
            Trap(
                "the bytes of DP", "like_dp", "backward gathers the weights again, as they were dropped after forward."
            ),
            Trap("the forward pass alone", "one_pass", "backward gathers once more and reduce-scatters the gradients."),
            Trap("a gated layer", "gated", "the two-matmul layer has two matrices."),
        ),
        steps={
            "bytes": "Each of the three moves carries 4DF = 2 matrices x 2 bytes; a ring sends {share} of it. "
            "Forward: {forward:GB}.",
            "compare": "DP sends 8DF, FSDP 12DF: half as much again.",
            "knob": "3 x {forward:GB}.",
        },
        importance=4,
        tags=("comms",),
        book="12 * llama.d_model * llama.d_ff * 1023 / 1024",
    ),
    Question(
        "fsdp.critical_batch",
        "numeric",
        "FSDP over {chips} GPUs of {cluster:cluster}. What is the smallest global batch, in tokens, at which its gathers and "
        "reduce-scatters hide (many-node limit)?",
        (
            "Look at each pass by itself: compute against bytes.",
            "B = X C/W_node, the same in both passes.",
            "C = {peak:FLOP/s}, W_node = {node:B/s}, X = {chips}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 1024},
        draw=THRESHOLD_DRAW,
        derive=_threshold,
        answer="batch",
        unit="token",
        traps=(
            Trap("the inner network", "batch_inner", "the group spans nodes, so a node's {node:B/s} decides."),
            Trap("one card for one GPU", "batch_nic", "a hierarchical gather uses all cards of a node."),
            Trap(
                "the extra gather counted on top",
                "batch_sum",
                "the third move hides behind forward compute, which the DP "
                "threshold leaves idle; each pass has the ratio C/W.",
            ),
        ),
        steps={
            "flops": "Forward 4BDF/X, backward 8BDF/X.",
            "bytes": "Forward 4DF, backward 8DF.",
            "rates": "C = {peak:FLOP/s}, W_node = {node:B/s}.",
            "compare": "Both passes: B/X > C/W_node = {need:token/chip|5}.",
            "knob": "{chips} x {need:token/chip|5}.",
        },
        follow_ups=("How does keeping the weights between the passes change this?",),
        importance=5,
        tags=("threshold", "gpu", "batch"),
        book="1024 * fsdp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "fsdp.critical_tokens",
        "numeric",
        "How many tokens per GPU does FSDP need on {chips} GPUs of {cluster:cluster} to be compute-bound (many-node limit)?",
        (
            "The same threshold as another strategy.",
            "C/W_node.",
            "C = {peak:FLOP/s}, W_node = {node:B/s}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 8960},
        draw=THRESHOLD_DRAW,
        derive=_threshold,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap("the inner network", "tokens_inner", "the group spans nodes."),
            Trap("one card for one GPU", "tokens_nic", "all cards of a node carry the gather."),
            Trap(
                "the extra gather counted on top",
                "tokens_sum",
                "the forward gather has forward compute to hide behind.",
            ),
            Trap(BOTH, "tokens_both", WHY_BOTH),
        ),
        steps={
            "flops": "Forward 4BDF/X.",
            "bytes": "Forward 4DF into each node.",
            "compare": "4BDF/(XC) against 4DF/W_node; backward has twice both.",
            "knob": "{peak:FLOP/s} / {node:B/s}.",
        },
        difficulty=1,
        importance=4,
        minutes=2,
        tags=("threshold", "gpu"),
        book="fsdp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "fsdp.state_per_chip",
        "numeric",
        "Training state of {model:model} ({title}), fully sharded over {chips} chips. How many GB does each hold, gathered layers "
        "and activations left out?",
        (
            "Everything is divided, nothing is kept whole.",
            "N_params x bytes per parameter / X.",
            "N_params = {params:Gparam|5}, {each} bytes, X = {chips}.",
        ),
        canonical={"model": "llama-3-70b", "chips": 1024, "recipe": "bf16"},
        draw=STATE_DRAW,
        derive=_state,
        answer="state",
        unit="GB",
        traps=(
            Trap(
                "weights alone",
                "weights",
                "gradients, master copy and moments are sharded state too: {each} bytes in all.",
            ),
            Trap("nothing sharded", "whole", "FSDP divides the state by the {chips} chips."),
            Trap("the optimizer alone", "optimizer", "weights and gradients count too."),
        ),
        steps={"bytes": "{params:Gparam|5} x {each} bytes = {total:B|5}.", "knob": "/ {chips}."},
        difficulty=1,
        importance=4,
        minutes=2,
        tags=("memory",),
        book="fsdp.state_bytes_per_chip(n_params(llama), recipe('bf16').total, 1024)",
        needs=("params",),
    ),
    Question(
        "fsdp.zero1_state",
        "numeric",
        "ZeRO-1: only the optimizer ({title}) of {model:model} is sharded over {chips} chips, weights and gradients are "
        "whole on each. GB of state per chip?",
        (
            "Which bytes are divided and which are not?",
            "N_params (weights + gradients + optimizer/X).",
            "N_params = {params:Gparam}, X = {chips}.",
        ),
        canonical={"model": "llama-3-8b", "chips": 64, "recipe": "bf16"},
        draw={
            "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"),
            "chips": (8, 16, 32, 64, 128),
            "recipe": ("bf16", "megatron"),
        },
        derive=_state,
        answer="zero1",
        unit="GB",
        traps=(
            Trap("ZeRO-3", "state", "weights and gradients are not sharded here."),
            Trap("ZeRO-2", "zero2", "stage 2 shards the gradients too; stage 1 does not."),
            Trap("nothing sharded", "whole", "the optimizer is divided by {chips}."),
        ),
        steps={"bytes": "Weights and gradients whole, optimizer over {chips}.", "knob": "Times {params:Gparam}."},
        tags=("memory", "small"),
        needs=("params",),
    ),
    Question(
        "fsdp.gather_time",
        "numeric",
        "How many milliseconds does the forward gather of one two-matmul layer of {model:model} take on {chips} GPUs of "
        "{cluster:cluster} (bf16, many-node limit)?",
        (
            "How many bytes must enter each node?",
            "4DF/W_node.",
            "4DF = {bytes:B}, W_node = {node:B/s}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 1024},
        draw={"model": DENSE, "cluster": NODES, "chips": (64, 256, 1024)},
        derive=_gather,
        answer="seconds",
        unit="ms",
        traps=(
            Trap("the backward pass", "backward", "backward gathers and reduce-scatters; forward only gathers."),
            Trap("one card", "nic", "a node receives through all its cards."),
            Trap("one matrix", "one", "the layer has two matrices."),
            Trap("a gated layer", "gated", "the two-matmul layer has two matrices."),
        ),
        steps={"bytes": "2 x {d_model} x {d_ff} x 2 bytes = {bytes:B}.", "rates": "{bytes:B} / {node:B/s}."},
        tags=("comms", "gpu"),
        book="fsdp.forward_t_comms(llama.d_model, llama.d_ff, node_egress)",
        needs=("network", "shape"),
    ),
    Question(
        "fsdp.mfu_cap",
        "numeric",
        "FSDP over {chips} GPUs of {cluster:cluster} with {batch} tokens a step. What is the largest MFU its traffic allows (many-node limit)?",
        (
            "Tokens per GPU against the threshold.",
            "(B/X)/(C/W_node).",
            "{have:token/chip} against {need:token/chip|5}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 8960, "batch": 4194304},
        draw={
            "cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8"),
            "chips": (4096, 8192, 8960, 16384),
            "batch": (2097152, 4194304),
        },
        derive=_cap,
        answer="cap",
        unit="%",
        traps=(
            Trap("the inner network", "inner", "the group spans nodes."),
            Trap("the extra gather counted on top", "sum", "each pass has its own compute to hide behind."),
            Trap("one card for one GPU", "nic", "all cards of a node carry the gather."),
        ),
        steps={
            "flops": "Compute is proportional to {have:token/chip}.",
            "bytes": "Traffic takes as long as {need:token/chip|5} of compute.",
            "compare": "Comms-bound.",
            "knob": "Their ratio.",
        },
        importance=4,
        tags=("mfu", "gpu"),
        book="4194304 / 8960 / fsdp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "fsdp.min_chips",
        "numeric",
        "You leave {room:%} of each chip of {cluster:gpu} to sharded state, the rest to activations and buffers. How many chips "
        "does {model:model} need at 16 bytes a parameter? (bare ratio)",
        (
            "How much state is there, and how much room for it on a chip?",
            "16 N_params / (share x HBM).",
            "N_params = {params:Gparam}, HBM = {hbm:B}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "room": 0.5},
        draw={
            "model": ("llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b", "mixtral-8x7b"),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "tpu-v5p", "tpu-v6e"),
            "room": (0.4, 0.5, 0.6, 0.7),
        },
        derive=_min_chips,
        answer="chips",
        unit="chip",
        traps=(
            Trap("all of the memory", "all_room", "only a part of each chip is left to state."),
            Trap("weights alone", "weights", "16 bytes a parameter are resident, not 2."),
            Trap("gradients left out", "no_grads", "gradients are sharded state as well."),
        ),
        steps={
            "bytes": "16 x {params:Gparam}.",
            "compare": "Room on a chip: {room_bytes:B}.",
            "knob": "Divide; whole chips are the next number up.",
        },
        minutes=2,
        tags=("memory", "small"),
        needs=("hbm", "params"),
    ),
    Question(
        "fsdp.two_nodes",
        "numeric",
        "FSDP over exactly two nodes of {cluster:cluster} ({chips} GPUs). From how many tokens per GPU do its collectives hide, "
        "exactly?",
        (
            "With two nodes half of each array is already at home. Is the network between nodes still the slowest level?",
            "max over levels of V (n_i - 1)/(n_i W_i).",
            "Inside: 7/8 of V at {inner:B/s}. Outside: 1/2 of V at {node:B/s}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 16, "model": "llama-3-8b"},
        draw={
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8", "dgx-b300", "mi355x-8"),
            "model": ("llama-3-8b", "llama-2-13b"),
        },
        derive=_two_nodes,
        answer="exact",
        unit="token/chip",
        traps=(
            Trap("the limit of many nodes", "limit", "with two nodes only half of the array crosses."),
            Trap("one card for one GPU", "nic", "all cards of a node carry the gather."),
        ),
        steps={
            "bytes": "Between nodes each sends V/2; inside, each GPU sends 7V/8.",
            "rates": "{node:B/s} outside, {inner:B/s} inside.",
            "compare": "The slower of the two levels decides.",
            "knob": "Threshold = C x the larger share over its bandwidth.",
        },
        difficulty=4,
        tags=("hierarchy", "small"),
        needs=("peak", "network"),
    ),
    Question(
        "fsdp.why_same_threshold",
        "choice",
        "FSDP moves half as many bytes again as DP. Why is its threshold the same?",
        (
            "Which pass carries the extra bytes?",
            "Forward 4BDF/(XC) against 4DF/W.",
            "DP sends nothing forward.",
        ),
        derive=lambda p: {"right": "forward"},
        answer="right",
        options=(
            Option(
                "identity",
                "Because AllReduce = AllGather + ReduceScatter, the bytes are equal",
                "That covers two of the three moves; the third is extra.",
            ),
            Option(
                "forward",
                "The extra gather runs in the forward pass, whose compute had nothing to hide; each pass has ratio C/W",
            ),
            Option("small", "The gather is small against the reduce-scatter", "All three moves have the same size."),
            Option(
                "cache",
                "Weights are kept on the chip between the passes",
                "By default they are dropped; keeping them costs memory.",
            ),
        ),
        steps={
            "flops": "Forward 4BDF/X, backward 8BDF/X.",
            "bytes": "Forward 4DF, backward 8DF.",
            "compare": "Same ratio in both passes.",
        },
        tags=("concept",),
    ),
    Question(
        "fsdp.accumulation",
        "choice",
        "You train with FSDP (weights dropped after each pass) and accumulate gradients over 4 microbatches. What happens to the "
        "traffic per token, compared with one microbatch four times as large?",
        (
            "What is gathered for each microbatch?",
            "Gathers happen once a microbatch and pass.",
            "Weights are dropped between microbatches.",
        ),
        derive=lambda p: {"right": "more"},
        answer="right",
        options=(
            Option(
                "less",
                "It falls by 4, as gradients are sent once",
                "Even if gradients wait, the weights are gathered for each microbatch.",
            ),
            Option("same", "It stays, FSDP sends per token", "FSDP sends weights, per pass, not per token."),
            Option("more", "It rises about 4 times: weights are gathered for every microbatch"),
            Option(
                "none", "There is no traffic until the last microbatch", "Each microbatch needs every layer's weights."
            ),
        ),
        steps={"bytes": "Each microbatch gathers every layer twice.", "compare": "Tokens per gather fall by 4."},
        difficulty=3,
        minutes=2,
        tags=("small", "concept"),
    ),
    Question(
        "fsdp.audit_bytes",
        "audit",
        "Audit. 'FSDP moves as many bytes as DP, since AllReduce = AllGather + ReduceScatter.' By what factor do its bytes per "
        "layer really exceed those of DP?",
        (
            "How often do the weights travel, and how often the gradients?",
            "(4 + 8)DF over 8DF.",
            "Weights are dropped after forward.",
        ),
        derive=_ratio_claim,
        answer="ours",
        unit="ratio",
        traps=(
            Trap("the identity alone", "said", "the identity splits DP's all-reduce; FSDP adds one more gather."),
            Trap("twice as many", "two", "an all-reduce is two moves already; three against two are 3/2."),
        ),
        steps={"bytes": "DP 8DF; FSDP 4DF forward, 8DF backward.", "knob": "12/8."},
        importance=5,
        minutes=2,
        tags=("claim", "comms"),
        claim="fsdp-bytes",
        book="fsdp.traffic_ratio()",
    ),
    Question(
        "fsdp.audit_backward",
        "audit",
        "Audit. A text's timeline of FSDP shows only reduce-scatters in the backward pass. What is missing?",
        (
            "What does backward multiply with?",
            "The input gradient is dOut W^T.",
            "W was dropped after forward.",
        ),
        derive=lambda p: {"right": "gather"},
        answer="right",
        options=(
            Option("gather", "Each weight must be gathered again before its gradients can be computed"),
            Option(
                "reduce",
                "An all-reduce of the gradients after the reduce-scatter",
                "Each chip needs only the shard it updates.",
            ),
            Option("broadcast", "A broadcast of the optimizer state", "Optimizer state stays where it is."),
            Option("nothing", "Nothing", "Backward needs the weights too, and they were dropped."),
        ),
        steps={"bytes": "Backward: gather 4DF, reduce-scatter 4DF."},
        minutes=1,
        tags=("claim",),
        claim="fsdp-backward-gathers",
    ),
    Question(
        "fsdp.audit_tokens",
        "audit",
        "Audit. '4e6 tokens over 8960 chips are {said:token/chip}.' How many are they?",
        (
            "Which number of tokens gives 468 on 8960 chips?",
            "B/N.",
            "4e6/8960.",
        ),
        derive=_tokens_claim,
        answer="ours",
        unit="token/chip",
        tolerance=0.01,
        traps=(Trap("4 x 2^20 tokens", "said", "the figure belongs to 4 x 2^20 = 4,194,304 tokens."),),
        steps={"knob": "4e6 / 8960; 4 x 2^20 / 8960 would be {said}."},
        difficulty=1,
        minutes=1,
        tags=("claim",),
        claim="tokens-per-chip",
    ),
    Question(
        "fsdp.audit_h100",
        "audit",
        "Audit. 'FSDP alone on 8960 H100 needs {said:token/chip}, the NVLink threshold.' Which threshold does the group of 8960 "
        "really have?",
        (
            "8960 GPUs are 1120 nodes.",
            "C/W_node.",
            "A node sends with 8 cards.",
        ),
        derive=_bound_claim,
        answer="ours",
        unit="token/chip",
        traps=(
            Trap("the text's number", "said", "it is NVLink's, and with both directions added."),
            Trap("NVLink's egress", "inner", "the gather leaves the node, so the cards decide."),
            Trap("one card for one GPU", "nic", "a node sends with all its cards."),
        ),
        steps={"rates": "1120 nodes exchange through their cards.", "knob": "C / W_node."},
        tags=("claim", "hierarchy"),
        claim="fsdp-h100-bound",
        book="fsdp.critical_tokens(h100_peak, node_egress)",
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "fsdp.audit_batch",
        "audit",
        "Audit. 'Meta trained the 70B with a batch of 4M tokens and later raised it to 16M.' What is wrong?",
        (
            "Which model's report contains a batch ramp?",
            "The Llama 3 paper describes one model's schedule.",
            "It is the largest of the three.",
        ),
        derive=lambda p: {"right": "405b"},
        answer="right",
        options=(
            Option(
                "405b", "The ramp (4M, 8M, 16M) is published for the 405B; nothing of the kind is published for the 70B"
            ),
            Option(
                "order",
                "The order: it fell from 16M to 4M",
                "Batches are raised as gradients get noisier relative to their size.",
            ),
            Option("small", "4M is too small for 70B", "4M tokens is a usual batch at that size."),
            Option("nothing", "Nothing", "The paper's ramp belongs to another model."),
        ),
        steps={"compare": "The report gives the ramp for Llama 3 405B."},
        minutes=1,
        importance=2,
        tags=("claim", "reported"),
        claim="batch-4m-16m",
    ),
    Question(
        "fsdp.explain_vs_dp",
        "explain",
        "Why would you use FSDP rather than plain DP, and what does it cost?",
        (
            "Think of memory first, of bytes second.",
            "16 N_params/X against 16 N_params; 12DF against 8DF.",
            "Name the condition under which the cost is hidden.",
        ),
        rubric=(
            Point(
                "state is divided by the group", (r"(memory|state|optimi[sz]er).*(shard|divid|split|1/|over)", r"shard")
            ),
            Point("weights are gathered before use and dropped after", (r"gather",)),
            Point(
                "half as many bytes again (12DF against 8DF)",
                (r"1\.5|50 ?%|half (as|more)|12 ?DF|three (moves|collectives)|extra gather",),
            ),
            Point(
                "same threshold, as the extra gather hides behind forward compute",
                (r"same (threshold|condition)|hide|overlap|forward",),
            ),
        ),
        says=(
            "Memory: state falls from 16 bytes a parameter to 16/X. It costs one more gather, so 1.5 times the bytes, but that gather hides "
            "behind forward compute, so the threshold stays C/W.",
            "Plain DP keeps 16 bytes a parameter on each chip: an 80 GB GPU ends at 5 billion parameters, before activations. FSDP shards "
            "all of it. Before a layer is used its weights are gathered, after that dropped; gradients are reduce-scattered. Bytes per "
            "layer: 4DF forward, 8DF backward, against DP's 8DF. Forward: 4BDF/XC against 4DF/W, so B/X > C/W, and backward the same.",
            "Add what matters in practice. Gathered layers are transient memory: one in use, one prefetched. With gradient accumulation the "
            "gathers repeat for each microbatch, so FSDP wants few, large microbatches, while ZeRO-1 sends once a step: pipelines use "
            "ZeRO-1 for that reason. Across nodes the threshold is 2472 tokens per H100 whatever you do inside the node; HSDP shards "
            "inside and replicates outside, trading memory for fewer bytes on the network. Keeping weights after forward gives back the "
            "bytes of DP at the memory of ZeRO-2.",
        ),
        steps={
            "bytes": "12DF against 8DF.",
            "compare": "Same ratio C/W in both passes.",
            "knob": "State 16 N_params/X.",
        },
        importance=5,
        minutes=4,
        tags=("concept", "aloud"),
    ),
    Question(
        "fsdp.estimate_state",
        "estimate",
        "Without paper: GB of sharded training state per chip for {model:model} on {chips} chips, {title}? Add a 90% interval.",
        (
            "What does one parameter cost while training?",
            "N_params x b / X.",
            "{params:Gparam}, {each} bytes, {chips} chips.",
        ),
        canonical={"model": "llama-3-405b", "chips": 2048, "recipe": "bf16"},
        draw=STATE_DRAW,
        derive=_state,
        answer="state",
        unit="GB",
        traps=(Trap("weights alone", "weights", "the state has {each} bytes a parameter."),),
        steps={"bytes": "{total:B} in all.", "knob": "/ {chips}."},
        minutes=1,
        tags=("estimate", "memory"),
    ),
    Question(
        "fsdp.code_sent",
        "code",
        "Write a function of `size` (bytes of a layer's bf16 weights), `chips` and `zero` (ZeRO stage, 0 to 3) that returns the bytes "
        "of this layer that a chip sends in one step of one microbatch: ring collectives, bf16 gradients, FSDP is stage 3.",
        (
            "Which collectives does each stage need for weights and gradients?",
            "An all-gather or reduce-scatter sends V (n-1)/n, an all-reduce twice that.",
            "Stages 0 to 2 move the layer twice, stage 3 three times.",
        ),
        canonical={"size": 939_524_096, "chips": 1024, "zero": 3},
        draw={"size": (100_000_000, 400_000_000, 939_524_096), "chips": (2, 8, 64), "zero": (0, 1, 2, 3)},
        derive=lambda p: {"sent": sent_in_a_step(p.size, p.chips, p.zero)},
        reference=sent_in_a_step,
        arguments=("size", "chips", "zero"),
        steps={
            "bytes": "Stage 0: an all-reduce of gradients. Stages 1 and 2: a reduce-scatter of gradients, an all-gather of new weights. Stage 3: "
            "gathers in forward and backward, and the reduce-scatter.",
            "knob": "`def sent(size, chips, zero): return (3 if zero == 3 else 2) * size * (chips - 1) / chips`",
        },
        tags=("code",),
    ),
)
