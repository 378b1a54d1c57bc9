"""Make a PDF and an EPUB of the book from the same notebooks, into _build/html/downloads, where the site links them.

The EPUB is Sphinx's own; the PDF is its single page printed by Chromium. In the PDF answers leave their place and stand
at the end, under the heading of their chapter, so that a reader meets the question first; readers of EPUB can fold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools.book import BUILD, HTML, ROOT, RUN_JUPYTER_BOOK, STAMP, Trouble
from tools.verify import chromium

DOWNLOADS = HTML / "downloads"
PDF, EPUB = "planning-large-training-runs.pdf", "planning-large-training-runs.epub"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# Run in the printed page: answers go to an appendix, with a link from the place where they stood.
MOVE_ANSWERS = """() => {
  const main = document.querySelector('main article') || document.querySelector('main') || document.body;
  const end = document.createElement('section');
  end.innerHTML = '<h1>Answers</h1>';
  end.style.breakBefore = 'page';
  let chapter = null, count = 0;
  // Each chapter begins at a mark of its own; only its heading, of whatever level, begins a page.
  const starts = [...main.querySelectorAll('span[id^="document-"]')].map(mark =>
    [...main.querySelectorAll('h1, h2')].find(h => mark.compareDocumentPosition(h) & 4)).filter(Boolean);
  const first = main.querySelector('h1');
  starts.forEach(heading => { if (heading !== first) heading.style.breakBefore = 'page'; });
  for (const fold of main.querySelectorAll('details, .admonition.dropdown')) {
    const name = fold.querySelector('summary, .admonition-title')?.textContent.trim() || '';
    if (/the code|hint|given/i.test(name)) { if (fold.tagName === 'DETAILS') fold.open = true; continue; }
    const heading = starts.filter(h => h.compareDocumentPosition(fold) & 4).pop();
    const title = (heading?.textContent || '').replace('#', '').trim();
    if (title !== chapter) {
      chapter = title;
      end.insertAdjacentHTML('beforeend', '<h2></h2>');
      end.lastElementChild.textContent = title;
    }
    const id = `answer-${++count}`, link = document.createElement('p'), about = fold.closest('[data-question]');
    link.innerHTML = `<a href="#${id}">Answer ${count}, at the end</a>`;
    const kept = document.createElement('div');
    kept.id = id;
    kept.innerHTML = `<h3>Answer ${count}</h3>`;
    if (about) kept.firstElementChild.textContent += `: ${about.dataset.question}, ${name.toLowerCase()}`;
    fold.replaceWith(link);
    fold.querySelector('summary, .admonition-title')?.remove();
    kept.append(...fold.childNodes);
    end.append(kept);
  }
  main.append(end);
  document.querySelectorAll('.live-controls, .live-answer, .live-status, .live-bar').forEach(e => e.remove());
  return count;
}"""
PRINT = """
.bd-sidebar-primary, .bd-sidebar-secondary, .bd-header, .bd-header-article, .bd-footer, .headerlink, .prev-next-area,
.pst-js-only, #pst-back-to-top, #pst-skip-link, .skip-link, .copybtn, dialog { display: none !important; }
.bd-main, .bd-content, .bd-article-container, .bd-page-width { max-width: none !important; display: block !important; }
h1, h2, h3 { break-after: avoid; text-align: left !important; }
h1 { font-size: 17pt !important; font-weight: 650 !important; } /* one line: the outline joins words of two */
span[id^="document-"] + section > h2 { font-size: 15pt !important; }
figure, svg, tr, .question > p, .readout, pre, .math { break-inside: avoid; }
pre { white-space: pre-wrap !important; overflow-wrap: anywhere; font-size: 8.6pt; }
html { font-size: 11pt !important; --pst-font-size-base: 10.5pt; }
table { font-size: 8.5pt; } table, .cell_output, div.math { overflow: visible !important; max-width: 100%; }
"""
FOOTER = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'
MARGINS: Any = {"top": "18mm", "bottom": "18mm", "left": "17mm", "right": "17mm"}
SHEET: dict[str, Any] = {"format": "A4", "print_background": True, "outline": True, "tagged": True}
SHEET |= {"display_header_footer": True, "header_template": "<span></span>"}


def sphinx(builder: list[str], out: Path) -> Path:
    """Run a Sphinx builder over the book and return the folder of its results."""
    command = [sys.executable, "-c", RUN_JUPYTER_BOOK, "build", str(ROOT), "--path-output", str(out), "--all", *builder]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    if run.returncode:
        raise Trouble(f"Jupyter Book could not make {builder[-1]}:\n{(run.stdout + run.stderr)[-2000:]}")
    return out / "_build" / builder[-1]


def make_pdf(work: Path) -> int:
    """Print the single page and return how many answers were moved to the end."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise Trouble("No Chromium found, which prints the PDF: apt install chromium, or name one: CHROMIUM=")
    folder = sphinx(["--builder", "singlehtml"], work)
    page_file = folder / "print.html"  # its links to styles and pictures are written from the top
    shutil.copyfile(folder / "book" / "index.html", page_file)
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(color_scheme="light", bypass_csp=True)
        page.goto(page_file.as_uri(), wait_until="load")
        page.add_style_tag(content=PRINT)
        count = int(page.evaluate(MOVE_ANSWERS))
        page.pdf(path=str(DOWNLOADS / PDF), footer_template=FOOTER, margin=MARGINS, **SHEET)
        browser.close()
    return count


def make_epub(work: Path) -> int:
    """Make the EPUB, prove that its pages are well-formed XML, and return their number."""
    folder = sphinx(["--builder", "custom", "--custom-builder", "epub"], work)
    found = sorted(folder.glob("*.epub"))
    if len(found) != 1:
        raise Trouble(f"Sphinx made {len(found)} EPUB files in {folder}, not one")
    pages = 0
    with zipfile.ZipFile(found[0]) as book:
        for name in book.namelist():
            if name.endswith((".xhtml", ".opf", ".ncx")):
                try:
                    ElementTree.fromstring(book.read(name))
                except ElementTree.ParseError as error:
                    raise Trouble(f"{name} of the EPUB is not well-formed: {error}") from None
                pages += name.endswith(".xhtml")
        listed = len(set(re.findall(rb'<a href="([^"#]+)', book.read("nav.xhtml"))))
    if listed < pages - 1:
        raise Trouble(f"the EPUB's table of contents names {listed} of its {pages - 1} pages")
    shutil.copyfile(found[0], DOWNLOADS / EPUB)
    return pages


def link(folder: Path) -> None:
    """Offer the files found in the site's folder of downloads on its first page, once. Raises Trouble without a title.

    Only this command makes them, so only it writes the links: a site that was not printed promises nothing.
    """
    page = folder.parent / "book" / "index.html"
    text = re.sub(r'<p class="downloads">.*?</p>', "", page.read_text(encoding="utf-8"))
    sizes = [(name, (folder / name).stat().st_size / 1e6) for name in (PDF, EPUB)]
    files = [f'<a href="../downloads/{x}">{x.rpartition(".")[2].upper()}</a> ({size:.1f} MB)' for x, size in sizes]
    offer = f'<p class="downloads">The whole course to keep: {" and ".join(files)}.</p>'
    text, count = re.subn(r"(<article.*?</h1>)", lambda m: m[1] + offer, text, count=1, flags=re.DOTALL)
    if not count:
        raise Trouble(f"{page} has no title below which the downloads could be offered: make site")
    page.write_text(text, encoding="utf-8")


def main() -> int:
    """Make both."""
    if not STAMP.is_file():
        print("There is no finished book to print yet: make site", file=sys.stderr)
        return 1
    DOWNLOADS.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=BUILD.parent / ".cache") as folder:
            answers = make_pdf(Path(folder, "pdf"))
            print(f"{PDF}: {(DOWNLOADS / PDF).stat().st_size / 1e6:.1f} MB, {answers} answers at its end", flush=True)
            pages = make_epub(Path(folder, "epub"))
            print(f"{EPUB}: {(DOWNLOADS / EPUB).stat().st_size / 1e6:.1f} MB, {pages} pages", flush=True)
            link(DOWNLOADS)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
