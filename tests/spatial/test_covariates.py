import json

import numpy as np
import pytest

from gpsuq import GPSError
from gpsuq.spatial import CovariateGrid, Window, read_covariate

X, Y = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0])


def plane():
    return CovariateGrid("plane", X, Y, 1.0 + 2.0 * X[None] - Y[:, None])


def test_planes_are_interpolated_exactly(rng):
    points = rng.random((50, 2)) * [3.0, 2.0]
    assert np.allclose(plane().at(points), 1.0 + 2.0 * points[:, 0] - points[:, 1])


def test_a_grid_must_cover_the_window():
    plane().check_covers(Window.rectangle(0, 3, 0, 2))
    with pytest.raises(GPSError, match="does not cover"):
        plane().check_covers(Window.rectangle(0, 4.1, 0, 2))


@pytest.mark.parametrize(
    ("x", "values", "message"),
    [
        (X[::-1], np.zeros((2, 3)), "increasing"),
        (X, np.zeros((3, 2)), "shape"),
        (X[:1], np.zeros((2, 1)), "increasing"),
        (np.array([0.0, 1.0, np.inf]), np.zeros((2, 3)), "finite"),
    ],
)
def test_bad_grids_are_refused(x, values, message):
    with pytest.raises(GPSError, match=message):
        CovariateGrid("bad", x, Y, values)


def test_grids_are_read_from_files(tmp_path):
    np.savetxt(tmp_path / "p.elev.grid.csv", plane().values, delimiter=",")
    (tmp_path / "p.elev.grid.json").write_text(json.dumps({"xcol": X.tolist(), "yrow": Y.tolist()}))
    grid = read_covariate(tmp_path / "p.elev.grid.csv")
    assert grid.name == "elev"
    assert np.allclose(grid.values, plane().values)
    for damaged in ("{}", f'{{"xcol": [0, {10**400}], "yrow": [0, 1]}}', "[" * 10**5):
        (tmp_path / "p.elev.grid.json").write_text(damaged)
        with pytest.raises(GPSError, match="cannot be read"):
            read_covariate(tmp_path / "p.elev.grid.csv")
    with pytest.raises(GPSError, match="no file"):
        read_covariate(tmp_path / "other.csv")
