"""The studio in a thread of its own, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brusle.data import Data
from brusle.packages import need
from brusle.serving.hosting import Host

_PACKAGES = ("starlette", "uvicorn")
_HERE = "127.0.0.1"  # and nowhere else


class Studio:
    """A page to watch attacks and run folders; runs as long as the ``with`` block.

        with Studio(victims=["zoo:cifar10-vit", my_model], runs=["runs/first"]) as studio:
            print(studio.url)

    It listens on this machine only, and answers nobody without the token in its address.

    Args:
        victims: names, modules or victims, beside those that are bundled. A service that keeps
            books is refused.
        data: names or data, beside the sample.
        runs: run folders that the page may open, beside those below ``runs``.
        port: the port; 0 takes a free one.
        device: where victims run.
    """

    def __init__(
        self,
        victims: Sequence[Any] = (),
        data: Sequence[Data] = (),
        runs: Sequence[str | Path] = (),
        *,
        port: int = 0,
        device: str = "auto",
    ) -> None:
        for package in _PACKAGES:
            need(package, "the studio")
        from brusle.studio.app import Answers
        from brusle.studio.folders import Folders
        from brusle.studio.guard import Guard
        from brusle.studio.offers import Offers

        self._answers = Answers(Offers(victims, data, device), Folders(runs))
        self._host = Host(_HERE, port)
        self._guard = Guard(self._answers.app(), self.port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._host.port

    @property
    def token(self) -> str:
        """What requests must carry, in the header ``X-Brusle-Token``."""
        return self._guard.token

    @property
    def url(self) -> str:
        """The address to open, with its token."""
        return f"{self._host.url}/?token={self.token}"

    def __enter__(self) -> Studio:
        self._host.start(self._guard)
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.end()
        self._host.end()
