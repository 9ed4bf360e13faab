"""Trainings on disk: one file each, written atomically with a checksum, and gone on from bit for bit.

One fit is kept by its ``checkpoint=``, all trainings of a command by :func:`resumable`. A disk that is full costs a
warning and the newest checkpoint, never the run.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpsuq.engine.task import Task
from gpsuq.errors import CheckpointError, GPSWarning
from gpsuq.files import read_state, write_state

FILE = "training.safetensors"
UNFINISHED = ".unfinished"
"""Name, or end of the name, of the directory that holds what a command had done when it was interrupted."""


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
    except KeyboardInterrupt:
        if not directory.exists():
            raise
        raise KeyboardInterrupt(
            f"interrupted; what was done is in {directory}: give the same command again to go on from there"
        ) from None
    finally:
        _block.reset(token)
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


def was_resumed() -> bool:
    """Whether a training in the :func:`resumable` block around was read from disk: times do not count it."""
    block = _block.get()
    return block is not None and block.read


@contextmanager
def keeping(task: Task, directory: Path | None, *, writes: bool) -> Iterator[Callable[[], None]]:
    """Bring a task to where its checkpoint was written, if there is one; yield a function to call after every block.

    Without a ``directory`` that of the :func:`resumable` block around serves, if any. Where this process ``writes``,
    the function keeps the state of every so many blocks, and the last.
    """
    block = _block.get()
    if directory is None and block is None:
        yield lambda: None
        return
    identity = task.identity()
    place = block.place(identity) if directory is None and block is not None else directory
    assert place is not None
    went_on = (place / FILE).is_file() and _went_on(task, place, identity, asked=directory is not None)
    if block is not None:
        block.read = block.read or went_on
    blocks = 0

    def keep() -> None:
        nonlocal blocks
        blocks += 1
        if writes and (task.finished or blocks % task.keep_every == 0):
            _write(place, task, identity)

    try:
        yield keep
    except KeyboardInterrupt:
        # A step may have been cut short, so what was kept last is what the next run goes on from.
        if not (place / FILE).is_file():
            raise
        raise KeyboardInterrupt(
            f"interrupted at step {task.step} of {task.n_steps}; the same call with checkpoint={str(place)!r} goes on "
            "from there"
        ) from None


def _went_on(task: Task, place: Path, identity: str, *, asked: bool) -> bool:
    """Restore a task from its checkpoint, and return whether that was done: a damaged one costs a warning.

    One that was ``asked`` for is an error.
    """
    try:
        tensors, meta = read_state(place / FILE)
    except CheckpointError as error:
        if asked:
            raise
        warnings.warn(f"{error}: training started anew", GPSWarning, stacklevel=4)
        return False
    if meta.get("fingerprint") != identity:
        raise CheckpointError(
            f"{place / FILE} belongs to a training of another model, of other first weights, or with other data, "
            "settings or seed; delete it, or choose another directory"
        )
    task.restore(tensors, meta)
    return True


def _write(place: Path, task: Task, identity: str) -> None:
    tensors, meta = task.state()
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_state(place / FILE, tensors, {"fingerprint": identity} | meta)
    except OSError as error:  # the run is worth more than the checkpoint
        warnings.warn(
            f"a checkpoint could not be written to {place} ({error}); training goes on, and an earlier checkpoint is "
            "as it was",
            GPSWarning,
            stacklevel=3,
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
