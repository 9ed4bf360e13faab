"""What is settled after training: which features are familiar, a temperature, how much strangeness counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from torch import Tensor

from gpsuq.classify.decisions import Array, ClassUncertainty, Flags, combined_criterion, risk_coverage
from gpsuq.classify.thresholds import threshold_for_coverage
from gpsuq.core.familiarity import Familiarity, FeatureSums
from gpsuq.core.losses import log_score
from gpsuq.core.seeds import random_block

_WEIGHTS = tuple(3e-4 * 1.25**power for power in range(23))  # up to 0.041: odds of 0.8 at a p-value of 0.05
_BELIEF = 500  # observations that probabilities are believed for, beside those that were seen
_MOST_HURT = 0.01  # by which share the area under the risk-coverage curve may grow
_HOTTEST = 10.0
_COVERAGES = (0.05, 0.995)  # neither none nor all are certain
_ROWS_AT_ONCE = 500
_USUAL = 0.5  # how far the log of a temperature is from 0, before there is anything to see


def batches(x: Any, y: Tensor | None = None, *, shuffled: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield observations some at a time, with their labels where there are any."""
    order = torch.randperm(len(x), generator=random_block(0, "order")) if shuffled else torch.arange(len(x))
    for some in order.split(_ROWS_AT_ONCE):
        yield x[some], torch.empty(0) if y is None else y[some]


def learned_familiarity(
    features: Callable[[Tensor], Tensor],
    training: Iterable[tuple[Tensor, Tensor]],
    validation: Iterable[Tensor],
    n_classes: int,
) -> Familiarity:
    """Return what features (n, p) of training batches are like; new ones, of validation batches, say how far is far.

    >>> import torch
    >>> x, y = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)), torch.arange(400) % 2
    >>> known = learned_familiarity(lambda rows: rows, [(x[:300], y[:300])], [x[300:]], n_classes=2)
    >>> bool(known(torch.full((1, 3), 9.0)) > 5.0)
    True
    """
    sums = None
    for x, y in training:
        rows = features(x)
        sums = sums or FeatureSums(rows.shape[1], n_classes)
        sums.add(rows, y)
    assert sums is not None, "there was something to train on"
    known = sums.familiarity()
    known.calibrate(torch.cat([features(x) for x in validation]))
    return known


def best_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the number by which logits (n, draw, class) are divided to minimise the log loss of their mean.

    The sum of the loss has a penalty, so that a few observations without a mistake do not make it sure of all.

    >>> import torch
    >>> sure = torch.tensor([[[4.0, 0.0]]]).expand(4000, -1, -1)  # it says 98%, and is right in three of four cases
    >>> round(best_temperature(sure, torch.arange(4000) % 4 // 3), 1)  # 4 / log 3
    3.6
    >>> round(best_temperature(sure[:4], torch.arange(4) // 3), 1)
    1.6
    """

    def loss(log_temperature: float) -> float:
        seen = float(log_score(logits / float(np.exp(log_temperature)), y).sum())
        return seen + 0.5 * (log_temperature / _USUAL) ** 2

    bound = float(np.log(_HOTTEST))
    found = minimize_scalar(loss, bounds=(-bound, bound), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x))


def strangeness_weight(mean: ArrayLike, strangeness: ArrayLike, errors: ArrayLike) -> float:
    """Return the largest weight of strangeness that leaves the ranking of mistakes as good as it is, within 1%.

    ``mean`` are probabilities (n, H), ``errors`` flags of wrong predictions, all of validation observations: no
    strangers are needed. How good a ranking is says the area under the risk-coverage curve. A few mistakes say little
    of that: they count together with those of 500 observations that are wrong as often as their probabilities say,
    strange or not. The weight is between 0.0003 and 0.04: three of ten thousand familiar observations are strange
    enough for even odds in any case.

    >>> import numpy as np
    >>> mean = np.column_stack([np.linspace(0.5, 1.0, 2000), np.linspace(0.5, 0.0, 2000)])
    >>> wrong = np.random.default_rng(0).random(2000) < mean[:, 1]
    >>> weight = strangeness_weight(mean, np.where(wrong, 5.0, 0.0), wrong)  # the strange ones are mistakes
    >>> few = strangeness_weight(mean[::100], np.where(wrong, 5.0, 0.0)[::100], wrong[::100])
    >>> round(weight, 3), few < weight
    (0.041, True)
    >>> strangeness_weight(mean, np.where(wrong, 0.0, 5.0), wrong)
    0.0003
    """
    probabilities, flags = np.asarray(mean, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    believed = (len(flags) * flags + _BELIEF * (1.0 - probabilities.max(1))) / (len(flags) + _BELIEF)
    most = (1.0 + _MOST_HURT) * _area(mean, strangeness, believed, 0.0)
    within = [weight for weight in _WEIGHTS if _area(mean, strangeness, believed, weight) <= most]
    return max(within, default=_WEIGHTS[0])


def combined_verdict(verdicts: ClassUncertainty, errors: Flags) -> tuple[float, float]:
    """Return the weight of strangeness, and a threshold that leaves as many certain as the verdicts of others do."""
    weight = strangeness_weight(verdicts.mean, verdicts.strangeness, errors)
    best = combined_criterion(verdicts.mean, verdicts.strangeness, weight).max(1)
    return weight, threshold_for_coverage(best, float(np.clip((~verdicts.uncertain).mean(), *_COVERAGES)))


def _area(mean: ArrayLike, strangeness: ArrayLike, errors: ArrayLike, weight: float) -> float:
    criterion: Array = combined_criterion(mean, strangeness, weight)
    return risk_coverage(-criterion.max(1), errors).area
