"""Explorers: one Python function from controls to a picture, shown as sliders in Jupyter and as a still on paper.

An explorer's function takes plain values and returns HTML or SVG text. In Jupyter it becomes ipywidgets (an HTML widget
and `observe`, no Output widget, which stalls executors at random). Everywhere else its default state is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from scaling_lib.units import digits


@dataclass(frozen=True)
class Slider:
    """A number to slide or type. log: the stops stand at equal ratios, see `log_values`; step is then not used."""

    name: str
    label: str
    low: float
    high: float
    value: float
    step: float = 1.0
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a few named options."""

    name: str
    label: str
    options: tuple[str, ...]
    value: str


Control = Slider | Choice


@dataclass(frozen=True)
class Explorer:
    """Controls and the function that draws their state: one keyword a control in, HTML or SVG text out."""

    title: str
    controls: tuple[Control, ...]
    draw: Callable[..., str]

    def __post_init__(self) -> None:
        for control in self.controls:
            if isinstance(control, Slider) and not control.low <= control.value <= control.high:
                raise ValueError(
                    f"slider {control.name}: value {control.value} is outside {control.low} to {control.high}"
                )
            if isinstance(control, Choice) and control.value not in control.options:
                raise ValueError(f"choice {control.name}: {control.value!r} is not among {', '.join(control.options)}")

    @property
    def state(self) -> dict[str, Any]:
        """The default value of every control."""
        return {control.name: control.value for control in self.controls}

    def html(self, **changes: Any) -> str:
        """The picture of a state: the default one with some values changed. ValueError for an unknown control."""
        unknown = set(changes) - set(self.state)
        if unknown:
            raise ValueError(
                f"explorer {self.title!r} has no control {sorted(unknown)[0]!r}: it has {', '.join(self.state)}"
            )
        return f'<div class="explorer">{self.draw(**{**self.state, **changes})}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Sliders where a kernel runs ipywidgets; the still of the default state for every other reader."""
        bundle: dict[str, Any] = {"text/plain": f"{self.title} (explorer)", "text/html": self.html()}
        view = self.widget()._repr_mimebundle_()
        key = "application/vnd.jupyter.widget-view+json"
        return {**bundle, key: view[key]} if key in view else bundle

    def widget(self) -> Any:
        """The explorer as ipywidgets: controls above the picture, redrawn at every change."""
        import ipywidgets

        picture = ipywidgets.HTML(self.html())
        boxes = {control.name: _widget(ipywidgets, control) for control in self.controls}

        def redraw(_: Any) -> None:
            try:
                picture.value = self.html(**{name: box.value for name, box in boxes.items()})
            except ValueError as error:  # a state that makes no sense is explained in the picture's place
                message = f'<p class="explorer-error" role="alert">{escape(str(error))}</p>'
                picture.value = f'<div class="explorer">{message}</div>'

        for box in boxes.values():
            box.observe(redraw, names="value")
        return ipywidgets.VBox([*boxes.values(), picture])


def _widget(ipywidgets: Any, control: Control) -> Any:
    """The ipywidget of one control, wide enough for its label."""
    layout, style = ipywidgets.Layout(width="min(100%, 38em)"), {"description_width": "14em"}
    if isinstance(control, Choice):
        return ipywidgets.Dropdown(
            options=control.options, value=control.value, description=control.label, layout=layout, style=style
        )
    if control.log:
        options = [(digits(v), v) for v in log_values(control)]
        start = min((v for _, v in options), key=lambda v: abs(v - control.value))
        return ipywidgets.SelectionSlider(
            options=options, value=start, description=control.label, layout=layout, style=style
        )
    kind = (
        ipywidgets.IntSlider
        if all(float(v).is_integer() for v in (control.low, control.high, control.step))
        else ipywidgets.FloatSlider
    )
    return kind(
        value=control.value,
        min=control.low,
        max=control.high,
        step=control.step,
        description=control.label,
        layout=layout,
        style=style,
    )


def log_values(control: Slider) -> list[float]:
    """Stops of a logarithmic slider: 24 a decade, through the default value."""
    ratio = 10 ** (1 / 24)
    below, above = [], []
    value = float(control.value)
    while value >= control.low * (1 - 1e-9):
        below.append(value)
        value /= ratio
    value = float(control.value) * ratio
    while value <= control.high * (1 + 1e-9):
        above.append(value)
        value *= ratio
    return [*reversed(below), *above]
