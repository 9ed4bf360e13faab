"""Mixtures of Normals, one for each row: density, distribution function and quantiles, in closed form or by bisection.

A predictive is such a mixture over draws and chains. Rows do not see each other, and nothing is sampled, so the answer
for a row does not depend on which rows it is asked with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

Array = NDArray[np.float64]

_BISECTIONS = 40
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def component_log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Log density of y (n,) under every component N(loc, scale^2): loc (n, m), scale (m,), result (n, m)."""
    standardised = (y[:, None] - loc) / scale
    result: Array = -0.5 * np.square(standardised) - np.log(scale) - _LOG_ROOT_TWO_PI
    return result


def log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Log density of y (n,) under each row's mixture of equal weights."""
    result: Array = logsumexp(component_log_density(y, loc, scale), axis=1) - np.log(loc.shape[1])
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
