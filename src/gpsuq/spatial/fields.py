r"""Types of points as a Gaussian random field: which type a point has, given where it is.

.. math:: P(\text{type } k \mid s) \propto \exp f_k(s), \qquad f_k(s) = a_k + \text{a Gaussian process of } s

Of Poisson processes side by side, each point's type depends on its place alone, whatever their common intensity is:
what all types share cancels. The process has a squared exponential covariance, as sines over a box around the window
(Solin and Sarkka's reduced rank). For each length scale and standard deviation of a fixed list, numbers are fitted by
Newton's method and their posterior is taken as normal there (Laplace); posteriors are mixed by their evidence. Every
length scale has the same share of the prior, and so has no change at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, helmert, solve_triangular
from scipy.special import logsumexp, softmax

from gpsuq.spatial.windows import Array, Window

LENGTHS = (1.0, 0.5, 0.32, 0.2, 0.13, 0.08)
"""Length scales that are mixed, in longest sides of the window."""

SPREADS = (0.5, 1.0, 2.0)
"""Standard deviations of the log odds that are mixed."""

_LEVEL_SPREAD = 5.0  # of the prior of overall log odds
_REACH = 2.5  # length scales that the box of the sines reaches beyond the window
_SMALLEST = 7.0  # sines whose variance is below exp(-7) of the largest are left out
_MOST_NUMBERS = 1200
_NEWTON, _TOLERANCE = 50, 1e-8


@dataclass(frozen=True)
class Waves:
    """Sines over a box around a window, scaled so that standard normal numbers make a Gaussian process."""

    corner: Array
    frequency: Array  # (wave, 2)
    scale: Array  # (wave,)

    @classmethod
    def over(cls, window: Window, length: float) -> Waves:
        """Make those of a process with standard deviation 1 and a length scale in longest sides of the window."""
        x_min, x_max, y_min, y_max = window.bounds
        sides = np.array([x_max - x_min, y_max - y_min])
        length = length * sides.max()
        box = 1.1 * sides + 2.0 * _REACH * length
        limit = math.sqrt(2.0 * _SMALLEST) / length
        steps = [np.arange(1, int(limit * side / np.pi) + 1) * np.pi / side for side in box]
        frequency = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 2)
        squared = np.square(frequency).sum(1)
        kept = squared <= limit**2
        density = 2.0 * np.pi * length**2 * np.exp(-0.5 * length**2 * squared[kept])
        corner = np.array([x_min + x_max, y_min + y_max]) / 2.0 - box / 2.0
        return cls(corner, frequency[kept], np.sqrt(density * 4.0 / box.prod()))

    def at(self, points: Array) -> Array:
        """Return the waves at points (n, 2): (n, wave)."""
        angle = (points - self.corner)[:, None] * self.frequency
        return np.asarray(np.sin(angle).prod(-1) * self.scale)


@dataclass(frozen=True)
class _Posterior:
    """The numbers of one process: their mode (contrast, number), the root of their precision, and its evidence."""

    waves: Waves | None
    spread: float
    mode: Array
    root: Array
    evidence: float

    def design(self, points: Array) -> Array:
        level = np.full((len(points), 1), _LEVEL_SPREAD)
        return level if self.waves is None else np.hstack([level, self.spread * self.waves.at(points)])

    def draws(self, points: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw log odds at points: (draw, n, contrast)."""
        apart = solve_triangular(self.root, rng.standard_normal((len(self.root), n)), lower=True, trans=1)
        numbers = self.mode.ravel()[:, None] + apart
        return np.asarray(np.einsum("pj,kjd->dpk", self.design(points), numbers.reshape(*self.mode.shape, n)))


@dataclass(frozen=True)
class TypeField:
    """What is known of the probability of each type; made by :func:`fit_types`."""

    contrasts: Array  # (type, type - 1)
    posteriors: tuple[_Posterior, ...]
    weights: Array

    def draws(self, points: Array, n: int, seed: int) -> Array:
        """Draw the probabilities of all types at points: (draw, point, type)."""
        rng = np.random.default_rng(seed)
        sizes = np.diff(np.rint(np.cumsum([0.0, *self.weights]) * n).astype(int))
        found = [part.draws(points, size, rng) for part, size in zip(self.posteriors, sizes, strict=True) if size]
        return np.asarray(softmax(np.concatenate(found) @ self.contrasts.T, axis=-1))


def fit_types(nodes: Array, counts: NDArray[np.int64], window: Window) -> TypeField:
    """Fit the probabilities of types to how many of each there are at some places (place, type).

    >>> import numpy as np
    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.fields import fit_types
    >>> nodes = np.random.default_rng(0).random((200, 2))
    >>> east = np.random.default_rng(1).random(200) < nodes[:, 0]
    >>> field = fit_types(nodes, np.column_stack([east, ~east]).astype(int), Window.rectangle(0.0, 1.0, 0.0, 1.0))
    >>> west, middle = field.draws(np.array([[0.1, 0.5], [0.5, 0.5]]), n=500, seed=0)[..., 0].mean(0)
    >>> bool(west < 0.25), bool(0.35 < middle < 0.65)
    (True, True)
    """
    contrasts = helmert(counts.shape[1]).T
    start = np.log(counts.sum(0) + 0.5) @ contrasts / _LEVEL_SPREAD
    posteriors = [_posterior(None, 0.0, nodes, counts, contrasts, start[:, None])]
    for length in LENGTHS:
        waves = Waves.over(window, length)
        if len(waves.scale) * contrasts.shape[1] > _MOST_NUMBERS:
            break
        mode = np.hstack([start[:, None], np.zeros((len(start), len(waves.scale)))])
        for spread in SPREADS:
            posteriors.append(_posterior(waves, spread, nodes, counts, contrasts, mode))
            mode = posteriors[-1].mode
    prior = np.array([1.0] + [1.0 / len(SPREADS)] * (len(posteriors) - 1))
    logs = np.log(prior) + [part.evidence for part in posteriors]
    return TypeField(contrasts, tuple(posteriors), np.exp(logs - logsumexp(logs)))


def _posterior(
    waves: Waves | None, spread: float, nodes: Array, counts: NDArray[np.int64], contrasts: Array, start: Array
) -> _Posterior:
    """Find the mode by Newton's method, with steps that are halved where they go too far."""
    empty = _Posterior(waves, spread, start, np.zeros((0, 0)), 0.0)
    design, total = empty.design(nodes), counts.sum(1)

    def objective(numbers: Array) -> tuple[float, Array]:
        logits = design @ numbers.T @ contrasts.T
        logs = logits - logsumexp(logits, axis=1, keepdims=True)
        return float((counts * logs).sum() - 0.5 * np.square(numbers).sum()), np.exp(logs)

    mode, (value, probability) = start, objective(start)
    for _ in range(_NEWTON):
        slope = ((counts - total[:, None] * probability) @ contrasts).T @ design - mode
        root = _root(design, total, probability, contrasts)
        step = cho_solve((root, True), slope.ravel()).reshape(mode.shape)
        size = 1.0
        while (after := objective(mode + size * step))[0] < value and size > _TOLERANCE:
            size /= 2.0
        gain = after[0] - value
        if gain > 0.0:
            mode, (value, probability) = mode + size * step, after
        if gain <= _TOLERANCE:
            break
    evidence = value - float(np.log(np.diag(root)).sum())
    return _Posterior(waves, spread, mode, root, evidence)


def _root(design: Array, total: Array, probability: Array, contrasts: Array) -> Array:
    """Return the Cholesky root of the precision of all numbers."""
    n_contrasts, n_numbers = contrasts.shape[1], design.shape[1]
    within = np.einsum("nk,ka,kb->nab", probability, contrasts, contrasts)
    mean = probability @ contrasts
    weight = total[:, None, None] * (within - mean[:, :, None] * mean[:, None])
    precision = np.eye(n_contrasts * n_numbers)
    blocks = precision.reshape(n_contrasts, n_numbers, n_contrasts, n_numbers)
    for a in range(n_contrasts):
        for b in range(a + 1):
            block = design.T @ (weight[:, a, b, None] * design)
            blocks[a, :, b, :] += block
            if a != b:
                blocks[b, :, a, :] += block.T
    return np.asarray(cho_factor(precision, lower=True)[0])


def labelling_p_value(points: Array, types: NDArray[np.intp], window: Window, seed: int, n: int = 199) -> float:
    """Test whether types change over the window: the share of random labellings that look as far from constant.

    For every length scale the process is multiplied with the labels less their means; the largest of these sums, each
    in standard deviations over the labellings, decides.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.fields import labelling_p_value
    >>> points = np.random.default_rng(0).random((100, 2))
    >>> labelling_p_value(points, (points[:, 0] > 0.5).astype(int), Window.rectangle(0.0, 1.0, 0.0, 1.0), seed=0)
    0.005
    """
    rng = np.random.default_rng(seed)
    labels = np.eye(int(types.max()) + 1)[types]
    apart = (labels - labels.mean(0)) / np.sqrt(np.maximum(labels.mean(0), 1e-12))
    orders = [np.arange(len(points)), *(rng.permutation(len(points)) for _ in range(n))]
    sums = np.empty((len(orders), len(LENGTHS)))
    for column, length in enumerate(LENGTHS):
        waves = Waves.over(window, length).at(points).T
        sums[:, column] = [np.square(waves @ apart[order]).sum() for order in orders]
    largest = ((sums - sums.mean(0)) / np.maximum(sums.std(0), 1e-300)).max(1)
    return float((largest >= largest[0]).mean())
