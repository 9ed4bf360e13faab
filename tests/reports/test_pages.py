"""Reports: complete, self-contained, safe whatever the names in the data, and alive in a real browser."""

import json
import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from browsing import opened
from invoking import invoke
from torch.distributions import Normal

from gpsuq import (
    GPS,
    MLP,
    Algorithm,
    GPSClassifier,
    GPSError,
    GPSLinearRegression,
    GPSPoissonProcess,
    GPSWarning,
    Location,
    ObservationModel,
    Recipe,
    datasets,
    load,
)
from gpsuq.classify.decisions import assess
from gpsuq.classify.findings import training_findings
from gpsuq.classify.report import chosen_items, classifier_checks, classifier_page
from gpsuq.cli import demonstration
from gpsuq.core.models import categorical, poisson_counts
from gpsuq.core.summaries import summary_table
from gpsuq.datasets import load_images
from gpsuq.linear.report import LATER_PARTS, LINEAR_PARTS, checked_linear_page, linear_checks, linear_page
from gpsuq.poisson.report import poisson_page
from gpsuq.reports.blocks import calibration, calibration_blocks, mode_blocks, pieces_of, randomised
from gpsuq.reports.page import Gallery, Page, Picture, Section, Table, Text, render, write_page
from gpsuq.reports.saved import frame_as_json, frame_from_json, read_checks, saved_page, write_checks
from gpsuq.spatial import Window
from gpsuq.uq.report import uq_page
from paper.networks import feed_forward
from paper.page import experiment_page

EVIL = "<script>alert(1)</script>"


def is_alone(html):
    """Whether a page refers to nothing outside itself."""
    sources = re.findall(r'(?:src|href)="([^"#][^"]*)"', html)
    return (
        all(source.startswith("data:") for source in sources)
        and "@import" not in html
        and "http://" not in (html.replace("http://www.w3.org/2000/svg", ""))
    )


@pytest.fixture(scope="module")
def digits_page():
    from torch import nn

    train, test = load_images("digits"), load_images("digits", "test")

    def network():
        return nn.Sequential(nn.Flatten(), feed_forward(64, 10, width=32, depth=2))

    model = GPSClassifier(network, recipe=Recipe(epochs=10)).fit(train.pixels(), train.labels)
    return classifier_page(model, test.pixels(), test.labels)


@pytest.fixture(scope="module")
def scissors():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(-2, 2, 300), EVIL: rng.normal(size=300)})
    sign = np.where(rng.random(300) < 0.5, 1.0, -1.0)
    y = pd.Series(sign * X["x"] + 0.1 * rng.normal(size=300), name="y & co")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)  # so short a training has something to be careful about
        return GPSLinearRegression(n_steps=150).fit(X, y), X, y


def test_names_in_the_data_are_text_not_code():
    frame = pd.DataFrame({EVIL: [1.0, np.nan]}, index=[EVIL, "b"])
    html = render(Page(EVIL, EVIL, [Section(EVIL, [Table(frame, EVIL), Text(EVIL)])], [(EVIL, EVIL)]))
    assert EVIL not in html
    assert "&lt;script&gt;" in html
    assert is_alone(html)


def test_a_regression_has_everything(scissors, tmp_path):
    model, X, y = scissors
    checks = linear_checks(model, X, y)
    assert sum(checks["pit"]) == 300
    assert set(checks["coverage"]) == {"0.5", "0.8", "0.9", "0.95"}
    write_checks(checks, tmp_path)
    assert read_checks(tmp_path, LINEAR_PARTS, LATER_PARTS) == json.loads(json.dumps(checks))
    html = render(linear_page(model, X, y))
    assert html == render(checked_linear_page(model, read_checks(tmp_path, LINEAR_PARTS, LATER_PARTS)))
    parts = ("Coefficients", "UQ distribution", "Heterogeneity and estimation", "Checks", "Data")
    for title in parts:
        assert f"<h2>{title}</h2>" in html
    assert EVIL not in html
    assert "y &amp; co" in html
    assert is_alone(html)
    assert "No rows were given" in render(linear_page(model))
    assert "<h2>Rows</h2>" not in render(linear_page(model))
    with pytest.raises(GPSError, match="both X and y"):
        linear_page(model, X)
    (tmp_path / "checks.json").write_text("{}")
    with pytest.raises(GPSError, match="damaged"):
        read_checks(tmp_path, LINEAR_PARTS)


def test_small_numbers_are_kept_as_they_are():
    frame = pd.DataFrame({"mean": [1.2345678901234567e-11, np.nan], "rows": [3, 4]}, index=["a", "b"])
    held = frame_as_json(frame)
    assert (held["index"], held["names"]) == (["a", "b"], ["mean", "rows"])
    assert held["values"] == [[1.2345678901234567e-11, 3], [None, 4]]
    pd.testing.assert_frame_equal(frame_from_json(json.loads(json.dumps(held))), frame)


def test_rows_of_a_regression_have_the_names_of_the_table_or_count_from_one(scissors):
    model, X, y = scissors
    counted = linear_checks(model, X, y)["worst"]["index"]
    named = linear_checks(model, X.set_axis([f"row {row}" for row in X.index]), y)["worst"]["index"]
    assert named == [f"row {int(row) - 1}" for row in counted]
    plain = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(X.to_numpy(), y.to_numpy())
    page = linear_page(plain, X.to_numpy(), y.to_numpy())
    assert page.title == "Linear regression of y"
    assert list(blocks_of(page, "Data")[0].frame.index) == ["y", "x0", "x1"]


def test_a_regression_lists_the_pieces_of_each_coefficient():
    data = datasets.scissors(400, seed=1)
    model = GPSLinearRegression(n_chains=4, n_steps=200).fit(data.X, data.y)
    lines = blocks_of(linear_page(model), "Modes")[0].frame
    assert np.allclose(lines["x0"], [-1, 1], atol=0.1)
    assert np.allclose(lines["share"], 0.5, atol=0.1)
    shared = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    page = linear_page(shared)
    assert "UQ distribution" not in [section.title for section in page.sections]  # no needles where nothing differs
    assert "Modes" not in [section.title for section in page.sections]
    (only,) = shared.lines()["share"]
    assert only == 1.0


def test_probabilities_of_outcomes_are_uniform_for_the_models_own(scissors):
    model, X, _ = scissors
    # A draw's parameters are the same for all rows, so that many draws are needed, and few rows.
    some = X[:30]
    y = model.sample_predictive(some, 600, random_state=1)
    probability = np.concatenate([model.predict_cdf(some, draw) for draw in y])
    counts, _ = np.histogram(probability, bins=10, range=(0, 1))
    assert np.abs(counts / len(probability) - 0.1).max() < 0.03
    inside = model.predict_interval(X, 0.8)
    middle = (inside["lower"] + inside["upper"]) / 2
    lower = model.predict_cdf(X, inside["lower"])
    assert np.allclose(lower, 0.1, atol=1e-6)
    assert (model.predict_cdf(X, middle) > lower).all()


@pytest.fixture(scope="module")
def two_groups():
    """Outcomes of two groups far apart, and what a short training makes of them."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-4, 0.5, 120), rng.normal(4, 0.5, 80)])
    model = ObservationModel(lambda theta: Normal(theta, 0.5), theta=Location())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        return GPS(model, algorithm=Algorithm(n_steps=200), n_chains=2).fit(y), model, y


def blocks_of(page, title):
    """Return the blocks of a page's section."""
    return next(section.blocks for section in page.sections if section.title == title)


def test_a_uq_distribution_has_everything(two_groups):
    uq, _, y = two_groups
    page = uq_page(uq, y)
    assert [section.title for section in page.sections] == [
        "UQ distribution",
        "Modes",
        "Heterogeneity and estimation",
        "Checks",
        "Data",
        "What was fitted",
    ]
    pieces = blocks_of(page, "Modes")[0].frame
    assert len(pieces) == 2
    assert np.allclose(pieces["median"], [-4, 4], atol=1)
    assert pieces["share of the draws"].sum() == pytest.approx(0.9, abs=0.03)
    assert "separate pieces" in page.lead
    assert blocks_of(page, "Checks")[0].kind == "good"
    assert len(blocks_of(page, "What was fitted")) == 2
    assert is_alone(render(page))


def test_a_uq_distribution_plots_itself_and_shows_itself_in_notebooks(two_groups):
    uq, _, _ = two_groups
    assert [ax.get_xlabel() for ax in uq.plot().axes] == ["theta"]
    assert "theta" in uq._repr_html_()


def test_checks_of_a_uq_distribution_see_a_wrong_predictive(two_groups):
    uq, _, y = two_groups
    assert blocks_of(uq_page(uq, 3 * y), "Checks")[0].kind == "advice"
    (without,) = blocks_of(uq_page(uq), "Checks")
    assert without.kind == "advice"
    assert "No observations were given" in without.text


def test_checks_of_counts_are_uniform_where_the_predictive_is_right(rng, short):
    y = rng.poisson(4.0, 300).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        uq = GPS(poisson_counts(), algorithm=short, n_chains=2).fit(y)
    own = uq.predict_draws(n_draws=500)[0, :, 0].astype(float)
    assert blocks_of(uq_page(uq, own), "Checks")[0].kind == "good"
    between = randomised(np.array([0.2, 0.5]), np.array([0.4, 0.5]))
    assert 0.2 <= between[0] <= 0.4
    assert between[1] == 0.5


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_uq_distribution_that_depends_on_x_is_shown_at_rows_of_it(rng, short):
    X = pd.DataFrame({"age": rng.normal(size=60)})
    y = (X["age"] > 0).to_numpy(dtype=float)
    generator = MLP(conditional=True)
    uq = GPS(categorical(2), generator, algorithm=short, n_chains=2).fit(X, y)
    assert uq.classifies
    page = uq_page(uq, X, y)
    summary = blocks_of(page, "UQ distribution")[-1].frame
    assert list(summary.index[:2]) == ["logits[0], row 1", "logits[1], row 1"]
    assert "logits[1], row 60" in summary.index
    assert "classes" in blocks_of(page, "Checks")[0].text
    assert list(blocks_of(page, "Data")[0].frame.index) == ["y", "age"]
    assert "depend on x" in uq_page(uq).lead
    with pytest.raises(GPSError, match="the one row"):
        uq.columns(10, X)


def test_vectors_are_reported_without_checks_of_single_numbers(rng, short):
    y = rng.normal(size=(60, 2))
    model = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        uq = GPS(model, algorithm=short, n_chains=1).fit(y)
    assert "shape (2,)" in blocks_of(uq_page(uq, y), "Checks")[0].text


def test_a_saved_uq_distribution_says_how_it_is_reported(two_groups, tmp_path):
    uq, model, y = two_groups
    refused = invoke("report", uq.save(tmp_path / "model"))
    assert refused.exit_code == 1
    assert "uq_page(gpsuq.load(path, model=...), X, y)" in " ".join(refused.output.split())
    assert render(uq_page(load(tmp_path / "model", model=model), y)) == render(uq_page(uq, y))


def test_a_law_that_only_differs_between_chains_has_no_pieces(rng):
    index = pd.MultiIndex.from_product([range(4), range(500)], names=["chain", "draw"])
    chain = index.get_level_values(0).to_numpy()
    draws = pd.DataFrame({"a": chain + 1e-3 * rng.normal(size=2000), "b": rng.normal(size=2000)}, index=index)
    by_chain = {name: draws[name].to_numpy().reshape(4, 500) for name in draws}
    pieces = pieces_of(draws, summary_table(by_chain, 0.95, reweighted=True))
    assert list(pieces.index) == ["b"]
    assert "listed for a:" in mode_blocks(pieces, ["a", "b"])[1].text


def test_outcomes_are_counted_by_slices_and_inside_intervals():
    found = calibration(np.array([0.05, 0.3, 0.5, 0.7, 0.95]), bins=5)
    assert found["pit"] == [1, 1, 1, 1, 1]
    assert found["coverage"]["0.5"] == 0.6


def test_few_outcomes_are_not_blamed_for_chance():
    found = {"pit": [2] * 10, "coverage": {"0.5": 0.35, "0.9": 0.95}}
    assert calibration_blocks(found, "rows", advice="")[0].kind == "good"
    many = {"pit": [200] * 10, "coverage": {"0.5": 0.35, "0.9": 0.95}}
    assert calibration_blocks(many, "rows", advice="Look.")[0].kind == "advice"


def test_fit_and_report_from_the_command_line(tmp_path, scissors):
    _, X, y = scissors
    X.rename(columns={EVIL: "z"}).assign(y=y).to_csv(tmp_path / "data.csv", index=False)
    model = tmp_path / "model"
    result = invoke("fit", "linear", tmp_path / "data.csv", "--target", "y", "--steps", 60, "--out", model)
    assert result.exit_code == 0, result.output
    first = (model / "report.html").read_text()
    assert invoke("report", model).exit_code == 0
    assert (model / "report.html").read_text() == first
    assert invoke("report", model, "--out", tmp_path / "mine.html").exit_code == 0
    assert (tmp_path / "mine.html").read_text() == first
    bare = load(model).save(tmp_path / "bare")
    assert invoke("report", bare).exit_code == 0
    assert "No rows were given" in (bare / "report.html").read_text()
    kept = invoke("report", bare)
    assert kept.exit_code == 1  # a page made in Python may say more than can be said again
    judged = ("report", bare, "--data", tmp_path / "data.csv", "--out", tmp_path / "judged.html")
    assert invoke(*judged, "--target", "y").exit_code == 0
    assert "<h2>Rows</h2>" in (tmp_path / "judged.html").read_text()
    for options, message in (((), "with --target"), (("--target", "w"), "no column 'w'")):
        refused = invoke(*judged, *options, "--force")
        assert refused.exit_code == 1
        assert message in " ".join(refused.output.split())
    refused = invoke("report", model, "--out", tmp_path / "mine.html")
    assert refused.exit_code == 1
    assert "exists already" in refused.output
    assert invoke("report", tmp_path / "nothing").exit_code == 1
    empty = invoke("report", tmp_path)
    assert empty.exit_code == 1
    assert "holds no saved model" in " ".join(empty.output.split())


def test_a_point_pattern_is_reported(tmp_path, rng):
    window = Window.rectangle(0, 1, 0, 1)
    model = GPSPoissonProcess(n_steps=20, n_cells=64, frequency=1.0).fit(rng.random((60, 2)), window)
    model.save(tmp_path / "model")
    assert invoke("report", tmp_path / "model").exit_code == 0
    html = (tmp_path / "model" / "report.html").read_text()
    assert "Half of the points are expected on " in html
    assert is_alone(html)
    page = poisson_page(model)
    assert any("coarse" in text.text for text in page.trust)
    assert "It has seen these points" in blocks_of(page, "Counts in blocks")[0].text
    advice = [block for section in page.sections for block in section.blocks if isinstance(block, Text)]
    assert all(block.kind == "plain" for block in advice)  # what to be careful about stands in one place
    rates, counts = model.block_counts(4)
    assert rates.shape[1] == counts.shape[1] == 16
    assert counts.sum() == 60
    assert rates.mean(0).sum() == pytest.approx(model.integral(), rel=0.02)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_point_pattern_says_what_to_be_careful_about(rng, tmp_path):
    corner = np.vstack([0.3 * rng.random((20, 2)), [[3.0, 3.0]]])
    model = GPSPoissonProcess(n_steps=10, n_chains=2, frequency=0.0, outside="drop").fit(corner, (0, 1, 0, 1))
    again = load(model.save(tmp_path / "model"))
    assert again.n_outside_ == 1
    advice = " ".join(text.text for text in poisson_page(again).trust)
    for word in ("20 points say little", "dropped (1)", "% of the window"):
        assert word in advice
    assert "taken to be constant" in poisson_page(again).lead


def test_heterogeneity_and_estimation_of_an_intensity_are_shown_apart(rng):
    patterns = [rng.random((size, 2)) for size in (10, 20, 40, 80, 160, 320)]
    model = GPSPoissonProcess(n_steps=60, n_chains=2, frequency=0.0).fit(patterns, (0, 1, 0, 1))
    assert model.spread_ == 1
    table = blocks_of(poisson_page(model), "How well it is known")[2].frame
    assert list(table.index) == ["heterogeneity between blocks", "uncertainty of estimation"]
    surfaces = model.fit_.surfaces(model.grid_.nodes[0])
    draws = model.sample_intensity(model.grid_.nodes[0], 20_000)
    both = np.sqrt((1 + surfaces.heterogeneity**2) * (1 + surfaces.estimation**2) - 1)
    assert np.allclose(draws.std(0) / draws.mean(0), both, rtol=0.1)


def test_an_experiment_is_reported(tmp_path):
    record = {"command": f"gpsuq {EVIL}", "results": {"a": {"b": 1.25, "each": [1.0, 2.0]}}, "seconds": 3.0}
    (tmp_path / "metrics.json").write_text(json.dumps(record))
    (tmp_path / "table1.md").write_text("| method | error |\n|---|---|\n| gps | 0.7 ± 0.1 |\n")
    html = render(experiment_page(tmp_path))
    assert "a / b" in html
    assert "1, 2" in html
    assert "0.7 ± 0.1" in html
    assert EVIL not in html
    (tmp_path / "metrics.json").write_text("{")
    with pytest.raises(GPSError, match="damaged"):
        experiment_page(tmp_path)


def test_a_gallery_has_wrong_and_uncertain_ones_first():
    rng = np.random.default_rng(0)
    verdicts = assess(rng.dirichlet([8.0, 1.0, 1.0], (1000, 20)))
    errors = rng.random(1000) < 0.02
    chosen = chosen_items(verdicts, errors, 100)
    assert len(chosen) == len(set(chosen)) == 100
    strange = errors | verdicts.uncertain
    assert strange[chosen].sum() == min(strange.sum(), 50)
    assert len(chosen_items(verdicts, errors, 5000)) == 1000


def test_a_classifier_without_labels_or_images_is_reported(rng):
    X = rng.normal(size=(60, 3))
    model = GPSClassifier(recipe=Recipe(epochs=8)).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    page = classifier_page(model, X)
    titles = [section.title for section in page.sections]
    assert titles == ["Observations", "Verdicts", "Data", "What was fitted", "How to read this"]
    assert is_alone(render(page))
    assert blocks_of(page, "Data")[0].frame.loc["labels", "value"] == "not given"
    advice = [block.text for block in blocks_of(page, "What was fitted") if isinstance(block, Text)]
    assert any("still falling" in text for text in advice)
    labelled = blocks_of(classifier_page(model, X, pd.Series(["yes"] * 60, name="answer")), "Data")
    assert labelled[1].frame["observations"].to_dict() == {"no": 0, "yes": 60}
    assert list(labelled[2].frame.index) == ["x0", "x1", "x2"]
    with pytest.raises(GPSError, match="images must have shape"):
        classifier_page(model, X, images=X)
    with pytest.raises(GPSError, match="none of the classes"):
        classifier_page(model, X, ["maybe"] * 60)


def test_observations_of_a_gallery_count_from_one_unless_the_table_names_them(rng):
    X = rng.normal(size=(5, 2))
    model = GPSClassifier(recipe=Recipe(epochs=1)).fit(X, [0, 1, 0, 1, 0])

    def titles(inputs):
        return [item["title"] for item in classifier_checks(model, inputs)["gallery"]["items"]]

    assert titles(X) == [f"observation {number}" for number in range(1, 6)]
    frame = pd.DataFrame(X)
    assert titles(frame) == [f"row {number}" for number in range(1, 6)]
    assert titles(frame.set_axis(list("abcde"))) == [f"row {name}" for name in "abcde"]


def test_a_page_fetches_nothing_and_runs_no_foreign_script(browser, tmp_path):
    class Evil(str):
        """Text that the template does not escape."""

        def __html__(self):
            style = "<style>p { color: red }</style>"
            return f"<script>document.title = 'bad'</script><img src='https://example.org/a.png'>{style}"

    tab, problems = opened(browser, Page("good", "", [Section("", [Text(Evil("x"))])]), tmp_path / "page.html")
    assert tab.title() == "good"
    assert sum("Content Security Policy" in problem for problem in problems) == 3


def test_every_page_names_what_it_may_load(digits_page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', render(digits_page))[1]
    assert policy.replace("&#39;", "'").startswith(
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
    )
    assert policy.count("sha256-") == 2


@pytest.mark.parametrize("address", ["https://example.org/a.png", "javascript:1", "data:text/html;base64,AA", 5, None])
def test_only_pictures_in_the_checks_are_shown(address):
    item = {"title": "1", "image": address, "label": None, "prediction": "a", "uncertain": True, "wrong": False}
    item |= {"scores": {}, "boxes": []}
    picture = "data:image/png;base64,iVBORw0KGgo="
    held = json.loads(Gallery(["a"], [item, item | {"image": picture}], [], [0.5]).data)
    for damaged in (3.5, {}, ["image"]):
        with pytest.raises(GPSError, match="records with an image"):
            Gallery(["a"], [damaged], [], [0.5])
    assert [shown["image"] for shown in held["items"]] == [None, picture]


def test_a_linked_picture_is_not_embedded(tmp_path):
    (tmp_path / "secret").write_bytes(b"mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "metrics.json").write_text('{"command": "a", "results": {}}')
    (out / "linked.png").symlink_to(tmp_path / "secret")
    assert "Figures" not in render(experiment_page(out))
    with pytest.raises(GPSError, match="is a link"):
        render(Page("", "", [Section("", [Picture(out / "linked.png", "")])]))


@pytest.mark.parametrize("part", ["shown", "worst", "coverage"])
def test_damaged_checks_of_a_regression_are_named(scissors, tmp_path, part):
    model, X, y = scissors
    model.save(tmp_path / "model")
    write_checks(linear_checks(model, X, y) | {part: 5}, tmp_path / "model")
    with pytest.raises(GPSError, match=r"checks\.json is damaged .*; delete it, or fit again"):
        saved_page(tmp_path / "model")


def test_a_page_has_the_permissions_that_the_user_gives(tmp_path):
    before = os.umask(0o077)
    try:
        path = write_page(Page("a", "b", []), tmp_path / "page.html")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("small_demo")
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_demo_replaces_nothing_but_itself(tmp_path):
    out = tmp_path / "demo"
    for _ in range(2):
        assert invoke("demo", "--out", out).exit_code == 0
    assert {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()} == set(demonstration.FILES)
    assert pd.read_csv(out / "digits" / "verdicts.csv")["image"].iloc[0] == 1
    for name in ("config.json", "scissors/report.html"):
        (out / name).write_text("mine")
        refused = invoke("demo", "--out", out)
        assert refused.exit_code == 1
        assert f"holds {name}, which is no part of the demo" in " ".join(refused.output.split())
        assert (out / name).read_text() == "mine"
        (out / name).unlink()


def test_a_loss_that_rose_or_still_falls_is_named():
    assert "learning rate" in training_findings([0.5, 0.4, 0.6])[0].message
    assert "still falling" in training_findings([0.9, 0.8, 0.7, 0.6, 0.5])[0].message
    assert training_findings([0.9, 0.3, 0.25, 0.24, 0.24, 0.24]) == []
    assert training_findings([0.9]) == []


def reached_by_tab(tab, most=200):
    """Press Tab until the focus leaves the page; return the names and classes of what had it."""
    reached = []
    for _ in range(most):
        tab.keyboard.press("Tab")
        name = tab.evaluate("document.activeElement.name || document.activeElement.className")
        if tab.evaluate("document.activeElement === document.body"):
            break
        reached.append(name)
    return reached


def test_other_pages_open_without_complaint(browser, scissors, two_groups, rng, tmp_path):
    model, X, y = scissors
    uq, _, outcomes = two_groups
    points = GPSPoissonProcess(n_steps=10, n_chains=2, n_cells=64, frequency=1.0).fit(rng.random((60, 2)), (0, 1, 0, 1))
    pages = {"linear": linear_page(model, X, y), "uq": uq_page(uq, outcomes), "points": poisson_page(points)}
    for name, page in pages.items():
        tab, problems = opened(browser, page, tmp_path / f"{name}.html")
        assert problems == []
        pictures = tab.locator("figure img")
        assert pictures.count() >= 3
        assert all(pictures.nth(k).evaluate("image => image.naturalWidth > 0") for k in range(pictures.count()))
        assert "scroll" in reached_by_tab(tab)  # wide tables are scrolled by keyboard


def test_wide_tables_are_printed_whole(browser, tmp_path):
    names = [f"a rather long name of column {number}" for number in range(14)]
    wide = Table(pd.DataFrame([np.linspace(0, 1, 14)], columns=names, index=["one row"]), "Wide")
    tab, _ = opened(browser, Page("Wide", "", [Section("Table", [wide])]), tmp_path / "wide.html")
    cut = "box => box.scrollWidth > box.clientWidth"
    tab.set_viewport_size({"width": 794, "height": 1123})  # A4
    assert tab.locator(".scroll").evaluate(cut)
    tab.emulate_media(media="print")
    assert not tab.locator(".scroll").evaluate(cut)
    assert tab.locator("table").bounding_box()["width"] <= 794


def test_long_headings_may_break_at_underscores_only_where_they_are():
    html = render(Page("", "", [Section("", [Table(pd.DataFrame({"mean_of_<b>": [1.0]}))])]))
    assert "mean_<wbr>of_<wbr>&lt;b&gt;" in html


def test_every_class_has_its_own_line_in_the_boxplots(browser, tmp_path):
    boxes = [[0.4, 0.6, 0.8, 0.9, 1.0, 0.4], [0.0, 0.1, 0.2, 0.4, 0.6, 0.0]]
    item = {"title": "one", "image": None, "label": None, "prediction": "cat", "uncertain": True, "wrong": False}
    item |= {"scores": {"uqc shortfall": 0.6}, "boxes": boxes}
    gallery = Gallery(["cat", "dog"], [item], levels=["5%", "25%", "50%", "75%", "95%"], certain_above=[0.5, 0.8])
    tab, problems = opened(browser, Page("", "", [Section("", [gallery])]), tmp_path / "page.html")
    tab.locator(".item").click()
    line = tab.locator("svg path.limit").get_attribute("d")
    levels = [float(level) for level in re.findall(r"V([\d.]+)h", line)]
    assert len(levels) == 2
    assert levels[0] > levels[1]  # the higher threshold is drawn higher
    assert problems == []


def test_of_many_classes_those_that_are_named_are_drawn(browser, tmp_path):
    item = {"title": "one", "image": None, "label": None, "prediction": "cat", "uncertain": True, "wrong": False}
    item |= {"scores": {"uqc shortfall": 0.6}, "classes": [0, 2], "boxes": [[0.4, 0.6, 0.8, 0.9, 1.0, 0.4]] * 2}
    gallery = Gallery(["cat", "dog", "eel"], [item], levels=["5%"], certain_above=[0.5, 0.9, 0.7])
    tab, problems = opened(browser, Page("", "", [Section("", [gallery])]), tmp_path / "page.html")
    tab.locator(".item").click()
    shown = tab.locator("svg text").all_text_contents()
    assert {"cat", "eel"} <= set(shown)
    assert "dog" not in shown
    assert len(re.findall(r"V([\d.]+)h", tab.locator("svg path.limit").get_attribute("d"))) == 2
    assert problems == []


def test_only_what_is_shown_is_printed(digits_page, browser, tmp_path):
    tab, problems = opened(browser, digits_page, tmp_path / "report.html")
    note = tab.locator(".printed")
    assert not note.is_visible()
    tab.locator("select[name=class]").select_option("8")
    shown = tab.locator(".item").count()
    tab.emulate_media(media="print")
    assert note.is_visible()
    total = len(digits_page.sections[0].blocks[1].items)
    assert f"Printed: {shown} of {total} observations" in note.inner_text()
    assert "Class: 8" in note.inner_text()
    assert tab.locator(".item").count() == shown
    for hidden in (".controls", ".more", "nav"):
        assert not tab.locator(hidden).is_visible()
    assert problems == []


def test_the_gallery_is_reached_by_tab(digits_page, browser, tmp_path):
    tab, _ = opened(browser, digits_page, tmp_path / "report.html")
    reached = reached_by_tab(tab)
    for name in ("skip", "verdict", "class", "score", "order", "more", "scroll"):
        assert name in reached
    assert sum(name.startswith("item") for name in reached) == 60


def test_the_gallery_lives_in_a_browser(digits_page, browser, tmp_path):
    page, problems = opened(browser, digits_page, tmp_path / "report.html")
    assert is_alone((tmp_path / "report.html").read_text())
    items = page.locator(".item")

    def choice(name):
        return page.locator(f"select[name={name}]")

    assert items.count() == 60
    page.get_by_role("button", name="Show more").click()
    assert items.count() == 120
    choice("verdict").select_option("uncertain")
    verdicts = page.locator(".item .verdict").all_inner_texts()
    assert set(verdicts) == {"Uncertain"}
    choice("verdict").select_option("")
    choice("class").select_option("8")
    assert all("8" in text for text in page.locator(".item .said").all_inner_texts())
    choice("class").select_option("")

    def first_score():
        items.first.focus()
        page.keyboard.press("Enter")
        assert page.locator("dialog").is_visible()
        assert page.locator("dialog svg rect").count() == 10
        value = float(page.locator("dialog dd").first.inner_text())
        page.keyboard.press("Escape")
        assert not page.locator("dialog").is_visible()
        return value

    highest = first_score()
    choice("order").select_option("up")
    assert first_score() < highest
    choice("score").select_option("variance")
    assert page.screenshot(full_page=True)
    assert problems == []


@pytest.mark.parametrize(
    ("probability", "words", "kind"),
    [
        (np.linspace(0.001, 0.999, 400), "hold as many rows as they should", "good"),
        (np.linspace(0.4, 0.6, 400), "are wider than these rows need", "advice"),
        (np.r_[np.full(200, 0.001), np.full(200, 0.999)], "miss their coverage by up to 95%. Look.", "advice"),
    ],
)
def test_wide_intervals_are_told_from_narrow_ones(probability, words, kind):
    verdict = calibration_blocks(calibration(probability), "rows", advice="Look.")[0]
    assert words in verdict.text
    assert verdict.kind == kind
