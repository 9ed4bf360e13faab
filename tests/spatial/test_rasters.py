import numpy as np
import pytest
import rasterio
import shapely
import xarray

from gpsuq import GPSError
from gpsuq.poisson.intensity import IntensitySurface
from gpsuq.spatial import CovariateGrid, Grid, Window, as_window
from gpsuq.spatial.rasters import as_covariates, read_geotiff

UTM = "EPSG:32633"
WINDOW = Window(shapely.Polygon([(0, 0), (40, 0), (40, 20), (0, 10)]), "metre", crs=UTM)
GRID = Grid(WINDOW, 8, 4)


@pytest.fixture(scope="module")
def surface():
    mean = np.where(GRID.inside, GRID.nodes[..., 0] + 2.0 * GRID.nodes[..., 1], np.nan)
    return IntensitySurface(GRID, mean, 0.1 * mean, {0.5: 0.9 * mean})


def test_a_geotiff_has_north_up_and_the_crs(surface, tmp_path):
    path = surface.write(tmp_path / "map.tif")
    with rasterio.open(path) as raster:
        assert (raster.crs.to_string(), raster.descriptions) == (UTM, ("mean", "sd", "q0.5"))
        (value,) = raster.sample([(37.5, 2.5)])
    assert value == pytest.approx([42.5, 4.25, 38.25])
    again = read_geotiff(path)
    assert np.array_equal(again.values, surface.mean, equal_nan=True)
    assert again.x[:2].tolist() == [2.5, 7.5]


def test_xarray_has_units_and_crs_and_is_read_back(surface):
    maps = surface.to_xarray()
    assert maps["mean"].attrs["units"] == "1 / (metre)^2"
    assert maps["x"].attrs["units"] == "metre"
    assert float(maps["mean"].sel(x=37.5, y=2.5)) == 42.5
    (covariate,) = as_covariates([maps["mean"]], WINDOW)
    assert np.array_equal(covariate.values, surface.mean, equal_nan=True)
    with pytest.raises(GPSError, match="another CRS"):
        as_covariates([maps["mean"]], Window(WINDOW.polygons, "metre", crs="EPSG:32632"))


def test_geojson_keeps_the_crs_and_the_area_of_the_window(surface, tmp_path):
    window = as_window(surface.write(tmp_path / "map.geojson"))
    assert window.area == pytest.approx(WINDOW.area)
    assert window.unit == "metre"
    with pytest.raises(GPSError, match=r"\.tif or \.geojson"):
        surface.write(tmp_path / "map.png")


def test_covariates_of_all_kinds_agree(tmp_path):
    x, y = np.arange(2.5, 40, 5), np.arange(2.5, 20, 5)
    values = x - 3.0 * y[:, None]
    array = xarray.DataArray(values.T[None, :, ::-1], {"band": [1], "x": x, "y": y[::-1]}, name="slope")
    given = {"grid": CovariateGrid("slope", x, y, values), "xarray": array, "array": values}
    found = as_covariates(given, WINDOW)
    assert [one.name for one in found] == ["slope", "xarray", "array"]
    at = np.array([[3.0, 2.5], [31.0, 14.0]])
    for one in found:
        assert one.at(at) == pytest.approx(at[:, 0] - 3.0 * at[:, 1])


def test_only_what_the_window_needs_is_kept():
    axis = np.arange(-500.0, 500.0)
    whole = CovariateGrid("east", axis, axis, np.tile(axis, (1000, 1)))
    (part,) = as_covariates([whole], WINDOW)
    assert part.values.shape == (21, 41)
    assert part.at(np.array([[40.0, 20.0]])) == [40.0]


def test_pixels_without_data_do_not_spread():
    ends = np.array([0.0, 1.0])
    grid = CovariateGrid("holed", ends, ends, np.array([[1.0, np.nan], [3.0, np.nan]]))
    assert grid.at(np.array([[0.5, 0.5]])) == [2.0]
    assert np.isnan(grid.at(np.array([[1.0, 0.5]]))).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([np.ones((2, 2))], "under its name"),
        ({"a": "none.tif"}, "no file"),
        ({"a": xarray.DataArray(np.ones((2, 2)), dims=["lat", "lon"])}, "dimensions and coordinates x and y"),
        ({"a": xarray.DataArray(np.ones((2, 2)), {"x": [0, 1], "y": [0, 1]})}, "does not cover"),
    ],
)
def test_bad_covariates_are_refused(given, message):
    with pytest.raises(GPSError, match=message):
        as_covariates(given, WINDOW)


def test_damaged_rasters_are_named(tmp_path):
    (tmp_path / "bad.tif").write_bytes(b"no raster")
    with pytest.raises(GPSError, match=r"bad\.tif cannot be read"):
        read_geotiff(tmp_path / "bad.tif")
