"""Observation models f(y given theta, x): named parameters to a ``torch.distributions.Distribution``.

A model of the user's is a function and the declaration of its parameters::

    model = ObservationModel(
        lambda x, slope, scale: StudentT(4.0, (x * slope).sum(-1), scale), slope=Slope(), scale=Scale()
    )

The function sees tensors whose leading dimensions are (chain, observation, draw) and that broadcast against each
other: ``x`` is ``(1, observation, 1, *one_x)``, a parameter is ``(chain, 1 or observation, draw, *its_shape)``. Writing
the model with operations on trailing dimensions only, as one would for a single observation, is enough. Dimensions
that are left over behind those three belong to one observation (its repeated measures or several outputs).

Where an observation has several measures, y (T,) and x (T, p) or (T, alternatives, p), its parameters have a dimension
of size 1 for them: a number arrives as (1,), coefficients of the columns as (1, p) or (1, 1, p), any other vector of k
as (1, k). The model above then describes T measures that share slope and scale.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal, Poisson

from gpsuq.core.expectations import BATCH_DIMS
from gpsuq.core.parameters import Location, Parameter, Rate, Real, Scale, Slope
from gpsuq.core.shapes import Given, Shape, not_offered, over_measures
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
        self._covariates = _covariates(function, self.parameters)

    def __call__(
        self,
        parameters: Mapping[str, Tensor],
        x: Tensor | None = None,
        *,
        one_y: Shape | None = None,
        validate: bool = False,
    ) -> Distribution:
        """Return the distribution of the observations, batch shape (chain, 1 or observation, draw).

        ``one_y`` is the shape of one y, which says what of x are measures; without it, all but the columns.
        ``validate`` lets torch check the distribution's arguments. Training does that once: it costs time, and one
        chain that diverges must not stop the others.
        """
        missing = None if x is None or x.dim() < BATCH_DIMS + 2 else not_offered(x)
        x = x if x is None or missing is None else x.masked_fill(missing[..., None], 0.0)
        given = self.given(parameters, x, one_y)
        try:
            with _validation(validate):
                distribution = self.function(*(() if x is None else (x,)), **given.parameters)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            inputs = "no covariates" if x is None else f"x of shape {given.shapes()['x']}"
            problem = f"the observation model failed for {inputs}: {error}"
            raise GPSError(given.misfit(problem, self.function, error=error)) from error
        if not isinstance(distribution, Distribution):
            raise GPSError(
                "the observation model must return a torch.distributions.Distribution, "
                f"its function returned {type(distribution).__name__}: wrap what it computes, as in "
                "Normal(value, scale), Bernoulli(logits=value) or Poisson(value.exp())"
            )
        if missing is not None:
            distribution = _without(distribution, missing)
        part: Any = distribution
        while isinstance(part, Distribution):  # checks are for construction; log_prob would repeat them at every step
            part._validate_args = False
            part = getattr(part, "base_dist", None)
        try:
            return _with_batch_shape(distribution, given)
        except GPSError:
            raise
        except (RuntimeError, ValueError) as error:
            problem = "the model's distribution has lost chains, observations or draws"
            change = "sum and index trailing dimensions only: .sum(-1) in the place of .sum(), and so on"
            raise GPSError(given.misfit(problem, self.function, made=distribution, change=change)) from error

    def given(self, parameters: Mapping[str, Tensor], x: Tensor | None, one_y: Shape | None) -> Given:
        """Return what the function gets: parameters with dimensions of size 1 for an observation's measures.

        >>> import torch
        >>> parameters = {"slope": torch.zeros(4, 1, 20, 2), "sigma": torch.ones(4, 1, 20)}
        >>> linear_regression(intercept=False).given(parameters, torch.zeros(1, 60, 1, 8, 2), one_y=(8,)).shapes()
        {'x': (8, 2), 'y': (8,), 'slope': (1, 2), 'sigma': (1,)}
        """
        self._check_covariates(x)
        if x is None:
            return Given(dict(parameters), None, one_y)
        one_x = tuple(x.shape[BATCH_DIMS:])
        one_y = one_x[:-1] if one_y is None else one_y
        met = {name: over_measures(self.parameters[name], value, one_x, one_y) for name, value in parameters.items()}
        return Given(met, x, one_y)

    def _check_covariates(self, x: Tensor | None) -> None:
        first, optional = self._covariates
        declared = ", ".join(self.parameters)
        if x is None and not optional:
            raise GPSError(
                f"the model's function takes {first}, which is not among the declared parameters ({declared}) and so "
                f"stands for covariates, but there are none: call fit(X, y), or declare {first}"
            )
        if x is not None and first is None:
            raise GPSError(
                f"there are covariates X, but the model's function takes none beside its parameters ({declared}): "
                f"write it as function(x, {declared}), or call fit(y)"
            )


class _Covariates(NamedTuple):
    """Name of the function's argument for covariates, None where it has none; and whether it can do without."""

    name: str | None
    optional: bool


def _covariates(function: Callable[..., Any], declared: Mapping[str, Parameter]) -> _Covariates:
    """Check the declared parameters against the function's arguments, and return the one that is for covariates."""
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions do not say
        return _Covariates("x", optional=True)
    kinds = {argument.kind for argument in arguments}
    named = [a for a in arguments if a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
    first = next((a for a in named[:1] if a.name not in declared and a.kind is not a.KEYWORD_ONLY), None)
    names = [a.name for a in named if a is not first]
    unknown = [name for name in declared if name not in names]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise GPSError(
            f"the model declares {unknown[0]}, but its function takes no such argument (it takes "
            f"{', '.join(a.name for a in named)}): add {unknown[0]} to its arguments, or drop the declaration"
        )
    undeclared = [a.name for a in named if a is not first and a.name not in declared and a.default is a.empty]
    if undeclared:
        raise GPSError(
            f"the model's function takes {undeclared[0]}, which is not declared: pass {undeclared[0]}=Real() or "
            "another declaration to ObservationModel; covariates x come first"
        )
    if first is None:
        anything = inspect.Parameter.VAR_POSITIONAL in kinds
        return _Covariates("x" if anything else None, optional=True)
    return _Covariates(first.name, optional=first.default is not first.empty)


@contextmanager
def _validation(validate: bool) -> Iterator[None]:
    """Switch torch's checks of distribution arguments on or off, and back as they were."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(validate)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def expanded(distribution: Distribution, shape: torch.Size) -> Distribution:
    """Return the distribution with a batch shape; one of the user's own needs ``expand`` only where it has another.

    >>> expanded(Normal(torch.zeros(1, 3), 1.0), torch.Size([2, 3])).batch_shape
    torch.Size([2, 3])
    """
    if distribution.batch_shape == shape:
        return distribution
    try:
        wide: Distribution = distribution.expand(shape)
    except NotImplementedError as error:
        raise GPSError(
            f"{type(distribution).__name__} has batch shape {tuple(distribution.batch_shape)} where {tuple(shape)} is "
            "needed, and no method expand: write one, as torch's distributions have it, or let all of its arguments "
            "have the shape that torch.broadcast_tensors gives them"
        ) from error
    return wide


def _without(distribution: Distribution, missing: Tensor) -> Distribution:
    """Return a distribution over alternatives in which those that were not offered have no probability."""
    if not isinstance(distribution, Categorical) or distribution.param_shape[-1] != missing.shape[-1]:
        raise GPSError(
            "X has alternatives that were not offered (rows of NaN), so the model must return a Categorical with one "
            f"logit for each of {missing.shape[-1]} alternatives; it returned {type(distribution).__name__}"
        )
    return Categorical(logits=distribution.logits.masked_fill(missing, -torch.inf), validate_args=False)


def _with_batch_shape(distribution: Distribution, given: Given) -> Distribution:
    """Return the distribution with chains, draws and measures expanded, and what follows draws as event dimensions."""
    batch = distribution.batch_shape
    if len(batch) < BATCH_DIMS:
        raise ValueError("a sum or an index took dimensions away")
    trailing = list(batch[BATCH_DIMS:])
    for dim, size in enumerate(given.measures[: len(trailing)]):
        trailing[dim] = size if trailing[dim] == 1 else trailing[dim]
    n_chains, _, n_draws = given.batch_shape
    wanted = torch.Size([n_chains, batch[1], n_draws, *trailing])
    distribution = expanded(distribution, wanted)
    return Independent(distribution, len(trailing), validate_args=False) if trailing else distribution


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
        mean = _linear_predictor(x, slope)
        if intercept:
            level = rest["intercept"]
            if pivot:
                level = level - (rest["pivot"] * slope).sum(-1)
            mean = mean + level
        return Normal(mean, sigma)

    declared: dict[str, Any] = {"slope": Slope(), "sigma": Scale()}
    if intercept:
        declared["intercept"] = Location(random=random_intercept)
    if pivot:
        declared["pivot"] = Real("features", random=False)
    return ObservationModel(function, **declared)


def _linear_predictor(x: Tensor, slope: Tensor) -> Tensor:
    """Return x' slope of every observation and draw; one matrix product where all observations share the draws."""
    if slope.shape[1] > 1:
        return (x * slope).sum(-1)
    shared = slope.flatten(BATCH_DIMS)[:, 0].mT  # (chain, p, draw)
    if x.dim() == BATCH_DIMS + 1:
        return x[:, :, 0] @ shared
    return (x[:, :, 0] @ shared[:, None]).mT  # over measures, too


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
