"""Every page of the built site in a real browser: quiet, self-contained, readable on any screen, in light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
import yaml
from playwright.sync_api import Page

from tests.browser.conftest import Visit, screenshots
from tools import book

pytestmark = pytest.mark.browser
TOC = yaml.safe_load((book.ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *re.findall(r"(?m)^\s*- file: (\S+)", (book.ROOT / "_toc.yml").read_text(encoding="utf-8"))]
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const told = e => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`;
  const beyond = e => e.getBoundingClientRect().right > wide + 1;
  return ['wider than the screen', ...[...document.querySelectorAll('main *')].filter(beyond).slice(0, 5).map(told)];
}"""
# Contrast of text with its ground, as the web's accessibility guidelines define it; 4.5 is their least.
CONTRAST = """() => {
  const parse = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const e of document.querySelectorAll('.bd-article :is(p, li, td, th, code, a), .bd-article svg text')) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const svg = e.closest('svg'), style = getComputedStyle(e);
    const ink = light(parse(svg ? style.fill : style.color)), paper = light(ground(svg || e));
    const [dark, bright] = [Math.min(ink, paper), Math.max(ink, paper)];
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) faint.push(`${e.tagName} ${e.textContent.trim().slice(0, 40)}: ${ratio.toFixed(1)}`);
  }
  return faint.slice(0, 8);
}"""


def open_page(visit: Visit, site: str, name: str) -> Page:
    """Open a page and wait until its fonts are there."""
    visit.page.goto(f"{site}/{name}.html", wait_until="networkidle")
    visit.page.evaluate("() => document.fonts.ready.then(() => true)")
    return visit.page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_whole_and_asks_no_one_else(visit: Visit, site: str, name: str) -> None:
    page = open_page(visit, site, name)
    assert page.locator("main h1").count() == 1
    assert page.title()
    formulas = page.locator("main .math").count()
    assert page.locator("main .math .katex math").count() >= formulas
    assert page.locator("main .katex-error").count() == 0, "a formula is not valid TeX"
    unset = page.evaluate(
        "() => document.querySelector('main').innerText.match(/\\\\\\(|\\\\\\[|<!--=|\\{cite\\}|\\{ref\\}/g)"
    )
    assert not unset, f"markup is left in the text: {unset}"
    nameless = "img:not([alt]), img[alt=''], svg:not([aria-label]):not([aria-hidden]):not([aria-labelledby])"
    bad = page.locator(f":is(.cell_output, figure) :is({nameless})").evaluate_all(
        "all => all.map(e => e.outerHTML.slice(0, 150))"
    )
    assert not bad, "a picture has no text alternative"
    page.screenshot(path=str(screenshots() / f"{Path(name).name}-wide-light.png"), full_page=True)
    assert not visit.problems


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_narrow_screens(visit: Visit, site: str, name: str) -> None:
    for width in (390, 320):
        visit.page.set_viewport_size({"width": width, "height": 800})
        page = open_page(visit, site, name)
        assert page.evaluate(OVERFLOW) == [], f"at {width} pixels"
        page.screenshot(path=str(screenshots() / f"{Path(name).name}-{width}.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_and_figures_are_legible_in_both_themes(visit: Visit, site: str, name: str, scheme: str) -> None:
    visit.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page = open_page(visit, site, name)
    assert page.evaluate("() => document.documentElement.dataset.theme") == scheme
    page.screenshot(path=str(screenshots() / f"{Path(name).name}-wide-{scheme}.png"), full_page=True)
    assert page.evaluate(CONTRAST) == []


def test_every_link_inside_the_site_leads_somewhere(visit: Visit, site: str) -> None:
    targets: dict[str, set[str]] = {}
    links: list[tuple[str, str]] = []
    for name in PAGES:
        address = f"{site}/{name}.html"
        page = open_page(visit, site, name)
        targets[address] = set(page.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)"))
        links += [
            (address, href)
            for href in page.evaluate(
                "() => [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
            )
        ]
    broken = []
    for source, href in sorted(set(links)):
        address, fragment = urldefrag(urljoin(source, href))
        if not address.startswith(site):
            continue
        if address not in targets:
            path = book.HTML / unquote(address.removeprefix(site)).lstrip("/")
            if not (path.is_file() or (path / "index.html").is_file()):
                broken.append(f"{source}: {href}")
        elif fragment and unquote(fragment) not in targets[address]:
            broken.append(f"{source}: {href} (no such place on the page)")
    assert not broken


def test_the_first_page_redirects_to_the_book(visit: Visit, site: str) -> None:
    visit.page.goto(f"{site}/", wait_until="networkidle")
    visit.page.wait_for_url("**/book/index.html")
    assert not visit.problems


def test_search_finds_a_word_without_any_other_host(visit: Visit, site: str) -> None:
    visit.page.goto(f"{site}/search.html?q=training", wait_until="networkidle")
    visit.page.locator("#search-results li a").first.wait_for(timeout=10_000)
    assert not visit.problems


def test_a_missing_formula_or_remote_script_would_be_noticed(visit: Visit, site: str) -> None:
    """The checks above look for what is absent; this one shows that the recorder sees what is present."""
    page = open_page(visit, site, PAGES[0])
    assert not visit.problems
    page.evaluate("() => console.error('seen')")
    page.evaluate("() => ['nothing.png', 'http://127.0.0.1:9/x.png'].forEach(src => { new Image().src = src; })")
    page.wait_for_timeout(500)
    told = "\n".join(visit.problems)
    assert "console error: seen" in told
    assert "status 404" in told
    assert "asks another host: http://127.0.0.1:9/x.png" in told
