"""Whether outcomes fall under their predictive as they should: the numbers, and the blocks that show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.plots.checks import pit_histogram
from gpsuq.reports.page import Block, Picture, Table, Text

_COVERAGES = (0.5, 0.8, 0.9, 0.95)
_OFF = 0.05
_CHANCE = 2.58  # standard errors that chance explains in 99 of 100 cases


def calibration(probability: NDArray[np.floating], *, bins: int = 20) -> dict[str, Any]:
    """Count outcomes by the probability of at most them, and those inside central intervals; as JSON holds it.

    >>> import numpy as np
    >>> from gpsuq.reports.calibration import calibration
    >>> found = calibration(np.array([0.05, 0.3, 0.5, 0.7, 0.95]), bins=5)
    >>> found["pit"], found["coverage"]["0.5"]
    ([1, 1, 1, 1, 1], 0.6)
    """
    counts, _ = np.histogram(probability, bins=bins, range=(0.0, 1.0))
    inside = {str(c): float((np.abs(probability - 0.5) <= 0.5 * c).mean()) for c in _COVERAGES}
    return {"pit": counts.tolist(), "coverage": inside}


def randomised(below: NDArray[np.floating], at_most: NDArray[np.floating]) -> NDArray[np.float64]:
    """Give a number between the probability of less and of at most each outcome: uniform for counts, too.

    >>> import numpy as np
    >>> from gpsuq.reports.calibration import randomised
    >>> chosen = randomised(np.array([0.2, 0.5]), np.array([0.4, 0.5]))
    >>> bool(0.2 <= chosen[0] <= 0.4), float(chosen[1])
    (True, 0.5)
    """
    chosen: NDArray[np.float64] = below + np.random.default_rng(0).random(np.shape(below)) * (at_most - below)
    return chosen


def calibration_blocks(found: Mapping[str, Any], what: str, *, advice: str) -> list[Block]:
    """Show what :func:`calibration` found for ``what`` ("rows"), with ``advice`` where intervals are too narrow."""
    n = sum(found["pit"])
    coverage = {float(level): share for level, share in found["coverage"].items()}
    off = {level: abs(share - level) for level, share in coverage.items()}
    explained = {level: max(_OFF, _CHANCE * math.sqrt(level * (1.0 - level) / n)) for level in coverage}
    wrong = [level for level in coverage if off[level] > explained[level]]
    if not wrong:
        verdict = Text(f"Prediction intervals hold as many {what} as they should, as far as {n:,} can tell.", "good")
    elif all(coverage[level] > level for level in wrong):
        verdict = Text(
            f"Prediction intervals are wider than these {what} need: they hold up to {max(off.values()):.0%} more of "
            "them than they should. Little is known for sure; more data narrow them.",
            "advice",
        )
    else:
        verdict = Text(f"Prediction intervals miss their coverage by up to {max(off.values()):.0%}. {advice}", "advice")
    shown = pd.DataFrame({"inside": {f"{level:.0%}": f"{share:.1%}" for level, share in coverage.items()}})
    return [
        verdict,
        Picture(
            pit_histogram(found["pit"], what),
            "Histogram of the probability of at most y",
            "Flat where the predictive is right; a hump means intervals that are too wide, a bowl too narrow.",
        ),
        Table(shown.rename_axis("prediction interval"), f"Share of the {what} inside"),
    ]
