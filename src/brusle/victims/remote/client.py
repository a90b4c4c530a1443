"""A service that answers over HTTP, as a victim."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brusle.books import Books, BooksInMemory
from brusle.data.images import Framing
from brusle.errors import InputError
from brusle.replies import Consultation, Reply
from brusle.scores import Gives, Missing, Output
from brusle.terms import Terms
from brusle.trouble import NO_PATIENCE, Patience
from brusle.victims.remote import loops
from brusle.victims.remote.authorisation import require_authorised
from brusle.victims.remote.errands import Arrival, Errand, Sleep, Wire
from brusle.victims.remote.pace import Pacer
from brusle.victims.remote.service import Images, Service
from brusle.victims.remote.transport import Transport
from brusle.victims.remote.trials import Trial, trial
from brusle.vocabulary import Vocabulary

_GRACE = 2.0  # seconds that calls under way are waited for when the caller goes


class RemoteVictim:
    """A service behind an API; safe to use from many threads.

    It waits for the service itself, and keeps books: see `brusle.victims.remote.errands`. In a
    forked process, or out of a pickle, it makes connections of its own.

    Args:
        name: for messages and reports.
        service: the format.
        terms: what the user allows.
        books: where everything that is sent is written down.
        device: where answers are wanted.
        sleep: waits between the tries of a call.
    """

    randomised = False
    differentiable = False
    patience: Patience = NO_PATIENCE

    def __init__(
        self,
        name: str,
        service: Service,
        terms: Terms | None = None,
        books: Books | None = None,
        device: torch.device | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name, self.service = name, service
        self.terms, self.books = terms or Terms(), books or BooksInMemory()
        self.device = device or torch.device("cpu")
        about = service.about
        self.vocabulary = Vocabulary(about.aliases) if about.labelled else None
        if self.vocabulary is not None and about.classes:
            self.vocabulary.begin(about.classes)
        self._width = len(about.classes) if about.classes else about.width
        self._line = _Line(service.address, self.terms, sleep)

    def __repr__(self) -> str:
        return f"RemoteVictim({self.name!r})"

    @property
    def output(self) -> Output:
        """What the scores are."""
        return self.service.about.output

    @property
    def gives(self) -> Gives:
        """All scores, or those of some labels."""
        return self.service.about.gives

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the classes, if they are known beforehand."""
        return self.service.about.classes

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Of its images, if fixed."""
        return self.service.about.shape

    @property
    def framing(self) -> Framing | None:
        """How photographs are brought to a size for it."""
        return self.service.about.framing

    @property
    def missing(self) -> Missing:
        """What an absent label counts as."""
        return self.service.about.missing

    @property
    def concurrency(self) -> int:
        """How many calls may be under way at once."""
        return self.terms.concurrency

    @property
    def fingerprint(self) -> str:
        """A hash of what answers and how it is asked."""
        return self.service.fingerprint

    def keeping(self, books: Books) -> RemoteVictim:
        """The same victim, with its connections and labels, that keeps other books."""
        other = self._like(self.terms, books)
        other._line = self._line
        self._line.take_up(books)
        return other

    def under(self, terms: Terms) -> RemoteVictim:
        """The same victim, with its labels, under other terms."""
        require_authorised(self.service.address, terms)
        return self._like(terms, self.books)

    def _like(self, terms: Terms, books: Books) -> RemoteVictim:
        other = RemoteVictim(self.name, self.service, terms, books, self.device, self._line.sleep)
        other.vocabulary, other._width = self.vocabulary, self._width
        return other

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images; NaN where there is no answer."""
        return self.consult(images, torch.arange(len(images))).scores

    def consult(self, images: Tensor, keys: Tensor, again: bool = False) -> Consultation:
        """As `brusle.replies.KeepsBooks` says; it asks anew in any case."""
        replies = dict(self.stream(images))
        in_order = [replies[at] for at in range(len(images))]
        consultation = Consultation.of(in_order, self.vocabulary, self._width)
        if self.vocabulary is None and len(consultation.errors) < len(images):
            self._width = consultation.scores.shape[1]
        return consultation

    def stream(self, images: Tensor) -> Iterator[tuple[int, Reply]]:
        """Position and reply of each image, as they arrive.

        If one cannot be had, the replies of all calls that are under way come before the error.
        Whoever stops early has no more calls made; those under way end within a short time.
        A call is closed in the books when somebody asks for what comes after its replies.

        Raises:
            VictimUnavailable: the service is in trouble that did not end, or see `interrupt`.
        """
        pixels = _pixels(images)
        if not len(pixels):
            return
        arrived: SimpleQueue[Arrival | None] = SimpleQueue()
        wire = self._line.wire(self.books)
        errand = self._errand(wire, arrived.put)
        ended = asyncio.run_coroutine_threadsafe(errand.run(pixels), wire.loop)
        ended.add_done_callback(lambda _: arrived.put(None))
        self._line.errands.add(errand)
        try:
            while (arrival := arrived.get()) is not None:
                try:
                    yield arrival.at, arrival.reply
                finally:
                    _close(arrival)
            ended.result()
        finally:
            self._line.errands.discard(errand)
            _end(errand, wire.loop, ended)
            while not arrived.empty():  # replies that nobody wants any more
                _close(arrived.get())

    def interrupt(self) -> None:
        """End what all threads ask for: they get what is under way, and then an error."""
        self._line.interrupt()

    def explain(self, image: Tensor) -> Trial:
        """Ask for one ``(c, h, w)`` image, once, and show request, response and what is read."""
        wire = self._line.wire(self.books)
        errand = self._errand(wire, lambda _: None)
        ask = errand.look(_pixels(image[None]))
        seen = asyncio.run_coroutine_threadsafe(ask, wire.loop).result()
        return trial(*seen, classes=self.classes)

    def _errand(self, wire: Wire, put: Callable[[Arrival], None]) -> Errand:
        return Errand(self.name, self.service, self.terms, self.books, wire, put)

    def close(self) -> None:
        """Close all connections; new ones are made when it is asked again."""
        self._line.close()

    def __getstate__(self) -> dict[str, Any]:
        if not isinstance(self.books, BooksInMemory):
            return self.__dict__
        if self.terms.most is not None or self.terms.rate is not None:
            raise InputError(
                f"the limits of {self.name} hold in one process: record it in a journal to use "
                f"it in several"
            )
        return self.__dict__ | {"books": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, books=state["books"] or BooksInMemory())


def _pixels(images: Tensor) -> Images:
    pixels: Images = images.detach().to("cpu", torch.float32).numpy()
    return np.ascontiguousarray(pixels)


def _close(arrival: Arrival | None) -> None:
    if arrival is not None and arrival.booking is not None:
        arrival.booking.close()


def _end(errand: Errand, loop: asyncio.AbstractEventLoop, ended: Future[None]) -> None:
    """See to it that nothing of an errand goes on."""
    for end in (errand.stop, errand.abandon):
        if ended.done():
            return
        loop.call_soon_threadsafe(end)
        with suppress(Exception):  # whatever it is, nobody wants its replies any more
            ended.result(_GRACE)


class _Line:
    """The way to a service: connections, slots and pace, made anew for another event loop."""

    def __init__(self, url: str, terms: Terms, sleep: Sleep) -> None:
        self._url, self._terms, self.sleep = url, terms, sleep
        self._wire: Wire | None = None
        self._lock = threading.Lock()
        self.errands: set[Errand] = set()  # that are under way

    def interrupt(self) -> None:
        """End all errands, within a short time."""
        with self._lock:
            wire = self._wire
        if wire is not None:
            for errand in self.errands.copy():
                wire.loop.call_soon_threadsafe(errand.interrupt, _GRACE)

    def wire(self, books: Books) -> Wire:
        """What the calls of this process share; the pace goes on from what the books say."""
        loop = loops.shared()
        with self._lock:
            if self._wire is None or self._wire.loop is not loop:
                transport = Transport(self._url)
                slots = asyncio.Semaphore(self._terms.concurrency)
                pacer = Pacer(self._terms.rate, books.recent)
                self._wire = Wire(loop, transport, slots, pacer, self.sleep)
                weakref.finalize(self, hang_up, loop, transport).atexit = False
            return self._wire

    def take_up(self, books: Books) -> None:
        """Count what other books say was sent."""
        if self._wire is not None:
            self._wire.loop.call_soon_threadsafe(self._wire.pacer.take_up, books.recent)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            hang_up(wire.loop, wire.transport)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_wire", "_lock", "errands")
        return {k: v for k, v in self.__dict__.items() if k not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _wire=None, _lock=threading.Lock(), errands=set())


def hang_up(loop: asyncio.AbstractEventLoop, transport: Transport) -> None:
    """Close connections, from any thread."""
    if loops.is_mine(loop):
        asyncio.run_coroutine_threadsafe(transport.close(), loop)
