"""What notebooks show of a result and a run: a small table with pictures, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from brusle.errors import BrusleError
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import HIT
from brusle.report.elements import bullets, table
from brusle.report.gallery import png, run_examples
from brusle.report.listings import TableCell
from brusle.report.markup import Html, join, tag
from brusle.report.panels.pictures import changed_pixels, enlarged, levels, magnified
from brusle.report.tables import flag_lines
from brusle.report.wording import number
from brusle.results import AttackResult
from brusle.text import shown

_SIDE = 72  # of a picture
_ROWS, _EXAMPLES, _NOTES = 5, 3, 4
_STYLE = "max-width: 100%; height: auto; vertical-align: middle; margin: 1px"


def in_notebooks(thing: Any) -> str | None:
    """HTML of a result or a run; None if there is nothing to read yet."""
    if isinstance(thing, AttackResult):
        return tag("div", tag("p", repr(thing)), _images(thing))
    try:
        return _run(thing) if isinstance(thing, Run) else None
    except BrusleError:  # closed, or no attack has begun
        return None


def embedded(picture: Image.Image, words: str) -> Html:
    """A picture that is part of the page.

    Args:
        picture: the picture.
        words: the same for those who cannot see it.
    """
    source = f"data:image/png;base64,{png(picture)}"
    return tag("img", src=source, alt=words, style=_STYLE)


def _images(result: AttackResult) -> Html:
    """A few images of a result, those that were fooled first."""
    order = sorted(range(len(result)), key=lambda at: result.status[at] != HIT)[:_ROWS]
    rows = [
        [
            shown(result.names[at]),
            tag("td", *_trio(result.problems.images[at], result.images[at])),
            result.status[at],
            f"{int(result.clean_labels[at])} \N{RIGHTWARDS ARROW} {int(result.labels[at])}",
            str(int(result.pixels[at])),
            str(int(result.queries[at])),
        ]
        for at in order
    ]
    headers = ("image", "original, result, changes", "status", "label", "pixels", "queries")
    more = len(result) - len(rows)
    caption = f"{len(rows)} of {len(result)} images" if more else ""
    return table(headers, rows, caption) if rows else Html()


def _run(run: Run) -> Html:
    rows: list[list[TableCell]] = [
        [
            setting.name,
            setting.goal,
            str(setting.pixels),
            summary.asr,
            summary.robust,
            f"{number(summary.cost.median, 0)} of {setting.queries}",
        ]
        for setting, summary in zip(run.settings, run.summaries(), strict=True)
    ]
    headers = ("attack", "goal", "pixels", "ASR %", "robust accuracy %", "median queries")
    head = f"{run.victim} on {run.images} images of {run.data}"
    where = "" if run.folder is None else f"in {run.folder}"
    notes = [*run.warnings.values(), *flag_lines(run)][:_NOTES]
    made = table(headers, rows, where) if rows else Html()
    return tag("div", tag("p", tag("b", head)), made, bullets(notes), _examples(run))


def _examples(run: Run) -> Html:
    """Images that were fooled, if the originals can be read."""
    try:
        examples = run_examples(run, per_setting=1)[:_EXAMPLES]
    except BrusleError:
        return Html()
    return join(
        *(
            tag(
                "p",
                *_trio(one.original, one.adversarial),
                f" {one.seen_before} \N{RIGHTWARDS ARROW} {one.seen_after}; {one.attack}, "
                f"{one.note} ({one.name})",
            )
            for one in examples
        )
    )


def _trio(original: Any, image: Any) -> Sequence[Html]:
    """Both images and, if they differ, the changed pixels."""
    pictures = [enlarged(levels(one), _SIDE) for one in (original, image)]
    if changed_pixels(original, image).any():
        pictures.append(magnified(original, image, _SIDE))
    words = ("original", "result of the attack", "changed pixels")
    return [embedded(Image.fromarray(p), w) for p, w in zip(pictures, words, strict=False)]
