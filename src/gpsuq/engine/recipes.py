"""How a network is trained: the paper's recipe by name, and a faster default that all methods share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from gpsuq.errors import GPSError

_WARM_UP, _WARM_FROM = 0.15, 0.1
_EPOCHS, _STEPS = 10, 1000


@dataclass(frozen=True)
class Recipe:
    """Settings of the training of a network; the defaults are gpsuq's own.

    Parameters
    ----------
    epochs, batch_size
        Passes over the data, and observations in a step (the paper's n0). None makes ten passes, or as many more as
        1,000 steps take.
    n_draws
        Draws of Z for each observation in a step, the paper's M, at least 2.
    n_outcomes
        Outcomes for each draw, the paper's J; None takes the exact score.
    learning_rate, momentum, schedule
        SGD; ``"one-cycle"`` rises to the rate over the first steps and falls to zero, ``"inverse-sqrt"`` is the paper's
        gamma_0 t^(-1/2).
    weight_decay
        On weights of affine and convolutional layers, never on noise weights: a decayed noise path dies.
    sum_over_draws
        Whether the gradient is summed over draws, as the paper's Algorithm 1 prints it, or averaged.

    Examples
    --------
    >>> from gpsuq import Recipe
    >>> Recipe(epochs=20, n_draws=10).weight_decay == Recipe().weight_decay
    True
    """

    epochs: int | None = None
    batch_size: int = 100
    n_draws: int = 4
    n_outcomes: int | None = None
    learning_rate: float = 0.05
    momentum: float = 0.9
    schedule: Literal["one-cycle", "inverse-sqrt"] = "one-cycle"
    weight_decay: float = 5e-4
    sum_over_draws: bool = False

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 2), ("n_draws", 2), ("n_outcomes", 1)):
            value = getattr(self, name)
            if name in ("epochs", "n_outcomes") and value is None:
                continue
            if not isinstance(value, int) or value < least:
                raise GPSError(f"{name} must be an integer of at least {least}, got {value!r}")
        if not self.learning_rate > 0:
            raise GPSError(f"learning_rate must be positive, got {self.learning_rate}")
        for name in ("momentum", "weight_decay"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise GPSError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.schedule not in ("one-cycle", "inverse-sqrt"):
            raise GPSError(f'schedule must be "one-cycle" or "inverse-sqrt", got {self.schedule!r}')

    def n_epochs(self, n_batches: int) -> int:
        """Give the number of passes for so many batches in each."""
        return self.epochs or max(_EPOCHS, math.ceil(_STEPS / n_batches))

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Give the optimiser; vectors (biases, normalisation) and noise weights are not decayed.

        Parameters that require no gradient are left as they are.
        """
        decayed: list[nn.Parameter] = []
        free: list[nn.Parameter] = []
        for name, parameter in network.named_parameters():
            if not parameter.requires_grad:
                continue
            exempt = parameter.dim() < 2 or name.rpartition(".")[2] == "noise_weight"
            (free if exempt else decayed).append(parameter)
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": free, "weight_decay": 0.0}]
        nonempty = [group for group in groups if group["params"]]
        return torch.optim.SGD(nonempty, lr=self.learning_rate, momentum=self.momentum, fused=True)

    def rate(self, step: int, n_steps: int) -> float:
        """Learning rate at a step, counted from 0."""
        if self.schedule == "inverse-sqrt":
            return self.learning_rate / math.sqrt(step + 1.0)
        warm = max(1, round(_WARM_UP * n_steps))
        if step < warm:
            return self.learning_rate * (_WARM_FROM + (1.0 - _WARM_FROM) * step / warm)
        return self.learning_rate * (n_steps - step) / max(1, n_steps - warm)


def PaperRecipe(*, epochs: int = 100) -> Recipe:  # noqa: N802 (reads as a type)
    """Give the paper's recipe: plain SGD with gamma_t = 0.01 t^(-1/2), M = 10, J = 5, batches of 100.

    Examples
    --------
    >>> from gpsuq import PaperRecipe
    >>> PaperRecipe(epochs=5).schedule
    'inverse-sqrt'
    """
    return Recipe(
        epochs=epochs,
        n_draws=10,
        n_outcomes=5,
        learning_rate=0.01,
        momentum=0.0,
        schedule="inverse-sqrt",
        weight_decay=0.0,
        sum_over_draws=True,
    )
