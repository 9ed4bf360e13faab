"""What a fitted regression says of new rows: quantiles, probabilities, draws, parameters, and which rows surprise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from gpsuq.core.arrays import check_finite_rows
from gpsuq.core.conformal import Conformal
from gpsuq.core.intervals import check_coverage
from gpsuq.core.seeds import derive_seed
from gpsuq.errors import GPSError
from gpsuq.plots.diagnostics import observed_and_predicted
from gpsuq.regress.columns import Columns, as_frame, check_names
from gpsuq.regress.families import NORMAL_NAMES, Array, chosen_components
from gpsuq.regress.judging import calibrated_levels, calibrated_ranks
from gpsuq.regress.left_out import judges
from gpsuq.regress.members import RegressionFit, moments, output_of
from gpsuq.regress.stacking import absolute_mean
from gpsuq.tables.frames import in_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTLIER = 5.0
"""Nats beyond an ordinary row that make a row an outlier."""

_LEVELS = 64  # quantiles that the CRPS of a calibrated predictive is made of: 0.02% above the exact one of a Normal
_DENSITY_STEP = 1e-3  # of a normal score, over which a calibrated cdf is differenced


class Predictive:
    """Predictions of a regression: a mixture over draws and chains at every row, calibrated by rows left out.

    >>> from gpsuq import GPSRegressor
    >>> from gpsuq.regress.predictive import Predictive
    >>> issubclass(GPSRegressor, Predictive)
    True
    """

    columns_: Columns
    fit_: RegressionFit
    conformal_: Conformal | None
    n_features_in_: int
    _several: bool

    def predict(self, X: Any) -> Array:
        """Return the mean of the predictive at every row, (n,), or (n, outputs)."""
        return self._of_rows(X, lambda _, p, j: self._mean(p, j))

    def _mean(self, parameters: dict[str, Array], output: int) -> Array:
        fit, own = self.fit_, output_of(parameters, output)
        mean = fit.family.outcome.mean(own)
        if fit.family.units != "log":
            return np.asarray(fit.from_units(mean @ fit.weights, output))
        spread = fit.scale[output] * own["scale"]
        inside = np.exp(fit.center[output] + fit.scale[output] * mean + 0.5 * np.square(spread))
        return np.asarray(inside @ fit.weights)

    @in_kind
    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Return quantiles of new observations, one column per level (per output and level, of several outputs)."""
        levels = [float(level) for level in np.atleast_1d(np.asarray(levels, dtype=float))]
        if not levels or not all(0.0 < level < 1.0 for level in levels):
            raise GPSError(f"levels must be between 0 and 1, got {levels}")
        return self._quantiles(X, np.asarray(levels), levels)

    def _quantiles(self, X: Any, at: Array, names: Sequence[Any]) -> pd.DataFrame:
        """Return quantiles of calibrated levels: the same for all rows (level,), or of each row (row, level)."""
        fit, parts = self.fit_, []
        for seen, p in self._blocks(X):
            outputs = []
            for j in range(fit.n_outputs):
                own, mean, variance = self._moments(p, j)
                scores = calibrated_levels(fit, j, at if at.ndim == 1 else at[seen], mean, variance)
                outputs.append(fit.from_units(fit.family.outcome.at_normal_scores(scores, own, fit.weights), j))
            parts.append(np.concatenate(outputs, axis=1))
        columns = pd.MultiIndex.from_product([range(fit.n_outputs), names]) if self._several else list(names)
        return pd.DataFrame(np.concatenate(parts), columns=columns, index=_index(X))

    @in_kind
    def predict_interval(self, X: Any, coverage: float = 0.95, *, groups: Any = None) -> pd.DataFrame:
        """Return an interval for new observations, in columns ``lower`` and ``upper``.

        It is equal-tailed, or what the conformal layer makes of that; ``groups`` are labels (n,) that it was given.
        """
        tail = (1.0 - check_coverage(coverage)) / 2.0
        check_is_fitted(self)
        if self.conformal_ is None:
            return self._quantiles(X, np.array([tail, 1.0 - tail]), ["lower", "upper"])
        levels = self.conformal_.levels(coverage, len(X), groups)
        result = self._quantiles(X, np.clip(levels, 1e-12, 1.0 - 1e-12), ["lower", "upper"])
        return result.mask(levels <= 0.0, -np.inf).mask(levels >= 1.0, np.inf)

    def predict_cdf(self, X: Any, y: Any) -> Array:
        """Return the probability of at most y at every row: uniform over rows where the predictive is right."""
        targets = self._outcomes(X, y)
        return self._of_rows(X, lambda seen, p, j: self._rank(p, targets[seen], j))

    def _rank(self, parameters: dict[str, Array], targets: Array, output: int) -> Array:
        own, mean, variance = self._moments(parameters, output)
        scores = self.fit_.family.outcome.normal_scores(targets[:, output], own, self.fit_.weights)
        return calibrated_ranks(self.fit_, output, scores, mean, variance)

    def predict_density(self, X: Any, y: Any) -> Array:
        """Return the density of y at every row (of counts, their probability before calibration).

        Real numbers lie anywhere in the range of y with a share of 1 / (n + 1), n rows having been left out in
        training: so few cannot tell that an outcome is impossible.
        """
        targets = self._outcomes(X, y)
        return self._of_rows(X, lambda seen, p, j: self._density(p, targets[seen, j], j))

    def _density(self, parameters: dict[str, Array], y: Array, output: int) -> Array:
        fit, outcome = self.fit_, self.fit_.family.outcome
        own, mean, variance = self._moments(parameters, output)
        density = np.exp(outcome.log_density(y, own, fit.weights))
        if not outcome.discrete:
            density = density * self._steepness(own, y, output, mean, variance)
            density = fit.with_background(density, y) / fit.scale[output]
        return density / fit.from_units(y, output) if fit.family.units == "log" else density

    def _steepness(self, own: dict[str, Array], y: Array, output: int, mean: Array, variance: Array) -> Array:
        r"""Return dF/dG at y, of the calibrated cdf F and the predictive's own G, by a difference of normal scores."""
        scores = self.fit_.family.outcome.normal_scores(y, own, self.fit_.weights)
        half = 50.0 * _DENSITY_STEP
        up, down = (calibrated_ranks(self.fit_, output, scores + step, mean, variance) for step in (half, -half))
        bell = np.exp(-0.5 * np.square(scores)) / np.sqrt(2.0 * np.pi)
        return np.asarray((up - down) / (2.0 * half) / np.maximum(bell, 1e-15))

    def sample_predictive(self, X: Any, n_draws: int = 1000, random_state: int | None = None) -> Array:
        """Draw new observations, (draw, row), or (draw, row, outputs)."""
        if n_draws < 1:
            raise GPSError(f"n_draws must be at least 1, got {n_draws}")
        fit, seed = self.fit_, self.fit_.seed if random_state is None else random_state
        chosen = chosen_components(fit.weights, n_draws, seed)
        outcome, found = fit.family.outcome, []
        for seen, p in self._blocks(X):
            outputs = []
            for j in range(fit.n_outputs):
                own, mean, variance = self._moments(p, j)
                picked = {name: value[:, chosen] for name, value in own.items()}
                drawn = outcome.sample(picked, derive_seed(seed, "outcomes", seen.start, j) & (2**31 - 1))
                if not outcome.discrete:  # moved to where the calibrated predictive has it
                    levels = np.clip(ndtr(outcome.normal_scores(drawn, own, fit.weights)), 1e-12, 1.0 - 1e-12)
                    moved = calibrated_levels(fit, j, levels, mean, variance)
                    drawn = outcome.at_normal_scores(moved, own, fit.weights)
                outputs.append(fit.from_units(drawn, j).T)
            found.append(np.stack(outputs, axis=2))
        draws = np.concatenate(found, axis=1)
        return draws if self._several else draws[:, :, 0]

    # --- parameters --------------------------------------------------------------------------------------------------

    def sample_parameters(self, X: Any, n_draws: int = 1000, random_state: int | None = None) -> dict[str, Array]:
        """Draw theta = G(x, Z) at every row: by name, (draw, row) or (draw, row, outputs).

        Locations and scales are in the user's units, those of log y where ``family="lognormal"``.
        """
        if n_draws < 1:
            raise GPSError(f"n_draws must be at least 1, got {n_draws}")
        fit = self.fit_
        chosen = chosen_components(fit.weights, n_draws, fit.seed if random_state is None else random_state)
        blocks = [{name: self._in_units(name, v[:, chosen]) for name, v in p.items()} for _, p in self._blocks(X)]
        whole = {name: np.concatenate([block[name] for block in blocks]).swapaxes(0, 1) for name in blocks[0]}
        return whole if self._several else {name: value[:, :, 0] for name, value in whole.items()}

    def _in_units(self, name: str, values: Array) -> Array:
        """Return a parameter (row, component, output) in the user's units."""
        scale, center = self.fit_.scale, self.fit_.center
        return values * scale + center if name == "loc" else values * scale if name == "scale" else values

    @in_kind
    def uncertainty(self, X: Any, *, by: Literal["variance", "score"] = "variance") -> pd.DataFrame:
        """Return how uncertain a new observation is at every row: ``total`` = ``aleatoric`` + ``epistemic``.

        By variance (squared units of y) or by score, E|Y - Y'| / 2 (units of y). ``aleatoric`` is what chains say of
        the noise, on average; ``epistemic`` is what they do not agree on. Higher is more uncertain. Of several outputs
        it is the sum over them, each in units of its own standard deviation.
        """
        if by not in ("variance", "score"):
            raise GPSError(f'by must be "variance" or "score", got {by!r}')
        fit, found = self.fit_, []
        chain = fit.chain_of
        share: Array = np.bincount(chain, fit.weights).astype(np.float64)
        for _, p in self._blocks(X):
            total, within = np.zeros(len(next(iter(p.values())))), np.zeros(len(next(iter(p.values()))))
            for j in range(fit.n_outputs):
                own = output_of(p, j)
                if by == "variance":
                    unit = 1.0 if self._several else fit.scale[j] ** 2
                    mean, variance = fit.family.outcome.mean(own), fit.family.outcome.variance(own)
                    parts = moments(mean, variance, fit.weights)[1], _within(mean, variance, fit.weights, chain, share)
                else:
                    unit = 1.0 if self._several else fit.scale[j]
                    parts = self._disagreement(own, chain, share)
                total, within = total + unit * parts[0], within + unit * parts[1]
            found.append(np.column_stack([total, within, np.maximum(total - within, 0.0)]))
        columns = ["total", "aleatoric", "epistemic"]
        return pd.DataFrame(np.concatenate(found), columns=columns, index=_index(X))

    def _disagreement(self, own: dict[str, Array], chain: NDArray[np.int64], share: Array) -> tuple[Array, Array]:
        """Return E|Y - Y'| / 2 of the mixture of all chains, and its mean over those of each chain."""
        import torch

        outcome, weight = self.fit_.family.outcome, self.fit_.weights
        exact = self.fit_.family.name in NORMAL_NAMES
        loc = torch.from_numpy(np.ascontiguousarray(own["loc"] if exact else outcome.sample(own, 0)))
        scale = torch.from_numpy(np.ascontiguousarray(own["scale"])) if exact else torch.zeros_like(loc)
        total, within = torch.zeros(len(loc), dtype=torch.float64), torch.zeros(len(loc), dtype=torch.float64)
        for each in range(loc.shape[1]):
            both = (scale.square() + scale[:, each : each + 1].square()).sqrt()
            apart = absolute_mean(loc - loc[:, each : each + 1], both)
            same = chain == chain[each]
            total += 0.5 * weight[each] * (apart @ torch.from_numpy(weight))
            within += 0.5 * weight[each] * (apart[:, same] @ torch.from_numpy(weight[same])) / share[chain[each]]
        return total.numpy(), within.numpy()

    @in_kind
    def explain_rows(self, X: Any, y: Any, *, fitted: bool = False) -> pd.DataFrame:
        r"""Explain for each observation which parameters it speaks for.

        Draws are re-weighted by :math:`f(y_i \mid \theta)`. The result has the mean of every parameter under these
        weights, ``rank`` (the probability of at most y), ``outlier_score``, by how many nats y is more surprising than
        an observation at the middle of its predictive, and ``outlier``, whether that is more than 5.

        Rows that were fitted hardly ever surprise: a forest knows them by heart. With ``fitted``, X and y are the rows
        that ``fit`` was given, and each is judged by generators that had left it out. The column ``left_out`` says of
        which rows there are such: up to 4,096.
        """
        if self._several:
            raise GPSError("explain_rows is for a single outcome: fit one model for each")
        targets = self._outcomes(X, y)
        rows = self._explained(X, targets)
        if not fitted:
            return rows
        frame, parts = as_frame(X), []
        for judge in judges(self, len(targets), fitted=True):
            if judge.model is not self:
                at = judge.places
                parts.append(judge.model._explained(frame.iloc[at], targets[at]).set_axis(at))
        rows = rows.set_axis(pd.RangeIndex(len(rows))).assign(left_out=False)
        if parts:
            judged = _surprise(pd.concat(parts).loc[self.fit_.rows], self.fit_.ranks[:, 0]).assign(left_out=True)
            rows = pd.concat([rows.drop(judged.index), judged]).sort_index()
        return rows.set_axis(_index(X, len(targets)))

    def _explained(self, X: Any, targets: Array) -> pd.DataFrame:
        """Explain rows by all generators; outcomes are in the units of the training."""
        fit, parts = self.fit_, []
        for seen, p in self._blocks(X):
            own = output_of(p, 0)
            logs = fit.family.outcome.log_densities(targets[seen, 0], own) + np.log(fit.weights)
            weights = np.exp(logs - logs.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            values = {name: (self._in_units(name, v)[:, :, 0] * weights).sum(1) for name, v in p.items()}
            parts.append(_surprise(pd.DataFrame(values), self._rank(p, targets[seen], 0)))
        return pd.concat(parts, ignore_index=True).set_axis(_index(X, len(targets)))

    def crps(self, X: Any, y: Any) -> Array:
        r"""Return the continuous ranked probability score of every row, (n,) or (n, outputs): lower is better.

        Twice the mean of the quantile loss over 64 levels, :math:`\int 2\,(1[y \le q_p] - p)(q_p - y)\,dp`.
        """
        levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        targets = outcomes_of(y, len(X))[0]
        quantiles = self._quantiles(X, levels, list(levels)).to_numpy().reshape(len(targets), -1, _LEVELS)
        below = targets[:, :, None] - quantiles
        scores = 2.0 * np.maximum(levels * below, (levels - 1.0) * below).mean(2)
        return np.asarray(scores if self._several else scores[:, 0])

    def plot(self, X: Any, y: Any) -> Figure:
        """Plot what was observed against the mean of its predictive, with 90% intervals."""
        targets, several = outcomes_of(y, len(X))
        if several:
            raise GPSError("a figure has a single outcome: fit one model for each")
        return observed_and_predicted(targets.ravel(), self.predict(X), *self.predict_interval(X, 0.9).to_numpy().T)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        named = getattr(self, "feature_names_in_", None)
        frame = as_frame(X)
        if frame.shape[1] != self.n_features_in_:
            raise GPSError(
                f"X has {frame.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        if len(frame) == 0:
            raise GPSError(f"Found array with 0 sample(s) (shape={frame.shape}) while a minimum of 1 is required")
        if named is not None and all(isinstance(name, str) for name in frame.columns):
            frame = check_names(self.columns_, frame)
        return self.columns_.encoded(frame)

    def _blocks(self, X: Any) -> Iterator[tuple[slice, dict[str, Array]]]:
        return self.fit_.blocks(self._rows(X)) if hasattr(self, "fit_") else self._unfitted()

    def _of_rows(self, X: Any, value: Callable[[slice, dict[str, Array], int], Array]) -> Array:
        """Return a number for every row, or for every row and output, from blocks of rows and the output's number."""
        found = [
            np.column_stack([value(seen, p, j) for j in range(self.fit_.n_outputs)]) for seen, p in self._blocks(X)
        ]
        numbers = np.concatenate(found)
        return numbers if self._several else numbers[:, 0]

    def _unfitted(self) -> Any:
        return check_is_fitted(self)

    def _moments(self, parameters: dict[str, Array], output: int) -> tuple[dict[str, Array], Array, Array]:
        own, outcome = output_of(parameters, output), self.fit_.family.outcome
        return own, *moments(outcome.mean(own), outcome.variance(own), self.fit_.weights)

    def _outcomes(self, X: Any, y: Any) -> Array:
        """Return outcomes that belong to the rows of X, in the units of the training."""
        check_is_fitted(self)
        targets, several = outcomes_of(y, len(as_frame(X)))
        if several != self._several or targets.shape[1] != self.fit_.n_outputs:
            raise GPSError(f"y must have {self.fit_.n_outputs} outcomes for each row, got {targets.shape[1]}")
        self.fit_.family.check(targets)
        return self.fit_.to_units(targets)


def _surprise(rows: pd.DataFrame, rank: Array) -> pd.DataFrame:
    """Add how surprising outcomes of these ranks are."""
    score = 0.5 * np.square(ndtri(np.clip(rank, 1e-15, 1.0 - 1e-15)))
    return rows.assign(rank=rank, outlier_score=score, outlier=score > OUTLIER)


def _within(mean: Array, variance: Array, weight: Array, chain: NDArray[np.int64], share: Array) -> Array:
    """Return the mean over chains of the variance of each chain's own mixture, (row,)."""
    of_chain = np.zeros((mean.shape[1], len(share)))
    of_chain[np.arange(len(chain)), chain] = weight / share[chain]
    centers = mean @ of_chain
    spread = variance + np.square(mean - centers[:, chain])
    return np.asarray(spread @ weight)


def outcomes_of(y: Any, n: int) -> tuple[Array, bool]:
    """Return outcomes (n, outputs), and whether there may be several."""
    if y is None:
        raise GPSError("This estimator requires y to be passed, but the target y is None")
    given = np.asarray(y)
    if np.iscomplexobj(given):
        raise GPSError("Complex data not supported: y holds complex numbers")
    try:
        values = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise GPSError(f"y must be numbers: Unknown label type: {given.dtype} ({error})") from error
    if values.ndim == 0 or values.ndim > 2:
        raise GPSError(f"y should be a 1d array, or a table of several outcomes; got an array of shape {values.shape}")
    several = values.ndim == 2 and values.shape[1] > 1
    if values.ndim == 2 and not several:
        values = values[:, 0]
    check_finite_rows("y", values)
    if len(values) != n:
        raise GPSError(
            f"X and y must have the same number of rows (inconsistent numbers of samples): {n}, {len(values)}"
        )
    return values.reshape(n, -1), several


def _index(X: Any, n: int | None = None) -> Any:
    if isinstance(X, pd.DataFrame):
        return X.index
    return None if n is None else pd.RangeIndex(n)
