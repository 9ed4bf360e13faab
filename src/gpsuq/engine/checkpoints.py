"""Trainings on disk: the last two states of each, written atomically with a checksum, and gone on from bit for bit.

One fit is kept by its ``checkpoint=``, all trainings of a command by :func:`resumable`. Ctrl-C and SIGTERM let the step
end and keep it. A disk that is full costs a warning and the newest checkpoint, never the run.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpsuq.engine.ranks import by_first, rank, wait_for_all
from gpsuq.engine.task import Task
from gpsuq.errors import CheckpointError, stopped, warn
from gpsuq.files import read_state, write_state

FILE, BEFORE = "training.safetensors", "before.safetensors"
UNFINISHED = ".unfinished"
"""Name, or end of the name, of the directory that holds what a command had done when it was interrupted."""

_SECONDS = 300.0  # between two checkpoints at most, however long an epoch is


@dataclass
class _Block:
    """A directory, and how many trainings have begun in it: the n-th of a repeated block is the n-th of the first."""

    directory: Path
    begun: int = 0
    read: bool = False

    def place(self, identity: str) -> Path:
        self.begun += 1
        return self.directory / f"{self.begun}-{identity}"


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


def unfinished(out: Path) -> Path:
    """Return the directory beside ``out`` that holds what was done for it."""
    path = out.absolute()
    return path.with_name(path.name + UNFINISHED)


@contextmanager
def resumable(directory: Path | None, *, keep: bool = False) -> Iterator[None]:
    """Keep every training inside in ``directory``, so that the same block, run again after Ctrl-C, goes on from there.

    The directory is deleted once the block has ended well, unless it is to be kept. None keeps nothing.
    """
    if directory is None:
        yield
        return
    token = _block.set(_Block(directory))
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if not directory.exists():
            raise
        message = f"interrupted; what was done is in {directory}: give the same command again to go on from there"
        raise stopped(stop, message) from None
    finally:
        _block.reset(token)
    wait_for_all()  # others may still read what is finished
    if not keep and rank() == 0:
        shutil.rmtree(directory, ignore_errors=True)


def was_resumed() -> bool:
    """Whether a training in the :func:`resumable` block around was read from disk: times do not count it."""
    block = _block.get()
    return block is not None and block.read


def place_of_tasks() -> Path | None:
    """Return a directory in the :func:`resumable` block around for tasks that each count anew; None without a block."""
    block = _block.get()
    return None if block is None else block.place("tasks")


def note_resumed() -> None:
    """Let the :func:`resumable` block around know that a task of it read a training from disk."""
    block = _block.get()
    if block is not None:
        block.read = True


@contextmanager
def keeping(task: Task, directory: Path | None, *, writes: bool) -> Iterator[Callable[[], None]]:
    """Bring a task to where its checkpoint was written, if there is one; yield a function to call after every step.

    Without a ``directory`` that of the :func:`resumable` block around serves, if any. Where this process ``writes``,
    the function keeps the state of every so many steps, and the last.
    """
    block = _block.get()
    if directory is None and block is None:
        yield lambda: None
        return
    identity = task.identity()
    place = block.place(identity) if directory is None and block is not None else directory
    assert place is not None
    went_on = _went_on(task, place, identity, asked=directory is not None)
    if block is not None:
        block.read = block.read or went_on
    kept = time.monotonic()

    with _heeding_signals() as heard:

        def keep() -> None:
            nonlocal kept
            due = task.finished or task.step % task.keep_every == 0 or time.monotonic() - kept > _SECONDS
            if writes and (due or heard):
                _write(place, task, identity)
                kept = time.monotonic()
            if heard:
                raise _as_exception(heard[0])

        try:
            yield keep
        except KeyboardInterrupt:
            if not (place / FILE).is_file():
                raise
            raise KeyboardInterrupt(
                f"interrupted at step {task.step} of {task.n_steps}; the same call with checkpoint={str(place)!r} goes "
                "on from there"
            ) from None


@contextmanager
def _heeding_signals() -> Iterator[list[int]]:
    """Yield a list that names the signals to stop that came, so that a step can end; the second one interrupts it."""
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield heard
        return

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise _as_exception(number)

    usual = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _as_exception(number: int) -> BaseException:
    """Return what a signal is to the program: Ctrl-C, or an end with its usual exit code."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _went_on(task: Task, place: Path, identity: str, *, asked: bool) -> bool:
    """Restore a task from the newest checkpoint that is whole, and return whether there was one.

    The first process reads for all of them, so that all go on from the same step: on several machines a file that was
    just replaced may not be the same for each. A damaged one costs a warning; if one was ``asked`` for, and none is
    whole, that is an error.
    """
    found, damage = by_first(_newest, place)
    if found is None:
        if damage is not None and asked:
            raise damage
        if damage is not None:
            warn(f"{damage}: training started anew")
        return False
    tensors, meta = found
    if meta.get("fingerprint") != identity:
        raise CheckpointError(
            f"the checkpoint in {place} belongs to a training of another model, of other first weights, or with other "
            "data, settings or seed; delete it, or choose another directory"
        )
    if damage is not None:
        warn(f"{damage}: training went on from the one before")
    task.restore(tensors, meta)
    return True


def _newest(place: Path) -> tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, CheckpointError | None]:
    """Return the newest checkpoint that is whole, if there is one, and what is wrong with the newest, if anything."""
    damage: CheckpointError | None = None
    for path in (place / FILE, place / BEFORE):
        if path.is_file():
            try:
                return read_state(path), damage
            except CheckpointError as error:
                damage = damage or error
    return None, damage


def _write(place: Path, task: Task, identity: str) -> None:
    tensors, meta = task.state()
    try:
        place.mkdir(parents=True, exist_ok=True)
        if (place / FILE).is_file():  # the newest stays under its name until the new one takes it
            (place / BEFORE).unlink(missing_ok=True)
            try:
                os.link(place / FILE, place / BEFORE)
            except OSError:  # a file system without links
                shutil.copyfile(place / FILE, place / BEFORE)
        write_state(place / FILE, tensors, {"fingerprint": identity} | meta)
    except OSError as error:  # the run is worth more than the checkpoint
        warn(
            f"a checkpoint could not be written to {place} ({error}); training goes on, and an earlier checkpoint is "
            "as it was"
        )


def optimizer_tensors(optimizer: Any) -> dict[str, Tensor]:
    """Return the state of an optimiser as ``optimizer/index/key``."""
    return {
        f"optimizer/{index}/{key}": torch.as_tensor(value)
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what was saved of an optimiser as ``index/key``, every tensor laid out in memory as its weight is.

    A fused optimiser walks through weights and state side by side, and files do not keep layouts such as channels last.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    saved: dict[str, Any] = optimizer.state_dict() | {"state": {}}
    for name, tensor in tensors.items():
        index, key = name.split("/")
        weight = weights[int(index)]
        laid_out = torch.empty_like(weight).copy_(tensor) if tensor.shape == weight.shape else tensor
        saved["state"].setdefault(int(index), {})[key] = laid_out
    optimizer.load_state_dict(saved)
