"""Questions of the chapter on tensor parallelism."""

from __future__ import annotations

from typing import Any

from scaling_lib import Job, ParallelPlan, cluster, model, roofline, tp
from scaling_lib.claims import claim
from scaling_lib.questions import Option, Point, Question, Trap

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "mi355x-8", "gb200-nvl72", "h800-ib")
TORUS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7")
DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b", "gpt-3-175b")
WHY_BOTH = "a data sheet adds what is sent and what is received; a collective is limited by what one chip sends."


def _degree(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    peak, egress = c.chip.flops("bf16"), c.levels[0].egress
    full = roofline.layer(m, "full").effective_d_ff
    return {
        "d_ff": m.d_ff,
        "d_model": m.d_model,
        "peak": peak,
        "egress": egress,
        "alpha": peak / egress,
        "degree": tp.max_degree(m.d_ff, peak, egress),
        "both": tp.max_degree(m.d_ff, peak, 2 * egress),
        "by_model": tp.max_degree(m.d_model, peak, egress),
        "three": tp.max_degree(m.d_ff, peak, egress, 3),
        "full_width": full,
        "full_degree": tp.max_degree(full, peak, egress),
        "twice": tp.max_degree(full, peak, 2 * egress),
    }


def _axes(p: Any) -> dict[str, Any]:
    base = _degree(p)
    m, c = model(p.model), cluster(p.cluster)
    return {
        **base,
        "axes_degree": tp.max_degree(m.d_ff, c.chip.flops("bf16"), c.levels[0].egress, p.axes),
        "one_link": tp.max_degree(m.d_ff, c.chip.flops("bf16"), c.levels[0].egress / 2, p.axes),
        "one_axis": base["degree"],
    }


def _width(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, egress = c.chip.flops("bf16"), c.levels[0].egress
    return {
        "peak": peak,
        "egress": egress,
        "alpha": peak / egress,
        "width": tp.critical_d_ff(p.degree, peak, egress),
        "both": tp.critical_d_ff(p.degree, peak, 2 * egress),
        "one": tp.critical_d_ff(1, peak, egress),
    }


def _traffic(p: Any) -> dict[str, Any]:
    m = model(p.model)
    ratio = tp.traffic_over_fsdp(p.tokens, m.d_ff, p.degree)
    return {
        "d_ff": m.d_ff,
        "ratio": ratio,
        "upside": 1 / ratio,
        "forward": ratio / 8 * 4 / 4 * 12,
        "no_split": ratio / p.degree,
    }


def _bytes(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    job = Job(m, c, ParallelPlan(dp=1, tp=p.degree), p.degree, p.tokens, 4096)
    sent = tp.wire_bytes(job)
    egress = c.levels[0].egress
    math, comms = tp.t_math(p.tokens, m.d_model, m.d_ff, p.degree, job.peak), tp.t_comms(p.tokens, m.d_model, egress)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "share": (p.degree - 1) / p.degree,
        "peak": job.peak,
        "egress": egress,
        "sent": sent.total,
        "forward": sent["forward"],
        "one": sent["forward"] / 2,
        "whole": sent.total * p.degree / (p.degree - 1),
        "math": math,
        "comms": comms,
        "comms_half": comms / 2,
        "comms_both": comms / 4,
        "comms_back": comms * 2,
        "math_whole": math * p.degree,
        "cap": min(1.0, math / comms),
    }


def _cross(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak = c.chip.flops("bf16")
    node = c.egress(10**5)
    return {
        "peak": peak,
        "node": node,
        "width": tp.critical_d_ff(p.degree, peak, node),
        "card": tp.critical_d_ff(p.degree, peak, c.levels[1].egress),
        "inner": tp.critical_d_ff(p.degree, peak, c.levels[0].egress),
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _max_claim(p: Any) -> dict[str, Any]:
    return {**_claim("tp-max-h100")(p), "full": tp.max_degree(
        roofline.layer(model("llama-3-70b"), "full").effective_d_ff,
        cluster("dgx-h100").chip.flops("bf16"),
        cluster("dgx-h100").levels[0].egress,
    )}  # fmt: skip


def _cross_claim(p: Any) -> dict[str, Any]:
    c = cluster("dgx-h100")
    return {**_claim("tp-cross-node")(p), "inner": tp.critical_d_ff(16, c.chip.flops("bf16"), c.levels[0].egress)}


def _often_claim(p: Any) -> dict[str, Any]:
    return {
        "ours": float(claim("tp-traffic-10-100x").ours or 0),
        "ten": 10.0,
        "upside": 1 / float(claim("tp-traffic-10-100x").ours or 1),
    }


QUESTIONS = (
    Question(
        "tp.max_degree",
        "numeric",
        "How wide can tensor parallelism go for {model:model} (F = {d_ff}, two-matmul layer) on the inner network of "
        "{cluster:cluster} before it becomes comms-bound? (not rounded)",
        (
            "Compute falls with Y, the activation bytes do not.",
            "Y = F W/C.",
            "C/W = {alpha:FLOP/B}, F = {d_ff}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100"},
        draw={"model": DENSE, "cluster": NODES},
        derive=_degree,
        answer="degree",
        unit="way",
        traps=(
            Trap("both directions of a link", "both", WHY_BOTH),
            Trap("d_model for d_ff", "by_model", "the FLOPs grow with D and F, the bytes with D, so F is left."),
        ),
        steps={
            "flops": "Forward 4BDF/Y on one chip.",
            "bytes": "A gather and a reduce-scatter of 2BD bytes: 4BD.",
            "rates": "C = {peak:FLOP/s}, W = {egress:B/s}.",
            "compare": "4BDF/(YC) against 4BD/W: B and D cancel.",
            "knob": "Y = {d_ff} x W/C.",
        },
        follow_ups=("Why do people stop at 8 all the same?", "Does a larger batch help?"),
        importance=5,
        tags=("threshold", "gpu", "whiteboard"),
        book="tp.max_degree(llama.d_ff, h100_peak, nvlink_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "tp.max_degree_full",
        "numeric",
        "Take the full layer of {model:model}, gate and attention included: it acts like a two-matmul layer of F = "
        "{full_width}. How wide can TP go inside {cluster:machine}?",
        (
            "The same formula with another width.",
            "Y = F_eff W/C.",
            "F_eff = {full_width}, C/W = {alpha:FLOP/B}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100"},
        draw={"model": ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-405b"), "cluster": NODES},
        derive=_degree,
        answer="full_degree",
        unit="way",
        traps=(
            Trap("both directions of a link", "twice", WHY_BOTH),
            Trap("the plain width", "degree", "attention has a gather of its own, which changes the ratio."),
        ),
        steps={
            "flops": "All weights of the layer.",
            "bytes": "Two gathers, two reduce-scatters.",
            "knob": "{full_width} / {alpha}.",
        },
        difficulty=3,
        importance=2,
        tags=("threshold", "layer"),
        book="tp.max_degree(roofline.layer(llama, 'full').effective_d_ff, h100_peak, nvlink_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "tp.max_degree_torus",
        "numeric",
        "{model:model} (F = {d_ff}) on {cluster:machine}: TP uses {axes} torus axes. How wide can it go (two-matmul layer)?",
        (
            "Which letter of the limit do two axes change?",
            "Y = F M W/C.",
            "M = {axes}, W = {egress:B/s} an axis, C = {peak:FLOP/s}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "tpu-v5p", "axes": 2},
        draw={"model": DENSE, "cluster": TORUS, "axes": (2,)},
        derive=_axes,
        answer="axes_degree",
        unit="way",
        traps=(Trap("one axis", "one_axis", "{axes} axes carry {axes} times as much."),),
        steps={
            "rates": "W = {axes} x {egress:B/s}.",
            "compare": "F > Y C/(M W).",
            "knob": "Y = {d_ff} x {axes} x {egress:B/s} / {peak:FLOP/s}.",
        },
        minutes=2,
        tags=("threshold", "tpu"),
        book="tp.max_degree(llama.d_ff, peak_v5p, v5p_axis, 2)",
        needs=("peak", "network"),
    ),
    Question(
        "tp.critical_width",
        "numeric",
        "You want TP {degree} inside {cluster:cluster}. How wide must the MLP (F, two-matmul layer) be to stay compute-bound?",
        (
            "Turn the limit around.",
            "F = Y C/W.",
            "Y = {degree}, C/W = {alpha:FLOP/B}.",
        ),
        canonical={"cluster": "dgx-h100", "degree": 8},
        draw={"cluster": (*NODES, *TORUS), "degree": (2, 4, 8, 16)},
        derive=_width,
        answer="width",
        traps=(
            Trap("both directions of a link", "both", WHY_BOTH),
            Trap("the degree left out", "one", "each chip does only 1/{degree} of the FLOPs for the same bytes."),
        ),
        steps={
            "flops": "4BDF/Y.",
            "bytes": "4BD.",
            "rates": "C = {peak:FLOP/s}, W = {egress:B/s}.",
            "compare": "F > Y C/W.",
            "knob": "{degree} x {alpha}.",
        },
        importance=4,
        minutes=2,
        tags=("threshold",),
        book="tp.critical_d_ff(8, h100_peak, nvlink_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "tp.cross_nodes",
        "numeric",
        "TP {degree} over many nodes of {cluster:cluster}: which MLP width F would keep it compute-bound (hierarchical "
        "collective, many-node limit)?",
        (
            "Which egress counts now?",
            "F = Y C/W_node.",
            "W_node = {node:B/s}.",
        ),
        canonical={"cluster": "dgx-h100", "degree": 64},
        draw={
            "cluster": ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "mi355x-8"),
            "degree": (32, 64, 128),
        },
        derive=_cross,
        answer="width",
        traps=(
            Trap("one card for one GPU", "card", "a hierarchical collective uses all cards of a node."),
            Trap("the inner network", "inner", "the group leaves the node."),
        ),
        steps={
            "rates": "W_node = {node:B/s}.",
            "compare": "4BDF/(YC) against 4BD/W_node.",
            "knob": "{degree} x {peak:FLOP/s}/{node:B/s}.",
        },
        difficulty=3,
        tags=("hierarchy", "gpu"),
        needs=("peak", "network"),
    ),
    Question(
        "tp.traffic",
        "numeric",
        "FSDP x TP {degree}, {tokens} tokens a step in each FSDP rank, F = {d_ff} ({model:model}). How many bytes does TP send per "
        "layer for each byte of FSDP (two-matmul layer, both passes)?",
        (
            "Activations against weights.",
            "8 (B/X) D over 12 D F/Y.",
            "B/X = {tokens}, Y = {degree}, F = {d_ff}.",
        ),
        canonical={"model": "llama-3-8b", "tokens": 8192, "degree": 8},
        draw={"model": DENSE, "tokens": (1024, 2048, 4096, 8192, 16384), "degree": (2, 4, 8)},
        derive=_traffic,
        answer="ratio",
        unit="ratio",
        traps=(
            Trap("FSDP over TP", "upside", "the question asks for TP over FSDP."),
            Trap("whole weights", "no_split", "TP leaves each FSDP group only 1/{degree} of the weights."),
        ),
        steps={
            "bytes": "TP: 4BD/X forward and 4BD/X backward. FSDP: 12DF/Y.",
            "compare": "8 x {tokens} x {degree} over 12 x {d_ff}.",
        },
        difficulty=3,
        tags=("comms",),
        book="tp.traffic_over_fsdp(8192, 14336, 8)",
    ),
    Question(
        "tp.bytes",
        "numeric",
        "TP {degree} on {tokens} tokens of {model:model} (D = {d_model}), bf16, sequence parallel. How many MB does one chip send "
        "for one two-matmul layer, forward and backward, input not gathered again?",
        (
            "Count the collectives of each pass.",
            "4 collectives of 2BD bytes, (Y-1)/Y of each.",
            "2BD = 2 x {tokens} x {d_model}; (Y-1)/Y = {share}.",
        ),
        canonical={"model": "llama-3-8b", "cluster": "dgx-h100", "tokens": 8192, "degree": 8},
        draw={"model": DENSE, "tokens": (4096, 8192, 16384), "degree": (2, 4, 8)},
        derive=_bytes,
        answer="sent",
        unit="MB",
        traps=(
            Trap("the forward pass alone", "forward", "backward has a gather and a reduce-scatter too."),
            Trap("one collective", "one", "each pass has a gather and a reduce-scatter."),
        ),
        steps={"bytes": "Each collective sends 2 x {tokens} x {d_model} x {share}; there are four."},
        minutes=3,
        tags=("comms", "small"),
    ),
    Question(
        "tp.t_comms",
        "numeric",
        "How long do the forward collectives of TP take for one two-matmul layer: {tokens} tokens of {model:model} (D = "
        "{d_model}) inside {cluster:machine}, many-chip limit? (microseconds)",
        (
            "A gather and a reduce-scatter of the activations.",
            "4BD/W.",
            "B = {tokens}, D = {d_model}, W = {egress:B/s}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "tokens": 8192, "degree": 8},
        draw={"model": DENSE, "cluster": NODES, "tokens": (4096, 8192, 16384)},
        derive=_bytes,
        answer="comms",
        unit="us",
        traps=(
            Trap("one collective", "comms_half", "forward has a gather and a reduce-scatter."),
            Trap("both passes", "comms_back", "only the forward pass was asked."),
        ),
        steps={"bytes": "2 x 2 x {tokens} x {d_model} bytes.", "rates": "/ {egress:B/s}."},
        minutes=2,
        tags=("comms", "gpu"),
        book="tp.t_comms(8192, llama.d_model, nvlink_egress)",
        needs=("network",),
    ),
    Question(
        "tp.batch",
        "choice",
        "TP 8 of a model turns out to be comms-bound. Your colleague doubles the tokens per step. What happens?",
        (
            "How do FLOPs and bytes depend on B?",
            "4BDF/(YC) against 4BD/W.",
            "B stands on both sides.",
        ),
        derive=lambda p: {"right": "still"},
        answer="right",
        options=(
            Option(
                "fixed",
                "It becomes compute-bound, as for data parallelism",
                "There the bytes do not grow with the batch; here they do.",
            ),
            Option("still", "Nothing changes: FLOPs and bytes both double, B cancels"),
            Option("worse", "It gets worse, as more activations are sent", "Compute grows as much as the bytes."),
            Option("memory", "It runs out of memory bandwidth", "HBM is not the question here."),
        ),
        steps={"flops": "4BDF/Y.", "bytes": "4BD.", "compare": "B cancels; only F, Y, C and W are left."},
        difficulty=1,
        importance=4,
        minutes=1,
        tags=("concept",),
    ),
    Question(
        "tp.kv_heads",
        "choice",
        "Llama 3 70B has 64 query and 8 key-value heads. Which TP degree needs key-value heads to be copied?",
        (
            "Each rank needs at least one key-value head.",
            "TP <= K without copies.",
            "K = 8.",
        ),
        derive=lambda p: {"right": "16"},
        answer="right",
        options=(
            Option("4", "4", "Each rank has two key-value heads then."),
            Option("8", "8", "Each rank has exactly one."),
            Option("16", "16"),
            Option(
                "none",
                "None: heads can be cut freely",
                "A head of attention is computed on one rank; below one head per rank, ranks share a copy.",
            ),
        ),
        steps={"compare": "16 ranks for 8 key-value heads: each is held twice."},
        minutes=1,
        tags=("model",),
    ),
    Question(
        "tp.sequence_parallel",
        "choice",
        "What does sequence parallelism change in a TP layer?",
        (
            "Compare an all-reduce with what replaces it.",
            "AllReduce = ReduceScatter + AllGather.",
            "Norms and dropout work token by token.",
        ),
        derive=lambda p: {"right": "memory"},
        answer="right",
        options=(
            Option("bytes", "It halves the bytes on the wire", "The two halves of the all-reduce are still sent."),
            Option("memory", "Same bytes, but activations between the blocks are kept in 1/Y slices"),
            Option(
                "attention", "It splits attention over the sequence (ring attention)", "That is context parallelism."
            ),
            Option("batch", "It makes the TP limit depend on the batch", "The limit F > Y C/W is unchanged."),
        ),
        steps={
            "bytes": "A gather and a reduce-scatter instead of an all-reduce: as many bytes.",
            "compare": "Activations at the block borders shrink by Y.",
        },
        tags=("memory", "concept"),
    ),
    Question(
        "tp.audit_max",
        "audit",
        "Audit. 'On H100, Llama 3 70B allows TP up to {said}.' It divides F = 28672 by a threshold that uses NVLink's bandwidth in both "
        "directions. What is the limit with egress?",
        (
            "Which factor is between the two bandwidths?",
            "Y = F W/C.",
            "W = 450 GB/s.",
        ),
        derive=_max_claim,
        answer="ours",
        unit="way",
        traps=(
            Trap("both directions of a link", "said", WHY_BOTH),
            Trap(
                "the full layer",
                "full",
                "the text uses the two-matmul layer; with attention the limit is a little lower still.",
            ),
        ),
        steps={"rates": "W is half of what the text used.", "knob": "F W/C."},
        importance=4,
        minutes=2,
        tags=("claim", "direction"),
        claim="tp-max-h100",
        book="tp.max_degree(llama.d_ff, h100_peak, nvlink_egress)",
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "tp.audit_cross_node",
        "audit",
        "Audit. 'TP 16 across H100 nodes needs F > {said}, which no model has.' With all 8 cards of a node at work (many-node limit), "
        "which F does it need?",
        (
            "How many cards does a node send with?",
            "F = Y C/W_node.",
            "{said} used one card.",
        ),
        derive=_cross_claim,
        answer="ours",
        traps=(
            Trap("one card for one GPU", "said", "a node sends with 8 cards."),
            Trap("the inner network", "inner", "the group leaves the node."),
        ),
        steps={"rates": "W_node = 8 cards.", "knob": "16 C/W_node; for exactly two nodes even less."},
        difficulty=3,
        tags=("claim", "hierarchy"),
        claim="tp-cross-node",
        book="tp.critical_d_ff(16, h100_peak, node_egress)",
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "tp.audit_often",
        "audit",
        "Audit. 'TP sends activations 10 to 100 times as much as FSDP sends weights, so it must stay in the node.' At 2048 tokens per "
        "FSDP rank, TP 4 and F = 28672, what is the ratio of bytes, TP over FSDP?",
        (
            "Compute both instead of guessing.",
            "8 (B/X) D / (12 D F/Y).",
            "8 x 2048 x 4 / (12 x 28672).",
        ),
        derive=_often_claim,
        answer="ours",
        unit="ratio",
        traps=(
            Trap("the text's number", "ten", "at these sizes TP sends fewer bytes than FSDP."),
            Trap("FSDP over TP", "upside", "the ratio asked is TP over FSDP."),
        ),
        steps={
            "bytes": "8 (B/X) D against 12 D F/Y.",
            "compare": "What singles TP out is that it cannot be prefetched: each collective waits for the activations just computed.",
        },
        difficulty=3,
        tags=("claim", "comms"),
        claim="tp-traffic-10-100x",
        book="tp.traffic_over_fsdp(2048, 28672, 4)",
    ),
    Question(
        "tp.explain_inside",
        "explain",
        "Why does tensor parallelism usually stay inside the NVLink domain?",
        (
            "Two reasons: bandwidth, and where the collective stands in the step.",
            "F > Y C/W.",
            "Think of the critical path, message size, latency.",
        ),
        rubric=(
            Point("activations move in every layer, both passes", (r"(every|each|per) layer|activation",)),
            Point(
                "the collective is on the critical path and hard to overlap",
                (r"critical path|overlap|hide|depend|wait|block",),
            ),
            Point("the limit F > Y C/W falls with a slower network", (r"Y ?\*? ?C ?/ ?W|limit|threshold|bandwidth",)),
            Point("small messages become latency-bound", (r"latenc|small message",)),
        ),
        says=(
            "TP gathers activations in every layer and must wait for them: nothing else can run meanwhile. Inside the domain F > Y C/W allows "
            "about 13 ways on H100; across nodes the limit drops and latency is added.",
            "Bytes: 4BD forward per layer, whatever Y, while compute falls with Y, so F > Y C/W. With 450 GB/s and F = 28672, Y is at most 13; "
            "a domain has 8. Across nodes 400 GB/s per node would still allow 11 in the bandwidth limit, so bandwidth is not the whole "
            "story: TP collectives depend on activations just computed, so they cannot be prefetched like weights, and splitting "
            "further makes messages small, where latency rules. PP crosses nodes with far fewer bytes.",
            "Add numbers: for 8192 tokens of Llama 70B, 4BD is 268 MB, 0.6 ms at 450 GB/s, four times a layer over 80 layers. Exposed, that is "
            "a fifth of a second a step per microbatch. Sequence parallelism cuts activation memory, not bytes. An NVL72 rack moves the "
            "boundary: 72 GPUs at 900 GB/s, though alpha rises as the chip is faster, so Y is about 10 for the same F. On a torus, TP lives "
            "on one or two axes, 11 or 22 ways on v5p. Key-value heads are another limit: more ranks than heads means copies.",
        ),
        steps={"flops": "4BDF/Y.", "bytes": "4BD, on the critical path.", "knob": "Y < F W/C."},
        importance=5,
        minutes=4,
        tags=("concept", "aloud"),
    ),
    Question(
        "tp.estimate_comms",
        "estimate",
        "Without paper: milliseconds of TP forward collectives per layer for {tokens} tokens at D = {d_model} over {egress:B/s}? "
        "Add a 90% interval.",
        (
            "Which collectives does the forward pass of the layer have?",
            "4BD/W.",
            "B = {tokens}, D = {d_model}.",
        ),
        canonical={"model": "llama-3-405b", "cluster": "dgx-h100", "tokens": 8192, "degree": 8},
        draw={"model": DENSE, "cluster": NODES, "tokens": (4096, 8192, 32768)},
        derive=_bytes,
        answer="comms",
        unit="ms",
        traps=(Trap("both passes", "comms_back", "only forward was asked."),),
        steps={"bytes": "4 x {tokens} x {d_model}.", "rates": "/ {egress:B/s}."},
        minutes=1,
        tags=("estimate",),
    ),
    Question(
        "tp.code_times",
        "code",
        "Write a function of `d_ff`, `peak` and `egress` that returns the largest TP degree that stays compute-bound.",
        (
            "Set 4BDF/(YC) equal to 4BD/W.",
            "Y = F W/C.",
            "One line.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100"},
        draw={"model": DENSE, "cluster": NODES},
        derive=_degree,
        reference=tp.max_degree,
        arguments=("d_ff", "peak", "egress"),
        steps={"knob": "`def degree(d_ff, peak, egress): return d_ff * egress / peak`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
)
