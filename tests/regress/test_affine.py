"""Planes as a generator: Student's t of least squares, rows left out that do not count, columns without number."""

import numpy as np
import pytest

from gpsuq import GPSRegressor
from gpsuq.core import mixtures
from gpsuq.linear.baselines import BayesianLinearPosterior
from gpsuq.regress.affine import fit_affine
from gpsuq.regress.stacking import mixture_crps

RNG = np.random.default_rng(0)
NOBODY = [np.array([], dtype=np.int64)]


def table(n, p=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return x, x @ np.linspace(1.0, 2.0, p) + 0.5 * rng.normal(size=n)


def test_intervals_are_those_of_least_squares():
    x, y = table(30)
    new = 2.0 * RNG.normal(size=(5, 3))
    said = fit_affine(x, y, None, NOBODY, 64).parameters(new)
    exact = BayesianLinearPosterior().fit(x, y)
    np.testing.assert_allclose(said["loc"][:, 0, 0], exact.predict(new), atol=0.1)
    ends = mixtures.quantiles([0.05, 0.95], said["loc"][:, :, 0], said["scale"][:, :, 0])
    width, wanted = ends[:, 1] - ends[:, 0], np.diff(exact.predict_interval(new, 0.9), axis=0)[0]
    np.testing.assert_allclose(width, wanted, rtol=0.06)
    assert width.max() > 1.1 * width.min()  # far out it is less sure


def test_rows_left_out_do_not_count_and_weights_are_frequencies():
    x, y = table(40)
    out, rest = np.arange(10), np.arange(10, 40)
    wild = np.where(np.arange(40) < 10, 1e3, y)
    both = fit_affine(x, wild, None, [out, rest], 4)
    alone = fit_affine(x[rest], y[rest], None, NOBODY, 4)
    for name, value in both.select([0]).parameters(x).items():
        np.testing.assert_allclose(value, alone.parameters(x)[name], rtol=1e-6)
    counts = RNG.integers(0, 3, size=40)
    weighted = fit_affine(x, y, counts.astype(float), NOBODY, 4).parameters(x)
    repeated = fit_affine(np.repeat(x, counts, 0), np.repeat(y, counts), None, NOBODY, 4).parameters(x)
    for name, value in weighted.items():
        np.testing.assert_allclose(value, repeated[name], rtol=1e-8)


def test_more_columns_than_rows_constant_columns_and_an_exact_plane():
    x = RNG.normal(size=(12, 30))
    x[:, 3], x[:, 4] = 0.0, x[:, 5]
    for y in (x[:, 0] + RNG.normal(size=12), x[:, 0]):
        said = fit_affine(x, y, None, NOBODY, 4).parameters(np.vstack([x, 1e6 * x]))
        assert all(np.isfinite(value).all() for value in said.values())
        assert (said["scale"] > 0.0).all()


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_plane_of_few_rows_is_predicted_nearly_as_well_as_by_least_squares():
    found, wanted = [], []
    for seed in range(2):
        x, y = table(40, 5, seed)
        new, outcome = table(400, 5, seed + 100)
        model = GPSRegressor(n_chains=4, n_steps=60).fit(x, y)
        exact = BayesianLinearPosterior().fit(x, y)
        sample = exact.sample_predictive(new, 200).T
        scale = np.full(sample.shape, 0.05)
        found.append(model.crps(new, outcome).mean())
        wanted.append(mixture_crps(outcome, sample, scale, np.full(200, 1 / 200)).mean())
        assert model.members_["affine"] > 0.4
    assert np.mean(found) < 1.15 * np.mean(wanted)
