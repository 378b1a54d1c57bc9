"""Letters as the notation page writes them."""

from __future__ import annotations

import pytest

from scaling_lib import notation


@pytest.mark.parametrize(
    ("letter", "html"),
    [
        ("B", "<var>B</var>"),
        ("B_X", "<var>B</var><sub>X</sub>"),
        ("N_params", "<var>N</var><sub>params</sub>"),
        ("alpha", "<var>&alpha;</var>"),
        ("MFU", "<var>MFU</var>"),
    ],
)
def test_a_letter_is_html_that_needs_no_script(letter: str, html: str) -> None:
    assert notation.written(letter) == html


def test_no_letter_of_the_table_waits_to_be_typeset() -> None:
    page = notation.table()._repr_html_()
    assert "$" not in page
    assert "\\" not in page
    assert page.count("<var>") == len(notation.symbols())
