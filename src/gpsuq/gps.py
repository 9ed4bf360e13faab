"""``GPS``: any observation model in, a UQ distribution out."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

import pandas as pd
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from gpsuq.core.distances import Distance
from gpsuq.core.expectations import base_distribution
from gpsuq.core.generators import MLP, Generator, GeneratorSpec, as_generator_spec
from gpsuq.core.likelihood import LogScore
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import check_choices, observations
from gpsuq.core.parameters import ParameterMap
from gpsuq.engine.chains import ChainPlan, Reweight
from gpsuq.engine.diagnostics import diagnose, exactly_scored
from gpsuq.engine.generative import CHECKPOINT_EVERY, TrainingState, init
from gpsuq.engine.laws import law_scores
from gpsuq.engine.loop import train
from gpsuq.engine.problem import Problem
from gpsuq.engine.progress import stage, training_bar
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Algorithm
from gpsuq.engine.sources import ArraySource, BatchSource, LoaderSource, RowSource
from gpsuq.engine.spread import spread_path
from gpsuq.engine.trial import Trial, natural_distance, support, try_model
from gpsuq.errors import GPSError, warn
from gpsuq.uq.distribution import UQDistribution

DEFAULT_ALGORITHM = Algorithm(n_steps=2000, batch_size=100, n_draws=64, schedule="plateau")
_MOST_DRAWS, _MOST_NOISE = 256, 10
_AFFINE_GAIN = 10.0  # one number moves a whole law, where a network's output moves with thousands
_AT_W = (32, 32)  # hidden widths of a law that moves with concomitants, which is computed for every observation


class FitOptions(TypedDict, total=False):
    """What :meth:`GPS.fit` takes beside the observations."""

    mask: Any
    weight: Any
    groups: Any
    concomitants: Any
    validation: DataLoader[Any] | None
    checkpoint: str | Path | None
    checkpoint_every: int


class GPS:
    """Generative parameter sampler: trains G so that the model's predictive, with theta = G(Z), matches the data.

    Parameters
    ----------
    model
        The observation model f(y given theta, x).
    generator
        ``MLP(...)``, any ``nn.Module`` with a ``noise_dim`` (each chain starts anew from it), or
        ``FromModule(module, noise_dim)``; None is ``MLP()`` with as much noise as there are numbers that vary, 2 to 10.
        With the log score, None also trains an affine generator, ``MLP(hidden=(), gain=10)``, whose law is Normal but
        for the supports of parameters; it is taken unless the other one explains the observations left out better. What
        both scored is in ``law_scores``.
    distance
        Between predictive and data: ``LogScore()``, ``MMD()``, ``EnergyDistance()`` or ``SlicedWasserstein()``. None is
        the log score where the model has a density, which then sees most of the law of theta, or else MMD.
    algorithm
        ``Algorithm(...)``, ``Algorithm1()`` (the paper's), or None: 64 draws, up to 256 where many numbers
        vary, and steps for as long as held-out observations gain by them, 2,000 at most.
    n_chains, reweight, holdout, spread_weight, folds
        How many generators are trained side by side and how they differ; see :class:`gpsuq.engine.chains.ChainPlan`.
        ``spread_weight="auto"`` trains chains of several weights on three folds first; ``spread_path`` then has what
        they scored on rows left out, and which weight was chosen.
    seed
        Same seed, same machine, same numbers.
    fabric
        Devices, precision and processes, ``lightning_fabric.Fabric(accelerator=..., devices=..., precision=...)``;
        None is all processes that ``torchrun`` started, or else this CPU, in float32.
    progress
        Whether to show a progress bar.

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Normal
    >>> from gpsuq import GPS, Algorithm, Location, ObservationModel
    >>> y = torch.cat([torch.randn(100) - 4, torch.randn(100) + 4])
    >>> model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    >>> uq = GPS(model, algorithm=Algorithm(n_steps=200)).fit(y)
    >>> uq.draws(500)["theta"].shape
    (8, 500)
    """

    def __init__(
        self,
        model: ObservationModel,
        generator: GeneratorSpec | nn.Module | None = None,
        distance: Distance | None = None,
        *,
        algorithm: Algorithm | None = None,
        n_chains: int = 8,
        reweight: Reweight = "bootstrap",
        holdout: float = 0.1,
        spread_weight: float | Sequence[float] | Literal["auto"] = 0.0,
        folds: Sequence[int] | None = None,
        seed: int = 0,
        fabric: Fabric | None = None,
        progress: bool = False,
    ) -> None:
        wanted = {
            "model": (model, ObservationModel),
            "distance": (distance, Distance),
            "algorithm": (algorithm, Algorithm),
        }
        for name, (value, kind) in wanted.items():
            if not (isinstance(value, kind) or (value is None and name != "model")):
                raise GPSError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}")
        self.model = model
        self.generator = None if generator is None else as_generator_spec(generator)
        self.distance = distance
        self.algorithm = algorithm
        self.spread_chosen = isinstance(spread_weight, str)
        if isinstance(spread_weight, str) and spread_weight != "auto":
            raise GPSError(f'spread_weight must be "auto", a number, or one for each chain, got {spread_weight!r}')
        weight = 0.0 if isinstance(spread_weight, str) else spread_weight
        self.plan = ChainPlan(n_chains, reweight, holdout, weight, folds)
        self.spread_path: pd.DataFrame | None = None
        self.law_scores: pd.DataFrame | None = None
        self.seed = seed
        self.fabric = fabric
        self.progress = progress

    def fit(self, X: Any = None, y: Any = None, **options: Unpack[FitOptions]) -> UQDistribution:
        """Train the generator: ``fit(y)``, ``fit(X, y)``, or ``fit(loader)``.

        Parameters
        ----------
        X, y
            Arrays, tensors or DataFrames; an observation may be a vector. Lists of arrays of different lengths are
            ragged groups, each one observation with a theta of its own. A ``DataLoader`` yields y, (x, y) or
            (x, y, weight); :class:`gpsuq.tables.streaming.ParquetRows` streams a table that does not fit in memory.
        mask
            True where a coordinate of y was observed, for groups that were padded already.
        weight
            Frequency weight of each observation.
        groups
            A label for each row of a long table: all rows of a person are one observation, with one theta.
        concomitants
            Columns W that the law of theta depends on, such as a person's age: theta = G(w, Z). One row for each
            observation; with ``groups`` also one for each row of the long table.
        validation
            Held-out observations where the data come from a loader.
        checkpoint
            Directory to save the training state in; a fit that finds one there goes on from it, bit for bit.
        checkpoint_every
            Steps between two checkpoints, 200 by default.
        """
        problem, state = self.train(X, y, **options)
        findings = diagnose(state)
        for finding in findings:
            warn(finding.message)
        columns, sample = None if y is None else getattr(X, "columns", None), problem.source.sample
        return UQDistribution(
            state.generator.cpu(),
            self.model,
            (~state.failed).nonzero().flatten().tolist(),
            seed=self.seed,
            reweighted=self.plan.reweight is not None and problem.source.numbered,
            history=state.history,
            feature_names=None if columns is None else [str(column) for column in columns],
            x_shape=None if sample.x is None else tuple(sample.x.shape[1:]),
            concomitants=None if sample.w is None else _names(options.get("concomitants"), sample.w.shape[1]),
            findings=findings,
        )

    def train(
        self, X: Any = None, y: Any = None, *, start: Generator | None = None, **options: Unpack[FitOptions]
    ) -> tuple[Problem, TrainingState]:
        """Train like :meth:`fit`, and return what it works with: the problem and its last state, to score or go on.

        ``start`` is a generator with as many chains; a copy of it goes on, in place of a new one.

        >>> import torch
        >>> from gpsuq import GPS, Algorithm
        >>> from gpsuq.core.models import normal_location
        >>> gps, y = GPS(normal_location(), algorithm=Algorithm(n_steps=20), n_chains=2), torch.randn(50)
        >>> problem, state = gps.train(y)
        >>> problem, state = gps.train(y, start=state.generator)  # 20 steps more
        >>> state.history.score().shape  # (step, chain)
        torch.Size([20, 2])
        """
        if options.get("checkpoint_every", CHECKPOINT_EVERY) < 1:
            raise GPSError(f"checkpoint_every must be at least 1, got {options['checkpoint_every']}")
        if self.spread_chosen:
            self.spread_path = spread_path(lambda plan: self._with(plan=plan)._trained(X, y, None, _unsaved(options)))
            (weight,) = self.spread_path.loc[self.spread_path["chosen"], "spread_weight"]
            self.plan = replace(self.plan, spread_weight=float(weight))
        state = self._trained(X, y, start, options)
        if self.generator is None and start is None and _can_be_affine(state):
            spec = replace(cast(MLP, state.generator.body.spec), hidden=(), gain=_AFFINE_GAIN)
            with stage("affine law"):
                affine = self._with(generator=spec)._trained(X, y, None, _saved_in(options, "affine"))
            self.law_scores = law_scores(state, affine)
            state = affine if self.law_scores.loc["affine", "chosen"] else state
        return state.problem, state

    @classmethod
    def check(
        cls,
        model: ObservationModel,
        X: Any = None,
        y: Any = None,
        *,
        generator: GeneratorSpec | nn.Module | None = None,
        distance: Distance | None = None,
        mask: Any = None,
        groups: Any = None,
        concomitants: Any = None,
    ) -> Trial:
        """Try a model on data without training: return the shapes that it is given and makes, as a table to print.

        The arguments are those of :class:`GPS` and :meth:`fit`. What does not fit is an error that says what to change.

        >>> from torch.distributions import Bernoulli
        >>> from gpsuq import GPS, ObservationModel, Real
        >>> logit = ObservationModel(lambda x, taste: Bernoulli(logits=(x * taste).sum(-1)), taste=Real("features"))
        >>> x, y, person = [[0.3], [0.8], [0.1], [0.7], [0.2]], [0, 1, 1, 0, 0], ["Ann", "Ann", "Ann", "Bo", "Bo"]
        >>> print(GPS.check(logit, x, y, groups=person))
        2 observations, each of which has
          x             (3, 1)
          y             (3,)
          taste         (1, 1)
          distribution  Bernoulli, event shape (3,)
          support       0 or 1
          score         exact
        """
        gps = cls(model, generator, distance, reweight=None, holdout=0.0)  # weights are for training
        state = gps._untrained(X, y, None, {"mask": mask, "groups": groups, "concomitants": concomitants})
        source = state.problem.source
        given, predictive = try_model(state.generator, model, source, gps.seed)
        base = base_distribution(predictive)
        return Trial(
            len(source.sample),
            given.shapes(),
            type(base).__name__,
            tuple(predictive.event_shape),
            support(base),
            exactly_scored(state),
        )

    def _with(self, **changed: ChainPlan | GeneratorSpec) -> GPS:
        """Return the same with other chains or another generator."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _trained(self, X: Any, y: Any, start: Generator | None, options: FitOptions) -> TrainingState:
        """Train one generator, and return its last state."""
        state = self._untrained(X, y, start, options)
        state.keep_every = options.get("checkpoint_every", CHECKPOINT_EVERY)
        checkpoint, fabric = options.get("checkpoint"), state.problem.fabric
        directory = None if checkpoint is None else Path(checkpoint)
        with training_bar(self.progress and fabric.is_global_zero) as advance:
            train(state, fabric, checkpoint=directory, on_step=advance)
        return state

    def _untrained(self, X: Any, y: Any, start: Generator | None, options: FitOptions) -> TrainingState:
        """Return the state before the first step."""
        fabric = fabric_or_default(self.fabric)
        with fabric.init_tensor():
            dtype = torch.get_default_dtype()
        source = self._source(X, y, options, dtype)
        generator = self._build(source, dtype) if start is None else copy.deepcopy(start)
        distance = self.distance or natural_distance(generator, self.model, source, self.seed)
        algorithm = self.algorithm or _default_algorithm(generator.parameter_map.width(random=True))
        problem = Problem(source, self.plan, algorithm, distance, self.seed, fabric)
        return init(problem, generator, self.model)

    def _source(self, X: Any, y: Any, options: FitOptions, dtype: torch.dtype) -> BatchSource:
        mask, weight, validation = options.get("mask"), options.get("weight"), options.get("validation")
        groups, concomitants = options.get("groups"), options.get("concomitants")
        if isinstance(X, IterableDataset) and hasattr(X, "sample"):  # it yields batches
            X = DataLoader(X, batch_size=None)
        if isinstance(X, DataLoader):
            if any(given is not None for given in (y, mask, weight, groups, concomitants)):
                raise GPSError("a DataLoader yields y, (x, y) or (x, y, weight); pass nothing beside it but validation")
            if hasattr(X.dataset, "sample") and validation is None:
                return RowSource(X, self.plan, self.seed, dtype)
            return LoaderSource(X, validation, self.plan, self.seed, dtype)
        if validation is not None:
            raise GPSError("validation is for DataLoaders; with arrays, holdout leaves out observations by itself")
        if X is None and y is None:
            raise GPSError("fit needs observations: fit(y), fit(X, y) or fit(loader)")
        x, outcome = (None, X) if y is None else (X, y)
        data = observations(x, outcome, mask=mask, weight=weight, groups=groups, concomitants=concomitants, dtype=dtype)
        check_choices(data)
        return ArraySource(data, self.plan, (self.algorithm or DEFAULT_ALGORITHM).batch_size, self.seed)

    def _build(self, source: BatchSource, dtype: torch.dtype) -> Generator:
        scale, n_features = source.sample.scale(), source.sample.n_features
        parameter_map = ParameterMap(self.model.parameters, n_features, scale)
        n_chains = self.plan.n_chains
        width, seen = parameter_map.width(random=True), source.sample.seen_scale()
        spec = self.generator or MLP(noise_dim=min(max(MLP.noise_dim, width), _MOST_NOISE))
        if source.sample.w is not None and not spec.conditional:
            if not isinstance(spec, MLP):
                raise GPSError("concomitants need a generator that sees them: module(w, z), or MLP()")
            spec = replace(spec, conditional=True, hidden=_AT_W if self.generator is None else spec.hidden)
        body = spec.build(width, n_chains, seen, seen.x_width, self.seed)
        return Generator(body, parameter_map, n_chains).to(dtype)


def _can_be_affine(state: TrainingState) -> bool:
    """Whether something varies, and observations left out can say whether by more than an affine law."""
    problem, varies = state.problem, state.generator.parameter_map.width(random=True) > 0
    return varies and isinstance(problem.distance, LogScore) and problem.source.held_out() is not None


def _saved_in(options: FitOptions, part: str) -> FitOptions:
    """Return options of a fit with the checkpoint in a part of its directory."""
    checkpoint = options.get("checkpoint")
    return options if checkpoint is None else cast(FitOptions, {**options, "checkpoint": Path(checkpoint) / part})


def _unsaved(options: FitOptions) -> FitOptions:
    """Return options of a fit without its checkpoint."""
    return cast(FitOptions, {name: value for name, value in options.items() if not name.startswith("checkpoint")})


def _default_algorithm(width: int) -> Algorithm:
    """Return the default settings; where more than two numbers vary there are twice as many draws, and so on."""
    doubled = max(0, math.ceil(math.log2(width / MLP.noise_dim)))
    return replace(DEFAULT_ALGORITHM, n_draws=min(DEFAULT_ALGORITHM.n_draws << doubled, _MOST_DRAWS))


def _names(table: Any, count: int) -> list[str]:
    """Return the names of concomitants: those that the columns of a table have, or w0, w1, ..."""
    return [str(name) for name in getattr(table, "columns", (f"w{number}" for number in range(count)))]
