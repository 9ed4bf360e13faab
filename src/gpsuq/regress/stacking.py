r"""How much each kind of generator counts, by rows that it was not fitted to.

The CRPS of a mixture of predictives is quadratic in its weights w:

.. math:: \sum_f w_f a_f - \tfrac12 \sum_{fg} w_f w_g b_{fg}, \qquad a_f = E|Y_f - y|, \quad b_{fg} = E|Y_f - Y_g'| ,

for every held-out row, so that all weights in steps of a twentieth are tried at once. Few rows hardly tell predictives
apart, and a mixture of all is safe: the best weights are drawn towards equal ones, which count like 30 rows, but only
as far as the sum of scores rises by no more than its standard error (over rows, of the differences). A kind of less
than a twentieth has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating]

_ROWS = 256
_GRID = 20
_EQUAL = 30  # rows that equal weights count like
_ROUNDING = 1e-9  # of scores: what differs by less is the same
_ROOT_TWO_OVER_PI = 0.7978845608028654
_ROOT_HALF = 0.7071067811865476


def absolute_mean(difference: Tensor, scale: Tensor) -> Tensor:
    """Return E|D| for D ~ N(difference, scale^2)."""
    ratio = difference / scale.clamp_min(1e-12)
    bell = _ROOT_TWO_OVER_PI * torch.exp(-0.5 * ratio.square())
    result: Tensor = scale * bell + difference * torch.special.erf(ratio * _ROOT_HALF)
    return result


def mixture_crps(y: Array, loc: Array, scale: Array, weight: Array) -> Array:
    """Return the CRPS of y (row,) under mixtures of Normals, loc and scale (row, component): exact, (row,)."""
    w = torch.from_numpy(weight)
    found = []
    for start in range(0, len(y), _ROWS):
        at = slice(start, start + _ROWS)
        target, center, width = (torch.from_numpy(np.ascontiguousarray(part[at])) for part in (y, loc, scale))
        fit = absolute_mean(center - target[:, None], width) @ w
        pair = torch.zeros_like(fit)
        for each in range(len(w)):
            other = (width.square() + width[:, each : each + 1].square()).sqrt()
            pair += w[each] * (absolute_mean(center - center[:, each : each + 1], other) @ w)
        found.append(fit - 0.5 * pair)
    return torch.cat(found).numpy()


def stacking_weights(y: Array, locs: Sequence[Array], scales: Sequence[Array]) -> Array:
    """Return the weights of predictives whose mixture has the lowest CRPS at y (row,); of few rows, more equal ones.

    Each predictive is a mixture of Normals, locations and scales (row, component); a scale of 0 is a point.
    """
    kinds = len(locs)
    if kinds == 1:
        return np.ones(1)
    fit, pair = np.zeros((len(y), kinds)), np.zeros((len(y), kinds, kinds))
    for start in range(0, len(y), _ROWS):
        at = slice(start, start + _ROWS)
        target = torch.from_numpy(y[at])[:, None]
        parts = [
            (torch.from_numpy(loc[at]), torch.from_numpy(scale[at])) for loc, scale in zip(locs, scales, strict=True)
        ]
        for f, (a, s) in enumerate(parts):
            fit[at, f] = absolute_mean(a - target, s).mean(1).numpy()
            for g, (b, t) in enumerate(parts[: f + 1]):
                both = (s[:, :, None].square() + t[:, None].square()).sqrt()
                pair[at, f, g] = absolute_mean(a[:, :, None] - b[:, None], both).mean((1, 2)).numpy()
                pair[at, g, f] = pair[at, f, g]
    grid = _simplex(kinds)
    best = grid[_mixed(fit.sum(0, keepdims=True), pair.sum(0, keepdims=True), grid)[0].argmin()]
    towards = np.linspace(0.0, _EQUAL / (len(y) + _EQUAL), _GRID + 1)[:, None]
    nearer = (1.0 - towards) * best + towards / kinds
    scores = _mixed(fit, pair, nearer)
    excess = scores - scores[:, :1]
    error = np.sqrt(np.square(excess).sum(0)) + _ROUNDING * np.abs(fit).sum()
    weights = nearer[np.flatnonzero(excess.sum(0) <= error)[-1]]
    kept = np.where(weights < 1.0 / _GRID, 0.0, weights)
    return np.asarray(kept / kept.sum())


def _mixed(fit: Array, pair: Array, weights: Array) -> Array:
    """Return the CRPS of mixtures of several weights (set, kind), (row, set)."""
    products = (weights[:, :, None] * weights[:, None]).reshape(len(weights), -1)
    return np.asarray(fit @ weights.T - 0.5 * pair.reshape(len(fit), -1) @ products.T)


def _simplex(kinds: int) -> Array:
    """Return all weights in steps of a twentieth that sum to 1."""
    steps = np.indices((_GRID + 1,) * (kinds - 1)).reshape(kinds - 1, -1).T
    steps = steps[steps.sum(1) <= _GRID]
    return np.column_stack([steps, _GRID - steps.sum(1)]) / _GRID
