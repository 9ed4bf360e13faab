"""Linear regression from a table to trained chains: units, pilot, spread path, bootstrap chains, corrections.

Training sees whitened covariates and the residuals of a robust pilot in units of their scale, so a fit is the same
whatever the units, the correlation of the columns and the size of the signal; :class:`LinearUnits` leads back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.algorithms import Algorithm
from gpsuq.chains import warn_of_small_weights
from gpsuq.data import evenly_spaced
from gpsuq.diagnostics import Finding, diagnose
from gpsuq.distances import MMD
from gpsuq.errors import GPSError, GPSWarning
from gpsuq.generators import MLP, Generator
from gpsuq.gps import GPS
from gpsuq.kernels import Gaussian, Kernel, Mixture
from gpsuq.models import ObservationModel, linear_regression
from gpsuq.pilot import residual_scale, robust_pilot
from gpsuq.progress import stage
from gpsuq.recentre import LinearDraws, common_shift
from gpsuq.seeds import derive_seed, quasi_normal
from gpsuq.sources import ArraySource
from gpsuq.spread import N_FOLDS, PATH, SpreadChoice, choose_spread
from gpsuq.training import Problem, TrainingState, evaluate, some_rows

Array = NDArray[np.float64]

_CHUNK = 1 << 15
_DEPENDENT = 1e-12  # eigenvalue of the correlation matrix, relative to the largest, that counts as zero
_FEWEST_FOR_PATH = 12, 40  # observations and measures
_FIRST_ROWS = 20_000
_MANY_ROWS = 8_000
_LEARNING_RATE = 1e-2  # twice the general default: the pilot has done what needs small steps
_CENTRE_DRAWS = 64
_MEAN_DRAWS = 512
_FAR, _SIGMA_LIMIT, _SIGMA_FLOOR = 0.995, 3.0, 1e-4
_FARTHEST = 1e15  # squares must stay within float32
_MOST_PADDED = 1 << 28
_SHAPE_MULTIPLE = 4.0  # bandwidth over noise variance when training: narrow tells spread from sigma
_CENTRE_MULTIPLE = 14.0  # and when finding the centre: wide loses little efficiency where the noise is Normal
_EXPECTED = ("spread-collapsed", "few-observations")  # findings that the penalty and the corrections answer


@dataclass(frozen=True)
class LinearUnits:
    r"""Between the user's units and those of training: w = matrix' (x - center), u = (y - pilot(x)) / scale.

    A model u = level + w' gamma means y = intercept + x' theta with
    :math:`\theta = \theta_0 + \text{scale} \cdot \text{matrix}\,\gamma` and the intercept that belongs to it.
    """

    center: Array  # (p,)
    matrix: Array  # (p, r), r at most the rank of X
    slope: Array  # (p,), the pilot's
    level: float  # the pilot's value at the centre
    scale: float

    @property
    def rank(self) -> int:
        """Number of directions that training sees."""
        return int(self.matrix.shape[1])

    def covariates(self, X: Array) -> Tensor:
        """Whiten X, a block of rows at a time: (n, r), float32."""
        result = torch.empty(len(X), self.rank)
        for rows in _blocks(len(X)):
            result[rows] = torch.from_numpy((X[rows] - self.center) @ self.matrix)
        return result

    def residuals(self, X: Array, y: Array) -> Tensor:
        """Residuals of the pilot in units of their scale, float32."""
        result = torch.empty(len(y))
        for rows in _blocks(len(y)):
            fitted = self.level + (X[rows] - self.center) @ self.slope
            result[rows] = torch.from_numpy(np.clip((y[rows] - fitted) / self.scale, -_FARTHEST, _FARTHEST))
        return result

    def parameters(self, draws: LinearDraws) -> dict[str, Array]:
        """Give draws in the user's units: ``slope`` (chain, draw, p), ``intercept`` and ``sigma`` (chain, draw)."""
        gamma, level, sigma = (t.double().numpy() for t in (draws.slope, draws.level, draws.sigma))
        slope = self.slope + self.scale * gamma @ self.matrix.T
        intercept = self.level + self.scale * level - slope @ self.center
        return {"slope": slope, "intercept": intercept, "sigma": self.scale * sigma}


def linear_units(
    X: Array, y: Array, weight: Array | None, *, intercept: bool, names: Sequence[str], seed: int
) -> LinearUnits:
    """Find the units of a table; warn of columns that are constant or depend on each other."""
    weights = np.ones(len(y)) if weight is None else weight
    total, n = float(weights.sum()), int(np.count_nonzero(weights))
    size = np.maximum(X.max(0), -X.min(0))  # without a copy of X
    size = np.where(size > 0, size, 1.0)
    center = (weights @ X) / total / size if intercept else np.zeros(X.shape[1])
    moment = np.zeros((X.shape[1], X.shape[1]))
    for rows in _blocks(len(X)):
        block = X[rows] / size - center
        moment += (block * weights[rows, None]).T @ block / total
    spread = np.sqrt(np.diag(moment))
    constant = spread <= 1e-9
    if constant.any():
        _warn(f"columns {_listed(names, constant)} are constant: their coefficients are 0")
    spread = np.where(constant, 1.0, spread)
    values, vectors = np.linalg.eigh(np.where(constant | constant[:, None], 0.0, moment / np.outer(spread, spread)))
    kept = values > _DEPENDENT * max(values[-1], 1.0)
    if kept.sum() < min(len(values) - constant.sum(), n - intercept):
        loads = (np.abs(vectors[:, ~kept]).max(1) > 1e-3) & ~constant
        _warn(f"columns {_listed(names, loads)} depend on each other: what they share is divided between them")
    order = np.flatnonzero(kept)[::-1]
    if len(order) == 0:  # nothing varies: one direction that is zero for all rows stands in
        order, vectors, values = np.array([0]), np.zeros_like(vectors), np.ones_like(values)
    if n <= len(order) + intercept:
        few = max(1, (n - 1) // 2)
        _warn(
            f"{n} observations for {len(order) + intercept} coefficients: only the {few} directions in which X varies "
            "most are fitted, and the coefficients are what these say"
        )
        order = order[:few]
    matrix = vectors[:, order] / np.sqrt(values[order]) / (size * spread)[:, None]
    center_y = float(np.median(y)) if intercept else 0.0
    size_y = np.abs(y - center_y)
    unit = float(np.median(size_y)) or float(size_y.max())  # squares of very large or small y stay finite
    some = np.flatnonzero(weights)
    some = np.random.default_rng(seed).choice(some, _CHUNK, replace=False) if n > _CHUNK else some
    design = (X[some] - center * size) @ matrix
    if intercept:
        design = np.column_stack([design, np.ones(len(some))])
    pilot = robust_pilot(design, (y[some] - center_y) / unit, weights[some], seed=seed)
    coefficients = pilot.coefficients * unit
    return LinearUnits(
        center=center * size,
        matrix=matrix,
        slope=matrix @ coefficients[: matrix.shape[1]],
        level=center_y + float(coefficients[-1]) if intercept else 0.0,
        scale=(pilot.scale or 1.0) * unit,
    )


@dataclass(frozen=True)
class LinearSettings:
    """How a linear regression is trained; see :class:`gpsuq.GPSLinearRegression`."""

    n_chains: int
    n_steps: int
    n_draws: int
    batch_size: int
    spread_weight: float | Literal["auto"]
    intercept: bool
    random_intercept: bool
    generator: MLP
    seed: int
    progress: bool

    def model(self) -> ObservationModel:
        """Give the observation model."""
        return linear_regression(
            intercept=self.intercept,
            random_intercept=self.random_intercept,
            pivot=self.intercept and not self.random_intercept,
        )

    def sampler(self, kernel: Kernel, *, steps: float = 1.0, draws: float = 1.0, **chains: Any) -> GPS:
        """Give the sampler of one stage, which takes a share of the steps and of the draws."""
        algorithm = Algorithm(
            n_steps=max(1, round(steps * self.n_steps)),
            n_draws=max(2, round(draws * self.n_draws)),
            batch_size=self.batch_size,
            learning_rate=_LEARNING_RATE,
            evaluate_every=None,  # what is held out decides on the spread weight, not on when to stop
        )
        return GPS(
            self.model(),
            self.generator,
            MMD(kernel),
            algorithm=algorithm,
            seed=self.seed,
            progress=self.progress,
            **chains,
        )


@dataclass(frozen=True)
class TrainingTable:
    """What training sees: whitened ``x``, pilot residuals ``y``; groups are (group, measure) with a mask."""

    x: Tensor
    y: Tensor
    mask: Tensor | None
    weight: Tensor | None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor) -> TrainingTable:
        """Give some of the observations."""
        x, y = self.x[index], self.y[index]
        mask, weight = (None if t is None else t[index] for t in (self.mask, self.weight))
        return TrainingTable(x, y, mask, weight)

    def grouped(self, codes: NDArray[np.intp]) -> TrainingTable:
        """Make one observation of all rows that share a code (0, 1, ...), padded to the length of the longest."""
        counts = np.bincount(codes)
        if len(counts) * int(counts.max()) * self.x.shape[-1] > _MOST_PADDED:
            raise GPSError(
                f"groups of up to {counts.max()} rows, {len(counts)} in all, take too much memory when padded to one "
                "length; split the longest groups, or fit a sample of them"
            )
        order = np.argsort(codes, kind="stable")
        place = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        group, measure, row = (torch.from_numpy(a) for a in (codes[order], place, order))
        x = torch.zeros(len(counts), int(counts.max()), self.x.shape[-1])
        y, mask = torch.zeros(x.shape[:2]), torch.zeros(x.shape[:2], dtype=torch.bool)
        x[group, measure], y[group, measure], mask[group, measure] = self.x[row], self.y[row], True
        weight = None
        if self.weight is not None:
            weight = torch.zeros(len(counts))
            weight[torch.from_numpy(codes)] = self.weight
            if not torch.equal(weight[torch.from_numpy(codes)], self.weight):
                raise GPSError("sample_weight must be the same for all rows of a group: a subject counts as a whole")
        return TrainingTable(x, y, mask, weight)

    @property
    def n_observations(self) -> float:
        """Number of independent observations; weights are frequencies."""
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    @property
    def measures_each(self) -> float:
        """Mean number of measures of an observation: squared distances add up over them."""
        return self.n_measures / self.n_observations

    def sigma_floor(self, k: int) -> float:
        """Smallest sigma that k coefficients may leave: with too few rows a fit could pass through half of them."""
        return 1.0 if self.n_observations <= 2 * k else _SIGMA_FLOOR

    def far(self, level: float) -> float:
        """Quantile of the absolute residuals."""
        size = self.y.abs() if self.mask is None else self.y[self.mask].abs()
        return float(size[:: -(-len(size) // _FIRST_ROWS)].quantile(level))

    @property
    def n_measures(self) -> float:
        """Number of measures, which is that of observations where each is one."""
        if self.mask is None:
            return self.n_observations
        counts = self.mask.sum(1).to(self.y)
        return float(counts.sum() if self.weight is None else counts @ self.weight)


@dataclass(frozen=True)
class LinearFit:
    """Trained chains of a linear regression, with what leads from their noise to the user's parameters.

    ``offset`` (chain, r + 1) is added to each chain's slope and level, and sigma is multiplied by ``sigma_factor``: the
    corrections for small samples. A bounded kernel hardly tells a large sigma from a huge one, and few rows do not keep
    it from zero, so it stays within ``sigma_range``.
    """

    generator: Generator
    units: LinearUnits
    chains: list[int]
    offset: Tensor
    sigma_factor: float
    sigma_range: tuple[float, float]
    choice: SpreadChoice | None
    spread_weight: float
    reweighted: bool
    findings: list[Finding]

    @property
    def heterogeneous(self) -> bool:
        """Whether coefficients were free to differ between observations."""
        return self.spread_weight < PATH[-1]

    def parameters(self, noise: Tensor) -> dict[str, Array]:
        """Give the draws that belong to noise (draw, q) or (chain, draw, q), in the user's units."""
        draws = linear_draws(self.generator, noise)
        kept = torch.tensor(self.chains)
        return self.units.parameters(
            LinearDraws(
                draws.slope[kept] + self.offset[kept, None, :-1],
                draws.level[kept] + self.offset[kept, None, -1],
                draws.sigma[kept].clamp(*self.sigma_range) * self.sigma_factor,
            )
        )


def _draws(generator: Generator, n: int, settings: LinearSettings) -> LinearDraws:
    return linear_draws(generator, quasi_normal(n, generator.noise_dim, settings.seed))


def linear_draws(generator: Generator, noise: Tensor) -> LinearDraws:
    """Give slope, level and sigma of every chain for noise (draw, q), the same for all chains, or (chain, draw, q)."""
    noise = noise.expand(generator.n_chains, *noise.shape[-2:])[:, None]
    with torch.no_grad():
        values = {name: value[:, 0] for name, value in generator(noise).items()}
    slope = values["slope"]
    level = values.get("intercept", torch.zeros_like(values["sigma"]))
    if "pivot" in values:
        level = level - (values["pivot"] * slope).sum(-1)
    return LinearDraws(slope, level.expand_as(values["sigma"]), values["sigma"])


def fit_linear(table: TrainingTable, units: LinearUnits, settings: LinearSettings) -> LinearFit:
    """Choose the spread weight, train bootstrap chains from there, find their centres, correct for small samples."""
    generator, spread_weight, choice = first_stage(table, settings)
    n, k = table.n_observations, units.rank + settings.intercept
    bootstrap = n > 2 * k
    equal = spread_weight >= PATH[-1]
    floor = table.sigma_floor(k)
    noise_variance = max(float(_draws(generator, _MEAN_DRAWS, settings).sigma.square().median()), floor**2)
    gps = settings.sampler(
        Gaussian(_SHAPE_MULTIPLE * noise_variance * table.measures_each),
        steps=1 / 3,  # the first stage has gone most of the way
        draws=1 / 4 if equal else 1.0,  # without spread only the law of sigma is left to learn
        n_chains=settings.n_chains,
        reweight="bootstrap" if bootstrap else None,
        holdout=0.0,
        spread_weight=spread_weight,
    )
    start = generator.select([chain % generator.n_chains for chain in range(settings.n_chains)])
    problem, state = gps.train(table.x, table.y, mask=table.mask, weight=table.weight, start=start)
    recentre(problem, state, table, settings)
    draws = _draws(state.generator, _MEAN_DRAWS, settings)
    alive = (~state.failed).nonzero().flatten()
    center = torch.cat([draws.slope.mean(1), draws.level.mean(1, keepdim=True)], 1)
    center = center - center[alive].mean(0)
    if bootstrap:
        offset = center * (n / (n - k) - 1.0)
        # n / (n - 2k) is the leading term only: simulations give about exp(2k / n), which ends at e.
        variance_factor = min(table.n_measures / (table.n_measures - 2 * k), np.e)
    else:
        if table.weight is not None:  # with bootstrap weights the chains do so
            warn_of_small_weights(table.weight)
        _warn(
            f"{n:g} observations for {k} coefficients: too few for bootstrap weights, so the uncertainty of the "
            "coefficients is that of Normal theory around the robust fit"
        )
        variance_factor = 1.0
        floor = sigma = residual_scale_around(table, draws, alive, k)
        offset = normal_theory(center.shape, max(n - k, 1.0), settings.seed) * (sigma / n**0.5) - center
        if not settings.intercept:
            offset[:, -1] = 0.0
    expected = (*_EXPECTED, "chains-disagree") if equal else _EXPECTED
    return LinearFit(
        generator=state.generator.cpu().eval(),
        units=units,
        chains=alive.tolist(),
        offset=offset,
        sigma_factor=variance_factor**0.5,
        sigma_range=(floor, max(_SIGMA_LIMIT, table.far(_FAR))),
        choice=choice,
        spread_weight=spread_weight,
        reweighted=settings.n_chains > 1,
        findings=diagnose(problem, state, expected),
    )


def first_stage(table: TrainingTable, settings: LinearSettings) -> tuple[Generator, float, SpreadChoice | None]:
    """Train every spread weight on every fold's rest, as chains of one computation; choose by what was left out.

    All are trained and scored under one kernel, a mixture of scales around that of the residuals, the widest so wide
    that a subgroup far from the pilot is not out of sight. Gives the chains of the chosen weight, to go on from.
    """
    if len(table) > _FIRST_ROWS:
        table = table.rows(evenly_spaced(len(table), _FIRST_ROWS))
    enough = len(table) >= _FEWEST_FOR_PATH[0] and table.n_measures >= _FEWEST_FOR_PATH[1]
    weights: tuple[float, ...] = PATH if enough else PATH[-1:]
    if settings.spread_weight != "auto":
        weights = (float(settings.spread_weight),)
    n_folds = N_FOLDS if len(table) < _MANY_ROWS else N_FOLDS // 2  # two tell enough where each is large
    chains = [(weight, fold) for weight in weights for fold in range(n_folds)]
    gps = replace(settings, seed=derive_seed(settings.seed, "first")).sampler(
        Mixture.of_scales(Gaussian("robust"), (0.1, 1.0, max(10.0, table.far(0.9) ** 2))),
        n_chains=len(chains),
        reweight=None,
        holdout=0.0,
        spread_weight=[weight for weight, _ in chains],
        folds=[fold for _, fold in chains] if enough else None,
    )
    with stage("choosing the spread" if len(weights) > 1 else "first stage"):
        problem, state = gps.train(table.x, table.y, mask=table.mask, weight=table.weight)
    recentre(problem, state, table, settings)
    choice, chosen = None, 0
    held_out = problem.source.held_out()
    if held_out is not None and len(weights) > 1:
        scores = evaluate(problem, state, held_out).score.double().reshape(len(weights), -1)
        # Who names groups says that they differ: then equal coefficients have to show that they are better.
        choice = choose_spread(
            weights,
            scores.nan_to_num(nan=1.0).numpy(),
            frequency=_held_out_weight(problem, n_folds),
            presume_equal=table.mask is None,
        )
        chosen = weights.index(choice.weight)
    candidates = range(chosen * n_folds, (chosen + 1) * n_folds)
    score = evaluate(problem, state, some_rows(problem)).score.mean(1).nan_to_num(nan=torch.inf)  # on the same rows
    best = sorted(candidates, key=lambda chain: float(score[chain]))[: n_folds // 2]  # others may be stuck
    return state.generator.select(best), weights[chosen], choice


def _held_out_weight(problem: Problem, n_folds: int) -> Array | None:
    """Frequencies of the held-out observations, all folds in turn."""
    assert isinstance(problem.source, ArraySource)
    rows, weight = problem.source.weights.held_out, problem.source.sample.weight
    return None if weight is None or rows is None else weight[rows[:n_folds]].double().flatten().numpy()


def recentre(problem: Problem, state: TrainingState, table: TrainingTable, settings: LinearSettings) -> None:
    """Move every chain's coefficients to the minimum of its loss over common shifts."""
    assert isinstance(problem.source, ArraySource)
    data, generator = problem.source.sample, state.generator
    assert data.x is not None
    draws = _draws(generator, _CENTRE_DRAWS, settings)
    floor = table.sigma_floor(data.x.shape[-1] + settings.intercept)
    variance = draws.sigma.square().median(1).values.clamp(min=floor**2)
    bandwidth = _CENTRE_MULTIPLE * table.measures_each * variance
    shift = common_shift(
        data.x,
        data.y,
        data.mask,
        problem.source.weights,
        draws,
        bandwidth,
        intercept=settings.intercept,
    ).to(draws.slope)
    shift = torch.where(torch.isfinite(shift).all(1, keepdim=True), shift, 0.0)
    slope = shift[:, : data.x.shape[-1]]
    generator.shift("slope", slope)
    if settings.intercept:
        by = shift[:, -1]
        if not settings.random_intercept:  # the level at the centre, which the pivot moves with the slopes
            pivot = generator(torch.zeros(generator.n_chains, 1, 1, generator.noise_dim))["pivot"][:, 0, 0].detach()
            by = by + (pivot * slope).sum(-1)
        generator.shift("intercept", by)


def residual_scale_around(table: TrainingTable, draws: LinearDraws, chains: Tensor, k: int) -> float:
    """Robust scale of the residuals around the mean coefficients of all chains."""
    slope, level = draws.slope[chains].mean((0, 1)), draws.level[chains].mean()
    residuals = table.y - level - table.x @ slope
    weight = torch.ones(len(table)) if table.weight is None else table.weight
    if table.mask is not None:
        residuals, weight = residuals[table.mask], weight[:, None].expand_as(table.y)[table.mask]
    return max(residual_scale(residuals.double().numpy(), k, weight.double().numpy()), _SIGMA_FLOOR)


def normal_theory(shape: tuple[int, ...] | torch.Size, df: float, seed: int) -> Tensor:
    """Draw a multivariate t in each row (chain), centred over the rows: what stands in for bootstrap chains."""
    rng = np.random.default_rng(derive_seed(seed, "normal-theory"))
    draws = rng.standard_normal(tuple(shape)) / np.sqrt(rng.chisquare(df, (shape[0], 1)) / df)
    return torch.from_numpy(draws - draws.mean(0)).float()


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))


def _listed(names: Sequence[str], chosen: NDArray[np.bool_]) -> str:
    return ", ".join(name for name, yes in zip(names, chosen, strict=True) if yes)


def _warn(message: str) -> None:
    warnings.warn(message, GPSWarning, stacklevel=4)
