"""The one entry for any model: what users would try first, and what they would get wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Independent,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    TanhTransform,
    TransformedDistribution,
)
from torch.utils.data import DataLoader, TensorDataset

import gpsuq.engine.loop
from gpsuq import (
    GPS,
    MLP,
    MMD,
    Algorithm,
    Algorithm1,
    EnergyDistance,
    FromModule,
    Gaussian,
    GPSError,
    GPSWarning,
    Laplace,
    Location,
    Mixture,
    ObservationModel,
    Positive,
    Real,
    Scale,
    SlicedWasserstein,
    Slope,
    load,
)
from gpsuq.core.models import categorical, linear_regression, poisson_counts
from gpsuq.datasets import scissors
from paper.scissors import slope_metrics

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


def bimodal(rng, n=600):
    return np.where(rng.random(n) < 0.3, -3.0, 3.0) + rng.normal(size=n)


# --- the shape of the law --------------------------------------------------------------------------------------------


def random_slopes(rng, slopes):
    X = rng.normal(size=(len(slopes), 1))
    return X, X[:, 0] * slopes + 0.5 * rng.normal(size=len(slopes))


RANDOM_SLOPES = ObservationModel(
    lambda x, slope, scale: Normal((x * slope).sum(-1), scale), slope=Slope(), scale=Scale(random=False)
)


@pytest.mark.parametrize(("two_groups", "chosen"), [(True, "free"), (False, "affine")])
def test_a_law_is_bent_where_observations_ask_for_it(two_groups, chosen, tmp_path):
    """A Normal law is met by an affine generator, and two groups are not made into one."""
    rng = np.random.default_rng(2)
    slopes = rng.choice([-1.0, 2.0], 200) if two_groups else rng.normal(0.5, 1.5, 200)
    gps = GPS(RANDOM_SLOPES)
    uq = gps.fit(*random_slopes(rng, slopes))
    assert gps.law_scores["chosen"].idxmax() == chosen
    assert gps.law_scores["score"].idxmin() == chosen
    found = np.sort(uq.draws(500)["slope"].ravel())
    true = np.quantile(slopes, (np.arange(len(found)) + 0.5) / len(found))
    assert np.abs(found - true).mean() < 0.2 * 1.5
    uq.save(tmp_path / "model")
    again = load(tmp_path / "model", model=RANDOM_SLOPES).draws(500)["slope"]
    assert np.array_equal(np.sort(again.ravel()), found)


def test_a_generator_or_a_kernel_that_was_asked_for_is_taken(rng, short):
    X, y = random_slopes(rng, rng.normal(size=200))
    for options in ({"generator": MLP()}, {"distance": MMD()}, {"holdout": 0.0}):
        gps = GPS(RANDOM_SLOPES, algorithm=short, n_chains=2, **options)
        uq = gps.fit(X, y)
        assert gps.law_scores is None
        assert uq.generator.body.spec.hidden == MLP().hidden


def test_a_choice_of_laws_goes_on_where_it_was_cut_off(rng, tmp_path, monkeypatch):
    X, y = random_slopes(rng, rng.normal(size=200))
    gps = GPS(RANDOM_SLOPES, algorithm=Algorithm(n_steps=40), n_chains=2)
    whole = gps.fit(X, y).draws(5)["slope"]
    steps, take_step = [], gpsuq.engine.loop.take_step

    def cut_off(task, *arguments):
        if len(steps) == 60:  # in the second training
            raise KeyboardInterrupt
        steps.append(task)
        take_step(task, *arguments)

    monkeypatch.setattr(gpsuq.engine.loop, "take_step", cut_off)
    with pytest.raises(KeyboardInterrupt):
        gps.fit(X, y, checkpoint=tmp_path, checkpoint_every=10)
    steps.clear()
    assert np.array_equal(gps.fit(X, y, checkpoint=tmp_path, checkpoint_every=10).draws(5)["slope"], whole)
    assert len(steps) == 20


# --- three models, three lines each ----------------------------------------------------------------------------------


def test_normal_means_with_two_modes_and_no_covariates(rng):
    """y_i ~ N(theta_i, 1), theta_i = -3 (30%) or 3 (70%)."""
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    uq = GPS(model, algorithm=Algorithm(n_steps=300), n_chains=2).fit(bimodal(rng))
    theta = uq.draws(2000)["theta"].ravel()
    assert (theta < 0).mean() == pytest.approx(0.3, abs=0.07)
    assert (np.abs(np.abs(theta) - 3) < 1).mean() > 0.85
    pieces = uq.interval(0.8, of="population", kind="highest-density")["theta"]
    assert len(pieces) == 2


def test_student_t_regression_by_monte_carlo(rng):
    X = rng.normal(size=(500, 2))
    y = X @ [2.0, -1.0] + 0.5 * rng.standard_t(3, size=500)
    model = ObservationModel(
        lambda x, slope, scale: StudentT(3.0, (x * slope).sum(-1), scale),
        slope=Slope(), scale=Scale(random=False),
    )  # fmt: skip
    uq = GPS(model, algorithm=Algorithm(n_steps=600, n_draws=30), n_chains=2, spread_weight=0.3).fit(X, y)
    assert uq.mean()["slope"] == pytest.approx([2.0, -1.0], abs=0.15)
    assert 0.25 < uq.mean()["scale"] < 0.75


def test_sampling_in_the_place_of_an_exact_score_is_said(rng, short):
    y = rng.standard_t(4, size=100)
    model = ObservationModel(lambda loc, scale: StudentT(4.0, loc, scale), loc=Location(), scale=Scale())

    def sampled(model, **options):
        return [
            finding.message
            for finding in GPS(model, distance=MMD(), algorithm=replace(short, **options)).fit(y).findings
            if finding.code == "sampled"
        ]

    with pytest.warns(GPSWarning, match="closed form") as caught:
        (message,) = sampled(model)
    assert "StudentT" in message
    assert "n_outcomes" in message
    assert "register_kernel_mean" in message
    assert len([w for w in caught if str(w.message) == message]) == 1
    assert sampled(model, n_outcomes=5) == []

    class Own(Normal):
        pass

    assert sampled(ObservationModel(Own, loc=Location(), scale=Scale())) == []


def test_negative_binomial_regression_by_enumeration(rng):
    x = rng.normal(size=(400, 1))
    mean = np.exp(1.0 + 0.5 * x[:, 0])
    y = rng.poisson(mean * rng.gamma(4.0, 1 / 4.0, size=400))
    model = ObservationModel(
        lambda x, slope, level, size: NegativeBinomial(size, logits=level + (x * slope).sum(-1) - size.log()),
        slope=Real(1, random=False), level=Real(), size=Positive(random=False),
    )  # fmt: skip
    uq = GPS(model, algorithm=Algorithm(n_steps=400, n_draws=10), n_chains=2).fit(x, y)
    assert float(uq.mean()["slope"][0]) == pytest.approx(0.5, abs=0.15)
    assert float(uq.mean()["level"]) == pytest.approx(1.0, abs=0.25)


# --- observations that are vectors -----------------------------------------------------------------------------------


def test_repeated_measures_of_a_subject_share_one_slope(rng):
    """One slope per subject, from ragged groups: found with its spread, which single rows also show, and its noise."""
    slopes = np.where(rng.random(150) < 0.5, 1.0, -1.0)
    lengths = rng.integers(2, 6, size=150)
    X = [rng.normal(size=(k, 1)) for k in lengths]
    y = [x[:, 0] * slope + 0.3 * rng.normal(size=len(x)) for x, slope in zip(X, slopes, strict=True)]
    algorithm = Algorithm(n_steps=800, n_draws=50)
    uq = GPS(linear_regression(intercept=False), algorithm=algorithm, n_chains=2, reweight=None, holdout=0.0).fit(X, y)
    draws = uq.draws(2000)
    metrics = slope_metrics(draws["slope"])
    assert metrics["near_truth"] > 0.85
    assert metrics["positive"] == pytest.approx((slopes > 0).mean(), abs=0.1)
    assert np.median(draws["sigma"]) == pytest.approx(0.3, abs=0.12)


def test_a_block_of_counts_shares_one_rate(rng, short):
    counts = rng.poisson(rng.gamma(5.0, 1.0, size=(80, 1)), size=(80, 4))
    model = ObservationModel(lambda rate: Poisson(rate[..., None].expand(*rate.shape, 4)), rate=Positive())
    uq = GPS(model, algorithm=short).fit(counts)
    assert uq.predict_draws(n_draws=50, n_observations=3).shape == (8, 50, 3, 4)


def test_several_outputs(rng, short):
    y = rng.normal(size=(100, 2)) * [1.0, 50.0] + [0.0, 300.0]
    model = ObservationModel(lambda loc, scale: Independent(Normal(loc, scale), 1), loc=Location(2), scale=Scale(2))
    uq = GPS(model, algorithm=short).fit(y)
    assert uq.mean()["loc"] == pytest.approx([0.0, 300.0], abs=60)
    assert uq.predict_interval().shape == (2, 1, 2)


def test_padded_groups_with_a_mask_equal_ragged_ones(rng, short):
    X = [rng.normal(size=(k, 1)) for k in (2, 3, 1) * 10]
    y = [x[:, 0] for x in X]
    ragged = GPS(linear_regression(intercept=False), algorithm=short).fit(X, y).draws(20)
    padded = np.full((30, 3), np.nan)
    inputs = np.zeros((30, 3, 1))
    for row, (a, b) in enumerate(zip(X, y, strict=True)):
        padded[row, : len(b)], inputs[row, : len(b)] = b, a
    masked = (
        GPS(linear_regression(intercept=False), algorithm=short).fit(inputs, padded, mask=~np.isnan(padded)).draws(20)
    )
    assert np.allclose(ragged["slope"], masked["slope"], atol=1e-5)


LOGIT = ObservationModel(
    lambda x, taste, level: Bernoulli(logits=(x * taste).sum(-1) + level),
    taste=Real("features"), level=Real(random=False),
)  # fmt: skip


def choices(rng, n=200, n_tasks=8):
    """Yes or no to offers of two attributes; half the persons like the first one, the others do not."""
    taste = np.column_stack([np.where(rng.random(n) < 0.5, -2.0, 2.0), np.ones(n)])
    X = rng.normal(size=(n, n_tasks, 2))
    probability = 1 / (1 + np.exp(-np.einsum("ntp,np->nt", X, taste)))
    return X, (rng.random((n, n_tasks)) < probability).astype(float), taste


@pytest.mark.slow
def test_a_logit_with_random_slopes_over_a_panel(rng):
    X, y, taste = choices(rng)
    algorithm = Algorithm(n_steps=300, n_draws=20)
    uq = GPS(LOGIT, algorithm=algorithm, n_chains=2, reweight=None, holdout=0.0).fit(X, y)
    first = uq.draws(1000)["taste"][..., 0]
    assert (first > 0).mean() == pytest.approx((taste[:, 0] > 0).mean(), abs=0.15)
    assert np.median(np.abs(first)) > 1.0
    person = uq.explain_rows(X, y)
    assert ((person["taste[x0]"] > 0) == (taste[:, 0] > 0)).mean() > 0.9


def test_a_long_table_ragged_lists_and_padded_arrays_are_one_fit(rng, short):
    X, y, _ = choices(rng, 30, 4)
    person = np.repeat(np.arange(30), 4)
    kept = rng.random(120) < 0.8
    kept[:4] = True
    lists = [[values[kept & (person == i)] for i in range(30) if kept[person == i].any()]
             for values in (X.reshape(-1, 2), y.ravel())]  # fmt: skip
    table = pd.DataFrame(X.reshape(-1, 2)[kept], columns=["price", "time"])
    ragged = GPS(LOGIT, algorithm=short).fit(*lists)
    long = GPS(LOGIT, algorithm=short).fit(table, y.ravel()[kept], groups=person[kept])
    assert np.allclose(ragged.draws(20)["taste"], long.draws(20)["taste"], atol=1e-5)
    assert list(long.summary().index) == ["taste[price]", "taste[time]", "level"]
    probabilities = long.predict_mean([X[0], X[1][:2]])
    assert probabilities.shape == (2, 4)
    assert np.isnan(probabilities[1]).tolist() == [False, False, True, True]


def test_probabilities_of_ragged_choices_are_hidden_where_there_is_no_task(rng, short):
    X, y = rng.normal(size=(20, 4, 3, 2)), rng.integers(3, size=(20, 4))
    model = ObservationModel(lambda x, taste: Categorical(logits=(x * taste).sum(-1)), taste=Real("features"))
    probabilities = GPS(model, algorithm=short).fit(X, y).predict_mean([X[0], X[1][:2]])
    assert probabilities.shape == (2, 4, 3)
    assert np.isnan(probabilities).all(-1).tolist() == [[False] * 4, [False, False, True, True]]
    assert np.allclose(probabilities[0].sum(-1), 1.0, atol=1e-5)


def test_predictions_of_a_long_table_have_its_rows(rng, short):
    X, y, _ = choices(rng, 20, 4)
    table, person = X.reshape(-1, 2), np.repeat(np.arange(20), 4)
    uq = GPS(LOGIT, algorithm=short).fit(X, y)
    mixed = rng.permutation(80)[:70]  # persons in any order, some without all of their rows
    rows = {"groups": person[mixed]}
    assert np.allclose(uq.predict_mean(table[mixed], **rows), uq.predict_mean(X).ravel()[mixed], atol=1e-6)
    assert uq.predict_draws(table[mixed], 30, **rows).shape == (8, 30, 70)
    assert uq.predict_interval(table[mixed], n_draws=30, **rows).shape == (2, 70)
    with pytest.raises(GPSError, match="groups are labels of the rows of x"):
        uq.predict_mean(**rows)


# --- concomitants: G(w, Z) -------------------------------------------------------------------------------------------

LINES = ObservationModel(
    lambda x, slope, scale: Normal((x * slope).sum(-1), scale), slope=Slope(), scale=Scale(random=False)
)


def lines(rng, n=400):
    """Slopes of 2 or -2, the first more often where w is large."""
    X, w = rng.normal(size=(n, 3, 1)), pd.DataFrame({"age": rng.uniform(-2, 2, n), "noise": rng.normal(size=n)})
    slope = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * w["age"])), 2.0, -2.0)
    return X, (X * slope[:, None, None]).sum(-1) + 0.5 * rng.normal(size=(n, 3)), w, slope


@pytest.mark.slow
def test_the_law_moves_with_concomitants(rng):
    X, y, w, slope = lines(rng)
    uq = GPS(LINES, algorithm=Algorithm(n_steps=300, n_draws=10), n_chains=2).fit(X, y, concomitants=w)
    young, old = ((uq.draws(500, [[age, 0.0]])["slope"] > 0).mean() for age in (-1.5, 1.5))
    assert young < 0.2
    assert old > 0.8
    assert uq.summary(x=w).loc["slope[x0]", "mean"] == pytest.approx(slope.mean(), abs=0.3)
    person = uq.explain_rows(X, y, concomitants=w)
    assert ((person["slope[x0]"] > 0) == (slope > 0)).mean() > 0.95
    assert uq.predict_mean(X[:2] * 0 + 1, concomitants=w[:2]).shape == (2, 3)


def test_concomitants_come_by_person_or_by_row_and_are_saved(rng, short, tmp_path):
    X, y, w, _ = lines(rng, 40)
    person = np.repeat(np.arange(40), 3)
    long = (X.reshape(-1, 1), y.ravel())
    by_person = GPS(LINES, algorithm=short).fit(X, y, concomitants=w)
    by_row = GPS(LINES, algorithm=short).fit(*long, groups=person, concomitants=w.iloc[person])
    assert by_person.concomitants == ["age", "noise"]
    assert np.allclose(by_person.draws(20, w)["slope"], by_row.draws(20, w)["slope"], atol=1e-5)
    again = load(by_person.save(tmp_path / "uq"), model=LINES)
    turned = w[["noise", "age"]]  # names tell columns apart
    assert np.array_equal(again.draws(20, turned)["slope"], by_person.draws(20, w)["slope"])
    rows = again.predict_mean(long[0], groups=person, concomitants=w.iloc[person])
    assert np.allclose(rows.reshape(40, 3), by_person.predict_mean(X, concomitants=w), atol=1e-6)
    level = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    assert GPS(level, algorithm=short).fit(y[:, 0], concomitants=w).predict_mean(concomitants=w[:5]).shape == (5,)


def test_mistakes_with_concomitants_are_named(rng, short):
    X, y, w, _ = lines(rng, 40)
    person, values = np.repeat(np.arange(40), 3), rng.normal(size=(120, 1))
    fit = GPS(LINES, algorithm=short).fit
    with pytest.raises(GPSError, match="concomitants differ within a group in rows 1, 2"):
        fit(X.reshape(-1, 1), y.ravel(), groups=person, concomitants=values)
    with pytest.raises(GPSError, match="concomitants have 39 rows for 40 observations"):
        fit(X, y, concomitants=w[1:])
    with pytest.raises(GPSError, match=r"must have rows and columns, got shape \(40,\)"):
        fit(X, y, concomitants=w["age"])
    uq = fit(X, y, concomitants=w)
    with pytest.raises(GPSError, match="depends on age, noise: pass concomitants"):
        uq.predict_mean(X)
    with pytest.raises(GPSError, match=r"pass x=\.\.\., rows of age, noise"):
        uq.draws(10)
    with pytest.raises(GPSError, match="there are 1 concomitants, the fit had 2"):
        uq.draws(10, [[0.0]])
    with pytest.raises(GPSError, match="the fit had no concomitants"):
        fit(X, y).predict_mean(X, concomitants=w)
    with pytest.raises(GPSError, match="a generator that sees them"):
        GPS(LINES, FromModule(nn.Linear(2, 1), noise_dim=2), algorithm=short).fit(X, y, concomitants=w)


# --- generators, distances, kernels ----------------------------------------------------------------------------------


def test_a_classifier_from_a_conditional_generator(rng):
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int) + (X[:, 1] > 1)
    uq = GPS(categorical(3), MLP(conditional=True), algorithm=Algorithm(n_steps=300, n_draws=10), n_chains=2).fit(X, y)
    logits = torch.from_numpy(uq.draws(200, X)["logits"])
    assert logits.shape == (2, 200, 400, 3)
    accuracy = (logits.softmax(-1).mean((0, 1)).argmax(-1).numpy() == y).mean()
    assert accuracy > 0.85


def test_a_module_of_the_users_as_generator(rng, short):
    module = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    uq = GPS(model, FromModule(module, noise_dim=3), algorithm=short).fit(bimodal(rng, 100))
    assert uq.draws(50)["theta"].shape == (8, 50)


@pytest.mark.parametrize(
    "distance",
    [
        MMD(Gaussian()),
        MMD(Laplace("median")),
        MMD(Mixture.of_scales(Gaussian("robust"), (0.1, 1.0, 10.0))),
        MMD(lambda a, b: torch.exp(-(a - b).square().sum(-1))),
        EnergyDistance(),
        SlicedWasserstein(),
    ],
    ids=["gaussian", "laplace", "mixture", "own", "energy", "wasserstein"],
)
def test_every_distance_moves_the_location(distance, rng):
    y = rng.normal(5.0, 1.0, size=150)
    model = ObservationModel(lambda loc: Normal(loc, 1.0), loc=Location())
    options = {"reweight": None, "holdout": 0.0} if isinstance(distance, SlicedWasserstein) else {}
    uq = GPS(model, distance=distance, algorithm=Algorithm(n_steps=200, n_draws=20), **options).fit(y)
    assert float(uq.mean()["loc"]) == pytest.approx(5.0, abs=0.4)
    assert float(uq.sd()["loc"]) < 0.9


def test_algorithm1_finds_two_modes(rng):
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    algorithm = Algorithm1(learning_rate=1.0, n_steps=1500, patience=None)
    theta = GPS(model, distance=MMD(Gaussian(4.0)), algorithm=algorithm, n_chains=2).fit(bimodal(rng)).draws()["theta"]
    assert theta.std() > 1.5
    assert 0.1 < (theta < 0).mean() < 0.5


# --- scissors --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_scissors_are_found_with_default_settings():
    data = scissors(seed=11)
    uq = GPS(linear_regression(intercept=False), seed=11).fit(data.X, data.y)
    metrics = slope_metrics(uq.draws(4000)["slope"])
    assert metrics["near_truth"] >= 0.93
    assert 0.45 <= metrics["positive"] <= 0.55
    assert metrics["wasserstein1"] <= 0.10
    lower, upper = uq.predict_interval(data.X[:500], 0.9)
    assert 0.85 < ((data.y[:500] >= lower) & (data.y[:500] <= upper)).mean() < 0.95


# --- units, types, loaders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_results_follow_the_units_of_the_data(scale, rng, short):
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    base = GPS(linear_regression(), algorithm=short).fit(X, y).mean()
    scaled_y = GPS(linear_regression(), algorithm=short).fit(X, y * scale).mean()
    scaled_x = GPS(linear_regression(), algorithm=short).fit(X * scale, y).mean()
    assert scaled_y["slope"] == pytest.approx(base["slope"] * scale, rel=1e-2)
    assert scaled_y["sigma"] == pytest.approx(base["sigma"] * scale, rel=1e-2)
    assert scaled_x["slope"] == pytest.approx(base["slope"] / scale, rel=1e-2)


def test_float64_precision(rng, short):
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    y = rng.normal(size=100) + 1e9  # beyond the digits of float32
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    uq = GPS(model, algorithm=short, fabric=fabric).fit(y)
    draws = uq.draws(20)["loc"]
    assert draws.dtype == np.float64
    assert abs(float(uq.mean()["loc"]) - 1e9) < 5


def test_tables_keep_their_names(rng, short):
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["age", "dose"])
    uq = GPS(linear_regression(), algorithm=short).fit(X, pd.Series(rng.normal(size=60)))
    assert list(uq.summary().index) == ["slope[age]", "slope[dose]", "sigma", "intercept"]
    assert list(uq.to_datatree(10)["uq"]["coef"].values) == ["age", "dose"]


def test_a_data_loader_with_validation(rng, short):
    data = TensorDataset(torch.randn(90, 2), torch.randn(90))
    train, validation = DataLoader(data, batch_size=20, shuffle=True), DataLoader(data, batch_size=30)
    make = lambda: GPS(linear_regression(), algorithm=short).fit(train, validation=validation)  # noqa: E731
    uq = make()
    assert np.array_equal(uq.draws(5)["slope"], make().draws(5)["slope"])
    assert len(uq.history.held_out) > 0
    with pytest.raises(GPSError, match="bootstrap weights"):
        uq.interval(of="mean")


def test_weights_of_zero_leave_observations_out(rng, short):
    y = np.concatenate([rng.normal(size=60), rng.normal(50, 1, size=20)])
    weight = np.repeat([1.0, 0.0], [60, 20])
    uq = GPS(ObservationModel(Normal, loc=Location(), scale=Scale()), algorithm=Algorithm(n_steps=200), n_chains=2).fit(
        y, weight=weight
    )
    assert abs(float(uq.mean()["loc"])) < 1.5


@pytest.mark.parametrize("n", [2, 3])
def test_very_few_observations_still_fit(n, rng, short):
    uq = GPS(ObservationModel(Normal, loc=Location(), scale=Scale()), algorithm=short).fit(rng.normal(size=n))
    assert np.isfinite(uq.draws(10)["loc"]).all()


def test_the_progress_bar_speaks_only_when_asked(rng, short, capsys):
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    GPS(model, algorithm=short).fit(rng.normal(size=40))
    assert capsys.readouterr() == ("", "")
    GPS(model, algorithm=short, progress=True).fit(rng.normal(size=40))
    out, err = capsys.readouterr()
    assert out == ""  # nothing in a pipe but results
    assert "training" in err
    assert "/s" in err


# --- mistakes --------------------------------------------------------------------------------------------------------

ANY = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())


@pytest.mark.parametrize(
    ("model", "arguments", "match"),
    [
        (ANY, ([np.nan, 1.0],), "row 0"),
        (ANY, ([np.inf, 1.0],), "row 0"),
        (ANY, ([],), "empty"),
        (ANY, (np.arange(6.0).reshape(3, 2),), "shape"),
        (ANY, ([1.0],), "hardly differ"),
        (ANY, ([2.0, 2.0, 2.0],), "hardly differ"),
        (linear_regression(), (np.zeros((3, 1)), np.zeros(4)), "3 rows but y has 4"),
        (linear_regression(), (np.zeros(3),), "needs covariates"),
        (poisson_counts(), ([1, -2, 3],), r"outside the support of Poisson.*row 1"),
        (poisson_counts(), ([1.5, 2.0],), r"outside the support"),
        (ObservationModel(lambda p: Binomial(10, logits=p), p=Real()), ([3.0, 15.0],), r"outside the support.*row 1"),
        (ObservationModel(lambda theta: 3.0, theta=Real()), ([1.0, 2.0],), "must return a torch"),
        (ObservationModel(lambda theta: Normal(0.0, theta), theta=Real()), ([1.0, 2.0],), "constraint"),
    ],
)
def test_bad_input_names_the_culprit(model, arguments, match, short):
    with pytest.raises(GPSError, match=match):
        GPS(model, algorithm=short).fit(*arguments)


def test_ten_typical_mistakes_name_the_culprit_and_the_fix(rng, short):
    X, y, _ = choices(rng, 30, 4)
    fit = GPS(LOGIT, algorithm=short).fit

    def fitted(function, *data, **declared):
        return GPS(ObservationModel(function, **declared), algorithm=short).fit(*data)

    flat = {"taste": Real("features")}
    mistakes = {
        "wrong shape": (
            lambda: fitted(lambda x, taste: Bernoulli(logits=(x * taste[..., None]).sum(-1)), X, y, **flat),
            ["x (4, 2), y (4,), taste (1, 2)", "event shape (4,)", "test_gps.py, line", "trailing dimensions"],
        ),
        "transposed y": (lambda: fit(X, y.T), ["30 rows but y has 4", "pass y.T"]),
        "x missing": (
            lambda: fitted(lambda x, level: Bernoulli(logits=level + x[..., 0]), y[:, 0], level=Real()),
            ["takes x", "call fit(X, y)"],
        ),
        "x not wanted": (
            lambda: fitted(Normal, X[:, 0], y[:, 0], loc=Location(), scale=Scale()),
            ["there are covariates X", "function(x, loc, scale), or call fit(y)"],
        ),
        "parameter undeclared": (
            lambda: fitted(lambda x, taste, level: Bernoulli(logits=(x * taste).sum(-1) + level), X, y, **flat),
            ["takes level, which is not declared", "level=Real()"],
        ),
        "declared in vain": (
            lambda: fitted(lambda x, taste: Bernoulli(logits=(x * taste).sum(-1)), X, y, level=Real(), **flat),
            ["declares level", "add level to its arguments"],
        ),
        "support wrong": (lambda: fit(X, 3 * y), ["support of Bernoulli (0 or 1)", "first is row", "Categorical"]),
        "a tensor": (
            lambda: fitted(lambda x, taste: (x * taste).sum(-1), X, y, **flat),
            ["returned Tensor", "Bernoulli(logits=value)"],
        ),
        "batch reduced": (
            lambda: fitted(lambda x, taste: Bernoulli(logits=(x * taste).sum()), X, y, **flat),
            ["lost chains, observations or draws", "made      Bernoulli of batch shape ()", ".sum(-1)"],
        ),
        "ragged lists": (lambda: fit([*X[:5], X[5][:2]], list(y[:6])), ["group 5: X has 2 rows but y has 4"]),
        "no gradient": (
            lambda: fitted(lambda loc, sd: Normal(loc, sd + (0 * sd).sqrt()), y[:, 0], loc=Location(), sd=Scale()),
            ["no chain has a finite gradient", "with respect to sd (from", "clamp_min"],
        ),
        "constant y": (
            lambda: fitted(Normal, np.full(9, 2.0), loc=Location(), scale=Scale()),
            ["y is constant, 9 times 2.0", "right column"],
        ),
    }
    for name, (mistake, expected) in mistakes.items():
        with pytest.raises(GPSError) as caught:
            mistake()
        missing = [words for words in expected if words not in str(caught.value)]
        assert not missing, f"{name}: {missing} not in {caught.value}"


def test_large_counts_are_met(rng, short):
    uq = GPS(poisson_counts(), algorithm=Algorithm(n_steps=100, n_draws=20), n_chains=2).fit(
        rng.poisson(2000, size=200)
    )
    assert float(uq.mean()["rate"]) == pytest.approx(2000, rel=0.15)


def test_a_model_without_moments_is_fitted(rng, short):
    model = ObservationModel(
        lambda theta: TransformedDistribution(Normal(theta, 1.0), [TanhTransform()]), theta=Location()
    )
    assert GPS(model, algorithm=short).fit(np.tanh(rng.normal(size=60))).draws(5)["theta"].shape == (8, 5)
    with pytest.raises(GPSError, match="has no mean"):
        GPS(model, algorithm=short, spread_weight=0.1).fit(np.tanh(rng.normal(size=60)))


def test_several_categories_per_observation(rng, short):
    model = ObservationModel(lambda logits: Independent(Categorical(logits=logits), 1), logits=Real((2, 3)))
    uq = GPS(model, algorithm=short).fit(rng.integers(3, size=(60, 2)))
    assert uq.predict_mean().shape == (1, 2, 3)


def test_alternatives_that_were_not_offered_are_never_chosen(rng, short):
    model = ObservationModel(lambda x, taste: Categorical(logits=(x * taste).sum(-1)), taste=Real("features"))
    offers = [[rng.normal(size=(size, 2)) for size in rng.integers(2, 5, size=rng.integers(1, 4))] for _ in range(30)]
    chosen = [np.array([int(offer[:, 0].argmax()) for offer in person]) for person in offers]
    for distance in (None, MMD()):
        uq = GPS(model, distance=distance, algorithm=short, n_chains=2).fit(offers, chosen)
        assert uq.draws(5)["taste"].shape == (2, 5, 2)
        assert bool(uq.history.score().isfinite().all())
    padded = np.full((1, 2, 4, 2), np.nan)
    padded[0, :, :3] = rng.normal(size=(2, 3, 2))
    probability = uq.predict_mean(padded, n_draws=10)
    assert probability[..., 3] == pytest.approx(0.0)
    assert probability.sum(-1) == pytest.approx(1.0)
    with pytest.raises(GPSError, match="not offered in rows 0"):
        GPS(model, algorithm=short).fit(np.repeat(padded, 20, 0), np.full((20, 2), 3))
    with pytest.raises(GPSError, match="must return a Categorical"):
        GPS(ObservationModel(lambda x, taste: Normal((x * taste).sum((-1, -2)), 1.0), taste=Real("features")),
            algorithm=short).fit(np.repeat(padded, 20, 0), rng.normal(size=(20, 2)))  # fmt: skip


def test_results_do_not_depend_on_how_classes_are_numbered(rng, short):
    X, y = rng.normal(size=(80, 1)), rng.integers(2, size=80)
    first = GPS(categorical(10), MLP(conditional=True), MMD(), algorithm=short, spread_weight=0.1).fit(X, y)
    second = GPS(categorical(10), MLP(conditional=True), MMD(), algorithm=short, spread_weight=0.1).fit(X, y * 9)
    assert first.history.score()[0] == pytest.approx(second.history.score()[0], abs=0.1)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_energy_distance_follows_the_units_too(scale, rng, short):
    y = rng.normal(size=80)
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    plain, scaled = (GPS(model, distance=EnergyDistance(), algorithm=short).fit(v) for v in (y, y * scale))
    assert float(scaled.mean()["scale"]) == pytest.approx(float(plain.mean()["scale"]) * scale, rel=1e-2)


def test_a_subjects_covariates_may_go_with_ragged_measures(rng, short):
    model = ObservationModel(
        lambda x, slope, sigma: Normal((x * slope).sum(-1)[..., None].expand(-1, -1, -1, 3), sigma[..., None]),
        slope=Slope(), sigma=Scale(),
    )  # fmt: skip
    y = [rng.normal(size=length) for length in (1, 2, 3) * 10]
    uq = GPS(model, algorithm=short).fit(rng.normal(size=(30, 2)), y)
    assert uq.draws(5)["slope"].shape == (8, 5, 2)


def test_weights_that_are_no_frequencies_are_said(rng, short):
    y = rng.normal(size=60)
    with pytest.warns(GPSWarning, match="taken as frequencies"):
        GPS(ANY, algorithm=short).fit(y, weight=np.full(60, 1 / 60))
    with pytest.raises(GPSError, match="so small"):
        GPS(ANY, algorithm=short).fit(y, weight=np.full(60, 1e-30))


def test_digits_that_float32_cannot_hold_are_said(rng, short):
    with pytest.warns(GPSWarning, match="seven digits"):
        GPS(ANY, algorithm=short).fit(1e6 + 0.3 * rng.normal(size=60))


def test_one_step_is_a_fit(rng):
    assert GPS(ANY, algorithm=Algorithm(n_steps=1)).fit(y=rng.normal(size=30)).draws(3)["theta"].shape == (8, 3)


def test_bad_arguments_name_the_culprit(rng):
    with pytest.raises(GPSError, match="model must be"):
        GPS(lambda theta: Normal(theta, 1.0))
    with pytest.raises(GPSError, match="distance must be"):
        GPS(ANY, distance=Gaussian())
    with pytest.raises(GPSError, match="algorithm must be"):
        GPS(ANY, algorithm="adam")
    loader = DataLoader(TensorDataset(torch.randn(4)), batch_size=2)
    with pytest.raises(GPSError, match="nothing beside it"):
        GPS(ANY).fit(loader, rng.normal(size=4))
    with pytest.raises(GPSError, match="nothing beside it"):
        GPS(ANY).fit(loader, groups=[1, 2, 3, 4])
    with pytest.raises(GPSError, match="validation is for DataLoaders"):
        GPS(ANY).fit(rng.normal(size=4), validation=loader)
    with pytest.raises(GPSError, match="no observation weights"):
        GPS(ANY, distance=SlicedWasserstein()).fit(rng.normal(size=40))
    with pytest.raises(GPSError, match="folds need"):
        GPS(ANY, n_chains=2, folds=(0, 1)).fit(loader)
    with pytest.raises(GPSError, match="checkpoint_every"):
        GPS(ANY).fit(rng.normal(size=40), checkpoint_every=0)
    with pytest.raises(GPSError, match="needs observations"):
        GPS(ANY).fit()
    with pytest.raises(GPSError, match="finite"):
        GPS(ANY, spread_weight=np.nan)
    with pytest.raises(GPSError, match="integer"):
        Algorithm(n_draws=8.5)
    for bandwidth in (None, [1.0]):
        with pytest.raises(GPSError, match="positive number"):
            Gaussian(bandwidth)
    with pytest.raises(GPSError, match="generator failed"):
        GPS(linear_regression(), FromModule(nn.Linear(3, 7), 2, conditional=True)).fit(np.eye(4), np.arange(4.0))


def test_fits_in_threads_are_those_one_by_one(rng, threads):
    """Outcomes are sampled from torch's one generator, which threads share."""
    y = rng.normal(size=40)
    model = ObservationModel(lambda loc, scale: StudentT(4.0, loc, scale), loc=Location(), scale=Scale())

    def fitted(seed):
        return GPS(model, MLP(hidden=(4,)), algorithm=Algorithm(n_steps=20), seed=seed).fit(y).draws(5)["loc"]

    for alone, together in zip(map(fitted, range(4)), threads.map(fitted, range(4)), strict=True):
        assert np.array_equal(alone, together)


def test_draws_of_a_diverged_training_are_refused(rng):
    model = ObservationModel(lambda theta, scale: Normal(theta, scale), theta=Location(), scale=Scale())
    fast = Algorithm(n_steps=3, optimizer="sgd", learning_rate=1e12, clip=None, schedule="constant")
    with pytest.raises(GPSError, match=r"not finite|no chain has a finite gradient"):
        GPS(model, MLP(hidden=(4,)), EnergyDistance(), algorithm=fast, n_chains=2).fit(rng.normal(size=30)).summary()


def test_observations_too_small_to_square_are_refused(rng):
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())
    with pytest.raises(GPSError, match="rescale y"):
        GPS(model, algorithm=Algorithm(n_steps=1)).fit(1e-30 * rng.normal(size=30))


class OfOnesOwn(Distribution):
    """As little as a user may write; no support, no arguments, no moments, no expand."""

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)


class Density(OfOnesOwn):
    def log_prob(self, value):
        return Normal(self.loc, 0.5).log_prob(value)


class Sampler(OfOnesOwn):
    def sample(self, sample_shape=()):
        return self.loc + 0.5 * torch.randn(*sample_shape, *self.loc.shape)


@pytest.mark.parametrize(("kind", "finding"), [(Density, "log_prob alone"), (Sampler, "were sampled")])
def test_a_density_or_a_sampler_of_ones_own_is_a_model(kind, finding):
    """Two groups at -2 and 2: the law of their centres has standard deviation 2, here within 10%."""
    generator = torch.Generator().manual_seed(0)
    y = 0.5 * torch.randn(300, generator=generator) + 4.0 * torch.randint(0, 2, (300,), generator=generator) - 2.0
    model = ObservationModel(lambda theta: kind(theta), theta=Location())
    with pytest.warns(GPSWarning, match=finding):
        uq = GPS(model, distance=MMD(), algorithm=Algorithm(n_steps=200), n_chains=2).fit(y)
    assert float(uq.draws(1000)["theta"].std()) == pytest.approx(2.0, rel=0.1)
    if kind is Sampler:
        assert uq.predict_draws(n_draws=10).shape == (2, 10, 1)
        with pytest.raises(GPSError, match="no method expand"):
            uq.predict_draws(n_draws=10, n_observations=3)
    else:
        with pytest.raises(GPSError, match="Density has no sample"):
            uq.predict_draws(n_draws=10)
    with pytest.raises(GPSError, match=f"{kind.__name__} has no mean"):
        uq.predict_mean()
