"""What a program does on the virtual mesh as a picture: its moves in order, above the memory it holds. SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaling_lib.draw import number, stroke, svg, text
from scaling_lib.units import show

_NAMES = ("network", "compute")
_SHORT = {"all-gather": "AG", "all-reduce": "AR", "reduce-scatter": "RS", "all-to-all": "A2A", "permute": "send"}
# the lane and the fill of each kind of move; what only frees memory has none
LANES = {"network": (0, "#E69F00"), "einsum": (1, "#56B4E9"), "local": (1, "#C4E4F8")}
_LEFT, _RIGHT, _TOP, _ROW, _MEMORY, _WIDTH = 84.0, 12.0, 34.0, 24.0, 90.0, 760.0


@dataclass(frozen=True)
class Event:
    """One move. kind: network, einsum, local or free. label: collective and axes. held: bytes of a device after it."""

    kind: str
    label: str
    held: float


def describe(events: Sequence[Event]) -> str:
    """The picture in words: the moves in order, and the most that was held."""
    moves = [e.label or ("matmul" if e.kind == "einsum" else "elementwise") for e in events if e.kind != "free"]
    return f"In order: {', '.join(moves)}. At most {show(max(e.held for e in events), 'B')} held by a device."


def trace_svg(title: str, events: Sequence[Event]) -> str:
    """Moves as boxes in two lanes, network and compute, in the order in which they are begun; memory below.

    Raises ValueError when there is nothing to draw.
    """
    moves = [e for e in events if e.kind != "free"]
    if not moves:
        raise ValueError(f"{title!r} makes no move on the mesh, so there is no picture: give a run with at least one")
    step = (_WIDTH - _LEFT - _RIGHT) / len(moves)
    base = _TOP + 2 * _ROW + 30 + _MEMORY
    body = [text(0, 15, f"{title}: what each device does, and what it holds", extra=' font-weight="600"')]
    body += [text(_LEFT - 8, _TOP + _ROW * i + 16, lane, "end", ' font-size="12"') for i, lane in enumerate(_NAMES)]
    peak, path = max(e.held for e in events), [f"M{number(_LEFT)} {number(base)}"]
    for place, event in enumerate(moves):  # what is freed shows at the next move
        lane, fill = LANES[event.kind]
        body.append(_box(_LEFT + step * place, _TOP + _ROW * lane, step, fill, event))
        path.append(f"V{number(base - _MEMORY * event.held / peak)}H{number(_LEFT + step * (place + 1))}")
    path.append(f"V{number(base)}Z")
    body.append(
        f'<path d="{"".join(path)}" fill="#0072B2" fill-opacity="0.45" stroke="currentColor" stroke-width="1"/>'
    )
    body.append(text(_LEFT - 8, base - _MEMORY + 10, show(peak, "B"), "end", ' font-size="12"'))
    body.append(text(_LEFT - 8, base, "0", "end", ' font-size="12"'))
    body.append(stroke(_LEFT, base, _WIDTH - _RIGHT, base))
    body.append(text(_LEFT, base + 18, "bytes held by a device, arguments left out", extra=' font-size="12"'))
    return svg(title, describe(events), "".join(body), _WIDTH, base + 26)


def _box(x: float, top: float, width: float, fill: str, event: Event) -> str:
    """One move; its label inside where it fits, and as a tooltip."""
    label = event.label.replace("_", "-") or ("matmul" if event.kind == "einsum" else "elementwise")
    shape = (
        f'<rect x="{number(x)}" y="{number(top + 2)}" width="{number(width)}" height="{number(_ROW - 4)}" '
        f'fill="{fill}" stroke="#000" stroke-width="0.5"><title>{label}</title></rect>'
    )
    op, _, axes = label.partition(" ")
    for said in (label, f"{_SHORT.get(op, '')} {axes}".strip()):
        if 5.4 * len(said) + 4 <= width:
            return shape + text(x + width / 2, top + 16, said, "middle", ' font-size="10" style="fill:#000"')
    return shape
