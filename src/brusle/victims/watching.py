"""Has a service changed its model? Its version tells, or its answer to an image that it knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from brusle.journal import Journal
from brusle.replies import Reply
from brusle.text import shortened, shown

_MUCH = 0.01  # of the largest score: more is another model, less may be rounding


class Watch:
    """Compares what a service says now with what it said at first.

    The first image that was ever answered is the canary. It lies in the journal with all answers to
    it, so that a change is noticed over all lives of a run.

    Args:
        journal: the journal.
        classes: names of the classes, if scores come in their order.
        on_change: called with the warning.

    Attributes:
        warnings: one line once something has changed.
    """

    def __init__(
        self,
        journal: Journal,
        classes: Sequence[str] | None = None,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self._journal, self._classes, self._on_change = journal, classes, on_change
        self._seeing, self._looking = threading.Lock(), threading.Lock()
        versions = [look.reply.version for look in journal.canary.looks]
        self._version = next(filter(None, versions), "")
        self.warnings: list[str] = []

    def see(self, image: Tensor, reply: Reply) -> None:
        """An answer that has just come, to a ``(1, c, h, w)`` image."""
        with self._seeing:
            if not reply.error and not self._journal.canary.looks:
                self._journal.canary.add(self._sent, reply, image)
            before, self._version = self._version, self._version or reply.version
            if reply.version and before not in ("", reply.version):
                self._warn(
                    f"the service's model has changed after {self._sent} images: version "
                    f"{_name(before)} -> {_name(reply.version)}"
                )

    def look(self, every: int, ask: Callable[[Tensor], Iterable[Reply]]) -> None:
        """Ask the canary if so many images were sent since the last time; 0 is never."""
        looks = self._journal.canary.looks
        if not every or not looks or not self._looking.acquire(blocking=False):
            return  # somebody else is looking
        try:
            image = self._journal.canary.image
            if image is None or self._sent - looks[-1].sent < every:
                return
            for reply in ask(image):  # one, whose call is closed when it is in the journal
                self._journal.canary.add(self._sent, reply)
                change = _change(looks[0].reply, reply, self._classes)
                if change:
                    self._warn(
                        f"the service's answer to the canary image has changed after {self._sent} "
                        f"images: {change}"
                    )
        finally:
            self._looking.release()

    @property
    def _sent(self) -> int:
        return self._journal.books.totals.sent

    def _warn(self, text: str) -> None:
        """Once; what follows has changed for the same reason."""
        if self.warnings:
            return
        self.warnings.append(f"{text}; rows before and after are of different models")
        if self._on_change is not None:
            self._on_change(self.warnings[0])


def _change(before: Reply, now: Reply, classes: Sequence[str] | None) -> str:
    """What differs between two answers to the same image, in a few words; empty if nothing."""
    if now.error:
        return f"an answer -> {_name(now.error)}"
    was, is_now = _by_label(before), _by_label(now)
    if not was or not is_now:
        return "" if was == is_now else f"{len(was)} labels -> {len(is_now)}"
    top, other = max(was, key=was.__getitem__), max(is_now, key=is_now.__getitem__)
    if top == other:
        # a label that is not in a list has no more than the lowest there
        gaps = {
            label: abs(was.get(label, min(was.values())) - is_now.get(label, min(is_now.values())))
            for label in was.keys() | is_now.keys()
        }
        top = other = max(gaps, key=gaps.__getitem__)
        if gaps[top] <= _MUCH * max(map(abs, (*was.values(), *is_now.values()))):
            return ""
    names = _titles(before, classes) | _titles(now, classes)
    return f"label {_said(top, was, names)} -> {_said(other, is_now, names)}"


def _by_label(reply: Reply) -> dict[str, float]:
    """Scores by what they are of: labels, or the numbers of classes."""
    labels = map(str, range(len(reply.scores))) if reply.labels is None else reply.labels
    return dict(zip(labels, reply.scores.tolist(), strict=True))


def _titles(reply: Reply, classes: Sequence[str] | None) -> dict[str, str]:
    """What people call these."""
    titles = reply.titles if reply.labels is not None else classes
    return dict(zip(_by_label(reply), map(str, titles or ()), strict=False))


def _said(label: str, scores: dict[str, float], names: dict[str, str]) -> str:
    said = f"{scores[label]:.3g}" if label in scores else "absent"
    return f"{_name(names.get(label) or label)} {said}"


def _name(text: str) -> str:
    return shown(shortened(text))
