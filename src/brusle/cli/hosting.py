"""What the commands share that serve something until they are told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="The port; 0 takes a free one.",
)


@contextmanager
def told_to_end() -> Iterator[threading.Event]:
    """Set by Ctrl-C or a request to end, which are the usual ways to end a server."""
    told = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: told.set()) for number in numbers}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
