"""Images are taken to a service and replies brought back: the tries of each call, and its books.

A call waits for a slot, then for its pace; it is written into the books when its first byte leaves,
and again when it has failed or somebody has taken its replies in. A call that meets the service's
trouble keeps its slot while it waits, so that a service in trouble is not asked for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from brusle.books import Books
from brusle.errors import VictimUnavailable
from brusle.replies import Reply
from brusle.terms import Terms
from brusle.victims.remote.pace import Pacer
from brusle.victims.remote.service import Call, Failure, Images, Response, Service
from brusle.victims.remote.transport import Transport, refuse_redirect
from brusle.victims.remote.tries import Booking, Waits, unavailable

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
SEVERAL = 8  # images that are all refused are the service's trouble; fewer may all be bad ones
_LARGE = 2**16  # bytes that are not read or written while others wait
_NOT_IN_FORMAT = (500, 501)  # what servers answer to a format that they do not know


@dataclass
class Wire:
    """What all calls of one victim share; it belongs to one event loop.

    Attributes:
        loop: the loop.
        transport: the connections.
        slots: a call that is under way has one.
        pacer: lets images leave.
        sleep: waits for so many seconds.
        probing: held by the call that tries a format.
        refused: images that were refused without any that was answered; None once one was.
        calls: how many calls there were.
        largest: most images of a call that was answered.
    """

    loop: asyncio.AbstractEventLoop
    transport: Transport
    slots: asyncio.Semaphore
    pacer: Pacer
    sleep: Sleep = asyncio.sleep
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused: int | None = 0
    calls: int = 0
    largest: int = 0

    def note(self, replies: list[Reply]) -> None:
        """Raise if `SEVERAL` images or more were asked for, and none was ever answered.

        An empty list of labels is no answer here: it may be that they stand elsewhere.
        """
        if self.refused is None or any(len(reply.scores) for reply in replies):
            self.refused = None
            return
        self.refused += len(replies)
        if self.refused >= SEVERAL:
            reason = replies[-1].error or "its lists of labels are empty"
            raise VictimUnavailable(
                f"none of {self.refused} images was answered: {reason}", final=True
            )


@dataclass(frozen=True)
class Batch:
    """Images for one call.

    Attributes:
        start: position of the first.
        images: the images.
        lost: how often they were sent in vain.
    """

    start: int
    images: Images
    lost: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def parts(self, size: int) -> list[Batch]:
        """The same images in smaller batches."""
        starts = range(0, len(self), size)
        return [Batch(self.start + at, self.images[at : at + size], self.lost) for at in starts]


class Arrival(NamedTuple):
    """A reply that has come.

    Attributes:
        at: position of its image.
        reply: the reply.
        booking: of the call, with its last reply. It is closed by whoever has taken all of them in:
            what the books call answered must not be asked for again after a kill.
    """

    at: int
    reply: Reply
    booking: Booking | None


class Errand:
    """The way of some images to a service and back.

    Args:
        name: of the victim, for messages.
        service: the format.
        terms: how long and how often is tried.
        books: where calls are written down.
        wire: what is shared with other errands.
        put: takes replies as they arrive.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        terms: Terms,
        books: Books,
        wire: Wire,
        put: Callable[[Arrival], None],
    ) -> None:
        self._name, self._service, self._terms = name, service, terms
        self._books, self._wire, self._put = books, wire, put
        self._tasks: set[asyncio.Task[bool]] = set()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._stopped = self._interrupted = False

    async def run(self, images: Images) -> None:
        """Bring all replies; after an error, those of the calls that are under way."""
        batches = Batch(0, images).parts(self._most)
        self._tasks = {asyncio.create_task(self._answer(batch)) for batch in batches}
        if self._stopped:
            self.stop()
        pending, error = self._tasks, None
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            errors = [task.exception() for task in done if not task.cancelled()]
            error = error or next(filter(None, errors), None)
            if error:
                self.stop()
        if error:
            raise error
        if self._interrupted and any(task.cancelled() for task in self._tasks):
            raise VictimUnavailable(f"{self._name} is not asked any more: interrupted", final=True)

    def stop(self) -> None:
        """No call is begun any more; those that are under way end."""
        self._stopped = True
        for task in self._tasks - self._under_way:
            task.cancel()

    def abandon(self) -> None:
        """Break off the calls that are under way, too; they count as lost."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    def interrupt(self, grace: float) -> None:
        """End with an error; calls that are under way have so many seconds to end."""
        if not self._interrupted:
            self._interrupted = True
            self.stop()
            self._wire.loop.call_later(grace, self.abandon)

    async def _answer(self, batch: Batch) -> bool:
        """Bring the replies to a batch; returns whether all have scores."""
        answered = True
        while len(batch) and not self._service.settled:
            answered &= await self._probe(batch.parts(1)[0])
            batch = Batch(batch.start + 1, batch.images[1:], batch.lost)
        if len(batch) > self._most:
            return await self._answer_parts(batch, self._most) and answered
        if len(batch):
            answered &= await self._answer_together(batch)
        return answered

    async def _answer_together(self, batch: Batch) -> bool:
        """Put a batch into one call; if it is refused, into two: there may be too many in it."""
        try:
            return self._deliver(batch, *await self._call(batch))
        except Failure:  # about an image, or their number
            half = (len(batch) + 1) // 2
        answered = await self._answer_parts(replace(batch, lost=batch.lost + 1), half)
        if answered:  # so it was the number
            learned = max(half, self._wire.largest)
            self._service.most_images = min(self._service.most_images, learned)
        return answered

    async def _answer_parts(self, batch: Batch, size: int) -> bool:
        return all([await self._answer(part) for part in batch.parts(size)])

    @property
    def _most(self) -> int:
        """Most images in a call."""
        pace = self._terms.rate
        return min(self._service.most_images, pace.images if pace else self._service.most_images)

    async def _probe(self, one: Batch) -> bool:
        """Ask for one image in the format that is tried, and if that fails in the other."""
        async with self._wire.probing:
            if self._service.settled:  # by another call, in the meantime
                return await self._answer_together(one)
            try:
                answer = await self._call(one, probing=True)
            except Failure:
                self._service.settle(worked=False)
            else:
                self._service.settle(worked=True)
                return self._deliver(one, *answer)
            answered = False
            try:
                answer = await self._call(replace(one, lost=one.lost + 1))
                answered = self._deliver(one, *answer)
            finally:
                if not answered:
                    self._service.unsettle()
            return answered

    def _deliver(self, batch: Batch, replies: list[Reply], booking: Booking) -> bool:
        for at, reply in enumerate(replies):
            last = at + 1 == len(replies)
            self._put(Arrival(batch.start + at, reply, booking if last else None))
        self._wire.note(replies)
        answered = not any(reply.error for reply in replies)
        if answered:
            self._wire.largest = max(self._wire.largest, len(replies))
        return answered

    async def _call(self, batch: Batch, probing: bool = False) -> tuple[list[Reply], Booking]:
        """Replies to the images of one call, which is tried until the patience is over.

        The booking of the try that brought them is still open.

        Raises:
            Failure: several images were refused together; or, where a format is tried, it failed.
        """
        call = await self._write(batch.images)
        async with self._wire.slots:
            self._wire.calls += 1
            waits = Waits(self._terms, self._wire.calls)
            while True:
                try:
                    replies, booking = await self._try(batch, call, probing)
                    lost = batch.lost + waits.count
                    return [replace(reply, lost=lost) for reply in replies], booking
                except Failure as failure:
                    pause = self._pause(failure, waits, probing)
                await self._wire.sleep(pause)

    async def _try(self, batch: Batch, call: Call, probing: bool) -> tuple[list[Reply], Booking]:
        """Send a call once, and book it; if that was in vain, it is closed."""
        await self._wire.pacer.turn(len(batch))
        booking = Booking(self._books, len(batch), self._terms)
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            replies = await self._heard(batch, call, booking, probing)
        except BaseException:
            booking.close()
            raise
        finally:
            self._under_way.discard(task)
        booking.outcome = "answered" if any(not reply.error for reply in replies) else "refused"
        return replies, booking

    async def _heard(
        self, batch: Batch, call: Call, booking: Booking, probing: bool
    ) -> list[Reply]:
        try:
            return await self._read(await self._send(call, booking), len(batch))
        except Failure as failure:
            if failure.fault != "image" or len(batch) > 1 or probing:
                raise
            return [Reply(error=f"the victim refused the image ({failure.reason})")]

    def _pause(self, failure: Failure, waits: Waits, probing: bool) -> float:
        """Seconds to wait before the next try; raises if there is none."""
        tells = failure.fault == "nonsense" or failure.status in _NOT_IN_FORMAT
        if failure.fault == "image" or (probing and tells):
            raise failure
        if self._stopped:
            raise asyncio.CancelledError
        pause = waits.next(failure) if failure.fault != "refused" else None
        if pause is None:
            raise unavailable(self._name, failure, waits.told) from None
        return pause

    async def _send(self, call: Call, booking: Booking) -> Response:
        if self._service.signs:
            call = await _aside(self._service.signed, call)
        response = await self._wire.transport.send(call, self._terms.timeout, booking.open)
        refuse_redirect(response, call.url)
        return response

    async def _write(self, images: Images) -> Call:
        if images.nbytes < _LARGE:
            return self._service.request(images)
        return await _aside(self._service.request, images)

    async def _read(self, response: Response, count: int) -> list[Reply]:
        if len(response.content) < _LARGE:
            return self._service.extracted(response, count)
        return await _aside(self._service.extracted, response, count)

    async def look(self, image: Images) -> tuple[Call, Response | None, Reply]:
        """Send one image, once in each format, whatever comes back; for people who look at it."""
        async with self._wire.probing:
            settled = self._service.settled
            seen = await self._look(image)
            if settled:
                return seen
            self._service.settle(worked=not seen[2].error)
            if seen[2].error:
                seen = await self._look(image)
                if seen[2].error:
                    self._service.unsettle()
            return seen

    async def _look(self, image: Images) -> tuple[Call, Response | None, Reply]:
        call = await self._write(image)
        response = None
        async with self._wire.slots:
            await self._wire.pacer.turn(1)
            booking = Booking(self._books, 1, self._terms)
            try:
                response = await self._send(call, booking)
                reply = (await self._read(response, 1))[0]
                booking.outcome = "refused" if reply.error else "answered"
            except Failure as failure:
                reply = Reply(error=failure.reason)
            finally:
                booking.close()
        return call, response, reply


async def _aside(function: Callable[..., T], *args: Any) -> T:
    """What takes long is done where it keeps nobody waiting."""
    return await asyncio.to_thread(function, *args)
