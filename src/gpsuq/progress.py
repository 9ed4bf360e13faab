"""Progress bars, with a switch, on standard error; nothing else in the library prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpsuq.training import TrainingState

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY = 10  # steps between updates


@contextmanager
def counting_bar(show: bool, text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function to tell how many of ``total`` are done; it does nothing where ``show`` is false."""
    if not show:
        yield lambda done: None
        return
    with _bar(text) as bar:
        task = bar.add_task(text, total=total, shown="")
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def training_bar(show: bool) -> Iterator[Callable[[int, int, float], None] | None]:
    """Give a function to tell step, number of steps and loss; None where nothing is shown."""
    if not show:
        yield None
        return
    with _bar("training") as bar:
        task = bar.add_task("training", shown="")

        def advance(step: int, n_steps: int, loss: float) -> None:
            if step % _EVERY == 0 or step == n_steps:
                bar.update(task, total=n_steps, completed=step, shown=f"loss {loss:.4f}")

        yield advance


@contextmanager
def progress_bar(show: bool, n_steps: int) -> Iterator[Callable[[TrainingState], None]]:
    """Give a function to call after each step; it does nothing where ``show`` is false."""
    if not show:
        yield lambda state: None
        return
    with _bar("training") as bar:
        task = bar.add_task("training", total=n_steps, shown="")

        def advance(state: TrainingState) -> None:
            if state.step % _EVERY == 0 or state.finished:
                score = float((state.history.fit[-1] + state.history.pair[-1]).mean())
                bar.update(task, completed=n_steps if state.finished else state.step, shown=f"score {score:.4f}")

        yield advance


def _bar(text: str) -> Progress:
    """Give a bar that says what is done, how much, how fast, one number of it, and the time left."""
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

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), Rate(), TextColumn("{task.fields[shown]}"))
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
