"""Questions of the chapter on choosing a plan."""

from __future__ import annotations

from typing import Any

from scaling_lib import Job, ParallelPlan, cluster, decide, fsdp, hybrid, model
from scaling_lib.claims import claim
from scaling_lib.job import divisors
from scaling_lib.questions import Option, Point, Question, Trap


def _piped(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, node = c.chip.flops("bf16"), c.egress(10**5)
    flat = fsdp.critical_tokens(peak, node)
    have = p.batch / p.chips
    enough = [d for d in divisors(model(p.model).n_layers) if have >= flat / d]
    return {
        "flat": flat,
        "have": have,
        "layers": model(p.model).n_layers,
        "piped": flat / p.pp,
        "up": flat * p.pp,
        "needed": flat / have,
        "needed_up": have / flat,
        "smallest": float(enough[0]) if enough else float(model(p.model).n_layers),
        "card": c.domain * flat / have,
    }


def _micro(p: Any) -> dict[str, Any]:
    dp = p.chips // (p.tp * p.pp)
    m = p.batch / (dp * p.seq)
    return {
        "dp": dp,
        "count": m,
        "no_pp": p.batch / (p.chips // p.tp * p.seq),
        "no_dp": p.batch / p.seq,
        "no_tp": p.batch / (p.chips // p.pp * p.seq),
        "tokens": p.batch / dp,
    }


def _bubble(p: Any) -> dict[str, Any]:
    base = _micro(p)
    job = Job(
        model("llama-3-70b"), cluster("dgx-h100"),
        ParallelPlan(dp=base["dp"], tp=p.tp, pp=p.pp, zero=1, virtual_stages=p.v, schedule="interleaved"),
        p.chips, p.batch, p.seq,
    )  # fmt: skip
    share = decide.bubble(job)
    plain = (p.pp - 1) / (base["count"] + p.pp - 1)
    return {**base, "share": share, "plain": plain, "ideal": (p.pp - 1) / (p.v * base["count"])}


def _widest(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    flat = fsdp.critical_tokens(c.chip.flops("bf16"), c.egress(10**5))
    return {
        "flat": flat,
        "piped": flat / p.pp,
        "chips_most": p.batch * p.pp / flat,
        "no_pp": p.batch / flat,
        "upside": p.batch / (flat * p.pp),
        "card": p.batch * p.pp / (flat * c.domain),
    }


def _experts(p: Any) -> dict[str, Any]:
    m = model(p.model)
    moe = m.moe
    if moe is None:
        raise ValueError(f"{p.model} has no experts: draw a mixture of experts")
    stage = p.chips // p.pp
    return {
        "experts": moe.n_experts,
        "stage": stage,
        "groups": stage / p.ep,
        "each": moe.n_experts / p.ep,
        "every_stage": moe.n_experts / (p.ep * p.pp),
        "over_dp": moe.n_experts / stage,
        "used": moe.experts_per_token * 1.0,
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _hybrid_claim(p: Any) -> dict[str, Any]:
    c = cluster("dgx-h100")
    peak, inner = c.chip.flops("bf16"), c.levels[0].egress
    return {
        **_claim("hybrid-threshold-h100")(p),
        "egress": hybrid.critical_tokens(peak, 2 * inner, inner, 28672),
        "inner": fsdp.critical_tokens(peak, inner),
    }


PLAN = {
    "cluster": "dgx-h100",
    "model": "llama-3-70b",
    "batch": 4194304,
    "chips": 8960,
    "pp": 8,
    "tp": 8,
    "seq": 4096,
    "v": 5,
}
PLAN_DRAW = {
    "cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8"),
    "batch": (2097152, 4194304, 8388608),
    "chips": (4096, 8192),
    "pp": (4, 8, 16),
}

QUESTIONS = (
    Question(
        "decide.pp_threshold",
        "numeric",
        "{chips} GPUs of {cluster:cluster} with PP {pp} across nodes: how many tokens per GPU hide the weight and gradient traffic "
        "(many-node limit)?",
        ("A GPU holds 1/PP of the layers.", "C/(W_node p).", "{flat:token/chip|5} over {pp}."),
        canonical=PLAN,
        draw=PLAN_DRAW,
        derive=_piped,
        answer="piped",
        unit="token/chip",
        traps=(
            Trap("no pipeline", "flat", "each GPU moves only 1/{pp} of the layers."),
            Trap("the wrong way round", "up", "less traffic lowers the threshold."),
        ),
        steps={"bytes": "1/{pp} of the layers.", "compare": "{flat:token/chip|5} without.", "knob": "/ {pp}."},
        importance=5,
        minutes=2,
        tags=("threshold", "pipeline"),
        book="fsdp.critical_tokens(h100_peak, node_egress) / 8",
        needs=("peak", "network"),
    ),
    Question(
        "decide.pp_needed",
        "numeric",
        "{batch} tokens on {chips} GPUs of {cluster:cluster}, data parallel across nodes otherwise. Which PP makes the tokens per GPU just "
        "enough? (many-node limit, not rounded)",
        (
            "How many tokens does a GPU have, and how many would it need?",
            "p = (C/W_node)/(B/N).",
            "{flat:token/chip|5} over {have:token/chip}.",
        ),
        canonical=PLAN,
        draw=PLAN_DRAW,
        derive=_piped,
        answer="needed",
        unit="stage",
        traps=(
            Trap("the inverse", "needed_up", "fewer tokens need more stages."),
            Trap("one card for one GPU", "card", "a node sends with all its cards."),
        ),
        steps={
            "compare": "{have:token/chip} against {flat:token/chip|5}.",
            "knob": "Their ratio; take the next divisor of {layers} layers.",
        },
        importance=5,
        tags=("pipeline", "batch"),
        book="fsdp.critical_tokens(h100_peak, node_egress) / (4194304 / 8960)",
        needs=("peak", "network"),
    ),
    Question(
        "decide.smallest_pp",
        "numeric",
        "{batch} tokens on {chips} GPUs of {cluster:machine}, {model:model} ({layers} layers). Smallest PP that divides the layers and makes "
        "{have:token/chip} enough (many-node limit)?",
        (
            "How many stages at least, and which numbers of stages are possible?",
            "least d of L with C/(W_node d) <= B/N.",
            "ratio {needed}.",
        ),
        canonical=PLAN,
        draw=PLAN_DRAW,
        derive=_piped,
        answer="smallest",
        unit="stage",
        tolerance=0.001,
        steps={"compare": "{needed} stages at least.", "knob": "Next divisor of {layers}."},
        difficulty=3,
        tags=("pipeline",),
        book="decide.smallest_pp(with_plan(article_job, dp=1120, tp=8))",
        needs=("peak", "network"),
    ),
    Question(
        "decide.microbatches",
        "numeric",
        "{chips} GPUs, TP {tp} x PP {pp}, {batch} tokens a step, microbatches of one sequence of {seq} tokens. Microbatches per replica?",
        ("Replicas first.", "B/(dp x seq), dp = N/(Y p).", "dp = {dp}."),
        canonical={**PLAN, "tp": 4},
        draw={**PLAN_DRAW, "tp": (2, 4, 8), "seq": (2048, 4096)},
        derive=_micro,
        answer="count",
        unit="microbatch",
        traps=(
            Trap("PP forgotten", "no_pp", "a replica takes TP x PP GPUs."),
            Trap("one replica", "no_dp", "the batch is shared by {dp} replicas."),
            Trap("TP forgotten", "no_tp", "a replica takes TP x PP GPUs."),
        ),
        steps={"flops": "dp = {dp}, {tokens} tokens each.", "knob": "/ {seq}."},
        minutes=2,
        tags=("batch", "pipeline"),
    ),
    Question(
        "decide.bubble",
        "numeric",
        "{chips} GPUs, TP {tp} x PP {pp}, {v} chunks a device, {batch} tokens, sequences of {seq}: what share of the step is bubble?",
        ("Microbatches, then the closed form.", "(p-1)/(v m + p - 1).", "m = {count}."),
        canonical=PLAN,
        draw={"batch": (4194304, 8388608), "chips": (2048, 4096), "pp": (4, 8), "v": (2, 5), "seq": (4096,)},
        derive=_bubble,
        answer="share",
        unit="%",
        traps=(
            Trap("no interleaving", "plain", "{v} chunks shorten the idle slots {v} times."),
            Trap("over the ideal time", "ideal", "the share of the whole step was asked."),
        ),
        steps={"flops": "m = {count} a replica.", "knob": "({pp}-1)/({v} m + {pp} - 1)."},
        difficulty=3,
        tags=("bubble",),
    ),
    Question(
        "decide.order",
        "choice",
        "Tokens per GPU are below the threshold of the network between nodes, memory is fine, TP is 8. What is the next step?",
        ("Which knob lowers C/W_node?", "C/(W_node p).", "TP does not."),
        derive=lambda p: {"right": "pp"},
        answer="right",
        options=(
            Option("pp", "A pipeline across nodes, as small as suffices"),
            Option("tp", "TP 16", "It leaves the node and does not shrink what a node gathers."),
            Option("zero", "A higher ZeRO stage", "That saves memory and moves more, not fewer bytes."),
            Option("recompute", "Recomputation", "It saves memory, which was fine."),
        ),
        steps={"compare": "PP divides the traffic per token.", "knob": "PP = threshold over tokens, next divisor."},
        importance=4,
        minutes=1,
        tags=("flow",),
    ),
    Question(
        "decide.audit_fit",
        "audit",
        "Audit. A flow chart begins: 'Does the model fit one chip? Yes: FSDP alone. No: FSDP with TP.' What should the branch ask?",
        ("FSDP exists because models do not fit.", "B/N against C/W.", "When does TP help?"),
        derive=lambda p: {"right": "tokens"},
        answer="right",
        options=(
            Option("tokens", "Whether the tokens per chip exceed the threshold of the network the group runs on"),
            Option("fit", "It is right as it stands", "A model that does not fit one chip is what FSDP is for."),
            Option("layers", "Whether the layers divide by TP", "That is a constraint, not the decision."),
            Option("price", "Whether TP is cheaper", "Price does not enter here."),
        ),
        steps={"compare": "FSDP fits any model with enough chips; traffic decides what else is needed."},
        minutes=1,
        importance=4,
        tags=("claim", "flow"),
        claim="flowchart-fit",
    ),
    Question(
        "decide.audit_hybrid",
        "audit",
        "Audit. 'FSDP x TP on H100 needs alpha^2/(2F) = {said:token/chip}.' The nodes are joined by InfiniBand, 8 cards each. How many does it "
        "need?",
        ("Which assumption fails?", "C/W_node, whatever TP.", "The node gathers whole layers."),
        derive=_hybrid_claim,
        answer="ours",
        unit="token/chip",
        traps=(
            Trap("one fabric", "said", "X and Y are not free here, and W counts both directions."),
            Trap("one fabric with egress", "egress", "even with egress the formula is for one fabric."),
            Trap("NVLink's threshold", "inner", "the FSDP group leaves the node."),
        ),
        steps={"bytes": "4DF per node, whatever TP.", "knob": "C/W_node."},
        difficulty=3,
        importance=5,
        tags=("claim", "threshold"),
        claim="hybrid-threshold-h100",
        book="fsdp.critical_tokens(h100_peak, node_egress)",
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "decide.audit_no_pp",
        "audit",
        "Audit. '468 tokens per GPU is far above 21, so 8960 H100 need no pipeline.' What holds?",
        ("Against which threshold?", "2472.", "468 < 2472."),
        derive=lambda p: {"right": "needed"},
        answer="right",
        options=(
            Option("needed", "468 is below 2472: a pipeline is needed; PP 8 lowers the threshold to 309"),
            Option("right", "It is right, 468 > 21", "21 belongs to one homogeneous fabric."),
            Option("tp", "TP 8 makes it compute-bound", "TP leaves the node's gather unchanged."),
            Option("memory", "A pipeline is needed for memory", "Memory is fine at 8960 GPUs."),
        ),
        steps={"compare": "468 against 2472/PP.", "knob": "PP 8: 309."},
        importance=5,
        minutes=2,
        tags=("claim", "pipeline"),
        claim="no-pp-needed",
    ),
    Question(
        "decide.audit_grow",
        "audit",
        "Audit. A table says '32000 GPUs need a larger batch than 4M', though its own threshold is 21 tokens per GPU. What is inconsistent?",
        ("Compute tokens per GPU.", "4e6/32000 = 125.", "125 against 21."),
        derive=lambda p: {"right": "own"},
        answer="right",
        options=(
            Option(
                "own",
                "125 tokens are above its threshold of 21; the conclusion is right, but for a reason it does not give",
            ),
            Option("wrong", "The conclusion is wrong: no larger batch is needed", "Against 2472/PP it is needed."),
            Option("right", "Nothing, 125 < 21", "125 is more than 21."),
            Option("chips", "32000 is no multiple of 8", "It is."),
        ),
        steps={"compare": "125 > 21 by its rule; 125 < 2472 by ours."},
        minutes=1,
        importance=2,
        tags=("claim",),
        claim="b-must-grow",
    ),
    Question(
        "decide.audit_unique",
        "audit",
        "Audit. 'Put the numbers into the formulas and the answer is unique.' What does an exhaustive search show?",
        ("How sharp is the optimum?", "Count layouts within 5%.", "A plateau."),
        derive=lambda p: {"right": "plateau"},
        answer="right",
        options=(
            Option(
                "plateau", "Many layouts lie within a few percent of the best; constraints and taste choose among them"
            ),
            Option(
                "unique", "Exactly one, as the root is unique", "Degrees must be divisors, and the optimum is flat."
            ),
            Option("two", "Two: one for each network", "Far more are near the best."),
            Option("none", "None fits", "Many do."),
        ),
        steps={"compare": "Predicted step times near the best differ less than the model's error."},
        minutes=1,
        tags=("claim",),
        claim="unique-answer",
    ),
    Question(
        "decide.explain_plan",
        "explain",
        "Plan 70B on 1024 H100 with 4M tokens a step. Say the plan and why.",
        ("Tokens per GPU first.", "4096 against 2472.", "Then memory, then TP."),
        rubric=(
            Point("tokens per GPU: 4096, above 2472", (r"4,?096|4 ?k|tokens per gpu",)),
            Point("so FSDP (ZeRO-3) across nodes is compute-bound, no pipeline needed", (r"fsdp|zero",)),
            Point(
                "memory checked: state 1.1 GB, activations by recomputation or TP", (r"memory|hbm|recomput|activation",)
            ),
            Point("TP only inside the node, if needed", (r"tp|tensor",)),
        ),
        says=(
            "4M over 1024 GPUs is 4096 tokens each, above the 2472 of the network, so FSDP alone hides. State is 1.1 GB a GPU. Recompute or use a small TP "
            "for activations. No pipeline.",
            "Check in order. Tokens per GPU 4096 > 2472: FSDP over all nodes, MFU not capped. Memory: 16 x 70.55e9/1024 = 1.1 GB of state; one sequence of "
            "4096 a GPU with full recomputation keeps 5.4 GB of checkpoints; gathered layers 1.7 GB each. Fits. TP 2 or 4 if the microbatch should shrink. "
            "6 N_params T at 40%: 6.3e24/(1024 x 4e14) about 180 days for 15T tokens, so the real question is the number of GPUs.",
            "Then sensitivities. With TP 1 gathered layers are large, so prefetch costs memory; TP 2 halves that. HSDP inside 8 nodes would cut network "
            "traffic. Going to 8192 GPUs at the same batch leaves 512 tokens: PP 5 or more, or a larger batch. Failures: at 1024 GPUs one every two "
            "days, checkpoint every hour. Confirm with a profile on 16 GPUs: two nodes already show whether gathers overlap.",
        ),
        steps={"compare": "4096 against 2472 tokens per GPU.", "knob": "FSDP 1024, TP 1 to 4, PP 1."},
        difficulty=3,
        importance=5,
        minutes=5,
        tags=("flow", "aloud"),
    ),
    Question(
        "decide.estimate_pp",
        "estimate",
        "Without paper: which PP do {batch} tokens a step on {chips} GPUs of {cluster:machine} ask for? Add a 90% interval.",
        (
            "How many tokens would a GPU need without a pipeline, and how many has it?",
            "threshold over tokens per GPU.",
            "{flat:token/chip|5} over {have:token/chip}.",
        ),
        canonical={**PLAN, "chips": 4096, "batch": 2097152},
        draw=PLAN_DRAW,
        derive=_piped,
        answer="needed",
        unit="stage",
        traps=(Trap("one card for one GPU", "card", "all cards of a node send."),),
        steps={"compare": "{flat:token/chip|5} over {have:token/chip}."},
        minutes=1,
        tags=("estimate",),
    ),
    Question(
        "decide.most_chips",
        "numeric",
        "{batch} tokens a step on {cluster:cluster}, PP {pp} across nodes, sharded data parallelism besides. On how many GPUs at most does its "
        "traffic still hide (many-node limit, not rounded)?",
        (
            "Turn the threshold round.",
            "B/N >= C/(W_node p), so N = B p W_node/C.",
            "{piped:token/chip|5} are needed, {batch} are there.",
        ),
        canonical={"cluster": "dgx-h100", "batch": 4194304, "pp": 4},
        draw={
            "cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-8", "mi355x-8"),
            "batch": (2097152, 4194304, 8388608, 16777216),
            "pp": (2, 4, 16),  # not 8: as many as the cards of a node
        },
        derive=_widest,
        answer="chips_most",
        unit="GPU",
        traps=(
            Trap("no pipeline", "no_pp", "{pp} stages let {pp} times as many GPUs share the batch."),
            Trap("the wrong way round", "upside", "a pipeline lowers the tokens that a GPU needs, so more GPUs fit."),
            Trap("one card for one GPU", "card", "all cards of a node send."),
        ),
        steps={
            "compare": "{flat:token/chip|5} without a pipeline, {piped:token/chip|5} with it.",
            "knob": "{batch} / {piped:token/chip|5}.",
        },
        follow_ups=("Which is cheaper, a larger batch or a longer pipeline?",),
        difficulty=3,
        importance=5,
        tags=("batch", "pipeline", "whiteboard"),
        book="4194304 * 4 / fsdp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "decide.experts_per_chip",
        "numeric",
        "{model:model} ({experts} routed experts a layer) on {chips} GPUs: PP {pp} and expert parallelism {ep} inside each stage. "
        "How many routed experts of a layer does a GPU hold?",
        ("Which degree cuts a layer's experts?", "E/EP.", "{experts} over {ep}."),
        canonical={"model": "deepseek-v3", "chips": 2048, "pp": 16, "ep": 64},
        draw={
            "model": ("deepseek-v3", "qwen3-235b-a22b"),
            "chips": (1024, 2048, 4096),
            "pp": (4, 8, 16),
            "ep": (8, 16, 32, 64),
        },
        derive=_experts,
        answer="each",
        unit="expert",
        tolerance=0.001,
        traps=(
            Trap(
                "cut by the pipeline too",
                "every_stage",
                "a stage has its own layers, and their experts whole among its {ep} ranks.",
            ),
            Trap(
                "cut over the whole stage",
                "over_dp",
                "the {stage} GPUs of a stage are {groups} groups of {ep}, each with all experts.",
            ),
            Trap(
                "the experts a token uses", "used", "a token visits that many; a GPU holds its share of all {experts}."
            ),
        ),
        steps={"bytes": "A stage has {stage} GPUs: {groups} groups of {ep}.", "knob": "{experts} / {ep}."},
        follow_ups=("Which collective does expert parallelism add, and how often?",),
        tags=("moe", "layout"),
    ),
    Question(
        "decide.one_node",
        "choice",
        "You have one node of 8 x H100 (80 GB) and train Llama 3 8B with 16 bytes a parameter. What is the simplest plan that fits and is "
        "compute-bound at 64 thousand tokens a step?",
        (
            "State first, then tokens per GPU.",
            "16 N_params over 8, and B/N against C/W of NVLink.",
            "128 GB over 8 GPUs; 8192 tokens each against 2198.",
        ),
        derive=lambda p: {"right": "fsdp"},
        answer="right",
        options=(
            Option("fsdp", "FSDP over the 8 GPUs, with recomputation if the activations ask for it"),
            Option("dp", "Plain data parallelism", "128 GB of state do not fit one GPU of 80 GB."),
            Option("pp", "A pipeline of 8 stages", "It fits, but idles, and there is no slow network here to spare."),
            Option(
                "tp", "TP 8", "It fits, but pays collectives in every layer for no need: the tokens suffice for FSDP."
            ),
        ),
        steps={
            "bytes": "16 x 8.03e9 = 128 GB, 16 GB a GPU when sharded.",
            "compare": "8192 tokens per GPU, above 2198 on NVLink.",
            "knob": "FSDP 8, TP 1, PP 1.",
        },
        difficulty=1,
        importance=4,
        minutes=2,
        tags=("small", "flow"),
        canonical={"cluster": "dgx-h100"},
        needs=("peak", "network"),
    ),
    Question(
        "decide.code_pp",
        "code",
        "Write a function of `have` (tokens per GPU), `flat` (tokens per GPU needed without a pipeline) and `layers` that returns the smallest "
        "PP that divides the layers and suffices; all layers if none does.",
        ("Try the divisors in order.", "flat/d <= have.", "`next(d for d in range(1, layers + 1) if ...)`"),
        canonical=PLAN,
        draw=PLAN_DRAW,
        derive=_piped,
        reference=lambda have, flat, layers: next((d for d in divisors(layers) if have >= flat / d), layers),
        arguments=("have", "flat", "layers"),
        steps={
            "knob": "`def pp(have, flat, layers): return next((d for d in range(1, layers + 1) if layers % d == 0 and have >= flat / d), layers)`"
        },
        minutes=4,
        tags=("code", "pipeline"),
    ),
)
