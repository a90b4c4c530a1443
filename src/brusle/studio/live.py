"""An attack that is watched: it runs in a thread of its own, and says what it sees."""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch

from brusle.attacks import make
from brusle.errors import BrusleError, first_line
from brusle.files import file_name
from brusle.leaving import leave_alone
from brusle.report.single import facts, told
from brusle.report.wording import class_name, count
from brusle.results import AttackResult
from brusle.search import Round
from brusle.seeing import seen_label
from brusle.studio.asked import Attempt, Change
from brusle.studio.control import Control, Ended, Turns
from brusle.studio.pictures import Picture, png_of
from brusle.text import shown
from brusle.tracer import beliefs
from brusle.tracing import Improvement, number, steps

POINTS = 2000  # losses that the page hears of, at most
BELIEFS = 50  # and maps
_PATIENCE = 2.0  # seconds until a victim that does not answer is left alone

Message = dict[str, Any]


class LiveAttack:
    """One attack on one picture.

    What it asks, and what it finds, is what `brusle attack` asks and finds: it is only slower.

    Args:
        attempt: what is wanted.
        picture: the image.
        turns: shared by all attacks.
        threads: that torch computes with.
        on_news: called in the attack's thread whenever there is something to `take`.
    """

    def __init__(
        self,
        attempt: Attempt,
        picture: Picture,
        turns: Turns,
        threads: int,
        on_news: Callable[[], None],
    ) -> None:
        self._attempt, self._picture, self._turns, self._on_news = attempt, picture, turns, on_news
        self._attack = make(attempt.spec, attempt.pixels, attempt.queries, attempt.minimal)
        self._control = Control(attempt.pace)
        self._messages: list[Message] = []
        self._write = threading.Lock()
        self._query, self._paused, self._over = 0, False, threading.Event()
        self._last: Improvement | None = None
        self._named = -1  # labels whose names the page knows
        self._next_point, self._next_belief = 1, 1
        self._thread = threading.Thread(
            target=self._run, args=(threads,), name="brusle-studio", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def want(self, asked: Change) -> None:
        """Change what it does."""
        self._control.want(asked)

    def end(self, wait: bool = False) -> None:
        """Go no further than the answer that it waits for."""
        self._control.end()
        if wait:
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                leave_alone(self._thread)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self._control.ended

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked of the victim."""
        return self._over.is_set()

    def take(self) -> list[Message]:
        """What was said since it was last asked; the last of all is of kind "over"."""
        with self._write:
            messages, self._messages = self._messages, []
        return messages

    def _say(self, kind: str, **what: Any) -> None:
        with self._write:
            self._messages.append({"kind": kind, **what})
        self._on_news()

    def _run(self, threads: int) -> None:
        torch.set_num_threads(threads)  # or this thread has another number than all others
        self._turns.take()
        try:
            if self.is_ending:
                raise Ended
            over = self._finished(self._attacked())
        except Ended:
            over = {"how": "ended", "told": f"ended after {count(self._query, 'query')}"}
        except BrusleError as error:
            over = {"how": "error", "told": shown(error)}
        except BaseException as error:  # whatever somebody's model raises
            over = {"how": "error", "told": shown(first_line(error))}
        finally:
            self._turns.give()
        self._over.set()  # before anybody hears of it, and begins another
        self._say("over", query=self._query, **over)

    def _attacked(self) -> AttackResult:
        """As `brusle attack` does it."""
        picture, attempt = self._picture, self._attempt
        victim, label, asked = picture.offer.open(), picture.label, 0
        if label is None:
            label, asked = seen_label(victim, picture.pixels, picture.name)
        target = attempt.target
        self._say_names()
        self._say(
            "began",
            attack=shown(self._attack.label),
            limit=self._attack.queries,
            label=label,
            label_name=class_name(picture.names, label),
            target=target,
            target_name=None if target is None else class_name(picture.names, target),
        )
        result = self._attack(
            victim,
            picture.pixels[None],
            [label],
            None if target is None else [target],
            seed=attempt.seed,
            on_round=self._heard,
            on_improved=self._improved,
        )
        result.ledger.clean += asked
        return result

    def _improved(self, row: int, found: Improvement) -> None:
        step = [*steps([found] if self._last is None else [self._last, found])][-1]
        self._last = found
        self._say_names()
        self._say("improved", step=step)

    def _say_names(self) -> None:
        """A victim may name labels that it has never named before."""
        names = self._picture.names
        if len(names) != self._named:
            self._named = len(names)
            self._say("names", names=names)

    def _heard(self, seen: Round) -> None:
        """Say what a round has shown, and wait if that is wanted."""
        self._query = int(seen.queries[0])
        if self._query >= self._next_point:
            self._next_point = self._query + math.ceil(self._attack.queries / POINTS)
            self._say("point", query=self._query, loss=number(float(seen.loss[0])))
        meaning = seen.attack.behaviour.believes
        if meaning and self._query >= self._next_belief:
            self._next_belief = self._query + math.ceil(self._attack.queries / BELIEFS)
            shape = tuple(self._picture.pixels.shape)
            (belief,) = beliefs(seen, [0], (shape[0], shape[1], shape[2]))
            self._say("belief", belief=belief.as_dict(), meaning=meaning)
        self._turns.give()
        try:
            self._control.hold(self._tell_pause)
        finally:
            self._turns.take()

    def _tell_pause(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self._say("paused" if paused else "going", query=self._query)

    def _finished(self, result: AttackResult) -> Message:
        found, original = bool(result.success[0]), self._picture
        trace = result.traces.get(0)
        names = original.names
        over: Message = {"how": "finished", "told": shown(told(result, names))}
        over |= {"facts": facts(result, names)}
        over |= {"trace": None if trace is None else trace.as_dict()}
        if original.is_whole:
            over |= {"file": self._file, "original": png_of(original.pixels)}
            over |= {"adversarial": png_of(result.images[0]) if found else None}
            over |= {"command": self._command()}
        return over

    @property
    def _file(self) -> str:
        """A name for the PNG of the original."""
        return f"{file_name(PurePath(self._picture.name).stem or 'image')}.png"

    def _command(self) -> str | None:
        """The command that does the same to the original's PNG; None if none can."""
        attempt, offer = self._attempt, self._picture.offer
        if offer.command is None:
            return None
        words = ["brusle", "attack", self._file, "--victim", offer.command]
        words += [] if offer.device == "auto" else ["--device", offer.device]
        words += [] if self._picture.label is None else ["--label", str(self._picture.label)]
        words += [] if attempt.target is None else ["--target", str(attempt.target)]
        words += ["--attack", attempt.spec] + (["--minimal"] if attempt.minimal else [])
        words += ["--pixels", str(attempt.pixels), "--queries", str(attempt.queries)]
        return shlex.join([*words, "--seed", str(attempt.seed)])
