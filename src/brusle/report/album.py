"""Single photographs that a service was to call something else: as text for tables."""

from __future__ import annotations

import textwrap

from brusle.evaluation.paper.photographs import Album, Effort, Photograph, Try
from brusle.evaluation.paper.reproduce import Outcome
from brusle.report.blocks import Block
from brusle.report.wording import count, number

LEGEND = (
    "Queries until the target is on top of the service's list; > where the limit was not enough. "
    "The paper's photographs and targets are others, so only sums stand beside each other; a "
    "failure counts as the limit, and the paper's attacks as if they had ended at ours."
)
_WIDTH = 26


def album_blocks(album: Album) -> list[Block]:
    """Every photograph, for each pixel budget; then what all of them took, ours and the paper's."""
    budgets = dict.fromkeys(line.pixels for line in album.efforts)
    return [*(_photographs(album, pixels) for pixels in budgets), _sums(album)]


def album_notes(album: Album, outcome: Outcome) -> list[str]:
    """What a reader of the numbers should know."""
    job, whole = outcome.job, outcome.whole
    passed = ""
    if album.passed_over:
        passed = (
            f"; passed over, with a list too short for a target or no answer: "
            f"{count(album.passed_over, 'photograph')}"
        )
    return [
        f"victim: {job.note}",
        f"photographs: {outcome.images} of {job.data} (the paper: {whole.images} others), "
        f"{count(outcome.pairs, 'pair')} with a target; seed {job.part.seeds[0]}",
        f"labels are the service's: the one on top of its list for the photograph, and as target "
        f"another one of the list, drawn by the seed; to ask for the lists took "
        f"{count(album.asked, 'query')}{passed}",
        "another service, photographs and targets make the levels differ",
    ]


def spent(one: Try) -> str:
    """Queries of an attack in a few letters."""
    if one.fooled:
        return str(one.queries)
    return f"> {one.limit}" if one.status == "failed" else one.status


def _photographs(album: Album, pixels: int) -> Block:
    attacks = tuple(line.attack for line in album.efforts if line.pixels == pixels)
    rows = [
        (photograph.name, _aim(photograph), *_queries(photograph, pixels, attacks))
        for photograph in album.photographs
    ]
    return Block((f"{pixels} pixels", "label -> target", *attacks), tuple(rows), worded=2)


def _aim(photograph: Photograph) -> str:
    return textwrap.fill(f"{photograph.label} -> {photograph.target}", _WIDTH)


def _queries(photograph: Photograph, pixels: int, attacks: tuple[str, ...]) -> list[str]:
    mine = {one.attack: spent(one) for one in photograph.tries if one.pixels == pixels}
    return [mine.get(attack, "-") for attack in attacks]


def _sums(album: Album) -> Block:
    rows = []
    for line in album.efforts:
        name = f"{line.attack}, {line.pixels} pixels"
        rows.append((name, "ours", *_effort(line.ours)))
        if line.paper is not None:
            rows.append((name, "paper", *_effort(line.paper)))
    headers = (f"limit {album.efforts[0].limit}", "", "fooled", "queries", "mean", "median")
    return Block(headers, tuple(rows), worded=2)


def _effort(effort: Effort) -> tuple[str, ...]:
    fooled = f"{effort.successes} of {effort.photographs}"
    return fooled, str(effort.total), number(effort.mean, 1), number(effort.median, 1)
