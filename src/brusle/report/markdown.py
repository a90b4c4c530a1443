"""A report in short, as Markdown for an issue or an appendix."""

from __future__ import annotations

import re
from collections.abc import Sequence

from brusle.evaluation.statistics import Rate
from brusle.report import listings
from brusle.report.comparison import Section
from brusle.report.content import MEANINGS, Content
from brusle.report.listings import Listing, TableCell
from brusle.text import shown


def report_markdown(content: Content) -> str:
    """Headline, doubts, tables and provenance."""
    blocks = [
        f"# {plain(content.victim)} on {plain(content.data)}",
        f"**Unfinished.** {plain(content.state)}" if content.state else "",
        " ".join(map(plain, content.headline())),
        *_doubts(content),
        listing_markdown("Summary", listings.summary(content)),
        listing_markdown("Pixels needed", listings.needed(content)),
        listing_markdown("Robust accuracy by pixels", listings.robust_by_pixels(content)),
        listing_markdown("Pixels needed by class", listings.needed_by_class(content)),
        listing_markdown("Over seeds", listings.seeds(content)),
        *_compared(content),
        listing_markdown("Errors", listings.errors(content)),
        "## Where this comes from",
        _provenance(content),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def comparison_markdown(sections: Sequence[Section]) -> str:
    """What `brusle compare` has found."""
    blocks = ["# Comparison"]
    for section in sections:
        blocks += [f"## {plain(section.title)}", *_section(section)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _section(section: Section) -> list[str]:
    return [
        *(f"**{plain(verdict.text)}**" for verdict in section.verdicts),
        listing_markdown("", listings.compared(section)),
        listing_markdown("", listings.compared_by_pixels(section)),
        "\n".join(f"- {plain(text)}" for text in section.remarks()),
    ]


def _compared(content: Content) -> list[str]:
    if content.comparison is None:
        return []
    return [
        f"## Attacks compared with {plain(content.comparison.baseline)}",
        *_section(content.comparison),
    ]


def _doubts(content: Content) -> list[str]:
    lines = [
        f"**Warning: {plain(topic)}.** {plain(text)}" for topic, text in content.warnings.items()
    ]
    lines += [
        f"**Caution: {name}** ({plain(found[0][0].title)}"
        f"{f' and {len(found) - 1} more' if found[1:] else ''}): {plain(found[0][1].text)}. "
        f"{MEANINGS[name]}"
        for name, found in content.flags().items()
    ]
    return lines + [f"**Note:** {plain(note)}" for note in content.notes]


def _provenance(content: Content) -> str:
    facts = {
        "victim": content.victim,
        "weights": content.about.weights or "unknown",
        "data": content.data,
        **content.sessions[-1].provenance,
    }
    if content.about.spending is not None:
        facts["books"] = content.about.spending.told()
    return "\n".join(f"- {plain(name)}: {plain(str(value))}" for name, value in facts.items())


def listing_markdown(title: str, listing: Listing) -> str:
    """A table that HTML has, too; nothing of nothing."""
    if not listing.rows:
        return ""
    lines = [
        [plain(text) for text in listing.headers],
        ["---"] * listing.worded + ["---:"] * (len(listing.headers) - listing.worded),
        *([_cell(cell) for cell in row] for row in listing.rows),
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    heading = f"## {title}\n\n" if title else ""
    caption = f"{plain(listing.caption)}\n\n" if listing.caption else ""
    return f"{heading}{caption}{text}"


def _cell(cell: TableCell) -> str:
    if not isinstance(cell, Rate):
        return plain(cell)
    if not cell.count:
        return "-"
    low, high = (f"{100 * end:.0f}" for end in cell.interval)
    return plain(f"{100 * cell.value:.1f} [{low}, {high}]")


def plain(text: str) -> str:
    """Text that Markdown leaves as it is, on one line."""
    escaped = re.sub(r"([\\`*_<>\[\]|#&$~])", r"\\\1", " ".join(shown(text).split()))
    return re.sub(r"^([-+]|\d+[.)])(?= )", r"\\\1", escaped)  # no item of a list
