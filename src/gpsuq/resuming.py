"""Training that goes on after an interruption: one fit by its ``checkpoint=``, a block of them by :func:`resumable`."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpsuq.checkpoints import fingerprint, has_checkpoint, load_checkpoint, save_checkpoint
from gpsuq.errors import GPSWarning
from gpsuq.training import Problem, TrainingState, run

CHECKPOINT_EVERY = 200
UNFINISHED = ".unfinished"
"""Name, or end of the name, of the directory that holds what a command had done when it was interrupted."""


@dataclass
class _Block:
    """A directory, and how many trainings have begun in it: the n-th of a repeated block is the n-th of the first."""

    directory: Path
    begun: int = 0
    read: bool = False

    def place(self, state: TrainingState) -> Path:
        self.begun += 1
        return self.directory / f"{self.begun}-{state.fingerprint}"


def unfinished(out: Path) -> Path:
    """Name the directory beside ``out`` that holds what was done for it."""
    path = out.absolute()
    return path.with_name(path.name + UNFINISHED)


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


@contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Keep every training inside in ``directory``, so that the same block, run again after Ctrl-C, goes on from there.

    The directory is deleted once the block has ended well.
    """
    token = _block.set(_Block(directory))
    try:
        yield
    except KeyboardInterrupt:
        if not directory.exists():
            raise
        raise KeyboardInterrupt(
            f"interrupted; what was done is in {directory}: give the same command again to go on from there"
        ) from None
    finally:
        _block.reset(token)
    shutil.rmtree(directory, ignore_errors=True)


def was_resumed() -> bool:
    """Whether a training in the :func:`resumable` block around was read from disk: times do not count it."""
    block = _block.get()
    return block is not None and block.read


def run_saved(
    problem: Problem,
    state: TrainingState,
    directory: Path | None = None,
    *,
    every: int = CHECKPOINT_EVERY,
    on_step: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Run to the end like :func:`gpsuq.training.run`, from a checkpoint where there is one, writing others on the way.

    Without a ``directory``, that of the :func:`resumable` block around serves, if any.
    """
    block = _block.get()
    if directory is None and block is None:
        return run(problem, state, on_step=on_step)
    state.fingerprint = fingerprint(problem, state)
    place = block.place(state) if directory is None and block is not None else cast(Path, directory)
    asked_for = directory is not None
    if has_checkpoint(place):
        state = load_checkpoint(place, problem, state)
        if block is not None:
            block.read = True

    def saving(current: TrainingState) -> None:
        if on_step is not None:
            on_step(current)
        if (current.finished or current.step % every == 0) and problem.fabric.is_global_zero:
            try:
                save_checkpoint(place, current)
            except OSError as error:
                if asked_for:
                    raise
                # Nobody asked for it, and the run is worth more.
                warnings.warn(f"a checkpoint could not be written to {place} ({error})", GPSWarning, stacklevel=2)

    try:
        return run(problem, state, on_step=saving)
    except KeyboardInterrupt:
        # A step may have been cut short, so what was saved last is what a new fit goes on from.
        if not has_checkpoint(place):
            raise
        raise KeyboardInterrupt(
            f"interrupted; the same call with checkpoint={str(place)!r} goes on from there"
        ) from None
