"""The ten interview questions, each with spoken answers of three lengths, a rubric and follow-ups."""

from __future__ import annotations

from typing import Any

from scaling_lib import budget, cluster, fsdp, hybrid, model, n_params, pp, recipe, tp
from scaling_lib.questions import Point, Question


def _numbers(p: Any) -> dict[str, Any]:
    """What the spoken answers quote, computed."""
    m, h, v = model("llama-3-70b"), cluster("dgx-h100"), cluster("tpu-v5p")
    peak, inner, node, card = h.chip.flops("bf16"), h.levels[0].egress, h.egress(10**5), h.levels[1].egress
    v_peak, axis = v.chip.flops("bf16"), v.levels[0].egress
    run = budget.reported("llama-3-70b")
    flops = budget.train_flops(n_params(m), run.tokens)
    days = budget.seconds(flops, 16000, peak, 0.4)
    return {
        "params": n_params(m),
        "inner": inner,
        "node": node,
        "card": card,
        "nvlink": fsdp.critical_tokens(peak, inner),
        "across": fsdp.critical_tokens(peak, node),
        "tp_h100": tp.max_degree(m.d_ff, peak, inner),
        "tp_nodes": tp.max_degree(m.d_ff, peak, node),
        "tp_v5p": tp.max_degree(m.d_ff, v_peak, axis),
        "need_v5p": hybrid.critical_tokens(v_peak, 2 * axis, axis, m.d_ff),
        "x_opt": hybrid.x_opt(4e6, m.d_ff, 8960, 2 * axis, axis),
        "state": n_params(m) * recipe("bf16").total,
        "state_chips": n_params(m) * recipe("bf16").total / h.chip.hbm,
        "flops": flops,
        "days": days,
        "hours40": budget.chip_seconds(flops, peak, 0.4),
        "hours": run.chip_seconds,
        "mfu": budget.mfu(flops, run.chip_seconds, peak),
        "days_reported": run.chip_seconds / 16384,
        "bubble": pp.bubble_of_total(8, 32),
        "bubble4": pp.bubble_of_total(8, 32, 4),
        "pp8": fsdp.critical_tokens(peak, node) / 8,
    }


COMMON = {"kind": "explain", "derive": _numbers, "difficulty": 3, "importance": 5, "minutes": 5}

QUESTIONS = (
    Question(
        "interview.q1_four_strategies",
        prompt="Q1. What sets DP, FSDP, TP and PP apart?",
        hints=(
            "Say what is cut and what travels.",
            "In[B_X, D] Win[D_X, F_Y].",
            "Weights, activations, or activations between stages.",
        ),
        rubric=(
            Point("DP cuts the batch, gradients travel", (r"(dp|data).*(batch|replic|gradient)",)),
            Point(
                "FSDP also cuts weights and state; they are gathered when used",
                (r"(fsdp|zero).*(weight|shard|gather|state)",),
            ),
            Point(
                "TP cuts the width; activations travel in every layer",
                (r"(tp|tensor).*(activation|width|d_ff|\bF\b|matri)",),
            ),
            Point(
                "PP cuts the layers; activations pass between neighbours, at the price of a bubble",
                (r"(pp|pipelin).*(layer|stage|bubble)",),
            ),
        ),
        says=(
            "DP cuts the batch and reduces gradients. FSDP cuts the state too and gathers weights when needed. TP cuts each matrix and moves activations. PP "
            "cuts the depth and hands activations to the next stage.",
            "In notation: DP In[B_X, D] W[D, F]; FSDP In[B_X, D] W[D_X, F]; TP In[B, D_Y] W[D, F_Y]; PP gives each device L/p layers. Traffic: 8DF, "
            "12DF, 8BD/X per layer, and 2BD/X a boundary between stages. Thresholds: tokens per chip over C/W for the first two, F over Y C/W for TP, "
            "microbatches for PP. They compose: TP inside the node, PP or FSDP across, DP outermost.",
            "Add what each does to memory: DP none, FSDP state by X, TP weights and activations by Y with sequence parallelism, PP weights by p while 1F1B holds "
            "p microbatches on the first stage. And to latency: DP traffic can wait for the whole backward pass, FSDP can prefetch, TP waits in every "
            "layer, PP sends point to point. Then limits: batch for DP and FSDP ({across:token/chip} across H100 nodes), F for TP ({tp_h100} ways on "
            "NVLink), layers and microbatches for PP. Expert and context parallelism are the fifth and sixth.",
        ),
        steps={
            "bytes": "DP 8DF; FSDP 12DF; TP 8BD/X; PP 2BD/X a boundary.",
            "compare": "What is cut decides what travels.",
        },
        follow_ups=(
            "Which of them needs a large batch?",
            "Which can be overlapped, and with what?",
            "How do they combine on 4096 GPUs?",
        ),
        tags=("aloud", "concept"),
        **COMMON,
    ),
    Question(
        "interview.q2_fsdp_or_dp",
        prompt="Q2. FSDP and DP move similar amounts of data. Why use FSDP?",
        hints=("What does each chip hold?", "16 N_params against 16 N_params/X.", "12DF against 8DF, same threshold."),
        rubric=(
            Point("memory: state divided by X", (r"memory|state|1/|16",)),
            Point("bytes are 1.5 times, not equal", (r"1\.5|half (as|more)|12 ?DF|three",)),
            Point(
                "the threshold is equal as the extra gather hides behind forward", (r"forward|hide|threshold|overlap",)
            ),
        ),
        says=(
            "For memory: 16 bytes a parameter become 16/X. It moves half as many bytes again, but the extra gather hides behind forward compute, so the "
            "threshold is the same.",
            "Llama 70B has {state:GB} of state: no chip holds it. FSDP over X chips leaves 16 N_params/X. An all-reduce is a reduce-scatter and an all-gather, 8DF; FSDP "
            "gathers forward and backward and reduce-scatters: 12DF. Forward 4BDF/XC against 4DF/W, backward twice both, so B/X > C/W as for DP.",
            "When DP all the same: small models, ZeRO-1 under a pipeline where gathers per microbatch would multiply, or slow networks. Between them: ZeRO-1 "
            "shards the optimizer at DP's bytes, ZeRO-2 the gradients; HSDP shards inside a node or pod and replicates outside. Cost of FSDP in memory: "
            "gathered layers in flight. With accumulation the gathers repeat for each microbatch. The threshold across H100 nodes is {across:token/chip}.",
        ),
        steps={"bytes": "8DF against 12DF.", "compare": "Equal thresholds per pass.", "knob": "State 16 N_params/X."},
        follow_ups=("When is ZeRO-1 the better choice?", "What does reshard_after_forward=False trade?"),
        tags=("aloud", "memory"),
        **COMMON,
    ),
    Question(
        "interview.q3_tp_inside",
        prompt="Q3. Why must TP stay inside the machine?",
        hints=("Bandwidth is one reason, not the whole.", "F > Y C/W.", "Where does the collective stand in the step?"),
        rubric=(
            Point(
                "activations in every layer, on the critical path", (r"every layer|each layer|critical|overlap|wait",)
            ),
            Point("the width limit F > Y C/W", (r"C ?/ ?W|F ?>|width|limit",)),
            Point(
                "the honest number: across nodes bandwidth alone would allow about 11",
                (r"11|latenc|small message|not (only )?bandwidth",),
            ),
            Point("PP crosses nodes with fewer bytes", (r"pp|pipelin",)),
        ),
        says=(
            "Its collectives sit on the critical path of every layer and cannot be prefetched. On NVLink F > Y C/W allows {tp_h100} ways: the 8 of a "
            "node fit, the 16 of two nodes do not. Across nodes latency and exposed time come on top.",
            "Forward 4BD bytes against 4BDF/Y FLOPs, so Y < F W/C. With egress {inner:B/s} that is {tp_h100} for F = 28672, so 8 fits. A node sends "
            "{node:B/s} with all its cards, not one card's {card:B/s}, so the bound falls to {tp_nodes}, not to 1, but two nodes have 16. What settles it in "
            "practice: the collective depends on activations just made, messages shrink with Y, and PP is far cheaper across nodes.",
            "Correct two common slips: 900 GB/s is both directions, egress is half; and 316 thousand for F at TP 16 uses one card for a GPU, the node's figure is "
            "39560. For exactly two nodes the cards ask for 19780 only, but NVLink inside for 30769, more than Llama 70B has. Then: sequence parallelism does not change bytes; async TP splits the matmul to "
            "overlap partly; NVL72 widens the domain to 72. On TPUs TP spans one or two torus axes, {tp_v5p} ways each on v5p.",
        ),
        steps={"flops": "4BDF/Y.", "bytes": "4BD.", "knob": "Y < F W/C, then latency."},
        follow_ups=("What changes on an NVL72 rack?", "How many microseconds is one TP collective of your layer?"),
        tags=("aloud", "hierarchy"),
        **COMMON,
    ),
    Question(
        "interview.q4_tp_batch",
        prompt="Q4. Why does TP's condition not contain the batch?",
        hints=("Write both sides.", "4BDF/(YC) against 4BD/W.", "What cancels?"),
        rubric=(
            Point("activations and FLOPs both grow with B", (r"both|proportional|grow|cancel",)),
            Point("F, Y, C, W are left", (r"\bF\b|width|d_ff",)),
            Point("so it helps at small batch", (r"small batch|inference|decode|independent",)),
        ),
        says=(
            "What it moves, activations, grows with B just as its FLOPs do, so B cancels: F > Y C/W.",
            "4BDF/(YC) > 4BD/W. Against DP, where weights move and only FLOPs grow with B. So TP works at any batch, and no batch repairs a TP degree that is too "
            "wide: only a wider model or a faster link does.",
            "In the limit of very small B it changes: latency stops shrinking, matmuls become bound by HBM and the chip's efficiency falls. In decode weights are "
            "read for few tokens, so TP is used to share the HBM reads, not because it is compute-bound. In the hybrid the batch comes back through X_opt.",
        ),
        steps={"flops": "4BDF/Y.", "bytes": "4BD.", "compare": "B cancels."},
        follow_ups=("Is TP compute-bound in decoding?", "Where does the batch return?"),
        tags=("aloud",),
        **COMMON,
    ),
    Question(
        "interview.q5_best_split",
        prompt="Q5. How do you choose the split of FSDP and TP?",
        hints=("Balance two times.", "X = sqrt((B/F)(W_X/W_Y) N).", "On GPUs Y is at most the domain."),
        rubric=(
            Point("equal times give X_opt", (r"equal|balance|sqrt|root|X_?opt",)),
            Point("more batch, more FSDP; wider, more TP; grows with the root of N", (r"root|batch|wider|width",)),
            Point("holds on one fabric only", (r"fabric|torus|homogen|tpu",)),
            Point("on GPU clusters TP <= 8 and the threshold stays C/W_node", (r"8|node|domain",)),
        ),
        says=(
            "On one fabric set the two times equal: X = sqrt((B/F)(W_X/W_Y)N). On GPUs the fabric is not one: TP within the node as far as needed, FSDP across, and the "
            "threshold across nodes stays C/W_node.",
            "4DF/(Y W_X) = 4BD/(X W_Y), XY = N. For 4e6 tokens on 8960 v5p X is {x_opt}, so 1120 x 8 or 2240 x 4; the threshold falls to "
            "{need_v5p:token/chip}. The optimum is flat. On H100 a node gathers whole layers whatever TP does: {across:token/chip}. There TP is chosen "
            "for activations and microbatch size, PP for the network.",
            "State the assumptions: max or sum of the two times (a factor of four in the threshold), free factorisation, torus axes. Then constraints: degrees divide heads, "
            "layers, chips. Then GPUs: TP up to 8, PP as small as makes B/N > C/(W_node p): {pp8:token/chip} at PP 8. Then search around it: many "
            "layouts within 5%, choose the simplest. Llama 405B took TP 8, PP 16; no layout of the 70B is published.",
        ),
        steps={
            "bytes": "4DF/Y and 4BD/X.",
            "compare": "Equal at X_opt.",
            "knob": "X = sqrt((B/F)(W_X/W_Y)N), on one fabric.",
        },
        follow_ups=("What if the two collectives cannot overlap?", "Why is the optimum flat?"),
        tags=("aloud",),
        **COMMON,
    ),
    Question(
        "interview.q6_pp_gpu",
        prompt="Q6. Why does PP matter more on GPUs than on TPUs?",
        hints=("Compare domains.", "C/(W_node p).", "8 or 72 GPUs against thousands of TPUs."),
        rubric=(
            Point("a GPU's fast domain is small (8, or 72)", (r"8|72|domain|nvlink",)),
            Point("a TPU pod is a torus of thousands (not all to all)", (r"torus|pod|axis",)),
            Point(
                "PP divides the gradient and weight traffic per GPU",
                (r"(pp|pipelin|stage).*(traffic|gradient|threshold|layers|bytes)",),
            ),
            Point("PP sends little, point to point", (r"point|p2p|neighbour|neighbor|activation",)),
        ),
        says=(
            "A GPU's fast domain ends at 8, so data parallelism runs over node egress and needs {across:token/chip}; PP divides that by its stages. A TPU pod "
            "offers thousands of chips on one torus, where FSDP x TP gets down to {need_v5p:token/chip}.",
            "Across nodes a GPU has 50 of 450 GB/s, a ninth, though hierarchically a node sends 400. So TP stops at 8, and TP does not lower the node's "
            "gather. PP does: each GPU holds 1/p of the layers and the traffic per token falls p times. Between stages only B D activations move, once.",
            "TPU ICI is no all-to-all: six neighbours, TP ends at {tp_v5p} ways an axis on v5p. But three axes serve FSDP and TP together inside 8960 chips. PP costs a bubble, "
            "uneven first and last stages, and code; TPU users pay it only across pods. NVL72 shifts the line: 72 GPUs in a domain.",
        ),
        steps={"compare": "Domain 8 against a pod of thousands.", "knob": "Threshold C/(W_node p)."},
        follow_ups=("What would make you use PP on TPUs?", "Why is 'InfiniBand is 20 times slower' wrong?"),
        tags=("aloud", "pipeline"),
        **COMMON,
    ),
    Question(
        "interview.q7_bubble",
        prompt="Q7. How do you shrink the pipeline bubble?",
        hints=("Which letters does it have?", "(p-1)/(v m + p - 1).", "m, v, order of work."),
        rubric=(
            Point("more microbatches", (r"microbatch",)),
            Point("interleaving: v groups of whole layers a device", (r"interleav|chunk|virtual",)),
            Point("1F1B keeps the bubble but cuts memory", (r"1f1b.*(memory|same)|memory",)),
            Point(
                "zero-bubble schedules split the backward pass", (r"zero.?bubble|zb|dualpipe|weight gradient|split",)
            ),
        ),
        says=(
            "More microbatches, interleaving, or splitting the backward pass: (p-1)/(v m + p - 1). 1F1B has GPipe's bubble but holds p microbatches instead of m.",
            "p = 8, m = 32: {bubble:%}; with four chunks {bubble4:%}, for more p2p and a little more memory. ZB-H1 fills in weight gradients: (p-1)(t_F + t_B - t_W). "
            "ZB-H2 and ZB-V go on to none by the device's own clock. DualPipe: (p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W) at two copies of the weights; ω is the time of a forward and a backward run as a pair, over their sum.",
            "Limits of m: the global batch, m = B/(dp seq), so more GPUs mean fewer microbatches; kernels want tokens. At a fixed batch more microbatches do not "
            "raise memory. State ratio and clock. Also fewer stages: PP as small as the network allows. Balance the ends: embedding and head. Compare "
            "schedules by simulated makespan with real times and p2p delay.",
        ),
        steps={"compare": "(p-1)/(v m + p - 1).", "knob": "m, v, or ZB."},
        follow_ups=("What stops you from raising m?", "Which clock does 'zero bubble' use?"),
        tags=("aloud", "pipeline", "bubble"),
        **COMMON,
    ),
    Question(
        "interview.q8_how_long",
        prompt="Q8. How long does 70B on 15T tokens take with 16 thousand H100?",
        hints=("Rule of six.", "6 N_params T/(N C MFU).", "Then compare with the model card."),
        rubric=(
            Point("6.35e24 FLOPs", (r"6\.3|6 ?N",)),
            Point("about 12 days at 40% MFU", (r"1[12](\.\d+)? days|11\.6|40 ?%",)),
            Point("reported: 6.4 million GPU-hours, 16 days, 28% MFU", (r"6\.4|28 ?%|16(\.\d)? days",)),
            Point("54 days belongs to the 405B", (r"54|405",)),
        ),
        says=(
            "{flops:FLOP} over 16000 x 989e12 x 0.4 is {days:day}. Meta reported {hours:GPU*h}: {days_reported:day} on 16384 GPUs, {mfu:%} MFU.",
            "6 x {params:Gparam} x 15e12. At 40% MFU {hours40:GPU*h}. The card says {hours:GPU*h}, so expect 28%, not 40%, unless you know why. The often quoted 54 days "
            "are a snapshot of the 405B run, with 419 unexpected interruptions and over 90% of time effective.",
            "Is 16 thousand even sensible? At a 4M batch that is 256 tokens per GPU against {across:token/chip} without a pipeline. With PP 16 the threshold is 155, but "
            "few microbatches are left. So the batch sets the useful number of GPUs. Add failures: one each three hours at that size; goodput 90% or "
            "so. Dollars: 12.8 million at 2 dollars with the reported hours. Give an interval.",
        ),
        steps={
            "flops": "{flops:FLOP}.",
            "rates": "16000 x 989e12 x 0.4.",
            "knob": "{days:day}; reported {days_reported:day}.",
        },
        follow_ups=("Which MFU would you plan with, and why?", "Is the batch large enough for that many GPUs?"),
        tags=("aloud", "budget"),
        **COMMON,
    ),
    Question(
        "interview.q9_memory_or_compute",
        prompt="Q9. Is training 70B limited by memory or by compute?",
        hints=("How many GPUs hold it?", "16 N_params/HBM.", "How long would they take?"),
        rubric=(
            Point("state fits about 15 H100", (r"1[45]|dozen|few GPUs|16 bytes",)),
            Point("time, not memory, asks for thousands", (r"time|years|compute|flop",)),
            Point(
                "memory still shapes the plan: activations, gathered layers", (r"activation|gather|transient|recomput",)
            ),
            Point("and at scale the network and the batch limit", (r"batch|network|comm",)),
        ),
        says=(
            "Compute: {state:GB} of state fit {state_chips} H100, but thousands are needed to finish in weeks. At that scale the network and the batch "
            "become the real limits.",
            "State shrinks with GPUs; activations per GPU are chosen by microbatch and recomputation. So memory is a constraint to satisfy, time the objective. 117 H100 "
            "would take more than four years at 40% MFU. With thousands of GPUs tokens per GPU fall below C/W, so comms cap MFU.",
            "The ledger must be complete: sharded state well under a GB, checkpoints a GB or two, and transient rows of several GB: gathered layers, the layer being recomputed, "
            "logits, context. 2% use of memory comes from leaving these out. Free memory should be spent: less recomputation (a third of FLOPs), larger microbatches, no "
            "resharding. At a few GPUs memory does rule: 8 x H100 do not hold the state of 70B at all.",
        ),
        steps={
            "flops": "{flops:FLOP}.",
            "bytes": "{state:GB} of state.",
            "compare": "{state_chips} GPUs hold it; thousands finish it.",
        },
        follow_ups=("What would you do with the free memory?", "When is memory the limit?"),
        tags=("aloud", "memory"),
        **COMMON,
    ),
    Question(
        "interview.q10_dualpipe",
        prompt="Q10. Why are schedules such as DualPipe an advance in method, and what do they not do?",
        hints=(
            "What is split?",
            "Input and weight gradients are separate work.",
            "(p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W).",
        ),
        rubric=(
            Point("backward is split into input and weight gradients", (r"split|weight gradient|dW|\bW\b",)),
            Point("a forward and a backward run together, hiding all-to-all", (r"all.?to.?all|overlap|hide|together",)),
            Point("the bubble shrinks but is not zero", (r"not zero|remain|smaller|\(p/2|shrink",)),
            Point("costs: two copies of weights, p+1 activations", (r"two copies|2x|twice|double|p ?\+ ?1",)),
        ),
        says=(
            "They split backward, so weight gradients fill gaps, and pair a forward with a backward so that each hides the other's all-to-all. The bubble shrinks to "
            "(p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W), not to zero, and it costs a second copy of the weights.",
            "Older schedules traded bubble against microbatches: (p-1)/m. Splitting changes the dependency graph: only input gradients are on the critical path. DualPipe feeds "
            "from both ends, so each device has forwards and backwards at hand to pair. For MoE with expert parallelism across nodes the exchange is as long as "
            "compute, so hiding it matters more than the bubble.",
            "Say what is not free: two copies of parameters (small with experts spread widely), p+1 microbatches of activations, SMs given to communication, and equal times assumed. "
            "DualPipeV drops the second copy. ZB-V has no idle time by the device's own clock at equal times and 1F1B's memory. By makespan all keep some start-up. Compare at equal memory; "
            "and ask whether PP is needed at all.",
        ),
        steps={
            "compare": "1F1B (p-1)(t_F + t_B + t_W); DualPipe (p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W).",
            "knob": "Paid with 2x weights, p+1 activations.",
        },
        follow_ups=("When would you prefer ZB-H1?", "What does ω < 1 assume?"),
        tags=("aloud", "pipeline", "moe"),
        **{**COMMON, "difficulty": 5, "importance": 3},
    ),
    Question(
        "interview.mock_clarify",
        prompt="You are asked to plan a training run of {model:model} with {chips} chips of {cluster:machine}. Which questions do you ask before you "
        "calculate anything?",
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "chips": 8192},
        draw={"model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "chips": (512, 1024, 8192)},
        hints=(
            "What does every formula need?",
            "Tokens, batch, sequence, deadline, network, precision.",
            "And what can still be changed?",
        ),
        rubric=(
            Point("how many tokens", (r"token|data",)),
            Point("batch size and sequence length", (r"batch|sequence|context",)),
            Point("the deadline or budget", (r"deadline|days|budget|cost|when|how long",)),
            Point("the network between nodes", (r"network|nvlink|infiniband|interconnect|nodes|bandwidth",)),
            Point("precision and optimizer", (r"precision|bf16|fp8|optimi[sz]er|adam",)),
        ),
        says=(
            "Tokens, batch, sequence length, deadline and budget, network, precision, and what is fixed.",
            "Tokens set FLOPs, the batch sets tokens per chip, the sequence attention and activations. Deadline and budget decide chips. Network: domain size and egress per node. "
            "Precision and optimizer: bytes a parameter. Then: which of these may move?",
            "Also failures and spares, storage for checkpoints, whether the batch may ramp, evaluation and restarts within the deadline, whether framework and team have "
            "run pipelines before, and what success is: loss at a date, or a budget not exceeded.",
        ),
        steps={"compare": "Each question is a letter of a formula: T, B, S, days, W, bytes."},
        follow_ups=("Which of these would you fight to change?",),
        tags=("aloud", "mock"),
        **{**COMMON, "derive": None, "difficulty": 2},
    ),
)
