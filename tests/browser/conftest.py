"""A Chromium, the built site on a loopback port, and a page that records all that goes wrong on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, sync_playwright

from tools import book
from tools.verify import chromium

# As root in a container there is no sandbox to be had; the rest keeps the browser from calling its maker's hosts.
# Pages of a site share a process, so that the runtime's binary is compiled once and not for each page.
FLAGS = (
    "--no-sandbox",
    "--process-per-site",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    path = chromium()
    if path is None:
        told = "no Chromium found: on Debian, apt install chromium; elsewhere name one with CHROMIUM="
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    running = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
    yield running
    running.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the finished book below a path, as GitHub Pages does, and return its address."""
    subprocess.run([sys.executable, "-m", "tools.book", "build"], cwd=book.ROOT, check=True, stdout=subprocess.DEVNULL)
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(book.HTML, root / "some" / "course")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(book.Handler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/some/course"
        server.shutdown()


@dataclass
class Visit:
    """A page and all that went wrong on it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda m: self.note(m.type in ("error", "warning"), f"console {m.type}: {m.text}"))
        self.page.on("pageerror", lambda error: self.note(True, f"error on the page: {error}"))
        self.page.on("requestfailed", lambda request: self.note(True, f"failed: {request.url} {request.failure}"))
        self.page.on("response", lambda r: self.note(r.status >= 400, f"status {r.status}: {r.url}"))
        self.page.on("request", self.record)

    def record(self, request: Request) -> None:
        """Keep the address of a request and complain when it leaves the site."""
        self.requests.append(request.url)
        self.note(not request.url.startswith((self.origin, "data:", "blob:")), f"asks another host: {request.url}")

    def note(self, wrong: bool, what: str) -> None:
        """Remember a problem."""
        if wrong:
            self.problems.append(what)


@pytest.fixture(scope="session")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for pages that need no fresh one: what a page has fetched, the next one has too."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield context
    context.close()


@contextmanager
def visiting(context: BrowserContext, site: str) -> Iterator[Visit]:
    """A new page of a profile, closed at the end."""
    page = context.new_page()
    try:
        yield Visit(page, site.rsplit("/some/", 1)[0])
    finally:
        page.close()


@pytest.fixture
def visit(profile: BrowserContext, site: str) -> Iterator[Visit]:
    """A fresh page."""
    with visiting(profile, site) as found:
        yield found


def open_page(visit: Visit, site: str, address: str) -> Page:
    """Open a page of the site and wait until its scripts have run and its fonts are there."""
    visit.page.goto(f"{site}/{address}", wait_until="load")
    visit.page.evaluate("() => document.fonts.ready.then(() => true)")
    return visit.page


def picture(page: Page, name: str) -> None:
    """Keep a picture of a whole page for people to look at."""
    page.screenshot(path=str(screenshots() / f"{name}.jpg"), type="jpeg", quality=70, full_page=True)


AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, contrast: bool = True) -> list[str]:
    """Return what axe-core finds on a page, a line each. contrast: also the rule that takes most of its time."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE)
    options = {"resultTypes": ["violations"], "preload": False, "rules": {"color-contrast": {"enabled": contrast}}}
    result = page.evaluate("options => axe.run(document, options)", options)
    assert result["passes"], "axe has looked at nothing"
    return [f"{v['id']}: {n['html'][:100]}" for v in result["violations"] for n in v["nodes"]]


def screenshots() -> Path:
    """Where pictures of pages are kept for people to look at."""
    folder = book.ROOT / ".cache" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
