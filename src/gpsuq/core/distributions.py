r"""Outcomes that are piled up, cut off, too often zero, or ordered levels: what observation models are often made of.

Each is an ordinary ``torch.distributions.Distribution``, most of them around another one of numbers or counts. Their
kernel scores are exact where that one is Normal or a count (``core/expectations.py``), and of low variance where it has
quantiles, as Weibull or lognormal durations have.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, Poisson, TransformedDistribution, constraints

from gpsuq.errors import GPSError

Bound = float | Tensor | None

_ROUNDS = 1000  # of rejection, before a truncated distribution is said to have no mass
_FARTHEST, _NODES = 4.5, 96  # of the sums that stand for means: in units of a standard Normal, and how many terms
_DEVIATIONS, _LEAST = 12.0, 32  # how far counts are added up, beyond their mean
_EMPTY = Size()


def has_quantiles(distribution: Distribution) -> bool:
    """Say whether ``icdf`` works, so that outcomes can be placed evenly in place of being sampled.

    >>> from torch.distributions import Gamma, Weibull
    >>> has_quantiles(Weibull(1.0, 1.5)), has_quantiles(Gamma(1.0, 1.5))
    (True, False)
    """
    if isinstance(distribution, TransformedDistribution):
        return all(step.bijective for step in distribution.transforms) and has_quantiles(distribution.base_dist)
    if isinstance(distribution, Censored | Truncated):
        return has_quantiles(distribution.base_dist)
    return defines(distribution, "icdf")


def defines(distribution: Distribution, method: str) -> bool:
    """Say whether a distribution has a method of its own, other than torch's stub that raises.

    >>> from torch.distributions import Poisson
    >>> defines(Poisson(1.0), "log_prob"), defines(Poisson(1.0), "cdf")
    (True, False)
    """
    return getattr(type(distribution), method) is not getattr(Distribution, method)


def is_discrete(distribution: Distribution) -> bool:
    """Say whether outcomes are counts or levels; a distribution that names no support is taken as continuous."""
    try:
        return bool(getattr(distribution.support, "is_discrete", False))
    except NotImplementedError:
        return False


class _Bounded(constraints.Constraint):
    """What a distribution supports, between two bounds that belong to it."""

    def __init__(self, inner: Any, lower: Tensor, upper: Tensor) -> None:
        self.inner, self.lower_bound, self.upper_bound = inner, lower, upper
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_discrete)

    def check(self, value: Tensor) -> Tensor:
        return cast(Tensor, self.inner.check(value) & (value >= self.lower_bound) & (value <= self.upper_bound))


class _Between(Distribution):
    """What Censored and Truncated share: a distribution of numbers or counts and two bounds, infinite if not given."""

    arg_constraints = {}  # noqa: RUF012 (torch's own way of saying that bounds are checked here)
    base_dist: Distribution

    def __init__(self, distribution: Distribution, lower: Bound, upper: Bound, validate_args: bool | None) -> None:
        name = type(self).__name__
        if not isinstance(distribution, Distribution):
            raise GPSError(f"{name} needs a torch distribution, got {type(distribution).__name__}")
        if distribution.event_shape:
            raise GPSError(
                f"{name} is for numbers, not for vectors of shape {tuple(distribution.event_shape)}: wrap the "
                "distribution of one coordinate, and Independent around it"
            )
        if lower is None and upper is None:
            raise GPSError(f"{name} needs a lower bound, an upper bound, or both")
        example = example_of(distribution)
        low, high = (
            torch.as_tensor(default if bound is None else bound, dtype=example.dtype, device=example.device)
            for bound, default in ((lower, -math.inf), (upper, math.inf))
        )
        shape = torch.broadcast_shapes(distribution.batch_shape, low.shape, high.shape)
        self.base_dist = distribution if distribution.batch_shape == shape else distribution.expand(shape)
        self.lower, self.upper = low.expand(shape), high.expand(shape)
        super().__init__(shape, validate_args=False)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args
        if self._validate_args and not bool((low < high).all()):
            raise GPSError(f"{name}: the lower bound must be below the upper one")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return _Bounded(self.base_dist.support, self.lower, self.upper)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        new = type(self).__new__(type(self))
        new.base_dist = self.base_dist.expand(shape)
        new.lower, new.upper = self.lower.expand(shape), self.upper.expand(shape)
        Distribution.__init__(new, shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Any = _EMPTY) -> Tensor:
        with torch.no_grad():
            return self._outcomes(Size(sample_shape))

    def rsample(self, sample_shape: Any = _EMPTY) -> Tensor:
        return self._outcomes(Size(sample_shape))

    def _outcomes(self, sample_shape: Size) -> Tensor:
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance: a sum over counts, or over quantiles at evenly spaced scores of a Normal."""
        batch = (1,) * len(self.batch_shape)
        if is_discrete(self.base_dist):
            values = _counts(self.base_dist).reshape(-1, *batch)
            inside = (values >= self.lower) & (values <= self.upper)
            weights = torch.where(inside, self.log_prob(values.clamp(self.lower, self.upper)).exp(), 0.0)
        else:
            scores = torch.linspace(-_FARTHEST, _FARTHEST, _NODES, dtype=self.lower.dtype, device=self.lower.device)
            values = self.icdf(torch.special.ndtr(scores).reshape(-1, *batch))
            weights = torch.softmax(-0.5 * scores.square(), 0).reshape(-1, *batch)
        mean = (weights * values).sum(0)
        return mean, (weights * (values - mean).square()).sum(0)


class Censored(_Between):
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

    def __init__(
        self, distribution: Distribution, lower: Bound = None, upper: Bound = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(distribution, lower, upper, validate_args)

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


class Truncated(_Between):
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

    def __init__(
        self, distribution: Distribution, lower: Bound = None, upper: Bound = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(distribution, lower, upper, validate_args)

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


class ZeroInflated(Distribution):
    r"""Let some outcomes be zero whatever the distribution says: 0 with probability ``share``, X otherwise.

    For counts P(Y = 0) = share + (1 - share) P(X = 0). For positive numbers (rain, expenses) 0 is an atom: ``log_prob``
    is log(share) there, and log(1 - share) plus the log density elsewhere.

    Parameters
    ----------
    distribution
        Of X: counts or positive numbers.
    share
        Between 0 and 1.

    Examples
    --------
    Counts with random rates, and a share of persons who never do it at all:

    >>> import torch
    >>> from torch.distributions import Poisson, constraints
    >>> from gpsuq import ObservationModel, Parameter, Rate, ZeroInflated
    >>> share = Parameter(support=constraints.unit_interval, random=False)
    >>> model = ObservationModel(lambda rate, share: ZeroInflated(Poisson(rate), share), rate=Rate(), share=share)
    >>> ZeroInflated(Poisson(1.0), 0.5).log_prob(torch.tensor([0.0, 1.0])).exp()  # (1 + e^-1) / 2 and e^-1 / 2
    tensor([0.6839, 0.1839])
    """

    arg_constraints = {"share": constraints.unit_interval}  # noqa: RUF012

    def __init__(self, distribution: Distribution, share: float | Tensor, validate_args: bool | None = None) -> None:
        if not isinstance(distribution, Distribution):
            raise GPSError(f"ZeroInflated needs a torch distribution, got {type(distribution).__name__}")
        if distribution.event_shape:
            raise GPSError(
                f"ZeroInflated is for numbers, not for vectors of shape {tuple(distribution.event_shape)}: wrap the "
                "distribution of one coordinate, and Independent around it"
            )
        example = example_of(distribution)
        level = torch.as_tensor(share, dtype=example.dtype, device=example.device)
        shape = torch.broadcast_shapes(distribution.batch_shape, level.shape)
        self.base_dist = distribution if distribution.batch_shape == shape else distribution.expand(shape)
        self.share = level.expand(shape)
        super().__init__(shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.nonnegative_integer if is_discrete(self.base_dist) else constraints.nonnegative

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        return ZeroInflated(self.base_dist.expand(shape), self.share.expand(shape), validate_args=False)

    def sample(self, sample_shape: Any = _EMPTY) -> Tensor:
        with torch.no_grad():
            outcomes = self.base_dist.sample(sample_shape)
            return torch.where(torch.rand_like(outcomes) < self.share, 0.0, outcomes)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        zero, tiny = value == 0, torch.finfo(self.share.dtype).tiny
        never, other = self.share.clamp_min(tiny).log(), (1.0 - self.share).clamp_min(tiny).log()
        if is_discrete(self.base_dist):
            inner = other + self.base_dist.log_prob(value)
            return torch.where(zero, torch.logaddexp(never.expand_as(inner), inner), inner)
        return torch.where(zero, never, other + self.base_dist.log_prob(torch.where(zero, 1.0, value)))

    def cdf(self, value: Tensor) -> Tensor:
        inner = cumulative(self.base_dist, value.clamp_min(0.0))
        return torch.where(value < 0, 0.0, self.share + (1.0 - self.share) * inner)

    @property
    def mean(self) -> Tensor:
        return (1.0 - self.share) * self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        inner = self.base_dist.mean
        return (1.0 - self.share) * (self.base_dist.variance + self.share * inner.square())


class Ordinal(Distribution):
    r"""Cut a latent number into ordered levels 0, ..., K: :math:`P(Y \le k) = F(c_k - \text{location})`.

    Kernels see the level as a number, since levels are ordered: 1 is closer to 2 than to 4.

    Parameters
    ----------
    location
        Centre of the latent number; larger means higher levels.
    cuts
        K cut points in the last dimension. ``Cuts(K)`` declares numbers that increase; others are sorted.
    latent
        Law of the latent number around its centre: ``"logistic"`` (proportional odds) or ``"normal"`` (ordered probit).

    Examples
    --------
    Answers from 0 to 3, with slopes that differ between persons:

    >>> import torch
    >>> from gpsuq import Cuts, ObservationModel, Ordinal, Real
    >>> model = ObservationModel(
    ...     lambda x, slope, cuts: Ordinal((x * slope).sum(-1), cuts),
    ...     slope=Real("features"), cuts=Cuts(3),
    ... )
    >>> Ordinal(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0])).probs
    tensor([0.2689, 0.2311, 0.2311, 0.2689])
    """

    arg_constraints = {"location": constraints.real, "cuts": constraints.real_vector}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(
        self,
        location: Tensor,
        cuts: Tensor,
        latent: Literal["logistic", "normal"] = "logistic",
        validate_args: bool | None = None,
    ) -> None:
        if latent not in ("logistic", "normal"):
            raise GPSError(f'latent must be "logistic" or "normal", got {latent!r}')
        if cuts.dim() == 0:
            raise GPSError("Ordinal needs its cut points in the last dimension of a tensor, got a single number")
        shape = torch.broadcast_shapes(location.shape, cuts.shape[:-1])
        self.location, self.latent = location.expand(shape), latent
        self.cuts = cuts.sort(-1).values.expand(*shape, cuts.shape[-1])
        super().__init__(shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.cuts.shape[-1])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        cuts = self.cuts.expand(*shape, self.cuts.shape[-1])
        return Ordinal(self.location.expand(shape), cuts, self.latent, validate_args=False)

    @property
    def probs(self) -> Tensor:
        """Probabilities of the levels, in a last dimension of size K + 1."""
        latent = torch.sigmoid if self.latent == "logistic" else torch.special.ndtr
        at_most = latent(self.cuts - self.location.unsqueeze(-1))
        ones = torch.ones_like(at_most[..., :1])
        return torch.cat([at_most, ones], -1) - torch.cat([torch.zeros_like(ones), at_most], -1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        levels = torch.arange(self.cuts.shape[-1] + 1, dtype=self.cuts.dtype, device=self.cuts.device)
        levels = levels.reshape(-1, *(1,) * len(self.batch_shape))
        return levels.expand(-1, *self.batch_shape) if expand else levels

    def sample(self, sample_shape: Any = _EMPTY) -> Tensor:
        with torch.no_grad():
            shape = self._extended_shape(Size(sample_shape))
            chance = torch.rand(shape, dtype=self.cuts.dtype, device=self.cuts.device)
            return (chance.unsqueeze(-1) > self.probs.cumsum(-1)[..., :-1]).sum(-1).to(chance.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        probs = self.probs
        level, probs = torch.broadcast_tensors(value.long().unsqueeze(-1), probs)
        chance: Tensor = probs.gather(-1, level[..., :1]).squeeze(-1)
        return chance.clamp_min(torch.finfo(chance.dtype).tiny).log()

    def cdf(self, value: Tensor) -> Tensor:
        levels = torch.arange(self.cuts.shape[-1] + 1, dtype=self.cuts.dtype, device=self.cuts.device)
        return torch.where(levels <= value.unsqueeze(-1), self.probs, 0.0).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.probs @ self._levels()

    @property
    def variance(self) -> Tensor:
        return self.probs @ self._levels().square() - self.mean.square()

    def _levels(self) -> Tensor:
        return self.enumerate_support(expand=False).flatten()


def example_of(distribution: Distribution) -> Tensor:
    """Return a tensor of the type and on the device of a distribution's outcomes: one of its parameters."""
    inner: Any = distribution
    while isinstance(inner, Distribution):
        for value in vars(inner).values():
            if isinstance(value, Tensor) and value.is_floating_point():
                return value
        inner = getattr(inner, "base_dist", getattr(inner, "_component_distribution", None))
    return torch.empty(0)


def _counts(distribution: Distribution) -> Tensor:
    """Return 0, 1, ... up to where hardly any outcome of counts is left."""
    with torch.no_grad():
        tops = distribution.mean + _DEVIATIONS * distribution.stddev
    tops = tops[torch.isfinite(tops)]
    size = _LEAST + (int(tops.max()) if tops.numel() else 0)
    return torch.arange(size, dtype=tops.dtype, device=tops.device)


def cumulative(distribution: Distribution, value: Tensor) -> Tensor:
    """Return P(X <= value), also at infinite values; counts without a cdf, as torch's are, are added up."""
    finite = value.isfinite()
    everything = (value > 0).to(value.dtype)  # at infinity
    if not bool(finite.any()):
        return everything
    inside = torch.where(finite, value, value[finite].max())  # another bound is one that the support knows
    if isinstance(distribution, Poisson):
        at_most = torch.special.gammaincc(inside.clamp_min(0.0).floor() + 1.0, distribution.rate)
        below = torch.where(inside < 0, 0.0, at_most)
    elif is_discrete(distribution) and not defines(distribution, "cdf"):
        counts = torch.arange(max(int(inside.max()), 0) + 1, dtype=value.dtype, device=value.device)
        counts = counts.reshape(-1, *(1,) * value.dim())
        below = torch.where(counts <= inside, distribution.log_prob(counts).exp(), 0.0).sum(0)
    else:
        below = distribution.cdf(inside)
    return torch.where(finite, below, everything)
