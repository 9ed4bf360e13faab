r"""The centre of a linear model's coefficients, found exactly: iteratively re-weighted least squares on all rows.

Adding one shift :math:`\delta` to the coefficients of every draw leaves the pair term of the kernel score alone, and
its other term is a bounded loss of the residuals,

.. math:: -2 \sum_i w_i \frac1M \sum_m \sqrt{b / c_m}^{\,T_i}
          \exp\bigl(-\lVert y_i - X_i (\theta_m + \delta) \rVert^2 / c_m\bigr), \qquad c_m = b + 2 \sigma_m^2 ,

which is concave in the squared residual: least squares with weights :math:`\exp(\cdot) / c` minimises a bound that
touches it, so no sweep ever makes the fit worse. Stochastic steps need a long time for the last digits of a mean; this
needs a few sweeps, and it is what lets the cost of training not grow with n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gpsuq.data import evenly_spaced

_NUMBERS = 1 << 21  # held at once
_SOME = 20_000  # rows that bring the shift near its end, so that few sweeps over all rows are left
_KEPT = 1 << 25
_FLAT = 1e-3  # variance of the predictive mean over draws, in units of the noise variance, that counts as none
_LEVELS = (0.125, 0.375, 0.625, 0.875)
_RIDGE = 1e-9
_MOST_UNDONE = 0.5


@dataclass(frozen=True)
class LinearDraws:
    """Draws of a linear model's parameters: ``slope`` (chain, draw, p), ``level`` and ``sigma`` (chain, draw)."""

    slope: Tensor
    level: Tensor
    sigma: Tensor

    def without_spread(self) -> LinearDraws:
        """Replace draws that all but agree in slope and level by a few that stand for the law of sigma."""
        levels = self.sigma.new_tensor(_LEVELS)
        sigma = torch.quantile(self.sigma, levels, dim=1).T
        slope, level = (t.mean(1, keepdim=True) for t in (self.slope, self.level))
        return LinearDraws(slope.expand(-1, len(_LEVELS), -1), level.expand(-1, len(_LEVELS)), sigma)


def common_shift(
    x: Tensor,
    y: Tensor,
    mask: Tensor | None,
    weights: Callable[[Tensor], Tensor],
    draws: LinearDraws,
    bandwidth: Tensor,
    *,
    intercept: bool,
    sweeps: int = 4,
) -> Tensor:
    """Give the shift of (slope, level) that minimises every chain's loss: (chain, p + 1), or (chain, p).

    ``x`` is (n, p) and ``y`` (n,), or (n, measures, p) and (n, measures) with a ``mask``; ``weights`` gives the weights
    (chain, rows) of any rows; ``bandwidth`` (chain,) is the kernel's. Where rows are many, ``sweeps`` over some of them
    are followed by one over all. It takes the squares and products of the columns from those some, and is made longer
    by what each sweep leaves undone, as the last two of them show: both decide how fast the shift is found, not where.
    """
    if x.dim() == 2:
        x, y = x[:, None], y[:, None]
    variance = draws.slope.var(1).sum(-1) + draws.level.var(1)
    if bool((variance <= _FLAT * draws.sigma.square().median(1).values).all()):
        draws = draws.without_spread()
    shift = torch.zeros(len(draws.slope), draws.slope.shape[2] + intercept, dtype=torch.float64)
    problem = _Problem(x, y, mask, weights, draws, bandwidth, intercept)
    if len(x) <= _SOME:
        return _sweeps(problem, shift, torch.arange(len(x)), sweeps)[0]
    near, gram, undone = _sweeps(problem, shift, evenly_spaced(len(x), _SOME), sweeps)
    there = _sweeps(problem, near, torch.arange(len(x)), 1, gram * (len(x) / _SOME))[0]
    return near + (there - near) / (1.0 - undone[:, None])


class _Problem(NamedTuple):
    x: Tensor
    y: Tensor
    mask: Tensor | None
    weights: Callable[[Tensor], Tensor]
    draws: LinearDraws
    bandwidth: Tensor
    intercept: bool


def _sweeps(
    problem: _Problem, shift: Tensor, index: Tensor, sweeps: int, gram: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Go on from a shift by sweeps over the rows in ``index``.

    Gives the shift, the weighted Gram matrix, and the length of each chain's last step relative to the one before.
    """
    x, y, mask, weights, draws, bandwidth, intercept = problem
    n_chains, k = shift.shape
    known, latest = gram is not None, shift.new_zeros(n_chains, k, k) if gram is None else gram
    numbers_per_row = max(n_chains * draws.sigma.shape[1], 0 if known else k * k) * x.shape[1]
    parts = index.split(max(1, _NUMBERS // numbers_per_row))
    whole = len(index) == len(x)  # then parts are views, not copies
    # Bootstrap weights are computed anew whenever they are asked for: worth keeping between sweeps while they are few.
    kept = [weights(rows).to(x) for rows in parts] if sweeps > 1 and n_chains * len(index) <= _KEPT else None
    lengths = [shift.new_ones(n_chains)]
    for _ in range(sweeps):
        coefficients = torch.cat([draws.slope, draws.level[..., None]], 2) if intercept else draws.slope
        coefficients = coefficients + shift[:, None].to(coefficients)
        if not known:
            latest = torch.zeros_like(latest)
        pull = torch.zeros_like(shift)
        for number, rows in enumerate(parts):
            place = slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows
            design = _design(x[place], None if mask is None else mask[place], intercept)
            weight = weights(rows).to(x) if kept is None else kept[number]
            measures = torch.ones(()) if mask is None else mask[place].sum(1).to(x)
            close, residual = _closeness(design, y[place], coefficients, draws, bandwidth, weight, measures)
            flat = design.flatten(0, 1)
            if not known:
                outer = (flat[:, :, None] * flat[:, None, :]).flatten(1)
                latest += (close.sum(1) @ outer).double().reshape(latest.shape)
            pull += (residual.mul_(close).sum(1) @ flat).double()
        ridge = _RIDGE * latest.diagonal(dim1=1, dim2=2).mean(1) + torch.finfo(torch.float64).tiny
        square = latest + ridge[:, None, None] * torch.eye(k, dtype=torch.float64)
        step = torch.linalg.solve(square, pull[..., None])[..., 0]
        shift = shift + step
        lengths.append(step.norm(dim=1))
    undone = (lengths[-1] / lengths[-2]).nan_to_num(nan=0.0).clamp(max=_MOST_UNDONE) if sweeps > 1 else 0 * lengths[0]
    return shift, latest, undone


def _design(x: Tensor, mask: Tensor | None, intercept: bool) -> Tensor:
    """Add a column of ones; measures that only pad a group are zero in all columns and so weigh nothing."""
    if not intercept:
        return x
    ones = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x)
    return torch.cat([x, ones], -1)


def _closeness(
    design: Tensor,
    y: Tensor,
    coefficients: Tensor,
    draws: LinearDraws,
    bandwidth: Tensor,
    weight: Tensor,
    observed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Weight of every measure in the least squares, and its residual: (chain, draw, rows x measures)."""
    n_chains, n_draws, _ = coefficients.shape
    n, measures, _ = design.shape
    residual = y.flatten() - coefficients @ design.flatten(0, 1).T
    squared = residual.square().reshape(n_chains, n_draws, n, measures).sum(-1)
    width = (bandwidth[:, None] + 2.0 * draws.sigma.square())[..., None]
    factor = torch.log(bandwidth[:, None, None] / width) * (0.5 * observed) - width.log()
    close = squared.div_(-width).add_(factor).exp_().mul_(weight[:, None])
    return close.repeat_interleave(measures, -1) if measures > 1 else close, residual
