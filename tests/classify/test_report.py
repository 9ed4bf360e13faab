"""The report of a classifier with very many classes stays small."""

import numpy as np
import pytest

from gpsuq import GPSClassifier, Recipe
from gpsuq.classify import report


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
