"""What every saved model must fulfil, and whose fault it is where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gpsuq.errors import MissingCodeError

_MAY_BE_MISSING = ("history/", "covariate/")
"""Begin the names of tensors that may hold NaN: scores of a training, and covariates outside the window."""


def check_tensors(tensors: Mapping[str, Tensor], *, own: bool) -> None:
    """Raise where a number is missing or infinite; networks of the user's ``own`` may hold infinities, as masks do."""
    for name, tensor in tensors.items():
        bad = tensor.isnan() if own else ~torch.isfinite(tensor)
        if bad.any() and not name.startswith(_MAY_BE_MISSING):
            raise ValueError(f"{name} holds numbers that are not finite")


def feature_names(config: Mapping[str, Any], n_features: int | None) -> list[str] | None:
    """Give the names of the columns that were fitted, if they had any: one text for each."""
    names = config["feature_names"]
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names must hold {n_features} names, got {names!r}")
    return names


@contextmanager
def your_code(what: str, saved: str | None = None) -> Iterator[None]:
    """Say that it was the user's network or generator that failed inside, not what was ``saved``, described so."""
    try:
        yield
    except MissingCodeError:
        raise
    except Exception as error:
        was = "" if saved is None else f"; the saved one was:\n{saved}"
        raise MissingCodeError(f"the {what} that was passed does not fit the saved model ({error}){was}") from error
