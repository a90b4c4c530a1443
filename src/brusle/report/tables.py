"""The final table, for a terminal."""

from __future__ import annotations

import math
from collections import Counter

from rich import box
from rich.table import Table

from brusle.evaluation.metrics import Rate
from brusle.evaluation.runs import Run
from brusle.evaluation.statistics import Estimate
from brusle.report.comparison import excludes
from brusle.report.content import span


def plain_table(title: str | None = None) -> Table:
    """An empty table without vertical lines, as all commands print them."""
    return Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def summary_table(run: Run) -> Table:
    """One line per goal and budget; fits a terminal of 80 columns."""
    table = plain_table(f"{run.victim} on {run.data}")
    summaries = run.summaries()
    marks = list(dict.fromkeys(q for s in summaries for q in s.asr_at))[-3:-1]
    several = len({setting.name for setting in run.settings}) > 1
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
    for setting, s in zip(run.settings, summaries, strict=True):
        table.add_row(
            *([setting.name] if several else []),
            setting.goal,
            f"{number(s.mean_pixels, 1)}/{setting.pixels}",
            *(number(100 * s.asr_at[q].value, 0) if q in s.asr_at else "" for q in marks),
            f"[bold]{percent(s.asr)}",
            *([number(100 * s.stable.value, 0) if s.stable else ""] if randomised else []),
            number(100 * s.robust.value, 0) if several else percent(s.robust),
            number(s.cost.median, 0),
            number(s.cost.mean, 0),
        )
    limits = [setting.queries for setting in run.settings]
    attacked = [s.attacked for s in summaries]
    total = [s.images for s in summaries]
    what = "images" if set(total) == {run.images} else "images or pairs of image and target"
    table.caption = (
        f"ASR: of the {span(attacked)} {what} (out of {span(total)}) that the victim "
        f"classifies correctly, the share that was fooled within {span(limits)} queries. "
        f"Robust accuracy: share of all images that are classified correctly to the end. In "
        f"median and mean a failure counts as the limit."
    )
    if randomised:
        table.caption += (
            " The victim is randomised: ASR counts first hits, stable ASR those that more than "
            "half of 20 fresh answers repeat."
        )
    return table


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


def estimate(found: Estimate, neutral: float, form: str, scale: float = 1) -> str:
    """``+8.2* [+1.5, +14.9]``; the star says that the interval excludes ``neutral``."""
    value, low, high = (f"{scale * x:{form}}" for x in (found.value, found.low, found.high))
    return f"{value}{'*' if excludes(found, neutral) else ''} [{low}, {high}]"


def number(value: float, digits: int) -> str:
    """A number, or ``-`` if there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
