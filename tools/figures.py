"""Puts numbers that commands have written into the pages that quote them.

    python tools/figures.py            # say what is stale
    python tools/figures.py --write    # bring the pages into step with the files
    python tools/figures.py --check    # fail if a page is stale

``docs/figures/NAME.json`` holds what one command has measured: the command, when, and numbers as
they are printed. A page shows one of its tables between comments, and a single number within a
sentence between shorter ones::

    <!-- figures: zoo.accuracy -->
    | model | ...
    <!-- end -->

    takes <!--=overhead.brusle-->1.07<!--/--> times the time of its forward passes

Benchmarks write the files (``--figures``); `Figures` is what they hold.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
_TABLE = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_VALUE = re.compile(r"(<!--=(\S+?)-->).*?(<!--/-->)", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """What one command has measured.

    Attributes:
        command: what was run.
        measured: when, with which version, and on what.
        tables: by name, rows of cells as they are printed; the first row is the head.
        values: single numbers, by name, as they are printed.
    """

    command: str
    measured: str
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Figures:
        """What a file holds."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """A file with a line for each row, so that changes can be seen."""
        tables = [
            f"  {_json(name)}: [\n" + ",\n".join(f"   {_json(row)}" for row in rows) + "\n  ]"
            for name, rows in self.tables.items()
        ]
        values = [f"  {_json(name)}: {_json(value)}" for name, value in self.values.items()]
        lines = [f' "command": {_json(self.command)}', f' "measured": {_json(self.measured)}']
        for name, parts in (("tables", tables), ("values", values)):
            if parts:
                lines.append(f' "{name}": {{\n' + ",\n".join(parts) + "\n }")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table, each line with its end."""
    head, *others = rows
    lines = [line(head), "|" + "---|" * len(head), *map(line, others)]
    return "".join(f"{line}\n" for line in lines)


def line(cells: Sequence[str]) -> str:
    """One line of a table, without its end."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def filled(text: str, files: dict[str, Figures]) -> str:
    """A page with the numbers of the files.

    Raises:
        KeyError: a file, or something in it, is missing.
    """

    def table(found: re.Match[str]) -> str:
        file, _, name = found[2].partition(".")
        return found[1] + markdown(files[file].tables[name]) + found[3]

    def value(found: re.Match[str]) -> str:
        file, _, name = found[2].partition(".")
        return found[1] + files[file].values[name] + found[3]

    return _VALUE.sub(value, _TABLE.sub(table, text))


def named(text: str) -> set[str]:
    """The tables and numbers that a page shows."""
    return {found[2] for pattern in (_TABLE, _VALUE) for found in pattern.finditer(text)}


def pages() -> list[Path]:
    """Pages that may show numbers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_all() -> dict[str, Figures]:
    """All files, by name."""
    return {path.stem: Figures.read(path) for path in sorted(FIGURES.glob("*.json"))}


def stale() -> dict[Path, str]:
    """Pages that show other numbers than the files have, and what they should be."""
    files, found = read_all(), {}
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = filled(text, files)
        if new != text:
            found[page] = new
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="bring the pages into step")
    parser.add_argument("--check", action="store_true", help="fail if a page is stale")
    args = parser.parse_args()
    found = stale()
    for page, text in found.items():
        if args.write:
            page.write_text(text, encoding="utf-8")
        else:
            print(f"{page.name} is stale: run python tools/figures.py --write", file=sys.stderr)
    sys.exit(1 if args.check and found else 0)


if __name__ == "__main__":
    main()
