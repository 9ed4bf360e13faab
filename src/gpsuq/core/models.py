"""Observation models f(y given theta, x): named parameters to a ``torch.distributions.Distribution``.

A model of the user's is a function and the declaration of its parameters::

    model = ObservationModel(
        lambda x, slope, scale: StudentT(4.0, (x * slope).sum(-1), scale), slope=Slope(), scale=Scale()
    )

The function sees tensors whose leading dimensions are (chain, observation, draw) and that broadcast against each
other: ``x`` is ``(1, observation, 1, *one_x)``, a parameter is ``(chain, 1 or observation, draw, *its_shape)``. Writing
the model with operations on trailing dimensions only, as one would for a single observation, is enough. Dimensions
that are left over behind those three belong to one observation (its repeated measures or several outputs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal, Poisson

from gpsuq.core.expectations import BATCH_DIMS, DRAW_DIM
from gpsuq.core.parameters import Location, Parameter, Rate, Real, Scale, Slope
from gpsuq.errors import GPSError


class ObservationModel:
    """A function from parameters (and covariates) to a distribution, with its parameters declared by name.

    Parameters
    ----------
    function
        ``function(x, **parameters)`` where there are covariates, ``function(**parameters)`` where there are none.
    parameters
        One :class:`~gpsuq.core.parameters.Parameter` for each name.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    >>> sorted(model.parameters)
    ['theta']
    """

    def __init__(self, function: Callable[..., Distribution], **parameters: Parameter) -> None:
        if not callable(function):
            raise GPSError(f"an observation model needs a function, got {type(function).__name__}")
        for name, parameter in parameters.items():
            if not isinstance(parameter, Parameter):
                raise GPSError(
                    f"parameter {name!r} must be declared with Real, Positive, Location, Scale, Slope or Parameter, "
                    f"got {parameter!r}"
                )
        if not any(parameter.random for parameter in parameters.values()):
            raise GPSError("the model declares no random parameter: there is nothing for the generator to generate")
        self.function, self.parameters = function, dict(parameters)

    def __call__(
        self, parameters: Mapping[str, Tensor], x: Tensor | None = None, *, validate: bool = False
    ) -> Distribution:
        """Return the distribution of the observations, batch shape (chain, 1 or observation, draw).

        ``validate`` lets torch check the distribution's arguments. Training does that once: it costs time, and one
        chain that diverges must not stop the others.
        """
        try:
            with _validation(validate):
                distribution = self.function(**parameters) if x is None else self.function(x, **parameters)
        except (RuntimeError, TypeError, ValueError) as error:
            shapes = {name: tuple(value.shape) for name, value in parameters.items()}
            inputs = "no covariates" if x is None else f"x of shape {tuple(x.shape)}"
            raise GPSError(
                f"the observation model failed for {inputs} and parameters of shapes {shapes}: {error}"
            ) from error
        if not isinstance(distribution, Distribution):
            raise GPSError(
                "the observation model must return a torch.distributions.Distribution, "
                f"its function returned {type(distribution).__name__}"
            )
        part: Any = distribution
        while isinstance(part, Distribution):  # checks are for construction; log_prob would repeat them at every step
            part._validate_args = False
            part = getattr(part, "base_dist", None)
        return _with_batch_shape(distribution, next(iter(parameters.values())))


@contextmanager
def _validation(validate: bool) -> Iterator[None]:
    """Switch torch's checks of distribution arguments on or off, and back as they were."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(validate)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _with_batch_shape(distribution: Distribution, parameter: Tensor) -> Distribution:
    """Return the distribution with chains and draws expanded and all further dimensions as event dimensions."""
    n_chains, n_draws = parameter.shape[0], parameter.shape[DRAW_DIM]
    batch = distribution.batch_shape
    if len(batch) > BATCH_DIMS:
        distribution = Independent(distribution, len(batch) - BATCH_DIMS, validate_args=False)
        batch = distribution.batch_shape
    wanted = torch.Size([n_chains, batch[1] if len(batch) == BATCH_DIMS else 1, n_draws])
    try:
        return distribution if batch == wanted else distribution.expand(wanted)
    except NotImplementedError as error:
        raise GPSError(
            f"{type(distribution).__name__} has batch shape {tuple(batch)} where {tuple(wanted)} is needed, and no "
            "expand(batch_shape): add that method, or let a parameter of every chain and draw enter the distribution"
        ) from error
    except (RuntimeError, ValueError) as error:
        raise GPSError(
            f"the observation model's distribution has batch shape {tuple(batch)}, expected (chain, observation, draw) "
            f"with {n_chains} chains and {n_draws} draws; write it with operations on trailing dimensions only, "
            "such as (x * slope).sum(-1)"
        ) from error


def normal_location(scale: float | None = None) -> ObservationModel:
    """y_i ~ N(theta_i, scale^2) without covariates; the scale is learned where it is not given.

    >>> list(normal_location().parameters), list(normal_location(scale=1.0).parameters)
    (['loc', 'scale'], ['loc'])
    """
    if scale is None:
        return ObservationModel(Normal, loc=Location(), scale=Scale())
    return ObservationModel(lambda loc: Normal(loc, scale), loc=Location())


def linear_regression(
    *, intercept: bool = True, random_intercept: bool = False, pivot: bool = False
) -> ObservationModel:
    """y_i ~ N(intercept + (x_i - pivot)' slope_i, sigma_i^2); a subject's repeated measures may share one slope.

    A random intercept cannot be told from sigma, so it is one shared value by default. The lines of different draws
    then cross where x is 0, or, with ``pivot``, at one point that is learned, so that the origin of x does not matter.

    >>> {name: parameter.random for name, parameter in linear_regression().parameters.items()}
    {'slope': True, 'sigma': True, 'intercept': False}
    """
    if random_intercept and not intercept:
        raise GPSError("random_intercept needs intercept=True")
    if pivot and (random_intercept or not intercept):
        raise GPSError("pivot is for an intercept that is not random")

    def function(x: Tensor, slope: Tensor, sigma: Tensor, **rest: Tensor) -> Normal:
        repeated = (None,) * (x.dim() - BATCH_DIMS - 1)
        mean = _linear_predictor(x, slope)
        if intercept:
            level = rest["intercept"]
            if pivot:
                level = level - (rest["pivot"] * slope).sum(-1)
            mean = mean + level[(..., *repeated)]
        return Normal(mean, sigma[(..., *repeated)])

    declared: dict[str, Any] = {"slope": Slope(), "sigma": Scale()}
    if intercept:
        declared["intercept"] = Location(random=random_intercept)
    if pivot:
        declared["pivot"] = Real("features", random=False)
    return ObservationModel(function, **declared)


def _linear_predictor(x: Tensor, slope: Tensor) -> Tensor:
    """Return x' slope of every observation and draw; one matrix product where all observations share the draws."""
    if slope.shape[1] == 1:  # (1 or chain, observation, [measure,] p) times (chain, [1,] p, draw)
        shared = slope[:, 0].mT
        return x[:, :, 0] @ shared if x.dim() == BATCH_DIMS + 1 else (x[:, :, 0] @ shared[:, None]).mT
    return (x * slope[(..., *(None,) * (x.dim() - BATCH_DIMS - 1), slice(None))]).sum(-1)


def categorical(n_classes: int) -> ObservationModel:
    """P(y_i = h) proportional to exp(logits_ih), the paper's classifier; logits come from a generator G(X, Z).

    >>> import torch
    >>> categorical(2)({"logits": torch.tensor([[[[0.0, 0.0]]]])}).probs
    tensor([[[[0.5000, 0.5000]]]])
    """
    return ObservationModel(_categorical_of_logits, logits=Real(n_classes))


def _categorical_of_logits(x: Tensor | None = None, *, logits: Tensor) -> Categorical:
    return Categorical(logits=logits)


def poisson_counts() -> ObservationModel:
    """y_i ~ Poisson(rate_i) without covariates, or with rates from a generator G(X, Z).

    >>> import torch
    >>> poisson_counts()({"rate": torch.tensor([[[2.0, 5.0]]])}).mean
    tensor([[[2., 5.]]])
    """
    return ObservationModel(_poisson_of_rate, rate=Rate())


def _poisson_of_rate(x: Tensor | None = None, *, rate: Tensor) -> Poisson:
    return Poisson(rate)
