r"""Which parameters single observations speak for: draws re-weighted by :math:`f(y_i \mid \theta, x_i)`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from gpsuq.core.expectations import DRAW_DIM
from gpsuq.core.likelihood import log_likelihood
from gpsuq.core.observations import Batch

SURPRISING = 5.0
"""Nats from which on an observation is called an outlier."""

_MADE = 32  # outcomes that say how surprising an ordinary one is


class Explained(NamedTuple):
    """Mean and sd (observation, number) of re-weighted draws, how many draws they rest on, and how surprising y is."""

    mean: Tensor
    sd: Tensor
    effective_draws: Tensor
    outlier_score: Tensor


def explained(draws: Iterable[tuple[Tensor, Distribution]], batch: Batch, n_draws: int) -> Explained:
    """Explain observations by draws, which come in blocks: numbers (chain, 1 or observation, draw, k) and predictive.

    The first block alone says what is surprising: it has draws enough for a density.
    """
    numbers, logs, score = [], [], None
    for values, predictive in draws:
        numbers.append(values)
        logs.append(log_likelihood(predictive, batch.y, batch.mask))
        score = surprise(predictive, batch) if score is None else score
    assert score is not None
    joined = (torch.cat(parts, DRAW_DIM)[:, :, :n_draws].double() for parts in (logs, numbers))
    return Explained(*moments(*joined), score)


def moments(logs: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and sd (observation, k) of weighted draws, and on how many draws they rest.

    Draws are (chain, 1 or observation, draw, k); their weights exp(logs), (chain, observation, draw), are made to sum
    to 1 for each observation.

    >>> import torch
    >>> draws = torch.tensor([0.0, 1.0, 2.0]).reshape(1, 1, 3, 1)
    >>> moments(torch.tensor([[[0.0, 0.0, -torch.inf]]]), draws)
    (tensor([[0.5000]]), tensor([[0.5000]]), tensor([2.]))
    """
    weight, pooled = _pooled(logs).softmax(-1)[:, None], _pooled(values)  # (n, 1, draws) and (1 or n, draws, k)
    middle = pooled.mean(1, keepdim=True)
    shift, square = weight @ (pooled - middle), weight @ (pooled - middle).square()
    sd = (square - shift.square()).clamp_min(0.0).sqrt()
    return (middle + shift)[:, 0], sd[:, 0], 1.0 / weight.square().sum((1, 2))


def _pooled(tensor: Tensor) -> Tensor:
    """Put the draws of all chains into one dimension: (chain, observation, draw, ...) to (observation, all, ...)."""
    return tensor.movedim(0, 1).flatten(1, 2)


def surprise(predictive: Distribution, batch: Batch) -> Tensor:
    """Return by how many nats each observation is more surprising than what the model would have made of it: (n,).

    Outcomes are made by draws of their own: among those that judge it, an outcome's own theta would be too good to be
    true where an observation has many measures.
    """
    n_chains, _, n_draws = predictive.batch_shape
    makers = min(max(1, _MADE // n_chains), n_draws // 2)
    with torch.no_grad():
        made = predictive.expand(torch.Size([n_chains, len(batch), n_draws])).sample()[:, :, :makers]
        outcomes = [made[chain, :, draw][None, :, None] for chain in range(n_chains) for draw in range(makers)]
        usual = [_log_density(predictive, y, batch.mask, makers) for y in outcomes]
        return torch.stack(usual).mean(0) - _log_density(predictive, batch.y, batch.mask, makers)


def _log_density(predictive: Distribution, y: Tensor, mask: Tensor | None, makers: int) -> Tensor:
    """Return the log density (n,) of the mixture over all draws but the first ones, which made outcomes."""
    logs = _pooled(log_likelihood(predictive, y, mask)[:, :, makers:])
    return logs.logsumexp(-1) - math.log(logs.shape[-1])
