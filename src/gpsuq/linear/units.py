"""Between the user's units and those of fitting: whitened columns, residuals of a robust pilot in units of their scale.

A fit is then the same whatever the units, the correlation of the columns and the size of the signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import listed, warn
from gpsuq.linear.passes import AllRows
from gpsuq.linear.pilot import robust_pilot

Array = NDArray[np.floating]

_PILOT_ROWS = 1 << 15
_NUMBERS = 1 << 24  # that draws may hold before equal ones share their memory
_DEPENDENT = 1e-12  # eigenvalue of the correlation matrix, relative to the largest, that counts as zero
_CONSTANT = 1e-12  # standard deviation of a column, relative to its size, that counts as zero
_FARTHEST = 1e15  # squares must stay within float32


@dataclass(frozen=True)
class LinearUnits:
    r"""Between the user's units and those of training: w = matrix' (x - center), u = (y - pilot(x)) / scale.

    A model u = level + w' gamma means y = intercept + x' theta with
    :math:`\theta = \theta_0 + \text{scale} \cdot \text{matrix}\,\gamma` and the intercept that belongs to it.
    """

    center: Array  # (p,)
    matrix: Array  # (p, r), r at most the rank of X
    slope: Array  # (p,), the pilot's
    level: float  # the pilot's value at the centre
    scale: float
    intercept: bool

    @property
    def rank(self) -> int:
        """Number of directions that training sees."""
        return int(self.matrix.shape[1])

    @property
    def inverse(self) -> Array:
        """What takes whitened rows back to columns, (r, p)."""
        unit = np.abs(self.matrix).max(1)
        unit = np.where(unit > 0, unit, 1.0)  # columns of very different units are brought to one before inverting
        return np.asarray(np.linalg.pinv(self.matrix / unit[:, None]) / unit)

    @property
    def spread(self) -> Array:
        """Standard deviation of every column, as far as the directions that training sees hold it."""
        return np.asarray(np.sqrt(np.square(self.inverse).sum(0)))

    def design(self, X: Array) -> Array:
        """Whiten X and add a column for the level, of ones, or of zeros where there is none: (n, r + 1)."""
        level = np.full((len(X), 1), float(self.intercept))
        return np.hstack([(X - self.center) @ self.matrix, level])

    def residuals(self, X: Array, y: Array) -> Array:
        """Return the residuals of the pilot in units of their scale."""
        fitted = self.level + (X - self.center) @ self.slope
        return np.clip((y - fitted) / self.scale, -_FARTHEST, _FARTHEST)

    def parameters(self, coefficients: Array, sigma: Array) -> dict[str, Array]:
        """Return draws (..., r + 1) and sigmas in the user's units: ``slope`` (..., p), ``intercept``, ``sigma``.

        Of very many columns, the slopes of one draw stand for all that have the same: they take its memory only.
        """
        shape, p = coefficients.shape[:-1], len(self.slope)
        many = 2 * self.rank < p and sigma.size * p > _NUMBERS
        if many and (coefficients == coefficients[..., :1, :]).all():
            one = self.parameters(coefficients[..., 0, :], sigma[..., 0])
            intercept = np.repeat(one["intercept"][..., None], shape[-1], -1)
            slope = np.broadcast_to(one["slope"][..., None, :], (*shape, p))
            return {"slope": slope, "intercept": intercept, "sigma": self.scale * sigma}
        slope = self.slope + self.scale * coefficients[..., :-1] @ self.matrix.T
        intercept = self.level + self.scale * coefficients[..., -1] - slope @ self.center
        return {"slope": slope, "intercept": intercept, "sigma": self.scale * sigma}


def linear_units(
    X: Array,
    y: Array,
    weight: Array | None,
    everything: AllRows,
    *,
    intercept: bool,
    names: Sequence[str],
    seed: int,
) -> tuple[LinearUnits, Array]:
    """Find the units of a table, and a robust start in them (r + 1,); warn of columns that say nothing of their own.

    X, y and weights are all rows, or those that tell the start where ``everything`` is more.
    """
    weights = np.ones(len(y)) if weight is None else weight
    n, lowest, highest = everything.n_rows, everything.lowest, everything.highest
    # Equal but for rounding; a column of large numbers that differ in their last digits is not constant.
    constant = highest - lowest <= 4.0 * np.finfo(float).eps * np.maximum(np.abs(lowest), np.abs(highest))
    size = np.where(constant, 1.0, highest - lowest if intercept else np.maximum(highest, -lowest))
    size = np.where(size > 0, size, 1.0)
    # Around a middle first: means of large numbers lose the digits that matter.
    middle = lowest + 0.5 * (highest - lowest) if intercept else np.zeros(X.shape[1])
    if X.shape[1] < len(X):
        axes = _axes_by_columns(*everything.moments(middle, size), constant, intercept=intercept)
    else:
        axes = _axes_by_rows((X - middle) / size, weights, constant, intercept=intercept)
    center, spread, constant, values, vectors = axes
    if constant.any():
        warn(f"columns {listed(compress(names, constant))} are constant: their coefficients are 0")
    kept = values > _DEPENDENT * max(values[-1], 1.0)
    if kept.sum() < min(X.shape[1] - constant.sum(), n - intercept):
        shared = 1.0 - np.square(vectors[:, kept]).sum(1) > 1e-6
        loads = listed(compress(names, shared & ~constant))
        warn(f"columns {loads} depend on each other: what they share is divided between them")
    order = np.flatnonzero(kept)[::-1]
    if len(order) == 0:  # nothing varies: one direction that is zero for all rows stands in
        order, vectors, values = np.array([0]), np.zeros_like(vectors), np.ones_like(values)
    if n <= len(order) + intercept:
        few = max(1, (n - 1) // 2)
        warn(
            f"{n} observations for {len(order) + intercept} coefficients: only the {few} directions in which X varies "
            "most are fitted, and the coefficients are what these say"
        )
        order = order[:few]
    matrix = vectors[:, order] / np.sqrt(values[order]) / (size * spread)[:, None]
    middle = middle + center * size
    center_y = float(np.median(y)) if intercept else 0.0
    size_y = np.abs(y - center_y)
    unit = float(np.median(size_y)) or float(size_y.max())  # squares of very large or small y stay finite
    some = np.flatnonzero(weights)
    if len(some) > _PILOT_ROWS:
        some = np.random.default_rng(seed).choice(some, _PILOT_ROWS, replace=False)
    design = (X[some] - middle) @ matrix
    if intercept:
        design = np.column_stack([design, np.ones(len(some))])
    pilot = robust_pilot(design, (y[some] - center_y) / unit, weights[some], seed=seed)
    scale = pilot.scale or 1.0
    first, robust = pilot.coefficients[0], pilot.coefficients[min(1, len(pilot.coefficients) - 1)]
    start = (robust - first) / scale
    units = LinearUnits(
        center=middle,
        matrix=matrix,
        slope=matrix @ first[: matrix.shape[1]] * unit,
        level=center_y + float(first[-1]) * unit if intercept else 0.0,
        scale=scale * unit,
        intercept=intercept,
    )
    return units, start if intercept else np.append(start, 0.0)


class _Axes(NamedTuple):
    """Mean and standard deviation of columns (p,), which are constant, and the axes along which the others vary.

    The axes are eigenvalues of the correlation matrix, the largest last, and their vectors in columns (p, m).
    """

    center: Array
    spread: Array
    constant: NDArray[np.bool_]
    values: Array
    vectors: Array


def _axes_by_columns(center: Array, moment: Array, constant: NDArray[np.bool_], *, intercept: bool) -> _Axes:
    """Find the axes by the correlation matrix (p, p), from means and second moments of the columns."""
    center = center if intercept else 0.0 * center
    moment = moment - np.outer(center, center)
    spread = np.sqrt(np.maximum(np.diag(moment), 0.0))
    constant = constant | (spread <= _CONSTANT)
    spread = np.where(constant, 1.0, spread)
    values, vectors = np.linalg.eigh(np.where(constant | constant[:, None], 0.0, moment / np.outer(spread, spread)))
    return _Axes(center, spread, constant, values, vectors)


def _axes_by_rows(block: Array, weights: Array, constant: NDArray[np.bool_], *, intercept: bool) -> _Axes:
    """Find the same axes by the products of rows (n, n): with many columns nothing as large as (p, p) is held."""
    share = weights / weights.sum()
    center = share @ block if intercept else np.zeros(block.shape[1])
    block -= center
    spread = np.sqrt(share @ np.square(block))
    constant = constant | (spread <= _CONSTANT)
    spread = np.where(constant, 1.0, spread)
    block *= np.sqrt(share)[:, None] / spread
    block[:, constant] = 0.0
    values, sides = np.linalg.eigh(block @ block.T)
    return _Axes(center, spread, constant, values, block.T @ (sides / np.sqrt(np.maximum(values, _DEPENDENT))))
