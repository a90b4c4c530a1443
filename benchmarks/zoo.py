"""Robustness of the zoo: the table in docs/zoo.md and the README.

    python benchmarks/zoo.py                    # all models; about 20 minutes on two cores
    python benchmarks/zoo.py --limit 50         # rougher and quicker

Each bundled net, and the plain one behind RND: accuracy on the test set, accuracy under PGD in the
norm that it was trained for (both from its card), and on the bundled images accuracy under BruSLe,
untargeted, with the paper's settings. Accuracy counts all images, so that nets of different clean
accuracy can be compared.
"""

from __future__ import annotations

import argparse

import written

import brusle
from brusle.attacks import BruSLe
from brusle.defences import make
from brusle.evaluation.statistics import Rate

PIXELS = (4, 8, 12, 16)
PLAIN = "cifar10-resnet20"
RADII = {"linf": "l_inf 8/255", "l2": "l_2 0.5", "l1": "l_1 12", "l0": "24 pixels"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--models", nargs="+", default=[*brusle.zoo.names(), f"{PLAIN}+rnd:0.02"])
    written.add_option(parser)
    args = parser.parse_args()
    data = brusle.data.load("sample", args.limit)
    heads = ["model", "test accuracy", "under own PGD", "accuracy here"]
    heads += [f"{pixels} px" for pixels in PIXELS]
    lines = [heads]
    print(written.markdown(lines), end="", flush=True)
    for model in args.models:
        name, _, spec = model.partition("+")
        lines.append(row(name, spec or None, data, args.queries))
        print(written.line(lines[-1]), flush=True)
    written.write(args.figures, {"accuracy": lines})


def row(name: str, spec: str | None, data: brusle.data.Dataset, queries: int) -> list[str]:
    """One line of the table: a model, with a defence before it if ``spec`` says so."""
    victim, card = brusle.load_victim(f"zoo:{name}"), brusle.zoo.card(name)
    if spec is not None:
        victim = make(spec, victim)
    attacks = [BruSLe(pixels, queries) for pixels in PIXELS]
    run = brusle.evaluate(victim, data, attacks, "untargeted")
    results = run.results
    clean = int(results[0].attacked.sum())
    cells = [
        f"`{name}`" + (f" + {spec}" if spec else ""),
        f"{100 * card['test_accuracy']:.1f}" if spec is None else "",
        f"{100 * card['robust_accuracy']:.1f} ({RADII[card['threat']]})"
        if spec is None and "threat" in card
        else "",
        percent(Rate(clean, len(data))),
    ]
    for result, summary in zip(results, run.summaries(), strict=True):
        text = percent(summary.robust)
        if result.randomised:
            kept = int((result.attacked & ~result.stable).sum())
            text += f" (stable {percent(Rate(kept, len(data)))})"
        cells.append(text)
    return cells


def percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f}"


if __name__ == "__main__":
    main()
