"""Films as files: WebP and GIF by Pillow, MP4 by ffmpeg."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image

from brusle import defaults
from brusle.errors import DataError, InputError
from brusle.files import written
from brusle.names import require_ending
from brusle.report.film.frames import BIG, HEIGHT, WIDTH, frames
from brusle.report.film.story import Film, Moment
from brusle.report.panels import Picture, levels
from brusle.report.style import Style, style_of
from brusle.text import shortened

FILMS = (".webp", ".gif", ".mp4")  # what `write_film` can write
_FFMPEG = "ffmpeg"
_COLOURS = 256  # of a GIF
_OWN = 64  # of these, at most, for changed pixels
_NEAR = 8  # levels
_RATE = 20  # frames of a second of an MP4, which has no others


@dataclass(frozen=True)
class Written:
    """A film that was written.

    Attributes:
        frames: how many different ones it has.
        seconds: how long it is.
        size: bytes of the file.
    """

    frames: int
    seconds: float
    size: int


def require_film(path: str | Path) -> str:
    """The ending of a film's name in small letters; raise if no such film can be written."""
    ending = require_ending(path, FILMS)
    if ending == ".mp4" and shutil.which(_FFMPEG) is None:
        raise InputError("MP4 needs ffmpeg, which is not installed: write FILE.webp or FILE.gif")
    return ending


def write_film(
    film: Film, path: str | Path, seconds: float = defaults.FILM, dark: bool = False
) -> Written:
    """Draw a film, and write it to ``path``, in one of the formats `FILMS`.

    Args:
        film: what to draw.
        path: the file.
        seconds: how long it shall be; WebP and GIF begin again then.
        dark: for dark screens.
    """
    ending = require_film(path)
    moments, style = film.moments(seconds), style_of(dark)
    pictures = frames(film, [moment.query for moment in moments], style)
    with written(path) as place:
        if ending == ".mp4":
            _write_mp4(place, pictures, moments)
        else:
            _write_animation(place, ending, pictures, moments, film, style)
        size = place.stat().st_size
    return Written(len(moments), sum(one.milliseconds for one in moments) / 1000, size)


def _write_animation(
    path: Path,
    ending: str,
    pictures: Iterable[Picture],
    moments: Sequence[Moment],
    film: Film,
    style: Style,
) -> None:
    drawn = [Image.fromarray(picture) for picture in pictures]
    options: dict[str, Any] = {
        "duration": [one.milliseconds for one in moments],
        "loop": 0,
        "save_all": True,
    }
    if ending == ".gif":
        palette = _palette(drawn, film, style)  # one for all frames, or colours would flicker
        drawn = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in drawn]
        drawn[0].save(path, "GIF", append_images=drawn[1:], optimize=True, **options)
    else:
        # without loss, so that a changed pixel has its own colour; nobody jumps to a key frame
        options |= {"lossless": True, "method": 4, "kmax": 0}
        drawn[0].save(path, "WEBP", append_images=drawn[1:], **options)


def _palette(drawn: Sequence[Image.Image], film: Film, style: Style) -> Image.Image:
    """The colours of a GIF.

    Those of the style and of changed pixels come first, for they are few and small, and would be
    lost in a photograph; then those of the other panels, and of the images.
    """
    firm = [*_rgbs(style), *_painted(film)]
    found = [*firm]
    samples = [drawn[0], drawn[len(drawn) // 2], drawn[-1]]
    right = BIG[0] + BIG[2]
    for box, share in (((right, 0, WIDTH, HEIGHT), 3), ((0, 0, right, HEIGHT), 1)):
        room = (_COLOURS - len(found)) // share
        others = _commonest([one.crop(box) for one in samples], room)
        # Pillow looks colours up roughly: a near one would be taken in place of the exact one
        found += [one for one in others if not any(_near(one, exact) for exact in firm)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([level for colour in found for level in colour])
    return palette


def _near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= _NEAR


def _rgbs(style: Style) -> list[tuple[int, ...]]:
    named = (style.paper, style.ink, style.faint, style.line, style.accent, style.aim, style.card)
    return [tuple(bytes.fromhex(colour[1:])) for colour in named]


def _painted(film: Film) -> list[tuple[int, ...]]:
    """The colours that changed pixels have most often."""
    times = Counter(
        tuple(pixel)
        for one in film.trace.improvements
        for pixel in (levels(one.levels.T[:, None] / 255)[0]).tolist()
    )
    return [colour for colour, _ in times.most_common(_OWN)]


def _commonest(parts: Sequence[Image.Image], most: int) -> list[tuple[int, ...]]:
    """At most so many colours that suit some pictures of the same size."""
    sheet = Image.new("RGB", (parts[0].width, sum(one.height for one in parts)))
    for number, part in enumerate(parts):
        sheet.paste(part, (0, number * part.height))
    values = sheet.quantize(most).getpalette() or []
    return [tuple(values[at : at + 3]) for at in range(0, min(len(values), 3 * most), 3)]


def _write_mp4(path: Path, pictures: Iterable[Picture], moments: Sequence[Moment]) -> None:
    """Hand frames to ffmpeg as they are drawn, each as often as it is seen."""
    source = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{HEIGHT}", "-r", str(_RATE))
    target = ("-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4")
    words = [
        _FFMPEG, "-y", "-loglevel", "error", *source, "-i", "pipe:0", *target,
        f"file:{path.absolute()}",  # or a name like http:x would be an address
    ]  # fmt: skip
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None  # a pipe, as asked for
    try:
        for picture, times in zip(pictures, _repeats(moments), strict=True):
            process.stdin.write(picture.tobytes() * times)
    except BrokenPipeError:
        pass  # it says why
    except BaseException:
        process.kill()
        raise
    finally:
        _, said = process.communicate()
    if process.returncode:
        reason = said.decode(errors="replace").strip().splitlines()
        raise DataError(
            f"ffmpeg cannot write the film ({shortened(reason[0] if reason else 'no reason')}): "
            f"write FILE.webp or FILE.gif"
        )


def _repeats(moments: Sequence[Moment]) -> list[int]:
    """How many frames of equal length each moment is, in all as many as the film takes."""
    ends, total = [0], 0
    for one in moments:
        total += one.milliseconds
        ends.append(round(total * _RATE / 1000))
    return [later - earlier for earlier, later in pairwise(ends)]
