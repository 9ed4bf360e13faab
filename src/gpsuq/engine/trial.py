"""A model tried on a few observations before training: mistakes are named, shapes can be looked at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, constraints

from gpsuq.core.distances import MMD, Distance
from gpsuq.core.expectations import DRAW_DIM, base_distribution
from gpsuq.core.generators import Generator
from gpsuq.core.likelihood import LogScore, has_density
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import Batch, Observations
from gpsuq.core.seeds import seeded
from gpsuq.core.shapes import Given, Shape
from gpsuq.engine.sources import BatchSource
from gpsuq.errors import GPSError

_FEWEST_DRAWS = 20

_SUPPORTS = {
    constraints.boolean: "0 or 1",
    constraints.nonnegative_integer: "0, 1, 2, ...",
    constraints.real: "any number",
    constraints.positive: "above 0",
    constraints.nonnegative: "0 or above",
    constraints.unit_interval: "between 0 and 1",
    constraints.simplex: "shares that sum to 1",
}


@dataclass(frozen=True, repr=False)
class Trial:
    """What a model makes of data, before any training; printing it shows a table.

    Attributes
    ----------
    n_observations
        How many observations were tried.
    shapes
        Shapes of x, y and every parameter for one observation, as the model's function sees them.
    distribution, event_shape
        What the function returned: the distribution of one coordinate, and the shape of one observation under it.
    support
        Where the distribution lives, in words.
    exact
        Whether the score is computed without sampling outcomes.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> from gpsuq import GPS, ObservationModel, Scale, Slope
    >>> model = ObservationModel(lambda x, slope, sd: Normal((x * slope).sum(-1), sd), slope=Slope(), sd=Scale())
    >>> GPS.check(model, [[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]] * 4, [[0.1, 0.3, 0.2], [1.0, 2.0, 3.0]] * 2)
    4 observations, each of which has
      x             (3, 2)
      y             (3,)
      slope         (1, 2)
      sd            (1,)
      distribution  Normal, event shape (3,)
      support       any number
      score         exact
    """

    n_observations: int
    shapes: dict[str, Shape]
    distribution: str
    event_shape: Shape
    support: str
    exact: bool

    def __repr__(self) -> str:
        rows: dict[str, object] = {
            **self.shapes,
            "distribution": f"{self.distribution}, event shape {self.event_shape}",
            "support": self.support,
            "score": "exact" if self.exact else "sampled: there is no closed form, so training is slower and noisier",
        }
        width = max(map(len, rows))
        table = (f"  {name:<{width}}  {value}" for name, value in rows.items())
        return "\n".join([f"{self.n_observations} observations, each of which has", *table])


def try_model(
    generator: Generator, model: ObservationModel, source: BatchSource, seed: int
) -> tuple[Given, Distribution]:
    """Run the model once on a batch; raise where it does not describe the observations, and say what to change."""
    dtype = next(generator.parameters()).dtype
    batch = source.batch(0)[0].to(torch.device("cpu"), dtype)
    rows = len(batch) if generator.conditional else 1
    shape = (generator.n_chains, rows, _number_of_draws(generator, batch), generator.noise_dim)
    with torch.no_grad(), seeded(seed, "try"):
        noise = torch.randn(shape, dtype=dtype)
        try:
            parameters = generator(noise, batch.seen)
        except (RuntimeError, TypeError) as error:
            x = "no x" if batch.seen is None else f"x of shape {tuple(batch.seen.shape)}"
            raise GPSError(f"the generator failed for noise of shape {shape} and {x}: {error}") from error
        given = model.given(parameters, batch.x, batch.one_y)
        predictive = model(parameters, batch.x, one_y=batch.one_y, validate=True)
    _check_shapes(predictive, given, model, source.sample)
    check_support(predictive, source.sample.rows())  # names rows of the data, so it comes first
    check_support(predictive, batch)
    return given, predictive


def natural_distance(generator: Generator, model: ObservationModel, source: BatchSource, seed: int) -> Distance:
    """Return the log score where the model has a density with gradients, and MMD where it has none."""
    try_model(generator, model, source, seed)
    like = generator.shared
    batch = source.batch(0)[0].part(slice(0, _FEWEST_DRAWS)).to(like.device, like.dtype)
    rows = len(batch) if generator.conditional else 1
    with seeded(seed, "distance"):
        noise = torch.randn(generator.n_chains, rows, 2, generator.noise_dim, dtype=like.dtype, device=like.device)
        parameters = generator(noise, batch.seen)
        predictive = model(parameters, batch.x, one_y=batch.one_y)
        return LogScore() if has_density(predictive, batch, parameters.values()) else MMD()


def _number_of_draws(generator: Generator, batch: Batch) -> int:
    """Return a number of draws that no other dimension has: dimensions that were mixed up then do not fit by chance."""
    own = itertools.chain.from_iterable(generator.parameter_map.shapes.values())
    tensors = (batch.y, batch.x, batch.w)
    taken = {generator.n_chains, *own, *(size for tensor in tensors if tensor is not None for size in tensor.shape)}
    return next(number for number in itertools.count(_FEWEST_DRAWS) if number not in taken)


def _check_shapes(predictive: Distribution, given: Given, model: ObservationModel, sample: Observations) -> None:
    """Raise where the model describes observations of another shape, or another number of them."""
    one_y, described, n = given.one_y or (), tuple(predictive.event_shape), given.batch_shape[1]
    if described != one_y:
        problem = f"an observation in y has shape {one_y}, but the model describes one of shape {described}"
        change = _change(tuple(sample.y.shape), described, given.measures)
        raise GPSError(given.misfit(problem, model.function, made=predictive, change=change))
    if given.x is not None and predictive.batch_shape[1] not in (1, n):
        problem = f"the model describes {predictive.batch_shape[1]} observations for a batch of {n}"
        raise GPSError(given.misfit(problem, model.function, made=predictive))


def _change(y: Shape, described: Shape, measures: Shape) -> str:
    """Return what to change where y (n, *one_y) does not have observations of the shape that the model describes."""
    n, one_y = y[0], y[1:]
    if described and n == described[0]:
        return f"y has shape {y}, and its rows are observations: it seems to be transposed, pass y.T"
    if not described and one_y == (1,):
        return f"y has shape {y}, but an observation is one number: pass y[:, 0]"
    if not described and measures:
        return f"y has a number for each of {measures} measures: keep their dimensions, .sum(-1) sums over columns only"
    if not described:
        return (
            f"describe all {one_y} numbers of an observation, by parameters of that size or by "
            f"value[..., None].expand(*value.shape, {one_y[-1]}); or pass y.ravel(), if each is an observation"
        )
    if not one_y:
        return "an observation in y is one number: sum over all trailing dimensions, or pass y with a row for each x"
    return "y, or what the last line of the function returns: both must have one number for each measure"


def check_support(predictive: Distribution, batch: Batch) -> None:
    """Raise where observations lie outside the model's support, such as negative counts; name the first row."""
    base = base_distribution(predictive)
    try:
        inside = None if base.support is None else base.support.check(batch.y)
    except (NotImplementedError, RuntimeError):  # a support of this batch's own, asked about other observations
        return
    if inside is None or inside.dim() != batch.y.dim() or inside.shape[1] != len(batch):
        return
    if batch.mask is not None:
        inside = inside | ~batch.mask
    # A support may depend on the parameters: an observation is outside if no chain and no draw allows it.
    inside = inside.any(DRAW_DIM).any(0).reshape(len(batch), -1).all(1)
    outside = (~inside).nonzero().flatten()
    if len(outside):
        seen = batch.y if batch.mask is None else batch.y[batch.mask]
        raise GPSError(
            f"y has {len(outside)} observation{'s' if len(outside) > 1 else ''} outside the support of "
            f"{type(base).__name__} ({support(base)}); "
            f"the first is row {int(outside[0])}: {batch.y[0, outside[0], 0].tolist()}. {_suitable(base, seen)}"
        )


def support(base: Distribution) -> str:
    """Return where the outcomes of a distribution live, in words."""
    try:
        where = base.support
    except NotImplementedError:
        return "not stated"
    if where is None:
        return "not stated"
    low, high = getattr(where, "lower_bound", None), getattr(where, "upper_bound", None)
    if where in _SUPPORTS or low is None or high is None:
        return _SUPPORTS.get(where, str(where))
    # Bounds may differ between draws and observations: these are the widest.
    numbers = "whole numbers" if where.is_discrete else "numbers"
    return f"{numbers} from {float(torch.as_tensor(low).min()):g} to {float(torch.as_tensor(high).max()):g}"


def _suitable(base: Distribution, y: Tensor) -> str:
    """Say which distributions have values like those of y."""
    low, high, whole = float(y.min()), float(y.max()), bool((y == y.round()).all())
    if isinstance(base, Categorical) and whole and low == 1.0:
        return "Classes count from 0: pass y - 1"
    if whole and low >= 0:
        others = "Bernoulli" if high <= 1 else "Categorical for classes, Poisson or NegativeBinomial for counts"
    elif low >= 0 and high <= 1:
        others = "Beta"
    else:
        others = "LogNormal, Gamma or Weibull" if low > 0 else "Normal or StudentT"
    return f"Values from {low:g} to {high:g} suit {others}: change the distribution, or y"
