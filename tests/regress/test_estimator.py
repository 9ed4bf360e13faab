"""GPSRegressor: scikit-learn's checks, statistics, tables, weights, groups, saving, resuming, bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.distributions import Normal

from gpsuq import MLP, GPSError, GPSRegressor, GPSWarning, Location, ObservationModel, ParquetRows, Scale, load
from gpsuq.engine import loop
from gpsuq.errors import MissingCodeError

QUICK = {"n_chains": 4, "n_steps": 20, "n_draws": 4}
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "which rows are left out, and what trees remember, is random by "
    "row: one row of weight 2 and two rows of weight 1 are the same in law, not in every random number",
}
pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@parametrize_with_checks([GPSRegressor(**QUICK)], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    assert check(estimator) is None  # it raises where a rule is broken


def wave(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 1))
    return x, np.sin(2 * x[:, 0]) + (0.1 + 0.2 * np.abs(x[:, 0])) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    x, y = wave(800, 0)
    return GPSRegressor(n_chains=6, n_steps=300).fit(x, y), *wave(1500, 1)


@pytest.fixture(scope="module")
def forked():
    """Two branches, +x and -x, where x > 0."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 3, size=(1500, 1))
    sign = np.where(rng.random(1500) < 0.5, 1.0, -1.0)
    y = sign * np.maximum(x[:, 0], 0.0) + 0.2 * rng.normal(size=1500)
    return GPSRegressor(n_chains=4, n_steps=500).fit(x, y)


def test_predictions_are_near_the_truth_and_cover(fitted):
    model, x, y = fitted
    truth = np.sin(2 * x[:, 0])
    assert np.sqrt(np.square(model.predict(x) - truth).mean()) < 0.1
    for coverage in (0.5, 0.9, 0.95):
        interval = model.predict_interval(x, coverage)
        inside = (interval["lower"] <= y) & (y <= interval["upper"])
        assert inside.mean() == pytest.approx(coverage, abs=0.035)
    width = model.predict_interval(np.array([[0.0], [1.9]]), 0.9).pipe(lambda t: t["upper"] - t["lower"])
    assert width[1] > 1.8 * width[0]  # the noise is five times as large there


def test_score_is_near_that_of_the_truth(fitted):
    import scoringrules

    model, x, y = fitted
    oracle = scoringrules.crps_normal(y, np.sin(2 * x[:, 0]), 0.1 + 0.2 * np.abs(x[:, 0])).mean()
    assert model.crps(x, y).mean() < 1.12 * oracle


def test_cdf_quantiles_density_and_draws_agree(fitted):
    model, x, y = fitted
    x, y = x[:12], y[:12]
    quantiles = model.predict_quantiles(x, [0.1, 0.5, 0.9])
    assert (quantiles.diff(axis=1).iloc[:, 1:] > 0).all().all()
    for level in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(model.predict_cdf(x, quantiles[level]), level, atol=1e-4)
    grid = np.linspace(-4.0, 4.0, 401)
    density = np.stack([model.predict_density(x, np.full(12, value)) for value in grid])
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=0), 1.0, atol=0.06)
    mean = np.trapezoid(density * grid[:, None], grid, axis=0)
    assert np.abs(mean - quantiles[0.5]).max() < 0.2
    draws = model.sample_predictive(x, 400, random_state=3)
    share = (draws <= quantiles[0.9].to_numpy()).mean(0)
    assert share.mean() == pytest.approx(0.9, abs=0.03)


def test_no_outcome_within_the_range_is_impossible(fitted):
    """A share of 1 / (n + 1), n rows having been left out, spreads over two standard deviations of y."""
    model, x, _ = fitted
    fit = model.fit_
    far = fit.center[0] + 3.0 * fit.scale[0]
    least = norm.pdf(1.5) / (2.0 * fit.scale[0]) / (len(fit.rows) + 1)
    assert (model.predict_density(x, np.full(len(x), far)) >= least * (1.0 - 1e-9)).all()


def test_both_branches_are_found(forked):
    at = np.array([[2.5]])
    density = [forked.predict_density(at, [value])[0] for value in (-2.5, 0.0, 2.5)]
    assert density[1] < 0.15 * min(density[0], density[2])
    assert 0.35 < forked.predict_cdf(at, [0.0])[0] < 0.65
    assert sorted(forked.sample_parameters(at, 100)) == ["loc", "scale"]


def test_uncertainty_adds_up_and_knows_what_it_has_not_seen(fitted):
    model, x, _ = fitted
    for by in ("variance", "score"):
        table = model.uncertainty(np.vstack([x[:200], [[6.0]]]), by=by)
        np.testing.assert_allclose(table["aleatoric"] + table["epistemic"], table["total"])
        assert (table >= 0).all().all()
        assert table["epistemic"].iloc[-1] > table["epistemic"].iloc[:200].median()
    with pytest.raises(GPSError, match='"variance" or "score"'):
        model.uncertainty(x[:2], by="entropy")


def test_rows_are_explained(fitted):
    model, x, y = fitted
    table = model.explain_rows(x[:100], np.append(y[:99], 30.0))
    assert table["outlier"].iloc[-1]
    assert table["outlier"].iloc[:99].mean() < 0.05
    assert (table["scale"] > 0).all()


def test_a_row_does_not_depend_on_the_rows_it_is_asked_with(fitted):
    model, x, _ = fitted
    whole = model.predict_quantiles(x[:100]).to_numpy()
    alone = model.predict_quantiles(x[7:9]).to_numpy()
    np.testing.assert_allclose(alone, whole[7:9], atol=1e-6)  # sums in single precision


def test_conformal_intervals_cover_by_construction():
    x, y = wave(600, 2)
    model = GPSRegressor(conformal=0.3, **QUICK).fit(x, y)  # hardly trained
    new, fresh = wave(3000, 3)
    interval = model.predict_interval(new, 0.9)
    assert ((interval["lower"] <= fresh) & (fresh <= interval["upper"])).mean() == pytest.approx(0.9, abs=0.05)
    assert model.conformal_.n_rows == 180
    labels = np.where(x[:, 0] > 0, "right", "left")
    model.calibrate(x, y, groups=labels)
    assert np.isfinite(model.predict_interval(new[:3], groups=["left", "right", "left"])).all().all()
    with pytest.raises(GPSError, match="which group"):
        model.predict_interval(new)
    few = GPSRegressor(**QUICK).fit(x, y).calibrate(x[:5], y[:5])
    assert np.isinf(few.predict_interval(new[:2], 0.95)).all().all()  # five rows cannot promise 95%


def test_text_missing_values_and_polars():
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    n = 300
    site = rng.choice(["north", "south"], n)
    age = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n))
    y = np.where(site == "south", 3.0, 0.0) + 0.1 * rng.normal(size=n)
    table = pd.DataFrame({"site": site, "age": age}, index=pd.Index(range(1000, 1000 + n)))
    model = GPSRegressor(n_chains=4, n_steps=150).fit(table, y)
    error = np.abs(model.predict(table) - y)
    assert error.mean() < 0.3
    assert model.predict_interval(table).index.equals(table.index)
    reordered = model.predict(table[["age", "site"]])
    np.testing.assert_array_equal(reordered, model.predict(table))
    np.testing.assert_array_equal(model.predict(polars.from_pandas(table)), model.predict(table))
    never = table.assign(site="never seen")
    assert np.isfinite(model.predict(never)).all()


def test_weight_zero_is_no_row_and_groups_are_kept_together():
    x, y = wave(300, 4)
    weight = np.ones(300)
    weight[:40] = 0.0
    bad = y.copy()
    bad[:40] = 1e6
    model = GPSRegressor(**QUICK).fit(x, bad, sample_weight=weight)
    np.testing.assert_array_equal(model.predict(x), GPSRegressor(**QUICK).fit(x[40:], y[40:]).predict(x))
    groups = np.repeat(np.arange(30), 10)
    model = GPSRegressor(**QUICK).fit(x, y, groups=groups)
    fit = model.fit_
    folds = [set(groups[fit.rows[(fit.judges == chain).any(1)]]) for chain in range(4)]
    assert len(folds[0] & folds[1]) <= 1  # one that all of these chains leave out
    assert len(folds[0] & folds[2]) > 1  # dealt anew
    forest = next(member.drawn for member in fit.members if member.name == "forest")
    for chain, fold in enumerate(folds):
        remembered = forest.select([chain]).remembered(model._rows(x))
        unseen = fit.to_units(y[np.isin(groups, list(fold))][:, None]).astype(np.float32)
        assert not np.isin(remembered.astype(np.float32), unseen).any()
    with pytest.warns(GPSWarning, match="3 groups are too few"):
        GPSRegressor(**QUICK).fit(x, y, groups=np.repeat([0, 1, 2], 100))


def test_several_outcomes_share_one_draw():
    x, y = wave(400, 5)
    both = np.column_stack([y, -2.0 * y])
    model = GPSRegressor(**QUICK).fit(x, both)
    assert model.predict(x[:5]).shape == (5, 2)
    assert model.sample_predictive(x[:5], 30).shape == (30, 5, 2)
    assert list(model.predict_interval(x[:5])[1]) == ["lower", "upper"]
    assert model.crps(x, both).shape == (400, 2)
    with pytest.raises(GPSError, match="2 outcomes"):
        model.predict_cdf(x, y)


def test_a_network_and_a_family_of_ones_own(tmp_path):
    class Own(nn.Module):
        noise_dim = 2

        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, x, z):
            import torch

            return self.layers(torch.cat([x.expand(*z.shape[:2], -1), z], -1))

    x, y = wave(200, 6)
    model = GPSRegressor(network=Own(), **QUICK).fit(x, y)
    assert model.members_ == {"own": 1.0}
    path = model.save(tmp_path / "own")
    with pytest.raises(MissingCodeError, match="network of your own"):
        load(path)
    np.testing.assert_array_equal(load(path, network=Own()).predict(x), model.predict(x))
    with pytest.raises(GPSError, match="must see x"):
        GPSRegressor(network=MLP(), **QUICK).fit(x, y)
    family = ObservationModel(lambda x, loc, scale: Normal(loc, 2.0 * scale), loc=Location(), scale=Scale())
    model = GPSRegressor(family=family, network=MLP(conditional=True), **QUICK).fit(x, y)
    with pytest.raises(MissingCodeError, match="family of your own"):
        load(model.save(tmp_path / "family"))
    np.testing.assert_array_equal(load(tmp_path / "family", model=family).predict(x), model.predict(x))


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch):
    x, y = wave(200, 7)
    whole = GPSRegressor(**QUICK).fit(x, y).predict(x)
    steps, take = [], loop.take_step

    def stop_in_the_second(*arguments):
        steps.append(1)
        if len(steps) == 30:
            raise KeyboardInterrupt
        return take(*arguments)

    monkeypatch.setattr(loop, "take_step", stop_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        GPSRegressor(**QUICK).fit(x, y, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(loop, "take_step", take)
    assert any((tmp_path / "kept").rglob("*"))
    np.testing.assert_array_equal(GPSRegressor(**QUICK).fit(x, y, checkpoint=tmp_path / "kept").predict(x), whole)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units_do_not_matter(unit):
    x, y = wave(150, 8)
    plain = GPSRegressor(**QUICK).fit(x, y)
    scaled = GPSRegressor(**QUICK).fit(unit * x, unit * y)
    np.testing.assert_allclose(scaled.predict(unit * x) / unit, plain.predict(x), rtol=1e-3, atol=1e-3)


def test_few_rows_say_that_nothing_is_calibrated():
    with pytest.warns(GPSWarning, match="too few to leave some out"):
        model = GPSRegressor(**QUICK).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
    assert [finding.code for finding in model.findings_] == ["not-calibrated"]
    assert np.isfinite(model.predict_interval([[0.5]])).all().all()


def test_more_columns_than_rows_and_repeated_rows_work():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 100))
    assert np.isfinite(GPSRegressor(**QUICK).fit(x, x[:, 0]).predict(x)).all()
    twice = np.tile(x[:10], (8, 1))
    assert np.isfinite(GPSRegressor(**QUICK).fit(twice, twice[:, 0]).predict(twice)).all()


def test_a_table_that_is_read_in_parts_is_refused(tmp_path):
    pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(GPSError, match="GPSLinearRegression"):
        GPSRegressor(**QUICK).fit(ParquetRows(tmp_path / "rows.parquet", target="y"))


@pytest.mark.parametrize(
    ("X", "y", "options", "words"),
    [
        ([[1.0]], [1.0], {}, "at least 2 rows"),
        ([[1.0], [2.0]], [1.0, np.nan], {}, "y"),
        ([[1.0], [np.inf]], [1.0, 2.0], {}, "infinity"),
        ([[1.0], [2.0]], [3.0, 3.0], {}, "constant"),
        ([[1.0], [2.0]], [1.0, 2.0, 3.0], {}, "same number of rows"),
        ([[1.0], [2.0]], ["a", "b"], {}, "numbers"),
        ([[1.0], [2.0]], [0.5, 2.0], {"family": "poisson"}, "counts"),
        ([[1.0], [2.0]], [0.5, 2.0], {"family": "cauchy"}, "family"),
        ([[1.0], [2.0]], [0.5, 2.0], {"conformal": 0.1}, "nothing to calibrate"),
        ([[1.0], [2.0]], [0.5, 2.0], {"n_chains": 1}, "n_chains"),
        ([[1.0], [2.0]], [-1e308, 1e308], {}, "another unit"),
    ],
)
def test_bad_input_is_named(X, y, options, words):
    model = GPSRegressor(**QUICK | options)
    with pytest.raises(GPSError, match=words):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict([[1.0]])
