"""GPSLinearRegression: scikit-learn's checks, statistics, rows, groups, weights, units, bad input."""

import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpsuq import MLP, GPSError, GPSLinearRegression, GPSWarning
from gpsuq.core.intervals import between_chains
from gpsuq.datasets import correlated, scissors
from gpsuq.engine.generative import TrainingState
from gpsuq.linear.estimator import kernel_score_scorer
from paper.peers import LeastSquares, interval_score
from paper.scissors import slope_metrics

QUICK = {"n_chains": 3, "n_steps": 12, "n_draws": 8}
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "bootstrap weights belong to rows: one row of weight 2 and two "
    "rows of weight 1 are the same in law, not in every random number",
}


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@parametrize_with_checks([GPSLinearRegression(**QUICK)], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    assert check(estimator) is None  # it raises where a rule is broken


@pytest.fixture(scope="module")
def fitted_scissors():
    data = scissors(1500, seed=0)
    return GPSLinearRegression(n_chains=8, n_steps=500).fit(pd.DataFrame(data.X, columns=["dose"]), data.y), data


@pytest.fixture(scope="module")
def fitted_clean():
    data = correlated(300, 4, contamination=0.05, seed=0)
    return GPSLinearRegression().fit(data.X, data.y), data


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@pytest.mark.parametrize(("n", "p"), [(13, 6), (15, 3), (20, 5), (30, 1)])
def test_few_rows_are_predicted_as_well_as_by_least_squares(n, p):
    """Where noise is Normal, Student's intervals of least squares are the best there are."""
    scores = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, fresh = rng.normal(size=(n, p)), rng.normal(size=(200, p))
        y, target = X.sum(1) + rng.normal(size=n), fresh.sum(1) + rng.normal(size=200)
        bounds = GPSLinearRegression(random_state=seed).fit(X, y).predict_interval(fresh, 0.9).to_numpy().T
        least = LeastSquares().fit(X, y).interval(fresh, 0.9)
        scores.append([interval_score(each, target, 0.9) for each in (bounds, least)])
    ours, least = np.mean(scores, 0)
    assert ours < 1.07 * least


def test_scissors_are_heterogeneous_and_found(fitted_scissors):
    model, _ = fitted_scissors
    assert model.heterogeneous_
    assert model.spread_weight_ == 0.0
    metrics = slope_metrics(model.draws_["slope"][..., 0])
    assert metrics["near_truth"] > 0.9
    assert 0.44 < metrics["positive"] < 0.56
    fresh = scissors(1000, seed=77)
    interval = model.predict_interval(pd.DataFrame(fresh.X, columns=["dose"]))
    assert list(interval) == ["lower", "upper"]
    assert ((interval["lower"] < fresh.y) & (fresh.y < interval["upper"])).mean() == pytest.approx(0.95, abs=0.03)


def test_equal_coefficients_are_recognised_and_robustly_estimated(fitted_clean):
    model, data = fitted_clean
    assert not model.heterogeneous_
    assert model.law_ == "equal"
    assert model.spread_weight_ == 3.0
    assert model.spread_path_ is None  # no law was tried
    assert model.p_value_ > 0.02
    assert 0 < model.detectable_ < 2
    summary = model.summary()
    assert summary.index.tolist() == ["x0", "x1", "x2", "x3", "intercept", "sigma"]
    coefficients = summary.iloc[:4]
    assert (np.abs(model.coef_ - data.theta[0]) < 4 * coefficients["estimation_sd"]).all()
    # 1 / sqrt(n (Sigma^-1)_jj^-1): the standard error of least squares without outliers.
    classical = np.sqrt(np.diag(np.linalg.inv(data.X.T @ data.X)))
    assert np.allclose(coefficients["estimation_sd"], classical, rtol=0.6)
    assert coefficients["heterogeneity_sd"].max() < 0.3 * classical.min()
    assert summary["median"]["sigma"] == pytest.approx(1.0, abs=0.2)


def test_parameters_come_as_a_table_in_the_users_names(fitted_scissors):
    model, _ = fitted_scissors
    draws = model.sample_parameters(500)
    assert draws.shape == (500, 3)
    assert list(draws) == ["dose", "intercept", "sigma"]
    assert draws.equals(model.sample_parameters(500))
    assert not draws.equals(model.sample_parameters(500, random_state=1))
    assert stats.ks_2samp(draws["dose"], model.draws_["slope"].ravel()).pvalue > 1e-3
    tree = model.to_datatree()
    assert dict(tree["uq"].sizes) == {"chain": 8, "draw": 512, "coef": 1}


def test_summaries_know_means_as_well_as_the_rows_do(fitted_scissors):
    model, _ = fitted_scissors
    centers = model.fit_.units.parameters(model.fit_.centers, np.zeros(len(model.fit_.centers)))["slope"][:, 0]
    row = model.summary().loc["dose"]
    assert row["mean"] == pytest.approx(model.coef_[0], abs=1e-9)
    assert row["estimation_sd"] == pytest.approx(between_chains(centers), rel=1e-6)


def test_predictions_agree_with_samples_of_the_predictive(fitted_scissors):
    model, data = fitted_scissors
    X = pd.DataFrame(data.X[:4], columns=["dose"])
    samples = model.sample_predictive(X, 40_000)
    assert samples.shape == (40_000, 4)
    assert np.allclose(samples.mean(0), model.predict(X), atol=0.06)
    quantiles = model.predict_quantiles(X, [0.1, 0.8])
    assert np.allclose(np.quantile(samples, [0.1, 0.8], axis=0).T, quantiles, atol=0.12)
    one = pd.concat([model.predict_quantiles(X.iloc[[i]], [0.1, 0.8]) for i in range(4)])
    assert np.allclose(one, quantiles)


def test_kernel_score_prefers_the_better_model(fitted_scissors):
    model, data = fitted_scissors
    fresh = scissors(500, seed=5)
    X = pd.DataFrame(fresh.X, columns=["dose"])
    flat = GPSLinearRegression(**QUICK, spread_weight=3.0).fit(pd.DataFrame(data.X, columns=["dose"]), data.y)
    assert model.kernel_score(X, fresh.y) < flat.kernel_score(X, fresh.y) - 0.02
    assert kernel_score_scorer(model, X, fresh.y) == -model.kernel_score(X, fresh.y)
    # Monte Carlo: E k(Y, Y') - 2 E k(y, Y) from samples of the predictive, kernel exp(-d^2 / 0.5).
    samples = model.sample_predictive(X[:5], 3000)
    y = fresh.y[:5]
    k = lambda d: np.exp(-np.square(d) / 0.5)  # noqa: E731
    expected = [
        k(s[:1500, None] - s[None, 1500:]).mean() - 2 * k(s - v).mean() for s, v in zip(samples.T, y, strict=True)
    ]
    assert model.kernel_score(X[:5], y, bandwidth=0.5) == pytest.approx(np.mean(expected), abs=0.03)


def test_rows_are_explained(fitted_scissors, fitted_clean):
    model, data = fitted_scissors
    rows = model.explain_rows(pd.DataFrame(data.X, columns=["dose"]), data.y)
    clear = np.abs(data.X[:, 0]) > 0.5
    assert (rows["subgroup"] == (data.theta[:, 0] > 0))[clear].mean() > 0.98
    assert (rows["subgroup_probability"][clear] > 0.9).mean() > 0.9
    assert np.abs(rows["dose"] - data.theta[:, 0])[clear].mean() < 0.2
    model, data = fitted_clean
    rows = model.explain_rows(data.X, data.y)
    residual = np.abs(data.y - data.X @ data.theta[0])
    assert set(rows["subgroup"]) == {0}
    assert np.isfinite(model.explain_rows(data.X[:1], [1e200])).all().all()
    assert rows["outlier_score"].nlargest(3).index.tolist() == np.argsort(-residual)[:3].tolist()
    with pytest.raises(GPSError, match="same number of rows"):
        model.explain_rows(data.X, data.y[:-1])


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_units_and_signal_size_do_not_matter():
    """The same errors with theta ten times larger, and the data a thousand times larger, give the same fit."""
    data = correlated(200, 3, contamination=0.05, seed=1)
    plain = GPSLinearRegression(**QUICK).fit(data.X, data.y)
    larger = GPSLinearRegression(**QUICK).fit(data.X, data.y + 9.0 * data.X @ data.theta[0])
    assert np.allclose(larger.coef_ - 9.0 * data.theta[0], plain.coef_, atol=1e-3)
    assert np.allclose(larger.draws_["sigma"], plain.draws_["sigma"], rtol=0.02)
    scaled = GPSLinearRegression(**QUICK).fit(1e3 * data.X, 1e3 * data.y)
    assert np.allclose(scaled.coef_, plain.coef_, atol=1e-3)
    assert np.allclose(scaled.draws_["sigma"], 1e3 * plain.draws_["sigma"], rtol=0.02)
    moved = GPSLinearRegression(**QUICK).fit(data.X + 1e4, data.y)
    assert np.allclose(moved.coef_, plain.coef_, atol=1e-3)
    mixed = data.X * [1e-12, 1.0, 1e12]
    extreme = GPSLinearRegression(**QUICK).fit(mixed, data.y)
    assert np.allclose(extreme.coef_ * [1e-12, 1.0, 1e12], plain.coef_, atol=1e-3)
    assert np.allclose(extreme.predict(mixed), plain.predict(data.X), atol=0.01)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_weights_are_frequencies():
    data = correlated(120, 2, seed=2)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    settings = {**QUICK, "spread_weight": 3.0}
    weighted = GPSLinearRegression(**settings).fit(data.X, data.y, weight)
    repeated = GPSLinearRegression(**settings).fit(np.repeat(data.X, weight, 0), np.repeat(data.y, weight))
    left_out = GPSLinearRegression(**settings).fit(data.X[weight > 0], data.y[weight > 0], weight[weight > 0])
    assert np.allclose(weighted.coef_, repeated.coef_, atol=0.05)
    assert np.allclose(weighted.coef_, left_out.coef_, atol=0.02)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_groups_share_their_coefficients():
    """Forty subjects with slopes 1 or -1 and measures so noisy that single rows say little."""
    rng = np.random.default_rng(3)
    subject = np.repeat(np.arange(40), rng.integers(4, 8, 40))
    slope = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)[subject]
    X = rng.uniform(-2, 2, size=(len(subject), 1))
    y = slope * X[:, 0] + 0.4 * rng.standard_normal(len(subject))
    model = GPSLinearRegression(n_chains=3, n_steps=250, n_draws=16).fit(X, y, groups=subject)
    assert model.heterogeneous_
    assert slope_metrics(model.draws_["slope"][..., 0])["near_truth"] > 0.7
    names = np.array([f"s{i}" for i in subject])
    assert np.array_equal(GPSLinearRegression(**QUICK).fit(X, y, groups=names).coef_,
                          GPSLinearRegression(**QUICK).fit(X, y, groups=subject).coef_)  # fmt: skip
    with pytest.raises(GPSError, match="one label per row"):
        GPSLinearRegression(**QUICK).fit(X, y, groups=subject[:-1])
    with pytest.raises(GPSError, match="single subject"):
        GPSLinearRegression(**QUICK).fit(X, y, groups=np.zeros(len(y)))
    with pytest.raises(GPSError, match="single subject"):
        GPSLinearRegression(**QUICK).fit(X, y, (subject == 3).astype(float), groups=subject)
    with pytest.raises(GPSError, match="same for all rows of a group"):
        GPSLinearRegression(**QUICK).fit(X, y, np.arange(len(y)) + 1.0, groups=subject)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_it_works_inside_scikit_learn():
    data = correlated(60, 2, seed=0)
    estimator = GPSLinearRegression(**QUICK, spread_weight=3.0)
    pipeline = make_pipeline(StandardScaler(), estimator).fit(data.X, data.y)
    assert pipeline.score(data.X, data.y) > 0.3
    assert cross_val_predict(estimator, data.X, data.y, cv=3).shape == (60,)
    grid = GridSearchCV(estimator, {"spread_weight": [0.0, 3.0]}, scoring=kernel_score_scorer, cv=2).fit(data.X, data.y)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    fitted = clone(estimator).fit(data.X, data.y)
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.predict(data.X), fitted.predict(data.X))
    assert copy.sample_parameters(10).equals(fitted.sample_parameters(10))


def test_without_intercept_lines_go_through_the_origin():
    data = scissors(200, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        model = GPSLinearRegression(**QUICK, fit_intercept=False).fit(data.X, data.y)
    assert model.intercept_ == 0.0
    assert (model.draws_["intercept"] == 0.0).all()
    assert model.predict(np.zeros((1, 1)))[0] == 0.0


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_random_intercept_is_warned_of(rng):
    X = rng.normal(size=(80, 1))
    with pytest.warns(GPSWarning, match="random intercept"):
        model = GPSLinearRegression(**QUICK, random_intercept=True, spread_weight=0.0).fit(
            X, X[:, 0] + rng.normal(size=80)
        )
    assert model.draws_["intercept"].std(1).min() > 1e-3
    with pytest.raises(GPSError, match="fit_intercept"):
        GPSLinearRegression(random_intercept=True, fit_intercept=False).fit(X, X[:, 0])


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(np.arange(30)[:, None] == 7, np.nan, X), y), "row 7"),
        (lambda X, y: (X, np.where(np.arange(30) == 4, np.inf, y)), "row 4"),
        (lambda X, y: (X.astype(str).astype(object) + "a", y), "convert|string|numeric"),
        (lambda X, y: (X[:, 0], y), "2D"),
        (lambda X, y: (X, y[:-1]), "inconsistent"),
        (lambda X, y: (X[:1], y[:1]), "1 sample"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X, np.ones(30)), "constant"),
    ],
)
def test_bad_tables_are_refused(rng, change, message):
    X, y = change(rng.normal(size=(30, 2)), rng.normal(size=30))
    with pytest.raises(ValueError, match=message):
        GPSLinearRegression(**QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.r_[-1.0, np.ones(29)], "negative in row 0"),
        (np.zeros(30), "zero"),
        (np.ones(29), "one entry per observation"),
        (np.r_[np.nan, np.ones(29)], "row 0"),
        (np.r_[1.0, np.zeros(29)], "at least 2"),
    ],
)
def test_bad_weights_are_refused(rng, weight, message):
    with pytest.raises(GPSError, match=message):
        GPSLinearRegression(**QUICK).fit(rng.normal(size=(30, 2)), rng.normal(size=30), weight)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_bad_requests_are_refused(rng):
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    y = rng.normal(size=30)
    model = GPSLinearRegression(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"a": "c"}))
    with pytest.raises(GPSError, match="row 3"):
        model.predict_interval(X.assign(a=X["a"].where(X.index != 3)))
    with pytest.raises(GPSError, match="coverage"):
        model.predict_interval(X, coverage=95)
    with pytest.raises(GPSError, match="levels"):
        model.predict_quantiles(X, [0.5, 1.0])
    with pytest.raises(GPSError, match="n_draws"):
        model.sample_parameters(0)
    for bad in ("strong", np.nan, None):
        with pytest.raises(GPSError, match="spread_weight"):
            GPSLinearRegression(**QUICK, spread_weight=bad).fit(X, y)
    with pytest.raises(GPSError, match=r"'n_chains' parameter .* must be an int in the range"):
        GPSLinearRegression(n_chains=0, n_steps=5).fit(X, y)
    with pytest.raises(GPSError, match="'random_intercept' parameter"):
        GPSLinearRegression(random_intercept="always").fit(X, y)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_fewer_rows_than_columns_warn_and_work(rng):
    X = rng.normal(size=(8, 20))
    with pytest.warns(GPSWarning, match="directions in which X varies most"):
        model = GPSLinearRegression(**QUICK).fit(X, X[:, 0] + 0.1 * rng.normal(size=8))
    assert np.isfinite(model.predict_interval(X)).all().all()
    assert np.isfinite(model.summary()).all().all()


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_few_rows_fall_back_to_normal_theory(rng):
    """15 rows, 9 coefficients: the spread between chains is that of the t distribution around the fit."""
    X = rng.normal(size=(15, 8))
    y = X.sum(1) + rng.normal(size=15)
    with pytest.warns(GPSWarning, match="Normal theory"):
        model = GPSLinearRegression(n_chains=200, n_steps=12, n_draws=8).fit(X, y)
    design = np.column_stack([X, np.ones(15)])
    unit = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))[:8]
    ratio = model.summary()["estimation_sd"].to_numpy()[:8] / unit
    assert ratio.std() < 0.15 * ratio.mean()  # the shape of the classical standard errors
    assert 0.2 < ratio.mean() < 5.0


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_constant_and_duplicated_columns_warn_and_work(rng):
    X = rng.normal(size=(100, 2))
    y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=100)
    with pytest.warns(GPSWarning, match="columns x2 are constant"):
        constant = GPSLinearRegression(**QUICK).fit(np.column_stack([X, np.full(100, 7.0)]), y)
    assert np.allclose(constant.coef_, [1.0, 2.0, 0.0], atol=0.1)
    with pytest.warns(GPSWarning, match="columns x1, x2 depend on each other"):
        double = GPSLinearRegression(**QUICK).fit(np.column_stack([X, X[:, 1]]), y)
    assert np.allclose(double.coef_, [1.0, 1.0, 1.0], atol=0.1)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_zero_weights_are_like_no_row(rng):
    X = rng.normal(size=(60, 2))
    y = X @ [1.0, -1.0] + 0.3 * rng.normal(size=60)
    spoiled_X, spoiled_y = np.vstack([X, [[1e11, 0.0]]]), np.r_[y, 1e200]
    plain = GPSLinearRegression(**QUICK).fit(X, y, np.full(60, 2.0))
    spoiled = GPSLinearRegression(**QUICK).fit(spoiled_X, spoiled_y, np.r_[np.full(60, 2.0), 0.0])
    assert np.array_equal(spoiled.coef_, plain.coef_)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_fit_that_fails_leaves_the_one_before(rng):
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    model = GPSLinearRegression(**QUICK)
    with pytest.raises(GPSError, match="constant"):
        model.fit(X, np.ones(40))
    with pytest.raises(NotFittedError):
        model.predict(X)
    expected = model.fit(X, y).predict(X)
    with pytest.raises(GPSError, match="constant"):
        model.fit(pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"]), np.ones(40))
    assert np.array_equal(model.predict(X), expected)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_plausible_tables_work(rng):
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + rng.normal(size=40)
    model = GPSLinearRegression(n_chains=np.int64(2), n_steps=np.int64(5), spread_weight=np.float32(0.3)).fit(X, y)
    assert model.predict_interval(X.tolist()).equals(model.predict_interval(X))
    flat = GPSLinearRegression(**QUICK).fit(np.ones((40, 1)), y)
    assert flat.coef_[0] == 0.0
    assert flat.predict(np.ones((1, 1)))[0] == pytest.approx(np.median(y), abs=0.8)
    far = GPSLinearRegression(**QUICK).fit(X, np.r_[1e45, y[1:]])
    assert np.allclose(far.coef_, [1.0, 0.0], atol=0.6)
    offset = GPSLinearRegression(**QUICK).fit(rng.normal(size=(10, 8)), 1e8 + rng.normal(size=10))
    assert offset.intercept_ == pytest.approx(1e8, abs=20)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_more_bad_requests_are_refused(rng):
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["sigma", "b"])
    y = rng.normal(size=40)
    with pytest.raises(GPSError, match="columns named sigma"):
        GPSLinearRegression(**QUICK).fit(X, y)
    for name, value in (("n_steps", -5), ("n_draws", 1), ("batch_size", 0.5)):
        with pytest.raises(GPSError, match=name):
            GPSLinearRegression(**{**QUICK, name: value}).fit(X.to_numpy(), y)
    with pytest.raises(GPSError, match="does not see x"):
        GPSLinearRegression(**QUICK, generator=MLP(conditional=True)).fit(X.to_numpy(), y)
    with pytest.raises(GPSError, match=r"'generator' parameter .* must be an instance of"):
        GPSLinearRegression(**QUICK, generator="MLP").fit(X.to_numpy(), y)
    with pytest.raises(GPSError, match="negative"):
        GPSLinearRegression(**QUICK, random_state=-1).fit(X.to_numpy(), y)
    with pytest.warns(GPSWarning, match="rescale them"):
        model = GPSLinearRegression(**QUICK).fit(X.to_numpy(), y, np.full(40, 1 / 40))
    with pytest.raises(GPSError, match="same number of rows"):
        model.explain_rows(X.to_numpy(), np.r_[y, 0.0])
    with pytest.raises(GPSError, match="row 0"):
        model.kernel_score(X.to_numpy(), np.r_[np.nan, y[1:]])


# --- ordinary tables -----------------------------------------------------------------------------------------------


def skewed_table(rng, n=300):
    X = rng.normal(size=(n, 5))
    return X, X.sum(1) + rng.exponential(size=n)


def test_intervals_hold_where_noise_is_skewed(rng):
    X, y = skewed_table(rng)
    model = GPSLinearRegression().fit(X, y)
    assert not model.heterogeneous_
    fresh, target = skewed_table(rng, 4000)
    for coverage in (0.8, 0.9, 0.95):
        interval = model.predict_interval(fresh, coverage)
        assert interval["lower"].le(target).mul(interval["upper"].ge(target)).mean() == pytest.approx(
            coverage, abs=0.04
        )
    below = model.predict_cdf(fresh, target)
    assert stats.kstest(below, "uniform").statistic < 0.06
    assert np.abs(model.predict(fresh) - fresh.sum(1) - 1.0).mean() < 0.2  # the mean, not the mode


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_curved_table_is_fitted_like_least_squares_and_says_so(rng):
    X = rng.uniform(0, 3, size=(400, 2))
    y = np.exp(X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=400)
    model = GPSLinearRegression().fit(X[:300], y[:300])
    assert "nonlinear" in [finding.code for finding in model.findings_]
    design = np.column_stack([X, np.ones(400)])
    least = design[300:] @ np.linalg.lstsq(design[:300], y[:300], rcond=None)[0]
    error, of_least = (np.sqrt(np.mean(np.square(p - y[300:]))) for p in (model.predict(X[300:]), least))
    assert error < 1.02 * of_least
    width = model.predict_interval(X[300:], 0.9).diff(axis=1)["upper"]
    assert width.max() < np.ptp(y)


def test_the_verdict_says_what_was_detected_and_what_could_have_been(fitted_scissors, fitted_clean):
    assert fitted_scissors[0].verdict() == "Coefficients differ between rows (p = 0.001): they follow 2 lines."
    verdict = fitted_clean[0].verdict()
    assert verdict.startswith("No difference between rows was detected (p = ")
    assert "would have been found with a probability of 80%" in verdict
    few = GPSLinearRegression(**QUICK).fit([[0.0], [1.0], [2.0], [4.0], [3.0]], [0.0, 1.1, 2.0, 3.9, 3.0])
    assert few.verdict() == "No difference between rows was detected: none was looked for."


def test_outliers_are_flagged_and_good_rows_are_not(rng):
    X = rng.normal(size=(100, 2))
    y = X.sum(1) + 0.3 * rng.normal(size=100)
    y[[4, 50]] += 20.0
    model = GPSLinearRegression().fit(X, y)
    assert np.flatnonzero(model.explain_rows(X, y)["outlier"]).tolist() == [4, 50]


def test_intervals_of_sigma_stay_positive(fitted_clean):
    sigma = fitted_clean[0].summary().loc["sigma"]
    assert 0 < sigma["mean_lower"] < sigma["mean"] < sigma["mean_upper"]
    assert sigma["estimation_sd"] > 0


def test_rows_of_a_subject_share_what_they_speak_for(rng):
    subject = np.repeat(np.arange(40), 6)
    X = rng.normal(size=(240, 1))
    y = (1.0 + 2.0 * rng.normal(size=40))[subject] * X[:, 0] + 0.5 * rng.normal(size=240)
    model = GPSLinearRegression().fit(X, y, groups=subject)
    rows = model.explain_rows(X, y, groups=subject)
    assert (rows.groupby(subject)["x0"].nunique() == 1).all()
    table = model.explain_groups(X, y, subject)
    assert table.index.tolist() == list(range(40))
    assert (table["rows"] == 6).all()
    alone = [np.polyfit(X[subject == s, 0], y[subject == s], 1)[0] for s in range(40)]
    assert np.corrcoef(table["x0"], alone)[0, 1] > 0.95
    with pytest.raises(GPSError, match="one label per row"):
        model.explain_rows(X, y, groups=subject[:-1])


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_subgroups_that_differ_by_their_intercept_can_be_asked_for(rng):
    X = rng.normal(size=(400, 1))
    y = np.where(rng.random(400) < 0.4, 6.0, 0.0) + X[:, 0] + 0.5 * rng.normal(size=400)
    plain = GPSLinearRegression().fit(X, y)
    assert "levels" in [finding.code for finding in plain.findings_]
    model = GPSLinearRegression(random_intercept=True).fit(X, y)
    assert model.law_ in ("levels", "lines")
    assert "p = " not in model.verdict()  # the test of slopes is not what found them
    none = GPSLinearRegression(random_intercept=True).fit(X, X[:, 0] + rng.normal(size=400))
    assert none.verdict().startswith("No difference")
    assert sorted(np.quantile(model.draws_["intercept"], [0.1, 0.9]).round()) == [0.0, 6.0]


def test_a_column_of_large_identifiers_is_not_constant_but_noted(rng):
    ids = 9e15 + rng.permutation(200) * 2.0
    X = np.column_stack([ids, rng.normal(size=200)])
    model = GPSLinearRegression().fit(X, X[:, 1] + rng.normal(size=200))
    assert [finding.code for finding in model.findings_] == ["identifier"]
    assert model.coef_[0] != 0.0
    numbered = pd.DataFrame({"row": np.arange(1, 201), "x": X[:, 1]})
    assert "column row" in GPSLinearRegression().fit(numbered, X[:, 1] + rng.normal(size=200)).findings_[0].message


def test_a_spread_weight_of_ones_own_is_trained_with(rng):
    data = scissors(400, seed=3)
    model = GPSLinearRegression(spread_weight=0.001, n_steps=50).fit(data.X, data.y)
    assert (model.law_, model.spread_weight_, model.p_value_) == ("trained", 0.001, None)
    assert model.fit_.generator is not None
    assert model.draws_["slope"].std() > 0.5


def test_a_fit_that_was_stopped_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """It is stopped in the second of two trainings of 12 steps: the first is not repeated, and nothing differs."""
    data = scissors(200, seed=3)
    model = GPSLinearRegression(**QUICK, spread_weight=0.001)
    whole = clone(model).fit(data.X, data.y).draws_
    steps, real_loss = [], TrainingState.next_loss

    def next_loss(state):
        steps.append(None)
        if len(steps) == 18:
            raise KeyboardInterrupt
        return real_loss(state)

    monkeypatch.setattr(TrainingState, "next_loss", next_loss)
    with pytest.raises(KeyboardInterrupt, match="to go on from there"):
        clone(model).fit(data.X, data.y, checkpoint=tmp_path)
    resumed = clone(model).fit(data.X, data.y, checkpoint=str(tmp_path)).draws_
    assert len(steps) <= 18 + 12
    assert all(np.array_equal(resumed[name], values) for name, values in whole.items())
    again = clone(model).fit(data.X, data.y, checkpoint=tmp_path).draws_
    assert len(steps) <= 18 + 12  # nothing was left to train
    assert np.array_equal(again["slope"], whole["slope"])


def test_many_rows_are_used_though_laws_see_some(rng):
    """Beyond 8192 rows the centre takes a step over all of them: as good as least squares of all."""
    X = rng.normal(size=(60_000, 2))
    y = X @ [1.0, -1.0] + rng.normal(size=60_000)
    model = GPSLinearRegression().fit(X, y)
    least = np.linalg.lstsq(np.column_stack([X, np.ones(60_000)]), y, rcond=None)[0]
    assert np.abs(model.coef_ - least[:2]).max() < 0.5 / np.sqrt(60_000)
    assert model.summary()["estimation_sd"].iloc[:2].to_numpy() == pytest.approx(1 / np.sqrt(60_000), rel=0.5)


def test_an_export_without_arviz_says_what_to_install(rng, monkeypatch):
    X = rng.normal(size=(30, 1))
    model = GPSLinearRegression().fit(X, X[:, 0] + rng.normal(size=30))
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(GPSError, match=r"gpsuq\[arviz\]"):
        model.to_datatree()


@pytest.mark.parametrize(("x_size", "y_size"), [(1e200, 1.0), (1e-200, 1.0), (1.0, 1e200)])
def test_sizes_that_cannot_be_squared_are_refused(rng, x_size, y_size):
    with pytest.raises(GPSError, match="another unit"):
        GPSLinearRegression(n_steps=2).fit(x_size * rng.normal(size=(20, 1)), y_size * rng.normal(size=20))
    with pytest.raises(GPSError, match="no number of rows"):
        GPSLinearRegression().fit(rng.normal(size=(20, 1)), rng.normal(size=20), np.full(20, 1e200))


@pytest.mark.parametrize("groups", [None, np.arange(20) // 2])
def test_an_exact_fit_of_large_numbers_has_finite_draws(rng, groups):
    X = 36198378332.4746 + rng.integers(0, 3, (20, 1))
    model = GPSLinearRegression(n_chains=2, n_steps=2).fit(X, X[:, 0], groups=groups)
    assert np.isfinite(model.sample_parameters(5)).all().all()


def test_what_scikit_learn_refuses_is_our_error():
    with pytest.raises(GPSError, match="minimum of 2"):
        GPSLinearRegression().fit([[1.0]], [1.0])
