"""Nonlinear regression with a whole distribution of y at every x, as a scikit-learn estimator."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from lightning_fabric import Fabric
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gpsuq.core.arrays import checked_weight
from gpsuq.core.conformal import Conformal
from gpsuq.core.distances import MMD, EnergyDistance
from gpsuq.core.generators import GeneratorSpec, as_generator_spec
from gpsuq.core.kernels import Gaussian
from gpsuq.core.kernels import Mixture as KernelMixture
from gpsuq.core.models import ObservationModel
from gpsuq.core.seeds import derive_seed, seed_from
from gpsuq.engine.checkpoints import resumable
from gpsuq.engine.fitting import whole_or_not_at_all
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.errors import GPSError, warn
from gpsuq.regress.columns import Columns, as_frame
from gpsuq.regress.families import FAMILIES, NORMAL_NAMES, Array, make_family
from gpsuq.regress.fit import Kind, RegressionSettings, fit_regression
from gpsuq.regress.members import RegressionFit
from gpsuq.regress.network import Tabular
from gpsuq.regress.predictive import Predictive, outcomes_of
from gpsuq.reports.compact import InNotebooks, compact
from gpsuq.storage import save
from gpsuq.tables.frames import identifiers

DEFAULT_STEPS = 1500

_BINS = 16
_SMOOTH_RATE, _PIECES_RATE = 5e-3, 2e-3
_DROPOUT = 0.2
_AT_LEAST_1 = Interval(Integral, 1, None, closed="left")


class GPSRegressor(Predictive, InNotebooks, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Regression whose predictive at x is a mixture f(y given theta) over theta = G(x, Z), Z ~ N(0, I).

    By default outcomes are Normal and the generator draws their location and scale at x, so that the predictive is a
    mixture of Normals: as many modes, as skewed and as wide as the data are there. Generators of four kinds, smooth
    perceptrons, ones that see columns cut into pieces, planes, and forests whose draws are trees, are made in chains
    that each leave out rows. These stop training, weigh the kinds, and calibrate the predictive. One default serves all
    tables.

    Parameters
    ----------
    family
        Distribution of y given theta: ``"normal"``, ``"student-t"``, ``"laplace"``, ``"lognormal"`` (positive y),
        ``"poisson"`` or ``"negative-binomial"`` (counts), ``"beta"`` (between 0 and 1), or an
        :class:`~gpsuq.ObservationModel` of your own.
    network
        None for the default, or a generator of your own, as :class:`~gpsuq.GPS` takes it: a module ``module(x, z)``
        with an attribute ``noise_dim``, or a declaration such as ``MLP(conditional=True)``. It sees standardised
        columns.
    kernel
        What the predictive is compared with the data by: ``"energy"`` (the CRPS of one outcome) or ``"gaussian"`` at
        several scales, which outliers pull less.
    n_chains
        Members of each kind of generator; every row is left out by two of them.
    n_steps, n_draws, batch_size
        Steps of training at most, draws of theta and rows in each. Where the score of rows left out still falls fast at
        the end, three times as many follow.
    conformal
        Share of the rows to leave out of training, so that intervals cover at least their level by construction; None
        leaves out none. :meth:`calibrate` does the same with rows of your own.
    fabric
        Devices, precision and processes, as ``lightning_fabric.Fabric`` takes them.
    random_state
        Seed; same seed, same machine, same numbers.
    progress
        Whether to show progress bars.

    Attributes
    ----------
    members_
        Kinds of generators in use, and how much each counts.
    findings_
        What there is to say about the fit, in plain words.
    conformal_
        The conformal layer in use, None without one.
    n_features_in_, feature_names_in_
        Columns that were fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPSRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, size=(300, 1))
    >>> y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=300)
    >>> model = GPSRegressor(n_chains=4, n_steps=200).fit(x, y)
    >>> model.predict(x[:2]).shape, model.predict_interval(x[:2]).columns.tolist()
    ((2,), ['lower', 'upper'])
    >>> bool(model.crps(x, y).mean() < 0.2)
    True
    >>> quantiles = model.predict_quantiles(x, [0.1, 0.9])
    >>> bool((model.predict_cdf(x, quantiles[0.9]).round(3) == 0.9).all())
    True
    >>> model.predict_density(x[:2], y[:2]).shape, model.sample_predictive(x[:2], n_draws=50).shape
    ((2,), (50, 2))

    What the generator says of the parameters at x, of what kind uncertainty is, and of single rows:

    >>> sorted(model.sample_parameters(x[:2], n_draws=50))
    ['loc', 'scale']
    >>> model.uncertainty(x[:2]).columns.tolist()
    ['total', 'aleatoric', 'epistemic']
    >>> model.explain_rows(x[:2], y[:2]).columns.tolist()
    ['loc', 'scale', 'rank', 'outlier_score', 'outlier']

    Intervals that cover by construction, by rows that were not fitted:

    >>> model.calibrate(x, y).conformal_.n_rows
    300
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "family": [StrOptions(set(FAMILIES)), ObservationModel],
        "network": [GeneratorSpec, nn.Module, None],
        "kernel": [StrOptions({"energy", "gaussian"})],
        "n_chains": [Interval(Integral, 2, None, closed="left")],
        "n_steps": [_AT_LEAST_1],
        "n_draws": [Interval(Integral, 2, None, closed="left")],
        "batch_size": [_AT_LEAST_1],
        "conformal": [Interval(Real, 0, 1, closed="neither"), None],
        "fabric": [Fabric, None],
        "progress": ["boolean"],
    }

    def __init__(
        self,
        *,
        family: str | ObservationModel = "normal",
        network: GeneratorSpec | nn.Module | None = None,
        kernel: Literal["energy", "gaussian"] = "energy",
        n_chains: int = 10,
        n_steps: int = DEFAULT_STEPS,
        n_draws: int = 8,
        batch_size: int = 128,
        conformal: float | None = None,
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.family, self.network, self.kernel = family, network, kernel
        self.n_chains, self.n_steps, self.n_draws, self.batch_size = n_chains, n_steps, n_draws, batch_size
        self.conformal, self.fabric, self.random_state, self.progress = conformal, fabric, random_state, progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    @whole_or_not_at_all
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | Path | None = None,
    ) -> GPSRegressor:
        """Fit the law of the parameters at every x.

        Parameters
        ----------
        X
            A table (n, p) of pandas', polars' or NumPy's. Numbers may be missing, and columns may hold text: the 50
            most frequent values of each are told apart. Dates count as days, and by their place in the year, the week
            and the day where the rows cover two of these at least.
        y
            Outcomes, (n,) or (n, outputs).
        sample_weight
            Frequency weights: 2 counts like the same row twice, 0 like no row.
        groups
            Labels (n,) of subjects measured repeatedly: their rows are left out together, so that the calibration is
            one for new subjects.
        checkpoint
            Directory to keep the training in; a fit that was stopped goes on from there, bit for bit.
        """
        frame = self._learn_names(X)
        targets, self._several = outcomes_of(y, len(frame))
        weight = _weights(sample_weight, len(frame))
        codes = None if groups is None else _codes(groups, len(frame))
        numbers = np.arange(len(frame))
        if weight is not None and (weight == 0).any():  # like no row at all
            seen = weight > 0
            frame, targets, weight, numbers = frame[seen], targets[seen], weight[seen], numbers[seen]
            codes = None if codes is None else codes[seen]
        if weight is not None and len(weight) and (weight == weight[0]).all():
            weight = None  # all rows count alike
        if len(frame) < 2:
            raise GPSError(f"at least 2 rows are needed to fit a regression, got n_samples = {len(frame)}")
        family = make_family(self.family, targets.shape[1] if self._several else None)
        family.check(targets)
        flat = np.ptp(targets, axis=0) <= 1e-12 * np.abs(targets).max(0)
        if flat.any():
            raise GPSError(
                f"y is constant{f' in column {int(flat.argmax())}' if self._several else ''}: nothing to fit"
            )
        seed = seed_from(self.random_state)
        apart = np.zeros(len(frame), dtype=bool)
        if self.conformal is not None:
            apart = _set_apart(len(frame), float(self.conformal), codes, seed)
        self.columns_ = Columns.of(frame[~apart])
        rows = self.columns_.encoded(frame)
        fitted = rows[~apart]
        settings = RegressionSettings(
            n_chains=int(self.n_chains),
            n_steps=int(self.n_steps),
            n_draws=int(self.n_draws),
            batch_size=int(self.batch_size),
            distance=EnergyDistance() if self.kernel == "energy" else MMD(_several_scales()),
            seed=seed,
            fabric=fabric_or_default(self.fabric),
            progress=self.progress,
        )
        with resumable(None if checkpoint is None else Path(checkpoint), keep=True):
            fit = fit_regression(
                fitted,
                targets[~apart],
                None if weight is None else weight[~apart],
                None if codes is None else codes[~apart],
                family,
                self._kinds(fitted),
                settings,
                closed=self.network is None and not self._several and family.name in NORMAL_NAMES,
            )
        fit.rows = numbers[~apart][fit.rows]
        fit.findings.extend(identifiers(frame))
        self._set_fit(fit)
        if apart.any():
            self.calibrate(frame[apart], targets[apart] if self._several else targets[apart, 0])
        for finding in self.findings_:
            if finding.code != "identifier":
                warn(finding.message)
        return self

    def _learn_names(self, X: Any) -> pd.DataFrame:
        """Return X as a DataFrame, and keep its names where they are its own."""
        frame = as_frame(X)
        if frame.shape[1] == 0:
            raise GPSError(f"0 feature(s) (shape={frame.shape}) while a minimum of 1 is required: X has no columns")
        if len(frame) == 0:
            raise GPSError(f"Found array with 0 sample(s) (shape={frame.shape}) while a minimum of 2 is required")
        for name in ("feature_names_in_", "n_features_in_"):
            if hasattr(self, name):
                delattr(self, name)
        self.n_features_in_ = frame.shape[1]
        if all(isinstance(name, str) for name in frame.columns):
            self.feature_names_in_ = np.asarray(frame.columns, dtype=object)
        if frame.columns.duplicated().any():
            raise GPSError(f"X has two columns named {frame.columns[frame.columns.duplicated()][0]!r}: rename one")
        return frame.rename(columns=str)

    def _kinds(self, rows: Array) -> list[Kind]:
        """Return the kinds of generators to train."""
        if self.network is not None:
            spec = as_generator_spec(self.network)
            if not getattr(spec, "conditional", True):
                raise GPSError("network must see x: a module(x, z), or MLP(conditional=True)")
            return [Kind("own", spec, _PIECES_RATE)]
        edges = self.columns_.edges(rows, _BINS)
        pieces = Kind("pieces", Tabular(dropout=_DROPOUT, edges=edges), _PIECES_RATE)
        return [Kind("smooth", Tabular(), _SMOOTH_RATE), pieces]

    def _set_fit(self, fit: RegressionFit) -> None:
        """Keep what was trained."""
        self.fit_, self.findings_ = fit, fit.findings
        self.conformal_: Conformal | None = None
        self.members_ = {member.name: member.weight for member in fit.members}

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> GPSRegressor:
        """Let intervals cover at least their level, by rows that were not fitted; return the estimator.

        With ``groups``, labels (n,) such as subgroups that were found, they cover in each of them, and
        :meth:`predict_interval` takes labels, too.
        """
        check_is_fitted(self)
        if self._several:
            raise GPSError("calibrate is for a single outcome: fit one model for each")
        self.conformal_ = None
        self.conformal_ = Conformal.of(self.predict_cdf(X, y), groups)
        return self

    def _compact(self) -> str:
        lead = f"Outcomes are {self.fit_.family.name}; the predictive is a mixture of generators."
        members = pd.DataFrame({"weight": self.members_}).rename_axis("generators")
        return compact(type(self).__name__, lead, self.findings_, members)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the fit into a directory that :func:`gpsuq.load` reads; nothing in it is code."""
        return save(self, path, force=force)


def _several_scales() -> KernelMixture:
    """Return a Gaussian kernel at scales from a tenth of the spread of y up to its range, y being standardised."""
    return KernelMixture(tuple(Gaussian(2.0 * scale**2) for scale in (0.1, 0.3, 1.0, 3.0)))


def _weights(sample_weight: Any, n: int) -> Array | None:
    import torch

    if sample_weight is None:
        return None
    values = np.asarray(sample_weight)
    weight = checked_weight("sample_weight", np.full(n, values) if values.ndim == 0 else values, n, torch.float64)
    return None if weight is None else weight.numpy()


def _codes(groups: Any, n: int) -> NDArray[np.int64]:
    codes = pd.factorize(np.asarray(groups))[0].astype(np.int64)
    if len(codes) != n:
        raise GPSError(f"groups must name the subject of every row: {n} rows, {len(codes)} labels")
    if (codes < 0).any():
        raise GPSError(f"groups has no label in row {int((codes < 0).argmax())}")
    return codes


def _set_apart(n: int, share: float, codes: NDArray[np.int64] | None, seed: int) -> NDArray[np.bool_]:
    """Choose rows (or whole groups) to calibrate with."""
    units = np.arange(n) if codes is None else codes
    n_units = int(units.max()) + 1
    count = round(share * n_units)
    if count < 1 or n_units - count < 2:
        raise GPSError(f"conformal={share:g} of {n_units} rows or groups leaves nothing to fit or nothing to calibrate")
    chosen = np.random.default_rng(derive_seed(seed, "conformal")).permutation(n_units)[:count]
    return np.isin(units, chosen)
