"""Questions of the chapter on FSDP x TP."""

from __future__ import annotations

from typing import Any

from scaling_lib import Job, ParallelPlan, cluster, fsdp, hybrid, model
from scaling_lib.claims import claim
from scaling_lib.questions import Option, Point, Question, Trap

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "mi355x-8")
TORUS = ("tpu-v4", "tpu-v5p", "tpu-v7")
DENSE = ("llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b")


def _torus(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    peak, axis = c.chip.flops("bf16"), c.levels[0].egress
    x = hybrid.x_opt(p.batch, m.d_ff, p.chips, 2 * axis, axis)
    need = hybrid.critical_tokens(peak, 2 * axis, axis, m.d_ff)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "peak": peak,
        "axis": axis,
        "inside": p.batch / m.d_ff * 2 * p.chips,
        "x": x,
        "y": p.chips / x,
        "x_equal": hybrid.x_opt(p.batch, m.d_ff, p.chips, axis, axis),
        "x_upside": hybrid.x_opt(p.batch, m.d_ff, p.chips, axis, 2 * axis),
        "x_by_model": hybrid.x_opt(p.batch, m.d_model, p.chips, 2 * axis, axis),
        "need": need,
        "need_sum": hybrid.critical_tokens(peak, 2 * axis, axis, m.d_ff, "sum"),
        "need_one": hybrid.critical_tokens(peak, axis, axis, m.d_ff),
        "need_three": hybrid.critical_tokens(peak, 3 * axis, axis, m.d_ff),
        "pure": fsdp.critical_tokens(peak, axis, 3),
        "gain": fsdp.critical_tokens(peak, axis, 3) / need,
        "gain_one": fsdp.critical_tokens(peak, axis) / need,
        "gain_sum": fsdp.critical_tokens(peak, axis, 3) / hybrid.critical_tokens(peak, 2 * axis, axis, m.d_ff, "sum"),
    }


def _gpu(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    peak, node, inner = c.chip.flops("bf16"), c.egress(p.chips), c.levels[0].egress
    job = Job(m, c, ParallelPlan(dp=p.chips // p.tp, tp=p.tp), p.chips, p.chips * 512, 4096)
    return {
        "d_ff": m.d_ff,
        "peak": peak,
        "node": node,
        "groups": p.chips // p.tp,
        "need": fsdp.critical_tokens(peak, node),
        "formula": hybrid.critical_tokens(peak, inner, inner, m.d_ff),
        "shrunk": fsdp.critical_tokens(peak, node) / p.tp,
        "card": fsdp.critical_tokens(peak, c.levels[1].egress),
        "exact": hybrid.critical_batch(job) / p.chips,
    }


def _times(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    node, inner = c.egress(10**5), c.levels[0].egress
    x = p.chips // p.tp
    # FSDP over nodes: the tp slices of a node leave it side by side, so a slice has the egress of the node over tp
    gather = hybrid.t_fsdp(m.d_model, m.d_ff, p.tp, node / p.tp)
    tensor = hybrid.t_tp(p.batch, m.d_model, x, inner)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "x": x,
        "node": node,
        "inner": inner,
        "gather": gather,
        "tensor": tensor,
        "gather_sliced": gather / p.tp,
        "card": gather * c.domain,
        "tensor_all": tensor * x,
        "tensor_half": tensor / 2,
        "tensor_both": tensor * 2,
        "total": p.chips,
    }


def _pods(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    weights = 4.0 * model(p.model).d_model * model(p.model).d_ff
    return {
        "d_model": model(p.model).d_model,
        "d_ff": model(p.model).d_ff,
        "domain": c.domain,
        "sent": 2 * weights,
        "fsdp": 3 * weights,
        "once": weights,
        "slice": 2 * weights / c.domain,
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _per_device(p: Any) -> dict[str, Any]:
    return {**_claim("per-device-batch")(p), "rank": 4e6 / 2048}


DRAW = {"model": DENSE, "cluster": TORUS, "batch": (2097152, 4194304, 8388608), "chips": (1024, 2048, 4096)}
CANON = {"model": "llama-3-70b", "cluster": "tpu-v5p", "batch": 4194304, "chips": 8960}

QUESTIONS = (
    Question(
        "hybrid.x_opt",
        "numeric",
        "{chips} chips of {cluster:machine}, {batch} tokens, {model:model} (F = {d_ff}). FSDP runs on two torus axes, TP on one. "
        "Which FSDP degree X makes both collectives take equally long? (not rounded)",
        (
            "Write both times with Y = N/X.",
            "X = sqrt((B/F)(M_X/M_Y) N).",
            "(B/F) x 2 x N = {inside}.",
        ),
        canonical=CANON,
        draw=DRAW,
        derive=_torus,
        answer="x",
        unit="way",
        traps=(
            Trap("equal axes", "x_equal", "FSDP has two axes and TP one, so M_X/M_Y = 2."),
            Trap("axes the wrong way round", "x_upside", "more bandwidth for FSDP lets X grow."),
            Trap("the square", "inside", "take the root."),
            Trap("d_model for d_ff", "x_by_model", "weights are D x F and activations B x D, so F is left."),
        ),
        steps={
            "bytes": "FSDP 4DF/Y, TP 4BD/X, XY = {chips}.",
            "rates": "W_X = 2 x {axis:B/s}, W_Y = {axis:B/s}.",
            "compare": "4DF X/(N W_X) = 4BD/(X W_Y).",
            "knob": "X = sqrt({inside}).",
        },
        follow_ups=("Which degrees near it divide {chips}?",),
        difficulty=3,
        importance=5,
        tags=("tpu", "whiteboard"),
        book="hybrid.x_opt(4194304, llama.d_ff, 8960, 2 * v5p_axis, v5p_axis)",
    ),
    Question(
        "hybrid.y_opt",
        "numeric",
        "{chips} chips of {cluster:machine}, {batch} tokens, {model:model} (F = {d_ff}), two axes for FSDP and one for "
        "TP. Which TP degree goes with the best split? (not rounded)",
        (
            "Chips are shared between the two degrees. How?",
            "Y = N / sqrt((B/F)(M_X/M_Y) N).",
            "X = {x}.",
        ),
        canonical=CANON,
        draw=DRAW,
        derive=_torus,
        answer="y",
        unit="way",
        traps=(Trap("the FSDP degree", "x", "this is X; Y = N/X."),),
        steps={"compare": "X = {x}.", "knob": "{chips} / {x}."},
        minutes=2,
        tags=("tpu",),
    ),
    Question(
        "hybrid.threshold",
        "numeric",
        "On {cluster:machine} with {model:model} (F = {d_ff}), two axes for FSDP and one for TP at the best split: how many tokens "
        "per chip make it compute-bound, if the two collectives overlap each other?",
        (
            "Put X_opt into one of the two conditions.",
            "alpha^2/(M_X M_Y F).",
            "C = {peak:FLOP/s}, W = {axis:B/s}, M_X M_Y = 2.",
        ),
        canonical=CANON,
        draw={"model": DENSE, "cluster": TORUS},
        derive=_torus,
        answer="need",
        unit="token/chip",
        traps=(
            Trap(
                "collectives that add",
                "need_sum",
                "they overlap here; if they added, four times as many would be needed.",
            ),
            Trap("one axis each", "need_one", "FSDP uses two axes: M_X M_Y = 2."),
            Trap("FSDP alone", "pure", "TP shrinks the weights that FSDP must gather."),
        ),
        steps={
            "flops": "4BDF/N.",
            "bytes": "4DF/Y and 4BD/X, equal at X_opt.",
            "rates": "alpha = C/W.",
            "compare": "4BDF/(NC) against 4BD/(X W).",
            "knob": "alpha^2/(2F).",
        },
        difficulty=3,
        importance=5,
        tags=("threshold", "tpu"),
        book="hybrid.critical_tokens(peak_v5p, 2 * v5p_axis, v5p_axis, llama.d_ff)",
        needs=("peak", "network"),
    ),
    Question(
        "hybrid.threshold_sum",
        "numeric",
        "{cluster:machine}, {model:model} (F = {d_ff}), two axes for FSDP and one for TP at the best split, but the two collectives cannot overlap "
        "each other. How many tokens per chip make it compute-bound?",
        (
            "The sum of two equal times is twice one.",
            "4 alpha^2/(M_X M_Y F).",
            "The overlapped threshold is {need:token/chip}.",
        ),
        canonical=CANON,
        draw={"model": DENSE, "cluster": TORUS},
        derive=_torus,
        answer="need_sum",
        unit="token/chip",
        traps=(
            Trap("overlapped collectives", "need", "they add here."),
            Trap("FSDP alone", "pure", "TP shrinks the weights that FSDP must gather."),
        ),
        steps={
            "compare": "T_FSDP + T_TP = 2 T at X_opt, and the threshold grows with its square.",
            "knob": "4 x {need:token/chip}.",
        },
        difficulty=4,
        tags=("threshold", "tpu"),
        book="hybrid.critical_tokens(peak_v5p, 2 * v5p_axis, v5p_axis, llama.d_ff, 'sum')",
        needs=("peak", "network"),
    ),
    Question(
        "hybrid.gain",
        "numeric",
        "By what factor does the best FSDP x TP split lower the threshold of FSDP on three axes? ({cluster:machine}, {model:model}, "
        "F = {d_ff}, overlapped)",
        (
            "Two thresholds, one ratio.",
            "(alpha/3) / (alpha^2/(2F)).",
            "{pure:token/chip} against {need:token/chip}.",
        ),
        canonical=CANON,
        draw={"model": DENSE, "cluster": ("tpu-v4", "tpu-v5p")},
        derive=_torus,
        answer="gain",
        unit="ratio",
        traps=(
            Trap("FSDP on one axis", "gain_one", "pure FSDP uses all three axes."),
            Trap("collectives that add", "gain_sum", "they overlap here."),
        ),
        steps={"compare": "{pure:token/chip} against {need:token/chip}.", "knob": "2F/(3 alpha)."},
        minutes=2,
        tags=("tpu",),
        needs=("peak", "network"),
    ),
    Question(
        "hybrid.gpu_threshold",
        "numeric",
        "{chips} GPUs of {cluster:cluster}: TP {tp} inside the nodes, FSDP {groups} across them, {model:model}. How many tokens per "
        "GPU does the FSDP traffic need to hide (many-node limit)?",
        (
            "What must a node gather in all, with and without TP?",
            "C/W_node, whatever Y.",
            "{tp} slices of 1/{tp} of the weights still enter each node.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 8960, "tp": 8},
        draw={
            "model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"),
            "cluster": NODES,
            "chips": (1024, 2048, 4096),
            "tp": (2, 4, 8),
        },
        derive=_gpu,
        answer="need",
        unit="token/chip",
        traps=(
            Trap(
                "the formula of one fabric",
                "formula",
                "alpha^2/F takes X and Y to be free on one network; here Y is at most a node.",
            ),
            Trap(
                "a slice for each node",
                "shrunk",
                "each TP rank gathers its own slice, and a node holds {tp} of them: together the whole.",
            ),
            Trap("one card for one GPU", "card", "all cards of a node carry the gathers."),
        ),
        steps={
            "bytes": "A node gathers {tp} slices of 4DF/{tp}: 4DF, as without TP.",
            "rates": "W_node = {node:B/s}.",
            "compare": "Its GPUs compute 4BDF/N each.",
            "knob": "C/W_node.",
        },
        follow_ups=("Which kind of parallelism does lower it?",),
        difficulty=4,
        importance=5,
        tags=("threshold", "gpu", "hierarchy"),
        book="fsdp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "hybrid.tp_time",
        "numeric",
        "FSDP x TP {tp} on {chips} GPUs of {cluster:machine}, {batch} tokens of {model:model} (D = {d_model}). How many ms do the "
        "forward TP collectives of one layer take in a step (many-chip limit)?",
        (
            "Tokens of one FSDP rank.",
            "4 (B/X) D/W.",
            "X = {x}, W = {inner:B/s}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "batch": 4194304, "chips": 1024, "tp": 8},
        draw={
            "model": DENSE,
            "cluster": NODES,
            "batch": (1048576, 2097152, 4194304),
            "chips": (512, 1024),
            "tp": (4, 8),
        },
        derive=_times,
        answer="tensor",
        unit="ms",
        traps=(
            Trap("the whole batch", "tensor_all", "a TP group works on the tokens of its FSDP rank."),
            Trap("one collective", "tensor_half", "forward has a gather and a reduce-scatter."),
            Trap("both passes", "tensor_both", "only the forward pass was asked."),
        ),
        steps={"bytes": "4 x {batch}/{x} x {d_model}.", "rates": "/ {inner:B/s}."},
        tags=("comms", "gpu"),
        needs=("network",),
    ),
    Question(
        "hybrid.what_shrinks",
        "choice",
        "You add TP 8 inside each H100 node under FSDP across nodes. Which traffic of the network cards shrinks?",
        (
            "What enters a node during a gather?",
            "8 slices of 1/8.",
            "Sum over the GPUs of a node.",
        ),
        derive=lambda p: {"right": "none"},
        answer="right",
        options=(
            Option(
                "eight",
                "It falls by 8, as each GPU gathers 1/8",
                "Each GPU does, but there are 8 of them with different slices.",
            ),
            Option("none", "None: the node still gathers the whole layer"),
            Option("two", "It halves, as activations stay inside", "Activations never crossed nodes here."),
            Option("grows", "It grows by the TP traffic", "TP traffic stays on NVLink."),
        ),
        steps={"bytes": "8 x (4DF/8) = 4DF per node.", "compare": "Same as without TP."},
        difficulty=3,
        importance=4,
        minutes=2,
        tags=("hierarchy", "concept"),
    ),
    Question(
        "hybrid.audit_x_opt",
        "audit",
        "Audit. 'For B = 4e6, N = 8960, F = 28672: X = sqrt(4e6/28672 x 2 x 8960) = sqrt(2498) = {said}.' What is X?",
        (
            "Work out the inside of the root.",
            "sqrt((B/F) 2 N).",
            "4e6/28672 = 139.5.",
        ),
        derive=_claim("x-opt-value"),
        answer="ours",
        unit="way",
        tolerance=0.004,
        traps=(Trap("another batch", "said", "this belongs to 4.19e6 tokens."),),
        steps={"knob": "139.5 x 2 x 8960 = 2.5e6, not 2498; its root is 1581."},
        minutes=2,
        tags=("claim",),
        claim="x-opt-value",
        book="hybrid.x_opt(4e6, 28672, 8960, 2, 1)",
    ),
    Question(
        "hybrid.audit_product",
        "audit",
        "Audit. 'FSDP 2048 x TP 4 on {said} chips.' How many chips does the layout use?",
        ("What must the degrees of a layout make together?", "X Y.", "2048 x 4."),
        derive=_claim("layout-product"),
        answer="ours",
        unit="chip",
        tolerance=0.001,
        traps=(Trap("the text's number", "said", "8960 = 2240 x 4; degrees must multiply to the chips."),),
        steps={"knob": "2048 x 4; 8960 would be 2240 x 4 or 1120 x 8."},
        difficulty=1,
        minutes=1,
        tags=("claim",),
        claim="layout-product",
        book="2048 * 4",
    ),
    Question(
        "hybrid.audit_per_device",
        "audit",
        "Audit. 'FSDP 2048 x TP 4, 4e6 tokens: per-device batch about {said} tokens, safely above 113 tokens per chip.' How many tokens "
        "per chip are there over the 8960 chips it plans with?",
        (
            "Which of B/X and B/N does the threshold use?",
            "B/N.",
            "4e6/8960.",
        ),
        derive=_per_device,
        answer="ours",
        unit="token/chip",
        traps=(Trap("tokens per FSDP rank", "rank", "4 chips share a rank, and the threshold counts chips."),),
        steps={"compare": "4e6/2048 is B/X; the threshold is in B/N.", "knob": "4e6/8960."},
        minutes=2,
        tags=("claim",),
        claim="per-device-batch",
        book="4e6 / 8960",
    ),
    Question(
        "hybrid.audit_layout",
        "audit",
        "Audit. 'Meta trained the 70B with DP 1024, SP 2, TP 8.' What is wrong?",
        (
            "Multiply, then look for the source.",
            "1024 x 2 x 8.",
            "Which layouts did Meta publish?",
        ),
        derive=lambda p: {"right": "unpublished"},
        answer="right",
        options=(
            Option(
                "unpublished",
                "No layout of the 70B was published; the 405B ran TP 8, PP 16, DP 64 or 128, and the product is 16384, not 8960",
            ),
            Option("order", "TP 8 must come before SP 2", "The order of ranks changes links, not the attribution."),
            Option("nothing", "Nothing, it is close to the optimum", "A coincidence with a formula is no source."),
            Option("sp", "Sequence parallelism cannot be combined with DP", "It can."),
        ),
        steps={"knob": "1024 x 2 x 8 = 16384; the report gives layouts for the 405B alone."},
        minutes=1,
        importance=2,
        tags=("claim", "reported"),
        claim="meta-layout",
    ),
    Question(
        "hybrid.explain_fabric",
        "explain",
        "The formula B/N > alpha^2/(M_X M_Y F) works on a TPU pod. Why does it fail on H100 nodes joined by InfiniBand?",
        (
            "Which assumption lets X and Y be chosen freely?",
            "W_X and W_Y belong to different networks, Y is at most a node.",
            "What does a node gather with TP inside?",
        ),
        rubric=(
            Point(
                "it assumes one homogeneous fabric",
                (r"homogen|one fabric|same (network|fabric|bandwidth)|single fabric",),
            ),
            Point("Y is bounded by the domain", (r"(Y|TP).*(<=|≤|at most|limit|bound|cap|8)",)),
            Point(
                "TP inside a node leaves the node's gather unchanged",
                (r"(node|gather).*(same|unchanged|whole|still|not shrink)",),
            ),
            Point("the threshold stays C/W_node", (r"W_?node|2,?47\d|node('s)? egress",)),
        ),
        says=(
            "It assumes one fabric where X and Y are free. On H100, TP ends at 8 and uses another network, and a node still gathers whole "
            "layers whatever TP does inside. So the threshold stays C/W_node, 2472 tokens per GPU.",
            "On a torus TP takes 1/Y of the weights off each FSDP group, and both groups run on like links, so at X_opt the times are equal and "
            "the threshold falls to alpha^2/(M_X M_Y F), 113 on v5p. On GPUs each TP rank gathers its own slice through its own card; the "
            "eight slices of a node are the whole layer. FSDP time is 4DF/W_node either way. What lowers it is PP: a GPU then holds 1/PP "
            "of the layers.",
            "Derive it. Node gather time: Y slices of 4DF/Y over G cards of W_nic: 4DF/(G W_nic), independent of Y for Y <= G. Compute per GPU: "
            "4BDF/(NC). Compute-bound iff B/N > C/(G W_nic) = 2472. The text's 21 comes from putting NVLink's alpha into the torus formula. "
            "An NVL72 rack sends 72 x 50e9, as much as nine nodes, so C/W_domain falls to about 700 tokens although its chips are 2.5 times as fast; "
            "smaller jobs never leave the rack. With PP spanning nodes the threshold divides by PP.",
        ),
        steps={"bytes": "4DF per node, whatever Y.", "compare": "4BDF/(NC) against 4DF/W_node.", "knob": "C/W_node."},
        difficulty=4,
        importance=5,
        minutes=5,
        tags=("concept", "aloud"),
    ),
    Question(
        "hybrid.estimate_x",
        "estimate",
        "Without paper: the best FSDP degree for {batch} tokens on {chips} chips at F = {d_ff}, two axes for FSDP and one for TP? Add a "
        "90% interval.",
        ("Which two times does the best split make equal?", "sqrt(2 B N/F).", "2 x {batch} x {chips} / {d_ff}."),
        canonical=CANON,
        draw=DRAW,
        derive=_torus,
        answer="x",
        unit="way",
        traps=(Trap("the square", "inside", "take the root."),),
        steps={"knob": "sqrt({inside})."},
        minutes=1,
        tags=("estimate",),
    ),
    Question(
        "hybrid.gather_time",
        "numeric",
        "FSDP across nodes of {cluster:machine} with TP {tp} inside, {model:model} (D = {d_model}, F = {d_ff}). How many ms does the forward gather of one "
        "two-matmul layer take (many-node limit)?",
        (
            "What enters a node?",
            "4DF/W_node, whatever TP.",
            "4 x {d_model} x {d_ff} over {node:B/s}.",
        ),
        canonical={"model": "llama-3-405b", "cluster": "dgx-b200", "batch": 4194304, "chips": 1152, "tp": 8},
        draw={"model": DENSE, "cluster": (*NODES, "gb200-nvl72"), "chips": (576, 1152, 2304), "tp": (2, 4, 8)},
        derive=_times,
        answer="gather",
        unit="ms",
        traps=(
            Trap("a slice for each node", "gather_sliced", "the {tp} slices that TP makes all enter the node."),
            Trap("one card for one GPU", "card", "all cards of a node carry the gather."),
        ),
        steps={"bytes": "4DF, in {tp} slices.", "rates": "W_node = {node:B/s}."},
        difficulty=3,
        importance=4,
        tags=("comms", "gpu", "hierarchy"),
        book="4 * model('llama-3-405b').d_model * model('llama-3-405b').d_ff / 400e9",
        needs=("network",),
    ),
    Question(
        "hybrid.hsdp_bytes",
        "numeric",
        "Weights are sharded inside each node of {cluster:machine} and replicated across nodes (HSDP), {model:model} (D = {d_model}, F = {d_ff}). How "
        "many MB does a node send to others for one two-matmul layer in a step (many nodes)?",
        (
            "Which collectives leave the node?",
            "Only the gradient all-reduce: 2 x 4DF.",
            "8 x {d_model} x {d_ff}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100"},
        draw={"model": DENSE, "cluster": (*NODES, "gb200-nvl72")},
        derive=_pods,
        answer="sent",
        unit="MB",
        traps=(
            Trap("FSDP over all nodes", "fsdp", "here the two gathers of weights stay inside the node."),
            Trap("sent once", "once", "an all-reduce among many sends everything twice."),
            Trap("one GPU", "slice", "each of {domain} GPUs sends its slice; a node sends all of them."),
        ),
        steps={
            "bytes": "Gathers stay inside; {domain} slices of gradients are all-reduced: 2 x 4DF.",
            "compare": "FSDP over all nodes sends 12DF.",
        },
        follow_ups=("What does it cost in memory?",),
        tags=("comms", "gpu", "hierarchy"),
        book="8 * llama.d_model * llama.d_ff",
    ),
    Question(
        "hybrid.code",
        "code",
        "Write a function of `batch`, `d_ff`, `chips`, `w_x` and `w_y` (egress of the FSDP and the TP axes) that returns the FSDP degree at which "
        "both collectives take equally long.",
        ("Write both times with Y = N/X.", "X = sqrt((B/F)(W_X/W_Y) N).", "One line."),
        canonical={**CANON, "axes": 2},
        draw=DRAW,
        derive=lambda p: {**_torus(p), "w_x": p.axes * _torus(p)["axis"], "w_y": _torus(p)["axis"]},
        reference=hybrid.x_opt,
        arguments=("batch", "d_ff", "chips", "w_x", "w_y"),
        steps={"knob": "`def x(batch, d_ff, chips, w_x, w_y): return (batch / d_ff * w_x / w_y * chips) ** 0.5`"},
        minutes=3,
        tags=("code", "tpu"),
    ),
)
