"""Pictures: deterministic SVG whose marks stand where the numbers say, with a text alternative."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from scaling_lib import decide
from scaling_lib.course import h100, llama
from scaling_lib.draw import Axis, Mark, Picture, Series, Sharded, bar_chart, line_chart, readout, scatter, sharding
from scaling_lib.draw_flow import flow
from scaling_lib.job import Job, ParallelPlan

SVG = "{http://www.w3.org/2000/svg}"


def test_axis_places_values() -> None:
    log, linear = Axis("x", 1, 10_000, log=True), Axis("y", 0, 8)
    assert [log.place(v) for v in (1, 100, 10_000, 1e9)] == pytest.approx([0, 0.5, 1, 1])
    assert [linear.place(v) for v in (-1, 2, 8)] == pytest.approx([0, 0.25, 1])
    assert log.ticks() == [1, 10, 100, 1000, 10_000]
    assert linear.ticks() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("low", "high", "log"), [(1, 1, False), (2, 1, False), (0, 5, True), (-1, 5, True)])
def test_axis_refuses_an_empty_range(low: float, high: float, log: bool) -> None:
    with pytest.raises(ValueError, match="low must be below high"):
        Axis("x", low, high, log)


def test_line_chart_is_drawn_at_the_right_place() -> None:
    chart = line_chart(
        "T",
        "Words with 7 tokens.",
        Axis("x", 0, 10),
        Axis("y", 0, 10),
        [Series("a", [(0, 0), (10, 10)])],
        [Mark(5, 5, "here")],
    )
    root = ET.fromstring(chart)
    assert root.find(f"{SVG}title").text == "T"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text == "Words with 7 tokens."  # type: ignore[union-attr]
    assert root.get("role") == "img"
    assert "Words with 7 tokens." in str(root.get("aria-label"))
    (x1, y1), (x2, y2) = (tuple(map(float, p.split(","))) for p in root.find(f"{SVG}polyline").get("points").split())  # type: ignore[union-attr]
    circle = root.find(f"{SVG}circle")
    assert circle is not None
    assert float(circle.get("cx", 0)) == pytest.approx((x1 + x2) / 2, abs=0.01)
    assert float(circle.get("cy", 0)) == pytest.approx((y1 + y2) / 2, abs=0.01)
    assert x1 < x2
    assert y1 > y2  # up is smaller in SVG
    assert chart == line_chart(
        "T",
        "Words with 7 tokens.",
        Axis("x", 0, 10),
        Axis("y", 0, 10),
        [Series("a", [(0, 0), (10, 10)])],
        [Mark(5, 5, "here")],
    )


def test_bars_are_as_long_as_their_values() -> None:
    root = ET.fromstring(bar_chart("T", "d", [("one", 1.0, "1"), ("four", 4.0, "4")], (2.0, "limit")))
    widths = [float(r.get("width", 0)) for r in root.iter(f"{SVG}rect")]
    assert widths[1] == pytest.approx(4 * widths[0], rel=1e-3)


def test_scatter_puts_points_on_the_line_they_lie_on() -> None:
    def draw() -> str:
        groups = [Series(f"g{i}", [(10.0**j, 10.0 ** (j + i - 3)) for j in (1, 2)]) for i in range(7)]
        return scatter(
            "T",
            "Words.",
            Axis("x", 1, 1000, True),
            Axis("y", 0.001, 1e6, True),
            groups,
            [Series("y = x", [(1, 1), (1000, 1000)])],
        )

    root = ET.fromstring(draw())
    paths = list(root.iter(f"{SVG}path"))
    assert len(paths) == 14  # each group once in the chart and once in the legend
    shapes = [str(p.get("d")) for p in paths[:7]]
    assert len({re.sub(r"[-\d.]+", "", d.split("M")[1]) for d in shapes}) >= 4  # arcs, three, four, two corners
    looks = [(p.get("stroke"), re.sub(r"[\d.-]+", "", str(p.get("d")))) for p in paths[:7]]
    assert len(set(looks)) == 7  # told apart by colour and outline together
    # the fourth group lies on y = x, drawn as diamonds: the middle of top and bottom corner is the point
    (x1, y1), (x2, y2) = (
        tuple(map(float, p.split(",")))
        for p in root.find(f"{SVG}polyline").get("points").split()  # type: ignore[union-attr]
    )
    for outline in shapes[3].split("M")[1:]:
        corners = [tuple(map(float, p.split(","))) for p in outline.rstrip("z").split(" L")]
        x, y = (corners[0][0] + corners[2][0]) / 2, (corners[0][1] + corners[2][1]) / 2
        assert (y - y1) / (y2 - y1) == pytest.approx((x - x1) / (x2 - x1), abs=2e-3)
    assert "Words." in str(root.get("aria-label"))
    assert draw() == draw()


def test_scatter_refuses_more_groups_than_shapes() -> None:
    with pytest.raises(ValueError, match="8 groups: join some, there are 7 shapes"):
        scatter("T", "d", Axis("x", 0, 1), Axis("y", 0, 1), [Series(str(i), [(0, 0)]) for i in range(8)])


def test_sharding_fills_one_part() -> None:
    root = ET.fromstring(sharding("T", "d", [Sharded("In[B_X, D_Y]", 160, 80, 4, 2)]))
    (part,) = root.iter(f"{SVG}rect")
    assert float(part.get("width", 0)) == 40
    assert float(part.get("height", 0)) == 40


def test_text_is_escaped_and_colours_suit_both_themes() -> None:
    chart = bar_chart("a < b & c", "d", [("x", 1.0, "<1>")])
    assert "a &lt; b &amp; c" in chart
    assert 'fill="currentColor"' in chart
    assert not re.search(r'fill="(black|white|#000|#fff)', chart)


def test_nothing_to_draw_is_refused() -> None:
    calls: tuple[Callable[[], str], ...] = (
        lambda: line_chart("T", "d", Axis("x", 0, 1), Axis("y", 0, 1), []),
        lambda: bar_chart("T", "d", []),
        lambda: scatter("T", "d", Axis("x", 0, 1), Axis("y", 0, 1), []),
        lambda: sharding("T", "d", []),
    )
    for call in calls:
        with pytest.raises(ValueError, match="at least one"):
            call()


def test_picture_and_readout() -> None:
    picture = Picture("<svg/>", "a description")
    assert repr(picture) == "Picture(a description)"
    assert picture._repr_html_() == "<svg/>"
    assert "<dd" in readout([("a & b", "1 < 2")])
    assert "a &amp; b" in readout([("a & b", "1 < 2")])


def test_flow_draws_the_steps_that_explain_asks() -> None:
    """A box a step, coloured by the verdict of the same step; the description carries every answer."""
    job = Job(llama, h100, ParallelPlan(dp=140, tp=8, pp=8, zero=1), 8960, 2**22, 4096)
    verdicts = decide.explain(job)
    root = ET.fromstring(flow(job))
    boxes = [r.get("stroke") for r in root.iter(f"{SVG}rect")]
    assert len(boxes) == len(verdicts) == len(decide.FLOW)
    assert [c == "#009E73" for c in boxes] == [v.ok for v in verdicts]
    assert [v.ok for v in verdicts] == [True, True, True, False, True, True]
    words = root.find(f"{SVG}desc").text or ""  # type: ignore[union-attr]
    assert "468 against 307 tokens/chip" in words
    assert "7.31 against 32.0 microbatches" in words
    assert all(step.otherwise in words for step in decide.FLOW)
    assert {r.get("stroke") for r in ET.fromstring(flow()).iter(f"{SVG}rect")} == {"currentColor"}
