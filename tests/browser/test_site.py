"""Every page of the built site in a real browser: quiet, self-contained, readable on any screen, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
import yaml
from playwright.sync_api import Browser, BrowserContext

from tests.browser.conftest import Visit, open_page, picture, violations, visiting
from tools import book, print_book
from tools.book import Trouble

pytestmark = pytest.mark.browser
TOC = yaml.safe_load((book.ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *re.findall(r"(?m)^\s*- file: (\S+)", (book.ROOT / "_toc.yml").read_text(encoding="utf-8"))]
# On a small screen a section is laid out as it comes near, and cut at its edge: a check has to see all of it.
WHOLE = "() => document.querySelectorAll('section').forEach(e => { e.style.contentVisibility = 'visible'; })"
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const told = e => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`;
  const scrolls = e => { for (; e; e = e.parentElement) if (e.scrollWidth > e.clientWidth + 1 &&
    getComputedStyle(e).overflowX === 'auto') return true; };
  const beyond = e => e.getBoundingClientRect().right > wide + 1 && !scrolls(e) && !e.closest('.katex-mathml');
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
  const box = e => e.getBoundingClientRect();
  // text in a picture may stand on a shape: the last one drawn before it that holds its middle
  const under = e => {
    const middle = new DOMPoint((box(e).left + box(e).right) / 2, (box(e).top + box(e).bottom) / 2);
    const holds = r => r.isPointInFill(middle.matrixTransform(r.getScreenCTM().inverse()));
    const before = r => r.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING;
    const shapes = [...e.closest('svg').querySelectorAll('rect, path')].filter(r => before(r) && holds(r));
    const fills = shapes.map(r => parse(getComputedStyle(r).fill)).filter(c => c.length === 3);
    return fills.pop() || ground(e.closest('svg'));
  };
  const faint = [];
  const words = 'p, li, td, th, dt, dd, code, label, button, summary, legend, a:not(.headerlink)';
  const written = `body :is(${words}), main svg text`;
  for (const e of document.querySelectorAll(written)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const svg = e.closest('svg'), style = getComputedStyle(e);
    const ink = light(parse(svg ? style.fill : style.color)), paper = light(svg ? under(e) : ground(e));
    const [dark, bright] = [Math.min(ink, paper), Math.max(ink, paper)];
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) faint.push(`${e.tagName} ${e.textContent.trim().slice(0, 40)}: ${ratio.toFixed(1)}`);
  }
  return faint.slice(0, 8);
}"""


UNSET = """() => {
  const text = document.querySelector('main').cloneNode(true);
  text.querySelectorAll('script, pre, code, .katex').forEach(e => e.remove());
  const markup = /\\\\\\(|\\\\\\[|<!--=|\\$(?:\\$|[A-Za-z\\\\][^$]{0,40}\\$)|\\{(?:cite|ref|eq|numref)\\}/g;
  return text.textContent.match(markup);
}"""
NAMELESS = """:is(.cell_output, figure) :is(
  img:not([alt]), img[alt=''], svg:not([aria-label]):not([aria-hidden]):not([aria-labelledby])):not(button *)"""


# What is no chapter: made by the theme or by hand.
OTHERS = ("404", "genindex", "search")


@pytest.fixture(scope="module", params=PAGES)
def opened(request: pytest.FixtureRequest, profile: BrowserContext, site: str) -> Iterator[tuple[str, Visit]]:
    """Open a page once for all the tests that look at it."""
    with visiting(profile, site) as visit:
        open_page(visit, site, f"{request.param}.html")
        yield Path(request.param).name, visit


def test_a_page_is_quiet_whole_and_asks_no_one_else(opened: tuple[str, Visit]) -> None:
    _, visit = opened
    page = visit.page
    assert page.locator(".bd-article h1").count() == 1
    assert page.title()
    formulas = page.locator("main .math").count()
    assert page.locator("main .math .katex math").count() >= formulas
    assert page.locator("main .katex-error").count() == 0, "a formula is not valid TeX"
    unset = page.evaluate(UNSET)
    assert not unset, f"markup is left in the text: {unset}"
    bad = page.locator(NAMELESS).evaluate_all("all => all.map(e => e.outerHTML.slice(0, 150))")
    assert not bad, "a picture has no text alternative"
    assert not [r for r in visit.requests if "pyodide" in r or "scaling_lib" in r], "Python loads before it is asked"
    assert not visit.problems


def test_a_page_says_what_it_is(opened: tuple[str, Visit]) -> None:
    _, visit = opened
    page = visit.page
    about = page.locator("meta[name=description]").get_attribute("content") or ""
    assert 40 <= len(about) <= 160
    assert page.locator("meta[property='og:description']").get_attribute("content") == about
    assert (page.locator("meta[property='og:title']").get_attribute("content") or "?") in page.title()
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content") or ""
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")


def wear(visit: Visit, scheme: str, width: int) -> None:
    """Give a page another theme and width, and lay it out to its end."""
    visit.page.evaluate(WHOLE)
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    visit.page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=scheme)


def test_a_page_is_accessible_and_legible_in_both_themes(opened: tuple[str, Visit]) -> None:
    """axe-core finds nothing wide and narrow, light and dark; letters in pictures, which it does not judge, stand out.

    Contrast, which takes axe two thirds of its time, is asked of it once in each theme; `CONTRAST` has the same
    measure and looks in all four.
    """
    name, visit = opened
    looks = (("light", 1280, True), ("dark", 1280, False), ("dark", 390, True), ("light", 390, False))
    for scheme, width, contrast in looks:
        wear(visit, scheme, width)
        assert visit.page.evaluate(CONTRAST) == [], f"{scheme}, {width} pixels"
        if contrast:  # the other rules see the same page in both themes
            assert violations(visit.page) == [], f"{scheme}, {width} pixels"
            picture(visit.page, f"{name}-{scheme}-{width}")


def test_a_page_fits_narrow_screens(opened: tuple[str, Visit]) -> None:
    _, visit = opened
    for width, size in ((390, "100%"), (320, "100%"), (320, "125%")):  # fonts differ between machines and readers
        wear(visit, "light", width)
        visit.page.evaluate("size => document.querySelector('.bd-article').style.fontSize = size", size)
        assert visit.page.evaluate(OVERFLOW) == [], f"at {width} pixels, letters at {size}"


@pytest.fixture
def phone(browser: Browser, site: str) -> Iterator[Visit]:
    """A page on a small screen, for a reader who likes motion."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, reduced_motion="no-preference")
    with visiting(context, site) as found:
        yield found
    context.close()


LAID_OUT = """all => all.map(e => e.firstElementChild.checkVisibility({contentVisibilityAuto: true}))"""
TOP = "id => Math.round(document.getElementById(id).getBoundingClientRect().top)"


def test_a_phone_lays_out_sections_as_they_come_near_and_finds_each(phone: Visit, site: str) -> None:
    page = open_page(phone, site, "book/pp.html")
    sections = page.locator(".bd-article > section > section")
    laid_out = sections.evaluate_all(LAID_OUT)
    assert laid_out[0]
    assert not any(laid_out[4:]), "a page is laid out as far as its reader sees, and somewhat further"
    rest = int(page.evaluate("parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop)"))
    keys = sections.evaluate_all("all => all.map(e => e.id)")
    for key in (keys[7], keys[-3], keys[2]):  # far down, further, and back
        page.locator(".secondary-toggle").click()
        page.locator(f"#pst-secondary-sidebar-modal a[href='#{key}']").click()
        page.wait_for_timeout(700)
        assert abs(page.evaluate(TOP, key) - rest) <= 1, key
    page.goto("about:blank")
    page.goto(f"{site}/book/pp.html#{keys[7]}", wait_until="load")
    page.wait_for_timeout(700)
    assert abs(page.evaluate(TOP, keys[7]) - rest) <= 1
    assert not phone.problems


def test_what_scrolls_sideways_is_reached_by_keyboard(phone: Visit, site: str) -> None:
    """What is not laid out yet may scroll, so it is reached too, until it is near and its width is known."""
    page = open_page(phone, site, "book/pp.html")
    parts = page.locator("#try-it ~ section :is(pre, .cell_output > .output)")
    page.wait_for_function("e => e.tabIndex === 0", arg=parts.last.element_handle())
    assert violations(page, contrast=False) == []
    scroll = []
    for part in parts.all():
        if part.evaluate("e => e.closest('details:not([open])') !== null"):
            continue
        part.scroll_into_view_if_needed()
        page.wait_for_timeout(50)
        scroll.append(part.evaluate("e => e.scrollWidth > e.clientWidth + 1"))
        assert (part.get_attribute("tabindex") == "0") == scroll[-1]
    assert {*scroll} == {True, False}, "this test needs parts of both kinds"


def test_the_list_of_sections_marks_the_place_also_on_a_phone(phone: Visit, site: str) -> None:
    page = open_page(phone, site, "book/pp.html")
    page.locator(".secondary-toggle").click()
    page.locator("#pst-secondary-sidebar-modal a[href='#less-memory-1f1b']").click()
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(700)
    page.locator(".secondary-toggle").click()
    marked = page.locator("#pst-secondary-sidebar-modal a.active")
    marked.wait_for()
    assert marked.get_attribute("href") == "#less-memory-1f1b"


def test_the_skip_link_puts_the_focus_on_the_text(visit: Visit, site: str) -> None:
    page = open_page(visit, site, "book/pp.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main-content'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


# fmt: off
LOOK = [
    "display", "position", "float", "clear", "top", "right", "bottom", "left", "z-index", "width", "height",
    "margin", "padding", "border", "border-radius", "outline", "box-shadow", "background", "color", "fill",
    "stroke", "opacity", "visibility", "overflow", "transform", "font", "line-height", "letter-spacing",
    "text-align", "text-decoration", "text-indent", "text-transform", "vertical-align", "white-space",
    "overflow-wrap", "list-style", "content", "cursor", "flex", "flex-direction", "flex-wrap", "order", "gap",
    "grid-template-columns", "justify-content", "align-items", "align-self", "table-layout", "caption-side",
    "border-collapse", "break-inside", "pointer-events", "user-select",
]
# fmt: on
# What a page's style sheet gives its parts, against the sheets that it was made of.
STYLES = """([names, sheets]) => {
  const pseudo = [null, '::before', '::after'];
  const look = e => pseudo.map(p => { const s = getComputedStyle(e, p); return names.map(n => s[n]).join(';'); });
  const all = [...document.querySelectorAll('body, body *')];
  const before = all.map(look);
  const link = document.querySelector('link[rel=stylesheet]');
  return Promise.all(sheets.map(href => new Promise((done, failed) => {
    const other = document.createElement('link');
    Object.assign(other, {rel: 'stylesheet', href, onload: done, onerror: failed});
    link.before(other);
  }))).then(() => {
    link.remove();
    const same = (a, b) => a.every((text, i) => text === b[i]);
    const told = e => `${e.tagName}.${e.getAttribute('class')}`;
    return [all.length, all.filter((e, i) => !same(before[i], look(e))).map(told).slice(0, 5)];
  });
}"""


@pytest.mark.parametrize("name", ["book/index.html", "book/dp.html", "book/own.html", "search.html?q=bubble"])
def test_rules_left_out_of_the_style_sheet_change_nothing(visit: Visit, site: str, name: str) -> None:
    visit.page.emulate_media(reduced_motion="reduce")  # so that nothing is on its way from one look to another
    page = open_page(visit, site, name)
    page.wait_for_load_state("networkidle")
    made_of = next(book.HTML.glob("_static/all-*.css")).read_text(encoding="utf-8").splitlines()[0]
    sheets = [f"{site}/_static/{name}" for name in made_of.strip("/*! ").split()]
    assert len(sheets) > 5
    looked, changed = page.evaluate(STYLES, [LOOK, sheets])
    assert looked > 150
    assert changed == []


@pytest.mark.parametrize("name", OTHERS)
def test_pages_that_are_no_chapters_are_quiet_and_accessible(visit: Visit, site: str, name: str) -> None:
    page = open_page(visit, site, f"{name}.html")
    for scheme, width in (("light", 1280), ("dark", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert violations(page) == [], f"{scheme}, {width} pixels"
        assert page.evaluate(CONTRAST) == [], f"{scheme}, {width} pixels"
    assert page.locator("meta[name=description]").get_attribute("content")
    assert not visit.problems


def test_every_page_of_the_site_is_looked_at() -> None:
    paths = [p.relative_to(book.HTML) for p in book.HTML.rglob("*.html") if "_static" not in p.parts]
    assert {p.with_suffix("").as_posix() for p in paths} == {*PAGES, *OTHERS, "index"}


def test_axe_sees_what_is_wrong(visit: Visit, tmp_path: Path) -> None:
    """A checker that found nothing anywhere would prove nothing."""
    text = "<html><body><img src='x.png'><input><p style='color:#999'>faint</p></body></html>"
    (tmp_path / "bad.html").write_text(text, encoding="utf-8")
    visit.page.goto((tmp_path / "bad.html").as_uri())
    wanted = {"image-alt", "label", "html-has-lang", "color-contrast"}
    assert {line.split(":")[0] for line in violations(visit.page)} >= wanted
    assert visit.page.evaluate(CONTRAST) != []


def test_every_link_inside_the_site_leads_somewhere(site: str) -> None:
    """Read from the files: no browser is needed to follow a link."""
    texts = {
        path.relative_to(book.HTML).as_posix(): path.read_text(encoding="utf-8") for path in book.HTML.rglob("*.html")
    }
    places = {name: {unescape(x) for x in re.findall(r'\sid="([^"]+)"', text)} for name, text in texts.items()}
    broken = []
    for page in (f"{name}.html" for name in PAGES):
        for href in sorted(set(re.findall(r'<a\s[^>]*?href="([^"]+)"', texts[page]))):
            address, fragment = urldefrag(urljoin(f"{site}/{page}", unescape(href)))
            name = unquote(address.removeprefix(site)).lstrip("/")
            if not address.startswith(site):
                continue
            if not ((book.HTML / name).is_file() or (book.HTML / name / "index.html").is_file()):
                broken.append(f"{page}: {href}")
            elif fragment and name in places and unquote(fragment) not in places[name]:
                broken.append(f"{page}: {href} (no such place on the page)")
    assert not broken


def test_every_page_offers_its_notebook() -> None:
    for name in PAGES:
        text = (book.HTML / f"{name}.html").read_text(encoding="utf-8")
        assert f'href="../_sources/{name}.ipynb" download' in text
        assert (book.HTML / "_sources" / f"{name}.ipynb").read_bytes() == (book.ROOT / f"{name}.ipynb").read_bytes()


def test_chapters_offer_their_exercises_and_solutions() -> None:
    offered = [
        p.stem for p in sorted((book.ROOT / "exercises" / "solutions").glob("*.ipynb")) if f"book/{p.stem}" in PAGES
    ]
    assert offered
    for stem in offered:
        text = (book.HTML / "book" / f"{stem}.html").read_text(encoding="utf-8")
        for path in (f"exercises/{stem}.ipynb", f"exercises/solutions/{stem}.ipynb"):
            assert f'href="../{path}" download' in text
            assert (book.HTML / path).read_bytes() == (book.ROOT / path).read_bytes()


def test_what_was_printed_is_offered_once(tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "book").mkdir()
    for name in (print_book.PDF, print_book.EPUB):
        (tmp_path / "downloads" / name).write_bytes(b"0" * 1_500_000)
    page = tmp_path / "book" / "index.html"
    page.write_text("<h1>Printed head</h1><article><h1>Title</h1><p>Text</p></article>", encoding="utf-8")
    for _ in range(2):
        print_book.link(tmp_path / "downloads")
    text = page.read_text(encoding="utf-8")
    assert text.count("1.5 MB") == 2
    assert text.index("Title") < text.index("../downloads/planning-large-training-runs.epub") < text.index("Text")
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(Trouble, match="no title"):
        print_book.link(tmp_path / "downloads")


def test_the_first_page_redirects_to_the_book(visit: Visit, site: str) -> None:
    visit.page.goto(f"{site}/")
    visit.page.wait_for_url("**/book/index.html")
    assert not visit.problems


def test_search_finds_a_word_without_any_other_host(visit: Visit, site: str) -> None:
    visit.page.goto(f"{site}/search.html?q=training")
    visit.page.locator("#search-results li a").first.wait_for(timeout=10_000)
    assert not visit.problems


def test_a_missing_formula_or_remote_script_would_be_noticed(visit: Visit, site: str) -> None:
    """The checks above look for what is absent; this one shows that the recorder sees what is present."""
    page = open_page(visit, site, f"{PAGES[0]}.html")
    assert not visit.problems
    page.evaluate("() => console.error('seen')")
    load = "src => new Promise(done => { const i = new Image(); i.onload = i.onerror = done; i.src = src; })"
    for src in ("nothing.png", "http://127.0.0.1:9/x.png"):
        page.evaluate(load, src)
    told = "\n".join(visit.problems)
    assert "console error: seen" in told
    assert "status 404" in told
    assert "asks another host: http://127.0.0.1:9/x.png" in told
