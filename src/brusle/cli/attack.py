"""``brusle attack``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.drawings import Drawings, drawing_options
from brusle.cli.options import eot_option, search_options, terms_options, victim_options
from brusle.cli.output import print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from brusle.data.photos import Photo
    from brusle.results import AttackResult
    from brusle.terms import Terms
    from brusle.victim import Victim


@click.command()
@click.argument("image", type=click.Path(path_type=Path))
@victim_options
@terms_options
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep every answer in FILE, and take it from there the next time: nothing is asked, or "
    "paid, twice.",
)
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
@drawing_options
def command(
    image: Path,
    victim: str,
    device: str,
    defences: tuple[str, ...],
    timeout: float | None,
    terms: Terms,
    journal: Path | None,
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
    drawings: Drawings,
) -> int:
    """Attack one IMAGE file and write the adversarial PNG.

    The PNG has the size of what was attacked; the output says so, and whether IMAGE was resized or
    cropped to it.

    Exits with 1 if no adversarial image was found within the budget of pixels and queries.
    """
    from brusle.attacks import make
    from brusle.cli import NOT_FOUND, VICTIM_FAILED
    from brusle.data import save_image
    from brusle.data.photos import Photo
    from brusle.evaluation.running.victim import VictimSpec
    from brusle.files import name_beside
    from brusle.names import require_ending
    from brusle.outcomes import FAULTY
    from brusle.report.single import told
    from brusle.victim import traits
    from brusle.victims import recorded

    if out is not None:
        require_ending(out, [".png"])
    attack = make(spec, pixels, queries, minimal)
    drawings.check(attack)
    model = VictimSpec(victim, device, defences, timeout, terms).open()
    if journal is not None:
        model = recorded(model, journal)
    aim = None if target is None else _class_of(target, model)
    truth = None if label is None else _class_of(label, model)
    photo = Photo.read(image, model, size)
    starts = None if start is None else Photo.read(start, model, size).pixels[None]
    options = {"seed": seed, "starts": starts, "eot": eot, "trace": drawings.traced}
    result = _attacked(attack, model, photo, truth, aim, options)
    result.names = [image.stem]

    vocabulary = traits(model).vocabulary
    names: Sequence[str] = traits(model).classes or (vocabulary.names if vocabulary else ())
    path = out or name_beside(image, "-adversarial.png")
    found = bool(result.success[0])
    if found:
        save_image(result.images[0], path)
    if as_json:
        print_json(_as_json(result, names, photo.file_size, path if found else None))
    else:
        size_of = _sizes(result.problems.images[0], photo.file_size)
        say(told(result, names, f"written to {path} ({size_of})"))
    drawings.write(result, attack, model, names, image)
    if result.status[0] in FAULTY:
        return VICTIM_FAILED
    return 0 if found else NOT_FOUND


def _attacked(
    attack: Any,
    model: Victim,
    photo: Photo,
    truth: int | None,
    aim: int | None,
    options: dict[str, Any],
) -> AttackResult:
    from brusle.evaluation.running.display import watched
    from brusle.seeing import seen_label

    label, asked = seen_label(model, photo.pixels, photo.name) if truth is None else (truth, 0)
    with watched() as display:
        if display is not None:
            options["on_progress"] = partial(display.show, attack, attack.label)
        targets = None if aim is None else [aim]
        result: AttackResult = attack(model, photo.pixels[None], [label], targets, **options)
    result.ledger.clean += asked
    return result


def _sizes(attacked: Tensor, file_size: tuple[int, int]) -> str:
    """The size of the PNG, and that of the file if it is another."""
    _, height, width = attacked.shape
    text = f"{height} x {width} pixels"
    if (height, width) == file_size:
        return text
    return f"{text}, resized or cropped from {file_size[0]} x {file_size[1]}"


def _class_of(text: str, model: Victim) -> int:
    """The class that a user means; a label that the victim has not named yet gets a number."""
    from brusle.victim import traits

    said = traits(model)
    if said.vocabulary is not None:
        return said.vocabulary.column(text)
    return class_number(text, said.classes or ())


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


def _as_json(
    result: AttackResult, names: Sequence[str], file_size: tuple[int, int], path: Path | None
) -> dict[str, Any]:
    from brusle.report.single import facts

    difference = (result.images[0] != result.problems.images[0]).any(0).nonzero().tolist()
    levels = (result.images[0] * 255).round().int()
    return {
        **facts(result, names),
        "edits": [
            {"row": row, "column": column, "colour": levels[:, row, column].tolist()}
            for row, column in difference
        ],
        "size": list(result.images.shape[2:]),
        "file_size": list(file_size),
        "out": None if path is None else str(path),
    }
