r"""Fitting a nonlinear regression: generators of several kinds, each in chains that leave out rows.

Up to 4,096 rows are dealt into folds twice, and every chain leaves out a fold of one of the deals. What a chain says of
rows that it left out

- stops training, by the mean over all chains;
- weighs the kinds of generators (:mod:`gpsuq.regress.stacking`);
- calibrates the predictive (:mod:`gpsuq.core.calibration`), after a correction: two chains have not seen a row, one of
  each deal, but all C chains answer for a new one. They err less, and their mixture is wider: the normal scores of
  outcomes are smaller. How much is measured: each of the two alone, and both together, give scores of sizes (root mean
  squares) z_1 and z_2; on a straight line in one over the number of chains all have z_2 - (z_1 - z_2) (1 - 2 / C). The
  two saw different rows, as any two chains did.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm
from torch import Tensor

from gpsuq.core.calibration import Calibration, fit_calibration, identity_calibration
from gpsuq.core.distances import Distance
from gpsuq.core.generators import Generator, GeneratorSpec
from gpsuq.core.observations import Observations
from gpsuq.core.parameters import ParameterMap
from gpsuq.core.seeds import derive_seed, quasi_normal
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.generative import init
from gpsuq.engine.loop import train
from gpsuq.engine.problem import Problem
from gpsuq.engine.progress import stage, training_bar
from gpsuq.engine.settings import Algorithm
from gpsuq.engine.sources import ArraySource
from gpsuq.errors import GPSError
from gpsuq.regress.families import NORMAL_NAMES, Array, Family, Outcome, Parameters
from gpsuq.regress.forest import Forest, grow
from gpsuq.regress.network import ChainTabular
from gpsuq.regress.stacking import mixture_crps, stacking_weights

JUDGES = 2  # chains that have not seen a row: one for each time that rows are dealt into folds
DRAWS = 16  # of each chain, that predictions are made of
_EVALUATIONS = 30  # of held-out rows in a round of training
_LONGER = 3  # times as long is a second round, where one is worth it
_STILL_FALLING = 0.85  # of its value after three quarters of a round: a held-out score that makes it worth it
_FIRST_SCALE = 0.22  # of the spread of y, before training: wide components would hide branches
_PATIENCE = 0.35  # share of the steps without improvement that ends it
_EVALUATION_DRAWS = 32
_FEWEST_FOR_CALIBRATION = 30
_FEWEST_FOR_SCALE = 200  # rows that tell whether the calibration changes with x
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.7)  # of the spread of a chain's trees, that may be the scale of a draw
_SCALE_ROWS = 1000  # that choose among them
_LARGEST_SCORE = 3.0  # one row must not decide
_LEAST_LEFT = 0.7  # of normal scores: averaging more chains is not trusted to gain more
_BACKGROUND = 2.0  # standard deviations of y: how far the rest of the mass spreads that rows cannot rule out
_COMPONENT_CELLS = 1 << 18  # row x component, at once: what is computed of them stays in the cache


@dataclass(frozen=True)
class Kind:
    """A kind of generator, and how fast it learns."""

    name: str
    spec: GeneratorSpec
    learning_rate: float


@dataclass(frozen=True)
class RegressionSettings:
    """How a regression is trained."""

    n_chains: int
    n_steps: int
    n_draws: int
    batch_size: int
    distance: Distance
    seed: int
    fabric: Fabric
    progress: bool

    def plan(self, n: int) -> ChainPlan:
        """Return the chains of one kind: folds where there are enough of n rows or groups for them."""
        n_folds = self.n_chains // JUDGES
        if n_folds < 2 or n < 2 * n_folds:
            return ChainPlan(self.n_chains, None, holdout=0.0)
        folds = [chain % (JUDGES * n_folds) for chain in range(self.n_chains)]
        return ChainPlan(self.n_chains, None, holdout=0.0, folds=folds, deals=JUDGES)

    def algorithm(self, learning_rate: float, n_steps: int) -> Algorithm:
        """Return the settings of a round of training."""
        every = max(1, n_steps // _EVALUATIONS)
        return Algorithm(
            n_steps=n_steps,
            batch_size=self.batch_size,
            n_draws=self.n_draws,
            learning_rate=learning_rate,
            evaluate_every=every,
            patience=max(1, round(_PATIENCE * n_steps / every)),
            clearly=0.0,
        )


@dataclass(frozen=True)
class Network:
    """Trained networks, and the noise of all predictions, which is the same for all rows and chains."""

    generator: Generator
    noise: Tensor  # (draw, q)
    n_outputs: int

    @property
    def n_chains(self) -> int:
        """How many chains there are."""
        return self.generator.n_chains

    def select(self, chains: Sequence[int]) -> Network:
        """Return the named chains."""
        return replace(self, generator=self.generator.select(chains))

    def blocks(self, x: Array, step: int) -> Iterator[dict[str, Array]]:
        """Yield the parameters of so many rows at a time."""
        return (self.parameters(x[start : start + step]) for start in range(0, len(x), step))

    def parameters(self, x: Array) -> dict[str, Array]:
        """Return the parameters of every draw, (row, chain and draw, output)."""
        noise = self.noise.expand(self.n_chains, 1, -1, -1)
        with torch.no_grad():
            found = self.generator(noise, torch.from_numpy(np.ascontiguousarray(x))[None, :, None])
        shape = self.n_chains, len(x), len(self.noise)
        return {
            name: value.expand(*shape, *value.shape[3:])
            .reshape(*shape, self.n_outputs)
            .permute(1, 0, 2, 3)
            .reshape(len(x), -1, self.n_outputs)
            .double()
            .numpy()
            for name, value in found.items()
        }


@dataclass(frozen=True)
class Member:
    """One kind of generator after training, with ``DRAWS`` draws of each chain, and how much it counts."""

    name: str
    drawn: Network | Forest
    weight: float = 1.0


@dataclass(frozen=True)
class LeftOut:
    """Rows that chains of one kind had left out: their numbers, their judges' (row, judge), and parameters.

    Parameters are (row, judge and draw, output).
    """

    rows: NDArray[np.int64]
    judges: NDArray[np.int64]
    parameters: dict[str, Array]


@dataclass
class RegressionFit:
    """Everything that predictions are made of."""

    family: Family
    members: list[Member]
    center: Array  # of y, one for each output
    scale: Array
    seed: int
    calibrations: list[Calibration] = field(default_factory=list)
    ranks: Array = field(default_factory=lambda: np.empty((0, 1)))  # calibrated, of rows left out: (row, output)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # their numbers
    judges: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, JUDGES), dtype=np.int64))  # chains, by row
    findings: list[Finding] = field(default_factory=list)
    held_out: dict[str, list[float]] = field(default_factory=dict)  # scores on the way, by kind
    steps: list[int] = field(default_factory=list)

    @property
    def n_outputs(self) -> int:
        """How many outcomes a row has."""
        return len(self.center)

    @property
    def weights(self) -> Array:
        """Weight of every component, (component,)."""
        each = [np.full(m.drawn.n_chains * DRAWS, m.weight / (m.drawn.n_chains * DRAWS)) for m in self.members]
        return np.concatenate(each)

    @property
    def chain_of(self) -> NDArray[np.int64]:
        """Number of the chain of every component, counted over all kinds."""
        n_chains = sum(member.drawn.n_chains for member in self.members)
        return np.repeat(np.arange(n_chains), DRAWS)

    def blocks(self, x: Array) -> Iterator[tuple[slice, dict[str, Array]]]:
        """Yield the parameters (row, component, output) of some rows at a time, in the units of the training."""
        step = max(1, _COMPONENT_CELLS // (len(self.weights) * self.n_outputs))
        together = zip(*(member.drawn.blocks(x, step) for member in self.members), strict=True)
        for start, found in zip(range(0, len(x), step), together, strict=True):
            whole = {name: np.concatenate([part[name] for part in found], axis=1) for name in found[0]}
            yield slice(start, start + step), whole

    def with_background(self, density: Array, y: Array) -> Array:
        """Mix a density at y (row,) with a wide Normal that counts like one row more than were left out."""
        if self.family.units == "own" or not len(self.rows):
            return density
        share = 1.0 / (len(self.rows) + 1)
        return np.asarray((1.0 - share) * density + share * norm.pdf(y, scale=_BACKGROUND))

    def to_units(self, y: Array) -> Array:
        """Return outcomes (row, output) in the units of the training."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(((np.log(y) if self.family.units == "log" else y) - self.center) / self.scale)

    def from_units(self, y: Array, output: int) -> Array:
        """Return numbers of one output in the user's units."""
        there = self.center[output] + self.scale[output] * y
        return np.asarray(np.exp(there) if self.family.units == "log" else there)


def fit_regression(
    x: Array,
    y: Array,
    weight: Array | None,
    groups: NDArray[np.int64] | None,
    family: Family,
    kinds: Sequence[Kind],
    settings: RegressionSettings,
    *,
    forest: bool = False,
) -> RegressionFit:
    """Train generators of all kinds on encoded rows x (n, p) and outcomes y (n, output), and calibrate them.

    ``forest`` adds one whose draws are trees, for a single outcome that has a location and a scale.
    """
    center, scale = _units(y, family)
    fit = RegressionFit(family, [], center, scale, settings.seed)
    standard = fit.to_units(y)
    n_units = len(y) if groups is None else len(np.unique(groups))
    plan = settings.plan(n_units)
    target = torch.from_numpy(standard if y.shape[1] > 1 else standard[:, 0]).float()
    data = Observations(target, torch.from_numpy(x), None, None if weight is None else torch.from_numpy(weight).float())
    codes = None if groups is None else torch.from_numpy(groups)
    # The same rows are left out by all kinds, so that they can be compared and mixed.
    source = ArraySource(data, plan, settings.batch_size, settings.seed, codes)
    fit.members = [Member(kind.name, _trained(kind, source, plan, family, settings, fit)) for kind in kinds]
    rows = source.weights.held_out
    left_out = [] if rows is None else [_left_out(member.drawn, x, rows) for member in fit.members]
    if rows is not None and forest:
        unseen = [each.nonzero().flatten().numpy() for each in source.weights.left_out(torch.arange(len(y)))]
        grown = grow(x, standard[:, 0], weight, unseen, DRAWS, settings.seed)
        grown, asked = _settle_scale(grown, _left_out(grown, x, rows), standard[:, 0])
        fit.members.append(Member("forest", grown))
        left_out.append(asked)
    fit.members = [replace(member, weight=1.0 / len(fit.members)) for member in fit.members]
    if left_out and len(left_out[0].rows) >= _FEWEST_FOR_CALIBRATION:
        _weigh(fit, standard, left_out)
        _calibrate(fit, standard, [part for part, m in zip(left_out, fit.members, strict=True) if m.weight > 0])
    else:
        fit.calibrations = [identity_calibration(2) for _ in range(y.shape[1])]
    fit.members = [member for member in fit.members if member.weight > 0]
    fit.findings = _findings(fit, f"{n_units} {'rows' if groups is None else 'groups'}")
    return fit


def _units(y: Array, family: Family) -> tuple[Array, Array]:
    if family.units == "own":
        return np.zeros(y.shape[1]), np.ones(y.shape[1])
    values = np.log(y) if family.units == "log" else y
    with np.errstate(over="ignore", invalid="ignore"):
        center, scale = values.mean(0), values.std(0)
    if not (np.isfinite(center) & np.isfinite(scale)).all():
        raise GPSError("y varies by more than a number can hold: give it in another unit")
    return center, scale


def _trained(
    kind: Kind,
    source: ArraySource,
    plan: ChainPlan,
    family: Family,
    settings: RegressionSettings,
    fit: RegressionFit,
) -> Network:
    """Train the chains of one kind: one round, and a longer one where held-out rows still ask for it at the end."""
    seed, data = derive_seed(settings.seed, kind.name), source.sample
    observed = data.scale()
    parameter_map = ParameterMap(family.model.parameters, data.n_features, observed)
    body = kind.spec.build(parameter_map.width(random=True), plan.n_chains, observed, data.n_features, seed)
    if isinstance(body, ChainTabular):
        body.start_from(_first_raw(parameter_map))
    generator, scores, steps = Generator(body, parameter_map, plan.n_chains), [math.inf], 0
    for number, n_steps in enumerate((settings.n_steps, _LONGER * settings.n_steps)):
        problem = Problem(
            *(source, plan, settings.algorithm(kind.learning_rate, n_steps), settings.distance),
            *(derive_seed(seed, "round", number), settings.fabric),
            evaluation_draws=_EVALUATION_DRAWS,
            together=True,
        )
        state = init(problem, copy.deepcopy(generator), family.model)
        again = ", going on" if number else ""
        shown = settings.progress and settings.fabric.is_global_zero
        with stage(f"training generators ({kind.name}){again}"), training_bar(shown) as advance:
            train(state, settings.fabric, on_step=advance)
        if bool(state.failed.any()):
            raise GPSError(
                f"training of the {kind.name} generator diverged: check y and X for values far from all others"
            )
        found = [float(each.mean()) for each in state.history.held_out]
        if min(found, default=0.0) < min(scores):
            generator = state.generator
        scores, steps = scores + found, steps + state.step
        if state.step < n_steps or not _still_falling(found):
            break
    fit.held_out[kind.name], fit.steps = scores[1:], [*fit.steps, steps]
    generator = generator.cpu().eval()
    return Network(generator, quasi_normal(DRAWS, generator.noise_dim, settings.seed), fit.n_outputs)


def _first_raw(parameter_map: ParameterMap) -> Tensor:
    """Return what scales are to be before training, in the generator's raw numbers: (output,)."""
    start = {name: math.log(_FIRST_SCALE) * (p.unit == "scale") for name, p in parameter_map.declared.items()}
    return torch.cat(
        [torch.full((math.prod(parameter_map.shapes[name]),), start[name]) for name in parameter_map.names(random=True)]
    )


def _still_falling(scores: Sequence[float]) -> bool:
    """Whether a held-out score fell much in the last quarter of a round; one that is not 0 at best cannot tell."""
    return len(scores) >= _EVALUATIONS and 0.0 < scores[-1] < _STILL_FALLING * scores[3 * len(scores) // 4]


def _left_out(drawn: Network | Forest, x: Array, rows: Tensor) -> LeftOut:
    """Ask the chains about the rows (chain, row) that they left out."""
    n_folds = drawn.n_chains // JUDGES
    numbers = np.sort(rows[:n_folds].flatten().numpy())
    judges = np.empty((len(numbers), JUDGES), dtype=np.int64)
    parameters: dict[str, Array] = {}
    for chain in range(JUDGES * n_folds):
        asked, deal = rows[chain].numpy(), chain // n_folds
        at = np.searchsorted(numbers, asked)
        judges[at, deal] = chain
        for name, value in drawn.select([chain]).parameters(x[asked]).items():
            whole = parameters.setdefault(name, np.empty((len(numbers), JUDGES, *value.shape[1:])))
            whole[at, deal] = value
    flat = {name: value.reshape(len(numbers), -1, value.shape[-1]) for name, value in parameters.items()}
    return LeftOut(numbers, judges, flat)


def _settle_scale(forest: Forest, asked: LeftOut, y: Array) -> tuple[Forest, LeftOut]:
    """Choose the scale of a forest's draws by the CRPS of rows that were left out."""
    unit = asked.parameters["scale"][:, :, 0] / forest.share
    loc, weight = asked.parameters["loc"][:, :, 0], np.full(unit.shape[1], 1.0 / unit.shape[1])
    some = slice(None, None, -(-len(loc) // _SCALE_ROWS))
    scores = [mixture_crps(y[asked.rows][some], loc[some], share * unit[some], weight).mean() for share in _SHARES]
    share = _SHARES[int(np.argmin(scores))]
    parameters = asked.parameters | {"scale": share * unit[:, :, None]}
    return replace(forest, share=share), replace(asked, parameters=parameters)


def output_of(parameters: Parameters, output: int) -> dict[str, Array]:
    """Return the parameters (row, component) of one output."""
    return {name: value[:, :, output] for name, value in parameters.items()}


def _weigh(fit: RegressionFit, y: Array, left_out: Sequence[LeftOut]) -> None:
    """Weigh the kinds by rows that they left out; several outputs count alike."""
    outcome, rows = fit.family.outcome, left_out[0].rows
    weights = np.zeros(len(left_out))
    for output in range(fit.n_outputs):
        locs, scales = [], []
        for part in left_out:
            own = output_of(part.parameters, output)
            exact = set(own) == {"loc", "scale"} and fit.family.name in NORMAL_NAMES
            locs.append(own["loc"] if exact else outcome.sample(own, fit.seed))
            scales.append(own["scale"] if exact else np.zeros_like(locs[-1]))
        weights += stacking_weights(y[rows, output], locs, scales) / fit.n_outputs
    fit.members = [replace(member, weight=float(w)) for member, w in zip(fit.members, weights, strict=True)]


def _calibrate(fit: RegressionFit, y: Array, left_out: Sequence[LeftOut]) -> None:
    """Calibrate every output by rows that were left out."""
    shares = [member.weight for member in fit.members if member.weight > 0]
    rows, outcome = left_out[0].rows, fit.family.outcome
    fit.rows, fit.judges, ranks = rows, left_out[0].judges, []
    weight = np.repeat(shares, JUDGES * DRAWS) / (JUDGES * DRAWS)
    for output in range(fit.n_outputs):
        own = [output_of(part.parameters, output) for part in left_out]
        whole = {name: np.concatenate([part[name] for part in own], axis=1) for name in own[0]}
        scores = outcome.normal_scores(y[rows, output], whole, weight)
        mean, variance = moments(outcome.mean(whole), outcome.variance(whole), weight)
        factor = _ensemble_factor(scores, _alone(y[rows, output], own, shares, outcome), fit.members[0].drawn.n_chains)
        known = np.column_stack([mean, 0.5 * np.log(variance)])
        varies = len(rows) >= _FEWEST_FOR_SCALE
        fit.calibrations.append(fit_calibration(known, factor * scores, varies=varies, seed=fit.seed))
        ranks.append(_cross_calibrated(known, factor * scores, varies, fit.seed))
    fit.ranks = np.stack(ranks, axis=1)


def _alone(y: Array, parameters: Sequence[Parameters], shares: Sequence[float], outcome: Outcome) -> Array:
    """Return the normal scores of outcomes (row,) that every judge alone gives, (row, judge)."""
    weight = np.repeat(shares, DRAWS) / DRAWS
    found = []
    for judge in range(JUDGES):
        own = slice(judge * DRAWS, (judge + 1) * DRAWS)
        mixed = {name: np.concatenate([part[name][:, own] for part in parameters], axis=1) for name in parameters[0]}
        found.append(outcome.normal_scores(y, mixed, weight))
    return np.stack(found, axis=1)


def _ensemble_factor(together: Array, alone: Array, n_chains: int) -> float:
    """Return by how much normal scores of all chains are smaller than those of the judges together (row,).

    ``alone`` (row, judge) are those of each judge.
    """
    one, two = (float(np.sqrt(np.minimum(np.square(z), _LARGEST_SCORE**2).mean())) for z in (alone, together))
    gain = (one - two) * (1.0 / JUDGES - 1.0 / n_chains) / (1.0 - 1.0 / JUDGES)
    return float(np.clip(1.0 - gain / max(two, np.finfo(float).tiny), _LEAST_LEFT, 1.0))


def _cross_calibrated(known: Array, scores: Array, varies: bool, seed: int) -> Array:
    """Return ranks of scores calibrated by the other half of the rows: what a report may show."""
    half = np.random.default_rng(derive_seed(seed, "halves")).permutation(len(scores)) % 2 == 0
    ranks = np.empty(len(scores))
    for part in (half, ~half):
        other = fit_calibration(known[~part], scores[~part], varies=varies, seed=seed)
        ranks[part] = other.calibrated(scores[part], known[part])
    return ranks


def moments(mean: Array, variance: Array, weight: Array) -> tuple[Array, Array]:
    """Return mean and variance (row,) of mixtures whose components have these (row, component)."""
    center = mean @ weight
    total = variance @ weight + np.square(mean - center[:, None]) @ weight
    return center, np.maximum(total, np.finfo(float).tiny)


def _findings(fit: RegressionFit, units: str) -> list[Finding]:
    """Return what there is to say about a fit to so many rows or groups."""
    found = []
    if not len(fit.rows):
        found.append(
            Finding(
                "not-calibrated",
                f"{units} are too few to leave some out: intervals are not calibrated, and training was not stopped "
                "by rows that it had not seen",
            )
        )
        return found
    for output in range(fit.n_outputs):
        inside = float((np.abs(fit.ranks[:, output] - 0.5) <= 0.45).mean())
        if abs(inside - 0.9) > 0.03 + 2.0 * np.sqrt(0.09 / len(fit.rows)):
            found.append(Finding("miscalibrated", f"90% intervals held {inside:.0%} of the rows that were left out"))
    return found


def calibrated_levels(fit: RegressionFit, output: int, levels: Array, mean: Array, variance: Array) -> Array:
    """Return the predictive's normal scores of calibrated levels, (row, level)."""
    known = np.column_stack([mean, 0.5 * np.log(variance)])
    return fit.calibrations[output].predictive_scores(levels, known)


def calibrated_ranks(fit: RegressionFit, output: int, scores: Array, mean: Array, variance: Array) -> Array:
    """Return calibrated probabilities of the predictive's normal scores (row,)."""
    known = np.column_stack([mean, 0.5 * np.log(variance)])
    return np.clip(fit.calibrations[output].calibrated(scores, known), ndtr(-8.0), ndtr(8.0))
