r"""How far an estimated intensity may be off: a random field of relative errors.

An estimate that smooths points over a length h has errors that go together over about that length, with a relative
variance of :math:`v_h / \lambda(s)`, where :math:`v_h = 1 / (4 \pi h^2)` is what a Gaussian kernel makes of Poisson
noise. Where the length is shorter among many points, as Abramson's rule has it, the relative variance is the same
everywhere. A mixture of both lies between: :math:`\kappa\, v_h / \sqrt{\lambda_0 \lambda(s)}`, with the length h at
a typical intensity :math:`\lambda_0`. The length is read off the differences between estimates from thinned points,
pooled over the window. The factor :math:`\kappa` holds the bias of smoothing, which differences between estimates
cannot show: it is read off points that were left out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from gpsuq.poisson.kernels import between_cells, smoothed
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array

_MOST_MODES = 600
_NEGLIGIBLE = 0.05  # share of the largest amplitude
_LEAST_ROOT = 0.01
_MOST_VARIANCE = 3.0  # relative to the square of the mean
# Where a bandwidth is optimal, squared bias adds half of the variance if the truth is smooth (two derivatives), and
# twice the variance if it is rough (a field with exponential covariance): 1.5 to 3.
_BIAS, _BIAS_SD = 2.25, 1.0
_MOST_BIAS = 6.0
_POWER = 0.5  # of the intensity that relative variances fall with: between fixed kernels (1) and adaptive ones (0)
_LOWEST = 1e-3  # of the largest intensity: where there are no points at all, an estimate may be anything


@dataclass(frozen=True)
class ErrorField:
    """Relative errors that go together over ``length``.

    Where the intensity is ``level``, their variance is ``factor`` times that of smoothed Poisson noise.
    """

    length: float
    factor: float
    level: float

    def n_modes(self, grid: Grid) -> int:
        """Return how many functions there are."""
        return len(_spectrum(self.length, _sides(grid))[1])

    def modes(self, grid: Grid, points: Array, intensity: Array) -> Array:
        """Return functions at points (mode, n) whose sums with standard normal weights are the errors.

        They are cosines over the window's box, which is what smoothing with reflection at its edges makes of noise.
        """
        x_min, _, y_min, _ = grid.window.bounds
        sides = _sides(grid)
        pairs, amplitude = _spectrum(self.length, sides)
        place = np.pi * (points - [x_min, y_min]) / sides
        across, along = (np.cos(np.outer(np.arange(pairs[:, axis].max() + 1), place[:, axis])) for axis in (0, 1))
        waves = across[pairs[:, 0]]
        waves *= along[pairs[:, 1]]
        seen = smoothed(grid.exposure, self.length, grid) / np.prod(grid.cell_size)
        share = np.maximum(between_cells(seen, grid, points), 1e-3)
        waves *= (amplitude * np.sqrt(2.0) ** (pairs > 0).sum(1) / math.sqrt(np.prod(sides)))[:, None]
        relative = np.maximum(intensity / self.level, np.finfo(float).tiny)
        waves *= np.sqrt(self.factor / (share * self.level * relative**_POWER))
        variance = np.square(waves).sum(0)
        return np.asarray(waves * np.sqrt(np.minimum(variance, _MOST_VARIANCE) / variance))


def off_by(errors: Array, variance: Array) -> Array:
    """Return what an intensity is multiplied by for normal errors of a relative variance: its law is nearly a gamma's.

    That is the law of a mean of counts, close to 0 where there are few; its cube root is nearly normal (Wilson and
    Hilferty).
    """
    return np.asarray(np.maximum(1.0 - variance / 9.0 + errors / 3.0, _LEAST_ROOT) ** 3)


def _sides(grid: Grid) -> Array:
    x_min, x_max, y_min, y_max = grid.window.bounds
    return np.array([x_max - x_min, y_max - y_min])


def _spectrum(length: float, sides: Array) -> tuple[Array, Array]:
    """Return the numbers of half waves (mode, 2) and amplitudes of the modes that matter, the variance being kept."""
    each = [np.exp(-0.5 * (length * np.pi * np.arange(_modes(length, side)) / side) ** 2) for side in sides]
    amplitude = np.outer(*each).ravel()
    pairs = np.array(list(itertools.product(*(range(len(one)) for one in each))))
    kept = np.argsort(-amplitude, kind="stable")[:_MOST_MODES]
    kept = kept[amplitude[kept] > _NEGLIGIBLE]
    lost = np.square(amplitude).sum() / np.square(amplitude[kept]).sum()
    return pairs[kept], amplitude[kept] * math.sqrt(lost)


def _modes(length: float, side: float) -> int:
    return 1 + math.ceil(3.0 * side / (np.pi * length))


def noise_variance(length: float, grid: Grid) -> float:
    """Return the mean variance of unit Poisson noise smoothed over a length, in the box of a grid."""
    result = 1.0
    for side in _sides(grid).tolist():
        number = np.arange(_modes(length, side))
        result *= float(np.exp(-((length * np.pi * number / side) ** 2)).sum()) / side
    return result


def length_of(variance: float, grid: Grid) -> float:
    """Return the length over which unit Poisson noise has to be smoothed to have a variance, in a grid's window."""
    sides = _sides(grid)
    share = grid.window.area / float(sides.prod())
    shortest, longest = min(grid.cell_size) / 2.0, 2.0 * float(sides.max())
    if not variance > 0.0:  # chains do not differ at all
        return longest

    def excess(log: float) -> float:
        return math.log(noise_variance(math.exp(log), grid)) - math.log(share * variance)

    if excess(math.log(longest)) >= 0.0:
        return longest
    if excess(math.log(shortest)) <= 0.0:
        return shortest
    return math.exp(brentq(excess, math.log(shortest), math.log(longest), xtol=1e-3))


def typical(intensity: Array, variance: Array, grid: Grid) -> tuple[float, float]:
    """Return the typical intensity of a window, and the length that an estimate smooths over where it is that.

    ``intensity`` and the relative ``variance`` of the estimate are those at the grid's nodes (node,).
    """
    share = grid.exposure[grid.inside] / grid.window.area
    level = math.exp(share @ np.log(np.maximum(intensity, _LOWEST * intensity.max())))
    return level, length_of(level * float(share @ (variance * (intensity / level) ** _POWER)), grid)


def chance_in_blocks(expected: Array, area: Array, length: float, level: float, grid: Grid) -> Array:
    """Return the variance that expected counts (..., block) have by smoothed Poisson noise, in blocks of equal sides.

    A block sees noise that is smoothed over its side as well as over the length.
    """
    wider = math.hypot(length, math.sqrt(float(area.max()) / 12.0))
    relative = np.maximum(expected / np.maximum(area, np.finfo(float).tiny) / level, _LOWEST)
    return np.asarray(np.square(expected) * noise_variance(wider, grid) / (level * relative**_POWER))


def bias_factor(counted: Array, estimated: Array, chance: Array) -> float:
    r"""Return by what the squared errors of expected counts exceed what chance in the estimate explains.

    Parameters
    ----------
    counted
        Points of each fold in each block, (partition, fold, block).
    estimated
        Expected counts of *all* points, each by an estimate that did not see the fold, of the same shape.
    chance
        The variance of such an estimate by chance, (block,).

    Points of different folds are independent, so that the squared error :math:`(\mu - \hat\mu_f)^2` can be had without
    knowing :math:`\mu`: products of the counts of two folds stand for :math:`\mu^2`, those of a fold's count and the
    estimate without it for :math:`\mu \hat\mu_f`. Few points say little about it; then what is known of smoothing
    counts.
    """
    if not chance.sum() > 0.0:
        return _BIAS
    n_folds = counted.shape[1]
    kept = 1.0 - 1.0 / n_folds
    products = (np.square(counted.sum(1)) - np.square(counted).sum(1)) / kept
    squares = products - 2.0 * (counted * estimated).sum(1) + np.square(estimated).mean(1)  # (partition, block)
    found = float(squares.sum(1).mean() / chance.sum())
    precision = float(chance.sum() ** 2 * kept / (2.0 * np.square(estimated.mean((0, 1))).sum()))
    known = 1.0 / _BIAS_SD**2
    return float(np.clip((_BIAS * known + found * precision) / (known + precision), 1.0, _MOST_BIAS))
