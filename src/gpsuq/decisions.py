r"""Verdicts on classified observations, and how good they are; on plain arrays, so that any model can be judged.

Probabilities are (n, H), draws of them (n, M, H), labels integers 0 to H - 1. Scores point one way: higher is more
uncertain. The paper's criterion of class h is :math:`t_h`, the 5% quantile of its probability over draws; an
observation is "Uncertain" where no :math:`t_h` exceeds 50%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from gpsuq.errors import GPSError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

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
        Whether no criterion exceeds the threshold, (n,).
    predictive_entropy, expected_entropy, mutual_information
        Entropy of the mean probabilities, mean entropy of the draws, and their difference, (n,).
    error_probability
        1 - the largest mean probability, (n,): how often the prediction is wrong, if the probabilities are right.
    uqc_shortfall
        1 - max t_h, (n,).
    variance
        Variance over draws of the class probabilities, summed over classes, (n,).
    n_draws
        Draws that each verdict rests on, (n,).

    Examples
    --------
    >>> from gpsuq.decisions import assess
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
    n_draws: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def prediction(self) -> NDArray[Any]:
        """The class with the highest mean probability, whatever the verdict."""
        return np.asarray(self.classes[self.mean.argmax(1)])

    @property
    def scores(self) -> dict[str, Array]:
        """All scores by name."""
        return {name: getattr(self, name) for name in SCORES}

    def to_frame(self) -> pd.DataFrame:
        """Give one row for each observation: prediction, its probability, verdict, scores."""
        table = pd.DataFrame({"prediction": self.prediction, "probability": self.mean.max(1)})
        table["uncertain"] = self.uncertain
        return table.assign(**self.scores, n_draws=self.n_draws)


SCORES = (
    "predictive_entropy",
    "expected_entropy",
    "mutual_information",
    "error_probability",
    "uqc_shortfall",
    "variance",
)
"""Names of the scores of :class:`ClassUncertainty`."""


def assess(
    samples: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    uqc_level: float = UQC_LEVEL,
    certain_above: float = CERTAIN_ABOVE,
) -> ClassUncertainty:
    """Give verdicts and scores from draws of class probabilities (n, M, H).

    >>> from gpsuq.decisions import assess
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
    *quantiles, uqc = np.quantile(draws, wanted, axis=1)
    mean = draws.mean(1)
    predictive, expected = entr(mean).sum(1), entr(draws).sum(2).mean(1)
    return ClassUncertainty(
        names,
        mean,
        {float(level): values for level, values in zip(levels, quantiles, strict=True)},
        uqc,
        uqc.max(1) <= certain_above,
        predictive,
        expected,
        np.maximum(predictive - expected, 0.0),  # below zero by rounding only
        1.0 - mean.max(1),
        1.0 - uqc.max(1),
        draws.var(1).sum(1),
        np.full(len(draws), draws.shape[1]),
    )


def joined(parts: Sequence[ClassUncertainty], order: NDArray[np.intp] | None = None) -> ClassUncertainty:
    """Put chunks together; ``order`` says which row of the result each of their rows is."""
    place = np.argsort(np.arange(sum(map(len, parts))) if order is None else order)
    values: dict[str, Any] = {}
    for item in fields(ClassUncertainty):
        if item.name == "classes":
            values[item.name] = parts[0].classes
        elif item.name == "quantiles":
            levels = parts[0].quantiles
            values[item.name] = {
                level: np.concatenate([part.quantiles[level] for part in parts])[place] for level in levels
            }
        else:
            values[item.name] = np.concatenate([getattr(part, item.name) for part in parts])[place]
    return ClassUncertainty(**values)


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

    >>> from gpsuq.decisions import wrong
    >>> wrong([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    array([False,  True])
    """
    values, labels = _checked(probabilities, y)
    return np.asarray(values.argmax(1) != labels)


def log_loss(probabilities: ArrayLike, y: ArrayLike) -> float:
    """Mean of -log p_y.

    >>> from gpsuq.decisions import log_loss
    >>> round(log_loss([[0.5, 0.5]], [0]), 3)  # log 2
    0.693
    """
    values, labels = _checked(probabilities, y)
    return float(-np.log(np.maximum(values[np.arange(len(labels)), labels], _SMALLEST)).mean())


def brier(probabilities: ArrayLike, y: ArrayLike) -> float:
    """Mean squared distance of the probabilities from the one-hot label.

    >>> from gpsuq.decisions import brier
    >>> brier([[1.0, 0.0]], [0]), brier([[0.5, 0.5]], [0]), brier([[1.0, 0.0]], [1])
    (0.0, 0.5, 2.0)
    """
    values, labels = _checked(probabilities, y)
    return float(np.square(values - np.eye(values.shape[1])[labels]).sum(1).mean())


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy in bins of confidence, and how many observations each holds.

    >>> import numpy as np
    >>> from gpsuq.decisions import Reliability
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

    Examples
    --------
    Says 90%, and is right in three of four cases:

    >>> from gpsuq.decisions import reliability
    >>> curve = reliability([[0.9, 0.1]] * 4, [0, 0, 0, 1])
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

    >>> from gpsuq.decisions import SelectiveError
    >>> error = SelectiveError(full=0.02, certain=0.005, uncertain_share=0.04)
    >>> error.certain < error.full
    True
    """

    full: float
    certain: float
    uncertain_share: float


def selective_error(probabilities: ArrayLike, y: ArrayLike, uncertain: ArrayLike) -> SelectiveError:
    """Give the three numbers of the paper's Table 1; the error of no observations is NaN.

    >>> from gpsuq.decisions import selective_error
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
    >>> from gpsuq.decisions import RiskCoverage
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
    """Give the curve for a score (higher is more uncertain) and flags of wrong predictions.

    Examples
    --------
    The most uncertain of four predictions is the wrong one:

    >>> from gpsuq.decisions import risk_coverage
    >>> risk_coverage([0.1, 0.2, 0.3, 0.9], [False, False, False, True]).risk
    array([0.  , 0.  , 0.  , 0.25])
    """
    scores, flags = np.asarray(score, dtype=np.float64), np.asarray(errors, dtype=bool)
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

    >>> from gpsuq.decisions import auroc
    >>> auroc([0.1, 0.2], [0.8, 0.9]), auroc([0.1, 0.9], [0.1, 0.9])
    (1.0, 0.5)
    """
    inside, outside = _two_scores(score_inside, score_outside)
    flags = np.repeat([0, 1], [len(inside), len(outside)])
    return float(roc_auc_score(flags, np.concatenate([inside, outside])))


def fpr95(score_inside: ArrayLike, score_outside: ArrayLike) -> float:
    """Share of observations from outside that pass where 95% of those from inside do.

    >>> from gpsuq.decisions import fpr95
    >>> fpr95([0.1, 0.2, 0.3], [0.2, 0.7, 0.8, 0.9])
    0.25
    """
    inside, outside = _two_scores(score_inside, score_outside)
    return float((outside <= np.quantile(inside, 0.95)).mean())


def _two_scores(inside: ArrayLike, outside: ArrayLike) -> tuple[Array, Array]:
    both = [np.asarray(scores, dtype=np.float64) for scores in (inside, outside)]
    for scores in both:
        if scores.ndim != 1 or len(scores) == 0 or not np.isfinite(scores).all():
            raise GPSError("scores must be two vectors of finite numbers, neither empty")
    return both[0], both[1]


# --- levels for a wanted coverage or error ---------------------------------------------------------------------------


def threshold_for_coverage(best: ArrayLike, coverage: float) -> float:
    """Give the threshold on max t_h that calls at least a share ``coverage`` of validation observations certain.

    ``best`` holds max t_h of each; equal ones are certain together.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq.decisions import threshold_for_coverage
    >>> best = np.array([0.9, 0.8, 0.6, 0.3])
    >>> best > threshold_for_coverage(best, 0.75)
    array([ True,  True,  True, False])
    """
    if not 0.0 < coverage < 1.0:
        raise GPSError(f"coverage must be between 0 and 1, got {coverage}")
    descending = np.sort(np.asarray(best, dtype=np.float64))[::-1]
    kept = max(1, math.ceil(coverage * len(descending) - 1e-9))  # 0.7 * 10 is a little more than 7
    return _just_below(descending[kept - 1])


def threshold_for_error(best: ArrayLike, errors: ArrayLike, error: float, *, confidence: float = 0.9) -> float:
    """Give the lowest threshold on max t_h for which certain observations are wrong at most that often.

    Observations are added from the most certain on, as long as the exact binomial upper bound of their error (Clopper
    and Pearson's, at the stated confidence) is below the target; the first that fails ends the sequence. The error of
    what is then called certain exceeds the target with probability 1 - ``confidence`` at most.

    Examples
    --------
    Validation data where the less certain half is often wrong:

    >>> import numpy as np
    >>> from gpsuq.decisions import threshold_for_error
    >>> best = np.linspace(1.0, 0.0, 200)
    >>> errors = (np.arange(200) >= 100) & (np.arange(200) % 2 == 0)
    >>> round(threshold_for_error(best, errors, 0.05), 2)
    0.49
    """
    if not 0.0 < error < 1.0:
        raise GPSError(f"error must be between 0 and 1, got {error}")
    scores, flags = np.asarray(best, dtype=np.float64), np.asarray(errors, dtype=bool)
    curve = risk_coverage(-scores, flags)
    kept = np.rint(curve.coverage * len(scores))
    lost = np.rint(curve.risk * kept)
    # Fewer than these cannot pass even without an error, so that the sequence starts with them.
    tested = kept >= _fewest(error, confidence)
    fine = binom.cdf(lost[tested], kept[tested], error) <= 1.0 - confidence
    passed = int(fine.argmin()) if not fine.all() else len(fine)
    if passed == 0:
        raise GPSError(
            f"no threshold gives a certain error of {error:g} with {confidence:.0%} confidence on {len(scores)} "
            "validation observations; take more of them or a higher target"
        )
    most = int(kept[tested][passed - 1])
    return _just_below(np.sort(scores)[::-1][most - 1])


def _fewest(error: float, confidence: float) -> float:
    """Give how many observations without a mistake show, with this confidence, that the error is below a target."""
    return float(np.log(1.0 - confidence) / np.log1p(-error))


def check_calibration_size(n: int, error: float, *, confidence: float = 0.9) -> None:
    """Raise where so few validation observations cannot show that an error is below a target.

    >>> from gpsuq.decisions import check_calibration_size
    >>> check_calibration_size(100, 0.02)
    Traceback (most recent call last):
    gpsuq.errors.GPSError: 100 validation observations cannot show an error below 0.02: at least 114 are needed
    """
    if not 0.0 < error < 1.0:
        raise GPSError(f"error must be between 0 and 1, got {error}")
    fewest = math.ceil(_fewest(error, confidence))
    if n < fewest:
        raise GPSError(
            f"{n} validation observations cannot show an error below {error:g}: at least {fewest} are needed"
        )


def _just_below(value: float) -> float:
    return float(np.nextafter(value, -np.inf))
