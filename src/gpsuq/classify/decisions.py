r"""Verdicts on classified observations, and how good they are; on plain arrays, so that any model can be judged.

Probabilities are (n, H), draws of them (n, M, H), labels integers 0 to H - 1. Scores point one way: higher is more
uncertain. The paper's criterion of class h is :math:`t_h`, the 5% quantile of its probability over draws; an
observation is "Uncertain" where no :math:`t_h` exceeds 50%. The threshold may differ between classes: an observation is
then judged by that of its best class, the one with the largest :math:`t_h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr
from sklearn.metrics import roc_auc_score

from gpsuq.errors import GPSError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Threshold = float | Array
"""On max t_h: one number, or one for each class, (H,)."""

UQC_LEVEL, CERTAIN_ABOVE = 0.05, 0.5
_SMALLEST = 1e-12


@dataclass(frozen=True)
class ClassUncertainty:
    """What is known about each of n classified observations; scores are higher where it is less.

    Attributes
    ----------
    classes
        Names of the classes, (H,).
    mean
        Mean probabilities over draws, (n, H).
    quantiles
        Quantiles of the probabilities by their level, each (n, H).
    uqc
        :math:`t_h`, the criterion of every class, (n, H).
    uncertain
        Whether the largest criterion does not exceed the threshold, (n,).
    predictive_entropy, expected_entropy, mutual_information
        Entropy of the mean probabilities, mean entropy of the draws, and their difference, (n,).
    error_probability
        1 - the largest mean probability, (n,): how often the prediction is wrong, if the probabilities are right.
    uqc_shortfall
        1 - max t_h, (n,).
    variance
        Variance over draws of the class probabilities, summed over classes, (n,).
    strangeness
        -log of the share of familiar observations that are as far from the training data, (n,); NaN where the
        classifier does not know.
    n_draws
        Draws that each verdict rests on, (n,).

    Examples
    --------
    >>> from gpsuq.classify.decisions import assess
    >>> verdicts = assess([[[0.9, 0.1], [0.8, 0.2]], [[0.9, 0.1], [0.1, 0.9]]], classes=["cat", "dog"])
    >>> verdicts.to_frame()[["prediction", "probability", "uncertain"]]
      prediction  probability  uncertain
    0        cat         0.85      False
    1        cat         0.50       True
    >>> verdicts.prediction[~verdicts.uncertain]
    array(['cat'], dtype='<U3')
    >>> sorted(verdicts.scores)[:3]
    ['error_probability', 'expected_entropy', 'mutual_information']
    """

    classes: NDArray[Any]
    mean: Array
    quantiles: dict[float, Array]
    uqc: Array
    uncertain: Flags
    predictive_entropy: Array
    expected_entropy: Array
    mutual_information: Array
    error_probability: Array
    uqc_shortfall: Array
    variance: Array
    strangeness: Array
    n_draws: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def prediction(self) -> NDArray[Any]:
        """The class with the highest mean probability, whatever the verdict."""
        return np.asarray(self.classes[self.mean.argmax(1)])

    @property
    def scores(self) -> dict[str, Array]:
        """All scores by name, those that are known."""
        return {name: getattr(self, name) for name in SCORES if not np.isnan(getattr(self, name)).any()}

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each observation: prediction, its probability, verdict, scores."""
        verdict = {"prediction": self.prediction, "probability": self.mean.max(1), "uncertain": self.uncertain}
        return pd.DataFrame(verdict | self.scores | {"n_draws": self.n_draws})


SCORES = (
    *("predictive_entropy", "expected_entropy", "mutual_information"),
    *("error_probability", "uqc_shortfall", "variance", "strangeness"),
)
"""Names of the scores of :class:`ClassUncertainty`."""


def assess(
    samples: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    uqc_level: float = UQC_LEVEL,
    certain_above: Threshold = CERTAIN_ABOVE,
    strangeness: ArrayLike | None = None,
    strangeness_weight: float | None = None,
) -> ClassUncertainty:
    """Return verdicts and scores from draws of class probabilities (n, M, H).

    With a ``strangeness_weight`` the criterion is :func:`combined_criterion`, of what is known of ``strangeness`` (n,).

    >>> from gpsuq.classify.decisions import assess
    >>> assess([[[0.9, 0.1], [0.8, 0.2]], [[0.9, 0.1], [0.1, 0.9]]]).uncertain
    array([False,  True])
    """
    draws = np.asarray(samples, dtype=np.float64)
    if draws.ndim != 3 or draws.shape[1] < 1:
        raise GPSError(f"samples must have shape (observations, draws, classes), got {draws.shape}")
    checked_probabilities(draws.reshape(-1, draws.shape[2]))
    names = np.arange(draws.shape[2]) if classes is None else np.asarray(classes)
    if names.shape != (draws.shape[2],):
        raise GPSError(f"classes must name {draws.shape[2]} classes, got {len(names)}")
    wanted = (*levels, uqc_level)
    if not all(0.0 <= level <= 1.0 for level in wanted):
        raise GPSError(f"levels must be between 0 and 1, got {list(wanted)}")
    ordered = np.ascontiguousarray(draws.swapaxes(1, 2))
    ordered.sort(axis=2)  # or quantiles take three times as long
    *quantiles, uqc = np.quantile(ordered, wanted, axis=2, overwrite_input=True)
    mean = draws.mean(1)
    strange = np.full(len(draws), np.nan) if strangeness is None else np.asarray(strangeness, dtype=np.float64)
    if strangeness_weight is not None:
        uqc = combined_criterion(mean, strange, strangeness_weight)
    predictive, expected = entr(mean).sum(1), entr(draws).sum(2).mean(1)
    return ClassUncertainty(
        names,
        mean,
        {float(level): values for level, values in zip(levels, quantiles, strict=True)},
        uqc,
        ~is_certain(uqc, certain_above),
        predictive,
        expected,
        np.maximum(predictive - expected, 0.0),  # below zero by rounding only
        1.0 - mean.max(1),
        1.0 - uqc.max(1),
        draws.var(1).sum(1),
        strange,
        np.full(len(draws), draws.shape[1]),
    )


def combined_criterion(mean: ArrayLike, strangeness: ArrayLike, weight: float) -> Array:
    r"""Return :math:`p_h / (1 + w (1/q - 1))` of mean probabilities (n, H), q the p-value of being familiar.

    It is the probability of class h and of being no stranger, where the odds of a stranger are w (1/q - 1). Strangeness
    (n,) is -log q, and counts as 0 where it is not known.

    >>> combined_criterion([[0.9, 0.1], [0.9, 0.1]], [0.0, 5.0], 0.002).round(2)
    array([[0.9 , 0.1 ],
           [0.7 , 0.08]])
    """
    odds = weight * np.expm1(np.nan_to_num(np.asarray(strangeness, dtype=np.float64)))
    return np.asarray(np.asarray(mean, dtype=np.float64) / (1.0 + odds[:, None]))


def is_certain(uqc: ArrayLike, certain_above: Threshold) -> Flags:
    """Whether the best class of every row of t_h (n, H) exceeds the threshold, its own where each class has one.

    >>> import numpy as np
    >>> from gpsuq.classify.decisions import is_certain
    >>> is_certain([[0.6, 0.1], [0.1, 0.6]], 0.5), is_certain([[0.6, 0.1], [0.1, 0.6]], np.array([0.5, 0.7]))
    (array([ True,  True]), array([ True, False]))
    """
    criteria = np.asarray(uqc, dtype=np.float64)
    thresholds = np.asarray(certain_above, dtype=np.float64)
    if thresholds.shape not in ((), criteria.shape[1:]):
        raise GPSError(f"certain_above must be one number or {criteria.shape[1]}, got shape {thresholds.shape}")
    of_each = np.broadcast_to(thresholds, criteria.shape[1:])
    return np.asarray(criteria.max(1) > of_each[criteria.argmax(1)])


def threshold_in_words(certain_above: Threshold) -> str:
    """Write one threshold, or the range of those of all classes.

    >>> threshold_in_words(0.5), threshold_in_words(np.array([0.4, 0.7]))
    ('0.5', '0.4 to 0.7 (by class)')
    """
    if np.ndim(certain_above) == 0:
        return f"{certain_above:.3g}"
    return f"{np.min(certain_above):.3g} to {np.max(certain_above):.3g} (by class)"


def joined(parts: Sequence[ClassUncertainty], order: NDArray[np.intp] | None = None) -> ClassUncertainty:
    """Put chunks together; ``order`` says which row of the result each of their rows is."""
    place = np.argsort(np.arange(sum(map(len, parts))) if order is None else order)

    def whole(values: Sequence[Any]) -> Any:
        if isinstance(values[0], dict):
            return {level: whole([value[level] for value in values]) for level in values[0]}
        return np.concatenate(values)[place]

    names = [item.name for item in fields(ClassUncertainty) if item.name != "classes"]
    return replace(parts[0], **{name: whole([getattr(part, name) for part in parts]) for name in names})


# --- how good probabilities are --------------------------------------------------------------------------------------


def checked_probabilities(probabilities: ArrayLike) -> Array:
    """Check that rows are probabilities."""
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise GPSError(f"probabilities must have shape (n, classes) with at least 2 classes, got {values.shape}")
    if len(values) == 0:
        raise GPSError("there are no observations")
    bad = ~(np.isfinite(values).all(1) & (values >= 0.0).all(1) & (np.abs(values.sum(1) - 1.0) < 1e-3))
    if bad.any():
        raise GPSError(f"row {int(bad.argmax())} of the probabilities is negative, not finite or does not sum to 1")
    return values


def _checked(probabilities: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[np.intp]]:
    values, labels = checked_probabilities(probabilities), np.asarray(y)
    if labels.shape != (len(values),) or labels.dtype.kind not in "iu":
        raise GPSError(f"y must hold {len(values)} integer labels, got shape {labels.shape} of {labels.dtype}")
    if labels.min() < 0 or labels.max() >= values.shape[1]:
        raise GPSError(f"labels must be from 0 to {values.shape[1] - 1}, got {labels.min()} to {labels.max()}")
    return values, labels.astype(np.intp)


def wrong(probabilities: ArrayLike, y: ArrayLike) -> Flags:
    """Whether the most probable class is not the label.

    >>> from gpsuq.classify.decisions import wrong
    >>> wrong([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    array([False,  True])
    """
    values, labels = _checked(probabilities, y)
    return np.asarray(values.argmax(1) != labels)


def log_loss(probabilities: ArrayLike, y: ArrayLike) -> float:
    """Mean of -log p_y.

    >>> from gpsuq.classify.decisions import log_loss
    >>> round(log_loss([[0.5, 0.5]], [0]), 3)  # log 2
    0.693
    """
    values, labels = _checked(probabilities, y)
    return float(-np.log(np.maximum(values[np.arange(len(labels)), labels], _SMALLEST)).mean())


def brier(probabilities: ArrayLike, y: ArrayLike) -> float:
    """Mean squared distance of the probabilities from the one-hot label.

    >>> from gpsuq.classify.decisions import brier
    >>> brier([[1.0, 0.0]], [0]), brier([[0.5, 0.5]], [0]), brier([[1.0, 0.0]], [1])
    (0.0, 0.5, 2.0)
    """
    values, labels = _checked(probabilities, y)
    return float(np.square(values - np.eye(values.shape[1])[labels]).sum(1).mean())


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy in bins of confidence, and how many observations each holds.

    >>> import numpy as np
    >>> from gpsuq.classify.decisions import Reliability
    >>> curve = Reliability(confidence=np.array([0.6, 0.9]), accuracy=np.array([0.6, 0.8]), count=np.array([50, 50]))
    >>> round(curve.error, 3)
    0.05
    """

    confidence: Array
    accuracy: Array
    count: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of accuracy from confidence."""
        return float(np.abs(self.accuracy - self.confidence) @ self.count / self.count.sum())


def reliability(probabilities: ArrayLike, y: ArrayLike, bins: int = 15) -> Reliability:
    """Compare the probability of the predicted class with how often it is right, in bins of equal width.

    >>> from gpsuq.classify.decisions import reliability
    >>> curve = reliability([[0.9, 0.1]] * 4, [0, 0, 0, 1])  # says 90%, and is right in three of four cases
    >>> float(curve.accuracy[0]), round(curve.error, 2)
    (0.75, 0.15)
    """
    values, labels = _checked(probabilities, y)
    confidence, right = values.max(1), values.argmax(1) == labels
    place = np.minimum((confidence * bins).astype(np.intp), bins - 1)
    count = np.bincount(place, minlength=bins)
    seen = count > 0
    mean = [np.bincount(place, weights=item, minlength=bins)[seen] / count[seen] for item in (confidence, right)]
    return Reliability(mean[0], mean[1], count[seen])


# --- how good verdicts are -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectiveError:
    """Error on all observations, on the certain ones, and the share of uncertain ones.

    >>> from gpsuq.classify.decisions import SelectiveError
    >>> SelectiveError(full=0.02, certain=0.005, uncertain_share=0.04).certain
    0.005
    """

    full: float
    certain: float
    uncertain_share: float


def selective_error(probabilities: ArrayLike, y: ArrayLike, uncertain: ArrayLike) -> SelectiveError:
    """Return the three numbers of the paper's Table 1; the error of no observations is NaN.

    >>> from gpsuq.classify.decisions import selective_error
    >>> selective_error([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], [0, 0, 0, 1], [False, False, False, True])
    SelectiveError(full=0.25, certain=0.0, uncertain_share=0.25)
    """
    errors = wrong(probabilities, y)
    left_out = np.asarray(uncertain, dtype=bool)
    if left_out.shape != errors.shape:
        raise GPSError(f"uncertain must have one flag for each of {len(errors)} observations, got {left_out.shape}")
    certain = float(errors[~left_out].mean()) if not left_out.all() else float("nan")
    return SelectiveError(float(errors.mean()), certain, float(left_out.mean()))


@dataclass(frozen=True)
class RiskCoverage:
    """Error among the observations kept, as more are kept, the most certain first; ties are kept together.

    >>> import numpy as np
    >>> from gpsuq.classify.decisions import RiskCoverage
    >>> curve = RiskCoverage(coverage=np.array([0.5, 1.0]), risk=np.array([0.0, 0.2]))
    >>> curve.area, curve.at(0.5)
    (0.1, 0.0)
    """

    coverage: Array
    risk: Array

    @property
    def area(self) -> float:
        """AURC: mean risk over the observations' own coverages, ties at their common risk."""
        return float(self.risk @ np.diff(self.coverage, prepend=0.0))

    def at(self, coverage: float) -> float:
        """Error at a coverage; inside a tie, the expected one when it is broken at random."""
        if not 0.0 < coverage <= 1.0:
            raise GPSError(f"coverage must be above 0 and at most 1, got {coverage}")
        kept = np.concatenate([[0.0], self.coverage])
        lost = np.concatenate([[0.0], self.coverage * self.risk])
        return float(np.interp(coverage, kept, lost) / coverage)


def risk_coverage(score: ArrayLike, errors: ArrayLike) -> RiskCoverage:
    """Return the curve for a score (higher is more uncertain) and flags of wrong predictions, or how likely they are.

    >>> from gpsuq.classify.decisions import risk_coverage
    >>> risk_coverage([0.1, 0.2, 0.3, 0.9], [False, False, False, True]).risk  # the most uncertain one is wrong
    array([0.  , 0.  , 0.  , 0.25])
    """
    scores, flags = np.asarray(score, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if scores.ndim != 1 or scores.shape != flags.shape or len(scores) == 0:
        raise GPSError(f"score and errors must be two vectors of one length, got {scores.shape} and {flags.shape}")
    if not np.isfinite(scores).all():
        raise GPSError(f"score {int((~np.isfinite(scores)).argmax())} is not finite")
    order = np.argsort(scores, kind="stable")
    last = np.append(np.diff(scores[order]) > 0, True)
    kept = np.arange(1, len(order) + 1)[last]
    return RiskCoverage(kept / len(order), np.cumsum(flags[order])[last] / kept)


def auroc(score_inside: ArrayLike, score_outside: ArrayLike) -> float:
    """Probability that an observation from outside scores higher than one from inside.

    >>> from gpsuq.classify.decisions import auroc
    >>> auroc([0.1, 0.2], [0.8, 0.9]), auroc([0.1, 0.9], [0.1, 0.9])
    (1.0, 0.5)
    """
    inside, outside = _two_scores(score_inside, score_outside)
    return float(roc_auc_score(np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside])))


def fpr95(score_inside: ArrayLike, score_outside: ArrayLike) -> float:
    """Share of observations from outside that pass where 95% of those from inside do.

    >>> from gpsuq.classify.decisions import fpr95
    >>> fpr95([0.1, 0.2, 0.3], [0.2, 0.7, 0.8, 0.9])
    0.25
    """
    inside, outside = _two_scores(score_inside, score_outside)
    return float((outside <= np.quantile(inside, 0.95)).mean())


def _two_scores(inside: ArrayLike, outside: ArrayLike) -> tuple[Array, Array]:
    both = np.asarray(inside, dtype=np.float64), np.asarray(outside, dtype=np.float64)
    if any(scores.ndim != 1 or len(scores) == 0 or not np.isfinite(scores).all() for scores in both):
        raise GPSError("scores must be two vectors of finite numbers, neither empty")
    return both
