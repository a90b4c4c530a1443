"""Tables for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table

from brusle.evaluation.record import Setting
from brusle.evaluation.statistics import Rate, Summary
from brusle.evaluation.storing.runs import Run
from brusle.report.comparison import Section
from brusle.report.lines import Line
from brusle.report.wording import count, estimate, number, pixels, pixels_within, span
from brusle.terminal import escape

FEWEST_COMPARED = (
    "Searches for the fewest pixels are compared by the pixels needed: an image that was not "
    "fooled counts as one pixel more than the limit, the fewest that it can need; > is more than "
    "the limit."
)


def plain_table(title: str | None = None) -> Table:
    """An empty table without vertical lines, as all commands print them."""
    return Table(
        title=None if title is None else escape(title),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def summary_table(run: Run) -> Group:
    """Attacks with a pixel budget, and searches for the fewest pixels; each fits 80 columns."""
    lines = list(zip(run.settings, run.summaries(), strict=True))
    kinds = [[line for line in lines if line[0].minimal is minimal] for minimal in (False, True)]
    tables = [
        make(run, some)
        for make, some in zip((_budget_table, _fewest_table), kinds, strict=True)
        if some
    ]
    return Group(*tables)


def _budget_table(run: Run, lines: Sequence[tuple[Setting, Summary]]) -> Table:
    table = plain_table(f"{run.victim} on {run.data}")
    summaries = [summary for _, summary in lines]
    marks = list(dict.fromkeys(q for s in summaries for q in s.asr_at))[-3:-1]
    several = len({setting.name for setting, _ in lines}) > 1
    randomised = any(s.stable is not None for s in summaries)
    if several:
        table.add_column("attack", overflow="fold")
        marks = [] if randomised else marks[-1:]  # the names take their place
    table.add_column("goal", no_wrap=True)
    table.add_column("pixels\nused/max", justify="right", no_wrap=True)
    for q in marks:
        table.add_column(f"ASR %\n@{q}", justify="right", no_wrap=True)
    table.add_column("ASR %\n\\[95 % CI]", justify="right", no_wrap=True)
    if randomised:
        table.add_column("stable\nASR %", justify="right", no_wrap=True)
    robust = "robust\n%" if several else "robust %\n\\[95 % CI]"
    table.add_column(robust, justify="right", no_wrap=True)
    table.add_column("queries\nmedian", justify="right", no_wrap=True)
    table.add_column("\nmean", justify="right", no_wrap=True)
    for setting, s in lines:
        table.add_row(
            *([escape(setting.name)] if several else []),
            setting.goal,
            f"{number(s.mean_pixels, 1)}/{setting.pixels}",
            *(number(100 * s.asr_at[q].value, 0) if q in s.asr_at else "" for q in marks),
            f"[bold]{percent(s.asr)}",
            *([number(100 * s.stable.value, 0) if s.stable else ""] if randomised else []),
            number(100 * s.robust.value, 0) if several else percent(s.robust),
            number(s.cost.median, 0),
            number(s.cost.mean, 0),
        )
    limits = span(setting.queries for setting, _ in lines)
    table.caption = (
        f"ASR: {_attacked(run, summaries)} the share that was fooled within {limits} queries. "
        f"Robust accuracy: share of all images that are classified correctly to the end. In "
        f"median and mean a failure counts as the limit.{_stable(randomised)}"
    )
    return table


def _fewest_table(run: Run, lines: Sequence[tuple[Setting, Summary]]) -> Table:
    table = plain_table(f"{run.victim} on {run.data}: the fewest pixels")
    several = len({setting.name for setting, _ in lines}) > 1
    randomised = any(s.stable is not None for _, s in lines)
    if several:
        table.add_column("attack", overflow="fold")
    table.add_column("goal", no_wrap=True)
    table.add_column("pixels\n25 %", justify="right", no_wrap=True)
    table.add_column("needed: median\n\\[95 % CI]", justify="right", no_wrap=True)
    table.add_column("\n75 %", justify="right", no_wrap=True)
    table.add_column("mean of\nfooled", justify="right", no_wrap=True)
    asr = "ASR\n%" if several else "ASR %\n\\[95 % CI]"  # the names take the place
    table.add_column(asr, justify="right", no_wrap=True)
    if randomised:
        table.add_column("stable\nASR %", justify="right", no_wrap=True)
    table.add_column("robust\n%", justify="right", no_wrap=True)
    for setting, s in lines:
        assert s.needed is not None
        name = setting.name.removeprefix("minimal ")  # as the title says
        table.add_row(
            *([escape(name)] if several else []),
            setting.goal,
            pixels(s.needed.lower.value, setting.pixels),
            f"[bold]{escape(pixels_within(s.needed.median, setting.pixels))}",
            pixels(s.needed.upper.value, setting.pixels),
            f"{number(s.needed.mean, 1)} ({s.asr.hits})",
            number(100 * s.asr.value, 0) if several else percent(s.asr),
            *([number(100 * s.stable.value, 0) if s.stable else ""] if randomised else []),
            number(100 * s.robust.value, 0),
        )
    limits = span(setting.pixels for setting, _ in lines)
    queries = span(setting.queries for setting, _ in lines)
    table.caption = (
        f"ASR: {_attacked(run, [s for _, s in lines])} the share that was fooled with at most "
        f"{limits} pixels, in {queries} queries. Pixels needed: the fewest with which 25, 50 and "
        f"75 % of them are fooled; > is more than the limit. The mean is over those that were "
        f"fooled (so many). Robust accuracy: share of all images that are classified correctly to "
        f"the end.{_stable(randomised)}"
    )
    return table


def _attacked(run: Run, summaries: Sequence[Summary]) -> str:
    total = [s.images for s in summaries]
    what = "images" if set(total) == {run.images} else "images or pairs of image and target"
    return (
        f"of the {span(s.attacked for s in summaries)} {what} (out of {span(total)}) that the "
        f"victim classifies correctly,"
    )


def _stable(randomised: bool) -> str:
    if not randomised:
        return ""
    return (
        " The victim is randomised: ASR counts first hits, stable ASR those that more than half of "
        "20 fresh answers repeat."
    )


def comparison_table(section: Section) -> Table:
    """A few lines for each match; fits a terminal of 80 columns."""
    table = plain_table()
    several = any(line.seeds for line in section.lines)
    table.add_column("setting", overflow="fold", min_width=12)
    table.add_column("", no_wrap=True)
    table.add_column("base", justify="right", no_wrap=True)
    table.add_column("other", justify="right", no_wrap=True)
    table.add_column("change\n\\[95 % CI]", justify="right", no_wrap=True)
    if several:
        table.add_column("over seeds\nmean, std", justify="right", no_wrap=True)
    for line in section.lines:
        rows = _changes(line)
        label = f"{section.label(line)} ({count(line.sides[0].asr.count, 'pair')})"
        columns = ["\n".join(map(escape, column)) for column in zip(*rows, strict=True)]
        table.add_row(escape(label), *columns[: 5 if several else 4], end_section=True)
    table.caption = _comparison_caption(section)
    return table


def _changes(line: Line) -> list[tuple[str, str, str, str, str]]:
    """For every number of a line its name, both values, the change, and its spread over seeds."""
    base, other = line.sides
    found = line.found

    def change(name: str, neutral: float, form: str, scale: float = 1) -> tuple[str, str]:
        shown = "-" if found is None else estimate(getattr(found, name), neutral, form, scale)
        return shown, varied(line, name, form, scale)

    def share(rate: Rate) -> str:
        return number(100 * rate.value, 1)

    rows = [
        ("ASR %", share(base.asr), share(other.asr), *change("difference", 0, "+.1f", 100)),
        ("robust %", share(base.robust), share(other.robust), *change("robust", 0, "+.1f", 100)),
    ]
    efforts = [number(side.effort, 1) for side in line.sides]
    if not line.minimal:
        return [*rows, ("queries", efforts[0], efforts[1], *change("ratio", 1, ".2f"))]
    medians = [pixels(side.median, line.other.pixels) for side in line.sides]
    return [
        ("pixels, mean", efforts[0], efforts[1], *change("excess", 0, "+.1f")),
        ("ratio", "", "", *change("ratio", 1, ".2f")),
        ("median", medians[0], medians[1], "", ""),
        *rows,
    ]


def _comparison_caption(section: Section) -> str:
    """What the table shows, as far as it does."""
    budget = [line for line in section.lines if not line.minimal]
    said = ["Change: other minus base, shares in points; ratio: other over base."]
    if budget:
        at = " or ".join(map(str, sorted({line.queries for line in budget})))
        said = [
            f"ASR within {at} queries, of the pairs that both attacked; robust accuracy over all "
            f"without error. Change: other minus base in points; of mean queries, a failure "
            f"counting as the limit, other over base."
        ]
    if len(budget) < len(section.lines):
        said.append(FEWEST_COMPARED)
    said.append("*: the interval excludes no change, as it does by chance in 1 of 20.")
    return " ".join(said)


def flag_lines(run: Run) -> list[str]:
    """Reasons to doubt the numbers, one line for each kind (docs/metrics.md)."""
    first: dict[str, tuple[str, str]] = {}
    count: Counter[str] = Counter()
    for setting, flags in run.flags.items():
        for flag in flags:
            count[flag.name] += 1
            first.setdefault(flag.name, (setting.title, flag.text))
    return [
        f"{name} ({title}{_more(count[name] - 1)}): {text}" for name, (title, text) in first.items()
    ]


def _more(number: int) -> str:
    return f" and {number} more" if number else ""


def percent(rate: Rate) -> str:
    """``61 [54, 68]``."""
    if not rate.count:
        return "-"
    low, high = (f"{100 * end:.0f}" for end in rate.interval)
    return f"{100 * rate.value:.0f} [dim]\\[{low}, {high}][/dim]"


def varied(line: Line, name: str, form: str, scale: float = 1) -> str:
    """``+8.2, 1.3``: mean and standard deviation of a change over seeds; empty with one seed.

    It is ``-`` where a seed has no rows yet.
    """
    found = line.seeds.get(name)
    if found is None:
        return ""
    if math.isnan(found.mean):
        return "-"
    return f"{scale * found.mean:{form}}, {scale * found.std:{form.strip('+')}}"
