"""Victims that do what a victim should not, by the kind of evil: python:hostile:make?kind=NAME.

All are the same small net where they answer, so that their rows can be compared with its own.
"""

import copy
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import torch

import brusle
from brusle.victims import wrap

SHAPE, CLASSES = (3, 6, 6), 4


class Plague(BaseException):
    """Neither an error nor an interruption."""


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    @property
    def response(self):
        raise RuntimeError("no response")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(108, CLASSES, generator=generator))

    def forward(self, x):
        return (x.flatten(1).double() @ self.weight.double()).float()


NET = Net()


def raising(error):
    def function(x):
        raise error

    return function


def doing(action):
    """Does something before every answer."""

    def function(x):
        action()
        return NET(x).detach()

    return function


def bright(x: torch.Tensor) -> torch.Tensor:
    """Which images of a batch are bright in the corner; some of the clean ones are."""
    return x[:, 0, 0, 0] > 0.7


def raises_on_some(x):
    if bright(x).any():
        raise ValueError("too bright")
    return NET(x).detach()


def nan_on_some(x):
    return NET(x).detach().masked_fill(bright(x)[:, None], torch.nan)


def leak() -> None:
    while True:
        os.open(os.devnull, os.O_RDONLY)


def recurse(x):
    return recurse(x)


class MoreLater:
    """One class more from the third call on."""

    calls = 0

    def __call__(self, x):
        self.calls += 1
        scores = NET(x).detach()
        return scores if self.calls < 3 else torch.cat([scores, scores[:, :1]], 1)


def new_threads() -> None:
    threading.Thread(target=time.sleep, args=(3600,)).start()


def consume() -> None:
    torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002


def reseed() -> None:
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002


def in_c() -> None:
    libc = ctypes.CDLL(None)
    libc.puts(b"printed in C")
    libc.fflush(None)


def noise() -> None:
    print("printed")
    sys.stdout.write("written")
    sys.__stdout__.write("to the first stdout")
    sys.__stdout__.flush()
    os.write(1, b"to the descriptor\n")
    subprocess.run(["echo", "by a process"], check=True)
    in_c()
    warnings.warn("a warning", stacklevel=1)


def sleeping(x):
    time.sleep(3600)


def busy(x):
    until = time.monotonic() + 2  # not for ever: it is left running
    while time.monotonic() < until:
        pass


def exit_in_thread() -> None:
    thread = threading.Thread(target=os._exit, args=(0,))
    thread.start()
    thread.join()


class Deleting(Net):
    """Loses its weights in the middle."""

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 12:
            del self.weight
        return super().forward(x)


class Learning(Net):
    """Other weights after every answer."""

    def forward(self, x):
        scores = super().forward(x)
        with torch.no_grad():
            self.weight.data = self.weight * 1.01
        return scores


# answers that are those of the net
GOOD = {
    "prints": doing(noise),
    "default dtype": doing(lambda: torch.set_default_dtype(torch.float64)),
    "default device": doing(lambda: torch.set_default_device("meta")),
    "grad mode": doing(lambda: torch.set_grad_enabled(True)),
    "threads of torch": doing(lambda: torch.set_num_threads(3)),
    "deterministic": doing(lambda: torch.use_deterministic_algorithms(True)),
    "consumes": doing(consume),
    "reseeds": doing(reseed),
    "folder": doing(lambda: os.chdir(tempfile.gettempdir())),
    "new threads": doing(new_threads),
    "exit in a thread": doing(exit_in_thread),
    "needs grad": lambda x: NET(x),
    "numpy": lambda x: NET(x).detach().numpy(),
    "lists": lambda x: NET(x).tolist(),
}
# a line that says what is wrong, and nothing stored about images
BAD = {
    "sys.exit": (doing(lambda: sys.exit(0)), "tried to end the program"),
    "os._exit": (doing(lambda: os._exit(0)), "tried to end the program"),
    "no rows": (lambda x: NET(x)[:0].detach(), "answered 8 images with shape"),
    "one row": (lambda x: NET(x)[:1].detach(), "answered 8 images with shape"),
    "flat": (lambda x: NET(x).flatten().detach(), "answered 8 images with shape"),
    "one class": (lambda x: NET(x)[:, :1].detach(), "answered 8 images with shape"),
    "its input": (lambda x: x, "answered 8 images with shape"),
    "more classes later": (MoreLater(), "the number of classes must not change"),
    "complex": (lambda x: NET(x).detach() + 1j, "answered with torch.complex64"),
    "text": (lambda x: "cat", "which is no array of scores"),
    "texts": (lambda x: ["cat"] * len(x), "which is no array of scores"),
    "None": (lambda x: None, "which is no array of scores"),
    "generator": (lambda x: (row for row in NET(x)), "which is no array of scores"),
    "dict": (lambda x: {"logits": NET(x)}, "which is no array of scores"),
    "raises": (raising(ValueError("always")), "no clean image could be classified"),
    "StopIteration": (raising(StopIteration("x")), "no clean image could be classified"),
    "GeneratorExit": (raising(GeneratorExit("x")), "no clean image could be classified"),
    "BaseException": (raising(Plague("x")), "the victim raised Plague: x"),
    "mute": (raising(Mute()), "the victim raised Mute"),
    "recursion": (recurse, "RecursionError"),
    "NaN": (lambda x: NET(x).detach() * torch.nan, "NaN or infinite"),
    "infinite": (lambda x: NET(x).detach() + torch.inf, "NaN or infinite"),
    "descriptors": (doing(leak), "Too many open files"),
    "no memory": (raising(MemoryError()), "runs out of memory on a single image"),
    "sleeps": (sleeping, "no answer within 0.2 s"),
    "busy": (busy, "no answer within 0.2 s"),
}
# images that it fails on are errors, the others are the net's
SOME = {"raises on some": raises_on_some, "NaN on some": nan_on_some}


def victim(kind: str):
    function = copy.copy(GOOD.get(kind) or SOME.get(kind) or BAD[kind][0])
    return wrap(function, output="logits", name=kind, patience=brusle.Patience(waits=0))


def make(kind: str):
    """What the command line asks for."""
    if kind == "exits early":
        sys.exit(0)
    if kind == "exits early and hard":
        os._exit(0)
    if kind == "plague":
        raise Plague("at once")
    if kind == "noisy":
        noise()
    if kind == "slow":
        return wrap(doing(lambda: time.sleep(0.05)), output="logits", name=kind)
    if kind == "wanders":
        os.chdir(tempfile.gettempdir())
    return victim(kind if kind in GOOD or kind in SOME or kind in BAD else "numpy")
