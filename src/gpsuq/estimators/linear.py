"""Linear regression whose coefficients may differ between observations, as a scikit-learn estimator."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.distributions import Normal

from gpsuq import mixtures
from gpsuq.data import aligned, check_finite_rows, checked_weight
from gpsuq.errors import GPSError, GPSWarning
from gpsuq.estimators.fitting import whole_or_not_at_all
from gpsuq.expectations import kernel_score
from gpsuq.generators import MLP
from gpsuq.intervals import check_coverage
from gpsuq.kernels import Gaussian
from gpsuq.linear import LinearFit, LinearSettings, TrainingTable, fit_linear, linear_units
from gpsuq.seeds import quasi_normal, random_block, seed_from
from gpsuq.subgroups import principal_direction, split_points
from gpsuq.summaries import summary_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

Array = NDArray[np.float64]

DEFAULT_STEPS = 600
_DRAWS = 512  # kept of each chain, for summaries and predictions
_COMPONENTS = 1024  # of a predictive mixture, at least
_NUMBERS = 1 << 22  # held at once when predicting
_PAIRS = 20
_RESERVED = {"intercept", "sigma", "subgroup", "subgroup_probability", "outlier_score"}


class GPSLinearRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Linear regression y_i = intercept + x_i' theta_i + e_i with a *law* of coefficients instead of one vector.

    :math:`(\theta_i, \sigma_i) = G(Z_i)` with :math:`Z_i \sim N(0, I)`; the generator G is trained so that the
    predictive distribution matches the data under a bounded kernel score. Subgroups with coefficients of their own
    appear as modes, outliers lose their pull, and where the data show no heterogeneity the fit is a robust regression
    with one coefficient vector.

    Parameters
    ----------
    fit_intercept
        Whether the model has an intercept. It has no randomness of its own, because its spread cannot be told from
        sigma: the lines of all draws cross in one point, which is learned.
    random_intercept
        Let the intercept vary like the coefficients.
    spread_weight
        Weight of the penalty on heterogeneity; ``"auto"`` chooses it by held-out kernel scores. 0 lets coefficients
        vary freely, 3 and more keeps them equal.
    n_chains
        Generators trained side by side on Bayesian-bootstrap weights; their differences are estimation uncertainty.
    n_steps, n_draws, batch_size
        Length of training, draws of the parameters and observations in each step.
    generator
        The network from noise to parameters; None is ``MLP()``.
    random_state
        Seed; same seed, same machine, same numbers.
    progress
        Whether to show progress bars.

    Attributes
    ----------
    coef_, intercept_
        Means of the coefficients and of the intercept over draws and chains.
    draws_
        Draws in the user's units: ``slope`` (chain, draw, feature), ``intercept`` and ``sigma`` (chain, draw).
    spread_weight_, heterogeneous_, spread_path_
        The weight in use, whether it lets coefficients differ, and the scores it was chosen by (None where none were).
    findings_
        What the diagnostics found.

    Examples
    --------
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import scissors
    >>> data = scissors(400, seed=1)
    >>> model = GPSLinearRegression(n_chains=4, n_steps=200).fit(data.X, data.y)
    >>> model.heterogeneous_
    True

    The law of the coefficients, and what each row says of it:

    >>> model.summary().index.tolist()
    ['x0', 'intercept', 'sigma']
    >>> model.sample_parameters(500).shape
    (500, 3)
    >>> bool(model.explain_rows(data.X, data.y)["subgroup"].nunique() > 1)
    True
    >>> figure = model.plot_coefficients()
    >>> dict(model.to_datatree()["uq"].sizes)
    {'chain': 4, 'draw': 512, 'coef': 1}

    Predictions, as means, quantiles, probabilities and draws:

    >>> model.predict(data.X[:2]).shape, model.sample_predictive(data.X[:2], n_draws=100).shape
    ((2,), (100, 2))
    >>> model.predict_interval(data.X[:2]).columns.tolist()
    ['lower', 'upper']
    >>> quantiles = model.predict_quantiles(data.X, [0.1, 0.9])
    >>> bool((model.predict_cdf(data.X, quantiles[0.9]).round(3) == 0.9).all())
    True

    How good they are, by the score that it was trained with; lower is better:

    >>> model.kernel_score(data.X, data.y) < model.kernel_score(data.X, data.y + 1.0)
    True
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        random_intercept: bool = False,
        spread_weight: float | Literal["auto"] = "auto",
        n_chains: int = 20,
        n_steps: int = DEFAULT_STEPS,
        n_draws: int = 32,
        batch_size: int = 200,
        generator: MLP | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.random_intercept = random_intercept
        self.spread_weight = spread_weight
        self.n_chains = n_chains
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.batch_size = batch_size
        self.generator = generator
        self.random_state = random_state
        self.progress = progress

    # --- fitting -----------------------------------------------------------------------------------------------------

    @whole_or_not_at_all
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> GPSLinearRegression:
        """Fit the law of the coefficients.

        Parameters
        ----------
        X, y
            A table (n, p) and its targets (n,).
        sample_weight
            Frequency weights: 2 counts like the same row twice, 0 like no row.
        groups
            Labels (n,) of subjects measured repeatedly: all rows of one share one theta.
        """
        settings = self._settings()
        _name_missing_targets(y)
        X, y = validate_data(
            self, X, y, y_numeric=True, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2
        )
        check_finite_rows("X", X)
        y = y.astype(np.float64)
        weight = _sample_weight(sample_weight, len(y))
        codes = None if groups is None else _group_codes(groups, len(y))
        names = self._names()
        reserved = sorted(set(names) & _RESERVED)
        if reserved:
            raise GPSError(f"columns named {', '.join(reserved)} would hide results of the same name; rename them")
        if weight is not None and (weight == 0).any():  # like no row at all
            seen = weight > 0
            X, y, weight = X[seen], y[seen], weight[seen]
            codes = None if codes is None else pd.factorize(codes[seen])[0]
        if codes is not None and codes.max() == 0:
            raise GPSError("groups names a single subject: at least 2 with positive weight are needed")
        if len(y) < 2:
            raise GPSError("at least 2 observations with positive weight are needed")
        if np.ptp(y) <= 1e-12 * np.abs(y).max():
            raise GPSError("y is constant: there is nothing to regress")
        units = linear_units(X, y, weight, intercept=self.fit_intercept, names=names, seed=settings.seed)
        table = TrainingTable(
            units.covariates(X),
            units.residuals(X, y),
            None,
            None if weight is None else torch.from_numpy(weight).float(),
        )
        if codes is not None:
            table = table.grouped(codes)
        if self.random_intercept:
            _warn("a random intercept can hardly be told from sigma: trust the sum of their spreads only")
        self._set_fit(fit_linear(table, units, settings), settings.seed)
        for finding in self.findings_:
            _warn(finding.message)
        return self

    def _settings(self) -> LinearSettings:
        """Check the arguments and give them as the training takes them."""
        if self.random_intercept and not self.fit_intercept:
            raise GPSError("random_intercept needs fit_intercept=True")
        weight = self.spread_weight
        if weight != "auto" and not (isinstance(weight, numbers.Real) and np.isfinite(weight)):
            raise GPSError(f'spread_weight must be "auto" or a finite number, got {weight!r}')
        for name, least in (("n_chains", 1), ("n_steps", 1), ("n_draws", 2), ("batch_size", 1)):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < least:
                raise GPSError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.generator is not None and (not isinstance(self.generator, MLP) or self.generator.conditional):
            raise GPSError("generator must be an MLP that does not see x, such as MLP(hidden=(64, 64))")
        return LinearSettings(
            n_chains=int(self.n_chains),
            n_steps=int(self.n_steps),
            n_draws=int(self.n_draws),
            batch_size=int(self.batch_size),
            spread_weight="auto" if weight == "auto" else float(weight),
            intercept=self.fit_intercept,
            random_intercept=self.random_intercept,
            generator=self.generator or MLP(),
            seed=seed_from(self.random_state),
            progress=self.progress,
        )

    def _set_fit(self, fit: LinearFit, seed: int) -> None:
        """Keep what was trained, and the draws that summaries and predictions are made of."""
        self.fit_ = fit
        self.seed_ = seed
        self.draws_ = fit.parameters(quasi_normal(_DRAWS, fit.generator.noise_dim, seed))
        self.coef_ = self.draws_["slope"].mean((0, 1))
        self.intercept_ = float(self.draws_["intercept"].mean())
        self.spread_weight_ = fit.spread_weight
        self.heterogeneous_ = fit.heterogeneous
        self.spread_path_ = None if fit.choice is None else fit.choice.table
        self.findings_ = fit.findings

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    # --- parameters --------------------------------------------------------------------------------------------------

    def sample_parameters(self, n_draws: int = 1000, random_state: int | None = None) -> pd.DataFrame:
        """Draw from the UQ distribution, chains in turn: a column per coefficient, ``intercept`` and ``sigma``."""
        check_is_fitted(self)
        if n_draws < 1:
            raise GPSError(f"n_draws must be at least 1, got {n_draws}")
        fit = self.fit_
        each = -(-n_draws // len(fit.chains))
        block = random_block(self.seed_ if random_state is None else random_state, "parameters")
        noise = torch.randn(fit.generator.n_chains, each, fit.generator.noise_dim, generator=block)
        draws = fit.parameters(noise)
        table = pd.DataFrame(draws["slope"].swapaxes(0, 1).reshape(-1, self.n_features_in_), columns=self._names())
        return table.assign(**{name: draws[name].T.ravel() for name in ("intercept", "sigma")}).iloc[:n_draws]

    def summary(self, coverage: float = 0.95) -> pd.DataFrame:
        """Give one row per coefficient, intercept and sigma, with both kinds of uncertainty side by side.

        ``heterogeneity_sd`` is how much the parameter differs between observations, ``estimation_sd`` how little the
        data say about its mean; ``population_*`` bounds an observation's own parameter, ``mean_*`` the mean of all.
        """
        check_is_fitted(self)
        slopes = np.moveaxis(self.draws_["slope"], 2, 0)
        columns = dict(zip(self._names(), slopes, strict=True)) | {
            name: self.draws_[name] for name in ("intercept", "sigma")
        }
        return summary_table(columns, coverage, reweighted=self.fit_.reweighted)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the fit into a directory that :func:`gpsuq.load` reads; nothing in it is code."""
        from gpsuq.io import save

        return save(self, path, force=force)

    def to_datatree(self) -> DataTree:
        """Export the draws for ArviZ: group ``uq``, dimensions chain, draw and coef."""
        from arviz_base import from_dict

        check_is_fitted(self)
        tree: DataTree = from_dict({"uq": self.draws_}, dims={"slope": ["coef"]}, coords={"coef": self._names()})
        return tree

    def plot_coefficients(self, truth: Any = None) -> Figure:
        """Plot the law of every coefficient with its mean's interval; see :func:`gpsuq.plots.coefficients`."""
        from gpsuq.plots import coefficients

        check_is_fitted(self)
        return coefficients(self.draws_["slope"], self._names(), truth=truth)

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """Give the mean of the predictive at every row of X."""
        result: Array = self._covariates(X) @ self.coef_ + self.intercept_
        return result

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Quantiles of new observations, one column per level: draws, chains and sigma together."""
        levels = [float(level) for level in np.atleast_1d(np.asarray(levels, dtype=float))]
        if not levels or not all(0.0 < level < 1.0 for level in levels):
            raise GPSError(f"levels must be between 0 and 1, got {levels}")
        blocks = [mixtures.quantiles(levels, loc, scale) for _, loc, scale in self._components(X)]
        return pd.DataFrame(np.concatenate(blocks), columns=levels, index=_index(X))

    def predict_interval(self, X: Any, coverage: float = 0.95) -> pd.DataFrame:
        """Equal-tailed interval for new observations, in columns ``lower`` and ``upper``."""
        tail = (1.0 - check_coverage(coverage)) / 2.0
        return self.predict_quantiles(X, [tail, 1.0 - tail]).set_axis(["lower", "upper"], axis=1)

    def predict_cdf(self, X: Any, y: Any) -> Array:
        """Give the probability of at most y at every row: uniform over rows where the predictive is right."""
        y = _targets(X, y)
        result: Array = np.concatenate([mixtures.cumulative(y[rows], loc, s) for rows, loc, s in self._components(X)])
        return result

    def sample_predictive(self, X: Any, n_draws: int = 1000, random_state: int | None = None) -> Array:
        """Draw new observations (draw, row); each draw has parameters of its own, the same for all rows."""
        draws = self.sample_parameters(n_draws, random_state)
        X = self._covariates(X)
        seed = self.seed_ if random_state is None else random_state
        noise = torch.randn(n_draws, len(X), generator=random_block(seed, "outcomes"), dtype=torch.float64).numpy()
        mean = draws[self._names()].to_numpy() @ X.T + draws["intercept"].to_numpy()[:, None]
        result: Array = mean + draws["sigma"].to_numpy()[:, None] * noise
        return result

    def kernel_score(self, X: Any, y: Any, sample_weight: Any = None, *, bandwidth: float | None = None) -> float:
        """Mean kernel score of y under the predictive, lower is better.

        The kernel is Gaussian. Its ``bandwidth`` (in squared units of y) is by default the squared robust scale of y,
        so that different fits are compared on the same y by the same kernel.
        """
        y = _targets(X, y)
        kernel = Gaussian("robust" if bandwidth is None else bandwidth).resolve(torch.from_numpy(y))
        scores = []
        for rows, loc, scale in self._components(X):
            order = np.random.default_rng(0).permutation(len(scale))  # neighbours are draws of different chains
            predictive = Normal(torch.from_numpy(loc[:, order])[None], torch.from_numpy(scale[order])[None, None])
            target = aligned(torch.from_numpy(y[rows]))
            scores.append(kernel_score(kernel, predictive, target, n_pairs=_PAIRS).score[0].numpy())
        return float(np.average(np.concatenate(scores), weights=sample_weight))

    def explain_rows(self, X: Any, y: Any) -> pd.DataFrame:
        r"""Say for each observation which parameters it speaks for.

        Draws are re-weighted by :math:`f(y_i \mid \theta_m, x_i)`. The result has, for each row, the mean of every
        coefficient, the intercept and sigma under these weights; ``subgroup``, the most likely mode of the UQ
        distribution (numbered from 0 along the direction in which coefficients differ most), and its
        ``subgroup_probability``; and ``outlier_score``, by how many nats y is more surprising than an observation
        that the model made itself (above about 5 is rare).
        """
        y = _targets(X, y)
        slopes, intercepts, sigmas = self._flat_draws()
        mode = self._subgroup_of(slopes)
        noise = quasi_normal(len(sigmas), 1, self.seed_).double().numpy()[:, 0]
        table = np.column_stack([slopes, intercepts, sigmas])
        made, judges = (np.linspace(0, len(sigmas) - 1, count).astype(int) for count in (16, 160))
        means, shares, scores = [], [], []
        for rows, loc, scale in self._components(X):
            log = mixtures.component_log_density(y[rows], loc, scale)
            weight = np.exp(log - log.max(1, keepdims=True))
            weight /= weight.sum(1, keepdims=True)
            means.append(weight @ table)
            shares.append(weight @ np.eye(mode.max() + 1)[mode])
            # What draws would have made of this row, and how surprising that would be under a few others.
            own, few = (loc + scale * noise)[:, made], (loc[:, judges], scale[judges])
            usual = np.mean([mixtures.log_density(column, *few) for column in own.T], axis=0)
            scores.append(usual - mixtures.log_density(y[rows], loc, scale))
        result = pd.DataFrame(np.concatenate(means), columns=[*self._names(), "intercept", "sigma"], index=_index(X))
        share = np.concatenate(shares)
        return result.assign(
            subgroup=share.argmax(1),
            subgroup_probability=share.max(1),
            outlier_score=np.concatenate(scores),
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _covariates(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        check_finite_rows("X", X)
        result: Array = X
        return result

    def _flat_draws(self) -> tuple[Array, Array, Array]:
        """Give the components of the predictive mixture, the first draws of every chain: slopes, intercepts, sigmas."""
        n_chains = len(self.fit_.chains)
        each = min(_DRAWS, max(64, 2 ** int(np.ceil(np.log2(_COMPONENTS / n_chains)))))
        slopes, intercepts, sigmas = (self.draws_[name][:, :each] for name in ("slope", "intercept", "sigma"))
        return slopes.reshape(-1, slopes.shape[-1]), intercepts.ravel(), sigmas.ravel()

    def _components(self, X: Any) -> Iterator[tuple[slice, Array, Array]]:
        """Give the predictive mixture of some rows at a time: rows, means (rows, components), sigmas (components,)."""
        X = self._covariates(X)
        slopes, intercepts, sigmas = self._flat_draws()
        step = max(1, _NUMBERS // len(sigmas))
        for start in range(0, len(X), step):
            rows = slice(start, min(start + step, len(X)))
            yield rows, X[rows] @ slopes.T + intercepts, sigmas

    def _subgroup_of(self, slopes: Array) -> NDArray[np.intp]:
        """Give the number of the mode that each draw belongs to; all are 0 where coefficients do not differ."""
        if not self.heterogeneous_:
            return np.zeros(len(slopes), dtype=np.intp)
        # As whitened covariates see them; columns of very different units are brought to one before inverting.
        matrix = self.fit_.units.matrix
        unit = np.abs(matrix).max(1)
        unit = np.where(unit > 0, unit, 1.0)
        scaled = (slopes / unit) @ np.linalg.pinv(matrix / unit[:, None]).T
        along = scaled @ principal_direction(scaled)
        return np.searchsorted(split_points(along), along)


def kernel_score_scorer(estimator: GPSLinearRegression, X: Any, y: Any) -> float:
    """Scorer for ``GridSearchCV`` and its kin: minus the kernel score, so that higher is better.

    >>> from sklearn.model_selection import GridSearchCV
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.estimators.linear import kernel_score_scorer
    >>> data = correlated(200, 2)
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    >>> kernel_score_scorer(model, data.X, data.y) > kernel_score_scorer(model, data.X, -data.y)
    True
    >>> search = GridSearchCV(model, {"fit_intercept": [True, False]}, scoring=kernel_score_scorer)
    """
    return -estimator.kernel_score(X, y)


def _name_missing_targets(y: Any) -> None:
    """Name rows of y that are not finite; what is no list of real numbers is scikit-learn's to complain about."""
    try:
        given = np.asarray(y)
        values = given.real.astype(np.float64)
    except (TypeError, ValueError):
        return
    if values.ndim and not np.iscomplexobj(given):
        check_finite_rows("y", values)


def _index(X: Any) -> Any:
    return X.index if isinstance(X, pd.DataFrame) else None


def _targets(X: Any, y: Any) -> Array:
    """Check targets that belong to the rows of X."""
    values = column_or_1d(y, dtype=np.float64)
    check_finite_rows("y", values)
    if len(values) != len(X):
        raise GPSError(f"X and y must have the same number of rows, got {len(X)} and {len(values)}")
    result: Array = values
    return result


def _sample_weight(sample_weight: Any, n: int) -> Array | None:
    if sample_weight is None:
        return None
    values = np.asarray(sample_weight)
    weight = checked_weight("sample_weight", np.full(n, values) if values.ndim == 0 else values, n, torch.float64)
    return None if weight is None else weight.numpy()


def _group_codes(groups: Any, n: int) -> NDArray[np.intp]:
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise GPSError(f"groups must have one label per row, shape ({n},), got {labels.shape}")
    codes, _ = pd.factorize(labels)
    if (codes < 0).any():
        raise GPSError(f"groups has a missing label in row {int((codes < 0).argmax())}")
    return codes


def _warn(message: str) -> None:
    warnings.warn(message, GPSWarning, stacklevel=3)
