"""The UQ distribution: the law of theta = G(Z) after training, asked for draws, summaries, intervals, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Categorical

from gpsuq.core.conformal import Conformal
from gpsuq.core.expectations import BATCH_DIMS, base_distribution
from gpsuq.core.generators import Generator
from gpsuq.core.intervals import check_coverage, equal_tailed, highest_density, mean_interval
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import aligned
from gpsuq.core.seeds import seeded
from gpsuq.core.summaries import summary_table
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.generative import History
from gpsuq.errors import GPSError, needs
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.reports.compact import compact
from gpsuq.storage import save
from gpsuq.uq import rows
from gpsuq.uq.inputs import About, Array, FittedInputs, in_rows, row_index
from gpsuq.uq.predictions import BLOCK, ROWS, Predictor, pooled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

IntervalOf = Literal["population", "mean"]
IntervalKind = Literal["equal-tailed", "highest-density"]

_MOST_MARGINALS, _MOST_PAIRS = 24, 6  # parameters in one figure


class UQDistribution:
    """Draws of theta = G(Z) from every chain, and everything that follows from them; :meth:`gpsuq.GPS.fit` makes it.

    The spread *inside* a chain is heterogeneity: how theta differs between observations. The spread *between* chains
    is estimation uncertainty: how little the data say about that law.

    Attributes
    ----------
    history
        Both terms of the score at every step.
    findings
        What the diagnostics found, in plain words.
    reweighted
        Whether chains had bootstrap weights, without which their spread is no standard error.
    concomitants
        Names of the columns that the law of theta depends on, None where there are none. Draws of theta then take them
        as ``x=``, and predictions take them as ``concomitants=`` beside x.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPS, Algorithm
    >>> from gpsuq.core.models import normal_location
    >>> y = np.random.default_rng(0).normal(size=50)
    >>> uq = GPS(normal_location(), algorithm=Algorithm(n_steps=100), n_chains=2).fit(y)
    >>> uq.n_chains, uq.conditional, uq.classifies
    (2, False, False)

    Parameters: draws, summaries and intervals.

    >>> uq.draws(200)["loc"].shape, uq.columns(200).shape  # (chain, draw); as a table, with one column for each number
    ((2, 200), (400, 2))
    >>> list(uq.summary().columns[:2])
    ['mean', 'heterogeneity_sd']
    >>> low, high = uq.interval(0.9, of="population")["loc"]
    >>> bool(low < uq.mean()["loc"] < high), bool(uq.sd()["loc"] < high - low)
    (True, True)
    >>> uq.quantiles([0.25, 0.5, 0.75])["scale"].shape
    (3,)

    Predictions: new observations, here of a model without covariates; otherwise the first argument is x.

    >>> uq.predict_draws(n_draws=300, n_observations=5).shape  # (chain, draw, observation)
    (2, 300, 5)
    >>> lower, upper = uq.predict_interval(coverage=0.9)
    >>> bool(((lower < uq.predict_mean()) & (uq.predict_mean() < upper)).all())
    True
    >>> uq.predict_quantiles(levels=[0.1, 0.5, 0.9]).shape  # (level, observation)
    (3, 1)
    >>> uq.predict_cdf([-9.0, 9.0]).round(2).tolist()
    [0.0, 1.0]

    Observations: the parameters that each speaks for, and how surprising it is.

    >>> uq.explain_rows([0.5, 9.0])[["loc", "loc_sd", "outlier"]].shape
    (2, 3)

    Figures, and draws for ArviZ:

    >>> len(uq.plot_marginals().axes), len(uq.plot_pairs(parameters=["loc", "scale"]).axes)
    (2, 4)
    >>> dict(uq.to_datatree(n_draws=100)["uq"].sizes)
    {'chain': 2, 'draw': 100}
    """

    def __init__(
        self,
        generator: Generator,
        model: ObservationModel,
        chains: Sequence[int],
        *,
        seed: int,
        reweighted: bool,
        history: History,
        feature_names: Sequence[str] | None = None,
        x_shape: tuple[int, ...] | None = None,
        concomitants: Sequence[str] | None = None,
        findings: Sequence[Finding] = (),
    ) -> None:
        self.generator = generator.eval()
        self.model = model
        self.chains = list(chains)
        self.seed = seed
        self.reweighted = reweighted
        self.history = history
        self.feature_names = None if feature_names is None else list(feature_names)
        self.x_shape = x_shape
        self.concomitants = None if concomitants is None else list(concomitants)
        self.findings = list(findings)

    @property
    def n_chains(self) -> int:
        """Number of chains that were trained to the end."""
        return len(self.chains)

    @property
    def conditional(self) -> bool:
        """Whether parameters depend on x, so that draws need ``x=``."""
        return self.generator.conditional

    @property
    def classifies(self) -> bool:
        """Whether outcomes are classes, whose order means nothing."""
        width = None if self.concomitants is None else (len(self.concomitants),)
        x, w = (
            None if shape is None else torch.zeros(1, 1, 1, *shape, dtype=self.generator.shared.dtype)
            for shape in (self.x_shape, width)
        )
        block = next(self._predictor.blocks(1, x if w is None else w))
        return isinstance(base_distribution(self._predictor.predictive(block, x)), Categorical)

    # --- parameters --------------------------------------------------------------------------------------------------

    def draws(self, n_draws: int = 1000, x: Any = None, *, seed: int | None = None) -> dict[str, Array]:
        """Draw parameters: arrays ``(chain, draw, *shape)``, for G(X, Z) ``(chain, draw, observation, *shape)``.

        After a fit with concomitants ``x`` are rows of those.
        """
        blocks = list(self._predictor.blocks(n_draws, None if x is None else aligned(self._inputs.seen(x)), seed))
        joined = {name: torch.cat([block[name] for block in blocks], 2)[:, :, :n_draws].numpy() for name in blocks[0]}
        if self.conditional:
            return {name: np.moveaxis(value, 2, 1) for name, value in joined.items()}
        return {name: value[:, 0] for name, value in joined.items()}

    def mean(self, n_draws: int = 1000, x: Any = None) -> dict[str, Array]:
        """Return the mean of each parameter over chains and draws."""
        return {name: value.mean((0, 1)) for name, value in self.draws(n_draws, x).items()}

    def sd(self, n_draws: int = 1000, x: Any = None) -> dict[str, Array]:
        """Return the standard deviation of each parameter within chains: its heterogeneity."""
        return {name: np.sqrt(value.var(1, ddof=1).mean(0)) for name, value in self.draws(n_draws, x).items()}

    def quantiles(self, levels: Sequence[float], n_draws: int = 1000, x: Any = None) -> dict[str, Array]:
        """Return quantiles of each parameter, ``(level, *shape)``, chains pooled."""
        return {name: np.quantile(pooled(value), levels, axis=0) for name, value in self.draws(n_draws, x).items()}

    def interval(
        self,
        coverage: float = 0.95,
        *,
        of: IntervalOf,
        kind: IntervalKind = "equal-tailed",
        n_draws: int = 4000,
        x: Any = None,
    ) -> dict[str, Any]:
        """Return intervals for each parameter: name to array ``(2, *shape)``.

        Parameters
        ----------
        of
            ``"population"``: where theta_i of an observation lies, from all draws. ``"mean"``: where the mean of theta
            lies, from the differences between chains. They answer different questions, so there is no default.
        kind
            ``"equal-tailed"``, or ``"highest-density"`` for the population, which gives an array of shape
            (pieces, 2) for a number and nested lists of such arrays for a vector.
        """
        if of not in ("population", "mean"):
            raise GPSError(f'of must be "population" (of theta_i) or "mean" (of its mean), got {of!r}')
        if kind not in ("equal-tailed", "highest-density"):
            raise GPSError(f'kind must be "equal-tailed" or "highest-density", got {kind!r}')
        draws = self.draws(n_draws, x)
        if of == "mean":
            if kind != "equal-tailed":
                raise GPSError("an interval for the mean is symmetric; highest-density is for the population")
            if not self.reweighted:
                raise GPSError('an interval for the mean needs bootstrap weights: GPS(..., reweight="bootstrap")')
            return {name: mean_interval(value.mean(1), coverage) for name, value in draws.items()}
        if kind == "equal-tailed":
            return {name: equal_tailed(pooled(value), coverage) for name, value in draws.items()}
        return {name: _pieces(pooled(value), coverage) for name, value in draws.items()}

    def summary(self, coverage: float = 0.95, n_draws: int = 4000, x: Any = None) -> pd.DataFrame:
        """Summarise each parameter: mean, heterogeneity (sd within chains), estimation uncertainty (sd between).

        ``population_*`` bounds theta_i of an observation, ``mean_*`` the mean of theta (chains with bootstrap weights).
        Where parameters depend on x, or on concomitants, the population is that of the rows of ``x``.
        """
        table: dict[str, Array] = {}
        if self.conditional and x is not None:  # all rows see the same noise, so that each takes a whole block of it
            parts = [self.draws(min(n_draws, BLOCK), part) for part in self._inputs.seen(x).split(ROWS)]
            draws = {name: np.concatenate([part[name] for part in parts], axis=2) for name in parts[0]}
        else:
            draws = self.draws(n_draws, x)
        for name, value in draws.items():
            shape = value.shape[3 if self.conditional else 2 :]
            flat = value.reshape(self.n_chains, -1, int(np.prod(shape)))
            table |= dict(zip(self._labels(name, shape), np.moveaxis(flat, 2, 0), strict=True))
        return summary_table(table, coverage, reweighted=self.reweighted)

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict_draws(
        self,
        x: Any = None,
        n_draws: int = 1000,
        *,
        n_observations: int | None = None,
        seed: int | None = None,
        **about: Unpack[About],
    ) -> Array:
        """Draw new observations: array ``(chain, draw, observation, *event)``.

        Without covariates ``n_observations`` (1 by default) says how many; each draw has its own theta.

        All predictions take ``groups=``, a label for each row of x where that is a long table: they then have a row
        for each of its rows, and rows of one label share their theta. After a fit with concomitants they take
        ``concomitants=``, with rows as in the fit.
        """
        pieces = self._predictor.outcomes(self._inputs.new(x, n_observations, about), n_draws, seed)
        return in_rows(np.concatenate(list(pieces), axis=2), about, 2)

    def predict_quantiles(
        self, x: Any = None, levels: Sequence[float] = (0.5,), n_draws: int = 1000, **about: Unpack[About]
    ) -> Array:
        """Return quantiles of new observations, ``(level, observation, *event)``, chains pooled, in bounded memory.

        They are those of the mixture over draws, exactly where the model's distribution has a cdf.
        """
        return in_rows(self._predictor.quantiles(self._inputs.new(x, None, about), levels, n_draws), about, 1)

    def predict_cdf(self, X: Any, y: Any = None, n_draws: int = 1000, **about: Unpack[About]) -> Array:
        """Return P(Y <= y) of observations, of their shape: ``predict_cdf(y)`` or ``predict_cdf(X, y)``.

        It is the mean over draws of the model's own cdf, or the share of drawn outcomes where there is none.
        """
        x, outcome = (None, X) if y is None else (X, y)
        data = self._inputs.observed(x, outcome, None, about.get("groups"), about.get("concomitants"))
        return in_rows(self._predictor.cdf(data.rows(), n_draws), about, 0)

    def predict_interval(
        self,
        x: Any = None,
        coverage: float = 0.95,
        n_draws: int = 1000,
        *,
        conformal: Conformal | None = None,
        **about: Unpack[About],
    ) -> Array:
        """Return an equal-tailed interval for new observations, ``(2, observation, *event)``.

        ``conformal`` makes it cover by construction, whatever the model is: ``Conformal.of(uq.predict_cdf(X, y))`` of
        observations like those to come that the fit has not seen, each one number.
        """
        tail = (1.0 - check_coverage(coverage)) / 2.0
        levels = [tail, 1.0 - tail] if conformal is None else conformal.levels(coverage, 1)[0].tolist()
        return self.predict_quantiles(x, levels, n_draws, **about)

    def predict_mean(self, x: Any = None, n_draws: int = 1000, **about: Unpack[About]) -> Array:
        """Return the mean of new observations over draws and chains, ``(observation, *event)``, from the model's means.

        For a classifier these are the mean class probabilities.
        """
        return in_rows(self._predictor.mean(self._inputs.new(x, None, about), n_draws), about, 0)

    def explain_rows(
        self,
        X: Any = None,
        y: Any = None,
        *,
        mask: Any = None,
        groups: Any = None,
        concomitants: Any = None,
        n_draws: int = 1000,
    ) -> pd.DataFrame:
        r"""Explain for each observation which parameters it speaks for: ``explain_rows(y)`` or ``explain_rows(X, y)``.

        Draws are re-weighted by :math:`f(y_i \mid \theta, x_i)`. The result has a row for each observation (with
        ``groups`` for each label): the mean of every parameter that varies under these weights, and its standard
        deviation (``..._sd``); ``effective_draws``, how many of the draws these rest on: where it is below ten or so,
        ask for more ``n_draws``; ``outlier_score``, by how many nats the observation is more surprising than what the
        model would have made of it; and ``outlier``, whether that is more than 5.
        """
        x, outcome = (None, X) if y is None else (X, y)
        data, predictor = self._inputs.observed(x, outcome, mask, groups, concomitants), self._predictor
        found = []
        for start in range(0, len(data), ROWS):
            batch = data.rows(slice(start, start + ROWS))
            blocks = predictor.blocks(n_draws, batch.seen)
            draws = ((self._varying(block), predictor.predictive(block, batch.x)) for block in blocks)
            with seeded(self.seed, "explain", start):
                found.append(rows.explained(draws, batch, n_draws))
        mean, sd, effective_draws, score = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        columns: dict[str, Array] = {}
        for column, label in enumerate(self._varying_labels()):
            columns |= {label: mean[:, column], f"{label}_sd": sd[:, column]}
        others = {"effective_draws": effective_draws, "outlier_score": score, "outlier": score > rows.SURPRISING}
        return pd.DataFrame(columns | others, index=row_index(outcome, groups))

    # --- export ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the distribution into a directory; ``gpsuq.load(path, model=...)`` reads it, with your model."""
        return save(self, path, force=force)

    def to_datatree(self, n_draws: int = 1000) -> DataTree:
        """Export draws for ArviZ: group ``uq`` with dimensions chain, draw and one per parameter axis."""
        if self.conditional:
            raise GPSError("parameters depend on x; export draws(x=...) for the x you care about")
        with needs("arviz", "an export for ArviZ"):
            from arviz_base import from_dict
        draws = self.draws(n_draws)
        dims, coords = {}, {}
        for name, value in draws.items():
            if value.ndim == 3 and self.generator.parameter_map.declared[name].size == "features":
                dims[name], coords["coef"] = ["coef"], self._feature_labels(value.shape[2])
            elif value.ndim > 2:
                dims[name] = [f"{name}_dim{axis}" for axis in range(value.ndim - 2)]
        tree: DataTree = from_dict({"uq": draws}, dims=dims, coords=coords)
        return tree

    def plot(self) -> Figure:
        """Plot the marginal of every parameter that varies, as :meth:`plot_marginals` does."""
        return self.plot_marginals()

    def _repr_html_(self) -> str:
        what = f"{', '.join(self.model.parameters)}: {self.n_chains} chains"
        if self.conditional:
            return compact("UQ distribution", f"{what}; parameters depend on x.", self.findings)
        columns = ["mean", "mean_lower", "mean_upper", "heterogeneity_sd"]
        return compact("UQ distribution", f"{what}.", self.findings, self.summary()[columns])

    def plot_marginals(self, *, parameters: Sequence[str] | None = None, n_draws: int = 2000) -> Figure:
        """Plot the marginal of every parameter, or of some; see :func:`gpsuq.plots.distributions.marginals`."""
        return marginals(self._shown(parameters, n_draws, _MOST_MARGINALS))

    def plot_pairs(self, *, parameters: Sequence[str] | None = None, n_draws: int = 1000) -> Figure:
        """Plot every pair of parameters; see :func:`gpsuq.plots.distributions.pairs`."""
        return pairs(self._shown(parameters, n_draws, _MOST_PAIRS))

    def _shown(self, parameters: Sequence[str] | None, n_draws: int, most: int) -> pd.DataFrame:
        """Return draws of the parameters that a figure shows."""
        table = self.columns(n_draws)
        if parameters is None:
            # What does not vary with the noise is one value per chain: nothing to see.
            shared = self.generator.parameter_map.names(random=False)
            table = table[[column for column in table if str(column).split("[")[0] not in shared]]
        else:
            if unknown := [name for name in parameters if name not in table]:
                raise GPSError(f"no parameters named {unknown}; there are {list(table)}")
            table = table[list(parameters)]
        if table.shape[1] > most:
            raise GPSError(
                f"{table.shape[1]} parameters are too many for one figure; choose at most {most} by parameters="
            )
        return table

    def columns(self, n_draws: int = 1000, x: Any = None, *, seed: int | None = None) -> pd.DataFrame:
        """Draw a table: one column per number, indexed by chain and draw; for G(X, Z), at the single row of x."""
        if self.conditional and (x is None or len(x) != 1):
            raise GPSError("parameters depend on x: pass the one row that the table is for, or use draws(x=...)")
        table: dict[str, Array] = {}
        for name, value in self.draws(n_draws, x if self.conditional else None, seed=seed).items():
            labels = self._labels(name, value.shape[3 if self.conditional else 2 :])
            table |= dict(zip(labels, value.reshape(self.n_chains * n_draws, -1).T, strict=True))
        index = pd.MultiIndex.from_product([range(self.n_chains), range(n_draws)], names=["chain", "draw"])
        return pd.DataFrame(table, index=index)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _inputs(self) -> FittedInputs:
        scale, dtype = self.generator.parameter_map.scale, self.generator.shared.dtype
        return FittedInputs(self.feature_names, self.x_shape, self.concomitants, tuple(scale.y_center.shape), dtype)

    @property
    def _predictor(self) -> Predictor:
        return Predictor(self.generator, self.model, self.chains, self.seed, self._inputs)

    def _varying(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return all numbers that vary with the noise, (chain, 1 or observation, draw, number)."""
        names = self.generator.parameter_map.names(random=True)
        return torch.cat([parameters[name].unsqueeze(-1).flatten(BATCH_DIMS) for name in names], -1)

    def _varying_labels(self) -> list[str]:
        names, shapes = self.generator.parameter_map.names(random=True), self.generator.parameter_map.shapes
        return [label for name in names for label in self._labels(name, shapes[name])]

    def _feature_labels(self, count: int) -> list[str]:
        if self.feature_names is not None and len(self.feature_names) == count:
            return self.feature_names
        return [f"x{index}" for index in range(count)]

    def _labels(self, name: str, shape: tuple[int, ...]) -> list[str]:
        if not shape:
            return [name]
        if self.generator.parameter_map.declared[name].size == "features":
            return [f"{name}[{label}]" for label in self._feature_labels(shape[0])]
        return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]


def _pieces(draws: Array, coverage: float) -> Any:
    """Return the highest-density region of every number in draws ``(draw, *shape)``, nested like the shape."""
    if draws.ndim == 1:
        return highest_density(draws, coverage)
    return [_pieces(draws[:, index], coverage) for index in range(draws.shape[1])]
