"""Families of outcomes: how y is distributed given theta, and what a mixture of such distributions says of it.

A predictive is a mixture over draws and chains, whose parameters are arrays (row, component), in the units that the
generator was trained in. :class:`Outcome` has the mathematics of one component, of several at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp, ndtri
from torch import Tensor
from torch.distributions import Beta, Distribution, Laplace, NegativeBinomial, Normal, Poisson, StudentT, constraints

from gpsuq.core import mixtures
from gpsuq.core.models import ObservationModel
from gpsuq.core.parameters import Location, Parameter, Positive, Rate, Scale
from gpsuq.core.seeds import random_block, seeded
from gpsuq.errors import GPSError

Array = NDArray[np.floating]
Parameters = Mapping[str, Array]

_SWEEPS = 80
_CLOSE = 1e-7  # relative, where a quantile is found
_LEAST_TAIL = 1e-14
_LARGEST_COUNT = 2**31 - 1
_PRECISION = 4.0  # alpha + beta of a beta distribution where the generator says 1
_EDGE = 1e-4  # how close the mean of a beta distribution comes to 0 and 1
_LEAST_DF = 2.0  # of a Student t: its variance is finite


class Outcome(ABC):
    """What a mixture of distributions of one outcome says; parameters are (row, component), weights (component,)."""

    discrete = False

    @abstractmethod
    def mean(self, p: Parameters) -> Array:
        """Return the mean of every component."""

    @abstractmethod
    def variance(self, p: Parameters) -> Array:
        """Return the variance of every component."""

    @abstractmethod
    def log_densities(self, y: Array, p: Parameters) -> Array:
        """Return the log density (or probability) of y (row,) under every component."""

    @abstractmethod
    def cdf(self, y: Array, p: Parameters) -> Array:
        """Return the probability of at most y (row,) under every component."""

    @abstractmethod
    def sample(self, p: Parameters, seed: int) -> Array:
        """Draw one outcome of every component."""

    @abstractmethod
    def bracket(self, score: Array, p: Parameters) -> tuple[Array, Array]:
        """Return bounds (row,) of the mixture's quantile of a normal score (row,)."""

    def log_density(self, y: Array, p: Parameters, weight: Array) -> Array:
        """Return the log density of y (row,) under each row's mixture."""
        return np.asarray(logsumexp(self.log_densities(y, p), axis=1, b=weight))

    def normal_scores(self, y: Array, p: Parameters, weight: Array) -> Array:
        r"""Return :math:`\Phi^{-1}(F(y))` of each row's mixture; of counts, in the middle of the step at y.

        y is (row,), or (row, l) for several of each row.
        """
        if y.ndim == 2:
            return np.stack([self.normal_scores(each, p, weight) for each in y.T], axis=1)
        rank = self.cdf(y, p) @ weight
        if self.discrete:
            rank = 0.5 * (rank + self.cdf(y - 1.0, p) @ weight)
        return np.asarray(ndtri(np.clip(rank, _LEAST_TAIL, 1.0 - _LEAST_TAIL)))

    def at_normal_scores(self, scores: Array, p: Parameters, weight: Array) -> Array:
        r"""Solve :math:`F(y) = \Phi(\text{score})` for y: scores and result (row, level)."""
        solve = self._smallest if self.discrete else self._root
        return np.stack([solve(score, p, weight) for score in scores.T], axis=1)

    def _smallest(self, score: Array, p: Parameters, weight: Array) -> Array:
        """Return the smallest count whose probability of at most it is large enough, by bisection."""
        low, high = self.bracket(score, p)
        target = stats.norm.cdf(score)
        while np.any(high - low > 1.0):
            middle = np.floor(0.5 * (low + high))
            enough = self.cdf(middle, p) @ weight >= target
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(high)

    def _root(self, score: Array, p: Parameters, weight: Array) -> Array:
        """Return where the cdf crosses its target, by false position with halved weights (the Illinois rule)."""
        low, high = self.bracket(score, p)
        target = stats.norm.cdf(score)
        below, above = (self.cdf(end, p) @ weight - target for end in (low, high))
        size = high - low
        for sweep in range(_SWEEPS):
            slope = above - below
            inside = np.divide(-below, slope, out=np.full_like(slope, 0.5), where=slope > 0.0)
            middle = low + np.clip(inside, 0.01, 0.99) * (high - low) if sweep % 4 else 0.5 * (low + high)
            excess = self.cdf(middle, p) @ weight - target
            upper = excess >= 0.0
            below, above = np.where(upper, 0.5 * below, excess), np.where(upper, excess, 0.5 * above)
            low, high = np.where(upper, low, middle), np.where(upper, middle, high)
            if np.all((high - low <= _CLOSE * size) | (np.abs(excess) < _CLOSE * target)):
                break
        return np.asarray(middle)


class NormalOutcome(Outcome):
    """N(loc, scale^2), in closed form or by Newton's steps."""

    def mean(self, p: Parameters) -> Array:
        return np.asarray(p["loc"])

    def variance(self, p: Parameters) -> Array:
        return np.square(p["scale"])

    def log_densities(self, y: Array, p: Parameters) -> Array:
        return mixtures.component_log_density(y, p["loc"], p["scale"])

    def cdf(self, y: Array, p: Parameters) -> Array:
        return np.asarray(stats.norm.cdf(y[:, None], p["loc"], p["scale"]))

    def sample(self, p: Parameters, seed: int) -> Array:
        return np.asarray(p["loc"] + p["scale"] * np.random.default_rng(seed).standard_normal(p["loc"].shape))

    def bracket(self, score: Array, p: Parameters) -> tuple[Array, Array]:
        each = p["loc"] + p["scale"] * score[:, None]
        return each.min(1), each.max(1)

    def normal_scores(self, y: Array, p: Parameters, weight: Array) -> Array:
        return mixtures.normal_scores(y, p["loc"], p["scale"], weight)

    def at_normal_scores(self, scores: Array, p: Parameters, weight: Array) -> Array:
        return mixtures.at_normal_scores(scores, p["loc"], p["scale"], weight)


@dataclass(frozen=True)
class KnownOutcome(Outcome):
    """A family that ``scipy.stats`` knows: ``make`` returns it, frozen, from the parameters."""

    make: Callable[[Parameters], Any]
    discrete: bool = False

    def mean(self, p: Parameters) -> Array:
        return np.asarray(self.make(p).mean())

    def variance(self, p: Parameters) -> Array:
        return np.asarray(self.make(p).var())

    def log_densities(self, y: Array, p: Parameters) -> Array:
        made = self.make(p)
        return np.asarray((made.logpmf if self.discrete else made.logpdf)(y[:, None]))

    def cdf(self, y: Array, p: Parameters) -> Array:
        return np.asarray(self.make(p).cdf(y[:, None]))

    def sample(self, p: Parameters, seed: int) -> Array:
        return np.asarray(self.make(p).rvs(random_state=np.random.default_rng(seed)), dtype=np.float64)

    def bracket(self, score: Array, p: Parameters) -> tuple[Array, Array]:
        each = self.make(p).ppf(stats.norm.cdf(score)[:, None])
        return each.min(1) - self.discrete, np.minimum(each.max(1), _LARGEST_COUNT if self.discrete else np.inf)


@dataclass(frozen=True)
class OwnOutcome(Outcome):
    """A family of the user's: what torch knows of it, and outcomes sampled where torch has no cdf."""

    model: ObservationModel
    n_outcomes: int = 16

    def _made(self, p: Parameters) -> Distribution:
        tensors = {name: torch.from_numpy(np.asarray(value)).unsqueeze(0) for name, value in p.items()}
        rows = next(iter(tensors.values())).shape[1]
        return self.model(tensors, torch.zeros(1, rows, 1, 1, dtype=torch.float64))

    def mean(self, p: Parameters) -> Array:
        return self._made(p).mean[0].numpy()

    def variance(self, p: Parameters) -> Array:
        return self._made(p).variance[0].numpy()

    def log_densities(self, y: Array, p: Parameters) -> Array:
        return self._made(p).log_prob(torch.from_numpy(y)[None, :, None])[0].numpy()

    def cdf(self, y: Array, p: Parameters) -> Array:
        made = self._made(p)
        try:
            return made.cdf(torch.from_numpy(y)[None, :, None])[0].numpy()
        except NotImplementedError:
            return np.asarray((self._outcomes(made) <= y[:, None]).mean(0))

    def _outcomes(self, made: Distribution) -> Array:
        with torch.no_grad(), seeded(0, "own outcomes"):
            return made.sample(torch.Size([self.n_outcomes]))[:, 0].double().numpy()

    def sample(self, p: Parameters, seed: int) -> Array:
        with torch.no_grad(), seeded(seed, "outcome"):
            return self._made(p).sample()[0].double().numpy()

    def bracket(self, score: Array, p: Parameters) -> tuple[Array, Array]:
        mean, sd = self.mean(p), np.sqrt(self.variance(p))
        far = 10.0 + np.abs(score[:, None])
        return (mean - far * sd).min(1), (mean + far * sd).max(1)


@dataclass(frozen=True)
class Family:
    """A kind of outcome: the model that is trained, its mathematics, and the units that y is brought to.

    ``units`` are "standard" (y less its mean, over its standard deviation), "log" (the same of log y) or "own".
    """

    name: str
    model: ObservationModel
    outcome: Outcome
    units: str
    support: str = "real numbers"

    def check(self, y: Array) -> None:
        """Raise where an outcome lies outside the support."""
        inside = {
            "real numbers": np.ones(y.shape, dtype=bool),
            "positive numbers": y > 0,
            "counts": (y >= 0) & (y == np.floor(y)),
            "numbers between 0 and 1": (y > 0) & (y < 1),
        }[self.support]
        if not inside.all():
            row = int(np.flatnonzero(~inside.reshape(len(y), -1).all(1))[0])
            raise GPSError(
                f'family="{self.name}" is for {self.support}, and y holds {int((~inside).sum())} others, the first in '
                f"row {row}: {y[row]}"
            )


# Functions of modules, not lambdas: an estimator can be pickled.


def _normal(x: Tensor, loc: Tensor, scale: Tensor) -> Normal:
    return Normal(loc, scale)


def _student(x: Tensor, loc: Tensor, scale: Tensor, df: Tensor) -> StudentT:
    return StudentT(_LEAST_DF + df, loc, scale)


def _known_student(p: Parameters) -> Any:
    return stats.t(_LEAST_DF + p["df"], p["loc"], p["scale"])


def _laplace(x: Tensor, loc: Tensor, scale: Tensor) -> Laplace:
    return Laplace(loc, scale)


def _known_laplace(p: Parameters) -> Any:
    return stats.laplace(p["loc"], p["scale"])


def _poisson(x: Tensor, rate: Tensor) -> Poisson:
    return Poisson(rate)


def _known_poisson(p: Parameters) -> Any:
    return stats.poisson(p["rate"])


def _negative_binomial(x: Tensor, rate: Tensor, size: Tensor) -> NegativeBinomial:
    return NegativeBinomial(size, logits=(rate / size).log())


def _known_negative_binomial(p: Parameters) -> Any:
    return stats.nbinom(p["size"], p["size"] / (p["size"] + p["rate"]))


def _beta(x: Tensor, mean: Tensor, precision: Tensor) -> Beta:
    inside = mean.clamp(_EDGE, 1.0 - _EDGE)
    return Beta(_PRECISION * precision * inside, _PRECISION * precision * (1.0 - inside))


def _known_beta(p: Parameters) -> Any:
    inside = np.clip(p["mean"], _EDGE, 1.0 - _EDGE)
    return stats.beta(_PRECISION * p["precision"] * inside, _PRECISION * p["precision"] * (1.0 - inside))


def make_family(family: str | ObservationModel, n_outputs: int | None) -> Family:
    """Return the family of a name, or of an observation model of the user's; several outputs share one draw."""
    if isinstance(family, ObservationModel):
        return Family("own", family, OwnOutcome(family), "own")
    size = n_outputs
    loc, scale = Location(size), Scale(size)
    rate, positive = Rate(size), Positive(size)
    unit = Parameter(size, constraints.unit_interval)
    own: dict[str, Family] = {
        "normal": Family("normal", ObservationModel(_normal, loc=loc, scale=scale), NormalOutcome(), "standard"),
        "lognormal": Family(
            "lognormal", ObservationModel(_normal, loc=loc, scale=scale), NormalOutcome(), "log", "positive numbers"
        ),
        "student-t": Family(
            "student-t",
            ObservationModel(_student, loc=loc, scale=scale, df=positive),
            KnownOutcome(_known_student),
            "standard",
        ),
        "laplace": Family(
            "laplace", ObservationModel(_laplace, loc=loc, scale=scale), KnownOutcome(_known_laplace), "standard"
        ),
        "poisson": Family(
            "poisson",
            ObservationModel(_poisson, rate=rate),
            KnownOutcome(_known_poisson, discrete=True),
            "own",
            "counts",
        ),
        "negative-binomial": Family(
            "negative-binomial",
            ObservationModel(_negative_binomial, rate=rate, size=positive),
            KnownOutcome(_known_negative_binomial, discrete=True),
            "own",
            "counts",
        ),
        "beta": Family(
            "beta",
            ObservationModel(_beta, mean=unit, precision=positive),
            KnownOutcome(_known_beta),
            "own",
            "numbers between 0 and 1",
        ),
    }
    return own[family]


FAMILIES = ("normal", "student-t", "laplace", "lognormal", "poisson", "negative-binomial", "beta")
"""Names that ``family=`` takes."""

NORMAL_NAMES = ("normal", "lognormal")
"""Those whose outcomes, or their logarithms, are Normal: much is known of them in closed form."""


def chosen_components(weight: Array, n: int, seed: int) -> NDArray[np.int64]:
    """Draw n components (n,) by their weights."""
    uniform = torch.rand(n, generator=random_block(seed, "components"), dtype=torch.float64).numpy()
    return np.minimum(np.searchsorted(np.cumsum(weight), uniform), len(weight) - 1)
