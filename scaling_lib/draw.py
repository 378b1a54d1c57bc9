"""Pictures as SVG text: deterministic, light, readable in light and dark pages, with a text alternative.

Runs without matplotlib, so that a slider in the browser can redraw in milliseconds. Ink is the page's own text
colour (currentColor); series colours are those of Okabe and Ito, told apart with any colour vision, and differ in
dash too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from scaling_lib.units import digits

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 4", "1 4")
WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 18, 34, 52


@dataclass(frozen=True)
class Axis:
    """An axis: its label with unit, its ends, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"axis {self.label!r} from {self.low} to {self.high}: low must be below high, and above 0 on a log axis"
            )

    def place(self, value: float) -> float:
        """Position of a value, 0 at the low end and 1 at the high end, kept inside."""
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, part))

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.log:
            steps = (1, 2, 5) if math.log10(self.high / self.low) < 3.2 else (1,)
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [s * 10.0**d for d in decades for s in steps]
        else:
            raw = (self.high - self.low) / 5
            step = next(
                s * 10.0 ** math.floor(math.log10(raw))
                for s in (1, 2, 2.5, 5, 10)
                if s * 10.0 ** math.floor(math.log10(raw)) >= raw
            )
            marks = [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [m for m in marks if self.low * (1 - 1e-9) <= m <= self.high * (1 + 1e-9)]


@dataclass(frozen=True)
class Series:
    """A named line through points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A labelled point; the label stands below it, or above."""

    x: float
    y: float
    label: str
    above: bool = False


def number(value: float) -> str:
    """A coordinate with two decimals, the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def tick_label(value: float) -> str:
    """A short axis label: 2000 -> "2k", 1e6 -> "1M"."""
    for step, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:g}{letter}"
    return f"{float(digits(value).replace(',', '')):g}"


def svg(title: str, description: str, body: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """An SVG picture that scales to its column and reads its title and description aloud."""
    size = f'viewBox="0 0 {number(width)} {number(height)}" style="max-width:{number(width)}px;width:100%;height:auto"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" {size} role="img" '
        f'aria-label="{escape(title)}. {escape(description)}" '
        f'font-family="sans-serif" font-size="13" fill="currentColor"><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{body}</svg>"
    )


def text(x: float, y: float, content: str, anchor: str = "start", extra: str = "") -> str:
    """A line of text in the page's own ink."""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'


def stroke(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: str = "currentColor",
    width: float = 1,
    dash: str = "",
    opacity: float = 1,
) -> str:
    """A straight line."""
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    extra = (f' stroke-dasharray="{dash}"' if dash else "") + (f' stroke-opacity="{opacity:g}"' if opacity < 1 else "")
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"{extra}/>'


def line_chart(
    title: str, description: str, x: Axis, y: Axis, series: Sequence[Series], marks: Sequence[Mark] = ()
) -> str:
    """Lines over two axes, each named at its end, with labelled points. Returns SVG text."""
    if not series:
        raise ValueError(f"chart {title!r} has no series: give at least one")
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def at(px: float, py: float) -> tuple[float, float]:
        return _LEFT + x.place(px) * width, _TOP + (1 - y.place(py)) * height

    body = [text(_LEFT, 16, title, extra=' font-weight="600"'), _grid(x, y, width, height)]
    for i, line in enumerate(series):
        points = " ".join(f"{number(a)},{number(b)}" for a, b in (at(*p) for p in line.points))
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        body.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"'
            + (f' stroke-dasharray="{dash}"' if dash else "")
            + "/>"
        )
    body.append(_legend(series))
    for mark in marks:
        mx, my = at(mark.x, mark.y)
        anchor, dx = ("end", -9) if mx > _LEFT + 0.72 * width else ("start", 9)
        body.append(
            f'<circle cx="{number(mx)}" cy="{number(my)}" r="5" fill="none" stroke="currentColor" stroke-width="2"/>'
        )
        body.append(
            text(
                mx + dx,
                my - 12 if mark.above or my > HEIGHT - _BOTTOM - 24 else my + 20,
                mark.label,
                anchor,
                ' font-weight="600"',
            )
        )
    return svg(title, description, "".join(body), height=HEIGHT + 24)


def _marker(shape: int, x: float, y: float, r: float = 3.6) -> str:
    """Outline of marker number `shape` around a point: circle, square, triangles, diamond, and two crosses."""
    corners = (
        None,
        ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
        ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
        ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    )
    if shape == 0:
        return f"M{number(x - r)},{number(y)}a{r},{r} 0 1 0 {2 * r},0a{r},{r} 0 1 0 {-2 * r},0z"
    if shape < len(corners):
        places = " L".join(f"{number(x + r * a)},{number(y + r * b)}" for a, b in corners[shape] or ())
        return f"M{places}z"
    bars = ((1.2, 0), (0, 1.2)) if shape == len(corners) else ((0.95, 0.95), (0.95, -0.95))
    return "".join(
        f"M{number(x - r * a)},{number(y - r * b)} L{number(x + r * a)},{number(y + r * b)}" for a, b in bars
    )


MARKERS = 7  # shapes that _marker tells apart; the last two are strokes


def _marked(shape: int, places: Sequence[tuple[float, float]]) -> str:
    """One path through the markers of a group, in its colour."""
    outline, colour = "".join(_marker(shape, x, y) for x, y in places), COLOURS[shape % len(COLOURS)]
    if shape >= MARKERS - 2:
        return f'<path d="{outline}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    return f'<path d="{outline}" fill="{colour}" fill-opacity="0.6" stroke="{colour}" stroke-width="0.7"/>'


def scatter(
    title: str, description: str, x: Axis, y: Axis, groups: Sequence[Series], lines: Sequence[Series] = ()
) -> str:
    """Points over two axes, each group with a colour and a shape of its own, over dashed lines in the page's ink.

    Points outside the axes stand on their edge. Returns SVG text. Raises ValueError for no groups, or more than there
    are shapes.
    """
    if not groups:
        raise ValueError(f"chart {title!r} has no groups: give at least one")
    if len(groups) > MARKERS:
        raise ValueError(f"chart {title!r} has {len(groups)} groups: join some, there are {MARKERS} shapes")
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return _LEFT + x.place(point[0]) * width, _TOP + (1 - y.place(point[1])) * height

    body = [text(_LEFT, 16, title, extra=' font-weight="600"'), _grid(x, y, width, height)]
    for i, line in enumerate(lines):
        places = " ".join(f"{number(a)},{number(b)}" for a, b in map(at, line.points))
        dash = f' stroke-dasharray="{DASHES[i % len(DASHES)]}"' if DASHES[i % len(DASHES)] else ""
        body.append(f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.2"{dash}/>')
    body += [_marked(i, [at(p) for p in group.points]) for i, group in enumerate(groups)]
    left, row = float(_LEFT), HEIGHT + 12
    for i, name in enumerate([g.name for g in groups] + [line.name for line in lines]):
        size = 34 + 7.2 * len(name)  # about the width of the text, which only a browser could measure
        if left + size > WIDTH:
            left, row = float(_LEFT), row + 20
        if i < len(groups):
            body += [_marked(i, [(left + 8, row - 4)]), text(left + 18, row, name)]
        else:
            body += [
                stroke(left - 4, row - 4, left + 16, row - 4, dash=DASHES[(i - len(groups)) % len(DASHES)]),
                text(left + 20, row, name),
            ]
        left += size
    return svg(title, description, "".join(body), height=row + 12)


def _grid(x: Axis, y: Axis, width: float, height: float) -> str:
    """Grid lines, tick labels and axis labels."""
    parts = []
    for tick in x.ticks():
        px = _LEFT + x.place(tick) * width
        parts.append(stroke(px, _TOP, px, _TOP + height, opacity=0.13))
        parts.append(text(px, _TOP + height + 18, tick_label(tick), "middle"))
    for tick in y.ticks():
        py = _TOP + (1 - y.place(tick)) * height
        parts.append(stroke(_LEFT, py, _LEFT + width, py, opacity=0.13))
        parts.append(text(_LEFT - 8, py + 4, tick_label(tick), "end"))
    parts.append(text(_LEFT + width / 2, HEIGHT - 10, x.label, "middle"))
    parts.append(text(0, 0, y.label, "middle", f' transform="translate(16 {number(_TOP + height / 2)}) rotate(-90)"'))
    return "".join(parts)


def _legend(series: Sequence[Series]) -> str:
    """Names with their stroke, in a row below the axis, where no line can cross them."""
    parts, x, y = [], float(_LEFT), HEIGHT + 12
    for i, line in enumerate(series):
        parts.append(stroke(x, y - 4, x + 30, y - 4, COLOURS[i % len(COLOURS)], 2.5, DASHES[i % len(DASHES)]))
        parts.append(text(x + 36, y, line.name))
        x += 60 + 7.2 * len(line.name)  # about the width of the text, which only a browser could measure
    return "".join(parts)


def bar_chart(
    title: str, description: str, bars: Sequence[tuple[str, float, str]], limit: tuple[float, str] | None = None
) -> str:
    """Horizontal bars (name, value, text), with a labelled limit line. Returns SVG text.

    Its alternative is the description, and after it the bars that the description leaves out.
    """
    if not bars:
        raise ValueError(f"chart {title!r} has no bars: give at least one")
    top = max([*(value for _, value, _ in bars), limit[0] if limit else 0.0]) or 1.0
    left, right, row = max(60.0, 8 + 7.6 * max(len(name) for name, _, _ in bars)), 130, 26
    width, height = WIDTH - left - right, _TOP + row * len(bars) + 20
    body = [text(0, 16, title, extra=' font-weight="600"')]
    for i, (name, value, label) in enumerate(bars):
        y, size = _TOP + row * i, max(0.0, value / top) * width
        body.append(text(left - 8, y + 15, name, "end"))
        body.append(
            f'<rect x="{number(left)}" y="{number(y)}" width="{number(size)}" height="{row - 7}" fill="{COLOURS[0]}"/>'
        )
        body.append(text(left + size + 6, y + 15, label))
    if limit:
        x = left + limit[0] / top * width
        body.append(stroke(x, _TOP - 8, x, height - 16, COLOURS[1], 2, "5 3"))
        body.append(text(x, height - 2, limit[1], "middle"))
    unsaid = "; ".join(f"{n}: {label}" for n, _, label in bars if n not in description or label not in description)
    told = f"{description.rstrip('.')}. {unsaid}." if unsaid else description
    return svg(title, told, "".join(body), WIDTH, height + 4)


def log_range(low: float, high: float, count: int = 60) -> list[float]:
    """`count` values from low to high in equal ratios."""
    return [low * (high / low) ** (i / (count - 1)) for i in range(count)]


@dataclass(frozen=True)
class Sharded:
    """An array as the whiteboard writes it: name[rows, columns], cut into row_shards x column_shards.

    notation: the bracket with its mesh axes, e.g. "In[B_X, D]". rows, columns: relative lengths to draw.
    """

    notation: str
    rows: float
    columns: float
    row_shards: int = 1
    column_shards: int = 1


def sharding(title: str, description: str, arrays: Sequence[Sharded]) -> str:
    """Arrays side by side, each cut as a mesh cuts it; what the first chip holds is filled. Returns SVG text."""
    if not arrays:
        raise ValueError(f"picture {title!r} has no arrays: give at least one")
    gap, unit = 46.0, 1.0
    total = sum(a.columns for a in arrays) * unit + gap * (len(arrays) - 1)
    height = max(a.rows for a in arrays)
    body, x = [text(0, 16, title, extra=' font-weight="600"')], 1.0
    for array in arrays:
        top = 34 + (height - array.rows) / 2
        h, w = array.rows / array.row_shards, array.columns / array.column_shards
        body.append(
            f'<rect x="{number(x)}" y="{number(top)}" width="{number(w)}" height="{number(h)}" fill="{COLOURS[0]}"/>'
        )
        body += [stroke(x, top + i * h, x + array.columns, top + i * h) for i in range(array.row_shards + 1)]
        body += [stroke(x + i * w, top, x + i * w, top + array.rows) for i in range(array.column_shards + 1)]
        body.append(text(x + array.columns / 2, 34 + height + 20, array.notation, "middle"))
        x += array.columns + gap
    return svg(title, description, "".join(body), max(total + 2, 320), height + 66)


@dataclass(frozen=True)
class Picture:
    """SVG or HTML text that a notebook shows; its repr is the description, so that text outputs stay readable."""

    content: str
    description: str = "picture"

    def __repr__(self) -> str:
        return f"Picture({self.description})"

    def _repr_html_(self) -> str:
        return self.content


def readout(rows: Sequence[tuple[str, str]]) -> str:
    """Labelled values beside a picture, as a definition list that is announced when it changes.

    Styled in place, so that it looks the same in JupyterLab, which knows no style sheet of the book.
    """
    grid = "display:grid;grid-template-columns:repeat(auto-fit,minmax(11em,1fr));gap:.5em 1.2em;margin:.8em 0"
    small, strong = "font-size:.85em;font-weight:normal", "margin:0;font-weight:600"
    items = "".join(
        f'<div><dt style="{small}">{escape(label)}</dt><dd style="{strong}">{escape(value)}</dd></div>'
        for label, value in rows
    )
    return f'<dl class="readout" aria-live="polite" style="{grid}">{items}</dl>'
