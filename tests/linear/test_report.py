"""What is shown of a regression with very many coefficients."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import GPSLinearRegression
from gpsuq.linear.profile import profile_in_words, subgroup_profile
from gpsuq.linear.report import linear_page
from gpsuq.reports.page import Table, Text


@pytest.fixture
def many():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 240))).rename(columns=lambda number: f"c{number}")
    return GPSLinearRegression(n_chains=3), X, pd.Series(X["c7"] + 0.1 * rng.normal(size=30), name="y")


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_largest_of_many_coefficients_are_shown(many, tmp_path):
    model, X, y = many
    page = linear_page(model.fit(X, y), X, y)
    tables = {
        block.caption: block.frame for section in page.sections for block in section.blocks if isinstance(block, Table)
    }
    summary = model.summary()
    largest = set(summary.index[:-2][np.argsort(-summary["mean"].abs()[:-2])[:200]])
    shown = next(frame for caption, frame in tables.items() if caption.startswith("Mean over rows"))
    assert set(shown.index) == largest | {"intercept", "sigma"}
    assert set(tables["Columns of the table"].index) == largest | {"y"}
    texts = [block.text for section in page.sections for block in section.blocks if isinstance(block, Text)]
    assert any(text.startswith("The 200 largest of 240 coefficients") for text in texts)

    printed = " ".join(invoke("summary", model.save(tmp_path / "model")).stdout.split())
    assert "These are the largest of 242; summary.csv and --json have all of them." in printed
    assert sum(f" {name} " in printed for name in summary.index) == 52


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_coefficients_share_an_axis_whatever_the_units_of_their_columns():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"grams": 1000.0 * rng.normal(size=200), "tons": 1e-3 * rng.normal(size=200)})
    y = X["grams"] / 1000.0 + 2000.0 * X["tons"] + 0.1 * rng.normal(size=200)
    model = GPSLinearRegression(n_chains=3, spread_weight=3.0).fit(X, y)
    assert np.allclose(model.fit_.units.spread, X.std(), rtol=0.02)
    far = replace(model.fit_.units, matrix=model.fit_.units.matrix * [[1e12], [1e-12]])
    assert np.allclose(far.spread * [1e12, 1e-12], X.std(), rtol=0.02)
    ax = model.plot().axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["tons", "grams"]
    low, high = ax.get_xlim()
    assert low <= 0.0 < 1.5 < high < 3.0  # one axis shows both
    assert len(model.plot(X, y).axes[0].collections) == 1
    assert "tons" in model._repr_html_()
    assert "changes most with tons (+" in linear_page(model, X, y).lead


def test_subgroups_are_told_apart_by_the_columns_that_differ():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 50)
    table = pd.DataFrame({"age": 30.0 + 20.0 * group + rng.normal(size=100), "dose": rng.normal(size=100), "one": 1.0})
    profile = subgroup_profile(table, group, np.ones(100))
    assert profile.index[0] == "age"
    assert "differ in age (means 30" in profile_in_words(profile)
    assert profile.loc["one", "p_value"] == 1.0
    assert "No column tells them apart" in profile_in_words(subgroup_profile(table[["dose"]], group, np.ones(100)))
    assert "Too few rows are sure" in profile_in_words(subgroup_profile(table, group, np.full(100, 0.6)))
