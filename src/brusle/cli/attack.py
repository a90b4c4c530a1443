"""``brusle attack``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.options import eot_option, search_options, victim_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brusle.report.effects import EffectMaps
    from brusle.results import AttackResult


@click.command()
@click.argument("image", type=click.Path(path_type=Path))
@victim_options
@click.option("--label", help="True class, by name or number. Default: what the victim sees.")
@click.option("--target", help="Class to reach, by name or number. Default: any other class.")
@click.option(
    "--pixels",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Most pixels to change.",
)
@search_options(queries=500)
@eot_option
@click.option(
    "--start",
    type=click.Path(path_type=Path),
    help="Image to start at, for decision-based attacks (of the target class, if there is one), or "
    "that colours come from, with --attack brusle:palette=image.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Adversarial PNG. Default: IMAGE-adversarial.png beside the image.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw original, adversarial image and changed pixels side by side.",
)
@click.option(
    "--effects",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw (.png) or save (.npz) what pixel-bandit expected of every pixel, after 10 and "
    "50 queries and at the end, whether or not it succeeded.",
)
def command(
    image: Path,
    victim: str,
    device: str,
    defences: tuple[str, ...],
    label: str | None,
    target: str | None,
    pixels: int,
    spec: str,
    minimal: bool,
    queries: int,
    seed: int,
    as_json: bool,
    eot: int,
    start: Path | None,
    out: Path | None,
    picture: Path | None,
    effects: Path | None,
) -> int:
    """Attack one IMAGE file and write the adversarial PNG.

    Exits with 1 if no adversarial image was found within the budget of pixels and queries.
    """
    import torch

    from brusle.attacks import make
    from brusle.cli import NOT_FOUND, VICTIM_FAILED
    from brusle.cli.options import open_victim
    from brusle.data import read_image, save_image
    from brusle.errors import VictimError
    from brusle.oracle import Oracle, traits
    from brusle.report.effects import follow, require_bandit, require_format
    from brusle.report.gallery import Example, class_name, count, gallery, require_picture

    attack = make(spec, pixels, queries, minimal)
    if effects is not None:
        require_bandit(attack)
        require_format(effects)
    if picture is not None:
        require_picture(picture)
    model = open_victim(victim, device, defences)
    known = traits(model)
    names: Sequence[str] = known.classes or ()
    aim = None if target is None else class_number(target, names)
    truth = None if label is None else class_number(label, names)
    original = read_image(image, known.shape, known.framing)
    starts = None if start is None else read_image(start, known.shape, known.framing)[None]
    look = Oracle(model, problems=1, limit=0, batch_size=1)
    if truth is None:
        answers = look.ask(torch.zeros(1, dtype=torch.int64), original[None], "clean")
        if answers.errors:
            raise VictimError(f"{image} could not be classified: {answers.errors[0]}")
        truth = int(answers.labels[0])
    options: dict[str, Any] = {"seed": seed, "starts": starts, "eot": eot}
    maps: EffectMaps | None = None
    if effects is None:
        targets = None if aim is None else [aim]
        result = attack(model, original[None], [truth], targets, **options)
    else:
        result, maps = follow(attack, model, original, truth, aim, **options)
    result.ledger.clean += look.ledger.clean

    before = class_name(names, int(result.clean_labels[0]))
    after = class_name(names, int(result.labels[0]))
    found, changed, spent = bool(result.success[0]), int(result.pixels[0]), int(result.queries[0])
    path = out or image.with_name(f"{image.stem}-adversarial.png")
    if found:
        save_image(result.images[0], path)
        if picture is not None:
            note = f"{count(changed, 'pixel')}, {count(spent, 'query')}"
            example = Example(original, result.images[0], before, after, note)
            gallery([example], picture, f"{image.name} and {victim}", columns=1)
    if effects is not None and maps is not None and maps.moments:
        ending = f"{'adversarial' if found else 'best so far'}: {after}"
        _write_effects(maps, effects, f"{image.name} and {victim}", f"original: {before}", ending)
    if as_json:
        click.echo(json.dumps(_as_json(result, names, path if found else None), indent=2))
    elif found:
        effort = f"{count(changed, 'pixel')} changed, {count(spent, 'query')}"
        held = "verified"
        if result.randomised:
            held = "stable" if result.stable[0] else "a first hit that is not stable"
        click.echo(f"{before} -> {after}: {effort}; {held}, written to {path}")
    else:
        click.echo(_why_not(result, before, class_name(names, truth)))
    if result.status[0] in ("error", "unverified"):
        return VICTIM_FAILED
    return 0 if found else NOT_FOUND


def _write_effects(maps: EffectMaps, path: Path, title: str, before: str, after: str) -> None:
    from brusle.report.effects import draw, save

    if path.suffix.lower() == ".npz":
        save(maps, path)
    else:
        draw(maps, path, title, before, after)


def class_number(text: str, names: Sequence[str]) -> int:
    """A class given by name or number."""
    from brusle.errors import InputError
    from brusle.names import hint

    lowered = [name.lower() for name in names]
    if text.lower() in lowered:
        return lowered.index(text.lower())
    if text.isdecimal():
        return int(text)
    advice = hint(text, names, most=3) if names else ": give its number"
    raise InputError(f"unknown class {text!r}{advice}")


def _why_not(result: AttackResult, seen: str, truth: str) -> str:
    if result.status[0] == "skipped":
        return f"not attacked: the victim sees {seen}, which is not the given label {truth}"
    if result.status[0] in ("error", "unverified"):
        return f"{result.status[0]}: {result.errors[0]}"
    limit = f"{result.attack.pixels} pixels and {result.attack.queries} queries"
    return f"still {seen}: no adversarial image found within {limit}"


def _as_json(result: AttackResult, names: Sequence[str], path: Path | None) -> dict[str, Any]:
    from brusle.report.gallery import class_name

    difference = (result.images[0] != result.problems.images[0]).any(0).nonzero().tolist()
    levels = (result.images[0] * 255).round().int()
    return {
        "status": result.status[0],
        "stable": bool(result.stable[0]),
        "error": result.errors.get(0),
        "before": class_name(names, int(result.clean_labels[0])),
        "after": class_name(names, int(result.labels[0])),
        "pixels": int(result.pixels[0]),
        "queries": int(result.queries[0]),
        "ledger": result.ledger.row(0),
        "edits": [
            {"row": row, "column": column, "colour": levels[:, row, column].tolist()}
            for row, column in difference
        ],
        "out": None if path is None else str(path),
    }
