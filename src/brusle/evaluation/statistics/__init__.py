"""The numbers that come out of stored rows: rates, costs, comparisons, and doubts about them.

All functions take rows of one setting (an attack with its budgets on one victim), and count as
docs/metrics.md says (`brusle.outcomes`). Where a limit is lower than the one that an attack ran
with, a success after more queries is a failure.

A search for the fewest pixels spends all its queries, so that success over queries says nothing
about it. Its rows are summarised by the pixels that they needed.
"""

from brusle.evaluation.statistics.comparing import (
    FEWEST_IMAGES,
    Comparison,
    Match,
    clearly_ahead,
    compare,
    compare_matches,
)
from brusle.evaluation.statistics.costs import Cost, area_under_curve, cost, success_cost
from brusle.evaluation.statistics.counting import (
    attacked,
    robust_accuracy,
    stable_rate,
    success_grid,
    success_rate,
    success_rate_of,
    success_steps,
)
from brusle.evaluation.statistics.flagging import Flag, flags
from brusle.evaluation.statistics.pixels import PixelsNeeded, mean_needed
from brusle.evaluation.statistics.rates import Estimate, Rate
from brusle.evaluation.statistics.seeds import Spread, over_seeds, spread
from brusle.evaluation.statistics.summaries import Summary, by_label, by_target

__all__ = [
    "FEWEST_IMAGES",
    "Comparison",
    "Cost",
    "Estimate",
    "Flag",
    "Match",
    "PixelsNeeded",
    "Rate",
    "Spread",
    "Summary",
    "area_under_curve",
    "attacked",
    "by_label",
    "by_target",
    "clearly_ahead",
    "compare",
    "compare_matches",
    "cost",
    "flags",
    "mean_needed",
    "over_seeds",
    "robust_accuracy",
    "spread",
    "stable_rate",
    "success_cost",
    "success_grid",
    "success_rate",
    "success_rate_of",
    "success_steps",
]
