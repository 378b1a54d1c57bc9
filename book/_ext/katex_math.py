"""Sphinx extension: formulas are set while the book is built, by the vendored KaTeX in an embedded JavaScript engine.

A page then needs no script for its formulas, shows them at once, and reads them aloud from the MathML beside them. An
EPUB, which runs no scripts, gets the MathML alone. A formula that is not valid TeX stops the build.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number

KATEX = Path(__file__).resolve().parent.parent / "_vendor" / "katex" / "katex.min.js"
SET = """function set(text, options) {
  try { return JSON.stringify({html: katex.renderToString(text, options)}); }
  catch (error) { return JSON.stringify({error: String(error)}); }
}"""


@cache
def engine() -> Any:
    """Return a JavaScript engine with KaTeX in it."""
    from py_mini_racer import MiniRacer

    context = MiniRacer()
    context.eval(KATEX.read_text(encoding="utf-8"))
    context.eval(SET)
    return context


@cache
def typeset(text: str, display: bool, output: str) -> str:
    """Return a formula as HTML. output: htmlAndMathml or mathml. Raises ExtensionError for invalid TeX."""
    options = {"displayMode": display, "output": output, "strict": "ignore", "throwOnError": True}
    found = json.loads(engine().call("set", text, options))
    if "error" in found:
        raise ExtensionError(f"formula {text!r}: {found['error']}")
    return str(found["html"])


def output_of(translator: Any) -> str:
    """Return what the builder can show."""
    return "mathml" if translator.builder.name == "epub" else "htmlAndMathml"


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(typeset(node.astext(), False, output_of(self)) + "</span>")
    raise nodes.SkipNode


def visit_display(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number."""
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    parts = [node.astext()] if node.get("nowrap") else [p for p in node.astext().split("\n\n") if p.strip()]
    for part in parts:
        text = rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part and not node.get("nowrap") else part
        self.body.append(typeset(text.strip(), True, output_of(self)))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def add_style(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the style of formulas on pages that have some."""
    if doctree is not None and any(isinstance(n, nodes.math | nodes.math_block) for n in doctree.findall()):
        app.add_css_file("katex/katex.min.css")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer that `html_math_renderer: katex` names."""
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_display, None))
    app.connect("html-page-context", add_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
