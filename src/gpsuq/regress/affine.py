r"""An affine generator: outcomes are Normal around a plane, with Student's t tails where rows are few.

Each chain has least squares of its own on all rows that it does not leave out, with slopes of standardised columns that
are Normal a priori, :math:`\beta \sim N(0, \sigma^2 / \lambda)`, a level and :math:`\log \sigma` that may be anything,
and the :math:`\lambda` that makes its rows most likely. Then a new outcome is

.. math:: y \mid x \sim t_{n - 1}\bigl(a + b'x,\ s^2 (1 + \tfrac1n + \tilde x' (X'X + \lambda)^{-1} \tilde x)\bigr),

n counting the chain's rows and :math:`\tilde x` measured from their mean. Student's t is a mixture of Normals over
their scale: that is what the noise of this generator draws, evenly. Coefficients are not drawn but integrated over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from gpsuq.regress.network import FARTHEST

Array = NDArray[np.floating]

MOST_COLUMNS = 512
"""Encoded columns that a plane is fitted to at most: what it keeps grows with their square."""

_PENALTIES = np.geomspace(1e-6, 1e6, 61)  # times the mean square of the columns
_BLOCK = 1 << 14  # rows at once
_LEAST_SCALE = 1e-3  # of the standard deviation of y


@dataclass(frozen=True)
class Affine:
    """Planes of all chains; sizes are those of a new outcome, with ``root`` @ ``root``' the covariance of slopes.

    ``spread`` are the scales of the draws over the size, (chain, draw).
    """

    center: Array  # of the columns, (chain, p)
    level: Array  # at the center, (chain,)
    slopes: Array  # (chain, p)
    root: Array  # (chain, p, p)
    size: Array  # at the center, (chain,)
    spread: Array

    @property
    def n_chains(self) -> int:
        """How many chains there are."""
        return len(self.level)

    def select(self, chains: Sequence[int]) -> Affine:
        """Return the named chains."""
        return replace(self, **{name: value[list(chains)] for name, value in vars(self).items()})

    def blocks(self, x: Array, step: int) -> Iterator[dict[str, Array]]:
        """Yield the parameters of so many rows at a time."""
        return (self.parameters(x[start : start + step]) for start in range(0, len(x), step))

    def parameters(self, x: Array) -> dict[str, Array]:
        """Return location and scale of every draw, (row, chain and draw, 1)."""
        loc, scale = np.empty((2, len(x), *self.spread.shape))
        for chain, center in enumerate(self.center):
            apart = _bounded(x) - center
            loc[:, chain] = (self.level[chain] + apart @ self.slopes[chain])[:, None]
            size = np.sqrt(np.square(self.size[chain]) + np.square(apart @ self.root[chain]).sum(1))
            scale[:, chain] = np.maximum(size, _LEAST_SCALE)[:, None] * self.spread[chain]
        return {name: value.reshape(len(x), -1, 1) for name, value in (("loc", loc), ("scale", scale))}


def fit_affine(x: Array, y: Array, weight: Array | None, left_out: Sequence[NDArray[np.int64]], n_draws: int) -> Affine:
    """Fit a plane for every chain to rows x (n, p) and outcomes y (n,), but for those that the chain leaves out."""
    weight = np.ones(len(y)) if weight is None else weight
    whole = _products(x, y, weight)
    parts = [_plane(whole - _products(x[out], y[out], weight[out]), n_draws) for out in left_out]
    return Affine(*(np.stack(values) for values in zip(*parts, strict=True)))


def _products(x: Array, y: Array, weight: Array) -> Array:
    """Return the sums over rows of products of (1, columns, y), in blocks: rows may be many."""
    total = np.zeros((x.shape[1] + 2, x.shape[1] + 2))
    for start in range(0, len(y), _BLOCK):
        at = slice(start, start + _BLOCK)
        rows = np.column_stack([np.ones(len(y[at])), _bounded(x[at]), y[at]]).astype(np.float64)
        total += (rows.T * weight[at]) @ rows
    return total


def _bounded(x: Array) -> Array:
    return np.clip(x, -FARTHEST, FARTHEST)


def _plane(products: Array, n_draws: int) -> tuple[Array, ...]:
    """Return center, level, slopes, root, size and spread from sums of products of (1, columns, y)."""
    n, sums = products[0, 0], products[0, 1:]
    centred = products[1:, 1:] - np.outer(sums, sums) / n
    *center, level = sums / n
    values, vectors = np.linalg.eigh(centred[:-1, :-1])
    values, along, total = np.maximum(values, 0.0), vectors.T @ centred[:-1, -1], max(float(centred[-1, -1]), 0.0)
    penalties = _PENALTIES[:, None] * max(float(values.mean()), np.finfo(float).tiny)
    least = np.finfo(float).eps * max(total, 1.0)
    left = np.maximum(total - (np.square(along) / (values + penalties)).sum(1), least)
    freedom = max(n - 1.0, 1.0)
    evidence = 0.5 * (np.log(penalties) - np.log(values + penalties)).sum(1) - 0.5 * freedom * np.log(left)
    best = int(evidence.argmax())
    variance, held = left[best] / freedom, values + penalties[best]
    draws = np.sqrt(freedom / chi2.ppf((np.arange(n_draws) + 0.5) / n_draws, freedom))
    root = vectors * np.sqrt(variance / held)
    return np.array(center), level, vectors @ (along / held), root, np.sqrt(variance * (1.0 + 1.0 / n)), draws
