"""Distances between the predictive and the data, as a loss for each observation: MMD, energy, sliced Wasserstein."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution

from gpsuq.core.expectations import Terms, kernel_score
from gpsuq.core.kernels import AdaptiveGaussian, Energy, Kernel, as_kernel
from gpsuq.core.observations import Batch, Observations
from gpsuq.errors import GPSError, warn

DEFAULT_PAIRS = 2
"""Draws that each draw is paired with; more pairs cost more, and say little that other draws would not say better."""

_PRECISE_PAIRS = 8
_MANY_FEATURES = 5


class Distance(ABC):
    """How far the predictive is from the data: one loss per chain and observation.

    One of your own, from y to the mean of the predictive:

    >>> import torch
    >>> from torch.distributions import Normal
    >>> from gpsuq.core.distances import Distance
    >>> from gpsuq.core.expectations import Terms
    >>> from gpsuq.core.observations import observations
    >>> class SquaredError(Distance):
    ...     def terms(self, predictive, batch, n_outcomes=None):
    ...         error = (predictive.mean.mean(2) - batch.y[:, :, 0]).square()
    ...         return Terms(error, torch.zeros_like(error))
    >>> predictive = Normal(torch.tensor([[[0.0, 2.0]]]), 1.0)  # one chain, two draws for all observations
    >>> SquaredError().terms(predictive, observations(None, [1.0, 4.0]).rows()).score
    tensor([[0., 9.]])
    """

    @property
    def pairs_draws(self) -> bool:
        """Whether draws are compared with each other, so that they must be independent."""
        return True

    @abstractmethod
    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        """Return both terms of the loss, each (chain, observation)."""

    def resolve(self, data: Observations) -> Distance:
        """Return the distance with everything that depends on the data fixed."""
        return self

    def refine(self, noise_variance: float) -> Distance | None:
        """Return the distance to finish training with once the noise is known, or None to keep the first one."""
        return None

    def precise(self) -> Distance:
        """Return the distance for comparing states, where noise costs more than time."""
        return self

    def check_weights(self, weighted: bool) -> None:
        """Raise where this distance cannot use observation weights."""
        return


@dataclass(frozen=True)
class MMD(Distance):
    r"""Squared maximum mean discrepancy, eq. (3) of the paper: the mean kernel score of the observations.

    .. math:: \frac{1}{n} \sum_i \bigl( E\,k(Y_i, Y_i') - 2 E\,k(y_i, Y_i) \bigr), \qquad
              Y_i, Y_i' \text{ independent draws of the predictive at } x_i

    Parameters
    ----------
    kernel
        A kernel or any positive-definite function of two tensors. The default finds its bandwidth by itself;
        ``Gaussian()`` is the paper's :math:`\exp(-d^2)`.
    n_pairs
        How many other draws each draw is paired with in the first term; None pairs all.

    Examples
    --------
    The paper's kernel, and all pairs of draws:

    >>> from gpsuq import MMD, Gaussian
    >>> MMD(Gaussian(), n_pairs=None).kernel
    Gaussian(bandwidth=1.0, factor=1.0)
    """

    kernel: Kernel | Callable[[Tensor, Tensor], Tensor] = AdaptiveGaussian()
    n_pairs: int | None = DEFAULT_PAIRS

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        if self.n_pairs is not None and self.n_pairs < 1:
            raise GPSError(f"n_pairs must be at least 1 (or None for all), got {self.n_pairs}")

    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        return kernel_score(
            as_kernel(self.kernel), predictive, batch.y, mask=batch.mask, n_outcomes=n_outcomes, n_pairs=self.n_pairs
        )

    def resolve(self, data: Observations) -> MMD:
        """Fix the bandwidth by the data."""
        return replace(self, kernel=as_kernel(self.kernel).resolve(data.y, data.mask))

    def refine(self, noise_variance: float) -> MMD | None:
        """Fix the bandwidth by the noise that the fit found, where the kernel asks for it."""
        kernel = as_kernel(self.kernel).refine(noise_variance)
        return None if kernel is None else replace(self, kernel=kernel)

    def precise(self) -> MMD:
        """Pair each draw with more others."""
        return self if self.n_pairs is None else replace(self, n_pairs=max(self.n_pairs, _PRECISE_PAIRS))


def EnergyDistance(n_pairs: int | None = DEFAULT_PAIRS) -> MMD:  # noqa: N802 (reads as a type)
    r"""Energy distance: MMD with :math:`k(a, b) = -\lVert a - b \rVert`.

    It needs no bandwidth, but is less robust to outliers than a Gaussian kernel.

    >>> from gpsuq import EnergyDistance
    >>> EnergyDistance().kernel
    Energy(unit=None)
    """
    return MMD(Energy(), n_pairs)


@dataclass(frozen=True)
class SlicedWasserstein(Distance):
    r"""Experimental: sliced 1-Wasserstein distance between the joint samples :math:`(x_i, y_i)` and :math:`(x_i, Y_i)`.

    Columns are standardised, projected on random directions and matched by rank; every observation carries the cost
    of its own match. Limits: it compares *joint* samples, so with more than a few covariates each x matches itself
    and the loss hardly sees Y; it is not a proper score of one observation; and it takes no observation weights.
    Use it without covariates or with few, and prefer :class:`MMD`.

    >>> from gpsuq import SlicedWasserstein
    >>> SlicedWasserstein(n_projections=64).n_projections
    64
    """

    n_projections: int = 32
    n_replicates: int = 8
    _center: Tensor | None = None
    _scale: Tensor | None = None

    def __post_init__(self) -> None:
        if self.n_projections < 1 or self.n_replicates < 1:
            raise GPSError("SlicedWasserstein needs n_projections >= 1 and n_replicates >= 1")

    def resolve(self, data: Observations) -> SlicedWasserstein:
        """Fix the standardisation of y and x by the data."""
        if data.mask is not None:
            raise GPSError("SlicedWasserstein cannot compare padded groups; use MMD")
        features = 0 if data.x is None else data.x[0].numel()
        if features > _MANY_FEATURES:
            matched = "each x matches itself and the loss hardly sees y; use MMD"
            warn(f"SlicedWasserstein with {features} covariates: {matched}")
        joint = _joint(data.y, data.x).double()
        scale = joint.std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        return replace(self, _center=joint.mean(0).to(data.y), _scale=scale.to(data.y))

    def check_weights(self, weighted: bool) -> None:
        """Refuse observation weights: ranks are matched one to one."""
        if weighted:
            raise GPSError("SlicedWasserstein takes no observation weights: use reweight=None, holdout=0 and no weight")

    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        """Return the cost of matching each observation, in the first term; the second is zero."""
        if not predictive.has_rsample:
            raise GPSError(f"SlicedWasserstein needs reparameterised samples, {type(predictive).__name__} has none")
        if self._center is None or self._scale is None:
            raise GPSError("SlicedWasserstein: call resolve(data) first")
        n_chains, _, n_draws = predictive.batch_shape
        outcomes = predictive.expand(torch.Size([n_chains, len(batch), n_draws])).rsample()
        # Each observation takes another draw than its neighbours: one draw for all would be a point mass.
        row = torch.arange(len(batch), device=outcomes.device)[None, :]
        draw = (row + torch.arange(min(self.n_replicates, n_draws), device=row.device)[:, None]) % n_draws
        y_new = outcomes[:, row, draw]  # (chain, replicate, n, *event)
        x = None if batch.x is None else batch.x[0, :, 0]
        observed = (_joint(batch.y[0, :, 0], x) - self._center) / self._scale
        simulated = (_joint(y_new, x, lead=2) - self._center) / self._scale
        directions = torch.randn(observed.shape[-1], self.n_projections, device=observed.device, dtype=observed.dtype)
        directions = directions / directions.norm(dim=0)
        ranked = (observed @ directions).sort(0)
        matched = (simulated @ directions).sort(-2).values
        cost = (matched - ranked.values).abs().mean(1)  # (chain, rank, projection)
        per_observation = torch.zeros_like(cost).scatter(1, ranked.indices.expand_as(cost), cost).mean(-1)
        return Terms(per_observation, torch.zeros_like(per_observation))


def _joint(y: Tensor, x: Tensor | None, lead: int = 0) -> Tensor:
    """Put y and x side by side as vectors; ``y`` may have leading dimensions that ``x`` has not."""
    flat = y.reshape(*y.shape[: lead + 1], math.prod(y.shape[lead + 1 :]))
    if x is None:
        return flat
    columns = x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)
    return torch.cat([flat, columns.expand(*flat.shape[:-1], columns.shape[-1])], dim=-1)
