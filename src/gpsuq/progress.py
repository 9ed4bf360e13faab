"""One progress bar for training, with a switch; nothing else in the library prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpsuq.training import TrainingState

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY = 10  # steps between updates


@contextmanager
def training_bar(show: bool) -> Iterator[Callable[[int, int, float], None] | None]:
    """Give a function to tell step, number of steps and loss; None where nothing is shown."""
    if not show:
        yield None
        return
    with _bar("loss") as bar:
        task = bar.add_task("training", loss="")

        def advance(step: int, n_steps: int, loss: float) -> None:
            if step % _EVERY == 0 or step == n_steps:
                bar.update(task, total=n_steps, completed=step, loss=f"{loss:.4f}")

        yield advance


@contextmanager
def progress_bar(show: bool, n_steps: int) -> Iterator[Callable[[TrainingState], None]]:
    """Give a function to call after each step; it does nothing where ``show`` is false."""
    if not show:
        yield lambda state: None
        return
    with _bar("score") as bar:
        task = bar.add_task("training", total=n_steps, score="")

        def advance(state: TrainingState) -> None:
            if state.step % _EVERY == 0 or state.finished:
                score = float((state.history.fit[-1] + state.history.pair[-1]).mean())
                bar.update(task, completed=n_steps if state.finished else state.step, score=f"{score:.4f}")

        yield advance


def _bar(shown: str) -> Progress:
    """Give a bar with steps, time left and one number of the training."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    number = TextColumn(f"{shown} {{task.fields[{shown}]}}")
    return Progress(TextColumn("training"), BarColumn(), MofNCompleteColumn(), number, TimeRemainingColumn())
