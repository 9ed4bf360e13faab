"""A spatial Poisson process whose intensity is random, fitted to a point pattern."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from lightning_fabric import Fabric
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gpsuq.core.seeds import derive_seed, seed_from
from gpsuq.engine.checkpoints import resumable
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.fitting import whole_or_not_at_all
from gpsuq.engine.progress import counting_bar
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.errors import GPSError
from gpsuq.poisson.diagnostics import Diagnosed
from gpsuq.poisson.drawn import Drawn
from gpsuq.poisson.findings import findings
from gpsuq.poisson.fit import PoissonSettings, fit_poisson
from gpsuq.poisson.kernels import estimate_at_own_points, kernel_grid
from gpsuq.poisson.law import PoissonFit, SurfaceNoise
from gpsuq.poisson.plots import intensity
from gpsuq.poisson.risk import RelativeRisk, marks_inside, risk_of_types
from gpsuq.reports.compact import InNotebooks, compact
from gpsuq.spatial.foreign import plain_points
from gpsuq.spatial.grids import Grid, cells_for
from gpsuq.spatial.intensity import IntensityModel
from gpsuq.spatial.patterns import PointPattern, point_pattern, window_of
from gpsuq.spatial.rasters import as_covariates
from gpsuq.spatial.simulation import Intensity, bound_from, bound_places, simulate_poisson
from gpsuq.spatial.statistics import Envelope, l_envelope
from gpsuq.spatial.windows import Array, as_window
from gpsuq.storage import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_STEPS = 150
_FULL_WIDTH = 2.355  # of a Gaussian at half its height, in standard deviations


class GPSPoissonProcess(Drawn, Diagnosed, IntensityModel, InNotebooks, BaseEstimator):  # type: ignore[misc]
    r"""Poisson process with :math:`\log \lambda(s) = G(s, Z)`: a *law* of intensity surfaces instead of one surface.

    The generator is trained so that counts in cells, and in square blocks of cells at several scales with one Z per
    block, match the predictive distribution under an exact kernel score. Networks of several smoothnesses and kernel
    estimates of several bandwidths are then mixed, with the weights that give held-out points the highest density; a
    constant is taken unless they are clearly better. Chains on random parts of the points, and how far they are off on
    the rest, show how well the intensity is known; draws of Z how much it varies from one block (or replicate) to the
    next, as far as held-out points ask for that.

    Parameters
    ----------
    n_cells
        About how many cells the points are counted in; None follows the number of points in a replicate
        (:func:`gpsuq.spatial.cells_for`).
    frequency
        Standard deviation of the waves that surfaces are made of, in cycles per longest side of the window; "auto"
        tries several, and kernel estimates beside them. A number is taken alone.
    n_chains
        Networks of each frequency, trained side by side, each on four fifths of the points.
    n_steps, n_draws, batch_size
        Length of training, draws of Z and tiles of 16 x 16 cells in each step (up to four times as many where there
        are replicates).
    waves, hidden, noise_dim
        Size of the network: waves that encode the location, widths of the hidden layers, dimension of Z.
    outside
        Whether points outside the window are an ``"error"`` or are dropped (``"drop"``) with a warning.
    fabric
        Devices, precision and processes, as ``lightning_fabric.Fabric`` takes them; None is all processes that
        ``torchrun`` started, or else this CPU.
    random_state
        Seed; same seed, same machine, same numbers.
    progress
        Whether to show progress bars.

    Attributes
    ----------
    window_, grid_, points_, n_outside_
        The window, the grid of cells, the points of every replicate, and how many were dropped outside the window.
    frequency_, smoothness_path_
        The frequency of the networks that count most, 0 where the mean is constant (or follows covariates alone); and
        all candidates with their gain over a constant in held-out log density a point, and their weight in the mean
        (None where a frequency was given).
    spread_, spread_path_
        What part of the learned spread of Z is kept, from none (0) to all (1), and the scores that decided.
    marks_
        The types of the points of every replicate, or None.
    findings_
        What to be careful about: each with a ``code`` and a ``message``.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(n_cells=256, frequency=1.0, n_chains=2, n_steps=20).fit(points, window=(0, 1, 0, 1))
    >>> bool(90 < model.integral() < 220), [finding.code for finding in model.findings_]
    (True, ['coarse-grid'])

    The intensity: its mean and draws of it at places, on a grid, and in a figure.

    >>> model.intensity(points[:3]).shape, model.sample_intensity(points[:3], n_draws=100).shape
    ((3,), (100, 3))
    >>> model.surface(levels=(0.1, 0.9)).mean.shape
    (16, 16)
    >>> figure = model.plot()

    Counts: of regions, each anything that can be a window, and of all blocks of so many cells a side.

    >>> model.region_counts([(0, 0.5, 0, 0.5), (0.5, 1, 0, 1)])[["mean", "count_lower", "count_upper"]].shape
    (2, 3)
    >>> rates, counts = model.block_counts(side=8)
    >>> rates.shape, int(counts.sum())  # (draw, block), and every point in one of the blocks
    ((640, 4), 150)

    New patterns, and whether the points look like them:

    >>> len(model.simulate(3)), bool(0 < model.goodness_of_fit(n_simulations=9).p_value <= 1)
    (3, True)
    >>> bool(model.log_likelihood(points) > 3.0)  # per point, higher is better
    True

    Where the fit misses points, along what, and whether they attract each other:

    >>> model.residuals().z.shape, bool(model.quadrat_test().p_value > 0.001)
    ((64, 64), True)
    >>> list(model.lurking("x")), list(model.covariate_curve("x"))
    (['value', 'residual', 'lower', 'upper'], ['value', 'ratio', 'lower', 'upper'])
    >>> 0 < model.second_order("pcf", n_simulations=19).p_value <= 1
    True
    >>> model.cross_validate(n_splits=2).columns.tolist()
    ['gps', 'kernel', 'constant']

    Points of several types: where is each more likely?

    >>> species = np.where(points[:, 0] < 0.5, "oak", "pine")
    >>> mixed = GPSPoissonProcess(frequency=0.0, n_chains=2, n_steps=2).fit(points, (0, 1, 0, 1), marks=species)
    >>> mixed.relative_risk().at([[0.1, 0.5]]).idxmax(axis=1).tolist()
    ['oak']

    A fit on a finer grid says whether the grid matters:

    >>> sorted(model.compare_grid())
    ['change', 'n_cells', 'other_n_cells', 'standard_error']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_cells": [Interval(Integral, 1, None, closed="left"), None],
        "frequency": [Interval(Real, 0, np.inf, closed="left"), StrOptions({"auto"})],
        **{name: [Interval(Integral, 2, None, closed="left")] for name in ("n_chains", "n_draws")},
        **{
            name: [Interval(Integral, 1, None, closed="left")]
            for name in ("n_steps", "batch_size", "waves", "noise_dim")
        },
        "hidden": ["array-like"],
        "outside": [StrOptions({"error", "drop"})],
        "fabric": [Fabric, None],
        "progress": ["boolean"],
    }

    def __init__(
        self,
        *,
        n_cells: int | None = None,
        frequency: float | Literal["auto"] = "auto",
        n_chains: int = 5,
        n_steps: int = DEFAULT_STEPS,
        n_draws: int = 4,
        batch_size: int = 4,
        waves: int = 64,
        hidden: Sequence[int] = (32,),
        noise_dim: int = 2,
        outside: Literal["error", "drop"] = "error",
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.n_cells, self.frequency, self.outside = n_cells, frequency, outside
        self.n_chains, self.n_steps, self.n_draws, self.batch_size = n_chains, n_steps, n_draws, batch_size
        self.waves, self.hidden, self.noise_dim = waves, hidden, noise_dim
        self.fabric, self.random_state, self.progress = fabric, random_state, progress

    # --- fitting -----------------------------------------------------------------------------------------------------

    @whole_or_not_at_all
    def fit(
        self,
        points: Any,
        window: Any,
        *,
        covariates: Any = (),
        marks: Any = None,
        checkpoint: str | Path | None = None,
    ) -> GPSPoissonProcess:
        """Fit the law of the intensity.

        Parameters
        ----------
        points
            Coordinates (n, 2), points of GeoPandas or pointpats, or a :class:`~gpsuq.spatial.PointPattern`; or a list
            of them, replicates of one process in the same window.
        window
            Where points were looked for: (x_min, x_max, y_min, y_max), polygons of shapely or GeoPandas, a
            :class:`~gpsuq.spatial.Window`, or a file that :func:`~gpsuq.spatial.read_window` reads.
        covariates
            Grids that cover the window: a list, or a mapping from names, of :class:`~gpsuq.spatial.CovariateGrid`,
            ``xarray.DataArray``, files (GeoTIFF or CSV), or arrays (see :func:`gpsuq.spatial.rasters.as_covariates`).
        marks
            The type of each point (of replicates, a list of such), or of GeoPandas the name of its column. The
            intensity is that of all points; :meth:`relative_risk` tells where each type is more likely.
        checkpoint
            Directory to keep the training in; a fit that was stopped goes on from there, bit for bit.
        """
        settings = self._settings()
        replicates, window = _replicates(points), as_window(window)
        for replicate in replicates:
            window = window_of(replicate, window)
        given = [np.empty((0, 2)) if np.size(one) == 0 else one for one in map(plain_points, replicates)]
        patterns = [point_pattern(pattern, window, outside=self.outside, least=0).points for pattern in given]
        types = None if marks is None else marks_inside(replicates, marks, window)
        n_points = sum(map(len, patterns))
        if n_points == 0:
            raise GPSError("there are no points")
        if n_points == 1:
            raise GPSError("one point is too few: at least 2 are needed to say anything about an intensity")
        grids = as_covariates(covariates, window)
        n_cells = cells_for(n_points // len(patterns)) if self.n_cells is None else self.n_cells
        grid = Grid.with_cells(window, n_cells)
        with resumable(None if checkpoint is None else Path(checkpoint), keep=True):
            fit = fit_poisson(grid, grids, patterns, settings)
        n_outside = sum(map(len, given)) - n_points
        found = findings(grid, patterns, n_outside, fit.surfaces(grid.nodes[grid.inside]).estimation)
        self._set_fit(fit, grid, patterns, settings.seed, n_outside, found)
        self.marks_ = types
        return self

    def _settings(self) -> PoissonSettings:
        """Return the arguments as the training takes them."""
        hidden = tuple(self.hidden)
        if not hidden or any(not isinstance(width, Integral) or width < 1 for width in hidden):
            raise GPSError(f"hidden must hold positive integers, got {self.hidden!r}")
        names = "n_chains", "n_steps", "n_draws", "batch_size", "waves", "noise_dim"
        return PoissonSettings(
            **{name: int(getattr(self, name)) for name in names},
            frequency=None if self.frequency == "auto" else float(self.frequency),
            hidden=tuple(int(width) for width in hidden),
            seed=seed_from(self.random_state),
            progress=self.progress,
            fabric=fabric_or_default(self.fabric),
        )

    def _set_fit(
        self, fit: PoissonFit, grid: Grid, patterns: list[Array], seed: int, n_outside: int, found: list[Finding]
    ) -> None:
        """Keep what was trained, how many points were left out, and what to be careful about."""
        self.fit_, self.seed_, self.findings_ = fit, seed, found
        self.grid_, self.window_ = grid, grid.window
        self.points_, self.n_outside_ = patterns, n_outside
        self.frequency_ = fit.frequency
        self.smoothness_path_ = None if fit.smoothness is None else fit.smoothness.table
        self.spread_, self.spread_path_ = fit.spread.value, fit.spread.table

    # --- the intensity -----------------------------------------------------------------------------------------------

    def intensity(self, points: Any) -> Array:
        """Return the mean intensity over chains and draws at points (n, 2) in the window."""
        points = self._inside(points)
        return self.fit_.mean(points)

    def integral(self) -> float:
        """Return the expected number of points in the window."""
        check_is_fitted(self)
        inside = self.grid_.inside
        return float(self.fit_.mean(self.grid_.nodes[inside]) @ self.grid_.exposure[inside])

    def relative_risk(self, coverage: float = 0.95) -> RelativeRisk:
        """Return where each type of point is more or less likely; see :func:`gpsuq.poisson.risk.relative_risk`."""
        check_is_fitted(self)
        if self.marks_ is None:
            raise GPSError("there are no types to compare: pass the type of each point, fit(points, window, marks=...)")
        pattern = PointPattern(np.concatenate(self.points_), self.window_)
        return risk_of_types(pattern, np.concatenate(self.marks_), coverage, random_state=self.seed_)

    @property
    def resolution_(self) -> float:
        """Width of the smallest features that the mean intensity shows, in units of length: infinite for a constant."""
        check_is_fitted(self)
        return np.inf if self.frequency_ == 0.0 else _FULL_WIDTH * self.fit_.error.length

    # --- simulation and checks ---------------------------------------------------------------------------------------

    def simulate(self, n: int = 1, random_state: int | None = None) -> list[Array]:
        """Draw n new patterns: a surface each, and points on it by Lewis-Shedler thinning."""
        return self._patterns(self._noise(n, random_state), random_state)

    def _patterns(self, noise: SurfaceNoise, random_state: int | None) -> list[Array]:
        rng = np.random.default_rng(derive_seed(self._seed(random_state), "simulate"))
        surfaces = self.fit_.surfaces if noise.wobble.shape[1] else self.fit_.without_errors
        lattice = surfaces(bound_places(self.grid_))

        def pattern(one: SurfaceNoise) -> Array:
            bound = bound_from(lattice.draws(one)[0], self.grid_)
            value: Intensity = lambda points: surfaces(points).draws(one)[0]  # noqa: E731
            return simulate_poisson(value, self.window_, rng, grid=self.grid_, bound=bound)

        patterns: list[Array] = []
        with counting_bar(self.progress, "simulating", len(noise.chain)) as advance:
            for draw in range(len(noise.chain)):
                patterns.append(pattern(noise.one(draw)))
                advance(len(patterns))
        return patterns

    def goodness_of_fit(self, n_simulations: int = 39, random_state: int | None = None) -> Envelope:
        """Compare the L function of the pattern (its mean over replicates) with those of simulated ones.

        Simulated surfaces vary with Z, as the process does; how well the mean is known is left out, because the
        pattern was fitted as it is. That the intensity was estimated from the pattern counts on both sides: each
        pattern's own, smoothed over the length that the fit smoothed over, weighs its distances.
        """
        check_is_fitted(self)
        size = len(self.points_)
        noise = self._noise(n_simulations * size, random_state)
        patterns = self._patterns(noise.without_errors, random_state)
        simulated = [patterns[start : start + size] for start in range(0, len(patterns), size)]
        fine = kernel_grid(self.window_)
        mean = np.zeros(fine.inside.shape)
        mean[fine.inside] = self.fit_.mean(fine.nodes[fine.inside])
        base = mean if self.fit_.locations.covariates else fine.inside.astype(np.float64)

        def estimate(replicates: Sequence[Array]) -> Intensity:
            return estimate_at_own_points(replicates, mean, base, self.fit_.error.length, fine)

        return l_envelope(self.points_, simulated, self.window_, estimate=estimate, progress=self.progress)

    def compare_grid(self, n_cells: int | None = None) -> dict[str, float]:
        """Fit again on another grid, by default twice as fine each way, and return how much the answer changes.

        ``change`` is the relative L2 difference of the two mean surfaces; ``standard_error`` the relative L2 size of
        this fit's own estimation uncertainty. A change well below it means that the grid is fine enough.
        """
        check_is_fitted(self)
        cells = 4 * self.grid_.n_x * self.grid_.n_y if n_cells is None else n_cells
        other = clone(self).set_params(n_cells=cells, random_state=self.seed_)
        other.fit(self.points_, self.window_, covariates=self.fit_.locations.covariates)
        nodes, exposure = self.grid_.nodes[self.grid_.inside], self.grid_.exposure[self.grid_.inside]
        surfaces = self.fit_.surfaces(nodes)
        mine, theirs = np.exp(surfaces.log_mean), other.fit_.mean(nodes)
        size = np.sqrt(exposure @ mine**2)
        return {
            "n_cells": float(self.grid_.n_x * self.grid_.n_y),
            "other_n_cells": float(other.grid_.n_x * other.grid_.n_y),
            "change": float(np.sqrt(exposure @ (mine - theirs) ** 2) / size),
            "standard_error": float(np.sqrt(exposure @ (mine**2 * np.square(surfaces.apart).sum(0))) / size),
        }

    # --- saving and looking ------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the fit into a directory that :func:`gpsuq.load` reads; nothing in it is code."""
        return save(self, path, force=force)

    def plot(self) -> Figure:
        """Plot the points, the mean surface and its relative uncertainty; see :func:`gpsuq.poisson.plots.intensity`."""
        check_is_fitted(self)
        return intensity(self.surface(), max(self.points_, key=len))

    def _compact(self) -> str:
        lead = f"{sum(map(len, self.points_)):,} points; {self.integral():,.1f} are expected of a new pattern."
        return compact(type(self).__name__, lead, self.findings_)


def _replicates(points: Any) -> list[Any]:
    """Read one pattern or a list of them."""
    several = isinstance(points, (list, tuple)) and any(np.ndim(plain_points(item)) == 2 for item in points)
    return list(points) if several else [points]
