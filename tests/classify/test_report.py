"""The report of a classifier with very many classes stays small."""

import numpy as np
import pytest

from gpsuq import GPSClassifier, Recipe
from gpsuq.classify import report
from gpsuq.classify.decisions import assess
from gpsuq.classify.reasons import reasons


@pytest.fixture
def judged(monkeypatch):
    monkeypatch.setattr(report, "_MOST_CLASSES", 3)
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array([*range(6)] * 9 + [5] * 6)
    model = GPSClassifier(recipe=Recipe(epochs=1)).fit(X, y)
    return model, model.uncertainty(X), report.classifier_checks(model, X, y)


def test_a_gallery_draws_the_likeliest_of_many_classes(judged):
    _, verdicts, checks = judged
    for row, item in enumerate(checks["gallery"]["items"]):
        likeliest = sorted(np.argsort(-verdicts.mean[row])[:3])
        assert item["classes"] == likeliest
        assert np.allclose([box[-1] for box in item["boxes"]], verdicts.uqc[row, likeliest], atol=1e-4)
        assert len(item["boxes"][0]) == 6


def test_tables_have_the_most_frequent_of_many_classes(judged):
    model, _, checks = judged
    sections = {section.title: section.blocks for section in report.checked_classifier_page(model, checks).sections}
    counts = sections["Data"][1]
    assert counts.caption == "How many observations each class has: the 3 most frequent of 6"
    assert counts.frame["observations"].to_dict() == {"0": 9, "1": 9, "5": 15}
    assert len(sections["Verdicts"][0].frame) <= 3
    assert "The 3 classes that it is likeliest to be of" in sections["Observations"][0].text


def test_a_classifier_plots_itself_and_shows_itself_in_notebooks(judged):
    model, *_ = judged
    X = np.random.default_rng(0).normal(size=(60, 2))
    labels = [*range(6)] * 10
    share, error = model.plot(X, labels).axes
    assert share.lines[0].get_ydata()[0] == 100.0
    assert error.get_xlabel() == "certain above"
    assert len(model.plot(X).axes) == 1
    assert "Certain where the probability of a class" in model._repr_mimebundle_()["text/html"]
    assert "GPSClassifier" in GPSClassifier()._repr_html_()


def test_the_threshold_counts_what_the_verdicts_count(judged):
    _, verdicts, checks = judged
    found, best = checks["threshold"], verdicts.uqc.max(1)
    assert found["certain"] == [(best > value).sum() for value in found["above"]]
    assert found["wrong"][0] == round(checks["quality"]["error"] * 60)
    assert min(found["certain"]) > 0


def test_checks_of_early_versions_make_a_page(judged):
    model, _, checks = judged
    assert report.checked_classifier_page(model, checks | {"threshold": None}).picture is None


def test_a_strange_input_is_the_reason_where_the_mean_alone_would_be_certain():
    samples = np.array([[[0.9, 0.1]] * 3, [[0.4, 0.35]] * 3])
    samples = np.concatenate([samples, 1.0 - samples.sum(2, keepdims=True)], 2)
    verdicts = assess(samples, strangeness=[9.0, 0.0], strangeness_weight=0.01)
    strange, several = reasons(verdicts, 0.5, combined=True)
    assert strange.startswith("strange input: 0.0% of familiar ones")
    assert several == "no class stands out: 0 40%"
    assert report._verdicts_hold(100, 0.1, {"error": 0.06, "certain_error": 0.0}).kind == "good"
    assert report._verdicts_hold(100, 0.1, {"error": 0.02, "certain_error": 2 / 90}).kind == "advice"
