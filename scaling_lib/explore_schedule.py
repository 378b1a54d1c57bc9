"""The explorer of the pipeline chapter: choose a schedule and its sizes, see timeline, bubble and memory."""

from __future__ import annotations

from scaling_lib.draw import readout
from scaling_lib.draw_schedule import schedule_svg
from scaling_lib.explore import Choice, Explorer, Slider
from scaling_lib.schedule_generators import CHUNKED, SCHEDULES, generate
from scaling_lib.simulate import simulate
from scaling_lib.units import show


def draw_pp(
    schedule: str, pp: int, microbatches: int, chunks: int, t_F: float, t_B: float, t_W: float, p2p: float = 0.0,
    overlap: float = 1.0,
) -> str:  # fmt: skip
    """Timeline above memory, and both bubble ratios by both clocks.

    chunks count for the schedules that leave them free. Raises ScheduleError for sizes that the schedule cannot have.
    """
    times = (t_F, t_B, t_W)
    made = generate(schedule, pp, microbatches, chunks if schedule in CHUNKED else None, times, p2p)
    result = simulate(made, t_F, t_B, t_W, p2p=p2p, overlap=overlap)
    rows = [
        ("makespan", f"{result.makespan:.4g}"),
        ("bubble of the total", show(result.bubble_of_total(), "%")),
        ("bubble of the ideal time", show(result.bubble_of_ideal(), "%")),
        ("of the total, by own clocks", show(result.bubble_of_total("device"), "%")),
        ("most activations held", f"{max(result.peak_activations):.4g} microbatches"),
        ("copies of the weights", f"{max(result.weights_held):.4g}"),
    ]
    return schedule_svg(result) + readout(rows)


pp_explorer = Explorer(
    "Pipeline schedules",
    (
        Choice("schedule", "schedule", SCHEDULES, "1f1b"),
        Slider("pp", "stages, p", 1, 8, 4),
        Slider("microbatches", "microbatches, m", 1, 32, 8),
        Slider("chunks", "chunks a device, v (interleaved)", 2, 4, 2),
        Slider("t_F", "forward, t_F", 0.5, 4, 1, step=0.5),
        Slider("t_B", "input gradient, t_B", 0.5, 4, 1, step=0.5),
        Slider("t_W", "weight gradient, t_W", 0.5, 4, 1, step=0.5),
        Slider("p2p", "time of a hop", 0, 1, 0, step=0.25),
        Slider("overlap", "a pair over its two parts, ω", 0.5, 1, 1, step=0.05),
    ),
    draw_pp,
)
