"""Outcomes that are left out beyond a bound."""

from __future__ import annotations

import torch
from torch import Size, Tensor

from gpsuq.core.bounded import Bounded, has_quantiles
from gpsuq.core.distributions import cumulative, is_discrete
from gpsuq.errors import GPSError

_ROUNDS = 1000  # of rejection, before a truncated distribution is said to have no mass


class Truncated(Bounded):
    r"""Leave out outcomes beyond the bounds: the distribution of X given :math:`\text{lower} \le X \le \text{upper}`.

    The density is :math:`f(y) / P(\text{lower} \le X \le \text{upper})`. Other than with :class:`Censored`, what lies
    beyond a bound is not in the data at all: visitors who came at least once, incomes of those who pay taxes.

    Parameters
    ----------
    distribution
        Of X: numbers or counts.
    lower, upper
        Bounds, which belong to the support; a tensor where they differ between observations.

    Examples
    --------
    Counts of persons who were counted at least once:

    >>> import torch
    >>> from torch.distributions import Poisson
    >>> from gpsuq import ObservationModel, Rate, Truncated
    >>> model = ObservationModel(lambda rate: Truncated(Poisson(rate), lower=1), rate=Rate())
    >>> Truncated(Poisson(1.0), lower=1).log_prob(torch.tensor([1.0, 2.0])).exp()  # e^-1 / (1 - e^-1), and half of it
    tensor([0.5820, 0.2910])
    """

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return has_quantiles(self.base_dist)

    def _outcomes(self, sample_shape: Size) -> Tensor:
        if self.has_rsample:
            shape = self._extended_shape(sample_shape)
            return self.icdf(torch.rand(shape, dtype=self.lower.dtype, device=self.lower.device))
        result = self.base_dist.sample(sample_shape)
        for _ in range(_ROUNDS):
            outside = (result < self.lower) | (result > self.upper)
            if not bool(outside.any()):
                return result
            result = torch.where(outside, self.base_dist.sample(sample_shape), result)
        raise GPSError(
            f"Truncated: hardly any outcome of {type(self.base_dist).__name__} lies between the bounds; "
            f"{_ROUNDS} samples were not enough"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        start, end = self.levels()
        mass = (end - start).clamp_min(torch.finfo(end.dtype).tiny)
        return self.base_dist.log_prob(value) - mass.log()

    def levels(self) -> tuple[Tensor, Tensor]:
        """Return the cdf of X just below the lower bound and at the upper one."""
        start = torch.ceil(self.lower) - 1.0 if is_discrete(self.base_dist) else self.lower
        return cumulative(self.base_dist, start), cumulative(self.base_dist, self.upper)

    def cdf(self, value: Tensor) -> Tensor:
        start, end = self.levels()
        inner = cumulative(self.base_dist, value.clamp(self.lower, self.upper))
        return torch.where(value < self.lower, 0.0, ((inner - start) / (end - start)).clamp(0.0, 1.0))

    def icdf(self, value: Tensor) -> Tensor:
        start, end = self.levels()
        edge = torch.finfo(end.dtype).eps
        # Rounding must not leave the bounds, nor make infinities where there is none.
        level = (start + value * (end - start)).clamp(edge, 1.0 - edge)
        return self.base_dist.icdf(level).clamp(self.lower, self.upper)
