"""Questions of the chapter on what it means to scale well."""

from __future__ import annotations

from typing import Any

from scaling_lib import budget, cluster, dp, model, n_params, roofline
from scaling_lib.questions import Option, Point, Question, Trap

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "mi355x-8", "h800-ib")
DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b")


def _alpha(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    peak, egress = c.chip.flops("bf16"), c.levels[0].egress
    return {
        "peak": peak,
        "egress": egress,
        "hbm": c.chip.hbm_bandwidth,
        "alpha": roofline.critical_intensity(peak, egress),
        "both": roofline.critical_intensity(peak, 2 * egress),
        "memory": roofline.critical_intensity(peak, c.chip.hbm_bandwidth),
        "sparse": roofline.critical_intensity(2 * peak, egress),
    }


def _fp8(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    egress = c.levels[0].egress
    fp8, bf16 = c.chip.flops("fp8"), c.chip.flops("bf16")
    return {
        "fp8": fp8,
        "bf16": bf16,
        "egress": egress,
        "tokens": dp.critical_tokens(fp8, egress),
        "old": dp.critical_tokens(bf16, egress),
        "half": dp.critical_tokens(fp8, 4 * egress),
        "both": dp.critical_tokens(fp8, 8 * egress),
    }


def _cap(p: Any) -> dict[str, Any]:
    math, comms = p.math / 1e3, p.comms / 1e3
    return {
        "t_math": math,
        "t_comms": comms,
        "cap": roofline.mfu_cap(math, comms),
        "added": math / (math + comms),
        "hidden": 1 - math / comms,
    }


def _added(p: Any) -> dict[str, Any]:
    math, comms = p.math / 1e3, p.comms / 1e3
    return {
        "t_math": math,
        "t_comms": comms,
        "share": math / (math + comms),
        "overlap": roofline.mfu_cap(math, comms),
        "comms_share": comms / (math + comms),
    }


def _strong(p: Any) -> dict[str, Any]:
    math, comms = p.math / 1e3, p.comms / 1e3
    return {
        "t_math": math,
        "t_comms": comms,
        "less": math / p.factor,
        "speedup": roofline.strong_scaling_speedup(math, comms, p.factor),
        "linear": float(p.factor),
        "added": (math + comms) / (math / p.factor + comms),
        "limit": math / comms,
        "sum_over": (math + comms) / comms,
        "step": max(math / p.factor, comms),
        "step_linear": math / p.factor,
        "step_both": max(math, comms) / p.factor + comms,
    }


def _flops(p: Any) -> dict[str, Any]:
    m = model(p.model)
    form = roofline.layer(m, "two-matmul")
    flops = roofline.forward_flops(form.weights, p.batch, p.dp, p.tp)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "chips": p.dp * p.tp,
        "flops": flops,
        "adds": flops / 2,
        "training": 3 * flops,
        "no_tp": flops * p.tp,
        "gated": 1.5 * flops,
    }


def _width(p: Any) -> dict[str, Any]:
    m = model(p.model)
    full, gated = roofline.layer(m, "full"), roofline.layer(m, "gated")
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "heads": m.n_heads,
        "kv": m.n_kv_heads,
        "head": m.head_dim,
        "weights": full.weights,
        "width": full.effective_d_ff,
        "one_gather": full.weights / (2 * m.d_model),
        "gated": gated.effective_d_ff,
        "plain": float(m.d_ff),
    }


def _step(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    peak, n = c.chip.flops("bf16"), n_params(m)
    flops = budget.train_flops(n, p.batch)
    seconds = budget.seconds(flops, p.chips, peak, p.mfu)
    return {
        "params": n,
        "peak": peak,
        "flops": flops,
        "flops_forward": flops / 3,
        "seconds": seconds,
        "forward": seconds / 3,
        "full": seconds * p.mfu,
        "one_chip": seconds * p.chips,
        "rate": p.batch / seconds,
        "rate_forward": 3 * p.batch / seconds,
        "rate_chip": p.batch / seconds / p.chips,
        "rate_full": p.batch / seconds / p.mfu,
    }


def _weak(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    need = dp.critical_tokens(c.chip.flops("bf16"), c.egress(p.chips))
    batch = need * p.chips
    return {
        "need": need,
        "chips2": p.chips * p.factor,
        "batch": batch,
        "later": batch * p.factor,
        "fixed": batch,
        "per_chip": need,
        "inside": dp.critical_tokens(c.chip.flops("bf16"), c.levels[0].egress) * p.chips * p.factor,
    }


def _verdict(p: Any) -> dict[str, Any]:
    math, comms = p.math / 1e3, p.comms / 1e3
    return {"t_math": math, "t_comms": comms, "right": "compute" if math >= comms else "comms"}


QUESTIONS = (
    Question(
        "scaling.alpha",
        "numeric",
        "How many bf16 FLOPs can one chip of {cluster:cluster} do in the time it sends one byte inside its node? (FLOP per byte)",
        (
            "Two figures of the data sheet, one ratio.",
            "alpha = C/W, dense peak over egress.",
            "C = {peak:FLOP/s}, W = {egress:B/s}.",
        ),
        canonical={"cluster": "dgx-h100"},
        draw={"cluster": NODES},
        derive=_alpha,
        answer="alpha",
        unit="FLOP/B",
        traps=(
            Trap(
                "both directions of a link", "both", "the sheet's figure adds what is sent and received; W is egress."
            ),
            Trap("the memory bandwidth", "memory", "{hbm:B/s} is HBM; the question is about the link."),
            Trap("the sparse peak", "sparse", "sheets print a peak that skips zeros; the dense one is {peak:FLOP/s}."),
        ),
        steps={"rates": "C = {peak:FLOP/s} dense, W = {egress:B/s} egress.", "knob": "alpha = C/W."},
        difficulty=1,
        importance=5,
        minutes=2,
        tags=("hardware", "gpu"),
        book="roofline.critical_intensity(h100_peak, nvlink_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "scaling.ridge_memory",
        "numeric",
        "How many bf16 FLOPs per byte of HBM traffic must a kernel do on {cluster:gpu} to be compute-bound?",
        (
            "Now the wall is the chip's own memory.",
            "C / HBM bandwidth.",
            "C = {peak:FLOP/s}, HBM {hbm:B/s}.",
        ),
        canonical={"cluster": "dgx-h100"},
        draw={"cluster": (*NODES, "tpu-v5p", "tpu-v6e", "tpu-v7")},
        derive=_alpha,
        answer="memory",
        unit="FLOP/B",
        traps=(Trap("the link", "alpha", "{egress:B/s} is the link to other chips; here the bytes come from HBM."),),
        steps={"rates": "C = {peak:FLOP/s}, HBM {hbm:B/s}.", "knob": "Their ratio."},
        difficulty=1,
        minutes=2,
        tags=("hardware",),
        book="roofline.critical_intensity(h100_peak, h100.chip.hbm_bandwidth)",
        needs=("peak", "hbm_bandwidth"),
    ),
    Question(
        "scaling.bound",
        "choice",
        "A layer computes for {math} ms and communicates for {comms} ms, perfectly overlapped. What is it?",
        (
            "Which of the two does the hardware wait for?",
            "T_math > T_comms: compute-bound.",
            "{math} ms against {comms} ms.",
        ),
        canonical={"math": 12, "comms": 9},
        draw={"math": (4, 6, 12, 18, 25), "comms": (3, 5, 9, 15, 30)},
        derive=_verdict,
        answer="right",
        options=(
            Option(
                "compute",
                "Compute-bound: communication hides behind compute",
                "Communication is the longer one; compute hides behind it.",
            ),
            Option(
                "comms",
                "Comms-bound: the chip waits for the network",
                "Compute is the longer one; communication hides behind it.",
            ),
            Option(
                "both", "Neither: the two times add up", "They overlap here, so the longer one counts, not the sum."
            ),
            Option("memory", "Memory-bound", "Nothing was said about HBM; the two times given decide."),
        ),
        steps={
            "compare": "{t_math:s} of compute against {t_comms:s} of communication; with overlap the longer one is the step."
        },
        difficulty=1,
        minutes=1,
        tags=("concept",),
    ),
    Question(
        "scaling.mfu_cap",
        "numeric",
        "Compute takes {math} ms a layer, communication {comms} ms, fully overlapped. What share of the peak can be reached at "
        "most?",
        (
            "In how much time is how much compute done?",
            "MFU cap = min(1, T_math/T_comms).",
            "{math}/{comms}.",
        ),
        canonical={"math": 12, "comms": 30},
        draw={"math": (4, 6, 9, 12), "comms": (15, 20, 25, 30)},
        derive=_cap,
        answer="cap",
        unit="%",
        traps=(
            Trap("times added", "added", "with overlap the step takes {t_comms:s}, not the sum."),
            Trap("the share that waits", "hidden", "this is the idle share; the question asks for the busy one."),
        ),
        steps={
            "rates": "T_math = {t_math:s}, T_comms = {t_comms:s}.",
            "compare": "Comms-bound: the layer takes {t_comms:s}.",
            "knob": "{t_math:s} of {t_comms:s} compute.",
        },
        difficulty=1,
        importance=4,
        minutes=1,
        tags=("mfu",),
        book="roofline.mfu_cap(12e-3, 30e-3)",
    ),
    Question(
        "scaling.no_overlap",
        "numeric",
        "Compute {math} ms, communication {comms} ms a layer, but nothing overlaps (a blocking all-reduce). Which share of the "
        "peak is left?",
        (
            "How long does the layer take, and for how much of it does the chip compute?",
            "T_math / (T_math + T_comms).",
            "{math} / ({math} + {comms}).",
        ),
        canonical={"math": 12, "comms": 9},
        draw={"math": (8, 12, 18, 24), "comms": (3, 5, 6, 9)},
        derive=_added,
        answer="share",
        unit="%",
        traps=(
            Trap("perfect overlap", "overlap", "overlap would hide it; here the two times add."),
            Trap("the share of communication", "comms_share", "this is what is lost."),
        ),
        steps={
            "rates": "{t_math:s} and {t_comms:s}.",
            "compare": "No overlap: the layer takes their sum.",
            "knob": "{math} / ({math} + {comms}).",
        },
        difficulty=1,
        minutes=1,
        tags=("mfu", "overlap"),
    ),
    Question(
        "scaling.speedup",
        "numeric",
        "A step computes for {math} ms and communicates for {comms} ms, overlapped. You take {factor} times as many chips at the same "
        "global batch; communication stays as long. By what factor does the step get faster?",
        (
            "What happens to each of the two times?",
            "max(T_math, T_comms) / max(T_math/k, T_comms).",
            "max({math}, {comms}) / max({math}/{factor}, {comms}).",
        ),
        canonical={"math": 120, "comms": 30, "factor": 8},
        draw={"math": (100, 120, 160, 200), "comms": (20, 25, 30, 45), "factor": (8, 16, 32)},
        derive=_strong,
        answer="speedup",
        unit="ratio",
        traps=(
            Trap(
                "linear scaling",
                "linear",
                "compute divides, communication does not: at {less:s} of compute the network decides.",
            ),
            Trap("times added", "added", "the two overlap, so the longer one counts."),
        ),
        steps={
            "flops": "Compute falls to {less:s}.",
            "bytes": "Communication stays at {t_comms:s}.",
            "compare": "The step goes from {t_math:s} to the longer of the two.",
            "knob": "{math} / {comms}.",
        },
        follow_ups=("From which factor on does more hardware buy nothing?",),
        importance=4,
        tags=("strong-scaling",),
        book="roofline.strong_scaling_speedup(120e-3, 30e-3, 8)",
    ),
    Question(
        "scaling.limit",
        "numeric",
        "A step computes for {math} ms and communicates for {comms} ms, overlapped; only compute shrinks with more chips. By what "
        "factor can their number grow, at the same global batch, before the step stops getting faster?",
        (
            "What ends the gain: when does the network become the slower of the two?",
            "k = T_math/T_comms.",
            "{math}/{comms}.",
        ),
        canonical={"math": 120, "comms": 30, "factor": 8},
        draw={"math": (100, 120, 180, 210), "comms": (16, 24, 30, 42)},
        derive=_strong,
        answer="limit",
        unit="ratio",
        traps=(
            Trap(
                "times added",
                "sum_over",
                "they overlap, so communication sets the end alone: compute must shrink to it, and their sum is never waited for.",
            ),
        ),
        steps={"compare": "T_math/k falls until it meets T_comms.", "knob": "k = {t_math:s} / {t_comms:s}."},
        difficulty=1,
        minutes=1,
        tags=("strong-scaling",),
        book="120 / 30",
    ),
    Question(
        "scaling.layer_flops",
        "numeric",
        "A two-matmul layer of {model:model} (D = {d_model}, F = {d_ff}), {batch} tokens, DP {dp} x TP {tp}. How many FLOPs does "
        "one chip do in the forward pass?",
        (
            "Two matmuls; a multiply-add is two FLOPs.",
            "4BDF/(X Y).",
            "B = {batch}, XY = {chips}.",
        ),
        canonical={"model": "llama-3-70b", "batch": 4194304, "dp": 256, "tp": 8},
        draw={"model": DENSE, "batch": (1048576, 2097152, 4194304), "dp": (32, 64, 256), "tp": (2, 4, 8)},
        derive=_flops,
        answer="flops",
        unit="TFLOP",
        traps=(
            Trap("multiply-adds", "adds", "each multiply-add counts as two FLOPs."),
            Trap("forward and backward", "training", "backward is twice as much again, but was not asked."),
            Trap("the TP degree left out", "no_tp", "TP splits the F dimension, so each chip does 1/{tp} of it."),
            Trap("a gated layer", "gated", "three matrices would make it 6BDF; this layer has two."),
        ),
        steps={"flops": "2 matmuls x 2 x {batch} x {d_model} x {d_ff} / {chips}."},
        minutes=2,
        tags=("flops",),
        book="roofline.forward_flops(2 * llama.d_model * llama.d_ff, 4194304, 256, 8)",
    ),
    Question(
        "scaling.full_layer_width",
        "numeric",
        "The full layer of {model:model}: gated MLP (D = {d_model}, F = {d_ff}) and attention with {heads} query heads, {kv} "
        "key-value heads of {head}. Under TP it gathers activations twice (attention and MLP). Which F would a two-matmul layer "
        "need to have the same FLOPs per gathered byte?",
        (
            "Count multiplied weights, then divide by what one gather of D serves.",
            "F = P/(2 D x 2), P = 3DF + 2DHh + 2DKh.",
            "P = {weights} weights, 2 gathers.",
        ),
        canonical={"model": "llama-3-70b"},
        draw={"model": (*DENSE, "llama-2-70b")},
        derive=_width,
        answer="width",
        unit="",
        traps=(
            Trap("the plain width", "plain", "attention and the gate change both FLOPs and gathers."),
            Trap("one gather", "one_gather", "attention gathers its input as well: two gathers a layer."),
            Trap("the gated MLP alone", "gated", "attention has weights and a gather of its own."),
        ),
        steps={
            "flops": "Multiplied weights: {weights}.",
            "bytes": "Two gathers of the activations instead of one.",
            "compare": "The two-matmul layer has 2DF weights for one gather.",
            "knob": "F = {weights} / (4 x {d_model}).",
        },
        difficulty=4,
        importance=2,
        tags=("layer",),
        book="roofline.layer(llama, 'full').effective_d_ff",
    ),
    Question(
        "scaling.fp8",
        "numeric",
        "Training moves from bf16 to fp8 matmuls on {cluster:gpu}, while activations and gradients still travel in 16 bits. How "
        "many tokens per chip does data parallelism inside a node then need? (W = {egress:B/s})",
        (
            "One of the two rates changes.",
            "C_fp8/W.",
            "C = {fp8:FLOP/s}.",
        ),
        canonical={"cluster": "dgx-h100"},
        draw={"cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "mi355x-8")},
        derive=_fp8,
        answer="tokens",
        unit="token/chip",
        traps=(
            Trap(
                "the bf16 threshold",
                "old",
                "the chip now computes at {fp8:FLOP/s}, so more tokens are needed to keep it busy.",
            ),
            Trap("faster links", "half", "fp8 matmuls do not make the 16-bit gradients lighter."),
        ),
        steps={
            "flops": "As many as before.",
            "bytes": "As many as before: 16 bits on the wire.",
            "rates": "C = {fp8:FLOP/s}, W = {egress:B/s}.",
            "compare": "Compute got faster, communication did not.",
            "knob": "C/W.",
        },
        follow_ups=("Why does a faster chip make a cluster harder to use?",),
        difficulty=3,
        tags=("precision", "gpu"),
        book="dp.critical_tokens(h100.chip.flops('fp8'), nvlink_egress)",
        needs=("fp8",),
    ),
    Question(
        "scaling.step_time",
        "numeric",
        "One training step of {model:model} with a batch of {batch} tokens on {chips} chips of {cluster:machine} at "
        "{mfu:%} MFU (rule of six). How long does it take?",
        (
            "What has to be computed, and how much of it does the cluster do in a second?",
            "6 N_params B / (chips x C x MFU).",
            "N_params = {params:Gparam}, C = {peak:FLOP/s}.",
        ),
        canonical={"model": "llama-3-8b", "cluster": "dgx-h100", "batch": 524288, "chips": 8, "mfu": 0.45},
        draw={
            "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b", "llama-3-70b"),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8"),
            "batch": (262144, 524288, 1048576),
            "chips": (8, 16, 32, 64),
            "mfu": (0.35, 0.4, 0.45),
        },
        derive=_step,
        answer="seconds",
        unit="s",
        traps=(
            Trap(
                "the forward pass alone",
                "forward",
                "training is forward and backward: six FLOPs a parameter and token, not two.",
            ),
            Trap("the full peak", "full", "only {mfu:%} of the peak arrives."),
            Trap("a single chip", "one_chip", "{chips} chips share the step."),
        ),
        steps={
            "flops": "6 x {params:Gparam} x {batch} = {flops:FLOP}.",
            "rates": "{chips} x {peak:FLOP/s} x {mfu:%}.",
            "knob": "Divide.",
        },
        tags=("small", "time"),
        book="budget.seconds(budget.train_flops(n_params(model('llama-3-8b')), 524288), 8, h100_peak, 0.45)",
        needs=("peak", "params"),
    ),
    Question(
        "scaling.throughput",
        "numeric",
        "{chips} chips of {cluster:machine} train {model:model} at {mfu:%} MFU (rule of six). How many tokens a second pass "
        "through the whole cluster?",
        (
            "What does one trained token cost?",
            "chips x C x MFU / (6 N_params).",
            "C = {peak:FLOP/s}, N_params = {params:Gparam}.",
        ),
        canonical={"model": "llama-3-8b", "cluster": "dgx-h100", "batch": 524288, "chips": 64, "mfu": 0.4},
        draw={
            "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b", "llama-3-70b"),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8", "tpu-v5p", "tpu-v6e"),
            "chips": (16, 64, 256),
            "mfu": (0.35, 0.4, 0.5),
        },
        derive=_step,
        answer="rate",
        unit="token/s",
        traps=(
            Trap("the forward pass alone", "rate_forward", "a trained token costs 6 N_params FLOPs, not 2 N_params."),
            Trap("one chip", "rate_chip", "all {chips} chips work."),
            Trap("the full peak", "rate_full", "only {mfu:%} of the peak arrives."),
        ),
        steps={
            "flops": "6 N_params = 6 x {params:Gparam} a token.",
            "rates": "{chips} x {peak:FLOP/s} x {mfu:%}.",
            "knob": "Divide the rate by the FLOPs of a token.",
        },
        tags=("small", "time"),
        needs=("peak", "params"),
    ),
    Question(
        "scaling.weak",
        "numeric",
        "A data-parallel job on {chips} GPUs of {cluster:cluster} sits exactly at its threshold. You go to {factor} times as many "
        "GPUs. What global batch, in tokens, keeps it there (many-node limit)?",
        (
            "Tokens per GPU must stay.",
            "B = X C/W_node.",
            "C/W_node = {need:token/chip|5}, X = {chips2}.",
        ),
        canonical={"cluster": "dgx-h100", "chips": 512, "factor": 4},
        draw={"cluster": NODES, "chips": (64, 128, 512, 1024), "factor": (2, 4, 8)},
        derive=_weak,
        answer="later",
        unit="token",
        traps=(
            Trap("the old batch", "fixed", "at a fixed batch the tokens per GPU fall by {factor}."),
            Trap("tokens of one GPU", "per_chip", "this is what each GPU needs; all of them were asked."),
            Trap("the inner network", "inside", "the group spans nodes."),
        ),
        steps={
            "compare": "Each GPU needs {need:token/chip|5}.",
            "knob": "{chips2} x {need:token/chip|5}.",
        },
        follow_ups=("What limits the batch from above?",),
        tags=("weak-scaling", "batch"),
        book="2048 * dp.critical_tokens(h100_peak, node_egress)",
        needs=("peak", "network"),
    ),
    Question(
        "scaling.audit_linear",
        "audit",
        "Audit. A plan says: 'The step takes {math} ms. With {factor} times the GPUs at the same batch it takes "
        "{step_linear:ms}.' Its profile shows {comms} ms of gradient all-reduce, hidden until now, which does not shrink. How "
        "long will the step take, overlap as perfect as before?",
        (
            "Which part of the step divides?",
            "max(T_math/k, T_comms).",
            "max({math}/{factor}, {comms}) ms.",
        ),
        canonical={"math": 200, "comms": 60, "factor": 8},
        draw={"math": (160, 200, 240), "comms": (50, 60, 75), "factor": (4, 8)},
        derive=_strong,
        answer="step",
        unit="ms",
        traps=(
            Trap(
                "linear scaling",
                "step_linear",
                "compute falls to {less:s}, but the all-reduce still takes {t_comms:s}.",
            ),
            Trap("both times added", "step_both", "overlap is as perfect as before, so the longer one counts."),
        ),
        steps={
            "flops": "Compute: {less:s}.",
            "bytes": "All-reduce: {t_comms:s}.",
            "compare": "The longer one is the step.",
        },
        minutes=2,
        tags=("strong-scaling",),
    ),
    Question(
        "scaling.audit_faster_chip",
        "audit",
        "Audit. 'We swap H100s for chips with twice the peak and the same links, so we need fewer tokens per chip.' What is wrong?",
        (
            "What does the threshold depend on?",
            "B/X = C/W.",
            "C doubles, W stays.",
        ),
        derive=lambda p: {"right": "more"},
        answer="right",
        options=(
            Option("more", "The threshold C/W doubles: a faster chip needs more tokens to hide the same bytes"),
            Option(
                "same",
                "The threshold depends on the model, not on the chip",
                "The model's size cancels; C and W are all that is left.",
            ),
            Option(
                "half",
                "Nothing: compute gets faster, so less is needed",
                "Faster compute leaves less time to hide communication in.",
            ),
            Option(
                "memory",
                "Memory bandwidth decides, which was not given",
                "HBM bandwidth is not part of this comparison.",
            ),
        ),
        steps={"rates": "T_math halves, T_comms stays.", "compare": "The ratio C/W doubles."},
        difficulty=1,
        minutes=1,
        tags=("concept",),
    ),
    Question(
        "scaling.audit_v5p",
        "audit",
        "Audit. 'A TPU v5p with its {said:TFLOP/s} nearly reaches the 989 TFLOP/s of an H100.' What is the dense bf16 peak of a v5p?",
        (
            "In which precision is each of the two figures?",
            "Compare bf16 with bf16.",
            "int8 runs at twice the bf16 rate.",
        ),
        derive=lambda p: {
            "said": cluster("tpu-v5p").chip.flops("int8"),
            "ours": cluster("tpu-v5p").chip.flops("bf16"),
        },
        answer="ours",
        unit="TFLOP/s",
        traps=(Trap("the int8 rate", "said", "this is what the chip does with 8-bit integers."),),
        steps={"rates": "The figure printed is int8; bf16 is half of it."},
        difficulty=1,
        minutes=1,
        tags=("claim", "hardware"),
        claim="v5p-918",
        book="peak_v5p",
    ),
    Question(
        "scaling.explain_goal",
        "explain",
        "What does it mean that a training job scales well, and what are the two enemies?",
        (
            "Think of what happens to throughput and to memory when chips are added.",
            "T_math > T_comms, and everything must fit.",
            "Say strong scaling, sharding, overlap.",
        ),
        rubric=(
            Point(
                "n times the chips give close to n times the throughput",
                (r"(linear|proportional)", r"(twice|double|n times).*(throughput|fast|speed)"),
            ),
            Point("memory must be split (sharded)", (r"(memory|hbm|fit)",)),
            Point("communication grows relative to compute", (r"comm\w*|network|bandwidth|all-?reduce",)),
            Point("it may hide behind compute (overlap, T_math > T_comms)", (r"overlap|hide|T_?math",)),
        ),
        says=(
            "Twice the chips should give twice the throughput. Memory and communication are in the way: state must be sharded, and "
            "sharding costs collectives, which have to hide behind compute: T_math > T_comms.",
            "Strong scaling keeps the batch and adds chips. Compute per chip falls as 1/N; the bytes of weights and gradients do not. So "
            "there is a chip count where T_comms passes T_math, and beyond it more chips buy nothing. Memory pulls the other way: one "
            "chip cannot hold 16 bytes a parameter, so we shard, which creates the collectives in the first place.",
            "I would define it as time to train a fixed token budget against chips, and MFU as the yardstick. Two enemies: memory, as state "
            "and activations exceed HBM, so we shard; communication, because each shard must be gathered or reduced. For each strategy "
            "write T_math and T_comms per layer and compare. Data parallel: threshold C/W tokens per chip. Tensor parallel: F > Y C/W, no "
            "batch. The batch cannot grow for ever, as gains per token fall beyond a critical batch size, so at a fixed batch tokens per "
            "chip fall with N and every plan meets its threshold. Real jobs also lose to latency, bubbles, stragglers and failures.",
        ),
        steps={
            "compare": "T_math falls with N at a fixed batch, T_comms does not.",
            "knob": "The largest N with T_math > T_comms.",
        },
        importance=4,
        minutes=4,
        tags=("concept", "aloud"),
    ),
    Question(
        "scaling.estimate_step_flops",
        "estimate",
        "Without paper: how many FLOPs does one training step of {model:model} on {batch} tokens take? Add a 90% interval.",
        (
            "What does one parameter cost for one token, forward and backward?",
            "6 N_params B.",
            "N_params = {params:Gparam|5}, B = {batch}.",
        ),
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100", "batch": 4194304, "chips": 8960, "mfu": 0.4},
        draw={"model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "batch": (1048576, 4194304, 16777216)},
        derive=_step,
        answer="flops",
        unit="FLOP",
        traps=(
            Trap("the forward pass alone", "flops_forward", "training costs six FLOPs a parameter and token, not two."),
        ),
        steps={"flops": "6 x {params:Gparam|5} x {batch}."},
        minutes=1,
        tags=("estimate",),
        book="budget.train_flops(n_params(llama), 4194304)",
    ),
    Question(
        "scaling.code_cap",
        "code",
        "Write a function of `t_math` and `t_comms` (seconds, perfectly overlapped) that returns the largest share of the peak.",
        (
            "Two cases.",
            "min(1, T_math/T_comms).",
            "Compare before you divide.",
        ),
        canonical={"math": 12, "comms": 30},
        draw={"math": (4, 6, 25, 40), "comms": (9, 15, 20)},
        derive=_cap,
        reference=roofline.mfu_cap,
        arguments=("t_math", "t_comms"),
        steps={"compare": "`def cap(t_math, t_comms): return min(1.0, t_math / t_comms)`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
)
