"""Checks of a finished fit that say in plain words what to be careful about and what to try."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch.distributions import Categorical

from gpsuq.core.expectations import DEFAULT_OUTCOMES, base_distribution, exact_score, is_placed
from gpsuq.core.kernels import Gaussian, Kernel, Laplace, Mixture
from gpsuq.core.likelihood import LogScore
from gpsuq.core.supports import GRID_POINTS, has_density_alone
from gpsuq.engine.generative import TrainingState
from gpsuq.engine.scoring import evaluate, noise_variance, predictive_spread, sampled_predictive, some_rows
from gpsuq.errors import GPSError

_COLLAPSED_SPREAD = 1e-4  # of the variance of y
_COLLAPSED_NOISE = 2.5e-3  # of the variance of y: sigma below 5% of its scale
_WORSE_CHAIN = 0.1  # of the score
_STILL_FALLING = 0.01  # of the score, in the last fifth of training
_FEWEST_STEPS = 10
_GOT_WORSE = 0.2  # of the score
_FEWEST_PER_NUMBER = 5
_OVERLAP = 0.02  # smallest 2 E k(y, Y) that counts as meeting the data
_REPEATS = 5
_MOMENT_DRAWS, _MOMENT_ROWS = 50, 100


@dataclass(frozen=True)
class Finding:
    """Something to be careful about: a short code, and a sentence or two with advice."""

    code: str
    message: str


def diagnose(state: TrainingState) -> list[Finding]:
    """Run every check on a finished training state."""
    checks = (_too_few_observations, _sampled, _no_overlap, _got_worse, _still_falling, _chains_disagree)
    found = [check(state) for check in checks]
    return [finding for finding in [*found, *_collapses(state)] if finding is not None]


def _too_few_observations(state: TrainingState) -> Finding | None:
    n, width = state.problem.source.n_observations, state.generator.parameter_map.width(random=True)
    if n is None or n >= _FEWEST_PER_NUMBER * width:
        return None
    return Finding(
        "few-observations",
        f"{n} observations for {width} random parameters: their law is hardly identified; fewer random parameters "
        "(random=False), a spread penalty (spread_weight > 0) or more data would help",
    )


def exactly_scored(state: TrainingState) -> bool:
    """Return whether the score of a step's batch is computed without sampling outcomes."""
    if isinstance(state.loss.distance, LogScore):
        return True
    kernel, algorithm = getattr(state.loss.distance, "kernel", None), state.problem.algorithm
    if algorithm.n_outcomes is not None or not isinstance(kernel, Kernel):
        return False
    step = replace(state.problem, evaluation_draws=algorithm.n_draws, evaluation_rows=algorithm.batch_size)
    predictive, batch = sampled_predictive(replace(state, problem=step), some_rows(step), "sampled")
    if is_placed(base_distribution(predictive)):
        return True
    return exact_score(kernel, predictive, batch.y, mask=batch.mask, n_pairs=1) is not None


def _sampled(state: TrainingState) -> Finding | None:
    """Check whether outcomes were sampled although no number of them was asked for: there is no exact score."""
    kernel = getattr(state.loss.distance, "kernel", None)
    if state.problem.algorithm.n_outcomes is not None or not isinstance(kernel, Kernel) or exactly_scored(state):
        return None
    base = base_distribution(sampled_predictive(state, some_rows(state.problem), "sampled")[0])
    if has_density_alone(base):
        return Finding(
            "grid",
            f"{type(base).__name__} has log_prob alone, so outcomes were taken from a grid of at most {GRID_POINTS} "
            "points over twice the range of y: where the density is narrower than its step the score is rough; add "
            "rsample or sample",
        )
    return Finding(
        "sampled",
        f"the kernel score of {type(base).__name__} outcomes has no closed form for the "
        f"kernel {type(kernel).__name__} and no support small enough to sum over, so {DEFAULT_OUTCOMES} outcomes of "
        "each draw were sampled: the score is right on average, but noisier; pass Algorithm(n_outcomes=...) for more "
        "of them (and no such warning), or register a closed form with "
        "gpsuq.core.forms.register_kernel_mean and register_kernel_pair",
    )


def _got_worse(state: TrainingState) -> Finding | None:
    """Compare the end of the last phase with its start."""
    score = state.history.score()[state.phase_start :, ~state.failed]
    tenth = len(score) // 10
    if tenth == 0:
        return None
    each = score.mean(1)
    first, last = each[0], each[-tenth:]  # one step can be enough to explode
    start = abs(float(first))
    # A step's score is noisy, and an exploded one is noisier still: there its sheer size tells.
    noise = min(5.0 * float(last.std(correction=0)), 2.0 * start)
    if float(last.mean() - first) <= max(noise, _GOT_WORSE * start):
        return None
    return Finding(
        "got-worse",
        f"the score ended at {float(last.mean()):.4g}, above where it started ({float(first):.4g}): training "
        "exploded; lower the learning rate or set clip",
    )


def _still_falling(state: TrainingState) -> Finding | None:
    """Compare the last fifth of the last phase with the fifth before it; another phase's kernel has other scores."""
    score = state.history.score()[state.phase_start :, ~state.failed]
    fifth = len(score) // 5
    if fifth < _FEWEST_STEPS:
        return None
    before, last = score[-2 * fifth : -fifth], score[-fifth:]
    drop = float(before.mean() - last.mean())
    noise = math.sqrt(float(before.var() / before.numel() + last.var() / last.numel()))
    if drop <= max(3.0 * noise, _STILL_FALLING * abs(float(last.mean()))):
        return None
    return Finding(
        "still-falling",
        "the score was still falling when training ended: more steps (algorithm=Algorithm(n_steps=...)) should improve "
        "the fit",
    )


def _chains_disagree(state: TrainingState) -> Finding | None:
    """Score all chains on the same observations: one that is clearly worse is stuck, not merely uncertain."""
    alive = (~state.failed).nonzero().flatten()
    if len(alive) < 2:
        return None
    batch = some_rows(state.problem)
    repeats = [evaluate(state, batch, repeat).score[alive].mean(1) for repeat in range(_REPEATS)]
    score = torch.stack(repeats)
    means = score.mean(0)
    best, worst = int(means.argmin()), int(means.argmax())
    difference = score[:, worst] - score[:, best]
    gap, error = float(difference.mean()), float(difference.std() / math.sqrt(_REPEATS))
    if gap <= max(4.0 * error, _WORSE_CHAIN * float(means.abs().max())):
        return None
    return Finding(
        "chains-disagree",
        f"chain {int(alive[worst])} fits clearly worse than chain {int(alive[best])} (score {float(means[worst]):.4g} "
        f"against {float(means[best]):.4g}): training got stuck; try another seed, more draws or more steps",
    )


def _collapses(state: TrainingState) -> list[Finding | None]:
    """Compare the spread of the predictive mean and the noise with the variance of y."""
    # Moments of censored outcomes are sums over many nodes, and a rough number does.
    few = replace(state, problem=replace(state.problem, evaluation_draws=_MOMENT_DRAWS, evaluation_rows=_MOMENT_ROWS))
    spread, noise = _relative_spread(few), noise_variance(few)
    if spread is None:
        return []
    unit = state.loss.spread_unit
    findings: list[Finding | None] = []
    if spread < _COLLAPSED_SPREAD:
        findings.append(
            Finding(
                "spread-collapsed",
                f"draws of the parameters hardly differ (they explain {100 * spread:.2g}% of the variance of y): right "
                "where all observations share one parameter, otherwise lower spread_weight or use more draws",
            )
        )
    if noise is not None and noise / unit < _COLLAPSED_NOISE and spread > noise / unit:
        findings.append(
            Finding(
                "noise-collapsed",
                f"almost nothing is left to noise (its variance is {100 * noise / unit:.2g}% of that of y) while the "
                "parameters spread: if the noise is not really that small, spread stands in for it; a spread penalty "
                "(spread_weight > 0) or a fixed sigma would separate them",
            )
        )
    return findings


def _relative_spread(state: TrainingState) -> float | None:
    """Share of the variance of y that the spread of the predictive mean explains; None where there is no mean."""
    predictive, batch = sampled_predictive(state, some_rows(state.problem), "spread")
    if isinstance(base_distribution(predictive), Categorical):
        return None
    try:
        spread = predictive_spread(predictive, batch.mask)[~state.failed.to(batch.y.device)]
    except GPSError:
        return None
    value = float(spread.mean()) / state.loss.spread_unit
    return value if math.isfinite(value) else None


def _no_overlap(state: TrainingState) -> Finding | None:
    """Check that the predictive meets the data: far from it a bounded kernel sees nothing and has no gradient."""
    kernel = getattr(state.loss.distance, "kernel", None)
    parts = kernel.kernels if isinstance(kernel, Mixture) else (kernel,)
    if not all(isinstance(part, Gaussian | Laplace) for part in parts):
        return None
    fit = evaluate(state, some_rows(state.problem)).fit[~state.failed]
    if float(fit.mean()) < -_OVERLAP:
        return None
    return Finding(
        "no-overlap",
        "the predictive hardly meets the observations, so that training had nothing to go by: declare parameters in "
        "the units of y (Location, Scale, Rate, Slope), or widen the kernel",
    )
