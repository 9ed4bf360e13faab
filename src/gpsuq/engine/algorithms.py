"""How a generator is trained: the paper's Algorithm 1 by name, and the default."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from gpsuq.errors import GPSError

OptimizerName = Literal["adam", "adagrad", "sgd"]
ScheduleName = Literal["cosine", "inverse-sqrt", "constant"]

OPTIMIZERS: dict[OptimizerName, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}
SCHEDULES: tuple[ScheduleName, ...] = ("cosine", "inverse-sqrt", "constant")


@dataclass(frozen=True)
class Algorithm:
    """Settings of the stochastic optimiser; the defaults are gpsuq's own.

    Parameters
    ----------
    n_steps
        Steps at most.
    batch_size
        Observations in a step, the paper's n0; all of them where there are fewer.
    n_draws
        Draws of theta in a step, the paper's M, at least 2.
    n_outcomes
        Outcomes for each draw, the paper's J; None integrates them out where that is possible.
    optimizer, learning_rate, schedule
        ``"cosine"`` falls to zero over the steps, ``"inverse-sqrt"`` is the paper's gamma_0 t^(-1/2).
    shared_noise
        Whether all observations of a step see the same draws (where G does not see x); the paper draws anew for each.
    sum_over_draws
        Whether the gradient is summed over draws, as Algorithm 1 prints it, or averaged.
    clip
        Largest norm of one chain's gradient, None for no limit.
    evaluate_every, patience
        Held-out observations are scored every so many steps (None: never), and each chain's best state is restored
        where the last is clearly worse. With ``patience``, a chain stops after so many evaluations without improvement;
        the default never stops early, because a chain gains most from the small steps at the end of a cosine schedule.
    clearly
        Standard errors by which the last state must be worse: the best of many noisy evaluations looks better than it
        is. 0 always restores the best, for generators that can follow single observations.

    Examples
    --------
    A quick look at new data:

    >>> from gpsuq import GPS, Algorithm
    >>> from gpsuq.core.models import normal_location
    >>> GPS(normal_location(), algorithm=Algorithm(n_steps=200)).algorithm.n_steps
    200
    """

    n_steps: int = 2000
    batch_size: int = 200
    n_draws: int = 100
    n_outcomes: int | None = None
    optimizer: OptimizerName = "adam"
    learning_rate: float = 5e-3
    schedule: ScheduleName = "cosine"
    shared_noise: bool = True
    sum_over_draws: bool = False
    clip: float | None = 10.0
    evaluate_every: int | None = 50
    patience: int | None = None
    clearly: float = 2.5

    def __post_init__(self) -> None:
        for name in ("n_steps", "batch_size", "n_draws", "evaluate_every"):
            if name == "evaluate_every" and self.evaluate_every is None:
                continue
            if not isinstance(getattr(self, name), int):
                raise GPSError(f"{name} must be an integer, got {getattr(self, name)!r}")
            if getattr(self, name) < 1:
                raise GPSError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_draws < 2:
            raise GPSError(f"n_draws (M) must be at least 2, got {self.n_draws}: the score compares different draws")
        if self.n_outcomes is not None and self.n_outcomes < 1:
            raise GPSError(f"n_outcomes (J) must be at least 1, or None for exact, got {self.n_outcomes}")
        if self.optimizer not in OPTIMIZERS:
            raise GPSError(f"unknown optimizer {self.optimizer!r}; use one of {', '.join(OPTIMIZERS)}")
        if self.schedule not in SCHEDULES:
            raise GPSError(f"unknown schedule {self.schedule!r}; use one of {', '.join(SCHEDULES)}")
        for name in ("learning_rate", "clip", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise GPSError(f"{name} must be positive, got {value}")

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Give the optimiser for these parameters."""
        # Fused: one sweep over all parameters instead of a dozen.
        return OPTIMIZERS[self.optimizer](parameters, lr=self.learning_rate, fused=True)  # type: ignore[call-arg]

    def rate(self, step: int, n_steps: int) -> float:
        """Learning rate at a step (counted from 0) of a phase of ``n_steps``."""
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / n_steps))
        if self.schedule == "inverse-sqrt":
            return self.learning_rate / math.sqrt(step + 1.0)
        return self.learning_rate


def Algorithm1(  # noqa: N802 (the paper's name)
    *,
    learning_rate: float = 0.01,
    batch_size: int = 100,
    n_draws: int = 10,
    n_outcomes: int = 5,
    n_steps: int = 10_000,
    evaluate_every: int = 200,
    patience: int | None = 10,
) -> Algorithm:
    r"""Algorithm 1 of the paper: SGD with :math:`\gamma_t = \gamma_0 t^{-1/2}`, the gradient summed over draws.

    ``learning_rate`` is gamma_0, ``batch_size`` n0, ``n_draws`` M and ``n_outcomes`` J; noise is drawn anew for each
    observation. The paper leaves the stop condition open: here it is ``n_steps``, or ``patience`` evaluations of
    held-out observations without improvement. The loop differs from the printed one in the second term of the
    distance, which pairs outcomes of different draws, because inside one draw it would collapse to a point mass.

    Kernel, chains and weights are set beside it. The paper's whole procedure is ``GPS(model,
    distance=MMD(Gaussian(), n_pairs=None), algorithm=Algorithm1(), n_chains=1, reweight=None, holdout=0.0)``.

    Examples
    --------
    >>> from gpsuq import Algorithm1
    >>> Algorithm1().n_draws, Algorithm1().n_outcomes
    (10, 5)
    """
    return Algorithm(
        n_steps=n_steps,
        batch_size=batch_size,
        n_draws=n_draws,
        n_outcomes=n_outcomes,
        optimizer="sgd",
        learning_rate=learning_rate,
        schedule="inverse-sqrt",
        shared_noise=False,
        sum_over_draws=True,
        clip=None,
        evaluate_every=evaluate_every,
        patience=patience,
    )
