"""An intensity on a grid: what a fitted process says of its window."""

from __future__ import annotations

from dataclasses import dataclass

from gpsuq.spatial.grids import Grid
from gpsuq.spatial.rasters import Maps, coordinate_unit
from gpsuq.spatial.windows import Array


@dataclass(frozen=True)
class IntensitySurface(Maps):
    """Mean, standard deviation and quantiles of the intensity on a grid, (n_y, n_x), NaN outside the window.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=1.0, n_chains=2, n_steps=5).fit(points, window=(0, 1, 0, 1))
    >>> surface = model.surface(levels=(0.1, 0.9))
    >>> surface.mean.shape, sorted(surface.quantiles)
    ((32, 32), [0.1, 0.9])

    For other tools: xarray with units and CRS, GeoPandas with the cells, and files for a GIS.

    >>> list(surface.maps), surface.unit, len(surface.to_geopandas())
    (['mean', 'sd', 'q0.1', 'q0.9'], '1 / (unit)^2', 1024)
    >>> dict(surface.to_xarray().sizes)
    {'y': 32, 'x': 32}
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [surface.write(f"{folder}/intensity{suffix}").name for suffix in (".tif", ".geojson")]
    ['intensity.tif', 'intensity.geojson']
    """

    grid: Grid
    mean: Array
    sd: Array
    quantiles: dict[float, Array]

    @property
    def maps(self) -> dict[str, Array]:
        return {"mean": self.mean, "sd": self.sd} | {f"q{level:g}": map_ for level, map_ in self.quantiles.items()}

    @property
    def unit(self) -> str:
        return f"1 / ({coordinate_unit(self.grid.window)})^2"
