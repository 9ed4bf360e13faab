"""What there is to say about the training of a network."""

from __future__ import annotations

from collections.abc import Sequence

from gpsuq.engine.diagnostics import Finding

_LAST_PART = 5  # of as many parts of the training
_STILL_FALLING = 0.05  # of all that the loss fell by, in the last part


def training_findings(losses: Sequence[float]) -> list[Finding]:
    """Return what the mean losses of the epochs call for, if anything.

    >>> from gpsuq.classify.findings import training_findings
    >>> [finding.code for finding in training_findings([0.9, 0.6, 0.3])]
    ['still-falling']
    >>> training_findings([0.9, 0.3, 0.21, 0.2, 0.2])
    []
    """
    if len(losses) < 2:
        return []
    gained = losses[0] - losses[-1]
    if gained <= 0:
        advice = "the loss ended above where it started: lower the learning rate, Recipe(learning_rate=...)"
        return [Finding("got-worse", advice)]
    if losses[-1 - max(1, len(losses) // _LAST_PART)] - losses[-1] <= _STILL_FALLING * gained:
        return []
    advice = "the loss was still falling when training ended: train longer, Recipe(epochs=...)"
    return [Finding("still-falling", f"{advice}; there were {len(losses)} epochs (--epochs)")]
