"""Progress bars, with a switch, on standard error; nothing else in the library prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

_EVERY = 10  # steps between updates
_stages: ContextVar[tuple[str, ...]] = ContextVar("stages", default=())
_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Name the bars inside after what is being done; a stage within a stage adds to its name."""
    token = _stages.set((*_stages.get(), text))
    try:
        yield
    finally:
        _stages.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Show no bar inside."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


@contextmanager
def counting_bar(show: bool, text: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function to tell how many of ``total`` are done; it does nothing where ``show`` is false.

    Where the total is None, the bar says only that something is going on.
    """
    if not show or _silent.get():
        yield lambda done: None
        return
    from rich.progress import SpinnerColumn

    with _bar(*([SpinnerColumn()] if total is None else [])) as bar:
        task = bar.add_task(_named(text), total=total, shown="")
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def training_bar(show: bool) -> Iterator[Callable[[Any], None] | None]:
    """Yield a function to call with a task of the loop after each of its steps; None where nothing is shown."""
    if not show or _silent.get():
        yield None
        return
    with _bar() as bar:
        line = bar.add_task(_training(), shown="")

        def advance(task: Any) -> None:
            if task.step % _EVERY == 0 or task.step == task.n_steps:
                bar.update(line, total=task.n_steps, completed=task.step, shown=task.shown())

        yield advance


class Download:
    """A bar of bytes, as pooch wants to be told of a download: by ``total``, ``update``, ``reset`` and ``close``."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    @property
    def total(self) -> float | None:
        """Number of bytes; None before the server has told it."""
        return self._bar.tasks[self._task].total

    @total.setter
    def total(self, n_bytes: int) -> None:
        self._bar.update(self._task, total=n_bytes or None)  # servers need not tell it

    def update(self, n_bytes: int) -> None:
        """Advance by what has come."""
        self._bar.advance(self._task, n_bytes)

    def reset(self) -> None:
        """Begin to count again."""
        self._bar.update(self._task, completed=0)

    def close(self) -> None:
        """Do nothing: the bar ends where it was opened."""


@contextmanager
def download_bar(show: bool, text: str) -> Iterator[Download | None]:
    """Yield a bar of bytes; None where nothing is shown."""
    if not show:
        yield None
        return
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _bar(DownloadColumn(), TransferSpeedColumn()) as bar:
        yield Download(bar, bar.add_task(_named(text), total=None, shown=""))


def _named(text: str) -> str:
    return ": ".join((*_stages.get(), text))


def _training() -> str:
    return ": ".join(_stages.get()) or "training"


def _bar(*amounts: ProgressColumn) -> Progress:
    """Return a bar that says what is done, how much, how fast, one number of it, and the time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.3g}/s")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),  # so that names and numbers fit into 80 columns
        *(amounts or (MofNCompleteColumn(), Rate())),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
