"""Several networks in the place of one: trained from different seeds or rows, in cycles, or as heads of one trunk."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from gpsuq.classify.decisions import log_loss
from gpsuq.classify.inputs import set_aside
from gpsuq.classify.network import NetworkClassifier
from gpsuq.core.seeds import derive_seed
from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import stage
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError

FOLDS = 5
"""Members of the network for tables, each of which leaves a part of the rows out."""

_MOST_LEFT_OUT = 2000  # rows of a member: they need not be more, however many there are
_LENGTHS = (0.125, 0.25, 0.5, 1.0)  # of the usual epochs, that are tried in turn
_CYCLE = 0.1  # of the epochs of the first training, that a snapshot or another head takes

Classifier = TypeVar("Classifier", bound=NetworkClassifier)

Parted = tuple[Any, Any, tuple[Any, Any]]
"""Observations and labels that a member is trained on, and those that it leaves out."""


def left_out(X: Any, y: Any, n_members: int, number: int, seed: int) -> Parted:
    """Return what a member is trained on and what it leaves out: a part of the rows of every class, at most 2,000."""
    return set_aside(X, y, min(1.0 / n_members, _MOST_LEFT_OUT / len(X)), seed, number, n_members)


def trained_members(
    classifier: Classifier, X: Any, y: Any, place: Path | None, seed: int, options: dict[str, Any]
) -> list[Classifier]:
    """Return ``classifier.members`` copies of a classifier, each trained; the first is what one alone would be.

    ``"networks"`` are independent tasks. ``"snapshots"`` go on from one to the next by a tenth of the epochs, the rate
    rising and falling again; ``"heads"`` do so from the first, whose layers before the noise all of them keep.
    ``place`` is a directory for checkpoints, ``options`` are those of ``fit``.
    """
    asked: Any = classifier
    if asked.how == "networks":
        _check_starts(asked)

    def trained(number: int, **changed: Any) -> Classifier:
        model: Any = _member(classifier, number, seed)
        for name, value in changed.items():
            setattr(model, name, value)
        with stage(f"member {number}"):
            folder = None if place is None else place / f"member{number}"
            NetworkClassifier.fit(model, X, y, checkpoint=folder, **options)
        return model  # type: ignore[no-any-return]

    if asked.how == "networks":
        fabric_or_default(asked.fabric)  # processes join before members are dealt out
        bar = "members" if asked.progress else None
        return independent(trained, [(number,) for number in range(asked.members)], bar=bar)
    models: list[Any] = [trained(0)]
    recipe = Recipe() if asked.recipe is None else asked.recipe
    short = replace(recipe, epochs=max(1, round(_CYCLE * len(models[0].losses_))))
    for number in range(1, asked.members):
        if asked.how == "snapshots":
            models.append(trained(number, network=models[-1].network_, recipe=short))
        else:
            models.append(trained(number, network=models[0].network_, recipe=short, features="keep"))
    return models


def members_on_parts(
    classifier: Classifier, X: Any, y: Any, n_members: int, place: Path | None, seed: int, options: dict[str, Any]
) -> list[Classifier]:
    """Return copies of a classifier, each trained without the rows that it leaves out, for as long as these gain.

    Where the recipe does not say how many epochs there are, all members are trained for an eighth of the usual, and
    then anew for twice as many, until the mean log loss of the rows left out falls no more: those before are returned.
    """
    _check_starts(classifier)
    asked: Any = classifier
    recipe = Recipe() if asked.recipe is None else asked.recipe
    fabric_or_default(asked.fabric)  # processes join before members are dealt out
    bar = "members" if asked.progress else None

    def trained(number: int, epochs: int) -> tuple[Classifier, float]:
        rest, labels, (aside, wanted) = left_out(X, y, n_members, number, seed)
        model: Any = _member(classifier, number, seed)
        model.recipe = replace(recipe, epochs=epochs)
        with stage(f"member {number}, {epochs} epochs"):
            folder = None if place is None else place / f"epochs{epochs}" / f"member{number}"
            NetworkClassifier.fit(model, rest, labels, checkpoint=folder, **options)
        if recipe.epochs or not len(wanted):
            return model, math.inf
        return model, log_loss(model.predict_proba(aside), model.encoded(wanted))

    best: list[Classifier] = []
    least = math.inf
    for epochs in _lengths(recipe, len(X) - min(len(X) // n_members, _MOST_LEFT_OUT)):
        models, losses = zip(*independent(trained, [(k, epochs) for k in range(n_members)], bar=bar), strict=True)
        loss = sum(losses)
        if best and loss >= least:
            break
        best, least = list(models), loss
    return best


def _lengths(recipe: Recipe, n: int) -> list[int]:
    """Return numbers of epochs to try for n observations, about twice the one before each, up to the usual."""
    usual = recipe.n_epochs(math.ceil(n / recipe.batch_size))
    return sorted({max(1, round(share * usual)) for share in ((1.0,) if recipe.epochs else _LENGTHS)})


def _member(classifier: Classifier, number: int, seed: int) -> Classifier:
    """Return a copy of a classifier that is one member; the first has the seed that one alone would have."""
    model: Any = copy.copy(classifier)
    model.members, model.random_state = 1, derive_seed(seed, "member", number) >> 32 if number else seed
    return model  # type: ignore[no-any-return]


def _check_starts(classifier: Any) -> None:
    if classifier.features == "learn" and isinstance(classifier.network, nn.Module):
        raise GPSError("members start from different weights: pass a function that makes the network")
