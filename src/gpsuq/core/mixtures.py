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

Array = NDArray[np.floating]

_SWEEPS = 60  # bisection alone would need about 50; Newton's steps mostly need 6
_FARTHEST = 1e150  # standard deviations: the square is still finite, so that densities can be compared
_FARTHEST_SCORE = 8.0  # where a tail of double precision ends
_CLOSE = 1e-10  # relative to the components' scale
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def component_log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Return the log density (n, m) of y (n,) under N(loc, scale^2), with loc (n, m) and scale (m,) or (n, m)."""
    with np.errstate(over="ignore"):
        standardised = np.clip((y[:, None] - loc) / scale, -_FARTHEST, _FARTHEST)
    return np.asarray(-0.5 * np.square(standardised) - np.log(scale) - _LOG_ROOT_TWO_PI)


def log_density(y: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    """Return the log density of y (n,) under each row's mixture, of equal weights unless ``weight`` (m,) is given."""
    return np.asarray(logsumexp(component_log_density(y, loc, scale), axis=1, b=_weights(weight, loc)))


def normal_scores(y: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    r"""Return :math:`\Phi^{-1}(F(y))` under each row's mixture, from the smaller tail, at most 8 in size: (n,).

    >>> import numpy as np
    >>> normal_scores(np.array([3.0, 9e9]), np.array([[1.0], [1.0]]), np.array([2.0]))
    array([1., 8.])
    """
    with np.errstate(over="ignore"):
        standardised = (y[:, None] - loc) / scale
    weight = _weights(weight, loc)
    below, above = ndtr(standardised) @ weight, ndtr(-standardised) @ weight
    with np.errstate(divide="ignore"):
        scores = np.where(below < above, ndtri(np.minimum(below, 0.5)), -ndtri(np.minimum(above, 0.5)))
    return np.asarray(np.clip(scores, -_FARTHEST_SCORE, _FARTHEST_SCORE))


def kernel_score(y: Array, loc: Array, scale: Array, weight: Array, bandwidth: float) -> Array:
    r"""Return E k(Y, Y') - 2 E k(y, Y) of y (n,) under each row's mixture, k being the Gaussian kernel: (n,).

    Two outcomes of one mixture are independent, so that a component also meets itself.
    """

    def mean(difference: Array, variance: Array) -> Array:
        width = bandwidth + 2.0 * variance
        return np.asarray(np.sqrt(bandwidth / width) * np.exp(-np.square(difference) / width))

    variance = np.square(np.broadcast_to(scale, loc.shape))
    fit = mean(y[:, None] - loc, variance) @ weight
    pair = np.zeros(len(y))
    for each, (center, own) in enumerate(zip(loc.T, variance.T, strict=True)):
        pair += weight[each] * (mean(loc - center[:, None], variance + own[:, None]) @ weight)
    return pair - 2.0 * fit


def quantiles(levels: Sequence[float], loc: Array, scale: Array, weight: Array | None = None) -> Array:
    """Return quantiles of each row's mixture: (n, levels)."""
    return at_normal_scores(np.broadcast_to(ndtri(np.asarray(levels)), (len(loc), len(levels))), loc, scale, weight)


def at_normal_scores(scores: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    r"""Solve :math:`F(y) = \Phi(\text{score})` for y under each row's mixture: scores (n, l), result (n, l).

    The solution lies between the smallest and the largest of the components' own. Newton's steps that leave the
    bracket are replaced by bisection. A row that has arrived stays, so that no row depends on the others.
    """
    n, width = scores.shape
    locs, scales = torch.from_numpy(loc), torch.from_numpy(np.array(np.broadcast_to(scale, loc.shape)))
    if loc.shape[1] == 1:
        return np.asarray(loc + scores * scales.numpy())
    weights = torch.from_numpy(_weights(weight, loc))
    tolerance = _CLOSE * (scales.amin(1) + 1e-6 * locs.abs().amax(1))
    result = torch.empty(n, width, dtype=torch.float64)
    for column in range(width):
        score = torch.from_numpy(np.clip(scores[:, column], -_FARTHEST_SCORE, _FARTHEST_SCORE))
        upper_tail = score > 0
        target = torch.special.ndtr(-score.abs())
        each = locs + scales * score[:, None]
        low, high = each.amin(1), each.amax(1)
        y = each @ weights
        active = torch.arange(n)
        for _ in range(_SWEEPS):
            part, rows = y[active], (slice(None) if len(active) == n else active)
            standardised = (part[:, None] - locs[rows]) / scales[rows]
            sign = torch.where(upper_tail[active], -1.0, 1.0).double()
            tail = torch.special.ndtr(standardised * sign[:, None]) @ weights
            density = (torch.exp(-0.5 * standardised.square()) / scales[rows]) @ weights * 0.3989422804014327
            excess = (tail - target[active]) * sign  # positive where y is too large
            low[active] = torch.where(excess <= 0, part, low[active])
            high[active] = torch.where(excess >= 0, part, high[active])
            step = part - excess / density
            inside = (step > low[active]) & (step < high[active])
            new = torch.where(inside, step, 0.5 * (low[active] + high[active]))
            y[active] = new
            active = active[((new - part).abs() > tolerance[active]) & (high[active] > low[active])]
            if len(active) == 0:
                break
        result[:, column] = y
    return result.numpy()


def _weights(weight: Array | None, loc: Array) -> Array:
    return np.full(loc.shape[1], 1.0 / loc.shape[1]) if weight is None else np.asarray(weight, dtype=np.float64)


def poisson_cumulative(counts: NDArray[np.int64], rates: Array) -> Array:
    """Return the probability of at most counts (n,) under each row's mixture, means ``rates`` (n, m), equal weights."""
    return np.asarray(poisson.cdf(counts[:, None], rates).mean(1))


def poisson_quantiles(levels: Sequence[float], rates: Array) -> NDArray[np.int64]:
    """Return quantiles of each row's mixture of Poisson counts, means ``rates`` (n, m), equal weights: (n, levels)."""
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
