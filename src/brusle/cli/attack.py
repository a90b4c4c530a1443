"""``brusle attack``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.options import eot_option, search_options, terms_options, victim_options
from brusle.cli.output import print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from brusle.attacks.pixel_bandit.effects import EffectMaps
    from brusle.oracle import Oracle
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
    picture: Path | None,
    effects: Path | None,
) -> int:
    """Attack one IMAGE file and write the adversarial PNG.

    The PNG has the size of what was attacked; the output says so, and whether IMAGE was resized or
    cropped to it.

    Exits with 1 if no adversarial image was found within the budget of pixels and queries.
    """
    from brusle.attacks import make
    from brusle.attacks.pixel_bandit.effects import require_bandit
    from brusle.cli import NOT_FOUND, VICTIM_FAILED
    from brusle.evaluation.running.victim import VictimSpec
    from brusle.files import name_beside
    from brusle.outcomes import FAULTY
    from brusle.victim import traits
    from brusle.victims import recorded

    _check_endings(out, picture, effects)
    attack = make(spec, pixels, queries, minimal)
    if effects is not None:
        require_bandit(attack)
    model = VictimSpec(victim, device, defences, timeout, terms).open()
    if journal is not None:
        model = recorded(model, journal)
    aim = None if target is None else _class_of(target, model)
    truth = None if label is None else _class_of(label, model)
    photo = _Photo.read(image, start, model, size)
    options = {"seed": seed, "starts": photo.start, "eot": eot}
    result, maps = _attacked(attack, model, photo, truth, aim, options, follows=effects is not None)

    vocabulary = traits(model).vocabulary
    names: Sequence[str] = traits(model).classes or (vocabulary.names if vocabulary else ())
    path = out or name_beside(image, "-adversarial.png")
    _write_pictures(result, maps, names, f"{image.name} and {victim}", path, picture, effects)
    found = bool(result.success[0])
    if as_json:
        print_json(_as_json(result, names, photo.file_size, path if found else None))
    else:
        say(_told(result, names, photo.file_size, path))
    if result.status[0] in FAULTY:
        return VICTIM_FAILED
    return 0 if found else NOT_FOUND


def _check_endings(out: Path | None, picture: Path | None, effects: Path | None) -> None:
    from brusle.names import require_ending
    from brusle.report.effects import FORMATS
    from brusle.report.gallery import PICTURES

    for asked, endings in ((out, (".png",)), (picture, PICTURES), (effects, FORMATS)):
        if asked is not None:
            require_ending(asked, endings)


@dataclass(frozen=True)
class _Photo:
    """What is attacked: an image file, framed for the victim.

    Attributes:
        path: the file.
        pixels: ``(c, h, w)``.
        file_size: height and width of the file.
        start: ``(1, c, h, w)`` starting image, if one was given.
    """

    path: Path
    pixels: Tensor
    file_size: tuple[int, int]
    start: Tensor | None

    @classmethod
    def read(cls, path: Path, start: Path | None, model: Victim, size: int | None) -> _Photo:
        from brusle.data import read_image
        from brusle.data.images import fit_for, frame, open_picture
        from brusle.victim import check_shape, traits

        framing, shape = fit_for(traits(model), size)
        file = open_picture(path, shape[0] if shape else 3)
        pixels = frame(file, path, shape, framing)
        check_shape(pixels.shape, model, f"pixels of {path}")
        begun = None if start is None else read_image(start, shape, framing)[None]
        return cls(path, pixels, (file.height, file.width), begun)


def _attacked(
    attack: Any,
    model: Victim,
    photo: _Photo,
    truth: int | None,
    aim: int | None,
    options: dict[str, Any],
    follows: bool,
) -> tuple[AttackResult, EffectMaps | None]:
    """The result and, if the attack is followed, what it expected of every pixel."""
    from brusle.attacks.pixel_bandit.effects import follow
    from brusle.evaluation.running.display import watched
    from brusle.oracle import Oracle

    look = Oracle(model, problems=1, limit=0, batch_size=1)
    label = _seen_label(look, photo) if truth is None else truth
    maps: EffectMaps | None = None
    with watched() as display:
        if display is not None:
            options["on_progress"] = partial(display.show, attack, attack.label)
        if follows:
            result, maps = follow(attack, model, photo.pixels, label, aim, **options)
        else:
            targets = None if aim is None else [aim]
            result = attack(model, photo.pixels[None], [label], targets, **options)
    result.ledger.clean += look.ledger.clean
    return result, maps


def _seen_label(look: Oracle, photo: _Photo) -> int:
    """What the victim sees."""
    import torch

    from brusle.errors import VictimError

    answers = look.ask(torch.zeros(1, dtype=torch.int64), photo.pixels[None], "clean")
    if answers.errors:
        raise VictimError(f"{photo.path} could not be classified: {answers.errors[0]}")
    label = int(answers.labels[0])
    if label < 0:
        raise VictimError(f"the victim names no label for {photo.path}: give another image")
    return label


def _write_pictures(
    result: AttackResult,
    maps: EffectMaps | None,
    names: Sequence[str],
    title: str,
    path: Path,
    picture: Path | None,
    effects: Path | None,
) -> None:
    """The adversarial image and the drawings that were asked for."""
    from brusle.data import save_image
    from brusle.report.gallery import Example, write_gallery
    from brusle.report.wording import class_name

    found = bool(result.success[0])
    before, after = (class_name(names, int(x[0])) for x in (result.clean_labels, result.labels))
    if found:
        save_image(result.images[0], path)
        if picture is not None:
            original = result.problems.images[0]
            example = Example(original, result.images[0], before, after, _effort(result))
            write_gallery([example], picture, title, columns=1)
    if effects is not None and maps is not None and maps.moments:
        ending = f"{'adversarial' if found else 'best so far'}: {after}"
        _write_effects(maps, effects, title, f"original: {before}", ending)


def _told(
    result: AttackResult, names: Sequence[str], file_size: tuple[int, int], path: Path
) -> str:
    """What became of it, in a line."""
    from brusle.report.wording import class_name

    before, after = (class_name(names, int(x[0])) for x in (result.clean_labels, result.labels))
    if not result.success[0]:
        return _why_not(result, before, class_name(names, int(result.problems.labels[0])))
    held = "verified"
    if result.randomised:
        held = "stable" if result.stable[0] else "a first hit that is not stable"
    where = f"written to {path} ({_sizes(result.problems.images[0], file_size)})"
    return f"{before} -> {after}: {_effort(result, ' changed')}; {held}, {where}"


def _effort(result: AttackResult, changed: str = "") -> str:
    from brusle.report.wording import count

    pixels, queries = int(result.pixels[0]), int(result.queries[0])
    return f"{count(pixels, 'pixel')}{changed}, {count(queries, 'query')}"


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
