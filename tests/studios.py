"""Speaks with a studio as its page does."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import torch
from models import integer_model, own_labels, random_images

from brusle.data import Dataset
from brusle.studio import Studio
from brusle.victims import wrap

SHAPE = (3, 8, 8)
CLASSES = ("ape", "bee", "cat", "dog", "emu")
Message = dict[str, Any]


class Asker(httpx.Client):
    """A client that has the token; ``post`` sends JSON."""

    def __init__(self, studio: Studio, **headers: str) -> None:
        self.studio = studio
        base = f"http://127.0.0.1:{studio.port}"
        super().__init__(
            base_url=base, headers={"X-Brusle-Token": studio.token} | headers, timeout=60
        )

    def choose(self, row: int = 0, data: int = 0, victim: int = 0) -> int:
        """An image of the data."""
        answer = self.post("/api/images/data", json={"victim": victim, "data": data, "row": row})
        assert answer.status_code == 200, answer.text
        return answer.json()["image"]

    @contextmanager
    def attack(self, image: int, attack: str = "brusle", **asked: Any) -> Iterator["Heard"]:
        """Start an attack; leaving the block is leaving the page."""
        asked = {"image": image, "attack": attack, **asked}
        with self.stream("POST", "/api/attacks", json=asked) as answer:
            if answer.status_code != 200:
                answer.read()
            yield Heard(self, answer)

    def run(self, *given: Any, **asked: Any) -> Message:
        """The end of an attack."""
        with self.attack(*given, **asked) as heard:
            assert heard.answer.status_code == 200, heard.answer.text
            return heard.until("over")


class Heard:
    """What a running attack says.

    Attributes:
        answer: of the server.
        messages: all so far.
        number: of the attack.
    """

    def __init__(self, asker: Asker, answer: httpx.Response) -> None:
        self.asker, self.answer = asker, answer
        self.messages: list[Message] = []
        self.number = -1
        self._lines = self._read()

    def until(self, kind: str) -> Message:
        """The next message of a kind."""
        for message in self._lines:
            self.messages.append(message)
            if message["kind"] == kind:
                return message
        raise AssertionError(f"there was no {kind} in {[m['kind'] for m in self.messages]}")

    def want(self, **asked: Any) -> None:
        answer = self.asker.post(f"/api/attacks/{self.number}", json=asked)
        assert answer.status_code == 200, answer.text

    def _read(self) -> Iterator[Message]:
        for line in self.answer.iter_lines():
            if line.startswith("data: "):
                for message in json.loads(line.removeprefix("data: ")):
                    if message["kind"] == "waiting":
                        self.number = message["attack"]
                    yield message


class Gate:
    """A model that answers as often as it is let: so attacks wait where a test wants them to."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._function = function
        self._permits = threading.Semaphore(0)
        self.is_open = False
        self.answered = 0
        self.callers: list[int] = []  # the threads that have asked

    def let(self, calls: int) -> None:
        self._permits.release(calls)

    def open(self) -> None:
        self.is_open = True
        self.let(10)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.callers.append(threading.get_ident())
        while not self.is_open and not self._permits.acquire(timeout=0.1):
            pass
        self.answered += 1
        return self._function(images)


def toy(function: Callable[[torch.Tensor], torch.Tensor] | None = None, **more: Any) -> Any:
    """A small victim of five classes, as `integer_model` computes it."""
    options = {"output": "logits", "name": "toy", "classes": CLASSES, "shape": SHAPE} | more
    return wrap(function or integer_model(SHAPE, len(CLASSES)).function, **options)


def toy_data(count: int = 12, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """Images that `toy` classifies correctly."""
    model, images = integer_model(SHAPE, len(CLASSES)), random_images(count, SHAPE)
    names = tuple(f"toy-{number}" for number in range(count))
    return Dataset("toys", images, own_labels(model, images), classes, names)
