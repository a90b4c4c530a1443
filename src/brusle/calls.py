"""How other people's code is run: it changes nothing but its answer, and may have a time limit.

A victim is code that nobody here has read. It may set torch's default type, change the working
directory, or end the program in the middle of an evaluation with exit code 0. `contained` keeps
the settings and the process; `call` also gives up on what takes too long.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import torch

from brusle.errors import InputError
from brusle.leaving import leave_alone, no_hard_exit

T = TypeVar("T")


def check_timeout(seconds: float | None) -> None:
    """Raise if a call cannot be given so many seconds."""
    if seconds is not None and not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InputError(f"timeout is {seconds}: it must be above 0, or None for no limit")


def call(function: Callable[[], T], seconds: float | None = None) -> T:
    """What ``function`` returns; contained, and within so many seconds if there is a limit.

    With a limit, it runs in a thread of its own. A thread that takes too long is left alone: what
    it returns later is lost.

    Raises:
        TimeoutError: the time is over.
    """
    if seconds is None:
        with contained():
            return function()
    task = _Task(function, _Modes.now())
    helper = _Helper.take()
    helper.tasks.put(task)
    try:
        return task.outcome(seconds)
    finally:
        if task.done:
            helper.give_back()
        else:
            leave_alone(helper.thread)


@contextmanager
def contained() -> Iterator[None]:
    """Global settings are afterwards as they were, and ``os._exit`` is a ``SystemExit``."""
    settings = _Settings.now()
    with no_hard_exit(), same_folder():
        try:
            yield
        finally:
            settings.restore()


@contextmanager
def same_folder() -> Iterator[None]:
    """The working directory is afterwards as it was."""
    before = _folder()
    try:
        yield
    finally:
        if before is not None and _folder() != before:
            with suppress(OSError):  # it may have been deleted
                os.chdir(before)


@dataclass(frozen=True)
class _Settings:
    """What a victim may have changed for the whole process; its random numbers are its own."""

    dtype: torch.dtype
    device: torch.device
    threads: int
    deterministic: bool
    warns: bool
    grad: bool

    @classmethod
    def now(cls) -> _Settings:
        return cls(
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_grad_enabled(),
        )

    def restore(self) -> None:
        now = self.now()
        if now == self:
            return
        torch.set_default_dtype(self.dtype)
        if now.device != self.device:
            # the usual device is had by setting none
            torch.set_default_device(None if self.device.type == "cpu" else self.device)
        if now.threads != self.threads:
            torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warns)
        torch.set_grad_enabled(self.grad)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


@dataclass(frozen=True)
class _Modes:
    """What is a thread's own and must be that of the caller's."""

    inference: bool
    grad: bool
    threads: int
    context: contextvars.Context

    @classmethod
    def now(cls) -> _Modes:
        return cls(
            torch.is_inference_mode_enabled(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            contextvars.copy_context(),
        )

    def run(self, function: Callable[[], T]) -> T:
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad), contained():
            return self.context.run(function)


class _Task(Generic[T]):
    """A call that another thread makes."""

    def __init__(self, function: Callable[[], T], modes: _Modes) -> None:
        self._function, self._modes = function, modes
        self._results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self.done = False

    def run(self) -> None:
        """In the other thread."""
        try:
            self._results.put((self._modes.run(self._function), None))
        except BaseException as error:  # the caller's business
            self._results.put((None, error))

    def outcome(self, seconds: float) -> T:
        """What was returned or raised."""
        try:
            result, error = self._results.get(timeout=seconds)
        except Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        self.done = True
        if error is not None:
            raise error
        return result  # type: ignore[return-value]


class _Helper:
    """A thread that makes calls, one after the other; it does not keep the process alive."""

    idle: list[_Helper] = []  # noqa: RUF012 - of all callers

    def __init__(self) -> None:
        self.tasks: SimpleQueue[_Task[Any]] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="brusle-call", daemon=True)
        self.thread.start()

    @classmethod
    def take(cls) -> _Helper:
        """An idle one, or a new one: calls may be nested."""
        try:
            return cls.idle.pop()
        except IndexError:
            return cls()

    def give_back(self) -> None:
        """For the next call."""
        self.idle.append(self)

    def _work(self) -> None:
        while True:
            self.tasks.get().run()


os.register_at_fork(after_in_child=_Helper.idle.clear)  # a child has none of its parent's threads
