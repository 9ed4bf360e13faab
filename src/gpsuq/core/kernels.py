r"""Kernels k(y, y') on observations, and rules for their bandwidth.

A kernel acts on the *event* dimensions of an observation, the last ``event_dims`` ones; all others are batch
dimensions and broadcast. With a ``mask`` (broadcastable to the observations, true where observed) coordinates that
were not observed do not count: a padded group is compared on what it has.

A bandwidth is a positive number or a rule that reads it off the data, resolved once by ``kernel.resolve(y)``.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from gpsuq.core.fused import sum_of_gaussians
from gpsuq.errors import GPSError

BandwidthRule = Callable[[Tensor, Tensor | None], float]

_RULE_ROWS = 1000  # enough for a median; pairwise distances of all rows would grow with n^2


class Kernel(ABC):
    """A positive-definite (or conditionally positive-definite) function of two observations.

    One of your own, for observations that are numbers:

    >>> import torch
    >>> from gpsuq import MMD
    >>> from gpsuq.core.kernels import Kernel
    >>> class RationalQuadratic(Kernel):
    ...     def __call__(self, a, b, event_dims=0, mask=None):
    ...         return 1.0 / (1.0 + (a - b).square())
    >>> RationalQuadratic()(torch.tensor(1.0), torch.tensor([1.0, 2.0, 4.0]))
    tensor([1.0000, 0.5000, 0.1000])
    >>> distance = MMD(RationalQuadratic())
    """

    factorises: ClassVar[bool] = False
    """Whether k is a product over the coordinates of an event, so that expectations are products too."""

    @abstractmethod
    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        """Evaluate k(a, b) over the last ``event_dims`` dimensions; all others broadcast."""

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        """Return the kernel with every bandwidth a number; ``y`` has shape ``(n, *event)``."""
        return self

    def refine(self, noise_variance: float) -> Kernel | None:
        """Return the kernel to finish training with once the noise is known, or None to keep the first one."""
        return None


def _sum_events(values: Tensor, event_dims: int, mask: Tensor | None) -> Tensor:
    """Sum over the event dimensions, leaving out what the mask leaves out."""
    if event_dims == 0:
        return values
    if mask is not None:
        values = torch.where(mask, values, 0.0)
    return values.flatten(-event_dims).sum(-1)


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


@dataclass(frozen=True)
class _Scaled(Kernel):
    """exp(-distance / bandwidth), the distance being a sum over coordinates of squares or of absolute differences."""

    bandwidth: float | str | BandwidthRule = 1.0
    factor: float = 1.0

    factorises: ClassVar[bool] = True
    _squares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        if isinstance(self.bandwidth, str):
            if self.bandwidth not in RULES:
                known = ", ".join(map(repr, RULES))
                raise GPSError(f"{name}: unknown bandwidth rule {self.bandwidth!r}; use a positive number or {known}")
        elif not callable(self.bandwidth) and not _positive(self.bandwidth):
            raise GPSError(f"{name}: the bandwidth must be a positive number, got {self.bandwidth!r}")
        if not _positive(self.factor):
            raise GPSError(f"{name}: the factor of the bandwidth must be a positive number, got {self.factor!r}")

    @property
    def value(self) -> float:
        """The bandwidth as a number; an error where a rule has not been resolved yet."""
        if isinstance(self.bandwidth, str) or callable(self.bandwidth):
            raise GPSError(f"{type(self).__name__}: call kernel.resolve(y) first, its bandwidth is still a rule")
        return self.bandwidth * self.factor

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        rule = RULES[self.bandwidth] if isinstance(self.bandwidth, str) else self.bandwidth
        if not callable(rule):
            return self
        squared = rule(y, mask)
        if not (math.isfinite(squared) and squared > 0):
            equal = f": y is constant, {len(y)} times {y[0].tolist()}" if bool((y == y[:1]).all()) else ""
            raise GPSError(
                f"{type(self).__name__}: the bandwidth rule gave {squared!r}; the observations hardly differ{equal}. "
                "Check that y is the right column, or pass the bandwidth as a positive number, as in MMD(Gaussian(1.0))"
            )
        return replace(self, bandwidth=squared if self._squares else math.sqrt(squared))

    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        distances = (a - b).square() if self._squares else (a - b).abs()
        return torch.exp(_sum_events(distances, event_dims, mask) * (-1.0 / self.value))


@dataclass(frozen=True)
class Gaussian(_Scaled):
    r"""Gaussian kernel :math:`k(a, b) = \exp(-\lVert a - b\rVert^2 / b_w)`; bandwidth 1 is the paper's choice.

    Parameters
    ----------
    bandwidth
        A positive number in squared units of y, or a rule: ``"median"`` (median squared distance of two
        observations), ``"robust"`` (squared robust scale of y), or any function ``(y, mask) -> float``.
    factor
        Multiplies the bandwidth, so that ``Gaussian("robust", factor=4)`` is four times the rule.

    Examples
    --------
    >>> import torch
    >>> Gaussian()(torch.tensor(0.0), torch.tensor(1.0)).item()  # exp(-1)
    0.3678794503211975
    """


@dataclass(frozen=True)
class Laplace(_Scaled):
    r"""Laplace kernel :math:`k(a, b) = \exp(-\lVert a - b\rVert_1 / b_w)`; a rule gives the bandwidth in units of y.

    >>> import torch
    >>> from gpsuq import Laplace
    >>> Laplace(4.0)(torch.tensor(1.0), torch.tensor(5.0))
    tensor(0.3679)
    """

    _squares: ClassVar[bool] = False


@dataclass(frozen=True)
class Energy(Kernel):
    r"""Energy kernel :math:`k(a, b) = -\lVert a - b\rVert_2 / u`; for a number and u = 1 its score is twice the CRPS.

    Training takes the robust scale of y as unit u, so that a fit does not depend on the units of y.

    >>> import torch
    >>> from gpsuq import Energy
    >>> Energy(unit=2.0)(torch.tensor(1.0), torch.tensor(5.0))
    tensor(-2.)
    """

    unit: float | None = None

    @property
    def rate(self) -> float:
        """One over the unit."""
        return 1.0 if self.unit is None else 1.0 / self.unit

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        if self.unit is not None:
            return self
        squared = squared_robust_scale(y, mask)
        return replace(self, unit=math.sqrt(squared) if squared > 0 else 1.0)

    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        if event_dims == 0:
            return (a - b).abs() * -self.rate
        squared = _sum_events((a - b).square(), event_dims, mask)
        # The square root has no derivative at 0, where two outcomes coincide.
        return torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0) * -self.rate


@dataclass(frozen=True)
class Mixture(Kernel):
    r"""Weighted mixture of kernels :math:`\sum_l w_l k_l(a, b)`, for instance of one kernel at several scales.

    >>> import torch
    >>> from gpsuq import Gaussian, Mixture
    >>> kernel = Mixture((Gaussian(1.0), Gaussian(100.0)), weights=(0.5, 0.5))
    >>> kernel(torch.tensor(0.0), torch.tensor(10.0))
    tensor(0.1839)
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(self.kernels))
        count = len(self.kernels)
        object.__setattr__(self, "weights", tuple(self.weights) or (1.0 / max(count, 1),) * count)
        if not self.kernels or len(self.weights) != count or min(self.weights) <= 0:
            raise GPSError("Mixture: give at least one kernel and one positive weight for each")

    @classmethod
    def of_scales(cls, kernel: Gaussian | Laplace, factors: Sequence[float]) -> Mixture:
        """Mix copies of one kernel whose bandwidths are multiplied by ``factors``."""
        return cls(tuple(replace(kernel, factor=kernel.factor * factor) for factor in factors))

    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        if all(type(kernel) is Gaussian for kernel in self.kernels):  # they see the same distance
            parts = zip(cast(tuple[Gaussian, ...], self.kernels), self.weights, strict=True)
            squared = _sum_events((a - b).square(), event_dims, mask)
            return sum_of_gaussians(squared, [(kernel.value, weight) for kernel, weight in parts])
        values = (w * k(a, b, event_dims, mask) for w, k in zip(self.weights, self.kernels, strict=True))
        return functools.reduce(torch.add, values)

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        return replace(self, kernels=tuple(kernel.resolve(y, mask) for kernel in self.kernels))


@dataclass(frozen=True)
class AdaptiveGaussian(Kernel):
    r"""Gaussian kernel whose bandwidth ends at ``multiple`` times the variance of the noise that the fit itself found.

    The bandwidth that serves best follows the noise left after heterogeneity, which is not known before the fit.
    Training therefore starts with a mixture of scales around the squared robust scale of y (``resolve``) and goes on
    with :math:`b_w = \text{multiple} \cdot \operatorname{Var}(Y \mid \theta)` from its own fit (``refine``).

    What training starts with, and what it goes on with once the noise has been found:

    >>> import torch
    >>> from gpsuq import AdaptiveGaussian
    >>> kernel = AdaptiveGaussian()
    >>> len(kernel.resolve(torch.randn(100)).kernels)
    3
    >>> kernel.refine(noise_variance=2.0)
    Gaussian(bandwidth=28.0, factor=1.0)
    """

    multiple: float = 14.0
    factors: tuple[float, ...] = (0.1, 1.0, 10.0)

    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        raise GPSError("AdaptiveGaussian: call kernel.resolve(y) first, its bandwidth depends on the data")

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        return Mixture.of_scales(Gaussian("robust"), self.factors).resolve(y, mask)

    def refine(self, noise_variance: float) -> Kernel | None:
        return Gaussian(self.multiple * noise_variance)


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """Any positive-definite function of the user's: ``function(a, b)`` on vectors in the last dimension.

    ``resolve`` checks on a few observations that the function is symmetric and positive definite.

    >>> import torch
    >>> CallableKernel(lambda a, b: (a * b).sum(-1))(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), event_dims=1)
    tensor(11.)
    >>> CallableKernel(lambda a, b: (a - b).sum(-1)).resolve(torch.tensor([0.0, 1.0]))
    Traceback (most recent call last):
    gpsuq.errors.GPSError: the kernel function is not symmetric: k(a, b) and k(b, a) differ
    """

    function: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, a: Tensor, b: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            raise GPSError(
                "a kernel function of your own cannot compare padded groups; use Gaussian, Laplace or Energy"
            )
        a, b = (t.unsqueeze(-1) if event_dims == 0 else t.flatten(-event_dims) for t in (a, b))
        return self.function(a, b)

    def resolve(self, y: Tensor, mask: Tensor | None = None) -> Kernel:
        sample = y[torch.linspace(0, len(y) - 1, min(len(y), 24), device=y.device).long()]
        gram = self(sample[:, None], sample[None, :], y.dim() - 1)
        if gram.shape != (len(sample), len(sample)):
            raise GPSError(
                f"the kernel function must reduce the last dimension: for {len(sample)} x {len(sample)} pairs "
                f"it returned shape {tuple(gram.shape)}"
            )
        tolerance = 1e-4 * gram.abs().max()
        if not torch.allclose(gram, gram.T, atol=float(tolerance)):
            raise GPSError("the kernel function is not symmetric: k(a, b) and k(b, a) differ")
        if torch.linalg.eigvalsh(gram.double()).min() < -tolerance * len(sample):
            raise GPSError("the kernel function is not positive definite on the observations")
        return self


def as_kernel(kernel: Kernel | Callable[[Tensor, Tensor], Tensor]) -> Kernel:
    """Wrap a plain function as a kernel; kernels pass through."""
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return CallableKernel(kernel)
    raise GPSError(f"a kernel must be a gpsuq kernel or a function of two tensors, got {type(kernel).__name__}")


def _rule_rows(y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Thin the rows evenly to what a rule needs, as float64 so that extreme scales do not overflow."""
    step = math.ceil(len(y) / _RULE_ROWS)
    return y[::step].double(), None if mask is None else mask[::step]


def median_squared_distance(y: Tensor, mask: Tensor | None = None) -> float:
    """Return the median squared distance between two different observations, ignoring exact ties.

    >>> import torch
    >>> median_squared_distance(torch.tensor([0.0, 1.0, 3.0]))
    4.0
    """
    y, mask = _rule_rows(y, mask)
    both = None if mask is None else mask[:, None] & mask[None, :]
    squared = _sum_events((y[:, None] - y[None, :]).square(), y.dim() - 1, both)
    squared = squared[squared > 0]
    return float(squared.median()) if squared.numel() else 0.0


def squared_robust_scale(y: Tensor, mask: Tensor | None = None) -> float:
    """Return the sum over coordinates of (1.4826 x median absolute deviation)^2, or of variances where most are ties.

    >>> import torch
    >>> [round(squared_robust_scale(torch.tensor([-1.0, 0.0, 1.0, 2.0, last])), 2) for last in (3.0, 1000.0)]
    [2.2, 2.2]
    """
    y, mask = _rule_rows(y, mask)
    y = y.flatten(1) if y.dim() > 1 else y.unsqueeze(1)
    observed = torch.ones_like(y, dtype=torch.bool) if mask is None else mask.reshape(y.shape)
    total = 0.0
    for column, seen in zip(y.T, observed.T, strict=True):
        values = column[seen]
        if values.numel() == 0:
            continue
        deviation = 1.4826 * (values - values.median()).abs().median()
        variance = deviation.square() if deviation > 0 else values.var(correction=0)
        total += float(variance) * float(seen.double().mean())
    return total


RULES: dict[str, BandwidthRule] = {"median": median_squared_distance, "robust": squared_robust_scale}
