"""Outcomes that are piled up at a bound."""

from __future__ import annotations

import torch
from torch import Size, Tensor

from gpsuq.core.bounded import Bounded
from gpsuq.core.distributions import cumulative, is_discrete


class Censored(Bounded):
    r"""Pile up what lies beyond a bound at the bound: :math:`Y = \min(\max(X, \text{lower}), \text{upper})`.

    An observation at a bound says "at least this" (or "at most"): a duration that had not ended, a sensor at its limit.
    ``log_prob`` is the log density inside, and at a bound the log of the probability piled up there.

    Parameters
    ----------
    distribution
        Of X: numbers or counts.
    lower, upper
        Bounds; a tensor where they differ between observations (``math.inf`` where there is none).

    Examples
    --------
    Durations that were watched for three years, with a frailty of its own for each person:

    >>> import torch
    >>> from torch.distributions import Weibull
    >>> from gpsuq import Censored, ObservationModel, Positive, Real
    >>> model = ObservationModel(
    ...     lambda x, level, slope, shape: Censored(Weibull((level + (x * slope).sum(-1)).exp(), shape), upper=3.0),
    ...     level=Real(), slope=Real("features", random=False), shape=Positive(random=False),
    ... )
    >>> Censored(Weibull(1.0, 1.0), upper=3.0).log_prob(torch.tensor([1.0, 3.0]))  # the density at 1, P(X >= 3)
    tensor([-1.0000, -3.0000])
    """

    def _outcomes(self, sample_shape: Size) -> Tensor:
        # What moves an outcome beyond a bound moves it no further, so that its gradient is 0 there, as it should be.
        inner = self.base_dist
        return (inner.rsample if inner.has_rsample else inner.sample)(sample_shape).clamp(self.lower, self.upper)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        below, above = self.masses()
        inside = self.base_dist.log_prob(value.clamp(self.lower, self.upper))
        tiny = torch.finfo(inside.dtype).tiny
        result = torch.where(value <= self.lower, below.clamp_min(tiny).log(), inside)
        return torch.where(value >= self.upper, above.clamp_min(tiny).log(), result)

    def masses(self) -> tuple[Tensor, Tensor]:
        """Return the probabilities piled up at the lower and at the upper bound."""
        below = cumulative(self.base_dist, self.lower)
        top = torch.ceil(self.upper) - 1.0 if is_discrete(self.base_dist) else self.upper
        return below, 1.0 - cumulative(self.base_dist, top)

    def cdf(self, value: Tensor) -> Tensor:
        inner = cumulative(self.base_dist, value.clamp(self.lower, self.upper))
        return torch.where(value < self.lower, 0.0, torch.where(value >= self.upper, 1.0, inner))

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf(value).clamp(self.lower, self.upper)
