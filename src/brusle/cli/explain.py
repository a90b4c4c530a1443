"""``brusle explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.options import look_options, reopening_options, terms_options, timeout_option
from brusle.cli.output import json_option, print_json, say

if TYPE_CHECKING:
    from brusle.evaluation.storing.choosing import Chosen
    from brusle.evaluation.storing.runs import Run
    from brusle.explaining.asking import Wish
    from brusle.terms import Terms

_FEW = 4  # that are explained if nobody says which


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME",
    help=f"Name of an image; repeat for several. Default: {_FEW} that were fooled, in different "
    "settings where there are.",
)
@click.option("--attack", help="Only this attack, as tables or commands name it.")
@click.option("--setting", type=int, help="Only the setting of this number, as in `status --json`.")
@click.option("--target", help="Only attacks to this class, by name or number.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the pictures. Default: explain in the run folder.",
)
@click.option(
    "--by-pixels",
    is_flag=True,
    help="Instead, draw one sheet, by-pixels.png: images below each other, and for each the "
    "adversarial images of all pixel budgets beside each other. Asks no victim.",
)
@look_options
@reopening_options
@timeout_option
@terms_options
@click.option("--dark", is_flag=True, help="For dark screens.")
@json_option("Print what was written as JSON.")
def command(
    run: Path,
    images: tuple[str, ...],
    attack: str | None,
    setting: int | None,
    target: str | None,
    out: Path | None,
    by_pixels: bool,
    wish: Wish,
    victim: str | None,
    defences: tuple[str, ...],
    device: str,
    data: str | None,
    timeout: float | None,
    terms: Terms,
    dark: bool,
    as_json: bool,
) -> None:
    """Draw what happened to images of the folder RUN; also while it is running.

    For each a sheet, NAME.png, and its panels in the folder NAME: original, adversarial image,
    changed pixels magnified and where most are; what the victim said and where it looks, before and
    after; of BruSLe its synthetic image, dissimilarity map and theta, of PixelBandit its effects,
    and the loss over queries. What the search knew needs traces (`brusle evaluate --trace`).

    Where the victim looks is asked beside the attack and booked to none. A victim that runs code of
    others, or a service, is not opened because the folder names it: name it with --victim.
    """
    from brusle.cli.attack import class_number
    from brusle.evaluation.storing.choosing import choose, few
    from brusle.evaluation.storing.runs import Run
    from brusle.explaining.entry import explanations
    from brusle.files import require_plain

    place = out or run / "explain"
    opened = Run.open(run, data)
    if out is None:
        require_plain(place)
    with opened.store:
        aim = None if target is None else class_number(target, opened.classes)
        chosen = choose(opened, images, attack, setting, aim)
        wanted = chosen if images else few(opened, chosen, _FEW)
        if by_pixels:
            _draw_by_pixels(opened, chosen, wanted, place / "by-pixels.png", dark, as_json)
            return
        made = explanations(
            opened,
            wanted or chosen[:1],
            victim,
            wish,
            defences=defences or None,
            device=device,
            timeout=timeout,
            terms=terms,
        )
        told: list[dict[str, Any]] = []
        notes: set[str] = set()
        for one, explained in zip(wanted or chosen[:1], made, strict=True):
            sheet, *others = explained.save(place / one.setting.slug, dark)
            about = {"image": one.row.image, "setting": one.setting.number}
            about |= {"attack": one.setting.title, "target": one.row.target}
            about |= {"status": one.row.status, "asked": explained.asked}
            files = {"sheet": str(sheet), "files": [str(path) for path in others]}
            told.append(about | files | {"notes": list(explained.notes)})
            if not as_json:
                say(f"{one.row.image}, {one.setting.title}: {sheet}")
                for note in explained.notes:
                    if note not in notes:
                        say(f"  {note}", dim=True)
                notes.update(explained.notes)
    if as_json:
        print_json(told)


def _draw_by_pixels(
    run: Run, chosen: list[Chosen], wanted: list[Chosen], path: Path, dark: bool, as_json: bool
) -> None:
    """One sheet of the images that are wanted, with all that was chosen of them."""
    from brusle.report.budget_sheet import write_budgets
    from brusle.report.style import style_of

    images = list(dict.fromkeys(one.row.image for one in wanted))
    write_budgets(run, [one for one in chosen if one.row.image in images], path, style_of(dark))
    if as_json:
        print_json({"sheet": str(path), "images": images})
    else:
        say(f"{', '.join(images)}: {path}")
