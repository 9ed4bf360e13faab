r"""Robust first fits of a linear model: where fitting starts, and the unit that residuals are measured in.

An S-estimate is, among fits from many starts, the one with the smallest M-scale of residuals s,

.. math:: \frac{1}{\sum w_i} \sum_i w_i\, \rho(r_i / s) = b, \qquad \rho \text{ Tukey's bisquare with cutoff } c .

With b = 1/4 a quarter of outlying rows cannot spoil it, and two halves that follow different lines pull it to the
middle; with b = 1/2 nearly half of the rows may lie anywhere, be it by their response or by their leverage. One of
them alone can be wrong (an eighth of the rows at a far corner masks itself from the first, the second follows one of
two halves), so both are given: the first is what residuals are measured from, the second is where a fit of equal
coefficients starts. The unit is the residual scale of the least absolute deviations fit, wide enough to see subgroups
that a centre passes by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

_ROWS = 4096  # a start needs no more
_STARTS = 64
_WORK = 2e8  # numbers that the starts may take in one sweep
_LAD_SWEEPS = 50
_FIRST_SWEEPS, _BEST, _SWEEPS = 2, 6, 15  # of all starts; of the best few
_QUARTER, _HALF = (0.25, 2.937), (0.5, 1.547)  # breakdown, and the cutoff that makes the scale that of a Normal
_EFFICIENT_CUTOFF = 4.685  # 95% efficiency where the noise is Normal
_SCALE_SWEEPS = 15


class Pilot(NamedTuple):
    """First fits (fit, k), that of a quarter's breakdown first, and the residual scale: the unit."""

    coefficients: Array
    scale: float


def robust_pilot(design: Array, y: Array, weight: Array | None = None, *, seed: int = 0) -> Pilot:
    """Fit y to the columns of ``design`` (n, k); with hardly more rows than columns all coefficients are 0."""
    rng = np.random.default_rng(seed)
    weight = np.ones(len(y)) if weight is None else weight
    if len(y) > _ROWS:
        rows = rng.choice(len(y), _ROWS, p=weight / weight.sum())
        design, y, weight = design[rows], y[rows], np.ones(_ROWS)
    n, k = design.shape
    if n <= k + 1:
        return Pilot(np.zeros((1, k)), residual_scale(y - np.median(y), 1, weight))
    deviations = least_absolute_deviations(design, y, weight)
    scale = residual_scale(y - design @ deviations, k, weight)
    starts = np.vstack(
        [deviations, _weighted_least_squares(design, y, weight[None])[0], _elemental(design, y, weight, rng)]
    )
    quarter, _ = _s_estimate(design, y, weight, starts, _QUARTER)
    half, size = _s_estimate(design, y, weight, starts, _HALF)
    for _ in range(_SWEEPS):  # efficient from there, with the scale kept
        share = np.square((y - design @ half) / (_EFFICIENT_CUTOFF * size))
        half = _weighted_least_squares(design, y, (weight * np.square(np.maximum(1.0 - share, 0.0)))[None])[0]
    return Pilot(np.stack([quarter, half]), scale)


def _s_estimate(
    design: Array, y: Array, weight: Array, starts: Array, kind: tuple[float, float]
) -> tuple[Array, float]:
    """Return the coefficients of the smallest M-scale, and that scale."""
    for sweeps, kept in ((_FIRST_SWEEPS, _BEST), (_SWEEPS, 1)):
        for _ in range(sweeps):
            residuals = y - starts @ design.T
            share = np.square(residuals / (kind[1] * m_scale(residuals, weight, kind)[:, None]))
            starts = _weighted_least_squares(design, y, weight * np.square(np.maximum(1.0 - share, 0.0)))
        sizes = m_scale(y - starts @ design.T, weight, kind)
        order = np.argsort(sizes)[:kept]
        starts = starts[order]
    return starts[0], float(sizes[order[0]])


def m_scale(residuals: Array, weight: Array, kind: tuple[float, float] = _QUARTER) -> Array:
    """Return the M-scale of each row of residuals (starts, n), by fixed-point iteration from the median."""
    breakdown, cutoff = kind
    scale: Array = np.median(np.abs(residuals), axis=1) / 0.6745
    scale = np.maximum(scale, 1e-12 * np.abs(residuals).max(1)) + np.finfo(float).tiny
    for _ in range(_SCALE_SWEEPS):
        share = np.minimum(np.square(residuals / (cutoff * scale[:, None])), 1.0)
        rho = share * (3.0 - share * (3.0 - share))  # 1 - (1 - share)^3
        scale = scale * np.sqrt(rho @ weight / (weight.sum() * breakdown)) + np.finfo(float).tiny
    return scale


def least_absolute_deviations(design: Array, y: Array, weight: Array) -> Array:
    """Minimise the weighted sum of absolute residuals, by iteratively re-weighted least squares."""
    coefficients = np.zeros(design.shape[1])  # not least squares: one response may be as far as numbers go
    for _ in range(_LAD_SWEEPS):
        size = np.abs(y - design @ coefficients)
        floor = 1e-3 * (np.median(size) or size.mean() or 1.0)  # more than half may be fitted exactly
        coefficients = _weighted_least_squares(design, y, (weight / np.maximum(size, floor))[None])[0]
    return coefficients


def residual_scale(residuals: Array, k: int, weight: Array) -> float:
    """Return 1.4826 x the median of the n - k largest absolute residuals: a fit of k coefficients makes k of them 0."""
    order = np.argsort(np.abs(residuals))
    size, below = np.abs(residuals)[order], np.cumsum(weight[order])
    scale = 1.4826 * float(size[np.searchsorted(below, min(0.5 * (below[-1] + k), below[-1]))])
    return scale if scale > 0 else float(np.sqrt(np.mean(residuals**2)))


def _weighted_least_squares(design: Array, y: Array, weights: Array) -> Array:
    """Solve one weighted least-squares problem for each row of ``weights``: (starts, k)."""
    gram = np.stack([(design.T * each) @ design for each in weights])
    # A ridge far below what data can show keeps a start whose weights all vanish from dividing by zero.
    ridge = 1e-10 * np.trace(gram, axis1=1, axis2=2) / design.shape[1] + np.finfo(float).tiny
    gram += ridge[:, None, None] * np.eye(design.shape[1])
    return np.linalg.solve(gram, ((weights * y) @ design)[..., None])[..., 0]


def _elemental(design: Array, y: Array, weight: Array, rng: np.random.Generator) -> Array:
    """Return fits through as few random rows as determine one; with several of them some hold no outlier."""
    n, k = design.shape
    count = int(min(_STARTS, _WORK / (n * k)))
    share = weight / weight.sum() if np.ptp(weight) > 0 and np.count_nonzero(weight) >= k else None
    rows = [rng.choice(n, k, replace=False, p=share) for _ in range(count)]
    return np.stack([np.linalg.lstsq(design[r], y[r], rcond=1e-8)[0] for r in rows]) if count else np.zeros((0, k))
