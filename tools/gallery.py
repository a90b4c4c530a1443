"""Run the commands of docs/gallery.md and draw its pictures anew.

    python tools/gallery.py --photos DIR                 all of it, about a quarter of an hour
    python tools/gallery.py --photos DIR --folder DIR    in a folder where runs are kept

A command is a line of a code block; one that ends with ``&`` runs until all is done. Above a
picture, comments name the files that it is made of, side by side; it is scaled down and written as
WebP. A film is taken as it is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
_WIDTH = 1200  # of a picture, at most
_COMMAND = re.compile(r"^brusle .*$", re.MULTILINE)
_PICTURE = re.compile(r"((?:<!-- \S+ -->\n)+)!\[[^\]]*\]\((\S+)\)")


@dataclass(frozen=True)
class Step:
    """A command, or a picture of files that earlier commands have written."""

    command: str = ""
    files: tuple[str, ...] = ()
    picture: str = ""


def steps(text: str) -> Iterator[Step]:
    """What the page says, in its order."""
    found = [(one.start(), Step(one[0])) for one in _COMMAND.finditer(text)]
    for one in _PICTURE.finditer(text):
        files = tuple(re.findall(r"<!-- (\S+) -->", one[1]))
        found.append((one.start(), Step(files=files, picture=one[2])))
    return (step for _, step in sorted(found, key=lambda pair: pair[0]))


def draw(files: list[Path], picture: Path) -> None:
    """Put pictures beside each other, scaled down; a film is copied."""
    if files[0].suffix == picture.suffix:
        picture.write_bytes(files[0].read_bytes())
        return
    opened = [Image.open(file).convert("RGB") for file in files]
    height = min(one.height for one in opened)
    opened = [one.resize((round(one.width * height / one.height), height)) for one in opened]
    sheet = Image.new("RGB", (sum(one.width for one in opened), height), "white")
    left = 0
    for one in opened:
        sheet.paste(one, (left, 0))
        left += one.width
    if sheet.width > _WIDTH:
        sheet = sheet.resize(
            (_WIDTH, round(height * _WIDTH / sheet.width)), Image.Resampling.LANCZOS
        )
    sheet.save(picture, quality=85, method=6)


def run(command: str, folder: Path, running: ExitStack) -> None:
    """A command of the page, here; one in the background is given time to start."""
    print(f"$ {command}", flush=True)
    beside = Path(sys.executable).with_name("brusle")
    program = f"{beside} {command.removeprefix('brusle ').removesuffix('&')}"
    if not command.endswith("&"):
        subprocess.run(program, shell=True, cwd=folder, check=True)
        return
    server = subprocess.Popen(f"exec {program}", shell=True, cwd=folder)
    running.callback(server.terminate)
    time.sleep(10)


def main() -> None:
    """Do all steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--folder", type=Path, help="where runs are made; default: a new one")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="gallery-"))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "photos").exists():
        (folder / "photos").symlink_to(asked.photos.resolve())
    with ExitStack() as running:
        for step in steps((DOCS / "gallery.md").read_text(encoding="utf-8")):
            if step.command:
                run(step.command, folder, running)
            else:
                draw([folder / file for file in step.files], DOCS / step.picture)


if __name__ == "__main__":
    main()
