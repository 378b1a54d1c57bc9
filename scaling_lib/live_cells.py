"""Run the code cells of a page: outputs as HTML, the last expression shown as a notebook shows it."""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import re
import sys
import traceback
import types
from collections.abc import Callable
from html import escape
from typing import Any

_NAMESPACE: dict[str, Any] = {"__name__": "__main__"}
LOADABLE = ("numpy", "matplotlib")
_NAME = "cell"


class Shown(str):
    """HTML that shows itself."""

    def _repr_html_(self) -> str:
        return str(self)


def to_html(value: Any) -> str:
    """A value as a notebook would show it: HTML or SVG where it has them, else its text."""
    from scaling_lib.explore import Explorer

    if isinstance(value, Explorer):
        return value.html()
    for name in ("_repr_html_", "_repr_svg_"):
        method = getattr(value, name, None)
        if callable(method) and (shown := method()) is not None:
            return str(shown)
    return f"<pre>{escape(repr(value))}</pre>"


def run(source: str, before: list[str]) -> dict[str, Any]:
    """Run earlier cells silently, then one cell, in the namespace of the page.

    Returns the HTML of its outputs, whether all went well, and the names of packages that have to be loaded first.
    """
    out = _Output()
    if "matplotlib" in source:
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it tells of a cache, built each time
    try:
        with contextlib.redirect_stdout(out.stream), contextlib.redirect_stderr(out.stream), _display(out.show):
            for text in before:
                _execute(text, lambda value: None)
            out.parts.clear()
            out.stream.seek(0)
            out.stream.truncate()
            _execute(source, out.show)
    except ModuleNotFoundError as error:
        name = (error.name or "").split(".")[0]
        if name in LOADABLE:
            return {"html": "", "good": False, "needs": [name]}
        told = f"{name} is not available in the page: download the notebook and run it with make lab"
        return {"html": out.html() + f'<pre class="live-error">{escape(told)}</pre>', "good": False, "needs": []}
    except BaseException as error:  # whatever a reader's code does is shown to its author
        lines = traceback.extract_tb(error.__traceback__)
        line = next((f"line {f.lineno}: " for f in reversed(lines) if f.filename == _NAME), "")
        told = f"{line}{type(error).__name__}: {error}"
        return {"html": out.html() + f'<pre class="live-error">{escape(told)}</pre>', "good": False, "needs": []}
    return {"html": out.html() + _figures(), "good": True, "needs": []}


class _Output:
    """Printed text and shown values in the order in which they came."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.stream = io.StringIO()

    def show(self, value: Any) -> None:
        """Show a value below what was printed before it."""
        self._flush()
        self.parts.append(to_html(value))

    def _flush(self) -> None:
        """Turn what was printed so far into a part."""
        if printed := self.stream.getvalue():
            self.parts.append(f"<pre>{escape(printed)}</pre>")
            self.stream.seek(0)
            self.stream.truncate()

    def html(self) -> str:
        """All of it."""
        self._flush()
        return "".join(self.parts)


def _execute(source: str, show: Callable[[Any], None]) -> None:
    """Execute a cell; its last expression, unless it is None or ends with a semicolon, is shown."""
    tree = ast.parse(source, _NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _NAME, "exec"), _NAMESPACE)  # a reader's own code, in the reader's own browser
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), _NAME, "eval"), _NAMESPACE)
        if value is not None and not source.rstrip().endswith(";"):
            show(value)


@contextlib.contextmanager
def _display(show: Callable[[Any], None]) -> Any:
    """Stand in for IPython.display, which a page does not have: HTML, SVG and display."""

    def display(*values: Any) -> None:
        for value in values:
            show(value)

    module = types.ModuleType("IPython.display")
    module.__dict__.update(HTML=Shown, SVG=Shown, display=display)
    parent = types.ModuleType("IPython")
    parent.__dict__.update(display=module, get_ipython=lambda: None, version_info=(9, 0))  # matplotlib asks for both
    names = {"IPython": parent, "IPython.display": module}
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    _NAMESPACE["display"] = display
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def _figures() -> str:
    """Every open matplotlib figure as SVG, then closed; nothing when matplotlib was not used."""
    plt: Any = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return ""
    parts = []
    for number in plt.get_fignums():
        out = io.StringIO()
        plt.figure(number).savefig(out, format="svg", bbox_inches="tight")
        svg = out.getvalue()[out.getvalue().index("<svg") :]
        svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # the site's policy allows no style elements
        parts.append(f'<div class="figure-svg">{svg}</div>')
    plt.close("all")
    return "".join(parts)
