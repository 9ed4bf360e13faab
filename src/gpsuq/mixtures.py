"""Mixtures of Normals or Poisson counts, one for each row: densities and quantiles, in closed form or by bisection.

A predictive is such a mixture over draws and chains. Rows do not see each other, and nothing is sampled, so the answer
for a row does not depend on which rows it is asked with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import poisson

Array = NDArray[np.float64]

_BISECTIONS = 40
_FARTHEST = 1e150  # standard deviations: the square is still finite, so that densities can be compared
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def component_log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Log density of y (n,) under every component N(loc, scale^2): loc (n, m), scale (m,), result (n, m)."""
    with np.errstate(over="ignore"):
        standardised = np.clip((y[:, None] - loc) / scale, -_FARTHEST, _FARTHEST)
    result: Array = -0.5 * np.square(standardised) - np.log(scale) - _LOG_ROOT_TWO_PI
    return result


def log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Log density of y (n,) under each row's mixture of equal weights."""
    result: Array = logsumexp(component_log_density(y, loc, scale), axis=1) - np.log(loc.shape[1])
    return result


def cumulative(y: Array, loc: Array, scale: Array) -> Array:
    """Probability of at most y (n,) under each row's mixture of equal weights."""
    result: Array = ndtr((y[:, None] - loc) / scale).mean(1)
    return result


def quantiles(levels: Sequence[float], loc: Array, scale: Array) -> Array:
    """Quantiles of each row's mixture of equal weights: (n, levels).

    The mixture's quantile lies between the smallest and the largest of its components'.
    """
    means, scales = torch.from_numpy(loc), torch.from_numpy(scale)
    result = torch.empty(len(loc), len(levels), dtype=torch.float64)
    for column, level in enumerate(levels):
        each = means + scales * ndtri(level)
        lower, upper = each.amin(1), each.amax(1)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (lower + upper)
            below = torch.special.ndtr((middle[:, None] - means) / scales).mean(1) < level
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        result[:, column] = 0.5 * (lower + upper)
    return result.numpy()


def poisson_cumulative(counts: NDArray[np.int64], rates: Array) -> Array:
    """Probability of at most counts (n,) under each row's mixture with means ``rates`` (n, m), equal weights."""
    result: Array = poisson.cdf(counts[:, None], rates).mean(1)
    return result


def poisson_quantiles(levels: Sequence[float], rates: Array) -> NDArray[np.int64]:
    """Quantiles of each row's mixture of Poisson counts with means ``rates`` (n, m), equal weights: (n, levels)."""
    result = np.empty((len(rates), len(levels)), dtype=np.int64)
    for column, level in enumerate(levels):
        each = poisson.ppf(level, rates)
        lower, upper = each.min(1).astype(np.int64), each.max(1).astype(np.int64)
        while (lower < upper).any():
            middle = (lower + upper) // 2
            enough = poisson_cumulative(middle, rates) >= level
            lower, upper = np.where(enough, lower, middle + 1), np.where(enough, middle, upper)
        result[:, column] = lower
    return result
