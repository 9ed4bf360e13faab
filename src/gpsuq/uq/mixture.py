"""Probabilities and quantiles of new observations under the mixture over draws, by the model's own cdf."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, Poisson

from gpsuq.core.distributions import cumulative, defines, is_discrete
from gpsuq.core.expectations import base_distribution

Array = NDArray[np.floating]

_HALVINGS = 12
_ERRORS = 5.0  # standard errors of a sampled quantile, in which the exact one is looked for


def mixture_cdf(predictives: Sequence[Distribution], y: Tensor) -> Tensor | None:
    """Return P(Y <= y) over all chains and draws for y ``(..., observation, *event)``, each coordinate.

    None where the distribution has no cdf.

    >>> from torch.distributions import Normal
    >>> mixture_cdf([Normal(torch.tensor([[[-1.0, 1.0]]]), 0.1)], torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    total, count = torch.zeros(()), 0
    for predictive in predictives:
        base = base_distribution(predictive)
        if base.event_shape or not _has_cdf(base):
            return None
        # (..., observation, *event) beside (chain, observation, draw, *event)
        event = len(base.batch_shape) - 3
        rows = y.dim() - 1 - event
        point = y.unsqueeze(rows + 1).unsqueeze(rows)
        try:
            below = cumulative(base, point)
        except NotImplementedError:
            return None
        draws = below.shape[-1 - event]
        total, count = total + below.sum((-3 - event, -1 - event)), count + draws * below.shape[-3 - event]
    return total / count


def _has_cdf(base: Distribution) -> bool:
    """Say whether a distribution, or what it censors or inflates, has a cdf that need not be added up."""
    inner: Distribution = base
    while isinstance(below := getattr(inner, "base_dist", None), Distribution):
        inner = below
    return isinstance(inner, Poisson) or defines(inner, "cdf")


def mixture_quantiles(predictives: Sequence[Distribution], drawn: Array, levels: Sequence[float]) -> Array:
    """Return quantiles ``(level, observation, *event)``, near those of ``drawn`` ``(draw, observation, *event)``.

    They solve F(y) = level by halving what lies around the sampled quantile; where there is no cdf it stays as it is.
    """
    sampled = np.quantile(drawn, levels, axis=0)
    dtype = torch.get_default_dtype()
    if mixture_cdf(predictives, torch.from_numpy(sampled[:1]).to(dtype)) is None:
        return sampled
    discrete = is_discrete(base_distribution(predictives[0]))
    result = []
    for level, start in zip(levels, sampled, strict=True):
        reach = _ERRORS * math.sqrt(max(level * (1.0 - level), 1.0 / len(drawn)) / len(drawn))
        ends = np.quantile(drawn, [max(0.0, level - reach), min(1.0, level + reach)], axis=0)
        low, high = (torch.from_numpy(end).to(dtype) for end in ends)
        if discrete:
            low, high = low.floor() - 1.0, high.ceil()
        for _ in range(_HALVINGS):
            middle = (0.5 * (low + high)).floor() if discrete else 0.5 * (low + high)
            below = mixture_cdf(predictives, middle)
            assert below is not None
            enough = below >= level
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        result.append(np.where(np.isnan(start), np.nan, high.numpy()))
    return np.stack(result)
