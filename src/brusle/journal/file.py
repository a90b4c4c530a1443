"""The file of a journal: many threads write, and one commits for all that wait.

To commit is to wait for the disk. Whoever has the turn commits whatever was handed in by then; all
others that wait for that go on together, and one that still waits has the next turn. Reading goes
by a connection of its own, and waits for nobody who writes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

from brusle import database
from brusle.errors import DataError
from brusle.files import require_plain
from brusle.locking import identity, lock_file, require_in_place

FORMAT = "brusle-journal-1"
Changes = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]  # statements, each with its records


class Ticket:
    """Changes that were handed in.

    Attributes:
        changes: the changes.
        wanted: somebody waits for them.
        done: they are on the disk.
        news: set when whoever waits for them should look again.
    """

    def __init__(self, changes: Changes) -> None:
        self.changes, self.wanted, self.done = changes, False, False
        self.news = threading.Event()


class JournalFile:
    """The database of a journal.

    Args:
        path: the file.
        schema: its tables; a file with any other is refused.
        writing: it is made if there is none, and nobody else may write to it meanwhile.
    """

    def __init__(self, path: Path, schema: str, writing: bool) -> None:
        self.name, self._writing = str(path), writing
        self._turn, self._helping = threading.Lock(), threading.Lock()
        self._reading = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._failure: DataError | None = None
        self._lock: IO[str] | None = None
        self._files: dict[Path, tuple[int, int] | None] = {}
        if writing:
            self._lock = _locked(path)
        elif not path.is_file():
            raise DataError(f"there is no journal {path}: give the file of a recorded run")
        try:
            frozen = not writing and database.is_frozen(path)
            self._connection = self._reader = database.connect(self.name, frozen)
        except DataError:
            self._unlock()
            raise
        try:
            with self.explained():
                self._prepare(schema)
            if writing:
                self._reader = database.connect(self.name)
        except BaseException:
            self.close()
            raise
        if writing:
            self._files = {path: identity(path)}

    def explained(self) -> AbstractContextManager[None]:
        """Complaints about this file in our words."""
        return database.explained(self.name)

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is found."""
        with self.explained(), self._reading:
            return self._reader.execute(query, values).fetchall()

    def scan(self, query: str) -> Iterable[tuple[Any, ...]]:
        """What is found, one row after the other, before anybody writes."""
        return self._connection.execute(query)

    def hand_in(self, changes: Changes) -> Ticket:
        """Have changes written with whatever is written next, in the order of these calls."""
        if not self._writing:
            raise DataError(f"{self.name} was opened for reading: open it for writing")
        if self._failure is not None:
            raise self._failure
        ticket = Ticket(changes)
        self._queue.append(ticket)
        return ticket

    def wait_for(self, ticket: Ticket) -> None:
        """Return when changes are on the disk."""
        ticket.wanted = True  # first: who gives the turn away looks for it afterwards
        while not ticket.done:
            if self._turn.acquire(blocking=False):
                try:
                    if not ticket.done:
                        self._commit()
                finally:
                    self._turn.release()
                    self._pass_on()
            else:
                ticket.news.wait()
                ticket.news.clear()

    def write(self, changes: Changes) -> None:
        """Write now."""
        self.wait_for(self.hand_in(changes))

    def write_soon(self) -> None:
        """Write what was handed in as soon as the disk is free; nobody waits for it."""
        if self._helping.acquire(blocking=False):  # or another thread is at it
            threading.Thread(target=self._help, name="brusle-journal", daemon=True).start()

    def flush(self) -> None:
        """Return when everything that was handed in is on the disk."""
        if self._failure is not None:
            raise self._failure
        with suppress(IndexError):  # nothing is left
            self.wait_for(self._queue[-1])

    def close(self) -> None:
        """Write the rest, and let go of the file."""
        try:
            with self._turn:
                if self._failure is None:
                    self._commit()
        finally:
            self._reader.close()
            self._connection.close()
            self._unlock()

    def _pass_on(self) -> None:
        """Wake somebody who waits for what is not written yet."""
        for ticket in list(self._queue):
            if ticket.wanted:
                ticket.news.set()
                return

    def _help(self) -> None:
        """In a thread of its own: write until nothing is left."""
        try:
            while self._queue and self._failure is None:
                with suppress(DataError):  # whoever writes next is told
                    self.flush()
        finally:
            self._helping.release()

    def _commit(self) -> None:
        """Write everything that was handed in, in one transaction.

        After a failure nothing more is written: what comes later may refer to what is missing.
        """
        if self._failure is not None:
            raise self._failure
        tickets = list(self._queue)  # more may come meanwhile
        try:
            require_in_place(self._files)
            with self.explained(), self._connection:
                for ticket in tickets:
                    for statement, records in ticket.changes:
                        self._connection.executemany(statement, records)
        except DataError as error:
            self._failure = error
            raise
        for ticket in tickets:
            ticket.done = True
            ticket.news.set()
            self._queue.popleft()

    def _prepare(self, schema: str) -> None:
        """See that it is a journal before anything is done to it."""
        empty = not database.layout(self._connection)
        if empty and not self._writing:
            raise database.Damaged("it is empty")
        if not empty:
            self._require_format()
            database.require_whole(self._connection, schema)
        if not self._writing:
            self._connection.execute("PRAGMA query_only = ON")
            return
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if empty:
            self._connection.executescript(f"BEGIN; {schema}")
            stated = database.with_checksum("format", json.dumps(FORMAT))
            self.write([("INSERT INTO about VALUES (?, ?, ?)", [stated])])

    def _require_format(self) -> None:
        found = database.stated_format(self._connection)
        if found is None:
            raise sqlite3.DatabaseError("its tables are not those that brusle makes")
        if found != FORMAT:
            raise DataError(
                f"{self.name} is of format {found}, not {FORMAT}: take the version of brusle that "
                f"wrote it"
            )

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _locked(path: Path) -> IO[str]:
    """The lock of a journal, whose files must not lead elsewhere."""
    for ending in ("", "-wal", "-shm", "-journal"):
        require_plain(path.with_name(path.name + ending))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write the journal {path}: {error.strerror}") from error
    return lock_file(path.with_name(path.name + ".lock"), f"the journal {path}")
