"""What a victim sees in one image, where nobody says what is in it."""

from __future__ import annotations

import torch
from torch import Tensor

from brusle.errors import VictimError
from brusle.oracle import Oracle
from brusle.victim import Victim


def seen_label(victim: Victim, image: Tensor, name: str) -> tuple[int, int]:
    """The label of a ``(c, h, w)`` image, and the queries that it took: they are clean ones.

    Args:
        victim: who is asked.
        image: the image.
        name: what it is called, for messages.
    """
    look = Oracle(victim, problems=1, limit=0, batch_size=1)
    answers = look.ask(torch.zeros(1, dtype=torch.int64), image[None], "clean")
    if answers.errors:
        raise VictimError(f"{name} could not be classified: {answers.errors[0]}")
    label = int(answers.labels[0])
    if label < 0:
        raise VictimError(f"the victim names no label for {name}: give another image")
    return label, int(look.ledger.clean[0])
