"""Training that goes on after an interruption: one fit by its ``checkpoint=``, a block of them by :func:`resumable`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from gpsuq.checkpoints import fingerprint, has_checkpoint, load_checkpoint, save_checkpoint
from gpsuq.training import Problem, TrainingState, run

CHECKPOINT_EVERY = 200


@dataclass
class _Block:
    """A directory, and how many trainings have begun in it: the n-th of a repeated block is the n-th of the first."""

    directory: Path
    begun: int = 0

    def place(self, problem: Problem, state: TrainingState) -> Path:
        self.begun += 1
        return self.directory / f"{self.begun}-{fingerprint(problem, state)}"


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
    place = block.place(problem, state) if directory is None and block is not None else directory
    if place is None:
        return run(problem, state, on_step=on_step)
    if has_checkpoint(place):
        state = load_checkpoint(place, problem, state)

    def saving(current: TrainingState) -> None:
        if on_step is not None:
            on_step(current)
        if (current.finished or current.step % every == 0) and problem.fabric.is_global_zero:
            save_checkpoint(place, problem, current)

    try:
        return run(problem, state, on_step=saving)
    except KeyboardInterrupt:
        # A step may have been cut short, so what was saved last is what a new fit goes on from.
        if not has_checkpoint(place):
            raise
        raise KeyboardInterrupt(
            f"interrupted; the same call with checkpoint={str(place)!r} goes on from there"
        ) from None
