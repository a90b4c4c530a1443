"""One file with everything: who answered, what, to which image, and which calls that took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from brusle.journal import about, answers, books, canary
from brusle.journal.about import About
from brusle.journal.answers import Answers, Key, ReplyWriter
from brusle.journal.books import JournalBooks
from brusle.journal.canary import Canary
from brusle.journal.file import JournalFile
from brusle.replies import Reply

FILE = "journal.sqlite"
SCHEMA = about.SCHEMA + answers.SCHEMA + books.SCHEMA + canary.SCHEMA


class Journal:
    """The answers of one victim; threads may share it.

    Args:
        path: the file; made if there is none.
        reading: look only, also while a run writes to it or where nobody can write.

    Attributes:
        path: the file.
        books: the calls that were made; see `brusle.books.Books`.
        canary: an image that is asked again now and then, and the answers to it.
    """

    def __init__(self, path: str | Path, *, reading: bool = False) -> None:
        self.path = Path(path)
        self._file = JournalFile(self.path, SCHEMA, writing=not reading)
        try:
            self._about = about.read(self._file)
            writer = ReplyWriter(self._file)
            self._answers = Answers(self._file, writer)
            self.canary = Canary(self._file, writer)
            self.books = JournalBooks(self._file, writing=not reading)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the rest, and let another write."""
        self._file.close()

    @property
    def about(self) -> About | None:
        """The victim whose answers these are; None if there is none yet."""
        return self._about

    def introduce(self, victim: About) -> None:
        """Say whose answers these are, or raise if they are another's."""
        if self._about is None:
            self._file.write(about.written(victim))
            self._about = victim
        self._about.require_same(victim, str(self.path))

    def find(self, keys: Iterable[Key]) -> dict[Key, Reply]:
        """The answers that are known, with ``replayed`` set."""
        return self._answers.find(keys)

    def note(self, replies: Mapping[Key, Reply], wait: bool = True) -> dict[Key, Reply]:
        """Keep answers that were just given.

        Args:
            replies: the answers.
            wait: when this returns, they are on the disk. If not, they are written with whatever
                is written next: `write_soon` sees to it, `flush` waits for it.

        Returns:
            The answers as they will be found: text that no file can hold is replaced.
        """
        return self._answers.note(replies, wait)

    def write_soon(self) -> None:
        """Have what was noted written within moments, and wait for nobody."""
        self._file.write_soon()

    def flush(self) -> None:
        """Return when everything that was noted is on the disk."""
        self._file.flush()
