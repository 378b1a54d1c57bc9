"""Prove the course: style, types, the built site, then every test and every stored notebook, with pytest last.

    python -m tools.verify           all of it (`make test`)
    python -m tools.verify --quick   without notebooks, site and browser (`make check`)

A step that fails does not keep the later ones from running; the exit code is 0 only if all went well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.notebooks import private_settings

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 120
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def step(name: str, command: list[str]) -> bool:
    """Run one step under a heading and tell how it ended."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    good = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0
    print(f"== {name}: {'good' if good else 'FAILED'} ({time.monotonic() - start:.0f} s)\n", flush=True)
    return good


def types_beside(other: Callable[[], bool]) -> tuple[bool, bool]:
    """Check types while `other`, which keeps one core busy, runs; return how each ended."""
    start = time.monotonic()
    checker = subprocess.Popen([sys.executable, "-m", "mypy"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    ended = other()
    said, _ = checker.communicate()
    good = checker.returncode == 0
    print(f"== types\n{said.strip()}\n== types: {'good' if good else 'FAILED'}", end=" ")
    print(f"({time.monotonic() - start:.0f} s, beside the step above)\n", flush=True)
    return good, ended


def chromium() -> str | None:
    """Return the browser that the tests drive: the one CHROMIUM names, or one that is installed."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, CHROMIUM)), None)


def notebooks() -> list[str]:
    """Return the stored notebooks: those of the chapters, the exercises and their solutions."""
    patterns = ("book/*.ipynb", "exercises/*.ipynb", "exercises/solutions/*.ipynb")
    return sorted(p.relative_to(ROOT).as_posix() for pattern in patterns for p in ROOT.glob(pattern))


def pytest(quick: bool) -> list[str]:
    """Return the pytest command: tests and notebooks in one run, each file on one of two workers.

    Files go out in the order of collection, the long ones of the browser first: by number of tests, as is the
    default, a long file with few tests would come last and keep one worker busy alone.
    """
    workers = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command = ["pytest", "-q", *workers, "--durations=20", "--durations-min=5"]
    if quick:
        return [*command, "tests", "--ignore=tests/browser"]
    compare = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}"]
    return [*command, *compare, "--nbval-sanitize-with=tests/nbval_sanitize.cfg", "tests", *notebooks()]


def main() -> int:
    """Run the steps."""
    parser = argparse.ArgumentParser(description="Prove the course.")
    parser.add_argument("--quick", action="store_true", help="leave out notebooks, site and browser")
    quick = parser.parse_args().quick
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of a hundred interpreters compiles all it imports anew
    good = {"lint": step("lint", ["ruff", "check", "--quiet", "--output-format", "concise", "."])}
    good["types"], good["book"] = types_beside(lambda: quick or step("book", ["tools.book", "build"]))
    failed = [name for name, well in good.items() if not well]
    print(f"== tests{'' if quick else f' and {len(notebooks())} notebooks'}", flush=True)
    if failed:
        print(f"(already failed above: {', '.join(failed)})", flush=True)
    if not quick and chromium() is None:
        print(
            "No Chromium found, so the browser tests will not run: apt install chromium, or name one: CHROMIUM=",
            flush=True,
        )
    with private_settings():
        result = subprocess.run([sys.executable, "-m", *pytest(quick)], cwd=ROOT, check=False).returncode
    return 1 if failed or result else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)
