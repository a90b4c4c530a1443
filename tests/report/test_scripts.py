"""Scripts of pages: plain files that make text and never markup."""

import re
from pathlib import Path

import pytest

import brusle.report
from brusle.report.scripts import TRACE_VIEW, script

FILES = sorted(Path(brusle.report.__file__).parent.glob("*.js"))
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
LEAVES = ("http:", "https:", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_makes_no_markup_and_asks_nobody(path) -> None:
    text = path.read_text(encoding="ascii")
    assert text.startswith("/* ") and '\n"use strict";\n' in text
    for word in (*MARKUP, *LEAVES, "</script", "<!--"):
        assert word not in text


def test_the_scripts_of_the_trace_view_come_in_an_order_in_which_they_work() -> None:
    made: list[str] = []
    for name in TRACE_VIEW:
        text = script(name)
        used = re.findall(r"\} = (brusle\w+);", text)
        assert set(used) <= set(made)
        made.append(text.split("\nconst ")[1].split(" ")[0])
    assert made[-1] == "brusleTraceView"
