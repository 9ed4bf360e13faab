r"""Training of a random intensity on counts: which surfaces are smooth enough, chains on thinned points, their mean.

Points are counted in cells, cells gathered in tiles. Every chain learns from a random part of the points, and the rest
decides when it stops: thinning a Poisson process gives two independent ones, so that held-out points test the whole
surface, where left-out cells would test how well it guesses across holes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor
from torch.distributions import Poisson

from gpsuq.core.generators import Generator
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import Batch, Observations
from gpsuq.core.parameters import DataScale, ParameterMap, Real
from gpsuq.core.seeds import derive_seed, random_block
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.generative import Problem, TrainingState, evaluate, init
from gpsuq.engine.loop import train
from gpsuq.engine.progress import stage, training_bar
from gpsuq.engine.ranks import share
from gpsuq.engine.settings import Algorithm
from gpsuq.engine.sources import BatchSource
from gpsuq.errors import DivergenceError, GPSError
from gpsuq.poisson.counts import BlockScore, bandwidth_ladder, pooled
from gpsuq.poisson.surfaces import Surface, SurfaceBody
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import TILE, Grid
from gpsuq.spatial.windows import Array

FREQUENCIES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Smoothness that is tried: standard deviation of the waves' frequencies, in cycles per longest side of the window."""

SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What the loadings on Z are multiplied by when the chains are asked whether there is any spread."""

SCALES = (1, 2, 4, 8, 16)
"""Sides of the blocks whose counts are scored, in cells."""

_CELLS_PER_WAVE = 8  # a wave shorter than so many cells could only follow single points
_PATH_FOLDS = 3
_FOLDS = 5
_TWINS = 2
_LEAST_FROM_DATA = 0.1
_MOST_REPLICATES = 4  # by which a step has more tiles where there are replicates
_AS_GOOD = 1.0  # standard errors
_BANDWIDTH = 4.0  # of the kernel on stabilised counts
_LEARNING_RATE = 1e-2
_EVALUATE_EVERY = 25
_EVALUATION_DRAWS, _EVALUATION_TILES = 4, 8
_SPREAD_DRAWS = 32
_MOST_COUNTS = 1 << 26  # chains x replicates x cells
_NUMBERS = 1 << 22  # held at once when evaluating surfaces


@dataclass(frozen=True)
class PoissonSettings:
    """How to train; see :class:`gpsuq.GPSPoissonProcess`."""

    n_chains: int
    n_steps: int
    n_draws: int
    batch_size: int
    frequency: float | None
    waves: int
    hidden: tuple[int, ...]
    noise_dim: int
    seed: int
    progress: bool
    fabric: Fabric


@dataclass(frozen=True)
class Locations:
    """From the user's coordinates and covariates to what the network sees: both centred and scaled."""

    center: Array  # (2,)
    length: float  # the window's longest side
    covariates: tuple[CovariateGrid, ...]
    covariate_center: Array
    covariate_scale: Array

    @classmethod
    def over(cls, grid: Grid, covariates: Sequence[CovariateGrid]) -> Locations:
        """Read centre and scale off the cells of a grid."""
        x_min, x_max, y_min, y_max = grid.window.bounds
        nodes = grid.nodes[grid.inside]
        columns = [covariate.at(nodes) for covariate in covariates]
        for covariate, column in zip(covariates, columns, strict=True):
            if not np.isfinite(column).all():
                x, y = nodes[(~np.isfinite(column)).argmax()]
                raise GPSError(f"covariate {covariate.name!r} is missing inside the window, near x = {x:g}, y = {y:g}")
        center, scale = (np.array([reduce(column) for column in columns]) for reduce in (np.mean, np.std))
        return cls(
            np.array([(x_min + x_max) / 2.0, (y_min + y_max) / 2.0]),
            max(x_max - x_min, y_max - y_min),
            tuple(covariates),
            center,
            np.where(scale > 0, scale, 1.0),
        )

    def inputs(self, points: Array) -> Tensor:
        """Return what the network sees of points (n, 2): (n, 2 + covariates)."""
        parts = [(points - self.center) / self.length]
        for number, covariate in enumerate(self.covariates):
            value = (covariate.at(points) - self.covariate_center[number]) / self.covariate_scale[number]
            parts.append(value[:, None])
        return torch.from_numpy(np.concatenate(parts, 1)).float()


def in_tiles(cells: NDArray[np.generic]) -> NDArray[np.generic]:
    """Gather (..., n_y, n_x) into tiles: (..., tile, cell)."""
    *lead, n_y, n_x = cells.shape
    split = cells.reshape(*lead, n_y // TILE, TILE, n_x // TILE, TILE)
    return np.moveaxis(split, -3, -2).reshape(*lead, -1, TILE * TILE)


class PatternSource(BatchSource):
    """Tiles of counts; every chain sees its own part of the points, and is tested on the rest.

    ``cells`` holds the cell of every point of every replicate; ``left_out`` names for each chain a partition of the
    points into ``n_folds`` folds, and the fold of it that the chain leaves out.
    """

    def __init__(
        self,
        grid: Grid,
        inputs: Tensor,
        cells: Sequence[NDArray[np.intp]],
        left_out: Sequence[tuple[int, int]],
        n_folds: int,
        batch_size: int,
        seed: int,
    ) -> None:
        size = grid.n_x * grid.n_y
        if size * len(cells) * len(left_out) > _MOST_COUNTS:
            raise GPSError(
                f"{len(left_out)} chains on {len(cells)} replicates of {size:,} cells do not fit in memory: take at "
                f"most n_cells={_MOST_COUNTS // (len(cells) * len(left_out))}"
            )
        self.seed = seed
        self.kept = 1.0 - 1.0 / n_folds
        counts, held_out = [], []
        for replicate, cell in enumerate(cells):
            counts.append(np.bincount(cell, minlength=size))
            parts = {}
            for partition in {partition for partition, _ in left_out}:
                block = random_block(seed, "partition", partition, replicate)
                fold = torch.randint(n_folds, (len(cell),), generator=block).numpy()
                parts[partition] = np.bincount(fold * size + cell, minlength=n_folds * size).reshape(n_folds, size)
            held_out.append(np.stack([parts[partition][fold] for partition, fold in left_out]))
        shape = grid.n_y, grid.n_x
        every = in_tiles(np.stack(counts).reshape(-1, *shape))  # (replicate, tile, cell)
        left = in_tiles(np.stack(held_out, 1).reshape(len(left_out), -1, *shape))  # (chain, replicate, tile, cell)
        self._held_out = torch.from_numpy(left).float().flatten(1, 2)
        total = torch.from_numpy(every).float().flatten(0, 1)
        self._train = total - self._held_out
        # The mean level is known well enough to start from; the network learns what differs from it.
        self.level = max(float(total.sum()), 1.0) / (len(cells) * grid.window.area)
        smallest = 1e-12 * grid.exposure.max()
        offset = np.log(np.maximum(in_tiles(grid.exposure), smallest) * self.level)[..., None]
        tiles = in_tiles(np.moveaxis(inputs.numpy().reshape(*shape, -1), -1, 0))
        x = torch.from_numpy(np.concatenate([np.moveaxis(tiles, 0, -1), offset], -1)).float()
        seen = torch.from_numpy(in_tiles(grid.exposure).sum(1) > 0).repeat(len(cells))
        self._rows = seen.nonzero().flatten()
        self._x = x.repeat(len(cells), 1, 1)
        self.sample = Observations(total[self._rows], self._x[self._rows])
        self.batch_size = min(batch_size, len(self._rows))
        self.length = len(self._rows) // self.batch_size
        self.weighted, self.n_observations = False, len(self._rows)

    def _tiles(self, counts: Tensor, rows: Tensor, share: float) -> Batch:
        x = self._x[rows].clone()
        x[..., -1] += math.log(share)
        return Batch(counts[:, rows, None], x[None, :, None])

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield all tiles in turn, in an order of this epoch's own."""
        order = torch.randperm(len(self._rows), generator=random_block(self.seed, "epoch", number))
        for first in range(start * self.batch_size, len(self._rows) - self.batch_size + 1, self.batch_size):
            mine, counts = share(order[first : first + self.batch_size])
            tiles = self._tiles(self._train, self._rows[mine], self.kept)
            yield tiles, torch.full((len(self._train), len(mine)), counts)

    def held_out(self) -> Batch:
        """Return the counts of the points that each chain did not see."""
        return self._tiles(self._held_out, self._rows, 1.0 - self.kept)

    def n_trained(self) -> Array:
        """Return the number of points that each chain learned from, scaled to all: (chain,)."""
        return np.asarray(self._train.sum((1, 2)).double().numpy() / self.kept)

    def scales(self) -> tuple[tuple[tuple[float, ...], ...], tuple[int, ...]]:
        """Return the bandwidths of the kernels and the largest count for every scale."""
        counts = [pooled(self.sample.y, TILE, scale) for scale in SCALES]
        return tuple(bandwidth_ladder(each, _BANDWIDTH) for each in counts), tuple(int(c.max()) for c in counts)


@dataclass(frozen=True)
class Choice:
    """The chosen value, and the table of those tried: held-out score, excess over the best and its standard error."""

    value: float
    table: pd.DataFrame


@dataclass(frozen=True)
class SurfaceNoise:
    """What draws of surfaces are made of, standard normal but for the first: one row per draw.

    ``chain`` (draw,) names whose loadings are taken, ``noise`` (draw, q) is Z, ``wobble`` (draw, chain) mixes the
    differences between chains.
    """

    chain: NDArray[np.intp]
    noise: Array
    wobble: Array

    def one(self, draw: int) -> SurfaceNoise:
        """Return a single draw."""
        return SurfaceNoise(self.chain[[draw]], self.noise[[draw]], self.wobble[[draw]])


@dataclass(frozen=True)
class Surfaces:
    """What is known of the intensity at some places: log mean (n,), differences (chain, n), loadings (chain, n, q)."""

    log_mean: Array
    apart: Array
    loading: Array

    def draws(self, noise: SurfaceNoise) -> Array:
        """Return the intensity of every draw, (draw, n); their mean is the mean intensity."""
        log_mean = self.log_mean - 0.5 * np.square(self.apart).sum(0)
        result = noise.wobble @ self.apart + log_mean
        for number in np.unique(noise.chain):
            mine, loading = noise.chain == number, self.loading[number]
            result[mine] += noise.noise[mine] @ loading.T - 0.5 * np.square(loading).sum(-1)
        np.exp(result, out=result)
        if not np.isfinite(result).all():
            raise DivergenceError("the intensity is not finite: training diverged or the model was damaged; fit again")
        return np.asarray(result)

    @property
    def heterogeneity(self) -> Array:
        """Standard deviation over Z, within chains, relative to the mean, (n,)."""
        return np.asarray(np.sqrt(np.expm1(np.square(self.loading).sum(-1)).mean(0)))

    @property
    def estimation(self) -> Array:
        """Standard deviation of what differs between chains, relative to the mean, (n,)."""
        return np.asarray(np.sqrt(np.expm1(np.square(self.apart).sum(0))))


@dataclass(frozen=True)
class PoissonFit:
    """Trained surfaces of all chains, with what leads from their noise to intensities in the user's units.

    ``level`` (chain,) is log of the intensity where the network gives 0; ``stretch`` is what the differences between
    chains are multiplied by, so that they show how estimates from new data would differ.
    """

    body: SurfaceBody
    locations: Locations
    level: Array
    smoothness: Choice | None
    frequency: float
    spread: Choice
    stretch: float

    def chains(self, points: Array) -> tuple[Array, Array]:
        """Return log of each chain's mean intensity (chain, n) and its loadings (chain, n, q)."""
        width = max(self.body.spec.waves, *self.body.spec.hidden)
        blocks = torch.from_numpy(points).split(max(1, _NUMBERS // (len(self.level) * width)))
        with torch.no_grad():
            found = [self.body.surfaces(self.locations.inputs(block.numpy())[None]) for block in blocks]
        mean, loading = (torch.cat(parts, 1).double().numpy() for parts in zip(*found, strict=True))
        # The mean over Z of exp(m + B'Z) is exp(m + |B|^2 / 2).
        return mean + self.level[:, None] + 0.5 * np.square(loading).sum(-1), loading

    def surfaces(self, points: Array) -> Surfaces:
        """Return what draws at points (n, 2) are made of."""
        log_mean, loading = self.chains(points)
        apart = (log_mean - log_mean.mean(0)) * (self.stretch / math.sqrt(len(log_mean)))
        return Surfaces(_log_of_mean(log_mean), apart, loading)

    def mean(self, points: Array) -> Array:
        """Mean intensity over chains and draws, (n,)."""
        return np.asarray(np.exp(_log_of_mean(self.chains(points)[0])))


def _log_of_mean(logs: Array) -> Array:
    return np.asarray(logsumexp(logs, axis=0) - math.log(len(logs)))


def _counts(x: Tensor, log_intensity: Tensor) -> Poisson:
    return Poisson(torch.exp(log_intensity.squeeze(-2) + x[..., -1]))  # an intensity for each cell


@dataclass(frozen=True)
class _Counting:
    """Points counted in cells, and what the network sees of the cells: all that chains are trained on."""

    grid: Grid
    locations: Locations
    points: Sequence[Array]
    settings: PoissonSettings

    def train(
        self,
        frequencies: Sequence[float],
        left_out: Sequence[tuple[int, int]],
        n_folds: int,
        ensemble: int,
        purpose: str,
    ) -> tuple[PatternSource, TrainingState]:
        """Train one chain for each frequency on the points that it does not leave out."""
        grid, settings = self.grid, self.settings
        n_covariates, n_chains = len(self.locations.covariates), len(frequencies)
        inputs = torch.zeros(grid.n_x * grid.n_y, 2 + n_covariates)
        inputs[torch.from_numpy(grid.inside.ravel())] = self.locations.inputs(grid.nodes[grid.inside])
        seed = derive_seed(settings.seed, purpose)
        batch_size = settings.batch_size * min(len(self.points), _MOST_REPLICATES)
        cells = [grid.cell_of(pattern) for pattern in self.points]
        source = PatternSource(grid, inputs, cells, left_out, n_folds, batch_size, seed)
        algorithm = Algorithm(
            n_steps=settings.n_steps,
            n_draws=settings.n_draws,
            batch_size=settings.batch_size,
            learning_rate=_LEARNING_RATE,
            evaluate_every=_EVALUATE_EVERY,
            clearly=0.0,
        )
        bandwidths, largest = source.scales()
        problem = Problem(
            source,
            ChainPlan(n_chains, reweight=None, holdout=0.0),
            algorithm,
            BlockScore(TILE, SCALES, bandwidths, ensemble, largest),
            seed,
            settings.fabric,
            evaluation_draws=_EVALUATION_DRAWS,
            evaluation_rows=_EVALUATION_TILES,
        )
        model = ObservationModel(_counts, log_intensity=Real(TILE * TILE))
        scale = DataScale(torch.zeros(()), torch.ones(()))
        spec = Surface(tuple(frequencies), n_covariates, settings.waves, settings.hidden, settings.noise_dim)
        body = spec.build(TILE * TILE, n_chains, scale, None, seed)
        state = init(problem, Generator(body, ParameterMap(model.parameters, None, scale), n_chains), model)
        with training_bar(settings.progress) as advance:
            train(state, problem.fabric, on_step=advance)
        return source, state


def fit_poisson(
    grid: Grid, covariates: Sequence[CovariateGrid], points: Sequence[Array], settings: PoissonSettings
) -> PoissonFit:
    """Choose the smoothness on the path, then train the chains whose mean is the fit."""
    counting = _Counting(grid, Locations.over(grid, covariates), points, settings)
    choice = _path(counting) if settings.frequency is None else None
    frequency = settings.frequency if choice is None else choice.value
    assert frequency is not None
    n_chains = settings.n_chains
    n_folds = _FOLDS if n_chains % _FOLDS == 0 else n_chains
    left_out = [divmod(chain, n_folds) for chain in range(n_chains)]
    left_out += left_out[:_TWINS]  # the same points, another start: what they differ by is no lack of points
    source, state = counting.train([frequency] * len(left_out), left_out, n_folds, len(left_out), "chains")
    spread = _choose_spread(state, source.held_out())
    body = state.generator.body.cpu().eval()
    assert isinstance(body, SurfaceBody)
    fit = PoissonFit(body, counting.locations, np.zeros(len(left_out)), choice, frequency, spread, 1.0)
    # The total of a maximum-likelihood fit is the number of points: set each chain's level so.
    nodes, exposure = grid.nodes[grid.inside], grid.exposure[grid.inside]
    log_mean, _ = fit.chains(nodes)
    level = np.log(np.maximum(source.n_trained(), 0.5) / (len(points) * (np.exp(log_mean) @ exposure)))
    alive = (~state.failed).nonzero().flatten().tolist()
    kept = [chain for chain in alive if chain < n_chains]
    twins = [(chain - n_chains, chain) for chain in alive if chain >= n_chains and chain - n_chains in kept]
    if len(kept) < 2:
        raise DivergenceError("fewer than two chains have a finite gradient; check covariates and coordinates")
    stretch = _stretch(log_mean + level[:, None], exposure, kept, twins, source.kept, n_folds)
    body.select(kept)
    return replace(fit, level=level[kept], stretch=stretch)


def _path(counting: _Counting) -> Choice:
    """Train a few chains for each frequency that the grid can show, and choose by held-out scores."""
    most = max(counting.grid.n_x, counting.grid.n_y) / _CELLS_PER_WAVE
    path = [value for value in FREQUENCIES if value <= most]
    with stage("choosing the smoothness"):
        source, state = counting.train(
            [value for value in path for _ in range(_PATH_FOLDS)],
            [(0, fold) for _ in path for fold in range(_PATH_FOLDS)],
            _PATH_FOLDS,
            _PATH_FOLDS,
            "path",
        )
    scores = evaluate(state, source.held_out()).score.double().nan_to_num(nan=0.0)  # below 0 unless diverged
    return simplest("frequency", path, scores[::_PATH_FOLDS].numpy())  # an ensemble's chains share one score


def _choose_spread(state: TrainingState, held_out: Batch) -> Choice:
    """Choose by held-out points whether the spread that the chains learned is kept or given up.

    A network can explain chance as spread: of a single pattern there are few blocks to tell them apart by. Spread is
    therefore given up unless some part of it is better on points that were left out, by more than one standard error.
    Then all of it is kept: what part is best can hardly be told. Whole tiles are judged, which have one Z each; smaller
    blocks would only add noise.
    """
    body, distance = state.generator.body, state.loss.distance
    assert isinstance(body, SurfaceBody)
    assert isinstance(distance, BlockScore)
    whole = copy.copy(state.loss)
    whole.distance = replace(distance, scales=distance.scales[-1:], bandwidths=distance.bandwidths[-1:])
    judged = replace(state, loss=whole, problem=replace(state.problem, evaluation_draws=_SPREAD_DRAWS))
    scores = []
    for factor in SPREADS:
        body.spread.fill_(factor)
        scores.append(evaluate(judged, held_out).score[0].double().nan_to_num(nan=0.0))
    choice = simplest("spread", SPREADS, torch.stack(scores).numpy())
    if choice.value > 0.0:
        choice = replace(choice, value=1.0)
    body.spread.fill_(choice.value)
    return choice


def _stretch(
    log_mean: Array,
    exposure: Array,
    chains: Sequence[int],
    twins: Sequence[tuple[int, int]],
    share: float,
    n_folds: int,
) -> float:
    r"""Return the factor by which the differences between chains are to be multiplied.

    Chains that learn from a share f of the points differ by :math:`(1 - f) / f` of the variance that estimates from new
    data would have. They also differ by where training started, which the mean over chains is nearly rid of: twins,
    trained on the same points, show how much of the variance that is. As it is estimated from few chains, the variance
    is that of Student's t.
    """
    weight = exposure / exposure.sum()
    between = float((log_mean[list(chains)].var(0)) @ weight)
    started = float(np.mean([np.square(log_mean[a] - log_mean[b]) @ weight / 2.0 for a, b in twins])) if twins else 0.0
    data = 1.0 if between <= 0.0 else max(1.0 - started / between, _LEAST_FROM_DATA)
    freedom = len(chains) - max(1, len(chains) // n_folds)
    heavier = freedom / (freedom - 2) if freedom > 4 else 2.0
    return math.sqrt(share / (1.0 - share) * data * heavier)


def simplest(name: str, values: Sequence[float], scores: Array) -> Choice:
    """Choose from held-out scores (value, tile), simplest first: the simplest that is about as good as the best.

    That is within one standard error of their difference, so that a constant is given up only where points ask for it.
    """
    mean = scores.mean(1)
    lost = scores - scores[mean.argmin()]
    excess = lost.mean(1)
    error = lost.std(1, ddof=1) / math.sqrt(scores.shape[1]) if scores.shape[1] > 1 else np.zeros(len(scores))
    chosen = int((excess <= _AS_GOOD * error).argmax())
    table = pd.DataFrame({"score": mean, "excess": excess, "standard_error": error}, index=pd.Index(values, name=name))
    return Choice(float(values[chosen]), table)
