"""Sphinx extension: books that are printed or read as EPUB show the code that the site folds away.

Pages of an EPUB are XML, in which every attribute stands in quotation marks and which knows no names of letters.
"""

from __future__ import annotations

import re
from html.entities import html5

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

NAMED = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)(\w+;)")
BARE = re.compile(r"(<[A-Za-z][^<>]*?\s[\w:-]+=)([^\s\"'<>=]+?)(?=\s|/?>)")


def quoted(html: str) -> str:
    """Return HTML with its bare attribute values in quotation marks and its named letters as themselves."""
    html, before = NAMED.sub(lambda m: html5.get(m[1], m[0]), html), ""
    while html != before:
        before, html = html, BARE.sub(r'\1"\2"', html)
    return html


def unfold(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put folded cells back in their place: only the builder of the site knows how to write folds."""
    if app.builder.name in ("html", "dirhtml"):
        return
    for fold in list(doctree.findall(HideCodeCellNode)):
        fold.replace_self(fold.children)
    if app.builder.name == "epub":
        for raw in doctree.findall(nodes.raw):
            raw.children = [nodes.Text(quoted(raw.astext()))]


def add_style(app: Sphinx) -> None:
    """Give the EPUB, which lacks the theme of the site, a style of its own."""
    if app.builder.name == "epub":
        app.add_css_file("ebook.css", priority=900)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the part with Sphinx."""
    app.connect("builder-inited", add_style)
    app.connect("doctree-resolved", unfold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
