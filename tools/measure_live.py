"""Measure what a reader waits for on the live pages, in headless Chromium over loopback, and compare with the goals.

    python -m tools.measure_live                  every page with an explorer
    python -m tools.measure_live dp budget        only these
    python -m tools.measure_live --rounds 3       the median of three starts

cold: an empty HTTP cache; warm: a second visit of the same profile. From the first touch of a slider until the picture
that Python drew is on the page. A move: from the input event until the next picture stands in the page. Weight: what a
page loads before the first touch, compressed as a server would (gzip; fonts and pictures are compressed already).
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.book import HTML, Handler
from tools.verify import chromium

GOALS = {"cold s": 8.0, "warm s": 3.0, "move ms": 50.0, "weight kB": 400.0}
MOVES = 30
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
PACKED = {".woff2", ".png", ".zip", ".whl"}
START = """id => new Promise(done => {
  const place = document.getElementById(id), begin = performance.now();
  new MutationObserver((_, watch) => { if (place.dataset.draws) watch.disconnect(), done(performance.now() - begin); })
    .observe(place, {attributes: true});
  const field = place.querySelector('input[type=range], select');
  if (field.type === 'range') { const old = field.value; field.stepUp(); if (field.value === old) field.stepDown(); }
  else field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
  field.dispatchEvent(new Event('input', {bubbles: true}));
})"""
MOVE = """id => new Promise(done => {
  const place = document.getElementById(id), before = place.dataset.draws, begin = performance.now();
  const status = place.querySelector('.live-status');
  status.classList.remove('live-bad');  // a state that the page refuses sets it, and is no move
  const watch = new MutationObserver(() => {
    const drawn = place.dataset.draws !== before;
    if (!drawn && !status.classList.contains('live-bad')) return;
    watch.disconnect();
    drawn ? requestAnimationFrame(() => done(performance.now() - begin)) : done(null);
  });
  watch.observe(place, {attributes: true, subtree: true});
  const ranges = [...place.querySelectorAll('input[type=range]')], turn = Number(before);
  const field = ranges.length ? ranges[turn % ranges.length] : place.querySelector('select');
  if (!ranges.length) field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
  else if (turn % 7 < 4) { field.stepUp(); } else { field.stepDown(); }
  field.dispatchEvent(new Event('input', {bubbles: true}));
  setTimeout(() => done(null), 3000);
})"""


class Caching(Handler):
    """The book's server as a host on the web would be: files may be kept for ten minutes."""

    def send_header(self, keyword: str, value: str) -> None:
        """Allow caches."""
        super().send_header(keyword, "max-age=600" if keyword == "Cache-Control" else value)


def weight(url: str) -> int:
    """Bytes of a file of the site as they travel."""
    path = HTML / urlsplit(url).path.lstrip("/")
    data = path.read_bytes() if path.is_file() else b""
    return len(data) if path.suffix in PACKED else len(gzip.compress(data, 6))


def visit(context: Any, address: str, moves: bool) -> dict[str, float]:
    """Open a page, touch each explorer on it, and return what was measured."""
    page, loaded = context.new_page(), []
    page.on("response", lambda response: loaded.append(response.url))
    page.goto(address, wait_until="networkidle")
    found = {"weight kB": sum(map(weight, dict.fromkeys(loaded))) / 1e3}
    keys = page.locator(".live-explorer").evaluate_all("all => all.map(e => e.id)")
    found["start s"] = page.evaluate(START, keys[0]) / 1e3
    if moves:
        for key in keys[1:]:
            page.evaluate(START, key)
        times = [page.evaluate(MOVE, key) for key in keys for _ in range(MOVES)]
        found["move ms"] = statistics.median(t for t in times if t is not None)
    page.close()
    return found


def measure(browser: Any, address: str, rounds: int) -> dict[str, float]:
    """Medians of one page over several new profiles."""
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        cold, warm = visit(context, address, False), visit(context, address, True)
        context.close()
        now = {"cold s": cold["start s"], "warm s": warm["start s"]}
        for name, value in (now | {"move ms": warm["move ms"], "weight kB": cold["weight kB"]}).items():
            results.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in results.items()}


def main() -> int:
    """Print a table and compare it with the goals."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Measure the live pages of the built site.")
    parser.add_argument("pages", nargs="*", help="chapters; all with an explorer when none is named")
    parser.add_argument("--rounds", type=int, default=1, help="starts to take the median of")
    options = parser.parse_args()
    live = sorted(p for p in (HTML / "book").glob("*.html") if "live-explorer" in p.read_text(encoding="utf-8"))
    chosen = [p for p in live if not options.pages or p.stem in options.pages]
    path = chromium()
    if not chosen or path is None:
        print("Nothing to measure: build the book (make site), install Chromium, and name pages with an explorer.")
        return 1
    good = True
    print("page".ljust(14), *(f"{name:>10}" for name in GOALS))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Caching, directory=str(HTML))) as server,
        sync_playwright() as running,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = running.chromium.launch(executable_path=path, args=list(FLAGS))
        for file in chosen:
            address = f"http://127.0.0.1:{server.server_address[1]}/{Path(file).relative_to(HTML).as_posix()}"
            found = measure(browser, address, options.rounds)
            good &= all(found[name] <= goal for name, goal in GOALS.items())
            print(file.stem.ljust(14), *(f"{found[name]:10.1f}" for name in GOALS), flush=True)
        browser.close()
        server.shutdown()
    print("goal, at most".ljust(14), *(f"{goal:10.1f}" for goal in GOALS.values()))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
