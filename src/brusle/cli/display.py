"""Live progress: one bar per setting, with queries per second, success so far and time left."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from brusle.evaluation.store import Record
from brusle.loop import Progress


class Display:
    """Shows `evaluate`'s progress on a terminal; a context manager."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
        )
        self._console = console
        self._bars = Bars(*columns, console=console)
        self._tasks: dict[Record, tuple[TaskID, float]] = {}

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tasks:
            self._bars.stop()

    def warn(self, text: str) -> None:
        """Called by `evaluate` before the first attack."""
        print_warning(self._console, text)

    def update(self, setting: Record, progress: Progress) -> None:
        """Called by `evaluate` after every round."""
        now = time.monotonic()
        if not self._tasks:
            self._bars.start()  # not before: a request that is refused shows no bar
        if setting not in self._tasks:
            self._tasks[setting] = (self._bars.add_task(setting.title, text=""), now)
        task, began = self._tasks[setting]
        # work is counted in queries: images finish in bursts, queries do not
        speed = progress.queries / max(now - began, 1e-9)
        text = (
            f"{progress.finished:>3}/{progress.total}, {progress.successes} fooled, "
            f"{_round(speed)} queries/s"
        )
        if progress.remaining:
            # an upper bound: every success shortens it
            text += f", under {_clock(progress.remaining / max(speed, 1e-9))} left"
        else:
            text += f", took {_clock(now - began)}"
        total = progress.queries + progress.remaining
        self._bars.update(task, completed=progress.queries, total=total, text=text)


def print_warning(console: Console, text: str) -> None:
    """Something is plainly wrong with the victim."""
    console.print(f"[yellow]warning[/]: {escape(text)}", highlight=False)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _round(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
