"""Points and windows of other libraries."""

import json

import geopandas
import numpy as np
import pointpats
import pytest
import shapely

from gpsuq import GPSError
from gpsuq.spatial import as_window, point_pattern, read_window

UTM, DEGREES = "EPSG:32633", "EPSG:4326"
PLACES = np.array([[100.0, 50.0], [900.0, 20.0]])
PLOTS = geopandas.GeoDataFrame(geometry=[shapely.box(0, 0, 500, 100), shapely.box(500, 0, 1000, 100)], crs=UTM)
TREES = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(*PLACES.T), crs=UTM)


@pytest.mark.parametrize("points", [TREES, TREES.geometry, pointpats.PointPattern(PLACES)])
def test_points_of_other_libraries_are_read(points):
    assert np.array_equal(point_pattern(points, PLOTS).points, PLACES)


@pytest.mark.parametrize("window", [PLOTS, PLOTS.geometry, (0, 1000, 0, 100)])
def test_the_crs_is_kept(window):
    pattern = point_pattern(TREES, window)
    assert (pattern.window.crs, pattern.window.unit, pattern.window.area) == (UTM, "metre", 1e5)


def test_a_window_of_pointpats_is_read():
    assert as_window(pointpats.PointPattern(PLACES).window).bounds == (100.0, 900.0, 20.0, 50.0)


def test_another_crs_is_an_error():
    with pytest.raises(GPSError, match=r"EPSG:32633.*project"):
        point_pattern(TREES.set_crs("EPSG:32632", allow_override=True), PLOTS)


def test_degrees_are_refused(tmp_path):
    degrees = PLOTS.to_crs(DEGREES)
    with pytest.raises(GPSError, match=r"degrees \(EPSG:4326\).*to_crs"):
        as_window(degrees)
    with pytest.raises(GPSError, match="to_crs"):
        point_pattern(TREES.set_crs(DEGREES, allow_override=True), (0, 1000, 0, 100))
    degrees.to_file(tmp_path / "plots.geojson")
    with pytest.raises(GPSError, match="degrees"):
        read_window(tmp_path / "plots.geojson")


def test_a_file_of_geopandas_keeps_its_crs(tmp_path):
    PLOTS.to_file(tmp_path / "plots.geojson")
    window = read_window(tmp_path / "plots.geojson")
    assert (window.area, window.unit) == (1e5, "metre")
    assert as_window(window.to_json()) == window
    assert point_pattern(TREES, window).window == window
    document = json.loads((tmp_path / "plots.geojson").read_text())
    document["crs"]["properties"]["name"] = "EPSG:0"
    with pytest.raises(GPSError, match="not known"):
        as_window(document)


def test_points_must_be_points():
    with pytest.raises(GPSError, match=r"found Polygon.*centroid"):
        point_pattern(PLOTS, PLOTS)
