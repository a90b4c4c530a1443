"""``brusle attack``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.options import eot_option, search_options, victim_options
from brusle.cli.output import print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from brusle.attacks.pixel_bandit.effects import EffectMaps
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
    "--size",
    type=click.IntRange(min=2),
    help="Bring the image to SIZE x SIZE: shorter side resized, middle cut out. Default: as the "
    "victim frames photographs, and as it is if the victim does not say.",
)
@click.option(
    "--start",
    type=click.Path(path_type=Path),
    help="Image to start at, for decision-based attacks (of the target class, if there is one), or "
    "that colours come from, with --attack brusle:palette=image.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Adversarial image, to FILE.png. Default: IMAGE-adversarial.png beside the image.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw original, adversarial image and changed pixels side by side, to FILE.png (or "
    ".jpg, .webp, .pdf).",
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
    timeout: float | None,
    label: str | None,
    target: str | None,
    pixels: int,
    spec: str,
    minimal: bool,
    queries: int,
    seed: int,
    as_json: bool,
    eot: int,
    size: int | None,
    start: Path | None,
    out: Path | None,
    picture: Path | None,
    effects: Path | None,
) -> int:
    """Attack one IMAGE file and write the adversarial PNG.

    The PNG has the size of what was attacked; the output says so, and whether IMAGE was resized or
    cropped to it.

    Exits with 1 if no adversarial image was found within the budget of pixels and queries.
    """
    import torch

    from brusle.attacks import make
    from brusle.attacks.pixel_bandit.effects import follow, require_bandit
    from brusle.cli import NOT_FOUND, VICTIM_FAILED
    from brusle.data import read_image, save_image
    from brusle.data.images import fit_for, frame, open_picture
    from brusle.errors import VictimError
    from brusle.evaluation.running.display import watched
    from brusle.evaluation.running.victim import VictimSpec
    from brusle.files import name_beside
    from brusle.names import require_ending
    from brusle.oracle import Oracle
    from brusle.outcomes import FAULTY
    from brusle.report.effects import FORMATS
    from brusle.report.gallery import PICTURES, Example, write_gallery
    from brusle.report.wording import class_name, count
    from brusle.victim import check_shape, traits

    for asked, endings in ((out, (".png",)), (picture, PICTURES), (effects, FORMATS)):
        if asked is not None:
            require_ending(asked, endings)
    attack = make(spec, pixels, queries, minimal)
    if effects is not None:
        require_bandit(attack)
    model = VictimSpec(victim, device, defences, timeout).open()
    known = traits(model)
    names: Sequence[str] = known.classes or ()
    aim = None if target is None else class_number(target, names)
    truth = None if label is None else class_number(label, names)
    framing, shape = fit_for(known, size)
    file = open_picture(image, shape[0] if shape else 3)
    original = frame(file, image, shape, framing)
    check_shape(original.shape, model, f"pixels of {image}")
    starts = None if start is None else read_image(start, shape, framing)[None]
    look = Oracle(model, problems=1, limit=0, batch_size=1)
    if truth is None:
        answers = look.ask(torch.zeros(1, dtype=torch.int64), original[None], "clean")
        if answers.errors:
            raise VictimError(f"{image} could not be classified: {answers.errors[0]}")
        truth = int(answers.labels[0])
    options: dict[str, Any] = {"seed": seed, "starts": starts, "eot": eot}
    maps: EffectMaps | None = None
    with watched() as display:
        if display is not None:
            options["on_progress"] = partial(display.show, attack, attack.label)
        if effects is None:
            targets = None if aim is None else [aim]
            result = attack(model, original[None], [truth], targets, **options)
        else:
            result, maps = follow(attack, model, original, truth, aim, **options)
    result.ledger.clean += look.ledger.clean

    before = class_name(names, int(result.clean_labels[0]))
    after = class_name(names, int(result.labels[0]))
    found, changed, spent = bool(result.success[0]), int(result.pixels[0]), int(result.queries[0])
    path = out or name_beside(image, "-adversarial.png")
    file_size = (file.height, file.width)
    if found:
        save_image(result.images[0], path)
        if picture is not None:
            note = f"{count(changed, 'pixel')}, {count(spent, 'query')}"
            example = Example(original, result.images[0], before, after, note)
            write_gallery([example], picture, f"{image.name} and {victim}", columns=1)
    if effects is not None and maps is not None and maps.moments:
        ending = f"{'adversarial' if found else 'best so far'}: {after}"
        _write_effects(maps, effects, f"{image.name} and {victim}", f"original: {before}", ending)
    if as_json:
        said = _as_json(result, names, file_size, path if found else None)
        print_json(said)
    elif found:
        effort = f"{count(changed, 'pixel')} changed, {count(spent, 'query')}"
        held = "verified"
        if result.randomised:
            held = "stable" if result.stable[0] else "a first hit that is not stable"
        where = f"written to {path} ({_sizes(original, file_size)})"
        say(f"{before} -> {after}: {effort}; {held}, {where}")
    else:
        say(_why_not(result, before, class_name(names, truth)))
    if result.status[0] in FAULTY:
        return VICTIM_FAILED
    return 0 if found else NOT_FOUND


def _write_effects(maps: EffectMaps, path: Path, title: str, before: str, after: str) -> None:
    from brusle.report.effects import draw, save

    if path.suffix.lower() == ".npz":
        save(maps, path)
    else:
        draw(maps, path, title, before, after)


def _sizes(attacked: Tensor, file_size: tuple[int, int]) -> str:
    """The size of the PNG, and that of the file if it is another."""
    _, height, width = attacked.shape
    text = f"{height} x {width} pixels"
    if (height, width) == file_size:
        return text
    return f"{text}, resized or cropped from {file_size[0]} x {file_size[1]}"


def class_number(text: str, names: Sequence[str]) -> int:
    """A class given by name or number."""
    from brusle.errors import InputError
    from brusle.names import hint, whole_number
    from brusle.text import brief

    lowered = [name.lower() for name in names]
    if text.lower() in lowered:
        return lowered.index(text.lower())
    number = whole_number(text)
    if number is not None:
        return number
    advice = hint(text, names, most=3) if names else ": give its number"
    raise InputError(f"unknown class {brief(text)}{advice}")


def _why_not(result: AttackResult, seen: str, truth: str) -> str:
    from brusle.outcomes import FAULTY

    if result.status[0] == "skipped":
        return f"not attacked: the victim sees {seen}, which is not the given label {truth}"
    if result.status[0] in FAULTY:
        return f"{result.status[0]}: {result.errors[0]}"
    limit = f"{result.attack.pixels} pixels and {result.attack.queries} queries"
    return f"still {seen}: no adversarial image found within {limit}"


def _as_json(
    result: AttackResult, names: Sequence[str], file_size: tuple[int, int], path: Path | None
) -> dict[str, Any]:
    from brusle.report.wording import class_name

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
        "size": list(result.images.shape[2:]),
        "file_size": list(file_size),
        "out": None if path is None else str(path),
    }
