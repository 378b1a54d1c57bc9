"""Questions of the chapter on collectives."""

from __future__ import annotations

from typing import Any

from scaling_lib import cluster, collectives
from scaling_lib.questions import Option, Point, Question, Trap
from scaling_lib.units import MB

NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "gb200-nvl72")
WHY_BOTH = "a data sheet adds what is sent and what is received; a collective is limited by what one chip sends."


def _one(p: Any) -> dict[str, Any]:
    level = cluster(p.cluster).levels[0]
    size, w = p.size * MB, level.egress
    return {
        "bytes": size,
        "egress": w,
        "share": (p.n - 1) / p.n,
        "gather": collectives.all_gather(size, p.n, w),
        "gather_shard": collectives.all_gather(size / p.n, p.n, w),
        "gather_both": collectives.all_gather(size, p.n, 2 * w),
        "gather_each": size * (p.n - 1) / w,
        "reduce": collectives.all_reduce(size, p.n, w),
        "exchange": collectives.all_to_all(size, p.n, w),
        "network": collectives.all_reduce_in_network(size, w),
        "sent": collectives.sent_bytes("all_reduce", size, p.n),
        "sent_half": collectives.sent_bytes("all_gather", size, p.n),
        "sent_all": 2 * size * (p.n - 1),
    }


def _levels(p: Any) -> dict[str, Any]:
    c = cluster(p.cluster)
    size = p.size * MB
    gpus = p.nodes * c.domain
    hops = c.hops(gpus)
    card = c.levels[1].egress
    return {
        "bytes": size,
        "gpus": gpus,
        "inner": c.levels[0].egress,
        "node": c.egress(10**5),
        "share": (p.nodes - 1) / p.nodes,
        "inner_seconds": collectives.all_gather(size, c.domain, c.levels[0].egress),
        "seconds": collectives.hierarchical("all_gather", size, hops),
        "flat": collectives.all_gather(size, gpus, card),
        "both_levels": collectives.all_gather(size, c.domain, c.levels[0].egress)
        + collectives.hierarchical("all_gather", size, hops),
        "reduce": collectives.hierarchical("all_reduce", size, hops),
    }


def _latency(p: Any) -> dict[str, Any]:
    level = cluster(p.cluster).levels[0]
    hop, w = level.latency, level.egress
    cross = hop * p.n * w  # V (n-1)/(n W) = (n-1) t
    return {
        "hop": hop,
        "egress": w,
        "wait": (p.n - 1) * hop,
        "wait_n": p.n * hop,
        "one": hop,
        "cross": cross,
        "cross_one": hop * w,
        "cross_square": cross * (p.n - 1),
    }


def _torus(p: Any) -> dict[str, Any]:
    level = cluster(p.cluster).levels[0]
    size = p.size * MB
    axes = len(level.shape)
    w = level.chip_egress()
    return {
        "bytes": size,
        "axes": axes,
        "axis": level.egress,
        "seconds": size / w,
        "one_axis": size / level.egress,
        "one_link": 2 * size / w,
        "reduce": 2 * size / w,
    }


SIZES = (64, 128, 256, 512, 1024)
CANON = {"cluster": "dgx-h100", "n": 8, "size": 256}
DRAW = {"cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72"), "n": (4, 6, 8), "size": SIZES}
WIDE = {"cluster": "dgx-h100", "nodes": 16, "size": 512}
WIDE_DRAW = {"cluster": ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8"), "nodes": (8, 16, 32, 64), "size": SIZES}

QUESTIONS = (
    Question(
        "collectives.all_gather",
        "numeric",
        "{n} GPUs of {cluster:machine} all-gather an array of {size} MB in all (each holds 1/{n}). How many microseconds on a ring, latency "
        "left out?",
        ("Each chip passes on all but one shard.", "V (n-1)/(n W).", "V = {bytes:MB}, W = {egress:B/s}."),
        canonical=CANON,
        draw=DRAW,
        derive=_one,
        answer="gather",
        unit="us",
        traps=(
            Trap("V taken for one shard", "gather_shard", "V is the gathered array, {n} shards."),
            Trap("both directions of a link", "gather_both", WHY_BOTH),
            Trap("the array taken for the shard", "gather_each", "each chip sends n-1 shards of V/n, not n-1 arrays."),
        ),
        steps={"bytes": "A chip sends {share} of {bytes:MB}.", "rates": "/ {egress:B/s}."},
        difficulty=1,
        importance=5,
        minutes=2,
        tags=("ring", "whiteboard"),
        book="collectives.all_gather(256e6, 8, nvlink_egress)",
        needs=("network",),
    ),
    Question(
        "collectives.all_reduce",
        "numeric",
        "{n} GPUs of {cluster:machine} all-reduce {size} MB (each holds all of it) on a ring. How many microseconds, latency left out?",
        ("It is two collectives.", "2 V (n-1)/(n W).", "V = {bytes:MB}, W = {egress:B/s}."),
        canonical=CANON,
        draw=DRAW,
        derive=_one,
        answer="reduce",
        unit="us",
        traps=(Trap("half of it", "gather", "an all-reduce is a reduce-scatter and an all-gather."),),
        steps={"bytes": "2 x {share} of {bytes:MB} from each chip.", "rates": "/ {egress:B/s}."},
        difficulty=1,
        importance=5,
        minutes=2,
        tags=("ring",),
        book="collectives.all_reduce(256e6, 8, nvlink_egress)",
        needs=("network",),
    ),
    Question(
        "collectives.all_to_all",
        "numeric",
        "{n} GPUs behind the switch of {cluster:machine} exchange an array of {size} MB in all (each holds 1/{n} and sends 1/{n} of its shard "
        "to each). How many microseconds?",
        ("What does one GPU send?", "V (n-1)/(n^2 W).", "V = {bytes:MB}, W = {egress:B/s}."),
        canonical=CANON,
        draw=DRAW,
        derive=_one,
        answer="exchange",
        unit="us",
        traps=(
            Trap("an all-gather", "gather", "each peer gets a different part of the shard, not the whole shard."),
            Trap("an all-reduce", "reduce", "nothing is added, and each part goes to one peer."),
        ),
        steps={"bytes": "A GPU holds V/{n} and sends {share} of it.", "rates": "/ {egress:B/s}."},
        importance=4,
        tags=("moe",),
        book="collectives.all_to_all(256e6, 8, nvlink_egress)",
        needs=("network",),
    ),
    Question(
        "collectives.in_network",
        "numeric",
        "If the switch of {cluster:machine} added in the network (an ideal SHARP), how many microseconds would an all-reduce of {size} MB "
        "over {n} GPUs take?",
        ("Each sends its array once.", "V/W.", "{bytes:MB} over {egress:B/s}."),
        canonical=CANON,
        draw=DRAW,
        derive=_one,
        answer="network",
        unit="us",
        traps=(
            Trap("a ring", "reduce", "the switch returns the sum; each sends once, not twice."),
            Trap("an all-gather", "gather", "each GPU sends its whole array, not all but a shard."),
        ),
        steps={"bytes": "{bytes:MB} up, the sum comes down at the same time.", "rates": "/ {egress:B/s}."},
        difficulty=3,
        minutes=2,
        tags=("in-network",),
        book="collectives.all_reduce_in_network(256e6, nvlink_egress)",
        needs=("network",),
    ),
    Question(
        "collectives.sent",
        "numeric",
        "How many MB does each of {n} chips send in a ring all-reduce of {size} MB?",
        ("Two rounds of n-1 steps, V/n each.", "2 V (n-1)/n.", "2 x {size} x {share}."),
        canonical=CANON,
        draw={"cluster": ("dgx-h100",), "n": (4, 5, 6, 8, 16), "size": SIZES},
        derive=_one,
        answer="sent",
        unit="MB",
        traps=(
            Trap("one round", "sent_half", "reduce-scatter and all-gather each send V(n-1)/n."),
            Trap("whole arrays at each step", "sent_all", "each step sends V/n."),
        ),
        steps={"bytes": "2 x {size} MB x {share}."},
        difficulty=1,
        minutes=1,
        tags=("ring",),
        book="collectives.sent_bytes('all_reduce', 256e6, 8)",
    ),
    Question(
        "collectives.hierarchical",
        "numeric",
        "{nodes} nodes of {cluster:cluster} ({gpus} GPUs) all-gather {size} MB hierarchically, levels overlapped. Milliseconds?",
        (
            "Which level is slowest?",
            "max over levels of V (n_i-1)/(n_i W_i).",
            "Inside {inner:B/s} a GPU, outside {node:B/s} a node.",
        ),
        canonical=WIDE,
        draw=WIDE_DRAW,
        derive=_levels,
        answer="seconds",
        unit="ms",
        traps=(
            Trap("a flat ring over single cards", "flat", "hierarchically a node's cards work together."),
            Trap("levels added", "both_levels", "the levels are pipelined here; the slower one counts."),
            Trap("an all-reduce", "reduce", "a gather goes one way only."),
        ),
        steps={
            "bytes": "Between nodes {share} of V enters each; inside, 7/8.",
            "rates": "{node:B/s} a node, {inner:B/s} a GPU.",
            "compare": "Inside {inner_seconds:ms}; the network between nodes takes longer.",
        },
        difficulty=3,
        importance=5,
        tags=("hierarchy",),
        book="collectives.all_gather(512e6, 16, node_egress)",
        needs=("network",),
    ),
    Question(
        "collectives.latency",
        "numeric",
        "A ring of {n} chips inside {cluster:machine} takes {hop:us} a step. How many microseconds of an all-gather are latency?",
        ("How many steps has a ring?", "(n-1) t.", "{n} - 1 steps of {hop:us}."),
        canonical={"cluster": "dgx-h100", "n": 8},
        draw={"cluster": ("dgx-h100", "tpu-v5p"), "n": (4, 5, 6, 8, 16)},
        derive=_latency,
        answer="wait",
        unit="us",
        traps=(
            Trap("n steps", "wait_n", "the own shard is there already: n-1 steps."),
            Trap("one step", "one", "a ring needs n-1 steps, one after the other."),
        ),
        steps={"rates": "({n} - 1) x {hop:us}."},
        difficulty=1,
        minutes=1,
        tags=("latency",),
    ),
    Question(
        "collectives.crossover",
        "numeric",
        "Below how many MB is an all-gather over a ring of {n} chips inside {cluster:machine} bound by latency ({hop:us} a step, {egress:B/s})?",
        ("Set the two parts equal.", "V (n-1)/(n W) = (n-1) t.", "V = n W t."),
        canonical={"cluster": "dgx-h100", "n": 8},
        draw={"cluster": ("dgx-h100", "dgx-b200", "tpu-v5p"), "n": (4, 8, 16)},
        derive=_latency,
        answer="cross",
        unit="MB",
        traps=(
            Trap("one step", "cross_one", "each of the n-1 steps sends V/n, so V is n times as large."),
            Trap("steps counted twice", "cross_square", "n-1 stands on both sides and cancels."),
        ),
        steps={"compare": "Each step sends V/{n} in {hop:us}.", "knob": "V = {n} x {egress:B/s} x {hop:us}."},
        difficulty=3,
        tags=("latency", "small"),
    ),
    Question(
        "collectives.torus",
        "numeric",
        "All chips of a large pod ({cluster:machine}) all-gather {size} MB over all {axes} axes of the torus. How many microseconds, latency left out?",
        ("What carries the array: one ring, or several at once?", "V/(M W).", "M = {axes}, W = {axis:B/s}."),
        canonical={"cluster": "tpu-v5p", "size": 512},
        draw={"cluster": ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7"), "size": SIZES},
        derive=_torus,
        answer="seconds",
        unit="us",
        traps=(
            Trap("one axis", "one_axis", "the array is split over {axes} axes."),
            Trap("one link a ring", "one_link", "a closed ring sends through both links."),
        ),
        steps={"bytes": "{bytes:MB}.", "rates": "{axes} x {axis:B/s}."},
        minutes=2,
        tags=("tpu",),
        book="512e6 / (3 * v5p_axis)",
        needs=("network",),
    ),
    Question(
        "collectives.two_nodes",
        "choice",
        "Two H100 nodes (450 GB/s a GPU inside, 8 cards of 50 GB/s a node) all-gather a large array hierarchically. Which level limits?",
        ("Shares differ.", "V(n-1)/(n W) on each level.", "7/8 V over 450 GB/s, 1/2 V over 400 GB/s."),
        derive=lambda p: {"right": "nvlink"},
        answer="right",
        options=(
            Option("nvlink", "NVLink: 7/8 of the array over 450 GB/s takes longer than half of it over 400"),
            Option("cards", "The cards, as 400 < 450", "Only half of the array crosses between two nodes."),
            Option("equal", "Both take equally long", "7/8/450 is 1.94e-3, 1/2/400 is 1.25e-3."),
            Option("one", "A single card of 50 GB/s", "All eight cards of a node send."),
        ),
        steps={
            "bytes": "Inside 7V/8, outside V/2.",
            "rates": "450 and 400 GB/s.",
            "compare": "1.94 against 1.25 ns per byte.",
        },
        difficulty=3,
        tags=("hierarchy", "small"),
    ),
    Question(
        "collectives.audit_n",
        "audit",
        "Audit. 'A ring all-reduce over more chips takes longer in proportion to their number, so {n} chips take {n} times as long as one link "
        "needs for the array.' {size} MB at {egress:B/s}: how many microseconds does it take, latency left out?",
        ("What does each step send?", "2 V (n-1)/(n W).", "V = {bytes:MB}."),
        canonical=CANON,
        draw={"cluster": ("dgx-h100", "dgx-b200"), "n": (4, 8), "size": SIZES},
        derive=lambda p: {**_one(p), "claimed": p.n * p.size * MB / cluster(p.cluster).levels[0].egress},
        answer="reduce",
        unit="us",
        traps=(
            Trap(
                "the claim",
                "claimed",
                "each of the steps sends only V/n, so bandwidth time stays below 2V/W for any n.",
            ),
            Trap("half of it", "gather", "reduce-scatter and all-gather."),
        ),
        steps={"bytes": "2 V (n-1)/n, never above 2V.", "rates": "/ {egress:B/s}."},
        tags=("ring",),
    ),
    Question(
        "collectives.audit_half",
        "audit",
        "Audit. 'A reduce-scatter must add, so it costs twice an all-gather.' What is right?",
        ("Compare what travels.", "V (n-1)/(n W) each.", "Adding is done on the chip."),
        derive=lambda p: {"right": "same"},
        answer="right",
        options=(
            Option("same", "Both send V(n-1)/n: a reduce-scatter is an all-gather run backwards"),
            Option("twice", "It is twice as costly", "That is an all-reduce, which is both of them."),
            Option(
                "half", "It costs half, as results are smaller", "Partial sums of the same size travel at each step."
            ),
            Option(
                "compute",
                "It is limited by the FLOPs of adding",
                "One addition per element received is far below the peak.",
            ),
        ),
        steps={"bytes": "V (n-1)/n in either."},
        difficulty=1,
        minutes=1,
        tags=("ring",),
    ),
    Question(
        "collectives.explain_ring",
        "explain",
        "Explain why a ring all-reduce is bandwidth-optimal and when you would not use one.",
        ("What must each chip send at least?", "2 V (n-1)/n.", "Latency: 2(n-1) steps."),
        rubric=(
            Point(
                "each chip sends 2V(n-1)/n, nearly independent of n", (r"2 ?V|twice|independent of n|\(n ?- ?1\)/n",)
            ),
            Point("all links busy all the time", (r"all links|every link|busy|parallel|pipelin",)),
            Point("latency grows with n-1 steps", (r"latenc|steps",)),
            Point("trees or hierarchy for small messages or many nodes", (r"tree|hierarch|small|in-?network|sharp",)),
        ),
        says=(
            "Each chip sends 2V(n-1)/n, the least possible without help of the network, and all links are busy. But it takes 2(n-1) steps, so "
            "for small arrays or many chips latency rules: use trees, hierarchy, or in-network reduction.",
            "Reduce-scatter: n-1 steps of V/n, after which each chip owns one sum. All-gather: n-1 steps again. Lower bound: every shard's "
            "partial sums must leave each chip and come back. Time 2V(n-1)/(nW) + 2(n-1)t. The first part tends to 2V/W; the second grows.",
            "On NVLink with 3 microseconds a step, 8 GPUs cross over near 12 MB. Across nodes a flat ring would push everything through one card's "
            "50 GB/s; hierarchical rings reduce-scatter inside first so all eight cards send. A switch that adds halves the bytes: V/W. "
            "Torus: rings along each axis at once. Algorithms such as recursive doubling have log n steps at the price of bandwidth.",
        ),
        steps={"bytes": "2V(n-1)/n.", "rates": "over W, plus 2(n-1) steps of latency."},
        importance=4,
        minutes=4,
        tags=("ring", "aloud"),
    ),
    Question(
        "collectives.estimate_gather",
        "estimate",
        "Without paper: milliseconds to all-gather {size} MB over {n} GPUs at {egress:B/s}? Add a 90% interval.",
        ("What share of the array does one GPU send?", "V (n-1)/(n W).", "{bytes:MB} over {egress:B/s}."),
        canonical={**CANON, "size": 1024, "cluster": "dgx-b200"},
        draw=DRAW,
        derive=_one,
        answer="gather",
        unit="ms",
        traps=(Trap("V taken for one shard", "gather_shard", "V is the whole array."),),
        steps={"bytes": "{share} x {bytes:MB}.", "rates": "/ {egress:B/s}."},
        minutes=1,
        tags=("estimate",),
    ),
    Question(
        "collectives.code_gather",
        "code",
        "Write a function of `bytes`, `n` and `egress` that returns the seconds of a ring all-gather, latency left out.",
        ("n-1 steps of a shard.", "V (n-1)/(n W).", "One line."),
        canonical=CANON,
        draw=DRAW,
        derive=_one,
        reference=collectives.all_gather,
        arguments=("bytes", "n", "egress"),
        steps={"knob": "`def seconds(bytes, n, egress): return bytes * (n - 1) / (n * egress)`"},
        difficulty=1,
        minutes=2,
        tags=("code",),
    ),
)
