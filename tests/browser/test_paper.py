"""What is made to be printed: the cheat sheet on one page of A4."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
A4 = (595, 842)  # points


def test_the_cheat_sheet_is_one_page(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}/book/cheatsheet.html")
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 1
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert box is not None
    assert [round(float(side)) for side in box.groups()] == pytest.approx(A4, abs=1)
    page.emulate_media(media="print")
    sheet = page.locator(".cheatsheet")
    assert sheet.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "it is cut off at the right"
    assert not page.locator(".cell_input").first.is_visible()
    assert not page.locator("[data-question]").first.is_visible()
    assert not page.locator(".sheets").is_visible()
    page.close()
