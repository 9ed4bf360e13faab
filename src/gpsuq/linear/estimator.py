"""Linear regression whose coefficients may differ between observations, as a scikit-learn estimator."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from lightning_fabric import Fabric
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gpsuq.core.arrays import check_finite_rows
from gpsuq.core.generators import MLP
from gpsuq.core.groups import group_codes
from gpsuq.core.seeds import quasi_normal, seed_from
from gpsuq.core.summaries import summary_table
from gpsuq.engine.checkpoints import resumable
from gpsuq.engine.fitting import validated, whole_or_not_at_all
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.errors import GPSError, needs, warn
from gpsuq.linear.findings import verdict
from gpsuq.linear.fit import LinearFit, fit_linear
from gpsuq.linear.inputs import check_finite_targets, check_sizes, frequencies, targets
from gpsuq.linear.plots import coefficients
from gpsuq.linear.predictive import LinearPredictions
from gpsuq.linear.sample import LinearSettings
from gpsuq.plots.diagnostics import observed_and_predicted
from gpsuq.reports.compact import InNotebooks, compact
from gpsuq.storage import save
from gpsuq.tables.frames import as_pandas, identifiers, numbers_of
from gpsuq.tables.streaming import ParquetRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

Array = NDArray[np.floating]

DEFAULT_STEPS = 300
_DRAWS = 512  # kept of each chain, for summaries
_RESERVED = {"intercept", "sigma", "subgroup", "subgroup_probability", "outlier_score", "outlier", "rows"}
_SILENT = {"noise-varies", "identifier", "levels"}  # findings that call for no warning
_AT_LEAST_1 = Interval(Integral, 1, None, closed="left")


class GPSLinearRegression(LinearPredictions, InNotebooks, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Linear regression y_i = intercept + x_i' theta_i + e_i with a *law* of coefficients instead of one vector.

    :math:`(\theta_i, \sigma_i) = G(Z_i)` with :math:`Z_i \sim N(0, I)`. Where a test finds no difference between rows,
    the fit is a robust regression with one coefficient vector. Otherwise the generator G starts from laws found by
    maximum likelihood (Normal, several lines) and is trained so that the predictive distribution matches the data under
    a kernel score; rows left out choose between all of them. Subgroups with coefficients of their own appear as modes,
    outliers lose their pull, and predictions are calibrated by rows that were not fitted.

    Parameters
    ----------
    fit_intercept
        Whether the model has an intercept.
    random_intercept
        Whether the intercept has randomness of its own. ``"auto"``: only with ``groups``, whose repeated measures tell
        it from sigma. True also looks for subgroups that differ by their intercept only.
    spread_weight
        ``"auto"`` tests whether coefficients differ, and lets rows left out choose the law and the penalty on its
        spread. A number trains with that penalty: 0 lets coefficients vary freely, 3 and more keeps them equal.
    n_chains
        Sets of Bayesian-bootstrap weights; how mean coefficients differ between them is estimation uncertainty.
    n_steps, n_draws, batch_size
        Length of training, draws of the parameters and observations in each step, where coefficients differ.
    generator
        The network from noise to parameters; None is ``MLP()``.
    fabric
        Devices, precision and processes, as ``lightning_fabric.Fabric`` takes them; None is all processes that
        ``torchrun`` started, or else this CPU.
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
    heterogeneous_, law_
        Whether a difference between rows was detected, and the law in use: "equal", "normal", "lines", "levels" or
        "trained".
    p_value_, detectable_
        Of the test of equal coefficients, and the spread it would have found with a probability of 80%: the standard
        deviation of one coefficient times that of its column, in units of the noise. None where there was no test.
    spread_weight_, spread_path_
        The penalty in use, and the held-out scores of all laws (None where none were tried).
    findings_
        What there is to say about the fit, in plain words.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import scissors
    >>> data = scissors(400, seed=1)
    >>> model = GPSLinearRegression(n_chains=4, n_steps=200).fit(data.X, data.y)
    >>> model.heterogeneous_, model.law_
    (True, 'lines')
    >>> print(model.verdict())
    Coefficients differ between rows (p = 0.001): they follow 2 lines.

    The lines that rows follow, the law of the coefficients, and what each row says of it:

    >>> sorted(model.lines()["x0"].round())
    [-1.0, 1.0]

    >>> model.summary().index.tolist()
    ['x0', 'intercept', 'sigma']
    >>> model.sample_parameters(500).shape
    (500, 3)
    >>> bool(model.explain_rows(data.X, data.y)["subgroup"].nunique() > 1)
    True
    >>> model.explain_groups(data.X, data.y, np.arange(400) // 4).shape[0]
    100
    >>> coefficients, predictions = model.plot(), model.plot(data.X, data.y)
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "fit_intercept": ["boolean"],
        "random_intercept": ["boolean", StrOptions({"auto"})],
        "spread_weight": [Interval(Real, None, None, closed="neither"), StrOptions({"auto"})],
        "n_chains": [_AT_LEAST_1],
        "n_steps": [_AT_LEAST_1],
        "n_draws": [Interval(Integral, 2, None, closed="left")],
        "batch_size": [_AT_LEAST_1],
        "generator": [MLP, None],
        "fabric": [Fabric, None],
        "progress": ["boolean"],
    }

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        random_intercept: bool | Literal["auto"] = "auto",
        spread_weight: float | Literal["auto"] = "auto",
        n_chains: int = 20,
        n_steps: int = DEFAULT_STEPS,
        n_draws: int = 32,
        batch_size: int = 200,
        generator: MLP | None = None,
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.fit_intercept, self.random_intercept, self.spread_weight = fit_intercept, random_intercept, spread_weight
        self.n_chains, self.n_steps, self.n_draws, self.batch_size = n_chains, n_steps, n_draws, batch_size
        self.generator, self.fabric, self.random_state, self.progress = generator, fabric, random_state, progress

    # --- fitting -----------------------------------------------------------------------------------------------------

    @whole_or_not_at_all
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | Path | None = None,
    ) -> GPSLinearRegression:
        """Fit the law of the coefficients.

        Parameters
        ----------
        X, y
            A table (n, p) and its targets (n,); or :class:`gpsuq.ParquetRows`, larger than memory, and no y.
        sample_weight
            Frequency weights: 2 counts like the same row twice, 0 like no row.
        groups
            Labels (n,) of subjects measured repeatedly: all rows of one share one theta.
        checkpoint
            Directory to keep the training in; a fit that was stopped goes on from there, bit for bit.
        """
        settings = self._settings(grouped=groups is not None)
        everything: ParquetRows | None = X if isinstance(X, ParquetRows) else None
        weight: Array | None
        if everything is not None:
            if any(given is not None for given in (y, sample_weight, groups)):
                raise GPSError("ParquetRows name target and weights, and have no groups: pass nothing beside them")
            X, y, weight, _ = everything.sample
            table = None
            codes, self.n_features_in_ = None, X.shape[1]
            self.feature_names_in_ = np.array(everything.columns, dtype=object)
        else:
            check_finite_targets(y)
            table = as_pandas(X)
            X, y = validated(
                *(self, numbers_of(X, type(self).__name__), y),
                y_numeric=True,
                dtype=np.float64,
                ensure_all_finite=False,
                ensure_min_samples=2,
            )
            check_finite_rows("X", X)
            y = y.astype(np.float64)
            weight = frequencies(sample_weight, len(y))
            codes = None if groups is None else group_codes(groups, len(y))
        names = self._names()
        check_sizes(X, y, names)
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
        if settings.random_level and codes is None:
            warn("without groups a random intercept can hardly be told from sigma: trust levels far apart only")
        with resumable(None if checkpoint is None else Path(checkpoint), keep=True):
            fit = fit_linear(X, y, weight, codes, names, settings, intercept=self.fit_intercept, everything=everything)
        fit.findings.extend(identifiers(pd.DataFrame(X, columns=names) if table is None else table))
        self._set_fit(fit, settings.seed)
        for finding in self.findings_:
            if finding.code not in _SILENT:
                warn(finding.message)
        return self

    def _settings(self, *, grouped: bool) -> LinearSettings:
        """Return the arguments as the training takes them."""
        if self.random_intercept is True and not self.fit_intercept:
            raise GPSError("random_intercept needs fit_intercept=True")
        if self.generator is not None and self.generator.conditional:
            raise GPSError("generator must be an MLP that does not see x, such as MLP(hidden=(64, 64))")
        return LinearSettings(
            n_chains=int(self.n_chains),
            n_steps=int(self.n_steps),
            n_draws=int(self.n_draws),
            batch_size=int(self.batch_size),
            spread_weight="auto" if self.spread_weight == "auto" else float(self.spread_weight),
            random_level=grouped if self.random_intercept == "auto" else bool(self.random_intercept),
            generator=self.generator or MLP(),
            seed=seed_from(self.random_state),
            progress=self.progress,
            fabric=fabric_or_default(self.fabric),
        )

    def _set_fit(self, fit: LinearFit, seed: int) -> None:
        """Keep what was trained, and the draws that summaries and predictions are made of."""
        self.fit_ = fit
        self._summaries: dict[float, pd.DataFrame] = {}
        self.seed_ = seed
        self.draws_ = fit.parameters(quasi_normal(_DRAWS, fit.noise_dim, seed))
        mean = fit.units.parameters(fit.centers.mean(0), np.zeros(()))
        self.coef_ = mean["slope"]
        self.intercept_ = float(mean["intercept"])
        self.spread_weight_ = fit.spread_weight
        self.heterogeneous_ = fit.kind != "equal"
        self.law_ = fit.kind
        self.p_value_ = None if fit.evidence is None else fit.evidence.p_value
        self.detectable_ = None if fit.evidence is None else fit.evidence.detectable
        self.spread_path_ = fit.path
        self.findings_ = fit.findings

    # --- parameters --------------------------------------------------------------------------------------------------

    def summary(self, coverage: float = 0.95) -> pd.DataFrame:
        """Return one row per coefficient, intercept and sigma, with both kinds of uncertainty side by side.

        ``heterogeneity_sd`` is how much the parameter differs between observations, ``estimation_sd`` how little the
        data say about its mean; ``population_*`` bounds an observation's own parameter, ``mean_*`` the mean of all.
        """
        check_is_fitted(self)
        if coverage not in self._summaries:  # of thousands of coefficients it takes seconds
            columns = dict(zip(self._names(), np.moveaxis(self.draws_["slope"], 2, 0), strict=True))
            columns |= {name: self.draws_[name] for name in ("intercept", "sigma")}
            found = self.fit_.units.parameters(self.fit_.centers, np.zeros(len(self.fit_.centers)))
            centers = dict(zip(self._names(), found["slope"].T, strict=True)) | {"intercept": found["intercept"]}
            table = summary_table(
                columns, coverage, reweighted=self.fit_.reweighted, positive={"sigma"}, centers=centers
            )
            self._summaries[coverage] = table
        return self._summaries[coverage].copy()

    def lines(self) -> pd.DataFrame:
        """Return the lines that rows follow, one row each: coefficients, ``intercept``, ``sigma`` and ``share``.

        There is one where coefficients do not differ, and none where their law has no lines.
        """
        check_is_fitted(self)
        columns = [*self._names(), "intercept", "sigma", "share"]
        if self.law_ in ("normal", "trained"):
            return pd.DataFrame(columns=columns)
        law, found = self.fit_.law, self.fit_.units.parameters(self.fit_.law.mean, self.fit_.law.sigma)
        table = pd.DataFrame(np.column_stack([*found["slope"].T, found["intercept"], found["sigma"], law.share]))
        if self.law_ == "equal":
            table = (table.mul(law.share, axis=0).sum()).to_frame().T
            table.iloc[:, -1] = 1.0
        return table.set_axis(columns, axis=1).rename_axis("line")

    def verdict(self) -> str:
        """Return a sentence or two: whether coefficients differ between rows, and how that is known."""
        check_is_fitted(self)
        return verdict(self.law_, len(self.fit_.law.share), self.fit_.evidence)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the fit into a directory that :func:`gpsuq.load` reads; nothing in it is code."""
        return save(self, path, force=force)

    def to_datatree(self) -> DataTree:
        """Export the draws for ArviZ: group ``uq``, dimensions chain, draw and coef."""
        check_is_fitted(self)
        with needs("arviz", "an export for ArviZ"):
            from arviz_base import from_dict
        tree: DataTree = from_dict({"uq": self.draws_}, dims={"slope": ["coef"]}, coords={"coef": self._names()})
        return tree

    def plot_coefficients(self, truth: Any = None) -> Figure:
        """Plot the law of every coefficient, all on one axis; see :func:`gpsuq.linear.plots.coefficients`."""
        check_is_fitted(self)
        return coefficients(self.draws_["slope"], self._names(), spread=self.fit_.units.spread, truth=truth)

    def plot(self, X: Any = None, y: Any = None) -> Figure:
        """Plot the coefficients; of rows X and y, what was observed against what is predicted, with 90% intervals."""
        if X is None:
            return self.plot_coefficients()
        return observed_and_predicted(targets(X, y), self.predict(X), *self.predict_interval(X, 0.9).to_numpy().T)

    def _compact(self) -> str:
        columns = ["mean", "mean_lower", "mean_upper", "heterogeneity_sd"]
        return compact(type(self).__name__, self.verdict(), self.findings_, self.summary()[columns])


def kernel_score_scorer(estimator: GPSLinearRegression, X: Any, y: Any) -> float:
    """Score for ``GridSearchCV`` and its kin: minus the kernel score, so that higher is better.

    >>> from sklearn.model_selection import GridSearchCV
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.linear.estimator import kernel_score_scorer
    >>> data = correlated(200, 2)
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    >>> kernel_score_scorer(model, data.X, data.y) > kernel_score_scorer(model, data.X, -data.y)
    True
    >>> search = GridSearchCV(model, {"fit_intercept": [True, False]}, scoring=kernel_score_scorer)
    """
    return -estimator.kernel_score(X, y)
