r"""Weights of several estimates of an intensity, by the density of points that none of them has seen.

The weights w maximise :math:`\sum_i \log \sum_k w_k p_k(s_i)`, where :math:`p_k` is candidate k as a density over the
window, fitted without point i. The problem is concave; EM climbs it with weights that stay positive and sum to one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpsuq.spatial.windows import Array

_ITERATIONS = 150
_CLEARLY = 2.0  # standard errors, over points


@dataclass(frozen=True)
class Stack:
    """Weights of the candidates, the gain over the first one in log density a point, and its standard error."""

    weights: Array
    gain: float
    standard_error: float


def em_weights(density: Array) -> Array:
    """Return the weights (candidate,) that are best for densities (point, candidate)."""
    scaled = np.ascontiguousarray(density / density.max(1, keepdims=True))
    weights = np.full(density.shape[1], 1.0 / density.shape[1])
    for _ in range(_ITERATIONS):
        weights *= (scaled / (scaled @ weights)[:, None]).mean(0)
    return weights


def stacked(density: Array, fold: NDArray[np.int64]) -> Stack:
    """Weigh candidates by held-out densities (partition, point, candidate), or take the first alone.

    The first stays unless the gain over it exceeds two standard errors over points. The gain is that of points in one
    fold under weights that the other folds gave, so that candidates do not win by being many.
    """
    gain = np.empty(density.shape[:2])
    for number in np.unique(fold):
        mine = fold == number
        weights = em_weights(density[:, ~mine].reshape(-1, density.shape[2])) if (~mine).any() else None
        gain[:, mine] = 0.0 if weights is None else np.log((density[:, mine] @ weights) / density[:, mine, 0])
    each = gain.mean(0)
    error = float(each.std(ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.inf
    mean = float(each.mean())
    if not mean > _CLEARLY * error:
        return Stack(np.eye(density.shape[2])[0], mean, error)
    return Stack(em_weights(density.reshape(-1, density.shape[2])), mean, error)
