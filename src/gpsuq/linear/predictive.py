"""What a fitted linear regression says of new rows: quantiles, probabilities, draws, and how rows are explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.utils.validation import check_is_fitted

from gpsuq.core import mixtures
from gpsuq.core.arrays import check_finite_rows
from gpsuq.core.groups import group_codes
from gpsuq.core.intervals import check_coverage
from gpsuq.core.kernels import squared_robust_scale
from gpsuq.core.seeds import random_block
from gpsuq.engine.fitting import validated
from gpsuq.errors import GPSError
from gpsuq.linear import rows
from gpsuq.linear.fit import LinearFit
from gpsuq.linear.inputs import targets
from gpsuq.tables.frames import in_kind, numbers_of

Array = NDArray[np.floating]


class LinearPredictions:
    """Predictions of a linear regression: a mixture over its law at every row, calibrated by rows left out.

    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.linear.predictive import LinearPredictions
    >>> issubclass(GPSLinearRegression, LinearPredictions)
    True
    """

    fit_: LinearFit
    draws_: Mapping[str, Array]
    coef_: Array
    intercept_: float
    seed_: int
    n_features_in_: int

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def sample_parameters(self, n_draws: int = 1000, random_state: int | None = None) -> pd.DataFrame:
        """Draw from the UQ distribution, chains in turn: a column per coefficient, ``intercept`` and ``sigma``."""
        check_is_fitted(self)
        if n_draws < 1:
            raise GPSError(f"n_draws must be at least 1, got {n_draws}")
        n_chains = len(self.fit_.centers)
        block = random_block(self.seed_ if random_state is None else random_state, "parameters")
        noise = torch.randn(n_chains, -(-n_draws // n_chains), self.fit_.noise_dim, generator=block)
        draws = self.fit_.parameters(noise)
        table = pd.DataFrame(draws["slope"].swapaxes(0, 1).reshape(-1, self.n_features_in_), columns=self._names())
        return table.assign(**{name: draws[name].T.ravel() for name in ("intercept", "sigma")}).iloc[:n_draws]

    def predict(self, X: Any) -> Array:
        """Return the mean of the predictive at every row of X."""
        return self._covariates(X) @ self.coef_ + self.intercept_

    @in_kind
    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Return quantiles of new observations, one column per level, calibrated by rows that were not fitted.

        Frames come back as the kind that X is: of polars where X is.
        """
        levels = [float(level) for level in np.atleast_1d(np.asarray(levels, dtype=float))]
        if not levels or not all(0.0 < level < 1.0 for level in levels):
            raise GPSError(f"levels must be between 0 and 1, got {levels}")
        return self._quantiles(X, levels, levels)

    def _quantiles(self, X: Any, levels: Sequence[float], names: Sequence[Any]) -> pd.DataFrame:
        found = []
        for _, block, mixture in self._predictive(X):
            scores = self.fit_.calibration.predictive_scores(np.asarray(levels), block)
            found.append(mixtures.at_normal_scores(scores, *mixture))
        return pd.DataFrame(np.concatenate(found), columns=list(names), index=_index(X))

    @in_kind
    def predict_interval(self, X: Any, coverage: float = 0.95) -> pd.DataFrame:
        """Return an equal-tailed interval for new observations, in columns ``lower`` and ``upper``."""
        tail = (1.0 - check_coverage(coverage)) / 2.0
        return self._quantiles(X, [tail, 1.0 - tail], ["lower", "upper"])

    def predict_cdf(self, X: Any, y: Any) -> Array:
        """Return the probability of at most y at every row: uniform over rows where the predictive is right."""
        y = targets(X, y)
        found = [
            self.fit_.calibration.calibrated(mixtures.normal_scores(y[seen], *mixture), block)
            for seen, block, mixture in self._predictive(X)
        ]
        return np.concatenate(found)

    def sample_predictive(self, X: Any, n_draws: int = 1000, random_state: int | None = None) -> Array:
        """Draw new observations (draw, row); each draw has parameters of its own, the same for all rows."""
        draws = self.sample_parameters(n_draws, random_state)
        seed = self.seed_ if random_state is None else random_state
        slopes, intercept, sigma = (draws[name].to_numpy() for name in (self._names(), "intercept", "sigma"))
        shape = n_draws, len(self._covariates(X))
        noise = torch.randn(shape, generator=random_block(seed, "outcomes"), dtype=torch.float64).numpy()
        found = []
        for seen, block, mixture in self._predictive(X):
            raw = slopes @ block.T + intercept[:, None] + sigma[:, None] * noise[:, seen]
            # What the parameters make is moved to where the calibrated predictive has it.
            scores = mixtures.normal_scores(raw.T, *mixture)
            moved = self.fit_.calibration.predictive_scores(np.clip(ndtr(scores), 1e-12, 1.0 - 1e-12), block)
            found.append(mixtures.at_normal_scores(moved, *mixture))
        return np.concatenate(found).T

    def kernel_score(self, X: Any, y: Any, sample_weight: Any = None, *, bandwidth: float | None = None) -> float:
        """Return the mean kernel score of y under the law's predictive, lower is better.

        The kernel is Gaussian. Its ``bandwidth`` (in squared units of y) is by default the squared robust scale of y,
        so that different fits are compared on the same y by the same kernel.
        """
        y = targets(X, y)
        width = squared_robust_scale(torch.from_numpy(y)) if bandwidth is None else float(bandwidth)
        if not width > 0:
            raise GPSError(f"the bandwidth must be positive, got {width}")
        scores = [mixtures.kernel_score(y[seen], *mixture, width) for seen, _, mixture in self._predictive(X)]
        return float(np.average(np.concatenate(scores), weights=sample_weight))

    @in_kind
    def explain_rows(self, X: Any, y: Any, *, groups: Any = None) -> pd.DataFrame:
        r"""Explain for each observation which parameters it speaks for.

        Draws are re-weighted by :math:`f(y_i \mid \theta_m, x_i)`; with ``groups``, labels (n,) of subjects, by all
        rows of a subject together, so that they share one theta. The result has, for each row, the mean of every
        coefficient, the intercept and sigma under these weights; ``subgroup``, the most likely mode of the UQ
        distribution (numbered from 0 along the direction in which coefficients differ most), and its
        ``subgroup_probability``; ``outlier_score``, by how many nats y is more surprising than an ordinary observation
        of the model, one of the bulk of its noise; and ``outlier``, whether that is more than 5.
        """
        return self._explained(X, y, groups)

    def _explained(self, X: Any, y: Any, groups: Any) -> pd.DataFrame:
        covariates, y = self._covariates(X), targets(X, y)
        codes = None if groups is None else group_codes(groups, len(y))
        means, others = rows.explain_rows(self.fit_, self.draws_, covariates, y, codes, self.seed_)
        names = [*self._names(), "intercept", "sigma"]
        return pd.DataFrame(means, columns=names, index=_index(X)).assign(**others)

    @in_kind
    def explain_groups(self, X: Any, y: Any, groups: Any) -> pd.DataFrame:
        """Explain for each subject which parameters its rows speak for: a row per label, with how many rows."""
        explained = self._explained(X, y, groups).set_axis(pd.Index(np.asarray(groups), name="group"))
        by_group = explained.groupby(level=0, sort=True)
        first = by_group.first().drop(columns=["outlier_score", "outlier"])
        return first.assign(rows=by_group.size(), outliers=by_group["outlier"].sum())

    def _covariates(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validated(self, numbers_of(X, type(self).__name__), reset=False, dtype=np.float64, ensure_all_finite=False)
        check_finite_rows("X", X)
        return np.asarray(X)

    def _predictive(self, X: Any) -> Iterator[tuple[slice, Array, tuple[Array, Array, Array]]]:
        """Yield the predictive mixture of some rows at a time: which, the rows, (means and sds (rows, k), weights)."""
        X = self._covariates(X)
        step = max(1, rows.NUMBERS // len(self.fit_.law.share))
        for start in range(0, len(X), step):
            seen = slice(start, start + step)
            yield seen, X[seen], self.fit_.components(X[seen])


def _index(X: Any) -> Any:
    return X.index if isinstance(X, pd.DataFrame) else None
