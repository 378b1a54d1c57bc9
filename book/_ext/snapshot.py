"""The memory of a Python that has started and loaded the library, made while the book is built.

A page that starts from it skips what takes a browser longest: the start of Python and the imports.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sphinx.errors import ExtensionError

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent / "_vendor" / "pyodide"
KEPT = HERE.parents[1] / ".cache" / "snapshot"
SCRIPT = HERE / "snapshot.mjs"


def node() -> str:
    """Return the Node.js that playwright brings along."""
    from playwright._impl._driver import compute_driver_executable

    return compute_driver_executable()[0]


def name(library: bytes, modules: Iterable[str]) -> str:
    """Return the name of a snapshot, which changes with all that it is made of, so that it can be cached for ever.

    Not `.gz`: some servers unpack such a file on the way, others do not, and the page could not tell.
    """
    digest = hashlib.sha256(library + " ".join(modules).encode() + SCRIPT.read_bytes())
    digest.update((RUNTIME / "pyodide.asm.wasm").read_bytes())
    return f"python-{digest.hexdigest()[:12]}.snapshot"


def make(library: bytes, modules: Iterable[str]) -> Path:
    """Return the file of a snapshot, gzipped; made anew only when something it is made of has changed."""
    modules = list(modules)
    path = KEPT / name(library, modules)
    if not path.is_file():
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.iterdir():
            old.unlink()
        archive = KEPT / "library.zip"
        archive.write_bytes(library)
        made = subprocess.run([node(), SCRIPT, RUNTIME, archive, *modules], capture_output=True, check=False)
        if made.returncode != 0 or not made.stdout:
            told = made.stderr.decode(errors="replace").strip()
            raise ExtensionError(f"The memory of a started Pyodide could not be stored: {told}")
        half = path.with_suffix(".half")
        half.write_bytes(gzip.compress(made.stdout, 9, mtime=0))
        half.rename(path)
        archive.unlink()
    return path
