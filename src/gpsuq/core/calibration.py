r"""Predictive distributions made to hold: ranks of rows that were not fitted in, calibrated quantiles out.

A predictive F says of an observation that was not fitted :math:`z_i = \Phi^{-1}(F(y_i \mid x_i))`. Were F right, z
would be standard Normal wherever x is. Instead it has a scale that may change with x, and a shape of its own:

.. math:: z_i = s(x_i)\, g(t_i), \qquad t_i \sim N(0, 1), \qquad
          \log s(x) = \gamma_0 + \textstyle\sum_j \gamma_j x_j + \gamma_j' (x_j^2 - 1) ,

with g the empirical quantiles of z / s, whatever their shape, and columns standardised and kept within the range that
was seen. The penalty on gamma is chosen by rows left out; the heaviest is a constant s. A quantile of level p is then
:math:`F^{-1}(\Phi(s(x)\, g(\Phi^{-1}(p))))`: its coverage over rows like those is right up to 1 / n, whatever F.

Few rows hardly tell a quantile: one that leaves out 5% of 20 is their largest. Where it is known how F came about, g is
therefore between what ranks say and :math:`T_\nu^{-1}(\Phi(t))`, Student's t with the degrees of freedom that were left
to estimate the scale of F; nearer to the ranks the more they speak against it (:func:`fit_calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import t as student_t

from gpsuq.core.seeds import derive_seed

Array = NDArray[np.floating]

PENALTIES: tuple[float, ...] = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
_FOLDS = 5
_AS_GOOD = 0.5  # standard errors: a heavier penalty as good as this is taken
_RANGE = 0.005  # of a column that lies outside the range kept, on either side
_FARTHEST_SIZE = 6.0  # times the mean size: one row must not bend the scale
_SWEEPS = 25
_KNOTS = 512
_MOST_ROWS = 20_000
_COVERED = 0.9
_MOST_APART = 0.25  # of all rows
_OWN_KNOTS = np.linspace(-5.0, 5.0, 81)


@dataclass(frozen=True)
class ScaleModel:
    """How the size of normal scores changes with x: exp of a polynomial in clipped, standardised columns."""

    center: Array  # (p,)
    scale: Array  # (p,)
    lower: Array  # (p,), in standardised units
    upper: Array  # (p,)
    coefficients: Array  # (1 + 2p,): constant, columns, their squares

    @property
    def constant(self) -> bool:
        """Whether the scale is the same for all x."""
        return not self.coefficients[1:].any()

    def features(self, X: Array) -> Array:
        """Return a constant, the columns and their squares, (n, 1 + 2p)."""
        columns = np.clip((X - self.center) / self.scale, self.lower, self.upper)
        return np.column_stack([np.ones(len(X)), columns, np.square(columns) - 1.0])

    def __call__(self, X: Array) -> Array:
        """Return the scale at every row, (n,)."""
        if self.constant:
            return np.full(len(X), np.exp(self.coefficients[0]))
        return np.exp(self.features(X) @ self.coefficients)


def fit_scale(X: Array, sizes: Array, weight: Array | None = None, *, seed: int = 0) -> ScaleModel:
    r"""Fit the scale of numbers with the given absolute ``sizes`` (n,) to the columns of X (n, p).

    Minimises :math:`\sum_i w_i (\log s(x_i) + |z_i| / s(x_i)) + \tfrac{\lambda}{2} \lVert\gamma\rVert^2`, with the
    heaviest penalty whose loss on rows left out is within half a standard error of the smallest.
    """
    weight = np.ones(len(sizes)) if weight is None else weight
    if len(sizes) > _MOST_ROWS:
        some = np.linspace(0, len(sizes) - 1, _MOST_ROWS).astype(int)
        X, sizes, weight = X[some], sizes[some], weight[some]
    mean = max(float(np.average(sizes, weights=weight)), np.finfo(float).tiny)
    sizes = np.clip(sizes, 0.0, _FARTHEST_SIZE * mean)
    frame = _frame(X, mean)
    features = frame.features(X)
    folds = np.random.default_rng(derive_seed(seed, "scale")).permutation(len(sizes)) % _FOLDS
    losses = np.zeros((len(PENALTIES), len(sizes)))
    for fold in range(_FOLDS):
        rest, out = folds != fold, folds == fold
        start = None
        for number, penalty in enumerate(PENALTIES):
            start = _fit_log_scale(features[rest], sizes[rest], weight[rest], penalty, start)
            log = features[out] @ start
            losses[number, out] = log + sizes[out] * np.exp(-log)
    total = weight.sum()
    excess = losses - losses[(losses @ weight).argmin()]
    means = excess @ weight / total
    error = np.sqrt(np.square(excess - means[:, None]) @ weight / total / len(sizes))
    chosen = int((means <= _AS_GOOD * error).argmax())
    start = None
    for penalty in PENALTIES[: chosen + 1]:
        start = _fit_log_scale(features, sizes, weight, penalty, start)
    assert start is not None
    return ScaleModel(frame.center, frame.scale, frame.lower, frame.upper, start)


def _frame(X: Array, mean: float) -> ScaleModel:
    """Return a constant scale in the units that the columns of X call for; a constant column has no say."""
    center, scale = X.mean(0), X.std(0)
    varies = scale > 1e-12 * np.maximum(np.abs(center), np.finfo(float).tiny)
    scale = np.where(varies, scale, np.inf)
    lower, upper = np.quantile((X - center) / scale, [_RANGE, 1.0 - _RANGE], axis=0)
    return ScaleModel(center, scale, lower, upper, np.append(np.log(mean), np.zeros(2 * X.shape[1])))


def _fit_log_scale(features: Array, sizes: Array, weight: Array, penalty: float, start: Array | None) -> Array:
    """Minimise the penalised loss by Fisher scoring from ``start``; an infinite penalty leaves the constant."""
    result = np.zeros(features.shape[1]) if start is None else start.copy()
    if not np.isfinite(penalty):
        result[0] = np.log(max(np.average(sizes, weights=weight), np.finfo(float).tiny))
        return result
    ridge = np.full(features.shape[1], penalty)
    ridge[0] = 0.0
    inverse = np.linalg.pinv((features.T * weight) @ features + np.diag(ridge))
    for _ in range(_SWEEPS):
        ratio = np.clip(sizes * np.exp(-np.clip(features @ result, -50.0, 50.0)) - 1.0, -1.0, 3.0)
        step = inverse @ (features.T @ (weight * ratio) - ridge * result)
        result += step
        if np.abs(step).max() < 1e-5:
            break
    return result


@dataclass(frozen=True)
class Calibration:
    """The map from standard Normal t to normal scores of a predictive, z = s(x) g(t), and back."""

    scale: ScaleModel
    knots: Array  # t, increasing
    values: Array  # g(t), increasing
    n_rows: int

    def predictive_scores(self, levels: Array, X: Array) -> Array:
        """Return the predictive's normal scores of calibrated levels (l,), or of each row's own (n, l): (n, l)."""
        return self.scale(X)[:, None] * _extended(ndtri(levels), self.knots, self.values)

    def calibrated(self, scores: Array, X: Array) -> Array:
        """Return calibrated probabilities of the predictive's normal scores (n,), or of several sets (sets, n)."""
        return np.asarray(ndtr(_extended(scores / self.scale(X), self.values, self.knots)))


def _extended(at: Array, knots: Array, values: Array) -> Array:
    """Interpolate, and go on with the mean slope beyond the ends: rows never seen keep the predictive's tails."""
    slope = (values[-1] - values[0]) / (knots[-1] - knots[0])
    beyond: Array = np.minimum(at - knots[0], 0.0) + np.maximum(at - knots[-1], 0.0)
    return np.asarray(np.interp(at, knots, values) + slope * beyond)


def fit_calibration(
    X: Array,
    scores: Array,
    weight: Array | None = None,
    *,
    varies: bool = True,
    freedom: float | None = None,
    apart: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Calibration:
    """Fit the map from normal scores (n,) of rows X (n, p) that the predictive was not fitted to.

    Without ``varies`` their scale is the same for all x. ``freedom`` are degrees of freedom that the predictive's own
    scale was estimated with: the shape is then drawn towards Student's t, by one over the square of how far ranks are
    from it (the statistic of Anderson and Darling, 1 in the mean where they follow it). Rows ``apart`` (n,), far out in
    x, do not count for the shape of the others where the scale alone makes intervals of 90% cover all of them.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 1))
    >>> calibration = fit_calibration(X, 0.5 * rng.normal(size=2000))  # too wide by half everywhere
    >>> calibration.predictive_scores(np.array([0.025, 0.975]), X[:1]).round()
    array([[-1.,  1.]])
    """
    weight = np.ones(len(scores)) if weight is None else weight
    scale = fit_scale(X, np.abs(scores), weight, seed=seed) if varies else _frame(X, 1.0)
    sizes = scale(X)
    shape = scores / sizes
    if apart is not None and not scale.constant and _covers(shape, weight, apart):
        shape, weight, freedom = shape[~apart], weight[~apart], None  # the predictive was made for all rows
    knots, values = _ranked(shape, weight)
    if freedom is not None:
        unit = float(np.average(sizes, weights=weight))
        share = 1.0 / max(_distance(student_t.cdf(shape * unit, freedom), weight), 1.0) ** 2
        ranks, knots = (knots, values), np.union1d(knots, _OWN_KNOTS)
        values = share * _student(knots, freedom) / unit + (1.0 - share) * _extended(knots, *ranks)
    # Ties (a y of few values) would make a step: a slope far below what matters keeps the map invertible.
    return Calibration(scale, knots, np.maximum.accumulate(values) + 1e-6 * knots, len(shape))


def _ranked(shape: Array, weight: Array) -> tuple[Array, Array]:
    """Return normal scores of ranks, and the numbers (n,) that have them."""
    order = np.argsort(shape, kind="stable")
    shape, counts = shape[order], weight[order]
    # The i-th of n is where a new row falls below with probability i / (n + 1).
    position = (np.cumsum(counts) - 0.5 * (counts - 1.0)) / (counts.sum() + 1.0)
    knots = ndtri(position)
    if len(shape) > _KNOTS:
        knots = np.linspace(knots[0], knots[-1], _KNOTS)
    return knots, np.interp(ndtr(knots), position, shape)


def _covers(shape: Array, weight: Array, apart: NDArray[np.bool_]) -> bool:
    """Return whether what nine in ten of the other rows keep to holds for all rows that are apart, if these are few."""
    if not 0.0 < np.average(apart, weights=weight) <= _MOST_APART:
        return False
    tail = 0.5 * (1.0 - _COVERED)
    lower, upper = _extended(ndtri([tail, 1.0 - tail]), *_ranked(shape[~apart], weight[~apart]))
    return bool(lower <= shape[apart].min() and shape[apart].max() <= upper)


def _distance(probabilities: Array, weight: Array) -> float:
    r"""Return the statistic of Anderson and Darling for numbers in (0, 1) that should be uniform.

    .. math:: n \int_0^1 \frac{(F_n(u) - u)^2}{u (1 - u)}\, du
    """
    order = np.argsort(probabilities)
    u, below = np.clip(probabilities[order], 1e-15, 1.0 - 1e-15), np.cumsum(weight[order])
    total, below = below[-1], below / below[-1]
    first = -np.log1p(-u[0]) - u[0] - np.log(u[-1]) - (1.0 - u[-1])
    lower, upper, share = u[:-1], u[1:], below[:-1]
    between = np.square(share) * np.log(upper / lower) - np.square(1.0 - share) * np.log((1 - upper) / (1 - lower))
    return float(total * (first + (between - (upper - lower)).sum()))


def _student(scores: Array, freedom: float) -> Array:
    """Return quantiles of Student's t at the levels that a Normal has at these scores."""
    return np.asarray(np.sign(scores) * student_t.isf(ndtr(-np.abs(scores)), freedom))


def identity_calibration(p: int, freedom: float | None = None) -> Calibration:
    """Return the calibration that leaves a predictive of p columns as it is, where rows are too few to learn from.

    With the degrees of ``freedom`` of its scale it has the tails of Student's t.
    """
    zeros = np.zeros(p)
    frame = ScaleModel(zeros, np.ones(p), zeros, zeros, np.zeros(1 + 2 * p))
    if freedom is not None:
        return Calibration(frame, _OWN_KNOTS, _student(_OWN_KNOTS, freedom), 0)
    return Calibration(frame, np.array([-1.0, 1.0]), np.array([-1.0, 1.0]), 0)
