import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpsuq.errors import GPSError
from gpsuq.linear.baselines import BayesianLinearPosterior


@pytest.fixture
def regression(rng):
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    return X, X.to_numpy() @ [1.0, -2.0] + 5.0 + rng.normal(size=30)


def test_the_posterior_is_centred_at_least_squares(regression):
    X, y = regression
    posterior = BayesianLinearPosterior().fit(X, y)
    design = np.column_stack([X, np.ones(30)])
    estimate, rss = np.linalg.lstsq(design, y, rcond=None)[:2]
    assert np.allclose(posterior.mean, estimate)
    assert posterior.residual_variance == pytest.approx(float(rss[0]) / 27)
    assert np.allclose(posterior.sd**2, posterior.residual_variance * np.diag(np.linalg.inv(design.T @ design)))
    assert list(posterior.summary().index) == ["a", "b", "intercept"]


def test_draws_agree_with_the_closed_form(regression):
    posterior = BayesianLinearPosterior().fit(*regression)
    draws = posterior.sample_parameters(40_000, seed=1)
    assert list(draws) == ["a", "b", "intercept", "sigma"]
    lower, upper = posterior.interval(0.9)
    inside = (draws[["a", "b", "intercept"]] >= lower) & (draws[["a", "b", "intercept"]] <= upper)
    assert inside.to_numpy().mean(0) == pytest.approx([0.9] * 3, abs=0.01)
    chi_squared = posterior.residual_variance * posterior.df / draws["sigma"] ** 2
    assert stats.kstest(chi_squared, stats.chi2(posterior.df).cdf).pvalue > 1e-3


def test_intervals_cover_as_they_say():
    """400 data sets: 95% intervals cover within four standard errors (1.1%)."""
    rng = np.random.default_rng(3)
    hits, predicted = [], []
    for _ in range(400):
        X = rng.normal(size=(25, 2))
        y = X @ [1.0, 2.0] + rng.normal(size=25)
        posterior = BayesianLinearPosterior().fit(X, y)
        lower, upper = posterior.interval()
        hits.append((lower <= [1.0, 2.0, 0.0]) & (upper >= [1.0, 2.0, 0.0]))
        new = rng.normal(size=(1, 2))
        outcome = new @ [1.0, 2.0] + rng.normal()
        low, high = posterior.predict_interval(new)
        predicted.append((low <= outcome) & (outcome <= high))
    assert np.mean(hits) == pytest.approx(0.95, abs=0.025)
    assert np.mean(predicted) == pytest.approx(0.95, abs=0.044)


def test_bad_input_is_named(rng):
    posterior = BayesianLinearPosterior()
    with pytest.raises(GPSError, match="improper"):
        posterior.fit(rng.normal(size=(3, 3)), np.zeros(3))
    with pytest.raises(GPSError, match="linearly dependent"):
        posterior.fit(np.ones((9, 2)), np.arange(9.0))
    with pytest.raises(GPSError, match=r"\(n, p\)"):
        posterior.fit(np.ones(9), np.arange(9.0))
    with pytest.raises(GPSError, match="NaN"):
        posterior.fit(np.full((9, 1), np.nan), np.arange(9.0))


def test_predictions_of_the_posterior_agree_with_its_samples(regression):
    X, y = regression
    posterior = BayesianLinearPosterior().fit(X, y)
    samples = posterior.sample_predictive(X.iloc[:3], 60_000)
    assert samples.shape == (60_000, 3)
    assert np.allclose(samples.mean(0), posterior.predict(X.iloc[:3]), atol=0.03)
    lower, upper = posterior.predict_interval(X.iloc[:3], 0.9)
    assert np.allclose(np.quantile(samples, [0.05, 0.95], axis=0), [lower, upper], atol=0.06)


@pytest.mark.parametrize("name", ["Huber", "Tukey", "LAD", "RANSAC"])
def test_robust_baselines_resist_an_outlier(name):
    pytest.importorskip("statsmodels")
    from paper.robust import ROBUST, least_squares

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X @ [1.0, -2.0] + 5.0 + 0.1 * rng.normal(size=60)
    y[0] += 1e4
    assert np.allclose(ROBUST[name](X, y), [1.0, -2.0], atol=0.2)
    assert not np.allclose(least_squares(X, y), [1.0, -2.0], atol=0.2)
