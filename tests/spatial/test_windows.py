import json

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from gpsuq import GPSError
from gpsuq.spatial import Window, as_window, read_window

SQUARE = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
HOLE = [[0.5, 0.5], [0.5, 1], [1, 1], [1, 0.5], [0.5, 0.5]]


def ring(corners):
    """As spatstat has them: holes go round clockwise, and the first corner is not repeated."""
    return dict(zip("xy", zip(*corners[:-1], strict=True), strict=True))


@pytest.mark.parametrize(
    ("document", "area"),
    [
        ({"type": "rectangle", "xrange": [0, 3], "yrange": [-1, 1], "units": ["metre", "metres"]}, 6.0),
        ({"xrange": [0, 3], "yrange": [-1, 1]}, 6.0),
        ({"type": ["polygonal"], "bdry": [ring(SQUARE), ring(HOLE)]}, 3.75),
        (
            {"type": "mask", "xcol": [0.5, 1.5], "yrow": [1, 3, 5], "m": [[True, True], [False, True], [True, False]]},
            8.0,
        ),
        ({"type": "Polygon", "coordinates": [SQUARE, HOLE]}, 3.75),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE], [[[5, 5], [6, 5], [6, 6], [5, 5]]]]}, 4.5),
        ({"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [SQUARE]}}, 4.0),
        (
            {
                "type": "FeatureCollection",
                "features": [{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [SQUARE]}}],
            },
            4.0,
        ),
    ],
)
def test_windows_are_read_from_json(tmp_path, document, area):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document))
    window = read_window(path)
    assert window.area == pytest.approx(area)
    again = as_window(window.to_json())
    assert again.area == pytest.approx(area)
    assert again.bounds == window.bounds


def test_a_rectangle_keeps_its_unit(tmp_path):
    path = tmp_path / "w.json"
    path.write_text('{"type": "rectangle", "xrange": [0, 1], "yrange": [0, 1], "units": ["metre", "metres", "1.0"]}')
    assert read_window(path).unit == "metre"


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ((0, 0, 0, 1), "no area"),
        ((0, 1, 2, 1), "no area"),
        ((0, 1, 0, np.nan), "no area"),
        ((0, 1, 0), "four numbers"),
        ((0, 10**400, 0, 1), "four numbers"),
        ("nowhere.json", "no file"),
        (3.0, "four numbers or a file"),
        (shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "Self-intersection"),
        (shapely.Polygon([(0, 0), (1, 1), (2, 2)]), "not a valid polygon|no area"),
        (shapely.Polygon(), "empty"),
        (shapely.Point(0, 0), "polygon"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "not known"),
    ],
)
def test_bad_windows_are_refused(window, message):
    with pytest.raises(GPSError, match=message):
        as_window(window)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[1, 2]", b'{"type": "rectangle"}', b'{"type": "Polygon", "coordinates": 3}', b"\xff\xfe{}"),
        b'{"type": "rectangle", "xrange": [0, %d], "yrange": [0, 1]}' % 10**400,
        b'{"type": "Polygon", "coordinates": [[[0, 0], [%d, 0], [1, 1], [0, 0]]]}' % 10**400,
        b'{"type": "Polygon", "coordinates": [[[0, 0], [NaN, 0], [1, 1], [0, 0]]]}',
        b'{"type": "Feature", "geometry": ' * 5000,
        b'{"type": "rectangle", "xrange": [-1e300, 1e300], "yrange": [-1e300, 1e300]}',
    ],
)
def test_damaged_files_are_named(tmp_path, content):
    path = tmp_path / "w.json"
    path.write_bytes(content)
    with pytest.raises(GPSError, match=r"w\.json"):
        read_window(path)


@given(st.floats(0, 2), st.floats(0, 2))
def test_points_in_holes_are_outside(x, y):
    window = as_window({"type": "Polygon", "coordinates": [SQUARE, HOLE]})
    in_hole = 0.5 < x < 1 and 0.5 < y < 1
    assert window.contains(np.array([[x, y]]))[0] == (not in_hole)


def test_the_edge_belongs_to_the_window():
    corners = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.5]])
    assert Window.rectangle(0, 1, 0, 1).contains(corners).all()
