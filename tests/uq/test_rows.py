"""Single observations explained: draws re-weighted by what they say of each."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from torch.distributions import (
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
)

from gpsuq import GPS, MLP, Algorithm, GPSError, Location, ObservationModel, Real, Scale, Slope
from gpsuq.core.observations import observations
from gpsuq.uq.rows import log_likelihood, moments, surprise

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")

SHORT = Algorithm(n_steps=40, batch_size=50, n_draws=10)


@pytest.fixture(scope="module")
def panel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4, 1))
    y = X[..., 0] * rng.normal(size=(40, 1)) + rng.normal(size=(40, 4))
    model = ObservationModel(
        lambda x, slope, sd: Normal((x * slope).sum(-1), sd), slope=Slope(), sd=Scale(random=False)
    )
    return GPS(model, algorithm=SHORT, n_chains=2).fit(X, y), X, y


def test_means_are_those_of_draws_weighted_by_the_likelihood(panel):
    uq, X, y = panel
    found = uq.explain_rows(X, y, n_draws=500)
    assert list(found.columns) == ["slope[x0]", "slope[x0]_sd", "effective_draws", "outlier_score", "outlier"]
    draws = uq.draws(500)
    slope, sd = draws["slope"].reshape(-1), draws["sd"].reshape(-1)
    for person in (0, 17):
        density = norm.pdf(y[person][:, None], X[person] * slope, sd).prod(0)
        weight = density / density.sum()
        mean = weight @ slope
        assert found["slope[x0]"][person] == pytest.approx(mean, abs=1e-4)
        assert found["slope[x0]_sd"][person] == pytest.approx(np.sqrt(weight @ (slope - mean) ** 2), abs=1e-4)
        assert found["effective_draws"][person] == pytest.approx(1 / (weight**2).sum(), rel=1e-3)


def test_an_observation_that_does_not_belong_is_an_outlier(panel):
    uq, X, y = panel
    wild = y.copy()
    wild[3] += 30.0
    found = uq.explain_rows(X, wild)
    assert found["outlier"][3]
    assert found["outlier"].sum() <= 2  # one in twenty may be called so by chance
    ordinary = uq.predict_draws(X, 1, seed=5)[0, 0]
    assert abs(uq.explain_rows(X, ordinary)["outlier_score"].mean()) < 1.0


def test_a_long_table_is_explained_by_label(panel):
    uq, X, y = panel
    labels = np.repeat([f"person {i}" for i in range(40)], 4)
    long = uq.explain_rows(X.reshape(-1, 1), y.ravel(), groups=labels)
    assert long.index[:2].tolist() == ["person 0", "person 1"]
    assert np.allclose(long["slope[x0]"], uq.explain_rows(X, y)["slope[x0]"], atol=1e-6)
    shorter = uq.explain_rows([X[0][:2], X[1]], [y[0][:2], y[1]])  # what is padded does not count
    alone = uq.explain_rows(X[:1, :2], y[:1, :2])
    assert shorter["slope[x0]"][0] == pytest.approx(alone["slope[x0]"][0], abs=1e-6)


def test_without_covariates_and_with_parameters_that_depend_on_x(rng):
    y = pd.Series(rng.normal(size=150), index=[f"row {i}" for i in range(150)])
    uq = GPS(ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location()), algorithm=SHORT).fit(y)
    assert uq.explain_rows(y).loc["row 140", "theta"] == pytest.approx(
        uq.explain_rows(y[140:141])["theta"].iloc[0], abs=1e-6
    )
    model = ObservationModel(lambda x, logits: Categorical(logits=logits), logits=Real(3))
    X, classes = rng.normal(size=(30, 2)), rng.integers(3, size=30)
    found = GPS(model, MLP(conditional=True), algorithm=SHORT, n_chains=2).fit(X, classes).explain_rows(X, classes)
    assert list(found.columns[:2]) == ["logits[0]", "logits[0]_sd"]
    assert np.isfinite(found.to_numpy(float)).all()


def test_observations_unlike_those_of_the_fit_are_refused(panel):
    uq, X, y = panel
    with pytest.raises(GPSError, match="there are no covariates"):
        uq.explain_rows(y)
    with pytest.raises(GPSError, match=r"has shape \(\), in the fit it had \(4,\)"):
        uq.explain_rows(X, y[:, 0])
    with pytest.raises(GPSError, match="one row of x has shape"):
        uq.explain_rows(np.zeros((40, 4, 2)), y)


def test_what_was_not_observed_is_left_out_of_the_likelihood():
    y, seen = torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[[[True, False]]]])
    two = Independent(Normal(torch.zeros(1, 1, 3, 2), 1.0), 1)
    assert torch.allclose(log_likelihood(two, y, seen), torch.full((1, 1, 3), norm.logpdf(0.0)))
    together = MultivariateNormal(torch.zeros(1, 1, 3, 2), torch.eye(2))
    assert log_likelihood(together, y, torch.ones_like(seen)).shape == (1, 1, 3)
    with pytest.raises(GPSError, match="only some were observed"):
        log_likelihood(together, y, seen)


def test_without_a_density_nothing_is_explained():
    class Silent(Normal):
        def log_prob(self, value):
            raise NotImplementedError

    with pytest.raises(GPSError, match="Silent has no log_prob"):
        log_likelihood(Silent(torch.zeros(1, 1, 3), 1.0), torch.zeros(1, 1, 1))


def test_moments_do_not_lose_digits_far_from_zero():
    values = (1e6 + torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)).reshape(1, 1, 3, 1)
    mean, sd, effective = moments(torch.zeros(1, 2, 3, dtype=torch.float64), values)
    assert mean.shape == (2, 1)
    assert sd[1, 0] == pytest.approx(np.sqrt(2 / 3))
    assert effective.tolist() == pytest.approx([3.0, 3.0])


def test_an_outcome_is_not_judged_by_the_theta_that_made_it():
    """With exact outcomes and scattered thetas only its own theta would find an outcome ordinary."""
    torch.manual_seed(0)
    scattered = Independent(Normal(1000.0 * torch.randn(1, 1, 64, 50), 1.0), 1)
    y = scattered.sample()[:, :, 0][:, :, None]
    stranger = Independent(Normal(1000.0 * torch.randn(1, 1, 1, 50), 1.0), 1).sample()
    scores = [float(surprise(scattered, observations(None, v[0, :, 0]).rows())) for v in (y, stranger)]
    assert abs(scores[1]) < 0.7 * abs(float(log_likelihood(scattered, stranger).max()))
