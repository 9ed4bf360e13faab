"""Candidates for the law of coefficients, judged by observations that they had not seen.

A candidate is fitted without each of several folds. What it then says of the fold, its log density, calibrated as
predictions will be, is its score. Equal coefficients are a candidate like any other; laws that can be written down
are, and what training makes of the better one under several weights of the spread penalty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gpsuq.core import mixtures
from gpsuq.core.calibration import Calibration, fit_calibration, identity_calibration
from gpsuq.core.generators import Generator
from gpsuq.core.seeds import derive_seed, quasi_normal
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.engine.progress import stage
from gpsuq.linear.centre import law_centres
from gpsuq.linear.equal import EqualFit
from gpsuq.linear.laws import Law, equal_law, lines_law, normal_law, refit_lines
from gpsuq.linear.refine import generator_draws, refine
from gpsuq.linear.sample import LinearSettings, Sample

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

PATH: tuple[float, ...] = (0.0, 0.01)
"""Weights of the spread penalty that training tries."""

LINES = ("lines", "levels")
"""Kinds of laws that are subgroups."""

EQUAL = 3.0
"""The spread weight that stands for equal coefficients."""

_LAW_FOLDS, _EQUAL_FOLDS = 4, 10
_FEW, _FOLDS_OF_FEW = 1000, 8  # of few observations, a fit without an eighth is nearly that of all
_FEWEST_TO_TRAIN = 200
_FEWEST_TO_CHECK, _MOST_CHECKED = 40, 4000  # rows
_TRAINED_CHAINS = 4
_TRAINED_DRAWS = 256  # of all chains, for predictions
_SURELY = 2.0  # standard errors by which what the test speaks against must be better
_CLEARLY = 0.03  # nats an observation by which equal coefficients must be, once a difference was detected
_AS_GOOD = 1.0  # standard errors within which a law that can be written down is taken
_WIDE_SHARE = 0.01  # of the score that bounds what one observation can cost


def unbiased(law: Law, n_rows: float, k: int) -> Law:
    """Multiply sigma by what fitting k coefficients to so many rows makes it too small by."""
    return replace(law, sigma=law.sigma * np.sqrt(n_rows / max(n_rows - k, 0.5 * n_rows)))


def recentred(kind: str, law: Law, sample: Sample, *, straight: bool) -> Law:
    """Move a law so that its mean is that of the observations: it is what is reported, so it is what is judged.

    Where the relation is straight, the mean of lines is best known from them: they stay.
    """
    if straight and kind in LINES:
        return law
    return law.around(law_centres(sample, sample.weight[None], law, weighted=straight)[0])


def widened(law: Law, design: Array, estimation: Array) -> tuple[Array, Array]:
    """Components of a law's predictive with the uncertainty of its mean added to each: (n, k) twice."""
    loc, scale = law.components(design)
    unknown = np.einsum("nq,qp,np->n", design, estimation, design)
    return loc, np.sqrt(np.square(scale) + np.maximum(unknown, 0.0)[:, None])


@dataclass(frozen=True)
class Judged:
    """A candidate: its laws without each fold, and what they say of the observations of that fold.

    ``log_density`` is of all held-out observations in turn, ``normal_scores`` of all their measures. ``start`` is the
    kind of law that training began from, or the kind itself; ``varies`` says whether the size of residuals may change
    with x, ``estimation`` is the covariance of mean coefficients.
    """

    kind: str
    start: str
    spread_weight: float
    varies: bool
    laws: list[Law]
    held_out: list[Rows]
    estimation: Array
    normal_scores: Array
    log_density: Array

    @property
    def observations(self) -> Rows:
        """All held-out observations in turn."""
        return np.concatenate(self.held_out)

    def calibration(self, sample: Sample, seed: int) -> Calibration:
        """Learn from the scores how to make the predictive hold; few laws were judged by what they had seen."""
        part = sample.rows(self.observations)
        columns, weight = part.columns[part.mask], part.flat()[2]
        if len(self.laws) == 1:
            return identity_calibration(columns.shape[1])
        return fit_calibration(columns, self.normal_scores, weight, varies=self.varies, seed=seed)

    def ranks(self, sample: Sample, seed: int) -> Array:
        """Calibrated probabilities of at most y of held-out rows, each by what the other half of them taught.

        They are what calibration is checked by: no row is judged by a law or a calibration that had seen it. Empty
        where rows are too few for that.
        """
        if len(self.laws) == 1 or len(self.normal_scores) < _FEWEST_TO_CHECK:
            return np.empty(0)
        part = sample.rows(self.observations)
        columns, weight = part.columns[part.mask], part.flat()[2]
        first = np.random.default_rng(derive_seed(seed, "halves")).permutation(len(columns)) % 2 == 0
        result = np.empty(len(columns))
        for half in (first, ~first):
            learned = fit_calibration(
                columns[~half], self.normal_scores[~half], weight[~half], varies=self.varies, seed=seed
            )
            result[half] = learned.calibrated(self.normal_scores[half], columns[half])
        return result[:_MOST_CHECKED]

    def scores(self, sample: Sample, seed: int) -> Array:
        """Log density of every observation (n,), as calibrated predictions would have it; nan where it was not judged.

        It is bounded: a share of one per cent is spread evenly over the range of y.
        """
        log = self.log_density
        if not sample.grouped:
            scale = self.calibration(sample, seed).scale(sample.columns[self.observations, 0])
            z = self.normal_scores
            log = log + 0.5 * (np.square(z) - np.square(z / scale)) - np.log(scale)
        wide = -sample.mask[self.observations].sum(1) * np.log(2.0 * sample.far(1.0))
        result = np.full(len(sample), np.nan)
        result[self.observations] = np.logaddexp(np.log1p(-_WIDE_SHARE) + log, np.log(_WIDE_SHARE) + wide)
        return result


def _judge(
    kind: str,
    start: str,
    spread_weight: float,
    varies: bool,
    laws: list[Law],
    held_out: list[Rows],
    sample: Sample,
    estimation: Array,
) -> Judged:
    """Let each law speak of its own fold."""
    scores, densities = [], []
    for law, rows in zip(laws, held_out, strict=True):
        part = sample.rows(rows)
        design, target, _ = part.flat()
        loc, scale = widened(law, design, estimation)
        scores.append(mixtures.normal_scores(target, loc, scale, law.share))
        whole = law.log_density(part) if part.grouped else mixtures.log_density(target, loc, scale, law.share)
        densities.append(whole)
    said = np.concatenate(scores), np.concatenate(densities)
    return Judged(kind, start, spread_weight, varies, laws, held_out, estimation, *said)


def judge_equal(
    sample: Sample, fit: EqualFit, k: int, estimation: Array, seed: int, *, leave_out: bool, varies: bool
) -> Judged:
    """Judge equal coefficients by tenths that were left out, or, where rows are too few for that, by all of them."""
    if not leave_out:
        law = unbiased(equal_law(fit), sample.n_measures, k)
        return _judge("equal", "equal", EQUAL, False, [law], [np.arange(len(sample))], sample, estimation)
    n_folds = min(_EQUAL_FOLDS, len(sample))
    folds = np.random.default_rng(derive_seed(seed, "equal-folds")).permutation(len(sample)) % n_folds
    by_row = np.broadcast_to(folds[:, None], sample.y.shape)[sample.mask]
    design, target, weight = sample.flat()
    columns, laws = sample.columns[sample.mask], []
    for fold in range(n_folds):
        rest = by_row != fold
        part = fit.without(design[rest], target[rest], weight[rest], columns[rest])
        laws.append(unbiased(equal_law(part), float(weight[rest].sum()), k))
    held_out = [np.flatnonzero(folds == fold) for fold in range(n_folds)]
    return _judge("equal", "equal", EQUAL, varies, laws, held_out, sample, estimation)


class Written:
    """Laws that can be written down, fitted to all observations; each can be fitted again to some of them."""

    def __init__(self, sample: Sample, settings: LinearSettings, k: int) -> None:
        rng = np.random.default_rng(derive_seed(settings.seed, "lines"))
        self._random_level, self._k = settings.random_level, k
        found: dict[str, Law | None] = {
            "normal": normal_law(sample, random_level=self._random_level),
            "lines": lines_law(sample, rng),
        }
        if self._random_level and not sample.grouped:
            found["levels"] = lines_law(sample, rng, same_slopes=True)
        self.laws = {kind: law for kind, law in found.items() if law is not None}
        self._n_rows = sample.n_measures

    def of_all(self, kind: str) -> Law:
        """Give the law of all observations."""
        return unbiased(self.laws[kind], self._n_rows, self._k)

    def lines_of_chains(self, kind: str, sample: Sample, weights: Array) -> list[Law]:
        """Fit lines again with the weights (chain, n) of every chain: their mean depends most on whose rows count."""
        law = self.of_all(kind)
        return [refit_lines(replace(sample, weight=weight), law, same_slopes=kind == "levels") for weight in weights]

    def of_some(self, kind: str, some: Sample) -> Law:
        """Fit some of the observations from where the fit of all stands."""
        start = self.laws[kind]
        if kind == "normal":
            law = normal_law(some, random_level=self._random_level, start=start)
        else:
            law = refit_lines(some, start, same_slopes=kind == "levels")
        return unbiased(law, some.n_measures, self._k)


def choose_law(
    equal: Judged,
    sample: Sample,
    written: Written,
    settings: LinearSettings,
    estimation: Array,
    *,
    straight: bool,
    detected: bool,
) -> tuple[Judged, pd.DataFrame]:
    """Judge laws of coefficients beside equal ones; give the chosen candidate, and the table of all.

    ``straight`` says whether the relation is: then means may be weighted (:func:`gpsuq.linear.centre.law_centres`).
    Where a difference was not ``detected`` by a test, a law has to show that it is better.
    """
    weight = None if (sample.weight == 1.0).all() else torch.from_numpy(sample.weight)
    n_folds = _FOLDS_OF_FEW if len(sample) < _FEW else _LAW_FOLDS
    plan = ChainPlan(n_folds, None, 0.0, 0.0, list(range(n_folds)))
    dealt = ChainWeights(plan, len(sample), weight, settings.seed).held_out  # as training deals them
    assert dealt is not None
    held_out = [rows.numpy() for rows in dealt]
    rests = [sample.rows(np.setdiff1d(np.arange(len(sample)), rows)) for rows in held_out]
    candidates, starts = [equal], {}

    def judged(kind: str, start: str, spread: float, laws: list[Law]) -> Judged:
        moved = [recentred(kind, law, rest, straight=straight) for law, rest in zip(laws, rests, strict=True)]
        return _judge(kind, start, spread, not sample.grouped, moved, held_out, sample, estimation)

    with stage("laws that can be written down"):
        for kind in written.laws:
            starts[kind] = [written.of_some(kind, rest) for rest in rests]
            candidates.append(judged(kind, kind, 0.0, starts[kind]))
    scores = [candidate.scores(sample, settings.seed) for candidate in candidates]
    start = candidates[1 + int(np.argmax([np.nanmean(each) for each in scores[1:]]))]
    asked = settings.spread_weight != "auto"
    weights = PATH if len(sample) >= _FEWEST_TO_TRAIN else ()  # few observations do not tell shapes
    if asked:
        weights = (float(settings.spread_weight),)
    for spread, laws in _trained(starts[start.kind], weights, sample, settings):
        candidates.append(judged("trained", start.kind, spread, laws))
        scores.append(candidates[-1].scores(sample, settings.seed))
    law, path = _choose(candidates, np.stack(scores), sample.weight, asked=asked)
    if asked or sample.grouped:
        return law, path  # who names groups says that they differ
    ahead = law.scores(sample, settings.seed) - scores[0]
    seen = np.isfinite(ahead)
    mean, error = _behind(ahead[None, seen], sample.weight[seen])
    if detected:  # equal coefficients with noise that changes with x have to be clearly better
        return (equal if mean[0] < -max(_CLEARLY, _SURELY * error[0]) else law), path
    return (law if mean[0] > _SURELY * error[0] else equal), path


def _trained(
    starts: list[Law], weights: Sequence[float], sample: Sample, settings: LinearSettings
) -> Iterator[tuple[float, list[Law]]]:
    """Train the laws of all folds with every spread weight, as chains of one computation; drop weights that fail."""
    if not weights:
        return
    n_folds = len(starts)
    chains = [(spread, fold) for spread in weights for fold in range(n_folds)]
    with stage("choosing the spread"):
        generator = refine(
            [starts[fold] for _, fold in chains],
            sample,
            settings,
            [spread for spread, _ in chains],
            [fold for _, fold in chains],
        )
    for number, spread in enumerate(weights):
        drawn = [drawn_law(generator, [number * n_folds + fold], settings.seed) for fold in range(n_folds)]
        laws = [law for law in drawn if law is not None]
        if len(laws) == n_folds:
            yield spread, laws


def _choose(candidates: list[Judged], scores: Array, weight: Array, *, asked: bool) -> tuple[Judged, pd.DataFrame]:
    """Choose a law by scores (candidate, observation), higher is better: equal coefficients, the first, are set aside.

    The best is taken, or one that can be written down and is as good as it within a standard error. Who ``asked`` for
    a spread weight gets what was trained with it. Gives the table of all, too.
    """
    seen = np.isfinite(scores).all(0)
    scores, weight = scores[:, seen], weight[seen]
    means = scores @ weight / weight.sum()
    path = pd.DataFrame(
        {
            "law": [candidate.kind for candidate in candidates],
            "spread_weight": [candidate.spread_weight for candidate in candidates],
            "score": means,
        }
    )
    excess, error = _behind(scores[means.argmax()] - scores, weight)
    path = path.assign(excess=excess, standard_error=error)
    if asked:
        return candidates[-1], path
    best = 1 + int(means[1:].argmax())
    excess, error = _behind(scores[best] - scores, weight)
    written = [number for number in range(1, len(candidates)) if candidates[number].kind != "trained"]
    as_good = [number for number in written if excess[number] <= _AS_GOOD * error[number]]
    return candidates[min(as_good, key=lambda number: float(excess[number])) if as_good else best], path


def _behind(lost: Array, weight: Array) -> tuple[Array, Array]:
    """Mean of what is lost (candidate, observation), and its standard error."""
    mean = lost @ weight / weight.sum()
    error = np.sqrt(np.square(lost - mean[:, None]) @ weight / weight.sum() / max(weight.sum(), 1.0))
    return mean, error


def fit_chosen(
    chosen: Judged, sample: Sample, written: Written, settings: LinearSettings
) -> tuple[Law, Generator | None]:
    """Fit the chosen kind of law to all observations; a trained one falls back to its start if that fails."""
    start = written.of_all(chosen.start)
    if chosen.kind != "trained":
        return start, None
    with stage("training the law"):
        weights = [chosen.spread_weight] * _TRAINED_CHAINS
        generator = refine([start] * _TRAINED_CHAINS, sample, settings, weights)
    law = drawn_law(generator, range(_TRAINED_CHAINS), settings.seed)
    return (start, None) if law is None else (law, generator)


def drawn_law(generator: Generator, chains: Sequence[int], seed: int) -> Law | None:
    """Give draws of some chains of a generator as a law of many components; None where they are not finite."""
    noise = quasi_normal(_TRAINED_DRAWS // len(chains), generator.noise_dim, seed)
    coefficients, sigma = generator_draws(generator.select(chains), noise)
    mean, sigmas = coefficients.reshape(-1, coefficients.shape[2]), sigma.ravel()
    if not (np.isfinite(mean).all() and np.isfinite(sigmas).all()):
        return None
    return Law(np.full(len(mean), 1.0 / len(mean)), mean, np.zeros((*mean.shape, 0)), sigmas)
