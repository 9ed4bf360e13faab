"""Rasters in and out: covariates from GeoTIFF, xarray and arrays; maps as GeoTIFF, xarray and GeoPandas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from gpsuq.errors import GPSError, needs
from gpsuq.files import write_atomically
from gpsuq.spatial.covariates import CovariateGrid, read_covariate
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array, Window

if TYPE_CHECKING:
    import geopandas
    import xarray

_TIFF = ".tif", ".tiff"


def as_covariates(covariates: Any, window: Window) -> list[CovariateGrid]:
    """Read what a user passed as covariates of a window: a list, or a mapping from names.

    Each is a :class:`~gpsuq.spatial.CovariateGrid`, an ``xarray.DataArray``, a GeoTIFF or another file that
    :func:`~gpsuq.spatial.read_covariate` reads, or, in a mapping, an array whose pixels fill the bounding box of the
    window, rows of y with the lowest first.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.rasters import as_covariates
    >>> (slope,) = as_covariates({"slope": np.array([[0.0, 1.0], [2.0, 3.0]])}, Window.rectangle(0.0, 4.0, 0.0, 4.0))
    >>> slope.name, slope.x
    ('slope', array([1., 3.]))
    """
    named: Iterable[tuple[str | None, Any]] = (
        covariates.items() if isinstance(covariates, Mapping) else ((None, one) for one in covariates)
    )
    found = [_covariate(one, name, window) for name, one in named]
    for covariate in found:
        covariate.check_covers(window)
    return [covariate.around(window) for covariate in found]


def _covariate(given: Any, name: str | None, window: Window) -> CovariateGrid:
    if isinstance(given, CovariateGrid):
        return given
    if isinstance(given, (str, Path)):
        return read_geotiff(given, name) if Path(given).suffix.lower() in _TIFF else read_covariate(given, name)
    if hasattr(given, "dims") and hasattr(given, "coords"):
        return from_xarray(given, name)
    values = np.asarray(given)
    if name is None or values.ndim != 2 or values.dtype.kind not in "biuf":
        raise GPSError(
            "a covariate must be a CovariateGrid, an xarray.DataArray, a file, or an array (rows of y, columns of x) "
            f"under its name, covariates={{'elevation': values}}; got {type(given).__name__}"
        )
    x_min, x_max, y_min, y_max = window.bounds
    middles = [(np.arange(n) + 0.5) / n for n in values.shape]
    y, x = y_min + (y_max - y_min) * middles[0], x_min + (x_max - x_min) * middles[1]
    return CovariateGrid(name, x, y, values.astype(np.float64), window.crs)


def from_xarray(array: xarray.DataArray, name: str | None = None) -> CovariateGrid:
    """Make a covariate of a DataArray with dimensions x and y; its CRS is that of ``spatial_ref``, if it has one.

    >>> import numpy as np
    >>> import xarray
    >>> from gpsuq.spatial.rasters import from_xarray
    >>> axes = {"y": [2.0, 1.0], "x": [0.0, 1.0, 2.0]}  # as in images, the highest y is first
    >>> from_xarray(xarray.DataArray(np.arange(6.0).reshape(2, 3), axes, name="elevation")).values
    array([[3., 4., 5.],
           [0., 1., 2.]])
    """
    name = str(array.name or "covariate") if name is None else name
    array = array.squeeze(drop=True) if array.ndim > 2 else array
    if set(array.dims) != {"x", "y"} or not {"x", "y"} <= set(array.coords):
        raise GPSError(
            f"covariate {name!r} must have dimensions and coordinates x and y, got {list(map(str, array.dims))}; "
            "see rename() and isel()"
        )
    reference = array.coords["spatial_ref"].attrs if "spatial_ref" in array.coords else {}
    sorted_array = array.transpose("y", "x").sortby(["x", "y"])
    x, y, values = (np.asarray(part, dtype=np.float64) for part in (sorted_array.x, sorted_array.y, sorted_array))
    return CovariateGrid(name, x, y, values, reference.get("crs_wkt", reference.get("spatial_ref")))


def read_geotiff(path: str | Path, name: str | None = None) -> CovariateGrid:
    """Read the first band of a GeoTIFF; pixels without data are NaN.

    >>> import tempfile
    >>> import numpy as np
    >>> from gpsuq.spatial import Grid, Window
    >>> from gpsuq.spatial.rasters import geotiff, read_geotiff
    >>> grid = Grid(Window.rectangle(0.0, 2.0, 0.0, 4.0), 2, 4)
    >>> with tempfile.NamedTemporaryFile(suffix=".tif") as file:
    ...     _ = file.write(geotiff(grid, {"row": np.repeat(np.arange(4.0)[:, None], 2, axis=1)}))
    ...     file.flush()
    ...     read_geotiff(file.name).values[:, 0]
    array([0., 1., 2., 3.])
    """
    path = Path(path)
    if not path.is_file():
        raise GPSError(f"there is no file {path}")
    with needs("geo", "reading GeoTIFF"):
        import rasterio
    try:
        with rasterio.open(path) as raster:
            values = raster.read(1, masked=True).astype(np.float64).filled(np.nan)
            to, crs = raster.transform, raster.crs
    except rasterio.errors.RasterioError as error:
        raise GPSError(f"{path} cannot be read as a raster: {error}") from error
    if to.b or to.d or not to.a > 0.0 or not to.e:
        raise GPSError(f"{path} is turned: warp it to a raster whose rows run along x")
    x, y = to.c + to.a * (np.arange(values.shape[1]) + 0.5), to.f + to.e * (np.arange(values.shape[0]) + 0.5)
    way = slice(None, None, -1 if to.e < 0.0 else 1)
    return CovariateGrid(name or path.stem, x, y[way], values[way], None if crs is None else crs.to_string())


def geotiff(grid: Grid, bands: Mapping[str, Array]) -> bytes:
    """Return maps (n_y, n_x) as the bands of a GeoTIFF: north up, NaN outside the window."""
    with needs("geo", "writing GeoTIFF"):
        import rasterio
        from rasterio.transform import from_bounds
    x_min, x_max, y_min, y_max = grid.window.bounds
    options = {"width": grid.n_x, "height": grid.n_y, "count": len(bands), "dtype": "float64", "nodata": np.nan}
    place = {"crs": grid.window.crs, "transform": from_bounds(x_min, y_min, x_max, y_max, grid.n_x, grid.n_y)}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", compress="deflate", **options, **place) as raster:
            for number, (name, values) in enumerate(bands.items(), 1):
                raster.write(values[::-1], number)
                raster.set_band_description(number, name)
        return bytes(memory.read())


class Maps(ABC):
    """Maps on a grid, (n_y, n_x) each, NaN outside the window, and how they leave."""

    grid: Grid

    @property
    @abstractmethod
    def maps(self) -> dict[str, Array]:
        """The maps by name."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of their values."""

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each cell inside the window: its centre, its area, and what the maps say of it."""
        inside = self.grid.inside
        nodes = self.grid.nodes[inside]
        columns = {"x": nodes[:, 0], "y": nodes[:, 1], "area": self.grid.exposure[inside]}
        return pd.DataFrame(columns | {name: values[inside] for name, values in self.maps.items()})

    def to_xarray(self) -> xarray.Dataset:
        """Return a dataset over x and y, with its units named and the CRS where rioxarray looks for it."""
        return dataset(self.grid, self.maps, self.unit)

    def to_geopandas(self) -> geopandas.GeoDataFrame:
        """Return the cells as polygons, cut to the window, with what the maps say of them."""
        return cells(self.grid, self.maps)

    def write(self, path: str | Path) -> Path:
        """Write the maps for a GIS: a GeoTIFF (``.tif``) with a band for each, or cells as GeoJSON (``.geojson``)."""
        path = Path(path)
        if path.suffix.lower() in _TIFF:
            return write_atomically(path, geotiff(self.grid, self.maps))
        if path.suffix.lower() in (".geojson", ".json"):
            return write_atomically(path, self.to_geopandas().to_json().encode())
        raise GPSError(f"{path.name}: maps are written as .tif or .geojson; see to_xarray() and to_frame() for others")


def dataset(grid: Grid, maps: Mapping[str, Array], unit: str) -> xarray.Dataset:
    """Return maps (n_y, n_x) with the middles of the cells as coordinates; the CRS is where rioxarray looks for it."""
    with needs("geo", "to_xarray"):
        import xarray
    x, y = ((edge[1:] + edge[:-1]) / 2.0 for edge in grid.edges)
    length = {"units": coordinate_unit(grid.window)}
    coords: dict[str, Any] = {name: (name, axis, length) for name, axis in (("y", y), ("x", x))}
    if grid.window.crs is not None:
        with needs("geo", "to_xarray"):
            import pyproj
        coords["spatial_ref"] = ((), 0, pyproj.CRS.from_user_input(grid.window.crs).to_cf())
    variables = {name: (("y", "x"), values, {"units": unit}) for name, values in maps.items()}
    return xarray.Dataset(variables, coords)


def cells(grid: Grid, columns: Mapping[str, Array]) -> geopandas.GeoDataFrame:
    """Return a row for each cell inside the window: what of it lies inside, and its columns (n_y, n_x)."""
    with needs("geo", "to_geopandas"):
        import geopandas
    x, y = grid.edges
    row, column = grid.inside.nonzero()
    boxes = shapely.intersection(shapely.box(x[column], y[row], x[column + 1], y[row + 1]), grid.window.polygons)
    held = {name: values[grid.inside] for name, values in columns.items()}
    return geopandas.GeoDataFrame(held, geometry=boxes, crs=grid.window.crs)


def coordinate_unit(window: Window) -> str:
    """Return what one unit of the coordinates is, in words."""
    return window.unit if window.multiple == 1.0 else f"{window.multiple:g} {window.unit}"
