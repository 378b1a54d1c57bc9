"""The picture of a schedule: its data, its words, its limits."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from scaling_lib.draw_schedule import FILLS, MOST_STEPS, PALE, describe, schedule_svg
from scaling_lib.schedule_generators import SCHEDULES, generate
from scaling_lib.schedules import ScheduleError, parts
from scaling_lib.simulate import simulate

NS = "{http://www.w3.org/2000/svg}"


def boxes(picture: str) -> list[tuple[float, float, str, str]]:
    """Left edge, width, fill and tooltip of every box: the boxes of a stage and kind are one path."""
    paths = [p for p in ElementTree.fromstring(picture).iter(f"{NS}path") if p.find(f"{NS}title") is not None]
    return [
        (float(x), float(width), p.get("fill", ""), p.findtext(f"{NS}title", ""))
        for p in paths
        for x, width in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v[\d.]+h-\2z", p.get("d", ""))
    ]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_action_has_its_box(name: str) -> None:
    result = simulate(generate(name, 4, 8))
    picture = schedule_svg(result)
    n_actions = sum(2 if "OVERLAP" in str(s) else 1 for own in result.schedule.order for s in own)
    assert len(boxes(picture)) == n_actions
    assert picture == schedule_svg(simulate(generate(name, 4, 8))), "the same text every time"
    assert {fill for _, _, fill, _ in boxes(picture)} <= {*FILLS.values(), *PALE.values()}
    stages = [f"stage {a.stage}" for own in result.schedule.order for step in own for a in parts(step)]
    assert Counter(stages) == Counter(stage for *_, stage in boxes(picture))


def test_boxes_lie_where_the_simulation_says() -> None:
    result = simulate(generate("1f1b", 2, 3), 2, 3, 1)
    scale = (880 - 92 - 12) / result.makespan
    got = [(x, width) for x, width, *_ in boxes(schedule_svg(result))]
    want = [(92 + s * scale, (e - s) * scale) for own in zip(result.starts, result.ends, strict=True)
            for s, e in zip(*own, strict=True)]  # fmt: skip
    assert sorted(got) == [(pytest.approx(x, abs=0.011), pytest.approx(w, abs=0.011)) for x, w in sorted(want)]


def test_words_carry_the_numbers() -> None:
    result = simulate(generate("1f1b", 4, 8))
    words = describe(result)
    assert "4 devices, 8 microbatches, 1 chunk a device. Makespan 33." in words
    assert "Bubble 27.3% of the total, 37.5% of the ideal time" in words
    assert "device 1 idle 6 (9 in the makespan), at most 3 microbatches of activations" in words
    root = ElementTree.fromstring(schedule_svg(result))
    assert root.findtext(f"{NS}desc") == words
    assert root.findtext(f"{NS}title") == "Pipeline schedule 1f1b"
    assert root.get("role") == "img"


def test_ink_follows_the_page() -> None:
    picture = schedule_svg(simulate(generate("1f1b", 4, 8)))
    assert 'fill="currentColor"' in picture
    assert "<style>" not in picture
    assert "prefers-color-scheme:dark" in schedule_svg(simulate(generate("1f1b", 4, 8)), standalone=True)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_black_letters_stand_out_on_every_fill() -> None:
    """Contrast of at least 7 to 1: WCAG's stricter level."""
    for fill in (*FILLS.values(), *PALE.values()):
        assert (_luminance(fill) + 0.05) / 0.05 >= 7, fill


def test_memory_curve_ends_where_it_began() -> None:
    picture = schedule_svg(simulate(generate("1f1b", 4, 8)))
    paths = re.findall(r'<path d="M([\d.]+) ([\d.]+)[^"]*V([\d.]+)H[\d.]+"', picture)
    assert len(paths) == 4
    assert all(base == last for _, base, last in paths)


def test_too_large_a_picture_is_refused() -> None:
    m = MOST_STEPS // 16 + 1
    with pytest.raises(ScheduleError, match="steps cannot be told apart in a picture: draw at most 20000"):
        schedule_svg(simulate(generate("1f1b", 8, m)))
