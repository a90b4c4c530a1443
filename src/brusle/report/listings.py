"""Tables of a report that HTML and Markdown share; a cell is text, or a rate with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from brusle.evaluation.statistics import Rate
from brusle.report.comparison import Section
from brusle.report.content import Content
from brusle.report.settings import SHARES, SettingReport, marks_to
from brusle.report.tables import FEWEST_COMPARED, varied
from brusle.report.wording import class_name, estimate, number, pixels, pixels_within

TableCell = str | Rate
MOST_CLASSES = 30  # of more, the extremes are shown
_STARS = "*: the 95 % interval excludes 0 (ratio: 1), as it does by chance in 1 of 20 lines."
_SEEDS = " Over seeds: mean and standard deviation."


@dataclass(frozen=True)
class Listing:
    """A table: a caption, headers, and rows whose first cell names them.

    ``worded`` columns have words, and the others have numbers.
    """

    caption: str
    headers: list[str]
    rows: list[list[TableCell]]
    worded: int = 1


def summary(content: Content) -> Listing:
    """One line for each setting."""
    reports = [report for report in content.settings if not report.setting.minimal]
    limits = sorted({report.setting.queries for report in reports})
    headers = [
        "attack", "goal", "pixels used / allowed", *(["queries allowed"] if limits[1:] else []),
        "attacked / all", "ASR %",
        *(["stable ASR %"] if content.randomised else []), "robust accuracy %",
        "median queries", "mean queries", "median of successes", "mean of successes",
        "area under curve",
    ]  # fmt: skip
    rows: list[list[TableCell]] = []
    for report in reports:
        s, setting = report.summary, report.setting
        rows.append(
            [
                setting.name,
                setting.goal,
                f"{number(s.mean_pixels, 1)} / {setting.pixels}",
                *([str(setting.queries)] if limits[1:] else []),
                _attacked(report),
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


def needed(content: Content) -> Listing:
    """One line for each search for the fewest pixels."""
    headers = [
        "attack", "goal", "pixels allowed", "queries allowed", "attacked / all", "ASR %",
        *(["stable ASR %"] if content.randomised else []), "robust accuracy %",
        "a quarter needs", "median", "three quarters need", "mean of fooled", "mean, at least",
    ]  # fmt: skip
    rows: list[list[TableCell]] = []
    for report in content.settings:
        s, setting, found = report.summary, report.setting, report.summary.needed
        if found is None:
            continue
        rows.append(
            [
                setting.name,
                setting.goal,
                str(setting.pixels),
                str(setting.queries),
                _attacked(report),
                s.asr,
                *([] if s.stable is None else [s.stable]),
                s.robust,
                pixels_within(found.lower, setting.pixels),
                pixels_within(found.median, setting.pixels),
                pixels_within(found.upper, setting.pixels),
                f"{number(found.mean, 1)} ({s.asr.hits} fooled)",
                number(found.bound, 1),
            ]
        )
    caption = (
        "The fewest pixels with which a quarter, half and three quarters of the attacked images "
        "are fooled; > is more than were allowed; brackets are 95 % intervals. ASR: fooled with at "
        "most the pixels allowed. Mean, at least: over all attacked, one that was not fooled "
        "counting as one pixel more than allowed."
    )
    return Listing(caption, headers, rows)


def robust_by_pixels(content: Content) -> Listing:
    """Robust accuracy if only so many pixels may be changed, of searches for the fewest."""
    found = [
        (report.setting, report.steps) for report in content.settings if report.setting.minimal
    ]
    marks = sorted({mark for setting, _ in found for mark in marks_to(setting.pixels)})
    rows: list[list[TableCell]] = [
        [
            f"{setting.name}, {setting.goal}",
            *(steps[max(p for p in steps if p <= m)] if m <= setting.pixels else "" for m in marks),
        ]
        for setting, steps in found
    ]
    caption = "Robust accuracy in % if so many pixels may be changed; brackets are 95 % intervals."
    return Listing(caption, ["attack", *map(str, marks)], rows)


def needed_by_class(content: Content) -> Listing:
    """The median of pixels needed for each true class."""
    names = content.classes
    reports = [report for report in content.settings if report.setting.minimal]
    found = {
        label: [report.by_label[label].needed for report in reports if label in report.by_label]
        for label in sorted({label for report in reports for label in report.by_label})
    }
    bounds = {
        label: sum(x.bound for x in some if x is not None) / len(some)
        for label, some in found.items()
    }
    labels = extremes(bounds)
    rows: list[list[TableCell]] = [
        [class_name(names, label), *(_median(report, label) for report in reports)]
        for label in labels
    ]
    caption = (
        "Median of pixels needed for each true class, with its 95 % interval; > is more than were "
        "allowed."
    )
    if len(labels) < len(found):
        caption += f" Of {len(found)} classes, those that need the fewest and most; --json has all."
    return Listing(caption, ["true class", *(report.setting.title for report in reports)], rows)


def extremes(values: Mapping[int, float]) -> list[int]:
    """All classes, or those with the lowest and highest values if there are too many."""
    if len(values) <= MOST_CLASSES:
        return list(values)
    known = [label for label, value in values.items() if not math.isnan(value)]
    known.sort(key=lambda label: values[label])
    half = MOST_CLASSES // 2
    return list(dict.fromkeys(known[:half] + known[-half:]))


def _median(report: SettingReport, label: int) -> str:
    found = report.by_label[label].needed if label in report.by_label else None
    return "-" if found is None else pixels_within(found.median, report.setting.pixels)


def _attacked(report: SettingReport) -> str:
    s = report.summary
    return f"{s.attacked} / {s.images}" + (
        "" if report.finished else f" of {report.setting.problems}"
    )


def seeds(content: Content) -> Listing:
    """What varies with the seed."""
    rows: list[list[TableCell]] = []
    for line in content.seeds:
        if line.spread is None:
            continue
        spread, share = line.spread, line.metric in SHARES
        values = [
            number(x * (100 if share else 1), 1) for x in (spread.min, spread.mean, spread.max)
        ]
        deviation = number(spread.std * (100 if share else 1), 2)
        metric = line.metric + (" %" if share else "")
        rows.append([line.family.title, metric, str(spread.seeds), *values, deviation])
    headers = ["setting", "metric", "seeds", "min", "mean", "max", "std"]
    return Listing("The same problems with several seeds.", headers, rows)


def compared(section: Section | None) -> Listing:
    """The lines of a comparison that are about attacks with a pixel budget."""
    lines = [] if section is None else [line for line in section.lines if not line.minimal]
    if section is None or not lines:
        return Listing("", [], [])
    base = f" of {section.baseline or 'base'}"
    several = any(line.seeds for line in lines)
    headers = [
        "setting", f"ASR %{base}", "ASR %", "difference in points",
        f"robust accuracy %{base}", "robust accuracy %", "robust accuracy, difference",
        "ratio of mean queries",
        *(["difference over seeds", "ratio over seeds"] if several else []), "pairs",
    ]  # fmt: skip
    rows: list[list[TableCell]] = [
        [
            section.label(line),
            *(number(100 * side.asr.value, 1) for side in line.sides),
            estimate(line.found.difference, 0, "+.1f", 100),
            *(number(100 * side.robust.value, 1) for side in line.sides),
            estimate(line.found.robust, 0, "+.1f", 100),
            estimate(line.found.ratio, 1, ".2f"),
            *([varied(line, "difference", "+.1f", 100)] if several else []),
            *([varied(line, "ratio", ".2f")] if several else []),
            str(line.found.pairs),
        ]
        for line in lines
        if line.found is not None
    ]
    at = " or ".join(map(str, sorted({line.queries for line in lines})))
    caption = (
        f"Success within {at} queries, on the problems that both attacked; robust accuracy over "
        f"all without error. {_STARS}{_SEEDS if several else ''}"
    )
    return Listing(caption, headers, rows)


def compared_by_pixels(section: Section | None) -> Listing:
    """The lines of a comparison that are about searches for the fewest pixels."""
    lines = [] if section is None else [line for line in section.lines if line.minimal]
    if section is None or not lines:
        return Listing("", [], [])
    base = f" of {section.baseline or 'base'}"
    several = any(line.seeds for line in lines)
    headers = [
        "setting", f"median{base}", "median", f"mean{base}", "mean", "difference in pixels",
        "ratio of pixels", "ASR, difference in points",
        *(["difference over seeds", "ratio over seeds"] if several else []), "pairs",
    ]  # fmt: skip
    rows: list[list[TableCell]] = [
        [
            section.label(line),
            *(pixels(side.median, line.other.pixels) for side in line.sides),
            *(number(side.effort, 1) for side in line.sides),
            estimate(line.found.excess, 0, "+.1f"),
            estimate(line.found.ratio, 1, ".2f"),
            estimate(line.found.difference, 0, "+.1f", 100),
            *([varied(line, "excess", "+.1f")] if several else []),
            *([varied(line, "ratio", ".2f")] if several else []),
            str(line.found.pairs),
        ]
        for line in lines
        if line.found is not None
    ]
    return Listing(f"{FEWEST_COMPARED} {_STARS}{_SEEDS if several else ''}", headers, rows)


def errors(content: Content) -> Listing:
    """Results that do not count, with their reasons."""
    rows: list[list[TableCell]] = [
        [report.setting.title, status, str(count), reason]
        for report in content.settings
        for (status, reason), count in report.troubles.items()
    ]
    headers = ["setting", "status", "images", "reason"]
    return Listing("Results that do not count.", headers, rows)
