r"""One coefficient vector for all rows, with a noise law of its own: a mixture over sigma, found together with it.

.. math:: y_i = x_i'\theta + e_i, \qquad e_i \sim \sum_k \pi_k N(0, \sigma_k^2)

Noise that is Normal gets one sigma and theta is least squares; heavy tails, wild values and bad leverage points get a
wide sigma of small weight, and with it hardly a say in theta: row i counts :math:`\sum_k r_{ik} / \sigma_k^2`, r the
probabilities of the sigmas given its residual, and beyond four scales of the bulk less and less. The sigmas are a fixed
grid, the weights and theta come from the EM algorithm. It starts from a robust fit that nearly half of the rows cannot
spoil, and so from the right one of several maxima: the likelihood itself may prefer a line through a tenth of the rows
in a far corner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from gpsuq.core.calibration import ScaleModel, fit_scale
from gpsuq.linear.pilot import residual_scale
from gpsuq.linear.sample import Rows

Array = NDArray[np.floating]

FARTHEST = 5.0
"""Standard deviations from what is expected at its x, beyond which a row loses its weight."""

SIGMA_FLOOR = 1e-4
"""Least sigma in units of the pilot's residual scale."""

_RATIO = 1.5  # of neighbouring sigmas
_BELOW = 1  # sigmas below the robust scale: noise may be peaked
_MOST = 24
_SWEEPS, _WARM_SWEEPS = 60, 15
_SMOOTHING = 1.0  # rows that count for the first sigma beside the data: few rows do not prove a mixture
_CONVERGED = 1e-7
_FAR = 4.0  # scales of the bulk, beyond which a row counts less than its sigma says
_MEAN_SIZE = 0.8  # of a standard Normal
_LEAST_USUAL = 0.05  # of the bulk
_FEW_FOR_EACH = 10  # rows for each coefficient, below which a robust fit explains half of them by chance


@dataclass(frozen=True)
class NoiseLaw:
    """Standard deviations (k,) of the noise and their weights, and the scale of its bulk."""

    sigma: Array
    weight: Array
    bulk: float

    def log_joint(self, residuals: Array) -> Array:
        """Return the log of weight times density of every sigma, (..., k)."""
        standardised = np.clip(residuals[..., None] / self.sigma, -1e150, 1e150)
        with np.errstate(divide="ignore"):
            factor = np.log(self.weight) - np.log(self.sigma)
        return np.asarray(factor - 0.5 * np.square(standardised))

    def likelihood(self, rows: Rows, coefficients: Array) -> float:
        """Return the log-likelihood of the rows, but for a constant."""
        return float(rows.weight @ logsumexp(self.log_joint(rows.residuals(coefficients)), axis=-1))

    def precision(self, residuals: Array) -> Array:
        """Return what a row counts in least squares: the mean of 1 / sigma^2 given its residual, less far out."""
        log = self.log_joint(residuals)
        share = np.exp(log - log.max(-1, keepdims=True))
        near = bounded(np.square(residuals / self.bulk), _FAR**2)
        return np.asarray(near * (share @ (1.0 / np.square(self.sigma))) / share.sum(-1))

    def curvature(self, residuals: Array) -> Array:
        """Return the derivative of residual times precision: what a row adds to the curvature of the loss."""
        step = 1e-3 * float(self.sigma[self.weight.argmax()])
        above, below = residuals + step, residuals - step
        return (above * self.precision(above) - below * self.precision(below)) / (2.0 * step)

    @property
    def sd(self) -> float:
        """Standard deviation of the noise as a whole."""
        return float(np.sqrt(self.weight @ np.square(self.sigma)))


@dataclass(frozen=True)
class EqualFit:
    """Coefficients (q,), the law of the noise, and the robust scale of the bulk of the residuals.

    ``usual`` is the size of residuals at the columns of a row, where the fit is least squares without rows far outside
    of it (:func:`near_least_squares`): a row then counts 1, or one over its squared size where that is ``precise``.
    Without it, rows count what the noise law says.
    """

    coefficients: Array
    noise: NoiseLaw
    bulk: float
    usual: ScaleModel | None = None
    precise: bool = False

    def sizes(self, columns: Array) -> Array | None:
        """Return the usual sizes of residuals at rows of columns (n, p) of the table; None where there are none."""
        if self.usual is None:
            return None
        least = _LEAST_USUAL * self.bulk  # or few rows would count
        return np.asarray(np.maximum(self.usual(columns) / _MEAN_SIZE, least))

    def counts(self, residuals: Array, sizes: Array | None) -> Array:
        """Return what rows with these residuals and usual sizes count in least squares."""
        if sizes is None:
            return self.noise.precision(residuals)
        near = bounded(np.square(residuals / sizes))
        return near / np.square(sizes) if self.precise else near

    def without(self, rows: Rows) -> EqualFit:
        """Fit some of the rows from where this fit stands."""
        if self.usual is None:
            coefficients, noise = _em(rows, self.coefficients, self.noise, _WARM_SWEEPS)
            return replace(self, coefficients=at_the_mean(coefficients, rows, self.bulk), noise=noise)
        counts = self.counts(rows.residuals(self.coefficients), self.sizes(rows.columns))
        return replace(self, coefficients=weighted_least_squares(rows.design, rows.y, rows.weight * counts))


def fit_equal(rows: Rows, start: Array, sigma_floor: float = 0.0) -> EqualFit:
    """Fit one coefficient vector to the rows from ``start`` (q,), which has to be robust."""
    noise = _grid(_bulk(rows, start, sigma_floor), rows.residuals(start))
    coefficients, noise = _em(rows, start, noise)
    bulk = _bulk(rows, coefficients, sigma_floor)
    n, k = float(rows.weight.sum()), int(np.count_nonzero(rows.design.any(0)))
    if k + 1 < n < _FEW_FOR_EACH * k:
        plain = _least_squares(rows, n, k)
        # What slopes gain by chance where rows are few, as the corrected criterion of Akaike has it.
        slopes = int(np.count_nonzero(np.ptp(rows.design, axis=0)))
        chance = slopes * (slopes + 1.0) / (n - slopes - 1.0)
        if noise.likelihood(rows, coefficients) <= plain.noise.likelihood(rows, plain.coefficients) + chance:
            return plain
    return EqualFit(at_the_mean(coefficients, rows, bulk), noise, bulk)


def _least_squares(rows: Rows, n: float, k: int) -> EqualFit:
    """Fit k coefficients to n rows by least squares: the noise has one sigma, and no row is far."""
    coefficients = weighted_least_squares(rows.design, rows.y, rows.weight)
    sigma = float(np.sqrt(rows.weight @ np.square(rows.residuals(coefficients)) / n))
    sigma = max(sigma, SIGMA_FLOOR)
    bulk = sigma * float(np.sqrt(n / (n - k)))
    return EqualFit(coefficients, NoiseLaw(np.array([sigma]), np.ones(1), bulk), bulk)


def near_least_squares(rows: Rows, fit: EqualFit, *, seed: int, straight: bool, sigma_floor: float = 0.0) -> EqualFit:
    """Fit least squares without the rows that are far outside what is usual at their x.

    Where the relation is curved, or noise changes with x, robust weights would move the line to where most rows are.
    What is usual is learned from the sizes of robust residuals: rows at the end of a curve are not outliers. Where the
    relation is ``straight``, rows count one over the square of it: those that noise hardly moves tell the line best.
    """
    for _ in range(2):
        residuals = rows.residuals(fit.coefficients)
        usual = fit_scale(rows.columns, np.abs(residuals), rows.weight, seed=seed)
        fit = replace(fit, usual=usual, precise=straight)
        sizes = fit.sizes(rows.columns)
        counts = rows.weight * fit.counts(residuals, sizes)
        fit = replace(fit, coefficients=weighted_least_squares(rows.design, rows.y, counts))
    residuals = rows.residuals(fit.coefficients)
    counts = rows.weight * replace(fit, precise=False).counts(residuals, sizes)
    sigma = max(float(np.sqrt(np.average(np.square(residuals), weights=counts))), sigma_floor, np.finfo(float).tiny)
    # One sigma: residuals stay in proportion, and calibration says how their size changes with x.
    bulk = _bulk(rows, fit.coefficients, sigma_floor)
    return replace(fit, noise=NoiseLaw(np.array([sigma]), np.ones(1), bulk), bulk=bulk)


def at_the_mean(coefficients: Array, rows: Rows, bulk: float) -> Array:
    """Move the level, the last coefficient, to the mean of the residuals without those that are far out.

    Weights that favour the middle of the noise give its mode where it is skewed; slopes are the same for both.
    """
    residuals = rows.residuals(coefficients)
    counts = rows.weight * bounded(np.square(residuals / bulk)) * rows.design[:, -1]
    total = float(counts.sum())
    if total <= 0:  # no intercept
        return coefficients
    result = coefficients.copy()
    result[-1] += float(counts @ residuals) / total
    return result


def bounded(distance: Array, limit: float | Array = FARTHEST**2) -> Array:
    """Return the weight of a squared distance: 1 up to the limit, beyond it so small that farther means less pull."""
    return np.asarray(np.square(limit / np.maximum(distance, limit)))


def _bulk(rows: Rows, coefficients: Array, sigma_floor: float) -> float:
    scale = residual_scale(rows.residuals(coefficients), rows.design.shape[1], rows.weight)
    return max(scale, sigma_floor, np.finfo(float).tiny)


def _grid(scale: float, residuals: Array) -> NoiseLaw:
    """Spread sigmas from below the scale to the farthest residual; the scale itself is likeliest at first."""
    farthest = float(np.abs(residuals).max())
    above = int(np.ceil(np.log(max(farthest / scale, 1.0)) / np.log(_RATIO)))
    ratio = _RATIO if above <= _MOST else (farthest / scale) ** (1.0 / _MOST)
    exponent = np.arange(-_BELOW, min(above, _MOST) + 1)
    weight = 0.5 ** np.abs(exponent)
    return NoiseLaw(scale * ratio**exponent, weight / weight.sum(), scale)


def _em(rows: Rows, coefficients: Array, noise: NoiseLaw, sweeps: int = _SWEEPS) -> tuple[Array, NoiseLaw]:
    """Take EM sweeps from coefficients and weights of the sigmas until the likelihood stands still."""
    prior = np.zeros_like(noise.weight)
    prior[min(_BELOW, len(prior) - 1)] = _SMOOTHING
    total = rows.weight.sum() + prior.sum()
    precision = 1.0 / np.square(noise.sigma)
    last = -np.inf
    for _ in range(sweeps):
        residuals = rows.residuals(coefficients)
        log = noise.log_joint(residuals)
        largest = log.max(1)
        responsibility = np.exp(log - largest[:, None])
        total_density = responsibility.sum(1)
        responsibility /= total_density[:, None]
        likelihood = float(rows.weight @ (largest + np.log(total_density)))
        noise = replace(noise, weight=(rows.weight @ responsibility + prior) / total)
        near = bounded(np.square(residuals / noise.bulk), _FAR**2)
        counts = rows.weight * near * (responsibility @ precision)
        coefficients = weighted_least_squares(rows.design, rows.y, counts)
        if likelihood - last < _CONVERGED * len(rows.y):
            break
        last = likelihood
    return coefficients, noise


def weighted_least_squares(design: Array, y: Array, weight: Array) -> Array:
    """Solve least squares with weights (n,)."""
    return solve_ridged((design.T * weight) @ design, design.T @ (weight * y))


def solve_ridged(gram: Array, pull: Array) -> Array:
    """Solve normal equations; a ridge far below what data can show serves columns without variation."""
    diagonal = np.diag(gram)
    return np.linalg.solve(gram + np.diag(1e-10 * diagonal + 1e-12 * diagonal.max() + np.finfo(float).tiny), pull)
