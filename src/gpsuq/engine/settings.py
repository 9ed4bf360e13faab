"""How things are trained: generators by an :class:`Algorithm`, networks by a :class:`Recipe`; the paper's by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from gpsuq.errors import GPSError

OptimizerName = Literal["adam", "adagrad", "sgd"]
ScheduleName = Literal["cosine", "inverse-sqrt", "constant", "one-cycle", "plateau"]

OPTIMIZERS: dict[OptimizerName, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}
SCHEDULES: tuple[ScheduleName, ...] = ("cosine", "inverse-sqrt", "constant", "one-cycle", "plateau")
_WARM_UP, _WARM_FROM = 0.15, 0.1
_EPOCHS, _STEPS = 10, 1000


def rate(schedule: ScheduleName, largest: float, step: int, n_steps: int) -> float:
    """Return the learning rate at a step, counted from 0, of ``n_steps``."""
    if schedule == "cosine":
        return largest * 0.5 * (1.0 + math.cos(math.pi * step / n_steps))
    if schedule == "inverse-sqrt":
        return largest / math.sqrt(step + 1.0)
    if schedule in ("constant", "plateau"):  # when a plateau is left is for the score to say: engine/plateau.py
        return largest
    warm = max(1, round(_WARM_UP * n_steps))
    if step < warm:
        return largest * (_WARM_FROM + (1.0 - _WARM_FROM) * step / warm)
    return largest * (n_steps - step) / max(1, n_steps - warm)


def _check(settings: Any, least: Mapping[str, int], optional: set[str]) -> None:
    """Raise where a whole number is smaller than its least, a rate is not positive, or a schedule is unknown."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is None and name in optional:
            continue
        if not isinstance(value, int) or value < smallest:
            named = name + {"n_draws": " (M)", "n_outcomes": " (J)"}.get(name, "")
            raise GPSError(f"{named} must be an integer of at least {smallest}, got {value!r}")
    if not settings.learning_rate > 0:
        raise GPSError(f"learning_rate must be positive, got {settings.learning_rate}")
    if settings.schedule not in SCHEDULES:
        raise GPSError(f"unknown schedule {settings.schedule!r}; use one of {', '.join(SCHEDULES)}")


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
        ``"cosine"`` falls to zero over the steps, ``"inverse-sqrt"`` is the paper's gamma_0 t^(-1/2). ``"plateau"``
        keeps the rate until held-out observations gain no more, then lets it fall to zero over as many steps again, so
        that training takes as long as the score asks, and ``n_steps`` at most.
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
        least = {"n_steps": 1, "batch_size": 1, "n_draws": 2, "n_outcomes": 1, "evaluate_every": 1, "patience": 1}
        _check(self, least, {"n_outcomes", "evaluate_every", "patience"})
        if self.optimizer not in OPTIMIZERS:
            raise GPSError(f"unknown optimizer {self.optimizer!r}; use one of {', '.join(OPTIMIZERS)}")
        if self.clip is not None and not self.clip > 0:
            raise GPSError(f"clip must be positive, got {self.clip}")

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimiser of these parameters."""
        # Fused: one sweep over all parameters instead of a dozen.
        return OPTIMIZERS[self.optimizer](parameters, lr=self.learning_rate, fused=True)  # type: ignore[call-arg]

    def rate(self, step: int, n_steps: int) -> float:
        """Return the learning rate at a step of a phase of ``n_steps``."""
        return rate(self.schedule, self.learning_rate, step, n_steps)


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
    schedule: ScheduleName = "one-cycle"
    weight_decay: float = 5e-4
    sum_over_draws: bool = False

    def __post_init__(self) -> None:
        _check(self, {"epochs": 1, "batch_size": 2, "n_draws": 2, "n_outcomes": 1}, {"epochs", "n_outcomes"})
        for name in ("momentum", "weight_decay"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise GPSError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")

    def n_epochs(self, n_batches: int) -> int:
        """Return the number of passes for so many batches in each."""
        return self.epochs or max(_EPOCHS, math.ceil(_STEPS / n_batches))

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser; vectors (biases, normalisation) and noise weights are not decayed.

        Parameters that require no gradient are left as they are.
        """
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                groups[parameter.dim() > 1 and name.rpartition(".")[2] != "noise_weight"].append(parameter)
        nonempty = [
            {"params": group, "weight_decay": self.weight_decay if decayed else 0.0}
            for decayed, group in groups.items()
            if group
        ]
        return torch.optim.SGD(nonempty, lr=self.learning_rate, momentum=self.momentum, fused=True)

    def rate(self, step: int, n_steps: int) -> float:
        """Return the learning rate at a step, counted from 0."""
        return rate(self.schedule, self.learning_rate, step, n_steps)


def PaperRecipe(*, epochs: int = 100) -> Recipe:  # noqa: N802 (reads as a type)
    """Return the paper's recipe: plain SGD with gamma_t = 0.01 t^(-1/2), M = 10, J = 5, batches of 100.

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
