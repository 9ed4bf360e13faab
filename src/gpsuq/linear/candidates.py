"""Candidates for the law of coefficients, judged by observations that they had not seen.

A candidate is fitted without each of several folds. What it then says of the fold, its log density, calibrated as
predictions will be, is its score. Equal coefficients are a candidate like any other; laws that can be written down
are, and what training makes of the better one under several weights of the spread penalty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core import mixtures
from gpsuq.core.calibration import Calibration, fit_calibration, identity_calibration
from gpsuq.core.generators import Generator
from gpsuq.core.seeds import derive_seed, quasi_normal
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.engine.progress import stage
from gpsuq.linear.centre import law_centres
from gpsuq.linear.equal import EqualFit
from gpsuq.linear.evidence import far_out
from gpsuq.linear.laws import Law, equal_law, lines_law, normal_law, refit_lines
from gpsuq.linear.refine import generator_draws, refine
from gpsuq.linear.sample import LinearSettings, Rows, Sample

Array = NDArray[np.floating]
Index = NDArray[np.intp]

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
    return law.with_noise(float(np.sqrt(n_rows / max(n_rows - k, 0.5 * n_rows))))


def recentred(kind: str, law: Law, sample: Sample, *, straight: bool) -> Law:
    """Move a law so that its mean is that of the observations: it is what is reported, so it is what is judged.

    Where the relation is straight, the mean of lines is best known from them: they stay.
    """
    if straight and kind in LINES:
        return law
    return law.around(law_centres(sample, sample.weight[None], law, weighted=straight)[0])


def widened(law: Law, design: Array, estimation: Array) -> tuple[Array, Array]:
    """Return the components of a law's predictive, each widened by the uncertainty of the mean: (n, k) twice."""
    loc, scale = law.components(design)
    unknown = np.einsum("nq,qp,np->n", design, estimation, design)
    return loc, np.sqrt(np.square(scale) + np.maximum(unknown, 0.0)[:, None])


@dataclass(frozen=True)
class Judged:
    """A candidate, and what its laws without each fold say of the observations of that fold.

    ``log_density`` is of the held-out ``observations`` in turn, ``normal_scores`` of all their measures. ``start`` is
    the kind of law that training began from, or the kind itself; ``varies`` says whether the size of residuals may
    change with x, ``left_out`` whether no law had seen what it was judged by; ``freedom`` are the degrees of freedom
    that its scale was estimated with.
    """

    kind: str
    start: str
    spread_weight: float
    varies: bool
    left_out: bool
    freedom: float
    sample: Sample
    seed: int
    observations: Index
    normal_scores: Array
    log_density: Array

    @cached_property
    def _rows(self) -> Rows:
        return self.sample.rows(self.observations).flat()

    def _learned(self, some: NDArray[np.bool_]) -> Calibration:
        rows = self._rows.part(some)
        return fit_calibration(
            rows.columns,
            self.normal_scores[some],
            rows.weight,
            varies=self.varies,
            freedom=self.freedom,
            apart=far_out(rows.columns, np.ones(len(rows.y), dtype=bool)),
            seed=self.seed,
        )

    @cached_property
    def calibration(self) -> Calibration:
        """What the scores teach to make the predictive hold; the identity where laws had seen what they judge."""
        if not self.left_out:
            return identity_calibration(self._rows.columns.shape[1], self.freedom)
        return self._learned(np.ones(len(self.normal_scores), dtype=bool))

    def ranks(self) -> Array:
        """Return calibrated probabilities of at most y of held-out rows, each by what the other half of them taught.

        They are what calibration is checked by: no row is judged by a law or a calibration that had seen it. Empty
        where rows are too few for that.
        """
        n = len(self.normal_scores)
        if not self.left_out or n < _FEWEST_TO_CHECK:
            return np.empty(0)
        first = np.random.default_rng(derive_seed(self.seed, "halves")).permutation(n) % 2 == 0
        result = np.empty(n)
        for half in (first, ~first):
            result[half] = self._learned(~half).calibrated(self.normal_scores[half], self._rows.columns[half])
        return result[:_MOST_CHECKED]

    @cached_property
    def scores(self) -> Array:
        """Log density of every observation (n,), as calibrated predictions would have it; nan where it was not judged.

        It is bounded: a share of one per cent is spread evenly over the range of y.
        """
        log = self.log_density
        if not self.sample.grouped:
            scale, z = self.calibration.scale(self._rows.columns), self.normal_scores
            log = log + 0.5 * (np.square(z) - np.square(z / scale)) - np.log(scale)
        wide = -self.sample.mask[self.observations].sum(1) * np.log(2.0 * self.sample.far(1.0))
        result = np.full(len(self.sample), np.nan)
        result[self.observations] = np.logaddexp(np.log1p(-_WIDE_SHARE) + log, np.log(_WIDE_SHARE) + wide)
        return result


def _judge(
    names: tuple[str, str, float],
    laws: list[Law],
    held_out: list[Index],
    sample: Sample,
    estimation: Array,
    k: int,
    seed: int,
    *,
    varies: bool,
) -> Judged:
    """Let each law of a candidate (kind, start, spread weight) speak of its own fold.

    ``estimation`` is the covariance of k mean coefficients. One law alone has seen what it speaks of.
    """
    scores, densities = [], []
    for law, index in zip(laws, held_out, strict=True):
        part = sample.rows(index)
        rows = part.flat()
        loc, scale = widened(law, rows.design, estimation)
        scores.append(mixtures.normal_scores(rows.y, loc, scale, law.share))
        densities.append(law.log_density(part) if part.grouped else mixtures.log_density(rows.y, loc, scale, law.share))
    said = np.concatenate(held_out), np.concatenate(scores), np.concatenate(densities)
    freedom = max(sample.n_measures - k, 1.0)
    return Judged(*names, varies, len(laws) > 1, freedom, sample, seed, *said)


def judge_equal(
    sample: Sample, fit: EqualFit, k: int, estimation: Array, seed: int, *, leave_out: bool, varies: bool
) -> Judged:
    """Judge equal coefficients by tenths that were left out, or, where rows are too few for that, by all of them."""
    names = ("equal", "equal", EQUAL)
    if not leave_out:
        law = unbiased(equal_law(fit), sample.n_measures, k)
        return _judge(names, [law], [np.arange(len(sample))], sample, estimation, k, seed, varies=False)
    n_folds = min(_EQUAL_FOLDS, len(sample))
    folds = np.random.default_rng(derive_seed(seed, "equal-folds")).permutation(len(sample)) % n_folds
    rows, fold_of_row = sample.flat(), sample.of_measures(folds)
    rests = [rows.part(fold_of_row != fold) for fold in range(n_folds)]
    laws = [unbiased(equal_law(fit.without(rest)), float(rest.weight.sum()), k) for rest in rests]
    held_out = [np.flatnonzero(folds == fold) for fold in range(n_folds)]
    return _judge(names, laws, held_out, sample, estimation, k, seed, varies=varies)


class Written:
    """Laws that can be written down, fitted to all observations; each can be fitted again to some of them."""

    def __init__(self, sample: Sample, settings: LinearSettings, k: int) -> None:
        rng = np.random.default_rng(derive_seed(settings.seed, "lines"))
        self.sample, self.settings, self.k = sample, settings, k
        found = {
            "normal": normal_law(sample, random_level=settings.random_level),
            "lines": lines_law(sample, rng),
        }
        if settings.random_level and not sample.grouped:
            found["levels"] = lines_law(sample, rng, same_slopes=True)
        self.laws = {kind: law for kind, law in found.items() if law is not None}

    def of_all(self, kind: str) -> Law:
        """Return the law of all observations."""
        return unbiased(self.laws[kind], self.sample.n_measures, self.k)

    def lines_of_chains(self, kind: str, weights: Array) -> list[Law]:
        """Fit lines again with the weights (chain, n) of every chain: their mean depends most on whose rows count."""
        law, same = self.of_all(kind), kind == "levels"
        return [refit_lines(replace(self.sample, weight=weight), law, same_slopes=same) for weight in weights]

    def of_some(self, kind: str, some: Sample) -> Law:
        """Fit some of the observations from where the fit of all stands."""
        start = self.laws[kind]
        if kind == "normal":
            law = normal_law(some, random_level=self.settings.random_level, start=start)
        else:
            law = refit_lines(some, start, same_slopes=kind == "levels")
        return unbiased(law, some.n_measures, self.k)


def choose_law(
    equal: Judged, written: Written, estimation: Array, *, straight: bool, detected: bool
) -> tuple[Judged, pd.DataFrame]:
    """Judge laws of coefficients beside equal ones; return the chosen candidate, and the table of all.

    ``straight`` says whether the relation is: then means may be weighted (:func:`gpsuq.linear.centre.law_centres`).
    Where a difference was not ``detected`` by a test, a law has to show that it is better.
    """
    sample, settings = written.sample, written.settings
    n_folds = _FOLDS_OF_FEW if len(sample) < _FEW else _LAW_FOLDS
    plan = ChainPlan(n_folds, None, 0.0, 0.0, list(range(n_folds)))
    dealt = ChainWeights(plan, len(sample), sample.frequencies(), settings.seed).held_out  # as training deals them
    assert dealt is not None
    held_out = [rows.numpy() for rows in dealt]
    rests = [sample.rows(np.setdiff1d(np.arange(len(sample)), rows)) for rows in held_out]
    candidates, starts = [equal], {}

    def judged(kind: str, start: str, spread: float, laws: list[Law]) -> Judged:
        moved = [recentred(kind, law, rest, straight=straight) for law, rest in zip(laws, rests, strict=True)]
        names = (kind, start, spread)
        varies = not sample.grouped
        return _judge(names, moved, held_out, sample, estimation, written.k, settings.seed, varies=varies)

    with stage("laws that can be written down"):
        for kind in written.laws:
            starts[kind] = [written.of_some(kind, rest) for rest in rests]
            candidates.append(judged(kind, kind, 0.0, starts[kind]))
    start = max(candidates[1:], key=lambda candidate: float(np.nanmean(candidate.scores))).kind
    asked = settings.spread_weight != "auto"
    weights = PATH if len(sample) >= _FEWEST_TO_TRAIN else ()  # few observations do not tell shapes
    if asked:
        weights = (float(settings.spread_weight),)
    trained = _trained(starts[start], weights, sample, settings)
    candidates += [judged("trained", start, spread, laws) for spread, laws in trained]
    law, path = _choose(candidates, sample.weight, asked=asked)
    if asked or sample.grouped:
        return law, path  # who names groups says that they differ
    ahead = law.scores - equal.scores
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
    with stage("choosing the spread"):
        spreads = [spread for spread in weights for _ in starts]
        generator = refine(starts * len(weights), sample, settings, spreads, list(range(n_folds)) * len(weights))
    for number, spread in enumerate(weights):
        drawn = [drawn_law(generator, [number * n_folds + fold], settings.seed) for fold in range(n_folds)]
        laws = [law for law in drawn if law is not None]
        if len(laws) == n_folds:
            yield spread, laws


def _choose(candidates: list[Judged], weight: Array, *, asked: bool) -> tuple[Judged, pd.DataFrame]:
    """Choose a law by its scores, higher is better: equal coefficients, the first candidate, are set aside.

    The best is taken, or one that can be written down and is as good as it within a standard error. Who ``asked`` for
    a spread weight gets what was trained with it. Returns the table of all, too.
    """
    scores = np.stack([candidate.scores for candidate in candidates])
    seen = np.isfinite(scores).all(0)
    scores, weight = scores[:, seen], weight[seen]
    means = scores @ weight / weight.sum()
    excess, error = _behind(scores[means.argmax()] - scores, weight)
    path = pd.DataFrame(
        {
            "law": [candidate.kind for candidate in candidates],
            "spread_weight": [candidate.spread_weight for candidate in candidates],
            "score": means,
            "excess": excess,
            "standard_error": error,
        }
    )
    if asked:
        return candidates[-1], path
    best = 1 + int(means[1:].argmax())
    excess, error = _behind(scores[best] - scores, weight)
    written = [number for number in range(1, len(candidates)) if candidates[number].kind != "trained"]
    as_good = [number for number in written if excess[number] <= _AS_GOOD * error[number]]
    return candidates[min(as_good, key=lambda number: float(excess[number])) if as_good else best], path


def _behind(lost: Array, weight: Array) -> tuple[Array, Array]:
    """Return the mean of what is lost (candidate, observation), and its standard error."""
    mean = lost @ weight / weight.sum()
    error = np.sqrt(np.square(lost - mean[:, None]) @ weight / weight.sum() / max(weight.sum(), 1.0))
    return mean, error


def fit_chosen(chosen: Judged, written: Written) -> tuple[Law, Generator | None]:
    """Fit the chosen kind of law to all observations; a trained one falls back to its start if that fails."""
    start, seed = written.of_all(chosen.start), written.settings.seed
    if chosen.kind != "trained":
        return start, None
    with stage("training the law"):
        weights = [chosen.spread_weight] * _TRAINED_CHAINS
        generator = refine([start] * _TRAINED_CHAINS, written.sample, written.settings, weights)
    law = drawn_law(generator, range(_TRAINED_CHAINS), seed)
    return (start, None) if law is None else (law, generator)


def drawn_law(generator: Generator, chains: Sequence[int], seed: int) -> Law | None:
    """Return draws of some chains of a generator as a law of many components; None where they are not finite."""
    noise = quasi_normal(_TRAINED_DRAWS // len(chains), generator.noise_dim, seed)
    coefficients, sigma = generator_draws(generator.select(chains), noise)
    mean, sigmas = coefficients.reshape(-1, coefficients.shape[2]), sigma.ravel()
    if not (np.isfinite(mean).all() and np.isfinite(sigmas).all()):
        return None
    return Law(np.full(len(mean), 1.0 / len(mean)), mean, np.zeros((*mean.shape, 0)), sigmas)
