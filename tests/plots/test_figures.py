"""Figures have labels, units and everything that they are said to show."""

import numpy as np
import pandas as pd
import pytest
import shapely

from gpsuq.classify.plots import class_boxplots
from gpsuq.linear.plots import coefficients
from gpsuq.plots.diagnostics import spread_shares, subgroup_scatter
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.plots.style import plain, save_figure
from gpsuq.poisson.intensity import IntensitySurface
from gpsuq.poisson.plots import envelope, intensity
from gpsuq.spatial import Grid, Window, l_envelope

SQUARE = Window.rectangle(0, 1, 0, 1)
HOLED = shapely.box(0, 0, 4, 1).difference(shapely.Point(2, 0.5).buffer(0.2))


@pytest.mark.parametrize(
    ("unit", "label"), [("unit", "per unit of area"), ("metre", "per m²"), ("foot", "per square foot")]
)
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
    assert len(rings) == (2 if unit == "unit" else 3)  # and the bar for scale
    assert len(shown.get_xdata()) <= 5000


BROKEN = "x $^$"  # what matplotlib would take for mathematics, and fail on


def table_of_draws(rng):
    index = pd.MultiIndex.from_product([range(2), range(50)], names=["chain", "draw"])
    return pd.DataFrame(rng.normal(size=(100, 2)), index=index, columns=[BROKEN, "y"])


@pytest.mark.parametrize(
    "figure",
    [
        lambda rng: coefficients(rng.normal(size=(2, 50, 1)), [BROKEN]),
        lambda rng: marginals(table_of_draws(rng)),
        lambda rng: pairs(table_of_draws(rng)),
        lambda _: subgroup_scatter([0, 1], [0, 1], [1, 1], BROKEN, "y"),
        lambda _: subgroup_scatter([0, 1], [0, 1], [1, 1], "x", BROKEN),
        lambda _: spread_shares(pd.DataFrame({"heterogeneity_sd": 1.0, "estimation_sd": 1.0}, index=[BROKEN])),
        lambda rng: class_boxplots(
            rng.random((9, 1)), np.zeros((1, 8, 8)), [BROKEN], truth=BROKEN, uqc=np.array([0.5])
        ),
        lambda rng: envelope(
            l_envelope(rng.random((9, 2)), [rng.random((9, 2))] * 2, SQUARE), Window(SQUARE.polygons, BROKEN)
        ),
        lambda _: intensity(
            IntensitySurface(Grid(Window(SQUARE.polygons, BROKEN), 4, 4), np.ones((4, 4)), np.ones((4, 4)), {}),
            np.zeros((1, 2)),
        ),
    ],
)  # fmt: skip
def test_names_with_dollar_signs_are_names(figure, rng, tmp_path):
    assert save_figure(figure(rng), tmp_path / "figure.png").is_file()
    assert (plain("price ($)"), plain(3)) == (r"price (\$)", "3")


def test_an_envelope_is_drawn_around_zero(rng):
    result = l_envelope(rng.random((50, 2)), [rng.random((50, 2)) for _ in range(5)], SQUARE)
    ax = envelope(result, Window(SQUARE.polygons, "micron", 250.0)).axes[0]
    assert ax.get_xlabel() == "distance r (µm)"
    assert np.allclose(ax.lines[0].get_ydata(), 250.0 * (result.observed - result.distances))
