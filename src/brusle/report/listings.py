"""Tables of a report that HTML and Markdown share; a cell is text, or a rate with its interval."""

from __future__ import annotations

from dataclasses import dataclass

from brusle.evaluation.metrics import Rate
from brusle.report.content import Content
from brusle.report.tables import estimate, number

Cell = str | Rate


@dataclass(frozen=True)
class Listing:
    """A table: a caption, headers, and rows whose first cell names them."""

    caption: str
    headers: list[str]
    rows: list[list[Cell]]


def summary(content: Content) -> Listing:
    """One line for each setting."""
    limits = sorted({part.setting.queries for part in content.parts})
    headers = [
        "attack", "goal", "pixels used / allowed", *(["queries allowed"] if limits[1:] else []),
        "attacked / all", "ASR %",
        *(["stable ASR %"] if content.randomised else []), "robust accuracy %",
        "median queries", "mean queries", "median of successes", "mean of successes",
        "area under curve",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for part in content.parts:
        s, setting = part.summary, part.setting
        rows.append(
            [
                setting.name,
                setting.goal,
                f"{number(s.mean_pixels, 1)} / {setting.pixels}",
                *([str(setting.queries)] if limits[1:] else []),
                f"{s.attacked} / {s.images}" + ("" if part.finished else f" of {setting.problems}"),
                s.asr,
                *([] if s.stable is None else [s.stable]),
                s.robust,
                number(s.cost.median, 0),
                number(s.cost.mean, 0),
                number(s.success_cost.median, 0),
                number(s.success_cost.mean, 0),
                number(s.area, 3),
            ]
        )
    caption = f"Within {' or '.join(map(str, limits))} queries; brackets are 95 % intervals."
    return Listing(caption, headers, rows)


def seeds(content: Content) -> Listing:
    """What varies with the seed."""
    rows: list[list[Cell]] = []
    for line in content.seeds:
        if line.spread is None:
            continue
        spread, share = line.spread, line.metric != "mean queries"
        values = [
            number(x * (100 if share else 1), 1) for x in (spread.min, spread.mean, spread.max)
        ]
        deviation = number(spread.std * (100 if share else 1), 2)
        metric = line.metric + (" %" if share else "")
        rows.append([line.group.title, metric, str(spread.seeds), *values, deviation])
    headers = ["setting", "metric", "seeds", "min", "mean", "max", "std"]
    return Listing("The same problems with several seeds.", headers, rows)


def comparison(content: Content) -> Listing:
    """Attacks against the first."""
    section = content.comparison
    if section is None:
        return Listing("", [], [])
    rows: list[list[Cell]] = [
        [
            section.label(line),
            *(number(100 * rate.value, 1) for rate in line.rates),
            estimate(line.found.difference, 0, "+.1f", 100),
            estimate(line.found.ratio, 1, ".2f"),
            str(line.found.pairs),
        ]
        for line in section.lines
        if line.found is not None
    ]
    headers = [
        "attack", f"ASR % of {section.baseline}", "ASR %", "difference in points",
        "ratio of mean queries", "pairs",
    ]  # fmt: skip
    caption = (
        f"Against {section.baseline}, on the problems that both attacked. *: the 95 % interval "
        f"excludes 0 (ratio: 1), as it does by chance in 1 of 20 lines."
    )
    return Listing(caption, headers, rows)


def comparison_remarks(content: Content) -> list[str]:
    """What could not be compared, and what else differs."""
    section = content.comparison
    if section is None:
        return []
    failed = [f"{section.label(line)}: {line.problem}" for line in section.lines if line.problem]
    return [*section.notes, *section.unmatched, *failed]


def errors(content: Content) -> Listing:
    """Results that do not count, with their reasons."""
    rows: list[list[Cell]] = [
        [part.setting.title, status, str(count), reason]
        for part in content.parts
        for (status, reason), count in part.troubles.items()
    ]
    headers = ["setting", "status", "images", "reason"]
    return Listing("Results that do not count.", headers, rows)
