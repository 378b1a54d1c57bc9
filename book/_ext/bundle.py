"""One style sheet for a page, and no script that it waits for.

A dozen small files, asked for before anything is shown, cost a slow network more than their bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from prune import prune
from sphinx.errors import ExtensionError

SHEET = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="([^"?]+)[^"]*"[^>]*>\n?')
SCRIPT = re.compile(r"<script\b((?:(?!\b(?:defer|type)\b)[^>])*)></script>")
SOURCE = re.compile(r'\bsrc="([^"?]+)')
PRELOAD = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="preload")(?=[^>]*\bas="script")[^>]*>\n?')
IMPORT = re.compile(r"@import\s+(?:url\()?[\"']?([^\"')]+)[\"']?\)?\s*;")
ADDRESS = re.compile(r"\burl\(\s*[\"']?(?!data:|#)([^\"')]+?)[\"']?\s*\)")
OPTIONS = "documentation_options.js"  # scripts in the page add to it, so it cannot come after them


@cache
def sheet(path: Path, home: Path) -> str:
    """Return a style sheet with what it imports, its addresses as seen from another folder."""
    text = re.sub(r"^@charset[^;]*;", "", path.read_text(encoding="utf-8"))
    parts = IMPORT.split(text)
    parts[1::2] = [sheet((path.parent / name).resolve(), home) for name in parts[1::2]]
    parts[0::2] = [ADDRESS.sub(lambda m: f"url({_seen_from(home, path.parent / m[1])})", part) for part in parts[0::2]]
    return "".join(parts)


def _seen_from(home: Path, path: Path) -> str:
    return Path(os.path.relpath(path, home)).as_posix()


def sheets(html: str, page: Path) -> list[Path]:
    """Return the style sheets that a page names, in their order."""
    return [(page.parent / m[1]).resolve() for m in SHEET.finditer(html)]


def write(named: Iterable[list[Path]], static: Path, own: set[str], used: set[str]) -> tuple[Path, set[Path]]:
    """Write one style sheet for all pages, so that a reader fetches it once; return it and what it holds.

    It is the longest list of any page: the others leave out of it what they do not use. Sheets that are not the book's
    own, by their names, are kept to the classes that are used. Its first line says what it was made of.
    """
    longest = max(named, key=len)
    parts = [f"/*! {' '.join(_seen_from(static.resolve(), path) for path in longest)} */"]
    for path in longest:
        whole = sheet(path, static.resolve())
        parts.append(whole if path.name in own else prune(whole, used))
    text = "\n".join(parts)
    file = static / f"all-{hashlib.sha256(text.encode()).hexdigest()[:12]}.css"
    file.write_text(text, encoding="utf-8")
    return file, set(longest)


def one_sheet(html: str, page: Path, file: Path, held: set[Path]) -> str:
    """Return a page with that style sheet in place of its own. Raises ExtensionError when it would lose one."""
    if not (own := sheets(html, page)) or not held.issuperset(own):
        raise ExtensionError(f"{page.name} names style sheets that no other page has, or none: {own}")
    first, *_ = SHEET.finditer(html)
    link = f'    <link rel="stylesheet" href="{_seen_from(page.parent, file)}" />\n'
    return html[: first.start()] + link + SHEET.sub("", html[first.end() :])


def defer_scripts(html: str, page: Path) -> str:
    """Return a page whose scripts run in their order once the page is read, and are not asked for before it."""

    def later(match: re.Match[str]) -> str:
        source = SOURCE.search(match[1])
        if source is None:
            return match[0]
        if source[1].endswith(OPTIONS):
            return f"<script>{(page.parent / source[1]).read_text(encoding='utf-8')}</script>"
        return f"<script defer{match[1]}></script>"

    return SCRIPT.sub(later, PRELOAD.sub("", html))
