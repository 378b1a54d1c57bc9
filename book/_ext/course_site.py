"""Sphinx extension of the course: nothing of other hosts, figures that follow the theme, exercises to take home."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

VENDOR = Path(__file__).resolve().parent.parent / "_vendor"
EXERCISES = Path(__file__).resolve().parents[2] / "exercises"
TAKE = '<p class="sheets">To take home: <a href="{page}" download>this page as a notebook</a>{sheets}. {how}</p>'
SHEETS = ', <a href="{sheet}" download>its exercises</a> and <a href="{solutions}" download>their worked solutions</a>'
HOW = "In the folder of the course, <code>make lab</code> opens all of them in JupyterLab."
# The ink and paper of book/matplotlibrc. Inside a page they become the reader's own, light or dark.
INK, PAPER = "#1b1b1f", "#fefefe"


def add_vendor(app: Sphinx) -> None:
    """Publish book/_vendor beside the static files.

    It is added this late because Jupyter Book puts each script that it finds in `html_static_path` on each page.
    """
    app.config.html_static_path.append(str(VENDOR))
    app.add_css_file("course.css")


def drop_thebe(app: Sphinx, config: Any) -> None:
    """Take out sphinx-thebe, which Jupyter Book always loads and which fetches its script from elsewhere."""
    for listeners in app.events.listeners.values():
        listeners[:] = [x for x in listeners if not x.handler.__module__.startswith("sphinx_thebe")]


def refuse_remote(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Fail when an extension adds a script or a style sheet of another host to a page."""
    files: Iterable[Any] = [*context.get("script_files", []), *context.get("css_files", [])]
    for file in files:
        name = str(getattr(file, "filename", file) or "")
        if re.match(r"(https?:)?//", name):
            raise ExtensionError(f"{page}: {name} lies on another host; ship it in book/_vendor or drop it")


def offer_notebooks(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """End a page with its notebook and, where it has some, its exercises and their solutions, to download."""
    if app.builder.name != "html" or doctree is None or not context.get("sourcename", "").endswith(".ipynb"):
        return
    stem, pathto = Path(page).name, context["pathto"]
    sheets = ""
    if (EXERCISES / "solutions" / f"{stem}.ipynb").is_file():
        found = {"sheet": f"exercises/{stem}.ipynb", "solutions": f"exercises/solutions/{stem}.ipynb"}
        sheets = SHEETS.format(**{name: pathto(path, 1) for name, path in found.items()})
    context["body"] += TAKE.format(page=pathto(f"_sources/{context['sourcename']}", 1), sheets=sheets, how=HOW)


def publish_sheets(app: Sphinx, error: Exception | None) -> None:
    """Copy the exercise notebooks into the site."""
    if error is None and app.builder.name == "html":
        for path in sorted(EXERCISES.glob("*.ipynb")) + sorted((EXERCISES / "solutions").glob("*.ipynb")):
            target = Path(app.outdir) / "exercises" / path.relative_to(EXERCISES)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def inline_svg(app: Sphinx, doctree: nodes.document) -> None:
    """Put SVG outputs of cells into the page itself, where they take the colours and the font of the theme."""
    if app.builder.format != "html":
        return
    for container in list(doctree.findall(nodes.container)):
        if "cell_output" not in container.get("classes", []):
            continue
        for image in list(container.findall(nodes.image)):
            path = Path(app.srcdir, image["uri"].lstrip("/"))
            if path.suffix == ".svg" and path.is_file():
                text = themed_svg(path.read_text(encoding="utf-8"), image.get("alt", ""))
                image.replace_self(nodes.raw("", f'<div class="figure-svg">{text}</div>', format="html"))


def themed_svg(svg: str, alt: str) -> str:
    """Return an SVG without prologue and fixed size, in the colours of the page, with a text alternative."""
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:height|width)="[\d.]+(?:pt|px)?"', "", head) if "viewBox" in head else head
    if "role=" not in head and "aria-label" not in head:
        label = nodes.TextElement("", nodes.Text(alt)).astext().replace("&", "&amp;").replace('"', "&quot;")
        head += f' role="img" aria-label="{label or "figure; its numbers stand in the text"}"'
    width = re.search(r'viewBox="\S+ \S+ (\S+) ', head)
    size = f' style="max-width:{float(width[1]) * 4 / 3:.0f}px"' if width and "style=" not in head else ""
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    return f"{head}{size}>{rest.replace(INK, 'currentColor').replace(PAPER, 'none')}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts with Sphinx."""
    app.connect("config-inited", drop_thebe, priority=900)
    app.connect("builder-inited", add_vendor, priority=900)
    app.connect("doctree-read", inline_svg, priority=900)
    app.connect("html-page-context", offer_notebooks)
    app.connect("html-page-context", refuse_remote, priority=990)
    app.connect("build-finished", publish_sheets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
