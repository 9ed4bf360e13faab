"""What there is to say about the training of a network, and about what it makes of the data that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.classify.networks import Standardise
from gpsuq.engine.diagnostics import Finding

_LAST_PART = 5  # of as many parts of the training
_STILL_FALLING = 0.05  # of all that the loss fell by, in the last part
_SURE = 1e-4  # of a sum that is 1
_SIZES = 100.0  # of a column, or of the largest beside the smallest
_BESIDES = 0.1  # share of other classes, from which on it is strange to predict one only
_TOO_SURE = 0.2  # by which probabilities may exceed the share that is right, beside two standard errors
_NO_SPREAD = 1e-3  # of the differences between observations
_RARE = 0.1  # of the most frequent class
_FEW_ROWS, _FEW_MISTAKES = 100, 5
SETTLING = ("few-validation", "unsettled")
"""Codes of findings that are about what validation data settles."""
ALARMING = ("softmax", "unscaled", "too-sure")
"""Codes of findings after which no verdict is to be trusted: a fit warns of them."""


@dataclass(frozen=True)
class Trained:
    """What a network makes of some observations that it was trained on.

    Inputs x (n, ...), labels y (n,), and logits (n, draw, class); ``names`` and ``counts`` are those of the classes.
    """

    network: nn.Module
    x: Tensor
    y: Tensor
    logits: Tensor
    names: NDArray[np.generic]
    counts: NDArray[np.intp]


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


def setup_findings(seen: Trained) -> list[Finding]:
    """Return what is wrong with inputs, outputs or labels, as far as some training observations show it.

    >>> import numpy as np, torch
    >>> from torch import nn
    >>> from gpsuq.classify.findings import Trained, setup_findings
    >>> x, y = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 2
    >>> logits = torch.tensor([9.0, 0.0]).expand(100, 1, 2)
    >>> seen = Trained(nn.Sequential(nn.Linear(2, 2)), x, y, logits, np.array(["cat", "dog"]), np.array([50, 50]))
    >>> [finding.code for finding in setup_findings(seen)]
    ['one-class', 'too-sure']
    """
    checks = _softmax, _unscaled, _one_class, _too_sure, _no_spread, _imbalanced
    return [finding for check in checks if (finding := check(seen)) is not None]


def settling_findings(n: int, mistakes: int) -> list[Finding]:
    """Return what to know of a combined verdict that n validation observations settled, some of them mistakes.

    >>> [finding.code for finding in settling_findings(50, 2)]
    ['few-validation']
    >>> settling_findings(1000, 40)
    []
    """
    if n >= _FEW_ROWS and mistakes >= _FEW_MISTAKES:
        return []
    return [
        Finding(
            SETTLING[0],
            f"the verdict was settled by {n} validation observations, {mistakes} of them mistakes: what is strange and "
            "the threshold are rough, and how much strangeness counts rests on the probabilities being right; pass "
            f"more, fit(..., validation=(X, y)), at least {_FEW_ROWS} with {_FEW_MISTAKES} mistakes",
        )
    ]


def unsettled_finding() -> Finding:
    """Return what to know of a verdict for which there were no validation data."""
    return Finding(
        SETTLING[1],
        "nothing was set aside (of a DataLoader, or of few observations), so that the verdict goes by the spread over "
        "draws alone and knows no strangers: pass data that the network has not seen, fit(..., validation=(X, y))",
    )


def _softmax(seen: Trained) -> Finding | None:
    outputs = seen.logits
    if bool((outputs < 0.0).any()) or bool(((outputs.sum(-1) - 1.0).abs() > _SURE).any()):
        return None
    message = (
        "the network ends in a softmax, and another one follows: let it give logits, without nn.Softmax at its end"
    )
    return Finding("softmax", message)


def _unscaled(seen: Trained) -> Finding | None:
    if seen.x.dim() != 2 or not seen.x.is_floating_point() or _standardises(seen.network):
        return None
    sizes = seen.x.double().square().mean(0).sqrt()
    spreads = seen.x.double().std(0, correction=0)
    spreads = spreads[spreads > 0.0]
    if not len(spreads) or (sizes.max() <= _SIZES and spreads.max() <= _SIZES * spreads.min()):
        return None
    return Finding(
        "unscaled",
        f"the columns have sizes up to {float(sizes.max()):.3g} and spreads from {float(spreads.min()):.3g} to "
        f"{float(spreads.max()):.3g}, and the network does not scale them: put it behind a scaler, "
        "make_pipeline(StandardScaler(), GPSClassifier(network))",
    )


def _standardises(network: nn.Module) -> bool:
    """Whether a network has something that scales its inputs: it lies before the first affine layer."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            return False
        if isinstance(layer, (nn.LayerNorm, nn.modules.batchnorm._NormBase, Standardise)):
            return True
    return False


def _one_class(seen: Trained) -> Finding | None:
    predicted = torch.softmax(seen.logits, -1).mean(1).argmax(-1)
    others = float((seen.y != predicted[0]).float().mean())
    if others < _BESIDES or bool((predicted != predicted[0]).any()):
        return None
    return Finding(
        "one-class",
        f"class {str(seen.names[int(predicted[0])])!r} is predicted for each of {len(predicted)} training "
        f"observations, of which {others:.0%} have another: scale the inputs, lower the learning rate, or check that "
        "labels belong to their rows",
    )


def _too_sure(seen: Trained) -> Finding | None:
    best = torch.softmax(seen.logits.double(), -1).mean(1).max(-1)
    right, sure = float((best.indices == seen.y).double().mean()), float(best.values.mean())
    if sure - right <= _TOO_SURE + 2.0 * (right * (1.0 - right) / len(seen.y)) ** 0.5:
        return None
    return Finding(
        "too-sure",
        f"the network is sure of what it was trained on to {sure:.0%}, and right in {right:.0%}: probabilities and "
        "verdicts are not to be trusted; scale the inputs or lower the learning rate, Recipe(learning_rate=...)",
    )


def _no_spread(seen: Trained) -> Finding | None:
    if seen.logits.shape[1] < 2:
        return None
    between = float(seen.logits.mean(1).std(0).mean())
    if float(seen.logits.std(1).mean()) > _NO_SPREAD * between:
        return None
    return Finding(
        "no-spread",
        "the draws agree to a thousandth, so that a verdict says no more than a probability: let noise enter at "
        "another layer, or raise ratio",
    )


def _imbalanced(seen: Trained) -> Finding | None:
    rare, common = int(seen.counts.argmin()), int(seen.counts.argmax())
    if seen.counts[rare] >= _RARE * seen.counts[common]:
        return None
    return Finding(
        "imbalanced",
        f"class {str(seen.names[rare])!r} has {seen.counts[rare]} observations, {str(seen.names[common])!r} has "
        f"{seen.counts[common]}: judge each class by itself, calibrate(..., by_class=True)",
    )
