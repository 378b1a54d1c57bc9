"""Questions of the chapter on pipeline parallelism."""

from __future__ import annotations

from typing import Any

from scaling_lib import cluster, model
from scaling_lib import pp as pp
from scaling_lib.claims import claim
from scaling_lib.questions import Option, Point, Question, Trap


def _bubble(p: Any) -> dict[str, Any]:
    total, ideal = pp.bubble_of_total(p.pp, p.m), pp.bubble_of_ideal(p.pp, p.m)
    chunked = pp.bubble_of_total(p.pp, p.m, p.v)
    return {
        "idle": p.pp - 1,
        "slots": p.m + p.pp - 1,
        "chunk_slots": p.v * p.m + p.pp - 1,
        "total": total,
        "ideal": ideal,
        "one_off": p.pp / (p.m + p.pp - 1),
        "one_off_both": p.pp / (p.m + p.pp),
        "chunked": chunked,
        "chunked_ideal": pp.bubble_of_ideal(p.pp, p.m, p.v),
        "divided": total / p.v,
    }


def _needed(p: Any) -> dict[str, Any]:
    share = p.share
    return {
        "needed": pp.microbatches_for_bubble(p.pp, share),
        "ideal": (p.pp - 1) / share,
        "stages": p.pp * (1 - share) / share,
        "chunked": pp.microbatches_for_bubble(p.pp, share, p.v),
    }


def _seconds(p: Any) -> dict[str, Any]:
    f, b, w = p.f / 1e3, p.b / 1e3, p.w / 1e3
    return {
        "t_f": f,
        "t_b": b,
        "t_w": w,
        "plain": pp.bubble_1f1b(p.pp, f, b, w),
        "all": p.pp * (f + b + w),
        "forward": (p.pp - 1) * f,
        "interleaved": pp.bubble_interleaved(p.pp, p.v, f, b, w),
        "chunk_all": p.pp * (f + b + w) / p.v,
        "h1": pp.bubble_zb_h1(p.pp, f, b, w),
        "h2": pp.bubble_zb_h2(p.pp, f, b, w),
        "h1_no_b": (p.pp - 1) * (f - w) if f > w else (p.pp - 1) * (f + b + w + w),
        "work": pp.ideal_seconds(p.m, f, b, w),
        "step": pp.ideal_seconds(p.m, f, b, w) + pp.bubble_1f1b(p.pp, f, b, w),
        "step_sum": p.pp * pp.ideal_seconds(p.m, f, b, w),
    }


def _dual(p: Any) -> dict[str, Any]:
    t = p.t / 1e3
    return {
        "t_s": t,
        "dual": pp.bubble_dualpipe(p.pp, t, t, t),
        "zero_half": pp.bubble_dualpipe(p.pp, t, t, t) * 2,
        "plain": pp.bubble_1f1b(p.pp, t, t, t),
        "h1": pp.bubble_zb_h1(p.pp, t, t, t),
    }


def _peaks(p: Any) -> dict[str, Any]:
    return {
        "first": pp.peak_1f1b(p.pp, p.m, p.rank),
        "gpipe": float(pp.peak_gpipe(p.m)),
        "late": float(p.rank + 1),
        "all_stages": float(p.pp),
        "plus": float(pp.peak_1f1b(p.pp, p.m, p.rank) + 1),
        "left": p.pp - p.rank,
        "interleaved": pp.peak_interleaved(p.pp, p.m, p.v),
        "plain": float(pp.peak_1f1b(p.pp, p.m)),
        "factor": 1 + (p.pp - 1) / (p.pp * p.v),
        "times_v": float(p.pp * p.v),
    }


def _boundary(p: Any) -> dict[str, Any]:
    m, c = model(p.model), cluster(p.cluster)
    one = pp.boundary_bytes(p.tokens, m.d_model, 1, p.tp)
    card = c.levels[1].egress
    return {
        "d_model": m.d_model,
        "bytes": one,
        "uncut": one * p.tp,
        "twice": one * 2,
        "card": card,
        "seconds": one / card,
        "seconds_uncut": one * p.tp / card,
        "seconds_node": one / (c.domain * card),
        "seconds_inner": one / c.levels[0].egress,
    }


def _micro(p: Any) -> dict[str, Any]:
    m = p.batch / (p.dp * p.seq)
    return {
        "count": m,
        "bubble": pp.bubble_of_total(p.pp, m),
        "ideal": pp.bubble_of_ideal(p.pp, m),
        "no_dp": pp.bubble_of_total(p.pp, p.batch / p.seq),
        "one_off": p.pp / (m + p.pp - 1),
    }


def _claim(name: str) -> Any:
    return lambda p: {"said": float(claim(name).said), "ours": float(claim(name).ours or 0)}


def _ib_claim(p: Any) -> dict[str, Any]:
    c = cluster("dgx-h100")
    return {**_claim("ib-20x")(p), "inner": c.levels[0].egress, "card": c.levels[1].egress, "both": 2 * c.levels[0].egress / c.levels[1].egress,
            "node": c.levels[0].egress / c.egress(10**4)}  # fmt: skip


CANON = {"pp": 4, "m": 16, "v": 4}
DRAW = {"pp": (4, 8, 16), "m": (32, 48, 64, 96), "v": (2, 4, 5)}
TIMES = {"pp": 4, "m": 8, "v": 2, "f": 10, "b": 11, "w": 8}
TIMES_DRAW = {"pp": (4, 6, 8, 16), "m": (16, 24, 32), "v": (2, 3, 4), "f": (10, 11, 12), "b": (12, 13, 14), "w": (8, 9)}
BOUNDARY = {"model": "llama-3-70b", "cluster": "dgx-h100", "tokens": 8192, "tp": 8}

QUESTIONS = (
    Question(
        "pp.bubble",
        "numeric",
        "1F1B with {pp} equal stages and {m} microbatches. What share of the whole step is a stage idle?",
        ("How many slots does a step have?", "(p-1)/(m+p-1).", "{idle}/{slots}."),
        canonical=CANON,
        draw=DRAW,
        derive=_bubble,
        answer="total",
        unit="%",
        traps=(
            Trap("over the ideal time", "ideal", "the question asks for the share of the whole step, bubble included."),
            Trap(
                "stages for stages less one",
                "one_off",
                "the first microbatch fills p-1 slots before the last stage starts.",
            ),
        ),
        steps={"flops": "{m} slots of work.", "compare": "{idle} slots idle of {slots}.", "knob": "{idle}/{slots}."},
        importance=5,
        minutes=2,
        tags=("bubble", "whiteboard"),
        book="pp.bubble_of_total(4, 16)",
    ),
    Question(
        "pp.bubble_ideal",
        "numeric",
        "1F1B with {pp} equal stages and {m} microbatches, in the convention of Megatron's paper: what is the bubble over the ideal time?",
        ("Another denominator.", "(p-1)/m.", "{idle}/{m}."),
        canonical=CANON,
        draw=DRAW,
        derive=_bubble,
        answer="ideal",
        unit="%",
        traps=(Trap("the share of the whole step", "total", "divide by the work alone, {m} slots."),),
        steps={"compare": "{idle} idle slots against {m} of work."},
        difficulty=1,
        minutes=1,
        tags=("bubble", "convention"),
        book="pp.bubble_of_ideal(4, 16)",
    ),
    Question(
        "pp.bubble_interleaved",
        "numeric",
        "Interleaved 1F1B: {pp} devices, {v} chunks each, {m} microbatches. Idle share of the whole step?",
        (
            "What do chunks change: how many slots a device idles, or how long a slot is?",
            "(p-1)/(v m + p - 1).",
            "{idle}/{chunk_slots}.",
        ),
        canonical=CANON,
        draw=DRAW,
        derive=_bubble,
        answer="chunked",
        unit="%",
        traps=(
            Trap("no chunks", "total", "{v} chunks make the idle slots {v} times shorter."),
            Trap("over the ideal time", "chunked_ideal", "the share of the whole step was asked."),
        ),
        steps={"compare": "{idle} short slots idle, {v} x {m} of work.", "knob": "{idle}/{chunk_slots}."},
        importance=4,
        minutes=2,
        tags=("bubble",),
        book="pp.bubble_of_total(4, 16, 4)",
    ),
    Question(
        "pp.microbatches",
        "numeric",
        "{pp} stages under 1F1B. How many microbatches keep the bubble at {share:%} of the step? (not rounded)",
        ("Solve the bubble for m.", "m = (p-1)(1-s)/s.", "p = {pp}, s = {share}."),
        canonical={"pp": 8, "share": 0.1, "v": 2},
        draw={"pp": (4, 6, 8, 12, 16), "share": (0.1, 0.15, 0.2, 0.25), "v": (2,)},
        derive=_needed,
        answer="needed",
        unit="microbatch",
        traps=(
            Trap(
                "over the ideal time",
                "ideal",
                "the share is of the whole step, so the bubble is in the denominator too.",
            ),
            Trap("stages for stages less one", "stages", "p-1 slots are idle."),
        ),
        steps={"compare": "(p-1)/(m+p-1) = s.", "knob": "m = (p-1)(1-s)/s."},
        importance=4,
        minutes=2,
        tags=("bubble",),
        book="pp.microbatches_for_bubble(8, 0.1)",
    ),
    Question(
        "pp.bubble_seconds",
        "numeric",
        "1F1B, {pp} stages; a microbatch takes {f} ms forward, {b} ms for input and {w} ms for weight gradients on a stage. How many ms "
        "is each stage idle in a step?",
        ("p-1 times what?", "(p-1)(t_F + t_B + t_W).", "({pp}-1)({f}+{b}+{w})."),
        canonical=TIMES,
        draw=TIMES_DRAW,
        derive=_seconds,
        answer="plain",
        unit="ms",
        traps=(
            Trap("stages for stages less one", "all", "p-1 slots are idle, not p."),
            Trap("the forward pass alone", "forward", "stages wait in the backward pass too."),
            Trap("ZB-H1", "h1", "1F1B does not move weight gradients into the bubble."),
        ),
        steps={"knob": "({pp} - 1) x ({f} + {b} + {w}) ms."},
        difficulty=1,
        minutes=2,
        tags=("bubble",),
        book="pp.bubble_1f1b(4, 0.010, 0.011, 0.008)",
    ),
    Question(
        "pp.zb_h1",
        "numeric",
        "ZB-H1 with {pp} stages, t_F = {f}, t_B = {b}, t_W = {w} ms a microbatch. Idle ms per stage (closed form)?",
        ("Weight gradients may wait.", "(p-1)(t_F + t_B - t_W).", "({pp}-1)({f}+{b}-{w})."),
        canonical=TIMES,
        draw=TIMES_DRAW,
        derive=_seconds,
        answer="h1",
        unit="ms",
        traps=(
            Trap("1F1B", "plain", "H1 fills part of the bubble with weight gradients."),
            Trap("ZB-H2", "h2", "H2 fills it twice, for twice the activations."),
        ),
        steps={"knob": "({pp} - 1) x ({f} + {b} - {w}) ms."},
        difficulty=3,
        minutes=2,
        tags=("bubble", "zero-bubble"),
        book="pp.bubble_zb_h1(4, 0.010, 0.011, 0.008)",
    ),
    Question(
        "pp.step_time",
        "numeric",
        "{pp} stages, {m} microbatches, t_F = {f}, t_B = {b}, t_W = {w} ms. How long is a 1F1B step (p2p free), in ms?",
        ("Work plus bubble.", "(m + p - 1)(t_F + t_B + t_W).", "({m}+{pp}-1)({f}+{b}+{w})."),
        canonical=TIMES,
        draw=TIMES_DRAW,
        derive=_seconds,
        answer="step",
        unit="ms",
        traps=(
            Trap("work alone", "work", "stages wait for the pipeline to fill and drain."),
            Trap("stages one after the other", "step_sum", "stages work at the same time on different microbatches."),
        ),
        steps={"flops": "{m} microbatches: {work:ms}.", "knob": "plus ({pp}-1) slots: {plain:ms}."},
        minutes=2,
        tags=("time",),
    ),
    Question(
        "pp.dualpipe",
        "numeric",
        "DualPipe with {pp} stages and t_F = t_B = t_W = {t} ms, no gain from overlapping a forward with a backward. How many ms of idle "
        "time remain?",
        (
            "It is not zero.",
            "(p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W), ω = 1 without a gain.",
            "({pp}/2 - 1) x (3 x {t} + {t} - 2 x {t}).",
        ),
        canonical={"pp": 16, "t": 10},
        draw={"pp": (8, 12, 16, 24), "t": (8, 10, 12, 15)},
        derive=_dual,
        answer="dual",
        unit="ms",
        traps=(
            Trap("1F1B", "plain", "DualPipe's bubble is smaller."),
            Trap("all stages", "zero_half", "half the stages count: p/2 - 1."),
        ),
        steps={"knob": "({pp}/2 - 1) x (3 + 1 - 2) x {t} ms."},
        difficulty=3,
        tags=("bubble", "zero-bubble"),
        book="pp.bubble_dualpipe(16, 0.01, 0.01, 0.01)",
    ),
    Question(
        "pp.peak_1f1b",
        "numeric",
        "1F1B, {pp} stages, {m} microbatches. How many microbatches' activations does rank {rank} (from 0) hold at its peak?",
        ("How many forwards run before its first backward?", "min(m, p - r).", "p - r = {left}."),
        canonical={"pp": 8, "m": 32, "rank": 1, "v": 2},
        draw={"pp": (8, 12, 16), "m": (32, 64), "rank": (1, 2, 3), "v": (2,)},
        derive=_peaks,
        answer="first",
        unit="microbatch",
        traps=(
            Trap("GPipe", "gpipe", "1F1B starts backwards early, so not all {m} pile up."),
            Trap("the first rank", "all_stages", "rank {rank} starts later and gives back earlier than rank 0."),
            Trap("counted from the wrong end", "late", "early ranks hold more, late ones less."),
        ),
        steps={"compare": "Rank r runs p - r forwards before its first backward."},
        minutes=2,
        tags=("memory",),
        book="pp.peak_1f1b(8, 32, 1)",
    ),
    Question(
        "pp.peak_interleaved",
        "numeric",
        "Interleaved 1F1B on {pp} devices with {v} chunks and {m} microbatches: activations on rank 0, in microbatches of a device's whole "
        "share?",
        ("A little more than 1F1B.", "p (1 + (p-1)/(p v)).", "p = {pp}, v = {v}."),
        canonical={"pp": 8, "m": 64, "rank": 0, "v": 2},
        draw={"pp": (4, 8, 16), "m": (64, 128), "rank": (0,), "v": (2, 4)},
        derive=_peaks,
        answer="interleaved",
        unit="microbatch",
        traps=(
            Trap("plain 1F1B", "plain", "chunks add (p-1)/(p v) on top."),
            Trap("chunks counted as whole shares", "times_v", "a chunk holds 1/v of the device's layers."),
            Trap("GPipe", "gpipe", "not all microbatches are in flight."),
        ),
        steps={"compare": "{pp} for 1F1B, times {factor}."},
        difficulty=3,
        tags=("memory",),
        book="pp.peak_interleaved(8, 64, 2)",
    ),
    Question(
        "pp.boundary_bytes",
        "numeric",
        "A stage hands {tokens} tokens of {model:model} (D = {d_model}) to the next one, bf16, TP {tp} with sequence parallelism. MB sent "
        "by one chip, forward?",
        ("Only activations cross.", "tokens x D e/Y.", "{tokens} x {d_model} x 2/{tp}."),
        canonical=BOUNDARY,
        draw={"model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"), "tokens": (4096, 8192, 16384), "tp": (4, 8)},
        derive=_boundary,
        answer="bytes",
        unit="MB",
        traps=(
            Trap("the uncut activation", "uncut", "each of the {tp} ranks sends its slice."),
            Trap("gradients too", "twice", "only the forward pass was asked."),
        ),
        steps={"bytes": "{tokens} x {d_model} x 2 / {tp}."},
        minutes=2,
        tags=("comms",),
        book="pp.boundary_bytes(8192, llama.d_model, 1, 8)",
    ),
    Question(
        "pp.boundary_time",
        "numeric",
        "A stage hands {tokens} tokens of {model:model} to a stage on another node, bf16, TP {tp} with sequence parallelism, one card per chip of "
        "{cluster:machine}. How many microseconds?",
        ("Bytes over a card's egress.", "tokens x D e/(Y W).", "{bytes:MB} over {card:B/s}."),
        canonical=BOUNDARY,
        draw={
            "model": ("llama-3-8b", "llama-3-70b", "llama-3-405b"),
            "cluster": ("dgx-a100", "dgx-h100", "dgx-b300", "mi300x-8"),
            "tokens": (4096, 8192, 16384),
            "tp": (4, 8),
        },
        derive=_boundary,
        answer="seconds",
        unit="us",
        traps=(
            Trap("the inner network", "seconds_inner", "stages lie on different nodes here."),
            Trap("the uncut activation", "seconds_uncut", "each rank sends its own slice through its own card."),
        ),
        steps={"bytes": "{bytes:MB}.", "rates": "/ {card:B/s}."},
        minutes=2,
        tags=("comms", "gpu"),
        needs=("network", "shape"),
    ),
    Question(
        "pp.small_batch",
        "numeric",
        "{batch} tokens a step, DP {dp}, sequences of {seq} as microbatches, PP {pp} under 1F1B. Idle share of the step?",
        ("Microbatches per replica first.", "m = B/(dp x seq); (p-1)/(m+p-1).", "m = {count}."),
        canonical={"batch": 4194304, "dp": 64, "seq": 4096, "pp": 8},
        draw={"batch": (4194304, 8388608), "dp": (32, 64, 128), "seq": (4096, 8192), "pp": (4, 8)},
        derive=_micro,
        answer="bubble",
        unit="%",
        traps=(
            Trap("over the ideal time", "ideal", "the share of the whole step was asked."),
            Trap("the whole batch in one pipeline", "no_dp", "the batch is shared by {dp} replicas."),
        ),
        steps={"flops": "{count} microbatches a replica.", "knob": "({pp}-1)/({count}+{pp}-1)."},
        importance=4,
        tags=("bubble", "batch"),
    ),
    Question(
        "pp.audit_drawing",
        "audit",
        "Audit. A text draws GPipe with 4 stages and 4 microbatches, stage 0 idle for 3 of 11 slots ({said:%}). What idle share does the formula beside the drawing, (p-1)/(m+p-1), give?",
        ("Forward and backward slots both idle.", "(p-1)/(m+p-1), of forward and backward slots alike.", "p = m = 4."),
        derive=_claim("bubble-diagram"),
        answer="ours",
        unit="%",
        traps=(Trap("the drawing", "said", "stage 0 waits 3 forward and 3 backward slots."),),
        steps={"compare": "3 of 7 slots of forward and backward."},
        minutes=2,
        tags=("claim", "bubble"),
        claim="bubble-diagram",
        book="pp.bubble_of_total(4, 4)",
    ),
    Question(
        "pp.audit_one_microbatch",
        "audit",
        "Audit. A text draws GPipe on four GPUs, each with F1 F2 F3 F4 and B1 to B4, and writes 'one microbatch per stage' below. How many microbatches pass each "
        "stage?",
        ("Count the forwards on GPU 0.", "F1 to F4.", "Every microbatch passes every stage."),
        derive=_claim("one-microbatch-per-stage"),
        answer="ours",
        unit="microbatch",
        traps=(Trap("the caption", "said", "F1 to F4 are different microbatches."),),
        steps={"compare": "Four forwards, four microbatches."},
        difficulty=1,
        minutes=1,
        importance=1,
        tags=("claim",),
        claim="one-microbatch-per-stage",
    ),
    Question(
        "pp.audit_20x",
        "audit",
        "Audit. 'From NVLink to InfiniBand an H100 loses {said} times its bandwidth.' One direction, one GPU: what is the ratio?",
        ("Egress on both sides.", "W_inner/W_card.", "{inner:B/s} over {card:B/s}."),
        derive=_ib_claim,
        answer="ours",
        unit="ratio",
        traps=(
            Trap("both directions on one side", "both", "compare egress with egress."),
            Trap("a node's egress", "node", "one GPU was asked; for hierarchical collectives the ratio is about 1."),
            Trap("the text's number", "said", "it mixes directions and rounds up."),
        ),
        steps={"rates": "{inner:B/s} inside, {card:B/s} a card."},
        minutes=1,
        tags=("claim", "direction"),
        claim="ib-20x",
        book="nvlink_egress / nic_egress",
        canonical={"cluster": "dgx-h100"},
        needs=("network",),
    ),
    Question(
        "pp.audit_ici",
        "audit",
        "Audit. 'TPU ICI joins every chip to every other, so TP may cross machines freely and no pipeline is needed.' What is wrong?",
        ("How many neighbours has a v5p chip?", "A 3D torus.", "TP limit F W/C an axis."),
        derive=lambda p: {"right": "torus"},
        answer="right",
        options=(
            Option("torus", "ICI is a torus of nearest neighbours; TP still ends near 11 ways an axis on v5p"),
            Option("switch", "ICI is a switch of 256 chips", "It has no switch; chips are joined to neighbours."),
            Option("slow", "ICI is slower than InfiniBand", "180 GB/s an axis is more than a card's 50."),
            Option("nothing", "Nothing", "Distance and bandwidth per axis limit collectives there too."),
        ),
        steps={"compare": "Six neighbours; bandwidth counts per axis."},
        minutes=1,
        tags=("claim", "tpu"),
        claim="ici-all-to-all",
    ),
    Question(
        "pp.audit_memory",
        "audit",
        "Audit. 'More microbatches shrink the bubble, but too many explode memory.' The global batch is fixed. What really happens to "
        "activations?",
        (
            "How large is a microbatch when there are more?",
            "m microbatches of B/m tokens.",
            "1F1B holds at most p of them.",
        ),
        derive=lambda p: {"right": "fall"},
        answer="right",
        options=(
            Option("fall", "Constant under GPipe, falling under 1F1B, as each microbatch gets smaller"),
            Option("grow", "They grow with m", "m microbatches of B/m tokens are the same total."),
            Option("square", "They grow with m squared", "Nothing here is quadratic in m."),
            Option("weights", "Weights are copied for each microbatch", "All microbatches use one copy."),
        ),
        steps={"compare": "GPipe: m x B/m. 1F1B: p x B/m."},
        importance=4,
        minutes=2,
        tags=("claim", "memory"),
        claim="microbatches-blow-memory",
    ),
    Question(
        "pp.audit_interleaving",
        "audit",
        "Audit. 'Interleaving cuts each layer into segments and spreads them over the devices.' What does it cut?",
        ("What is a chunk?", "v groups of whole layers a device.", "(p-1)/(v m + p - 1)."),
        derive=lambda p: {"right": "groups"},
        answer="right",
        options=(
            Option("groups", "The model: each device gets v separate groups of whole layers"),
            Option("layers", "Each layer, as TP does", "That is tensor parallelism."),
            Option("batch", "The microbatches, into v parts", "Microbatches stay whole."),
            Option("sequence", "The sequence", "That is context parallelism."),
        ),
        steps={"compare": "A microbatch passes each device v times, for 1/v of its layers each time."},
        difficulty=1,
        minutes=1,
        tags=("claim",),
        claim="interleaving",
    ),
    Question(
        "pp.audit_1f1b",
        "audit",
        "Audit. '1F1B is a method to shrink the bubble.' What does it shrink?",
        ("Compare GPipe's and 1F1B's bubble.", "Both (p-1)(t_F + t_B + t_W).", "In flight: m against p."),
        derive=lambda p: {"right": "memory"},
        answer="right",
        options=(
            Option("memory", "Activations: p microbatches in flight instead of m; the bubble stays"),
            Option("bubble", "The bubble, by half", "Its closed form is GPipe's."),
            Option("comms", "The bytes between stages", "The same activations cross."),
            Option("weights", "The weights per stage", "Stages hold the same layers."),
        ),
        steps={"compare": "Same bubble; memory falls, which allows a larger m."},
        difficulty=1,
        importance=4,
        minutes=1,
        tags=("claim", "bubble"),
        claim="1f1b-bubble",
    ),
    Question(
        "pp.audit_dualpipe",
        "audit",
        "Audit. 'DualPipe removes the bubble altogether and makes communication free.' What does it cost and leave?",
        ("Look at its closed form.", "(p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W).", "Who holds two copies?"),
        derive=lambda p: {"right": "both"},
        answer="right",
        options=(
            Option(
                "both",
                "An idle time of (p/2-1)(ω(t_F + t_B + t_W) + t_B - 2 t_W), two copies of the parameters, p+1 microbatches of activations",
            ),
            Option("nothing", "Nothing: it is free", "Its own paper's table lists a bubble and twice the parameters."),
            Option("bubble", "Twice the bubble of 1F1B", "Its bubble is smaller than 1F1B's."),
            Option("batch", "Twice the batch", "The batch stays."),
        ),
        steps={"compare": "Smaller than (p-1)(t_F + t_B + t_W), not zero."},
        minutes=1,
        importance=4,
        tags=("claim", "zero-bubble"),
        claim="dualpipe-free",
    ),
    Question(
        "pp.explain_clock",
        "explain",
        "A paper reports a schedule with zero bubble, your simulator shows idle time for it. How can both be right?",
        ("Whose clock?", "Idle between own first and last action, or within the makespan.", "Think of ZB-H2."),
        rubric=(
            Point(
                "two clocks: each device's own, or the common makespan",
                (r"clock|makespan|own (first|start)|per.device",),
            ),
            Point("devices start and end staggered", (r"stagger|shift|start.*(later|earlier)|warm.?up|fill|drain",)),
            Point(
                "steps follow without a barrier only if the optimizer does not wait",
                (r"optimi[sz]er|barrier|synchron|post.?valid",),
            ),
        ),
        says=(
            "By each device's own clock there is no gap between its first and last action; by the common clock devices still start and end "
            "in turn, which shows as idle time in the makespan.",
            "ZB-H2 and ZB-V shift devices like a parallelogram. Measured from a device's first to its last action nothing is idle. In the "
            "makespan (p-1) t_F remain. If the next step may start at once on each device, the parallelogram repeats and the idle time is paid "
            "once per run; that needs an optimizer step without a global barrier.",
            "Add that clipping by the global norm and checks for overflow are such barriers; zero-bubble work validates after the step and "
            "rolls back when needed. Also name the ratio: of total or of ideal. And closed forms assume equal t_F, t_B, t_W and free p2p; with "
            "other times DualPipe's formula overstates or understates. So compare makespans of simulations, with the p2p delay in.",
        ),
        steps={"compare": "Own clock: 0. Common clock: (p-1) t_F for ZB-H2."},
        difficulty=4,
        minutes=4,
        tags=("zero-bubble", "aloud", "convention"),
    ),
    Question(
        "pp.estimate_bubble",
        "estimate",
        "Without paper: bubble of {pp} stages and {m} microbatches as a share of the step? Add a 90% interval.",
        ("How many slots fill and drain the pipeline?", "(p-1)/(m+p-1).", "{idle}/{slots}."),
        canonical={**CANON, "pp": 8, "m": 64},
        draw=DRAW,
        derive=_bubble,
        answer="total",
        unit="%",
        steps={"knob": "{idle}/{slots}."},
        difficulty=1,
        minutes=1,
        tags=("estimate", "bubble"),
    ),
    Question(
        "pp.code_bubble",
        "code",
        "Write a function of `pp`, `m` and `v` that returns the idle share of an interleaved 1F1B step.",
        ("Slots are 1/v as long.", "(p-1)/(v m + p - 1).", "One line."),
        canonical=CANON,
        draw=DRAW,
        derive=_bubble,
        reference=pp.bubble_of_total,
        arguments=("pp", "m", "v"),
        steps={"knob": "`def bubble(pp, m, v): return (pp - 1) / (v * m + pp - 1)`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
)
