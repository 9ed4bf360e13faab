"""What rows that chains left out teach: how much kinds of generators count, and how the predictive is calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri
from torch import Tensor

from gpsuq.core.calibration import Calibration, fit_calibration
from gpsuq.core.seeds import derive_seed
from gpsuq.regress.affine import Affine
from gpsuq.regress.families import NORMAL_NAMES, Array, Outcome, Parameters
from gpsuq.regress.forest import Forest
from gpsuq.regress.members import DRAWS, JUDGES, LeftOut, Network, RegressionFit, moments, output_of
from gpsuq.regress.stacking import mixture_crps, stacking_weights

_FEWEST_FOR_RANKS = 200  # rows that tell quantiles by themselves, and whether the calibration changes with x
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.7)  # of the spread of a chain's trees, that may be the scale of a draw
_SCALE_ROWS = 1000  # that choose among them
_LARGEST_SCORE = 3.0  # one row must not decide
_OWN_ROWS = 10.0  # that the width of the predictive as it was made counts like
_LEAST_LEFT = 0.7  # of normal scores: averaging more chains is not trusted to gain more


def ask_left_out(drawn: Network | Forest | Affine, x: Array, rows: Tensor) -> LeftOut:
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


def settle_scale(forest: Forest, asked: LeftOut, y: Array) -> Forest:
    """Choose the scale of a forest's draws by the CRPS of rows that were left out."""
    unit = asked.parameters["scale"][:, :, 0] / forest.share
    loc, weight = asked.parameters["loc"][:, :, 0], np.full(unit.shape[1], 1.0 / unit.shape[1])
    some = slice(None, None, -(-len(loc) // _SCALE_ROWS))
    scores = [mixture_crps(y[asked.rows][some], loc[some], share * unit[some], weight).mean() for share in _SHARES]
    return replace(forest, share=_SHARES[int(np.argmin(scores))])


def weigh(fit: RegressionFit, y: Array, left_out: Sequence[LeftOut]) -> None:
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


def calibrate(fit: RegressionFit, y: Array, left_out: Sequence[LeftOut]) -> None:
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
        fit.calibrations.append(_calibration(known, factor * scores, fit.seed))
        ranks.append(_cross_calibrated(known, factor * scores, fit.seed))
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
    one, two = _size(alone.ravel()), _size(together)
    gain = (one - two) * (1.0 / JUDGES - 1.0 / n_chains) / (1.0 - 1.0 / JUDGES)
    return float(np.clip(1.0 - gain / max(two, np.finfo(float).tiny), _LEAST_LEFT, 1.0))


def _size(scores: Array, own: float = 0.0) -> float:
    """Return the root mean square of normal scores, in which ``own`` rows more are of size 1."""
    squares = np.minimum(np.square(scores), _LARGEST_SCORE**2)
    return float(np.sqrt((squares.sum() + own) / (len(scores) + own)))


def _calibration(known: Array, scores: Array, seed: int) -> Calibration:
    """Fit the calibration of scores (row,): from 200 rows on by their ranks, with a scale that may change with x.

    Fewer hardly tell a quantile: their size is taken, with 10 rows of size 1 beside them, and a shape between that of
    their ranks and Student's t. No score then counts as farther than twice the farthest that is expected of as many
    Normal ones: the farthest of few are the ends of 90% intervals.
    """
    n = len(scores)
    if n >= _FEWEST_FOR_RANKS:
        return fit_calibration(known, scores, seed=seed)
    size, farthest = _size(scores, _OWN_ROWS), 2.0 * ndtri(n / (n + 1.0))
    shape = np.clip(scores / size, -farthest, farthest)
    found = fit_calibration(known, shape, varies=False, freedom=n + _OWN_ROWS)
    return replace(found, values=size * found.values)


def _cross_calibrated(known: Array, scores: Array, seed: int) -> Array:
    """Return ranks of scores calibrated by the other half of the rows: what a report may show."""
    half = np.random.default_rng(derive_seed(seed, "halves")).permutation(len(scores)) % 2 == 0
    ranks = np.empty(len(scores))
    for part in (half, ~half):
        ranks[part] = _calibration(known[~part], scores[~part], seed).calibrated(scores[part], known[part])
    return ranks


def calibrated_levels(fit: RegressionFit, output: int, levels: Array, mean: Array, variance: Array) -> Array:
    """Return the predictive's normal scores of calibrated levels, (row, level)."""
    known = np.column_stack([mean, 0.5 * np.log(variance)])
    return fit.calibrations[output].predictive_scores(levels, known)


def calibrated_ranks(fit: RegressionFit, output: int, scores: Array, mean: Array, variance: Array) -> Array:
    """Return calibrated probabilities of the predictive's normal scores (row,)."""
    known = np.column_stack([mean, 0.5 * np.log(variance)])
    return np.clip(fit.calibrations[output].calibrated(scores, known), ndtr(-8.0), ndtr(8.0))
