"""Pipeline parallelism: each device holds 1/p of the layers, microbatches flow through.

p devices (pp), m microbatches, v chunks a device. Times t_F, t_B, t_W: forward, input gradient and weight gradient of a
device's share and one microbatch. Peak activations are counted in microbatches of a device's share, so 1F1B holds p of
them on its first device. Closed forms hold for equal stages, no p2p time and enough microbatches; `schedule_check` says
where they fail, `simulate` knows no such limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaling_lib import roofline
from scaling_lib.job import Job
from scaling_lib.ledger import Ledger, Part
from scaling_lib.roofline import Times
from scaling_lib.units import maximum, minimum


def bubble_of_total(pp: Any, microbatches: Any, chunks: Any = 1) -> Any:
    """Idle share of the step for GPipe, 1F1B (v = 1) and interleaved 1F1B: (p - 1)/(v m + p - 1).

    Equation: eq-pp-of-total. Source: arXiv 2401.10241; not the ratio to ideal time, see `bubble_of_ideal`.
    """
    return (pp - 1) / (chunks * microbatches + pp - 1)


def bubble_of_ideal(pp: Any, microbatches: Any, chunks: Any = 1) -> Any:
    """Idle time over the ideal time of the same schedules: (p - 1)/(v m). Equation: eq-pp-of-ideal.

    Source: arXiv 2104.04473, which calls this the bubble fraction.
    """
    return (pp - 1) / (chunks * microbatches)


def share_of_total(bubble: Any, ideal: Any) -> Any:
    """Bubble seconds as a share of the whole step, given the ideal seconds of work."""
    return bubble / (ideal + bubble)


def share_of_ideal(bubble: Any, ideal: Any) -> Any:
    """Bubble seconds over the ideal seconds of work."""
    return bubble / ideal


def microbatches_for_bubble(pp: Any, share: Any, chunks: Any = 1) -> Any:
    """The knob: microbatches at which the bubble is this share of the step: (p - 1)(1 - s)/(s v).

    Equation: eq-pp-microbatches. Not rounded; round up, and for interleaving to a multiple of p.
    """
    return (pp - 1) * (1 - share) / (share * chunks)


def ideal_seconds(microbatches: Any, t_F: Any, t_B: Any, t_W: Any) -> Any:
    """Seconds of work of one device in a step: m (t_F + t_B + t_W)."""
    return microbatches * (t_F + t_B + t_W)


def bubble_1f1b(pp: Any, t_F: Any, t_B: Any, t_W: Any) -> Any:
    """Idle seconds of GPipe and of 1F1B alike: (p - 1)(t_F + t_B + t_W). Equation: eq-pp-bubble-1f1b."""
    return (pp - 1) * (t_F + t_B + t_W)


def bubble_interleaved(pp: Any, chunks: Any, t_F: Any, t_B: Any, t_W: Any) -> Any:
    """Idle seconds of interleaved 1F1B and of looped BFS: (p - 1)(t_F + t_B + t_W)/v.

    Equation: eq-pp-bubble-interleaved. Holds when m is a multiple of p. Source: arXiv 2104.04473.
    """
    return (pp - 1) * (t_F + t_B + t_W) / chunks


def bubble_zb_h1(pp: Any, t_F: Any, t_B: Any, t_W: Any) -> Any:
    """Idle seconds of ZB-H1: (p - 1)(t_F + t_B - t_W). Equation: eq-pp-bubble-zb-h1. Source: arXiv 2401.10241,
    table 2.

    DeepSeek-V3 writes (p - 1)(F + B - 2W) with B the full backward: the same.
    """
    return (pp - 1) * (t_F + t_B - t_W)


def bubble_zb_h2(pp: Any, t_F: Any, t_B: Any, t_W: Any) -> Any:
    """Idle seconds of ZB-H2 by each device's own clock: (p - 1)(t_F + t_B - 2 t_W), 0 for equal times.

    Equation: eq-pp-bubble-zb-h2. By the common clock (p - 1) t_F of start-up remain. Source: arXiv 2401.10241,
    table 2.
    """
    return (pp - 1) * (t_F + t_B - 2 * t_W)


def bubble_dualpipe(pp: Any, t_F: Any, t_B: Any, t_W: Any, overlap: Any = 1.0) -> Any:
    """Idle seconds of DualPipe: (p/2 - 1)(F&B + B - 3 t_W), B = t_B + t_W, F&B = overlap x (t_F + B).

    Equation: eq-pp-bubble-dualpipe. Holds for t_F = t_B = t_W; with overlap below 1 by the common clock, on the two
    devices at the turn, whose work is shortened most. Source: DeepSeek-V3, arXiv 2412.19437, table 2.
    """
    return (pp / 2 - 1) * (overlap * (t_F + t_B + t_W) + t_B + t_W - 3 * t_W)


def bubble_dualpipev(pp: Any, t_F: Any, t_B: Any, t_W: Any, overlap: Any = 1.0) -> Any:
    """Idle seconds of DualPipeV on p devices, 2p stages of half the time each: (p - 1)(F&B + B - 3 t_W)/2.

    Equation: eq-pp-bubble-dualpipev. Holds for t_F = t_B = t_W; with overlap below 1 as for DualPipe.
    Source: README of DeepSeek's DualPipe.
    """
    return (pp - 1) * (overlap * (t_F + t_B + t_W) + t_B + t_W - 3 * t_W) / 2


def total_interleaved_overlap(
    pp: Any, microbatches: Any, chunks: Any, t_F: Any, t_B: Any, t_W: Any, overlap: Any
) -> Any:
    """Seconds of a whole step of interleaved 1F1B whose forwards and backwards run in pairs.

    p v (F + B)/v outside pairs and (v m - p (v - 1) - 1) F&B/v in pairs. Equation: eq-pp-interleaved-overlap.
    F + B = t_F + t_B + t_W, F&B = overlap x that. m a multiple of p, above p. Source: PP-Schedule-Visualization,
    rewritten.
    """
    both = (t_F + t_B + t_W) / chunks
    paired = chunks * microbatches - pp * (chunks - 1) - 1
    return pp * chunks * both + paired * overlap * both


def peak_gpipe(microbatches: Any) -> Any:
    """Most activations a device holds under GPipe and looped BFS: all m microbatches."""
    return microbatches


def peak_1f1b(pp: Any, microbatches: Any, rank: Any = 0) -> Any:
    """Most activations rank r holds under 1F1B: min(m, p - r) microbatches. Equation: eq-pp-peak-1f1b."""
    return minimum(microbatches, pp - rank)


def peak_interleaved(pp: Any, microbatches: Any, chunks: Any, rank: Any = 0) -> Any:
    """Most activations rank r holds under interleaved 1F1B: ((v - 1) p + 2 (p - r - 1) + 1)/v, at most m.

    Equation: eq-pp-peak-interleaved. On rank 0 it is p (1 + (p - 1)/(p v)). Source: arXiv 2205.05198.
    """
    return minimum(microbatches, ((chunks - 1) * pp + 2 * (pp - rank - 1) + 1) / chunks)


def peak_zb_h1(pp: Any, microbatches: Any) -> Any:
    """Most activations every device holds under ZB-H1 and ZB-V: p microbatches, at most m."""
    return minimum(microbatches, pp)


def peak_zb_h2(pp: Any, microbatches: Any) -> Any:
    """Most activations a device holds under the hand-made ZB-H2: 2p - 1 microbatches, at most m."""
    return minimum(microbatches, 2 * pp - 1)


def peak_v_half(pp: Any, microbatches: Any) -> Any:
    """Most activations under V-Half: floor(p/2) + 1 microbatches, at most m. Source: arXiv 2405.15362."""
    return minimum(microbatches, pp // 2 + 1)


def peak_v_min(pp: Any, microbatches: Any) -> Any:
    """Most activations under V-Min: floor((p + 1)/3) + 1 microbatches, at most m. Source: arXiv 2405.15362."""
    return minimum(microbatches, (pp + 1) // 3 + 1)


def peak_dualpipe(pp: Any) -> Any:
    """Most activations under DualPipe: p + 1 microbatches, with two copies of the weights. Source: arXiv
    2412.19437."""
    return pp + 1


def peak_dualpipev(pp: Any) -> Any:
    """Most activations under DualPipeV on p devices: 2p + 1 half-size chunks, p + 1/2 microbatches."""
    return (2 * pp + 1) / 2


# schedule -> idle seconds by the device's own clock, from (p, v, t_F, t_B, t_W, overlap)
BUBBLES: dict[str, Callable[..., Any]] = {
    "gpipe": lambda p, v, f, b, w, o: bubble_1f1b(p, f, b, w),
    "1f1b": lambda p, v, f, b, w, o: bubble_1f1b(p, f, b, w),
    "interleaved": lambda p, v, f, b, w, o: bubble_interleaved(p, v, f, b, w),
    "looped-bfs": lambda p, v, f, b, w, o: bubble_interleaved(p, v, f, b, w),
    "zb-h1": lambda p, v, f, b, w, o: bubble_zb_h1(p, f, b, w),
    "zb-h2": lambda p, v, f, b, w, o: bubble_zb_h2(p, f, b, w),
    "zb-v": lambda p, v, f, b, w, o: 0 * f,  # for equal times only
    "dualpipe": lambda p, v, f, b, w, o: bubble_dualpipe(p, f, b, w, o),
    "dualpipev": lambda p, v, f, b, w, o: bubble_dualpipev(p, f, b, w, o),
}

# schedule -> most activations on rank r, from (p, m, v, r)
PEAKS: dict[str, Callable[..., Any]] = {
    "gpipe": lambda p, m, v, r: peak_gpipe(m),
    "1f1b": lambda p, m, v, r: peak_1f1b(p, m, r),
    "interleaved": lambda p, m, v, r: peak_interleaved(p, m, v, r),
    "looped-bfs": lambda p, m, v, r: peak_gpipe(m),
    "zb-h1": lambda p, m, v, r: peak_zb_h1(p, m),
    "zb-h2": lambda p, m, v, r: peak_zb_h2(p, m),
    "zb-v": lambda p, m, v, r: peak_zb_h1(p, m),
    "v-half": lambda p, m, v, r: peak_v_half(p, m),
    "v-min": lambda p, m, v, r: peak_v_min(p, m),
    "dualpipe": lambda p, m, v, r: peak_dualpipe(p),
    "dualpipev": lambda p, m, v, r: peak_dualpipev(p),
}


def _stages(job: Job) -> Any:
    """Layers of one device: L / p."""
    return job.model.n_layers / job.plan.pp


def flops(job: Job) -> Ledger:
    """FLOPs of one chip in one step: its stage's L/p layers, all microbatches."""
    return roofline.layer_flops(job).scaled(_stages(job), "FLOPs of one stage on one chip")


def boundary_bytes(
    tokens_per_rank: Any, d_model: Any, chunks: Any = 1, tp: Any = 1, element_bytes: Any = 2
) -> Any:
    """Bytes of activations that one inner chip sends on in one step: B_X D e v / Y. Equation: eq-pp-bytes.

    tokens_per_rank: tokens a step in one data-parallel rank (B_X). tp: ways each activation is cut (Y), 1 without
    sequence parallelism. element_bytes: bytes of an activation (e). As many bytes of gradients go back.
    """
    return tokens_per_rank * d_model * element_bytes * chunks / tp


def wire_bytes(job: Job) -> Ledger:
    """Bytes that one inner chip sends to its neighbours in one step: B/X D e/Y activations on, as many gradients
    back.

    With v chunks each token passes the device v times. Nothing is sent without a pipeline.
    """
    slice_ = job.plan.tp if job.plan.sequence_parallel else 1
    chunks = job.plan.virtual_stages
    size = boundary_bytes(job.tokens_per_rank, job.model.d_model, chunks, slice_, job.element_bytes)
    size = size * minimum(1, job.plan.pp - 1)
    return Ledger(
        "Bytes sent by one chip to the next stage, PP",
        "B",
        (
            Part("forward/activations", size, "B/X D e v / Y"),
            Part("backward/gradients", size, "B/X D e v / Y"),
        ),
    )


def hop_egress(job: Job) -> Any:
    """Egress of one chip on the slowest network level between two stages, byte/s; infinite without a pipeline."""
    stride = job.plan.dp * job.plan.tp * job.plan.cp
    level = job.cluster.slowest(job.plan.pp, stride)
    return level.chip_egress(1) if level else float("inf")


def times(job: Job) -> Times:
    """Seconds of compute and of sends to the next stage, one chip and one step; the bubble is not in it."""
    math, sent, peak, egress = flops(job), wire_bytes(job), job.peak, hop_egress(job)
    return Times(math["forward"] / peak, sent["forward"] / egress, math["backward"] / peak, sent["backward"] / egress)


def is_compute_bound(job: Job) -> Any:
    """Whether sending a microbatch on hides behind the compute of the next one."""
    return times(job).compute_bound


def critical_microbatches(job: Job, share: Any) -> Any:
    """The knob: microbatches at which the bubble takes `share` of the step, with the job's stages and chunks."""
    return microbatches_for_bubble(job.plan.pp, share, job.plan.virtual_stages)


def stage_seconds(job: Job) -> tuple[Any, Any, Any]:
    """(t_F, t_B, t_W) of one microbatch at the chip's peak: what `simulate` takes."""
    ledger, m = flops(job), maximum(job.microbatches, 1)
    forward, inputs, weights = (
        ledger[name] / job.peak / m for name in ("forward", "backward/input gradient", "backward/weight gradient")
    )
    return forward, inputs, weights
