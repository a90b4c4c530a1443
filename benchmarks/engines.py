"""How much faster two workers are than one, and how many rows the store takes in a second.

    python benchmarks/engines.py

Both workers and the one they are compared with have one thread. Attacks per minute are those
between the first and the last row, so that neither Ray's start nor the opening of the victim
counts; the time with these is given as well.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import written

import brusle
from brusle.attacks import BruSLe
from brusle.evaluation.record import Row
from brusle.evaluation.storing.store import Store

IMAGES, TARGETS, ROWS = 200, 3, 20_000
AT_ONCE = 16  # rows that an attack settles together


def attacks_per_minute(workers: int) -> tuple[float, float]:
    """Attacks per minute while the workers work, and seconds from the call to the end."""
    times: list[float] = []
    began = time.monotonic()
    run = brusle.evaluate(
        attacks=[BruSLe(10, 150), BruSLe(20, 150)],
        goal="targeted",
        limit=IMAGES,
        targets=TARGETS,
        engine=brusle.Ray(workers),
        on_progress=lambda setting, progress: times.append(time.monotonic()),
    )
    attacks = sum(summary.images for summary in run.summaries())
    return 60 * attacks / (times[-1] - times[0]), time.monotonic() - began


def rows_per_second(folder: Path, row: Row) -> float:
    """Rows of different problems, in transactions of a few, each on the disk when it ends."""
    with Store.write(folder) as store:
        began = time.monotonic()
        for start in range(0, ROWS, AT_ONCE):
            store.add_rows(1, [replace(row, problem=i) for i in range(start, start + AT_ONCE)])
        return ROWS / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    written.add_option(parser)
    args = parser.parse_args()
    (one, slow), (two, quick) = attacks_per_minute(1), attacks_per_minute(2)
    print(f"one worker   {one:7.0f} attacks per minute ({slow:.0f} s with the start)")
    print(f"two workers  {two:7.0f} attacks per minute ({quick:.0f} s with the start)")
    print(f"ratio        {two / one:7.2f}")
    written.write(args.figures, values={"ratio": f"{two / one:.1f}"})
    with tempfile.TemporaryDirectory() as name:
        brusle.evaluate(attacks=[BruSLe(20, 50)], goal="targeted", limit=5, out=name)
        with Store.read(name) as store:
            row = store.rows(1)[0]
        rate = rows_per_second(Path(name) / "rows", row)
    print(f"store        {rate:7.0f} rows per second, {AT_ONCE} at a time")


if __name__ == "__main__":
    main()
