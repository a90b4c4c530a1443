"""``brusle film``."""

from __future__ import annotations

from pathlib import Path

import click

from brusle import defaults
from brusle.cli.output import json_option, print_json, say


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--image", help="Name of the image. Default: one that was fooled.")
@click.option("--attack", help="Name of the attack, if there are several.")
@click.option("--setting", type=int, help="Number of the setting, as messages name it.")
@click.option("--target", help="Class to reach, by name or number, if there are several.")
@click.option("--data", help="Where the original images are. Default: as the run says.")
@click.option(
    "--seconds",
    type=float,
    default=defaults.FILM,
    show_default=True,
    help="Length of the film; it ends with what was found.",
)
@click.option("--dark", is_flag=True, help="For dark screens.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="FILE.webp, FILE.gif, or FILE.mp4, which needs ffmpeg. Default: film-IMAGE-SETTING.webp "
    "in the run folder.",
)
@json_option("Print what was written as JSON.")
def command(
    run: Path,
    image: str | None,
    attack: str | None,
    setting: int | None,
    target: str | None,
    data: str | None,
    seconds: float,
    dark: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write a search of the folder RUN as a film of a few seconds; also while it is running.

    Pixels appear, scores move, the loss falls, and below them is what the search has learned. It
    needs a trace (`brusle evaluate --trace`), and the original images. No victim is asked.
    """
    from brusle.cli.attack import class_number
    from brusle.evaluation.storing.choosing import choose
    from brusle.evaluation.storing.runs import Run
    from brusle.files import require_plain
    from brusle.report.film import film_of, require_film, traced, write_film

    if out is not None:
        require_film(out)
    opened = Run.open(run, data)
    with opened.store:
        aim = None if target is None else class_number(target, opened.classes)
        images = [] if image is None else [image]
        fitting = choose(opened, images, attack, setting, aim)
        chosen = traced(opened, fitting, one_of_many=image is None)
        film = film_of(opened, chosen)
        path = out or run / f"film-{chosen.file_name}-{chosen.setting.slug}.webp"
        if out is None:
            require_plain(path)
        made = write_film(film, path, seconds, dark)
    if as_json:
        print_json(
            {
                "film": str(path),
                "image": chosen.row.image,
                "attack": chosen.setting.attack,
                "setting": chosen.setting.number,
                "target": chosen.row.target,
                "status": chosen.row.status,
                "queries": chosen.row.queries,
                "frames": made.frames,
                "seconds": made.seconds,
                "bytes": made.size,
            }
        )
    else:
        say(f"{film.title}: {film.ending}")
        say(f"film of {made.seconds:g} s written to {path} ({made.size / 2**20:.1f} MB)")
