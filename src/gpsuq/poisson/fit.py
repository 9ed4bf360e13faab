r"""Training of a random intensity on counts: chains on thinned points, and their mixture with kernel estimates.

Points are counted in cells, cells gathered in tiles. Every chain learns from a random part of the points, and the rest
decides when it stops and what it counts: thinning a Poisson process gives two independent ones, so that held-out points
test the whole surface, where left-out cells would test how well it guesses across holes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Poisson

from gpsuq.core.generators import Generator
from gpsuq.core.models import ObservationModel
from gpsuq.core.parameters import DataScale, ParameterMap, Real
from gpsuq.core.seeds import derive_seed
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.generative import TrainingState, init
from gpsuq.engine.loop import train
from gpsuq.engine.problem import Problem
from gpsuq.engine.progress import training_bar
from gpsuq.engine.scoring import evaluate
from gpsuq.engine.settings import Algorithm
from gpsuq.errors import DivergenceError
from gpsuq.poisson.counts import BlockScore
from gpsuq.poisson.errors import ErrorField, bias_factor, chance_in_blocks, typical
from gpsuq.poisson.kernels import kernel_candidates, kernel_grid
from gpsuq.poisson.law import Choice, KernelPart, PoissonFit, log_means
from gpsuq.poisson.stacking import Stack, stacked
from gpsuq.poisson.surfaces import Surface, SurfaceBody
from gpsuq.poisson.tiles import SCALES, Folds, Locations, PatternSource
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import TILE, Grid
from gpsuq.spatial.windows import Array

FREQUENCIES = (0.5, 1.5, 4.5, 13.5)
"""Smoothness that is tried: standard deviation of the waves' frequencies, in cycles per longest side of the window."""

SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What the loadings on Z are multiplied by when the chains are asked whether there is any spread."""

_CELLS_PER_WAVE = 8  # a wave shorter than so many cells could only follow single points
_FOLDS = 5
_MOST_REPLICATES = 4  # by which a step has more tiles where there are replicates
_LEARNING_RATE = 1e-2
_EVALUATE_EVERY = 50
_EVALUATION_DRAWS, _EVALUATION_TILES = 4, 8
_SPREAD_DRAWS = 32
_WEIGHED = 5_000  # points that weights are chosen by
_COUNTS = 0.01  # smallest weight that is kept
_CLEARLY = 2.0  # standard errors
_ERROR_BLOCK = 0.5  # lengths of the errors, along the side of the blocks that show their bias


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


def _counts(x: Tensor, log_intensity: Tensor) -> Poisson:
    return Poisson(torch.exp(log_intensity.squeeze(-2) + x[..., -1]))  # an intensity for each cell


def fit_poisson(
    grid: Grid, covariates: Sequence[CovariateGrid], points: Sequence[Array], settings: PoissonSettings
) -> PoissonFit:
    """Train chains of every smoothness on parts of the points, and mix them by the points that they left out."""
    locations = Locations.over(grid, covariates)
    n_folds = _FOLDS if settings.n_chains % _FOLDS == 0 else settings.n_chains
    folds = Folds.split(points, settings.n_chains, n_folds, derive_seed(settings.seed, "chains"))
    path = _path(grid, waveless=bool(covariates) or len(points) > 1)
    path = path if settings.frequency is None else [settings.frequency]
    source, state = _trained(grid, locations, points, settings, folds, path)
    body = state.generator.body.cpu().eval()
    assert isinstance(body, SurfaceBody)
    healthy = (~state.failed).reshape(len(path), -1).all(1).numpy()
    if not healthy.any():
        raise DivergenceError("no network has a finite gradient; check covariates and coordinates")
    estimates = _Estimates.of(grid, points, folds, path, body, locations)
    only = None if settings.frequency is None else 1
    stack = estimates.weigh(healthy, only=only)
    density, by_wave = estimates.mixed(stack.weights), stack.weights[1 : 1 + len(path)]
    leading = _leading(by_wave, estimates, healthy)
    members = np.arange(len(path) * settings.n_chains).reshape(len(path), -1)
    mine = members[leading].tolist()
    spread = _choose_spread(state, source, mine)
    body.spread[:] = 0.0
    body.spread[mine] = spread.value
    n = sum(map(len, points)) / len(points)
    kept = [m for wave, group in enumerate(members) if wave == leading or by_wave[wave] > 0.0 for m in group.tolist()]
    level = math.log(n) - np.log(estimates.totals[kept])
    weight = (by_wave / settings.n_chains).repeat(settings.n_chains)[kept]
    error = _error(estimates, density, len(points))
    body.select(kept)
    table = estimates.table(stack) if settings.frequency is None else None
    flat = stack.weights[0] == 1.0 or (path[leading] == 0.0 and by_wave[leading] + stack.weights[0] > 1.0 - _COUNTS)
    frequency = 0.0 if flat else path[leading]
    smoothness = None if table is None else Choice(frequency, table)
    kernel = estimates.kernel_part(stack.weights, n)
    return PoissonFit(body, locations, grid, level, weight, kernel, error, smoothness, frequency, spread)


def _path(grid: Grid, *, waveless: bool) -> list[float]:
    """Return the frequencies that the grid can show; 0 only where the network sees more than a place."""
    most = max(grid.n_x, grid.n_y) / _CELLS_PER_WAVE
    return [0.0] * waveless + [value for value in FREQUENCIES if value <= most]


def _trained(
    grid: Grid,
    locations: Locations,
    points: Sequence[Array],
    settings: PoissonSettings,
    folds: Folds,
    path: Sequence[float],
) -> tuple[PatternSource, TrainingState]:
    """Train a chain for each frequency and each part of the points, all of them side by side."""
    frequencies = tuple(frequency for frequency in path for _ in folds.left_out)
    inputs = torch.zeros(grid.n_x * grid.n_y, 2 + len(locations.covariates))
    inputs[torch.from_numpy(grid.inside.ravel())] = locations.inputs(grid.nodes[grid.inside])
    seed = derive_seed(settings.seed, "chains")
    batch_size = settings.batch_size * min(len(points), _MOST_REPLICATES)
    cells = [grid.cell_of(pattern) for pattern in points]
    source = PatternSource(grid, inputs, cells, folds, len(path), batch_size, seed)
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
        ChainPlan(len(frequencies), reweight=None, holdout=0.0),
        algorithm,
        BlockScore(TILE, SCALES, bandwidths, len(folds.left_out), largest),
        seed,
        settings.fabric,
        evaluation_draws=_EVALUATION_DRAWS,
        evaluation_rows=_EVALUATION_TILES,
    )
    model = ObservationModel(_counts, log_intensity=Real(TILE * TILE))
    scale = DataScale(torch.zeros(()), torch.ones(()))
    spec = Surface(frequencies, len(locations.covariates), settings.waves, settings.hidden, settings.noise_dim)
    body = spec.build(TILE * TILE, len(frequencies), scale, None, seed)
    state = init(problem, Generator(body, ParameterMap(model.parameters, None, scale), len(frequencies)), model)
    with training_bar(settings.progress) as advance:
        train(state, problem.fabric, on_step=advance)
    return source, state


@dataclass(frozen=True)
class _Estimates:
    """Densities over the window of all candidates, each from the points that a chain sees: first a constant.

    Networks are known at the nodes of the grid, kernels on the cells of a finer one.
    """

    grid: Grid
    fine: Grid
    points: Sequence[Array]
    folds: Folds
    path: Sequence[float]
    waves: Array  # (frequency, chain, node)
    totals: Array  # (frequency x chain,), what the networks integrate to
    names: list[tuple[str, float]]
    kernels: Array  # (kernel, chain, row, column)

    @classmethod
    def of(
        cls,
        grid: Grid,
        points: Sequence[Array],
        folds: Folds,
        path: Sequence[float],
        body: SurfaceBody,
        locations: Locations,
    ) -> _Estimates:
        """Evaluate the networks on the grid, and smooth the points that each chain sees."""
        surfaces = np.exp(log_means(body, locations, grid.nodes[grid.inside])[0])
        totals = surfaces @ grid.exposure[grid.inside]
        waves = (surfaces / totals[:, None]).reshape(len(path), len(folds.left_out), -1)
        fine = kernel_grid(grid.window)
        size = fine.n_x * fine.n_y
        cells = [fine.cell_of(pattern) for pattern in points]
        left = folds.counts(cells, size).sum(1).reshape(-1, fine.n_y, fine.n_x)
        every = np.bincount(np.concatenate(cells), minlength=size).reshape(fine.n_y, fine.n_x)
        names, kernels = kernel_candidates((every - left).astype(np.float64), left, fine)
        return cls(grid, fine, points, folds, path, waves, totals, names, kernels)

    def held_out(self) -> tuple[Array, NDArray[np.int64]]:
        """Return densities of left-out points (partition, point, candidate), and folds to judge weights by."""
        every = np.concatenate(list(self.points))
        some = np.random.default_rng(0).permutation(len(every))[:_WEIGHED]
        node = np.cumsum(self.grid.inside.ravel())[self.grid.cell_of(every[some])] - 1
        cell = self.fine.cell_of(every[some])
        partitions = [np.concatenate(partition)[some] for partition in self.folds.of_points]
        n_folds, flat = self.folds.n_folds, self.kernels.reshape(*self.kernels.shape[:2], -1)
        constant = np.full((1, len(some)), 1.0 / self.grid.window.area)
        density = []
        for number, fold in enumerate(partitions):
            chain = np.minimum(number * n_folds + fold, len(self.folds.left_out) - 1)
            density.append(np.concatenate([constant, self.waves[:, chain, node], flat[:, chain, cell]]).T)
        return np.maximum(np.stack(density), 1e-9 * constant[0, 0]), partitions[0]

    def weigh(self, healthy: NDArray[np.bool_], *, only: int | None) -> Stack:
        """Choose the weights of the candidates, or give all of it to one."""
        n_candidates = 1 + len(self.path) + len(self.names)
        if only is not None:
            return Stack(np.eye(n_candidates)[only], math.nan, math.nan)
        density, fold = self.held_out()
        usable = np.ones(n_candidates, dtype=bool)
        usable[1 : 1 + len(self.path)] = healthy
        found = stacked(density[..., usable], fold)
        weights = np.zeros(n_candidates)
        weights[usable] = np.where(found.weights < _COUNTS, 0.0, found.weights)
        return replace(found, weights=weights / weights.sum())

    def mixed(self, weights: Array) -> Array:
        """Return the mixture of the candidates of each chain at the nodes of the grid: (chain, node)."""
        cell = self.fine.cell_of(self.grid.nodes[self.grid.inside])
        flat = self.kernels.reshape(*self.kernels.shape[:2], -1)[:, :, cell]
        n_waves = len(self.path)
        waves = np.tensordot(weights[1 : 1 + n_waves], self.waves, 1)
        return np.asarray(weights[0] / self.grid.window.area + waves + np.tensordot(weights[1 + n_waves :], flat, 1))

    def kernel_part(self, weights: Array, n: float) -> KernelPart | None:
        """Return what the constant and the kernels add to the intensity of ``n`` points."""
        constant, others = weights[0] / self.grid.window.area, weights[1 + len(self.path) :]
        if constant == 0.0 and not others.any():
            return None
        return KernelPart(self.fine, n * (constant + np.tensordot(others, self.kernels.mean(1), 1)))

    def table(self, stack: Stack) -> pd.DataFrame:
        """Return each candidate's held-out log density a point beyond a constant's, and its weight in the mean."""
        density, _ = self.held_out()
        gain = np.log(density / density[..., :1]).mean(0)
        names = [
            "constant",
            *(f"waves {value:g}" for value in self.path),
            *(f"{k} {width:.3g}" for k, width in self.names),
        ]
        error = gain.std(0, ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else np.zeros(gain.shape[1])
        columns = {"gain": gain.mean(0), "standard_error": error, "weight": stack.weights}
        return pd.DataFrame(columns, index=pd.Index(names, name="candidate"))


def _leading(by_wave: Array, estimates: _Estimates, healthy: NDArray[np.bool_]) -> int:
    """Return the frequency that counts most, or where none does, that of the best networks."""
    if by_wave.any():
        return int(by_wave.argmax())
    density, _ = estimates.held_out()
    gain = np.log(density[..., 1 : 1 + len(estimates.path)]).mean((0, 1))
    return int(np.where(healthy, gain, -np.inf).argmax())


def _error(estimates: _Estimates, density: Array, n_replicates: int) -> ErrorField:
    """Read off how far the mixture may be off: a length from how chains differ, a factor from what they left out.

    Chains that see a share f of the points differ by :math:`(1 - f) / f` of the variance of estimates from new data.
    """
    grid, folds = estimates.grid, estimates.folds
    cells = [grid.cell_of(pattern) for pattern in estimates.points]
    left = folds.counts(cells, grid.n_x * grid.n_y).sum(1).reshape(len(density), *grid.inside.shape)
    total = sum(map(len, cells))
    seen = np.maximum(total - left.sum((1, 2)), 0.5) / folds.kept  # of all points, as each chain would have it
    intensity = density * seen[:, None]
    between = folds.kept / (1.0 - folds.kept) * np.log(np.maximum(intensity, 1e-300)).var(0, ddof=1)
    level, length = typical(total * density.mean(0), between, grid)
    widest = max(grid.cell_size)
    side = min(SCALES, key=lambda scale: abs(math.log(scale * widest / (_ERROR_BLOCK * length))))

    def in_blocks(values: Array) -> Array:
        shape = len(values), grid.n_y // side, side, grid.n_x // side, side
        return np.asarray(values.reshape(shape).sum((2, 4)).reshape(-1, folds.n_folds, np.prod(shape[1::2])))

    expected = np.zeros(left.shape)
    expected[:, grid.inside] = intensity * grid.exposure[grid.inside]
    estimated = in_blocks(expected)
    area = grid.exposure.reshape(grid.n_y // side, side, grid.n_x // side, side).sum((1, 3)).ravel()
    chance = chance_in_blocks(estimated.mean((0, 1)), area, length, level, grid) / folds.kept
    factor = bias_factor(in_blocks(left.astype(np.float64)), estimated, chance)
    return ErrorField(length, factor / n_replicates, level / n_replicates)


def _choose_spread(state: TrainingState, source: PatternSource, chains: list[int]) -> Choice:
    """Choose by held-out points what part of the spread that the chains learned is kept.

    A network can explain chance as spread: of a single pattern there are few blocks to tell them apart by. Spread is
    therefore given up unless its best part is better on points that were left out by more than two standard errors.
    Whole tiles are judged, which have one Z each; smaller blocks would only add noise.
    """
    generator = state.generator.select(chains)
    body, distance = generator.body, state.loss.distance
    assert isinstance(body, SurfaceBody)
    assert isinstance(distance, BlockScore)
    whole = copy.copy(state.loss)
    whole._modules = dict(state.loss._modules) | {"generator": generator}
    whole.distance = replace(distance, scales=distance.scales[-1:], bandwidths=distance.bandwidths[-1:])
    plan = replace(state.problem.plan, n_chains=len(chains))
    problem = replace(state.problem, plan=plan, evaluation_draws=_SPREAD_DRAWS)
    judged, held_out = replace(state, loss=whole, problem=problem), source.held_out(chains)
    scores = []
    for factor in SPREADS:
        body.spread.fill_(factor)
        scores.append(evaluate(judged, held_out).score[0].double().nan_to_num(nan=0.0))
    return best_clearly("spread", SPREADS, torch.stack(scores).numpy())


def best_clearly(name: str, values: Sequence[float], scores: Array) -> Choice:
    """Choose from held-out scores (value, tile), lower is better: the best, or the first if that is not clearly worse.

    Clearly is by more than two standard errors of their difference.
    """
    mean = scores.mean(1)
    best = int(mean.argmin())
    lost = scores - scores[best]
    excess = lost.mean(1)
    error = lost.std(1, ddof=1) / math.sqrt(scores.shape[1]) if scores.shape[1] > 1 else np.zeros(len(scores))
    chosen = best if excess[0] > _CLEARLY * error[0] else 0
    table = pd.DataFrame({"score": mean, "excess": excess, "standard_error": error}, index=pd.Index(values, name=name))
    return Choice(float(values[chosen]), table)
