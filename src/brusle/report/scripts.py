"""The scripts of pages: files of this folder, which a page holds or a server hands out."""

from __future__ import annotations

from pathlib import Path

# each uses those before it
TRACE_VIEW = (
    "elements.js",
    "trace_data.js",
    "trace_pixels.js",
    "trace_panels.js",
    "trace_view.js",
)
REPORT = (
    *TRACE_VIEW,
    "tables.js",
    "curve_values.js",
    "row_data.js",
    "row_view.js",
    "explorer.js",
    "report_page.js",
)


def script(name: str) -> str:
    """The text of a script."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
