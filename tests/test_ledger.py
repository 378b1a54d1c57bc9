"""Ledgers: every total can be opened, and its parts sum to it."""

from __future__ import annotations

import numpy as np
import pytest

from scaling_lib.ledger import Ledger, Part


@pytest.fixture
def ledger() -> Ledger:
    parts = (Part("state/weights", 6e9, "2 P"), Part("state/adam", 2e9), Part("activations", 2e9, "a < b"))
    return Ledger("Memory", "B", parts)


def test_parts_sum_to_the_total(ledger: Ledger) -> None:
    assert ledger.total == 10e9
    assert ledger["state"] == 8e9
    assert ledger["state/adam"] == 2e9
    assert ledger.share("state") == 0.8
    assert [p.name for p in ledger] == ["state/weights", "state/adam", "activations"]


def test_a_group_is_no_prefix_of_a_word(ledger: Ledger) -> None:
    both = Ledger("x", "B", (Part("state/a", 1.0), Part("statement", 5.0)))
    assert both["state"] == 1.0


def test_grouped_and_scaled_keep_the_total(ledger: Ledger) -> None:
    assert [(p.name, p.value) for p in ledger.grouped()] == [("state", 8e9), ("activations", 2e9)]
    half = ledger.scaled(0.5, "Half")
    assert (half.title, half.total, half["activations"]) == ("Half", 5e9, 1e9)
    assert half.parts[0].formula == "2 P"
    assert ledger.scaled(2).title == "Memory"


def test_unknown_part_lists_the_parts(ledger: Ledger) -> None:
    with pytest.raises(KeyError, match=r"no part 'weights'.*state/weights, state/adam, activations"):
        ledger["weights"]


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two parts named 'a'.*own name"):
        Ledger("x", "B", (Part("a", 1), Part("a", 2)))


def test_text_lines_up(ledger: Ledger) -> None:
    assert str(ledger).splitlines() == [
        "Memory",
        "state/weights  6.00 GB  60.0%  2 P",
        "state/adam     2.00 GB  20.0%",
        "activations    2.00 GB  20.0%  a < b",
        "total          10.0 GB   100%",
    ]


def test_an_empty_total_prints() -> None:
    assert Ledger("none", "B", (Part("a", 0.0),)).text().splitlines() == ["none", "a      0 B  0%", "total  0 B  0%"]


def test_table_has_caption_headers_and_escapes(ledger: Ledger) -> None:
    table = ledger._repr_html_()
    assert "<caption>Memory</caption>" in table
    assert table.count("scope='row'") == 4
    assert "a &lt; b" in table
    assert table.count("class=total") == 1
    assert "<th>formula</th>" in table
    assert "formula" not in Ledger("x", "B", (Part("a", 1.0),))._repr_html_()


def test_a_grid_of_plans_is_one_ledger() -> None:
    grid = Ledger("grid", "B", (Part("a", np.array([1.0, 2.0])), Part("b", 3.0)))
    np.testing.assert_array_equal(grid.total, [4, 5])
    np.testing.assert_array_equal(grid.share("a"), [0.25, 0.4])


def test_a_grid_of_plans_has_no_table() -> None:
    grid = Ledger("Memory", "B", (Part("a", np.array([1.0, 2.0])),))
    assert repr(grid) == "Ledger('Memory', 'B', grid of a)"
    for draw in (grid.text, grid._repr_html_):
        with pytest.raises(ValueError, match="holds a grid of plans"):
            draw()
