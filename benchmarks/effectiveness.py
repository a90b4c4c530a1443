"""How often BruSLe fools the bundled net: all 200 bundled images, several budgets.

    python benchmarks/effectiveness.py [--seeds 3] [--queries 500] [--variant reference]
        [--figures docs/figures/effectiveness.json]

Success rates are over the images that the net classifies correctly; targets are one random other
class per image. With several seeds, targets and search are drawn anew for each, and the rates
are over all attacks.
"""

from __future__ import annotations

import argparse

import written
from rich.console import Console
from rich.table import Table

import brusle
from brusle.attacks import BruSLe
from brusle.evaluation.statistics import Rate

BUDGETS = {"targeted": (10, 20), "untargeted": (1, 3, 5, 10)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--variant", choices=("paper", "reference"), default="paper")
    written.add_option(parser)
    args = parser.parse_args()
    marks = [q for q in (50, 100, 150, 200, 300, 400, 500) if q <= args.queries]
    table = Table(title=f"ASR %, zoo:cifar10-resnet20, BruSLe ({args.variant}), 200 images")
    for name in ("goal", "pixels", "attacks", *(f"@{q}" for q in marks), "95 % CI", "mean queries"):
        table.add_column(name, justify="right")
    shown = [q for q in marks if q != 150]  # in the documentation
    figures = [["goal", "pixels", *(f"@{q}" for q in shown), "mean queries"]]
    for goal, budgets in BUDGETS.items():
        for pixels in budgets:
            attack = BruSLe(pixels, args.queries, variant=args.variant)
            runs = [
                brusle.evaluate(attacks=[attack], goal=goal, seed=seed).results[0]  # type: ignore
                for seed in range(args.seeds)
            ]
            count = sum(int(r.attacked.sum()) for r in runs)
            hits = [q for r in runs for q in r.queries[r.success].tolist()]
            cost = sum(hits) + args.queries * (count - len(hits))
            rates = {q: Rate(sum(h <= q for h in hits), count) for q in marks}
            low, high = rates[marks[-1]].interval
            percent = [f"{100 * rates[q].value:.0f}" for q in shown]
            figures.append([goal, str(pixels), *percent, f"{cost / count:.0f}"])
            table.add_row(
                goal,
                str(pixels),
                str(count),
                *(f"{100 * rate.value:.1f}" for rate in rates.values()),
                f"{100 * low:.0f} to {100 * high:.0f}",
                f"{cost / count:.0f}",
            )
    Console(width=110).print(table)
    written.write(args.figures, {"rates": figures})


if __name__ == "__main__":
    main()
