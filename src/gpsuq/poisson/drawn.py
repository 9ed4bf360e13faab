"""What a fitted process says of intensities and counts, by draws of its surfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from gpsuq.core.intervals import check_coverage, equal_tailed
from gpsuq.core.mixtures import poisson_quantiles
from gpsuq.core.seeds import derive_seed, quasi_normal, random_block, seed_from
from gpsuq.errors import GPSError, warn
from gpsuq.poisson.baselines import LogLinearIntensity
from gpsuq.poisson.cox import fit_stationary
from gpsuq.poisson.intensity import IntensitySurface
from gpsuq.poisson.law import PoissonFit, SurfaceNoise
from gpsuq.poisson.regions import read_regions
from gpsuq.spatial.grids import TILE, Grid
from gpsuq.spatial.patterns import PointPattern, points_inside
from gpsuq.spatial.windows import Array, Window

_DRAWS = 640
_NUMBERS = 1 << 24  # held at once
_LEAVES = 1e-6  # share of a region outside the window above which it is not a rounding error


class Drawn:
    """Intensities and counts of a fitted process, with intervals.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> points = np.random.default_rng(0).random((100, 2))
    >>> model = GPSPoissonProcess(frequency=0.0, n_chains=2, n_steps=2).fit(points, (0, 1, 0, 1))
    >>> counts = model.region_counts((0, 0.5, 0, 0.5), coverage=0.9)
    >>> bool(counts["mean_lower"][0] < 25 < counts["mean_upper"][0])
    True
    """

    fit_: PoissonFit
    grid_: Grid
    window_: Window
    points_: list[Array]
    seed_: int

    def sample_intensity(self, points: Any, n_draws: int = 1000, random_state: int | None = None) -> Array:
        """Draw whole surfaces and return their values at points (n, 2): (draw, n)."""
        points = self._inside(points)
        return self.fit_.surfaces(points).draws(self._noise(n_draws, random_state))

    def surface(self, levels: Sequence[float] = (0.025, 0.5, 0.975), n_cells: int | None = None) -> IntensitySurface:
        """Return mean, standard deviation and quantiles of the intensity on the fit's grid, or one of ``n_cells``."""
        check_is_fitted(self)
        if not all(0.0 < level < 1.0 for level in levels):
            raise GPSError(f"levels must be between 0 and 1, got {list(levels)}")
        grid = self.grid_ if n_cells is None else Grid.with_cells(self.window_, n_cells)
        maps = np.full((2 + len(levels), grid.n_y, grid.n_x), np.nan)
        rows, columns = grid.inside.nonzero()
        for part, draws in self._draws(grid.nodes[grid.inside], self._even_noise()):
            quantiles = np.quantile(draws, list(levels), axis=0)
            maps[:, rows[part], columns[part]] = [draws.mean(0), draws.std(0), *quantiles]
        return IntensitySurface(grid, maps[0], maps[1], dict(zip(map(float, levels), maps[2:], strict=True)))

    def region_counts(self, regions: Any, coverage: float = 0.95, *, new_field: bool = False) -> pd.DataFrame:
        """Return expected and new counts in regions, one row each.

        ``mean`` is the expected count; ``mean_lower`` and ``mean_upper`` bound it, ``count_lower`` and ``count_upper``
        bound the number of points in a new pattern. ``trained`` says whether the region is no larger than the blocks
        that the spread was learned on; beyond them it is a guess.

        Parameters
        ----------
        regions
            One region or a list: anything that can be a window. Of GeoPandas, every row is a region.
        coverage
            Share of the truth that the intervals are to hold.
        new_field
            Whether the new pattern has another realisation of the intensity, too: hills elsewhere, as in another wood
            of the same kind. That takes the process as stationary but for covariates, with a log-Gaussian field whose
            variance and length are read off the distances between points (:class:`gpsuq.poisson.cox.StationaryField`).
        """
        check_is_fitted(self)
        tail = (1.0 - check_coverage(coverage)) / 2.0
        shapes, names = read_regions(regions, self.window_)
        nodes, noise = self.grid_.nodes[self.grid_.inside], self._even_noise()
        rates, n_leaving = np.zeros((_DRAWS, len(shapes))), 0
        anew = self._new_fields() if new_field else None
        for number, region in enumerate(shapes):
            cells, area = self.grid_.overlap(region)
            if not len(cells):
                raise GPSError(f"region {number} lies outside the window")
            n_leaving += bool(area.sum() < (1.0 - _LEAVES) * region.area)
            if anew is not None:
                rates[:, number] = anew[:, cells] @ area
                continue
            for part, draws in self._draws(nodes[cells], noise):
                rates[:, number] += draws @ area[part]
        width, height = (TILE * side for side in self.grid_.cell_size)
        trained = [new_field or _fits(region, width, height) for region in shapes]
        notes = {
            f"{n_leaving} of the regions leave the window; counts are those of their part inside": n_leaving,
            f"{trained.count(False)} of the regions are larger than {width:.4g} x {height:.4g}, the largest blocks "
            "that were trained: the spread of their counts was not learned": trained.count(False),
        }
        for note, number in notes.items():
            if number:
                warn(note)
        lower, upper = equal_tailed(rates, coverage)
        counts = poisson_quantiles([tail, 1.0 - tail], rates.T)
        columns = {"mean": rates.mean(0), "mean_lower": lower, "mean_upper": upper}
        columns |= {"count_lower": counts[:, 0], "count_upper": counts[:, 1]}
        return pd.DataFrame(columns | {"trained": trained}, index=names)

    def _new_fields(self) -> Array:
        """Draw intensities of new realisations of a stationary Cox process at the nodes of the grid: (draw, node)."""
        grid, covariates = self.grid_, self.fit_.locations.covariates
        every, inside = np.concatenate(self.points_), grid.inside
        base = np.full(int(inside.sum()), len(every) / grid.window.area)
        intensity = None
        if covariates:
            intensity = LogLinearIntensity(PointPattern(every, grid.window), covariates).intensity
            base = intensity(grid.nodes[inside])
        rng = np.random.default_rng(derive_seed(self.seed_, "new field"))
        fields = fit_stationary(self.points_, grid.window, intensity).draws(grid, _DRAWS, rng)[:, inside]
        # What was observed had a field, too: the level that its points show is off by the mean of that.
        share = base * grid.exposure[inside] / (base @ grid.exposure[inside])
        seen = np.mean([rng.permutation(fields @ share) for _ in self.points_], axis=0)
        known = rng.gamma(len(every), size=_DRAWS) / seen
        return np.asarray(fields * base * (known / known.mean() / len(self.points_))[:, None])

    def block_counts(self, side: int = TILE) -> tuple[Array, NDArray[np.int64]]:
        """Return draws of the expected count in blocks of ``side`` x ``side`` cells, and the points counted there.

        The draws have shape (draw, block), the counts (replicate, block); blocks outside the window are left out.
        """
        check_is_fitted(self)
        grid = self.grid_
        rows, columns = grid.inside.nonzero()
        names, block = np.unique((rows // side) * -(-grid.n_x // side) + columns // side, return_inverse=True)
        cells = np.arange(len(block))
        areas = csr_array((grid.exposure[grid.inside], (cells, block)), shape=(len(block), len(names)))
        rates = np.zeros((_DRAWS, len(names)))
        for part, draws in self._draws(grid.nodes[grid.inside], self._even_noise()):
            rates += draws @ areas[part]
        counts = np.stack([grid.counts(pattern)[grid.inside] for pattern in self.points_])
        return rates, np.stack([np.bincount(block, one, len(names)) for one in counts]).astype(np.int64)

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _inside(self, points: Any) -> Array:
        check_is_fitted(self)
        return points_inside(points, self.window_)

    def _seed(self, random_state: int | None) -> int:
        return self.seed_ if random_state is None else seed_from(random_state)

    def _noise(self, n_draws: int, random_state: int | None) -> SurfaceNoise:
        """Draw the noise of surfaces."""
        check_is_fitted(self)
        if n_draws < 1:
            raise GPSError(f"at least 1 draw is needed, got {n_draws}")
        block = random_block(self._seed(random_state), "surfaces")
        varying, q = self.fit_.varying, self.fit_.body.noise_dim
        n_modes = self.fit_.error.n_modes(self.grid_)
        numbers = torch.randn(n_draws, q + n_modes, generator=block).double().numpy()
        chain = torch.randint(len(varying), (n_draws,), generator=block).numpy()
        return SurfaceNoise(chain, numbers[:, :q], numbers[:, q:])

    def _even_noise(self) -> SurfaceNoise:
        """Return evenly spread noise, the same at every call, for summaries."""
        n_modes, q = self.fit_.error.n_modes(self.grid_), self.fit_.body.noise_dim
        numbers = quasi_normal(_DRAWS, q + n_modes, self.seed_).double().numpy()
        return SurfaceNoise(np.arange(_DRAWS) % len(self.fit_.varying), numbers[:, :q], numbers[:, q:])

    def _draws(self, nodes: Array, noise: SurfaceNoise) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Yield some rows of ``nodes`` and the intensity there, (draw, row), until all are done."""
        for part in np.array_split(np.arange(len(nodes)), -(-len(nodes) * _DRAWS // _NUMBERS)):
            yield part, self.fit_.surfaces(nodes[part]).draws(noise)


def _fits(region: Window, width: float, height: float) -> bool:
    """Whether a region is no larger than a block, but for rounding."""
    x_min, x_max, y_min, y_max = region.bounds
    slack = 1.0 + 1e-9
    return bool(x_max - x_min <= width * slack and y_max - y_min <= height * slack)
