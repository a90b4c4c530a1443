"""The sections of a report that are made of numbers: curves, grids, classes, pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from brusle.evaluation.statistics import Rate
from brusle.report import listings
from brusle.report.charts import curves_svg, histogram, hover_values
from brusle.report.content import Content
from brusle.report.curves import Chart, attack_colours, charts
from brusle.report.elements import listing_table, table
from brusle.report.markup import Html, join, tag
from brusle.report.settings import FamilyReport, pooled
from brusle.report.shapes import look
from brusle.report.wording import class_name

_FEWER = 0.05  # a share of successes with fewer pixels than allowed that is worth a picture


def curve_values(content: Content) -> list[dict[str, Any]]:
    """What can be read off every chart, in the order of their numbers."""
    return [hover_values(chart) for chart in _charts(content)]


def curve_section(content: Content) -> Html:
    """Success over queries, a chart for each goal and number of pixels."""
    figures = _figures(content, minimal=False)
    if not figures:
        return Html()
    text = (
        "A curve that still rises at its right end says that the limit, and not the victim, has "
        "ended the attack."
    )
    return join(tag("p", text), figures)


def needed_section(content: Content) -> Html:
    """The pixels needed, of searches for the fewest."""
    if not any(family.minimal for family in content.families):
        return Html()
    text = (
        "These searches look for the fewest pixels and spend all their queries, so success over "
        "queries would say nothing. The curve is the share of all images that are classified "
        "correctly if at most so many pixels may be changed."
    )
    return join(
        listing_table(listings.needed(content)),
        tag("p", text),
        _figures(content, minimal=True),
        listing_table(listings.robust_by_pixels(content)),
        listing_table(listings.needed_by_class(content)),
    )


def _charts(content: Content) -> list[Chart]:
    return charts({report.setting: report.steps for report in content.settings})


def _figures(content: Content, minimal: bool) -> Html:
    numbered = enumerate(_charts(content))
    figures = [_figure(chart, number) for number, chart in numbered if chart.minimal is minimal]
    return tag("div", *figures, class_="charts") if figures else Html()


def _figure(chart: Chart, number: int) -> Html:
    """A chart, the names of its curves, and what its bands are."""
    keys = [
        tag("span", tag("i", class_=look(curve.colour, curve.dashes)), curve.name, class_="key")
        for curve in chart.curves
    ]
    legend = tag("p", *(join(key, " ") for key in keys), class_="legend")
    caption = tag("figcaption", chart.caption)
    return tag("figure", tag("h3", chart.heading), curves_svg(chart, number), legend, caption)


def grid_section(content: Content) -> Html:
    """Success by queries and pixels, a table for each attack and goal."""
    together: dict[tuple[str, str], list[FamilyReport]] = {}
    for report in _begun(content):
        together.setdefault((report.family.name, report.setting.goal), []).append(report)
    tables = [
        _grid(f"{name}, {goal}: ASR % within so many queries", reports)
        for (name, goal), reports in together.items()
    ]
    if not tables:
        return Html()
    text = "Of several seeds, the mean." if content.seeds else ""
    return join(tag("p", text) if text else "", tag("div", *tables, class_="charts"))


def _grid(caption: str, reports: Sequence[FamilyReport]) -> Html:
    marks = sorted({mark for report in reports for seed in report.seeds for mark in seed.grid})
    rows = [
        (
            report.family.budget,
            *(_shade([s.grid.get(mark) for s in report.seeds]) for mark in marks),
        )
        for report in sorted(reports, key=lambda report: report.setting.pixels)
    ]
    return table(("pixels", *map(str, marks)), rows, caption)


def class_section(content: Content) -> Html:
    """Success by true class and, of targeted attacks, from class to class."""
    reports = _begun(content)
    if not reports:
        return Html()
    maps = [_map(report, content.classes) for report in reports if _is_targeted(report)]
    maps = [made for made in maps if made]
    text = "From the true class (row) to the target class (column), ASR in %."
    shown = join(tag("p", text), tag("div", *maps, class_="maps")) if maps else Html()
    return join(_by_class(reports, content.classes), shown)


def _by_class(reports: Sequence[FamilyReport], names: Sequence[str]) -> Html:
    found = sorted({c for report in reports for seed in report.seeds for c in seed.by_label})
    rates = {
        label: [
            pooled(s.by_label[label].asr for s in report.seeds if label in s.by_label)
            for report in reports
        ]
        for label in found
    }
    labels = listings.extremes({label: pooled(some).value for label, some in rates.items()})
    rows = [(class_name(names, c), *(_heat(rate) for rate in rates[c])) for c in labels]
    left_out = ""
    if len(labels) < len(rates):
        left_out = f" Of {len(rates)} classes, those fooled least and most; --json has all."
    headers = ("true class", *(report.family.title for report in reports))
    return table(headers, rows, f"ASR % of each true class.{left_out}")


def _map(report: FamilyReport, names: Sequence[str]) -> Html:
    moves = {move for seed in report.seeds for move in seed.moves}
    froms, tos = sorted({a for a, _ in moves}), sorted({b for _, b in moves})
    title = report.family.title
    if len(froms) > listings.MOST_CLASSES or len(tos) > listings.MOST_CLASSES:
        return tag("p", f"{title}: too many classes for a map; --json has all.")
    rows = [
        (class_name(names, a), *(_shade([s.moves.get((a, b)) for s in report.seeds]) for b in tos))
        for a in froms
    ]
    headers = ("from / to", *(class_name(names, b) for b in tos))
    return table(headers, rows, title, kind="map")


def pixel_section(content: Content) -> Html:
    """How many pixels successes changed, where it is often fewer than allowed."""
    colours = attack_colours(report.setting for report in content.settings)
    figures = []
    for report in content.families:
        if report.minimal:  # the pixels needed are told apart
            continue
        counts = sum((Counter(seed.pixels) for seed in report.seeds), Counter())
        allowed = report.setting.pixels
        fewer = sum(count for changed, count in counts.items() if changed < allowed)
        if fewer > _FEWER * counts.total():
            colour = colours[report.setting.attack]
            chart = histogram(dict(sorted(counts.items())), allowed, colour)
            figures.append(tag("figure", tag("h3", report.family.title), chart))
    return tag("div", *figures, class_="charts") if figures else Html()


def _begun(content: Content) -> list[FamilyReport]:
    """Attacks with a pixel budget that have attacked anything."""
    return [report for report in content.families if not report.minimal and report.asr.count]


def _is_targeted(report: FamilyReport) -> bool:
    return report.setting.goal == "targeted"


def _shade(rates: Sequence[Rate | None]) -> Html:
    return _heat(pooled(rate for rate in rates if rate is not None))


def _heat(rate: Rate) -> Html:
    if not rate.count:
        return tag("td", "\N{MIDDLE DOT}", class_="none", title="not attacked")
    style = "heat hot" if rate.value > 0.5 else "heat"
    told = f"{rate.hits} of {rate.count}"
    shade = f"--v:{rate.value:.2f}"
    return tag("td", f"{100 * rate.value:.0f}", class_=style, style=shade, title=told)
