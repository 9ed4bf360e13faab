"""Figures have labels, units and everything that they are said to show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import shapely

from gpsuq.estimators.poisson import IntensitySurface
from gpsuq.plots import intensity
from gpsuq.plots.surfaces import envelope
from gpsuq.spatial import Grid, Window, l_envelope

HOLED = shapely.box(0, 0, 4, 1).difference(shapely.Point(2, 0.5).buffer(0.2))


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.mark.parametrize(("unit", "label"), [("unit", "per unit of area"), ("metre", "per square metre")])
def test_an_intensity_has_its_unit_and_holes_are_outlined(rng, unit, label):
    window = Window(HOLED, unit)
    grid = Grid(window, 32, 16)
    mean = np.where(grid.inside, 1.0, np.nan)
    points = rng.random((6000, 2)) * [4, 1]
    figure = intensity(IntensitySurface(grid, mean, 0.1 * mean, {}), points)
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert any(label in text for text in labels)
    first = figure.axes[0]
    assert first.get_title() == "6,000 points"
    shown, *rings = first.lines
    assert len(rings) == 2
    assert len(shown.get_xdata()) <= 5000


def test_an_envelope_is_drawn_around_zero(rng):
    square = Window.rectangle(0, 1, 0, 1)
    result = l_envelope(rng.random((50, 2)), [rng.random((50, 2)) for _ in range(5)], square)
    ax = envelope(result, "metre").axes[0]
    assert ax.get_xlabel() == "distance r (metre)"
    assert np.allclose(ax.lines[0].get_ydata(), result.observed - result.distances)
