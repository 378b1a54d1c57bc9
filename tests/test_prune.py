"""Rules of a style sheet that no page can use are left out, and no others."""

from __future__ import annotations

import prune
import pytest

USED = {"note", "wide", "main"}


@pytest.mark.parametrize(
    ("sheet", "kept"),
    [
        (".note{color:red}", ".note{color:red}"),
        (".tip{color:red}", ""),
        (".tip, p .note > a, #main, #other{color:red}", "p .note > a,#main{color:red}"),
        (".note.tip{color:red}", ""),
        ("p::before, a:hover{color:red}", "p::before,a:hover{color:red}"),
        # what stands in brackets may be one of several, or must not be
        ("p:not(.tip){color:red}", "p:not(.tip){color:red}"),
        (":is(.tip, .note) b{color:red}", ":is(.tip, .note) b{color:red}"),
        ('[class*="tip"]{color:red}', '[class*="tip"]{color:red}'),
        (".bs-tooltip-top{color:red}", ".bs-tooltip-top{color:red}"),
        ("@media print{.tip{color:red}.wide{width:50.5%}}", "@media print{.wide{width:50.5%}}"),
        ("@media print{.tip{color:red}}", ""),
        (
            "@supports (display:grid){@media print{.note{top:0}}}",
            "@supports (display:grid){@media print{.note{top:0}}}",
        ),
        ("@font-face{font-family:tip;src:url(a.woff2)}", "@font-face{font-family:tip;src:url(a.woff2)}"),
        ("@keyframes tip{to{top:0}}", "@keyframes tip{to{top:0}}"),
        ("/*! licence */.tip{top:0}/* remark */", "/*! licence */"),
        (".note{top:0;/* .tip */left:0}", ".note{top:0;left:0}"),
        (".note{background:url(data:image/svg+xml;a,b)}", ".note{background:url(data:image/svg+xml;a,b)}"),
        (r".w-1\/2{width:50%}", ""),
    ],
)
def test_what_is_left_out(sheet: str, kept: str) -> None:
    assert prune.prune(sheet, USED) == kept


def test_where_names_come_from() -> None:
    pages = ['<p class="note wide" id="main">tip</p>', "<b class='one\ntwo'>"]
    assert prune.names(pages, ['e.classList.add("pst-open", `by-${side}`)']) >= {*USED, "one", "two", "pst-open"}
    assert "tip" not in prune.names(pages, [])
