"""The live parts of the site: explorers, questions and cells compute in the page what the library computes here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from scaling_lib import live, quiz
from tests.browser.conftest import Visit, open_page, picture, violations, visiting
from tools import book

pytestmark = pytest.mark.browser
REMOTE = "http://127.0.0.1:9/x.png"
START = 60_000  # milliseconds that Python may take to start on a loaded machine; the goal is measured elsewhere
SOON = 30_000  # and a running one to draw
SHARED = "dp_explorer.chips=2%2C048&dp_explorer.cluster_name=dgx-a100"
DRAWN = "([id, n]) => Number(document.getElementById(id).dataset.draws || 0) >= n"
# The same texts, numbers and shapes; coordinates may differ in the last digit, as the C libraries of both Pythons do.
SAME = """([id, html]) => { const t = document.createElement('div'); t.innerHTML = html;
  const cut = e => e.innerHTML.split(/(-?\\d+(?:\\.\\d+)?)/);
  const [a, b] = [cut(document.querySelector(`#${id} .live-face`)), cut(t)];
  return a.length === b.length && a.every((x, i) => x === b[i] || (i % 2 && Math.abs(x - b[i]) <= 0.011));
}"""


def pages_with(sign: str) -> list[str]:
    """Return the chapters a stored output of which has a sign in it."""
    found = []
    for path in sorted((book.ROOT / "book").glob("*.ipynb")):
        outputs = [o for c in nbformat.read(path, 4).cells for o in c.get("outputs", [])]
        if any(sign in str(o.get("data", "")) for o in outputs):
            found.append(path.stem)
    return found


# a page asks for typed numbers only where a question wants one
EXPLORED, ASKED = pages_with("(explorer)"), pages_with("<small>numeric ")


def draws(place: Locator) -> int:
    """Return how many pictures Python has drawn in an explorer."""
    return int(place.get_attribute("data-draws") or 0)


def state(place: Locator) -> dict[str, str]:
    """Return what the boxes and lists of an explorer say."""
    fields = place.locator(":is(select, input[type=text])[data-name]")
    read = "all => Object.fromEntries(all.map(f => [f.dataset.name, f.value]))"
    found: dict[str, str] = fields.evaluate_all(read)
    return found


def move(place: Locator, number: int) -> str:
    """Move one control by its keys and return its name."""
    control = place.locator(".live-control").nth(number)
    field = control.locator("select, input[type=range]").first
    name = field.get_attribute("data-name") or ""
    before = field.input_value()
    for key in ("ArrowRight", "ArrowLeft") if field.get_attribute("type") == "range" else ("ArrowDown", "ArrowUp"):
        field.press(key)
        if field.input_value() != before:
            break
    assert field.input_value() != before, f"{name} does not move"
    return name


def check_explorers(page: Page) -> None:
    """Move every control of a page and compare each picture with what the library draws here."""
    for place in page.locator(".live-explorer").all():
        key, address = place.get_attribute("id") or "", place.get_attribute("data-explorer") or ""
        stored = place.locator(".live-face").inner_html()
        for number in range(place.locator(".live-control").count()):
            before = draws(place)
            moved = move(place, number)
            page.wait_for_function(
                "([id, n]) => { const e = document.getElementById(id); "
                "return Number(e.dataset.draws || 0) > n || e.querySelector('.live-bad'); }",
                arg=[key, before],
                timeout=START,
            )
            if place.locator(".live-status.live-bad").count():  # a state that makes no sense: the library says the same
                with pytest.raises(ValueError, match=r"\w") as error:
                    live.face(address, state(place))
                assert str(error.value) == place.locator(".live-status").inner_text()
                place.locator("[data-do=reset]").click()
                expect(place.locator(".live-status.live-bad")).to_have_count(0, timeout=START)
                continue
            page.wait_for_function(SAME, arg=[key, live.face(address, state(place))["html"]], timeout=SOON)
            assert f"{key}.{moved}=" in page.url
        place.locator("[data-do=reset]").click()
        page.wait_for_function(SAME, arg=[key, stored], timeout=SOON)
        assert f"{key}." not in page.url


def check_question(page: Page) -> None:
    """Give the right answer, a trap and nonsense to the first question that wants a number."""
    place = page.locator(".question:has(.live-answer input[type=text])").first
    asked, seed = place.get_attribute("data-question") or "", place.get_attribute("data-seed")
    number = int(seed) if seed else None
    instance = quiz.ask(asked, number).instance
    wrong = instance.traps[0][1] if instance.traps else float(instance.answer) * 7
    for answer in (f"{float(instance.answer):.6g}", f"{float(wrong):.6g}", "no idea"):
        place.locator("input[type=text]").fill(answer)
        place.locator("button[type=submit]").click()
        wanted = quiz.check(asked, answer, number)
        expect(place.locator(f".verdict-{wanted.kind}")).to_have_count(1, timeout=START)
        said = place.locator(".live-verdict").inner_text()
        assert wanted.message.replace("`", "") in said


@pytest.mark.parametrize("name", sorted({*EXPLORED, *ASKED}))
def test_live_parts_of_a_page_answer_as_the_library_does(visit: Visit, site: str, awake: Visit, name: str) -> None:
    page = open_page(visit, site, f"book/{name}.html")
    assert (page.locator(".live-explorer").count() > 0) == (name in EXPLORED)
    check_explorers(page)
    if name in ASKED:
        check_question(page)
    picture(page, f"{name}-live")
    assert not visit.problems


@pytest.fixture(scope="module")
def awake(profile: BrowserContext, site: str) -> Iterator[Visit]:
    """A page in which Python runs since it opened, because its address holds a state."""
    with visiting(profile, site) as visit:
        page = open_page(visit, site, f"book/dp.html?{SHARED}")
        page.wait_for_function(DRAWN, arg=["dp_explorer", 1], timeout=START)
        yield visit


def test_values_are_typed_shared_reset_and_saved(awake: Visit) -> None:
    page = awake.page
    place = page.locator("#dp_explorer")
    assert state(place) == {"cluster_name": "dgx-a100", "chips": "2,048", "batch": "4,194,304"}
    box, before = place.locator("input[type=text][data-name=batch]"), draws(place)
    box.fill("8M")
    box.press("Enter")
    page.wait_for_function(DRAWN, arg=["dp_explorer", before + 1], timeout=SOON)
    assert box.input_value() == "8,000,000"
    assert place.locator("input[type=range][data-name=batch]").get_attribute("aria-valuetext") == "8,000,000 tokens"
    expected = live.face("scaling_lib.explorers:dp_explorer", state(place))
    page.wait_for_function(SAME, arg=["dp_explorer", expected["html"]], timeout=SOON)
    expect(place.locator(".live-status")).to_contain_text("tokens/chip", timeout=SOON)
    box.fill("eight")
    box.press("Enter")
    expect(place.locator(".live-bad")).to_contain_text("cannot read 'eight'", timeout=SOON)
    box.fill("8M")
    box.press("Enter")
    expect(place.locator(".live-bad")).to_have_count(0, timeout=SOON)
    for kind in ("csv", "toml"):
        with page.expect_download() as download:
            place.locator(f"[data-do={kind}]").click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert text == live.table("scaling_lib.explorers:dp_explorer", state(place), kind)
    assert not awake.problems


def test_the_address_copied_is_of_the_state_just_entered(awake: Visit) -> None:
    place = awake.page.locator("#dp_explorer")
    box, status = place.locator("input[type=text][data-name=batch]"), place.locator(".live-status")
    box.fill("6M")
    box.press("Enter")
    place.locator("[data-do=link]").click()
    expect(status).to_contain_text("address of this state", timeout=SOON)
    assert "dp_explorer.batch=6%2C000%2C000" in awake.page.url
    awake.page.wait_for_timeout(700)  # a drawing speaks half a second after it, but not over what the reader asked for
    expect(status).to_contain_text("address of this state")
    assert not awake.problems


def test_new_numbers_make_another_question(awake: Visit) -> None:
    page = awake.page
    fresh = page.locator(".question [data-do=fresh]").first
    before = page.locator(".question").first.inner_text()
    fresh.click()
    page.wait_for_function(
        "old => { const q = document.querySelector('.question'); return q.innerText !== old && q.dataset.seed; }",
        arg=before,
        timeout=START,
    )
    place = page.locator(".question").first
    seed = int(place.get_attribute("data-seed") or 0)
    instance = quiz.ask(place.get_attribute("data-question") or "", seed).instance
    place.locator("input[type=text]").fill(f"{float(instance.answer):.6g}")
    place.locator("input[type=text]").press("Enter")
    expect(place.locator(".verdict-right")).to_have_count(1, timeout=START)
    assert not awake.problems


def run_cell(page: Page, number: int, code: str | None = None) -> Locator:
    """Open a cell, change its code if wanted, run it, and return its output."""
    cell = page.locator("[class*=live-cell-]").nth(number)
    run = cell.locator(".live-bar button").first
    if run.inner_text() == "Run here":
        run.click()
        expect(run).to_be_enabled(timeout=START)
    if code is not None:
        cell.locator("textarea").fill(code)
        cell.locator("textarea").press("Shift+Enter")
        expect(cell.locator(".live-output, .live-bad").first).to_be_visible(timeout=START)
        expect(run).to_be_enabled(timeout=START)
    return cell.locator(".cell_output")


def test_cells_run_with_those_above_them_and_can_be_edited(awake: Visit) -> None:
    page = awake.page
    cells = page.locator("[class*=live-cell-]")
    wanted = cells.nth(3).locator(".cell_output").inner_text().strip()
    output = run_cell(page, 3)
    assert output.inner_text().strip() == wanted
    assert run_cell(page, 3, "print(wide.chips + 1)").inner_text().strip() == "8961"
    assert "NameError" in run_cell(page, 3, "print(nothing_here)").inner_text()
    assert not [r for r in awake.requests if r.endswith(".whl")], "wheels load before a cell imports them"
    assert not awake.problems


def test_numpy_and_matplotlib_load_when_a_cell_imports_them(awake: Visit) -> None:
    page = awake.page
    code = "import numpy as np\nimport matplotlib.pyplot as plt\nplt.plot(np.arange(3) ** 2)\nprint(np.arange(4).sum())"
    output = run_cell(page, 0, code)
    expect(output.locator("svg")).to_have_count(1)
    assert output.inner_text().strip().startswith("6")
    assert not awake.problems


def test_live_parts_are_accessible_after_use(awake: Visit) -> None:
    page = awake.page
    run_cell(page, 2, "print(1)\n1 / 0")
    place = page.locator("#dp_explorer")
    before = draws(place)
    place.locator("input[type=range]").first.press("ArrowRight")
    page.wait_for_function(DRAWN, arg=["dp_explorer", before + 1], timeout=START)
    question = page.locator(".question:has(input[type=text])").first
    question.locator("input[type=text]").fill("5")
    question.locator("button[type=submit]").click()
    expect(question.locator(".verdict")).to_have_count(1, timeout=START)
    for scheme in ("light", "dark"):
        page.evaluate("s => { document.documentElement.dataset.theme = s; }", scheme)
        assert violations(page) == []


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        ("**/live-worker.js*", 404),
        ("**/pyodide.asm.wasm", 404),
        ("**/scaling_lib-*.zip", 404),
        ("**/pyodide.mjs", 404),
        ("**/python-*.snapshot", 404),
        ("**/python-*.snapshot", 200),  # arrives, but damaged
    ],
)
def test_a_worker_that_fails_says_so_and_leaves_the_stored_state(
    visit: Visit, site: str, broken: str, status: int
) -> None:
    page = open_page(visit, site, "book/dp.html")
    visit.page.route(broken, lambda route: route.fulfill(status=status, body="gone"))
    place = page.locator("#dp_explorer")
    stored = place.locator(".live-face").inner_html()
    place.locator("input[type=range]").first.press("ArrowRight")
    expect(place.locator(".live-bad")).to_contain_text("did not start", timeout=START)
    assert place.locator(".live-face").inner_html() == stored
    question = page.locator(".question:has(input[type=text])").first
    question.locator("input[type=text]").fill("5")
    question.locator("button[type=submit]").click()
    expect(question.locator(".live-bad")).to_contain_text("did not start", timeout=START)


def test_a_browser_that_cannot_unpack_the_snapshot_starts_python_from_nothing(visit: Visit, site: str) -> None:
    def without(route: Route) -> None:
        route.fulfill(response=(got := route.fetch()), body="delete self.DecompressionStream;\n" + got.text())

    visit.page.route("**/live-worker.js*", without)
    page = open_page(visit, site, "book/dp.html")
    page.locator("#dp_explorer input[type=range]").first.press("ArrowRight")
    page.wait_for_function(DRAWN, arg=["dp_explorer", 1], timeout=START)
    assert not [r for r in visit.requests if urlsplit(r).path.endswith(".snapshot")]
    assert not visit.problems


def test_without_scripts_the_stored_state_is_on_the_page(browser: Browser, site: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/book/dp.html")
    expect(page.locator("#dp_explorer svg")).to_be_visible()
    expect(page.locator("#dp_explorer dl.readout")).to_be_visible()
    expect(page.locator(".question .live-answer").first).to_be_hidden()
    assert page.locator("main .katex").count() > 10
    context.close()


def test_from_a_file_the_page_says_what_it_needs(visit: Visit, site: str) -> None:
    visit.page.goto((book.HTML / "book" / "dp.html").as_uri())
    expect(visit.page.locator("#dp_explorer .live-status")).to_contain_text("over http")
    expect(visit.page.locator("#dp_explorer svg")).to_be_visible()


@pytest.fixture(scope="module")
def strict(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the site with the policy of the documentation as a header, which binds workers too."""
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    )
    policy += "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'"

    class Handler(book.Handler):
        """The book's own server with one more header."""

        def end_headers(self) -> None:
            self.send_header("Content-Security-Policy", policy)
            super().end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(book.HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_live_parts_work_under_a_policy_that_binds_the_worker(browser: Browser, strict: str) -> None:
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(f"{strict}/book/dp.html")
    page.locator("#dp_explorer input[type=range]").first.press("ArrowRight")
    page.wait_for_function(DRAWN, arg=["dp_explorer", 1], timeout=START)
    assert not problems
    page.close()


def test_the_policy_stops_what_is_not_of_the_site(visit: Visit, site: str) -> None:
    page = open_page(visit, site, "book/dp.html")
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'evil = 1'; document.body.append(s); }"
    )
    page.evaluate("src => new Promise(done => { const i = new Image(); i.onerror = done; i.src = src; })", REMOTE)
    assert page.evaluate("() => window.evil") is None
    told = "\n".join(visit.problems)
    assert "script-src" in told
    assert "img-src" in told
