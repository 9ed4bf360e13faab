"""What the loop trains: chains of a generator (``engine.generative``) or a network (``engine.networks``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor


class Task(ABC):
    """What is trained, step by step.

    Everything random in a step depends on its :meth:`address` only, so a run that was resumed ends where one that was
    not interrupted ends.

    Attributes
    ----------
    optimizer
        What takes the steps.
    step, n_steps
        Steps taken, and all that there are at most.
    finished
        Whether nothing is left to do.
    keep_every
        Steps between two checkpoints.
    """

    optimizer: Any
    step: int
    n_steps: int
    finished: bool
    keep_every: int

    @abstractmethod
    def address(self) -> tuple[Any, ...]:
        """Return seed, purpose and index of the random numbers of the next step."""

    @abstractmethod
    def next_loss(self) -> Tensor:
        """Return the loss of the next step."""

    @abstractmethod
    def rate(self) -> float:
        """Return the learning rate of the next step."""

    @abstractmethod
    def see_gradients(self) -> None:
        """Clip or drop gradients before they are followed, or raise where training cannot go on."""

    @abstractmethod
    def end_step(self) -> None:
        """Evaluate, remember, and stop where it is time, after a step."""

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
