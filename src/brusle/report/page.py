"""A report as one HTML file: scripts only add to it, and nothing is fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from brusle.evaluation.statistics import Rate
from brusle.evaluation.storing.runs import Run
from brusle.report import listings
from brusle.report.comparison_page import section_body
from brusle.report.content import MEANINGS, Content
from brusle.report.elements import bullets, document, listing_table, notice
from brusle.report.exploring import explore
from brusle.report.headline import sparsest, strongest
from brusle.report.markup import Html, join, tag
from brusle.report.page_numbers import (
    class_section,
    curve_section,
    curve_values,
    grid_section,
    needed_section,
    pixel_section,
)
from brusle.report.page_sources import example_section, provenance_section, row_section
from brusle.report.scripts import REPORT, script
from brusle.report.settings import FamilyReport
from brusle.report.wording import pixels, rounded

_LARGEST = 12_500_000  # letters of pictures and traces; a page of more opens slowly
_READING = (
    "ASR (attack success rate): of the images that the victim classifies correctly, the share that "
    "was fooled. Robust accuracy: of all images, the share that is classified correctly to the "
    "end.",
    "Brackets are 95 % intervals: they say how far the number could be off because only these "
    "images were tried (Wilson score; for comparisons the paired bootstrap). What bands are "
    "is said below each chart.",
    "Mean and median queries count a failure as the query limit. Over successes only they flatter "
    "a weak attack, which has only the easy images.",
    "The area under the curve of success over queries is between 0 (never a success) and 1 (all at "
    "once).",
    "Errors are in no denominator; successes that did not pass the independent check count as "
    "failures of the attack.",
)


def report_page(content: Content, run: Run) -> str:
    """The whole page.

    Args:
        content: what it says.
        run: where the pictures come from.
    """
    gallery, examples = example_section(content, run)
    explored = explore(run, examples, _LARGEST - len(gallery))
    unequal = [f"{line.family.title}: {line.problem}" for line in content.seeds if line.problem]
    compared = Html() if content.comparison is None else section_body(content.comparison)
    sections = {
        "summary": ("Summary", listing_table(listings.summary(content))),
        "curves": ("Success over queries", curve_section(content)),
        "grid": ("Success by queries and pixels", grid_section(content)),
        "needed": ("Pixels needed", needed_section(content)),
        "classes": ("By class", class_section(content)),
        "seeds": ("Over seeds", listing_table(listings.seeds(content), unequal)),
        "comparison": ("Attacks compared", compared),
        "pixels": ("Pixels used", pixel_section(content)),
        "gallery": ("Examples", gallery),
        "rows": ("All rows", row_section()),
        "errors": ("Errors", listing_table(listings.errors(content))),
        "provenance": ("Where this comes from", provenance_section(content)),
        "reading": ("How to read this", bullets(_READING)),
    }
    title = f"{content.victim} on {content.data}: robustness to sparse changes"
    data = {
        "curve-data": curve_values(content),
        "row-data": explored.facts,
        "picture-data": explored.pictures,
        "edit-data": explored.edits,
        "trace-data": explored.traces,
    }
    scripts = [script(name) for name in REPORT]
    return document(title, _top(content), sections, scripts=scripts, data=data, scripted=("rows",))


def _top(content: Content) -> Html:
    # a percent sign stays with its number
    lines = [line.replace(" %", "\N{NO-BREAK SPACE}%") for line in content.headline()]
    return join(
        tag("p", "Robustness to a handful of changed pixels", class_="over"),
        tag("h1", f"{content.victim} on {content.data}"),
        tag("p", f"Run {content.name}", class_="faint"),
        notice("Unfinished", [content.state]) if content.state else "",
        tag("div", *(tag("p", line) for line in lines), class_="lead"),
        tag("div", *number_cards(content), class_="cards"),
        _flags(content),
    )


def number_cards(content: Content) -> list[Html]:
    """The main numbers, large, with their intervals as bars."""
    cards = [_rate_card("clean accuracy", content.clean, "before any attack")]
    for best in strongest(content.families):
        setting, summary = best.setting, best.summary
        with_what = f"{setting.attack}, {setting.pixels} pixels, {setting.queries} queries"
        if setting.goal == "untargeted":
            cards.append(_rate_card("robust accuracy", summary.robust, with_what))
        cards.append(_rate_card(f"{setting.goal} success rate", summary.asr, with_what))
    return cards + [_needed_card(best) for best in sparsest(content.families)]


def _rate_card(title: str, rate: Rate, text: str) -> Html:
    if not rate.count:
        return tag("div", tag("p", title), tag("b", "-"), tag("p", text), class_="card")
    low, high = (100 * end for end in rate.interval)
    interval = f"95 % interval {low:.0f} to {high:.0f} %"
    return _card(title, f"{rounded(rate)} %", (low, high, 100 * rate.value), interval, text)


def _needed_card(best: FamilyReport) -> Html:
    setting, needed = best.setting, best.summary.needed
    assert needed is not None
    median, limit = needed.median, setting.pixels
    low, high = (pixels(end, limit) for end in (median.low, median.high))
    shares = [100 * min(x, limit) / limit for x in (median.low, median.high, median.value)]
    return _card(
        f"{setting.goal}: pixels needed, median",
        pixels(median.value, limit),
        shares,
        f"95 % interval {low} to {high}",
        f"{setting.attack}, at most {limit} pixels",
    )


def _card(title: str, value: str, shares: Sequence[float], interval: str, text: str) -> Html:
    """A number; ``shares`` are the ends of its interval and itself, in percent of the bar."""
    low, high, at = shares
    bar = f"--low:{low:.1f}%;--high:{high:.1f}%;--at:{at:.1f}%"
    return tag(
        "div",
        tag("p", title),
        tag("b", value),
        tag("div", tag("i"), tag("u"), class_="interval", style=bar, aria_hidden="true"),
        tag("p", interval, class_="faint"),
        tag("p", text, class_="faint"),
        class_="card",
    )


def _flags(content: Content) -> Html:
    boxes = [notice(f"Warning: {topic}", [text]) for topic, text in content.warnings.items()]
    for name, found in content.flags().items():
        lines = [f"{setting.title}: {flag.text}." for setting, flag in found]
        shown = [MEANINGS[name], *lines[:3]]
        inner = [tag("p", line) for line in shown]
        if lines[3:]:
            more = tag("summary", f"{len(lines) - 3} more")
            inner.append(tag("details", more, *(tag("p", line) for line in lines[3:])))
        boxes.append(tag("div", tag("h3", f"Caution: {name}"), *inner, class_="notice"))
    boxes += [notice("Note", [note]) for note in content.notes]
    if content.randomised:
        text = (
            "The victim is randomised: ASR counts first hits, and stable ASR those that more than "
            "half of several fresh answers repeat."
        )
        boxes.append(notice("Randomised victim", [text]))
    if not boxes:
        text = "No flag was raised: see docs/metrics.md for what is looked at."
        return tag("div", tag("p", text), class_="notice fine")
    return join(*boxes)
