"""What the parameters of a model are called, where they live and in which units; raw numbers in, parameters out.

A generator puts out plain numbers of order one. A parameter's declaration says how they become a value in the user's
units: ``Location`` is centred and scaled like y, ``Scale`` is positive and scaled like y, ``Rate`` is positive and at
the level of y, ``Slope`` has the units of y over x. A fit is then the same whether y is in nanometres or light years.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Transform, constraints, transform_to

from gpsuq.errors import GPSError

Size = int | tuple[int, ...] | Literal["features"] | None
Unit = Literal["none", "location", "scale", "level", "slope"]


@dataclass(frozen=True)
class Parameter:
    """Declaration of one named parameter.

    Parameters
    ----------
    size
        None for a number, an integer for a vector, a tuple for an array, ``"features"`` for one entry per column of X.
    support
        Where it lives, a constraint of ``torch.distributions``.
    unit
        How it scales with the data: see the module's docstring.
    random
        Whether it varies with the noise. False makes it one learned value that all observations share.

    Examples
    --------
    A probability of its own for each observation:

    >>> from torch.distributions import Bernoulli, constraints
    >>> from gpsuq import ObservationModel, Parameter
    >>> share = Parameter(support=constraints.unit_interval)
    >>> model = ObservationModel(lambda share: Bernoulli(share), share=share)
    """

    size: Size = None
    support: Any = constraints.real
    unit: Unit = "none"
    random: bool = True

    def shape(self, n_features: int | None) -> tuple[int, ...]:
        """Return the parameter's shape once the number of features is known."""
        if self.size is None:
            return ()
        if self.size == "features":
            if n_features is None:
                raise GPSError('a parameter of size "features" needs covariates: call fit(X, y), or give it a number')
            return (n_features,)
        shape = self.size if isinstance(self.size, tuple) else (self.size,)
        if any(not isinstance(width, int) or width < 1 for width in shape):
            raise GPSError(f"a parameter's size must be positive integers, got {self.size!r}")
        return shape


def Real(size: Size = None, *, random: bool = True) -> Parameter:  # noqa: N802 (reads as a type)
    """Declare an unconstrained parameter of order one.

    >>> from gpsuq import Real
    >>> Real((2, 2)).size
    (2, 2)
    """
    return Parameter(size, random=random)


def Positive(size: Size = None, *, random: bool = True) -> Parameter:  # noqa: N802
    """Declare a positive parameter of order one.

    >>> from gpsuq import Positive
    >>> Positive(3).size
    3
    """
    return Parameter(size, constraints.positive, random=random)


def Location(size: Size = None, *, random: bool = True) -> Parameter:  # noqa: N802
    """Declare a parameter that lives where y lives: its centre and scale are y's.

    >>> from torch.distributions import Normal
    >>> from gpsuq import Location, ObservationModel
    >>> model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    """
    return Parameter(size, unit="location", random=random)


def Scale(size: Size = None, *, random: bool = True) -> Parameter:  # noqa: N802
    """Declare a positive parameter in the units of y, such as a standard deviation.

    >>> from gpsuq import Scale
    >>> Scale(random=False).random  # one that all observations share
    False
    """
    return Parameter(size, constraints.positive, unit="scale", random=random)


def Rate(size: Size = None, *, random: bool = True) -> Parameter:  # noqa: N802
    """Declare a positive parameter at the level of y, such as the mean of a count.

    >>> from torch.distributions import Poisson
    >>> from gpsuq import ObservationModel, Rate
    >>> model = ObservationModel(lambda rate: Poisson(rate), rate=Rate())
    """
    return Parameter(size, constraints.positive, unit="level", random=random)


def Slope(size: Size = "features", *, random: bool = True) -> Parameter:  # noqa: N802
    """Declare a coefficient in units of y per unit of x, by default one for each column of X.

    >>> from gpsuq import Slope
    >>> Slope().size, Slope(None).size
    ('features', None)
    """
    return Parameter(size, unit="slope", random=random)


class _Increasing(constraints.Constraint):
    """Vectors whose entries increase."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value[..., 1:] > value[..., :-1]).all(-1)


class _Increase(Transform):
    """A number, and by how much each of the next ones is larger, on the scale of softplus; zeros are 1 apart."""

    domain, codomain = constraints.real_vector, _Increasing()
    bijective = True
    _UNIT = math.log(math.e - 1.0)

    def _call(self, x: Tensor) -> Tensor:
        steps = torch.nn.functional.softplus(x[..., 1:] + self._UNIT)
        middle = 0.5 * (x.shape[-1] - 1)
        return torch.cat([x[..., :1], x[..., :1] + steps.cumsum(-1)], -1) - middle


transform_to.register(_Increasing, lambda constraint: _Increase())


def Cuts(size: int, *, random: bool = False) -> Parameter:  # noqa: N802
    """Declare the cut points of ordered levels: numbers that increase, shared by all observations.

    >>> from gpsuq import Cuts
    >>> transform_to(Cuts(3).support)(torch.zeros(3))
    tensor([-1.,  0.,  1.])
    """
    return Parameter(size, _Increasing(), random=random)


@dataclass(frozen=True)
class DataScale:
    """Centre and scale of y (shape of one observation) and of the columns of x, and how many numbers one x has."""

    y_center: Tensor
    y_scale: Tensor
    x_center: Tensor | None = None
    x_scale: Tensor | None = None
    x_width: int | None = None


class ParameterMap(nn.Module):
    """Raw numbers to named parameters: value = offset + factor * transform(raw), declared parameter by parameter."""

    def __init__(self, declared: Mapping[str, Parameter], n_features: int | None, scale: DataScale) -> None:
        super().__init__()
        if not declared:
            raise GPSError("the model declares no parameters")
        self.declared, self.n_features, self.scale = dict(declared), n_features, scale
        self.shapes = {name: parameter.shape(n_features) for name, parameter in declared.items()}
        for name, parameter in declared.items():
            offset, factor = _offset_and_factor(parameter.unit, self.shapes[name], scale)
            self.register_buffer(f"{name}_offset", offset)
            self.register_buffer(f"{name}_factor", factor)
            if parameter.unit == "level":
                # exp(raw) spreads by its own size; what y varies by may be far less than its level.
                spread = scale.y_scale if scale.y_scale.shape == factor.shape else _overall(scale.y_scale)
                self.register_buffer(f"{name}_stretch", (spread / factor).clamp(max=1.0))

    def names(self, *, random: bool) -> list[str]:
        """Return the names of the parameters that do (or do not) vary with the noise."""
        return [name for name, parameter in self.declared.items() if parameter.random == random]

    def width(self, *, random: bool) -> int:
        """Return how many raw numbers those parameters take."""
        return sum(math.prod(self.shapes[name]) for name in self.names(random=random))

    def forward(self, raw: Tensor, *, random: bool) -> dict[str, Tensor]:
        """Split the last dimension of ``raw`` into named parameters in the user's units."""
        names = self.names(random=random)
        pieces = raw.split([math.prod(self.shapes[name]) for name in names], dim=-1)
        values = {}
        for name, piece in zip(names, pieces, strict=True):
            declared = self.declared[name]
            shaped = piece.reshape(*piece.shape[:-1], *self.shapes[name])
            if declared.unit == "level":
                shaped = shaped * getattr(self, f"{name}_stretch")
            value = transform_to(declared.support)(shaped)
            if declared.unit != "none":
                value = getattr(self, f"{name}_factor") * value + getattr(self, f"{name}_offset")
            values[name] = value
        return values


def _overall(scale: Tensor) -> Tensor:
    return scale.square().mean().sqrt()


def _offset_and_factor(unit: Unit, shape: tuple[int, ...], scale: DataScale) -> tuple[Tensor, Tensor]:
    # One value per coordinate of y where the shapes agree, otherwise one for all.
    per_coordinate = tuple(scale.y_scale.shape) == shape
    y_center = scale.y_center if per_coordinate else scale.y_center.mean()
    y_scale = scale.y_scale if per_coordinate else _overall(scale.y_scale)
    if unit == "location":
        return y_center, y_scale
    factor = torch.ones_like(y_scale)
    if unit == "scale":
        factor = y_scale
    elif unit == "level":
        factor = torch.maximum(y_center.abs(), y_scale)
    elif unit == "slope":
        if scale.x_scale is None:
            raise GPSError("a Slope needs covariates: call fit(X, y)")
        per_feature = shape[:1] == tuple(scale.x_scale.shape)
        x_scale = scale.x_scale.reshape(-1, *(1,) * (len(shape) - 1)) if per_feature else _overall(scale.x_scale)
        factor = _overall(scale.y_scale) / x_scale
    return torch.zeros_like(factor), factor
