"""Questions of the chapter on FLOPs, days, dollars and failures."""

from __future__ import annotations

from typing import Any

from scaling_lib import budget, cluster, flops_per_token, model, n_params, params, recipe
from scaling_lib.claims import claim
from scaling_lib.model import n_active_params
from scaling_lib.questions import Option, Point, Question, Trap
from scaling_lib.units import DAY, HOUR

DENSE = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-2-70b", "llama-3-70b", "llama-3-405b")
MOE = ("mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3")
H100_PRICES = ("article-cloud", "nebius-h100", "runpod-h100", "coreweave-h100", "aws-p5-on-demand-2026")
RUNS = ("llama-2-7b", "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.1-70b", "llama-3.1-405b")


def _run(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    n, peak = n_active_params(m), c.chip.flops("bf16")
    flops = budget.train_flops(n, p.tokens)
    seconds = budget.seconds(flops, p.chips, peak, p.mfu)
    chip_time = budget.chip_seconds(flops, peak, p.mfu)
    needed = budget.chips_for(flops, p.days * DAY, peak, p.mfu)
    return {
        "params": n,
        "total": n_params(m),
        "peak": peak,
        "flops": flops,
        "flops_forward": flops / 3,
        "flops_all": budget.train_flops(n_params(m), p.tokens),
        "seconds": seconds,
        "seconds_forward": seconds / 3,
        "seconds_full": seconds * p.mfu,
        "seconds_sparse": seconds / 2,
        "chip_time": chip_time,
        "chip_time_forward": chip_time / 3,
        "chip_time_full": chip_time * p.mfu,
        "needed": needed,
        "needed_full": needed * p.mfu,
        "needed_forward": needed / 3,
    }


def _money(p: Any) -> dict[str, Any]:
    price = budget.price(p.price)
    c = cluster(p.cluster)
    n = n_params(model(p.model))
    flops = budget.train_flops(n, p.tokens)
    chip_time = budget.chip_seconds(flops, c.chip.flops("bf16"), p.mfu)
    usd = budget.cost(chip_time, price.rate)
    return {
        "params": n,
        "rate": price.rate,
        "terms": price.terms,
        "peak": c.chip.flops("bf16"),
        "chip_time": chip_time,
        "usd": usd,
        "node": usd / 8,
        "full": usd * p.mfu,
        "forward": usd / 3,
    }


def _reported(p: Any) -> dict[str, Any]:
    run = budget.reported(p.run)
    m = model(run.model)
    from scaling_lib import chip

    peak = chip(run.chip).flops("bf16")
    flops = budget.train_flops(n_params(m), run.tokens)
    value = budget.mfu(flops, run.chip_seconds, peak)
    return {
        "model_name": run.model,
        "chip_name": run.chip,
        "hours": run.chip_seconds,
        "tokens": run.tokens,
        "params": n_params(m),
        "peak": peak,
        "flops": flops,
        "mfu": value,
        "forward": value / 3,
        "sparse": value / 2,
        "days": run.chip_seconds / p.chips,
        "days_node": run.chip_seconds / (p.chips / 8),
        "full_days": budget.seconds(flops, p.chips, peak, 1.0),
    }


def _failures(p: Any) -> dict[str, Any]:
    rate = budget.failure_rate(p.fleet)
    mean = budget.mtbf(rate, p.chips)
    delta, restart = p.save * 1.0, p.restart * 60.0
    tau = budget.checkpoint_interval(delta, mean)
    return {
        "rate_day": rate * DAY,
        "rate_year": rate * 365.25 * DAY,
        "mtbf": mean,
        "mtbf_nodes": mean * 8,
        "mtbf_chip": 1 / rate,
        "fails_day": DAY / mean,
        "delta": delta,
        "tau": tau,
        "tau_no_two": tau / 2**0.5,
        "tau_half": tau / 2,
        "tau_product": delta * mean,
        "restart_s": restart,
        "goodput": budget.goodput(tau, delta, mean, restart),
        "no_restart": budget.goodput(tau, delta, mean, 0.0),
        "saves_only": tau / (tau + delta),
        "spares": budget.spares(rate, p.chips, p.repair * HOUR),
        "spares_nodes": budget.spares(rate, p.chips, p.repair * HOUR) / 8,
        "spares_day": budget.spares(rate, p.chips, 24 * HOUR),
    }


def _hfu(p: Any) -> dict[str, Any]:
    value = budget.hfu(p.mfu, 1.0)
    return {"hfu": value, "double": p.mfu * 2, "half_more": p.mfu * 1.5, "third_less": p.mfu / (1 + 1 / 3)}


def _params(p: Any) -> dict[str, Any]:
    m = model(p.model)
    ledger = params(m)
    total = n_params(m)
    per_layer = (total - 2 * m.vocab_size * m.d_model - m.d_model) / m.n_layers
    return {
        "layers": m.n_layers,
        "d_model": m.d_model,
        "d_ff": m.d_ff,
        "heads": m.n_heads,
        "kv": m.n_kv_heads,
        "head": m.head_dim,
        "vocab": m.vocab_size,
        "attention": ledger["layers/attention"] / m.n_layers,
        "mlp": ledger["layers/mlp"] / m.n_layers,
        "embeddings": ledger["embedding"] + ledger["head"],
        "per_layer": per_layer,
        "params": total,
        "ungated": total - ledger["layers/mlp"] / 3,
        "multihead": total + m.n_layers * 2 * m.d_model * (m.n_heads - m.n_kv_heads) * m.head_dim,
        "no_embeddings": total - ledger["embedding"] - ledger["head"],
    }


def _attention(p: Any) -> dict[str, Any]:
    m = model(p.model)
    matmul = flops_per_token(m, p.seq_len, "matmul")
    causal, full = flops_per_token(m, p.seq_len, "causal"), flops_per_token(m, p.seq_len, "full")
    return {
        "layers": m.n_layers,
        "heads": m.n_heads,
        "head": m.head_dim,
        "matmul": matmul,
        "extra": (causal - matmul) / causal,
        "extra_full": (full - matmul) / full,
        "over_matmul": (causal - matmul) / matmul,
        "forward": (causal - matmul) / 3 / causal,
    }


def _recipe_run(p: Any) -> dict[str, Any]:
    m = model(p.model)
    each, hbm = recipe(p.recipe), cluster(p.cluster).chip.hbm
    need = n_params(m) * each.total / hbm
    return {
        "params": n_params(m),
        "title": each.title,
        "each": each.total,
        "hbm": hbm,
        "chips_needed": need,
        "weights": n_params(m) * each.weights / hbm,
        "ten": n_params(m) * recipe("no-master-no-grads").total / hbm,
        "inference": n_params(m) * (each.weights + each.grads) / hbm,
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _cap_claim(p: Any) -> dict[str, Any]:
    c = claim("mfu-cap-h100")
    return {"said": float(c.said) * DAY, "ours": float(c.ours or 0) * DAY, "stopped": float(c.said) * DAY * 2}


def _meta_claim(p: Any) -> dict[str, Any]:
    run = budget.reported("llama-3-70b")
    return {
        "hours": run.chip_seconds,
        "ours": float(claim("meta-54-days").ours or 0) * DAY,
        "said": float(claim("meta-54-days").said) * DAY,
        "effective": float(claim("days-16000").said) * DAY,
    }


def _years(p: Any) -> dict[str, Any]:
    year = 365.25 * DAY
    return {"said": float(claim("ten-years").said) * year, "ours": float(claim("ten-years").ours or 0) * year}


CASES = (
    {"model": "llama-3-8b", "tokens": 1e12},
    {"model": "llama-3-8b", "tokens": 15e12},
    {"model": "llama-2-13b", "tokens": 2e12},
    {"model": "llama-3-70b", "tokens": 2e12},
    {"model": "llama-3-70b", "tokens": 15e12},
    {"model": "llama-3-405b", "tokens": 15.6e12},
)
RUN = {"model": "llama-3-70b", "tokens": 15e12, "cluster": "dgx-h100", "chips": 8960, "mfu": 0.4, "days": 30}
SMALL = {"model": "llama-3-8b", "tokens": 1e10, "cluster": "dgx-h100", "chips": 8, "mfu": 0.4, "days": 7}
FAIL = {"fleet": "llama-3-405b", "chips": 16384, "save": 30, "restart": 10, "repair": 48}
FAIL_DRAW = {
    "fleet": ("llama-3-405b", "rsc-1", "opt-175b"),
    "chips": (512, 1024, 2048, 4096, 8192, 16384),
    "save": (10, 20, 30, 40, 60),
    "restart": (5, 10, 15, 20),
    "repair": (12, 36, 48, 72),
}

QUESTIONS = (
    Question(
        "budget.train_flops",
        "numeric",
        "How many FLOPs does it take to train {model:model} on {tokens:Ttoken}, by the rule of six?",
        (
            "What does one parameter cost for one token, forward and backward?",
            "6 N_params T.",
            "N_params = {params:Gparam}, T = {tokens:Ttoken}.",
        ),
        canonical=RUN,
        draw={"case": CASES},
        derive=_run,
        answer="flops",
        unit="FLOP",
        traps=(
            Trap(
                "the forward pass alone",
                "flops_forward",
                "2 N_params T is inference; the backward pass costs twice as much again.",
            ),
        ),
        steps={"flops": "6 x {params:Gparam} x {tokens:Ttoken}."},
        difficulty=1,
        importance=5,
        minutes=1,
        tags=("flops", "whiteboard"),
        book="budget.train_flops(n_params(llama), TOKENS)",
        needs=("params",),
    ),
    Question(
        "budget.train_flops_moe",
        "numeric",
        "{model:model} is a mixture of experts: {total:Gparam} in all, {params:Gparam|5} active for a token. FLOPs to train it on "
        "{tokens:Ttoken} by the rule of six?",
        (
            "Which parameters does a token meet?",
            "6 N_params T, with the parameters that a token meets.",
            "N_params = {params:Gparam|5}.",
        ),
        canonical={**RUN, "model": "deepseek-v3", "tokens": 14.8e12},
        draw={"model": MOE, "tokens": (1e12, 2e12, 5e12, 14.8e12)},
        derive=_run,
        answer="flops",
        unit="FLOP",
        traps=(
            Trap(
                "all experts",
                "flops_all",
                "a token passes through few experts; memory pays for all, FLOPs only for the active ones.",
            ),
            Trap("the forward pass alone", "flops_forward", "training costs six FLOPs a parameter and token, not two."),
        ),
        steps={"flops": "6 x {params:Gparam|5} x {tokens:Ttoken}."},
        importance=4,
        minutes=2,
        tags=("flops", "moe"),
        book="budget.train_flops(params(model('deepseek-v3'), active=True).total, 14.8e12)",
    ),
    Question(
        "budget.days",
        "numeric",
        "{model:model} on {tokens:Ttoken}, {chips} chips of {cluster:machine} at {mfu:%} MFU (rule of six). How many days?",
        (
            "Work over rate.",
            "6 N_params T / (chips x C x MFU).",
            "6 N_params T = {flops:FLOP}, C = {peak:FLOP/s}.",
        ),
        canonical=RUN,
        draw={
            "case": CASES[2:],
            "cluster": ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "tpu-v5p", "gb200-nvl72"),
            "chips": (1024, 2048, 4096, 8192),
            "mfu": (0.3, 0.35, 0.4, 0.45),
        },
        derive=_run,
        answer="seconds",
        unit="day",
        traps=(
            Trap(
                "the forward pass alone", "seconds_forward", "training costs six FLOPs a parameter and token, not two."
            ),
            Trap("the full peak", "seconds_full", "only {mfu:%} of the peak arrives."),
            Trap(
                "the sparse peak",
                "seconds_sparse",
                "data sheets print a peak that skips zeros, twice the dense {peak:FLOP/s}.",
            ),
        ),
        steps={
            "flops": "6 N_params T = {flops:FLOP}.",
            "rates": "{chips} x {peak:FLOP/s} x {mfu:%}.",
            "knob": "Divide; a day has 86,400 s.",
        },
        follow_ups=("Is {mfu:%} within reach at this batch and size?", "What do failures add?"),
        difficulty=1,
        importance=5,
        tags=("time", "whiteboard"),
        book="budget.seconds(budget.train_flops(n_params(llama), TOKENS), 8960, h100_peak, ARTICLE_MFU)",
        needs=("peak", "params"),
    ),
    Question(
        "budget.chip_hours",
        "numeric",
        "How many chip-hours of {cluster:gpu} does {model:model} on {tokens:Ttoken} take at {mfu:%} MFU?",
        (
            "The number of chips does not matter.",
            "6 N_params T / (C x MFU), in hours.",
            "6 N_params T = {flops:FLOP}, C = {peak:FLOP/s}.",
        ),
        canonical=RUN,
        draw={
            "case": CASES,
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8", "tpu-v5p"),
            "mfu": (0.3, 0.4, 0.5),
        },
        derive=_run,
        answer="chip_time",
        unit="chip*h",
        traps=(
            Trap(
                "the forward pass alone",
                "chip_time_forward",
                "training costs six FLOPs a parameter and token, not two.",
            ),
            Trap("the full peak", "chip_time_full", "only {mfu:%} of the peak arrives."),
        ),
        steps={
            "flops": "{flops:FLOP}.",
            "rates": "One chip: {peak:FLOP/s} x {mfu:%}.",
            "knob": "Divide, then by 3600.",
        },
        importance=4,
        minutes=2,
        tags=("time", "money"),
        book="budget.chip_seconds(budget.train_flops(n_params(llama), TOKENS), h100_peak, ARTICLE_MFU)",
        needs=("peak", "params"),
    ),
    Question(
        "budget.cost",
        "numeric",
        "{model:model} on {tokens:Ttoken} with H100s at {mfu:%} MFU, at {rate:USD/s} a GPU ({terms}). What does the compute cost?",
        (
            "What is paid for, and how much of it does the run take?",
            "6 N_params T / (C x MFU) x price.",
            "{chip_time:GPU*h|5} at {rate:USD/s}.",
        ),
        canonical={
            "model": "llama-3-70b",
            "cluster": "dgx-h100",
            "tokens": 15e12,
            "mfu": 0.4,
            "price": "article-cloud",
        },
        draw={"case": CASES, "mfu": (0.35, 0.4, 0.45), "price": H100_PRICES},
        derive=_money,
        answer="usd",
        unit="USD",
        traps=(
            Trap("the price of a node", "node", "the price is for one GPU and hour, and so are the hours."),
            Trap("the full peak", "full", "only {mfu:%} of the peak arrives, so more hours are paid."),
            Trap("the forward pass alone", "forward", "training costs six FLOPs a parameter and token, not two."),
        ),
        steps={
            "flops": "6 x {params:Gparam} x {tokens:Ttoken}.",
            "rates": "{peak:FLOP/s} x {mfu:%} a GPU: {chip_time:GPU*h|5}.",
            "knob": "Times {rate:USD/s}.",
        },
        follow_ups=("Which costs are missing from this?",),
        importance=4,
        tags=("money",),
        book="budget.cost(budget.chip_seconds(budget.train_flops(n_params(llama), TOKENS), h100_peak, ARTICLE_MFU), budget.price('article-cloud').rate)",
        needs=("peak", "params"),
    ),
    Question(
        "budget.mfu_reported",
        "numeric",
        "A model card reports {hours:chip*h} on {chip_name:chip} for {model_name:model} and {tokens:Ttoken}. What MFU does that "
        "imply (rule of six)?",
        (
            "Useful FLOPs over the FLOPs those hours could have done.",
            "6 N_params T / (chip-seconds x C).",
            "6 N_params T = {flops:FLOP}, C = {peak:FLOP/s}.",
        ),
        canonical={"run": "llama-3-70b", "chips": 16384},
        draw={"run": RUNS},
        derive=_reported,
        answer="mfu",
        unit="%",
        traps=(
            Trap("the forward pass alone", "forward", "a trained token costs 6 N_params FLOPs."),
            Trap("the sparse peak", "sparse", "the dense peak is {peak:FLOP/s}."),
        ),
        steps={
            "flops": "6 x {params:Gparam} x {tokens:Ttoken} = {flops:FLOP}.",
            "rates": "{hours:chip*h} x 3600 x {peak:FLOP/s}.",
            "knob": "Divide.",
        },
        follow_ups=("What do the reported hours include besides training?",),
        difficulty=2,
        importance=5,
        tags=("mfu", "reported"),
        book="budget.mfu(budget.train_flops(n_params(llama), TOKENS), meta_hours.chip_seconds, h100_peak)",
        needs=("peak", "params"),
    ),
    Question(
        "budget.chips_for",
        "numeric",
        "{model:model} on {tokens:Ttoken} must be done in {days} days at {mfu:%} MFU. How many chips of {cluster:machine} "
        "(failures left out)?",
        (
            "Turn the formula for the time around.",
            "6 N_params T / (seconds x C x MFU).",
            "6 N_params T = {flops:FLOP}, C = {peak:FLOP/s}, {days} x 86400 s.",
        ),
        canonical=RUN,
        draw={
            "case": CASES,
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8", "tpu-v5p", "tpu-v6e"),
            "mfu": (0.3, 0.4, 0.45),
            "days": (7, 14, 30, 60, 90),
        },
        derive=_run,
        answer="needed",
        unit="chip",
        traps=(
            Trap("the full peak", "needed_full", "only {mfu:%} of the peak arrives."),
            Trap(
                "the forward pass alone", "needed_forward", "training costs six FLOPs a parameter and token, not two."
            ),
        ),
        steps={
            "flops": "{flops:FLOP}.",
            "rates": "One chip in {days} days: {peak:FLOP/s} x {mfu:%} x {days} x 86400 s.",
            "knob": "Divide; one takes whole nodes, so a little more.",
        },
        follow_ups=("Is the batch large enough for that many chips?",),
        importance=5,
        tags=("time",),
        book="budget.chips_for(budget.train_flops(n_params(llama), TOKENS), 30 * units.DAY, h100_peak, ARTICLE_MFU)",
        needs=("peak", "params"),
    ),
    Question(
        "budget.small_run",
        "numeric",
        "A small team adapts {model:model} on {tokens:Gtoken} with {chips} chips of {cluster:machine} at {mfu:%} MFU, all "
        "weights trained. How many hours?",
        (
            "The same rule as for the big ones.",
            "6 N_params T / (chips x C x MFU).",
            "N_params = {params:Gparam}, C = {peak:FLOP/s}.",
        ),
        canonical=SMALL,
        draw={
            "model": ("llama-2-7b", "llama-3-8b", "llama-2-13b"),
            "tokens": (1e9, 5e9, 1e10, 2e10),
            "chips": (4, 8, 16, 32),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-h200", "mi300x-8", "tpu-v6e"),
            "mfu": (0.3, 0.35, 0.4),
        },
        derive=_run,
        answer="seconds",
        unit="h",
        traps=(
            Trap(
                "the forward pass alone", "seconds_forward", "training costs six FLOPs a parameter and token, not two."
            ),
            Trap("the full peak", "seconds_full", "only {mfu:%} of the peak arrives."),
        ),
        steps={
            "flops": "{flops:FLOP}.",
            "rates": "{chips} x {peak:FLOP/s} x {mfu:%}.",
            "knob": "Divide; an hour has 3600 s.",
        },
        minutes=2,
        tags=("time", "small"),
        needs=("peak", "params"),
    ),
    Question(
        "budget.mtbf",
        "numeric",
        "In a fleet, a chip fails {rate_year} times a year (counted in the run of {fleet:model}). How many hours pass on average "
        "between failures of a job on {chips} chips?",
        (
            "Any chip that fails stops the job.",
            "1 / (rate x chips).",
            "{rate_day} failures per chip and day, {chips} chips.",
        ),
        canonical=FAIL,
        draw=FAIL_DRAW,
        derive=_failures,
        answer="mtbf",
        unit="h",
        traps=(
            Trap("nodes for chips", "mtbf_nodes", "the rate is per chip, so multiply by chips."),
            Trap("one chip", "mtbf_chip", "the whole job stops when one of {chips} chips does."),
        ),
        steps={
            "rates": "{rate_day} per chip and day x {chips} chips = {fails_day} failures a day.",
            "knob": "The time between failures is the inverse of their rate.",
        },
        importance=4,
        tags=("failures",),
        book="budget.mtbf(budget.failure_rate('llama-3-405b'), 16384)",
    ),
    Question(
        "budget.checkpoint_interval",
        "numeric",
        "A checkpoint stops training for {save} s, and the job fails every {mtbf:s} on average. After how many minutes of training "
        "should the next checkpoint be written (first order)?",
        (
            "Balance the time for saving against the work lost.",
            "sqrt(2 delta M).",
            "delta = {save} s, M = {mtbf:s}.",
        ),
        canonical=FAIL,
        draw=FAIL_DRAW,
        derive=_failures,
        answer="tau",
        unit="min",
        traps=(
            Trap(
                "the 2 forgotten", "tau_no_two", "half an interval is lost on average, which puts a 2 under the root."
            ),
            Trap("half the interval", "tau_half", "on average half an interval is lost, but it is written at its end."),
        ),
        steps={
            "rates": "Saving costs delta/tau of the time, a failure tau/2 of work every M.",
            "compare": "delta/tau + tau/(2M) is least where both are equal.",
            "knob": "tau = sqrt(2 x {save} s x {mtbf:s}).",
        },
        difficulty=3,
        tags=("failures",),
        book="budget.checkpoint_interval(30, budget.mtbf(budget.failure_rate('llama-3-405b'), 16384))",
    ),
    Question(
        "budget.goodput",
        "numeric",
        "Failures every {mtbf:s}, {save} s for a checkpoint, {restart} min to get going again, checkpoints at the best interval. "
        "What share of the wall clock trains?",
        (
            "Three losses: saving, work redone, restarts.",
            "about 1 - delta/tau - tau/(2M) - R/M; Daly's complete model gives the exact share.",
            "tau = {tau:s}, delta = {save} s, M = {mtbf:s}, R = {restart_s:s}.",
        ),
        canonical=FAIL,
        draw={
            **FAIL_DRAW,
            "chips": (4096, 8192, 16384, 24576),
            "fleet": ("llama-3-405b", "rsc-1"),
            "restart": (10, 15, 20, 30),
        },
        derive=_failures,
        answer="goodput",
        unit="%",
        tolerance=0.01,
        steps={
            "rates": "Saving {save} s every {tau:s}; half of {tau:s} lost and {restart_s:s} to restart every {mtbf:s}.",
            "knob": "Take the three shares from 1; Daly's complete model gives this a little more exactly.",
        },
        difficulty=4,
        tags=("failures",),
        book="budget.goodput(budget.checkpoint_interval(30, budget.mtbf(budget.failure_rate('llama-3-405b'), 16384)), 30, budget.mtbf(budget.failure_rate('llama-3-405b'), 16384), 600)",
    ),
    Question(
        "budget.spares",
        "numeric",
        "Each of {chips} chips fails {rate_year} times a year and takes {repair} h to repair. How many are under repair at a "
        "time, on average?",
        (
            "Little's law.",
            "rate x chips x repair time.",
            "{fails_day} failures a day, {repair} h each.",
        ),
        canonical=FAIL,
        draw=FAIL_DRAW,
        derive=_failures,
        answer="spares",
        unit="chip",
        traps=(
            Trap("nodes", "spares_nodes", "the rate counts chips; a node of 8 goes out with its chip in practice."),
            Trap("a day's failures", "spares_day", "each is away for {repair} h, not for a day."),
        ),
        steps={"rates": "{fails_day} failures a day.", "knob": "x {repair}/24 days."},
        follow_ups=("If the whole node of 8 must leave, what changes?",),
        tags=("failures",),
    ),
    Question(
        "budget.hfu",
        "numeric",
        "A run reports {mfu:%} MFU with full activation recomputation. What is its HFU?",
        (
            "What is computed twice?",
            "MFU (1 + 1/3).",
            "One forward pass more: 8 instead of 6 FLOPs.",
        ),
        canonical={"mfu": 0.4},
        draw={"mfu": (0.3, 0.33, 0.36, 0.38, 0.42, 0.45, 0.48, 0.51)},
        derive=_hfu,
        answer="hfu",
        unit="%",
        traps=(
            Trap("everything twice", "double", "only the forward pass is repeated, a third of the work."),
            Trap("half more", "half_more", "forward is a third of 6 N_params T, not half."),
            Trap("the wrong way round", "third_less", "the hardware does more than the model needs, so HFU is higher."),
        ),
        steps={"flops": "6 FLOPs become 8 a parameter and token.", "knob": "{mfu:%} x 8/6."},
        difficulty=1,
        minutes=1,
        tags=("mfu",),
        book="budget.hfu(0.4, 1)",
    ),
    Question(
        "budget.params",
        "numeric",
        "Count the parameters of {model:model}: {layers} layers, D = {d_model}, F = {d_ff} (gated), {heads} query and {kv} "
        "key-value heads of {head}, vocabulary {vocab}, embeddings not tied.",
        (
            "Layer by layer: attention, MLP; then embedding and head.",
            "L (2DHh + 2DKh + 3DF) + 2VD, norms are small change.",
            "Attention {attention:Mparam}, MLP {mlp:Mparam} a layer; embeddings {embeddings:Gparam}.",
        ),
        canonical={"model": "llama-3-70b"},
        draw={"model": DENSE},
        derive=_params,
        answer="params",
        unit="Gparam",
        tolerance=0.005,
        traps=(
            Trap("two MLP matrices", "ungated", "a gated MLP has three matrices."),
            Trap("embeddings left out", "no_embeddings", "embedding and head are V x D each."),
        ),
        steps={
            "bytes": "A layer: attention {attention:Mparam}, MLP {mlp:Mparam}.",
            "knob": "{layers} layers and {embeddings:Gparam} of embeddings.",
        },
        tags=("model",),
        book="n_params(llama)",
    ),
    Question(
        "budget.attention_share",
        "numeric",
        "{model:model} at sequences of {seq_len} tokens: which share of the training FLOPs is causal attention (scores and "
        "values), the rest being matmuls with weights?",
        (
            "Attention grows with the sequence, matmuls do not.",
            "6 L S H h against 6 x multiplied weights.",
            "L = {layers}, H h = {heads} x {head}, matmuls {matmul:FLOP} a token.",
        ),
        canonical={"model": "llama-3-70b", "seq_len": 8192},
        draw={"model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "seq_len": (4096, 8192, 32768, 131072)},
        derive=_attention,
        answer="extra",
        unit="%",
        traps=(
            Trap("full attention", "extra_full", "a causal mask halves the scores."),
            Trap("the forward pass of attention", "forward", "attention has a backward pass too, twice as costly."),
            Trap("the ratio to the matmuls", "over_matmul", "the share is of the total, attention included."),
        ),
        steps={"flops": "Attention 6 L S H h a token, matmuls {matmul:FLOP}.", "knob": "Attention over the sum."},
        difficulty=3,
        tags=("flops", "long-context"),
        needs=("shape",),
    ),
    Question(
        "budget.chips_for_state",
        "numeric",
        "How many chips of {cluster:gpu} just hold the training state of {model:model} ({title}), everything sharded, activations "
        "left out? Give the bare ratio; one rounds up.",
        (
            "How many bytes are resident for each parameter?",
            "N_params x {each} bytes / HBM.",
            "N_params = {params:Gparam}, HBM = {hbm:B}.",
        ),
        canonical={"model": "deepseek-v3", "cluster": "dgx-h200", "recipe": "bf16"},
        draw={
            "model": ("llama-2-13b", "llama-3-70b", "llama-3-405b", "mixtral-8x7b", "deepseek-v3"),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "tpu-v5p"),
            "recipe": ("bf16", "megatron", "adam-8bit"),
        },
        derive=_recipe_run,
        answer="chips_needed",
        unit="chip",
        traps=(
            Trap("weights alone", "weights", "training keeps {each} bytes a parameter, not the two of the weights."),
            Trap("10 bytes a parameter", "ten", "that leaves out the master copy and the gradients."),
            Trap("no optimizer", "inference", "Adam's moments and the master copy are missing."),
        ),
        steps={"bytes": "{params:Gparam} x {each} bytes.", "compare": "{hbm:B} a chip.", "knob": "Divide."},
        tags=("memory",),
        book="n_params(model('deepseek-v3')) * recipe('bf16').total / chip('h200').hbm",
        needs=("hbm", "params"),
    ),
    Question(
        "budget.convention",
        "choice",
        "Two teams time the same Llama 3 8B step at 8192 tokens a sequence. Team A counts attention over the full sequence, team B "
        "over the causal half. Whose MFU is higher?",
        (
            "The time is the same. What differs?",
            "MFU = FLOPs counted / (time x peak).",
            "12 L S H h against 6 L S H h a token.",
        ),
        derive=lambda p: {"right": "a"},
        answer="right",
        options=(
            Option("a", "Team A's, as it counts more FLOPs for the same time"),
            Option(
                "b", "Team B's, as it is more honest", "Counting fewer FLOPs in the same time gives a lower figure."
            ),
            Option(
                "same",
                "Both are the same, as MFU is a property of the run",
                "MFU depends on what one counts as model FLOPs.",
            ),
            Option("six", "Neither may count attention, MFU means 6N", "Both conventions exist; name the one you use."),
        ),
        steps={"flops": "Full attention counts twice the causal FLOPs.", "compare": "Same time, so a higher MFU."},
        minutes=1,
        tags=("mfu", "convention"),
    ),
    Question(
        "budget.audit_cap",
        "audit",
        "Audit. A text plans 8960 H100 with a batch of 4 x 2^20 tokens, FSDP across nodes and TP 4, at 40% MFU: {said:day}. "
        "Its gathers over the network need 2472 tokens per GPU to hide. At least how many days does it take?",
        (
            "How many tokens does a GPU have?",
            "MFU cap = (B/N) / (C/W_node).",
            "468 tokens per GPU against 2472.",
        ),
        derive=_cap_claim,
        answer="ours",
        unit="day",
        traps=(Trap("40% MFU taken as given", "said", "468 tokens per GPU cannot hide gathers that need 2472."),),
        steps={
            "flops": "6 N_params T for 70.55e9 parameters and 15e12 tokens.",
            "bytes": "TP inside a node does not shrink what the node gathers.",
            "rates": "468 tokens per GPU, 2472 needed.",
            "compare": "MFU is capped at 468/2472 = 18.9%.",
            "knob": "Days at that cap.",
        },
        difficulty=4,
        importance=5,
        minutes=5,
        tags=("claim", "mfu"),
        claim="mfu-cap-h100",
        canonical={"model": "llama-3-70b", "cluster": "dgx-h100"},
        needs=("peak", "network", "params"),
    ),
    Question(
        "budget.audit_54_days",
        "audit",
        "Audit. A text says that Llama 3 70B took {said:day} on 16 thousand H100, of which {effective:day} were effective. The model "
        "card reports {hours:GPU*h}. How many days are that on 16384 GPUs?",
        (
            "How many GPUs shared the hours?",
            "GPU-hours / 16384 / 24.",
            "{hours:GPU*h}.",
        ),
        derive=_meta_claim,
        answer="ours",
        unit="day",
        traps=(
            Trap(
                "the snapshot of another run",
                "said",
                "54 days is the part of the 405B run whose failures were published.",
            ),
            Trap("40% MFU", "effective", "the reported hours imply 28%, not 40%."),
        ),
        steps={"rates": "{hours:GPU*h} over 16384 GPUs.", "knob": "In days."},
        importance=5,
        tags=("claim", "reported"),
        claim="meta-54-days",
        book="meta_hours.chip_seconds / 16384",
    ),
    Question(
        "budget.audit_meta_cost",
        "audit",
        "Audit. 'Meta's real cost was 30 to 50 million USD, staff and several runs included.' What is to be said about it?",
        (
            "Where does the number come from?",
            "A number without a source can be neither checked nor computed.",
            "What is published: 6.4 million GPU-hours.",
        ),
        derive=lambda p: {"right": "unsourced"},
        answer="right",
        options=(
            Option(
                "unsourced",
                "It has no source; only the GPU-hours are published, and price, staff and retries are guesses",
            ),
            Option(
                "low",
                "It is too low, as GPUs cost 25 thousand dollars each",
                "Buying a fleet is not the cost of one run on it.",
            ),
            Option(
                "high",
                "It is too high: 8.9 million is the true cost",
                "8.9 million is compute at 40% MFU and 2 dollars; both are assumptions.",
            ),
            Option(
                "right",
                "It follows from the reported hours",
                "6.4 million hours at 2 dollars are 12.8 million; nothing gives 30 to 50.",
            ),
        ),
        steps={
            "compare": "6.4 million GPU-hours are published, a price is not.",
            "knob": "State ranges with their inputs instead.",
        },
        minutes=2,
        tags=("claim", "money"),
        claim="cost-meta",
    ),
    Question(
        "budget.audit_ledger",
        "audit",
        "Audit. A text adds up weights, gradients, Adam and checkpointed activations to 1.5 GB per GPU and concludes that 2% of an "
        "H100's memory is used. Which is the gravest gap?",
        (
            "What is in memory while one layer is being computed?",
            "state + checkpoints + gathered layers + working set + logits + buffers.",
            "One gathered layer of 70B in bf16 at TP 4 alone is 428 MB.",
        ),
        derive=lambda p: {"right": "transient"},
        answer="right",
        options=(
            Option(
                "transient",
                "The transient part: gathered layers, the layer being recomputed, logits, buffers and context, several GB",
            ),
            Option("adam", "Adam's moments need 16 bytes a parameter", "They take 8; the text has them."),
            Option(
                "weights", "Weights are kept in full on each GPU", "FSDP shards them; they are gathered layer by layer."
            ),
            Option(
                "none",
                "None; sharding over 8192 GPUs leaves next to nothing",
                "The sharded state is small, the transient part is not sharded over 8192.",
            ),
        ),
        steps={
            "bytes": "The listed rows give 1.48 GB.",
            "compare": "Gathered layers (428 MB each), working set, logits and context come on top.",
        },
        difficulty=3,
        minutes=2,
        tags=("claim", "memory"),
        claim="ledger-total",
    ),
    Question(
        "budget.audit_min_gpus",
        "audit",
        "Audit. A text claims that {said} H100 hold a 70B training run (state and two checkpoints per layer for 4e6 tokens at once). "
        "With 16 bytes a parameter and 80 GB, how many GPUs does that take?",
        (
            "State plus activations over the memory of one GPU.",
            "(16 N_params + 2 x 2 bytes x D x L x tokens) / HBM.",
            "State 1129 GB; activations 4e6 x 8192 x 80 x 2 x 2 bytes.",
        ),
        derive=_claim("min-gpus"),
        answer="ours",
        unit="GPU",
        traps=(Trap("another chip and recipe", "said", "117 belongs to a 96 GB chip with 10 bytes a parameter."),),
        steps={
            "bytes": "State 16 N_params, activations 4 x 8192 x 80 bytes a token.",
            "compare": "80 GB a GPU.",
            "knob": "Divide and round up.",
        },
        difficulty=4,
        tags=("claim", "memory"),
        claim="min-gpus",
        canonical={"model": "llama-3-70b"},
        needs=("params", "shape"),
    ),
    Question(
        "budget.audit_ten_years",
        "audit",
        "Audit. '117 H100 would train the 70B for {said:year}.' At 40% MFU and 15e12 tokens, how many years?",
        (
            "The rule of six again.",
            "6 N_params T / (117 x C x 0.4).",
            "6.35e24 FLOP over 117 x 989e12 x 0.4.",
        ),
        derive=_years,
        answer="ours",
        unit="year",
        traps=(Trap("another chip", "said", "about ten years is what 117 TPU v5p take, at half the peak of an H100."),),
        steps={"flops": "6.35e24 FLOP.", "rates": "117 x 989e12 x 0.4.", "knob": "Divide, in years."},
        tags=("claim", "time"),
        claim="ten-years",
        book="budget.seconds(budget.train_flops(n_params(llama), TOKENS), 117, h100_peak, ARTICLE_MFU)",
        canonical={"model": "llama-3-70b", "chip": "h100-sxm"},
        needs=("peak", "params"),
    ),
    Question(
        "budget.audit_five_million",
        "audit",
        "Audit. A summary says '12 days, {said_usd:USD}, as Meta's data show' for 4.46 million GPU-hours, although its section on cost has "
        "2 USD a GPU-hour for rented GPUs. What does that price give?",
        ("Which of its two prices does the text ask for here?", "GPU-hours x price.", "4.46e6 x 2."),
        derive=lambda p: {
            "said_usd": float(claim("five-million").said) * 1e6,
            "ours": float(claim("five-million").ours or 0) * 1e6,
            "owned": budget.cost(
                float(claim("five-million").ours or 0) * 1e6 / budget.price("article-cloud").rate,
                budget.price("article-owned").rate,
            ),
        },
        answer="ours",
        unit="USD",
        traps=(
            Trap("the summary's number", "said_usd", "it lies between the two prices and follows from neither."),
            Trap("the price of owned machines", "owned", "rented GPUs were asked."),
        ),
        steps={
            "rates": "4.46 million GPU-hours at 40% MFU.",
            "knob": "x 2 USD; Meta's 6.4 million hours would be 12.8 million USD.",
        },
        difficulty=1,
        minutes=1,
        tags=("claim", "money"),
        claim="five-million",
    ),
    Question(
        "budget.explain_interval",
        "explain",
        "Your manager wants one number: days to train. Why do you answer with an interval, and what drives its width?",
        (
            "Which inputs are not known?",
            "days = 6 N_params T/(chips x C x MFU x goodput).",
            "MFU, goodput, price.",
        ),
        rubric=(
            Point("MFU is not known in advance", (r"mfu|utili[sz]ation|efficien",)),
            Point(
                "failures and restarts take time (goodput)", (r"fail|restart|goodput|checkpoint|interrupt|downtime",)
            ),
            Point("prices or availability of chips move", (r"price|cost|dollar|availab",)),
            Point("published runs anchor the estimate", (r"publish|report|model card|meta|llama|measured",)),
        ),
        says=(
            "Because MFU and goodput are ranges, not numbers. FLOPs are known to a few percent, peak exactly; MFU may be 25 to 45% and "
            "goodput 85 to 97%. So days span a factor of two, and I say which end I plan with.",
            "Days are 6 N_params T over chips x peak x MFU x goodput. The first three I know. MFU depends on batch, layout, kernels and network: "
            "Llama 3 70B implies 28% by its reported hours, 405B about 40%. Goodput depends on failures: 419 in 54 days on 16384 GPUs. "
            "I multiply the ends of the ranges for a worst and best case, and narrow them with a short run on a few nodes.",
            "I would show the formula with each input as low, point, high. FLOPs: 6 N_params T plus attention, within a few percent. Peak: dense. MFU: "
            "cap by the network, then kernels, then bubble, then published runs as a witness. Goodput: failures per chip-day x chips, "
            "checkpoint interval by sqrt(2 delta M), restart time. Dollars multiply by a price that differs sixfold between owners and "
            "on-demand clouds. All corners together give the widest interval; if the inputs are independent the middle is likelier. "
            "Then the plan: measure step time on 64 GPUs, extrapolate, buy slack for the rest.",
        ),
        steps={
            "flops": "Known within a few percent.",
            "rates": "MFU and goodput are ranges.",
            "knob": "Report low, point, high.",
        },
        importance=4,
        minutes=4,
        tags=("concept", "aloud"),
    ),
    Question(
        "budget.estimate_cost",
        "estimate",
        "Without paper: compute cost of training {model:model} on {tokens:Ttoken} with H100s at {mfu:%} MFU and {rate:USD/s} a GPU? "
        "Add a 90% interval.",
        (
            "Start from 6 N_params T; an H100 does about 4e14 useful FLOP/s.",
            "6 N_params T / (C x MFU) x price.",
            "N_params = {params:Gparam}, C = {peak:FLOP/s}.",
        ),
        canonical={
            "model": "llama-3-405b",
            "cluster": "dgx-h100",
            "tokens": 15.6e12,
            "mfu": 0.4,
            "price": "article-cloud",
        },
        draw={"case": CASES, "mfu": (0.35, 0.4), "price": H100_PRICES},
        derive=_money,
        answer="usd",
        unit="USD",
        traps=(Trap("the forward pass alone", "forward", "training costs six FLOPs a parameter and token, not two."),),
        steps={
            "flops": "6 x {params:Gparam} x {tokens:Ttoken}.",
            "rates": "{chip_time:GPU*h|5}.",
            "knob": "x {rate:USD/s}.",
        },
        tags=("estimate", "money"),
    ),
    Question(
        "budget.code_days",
        "code",
        "Write a function of `flops`, `chips`, `peak` (FLOP/s of one chip) and `mfu` that returns the seconds of a run.",
        (
            "Work over rate.",
            "FLOPs / (N C MFU).",
            "One line.",
        ),
        canonical=RUN,
        draw={"case": CASES, "chips": (64, 512, 4096), "mfu": (0.3, 0.4)},
        derive=_run,
        reference=budget.seconds,
        arguments=("flops", "chips", "peak", "mfu"),
        steps={"rates": "`def seconds(flops, chips, peak, mfu): return flops / (chips * peak * mfu)`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
)
