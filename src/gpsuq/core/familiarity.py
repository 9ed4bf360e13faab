r"""How strange features are beside those of the training: distances, and how seldom familiar observations have larger.

Two distances see different strangers. Of the means :math:`\mu_h` of classes, and the covariance :math:`\Sigma` about
them,

.. math:: \text{far} = \min_h (f - \mu_h)' \Sigma^{-1} (f - \mu_h) , \qquad
          \text{near} = \text{far} - (f - \mu)' \Sigma_0^{-1} (f - \mu) ,

with the mean :math:`\mu` and the covariance :math:`\Sigma_0` of all features. ``near`` is relative to how unusual
features are of any kind, and sees those that lie between classes; ``far`` sees those that are like nothing else. The
strangeness of an observation is -log of its p-value: the share of familiar observations, not seen in training, that lie
at least as far, of both distances together (by a weighted Bonferroni rule). Of familiar ones it is about 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gpsuq.core.seeds import random_block

MOST_FEATURES = 512
"""Features are projected at random to so many numbers, where there are more: what is kept does not grow further."""

LARGEST = 30.0
"""Strangeness ends here, at p-values of 1e-13."""

_FAR_SHARE = 0.3  # of false alarms, that the far distance may have: it says little of mistakes
_RIDGE = 1e-3  # of the mean variance, added to each, so that directions without any are not infinitely far
_LEAST_SIZE = 1e-6  # of the mean variance, in units of the features' own
_TAILS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02)  # shares of familiar observations at which tails are read off
_FEWEST_BEYOND = 10  # observations that a tail rests on
_TIES = 1e-9  # of the largest distance: what differs by less is the same
_SHAPES = (0.01, 0.5)  # of tails: from next to exponential, to one whose variance is just not infinite


class Familiarity(nn.Module):
    """Strangeness (n,) of features (n, p); made by :class:`FeatureSums` and :meth:`calibrate`.

    >>> import torch
    >>> features, y = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0)), torch.arange(2000) % 2
    >>> features[:, 0] += 4.0 * y
    >>> sums = FeatureSums(4, 2)
    >>> sums.add(features[:1000], y[:1000])
    >>> known = sums.familiarity()
    >>> known.calibrate(features[1000:])
    >>> round(float(known(features[1000:]).mean()), 1)
    0.8
    >>> strangers = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 9.0, 9.0, 9.0]])  # between classes, and far off
    >>> bool((known(strangers) > 4.0).all()), known.distances(strangers).shape
    (True, torch.Size([2, 2]))
    """

    center: Tensor  # (p,)
    within: Tensor  # (p, d), to coordinates in which a class has unit variance
    total: Tensor  # (d, d), from there to those in which all observations have it
    means: Tensor  # (class, d), in the coordinates of a class
    knots: Tensor  # (2, k), of the distances near and far
    slopes: Tensor  # (2, k), by how much the slope of -log p grows there, up to the last
    rates: Tensor  # (2,), the slope behind the last
    shapes: Tensor  # (2,), how soon that falls

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        width = min(n_features, MOST_FEATURES)
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("within", torch.zeros(n_features, width))
        self.register_buffer("total", torch.zeros(width, width))
        self.register_buffer("means", torch.zeros(n_classes, width))
        self.register_buffer("knots", torch.zeros(2, len(_TAILS) + 1))
        self.register_buffer("slopes", torch.zeros(2, len(_TAILS) + 1))
        self.register_buffer("rates", torch.zeros(2))
        self.register_buffer("shapes", torch.full((2,), _SHAPES[0]))

    def distances(self, features: Tensor) -> Tensor:
        """Return the distances near and far, (n, 2)."""
        inside = (features - self.center) @ self.within
        outside = inside @ self.total
        to_means = self.means.square().sum(1) - 2.0 * inside @ self.means.T
        far = inside.square().sum(1) + to_means.amin(1)
        return torch.stack([far - outside.square().sum(1), far], 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return the strangeness of every row, between 0 and ``LARGEST``."""
        distances = self.distances(features)
        last = self.knots[:, -1]
        within = ((distances.minimum(last)[:, :, None] - self.knots).relu() * self.slopes).sum(2)
        behind = (self.shapes * self.rates * (distances - last).relu()).log1p() / self.shapes
        surprise = within + behind + features.new_tensor([math.log1p(-_FAR_SHARE), math.log(_FAR_SHARE)])
        return surprise.amax(1).clamp(0.0, LARGEST)

    def calibrate(self, features: Tensor) -> None:
        """Read off how seldom familiar observations, which were not in training, are as far as each distance."""
        for place, distance in enumerate(self.distances(features).double().T):
            knots, values = _tail(distance.sort().values)
            tie = _TIES * distance.abs().max()
            gaps, rises = torch.diff(knots), torch.diff(values)
            slopes = torch.where(gaps > tie, rises / gaps, 0.0)  # none where many are equal
            self.knots[place] = knots
            self.slopes[place] = torch.diff(slopes, prepend=slopes.new_zeros(1), append=slopes.new_zeros(1))
            # Behind the last a generalised Pareto law goes on, by the moments of what is there.
            beyond = distance[distance > knots[-1]] - knots[-1]
            mean, variance = (beyond.mean(), beyond.var()) if len(beyond) > 1 else (beyond.sum(), beyond.new_zeros(()))
            shape = (0.5 * (1.0 - mean.square() / variance)).clamp(*_SHAPES) if variance > 0.0 else _SHAPES[0]
            self.shapes[place] = shape
            self.rates[place] = 1.0 / (mean * (1.0 - shape)) if mean > tie else 0.0


def _tail(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances at which -log of the share beyond is known, and that number; few observations repeat the last.

    It is 0 at the smallest.
    """
    n = len(ordered)
    shares = [max(share, min(0.5, _FEWEST_BEYOND / n)) for share in _TAILS]
    places = [0, *(min(n - 1, math.ceil((1.0 - share) * n)) for share in shares)]
    return ordered[places], -torch.tensor([1.0, *shares], dtype=torch.float64).log()


@dataclass
class FeatureSums:
    """Sums over batches of features, of n_features numbers and n_classes classes, that a familiarity is made of.

    Their size does not depend on how many observations there are.

    >>> import torch
    >>> sums = FeatureSums(n_features=2, n_classes=2)
    >>> for batch in torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).split(20):
    ...     sums.add(batch, torch.arange(20) % 2)
    >>> sums.familiarity().means.shape
    torch.Size([2, 2])
    """

    n_features: int
    n_classes: int
    counts: Tensor = field(init=False)
    sums: Tensor = field(init=False)
    products: Tensor = field(init=False)
    center: Tensor | None = field(init=False, default=None)
    scale: Tensor = field(init=False)

    def __post_init__(self) -> None:
        width = min(self.n_features, MOST_FEATURES)
        self.counts = torch.zeros(self.n_classes, dtype=torch.float64)
        self.sums = torch.zeros(self.n_classes, width, dtype=torch.float64)
        self.products = torch.zeros(width, width, dtype=torch.float64)
        self.project = torch.eye(self.n_features, dtype=torch.float64)
        if width < self.n_features:
            random = torch.randn(self.n_features, width, generator=random_block(0, "project"), dtype=torch.float64)
            self.project = torch.linalg.qr(random).Q

    def add(self, features: Tensor, y: Tensor) -> None:
        """Add a batch of features (n, p) of the classes y (n,)."""
        features = features.double().cpu()
        if self.center is None:  # squares must not drown differences, nor large features small ones
            self.center, spread = features.mean(0), features.std(0, correction=0)
            self.scale = torch.where(spread > 0.0, spread, 1.0)
        rows, labels = (features - self.center) / self.scale @ self.project, y.long().cpu()
        self.counts.index_add_(0, labels, torch.ones(len(labels), dtype=torch.float64))
        self.sums.index_add_(0, labels, rows)
        self.products += rows.T @ rows

    def familiarity(self) -> Familiarity:
        """Return what the sums say; its strangeness has still to be calibrated."""
        assert self.center is not None, "no features were added"
        n = self.counts.sum()
        seen = self.counts > 0
        means = self.sums / self.counts.clamp_min(1.0)[:, None]
        mean = self.sums.sum(0) / n
        within = (self.products - (self.counts[:, None] * means).T @ means) / n
        total = self.products / n - torch.outer(mean, mean)
        known = Familiarity(self.n_features, int(seen.sum()))
        inside, outside = _whitening(within), _whitening(total)
        known.center.copy_(self.center + self.scale * (self.project @ mean))
        known.within.copy_(self.project @ inside / self.scale[:, None])
        known.total.copy_(torch.linalg.solve(inside, outside))
        known.means.copy_((means[seen] - mean) @ inside)
        return known


def _whitening(covariance: Tensor) -> Tensor:
    """Return the matrix that takes rows to coordinates of unit variance, none of which it blows up without bounds."""
    size = covariance.diagonal().mean().clamp_min(_LEAST_SIZE)
    values, vectors = torch.linalg.eigh(covariance)
    result: Tensor = vectors / (values.clamp_min(0.0) + _RIDGE * size).sqrt()
    return result
