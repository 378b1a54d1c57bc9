"""Leave out the rules of a style sheet that no page can use.

A browser reads every rule before it shows anything. The theme and its parts bring five thousand, for pages of every
kind; this book has use for a quarter. PurgeCSS does this for sites built with Node.js; here tinycss2 reads the sheet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tinycss2

CLASSES = re.compile(r"""\b(?:class|id)=(["'])(.*?)\1""", re.DOTALL)
WORD = re.compile(r"[\w-]+")
NESTING = {"media", "supports", "layer", "container"}
COMPOSED = "bs-"  # names that Bootstrap's script puts together, such as bs-tooltip- and a side


def names(pages: Iterable[str], programs: Iterable[str]) -> set[str]:
    """Return the classes and ids that pages have, and every word of the programs that may set others."""
    found = {name for page in pages for _, value in CLASSES.findall(page) for name in value.split()}
    return found.union(*(WORD.findall(text) for text in programs))


def prune(text: str, used: set[str]) -> str:
    """Return a style sheet without the selectors that ask for a class or an id that is not used."""
    return "\n".join(_rules(tinycss2.parse_stylesheet(text, skip_whitespace=True), used))


def _rules(rules: Iterable[Any], used: set[str]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "qualified-rule":
            kept = [s for s in _selectors(rule.prelude) if all(n in used or n.startswith(COMPOSED) for n in _asked(s))]
            if kept:
                yield f"{','.join(_text(s) for s in kept)}{{{_text(rule.content)}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in NESTING and rule.content is not None:
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if inside := list(_rules(inner, used)):
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{''.join(inside)}}}"
        elif rule.type != "comment" or rule.value.startswith("!"):  # a licence has that mark
            yield rule.serialize()


def _text(tokens: Iterable[Any]) -> str:
    return str(tinycss2.serialize(t for t in tokens if t.type != "comment")).strip()


def _selectors(prelude: Iterable[Any]) -> list[list[Any]]:
    """Return the selectors of a list, which commas part."""
    parts: list[list[Any]] = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _asked(selector: Iterable[Any]) -> Iterator[str]:
    """Yield the classes and ids that an element and those around it must have; what stands in brackets is left open."""
    dot = False
    for token in selector:
        if token.type == "hash" or (dot and token.type == "ident"):
            yield token.value
        dot = token == "."
