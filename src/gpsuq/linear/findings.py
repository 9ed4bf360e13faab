"""What a fitted linear regression has to say about itself, in plain words: what was found, and what to do about it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpsuq.core.calibration import Calibration
from gpsuq.engine.diagnostics import Finding
from gpsuq.linear.equal import EqualFit
from gpsuq.linear.evidence import Evidence
from gpsuq.linear.sample import Rows

Array = NDArray[np.floating]

_CURVED_SHARE = 0.02  # of the residual variance: less is not worth a word
_CHANGES = 1.25  # ratio of the 90% to the 10% quantile of the noise's scale
_FEWEST_FOR_LEVELS = 100
_APART, _SMALLEST = 4.0, 0.1  # standard deviations between two levels; share of the smaller
_SWEEPS = 60


FAILED = Finding(
    "training-failed",
    "training ended in numbers that are not finite, so that the law which it started from is used; a larger "
    "spread_weight keeps it in bounds",
)


def describe(
    rows: Rows,
    equal: EqualFit,
    evidence: Evidence | None,
    calibration: Calibration,
    kind: str,
) -> list[Finding]:
    """Return the findings of a fit, the most important first."""
    found = [
        None if evidence is None else _curved(evidence, kind),
        None if evidence is None or kind != "equal" else _noise_varies(calibration, rows.columns, evidence),
        _levels(rows.residuals(equal.coefficients), rows.weight) if kind == "equal" else None,
    ]
    return [finding for finding in found if finding is not None]


def _curved(evidence: Evidence, kind: str) -> Finding | None:
    if not evidence.curved or evidence.curvature < _CURVED_SHARE:
        return None
    doubt = "" if kind == "equal" else ", and part of what differs between rows may be the curve"
    return Finding(
        "nonlinear",
        f"the relation is curved: squares and products of the columns explain {evidence.curvature:.0%} of what a line "
        f"leaves. Coefficients are those of the best line{doubt}. Add transformed columns, or use a model of curves, "
        "such as GPSRegressor",
    )


def _noise_varies(calibration: Calibration, columns: Array, evidence: Evidence) -> Finding | None:
    """Find a scale of y around the line that changes with x, where coefficients that differ do not explain it."""
    scale = calibration.scale(columns)
    low, high = np.quantile(scale, [0.1, 0.9])
    if calibration.scale.constant or high < _CHANGES * low:
        return None
    instead = "; coefficients that differ between rows describe this less well than noise that changes"
    return Finding(
        "noise-varies",
        f"y lies closer to the line for some rows than for others: its spread changes with x by a factor of "
        f"{high / low:.1f} between the 10% and the 90% of rows where it is smallest and largest, and intervals follow "
        f"it{instead if evidence.differ else ''}",
    )


def _levels(residuals: Array, weight: Array) -> Finding | None:
    """Find residuals that fall into two heaps, by a mixture of two Normals of one width."""
    if len(residuals) < _FEWEST_FOR_LEVELS:
        return None
    center = np.quantile(residuals, [0.2, 0.8])
    share, variance = np.array([0.5, 0.5]), float(np.var(residuals)) / 4.0
    weight = weight / weight.sum()
    for _ in range(_SWEEPS):
        log = np.log(share) - 0.5 * np.square(residuals[:, None] - center) / max(variance, 1e-300)
        belongs = np.exp(log - log.max(1, keepdims=True))
        belongs *= (weight / belongs.sum(1))[:, None]
        share = belongs.sum(0) + 1e-12
        center = residuals @ belongs / share
        variance = float((belongs * np.square(residuals[:, None] - center)).sum())
    gap = abs(float(center[1] - center[0])) / np.sqrt(max(variance, 1e-300))
    if gap < _APART or share.min() < _SMALLEST:
        return None
    return Finding(
        "levels",
        f"residuals fall into two heaps ({share.min():.0%} and {share.max():.0%} of the rows): subgroups may differ by "
        "their intercept only; random_intercept=True looks for them",
    )


def verdict(kind: str, n_lines: int, evidence: Evidence | None) -> str:
    """Return whether coefficients differ between rows, and how that is known, in words; a law has so many lines."""
    if kind == "equal":
        return f"No difference between rows was detected{_power(evidence)}."
    shapes = {
        "normal": "their law is Normal",
        "lines": f"they follow {n_lines} lines",
        "levels": f"rows follow {n_lines} parallel lines",
        "trained": "their law was learned by training",
    }
    tested = f" (p = {evidence.p_value:.3g})" if evidence is not None and evidence.differ else ""
    return f"Coefficients differ between rows{tested}: {shapes[kind]}."


def _power(evidence: Evidence | None) -> str:
    """Return what the test of equal coefficients gave, in words, and what it would have found."""
    if evidence is None:
        return ": none was looked for"
    found = f" (p = {evidence.p_value:.2g})"
    if evidence.differ:
        return f"{found} that noise which changes with x does not describe better"
    if evidence.detectable is None or not np.isfinite(evidence.detectable):
        return f"{found}; these rows would hardly have shown one"
    return (
        f"{found}; one coefficient that varied by {evidence.detectable:g} noise standard deviations for each standard "
        "deviation of its column would have been found with a probability of 80%"
    )
