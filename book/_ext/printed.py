"""Sphinx extension: books that are printed or read as EPUB show the code that the site folds away."""

from __future__ import annotations

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx


def unfold(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put folded cells back in their place: only the builder of the site knows how to write folds."""
    if app.builder.name in ("html", "dirhtml"):
        return
    for fold in list(doctree.findall(HideCodeCellNode)):
        fold.replace_self(fold.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the part with Sphinx."""
    app.connect("doctree-resolved", unfold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
