r"""Algorithm 1 as a task of the loop, for all chains of a generator at once.

A step draws noise, lets the generator and the model make the predictive of a batch, and descends

.. math:: \sum_c \frac{1}{n_0} \sum_i w_{ci} \bigl( \text{score}_{ci} + \lambda_c\, \text{spread}_{ci} \bigr)

with weights w, spread weights :math:`\lambda` and chains c; chains share no parameter, so each descends its own loss.
Everything random in a step depends on (seed, step) only, so a resumed run ends where an uninterrupted one ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gpsuq.core.expectations import encode
from gpsuq.core.generators import Generator
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import Batch
from gpsuq.engine.checkpoints import optimizer_tensors, restore_optimizer
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.engine.plateau import Plateau
from gpsuq.engine.problem import Problem
from gpsuq.engine.ranks import n_ranks, rank, summed
from gpsuq.engine.scoring import PredictiveLoss, ScoredChains, draw_noise, evaluate, noise_variance
from gpsuq.engine.task import Task
from gpsuq.engine.trial import try_model
from gpsuq.errors import DivergenceError, GPSError, warn
from gpsuq.files import under

CHECKPOINT_EVERY = 200
_PATIENT_SKIPS = 20  # steps in a row without a finite gradient before a chain is given up
_SCORES = ("best_scores", "last_scores", "stale", "skipped")
_HISTORY = ("fit", "pair", "held_out")
_NUMBERS = ("step", "phase", "phase_start", "noise_variance", "finished")
_PLATEAU = ("waited", "left")


@dataclass
class History:
    """Both terms of the training score at each step, and the held-out score at each evaluation, for every chain."""

    fit: list[Tensor] = field(default_factory=list)
    pair: list[Tensor] = field(default_factory=list)
    evaluated_at: list[int] = field(default_factory=list)
    held_out: list[Tensor] = field(default_factory=list)

    def score(self) -> Tensor:
        """Training score, (step, chain)."""
        return torch.stack(self.fit) + torch.stack(self.pair)


@dataclass
class TrainingState(ScoredChains, Task):
    """Chains in training: everything that changes, and all that is needed to resume it."""

    module: Any  # the loss as Fabric wrapped it
    optimizer: Any
    step: int = 0
    phase: int = 0
    phase_start: int = 0
    noise_variance: float | None = None
    best: dict[str, Tensor] | None = None
    best_scores: Tensor | None = None
    last_scores: Tensor | None = None
    stale: Tensor = field(default_factory=lambda: torch.empty(0))
    skipped: Tensor = field(default_factory=lambda: torch.empty(0))
    plateau: Plateau | None = None  # where the score says how long to train
    history: History = field(default_factory=History)
    finished: bool = False
    keep_every: int = CHECKPOINT_EVERY

    @property
    def n_steps(self) -> int:  # type: ignore[override]
        """Steps at most."""
        return self.problem.algorithm.n_steps

    @property
    def failed(self) -> Tensor:
        """Chains that were given up because their gradient stopped being finite."""
        return self.skipped >= _PATIENT_SKIPS

    @property
    def stopped(self) -> Tensor:
        """Chains that have not improved for so long that they stopped."""
        patience = self.problem.algorithm.patience
        return torch.zeros_like(self.failed) if patience is None else self.stale >= patience

    @cached_property
    def held_out(self) -> Batch | None:
        """What chains are judged by on the way, if they are."""
        return None if self.problem.algorithm.evaluate_every is None else self.problem.source.held_out()

    def address(self) -> tuple[Any, ...]:
        return self.problem.seed, "step", self.step, rank()

    def rate(self) -> float:
        algorithm, step, steps = self.problem.algorithm, self.step - self.phase_start, self._phase_steps
        return algorithm.rate(step, steps) if self.plateau is None else self._rate_of(self.plateau, step)

    def _rate_of(self, plateau: Plateau, step: int) -> float:
        return plateau.rate(self.problem.algorithm.learning_rate, step, self._phase_steps)

    @property
    def _phase_steps(self) -> int:
        return self.problem.phase_steps(self.phase)

    def next_loss(self) -> Tensor:
        """Return the loss of the next step, summed over chains: they share no parameter."""
        problem, algorithm = self.problem, self.problem.algorithm
        spread_weights = problem.plan.spread_weights()
        noise, batch, weight = _inputs(self)
        given = (batch.y, batch.x, batch.mask, batch.w)
        fit, pair, spread = self.module(noise, *given, algorithm.n_outcomes, any(spread_weights))
        fit, pair = ((weight * term).mean(1) for term in (fit, pair))
        loss: Tensor = (fit + pair).sum()
        if any(spread_weights):
            loss = loss + (weight * spread).mean(1) @ weight.new_tensor(spread_weights)
        terms = summed(torch.stack([fit, pair]).detach()).cpu() / n_ranks()
        self.history.fit.append(terms[0])
        self.history.pair.append(terms[1])
        return loss * algorithm.n_draws if algorithm.sum_over_draws else loss

    def see_gradients(self) -> None:
        _condition_gradients(self, self.problem.algorithm.clip, self.stopped)

    def end_step(self) -> None:
        """Evaluate where it is time; go on with the next phase, or finish, where this one is over."""
        problem, in_phase = self.problem, self.step - self.phase_start
        phase_over = in_phase >= (self._phase_steps if self.plateau is None else self.plateau.end(self._phase_steps))
        if self.held_out is not None and (phase_over or in_phase % (problem.algorithm.evaluate_every or 1) == 0):
            _remember_best(self, evaluate(self, self.held_out).score)
            phase_over = phase_over or bool(self.stopped.all())
            if self.plateau is not None and self.last_scores is not None:
                self.plateau.see(self.last_scores)
        if self.plateau is not None:
            self.plateau.leave(in_phase, self._phase_steps)
        if phase_over:
            _end_phase(self)
        if self.finished:
            _report_failed(self)

    def shown(self) -> str:
        if not self.history.fit:
            return ""
        return f"score {float((self.history.fit[-1] + self.history.pair[-1]).mean()):.4f}"

    def identity(self) -> str:
        problem, generator = self.problem, self.generator
        return fingerprint(
            (
                *(problem.algorithm, problem.plan, problem.distance, problem.seed, problem.source.sample),
                *(generator.parameter_map.declared, self.loss.model.function, dict(generator.state_dict())),
            ),
            # A network of the user's is trained in copies, whose first weights are not its own where they start anew.
            layers=generator.body.spec,
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"generator/{name}": value for name, value in self.generator.state_dict().items()}
        tensors |= optimizer_tensors(self.optimizer)
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        for name in _SCORES:
            if (scores := getattr(self, name)) is not None:
                tensors[name] = scores
        for name in _HISTORY:
            if values := getattr(self.history, name):
                tensors[f"history/{name}"] = torch.stack(values)
        meta = {name: getattr(self, name) for name in _NUMBERS}
        if self.plateau is not None:
            meta["plateau"] = {name: getattr(self.plateau, name) for name in _PLATEAU}
            if self.plateau.reference is not None:
                tensors["reference"] = self.plateau.reference
        return tensors, meta | {"evaluated_at": self.history.evaluated_at}

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        if meta["phase"] > 0:
            enter_phase(self, meta["phase"], meta["noise_variance"])
        self.generator.load_state_dict(under(tensors, "generator/"))
        restore_optimizer(self.optimizer, under(tensors, "optimizer/"))
        self.best = {name: t.to(self.generator.shared.device) for name, t in under(tensors, "best/").items()} or None
        for name in _SCORES:
            setattr(self, name, tensors.get(name))
        for name in _HISTORY:
            if f"history/{name}" in tensors:
                getattr(self.history, name).extend(tensors[f"history/{name}"].unbind(0))
        self.history.evaluated_at.extend(meta["evaluated_at"])
        for name in _NUMBERS:
            setattr(self, name, meta[name])
        if self.plateau is not None:
            self.plateau = Plateau(tensors.get("reference"), **meta["plateau"])


def init(problem: Problem, generator: Generator, model: ObservationModel) -> TrainingState:
    """Return the state before the first step, with the distance resolved on the data and the model tried once."""
    loss = PredictiveLoss(generator, model, problem.distance, 1.0)
    _, predictive = try_model(generator, model, problem.source, problem.seed)
    sample = problem.source.sample
    encoded = replace(sample, y=encode(predictive, sample.y))  # categories as kernels see them
    if sample.mask is not None and encoded.y is not sample.y:
        encoded = replace(encoded, mask=sample.mask.unsqueeze(-1).expand_as(encoded.y))
    loss.distance = problem.distance.resolve(encoded)
    loss.distance.check_weights(problem.source.weighted)
    if encoded.y is sample.y:  # probabilities have no unit
        loss.spread_unit = float(sample.scale().y_scale.square().sum())
        if not 0.0 < loss.spread_unit < math.inf:
            raise GPSError(f"the variance of y is beyond the range of {sample.y.dtype}: rescale y")
    optimizer = problem.algorithm.make_optimizer(generator.parameters())
    module, wrapped = problem.fabric.setup(loss, optimizer)
    n_chains = problem.plan.n_chains
    zeros = torch.zeros(n_chains, dtype=torch.int64)
    plateau = Plateau() if problem.algorithm.schedule == "plateau" else None
    return TrainingState(problem, loss, module, wrapped, plateau=plateau, stale=zeros, skipped=zeros.clone())


def _inputs(state: TrainingState) -> tuple[Tensor, Batch, Tensor]:
    """Draw the noise of a step, and return it with the step's batch and its weights (chain, observation)."""
    algorithm, generator = state.problem.algorithm, state.generator
    device, dtype = generator.shared.device, generator.shared.dtype
    batch, weight = state.problem.source.batch(state.step)
    rows = len(batch) if generator.conditional or not algorithm.shared_noise else 1
    shape = (state.problem.plan.n_chains, rows, algorithm.n_draws, generator.noise_dim)
    return draw_noise(state, shape), batch.to(device, dtype), weight.to(device, dtype)


def _condition_gradients(state: TrainingState, clip: float | None, stopped: Tensor) -> None:
    """Clip each chain's gradient by its own norm; drop that of chains that have stopped or whose is not finite."""
    squared = torch.zeros(len(state.skipped), device=state.generator.shared.device)
    together = []
    for _, parameter, owner in state.generator.chain_views():
        if parameter.grad is None:
            continue
        if owner is None:
            together.append(torch.linalg.vector_norm(parameter.grad.flatten(1), dim=1))
        else:
            squared[owner] += parameter.grad.square().sum()
    norm = torch.linalg.vector_norm(torch.stack([squared.sqrt(), *together]), dim=0)
    finite = torch.isfinite(norm)
    state.skipped = torch.where(finite.cpu() & ~state.failed, torch.zeros_like(state.skipped), state.skipped + 1)
    usable = finite & ~(state.failed | stopped).to(norm.device)
    scale = torch.ones_like(norm) if clip is None else (clip / norm.clamp_min(clip))
    if bool(usable.all()) and bool((scale == 1).all()):
        return
    if bool(state.failed.all()):
        raise DivergenceError(
            f"no chain has a finite gradient at step {state.step} any more{_culprits(state)}; check the model for "
            "logarithms, square roots or quotients of what reaches 0, and keep it away from there by clamp_min(1e-6); "
            "bring y and X to similar scales, or lower the learning rate"
        )
    scale = torch.where(usable, scale, torch.zeros_like(scale))
    for _, parameter, owner in state.generator.chain_views():
        if parameter.grad is None:
            continue
        keep, factor = (usable, scale) if owner is None else (usable[owner], scale[owner])
        shape = (-1, *(1,) * (parameter.dim() - 1)) if owner is None else ()
        if not bool(finite.all()):  # zero times infinity is no number
            parameter.grad.masked_fill_(~keep.reshape(shape), 0.0)
        parameter.grad.mul_(factor.reshape(shape))


def _culprits(state: TrainingState) -> str:
    """Name the parameters with respect to which the score has no finite gradient, with the range of their values."""
    noise, batch, _ = _inputs(state)
    with torch.no_grad():
        parameters = state.generator(noise, batch.seen)
    values = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    predictive = state.loss.model(values, batch.x, one_y=batch.one_y)
    score = state.loss.distance.terms(predictive, batch, state.problem.algorithm.n_outcomes).score.sum()
    gradients = torch.autograd.grad(score, list(values.values()), allow_unused=True)
    named = [
        f"{name} (from {float(value.min()):.3g} to {float(value.max()):.3g})"
        for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
        if gradient is not None and not bool(torch.isfinite(gradient).all())
    ]
    return f": the score has none with respect to {', '.join(named)}" if named else ""


def _remember_best(state: TrainingState, scores: Tensor) -> None:
    """Keep each chain's parameters at its lowest held-out score so far; ``scores`` is (chain, held out)."""
    scores = scores.nan_to_num(nan=float("inf"))
    state.history.evaluated_at.append(state.step)
    state.history.held_out.append(scores.mean(1))
    state.last_scores = scores
    if state.best is None or state.best_scores is None:
        state.best = {name: p.detach().clone() for name, p, _ in state.generator.chain_views()}
        state.best_scores = scores
        return
    better = _means(state, scores) < _means(state, state.best_scores)
    state.stale = torch.where(better, 0, state.stale + 1)
    state.best_scores = torch.where(better[:, None], scores, state.best_scores)
    for name, parameter, owner in state.generator.chain_views():
        state.best[name] = _choose(better, owner, parameter.detach(), state.best[name])


def _means(state: TrainingState, scores: Tensor) -> Tensor:
    """Return the mean score of every chain, or that of all for each where they are judged together: (chain,)."""
    means = scores.mean(1)
    return means.mean().expand_as(means) if state.problem.together else means


def _choose(chains: Tensor, owner: int | None, yes: Tensor, no: Tensor) -> Tensor:
    """Take a parameter's values from ``yes`` in the chosen chains and from ``no`` in the others."""
    chosen = chains.to(yes.device)
    chosen = chosen.reshape(-1, *(1,) * (yes.dim() - 1)) if owner is None else chosen[owner]
    return torch.where(chosen, yes, no)


def _restore_best(state: TrainingState, clearly: float) -> None:
    """Put back the best state of every chain whose last one is worse by more than ``clearly`` standard errors."""
    if state.best is None or state.best_scores is None or state.last_scores is None:
        return
    lost = state.last_scores - state.best_scores
    if state.problem.together:
        lost = lost.reshape(1, -1).expand(len(lost), -1)
    n = lost.shape[1]
    # Of a single observation there is no error, and any loss counts.
    error = lost.std(1, correction=min(1, n - 1)) / math.sqrt(n)
    clearly_worse = ~(lost.mean(1) <= clearly * error)  # a last score that is not finite is worse, too
    restore = clearly_worse & torch.isfinite(state.best_scores).all(1)
    with torch.no_grad():
        for name, parameter, owner in state.generator.chain_views():
            parameter.copy_(_choose(restore, owner, state.best[name], parameter))


def _end_phase(state: TrainingState) -> None:
    """Restore the best states; go on with the refined distance, or finish."""
    _restore_best(state, state.problem.algorithm.clearly)
    if state.phase + 1 < state.problem.n_phases:
        enter_phase(state, state.phase + 1, noise_variance(state))
    else:
        state.finished = True


def enter_phase(state: TrainingState, phase: int, variance: float | None) -> None:
    """Go on with the distance refined by the variance of the noise; scores of another kernel do not count any more."""
    refined = None if variance is None else state.problem.distance.refine(variance)
    if refined is not None:
        state.loss.distance = refined
    state.phase, state.phase_start, state.noise_variance = phase, state.step, variance
    state.best, state.best_scores, state.last_scores = None, None, None
    state.stale = torch.zeros_like(state.stale)
    state.plateau = None if state.plateau is None else Plateau()


def _report_failed(state: TrainingState) -> None:
    failed = state.failed.nonzero().flatten().tolist()
    if failed:
        warn(f"chains {failed} stopped having a finite gradient and are left out; a lower learning rate may help")
