"""Build the book into _build/html and serve it on the loopback interface.

A stamp is written last. A build that was interrupted has none, and one made from other sources has another: both are
made anew from nothing, which takes seconds, since the pages show the committed outputs of the notebooks.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.notebooks import stale

ROOT = Path(__file__).resolve().parent.parent
BUILD, CACHE = ROOT / "_build", ROOT / ".cache"
HTML = BUILD / "html"
STAMP = BUILD / "ready"
FIRST_PORT = 8000
RUN_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"  # it has no __main__
# What a page can depend on. The sources of the chapters are not in it: pages are made from the notebooks.
INPUTS = ("_config.yml", "_toc.yml", "constraints.txt", "book", "exercises", "scaling_lib", "tools/book.py")


class Trouble(Exception):
    """Something the reader has to do; its text is what is shown."""


def inputs() -> Iterator[Path]:
    """Yield the files that the site is made of, in a fixed order."""
    for name in INPUTS:
        path = ROOT / name
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (p for p in found if p.is_file() and not {"src", "__pycache__", ".ipynb_checkpoints"} & set(p.parts))


def fingerprint() -> str:
    """Return one digest of all inputs and of the Python that reads them."""
    digest = hashlib.sha256(f"{sys.version} {os.environ.get('SITE_URL', '')}".encode())
    for path in inputs():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build() -> None:
    """Build the site unless it is already what the sources say."""
    for folder in (BUILD, CACHE):
        folder.mkdir(exist_ok=True)
    with (CACHE / "book.lock").open("w") as lock:
        # Jupyter Book inherits the lock: if this command is killed, the next one waits until its child has ended too.
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint()
        if STAMP.is_file() and STAMP.read_text() == wanted:
            print(f"The book is up to date: {HTML.relative_to(ROOT)}", flush=True)
            return
        for leftover in BUILD.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        run_jupyter_book()
        STAMP.write_text(wanted)


def run_jupyter_book() -> None:
    """Run Jupyter Book with warnings as errors, showing its progress and, if it fails, only what is wrong."""
    start, log = time.monotonic(), BUILD / "build.log"
    print("Building the book.", flush=True)
    command = [sys.executable, "-c", RUN_JUPYTER_BOOK, "build", str(ROOT), "--all", "-W", "-n", "--keep-going"]
    environ = {**os.environ, "PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    with log.open("w", encoding="utf-8") as out:
        pipe, too = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=pipe, stderr=too, text=True, errors="replace", close_fds=False
        )
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            step = re.match(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\] *(\S*)", plain(line))
            if step:
                print(f"  {time.monotonic() - start:4.0f} s  {step[1]} {step[2]:>3}%  {step[3]}", flush=True)
    if process.wait() != 0:
        raise Trouble(complaint(log))
    print(f"  {time.monotonic() - start:4.0f} s  built {len(list(HTML.rglob('*.html')))} pages", flush=True)


def plain(line: str) -> str:
    """Return a line without terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def complaint(log: Path) -> str:
    """Return the warnings and errors of a failed build, one a line."""
    text = plain(log.read_text(encoding="utf-8"))
    wrong = re.compile(r"\b(WARNING|ERROR|CRITICAL|[A-Z]\w+Error):")
    lines = [x.replace(f"{ROOT}{os.sep}", "") for x in text.splitlines() if wrong.search(x)]
    told = "\n".join(f"  {x}" for x in dict.fromkeys(lines)) or "  (nothing it names a warning or an error)"
    return f"The book was not built. Jupyter Book says:\n{told}\nAll it said: {log.relative_to(ROOT)}"


class Handler(SimpleHTTPRequestHandler):
    """Serves files of the site, never from an old cache, and without a line for each request."""

    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        """Ask the browser to look again each time: the reader may rebuild while reading."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Name WebAssembly by its type whatever the system's own table says: browsers insist on it."""
        return "application/wasm" if str(path).endswith(".wasm") else super().guess_type(path)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


def server(port: str | None) -> ThreadingHTTPServer:
    """Return a server on the wanted loopback port or, when none is named, on the first free one from 8000."""
    if port is not None and not (port.isdecimal() and int(port) < 65536):
        raise Trouble(f"PORT={port} is not a port: give a whole number below 65536, or leave it out")
    wanted = range(FIRST_PORT, FIRST_PORT + 100) if port is None else [int(port)]
    for number in wanted:
        try:
            return ThreadingHTTPServer(("127.0.0.1", number), partial(Handler, directory=str(HTML)))
        except PermissionError:
            raise Trouble(f"Port {number} is reserved for the system: choose another, such as PORT=8123") from None
        except OSError:
            continue
    if port is None:
        raise Trouble(f"All ports from {FIRST_PORT} to {FIRST_PORT + 99} are busy: choose one with PORT=")
    raise Trouble(f"Port {port} is busy: choose another, such as PORT={free_port()}, or leave PORT out")


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def serve(port: str | None) -> None:
    """Serve the built site until interrupted."""
    if not STAMP.is_file():
        raise Trouble("There is no finished book to serve yet: make book")
    with server(port) as httpd:
        print(f"The book is at http://127.0.0.1:{httpd.server_address[1]}/  (Ctrl-C ends it)", flush=True)
        try:
            httpd.serve_forever()
        except KeyboardInterrupt:
            print("\nEnded.")


def main() -> int:
    """Build or serve."""
    parser = argparse.ArgumentParser(description="Build the book, or serve it.")
    parser.add_argument("action", choices=["build", "serve"])
    action = parser.parse_args().action
    try:
        if action == "build":
            build()
            print("".join(f"Note: {line}\n" for line in stale()), end="", flush=True)
        else:
            serve(os.environ.get("PORT"))
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command starts over from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
