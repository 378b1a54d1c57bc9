"""Quantities as text: reading refuses what is ambiguous, printing rounds once and names the unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_lib import units
from scaling_lib.units import GB, GiB, UnitError, ceil_div, digits, duration, maximum, minimum, parse, show, usd, where


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("450 GB/s", "B/s", 450_000_000_000),
        ("400 Gb/s", "B/s", 50_000_000_000),  # bits, not bytes
        ("80 GiB", "B", 85_899_345_920),
        ("1 TiB", "B", 1_099_511_627_776),
        ("3 KiB", "B", 3072),
        ("989 TFLOPS", "FLOP/s", 989e12),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("1.979 PFLOP/s", "FLOP/s", 1.979e15),
        ("3.7 us", "s", 3.7e-6),
        ("3.7 µs", "s", 3.7e-6),
        ("20 days", "s", 1_728_000),
        ("1.5 h", "s", 5400),
        ("90 min", "s", 5400),
        ("1 year", "s", 31_557_600),
        ("2.0 USD/h", "USD/s", 2 / 3600),
        ("3.6 USD/GPU-hour", "USD/chip/s", 0.001),
        ("6.4e6 GPU-hours", "chip*s", 2.304e10),
        ("1 chip-hour", "chip*s", 3600),
        ("15e12 tokens", "token", 15e12),
        ("4 Mtokens", "token", 4e6),
        ("700 W", "W", 700),
        ("1.2 kW", "W", 1200),
        ("16,384 GPUs", "chip", 16384),
        ("1_000_000 B", "B", 1e6),
        ("2 B/param", "B/param", 2),
        ("40 %", "", 0.4),
        ("-3 GB", "B", -3e9),
        (".5 GB", "B", 5e8),
        ("7", "", 7),
    ],
)
def test_parse(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("fast", "B/s", ["'fast'", "write a number and a unit", "450 GB/s"]),
        ("450", "B/s", ["'450'", "a bare number", "byte/second", "450 GB/s"]),
        ("450 GB", "B/s", ["measures byte", "byte/second"]),
        ("450 GX/s", "B/s", ["unknown unit 'GX'", "GB"[1:], "prefix"]),
        ("1,5 GB", "B", ["'1,5 GB'"]),  # a decimal comma is not read as 15
        ("12,34,567 B", "B", ["'12,34,567 B'"]),
        ("1.2.3 GB", "B", ["'1.2.3 GB'"]),
        ("5 k%", "", ["unknown unit 'k%'"]),
        ("15T tokens", "token", ["unknown unit 'T tokens'"]),
        ("1e999 B", "B", ["not a finite number", "80 GB"]),
        ("nan B", "B", ["'nan B'"]),
        ("", "B", ["''"]),
    ],
)
def test_parse_refuses(text: str, unit: str, says: list[str]) -> None:
    with pytest.raises(UnitError) as error:
        parse(text, unit)
    for words in says:
        assert words in str(error.value)


def test_dimension_of_a_unit() -> None:
    assert units.unit_factor("GB/s") == (1e9, "byte/second")
    assert units.unit_factor("1/s") == (1.0, "1/second")
    assert units.unit_factor("") == (1.0, "")
    assert units.unit_factor("USD/GPU-hour") == (pytest.approx(1 / 3600), "USD/chip/second")
    assert units.unit_factor("B*s") == (1.0, "byte*second")
    assert units.unit_factor("B/B") == (1.0, "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2472, "2,470"),
        (20.73, "20.7"),
        (6.35e24, "6.35e24"),
        (999_999, "1,000,000"),
        (999_999_999, "1.00e9"),
        (123_456_789, "123,000,000"),
        (0.12345, "0.123"),
        (0.00012345, "0.000123"),
        (0.000012345, "1.23e-5"),
        (0, "0"),
        (-20.73, "-20.7"),
        (9.999, "10.0"),
        (0.0009999, "0.00100"),
        (math.inf, "inf"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_digits_takes_the_figures_asked_for() -> None:
    assert digits(20.73, 1) == "20"
    assert digits(20.73, 2) == "21"
    assert digits(26112, 5) == "26,112"
    assert digits(449_222_541_312, 12) == "4.49222541312e11"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.5e11, "B/s", "450 GB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (999.9e9, "B", "1.00 TB"),  # rounding carries into the next prefix
        (80e9, "GiB", "74.5 GiB"),
        (80 * GiB, "GiB", "80.0 GiB"),
        (6.35e24, "FLOP", "6.35e24 FLOP"),
        (1234, "B", "1.23 kB"),
        (0, "B", "0 B"),
        (-5e9, "B", "-5.00 GB"),
        (0.279, "%", "27.9%"),
        (1.79e6, "s", "20.7 days"),
        (2 / 3600, "USD/s", "2.00 USD/h"),
        (1.28e7, "USD", "12.8 million USD"),
        (2472, "token/chip", "2,472 tokens/chip"),
            (2472.5, "token/chip", "2,470 tokens/chip"),
            (4194304, "token", "4.19 million tokens"),
            (70553706496, "param", "70.6 billion params"),
        (1, "token", "1 token"),
        (3, "microbatch", "3 microbatches"),
        (3, "B/param", "3.00 B/param"),
        (3.14159, "", "3.14"),
    ],
)
def test_show(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3e-9, "3.00 ns"),
        (3.7e-6, "3.70 µs"),
        (0.0015, "1.50 ms"),
        (1, "1.00 s"),
        (119, "119 s"),
        (120, "2.00 min"),
        (7199, "120 min"),
        (7200, "2.00 h"),
        (172_799, "48.0 h"),
        (172_800, "2.00 days"),
        (2 * 31_557_600, "2.00 years"),
        (-7200, "-2.00 h"),
        (math.inf, "inf s"),
    ],
)
def test_duration_chooses_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_largest_floats_round_up_without_overflow() -> None:
    assert digits(1.7976e308, 1) == "2e308"
    assert show(-1.7976e308, "B", 2) == "-1.8e308 B"


def test_usd() -> None:
    assert usd(2.5e9) == "2.50 billion USD"
    assert usd(1e6) == "1.00 million USD"
    assert usd(999_000) == "999,000 USD"
    assert usd(-3e6) == "-3.00 million USD"
    assert (usd(999_999.9), usd(999.6e6)) == ("1.00 million USD", "1.00 billion USD")
    assert (usd(math.inf), usd(math.nan)) == ("inf USD", "nan USD")


@given(st.floats(min_value=1e-3, max_value=1e20), st.sampled_from(["B", "B/s", "FLOP/s", "FLOP"]))
def test_what_is_shown_reads_back(value: float, unit: str) -> None:
    text = show(value, unit, figures=6)
    assert parse(text, unit) == pytest.approx(value, rel=1e-5)


@given(st.floats(min_value=1e-8, max_value=1e12))
def test_a_duration_reads_back(seconds: float) -> None:
    assert parse(duration(seconds, figures=6), "s") == pytest.approx(seconds, rel=1e-5)


def test_gb_and_gib_differ_by_seven_percent() -> None:
    assert GiB / GB == 1.073741824


def test_choices_element_by_element() -> None:
    assert maximum(2, 3) == 3
    assert minimum(2.0, 3) == 2.0
    assert where(True, "yes", "no") == "yes"
    assert where(False, 1, 2) == 2
    grid = np.array([1.0, 5.0])
    np.testing.assert_array_equal(maximum(grid, 3), [3, 5])
    np.testing.assert_array_equal(minimum(3, grid), [1, 3])
    np.testing.assert_array_equal(where(grid > 2, grid, 0.0), [0, 5])


def test_ceil_div() -> None:
    assert [ceil_div(n, 4) for n in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    np.testing.assert_array_equal(ceil_div(np.array([1, 8, 9]), 4), [1, 2, 3])


def test_log2() -> None:
    assert units.log2(8) == 3
    np.testing.assert_array_equal(units.log2(np.array([1, 2, 8])), [0, 1, 3])


@pytest.mark.parametrize("unit", ["B/", "B//s", "/", "*", "B*"])
def test_a_unit_has_no_empty_term(unit: str) -> None:
    with pytest.raises(UnitError, match="has an empty term"):
        parse("3 GB", unit)


def test_only_text_is_read_and_only_one_number_shown() -> None:
    with pytest.raises(UnitError, match=r"cannot read 450000000000\.0 as a quantity: write a number and a unit"):
        parse(450e9, "B/s")  # type: ignore[arg-type]
    for unit in ("B/s", "token"):
        with pytest.raises(UnitError, match="is not one number"):
            show([1.0, 2.0], unit)
