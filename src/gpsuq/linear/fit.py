"""Linear regression from a table to a law of coefficients that was judged by rows it had not seen.

One coefficient vector with a noise law of its own is fitted first. Only where the data speak against it, laws of
coefficients are: Normal, lines, and what training makes of the better of them. Rows left out decide between all; their
ranks calibrate the predictive. Bootstrap weights say how well mean coefficients are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.calibration import Calibration
from gpsuq.core.generators import Generator
from gpsuq.core.seeds import derive_seed
from gpsuq.engine.chains import ChainPlan, ChainWeights, warn_of_small_weights
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.progress import stage
from gpsuq.errors import warn
from gpsuq.linear import candidates, centre
from gpsuq.linear.candidates import EQUAL, LINES
from gpsuq.linear.equal import SIGMA_FLOOR, fit_equal, near_least_squares
from gpsuq.linear.evidence import Evidence, gather_evidence
from gpsuq.linear.findings import FAILED, describe
from gpsuq.linear.laws import Law, equal_law
from gpsuq.linear.passes import AllRows, InMemory
from gpsuq.linear.refine import generator_draws
from gpsuq.linear.sample import LinearSettings, Sample, observe
from gpsuq.linear.units import LinearUnits, linear_units

Array = NDArray[np.floating]

_ROWS = 8192  # observations that laws are fitted to; means take all
_VERY_MANY = 200  # rows for each of these
_FEWEST = 12, 40  # observations and rows for a law
_FEWEST_TO_LEAVE_OUT = 20
_FOR_EACH = 3  # rows for each coefficient, to leave some out


@dataclass(frozen=True)
class LinearFit:
    """A fitted law in the units of training, with all that leads from there to the user's parameters and predictions.

    ``law`` has the components of the predictive. ``chains`` are the laws of all chains; where training found the law
    there are none, and ``generator`` draws in their place (a chain of the fit takes one of its chains in turn,
    ``moved`` (q,) to the mean of the observations). ``centers`` (chain, q) are the mean coefficients of every chain,
    ``estimation`` (q, q) is their covariance, ``bulk`` the scale of ordinary noise. ``ranks`` are calibrated
    probabilities of at most y of rows that neither the law nor the calibration had seen.
    ``kind`` names the law: equal, normal, lines, levels, or trained.
    """

    units: LinearUnits
    law: Law
    chains: list[Law]
    generator: Generator | None
    moved: Array
    centers: Array
    estimation: Array
    bulk: float
    calibration: Calibration
    ranks: Array
    kind: str
    spread_weight: float
    path: pd.DataFrame | None
    evidence: Evidence | None
    reweighted: bool
    findings: list[Finding]

    @property
    def noise_dim(self) -> int:
        """Numbers of noise that a draw takes."""
        return self.law.noise_dim if self.generator is None else self.generator.noise_dim

    def parameters(self, noise: Tensor) -> dict[str, Array]:
        """Return the draws of every chain that belong to noise (draw, q) or (chain, draw, q), in the user's units."""
        n_chains = len(self.centers)
        noise = noise.expand(n_chains, *noise.shape[-2:])
        if self.generator is None:
            each = [law.draws(block.double().numpy()) for law, block in zip(self.chains, noise, strict=True)]
            coefficients, sigma = (np.stack(part) for part in zip(*each, strict=True))
            return self.units.parameters(coefficients, sigma)
        of_chain = [chain % self.generator.n_chains for chain in range(n_chains)]
        coefficients, sigma = generator_draws(self.generator.select(of_chain), noise)
        shift = self.moved + self.centers - self.law.center
        return self.units.parameters(coefficients + shift[:, None], sigma)

    def components(self, X: Array) -> tuple[Array, Array, Array]:
        """Return the predictive mixture of rows of X: means and standard deviations (n, k), weights (k,)."""
        return self._in_units(X, *candidates.widened(self.law, self.units.design(X), self.estimation))

    def ordinary(self, X: Array) -> tuple[Array, Array, Array]:
        """Return the components at rows of X as they are without wild noise, and as if their means were known."""
        law = replace(self.law, sigma=np.minimum(self.law.sigma, self.bulk))
        return self._in_units(X, *law.components(self.units.design(X)))

    def _in_units(self, X: Array, loc: Array, scale: Array) -> tuple[Array, Array, Array]:
        fitted = self.units.level + (X - self.units.center) @ self.units.slope
        return fitted[:, None] + self.units.scale * loc, self.units.scale * scale, self.law.share


class _Size(NamedTuple):
    """Independent observations, rows of the table, coefficients, and what these rows are enough for."""

    n: float
    n_rows: float
    k: int
    bootstraps: bool  # weights of chains
    leaves_out: bool  # fitting some, and judging by others
    has_laws: bool


def _size(sample: Sample, n_rows: float, k: int) -> _Size:
    n, n_measures = sample.n_observations if sample.grouped else n_rows, sample.n_measures
    leaves_out = n_measures >= max(_FEWEST_TO_LEAVE_OUT, _FOR_EACH * k) and len(sample) > 3
    has_laws = leaves_out and len(sample) >= _FEWEST[0] and n_measures >= _FEWEST[1]
    return _Size(n, n_rows, k, n > 2 * k, leaves_out, has_laws)


def fit_linear(
    X: Array,
    y: Array,
    weight: Array | None,
    codes: NDArray[np.intp] | None,
    names: Sequence[str],
    settings: LinearSettings,
    *,
    intercept: bool,
    everything: AllRows | None = None,
) -> LinearFit:
    """Fit equal coefficients, test them, fit laws where they differ, choose, calibrate, and find the centres.

    Where ``everything`` is given, X, y and weights are a sample of it.
    """
    streamed = everything is not None
    everything = InMemory(X, y, weight) if everything is None else everything
    units, start = linear_units(X, y, weight, everything, intercept=intercept, names=names, seed=settings.seed)
    sample = observe(X, y, weight, codes, units, _ROWS)
    size = _size(sample, everything.total_weight, units.rank + intercept)
    rows = sample.flat()
    floor = SIGMA_FLOOR if size.bootstraps else 1.0  # few rows do not keep sigma from zero
    equal, evidence = fit_equal(rows, start, floor), None
    if settings.spread_weight == "auto" and size.has_laws and not sample.grouped:
        with stage("testing equal coefficients"):
            evidence = gather_evidence(rows, equal, seed=settings.seed)
        if evidence.differ or evidence.curved:
            straight = not evidence.curved
            equal = near_least_squares(rows, equal, seed=settings.seed, straight=straight, sigma_floor=floor)
    weights = _bootstrap_weights(sample, settings, size)
    of_chains, share = centre.equal_centres(sample, weights, equal), centre.equal_share(sample, equal)
    centers = _corrected(of_chains, equal.coefficients, equal.noise.sd, share, sample, settings, size)
    varies = size.has_laws and not sample.grouped
    chosen = candidates.judge_equal(
        sample, equal, size.k, _covariance(centers, size), settings.seed, leave_out=size.leaves_out, varies=varies
    )
    law, generator, path = candidates.unbiased(equal_law(equal), size.n_rows, size.k), None, None
    moved, chains = np.zeros(len(law.center)), [law] * len(centers)
    if size.has_laws and _asks_for_a_law(sample, settings, evidence):
        written = candidates.Written(sample, settings, size.k)
        straight = evidence is None or not evidence.curved
        detected = evidence is not None and evidence.differ
        chosen, path = candidates.choose_law(
            chosen, written, _covariance(centers, size), straight=straight, detected=detected
        )
        if chosen.kind != "equal":
            trained, generator = candidates.fit_chosen(chosen, written)
            law = candidates.recentred(chosen.kind, trained, sample, straight=straight)
            moved = law.center - trained.center
            chains = [] if generator is not None else [law] * len(centers)
            if chosen.kind in LINES:
                chains = written.lines_of_chains(chosen.kind, weights)
            if chosen.kind in LINES and straight:
                of_chains, share = np.stack([each.center for each in chains]), 1.0
            else:
                of_chains = centre.law_centres(sample, weights, law, weighted=straight)
                share = centre.law_share(sample, law, weighted=straight)
            centers = _corrected(of_chains, law.center, float(np.sqrt(law.moments()[1])), share, sample, settings, size)
    if size.n_rows > sample.n_measures:
        same = equal if chosen.kind == "equal" else None
        # A step leaves a hundredth of the way, which among very many rows is as much as the error of the means.
        many = streamed and same is None and size.n_rows > _VERY_MANY * sample.n_measures
        for _ in range(2 if many else 1):
            centers = centers + centre.step_over_all_rows(everything, units, centers.mean(0), law, same)
            law = law.around(centers.mean(0))
    factors = centre.sigma_factors(sample, weights, law)
    failed = [FAILED] if chosen.kind == "trained" and generator is None else []
    return LinearFit(
        units=units,
        law=law,
        chains=[each.around(c).with_noise(f) for each, c, f in zip(chains, centers, factors, strict=False)],
        generator=generator,
        moved=moved,
        centers=centers,
        estimation=_covariance(centers, size),
        bulk=equal.bulk if chosen.kind == "equal" else law.ordinary_sigma,
        calibration=chosen.calibration,
        ranks=chosen.ranks(),
        kind=chosen.kind,
        spread_weight=chosen.spread_weight,
        path=path,
        evidence=evidence,
        reweighted=settings.n_chains > 1,
        findings=failed + describe(rows, equal, evidence, chosen.calibration, chosen.kind),
    )


def _asks_for_a_law(sample: Sample, settings: LinearSettings, evidence: Evidence | None) -> bool:
    """Whether coefficients may differ: the user says so (by a weight, groups, a random level), or the test does."""
    if settings.spread_weight != "auto":
        return settings.spread_weight < EQUAL
    return sample.grouped or settings.random_level or (evidence is not None and evidence.differ)


def _bootstrap_weights(sample: Sample, settings: LinearSettings, size: _Size) -> Array:
    """Return Bayesian-bootstrap weights of every chain, (chain, n); equal ones where there are too few rows."""
    weight = sample.frequencies()
    plan = ChainPlan(settings.n_chains, "bootstrap" if size.bootstraps else None, 0.0, 0.0, None)
    if weight is not None and plan.reweight is None:  # with bootstrap weights the chains do so
        warn_of_small_weights(weight)
    weights = ChainWeights(plan, len(sample), weight, settings.seed)(torch.arange(len(sample)))
    return np.asarray(weights.double())


def _corrected(
    centers: Array, whole: Array, scale: float, share: float, sample: Sample, settings: LinearSettings, size: _Size
) -> Array:
    """Correct the chains' centres (chain, q) around ``whole`` for small samples, and for rows that were not taken.

    Rows that count unequally are worth a ``share`` of as many that count the same.
    """
    n, k = size.n, size.k
    if not size.bootstraps:
        warn(
            f"{n:g} observations for {k} coefficients: too few for bootstrap weights, so the uncertainty of the "
            "coefficients is that of Normal theory around the robust fit"
        )
        rng = np.random.default_rng(derive_seed(settings.seed, "normal-theory"))
        unbiased = scale * float(np.sqrt(n / max(n - k, 0.5 * n)))
        return centre.normal_theory(whole, k, n, unbiased, len(centers), rng)
    # With k coefficients the bootstrap's deviations are too small by (n - k) / n.
    worth = max(share * n, 2.0 * k)
    factor = worth / (worth - k) * np.sqrt(sample.n_measures / size.n_rows)
    return np.asarray(whole + (centers - centers.mean(0)) * factor)


def _covariance(centers: Array, size: _Size) -> Array:
    """Return the covariance of the mean coefficients, (q, q), as predictions take it.

    Deviations of bootstrap weights were corrected by n / (n - k), those of Normal theory are Student's: so intervals of
    means hold where rows are few. A prediction has such tails already, and takes the variance without them.
    """
    if len(centers) < 2:
        return np.zeros((centers.shape[1],) * 2)
    left = max(size.n - size.k, 1.0)
    shrunk = left / size.n if size.bootstraps else max(left - 2.0, 1.0) / left
    return np.atleast_2d(np.cov(centers.T)) * (shrunk * (len(centers) + 1) / len(centers))
