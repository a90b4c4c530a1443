"""How many queries a second a service answers, of those that concurrency and latency allow.

    python benchmarks/remote.py                 64 images, 16 calls at once (about two minutes)
    python benchmarks/remote.py --images 8 --queries 20

`brusle serve` runs in a process of its own: the bundled net behind the Open Inference Protocol,
with a latency that is lognormal, median 50 ms and one in a hundred above 500 ms. BruSLe attacks
images of the sample in this process, as `brusle evaluate` does, with its journal on the disk.

What is achieved is read in the server's books: images over the time from the first call to the last
answer. Nothing in it is ours to choose, but starting and the writing of pictures are left out.

What is allowed is computed in two ways from the latencies that the server has drawn, which follow
from its seed and the number of each call:

* calls at once / mean latency: as many calls under way as there may be, from the first moment to
  the last.
* the shortest schedule: an attack asks one query after the other, so towards the end, when fewer
  attacks are left than calls may be under way, nobody could be quicker. Attacks, their queries and
  latencies are played through as if everything else took no time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import written

import brusle
from brusle.attacks import BruSLe
from brusle.evaluation.running.concurrent import LANES
from brusle.serving.faults import Faults, Latency

LATENCY = "lognormal:50ms,500ms"
NET = "zoo:cifar10-resnet20"
BOUND = 0.85


@contextmanager
def service(books: Path) -> Iterator[str]:
    """The victim's name; the server is ended afterwards."""
    words = ["serve", "--victim", NET, "--latency", LATENCY, "--books", str(books), "--json"]
    command = [sys.executable, "-c", "from brusle.cli import main; main()", *words]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # one image is too little for two threads
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=alone) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["victim"]
        finally:
            process.kill()


def calls(books: Path) -> list[dict[str, Any]]:
    """The calls that the server has written down, in their order."""
    lines = [json.loads(line) for line in books.read_text().splitlines()]
    return sorted(lines, key=lambda call: int(call["call"]))


def shortest(queries: Sequence[int], latencies: Sequence[float], at_once: int) -> float:
    """Seconds of attacks of so many queries each, if nothing but the service takes time."""
    ahead = deque(queries)
    waiting = deque(ahead.popleft() for _ in range(min(LANES * at_once, len(ahead))))
    under_way: list[tuple[float, int]] = []  # when a call ends, and what its attack has left then
    drawn, now = cycle(latencies), 0.0
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            heapq.heappush(under_way, (now + next(drawn), waiting.popleft() - 1))
        now, left = heapq.heappop(under_way)
        if left:
            waiting.append(left)
        elif ahead:
            waiting.append(ahead.popleft())
    return now


def attacked(victim: str, folder: Path, given: argparse.Namespace) -> list[int]:
    """The queries of each attack, with those of its clean image and of its verification."""
    run = brusle.evaluate(
        victim,
        "sample",
        BruSLe(given.pixels, given.queries),
        "untargeted",
        folder,
        limit=given.images,
        terms=brusle.Terms(concurrency=given.concurrency),
        on_progress=None,
    )
    (setting,) = run.settings
    return [row.clean + row.queries + row.verify for row in run.stored(setting)]


def show(made: Sequence[dict[str, Any]], queries: Sequence[int], at_once: int) -> dict[str, str]:
    """Print what was achieved, and what was allowed; the ratios in percent."""
    faults = Faults(Latency.parse(LATENCY))
    latencies = [faults.fate(call["call"]).latency for call in made]
    ends = [call["time"] + latency for call, latency in zip(made, latencies, strict=True)]
    seconds = max(ends) - min(call["time"] for call in made)
    images, mean = sum(call["images"] for call in made), sum(latencies) / len(latencies)
    achieved = images / seconds
    print(f"{len(made)} calls, {images} images, mean latency {1000 * mean:.0f} ms")
    print(f"achieved: {achieved:.1f} queries/s in {seconds:.1f} s")
    ideals = {
        "calls at once / mean latency": at_once / mean,
        "the shortest schedule": sum(queries) / shortest(queries, latencies, at_once),
    }
    for name, ideal in ideals.items():
        print(f"{name}: {ideal:.1f} queries/s; ratio {achieved / ideal:.3f} (at least {BOUND})")
    names = ("calls", "schedule")
    return {
        name: f"{100 * achieved / ideal:.0f}"
        for name, ideal in zip(names, ideals.values(), strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--queries", type=int, default=200, help="limit of each attack")
    parser.add_argument("--pixels", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=16)
    written.add_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        books = Path(name, "books")
        with service(books) as victim:
            queries = attacked(victim, Path(name, "run"), given)
        ratios = show(calls(books), queries, given.concurrency)
    written.write(given.figures, values=ratios)


if __name__ == "__main__":
    main()
