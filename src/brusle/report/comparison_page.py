"""A comparison as one HTML file, in the style of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brusle.evaluation.statistics import Estimate
from brusle.evaluation.storing.runs import Run
from brusle.report import listings
from brusle.report.charts import forest
from brusle.report.comparison import Section
from brusle.report.curves import attack_colours
from brusle.report.elements import bullets, document, listing_table, table
from brusle.report.markup import Html, join, tag

_READING = (
    "Every line compares two settings on the same problems (image, label and target), with all "
    "seeds that both have.",
    "ASR (attack success rate): of the problems that both attacked, the share that was fooled. "
    "Robust accuracy: of all problems without error, the share that is classified correctly to the "
    "end.",
    "The ratio is that of mean queries, a failure counting as the query limit.",
    "Brackets are 95 % intervals of the paired bootstrap over images: an image is drawn with all "
    "its targets and seeds, because another seed is not another image.",
    "Over seeds: the change of each seed by itself, as mean and standard deviation.",
)


def comparison_page(sections: Sequence[Section], runs: Sequence[Run]) -> str:
    """The whole page.

    Args:
        sections: what was found.
        runs: what was compared.
    """
    colours = attack_colours(setting for run in runs for setting in run.settings)
    parts = {
        f"section-{at}": (section.title, section_body(section, _charts(section, colours)))
        for at, section in enumerate(sections)
    }
    names = [str(run.folder) for run in runs]
    title = " and ".join(names)
    verdicts = [
        tag("p", tag("b", f"{section.title}. "), verdict.text)
        for section in sections
        for verdict in section.verdicts
    ]
    top = join(
        tag("p", "Robustness to a handful of changed pixels: a comparison", class_="over"),
        tag("h1", title),
        tag("div", *verdicts, class_="lead"),
    )
    ends = {
        "runs": ("What was compared", _runs(runs)),
        "reading": ("How to read this", bullets(_READING)),
    }
    return document(f"Comparison of {title}", top, parts | ends)


def section_body(section: Section, *charts: Html) -> Html:
    """Verdicts, charts, tables and remarks of a section."""
    return join(
        *(tag("p", verdict.text) for verdict in section.verdicts),
        *charts,
        listing_table(listings.compared(section)),
        listing_table(listings.compared_by_pixels(section)),
        bullets(section.remarks()),
    )


def _charts(section: Section, colours: Mapping[str, int]) -> Html:
    """Changes with their intervals, one chart for success and one for pixels needed."""
    points: list[tuple[str, Estimate, int]] = []
    needed: list[tuple[str, Estimate, int]] = []
    for line in section.lines:
        if line.found is None:
            continue
        text, colour = section.label(line), colours[line.other.attack]
        if line.minimal:
            needed.append((text, line.found.excess, colour))
        else:
            e = line.found.difference
            points.append((text, Estimate(100 * e.value, 100 * e.low, 100 * e.high), colour))
    kinds = ((points, "change of ASR, in points"), (needed, "change of pixels needed"))
    figures = [
        tag("figure", tag("h3", f"{name[0].upper()}{name[1:]}"), forest(lines, name))
        for lines, name in kinds
        if lines
    ]
    return tag("div", *figures, class_="charts") if figures else Html()


def _runs(runs: Sequence[Run]) -> Html:
    """Victim, data and version of each run."""
    facts = ("victim", "weights", "data", "brusle")
    rows = [
        (str(run.folder), *(str(about[fact] or "unknown") for fact in facts))
        for run, about in ((run, run.about.as_dict()) for run in runs)
    ]
    return table(("run", *facts), rows, "The runs; the first is the baseline.")
