"""Several networks in the place of one: trained from different seeds, in cycles, or as heads of one trunk."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from gpsuq.classify.network import NetworkClassifier
from gpsuq.core.seeds import derive_seed
from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import stage
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError

_CYCLE = 0.1  # of the epochs of the first training, that a snapshot or another head takes

Classifier = TypeVar("Classifier", bound=NetworkClassifier)


def trained_members(
    classifier: Classifier, X: Any, y: Any, place: Path | None, seed: int, options: dict[str, Any]
) -> list[Classifier]:
    """Return ``classifier.members`` copies of a classifier, each trained; the first is what one alone would be.

    ``"networks"`` are independent tasks. ``"snapshots"`` go on from one to the next by a tenth of the epochs, the rate
    rising and falling again; ``"heads"`` do so from the first, whose layers before the noise all of them keep.
    ``place`` is a directory for checkpoints, ``options`` are those of ``fit``.
    """
    asked: Any = classifier
    if asked.how == "networks" and asked.features == "learn" and isinstance(asked.network, nn.Module):
        raise GPSError("members start from different weights: pass a function that makes the network")

    def trained(number: int, **changed: Any) -> Classifier:
        model: Any = copy.copy(classifier)
        first = {"members": 1, "random_state": derive_seed(seed, "member", number) >> 32 if number else seed}
        for name, value in (first | changed).items():
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
