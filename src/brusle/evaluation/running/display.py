"""Live progress: one bar per setting, with queries per second, success so far and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

from brusle.evaluation.record import Setting
from brusle.lazy import same_random_numbers
from brusle.session import Progress
from brusle.terminal import escape

with same_random_numbers():
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

OnSetting = Callable[[Setting, Progress], None]


class Display:
    """Shows progress on a terminal or in a notebook; a context manager."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
        )
        self._console = console
        self._bars = Bars(*columns, console=console)
        self._tasks: dict[Hashable, tuple[TaskID, float]] = {}

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

    def update(self, setting: Setting, progress: Progress) -> None:
        """Called by `evaluate` after every round."""
        self.show(setting, setting.title, progress)

    def show(self, key: Hashable, title: str, progress: Progress) -> None:
        """Bring the bar of ``key`` up to date."""
        now = time.monotonic()
        if not self._tasks:
            self._bars.start()  # not before: a request that is refused shows no bar
        if key not in self._tasks:
            self._tasks[key] = (self._bars.add_task(escape(title), text=""), now)
        task, began = self._tasks[key]
        # work is counted in queries: images finish in bursts, queries do not
        total = progress.queries + progress.remaining
        text = progress_text(progress, now - began)
        self._bars.update(task, completed=progress.queries, total=total, text=text)


def print_warning(console: Console, text: str) -> None:
    """Something is plainly wrong with the victim."""
    console.print(f"[yellow]warning[/]: {escape(text)}", highlight=False)


def progress_text(progress: Progress, seconds: float) -> str:
    """How far things are after so many seconds, in a few words."""
    speed = progress.queries / max(seconds, 1e-9)
    text = f"{progress.finished:>3}/{progress.total}, {progress.successes} fooled"
    if progress.total == 1:
        text = f"{progress.queries}/{progress.queries + progress.remaining} queries"
    text += f", {_round(speed)} queries/s"
    if progress.remaining:
        # an upper bound: every success shortens it
        return f"{text}, under {_clock(progress.remaining / max(speed, 1e-9))} left"
    return f"{text}, took {_clock(seconds)}"


@contextmanager
def watched() -> Iterator[Display | None]:
    """A display on standard error, if that is a terminal or a notebook that somebody looks at."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with Display(console) as display:
        yield display


@contextmanager
def told(on_progress: OnSetting | Literal["auto"] | None) -> Iterator[OnSetting | None]:
    """Whom to tell of the progress: bars where somebody looks at them, if ``"auto"``."""
    if on_progress != "auto":
        yield on_progress
        return
    with watched() as display:
        yield None if display is None else display.update


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _round(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
