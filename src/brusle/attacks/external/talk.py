"""A function that asks whenever it likes, turned into one that is asked: questions, then answers.

An attack of somebody else calls the model in the middle of its own code. The loop wants it the
other way round: it collects the next question of many problems, and answers them together. So every
problem's function runs in a thread of its own, and takes turns with whoever drives it: it runs
until it asks, and waits there. Never do two of them run at once, nor one beside the loop, so that
nothing depends on how threads are scheduled.

A function whose queries are spent is ended by an exception at its next question. It derives from
``BaseException``, so that ``except Exception`` lets it pass. A function that catches it all the
same gets it again, and after `_MOST_STOPS` times no answer any more: its thread waits for ever and
is left alone. Nothing that it asks after its end reaches the victim.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from brusle.attacks.external.randomness import OwnRandomness
from brusle.calls import contained
from brusle.errors import BrusleError, InputError, first_line
from brusle.leaving import leave_alone
from brusle.rng import content_id
from brusle.scores import Scores

_MOST_STOPS = 100
_MOST_LEFT = 1000  # threads that wait for ever
_LOCK = threading.Lock()  # whoever runs has the global random numbers of the process
_here = threading.local()
_left: list[threading.Thread] = []


class OutOfQueries(BaseException):
    """The attack is over: its queries are spent, or it has succeeded."""


class Talk:
    """One function on one problem.

    Args:
        function: gets this talk, asks with `ask`, and returns its final image as ``(h * w, c)``,
            or None if it has none.
        numbers: what the function gets of several answers, each to one image.
        seed: of the global random numbers that it draws.

    Attributes:
        question: ``(h * w, c)``: the image that it wants to know of; None if there is none.
        over: it has nothing more to ask.
        fault: what went wrong, in one line; empty if nothing.
        left: how many answers it can still get.
        classes: how many classes there are.
    """

    def __init__(
        self,
        function: Callable[[Talk], Tensor | None],
        numbers: Callable[[list[Scores]], Tensor],
        seed: int,
    ) -> None:
        self._function, self._numbers, self._random = function, numbers, OwnRandomness(seed)
        self._thread: threading.Thread | None = None
        self._to_thread: SimpleQueue[Any] = SimpleQueue()
        self._from_thread: SimpleQueue[Any] = SimpleQueue()
        self._images: list[Tensor] = []
        self._answers: list[Scores] = []
        self._seen: set[int] = set()
        self._runs_loose = False
        self.over, self.fault = False, ""
        self.left = self.classes = 0

    # what the loop does

    @property
    def question(self) -> Tensor | None:
        """The next image; see above."""
        at = len(self._answers)
        return self._images[at] if at < len(self._images) else None

    def begin(self, answers: int, classes: int) -> None:
        """Run up to the first question."""
        self.left, self.classes = answers, classes
        if len(_left) >= _MOST_LEFT:
            self.over = True
            self.fault = (
                f"the attack catches the exception that ends it, and {len(_left)} of its threads "
                f"wait for ever: write except Exception in it"
            )
            return
        threads = torch.get_num_threads()  # which is a setting of each thread
        self._thread = threading.Thread(
            target=self._work, args=[threads], name="brusle-external", daemon=True
        )
        self._thread.start()
        self._run(None)

    def tell(self, scores: Scores, last: bool) -> None:
        """Answer the question, and run up to the next one, unless it was the ``last``.

        Args:
            scores: of the one image.
            last: there is nothing more to find out.
        """
        assert self.question is not None
        self._answers.append(scores)
        self.left -= 1
        if self._thread is None:
            self.over = True  # it was the image that the function has returned
        elif self.question is None and self.left and not last:
            self._run(self._numbers(self._answers))

    def end(self) -> None:
        """Nothing more is answered."""
        stops = 0
        while self._thread is not None and not self._runs_loose and stops < _MOST_STOPS:
            self._run(OutOfQueries())
            stops += 1
        if self._thread is not None:
            self._to_thread.put(OutOfQueries())  # for one that is still at work
            leave_alone(self._thread)
            _left.append(self._thread)
            self._thread = None
        self.over = True

    def _run(self, message: Any) -> None:
        """Let the function run until it asks or ends."""
        self._images, self._answers = [], []
        with _one_at_a_time(), contained(), self._random.in_use():
            self._to_thread.put(message)
            try:
                said = self._from_thread.get()
            except BaseException:  # Ctrl-C: the function is somewhere in the middle
                self._runs_loose = True
                raise
        if isinstance(said, list):
            self._images = said
            return
        self._thread = None
        if isinstance(said, str):
            self.fault = said
        elif said is not None and self.left and _digest(said) not in self._seen:
            self._images = [said]
        self.over = not self._images

    # what the function does, in its thread

    def ask(self, images: Tensor) -> Tensor:
        """``(k, classes)`` scores of ``(k, h * w, c)`` images, one after the other."""
        if getattr(_here, "talk", None) is not self:
            raise InputError(
                "the model was asked in another thread than the one that the function was called "
                "in: ask there"
            )
        self._seen |= {_digest(image) for image in images}
        self._from_thread.put(list(images))
        answer = self._to_thread.get()
        if isinstance(answer, OutOfQueries):
            raise answer
        scores: Tensor = answer
        return scores

    def _work(self, threads: int) -> None:
        _here.talk = self
        torch.set_num_threads(threads)
        self._to_thread.get()
        said: Tensor | str | None = "the attack failed, and what it raised cannot be told"
        try:
            said = self._function(self)
        except OutOfQueries:
            said = None
        except BaseException as error:  # whatever it raises, it raises about this image
            with suppress(BaseException):  # its own __str__ is foreign code, too
                said = _fault(error)
        finally:
            self._from_thread.put(said)


def _fault(error: BaseException) -> str:
    """What went wrong, in one line; brusle's own messages need no type."""
    line = first_line(error)
    if isinstance(error, BrusleError):
        return f"the attack failed: {line.partition(': ')[2] or line}"
    return f"the attack raised {line}"


def _digest(image: Tensor) -> int:
    return content_id(image.numpy().tobytes())


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Whoever is in a talk's own thread has the lock already: that of the talk."""
    if hasattr(_here, "talk"):
        yield
        return
    with _LOCK:
        yield
