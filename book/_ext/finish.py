"""Sphinx extension: what a page says about itself, and a policy that lets it load nothing but its own site.

The address of the site is in SITE_URL when it is known, as on GitHub Pages; canonical links, the sitemap and the
picture of a social card need it. Everything else works from any place.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bundle
import prune
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# What a page may do. Style attributes are needed: KaTeX places its glyphs with them, and pictures scale by them.
POLICY = {
    "default-src": "'none'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "style-src": "'self'",
    "style-src-attr": "'unsafe-inline'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
INLINE = re.compile(r"<(script|style)((?:\s[^>]*)?)>(.*?)</\1>", re.DOTALL)
ICON = re.compile(r'<i\s+class="((?:[\w-]+\s+)*)fa-solid\s+fa-([\w-]+)((?:\s+[\w-]+)*)\s*"([^>]*)>\s*</i>')
GLYPHS = re.compile(r"\.fa-[\w-]+:before(?:,\s*\.fa-[\w-]+:before)*\{content:\"[^\"]*\"\}")
UNUSED = re.compile(
    r'\s*<(?:script src|link rel="stylesheet"[^>]* href)="[^"]*'
    r"(?:fontawesome\.js|sphinx-thebe\.css)[^>]*>(?:</script>)?"
)
# Names and roles that the theme gets wrong: what is read aloud must be what is shown, and all must lie in a landmark.
MENDED = (
    # The theme would show a page without its colours and sizes until its own script, the last of all, picks one.
    (
        r'localStorage\.getItem\("theme"\) \|\| "auto"',
        'localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")',
    ),
    (r'(<img src="[^"]*logo\.svg")', r'\1 width="300" height="64"'),  # so that the page does not move when it comes
    (r'(<button class="btn search-button-field[^>]*?) aria-label="Search"', r"\1"),
    (r'<main id="main-content"', '<main id="main-content" tabindex="-1"'),  # where the skip link puts the focus
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'<div id="pst-primary-sidebar"', '<div id="pst-primary-sidebar" role="complementary" aria-label="Course"'),
)
ABOUT = (  # the first page: its first sentence explains a number, not the book
    "A course that computes its answers: how many GPUs, days and dollars a large training run takes, and which "
    "parallelism gets you there. With sliders."
)
STOPS = re.compile(r'document\.querySelectorAll\(\["pre",[^\]]*\]\.join\(", "\)\)\.forEach')
UNREAD = {"fontawesome.js", "pyodide.asm.js"}  # the first is taken out of the site, the second sets no class
BOOK = Path(__file__).resolve().parents[1]
LENGTH = 160  # of a description: what search engines show


def site_url() -> str:
    """Return the address of the site with a slash at its end, or nothing. Raises ExtensionError for another thing."""
    url = os.environ.get("SITE_URL", "").strip()
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise ExtensionError(f"SITE_URL={url} is no address: write it like https://name.github.io/course/")
    return f"{url.rstrip('/')}/" if url else ""


def set_address(app: Sphinx, config: Any) -> None:
    """Let the theme write canonical links."""
    config.html_baseurl = site_url()


def description(doctree: nodes.document) -> str:
    """Return the first paragraph of a page's own text without marks of footnotes, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        own = [n.astext() for n in paragraph.findall(nodes.Text) if not isinstance(n.parent, nodes.footnote_reference)]
        text = re.sub(r"\s+([.,;:])", r"\1", " ".join("".join(own).split()))
        if isinstance(paragraph.parent, nodes.section) and len(text) > 40:
            return text if len(text) <= LENGTH else text[: LENGTH - 2].rsplit(" ", 1)[0] + " …"
    return ""


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Add description and social card to a page."""
    title = re.sub(r"<[^>]*>", "", unescape(str(context.get("title", ""))))
    about = description(doctree) if doctree is not None else ""
    about = ABOUT if page == app.config.root_doc else about or f"{title}: {app.config.project}"
    base = site_url()
    tags = {"og:type": "article", "og:site_name": app.config.project, "og:title": title, "og:description": about}
    if base:
        tags |= {"og:url": f"{base}{page}.html", "og:image": f"{base}_static/card.png"}
    lines = [f'<meta name="description" content="{escape(about)}" />']
    lines += [f'<meta property="{name}" content="{escape(value)}" />' for name, value in tags.items()]
    lines.append('<meta name="twitter:card" content="summary_large_image" />')
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


# after all pages are written ------------------------------------------------------------------------


@cache
def icons(script: Path) -> dict[str, tuple[str, str, str]]:
    """Return width, height and path of the solid icons in the theme's own script, by name."""
    text = script.read_text(encoding="utf-8")
    found = re.findall(r'"?([\w-]+)"?:\[(\d+),(\d+),\[[^\]]*\],"\w+","([^"]+)"\]', text)
    return {name: (width, height, path) for name, width, height, path in found}


def draw_icons(html: str, script: Path) -> str:
    """Put icons into the page as SVG, so that no page loads the script with all two thousand of them."""

    def svg(match: re.Match[str]) -> str:
        before, name, after, attributes = match.groups()
        if name not in icons(script):
            raise ExtensionError(f"the theme's icons have none called {name!r}")
        width, height, path = icons(script)[name]
        classes = " ".join(f"svg-inline--fa fa-{name} {before}{after}".split())
        return (
            f'<svg class="{classes}"{attributes} aria-hidden="true" focusable="false" viewBox="0 0 {width} {height}">'
            f'<path fill="currentColor" d="{path}"></path></svg>'
        )

    return ICON.sub(svg, html)


def policy(html: str) -> str:
    """Return the content security policy of a page: its own site, and exactly the inline scripts and styles it has."""
    own = dict(POLICY)
    for tag, attributes, text in INLINE.findall(html):
        if "src=" not in attributes and text.strip():
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            if f"'sha256-{digest}'" not in own[f"{tag}-src"]:
                own[f"{tag}-src"] += f" 'sha256-{digest}'"
    return "; ".join(f"{name} {value}" for name, value in own.items())


def finish_page(html: str, script: Path) -> str:
    """Return a page with its icons drawn and its policy set. Raises ExtensionError for a handler in an attribute."""
    html = draw_icons(html, script)
    for wrong, right in MENDED:
        html = re.sub(wrong, right, html)
    if handler := re.search(r"<\w+[^>]*\son\w+=\"[^\"]*\"", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)):
        raise ExtensionError(f"a page has a script in an attribute, which its policy forbids: {handler[0][:120]}")
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(html)}">'
    html, count = re.subn(r"(<meta charset=[^>]*>)", lambda m: f"{m[1]}\n    {meta}", html, count=1)
    if count != 1:
        raise ExtensionError("a page names no character set, before which its policy would have to stand")
    return html


PLAIN = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<meta name="description" content="{about}">
{extra}
<style>
:root {{ color-scheme: light dark; }}
a {{ color: #1f5d99; }}
@media (prefers-color-scheme: dark) {{ html {{ background: #121212; color: #eee; }} a {{ color: #8fbfec; }} }}
body {{ font: 17px/1.6 system-ui, sans-serif; max-width: 36em; margin: 18vh auto; padding: 0 1.2em; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{text}</p>
</main>
</body>
</html>
"""


def first_page(project: str, root: str, base: str) -> str:
    """Return the page at the top of the site, which leads to the book."""
    extra = f'<meta http-equiv="refresh" content="0; url={root}.html">'
    extra += f'\n<link rel="canonical" href="{base}{root}.html">' if base else ""
    text = f'The course begins <a href="{root}.html">here</a>.'
    return PLAIN.format(
        title=escape(project), about=f"{escape(project)}: an executable course.", extra=extra, text=text
    )


def missing_page(project: str, root: str, base: str) -> str:
    """Return the page for addresses that lead nowhere. Shown at any depth, so its links are absolute."""
    home = f"{urlsplit(base).path}{root}.html" if base else f"/{root}.html"
    text = f'There is nothing at this address. <a href="{home}">The first page of the course</a> lists all chapters.'
    about = f"Nothing at this address: {escape(project)}."
    return PLAIN.format(title="Page not found", about=about, extra='<meta name="robots" content="noindex">', text=text)


def sitemap(pages: list[str], base: str) -> str:
    """Return the list of pages for search engines."""
    rows = "".join(f"<url><loc>{escape(base + page)}</loc></url>\n" for page in pages)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'


def programs(static: Path) -> list[str]:
    """Return the text of all that makes parts of a page while it is read: the site's scripts and the library."""
    files = [*static.rglob("*.js"), *(BOOK.parent / "scaling_lib").glob("*.py")]
    return [p.read_text(encoding="utf-8") for p in files if p.name not in UNREAD]


def quicken(script: Path) -> None:
    """Take from the theme's script what page.js does for parts on the screen: it measures all that may scroll.

    That would lay out the whole page at once. Raises ExtensionError when the script has no such part.
    """
    text, count = STOPS.subn("[].forEach", script.read_text(encoding="utf-8"))
    if count != 1:
        raise ExtensionError(f"{script.name} of this version of the theme measures what scrolls in another way")
    script.write_text(text, encoding="utf-8")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Finish every page, and write those that are no chapters."""
    if error is not None or app.builder.name not in ("html", "dirhtml"):
        return
    out, base, root, project = Path(app.outdir), site_url(), app.config.root_doc, app.config.project
    script = out / "_static" / "scripts" / "fontawesome.js"
    styles = out / "_static" / "styles" / "pydata-sphinx-theme.css"
    styles.write_text(GLYPHS.sub("", styles.read_text(encoding="utf-8")), encoding="utf-8")
    plain = {"index.html": first_page(project, root, base), "404.html": missing_page(project, root, base)}
    found = {p: p.relative_to(out).as_posix() for p in sorted(out.rglob("*.html"))}
    chapters = [p for p, name in found.items() if name not in plain and not name.startswith("_static/")]
    pages = {p: UNUSED.sub("", p.read_text(encoding="utf-8")) for p in chapters}
    quicken(out / "_static" / "scripts" / "pydata-sphinx-theme.js")
    used = prune.names(pages.values(), programs(out / "_static"))
    own = {p.name for p in (*BOOK.glob("_static/*.css"), *BOOK.glob("_live/*.css"))}
    file, held = bundle.write((bundle.sheets(html, p) for p, html in pages.items()), out / "_static", own, used)
    for path, html in pages.items():
        html = bundle.defer_scripts(bundle.one_sheet(html, path, file, held), path)
        path.write_text(finish_page(html, script), encoding="utf-8")
    for name, html in plain.items():
        (out / name).write_text(finish_page(html, script), encoding="utf-8")
    script.unlink()  # its icons are in the pages
    if base:
        addresses = [f"{name}.html" for name in sorted(app.env.found_docs)]
        (out / "sitemap.xml").write_text(sitemap(addresses, base), encoding="utf-8")
        (out / "robots.txt").write_text(f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts with Sphinx."""
    app.connect("config-inited", set_address)
    app.connect("html-page-context", describe, priority=600)
    app.connect("build-finished", finish, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
