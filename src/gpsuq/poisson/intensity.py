"""An intensity on a grid: what a fitted process says of its window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from gpsuq.errors import GPSError
from gpsuq.files import write_atomically
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.rasters import cells, dataset, geotiff
from gpsuq.spatial.windows import Array

if TYPE_CHECKING:
    import geopandas
    import xarray


@dataclass(frozen=True)
class IntensitySurface:
    """Mean, standard deviation and quantiles of the intensity on a grid, (n_y, n_x), NaN outside the window.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=1.0, n_chains=2, n_steps=5).fit(points, window=(0, 1, 0, 1))
    >>> surface = model.surface(levels=(0.1, 0.9))
    >>> surface.mean.shape, sorted(surface.quantiles)
    ((32, 32), [0.1, 0.9])

    For other tools: xarray with units and CRS, GeoPandas with the cells, and files for a GIS.

    >>> sorted(surface.to_xarray().data_vars), len(surface.to_geopandas())
    (['mean', 'q0.1', 'q0.9', 'sd'], 1024)
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
        """Mean, standard deviation and quantiles by name."""
        return {"mean": self.mean, "sd": self.sd} | {f"q{level:g}": map_ for level, map_ in self.quantiles.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each cell inside the window: centre, area, and mean, sd and quantiles of its intensity."""
        inside = self.grid.inside
        nodes = self.grid.nodes[inside]
        columns = {"x": nodes[:, 0], "y": nodes[:, 1], "area": self.grid.exposure[inside]}
        return pd.DataFrame(columns | {name: values[inside] for name, values in self.maps.items()})

    def to_xarray(self) -> xarray.Dataset:
        """Return a dataset over x and y, with its units named and the CRS where rioxarray looks for it."""
        return dataset(self.grid, self.maps, {"long_name": "intensity of points"})

    def to_geopandas(self) -> geopandas.GeoDataFrame:
        """Return the cells as polygons, cut to the window, with mean, sd and quantiles."""
        return cells(self.grid, self.maps)

    def write(self, path: str | Path) -> Path:
        """Write the maps for a GIS: a GeoTIFF (``.tif``) with a band for each, or cells as GeoJSON (``.geojson``)."""
        path = Path(path)
        if path.suffix.lower() in (".tif", ".tiff"):
            return write_atomically(path, geotiff(self.grid, self.maps))
        if path.suffix.lower() in (".geojson", ".json"):
            return write_atomically(path, self.to_geopandas().to_json().encode())
        raise GPSError(f"{path.name}: maps are written as .tif or .geojson; see to_xarray() and to_frame() for others")
