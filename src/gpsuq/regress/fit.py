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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.calibration import identity_calibration
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
from gpsuq.regress.affine import MOST_COLUMNS, fit_affine
from gpsuq.regress.families import Array, Family
from gpsuq.regress.forest import grow
from gpsuq.regress.judging import ask_left_out, calibrate, settle_scale, weigh
from gpsuq.regress.members import DRAWS, JUDGES, Member, Network, RegressionFit
from gpsuq.regress.network import ChainTabular

_EVALUATIONS = 30  # of held-out rows in a round of training
_LONGER = 3  # times as long is a second round, where one is worth it
_STILL_FALLING = 0.85  # of its value after three quarters of a round: a held-out score that makes it worth it
_FIRST_SCALE = 0.22  # of the spread of y, before training: wide components would hide branches
_PATIENCE = 0.35  # share of the steps without improvement that ends it
_EVALUATION_DRAWS = 32


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


def fit_regression(
    x: Array,
    y: Array,
    weight: Array | None,
    groups: NDArray[np.int64] | None,
    family: Family,
    kinds: Sequence[Kind],
    settings: RegressionSettings,
    *,
    closed: bool = False,
) -> RegressionFit:
    """Train generators of all kinds on encoded rows x (n, p) and outcomes y (n, output), and calibrate them.

    ``closed`` adds those that need no descent, planes and trees: for a single outcome that has a location and a scale.
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
    if rows is not None and closed:
        unseen = [each.nonzero().flatten().numpy() for each in source.weights.left_out(torch.arange(len(y)))]
        if x.shape[1] <= MOST_COLUMNS:
            fit.members.append(Member("affine", fit_affine(x, standard[:, 0], weight, unseen, DRAWS)))
        grown = grow(x, standard[:, 0], weight, unseen, DRAWS, settings.seed)
        fit.members.append(Member("forest", settle_scale(grown, ask_left_out(grown, x, rows), standard[:, 0])))
    if rows is not None:
        left_out = [ask_left_out(member.drawn, x, rows) for member in fit.members]
        weigh(fit, standard, left_out)
        calibrate(fit, standard, [part for part, m in zip(left_out, fit.members, strict=True) if m.weight > 0])
    else:
        fit.members = [replace(member, weight=1.0 / len(fit.members)) for member in fit.members]
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
