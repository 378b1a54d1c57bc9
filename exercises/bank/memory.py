"""Questions of the chapter on memory."""

from __future__ import annotations

from typing import Any

from scaling_lib import Job, ParallelPlan, cluster, memory, model, n_params, recipe
from scaling_lib.memory_activations import checkpoint_bytes, kept_bytes, layer_activations
from scaling_lib.precision import BYTES
from scaling_lib.questions import Option, Point, Question, Trap

DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3-405b")
CHIPS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "gb200-nvl72", "tpu-v5p", "tpu-v6e", "tpu-v7")


def _state(p: Any) -> dict[str, Any]:
    n, r = n_params(model(p.model)), recipe(p.recipe)
    hbm = cluster(p.cluster).chip.hbm
    return {
        "params": n,
        "title": r.title,
        "each": r.total,
        "hbm": hbm,
        "state": n * r.total,
        "weights": n * r.weights,
        "optimizer": n * r.optimizer,
        "no_grads": n * (r.total - r.grads),
        "no_master": n * (r.weights + r.grads + r.adam_m + r.adam_v),
    }


def _zero(p: Any) -> dict[str, Any]:
    n, r = n_params(model(p.model)), recipe("bf16")
    stages = [n * memory.state_bytes_per_param(r, z, p.shards) for z in range(4)]
    return {"params": n, "zero0": stages[0], "zero1": stages[1], "zero2": stages[2], "zero3": stages[3]}


def _checkpoints(p: Any) -> dict[str, Any]:
    m = model(p.model)
    size = checkpoint_bytes(p.tokens, m.d_model, m.n_layers, 1, p.tp)
    return {
        "d_model": m.d_model,
        "layers": m.n_layers,
        "size": size,
        "uncut": size * p.tp,
        "one_layer": size / m.n_layers,
        "fp32": size * 2,
    }


def _layer(p: Any) -> dict[str, Any]:
    m = model(p.model)
    flash = layer_activations(m, p.tokens, p.tokens, p.tp)
    scores = layer_activations(m, p.tokens, p.tokens, p.tp, True, "unfused")
    full = checkpoint_bytes(p.tokens, m.d_model, 1, 1, p.tp)
    kept = kept_bytes(flash, "none", full)
    return {
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "heads": m.n_heads,
        "layers": m.n_layers,
        "kept": kept,
        "full": full,
        "factor": kept / full,
        "unfused": scores.total,
        "uncut": flash.total * p.tp,
        "scores": scores["core"],
        "scores_one_head": scores["core"] / m.n_heads,
        "scores_uncut": scores["core"] * p.tp,
        "all_layers": kept * m.n_layers,
        "inverse": full / kept,
    }


def _gathered(p: Any) -> dict[str, Any]:
    m = model(p.model)
    weights = (n_params(m) - 2 * m.vocab_size * m.d_model - m.d_model) / m.n_layers
    size = weights * BYTES["bf16"] / p.tp
    return {
        "weights": weights,
        "size": size,
        "two": 2 * size,
        "uncut": size * p.tp,
        "fp32": 2 * size,
        "state": weights * 16 / p.tp,
    }


def _longest(p: Any) -> dict[str, Any]:
    m = model(p.model)
    tokens = p.free * 1e9 / checkpoint_bytes(1, m.d_model, m.n_layers, 1, p.tp)
    return {
        "d_model": m.d_model,
        "layers": m.n_layers,
        "tokens": tokens,
        "uncut": tokens / p.tp,
        "bytes_forgotten": tokens * 2,
        "one_layer": tokens * m.n_layers,
    }


def _stage(p: Any) -> dict[str, Any]:
    n, r = n_params(model(p.model)), recipe("bf16")
    dp = p.chips // (p.tp * p.pp)
    share = n / (p.tp * p.pp)
    return {
        "params": n,
        "dp": dp,
        "share": share,
        "state": share * memory.state_bytes_per_param(r, 1, dp),
        "whole": share * r.total,
        "zero3": share * memory.state_bytes_per_param(r, 3, dp),
        "no_tp": share * p.tp * memory.state_bytes_per_param(r, 1, dp),
    }


def _logits(p: Any) -> dict[str, Any]:
    m = model(p.model)
    size = p.tokens * m.vocab_size * BYTES["fp32"] / p.tp
    return {
        "vocab": m.vocab_size,
        "size": size,
        "bf16": size / 2,
        "uncut": size * p.tp,
        "by_width": p.tokens * m.d_model * BYTES["fp32"] / p.tp,
    }


def _total(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    job = Job(m, c, ParallelPlan(dp=p.chips, recompute="full"), p.chips, p.chips * p.seq, p.seq)
    ledger = memory.ledger(job)
    hbm = c.chip.hbm
    return {
        "params": n_params(m),
        "hbm": hbm,
        "state": ledger["state"],
        "activations": ledger["activations"],
        "transient": ledger["transient"],
        "allowance": ledger["allowance"],
        "total": ledger.total,
        "right": "yes" if ledger.total <= hbm else "no",
    }


def _min_chips(p: Any) -> dict[str, Any]:
    n, hbm = n_params(model(p.model)), cluster(p.cluster).chip.hbm
    total = n * recipe("bf16").total
    return {
        "params": n,
        "hbm": hbm,
        "total": total,
        "chips": float(memory.min_chips(total, hbm)),
        "weights": float(memory.min_chips(n * 2, hbm)),
        "ten": float(memory.min_chips(n * 10, hbm)),
        "eighteen": float(memory.min_chips(n * 20, hbm)),
    }


STATE = {"model": "llama-3-70b", "recipe": "bf16", "cluster": "dgx-h100"}
LAYER = {"model": "llama-3-70b", "tokens": 8192, "tp": 8}
LAYER_DRAW = {"model": DENSE, "tokens": (2048, 4096, 8192, 16384), "tp": (2, 4, 8)}

QUESTIONS = (
    Question(
        "memory.state",
        "numeric",
        "How many GB is the training state of {model:model} with this recipe: {title}?",
        (
            "Bytes a parameter, five rows.",
            "N_params (weights + gradients + master + m + v).",
            "{params:Gparam} x {each}.",
        ),
        canonical=STATE,
        draw={
            "model": (*DENSE, "mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3"),
            "recipe": ("bf16", "megatron", "adam-8bit", "two-grads"),
        },
        derive=_state,
        answer="state",
        unit="GB",
        traps=(
            Trap("weights alone", "weights", "the optimizer is the larger part of {each} bytes a parameter."),
            Trap("gradients left out", "no_grads", "gradients are resident between backward and the update."),
            Trap("no master copy", "no_master", "bf16 training keeps fp32 weights for the update."),
        ),
        steps={"bytes": "{each} bytes a parameter.", "knob": "x {params:Gparam}."},
        difficulty=1,
        importance=5,
        minutes=2,
        tags=("state", "whiteboard"),
        book="n_params(llama) * recipe('bf16').total",
        needs=("params",),
    ),
    Question(
        "memory.zero",
        "numeric",
        "{model:model}, 16 bytes a parameter (2+2+12), ZeRO-2 over {shards} chips. GB of state on each?",
        ("Which kinds are divided?", "N_params (2 + (2 + 12)/X).", "N_params = {params:Gparam}, X = {shards}."),
        canonical={"model": "llama-3-8b", "shards": 64},
        draw={"model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"), "shards": (8, 16, 32, 64)},
        derive=_zero,
        answer="zero2",
        unit="GB",
        traps=(
            Trap("ZeRO-1", "zero1", "stage 2 shards the gradients too."),
            Trap("ZeRO-3", "zero3", "stage 2 keeps the weights whole."),
            Trap("nothing sharded", "zero0", "stage 2 divides gradients and optimizer."),
        ),
        steps={"bytes": "2 whole, 14 over {shards}.", "knob": "x {params:Gparam}."},
        tags=("state", "small"),
        book="n_params(model('llama-3-8b')) * memory.state_bytes_per_param(recipe('bf16'), 2, 64)",
        needs=("params",),
    ),
    Question(
        "memory.checkpoints",
        "numeric",
        "Full recomputation, one checkpoint a layer: {tokens} tokens of {model:model} (D = {d_model}, {layers} layers), cut {tp} ways by "
        "sequence parallelism, bf16. GB per chip?",
        ("One input of D a token and layer.", "T D L e/Y.", "{tokens} x {d_model} x {layers} x 2/{tp}."),
        canonical=LAYER,
        draw=LAYER_DRAW,
        derive=_checkpoints,
        answer="size",
        unit="GB",
        traps=(
            Trap("not cut", "uncut", "sequence parallelism cuts each checkpoint {tp} ways."),
            Trap("one layer", "one_layer", "all {layers} layers keep theirs until backward."),
            Trap("fp32", "fp32", "checkpoints are bf16, 2 bytes each."),
        ),
        steps={"bytes": "{tokens} x {d_model} x {layers} x 2 bytes / {tp}."},
        importance=4,
        minutes=2,
        tags=("activations",),
        book="8192 * llama.d_model * llama.n_layers * 2 / 8",
    ),
    Question(
        "memory.layer_kept",
        "numeric",
        "Without recomputation and with fused attention, how many GB does one layer of {model:model} keep in bf16 for {tokens} tokens at TP {tp} with sequence "
        "parallelism?",
        (
            "Add what each matmul and norm saves.",
            "T (8D + 4Hh + 4Kh + 4H + 6F)/Y bytes: stream, attention with its statistics, gated MLP.",
            "Compare with a checkpoint of {full:MB}: {factor} times.",
        ),
        canonical=LAYER,
        draw=LAYER_DRAW,
        derive=_layer,
        answer="kept",
        unit="GB",
        tolerance=0.03,
        traps=(
            Trap("the checkpoint", "full", "without recomputation all inputs of the layer's matmuls stay."),
            Trap("not cut", "uncut", "TP with sequence parallelism cuts all of it {tp} ways."),
        ),
        steps={
            "bytes": "Norm and block inputs, queries, keys, values, attention output, three MLP inputs of F, over {tp}.",
            "compare": "{factor} times a checkpoint.",
        },
        difficulty=4,
        tags=("activations",),
        needs=("shape",),
    ),
    Question(
        "memory.recompute_gain",
        "numeric",
        "By what factor does full recomputation shrink the activations a layer of {model:model} keeps ({tokens} tokens, TP {tp}, fused "
        "attention)?",
        ("Kept without over kept with.", "all inputs over one checkpoint.", "{kept:MB|5} against {full:MB|5}."),
        canonical=LAYER,
        draw={"model": (*DENSE, "gpt-3-175b"), "tokens": (4096, 8192), "tp": (2, 4, 8)},
        derive=_layer,
        answer="factor",
        unit="ratio",
        tolerance=0.03,
        traps=(Trap("the inverse", "inverse", "how many times smaller was asked."),),
        steps={"bytes": "{kept:MB|5} without, {full:MB|5} with.", "knob": "Their ratio; paid with a third more FLOPs."},
        difficulty=3,
        tags=("activations",),
        needs=("shape",),
    ),
    Question(
        "memory.scores",
        "numeric",
        "Unfused attention keeps 5 bytes a score (softmax, its mask, dropout's output). GB for one layer of {model:model} with {heads} heads and "
        "one sequence of {tokens} tokens at TP {tp}?",
        ("Quadratic in the sequence.", "5 H S^2/Y.", "5 x {heads} x {tokens}^2/{tp}."),
        canonical=LAYER,
        draw={"model": (*DENSE, "gpt-3-175b"), "tokens": (2048, 4096, 8192, 32768), "tp": (2, 4, 8)},
        derive=_layer,
        answer="scores",
        unit="GB",
        traps=(
            Trap("one head", "scores_one_head", "every one of {heads} heads has its own scores."),
            Trap("not cut", "scores_uncut", "TP shares the heads {tp} ways."),
        ),
        steps={"bytes": "5 x {heads} x {tokens}^2 / {tp}.", "compare": "Fused attention keeps none of it."},
        tags=("activations", "long-context"),
    ),
    Question(
        "memory.gathered_layer",
        "numeric",
        "FSDP gathers one layer of {model:model} ({weights:Mparam}) in bf16 at TP {tp}. How many MB does it take while in use, without "
        "prefetch?",
        ("Only weights are gathered.", "2 P/Y.", "{weights:Mparam} x 2/{tp}."),
        canonical={"model": "llama-3-70b", "tp": 4},
        draw={"model": DENSE, "tp": (1, 2, 4, 8)},
        derive=_gathered,
        answer="size",
        unit="MB",
        traps=(
            Trap("with prefetch", "two", "one layer was asked; prefetch holds a second."),
            Trap("the whole state", "state", "optimizer state stays sharded."),
        ),
        steps={"bytes": "{weights:Mparam} x 2 bytes / {tp}."},
        minutes=2,
        tags=("transient",),
    ),
    Question(
        "memory.logits",
        "numeric",
        "{tokens} tokens of {model:model} (vocabulary {vocab}) reach the loss at TP {tp}. GB of fp32 logits per chip?",
        ("One number a token and word.", "4 T V/Y.", "4 x {tokens} x {vocab}/{tp}."),
        canonical={"model": "llama-3-8b", "tokens": 8192, "tp": 1},
        draw={"model": (*DENSE, "deepseek-v3"), "tokens": (4096, 8192, 16384, 32768), "tp": (1, 2, 8)},
        derive=_logits,
        answer="size",
        unit="GB",
        traps=(
            Trap("bf16", "bf16", "the loss is computed in fp32, 4 bytes."),
            Trap("d_model for the vocabulary", "by_width", "logits have one number for each of {vocab} words."),
        ),
        steps={"bytes": "4 x {tokens} x {vocab} / {tp}."},
        minutes=2,
        tags=("transient", "small"),
        book="4 * 8192 * model('llama-3-8b').vocab_size",
    ),
    Question(
        "memory.min_chips",
        "numeric",
        "At least how many chips of {cluster:gpu} hold the state of {model:model} at 16 bytes a parameter, cut at will?",
        ("What is resident for each parameter while training?", "ceil(16 N_params/HBM).", "{total:GB} over {hbm:GB}."),
        canonical=STATE,
        draw={"model": ("llama-3-70b", "llama-3-405b", "qwen3-235b-a22b", "deepseek-v3"), "cluster": CHIPS},
        derive=_min_chips,
        answer="chips",
        unit="chip",
        tolerance=0.001,
        traps=(
            Trap("weights alone", "weights", "16 bytes a parameter are resident in training."),
            Trap("10 bytes a parameter", "ten", "that leaves out master copy and gradients."),
        ),
        steps={"bytes": "{total:GB}.", "compare": "{hbm:GB} a chip.", "knob": "Divide, round up."},
        difficulty=1,
        minutes=2,
        tags=("state",),
        book="memory.min_chips(n_params(llama) * 16, h100.chip.hbm)",
        needs=("hbm", "params"),
    ),
    Question(
        "memory.does_it_fit",
        "choice",
        "{model:model} with FSDP over {chips} chips of {cluster:gpu}, one sequence of {seq} tokens a chip, full recomputation, 16 bytes a "
        "parameter. Does it fit?",
        (
            "Four groups of rows.",
            "state + activations + transient + allowance.",
            "State {state:GB}, activations {activations:GB}, transient {transient:GB}, allowance {allowance:GB}.",
        ),
        canonical={"model": "llama-3-8b", "cluster": "dgx-h100", "chips": 8, "seq": 8192},
        draw={
            "model": ("llama-2-13b", "llama-3-8b", "llama-3-70b"),
            "cluster": ("dgx-a100-40gb", "dgx-h100", "dgx-h200", "mi300x-8"),
            "chips": (4, 8, 16),
            "seq": (4096, 8192),
        },
        derive=_total,
        answer="right",
        options=(
            Option("yes", "Yes, all rows together stay below {hbm:GB}", "They come to {total:GB}."),
            Option("no", "No, the rows together exceed {hbm:GB}", "They come to {total:GB}."),
            Option(
                "depends",
                "That cannot be known without a run",
                "A run refines it; the rows are computable: {total:GB}.",
            ),
        ),
        steps={
            "bytes": "State {state:GB}, activations {activations:GB}, transient {transient:GB}, allowance {allowance:GB}.",
            "compare": "{total:GB} against {hbm:GB}.",
        },
        difficulty=3,
        importance=4,
        tags=("ledger", "small"),
        needs=("hbm", "params", "shape"),
    ),
    Question(
        "memory.audit_selective",
        "audit",
        "Audit. 'We use flash attention and selective recomputation; the latter saves most of our activations.' What is wrong?",
        ("What does selective recomputation drop?", "The scores.", "Fused attention keeps none."),
        derive=lambda p: {"right": "nothing"},
        answer="right",
        options=(
            Option(
                "nothing",
                "Selective recomputation drops the scores, which fused attention never stored: it saves next to nothing",
            ),
            Option("double", "Both save, so together they save twice", "They save the same thing."),
            Option("full", "Selective means one checkpoint a layer", "That is full recomputation."),
            Option("fine", "Nothing is wrong", "The scores are gone already."),
        ),
        steps={"bytes": "Core rows under fused attention: 4 T H bytes only."},
        minutes=2,
        importance=4,
        tags=("activations",),
    ),
    Question(
        "memory.audit_gib",
        "audit",
        "Audit. 'Our state is {state_gib} GiB, the sheet says {hbm_gb} GB, so it fits.' How many GB is the state?",
        ("How many bytes are a GiB, and how many a GB?", "1 GiB = 2^30 bytes.", "{state_gib} x 1.0737."),
        canonical={"gib": 76},
        draw={"gib": (75, 76, 77, 78, 79)},
        derive=lambda p: {
            "state_gib": p.gib,
            "hbm_gb": round(cluster("dgx-h100").chip.hbm / 1e9),
            "bytes": p.gib * 2.0**30,
            "plain": p.gib * 1e9,
            "smaller": p.gib * 1e18 / 2**30,
        },
        answer="bytes",
        unit="GB",
        tolerance=0.005,
        traps=(
            Trap("GiB taken for GB", "plain", "a GiB is 7.4% more than a GB."),
            Trap("the wrong way round", "smaller", "a GiB is larger than a GB, so the number grows."),
        ),
        steps={"compare": "{state_gib} x 2^30 bytes against {hbm_gb}e9."},
        difficulty=1,
        minutes=1,
        tags=("units",),
        book="76 * 2**30",
    ),
    Question(
        "memory.explain_80",
        "explain",
        "What fills 80 GB while a 70B model trains with FSDP, TP and recomputation?",
        (
            "Name the groups of the ledger.",
            "state, activations, transient, allowance.",
            "Which of them shrink with more chips?",
        ),
        rubric=(
            Point("state: weights, gradients, optimizer, sharded", (r"state|optimi[sz]er|adam|weights",)),
            Point("activations kept or checkpointed, by tokens in flight", (r"activation|checkpoint",)),
            Point(
                "transient: gathered layers, recomputed layer, logits", (r"gather|logit|transient|recomput|working",)
            ),
            Point("context, buffers, fragmentation", (r"context|nccl|fragment|buffer|overhead",)),
        ),
        says=(
            "Sharded state, checkpoints of the tokens in flight, and what is transient: gathered layers, the layer being recomputed, logits. Then "
            "context and fragmentation. Only the state shrinks with more data-parallel chips.",
            "State 16 bytes a parameter over the group; at thousands of chips well below a GB. Checkpoints T D L 2/Y: with 8192 tokens at TP 8 "
            "1.3 GB. Recomputed layer: some 17 times one checkpoint. Gathered layers: 214 MB each at TP 8, two with prefetch. Logits in fp32: T V 4/Y, "
            "half a GB. Context and communicators about 2 GiB, fragmentation 5%.",
            "Then say which knob moves which row: ZeRO stage and dp the state; TP all activations with sequence parallelism; PP divides layers but 1F1B "
            "holds p microbatches on the first stage, so activations there stay; recomputation trades a third more FLOPs; microbatch size "
            "everything by token; vocabulary parallel loss the logits. Peak is at the loss or in a layer's backward pass, whichever is fuller. "
            "Compare with the allocator's report and expect 5 to 25% above the tensors.",
        ),
        steps={
            "bytes": "state + activations + transient + allowance.",
            "compare": "With HBM, at the fullest moment of the fullest chip.",
        },
        importance=5,
        minutes=4,
        tags=("ledger", "aloud"),
    ),
    Question(
        "memory.estimate_state",
        "estimate",
        "Without paper: GB of training state of {model:model} ({title})? Add a 90% interval.",
        ("How many bytes does training keep for one parameter?", "N_params x bytes.", "{params:Gparam} x {each}."),
        canonical=STATE,
        draw={"model": (*DENSE, "mixtral-8x7b", "deepseek-v3"), "recipe": ("bf16", "megatron")},
        derive=_state,
        answer="state",
        unit="GB",
        traps=(Trap("weights alone", "weights", "{each} bytes a parameter are resident."),),
        steps={"bytes": "{params:Gparam} x {each} bytes."},
        minutes=1,
        tags=("estimate", "state"),
    ),
    Question(
        "memory.longest",
        "numeric",
        "{free} GB are left for checkpoints of {model:model} (D = {d_model}, {layers} layers), full recomputation, bf16, cut {tp} ways by sequence "
        "parallelism. How many tokens may be in flight on such a group?",
        ("Bytes a token.", "T = free Y/(2 D L).", "{free}e9 x {tp} / (2 x {d_model} x {layers})."),
        canonical={"model": "llama-3-8b", "free": 40, "tp": 2},
        draw={
            "model": ("llama-3-8b", "llama-2-13b", "llama-3-70b", "llama-3-405b"),
            "free": (20, 40, 60, 100),
            "tp": (2, 4, 8),
        },
        derive=_longest,
        answer="tokens",
        unit="token",
        traps=(
            Trap("one byte an element", "bytes_forgotten", "bf16 has 2 bytes."),
            Trap("one layer", "one_layer", "each of {layers} layers keeps its input."),
        ),
        steps={"bytes": "2 x {d_model} x {layers} / {tp} a token.", "knob": "{free}e9 over that."},
        follow_ups=("Which row of the ledger fills up next when sequences grow?",),
        tags=("activations", "long-context", "small"),
        book="40e9 * 2 / (2 * model('llama-3-8b').d_model * model('llama-3-8b').n_layers)",
    ),
    Question(
        "memory.zero1_stage",
        "numeric",
        "{model:model} ({params:Gparam}) on {chips} GPUs: TP {tp}, PP {pp}, ZeRO-1 over the rest, 16 bytes a parameter (2+2+12). GB of state a GPU on an "
        "average stage?",
        (
            "First what TP and PP leave.",
            "N_params/(Y p) x (2 + 2 + 12/dp).",
            "dp = {dp}, {share:Gparam} a GPU.",
        ),
        canonical={"model": "llama-3-405b", "chips": 16384, "tp": 8, "pp": 16},
        draw={
            "model": ("llama-3-70b", "llama-3-405b", "gpt-3-175b"),
            "chips": (2048, 4096, 8192),
            "tp": (2, 4, 8),
            "pp": (2, 4, 8),
        },
        derive=_stage,
        answer="state",
        unit="GB",
        traps=(
            Trap("nothing sharded over dp", "whole", "ZeRO-1 divides the 12 bytes of the optimizer by {dp}."),
            Trap("ZeRO-3", "zero3", "ZeRO-1 keeps weights and gradients whole on each replica."),
            Trap("TP forgotten", "no_tp", "TP cuts the weights {tp} ways too."),
        ),
        steps={
            "bytes": "{share:Gparam} x (2 + 2 + 12/{dp}).",
            "knob": "Weights and gradients stay whole in a replica.",
        },
        difficulty=3,
        importance=4,
        tags=("state", "pipeline"),
        book="n_params(model('llama-3-405b')) / 128 * memory.state_bytes_per_param(recipe('bf16'), 1, 128)",
    ),
    Question(
        "memory.code_state",
        "code",
        "Write a function of `params` and `shards` that returns the bytes of state a chip holds under ZeRO-2 with the recipe 2+2+12.",
        ("Which kinds are divided?", "N_params (2 + 14/X).", "One line."),
        canonical={"model": "llama-3-8b", "shards": 64},
        draw={"model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"), "shards": (8, 16, 32, 64)},
        derive=_zero,
        reference=lambda params, shards: params * memory.state_bytes_per_param(recipe("bf16"), 2, shards),
        arguments=("params", "shards"),
        steps={"bytes": "`def state(params, shards): return params * (2 + 14 / shards)`"},
        difficulty=1,
        minutes=2,
        tags=("code", "state"),
    ),
)
