"""Command line: simulate a pipeline schedule, as text, JSON or a picture."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from scaling_lib.draw_schedule import schedule_svg
from scaling_lib.schedule_generators import SCHEDULES, generate
from scaling_lib.schedules import ScheduleError, parse_schedule, show_schedule
from scaling_lib.simulate import Simulation, simulate
from scaling_lib.units import digits

MOST_ACTIONS = 1_000_000  # forwards and backwards: some ten seconds


def add_parser(subparsers: Any) -> None:
    """Add the command `schedule`."""
    about = "simulate a pipeline schedule: makespan, bubble, activations"
    sub = subparsers.add_parser("schedule", help=about, description=about)
    sub.add_argument("--name", help=f"one of {', '.join(SCHEDULES)}")
    sub.add_argument("--file", type=Path, help="your own schedule instead of a name: one line a device, e.g. 0F0,0B0")
    sub.add_argument("--stages", type=_whole, help="devices in the pipeline (p)")
    sub.add_argument("--microbatches", type=_whole, help="microbatches a step (m)")
    sub.add_argument("--chunks", type=_whole, help="stages a device of interleaved schedules (default 2)")
    sub.add_argument("--times", type=_times, default=(1.0, 1.0, 1.0), help="t_F,t_B,t_W a microbatch (default 1,1,1)")
    sub.add_argument("--p2p", type=_seconds, default=0.0, help="time of a hop between devices (default 0)")
    sub.add_argument("--overlap", type=_seconds, default=1.0, help="time of an F-B pair over their sum (default 1)")
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--order", action="store_true", help="print the order of actions, as --file reads it")
    sub.add_argument("--svg", type=Path, metavar="FILE", help="write the picture")
    sub.set_defaults(run=run)


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write a number of at least 0")
    return value


def _times(text: str) -> tuple[float, float, float]:
    parts = [_seconds(part) for part in text.split(",")]
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} has {len(parts)} times: write t_F,t_B,t_W, e.g. 1,1,1")
    return parts[0], parts[1], parts[2]


def _simulated(args: argparse.Namespace) -> Simulation:
    """The schedule of the options, run. Raises ScheduleError for options that contradict each other."""
    sizes = [f"--{name}" for name in ("stages", "microbatches", "chunks") if getattr(args, name) is not None]
    if (args.name is None) == (args.file is None):
        raise ScheduleError("give either --name, e.g. --name 1f1b, or --file with an order of your own")
    if args.file is not None:
        if sizes:
            raise ScheduleError(f"{args.file} already says its sizes: leave out {', '.join(sizes)}")
        schedule = parse_schedule(args.file.read_text(encoding="utf-8"), args.file.stem)
    elif args.stages is None or args.microbatches is None:
        missing = [f"--{n}" for n in ("stages", "microbatches") if getattr(args, n) is None]
        raise ScheduleError(f"{' and '.join(missing)} missing: e.g. --stages 4 --microbatches 8")
    elif (n := 2 * args.stages * args.microbatches * (args.chunks or 1)) > MOST_ACTIONS:
        raise ScheduleError(f"{n:,} actions to simulate, more than {MOST_ACTIONS:,}: use fewer stages or microbatches")
    else:
        schedule = generate(args.name, args.stages, args.microbatches, args.chunks, args.times, args.p2p)
    t_F, t_B, t_W = args.times
    return simulate(schedule, t_F, t_B, t_W, p2p=args.p2p, overlap=args.overlap)


def as_json(result: Simulation) -> dict[str, Any]:
    """The numbers of a simulation under stable names; ratios are fractions, both clocks are given."""
    s = result.schedule
    return {
        "schedule": s.name, "stages": s.n_devices, "microbatches": s.n_microbatches, "chunks": s.chunks,
        "makespan": result.makespan, "busy_per_device": list(result.busy),
        "bubble_per_device": list(result.idle_per_device),
        "bubble_per_device_in_makespan": list(result.idle_in_makespan),
        "bubble_of_total": result.bubble_of_total(), "bubble_of_ideal": result.bubble_of_ideal(),
        "bubble_of_total_own_clock": result.bubble_of_total("device"),
        "bubble_of_ideal_own_clock": result.bubble_of_ideal("device"),
        "peak_activations_per_rank": list(result.peak_activations), "weights_held_per_rank": list(result.weights_held),
    }


def as_text(result: Simulation) -> str:
    """The same numbers as a table."""
    s = result.schedule
    chunks = f"{s.chunks} chunk{'s' * (s.chunks > 1)}"
    lines = [f"{s.name}: {s.n_devices} devices, {s.n_microbatches} microbatches, {chunks} a device",
             f"makespan {result.makespan:.6g}, busiest device {max(result.busy):.6g}",
             f"bubble   {digits(100 * result.bubble_of_total())}% of the total, "
             f"{digits(100 * result.bubble_of_ideal())}% of the ideal time (common clock)",
             f"         {digits(100 * result.bubble_of_total('device'))}% and "
             f"{digits(100 * result.bubble_of_ideal('device'))}% by each device's own clock", "",
             "device  idle, own clock  idle, common clock  peak activations  copies of weights"]
    for d in range(s.n_devices):
        lines.append(f"{d:>6}  {digits(result.idle_per_device[d]):>15}  {digits(result.idle_in_makespan[d]):>18}  "
                     f"{digits(result.peak_activations[d]):>16}  {digits(result.weights_held[d]):>17}")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the simulation; bad input is a ScheduleError, which the caller reports."""
    result = _simulated(args)
    if args.svg is not None:
        args.svg.write_text(schedule_svg(result, standalone=True), encoding="utf-8")
    if args.order:
        print(show_schedule(result.schedule))
    elif args.json:
        print(json.dumps(as_json(result), indent=2))
    else:
        print(as_text(result))
    return 0
