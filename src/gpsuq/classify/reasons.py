"""Why a verdict is "Uncertain": a strange input, classes that are close, or draws that disagree."""

from __future__ import annotations

import numpy as np

from gpsuq.classify.decisions import ClassUncertainty, Threshold

_STRANGE = 0.01  # share of familiar observations that are as far from the training data
_TWO = 0.9  # probability of the two likeliest classes together from which on the others do not count


def reasons(verdicts: ClassUncertainty, certain_above: Threshold, *, combined: bool = False) -> list[str]:
    """Return a few words for each observation that is Uncertain, and none for those that are certain.

    ``combined`` says that the verdict is of mean probabilities and strangeness, not of quantiles over draws.

    >>> from gpsuq.classify.decisions import assess
    >>> from gpsuq.classify.reasons import reasons
    >>> sure, split, torn = [[0.9, 0.1]] * 3, [[0.5, 0.5]] * 3, [[0.95, 0.05]] * 2 + [[0.1, 0.9]]
    >>> reasons(assess([sure, split, torn], classes=["cat", "dog"]), 0.5)
    ['', 'close: cat 50%, dog 50%', 'draws disagree: cat from 18% to 95%']
    """
    thresholds = np.broadcast_to(np.asarray(certain_above, dtype=float), len(verdicts.classes))
    found = []
    for row in range(len(verdicts)):
        mean = verdicts.mean[row]
        first, second = np.argsort(-mean, kind="stable")[:2]
        familiar = float(np.exp(-verdicts.strangeness[row]))  # NaN where it is not known
        if not verdicts.uncertain[row]:
            said = ""
        elif mean[first] <= thresholds[first] and mean[first] + mean[second] >= _TWO:
            names = (f"{verdicts.classes[place]} {mean[place]:.0%}" for place in (first, second))
            said = f"close: {', '.join(names)}"
        elif mean[first] <= thresholds[first]:
            said = f"no class stands out: {verdicts.classes[first]} {mean[first]:.0%}"
        elif combined or familiar < _STRANGE:
            said = f"strange input: {familiar:.1%} of familiar ones are as far from the training data"
        else:
            low, high = (verdicts.quantiles[end(verdicts.quantiles)][row, first] for end in (min, max))
            said = f"draws disagree: {verdicts.classes[first]} from {low:.0%} to {high:.0%}"
        found.append(said)
    return found
