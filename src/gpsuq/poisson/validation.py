"""How well an intensity predicts points that it has not seen, beside usual estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpsuq.core.seeds import derive_seed
from gpsuq.engine.progress import counting_bar
from gpsuq.errors import GPSError
from gpsuq.poisson.baselines import HomogeneousIntensity, KernelIntensity, LogLinearIntensity
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.intensity import IntensityModel
from gpsuq.spatial.patterns import PointPattern
from gpsuq.spatial.windows import Array, Window


def cross_validated(
    estimator: Any,
    points: Sequence[Array],
    window: Window,
    covariates: Sequence[CovariateGrid] = (),
    *,
    n_splits: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the log-likelihood per held-out point of each model, a row for each fold; higher is better.

    Points are split at random, not by place: parts of a Poisson process are independent Poisson processes, whose
    intensities are the same up to their sizes. Beside the estimator stand a kernel estimate whose bandwidth is chosen
    by likelihood, a constant, and with covariates a log-linear model.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> from gpsuq.poisson.validation import cross_validated
    >>> from gpsuq.spatial import Window
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=0.0, n_chains=2, n_steps=2)
    >>> table = cross_validated(model, [points], Window.rectangle(0.0, 1.0, 0.0, 1.0), n_splits=2)
    >>> list(table), table.shape
    (['gps', 'kernel', 'constant'], (2, 3))
    """
    if n_splits < 2 or n_splits > sum(map(len, points)):
        raise GPSError(f"n_splits must be at least 2 and at most the number of points, got {n_splits}")
    rng = np.random.default_rng(derive_seed(seed, "splits"))
    folds = [rng.permutation(len(pattern)) % n_splits for pattern in points]
    rows = []
    with counting_bar(estimator.progress, "cross-validating", n_splits) as advance:
        for fold in range(n_splits):
            kept = [pattern[mine != fold] for pattern, mine in zip(points, folds, strict=True)]
            left = np.concatenate([pattern[mine == fold] for pattern, mine in zip(points, folds, strict=True)])
            pooled = PointPattern(np.concatenate(kept), window)
            fitted = clone(estimator).set_params(progress=False).fit(kept, window, covariates=covariates)
            peers: dict[str, IntensityModel] = {"kernel": KernelIntensity(pooled)}
            if covariates:
                peers["log-linear"] = LogLinearIntensity(pooled, covariates)
            peers["constant"] = HomogeneousIntensity(pooled)
            share = 1.0 / (n_splits - 1)
            row = {"gps": _per_point(fitted, left, share * len(points))}
            rows.append(row | {name: _per_point(peer, left, share) for name, peer in peers.items()})
            advance(fold + 1)
    return pd.DataFrame(rows).rename_axis("fold")


def _per_point(model: IntensityModel, points: Array, times: float) -> float:
    """Return the log-likelihood per point of so many times an intensity."""
    density = np.log(np.maximum(times * model.intensity(points), 1e-300))
    return float(density.mean() - times * model.integral() / len(points))
