"""``brusle pairs``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from brusle.cli.options import data_option, targets_option, terms_options, victim_options
from brusle.cli.output import json_option, print_json, say

if TYPE_CHECKING:
    from brusle.terms import Terms


@click.command()
@victim_options
@terms_options
@data_option
@click.option("--images", type=click.IntRange(min=1), help="How many images. Default: all.")
@targets_option
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same choice.")
@click.option(
    "--any-image", is_flag=True, help="Take also images that the victim classifies wrongly."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("pairs.json"),
    show_default=True,
    help="The manifest to write, FILE.json.",
)
@json_option("Print a summary as JSON.")
def command(
    victim: str,
    device: str,
    defences: tuple[str, ...],
    timeout: float | None,
    terms: Terms,
    data: str,
    images: int | None,
    targets: str,
    seed: int,
    any_image: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Choose images and target classes for evaluations, and write them down.

    Images that the victim classifies correctly, evenly over the classes, each with so many target
    classes. `brusle evaluate --pairs` then attacks exactly these; a hash of every image makes sure
    of it.
    """
    from brusle.cli.options import number_or_all
    from brusle.evaluation import choose
    from brusle.evaluation.running.victim import VictimSpec
    from brusle.names import require_ending

    require_ending(out, [".json"])
    model = None if any_image else VictimSpec(victim, device, defences, timeout, terms).open()
    manifest = choose(data, model, images=images, targets=number_or_all(targets), seed=seed)
    manifest.write(out)
    counts = {
        "images": len(manifest.entries),
        "classes": len({entry.label for entry in manifest.entries}),
        "pairs": manifest.pairs,
        "queries": manifest.queries,
        "digest": manifest.digest,
        "out": str(out),
    }
    if as_json:
        print_json(counts)
    else:
        say(
            f"{counts['images']} images of {counts['classes']} classes, {counts['pairs']} pairs, "
            f"chosen with {counts['queries']} queries: written to {out} (digest {manifest.digest})"
        )
