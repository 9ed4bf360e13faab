"""Regressions on rows that are streamed: what a table in memory gives, and least squares on all rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from two_ranks import Threads

from gpsuq import GPSError, GPSLinearRegression
from gpsuq.datasets import correlated
from gpsuq.linear import centre, fit
from gpsuq.tables import streaming
from gpsuq.tables.streaming import ParquetRows

NAMES = ["a", "b", "c"]


def written(folder, n, **options):
    data = correlated(n, 3, **options)
    table = pd.DataFrame(data.X + np.array([1000.0, 0.0, -5.0]), columns=NAMES).assign(y=data.y + 3.0)
    for number, rows in enumerate(np.array_split(np.arange(n), 3)):
        table.iloc[rows].to_parquet(folder / f"part-{number}.parquet", row_group_size=900)
    return table


@pytest.mark.parametrize("intercept", [True, False])
def test_a_small_stream_is_fitted_as_in_memory(tmp_path, intercept):
    table = written(tmp_path, 900)
    model = GPSLinearRegression(fit_intercept=intercept, n_chains=4, spread_weight=3.0)
    held = model.fit(table[NAMES], table["y"])
    expected, summary = np.append(held.coef_, held.intercept_), held.summary()
    streamed = model.fit(ParquetRows(tmp_path, "y"))
    assert np.allclose(np.append(streamed.coef_, streamed.intercept_), expected, rtol=1e-6)
    assert np.allclose(streamed.summary(), summary, rtol=1e-4, atol=1e-9)
    assert streamed.feature_names_in_.tolist() == NAMES
    assert np.allclose(streamed.predict(table[NAMES][:5]), held.predict(table[NAMES][:5]))


def test_all_rows_tell_the_means_where_a_sample_tells_the_law(tmp_path, monkeypatch):
    """Coefficients and their standard errors are those of least squares on 20,000 rows, not of 1,000."""
    monkeypatch.setattr(streaming, "SAMPLE", 1000)
    table = written(tmp_path, 20_000)
    model = GPSLinearRegression(n_chains=40).fit(ParquetRows(tmp_path, "y"))
    design = np.column_stack([table[NAMES], np.ones(len(table))])
    least, squares, *_ = np.linalg.lstsq(design, table["y"], rcond=None)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares / len(table))
    assert np.abs((model.coef_ - least[:3]) / errors[:3]).max() < 0.5
    assert model.summary()["estimation_sd"].iloc[:3].to_numpy() == pytest.approx(errors[:3], rel=0.4)


@pytest.mark.slow
def test_very_many_rows_take_a_second_step(tmp_path, monkeypatch):
    """Two thirds and one third of the rows follow different lines, with heavy tails: one step ends near the mean."""
    monkeypatch.setattr(streaming, "SAMPLE", 600)
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000)
    y = np.where(rng.random(20_000) < 1 / 3, -2.0, 2.0) * x + rng.standard_t(2, 20_000)
    pd.DataFrame({"x": x, "y": y}).to_parquet(tmp_path / "data.parquet")
    rows, left = ParquetRows(tmp_path, "y"), []
    for very_many in (100, 10):
        monkeypatch.setattr(fit, "_VERY_MANY", very_many)
        found = GPSLinearRegression(n_chains=2, n_steps=20).fit(rows).fit_
        assert found.kind != "equal"
        left.append(np.abs(centre.step_over_all_rows(rows, found.units, found.centers.mean(0), found.law, None)[0]))
    assert left[1] < 0.3 * left[0]


def test_two_processes_fit_what_one_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLE", 1000)
    written(tmp_path, 6000, tails=3.0)
    alone = GPSLinearRegression(n_chains=3).fit(ParquetRows(tmp_path, "y"))
    threads = Threads(2)
    monkeypatch.setattr(streaming, "ranks", threads)

    def fitted(rank):
        threads.own.rank = rank
        return GPSLinearRegression(n_chains=3).fit(ParquetRows(tmp_path, "y"))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fitted, range(2))
    assert np.array_equal(first.coef_, second.coef_)
    assert np.allclose(first.coef_, alone.coef_, rtol=1e-9)
    assert np.allclose(first.draws_["slope"], alone.draws_["slope"], rtol=1e-9)


def test_a_stream_brings_its_own_targets(tmp_path):
    table = written(tmp_path, 90)
    with pytest.raises(GPSError, match="pass nothing beside them"):
        GPSLinearRegression().fit(ParquetRows(tmp_path, "y"), table["y"])
    table.rename(columns={"a": "sigma"}).to_parquet(tmp_path / "other.pq")
    with pytest.raises(GPSError, match="columns named sigma"):
        GPSLinearRegression().fit(ParquetRows(tmp_path / "other.pq", "y"))
