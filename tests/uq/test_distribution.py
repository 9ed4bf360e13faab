import sys

import numpy as np
import pandas as pd
import pytest
from torch.distributions import Normal

from gpsuq import GPS, MLP, GPSError, Location, ObservationModel, Scale
from gpsuq.core.intervals import between_chains
from gpsuq.core.models import categorical, linear_regression

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture(scope="module")
def uq():
    from gpsuq import Algorithm

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    algorithm = Algorithm(n_steps=60, batch_size=50, n_draws=20)
    return GPS(linear_regression(), algorithm=algorithm, n_chains=3).fit(X, X @ [1.0, 2.0] + rng.normal(size=200))


@pytest.fixture(scope="module")
def conditional_uq():
    from gpsuq import Algorithm

    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 1))
    model = ObservationModel(lambda x, loc, scale: Normal(loc, scale), loc=Location(), scale=Scale())
    algorithm = Algorithm(n_steps=20, batch_size=50, n_draws=10)
    return GPS(model, MLP(conditional=True), algorithm=algorithm, n_chains=2).fit(x, x[:, 0])


def test_draws_have_chains_and_draws_in_front(uq):
    draws = uq.draws(70)
    assert {name: value.shape for name, value in draws.items()} == {
        "slope": (3, 70, 2),
        "sigma": (3, 70),
        "intercept": (3, 70),
    }
    assert (draws["intercept"].std(1) < 1e-6).all()
    assert (draws["slope"].std(1) > 0).all()


def test_draws_do_not_depend_on_how_many_are_asked_for(uq):
    assert np.array_equal(uq.draws(1000)["slope"][:, :300], uq.draws(300)["slope"])
    assert not np.array_equal(uq.draws(10, seed=1)["slope"], uq.draws(10)["slope"])


def test_moments_and_quantiles_agree_with_the_draws(uq):
    draws = uq.draws(1000)["slope"]
    assert np.allclose(uq.mean()["slope"], draws.mean((0, 1)))
    assert np.allclose(uq.sd()["slope"], np.sqrt(draws.var(1, ddof=1).mean(0)))
    assert np.allclose(uq.quantiles([0.1, 0.9])["slope"], np.quantile(draws.reshape(-1, 2), [0.1, 0.9], axis=0))


def test_an_interval_says_what_it_is_of(uq):
    population, mean = uq.interval(0.9, of="population")["slope"], uq.interval(0.9, of="mean")["slope"]
    draws = uq.draws(4000)["slope"]
    inside = (draws >= population[0]) & (draws <= population[1])
    assert inside.mean() == pytest.approx(0.9, abs=0.01)
    assert np.allclose(mean.mean(0), draws.mean((0, 1)), atol=1e-5)
    with pytest.raises(TypeError):
        uq.interval(0.9)
    with pytest.raises(GPSError, match="population"):
        uq.interval(of="theta")
    with pytest.raises(GPSError, match="kind"):
        uq.interval(of="mean", kind="shortest")
    with pytest.raises(GPSError, match="symmetric"):
        uq.interval(of="mean", kind="highest-density")
    regions = uq.interval(0.9, of="population", kind="highest-density")
    assert len(regions["slope"]) == 2
    assert regions["slope"][0].shape[1] == regions["sigma"].shape[1] == 2


def test_summary_keeps_heterogeneity_and_estimation_apart(uq):
    table = uq.summary(0.9)
    assert list(table.index) == ["slope[x0]", "slope[x1]", "sigma", "intercept"]
    draws = uq.draws(4000)["slope"][..., 0]
    row = table.loc["slope[x0]"]
    assert row["heterogeneity_sd"] == pytest.approx(np.sqrt(draws.var(1, ddof=1).mean()), rel=1e-5)
    assert row["estimation_sd"] == pytest.approx(between_chains(draws.mean(1)), rel=1e-5)
    assert row["mean_lower"] < row["mean"] < row["mean_upper"]
    assert table.loc["intercept", "heterogeneity_sd"] < 1e-6


def test_predictions_are_mixtures_over_draws(uq):
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    draws = uq.predict_draws(X, 3000)
    assert draws.shape == (3, 3000, 3)
    parameters = uq.draws(3000)
    variance = parameters["sigma"] ** 2 + 0 * parameters["intercept"]
    expected = parameters["slope"].sum(-1) + parameters["intercept"]
    assert draws[..., 1].mean() == pytest.approx(expected.mean(), abs=0.06)
    assert draws[..., 1].var() == pytest.approx(variance.mean() + expected.var(), rel=0.08)
    assert np.allclose(uq.predict_mean(X, 3000)[1], expected.mean(), atol=1e-4)
    lower, upper = uq.predict_interval(X, 0.8, 3000)
    assert ((draws >= lower) & (draws <= upper)).mean() == pytest.approx(0.8, abs=0.02)


def test_predictions_in_chunks_stay_the_same_size(uq, monkeypatch):
    X = np.random.default_rng(1).normal(size=(40, 2))
    in_one = uq.predict_mean(X)
    monkeypatch.setattr("gpsuq.uq.predictions.ROWS", 7)
    assert np.allclose(uq.predict_mean(X), in_one)
    assert uq.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (3, 40)


def test_predictions_do_not_depend_on_how_many_are_asked_for(uq):
    X = np.random.default_rng(1).normal(size=(9, 2))
    assert np.array_equal(uq.predict_draws(X, 400)[:, :150], uq.predict_draws(X, 150))


def test_columns_are_matched_by_name(short, rng):
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    fitted = GPS(linear_regression(), algorithm=short).fit(X, X["a"] + rng.normal(size=60))
    assert np.array_equal(fitted.predict_mean(X[["b", "a"]]), fitted.predict_mean(X))
    with pytest.raises(GPSError, match="columns"):
        fitted.predict_mean(X.rename(columns={"a": "c"}))


def test_ragged_groups_are_predicted_with_nan_where_there_is_no_measure(short, rng):
    X = [rng.normal(size=(length, 1)) for length in (2, 3, 1) * 10]
    fitted = GPS(linear_regression(), algorithm=short).fit(X, [x[:, 0] for x in X])
    lower, upper = fitted.predict_interval(X[:3], n_draws=100)
    assert lower.shape == (3, 3)
    assert np.isnan(lower).tolist() == [[False, False, True], [False] * 3, [False, True, True]]
    assert (upper > lower)[~np.isnan(lower)].all()


def test_the_mean_prediction_of_a_classifier_is_its_probabilities(short, rng):
    X = rng.normal(size=(60, 2))
    fitted = GPS(categorical(3), MLP(conditional=True), algorithm=short).fit(X, rng.integers(3, size=60))
    assert np.allclose(fitted.predict_mean(X).sum(1), 1.0, atol=1e-5)


def test_parameters_that_depend_on_x_are_asked_with_x(conditional_uq):
    x = np.linspace(-1, 1, 5).reshape(-1, 1)
    assert conditional_uq.draws(30, x)["loc"].shape == (2, 30, 5)
    assert conditional_uq.interval(of="population", x=x)["loc"].shape == (2, 5)
    assert conditional_uq.predict_draws(x, 30).shape == (2, 30, 5)
    for call in (conditional_uq.draws, conditional_uq.summary, conditional_uq.to_datatree, conditional_uq.columns):
        with pytest.raises(GPSError, match="depend on x"):
            call()


def test_export_for_arviz(uq):
    tree = uq.to_datatree(50)
    assert tree["uq"]["slope"].dims == ("chain", "draw", "coef")
    assert tree["uq"]["slope"].shape == (3, 50, 2)
    assert "posterior" not in tree.children


def test_an_export_without_arviz_says_what_to_install(uq, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(GPSError, match=r"needs arviz_base: pip install 'gpsuq\[arviz\]'"):
        uq.to_datatree(10)


def test_the_export_is_what_arviz_reads_and_netcdf_holds(uq, tmp_path):
    arviz_stats = pytest.importorskip("arviz_stats", reason="arviz-stats is not installed")
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("xarray_einstats", reason="pip install gpsuq[arviz]")
    tree = uq.to_datatree(200)
    table = arviz_stats.summary(tree, group="uq", round_to="none")
    assert np.isclose(float(table.loc["sigma", "mean"]), uq.draws(200)["sigma"].mean(), rtol=1e-3)
    pytest.importorskip("h5py", reason="pip install gpsuq[arviz]")
    tree.to_netcdf(tmp_path / "uq.nc", engine="h5netcdf")
    again = xarray.open_datatree(tmp_path / "uq.nc", engine="h5netcdf")
    assert again["uq"]["slope"].dims == ("chain", "draw", "coef")
    assert bool((again["uq"]["slope"] == tree["uq"]["slope"]).all())
    again.close()


def test_tables_of_draws(uq):
    table = uq.columns(20)
    assert table.shape == (60, 4)
    assert table.index.names == ["chain", "draw"]
    assert np.allclose(table["slope[x1]"].to_numpy().reshape(3, 20), uq.draws(20)["slope"][..., 1])


def test_plots(uq):
    figure = uq.plot_marginals(n_draws=100)
    labels = [axis.get_xlabel() for axis in figure.axes if axis.get_visible()]
    assert labels == ["slope[x0]", "slope[x1]", "sigma"]  # the intercept is shared
    grid = uq.plot_pairs(parameters=["slope[x0]", "sigma"], n_draws=100)
    assert grid.axes[2].get_xlabel() == "slope[x0]"
    with pytest.raises(GPSError, match="no parameters named"):
        uq.plot_pairs(parameters=["beta"])


def test_too_many_parameters_for_one_figure_are_refused(short, rng):
    uq = GPS(linear_regression(), algorithm=short).fit(rng.normal(size=(60, 9)), rng.normal(size=60))
    with pytest.raises(GPSError, match="choose at most"):
        uq.plot_pairs()


def test_bad_requests_are_named(uq):
    with pytest.raises(GPSError, match="n_draws"):
        uq.draws(0)
    with pytest.raises(GPSError, match="coverage"):
        uq.predict_interval(np.zeros((1, 2)), 95)
    with pytest.raises(GPSError, match="NaN"):
        uq.predict_interval(np.array([[np.nan, 0.0]]))
    with pytest.raises(GPSError, match="one for each row"):
        uq.predict_draws(np.zeros((1, 2)), 10, n_observations=3)
    with pytest.raises(GPSError, match=r"shape \(5,\), in the fit it had \(2,\)"):
        uq.predict_interval(np.zeros((2, 5)))
    with pytest.raises(GPSError, match="shape"):
        uq.predict_interval(np.zeros((2, 1)))
    with pytest.raises(GPSError, match="one row per observation"):
        uq.predict_interval(3.0)


def test_one_chain_has_no_estimation_uncertainty(short, rng):
    one = GPS(ObservationModel(Normal, loc=Location(), scale=Scale()), algorithm=short, n_chains=1).fit(
        rng.normal(size=60)
    )
    assert np.isnan(one.summary()["estimation_sd"]).all()
    with pytest.raises(GPSError, match="at least 2 chains"):
        one.interval(of="mean")
