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

from gpsuq.core.calibration import ScaleModel, fit_scale
from gpsuq.linear.pilot import residual_scale

Array = NDArray[np.floating]

FARTHEST = 5.0
"""Standard deviations from what is expected at its x, beyond which a row loses its weight."""

_RATIO = 1.5  # of neighbouring sigmas
_BELOW = 1  # sigmas below the robust scale: noise may be peaked
_MOST = 24
_SWEEPS, _WARM_SWEEPS = 60, 15
_SMOOTHING = 1.0  # rows that count for the first sigma beside the data: few rows do not prove a mixture
_CONVERGED = 1e-7
_FAR = 4.0  # scales of the bulk, beyond which a row counts less than its sigma says
_MEAN_SIZE = 0.8  # of a standard Normal
_LEAST_USUAL = 0.05  # of the bulk


@dataclass(frozen=True)
class NoiseLaw:
    """Standard deviations (k,) of the noise and their weights, and the scale of its bulk."""

    sigma: Array
    weight: Array
    bulk: float

    def log_joint(self, residuals: Array) -> Array:
        """Log of weight times density of every sigma, (..., k)."""
        standardised = np.clip(residuals[..., None] / self.sigma, -1e150, 1e150)
        with np.errstate(divide="ignore"):
            factor = np.log(self.weight) - np.log(self.sigma)
        result: Array = factor - 0.5 * np.square(standardised)
        return result

    def precision(self, residuals: Array) -> Array:
        """Give what a row counts in least squares: the mean of 1 / sigma^2 given its residual, less far out."""
        log = self.log_joint(residuals)
        share = np.exp(log - log.max(-1, keepdims=True))
        near = bounded(np.square(residuals / self.bulk), _FAR**2)
        result: Array = near * (share @ (1.0 / np.square(self.sigma))) / share.sum(-1)
        return result

    def curvature(self, residuals: Array) -> Array:
        """Give the derivative of residual times precision: what a row adds to the curvature of the loss."""
        step = 1e-3 * float(self.sigma[self.weight.argmax()])
        above, below = residuals + step, residuals - step
        result: Array = (above * self.precision(above) - below * self.precision(below)) / (2.0 * step)
        return result

    @property
    def sd(self) -> float:
        """Standard deviation of the noise as a whole."""
        return float(np.sqrt(self.weight @ np.square(self.sigma)))


@dataclass(frozen=True)
class EqualFit:
    """Coefficients (q,), the law of the noise, and the robust scale of the bulk of the residuals.

    ``usual`` says what residuals measure at the columns of a row, where the fit is least squares without what lies far
    outside of that (:func:`near_least_squares`), ``precise`` whether rows count one over its square there. It is None
    where rows count what the noise law says of them.
    """

    coefficients: Array
    noise: NoiseLaw
    bulk: float
    usual: ScaleModel | None = None
    precise: bool = False

    def sizes(self, columns: Array) -> Array | None:
        """Return what residuals usually measure at rows of columns (n, p) of the table; None where none is known."""
        return None if self.usual is None else _usual_sizes(self.usual, columns, self.bulk)

    def counts(self, residuals: Array, sizes: Array | None) -> Array:
        """Return what rows with these residuals, and of these usual sizes, count in least squares."""
        return self.noise.precision(residuals) if sizes is None else _near_counts(residuals, sizes, self.precise)

    def without(self, design: Array, y: Array, weight: Array, columns: Array) -> EqualFit:
        """Fit some of the rows from where this fit stands."""
        if self.usual is None:
            coefficients, noise = _em(design, y, weight, self.coefficients, self.noise, _WARM_SWEEPS)
            return replace(self, coefficients=at_the_mean(coefficients, design, y, weight, self.bulk), noise=noise)
        counts = self.counts(y - design @ self.coefficients, self.sizes(columns))
        return replace(self, coefficients=weighted_least_squares(design, y, weight * counts))


def fit_equal(design: Array, y: Array, weight: Array, start: Array, sigma_floor: float = 0.0) -> EqualFit:
    """Fit y (n,) to the columns of ``design`` (n, q) from ``start`` (q,), which has to be robust."""
    noise = _grid(_scale(y - design @ start, design.shape[1], weight, sigma_floor), y - design @ start)
    coefficients, noise = _em(design, y, weight, start, noise)
    bulk = _scale(y - design @ coefficients, design.shape[1], weight, sigma_floor)
    return EqualFit(at_the_mean(coefficients, design, y, weight, bulk), noise, bulk)


def near_least_squares(
    design: Array,
    y: Array,
    weight: Array,
    columns: Array,
    fit: EqualFit,
    *,
    seed: int,
    straight: bool,
    sigma_floor: float = 0.0,
) -> EqualFit:
    """Fit least squares without the rows that are far outside what is usual at their x.

    Where the relation is curved, or noise changes with x, robust weights would move the line to where most rows are.
    What is usual is learned from the sizes of robust residuals: rows at the end of a curve are not outliers. Where the
    relation is ``straight``, rows count one over the square of it: those that noise hardly moves tell the line best.
    """
    coefficients = fit.coefficients
    for _ in range(2):
        residuals = y - design @ coefficients
        usual = fit_scale(columns, np.abs(residuals), weight, seed=seed)
        sizes = _usual_sizes(usual, columns, fit.bulk)
        coefficients = weighted_least_squares(design, y, weight * _near_counts(residuals, sizes, straight))
    residuals = y - design @ coefficients
    counts = weight * _near_counts(residuals, sizes, precise=False)
    sigma = max(float(np.sqrt(np.average(np.square(residuals), weights=counts))), sigma_floor, np.finfo(float).tiny)
    # One sigma: residuals stay in proportion, and calibration says how their size changes with x.
    bulk = _scale(residuals, design.shape[1], weight, sigma_floor)
    return EqualFit(coefficients, NoiseLaw(np.array([sigma]), np.ones(1), bulk), bulk, usual, straight)


def _usual_sizes(usual: ScaleModel, columns: Array, bulk: float) -> Array:
    """Return the standard deviation of residuals at rows of columns, kept from being so small that few rows count."""
    result: Array = np.maximum(usual(columns) / _MEAN_SIZE, _LEAST_USUAL * bulk)
    return result


def _near_counts(residuals: Array, sizes: Array, precise: bool) -> Array:
    """Give what rows count: 1, or one over their squared size where that is ``precise``, and far outside little."""
    near = bounded(np.square(residuals / sizes))
    return near / np.square(sizes) if precise else near


def at_the_mean(coefficients: Array, design: Array, y: Array, weight: Array, bulk: float) -> Array:
    """Move the level, the last coefficient, to the mean of the residuals without those that are far out.

    Weights that favour the middle of the noise give its mode where it is skewed; slopes are the same for both.
    """
    residuals = y - design @ coefficients
    counts = weight * bounded(np.square(residuals / bulk)) * design[:, -1]
    total = float(counts.sum())
    if total <= 0:  # no intercept
        return coefficients
    result: Array = coefficients.copy()
    result[-1] += float(counts @ residuals) / total
    return result


def bounded(distance: Array, limit: float | Array = FARTHEST**2) -> Array:
    """Weight of a squared distance: 1 up to the limit, beyond it so small that farther away means less pull."""
    result: Array = np.square(limit / np.maximum(distance, limit))
    return result


def _scale(residuals: Array, k: int, weight: Array, sigma_floor: float) -> float:
    return max(residual_scale(residuals, k, weight), sigma_floor, np.finfo(float).tiny)


def _grid(scale: float, residuals: Array) -> NoiseLaw:
    """Spread sigmas from below the scale to the farthest residual; the scale itself is likeliest at first."""
    farthest = float(np.abs(residuals).max())
    above = int(np.ceil(np.log(max(farthest / scale, 1.0)) / np.log(_RATIO)))
    ratio = _RATIO if above <= _MOST else (farthest / scale) ** (1.0 / _MOST)
    exponent = np.arange(-_BELOW, min(above, _MOST) + 1)
    weight = 0.5 ** np.abs(exponent)
    return NoiseLaw(scale * ratio**exponent, weight / weight.sum(), scale)


def _em(
    design: Array, y: Array, weight: Array, coefficients: Array, noise: NoiseLaw, sweeps: int = _SWEEPS
) -> tuple[Array, NoiseLaw]:
    """Take EM sweeps from coefficients and weights of the sigmas until the likelihood stands still."""
    sigma, share = noise.sigma, noise.weight
    prior = np.zeros_like(share)
    prior[min(_BELOW, len(prior) - 1)] = _SMOOTHING
    total = weight.sum() + prior.sum()
    precision, bulk = 1.0 / np.square(sigma), noise.bulk
    last = -np.inf
    for _ in range(sweeps):
        log = NoiseLaw(sigma, share, bulk).log_joint(y - design @ coefficients)
        largest = log.max(1)
        responsibility = np.exp(log - largest[:, None])
        total_density = responsibility.sum(1)
        responsibility /= total_density[:, None]
        likelihood = float(weight @ (largest + np.log(total_density)))
        share = (weight @ responsibility + prior) / total
        near = bounded(np.square((y - design @ coefficients) / bulk), _FAR**2)
        coefficients = weighted_least_squares(design, y, weight * near * (responsibility @ precision))
        if likelihood - last < _CONVERGED * len(y):
            break
        last = likelihood
    return coefficients, NoiseLaw(sigma, share, bulk)


def weighted_least_squares(design: Array, y: Array, weight: Array) -> Array:
    """Solve least squares with weights (n,); a ridge far below what data can show serves columns without variation."""
    gram = (design.T * weight) @ design
    diagonal = np.diag(gram)
    gram = gram + np.diag(1e-10 * diagonal + 1e-12 * diagonal.max() + np.finfo(float).tiny)
    result: Array = np.linalg.solve(gram, design.T @ (weight * y))
    return result
