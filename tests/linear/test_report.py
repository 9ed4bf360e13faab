"""What is shown of a regression with very many coefficients."""

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import GPSLinearRegression
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
