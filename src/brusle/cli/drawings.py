"""What ``brusle attack`` writes beside the adversarial image: pictures, a trace, a film."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.options import apply_all, look_options
from brusle.cli.output import say

if TYPE_CHECKING:
    from brusle.explaining.asking import Wish
    from brusle.results import AttackResult
    from brusle.victim import Victim

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Drawings:
    """What is wanted; None is not.

    Attributes:
        picture: both images and the changed pixels.
        effects: what the search believed of each pixel.
        trace: what it found on its way.
        film: the same as a film.
        explain: folder of an explanation.
        wish: how to look, for the latter.
        dark: for dark screens.
    """

    picture: Path | None
    effects: Path | None
    trace: Path | None
    film: Path | None
    explain: Path | None
    wish: Wish
    dark: bool

    @property
    def traced(self) -> bool:
        """Whether a trace is needed."""
        return any((self.effects, self.trace, self.film, self.explain))

    def check(self, attack: Any) -> None:
        """Raise before the first query if something cannot be written."""
        from brusle.explaining.asking import AUTO
        from brusle.explaining.beliefs import FORMATS, require_beliefs
        from brusle.names import require_ending
        from brusle.report.film import require_film
        from brusle.report.gallery import PICTURES

        wanted = ((self.picture, PICTURES), (self.effects, FORMATS), (self.trace, (".json",)))
        for path, endings in wanted:
            if path is not None:
                require_ending(path, endings)
        if self.film is not None:
            require_film(self.film)
        if self.effects is not None:
            require_beliefs(attack)
        if self.wish != AUTO and self.explain is None:
            raise click.UsageError("--look and --layer say what --explain draws: give it, too")

    def write(
        self, result: AttackResult, attack: Any, model: Victim, names: Sequence[str], image: Path
    ) -> None:
        """Write all that is wanted and can be had.

        Args:
            result: of the attack on one image.
            attack: the attack.
            model: who was attacked.
            names: of the classes.
            image: the file that was attacked.
        """
        if self.picture is not None and bool(result.success[0]):
            _write_picture(result, names, f"{image.name} and {model.name}", self.picture)
        if 0 in result.traces:
            self._write_trace(result, names, image.name, model.name)
        self._write_explanation(result, attack, model, names)

    def _write_trace(
        self, result: AttackResult, names: Sequence[str], image: str, victim: str
    ) -> None:
        from brusle.files import write_text
        from brusle.report.film import film_of_result, write_film

        if self.trace is not None:
            write_text(self.trace, json.dumps(result.traces[0].as_dict()) + "\n")
        if self.film is not None:
            film = film_of_result(result, names, image, victim)
            if film is not None:
                write_film(film, self.film, dark=self.dark)

    def _write_explanation(
        self, result: AttackResult, attack: Any, model: Victim, names: Sequence[str]
    ) -> None:
        """What the search believed, and what happened."""
        from brusle.explaining import explain
        from brusle.explaining.beliefs import write_beliefs

        about: dict[str, Any] = {"attack": attack, "classes": names}
        if self.effects is not None and 0 in result.traces:
            write_beliefs(explain(result, look="none", **about), self.effects, self.dark)
        if self.explain is not None:
            look: dict[str, Any] = {"look": self.wish.how, "layer": self.wish.layer}
            explained = explain(result, model, **look, **about)
            sheet, *_ = explained.save(self.explain, self.dark)
            for note in (f"explained in {sheet}", *explained.notes):
                say(note, err=True, dim=True)


def drawing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--picture``, ``--effects``, ``--trace``, ``--film``, ``--explain``, and how to draw.

    The command gets them as ``drawings``.
    """
    options = (
        click.option(
            "--picture",
            type=_FILE,
            help="Also draw original, adversarial image and changed pixels side by side, to "
            "FILE.png (or .jpg, .webp, .pdf).",
        ),
        click.option(
            "--effects",
            type=_FILE,
            help="Also draw (.png) or save (.npz) what brusle or pixel-bandit believed of every "
            "pixel as it went on, whether or not it succeeded.",
        ),
        click.option(
            "--trace",
            type=_FILE,
            help="Also write what the search found on its way, to FILE.json.",
        ),
        click.option(
            "--film",
            type=_FILE,
            help="Also write the search as a film of a few seconds, to FILE.webp, FILE.gif, or "
            "FILE.mp4, which needs ffmpeg.",
        ),
        click.option(
            "--explain",
            type=click.Path(file_okay=False, path_type=Path),
            help="Also draw what happened, as `brusle explain` does, to this folder: one sheet, "
            "its panels, and the trace. The attack is the same, and so are its queries.",
        ),
        look_options,
        click.option(
            "--dark", is_flag=True, help="For dark screens: --effects, --film and --explain."
        ),
    )

    @functools.wraps(command)
    def with_drawings(
        *args: Any,
        picture: Path | None,
        effects: Path | None,
        trace: Path | None,
        film: Path | None,
        explain: Path | None,
        wish: Wish,
        dark: bool,
        **values: Any,
    ) -> Any:
        drawings = Drawings(picture, effects, trace, film, explain, wish, dark)
        return command(*args, drawings=drawings, **values)

    return apply_all(options, with_drawings)


def _write_picture(result: AttackResult, names: Sequence[str], title: str, path: Path) -> None:
    from brusle.report.gallery import Example, write_gallery
    from brusle.report.single import before_and_after, effort

    before, after = before_and_after(result, names)
    original = result.problems.images[0]
    example = Example(original, result.images[0], before, after, effort(result))
    write_gallery([example], path, title, columns=1)
