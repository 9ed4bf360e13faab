"""Verdicts and their quality: small cases by hand, properties, comparison with scikit-learn, calibration of levels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from gpsuq import GPSError
from gpsuq.classify import decisions as d
from gpsuq.classify import thresholds
from gpsuq.classify.sequential import SequentialTest, draws_in_looks


@pytest.fixture
def judged(rng):
    logits = 2.0 * rng.normal(size=(500, 4))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.array([rng.choice(4, p=row) for row in p])
    return p, y


def test_verdicts_by_hand():
    sure = np.tile([0.9, 0.1], (40, 1))
    torn = np.concatenate([sure[:37], sure[:3, ::-1]])  # 3 of 40 draws say otherwise
    nearly = np.concatenate([sure[:39], sure[:1, ::-1]])
    verdicts = d.assess(np.stack([sure, torn, nearly]), classes=["a", "b"])
    assert verdicts.uncertain.tolist() == [False, True, False]
    assert verdicts.prediction.tolist() == ["a", "a", "a"]
    assert verdicts.uqc[0] == pytest.approx([0.9, 0.1])
    assert verdicts.mean[1] == pytest.approx([0.9 * 37 / 40 + 0.1 * 3 / 40, 0.1 * 37 / 40 + 0.9 * 3 / 40])
    assert verdicts.quantiles[0.5][1] == pytest.approx([0.9, 0.1])
    assert verdicts.mutual_information[0] == pytest.approx(0.0, abs=1e-12)
    assert verdicts.expected_entropy[1] == pytest.approx(verdicts.expected_entropy[0])
    assert verdicts.variance[1] == pytest.approx(2 * np.var([0.9] * 37 + [0.1] * 3))
    for score in verdicts.scores.values():
        assert score[1] >= score[0]
    table = verdicts.to_frame()
    assert len(table) == 3
    assert {"prediction", "uncertain", *d.SCORES} - set(table) == {"strangeness"}  # which nobody measured


def test_chunks_join_in_any_order(rng):
    samples = rng.dirichlet(np.ones(3), size=(7, 20))
    whole = d.assess(samples)
    order = rng.permutation(7)
    parts = d.joined([d.assess(samples[order[:3]]), d.assess(samples[order[3:]])], order)
    assert np.array_equal(parts.mean, whole.mean)
    assert np.array_equal(parts.uncertain, whole.uncertain)
    assert np.array_equal(parts.quantiles[0.25], whole.quantiles[0.25])


def test_scores_of_probabilities_match_scikit_learn(judged):
    p, y = judged
    assert d.log_loss(p, y) == pytest.approx(metrics.log_loss(y, p))
    assert d.brier(p, y) == pytest.approx(np.mean(((p - np.eye(4)[y]) ** 2).sum(1)))
    assert d.wrong(p, y).mean() == pytest.approx(1 - metrics.accuracy_score(y, p.argmax(1)))


def test_calibrated_probabilities_have_little_calibration_error(rng):
    p = rng.dirichlet([0.5] * 3, size=20_000)
    y = (p.cumsum(1) > rng.random((len(p), 1))).argmax(1)
    curve = d.reliability(p, y)
    assert curve.error < 0.02
    sharper = p**3 / (p**3).sum(1, keepdims=True)
    assert d.reliability(sharper, y).error > 0.1
    assert curve.count.sum() == len(p)
    assert (np.diff(curve.confidence) > 0).all()


def test_the_three_numbers_of_table_1():
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    y = np.array([0, 1, 1, 1])
    found = d.selective_error(p, y, [False, False, True, False])
    assert (found.full, found.certain, found.uncertain_share) == (0.5, pytest.approx(1 / 3), 0.25)
    assert np.isnan(d.selective_error(p, y, [True] * 4).certain)


def test_risk_coverage_by_hand_with_ties():
    curve = d.risk_coverage([0.1, 0.2, 0.2, 0.9], [False, True, False, True])
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    assert curve.risk == pytest.approx([0.0, 1 / 3, 0.5])
    assert curve.at(0.25) == 0.0
    assert curve.at(0.5) == pytest.approx(0.25)  # one of two, one of them wrong, half of the time
    assert curve.at(1.0) == 0.5
    assert curve.area == pytest.approx(0.25 * 0.0 + 0.5 / 3 + 0.25 * 0.5)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.integers(0, 10_000))
def test_a_better_score_has_less_area(n, seed):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.3
    best = d.risk_coverage(errors + 0.5 * rng.random(n), errors)
    worst = d.risk_coverage(-1.0 * errors + 0.5 * rng.random(n), errors)
    some = d.risk_coverage(rng.random(n), errors)
    assert best.area <= some.area + 1e-12 <= worst.area + 2e-12
    assert best.at(1.0) == pytest.approx(errors.mean())


def test_outside_scores(rng):
    inside, outside = rng.normal(size=2000), rng.normal(1.0, size=2000)
    labels = np.repeat([0, 1], 2000)
    assert d.auroc(inside, outside) == pytest.approx(metrics.roc_auc_score(labels, np.concatenate([inside, outside])))
    assert d.auroc(inside, outside) == pytest.approx(0.76, abs=0.03)
    assert d.fpr95(inside, outside) == pytest.approx(0.74, abs=0.04)
    assert d.fpr95(inside, inside + 100.0) == 0.0


def test_thresholds_reach_what_was_wanted(rng):
    best = rng.random(2000)
    errors = rng.random(2000) < 0.2 * (1.0 - best)
    threshold = thresholds.threshold_for_coverage(best, 0.8)
    assert (best > threshold).mean() == pytest.approx(0.8, abs=1e-3)
    few = np.array([0.9, 0.8, 0.7])
    assert (few > thresholds.threshold_for_coverage(few, 0.75)).all()  # two of three are not 75%
    assert (few > thresholds.threshold_for_coverage(few, 1e-12)).tolist() == [True, False, False]  # one at least
    assert (np.ones(10) > thresholds.threshold_for_coverage(np.ones(10), 0.5)).all()  # ties are certain together
    threshold = thresholds.threshold_for_error(best, errors, 0.05)
    assert errors[best > threshold].mean() <= 0.05
    assert (best > threshold).mean() > 0.2
    with pytest.raises(GPSError, match="no threshold"):
        thresholds.threshold_for_error(best[:5], np.ones(5, dtype=bool), 0.01)
    for target in (0.0, 1.0):
        with pytest.raises(GPSError, match="between 0 and 1"):
            thresholds.threshold_for_coverage(best, target)
        with pytest.raises(GPSError, match="between 0 and 1"):
            thresholds.threshold_for_error(best, errors, target)


def test_thresholds_by_class_reach_what_was_wanted_in_every_class(rng):
    """The second class is harder: with one threshold for both, nearly all its observations would be uncertain."""
    easy = rng.random(1000) < 0.5
    best = np.where(easy, rng.uniform(0.8, 1.0, 1000), rng.uniform(0.2, 0.8, 1000))
    uqc = np.zeros((1000, 3))
    uqc[np.arange(1000), np.where(easy, 0, 1)] = best
    one = thresholds.threshold_for_coverage(best, 0.6)
    each = thresholds.thresholds_by_class(uqc, lambda rows: thresholds.threshold_for_coverage(best[rows], 0.6))
    assert d.is_certain(uqc, each)[easy].mean() == pytest.approx(0.6, abs=3e-3)
    assert d.is_certain(uqc, each)[~easy].mean() == pytest.approx(0.6, abs=3e-3)
    assert d.is_certain(uqc, one)[easy].all()
    assert d.is_certain(uqc, one)[~easy].mean() < 0.3
    assert each[2] == one  # of a class that is best nowhere


def test_a_verdict_is_about_the_best_class_even_where_another_passes():
    uqc, thresholds_of_both = [[0.5, 0.4]], np.array([0.6, 0.2])
    assert not d.is_certain(uqc, thresholds_of_both).any()
    with pytest.raises(GPSError, match="one number or 2"):
        d.is_certain(uqc, np.array([0.1, 0.2, 0.3]))


def test_a_class_that_cannot_be_calibrated_is_named(rng):
    uqc = np.eye(2)[rng.integers(2, size=40)] * rng.random((40, 1))

    def threshold(rows):
        return thresholds.threshold_for_error(uqc.max(1)[rows], np.zeros(rows.sum(), dtype=bool), 0.01)

    with pytest.raises(GPSError, match="class 'cat': no threshold"):
        thresholds.thresholds_by_class(uqc, threshold, ["cat", "dog"])


@pytest.mark.parametrize("informative", [True, False])
def test_the_certain_error_is_kept_with_the_stated_confidence(informative):
    """The true error of what is certain, known here, exceeds the target in at most a tenth of validation sets."""
    rng = np.random.default_rng(3)
    failed, found = 0, 0
    for _ in range(400):
        best = rng.random(600)
        chance = 0.2 * (1.0 - best) if informative else np.full(600, 0.052)
        try:
            threshold = thresholds.threshold_for_error(best, rng.random(600) < chance, 0.05)
        except GPSError:
            continue
        found += 1
        truth = 0.2 * (1.0 - (1.0 + max(threshold, 0.0)) / 2.0) if informative else 0.052
        failed += truth > 0.05
    assert failed <= 0.1 * 400 + 3 * np.sqrt(0.09 * 400)
    assert found > (200 if informative else 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d.assess(np.ones((2, 3))), "observations, draws, classes"),
        (lambda: d.assess(np.full((1, 2, 2), np.nan)), "not finite"),
        (lambda: d.assess(np.full((1, 2, 2), 0.5), classes=["a"]), "classes must name 2"),
        (lambda: d.assess(np.full((1, 2, 2), 0.5), levels=[2.0]), "levels"),
        (lambda: d.log_loss([[0.5, 0.6]], [0]), "row 0"),
        (lambda: d.log_loss([[0.5, 0.5]], [2]), "from 0 to 1"),
        (lambda: d.log_loss([[0.5, 0.5]], ["a"]), "integer labels"),
        (lambda: d.brier([[0.5, 0.5]], [0, 1]), "integer labels"),
        (lambda: d.log_loss(np.empty((0, 2)), np.empty(0, dtype=int)), "no observations"),
        (lambda: d.selective_error([[0.5, 0.5]], [0], [True, False]), "one flag"),
        (lambda: d.risk_coverage([0.1], [True, False]), "one length"),
        (lambda: d.risk_coverage([np.nan], [True]), "not finite"),
        (lambda: d.risk_coverage([0.1], [True]).at(0.0), "coverage"),
        (lambda: d.auroc([], [1.0]), "neither empty"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(GPSError, match=message):
        call()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.045, 0.055, 0.1, 0.5])
@pytest.mark.parametrize("error_rate", [0.01, 0.05])
def test_early_verdicts_are_wrong_at_most_as_often_as_stated(share, error_rate):
    rng = np.random.default_rng(1)
    test = SequentialTest.planned(10_000, 0.05, error_rate)
    below = np.zeros(100_000, dtype=np.int64)
    waiting = np.ones(len(below), dtype=bool)
    wrong = 0
    for look, draws in enumerate(draws_in_looks(test.looks)[:-1]):
        below[waiting] += rng.binomial(draws.stop - draws.start, share, waiting.sum())
        certain = below <= test.few[look]
        done = waiting & test.settled(look, below)
        wrong += int((done & (certain != (share < 0.05))).sum())
        waiting &= ~done
    rate = wrong / len(below)
    assert rate <= error_rate + 3 * np.sqrt(error_rate / len(below))
    if share in (0.0, 0.5):
        assert not waiting.any()


def test_looks_end_at_all_draws():
    test = SequentialTest.planned(200, 0.05, 0.05)
    assert test.looks[-1] == 200
    assert test.looks[1] < 80
    assert test.settled(len(test.looks) - 1, np.array([0, 10, 200])).all()
    assert SequentialTest.planned(5, 0.05, 0.05).looks == (5,)
    with pytest.raises(GPSError, match="error_rate"):
        SequentialTest.planned(200, 0.05, 0.0)
