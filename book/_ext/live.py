"""Sphinx extension: explorers, questions and cells of a page come alive when a reader touches them.

The stored outputs stay as they are. Beside them stand controls, disabled until a script finds that it can serve them;
the script starts Python in a worker at the first touch. See book/_live and scaling_lib/live.py.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import shutil
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import snapshot
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "book" / "_live"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date a zip can hold: the same sources make the same bytes
NOTE = "This is the stored picture. Move a slider, and Python starts in this page to draw others."
# On the page from the start, so that nothing moves when the script wakes.
RUN_BAR = (
    '<div class="live-bar"><button type="button" disabled title="Run this cell, and those above it, in this page; '
    'then edit it">Run here</button></div>'
)


@cache
def library() -> bytes:
    """Return the library with its data and the bank of questions as a zip, made from the source tree."""
    files = [p for p in (ROOT / "scaling_lib").rglob("*") if p.suffix in (".py", ".toml", ".csv")]
    files += (ROOT / "exercises" / "bank").glob("*.py")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as pack:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            pack.writestr(entry, path.read_bytes())
    return out.getvalue()


def library_name() -> str:
    """Return the name of that zip, which changes with its contents, so that it can be cached for ever."""
    return f"scaling_lib-{hashlib.sha256(library()).hexdigest()[:12]}.zip"


@cache
def addresses() -> dict[str, str]:
    """Return where each explorer lives, by what it prints of itself: `module:name`."""
    from scaling_lib.explore import Explorer

    found: dict[str, str] = {}
    for path in sorted((ROOT / "scaling_lib").glob("*.py")):
        if "Explorer(" not in path.read_text(encoding="utf-8") or path.stem == "explore":
            continue
        module = f"scaling_lib.{path.stem}"
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, Explorer):
                found[f"{value.title} (explorer)"] = f"{module}:{name}"
    return found


def loaded() -> list[str]:
    """Return the modules a page finds loaded when Python starts: those that draw, ask and run cells."""
    return sorted({"scaling_lib.live", *(address.partition(":")[0] for address in addresses().values())})


def bundles(doctree: nodes.document) -> Iterator[tuple[nodes.raw, str]]:
    """Yield each HTML output of a cell with the plain text that stands for it."""
    for bundle in (n for n in doctree.findall(nodes.container) if n.get("nb_element") == "mime_bundle"):
        html = [n for n in bundle.findall(nodes.raw) if n.get("format") == "html"]
        plain = [n.astext() for n in bundle.findall(nodes.literal_block)]
        if html:
            yield html[0], plain[0].strip() if plain else ""


def enliven(app: Sphinx, doctree: nodes.document) -> None:
    """Put controls beside explorers and questions, and name the cells."""
    if app.builder.format != "html" or app.builder.name == "epub":
        return
    from scaling_lib import live

    page = Path(app.env.docname).name
    for number, (output, plain) in enumerate(bundles(doctree), 1):
        text, key = output.astext(), f"live-{page}-{number}"
        if plain.endswith("(explorer)"):
            if plain not in addresses():
                raise ExtensionError(f"{page}: {plain} is defined in no module of scaling_lib, so no page can run it")
            text = explorer_html(addresses()[plain], text)
        elif 'class="question"' in text:
            text = live.with_form(text, key)
        output.children = [nodes.Text(text)]
        output.rawsource = text
    for cell in (n for n in doctree.findall(nodes.container) if n.get("nb_element") == "cell_code"):
        cell["classes"].append(f"live-cell-{cell['cell_index']}")
        for source in (n for n in cell.findall(nodes.container) if n.get("nb_element") == "cell_code_source"):
            source.append(nodes.raw("", RUN_BAR, format="html"))


def explorer_html(address: str, picture: str) -> str:
    """Return an explorer with its controls above its stored picture."""
    from scaling_lib import live

    name = address.partition(":")[2]
    return (
        f'<section class="live-explorer" id="{name}" data-explorer="{escape(address)}" '
        f'aria-label="{escape(live.explorer(address).title)}">{live.form(address, name)}'
        f'<p class="live-status" role="status">{NOTE}</p><div class="live-face">{picture}</div></section>'
    )


def add_scripts(app: Sphinx) -> None:
    """Publish the scripts; this late, because Jupyter Book puts each script it finds on each page."""
    app.config.html_static_path.append(str(SCRIPTS))
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))


def add_to_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the script of live parts on pages that have cells, and only there."""
    app.add_js_file("page.js", loading_method="defer")
    if doctree is not None and any(n.get("nb_element") == "cell_code" for n in doctree.findall(nodes.container)):
        app.add_css_file("live.css")
        memory = snapshot.name(library(), loaded())
        told: dict[str, Any] = {"data-library": library_name(), "data-snapshot": memory, "data-page": page}
        app.add_js_file("live.js", loading_method="defer", **told)


def publish(app: Sphinx, error: Exception | None) -> None:
    """Write the library, and the memory of a Python that has loaded it, into the site."""
    if error is None and app.builder.format == "html" and app.builder.name != "epub":
        static = Path(app.outdir) / "_static"
        (static / library_name()).write_bytes(library())
        shutil.copy(snapshot.make(library(), loaded()), static)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts with Sphinx."""
    app.connect("builder-inited", add_scripts, priority=900)
    app.connect("doctree-read", enliven, priority=800)
    app.connect("html-page-context", add_to_page, priority=500)
    app.connect("build-finished", publish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
