"""Victims whose answers are kept in a journal, so that nothing is asked, or paid, twice.

    victim = brusle.victims.recorded(victim, "journal.sqlite")
    victim = brusle.victims.recorded(None, "journal.sqlite", replay=True)     # no victim at all

An image is known by its pixels. A victim that is not randomised is asked for it once, and once more
when a success is verified; a randomised one once for every draw.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.journal import FILE, Journal, Key, image_hashes
from brusle.replies import Consultation, Reply
from brusle.scores import ABSENT, Output
from brusle.terms import Terms
from brusle.trouble import NO_PATIENCE
from brusle.victim import Victim, call_victim, require_scores, traits
from brusle.victims.standing_in import StandIn, about
from brusle.victims.watching import Watch
from brusle.vocabulary import Vocabulary

OnChange = Callable[[str], None]
Stream = Callable[[Tensor], Generator[tuple[int, Reply], None, None]]


def recorded(
    victim: Victim | None,
    journal: str | Path | Journal,
    *,
    replay: bool = False,
    on_change: OnChange | None = None,
) -> Recorded:
    """``victim``, with a journal that has the first word.

    Args:
        victim: the victim; None, for a replay, is whoever is in the journal.
        journal: a journal, its file, or the folder that holds ``journal.sqlite``.
        replay: answer from the journal alone: the victim is not asked for anything.
        on_change: called once with a line if a service has changed its model.
    """
    if victim is None and not replay:
        raise InputError("there is no victim to record: give one, or replay=True")
    if isinstance(journal, Journal):
        return Recorded(victim, journal, replay, on_change)
    path = Path(journal)
    opened = Journal(path / FILE if path.is_dir() else path, reading=replay)
    try:
        return Recorded(victim, opened, replay, on_change)
    except BaseException:
        opened.close()
        raise


@dataclass(frozen=True)
class Accounts:
    """What a recorded victim has cost.

    Attributes:
        asked: queries that were answered since it was opened.
        replayed: those of them that the journal answered.
        sent: images that were ever sent, in all lives of the journal; so are the other three.
        answered: with a usable answer.
        refused: with an error about the image.
        lost: without a usable answer.
        money: what was sent, at the price of the terms.
    """

    asked: int
    replayed: int
    sent: int
    answered: int
    refused: int
    lost: int
    money: float


class Recorded:
    """A victim behind a journal; made by `recorded`. All else is the victim's own.

    Attributes:
        victim: the victim; in a replay perhaps one that stands in for it.
        journal: the journal.
        replay: the victim is not asked for anything.
        patience: how long the victim is waited for.
        warnings: one line if a service has changed its model meanwhile.
    """

    def __init__(
        self, victim: Victim | None, journal: Journal, replay: bool, on_change: OnChange | None
    ) -> None:
        self.victim = StandIn.of(journal) if victim is None else victim
        self.journal, self.replay = journal, replay
        if not replay:
            journal.introduce(about(self.victim))
        elif journal.about is not None:
            journal.about.require_same(about(self.victim), str(journal.path))
        said = traits(self.victim)
        self.patience = NO_PATIENCE if replay else said.patience
        keeping = getattr(self.victim, "keeping", None)
        self._source = self.victim if replay or keeping is None else keeping(journal.books)
        self._stream: Stream | None = getattr(self._source, "stream", None)
        self._watch = Watch(journal, said.classes, on_change)
        self._flights = _Flights()
        self._counting = threading.Lock()
        self._asked = self._replayed = 0
        firsts = [look.reply for look in journal.canary.looks[:1]]
        self._width = next((len(reply.scores) for reply in firsts if reply.labels is None), None)

    @property
    def name(self) -> str:
        """The victim's name."""
        return self.victim.name

    @property
    def output(self) -> Output:
        """What the victim returns."""
        return self.victim.output

    @property
    def device(self) -> torch.device:
        """Where the victim runs."""
        return self.victim.device

    @property
    def randomised(self) -> bool:
        """Whether the victim's answers to the same image vary."""
        return traits(self.victim).randomised

    @property
    def differentiable(self) -> bool:
        """Whether the victim gives gradients, which are not recorded."""
        return not self.replay and traits(self.victim).differentiable

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The victim's labels so far, if their number may grow."""
        return traits(self.victim).vocabulary

    @property
    def warnings(self) -> list[str]:
        """What was noticed."""
        return self._watch.warnings

    def __getattr__(self, attribute: str) -> Any:
        # while it is unpickled, the victim is not there yet
        if attribute == "victim" or attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self.victim, attribute)

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images; NaN where there is no answer."""
        count = (len(images),)
        keys = torch.randint(2**62, count) if self.randomised else torch.zeros(count).long()
        return self.draw(images, keys)

    def draw(self, images: Tensor, keys: Tensor) -> Tensor:
        """Scores of images; of a randomised victim, those of the draws ``keys``."""
        return self.consult(images, keys).scores

    def consult(self, images: Tensor, keys: Tensor, again: bool = False) -> Consultation:
        """As in `brusle.replies.KeepsBooks`; what the victim raises is passed on."""
        draws = keys.tolist() if self.randomised else [int(again)] * len(images)
        asked = list(map(Key, image_hashes(images), draws))
        replies = self._replies(asked, images, keys)
        with self._counting:
            self._asked += sum(not reply.error for reply in replies)
            self._replayed += sum(reply.replayed and not reply.error for reply in replies)
        return self._together(replies)

    def summary(self) -> Accounts:
        """What was asked and sent so far."""
        totals = self.journal.books.totals
        price = self._terms.price
        counts = (totals.sent, totals.answered, totals.refused, totals.lost)
        return Accounts(self._asked, self._replayed, *counts, price * totals.sent)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()

    @property
    def _terms(self) -> Terms:
        terms: Terms = getattr(self._source, "terms", None) or Terms()
        return terms

    def _replies(self, asked: Sequence[Key], images: Tensor, keys: Tensor) -> list[Reply]:
        """One for each image; what is asked for twice is sent once."""
        first: dict[Key, int] = {}
        for at, key in enumerate(asked):
            first.setdefault(key, at)
        found: dict[Key, Reply] = {}
        while unknown := [key for key in first if key not in found]:
            with self._flights.of(unknown) as mine:
                found |= self.journal.find(mine)
                new = {key: first[key] for key in mine if key not in found}
                if new:
                    found |= self._ask(new, images, keys)
        return [
            found[key] if first[key] == at else replace(found[key], lost=0, replayed=True)
            for at, key in enumerate(asked)
        ]

    def _ask(self, new: Mapping[Key, int], images: Tensor, keys: Tensor) -> dict[Key, Reply]:
        """The victim's answers to the images at these positions, which are in the journal now."""
        if self.replay:
            raise VictimUnavailable(
                f"the journal has no answer to this image: {self.journal.path} holds another run, "
                f"or not all of this one; run it without replay to ask {self.name}",
                final=True,
            )
        at = torch.tensor(list(new.values()))
        if self._stream is None:
            return self._call(list(new), images[at], keys[at])
        if not self.randomised:
            self._watch.look(self._terms.canary, self._ask_canary)
        return self._listen(self._stream, list(new), images[at])

    def _listen(self, stream: Stream, names: list[Key], images: Tensor) -> dict[Key, Reply]:
        """Note replies as they come; if that is interrupted, nothing more is sent.

        The stream closes a call in the books after its replies were noted. What is handed in is
        written in that order, so the books call nothing answered that is not in the journal.
        """
        fresh: dict[Key, Reply] = {}
        try:
            with closing(stream(images)) as replies:
                for at, reply in replies:
                    self._require_width(reply)
                    fresh |= self.journal.note({names[at]: reply}, wait=False)
                    self._watch.see(images[at : at + 1], fresh[names[at]])
                    if len(fresh) < len(names):
                        self.journal.write_soon()
        finally:
            self.journal.flush()  # before anybody sees one
        if len(fresh) < len(names):
            raise VictimError(f"{self.name} has left an image without an answer")
        return fresh

    def _require_width(self, reply: Reply) -> None:
        """Raise before a journal has an answer that does not go with the others in it."""
        if reply.error or reply.labels is not None:
            return
        self._width = self._width or len(reply.scores)
        if len(reply.scores) != self._width:
            raise VictimError(
                f"{self.name} answered with {self._width} classes before and {len(reply.scores)} "
                f"now: the number of classes must not change"
            )

    def _call(self, names: list[Key], images: Tensor, keys: Tensor) -> dict[Key, Reply]:
        """One call of a victim that keeps no books itself."""
        books = self.journal.books
        call = books.open(len(names), self._terms)
        try:
            scores = call_victim(self._source, images, keys)
            rows = _rows(require_scores(scores, len(names), self.name))
            replies = dict(zip(names, map(self._reply, rows), strict=True))
        except BaseException:
            books.close(call, "lost")
            raise
        noted = self.journal.note(replies, wait=False)
        books.close(call, "answered")  # not before: see _listen
        self.journal.flush()
        return noted

    def _reply(self, row: NDArray[Any]) -> Reply:
        """Scores of one image; labels by name where another life may number them otherwise."""
        if self.vocabulary is None:
            return Reply(row)
        listed = (row > ABSENT).nonzero()[0]
        names = self.vocabulary.names
        return Reply(row[listed], tuple(names[at] for at in listed))

    def _ask_canary(self, image: Tensor) -> Iterator[Reply]:
        assert self._stream is not None
        with closing(self._stream(image.to(self.device))) as replies:
            yield from (reply for _, reply in replies)

    def _together(self, replies: Sequence[Reply]) -> Consultation:
        """All replies in one tensor, where the victim's would be."""
        widths = [len(reply.scores) for reply in replies if not reply.error]
        self._width = self._width or next(iter(widths), None)
        whole = Consultation.of(replies, self.vocabulary, self._width)
        return replace(whole, scores=whole.scores.to(self.device))


class _Flights:
    """Which images are being asked for at this moment, by whichever thread."""

    def __init__(self) -> None:
        self._landed = threading.Condition()
        self._under_way: set[Key] = set()

    @contextmanager
    def of(self, keys: Sequence[Key]) -> Iterator[list[Key]]:
        """Take those of ``keys`` that nobody else asks for; wait if there is none."""
        with self._landed:
            self._landed.wait_for(lambda: not self._under_way.issuperset(keys))
            mine = [key for key in keys if key not in self._under_way]
            self._under_way.update(mine)
        try:
            yield mine
        finally:
            with self._landed:
                self._under_way.difference_update(mine)
                self._landed.notify_all()


def _rows(scores: Tensor) -> Iterator[Any]:
    """Scores of each image; numbers that are narrower than float32 become that."""
    wide = scores.dtype == torch.float64 or not scores.is_floating_point()
    yield from scores.detach().to("cpu", torch.float64 if wide else torch.float32).numpy()
