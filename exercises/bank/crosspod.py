"""Questions of the chapter on scaling across pods."""

from __future__ import annotations

from typing import Any

from scaling_lib import cluster, crosspod, model, n_params
from scaling_lib.claims import claim
from scaling_lib.model import n_active_params
from scaling_lib.precision import BYTES
from scaling_lib.questions import Option, Point, Question, Trap
from scaling_lib.roofline import Times

PODS = (
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7",
    "dgx-h100",
    "dgx-b200",
    "gb200-nvl72",
    "gb300-nvl72",
    "mi300x-8",
)


def _cap(have: float, need: float) -> float:
    """Share of the peak under DP: forward sends nothing, backward waits. In units of forward compute for a token."""
    return float(Times(have, 0.0, 2 * have, 2 * need).mfu_cap)


def _pod(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, outer = c.chip.flops("bf16"), c.levels[-1].chip_egress()
    size = c.levels[-2].size or 1
    inner = c.levels[0].chip_egress()
    need = crosspod.critical_pod_tokens(peak, outer)
    return {
        "peak": peak,
        "outer": outer,
        "size": size,
        "need": need,
        "per_chip": need / size,
        "times_size": need * size,
        "inner": crosspod.critical_pod_tokens(peak, inner),
        "both": need / 2,
        "piped": crosspod.critical_pod_tokens(peak, outer, p.pp),
        "piped_up": need * p.pp,
        "limit": p.batch / need,
        "limit_chips": p.batch / need * size,
        "limit_chip": p.batch / need / size,
        "share": _cap(p.batch / p.pods, need),
        "batch_pod": p.batch / p.pods,
        "wait": need / (p.batch / p.pods),
        "both_passes": p.batch / p.pods / need,
        "share_chip": _cap(p.batch / p.pods / size, need),
    }


def _sync(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    size, outer = c.levels[-2].size or 1, c.levels[-1].chip_egress()
    gradients = n_params(m) * BYTES["bf16"]
    seconds = 2 * gradients / (size * outer)
    return {
        "params": n_params(m),
        "size": size,
        "outer": outer,
        "gradients": gradients,
        "seconds": seconds,
        "once": seconds / 2,
        "fp32": seconds * 2,
        "one_chip": seconds * size,
    }


def _sites(p: Any) -> dict[str, Any]:
    gradients = n_params(model(p.model)) * BYTES["bf16"]
    seconds = gradients / (p.gbits * 1e9 / 8)
    return {
        "params": n_params(model(p.model)),
        "gradients": gradients,
        "seconds": seconds,
        "bits": seconds / 8,
        "ring": seconds * 2,
        "fp32": seconds * 4,
    }


def _sparse(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    dense = crosspod.critical_pod_tokens(c.chip.flops("bf16"), c.levels[-1].chip_egress())
    ratio = n_params(m) / n_active_params(m)
    return {
        "params": n_params(m),
        "active": n_active_params(m),
        "ratio": ratio,
        "dense": dense,
        "need": dense * ratio,
        "upside": dense / ratio,
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


CANON = {"cluster": "tpu-v5p", "pp": 4, "batch": 16777216, "pods": 8}
DRAW = {"cluster": PODS, "pp": (2, 4, 8, 16)}

QUESTIONS = (
    Question(
        "crosspod.tokens_per_pod",
        "numeric",
        "Data parallelism runs between pods of {size} chips ({cluster:cluster}). How many tokens must each pod have per step so that "
        "the gradient all-reduce between pods hides?",
        (
            "Both sides grow with the chips of a pod.",
            "B/pod = C/W, W of one chip on the outer network.",
            "C = {peak:FLOP/s}, W = {outer:B/s}.",
        ),
        canonical=CANON,
        draw=DRAW,
        derive=_pod,
        answer="need",
        unit="token/pod",
        traps=(
            Trap("per chip", "per_chip", "this is what one chip of {size} needs."),
            Trap("times the pod's chips", "times_size", "chips of a pod add compute and egress alike, so they cancel."),
            Trap("the inner network", "inner", "only the outer network carries this all-reduce."),
        ),
        steps={
            "flops": "8BDF per pod over {size} chips.",
            "bytes": "8DF per pod, sent by {size} chips.",
            "rates": "C = {peak:FLOP/s} and {outer:B/s} a chip.",
            "compare": "The chips of a pod cancel.",
            "knob": "C/W.",
        },
        importance=5,
        tags=("threshold",),
        book="crosspod.critical_pod_tokens(peak_v5p, v5p.levels[-1].egress)",
        needs=("peak", "network"),
    ),
    Question(
        "crosspod.tokens_per_chip",
        "numeric",
        "Data parallelism runs between pods of {size} chips ({cluster:cluster}). How many tokens must each chip have per step so that the all-reduce "
        "between pods hides?",
        (
            "What does a whole pod need, and how many chips share it?",
            "C/(W x chips of a pod).",
            "{need:token/pod} over {size}.",
        ),
        canonical=CANON,
        draw={"cluster": PODS},
        derive=_pod,
        answer="per_chip",
        unit="token/chip",
        traps=(Trap("per pod", "need", "this is for a whole pod of {size} chips."),),
        steps={"compare": "{need:token/pod}.", "knob": "/ {size}."},
        difficulty=1,
        minutes=1,
        tags=("threshold",),
        book="crosspod.critical_pod_tokens(peak_v5p, v5p.levels[-1].egress) / 8960",
        needs=("peak", "network"),
    ),
    Question(
        "crosspod.with_pipeline",
        "numeric",
        "A pipeline of {pp} stages spans pods ({cluster:cluster}), a stage in each. How many tokens per pod does the gradient all-reduce need to hide "
        "then?",
        (
            "How many layers does a chip hold now?",
            "C/(W p).",
            "C/W = {need:token/pod}, p = {pp}.",
        ),
        canonical={**CANON, "cluster": "dgx-h100", "pp": 16},
        draw=DRAW,
        derive=_pod,
        answer="piped",
        unit="token/pod",
        traps=(
            Trap("no pipeline", "need", "each chip reduces only 1/{pp} of the layers."),
            Trap("the wrong way round", "piped_up", "fewer gradients lower the threshold."),
        ),
        steps={
            "flops": "As many per chip: more tokens pass, through fewer layers.",
            "bytes": "1/{pp} of the gradients.",
            "knob": "{need:token/pod} / {pp}.",
        },
        importance=5,
        minutes=2,
        tags=("threshold", "pipeline"),
        book="crosspod.critical_pod_tokens(h100_peak, nic_egress, 16)",
        needs=("peak", "network"),
    ),
    Question(
        "crosspod.pods_limit",
        "numeric",
        "The global batch is {batch} tokens. Over how many pods of {size} chips ({cluster:cluster}) can data parallelism spread before the outer "
        "network limits it? (not rounded)",
        ("Each pod needs its share of the batch.", "B / (C/W).", "C/W = {need:token/pod}."),
        canonical=CANON,
        draw={"cluster": PODS, "batch": (2097152, 4194304, 8388608, 16777216)},
        derive=_pod,
        answer="limit",
        unit="pod",
        traps=(Trap("chips", "limit_chips", "this counts chips."),),
        steps={"compare": "{need:token/pod} for each.", "knob": "{batch} / {need:token/pod}."},
        importance=4,
        minutes=2,
        tags=("batch",),
        book="16777216 / crosspod.critical_pod_tokens(peak_v5p, v5p.levels[-1].egress)",
        needs=("peak", "network"),
    ),
    Question(
        "crosspod.cap",
        "numeric",
        "{batch} tokens over {pods} pods of {size} chips ({cluster:cluster}), data parallel between pods. What share of the peak can the outer network "
        "sustain at most?",
        (
            "Which pass waits, and how much longer does it take below the threshold?",
            "Forward 1, backward 2 times (C/W)/(B/pods): 3 / (1 + 2 (C/W)/(B/pods)).",
            "{batch_pod:token/pod} against {need:token/pod}.",
        ),
        canonical={**CANON, "cluster": "dgx-h100", "batch": 16777216, "pods": 2048},
        draw={
            "cluster": ("dgx-h100", "dgx-b200", "mi300x-8"),
            "batch": (4194304, 8388608, 16777216),
            "pods": (1024, 1536, 2048, 3072),
        },
        derive=_pod,
        answer="share",
        unit="%",
        traps=(
            Trap("forward waits too", "both_passes", "under DP forward sends nothing; only backward waits."),
            Trap("tokens per chip", "share_chip", "the threshold {need} is per pod."),
        ),
        steps={
            "flops": "Call forward 1, then backward is 2.",
            "compare": "{batch_pod:token/pod} against {need:token/pod}: backward takes {wait:|5} times its compute.",
            "knob": "3 / (1 + 2 x {wait:|5}).",
        },
        tags=("mfu",),
        book="3 / (1 + 2 * crosspod.critical_pod_tokens(h100_peak, nic_egress) / (16777216 / 2048))",
        needs=("peak", "network"),
    ),
    Question(
        "crosspod.bigger_pod",
        "choice",
        "You join the same chips into pods twice as large, with the same outer egress per chip. What happens to the tokens per pod that "
        "hide the all-reduce between pods?",
        ("Which letters are left in the threshold?", "C/W per pod.", "Chips cancel."),
        derive=lambda p: {"right": "same"},
        answer="right",
        options=(
            Option("same", "They stay the same per pod, so half as many per chip"),
            Option("double", "They double", "Compute and egress of a pod double together, the gradients stay."),
            Option("half", "They halve", "Per chip they halve; per pod they stay."),
            Option("square", "They grow fourfold", "Chips cancel in the ratio."),
        ),
        steps={
            "bytes": "8DF per pod, as before, over twice the egress.",
            "compare": "Compute per token takes half as long too.",
        },
        minutes=2,
        tags=("concept",),
    ),
    Question(
        "crosspod.audit_easy",
        "audit",
        "Audit. 'Across nodes about 2500 tokens per H100 are needed, which is easily reached.' The next page trains 16e6 tokens a step on "
        "16384 GPUs. How many tokens per GPU are there?",
        ("How many tokens fall on one GPU?", "B/N.", "16e6/16384."),
        derive=lambda p: {
            "ours": float(claim("easy-to-reach").ours or 0),
            "needed": 2500.0,
            "per_node": float(claim("easy-to-reach").ours or 0) * 8,
        },
        answer="ours",
        unit="token/chip",
        traps=(
            Trap("what is needed", "needed", "this is the threshold; the run has fewer."),
            Trap("per node", "per_node", "a node of 8 GPUs has this many."),
        ),
        steps={"knob": "16e6/16384, far below the threshold: MFU is capped at 39%."},
        difficulty=1,
        importance=4,
        minutes=2,
        tags=("claim", "batch"),
        claim="easy-to-reach",
        book="16e6 / 16384",
    ),
    Question(
        "crosspod.audit_axes",
        "audit",
        "Audit. 'With four data-parallel axes over InfiniBand, the threshold of a node falls from 19780 to {said} tokens.' A node has 8 "
        "cards on a fat tree. What is its threshold?",
        (
            "What did the 19780 count already?",
            "8 C/(8 W_card).",
            "A fat tree gives a node no extra axes.",
        ),
        derive=_claim("four-dp-axes"),
        answer="ours",
        unit="token/node",
        traps=(Trap("axes of a torus", "said", "a switch has no axes to add; all 8 cards are counted already."),),
        steps={"rates": "400 GB/s for 8 GPUs.", "knob": "It stays; what rescues large runs is PP."},
        difficulty=3,
        importance=4,
        tags=("claim",),
        claim="four-dp-axes",
        book="crosspod.critical_pod_tokens(h100_peak, nic_egress)",
    ),
    Question(
        "crosspod.audit_nesting",
        "audit",
        "Audit. 'In practice Meta nested TP 8 in the node, FSDP across nodes, and split that into FSDP inside pods and DP between them.' "
        "What is missing from it?",
        (
            "Look at the published layouts of the 405B.",
            "TP x PP x DP.",
            "Which dimension lowers the gradient traffic per GPU?",
        ),
        derive=lambda p: {"right": "pp"},
        answer="right",
        options=(
            Option("pp", "The pipeline: TP 8, PP 16 and data parallelism with sharded state"),
            Option("ep", "Expert parallelism", "The model is dense."),
            Option("cp", "Context parallelism of 16 throughout", "It was used in the long-context stage alone."),
            Option("nothing", "Nothing", "The published layouts have 16 pipeline stages."),
        ),
        steps={
            "bytes": "PP 16 leaves each GPU 1/16 of the layers to reduce.",
            "compare": "That is what makes 1000 tokens per GPU enough.",
        },
        minutes=2,
        tags=("claim", "reported"),
        claim="three-level-nesting",
    ),
    Question(
        "crosspod.why_dp_outside",
        "choice",
        "Why is data parallelism, of all kinds, put outermost, on the slowest network?",
        ("Compare bytes per step.", "DP sends gradients once a step.", "It can wait until the end of backward."),
        derive=lambda p: {"right": "rare"},
        answer="right",
        options=(
            Option(
                "rare",
                "It sends once a step, of a size that does not grow with the batch, and may overlap the whole backward pass",
            ),
            Option("small", "Its messages are the smallest", "Gradients of the whole model are large; PP sends less."),
            Option("none", "It sends nothing between pods", "Gradients must be reduced over all replicas."),
            Option("fast", "Because the all-reduce is in-network there", "Not on the networks of this catalogue."),
        ),
        steps={"bytes": "8DF a layer and step, whatever the batch."},
        difficulty=1,
        minutes=1,
        tags=("concept",),
    ),
    Question(
        "crosspod.explain_pp",
        "explain",
        "Llama 3 405B ran at about 1000 tokens per GPU, below the 2472 its network asks of FSDP. Why did it work?",
        ("Which dimension changes what a GPU reduces?", "C/(W_node p).", "PP 16: 155 tokens."),
        rubric=(
            Point("pipeline parallelism over 16 stages", (r"pipelin|\bpp\b",)),
            Point(
                "each GPU holds and reduces 1/16 of the layers",
                (r"1/16|sixteen|16 times|fewer (layers|gradients)|share of the layers",),
            ),
            Point(
                "the threshold falls to about 155 tokens", (r"155|threshold.*(fall|drop|lower|divid)|lower.*threshold",)
            ),
            Point("paid with a bubble, so enough microbatches are needed", (r"bubble|microbatch",)),
        ),
        says=(
            "PP 16. Each GPU holds a sixteenth of the layers, so per token it reduces a sixteenth of the gradients: the threshold falls from "
            "2472 to 155 tokens. The price is a bubble.",
            "TP 8 x PP 16 x DP 128. At fixed tokens per GPU a pipeline lets each token pass through more GPUs, so a GPU sees 16 times the "
            "tokens on 1/16 of the layers. Compute is unchanged; gradients per GPU fall 16 times. C/(W_node p) = 155. The stage boundary "
            "sends only activations, point to point. 16 microbatches per replica, interleaved, keep the bubble bearable.",
            "Numbers: 16M tokens over 128 replicas are 131 thousand tokens, 16 sequences of 8192. With p = m = 16 plain 1F1B idles 15/31; "
            "interleaving v chunks gives 15/(16 v + 15). ZeRO-1 rather than ZeRO-3, as gathers per microbatch would multiply traffic. "
            "Reported 400 TFLOP/s per GPU, 40% MFU. TP stays on NVLink, DP outermost, over the slowest links. Memory agrees: 405B at 16 bytes "
            "over 128 GPUs is 51 GB without sharding the optimizer, which ZeRO-1 then cuts.",
        ),
        steps={"bytes": "1/16 of the gradients per GPU.", "knob": "2472/16 = 155 tokens per GPU."},
        difficulty=3,
        importance=5,
        minutes=5,
        tags=("concept", "aloud", "reported"),
    ),
    Question(
        "crosspod.estimate_pods",
        "estimate",
        "Without paper: how many tokens per pod hide the all-reduce between pods ({cluster:machine}) with {outer:B/s} of outer egress a chip and {peak:FLOP/s}? Add a 90% "
        "interval.",
        ("Which letters are left once the chips of a pod cancel?", "C/W.", "{peak:FLOP/s} over {outer:B/s}."),
        canonical=CANON,
        draw={"cluster": PODS},
        derive=_pod,
        answer="need",
        unit="token/pod",
        traps=(Trap("per chip", "per_chip", "this is per chip."),),
        steps={"knob": "C/W."},
        minutes=1,
        tags=("estimate",),
    ),
    Question(
        "crosspod.code",
        "code",
        "Write a function of `peak`, `outer` (byte/s of one chip on the outer network) and `pp` that returns the tokens per pod.",
        ("The chips of a pod cancel.", "C/(W p).", "One line."),
        canonical=CANON,
        draw=DRAW,
        derive=_pod,
        reference=crosspod.critical_pod_tokens,
        arguments=("peak", "outer", "pp"),
        steps={"knob": "`def tokens(peak, outer, pp): return peak / (outer * pp)`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
    Question(
        "crosspod.sync_time",
        "numeric",
        "Pods of {cluster:cluster}, {size} chips each, hold one replica of {model:model} ({params:Gparam}) each. How many seconds does the bf16 "
        "gradient all-reduce between pods take if nothing hides it (many pods)?",
        (
            "Each chip reduces its own share.",
            "2 x 2N / (chips of a pod x W).",
            "{gradients:GB}, {size} chips, {outer:B/s} each.",
        ),
        canonical={"cluster": "gb200-nvl72", "model": "llama-3-70b"},
        draw={
            "cluster": ("gb200-nvl72", "gb300-nvl72", "tpu-v6e", "tpu-v5p"),
            "model": ("llama-2-13b", "llama-3-70b", "llama-3-405b"),
        },
        derive=_sync,
        answer="seconds",
        unit="s",
        traps=(
            Trap("sent once", "once", "an all-reduce among many sends everything twice."),
            Trap("fp32", "fp32", "bf16 gradients have 2 bytes."),
            Trap("one chip's network", "one_chip", "the {size} chips of a pod send side by side, each its own share."),
        ),
        steps={
            "bytes": "2 x {gradients:GB} leave a pod.",
            "rates": "{size} chips of {outer:B/s}.",
        },
        follow_ups=("How long must backward take to hide it?",),
        importance=4,
        tags=("comms",),
        book="2 * 2 * n_params(llama) / (72 * cluster('gb200-nvl72').levels[-1].egress)",
        needs=("network",),
    ),
    Question(
        "crosspod.two_sites",
        "numeric",
        "Two sites train {model:model} ({params:Gparam}) with data parallelism between them, over {gbits} Gb/s in each direction. How many seconds "
        "does one exchange of bf16 gradients take?",
        (
            "What must cross when only two take part?",
            "2N bytes each way; Gb/s over 8.",
            "{gradients:GB} at {gbits}/8 GB/s.",
        ),
        canonical={"model": "llama-3-70b", "gbits": 800},
        draw={"model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "gbits": (100, 400, 800, 1600, 3200)},
        derive=_sites,
        answer="seconds",
        unit="s",
        traps=(
            Trap("bits for bytes", "bits", "{gbits} Gb/s are an eighth of that in GB/s."),
            Trap(
                "the limit of many",
                "ring",
                "among n an all-reduce sends 2(n-1)/n of the gradients: for two sites once, not twice.",
            ),
            Trap("fp32, sent twice", "fp32", "bf16 gradients have 2 bytes, and two sites exchange them once."),
        ),
        steps={
            "bytes": "{gradients:GB} cross each way.",
            "rates": "{gbits}/8 GB/s.",
        },
        follow_ups=("What does it cost to exchange only every tenth step?",),
        difficulty=3,
        tags=("comms", "small"),
    ),
    Question(
        "crosspod.moe_tokens",
        "numeric",
        "{model:model}: {params:Gparam}, {active:Gparam} active a token. Data parallelism runs between pods ({cluster:cluster}), every pod with all experts. "
        "How many tokens per pod hide the gradient all-reduce?",
        (
            "FLOPs count what a token passes, gradients what exists.",
            "(C/W) N/N_active.",
            "{dense:token/pod} for a dense model, times {ratio}.",
        ),
        canonical={"cluster": "gb200-nvl72", "model": "deepseek-v3"},
        draw={
            "cluster": ("dgx-h100", "dgx-b200", "gb200-nvl72", "tpu-v5p", "tpu-v7"),
            "model": ("deepseek-v3", "qwen3-235b-a22b", "mixtral-8x7b"),
        },
        derive=_sparse,
        answer="need",
        unit="token/pod",
        traps=(
            Trap(
                "as if dense",
                "dense",
                "all {params:Gparam} have gradients, but a token pays FLOPs for {active:Gparam} alone.",
            ),
            Trap("the wrong way round", "upside", "few FLOPs a gradient raise the threshold."),
        ),
        steps={
            "flops": "6 x {active:Gparam} a token.",
            "bytes": "Gradients of {params:Gparam}.",
            "compare": "{ratio} times as many bytes a FLOP as in a dense model.",
            "knob": "{dense:token/pod} x {ratio}.",
        },
        difficulty=4,
        importance=4,
        tags=("moe", "threshold"),
        needs=("peak", "network"),
    ),
)
