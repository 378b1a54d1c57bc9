"""A simulated pipeline as a picture: the timeline of each device above the activations it holds. SVG text."""

from __future__ import annotations

from collections.abc import Iterator

from scaling_lib.draw import Axis, number, stroke, svg, text, tick_label
from scaling_lib.schedules import ScheduleError, Step, parts
from scaling_lib.simulate import Simulation
from scaling_lib.units import digits

# light fills of the Okabe-Ito palette: black letters stay readable on them in light and dark pages
FILLS = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#2FBF8F"}
PALE = {"F": "#C4E4F8", "B": "#F8DFAA", "I": "#FBF7C6", "W": "#BDEBDB"}  # every second stage of a device
NAMES = {"F": "forward", "B": "full backward", "I": "input gradient", "W": "weight gradient"}
MOST_STEPS = 20_000  # a picture beyond this is a grey blur of many megabytes
_WIDTH, _LEFT, _RIGHT, _TOP = 880.0, 92.0, 12.0, 52.0
_ROW, _MEMORY_ROW, _GAP = 24.0, 26.0, 44.0
# top, height, size of letters and their baseline of the boxes in a row, for a step of one action and for a pair
_HALVES = {1: ((2, 20, 11, 15.96),), 2: ((2, 10, 9, 10.24), (12, 10, 9, 20.24))}
_FILE_STYLE = ("<style>:root{color:#1f2328;background:#ffffff}@media (prefers-color-scheme:dark)"
               "{:root{color:#e6edf3;background:#0d1117}}</style>")


def _without_noise(value: float, scale: float) -> float:
    """Zero for what is only rounding, whose size differs between versions of Python."""
    return 0.0 if abs(value) < 1e-9 * scale else value


def describe(result: Simulation) -> str:
    """The picture in words: makespan, both bubble ratios, and for each device its idle time and peak."""
    s = result.schedule
    devices = "; ".join(
        f"device {d} idle {_without_noise(idle, result.makespan):.4g} ({common:.4g} in the makespan), "
        f"at most {peak:.4g} microbatches of activations" for d, (idle, common, peak) in enumerate(
            zip(result.idle_per_device, result.idle_in_makespan, result.peak_activations, strict=True)))
    return (f"{s.n_devices} devices, {s.n_microbatches} microbatches, {s.chunks} chunk{'s' * (s.chunks > 1)} a device. "
            f"Makespan {result.makespan:.4g}. Bubble {digits(100 * result.bubble_of_total())}% of the total, "
            f"{digits(100 * result.bubble_of_ideal())}% of the ideal time. {devices}.")


def schedule_svg(result: Simulation, standalone: bool = False) -> str:
    """Timeline above memory. standalone: for a file, with ink and ground that follow the viewer's light or dark mode.

    Raises ScheduleError when there are more steps than can be told apart.
    """
    n_steps = sum(map(len, result.starts))
    if n_steps > MOST_STEPS:
        raise ScheduleError(f"{n_steps} steps cannot be told apart in a picture: draw at most {MOST_STEPS}, "
                            "e.g. with fewer microbatches")
    s = result.schedule
    axis = Axis("time", 0.0, result.makespan or 1.0)
    memory_top = _TOP + _ROW * s.n_devices + _GAP
    bottom = memory_top + _MEMORY_ROW * s.n_devices
    body = [_FILE_STYLE if standalone else "", text(0, 15, f"{s.name}: what each device does, and what it holds",
                                                     extra=' font-weight="600"'), _legend(result),
            _grid(axis, memory_top - _GAP, bottom), *_timeline(result, axis),
            text(0, memory_top - 10, "activations held, in microbatches", extra=' font-size="12"'),
            *_memory(result, axis, memory_top), text(_LEFT, bottom + 34, "time", extra=' font-size="12"')]
    return svg(f"Pipeline schedule {s.name}", describe(result), "".join(body), _WIDTH, bottom + 40)


def _x(axis: Axis, time: float) -> float:
    """Where a second lies; without the care of Axis.place, since none lies outside a picture of the whole."""
    return _LEFT + time / axis.high * (_WIDTH - _LEFT - _RIGHT)


def _legend(result: Simulation) -> str:
    kinds = {a.kind for steps in result.schedule.order for step in steps for a in parts(step)}
    x, shapes = _LEFT, []
    for kind in (k for k in FILLS if k in kinds):
        shapes.append(f'<rect x="{number(x)}" y="26" width="14" height="14" fill="{FILLS[kind]}"/>')
        shapes.append(text(x + 19, 38, NAMES[kind], extra=' font-size="12"'))
        x += 40 + 6.6 * len(NAMES[kind])
    if any(len(stages) > 1 for stages in result.schedule.placement):
        shapes.append(text(_WIDTH - _RIGHT, 38, "pale: every second stage of a device", "end", ' font-size="12"'))
    return "".join(shapes)


def _grid(axis: Axis, timeline_bottom: float, bottom: float) -> str:
    shapes = []
    for tick in axis.ticks():
        x = _x(axis, tick)
        shapes.append(stroke(x, _TOP, x, bottom, opacity=0.15))
        shapes.append(text(x, timeline_bottom + 16, tick_label(tick), "middle", ' font-size="11"'))
        shapes.append(text(x, bottom + 16, tick_label(tick), "middle", ' font-size="11"'))
    return "".join(shapes)


def _timeline(result: Simulation, axis: Axis) -> Iterator[str]:
    """One row a device, one box an action; a pair is a box of two halves."""
    for device, steps in enumerate(result.schedule.order):
        yield f'<g transform="translate(0 {number(_TOP + _ROW * device)})">'
        yield text(_LEFT - 8, 16, f"device {device}", "end", ' font-size="12"')
        yield from _row(result, device, steps, axis)
        yield "</g>"


def _row(result: Simulation, device: int, steps: tuple[Step, ...], axis: Axis) -> Iterator[str]:
    """The boxes of a device and the microbatches in them.

    Boxes of one stage and one kind are one path, which a browser draws much faster than a hundred rectangles: its
    hairline keeps neighbours apart, its tooltip names the stage.
    """
    boxes: dict[tuple[str, int], list[str]] = {}
    labels: dict[int, list[str]] = {}
    placement = result.schedule.placement[device]
    for step, start, end in zip(steps, result.starts[device], result.ends[device], strict=True):
        x, right = _x(axis, start), _x(axis, end)
        left, wide, middle, room = number(x), number(right - x), number((x + right) / 2), right - x
        actions = parts(step)
        for (stage, kind, microbatch), (top, height, size, line) in zip(actions, _HALVES[len(actions)], strict=True):
            fills = PALE if placement.index(stage) % 2 else FILLS
            boxes.setdefault((fills[kind], stage), []).append(f"M{left} {top}h{wide}v{height}h-{wide}z")
            if room >= 7 * len(str(microbatch)) + 2:
                labels.setdefault(size, []).append(f'<text x="{middle}" y="{line}">{microbatch}</text>')
    for (fill, stage), shapes in boxes.items():
        yield (f'<path d="{"".join(shapes)}" fill="{fill}" stroke="#000" stroke-width="0.5">'
               f"<title>stage {stage}</title></path>")
    for size, words in labels.items():
        yield f'<g text-anchor="middle" font-size="{size}" style="fill:#000">{"".join(words)}</g>'


def _memory(result: Simulation, axis: Axis, top: float) -> Iterator[str]:
    """One row a device: the activations held as a step curve, filled, all to one scale."""
    highest = max(result.peak_activations)
    for device, peak in enumerate(result.peak_activations):
        base = top + _MEMORY_ROW * (device + 1)
        unit = (_MEMORY_ROW - 6) / highest
        path = [f"M{number(_x(axis, 0))} {number(base)}"]
        for time, held in result.activations(device):
            path.append(f"H{number(_x(axis, time))}V{number(base - held * unit)}")
        path.append(f"H{number(_x(axis, axis.high))}")
        yield f'<path d="{"".join(path)}" fill="#0072B2" fill-opacity="0.45" stroke="currentColor" stroke-width="1"/>'
        yield text(_LEFT - 8, base - 6, f"{device}: peak {peak:.4g}", "end", ' font-size="12"')
