"""What is made to be printed: the cheat sheet on one page of A4."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tools import book

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


CUT = """() => {
  const right = document.documentElement.clientWidth + 1;
  const beyond = e => e.scrollWidth > e.clientWidth + 2 || e.getBoundingClientRect().right > right;
  const parts = [...document.querySelectorAll('main :is(div.math, pre, table, svg[viewBox]):not(.katex svg)')];
  const told = e => `${e.tagName} ${e.textContent.trim().slice(0, 50)}`;
  return parts.filter(e => e.getClientRects().length && beyond(e)).map(told);
}"""


def test_no_page_is_cut_at_the_edge_of_the_paper(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 718, "height": 1000})  # A4 less margins of 1 cm, in pixels of a browser
    page.emulate_media(media="print")
    cut = {}
    for file in sorted(Path(book.HTML / "book").glob("*.html")):
        page.goto(f"{site}/book/{file.name}")
        page.evaluate("() => document.fonts.ready.then(() => true)")
        cut[file.stem] = page.evaluate(CUT)
    assert {name: parts for name, parts in cut.items() if parts} == {}
    page.close()
