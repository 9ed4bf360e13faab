"""Figures of a nonlinear regression."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from gpsuq.plots.diagnostics import MOST_BARS, observed_and_predicted
from gpsuq.plots.style import COLORS
from gpsuq.regress.plots import density_strips, effect_curves

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_rows_outside_their_interval_stand_out():
    figure = observed_and_predicted([0.0, 5.0, 1.0], [0.0, 1.0, 2.0], [-1.0, 0.0, 0.5], [1.0, 2.0, 3.0], target="a$b")
    (ax,) = figure.axes
    inside, outside = ax.lines[1], ax.lines[2]
    assert sorted(inside.get_ydata()) == [0.0, 1.0]
    assert outside.get_ydata().tolist() == [5.0]
    assert same_color(outside.get_color(), COLORS["bayes"])
    assert inside.get_marker() != outside.get_marker()  # not by colour alone
    assert ax.get_ylabel() == r"observed a\$b"
    assert labels(figure) == ["90% interval", "observed = predicted", "inside", "outside"]


def test_of_many_rows_some_are_drawn(rng):
    y = rng.normal(size=1000)
    figure = observed_and_predicted(y, y, y - 1, y + 1)
    assert len(figure.axes[0].lines[1].get_ydata()) == MOST_BARS


def strip(name, *, counts=False, observed=None):
    return {"name": name, "at": [0.0, 1.0, 2.0], "density": [0.2, 0.6, 0.2], "counts": counts, "observed": observed}


def test_strips_stand_below_each_other_in_their_order():
    figure = density_strips([strip("narrow", observed=1.0), strip("wide", observed=2.0)], target="price")
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["wide", "narrow"]
    assert ax.get_xlabel() == "price"
    marks = [line for line in ax.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks] == [(1.0, 1.0), (2.0, 0.0)]
    assert "observed" in labels(figure)


def test_strips_of_counts_are_bars():
    figure = density_strips([strip("row 1", counts=True)])
    assert [round(bar.get_height(), 3) for bar in figure.axes[0].patches] == pytest.approx([0.283, 0.85, 0.283])
    assert labels(figure) == ["predictive probability, scaled to one height"]


def quantiles(name, values):
    rows = np.arange(len(values))[:, None] + np.arange(5.0)
    return pd.DataFrame(rows, index=pd.Index(values, name=name), columns=LEVELS)


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_every_effect_has_its_own_axes(n_columns):
    effects = [quantiles("age", [20.0, 30.0]), quantiles("site", ["north", "s" * 40]), quantiles("dose", [1.0, 2.0])]
    figure = effect_curves(effects[:n_columns], target="price")
    assert [ax.get_xlabel() for ax in figure.axes] == ["age", "site", "dose"][:n_columns]
    assert figure.axes[0].get_ylabel() == "price"
    assert figure.axes[0].lines[0].get_ydata().tolist() == [2.0, 3.0]  # the median
    assert labels(figure) == ["90% of outcomes", "half of them", "median"]
    if n_columns > 1:
        names = [label.get_text() for label in figure.axes[1].get_xticklabels()]
        assert names == ["north", "s" * 13 + "…"]
