"""The loop: everything that gpsuq trains is trained here, chains of generators and networks alike.

A :class:`~gpsuq.engine.task.Task` is what is trained. It knows loss and rate of its next step, when it is finished, and
its state. The loop alone takes gradients and steps, seeds them, and sees to interruption and checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lightning_fabric import Fabric

from gpsuq.core.seeds import seeded
from gpsuq.engine.checkpoints import keeping
from gpsuq.engine.task import Task


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
            take_step(task, fabric, on_step)
            keep()


def take_step(task: Task, fabric: Fabric, on_step: Callable[[Task], None] | None = None) -> None:
    """Take one step."""
    seed, purpose, *index = task.address()
    with seeded(seed, purpose, *index):
        loss, rate = task.next_loss(), task.rate()
        for group in task.optimizer.param_groups:
            group["lr"] = rate
        task.optimizer.zero_grad()
        fabric.backward(loss)
        task.see_gradients()
        task.optimizer.step()
    task.step += 1
    if on_step is not None:
        on_step(task)
    task.end_step()
