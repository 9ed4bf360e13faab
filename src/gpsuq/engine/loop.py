"""The loop: everything that gpsuq trains is trained here, chains of generators and networks alike.

A :class:`Task` is what is trained. It knows the losses of its next steps, what to make of their gradients, and its
state. The loop alone owns rates, seeds, steps, stopping, interruption and checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor

from gpsuq.core.seeds import seeded
from gpsuq.engine.checkpoints import keeping


class Task(ABC):
    """What is trained, in blocks of steps between two states that can be kept.

    A block is one step of chains, or an epoch of a network. Everything random in it depends on its :meth:`address`
    only, so a run that was resumed ends where one that was not interrupted ends.

    Attributes
    ----------
    optimizer
        What takes the steps.
    step, n_steps
        Steps taken, and all that there are at most.
    finished
        Whether nothing is left to do.
    keep_every
        Blocks between two checkpoints.
    """

    optimizer: Any
    step: int
    n_steps: int
    finished: bool
    keep_every: int

    @abstractmethod
    def address(self) -> tuple[Any, ...]:
        """Return seed, purpose and index of the random numbers of the next block."""

    @abstractmethod
    def losses(self) -> Iterator[Tensor]:
        """Yield the loss of each step of the next block; a step is taken before the next is asked for."""

    @abstractmethod
    def rate(self) -> float:
        """Return the learning rate of the next step."""

    @abstractmethod
    def see_gradients(self) -> None:
        """Clip or drop gradients before they are followed, or raise where training cannot go on."""

    @abstractmethod
    def end_block(self) -> None:
        """Evaluate, remember, and stop where it is time, after the steps of a block."""

    @abstractmethod
    def shown(self) -> str:
        """Return what a progress bar says beside the number of steps."""

    @abstractmethod
    def identity(self) -> str:
        """Return a digest of everything that decides where training ends, taken before the first step."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that a checkpoint must hold: tensors, and what JSON can write."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go to where a checkpoint was written."""


def train(
    task: Task,
    fabric: Fabric,
    *,
    checkpoint: Path | None = None,
    on_step: Callable[[Task], None] | None = None,
) -> None:
    """Take steps until the task is finished.

    With a ``checkpoint`` directory, or in a :func:`~gpsuq.engine.checkpoints.resumable` block, the state is kept on the
    way, and training goes on from what is there already. ``on_step`` is called after every step.
    """
    with keeping(task, checkpoint, writes=fabric.is_global_zero) as keep:
        while not task.finished:
            take_block(task, fabric, on_step)
            keep()


def take_block(task: Task, fabric: Fabric, on_step: Callable[[Task], None] | None = None) -> None:
    """Take the steps of one block."""
    seed, purpose, *index = task.address()
    with seeded(seed, purpose, *index):
        for loss in task.losses():
            for group in task.optimizer.param_groups:
                group["lr"] = task.rate()
            task.optimizer.zero_grad()
            fabric.backward(loss)
            task.see_gradients()
            task.optimizer.step()
            task.step += 1
            if on_step is not None:
                on_step(task)
    task.end_block()
