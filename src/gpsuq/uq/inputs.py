"""What a distribution is asked about: rows, outcomes and concomitants, checked against those of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.groups import label_places
from gpsuq.core.observations import Batch, Observations, aligned, checked_concomitants, observations
from gpsuq.core.shapes import Shape, measure_dims
from gpsuq.errors import GPSError

Array = NDArray[np.floating]


class About(TypedDict, total=False):
    """What predictions take beside x: labels of a long table's rows, and concomitants."""

    groups: Any
    concomitants: Any


@dataclass(frozen=True)
class FittedInputs:
    """What a fit saw: names of its columns and concomitants, and the shapes of one row of x and of one observation."""

    feature_names: list[str] | None
    x_shape: Shape | None
    concomitants: list[str] | None
    one_y: Shape
    dtype: torch.dtype

    @property
    def measures(self) -> int:
        """Number of dimensions of an observation that are measures with covariates of their own."""
        return 0 if self.x_shape is None else measure_dims(self.x_shape, self.one_y)

    def seen(self, x: Any) -> Tensor:
        """Check rows of what parameters depend on: concomitants, or x where the fit had none."""
        seen = self.covariates(x).x if self.concomitants is None else self.checked_concomitants(x, len(x), None)
        assert seen is not None
        return seen

    def checked_concomitants(self, w: Any, n: int, groups: Any) -> Tensor | None:
        """Check concomitants against those of the fit; None where it had none."""
        if w is None and self.concomitants is None:
            return None
        if w is None:
            raise GPSError(f"the law of theta depends on {', '.join(self.concomitants or [])}: pass concomitants=...")
        if self.concomitants is None:
            raise GPSError("the fit had no concomitants: leave them out, or pass them to fit, too")
        checked = checked_concomitants(_in_order(w, self.concomitants, "concomitants"), n, groups, self.dtype)
        if checked.shape[1] != len(self.concomitants):
            raise GPSError(f"there are {checked.shape[1]} concomitants, the fit had {len(self.concomitants)}")
        return checked

    def covariates(self, x: Any, groups: Any = None) -> Observations:
        """Check covariates against those of the fit; ragged groups come padded, with a mask of what is there."""
        x = _in_order(x, self.feature_names, "x")
        if not isinstance(x, list | tuple) and np.ndim(x) == 0:
            raise GPSError("x must be an array with one row per observation")
        lengths = [len(item) if np.ndim(item) > 1 else 1 for item in x] if isinstance(x, list | tuple) else []
        targets: Any = [np.zeros(length) for length in lengths] if len(set(lengths)) > 1 else torch.zeros(len(x))
        data = observations(x, targets, groups=groups, dtype=self.dtype)
        assert data.x is not None
        self._check_covariates(data.x)
        return data

    def observed(self, x: Any, y: Any, mask: Any, groups: Any, concomitants: Any) -> Observations:
        """Check observations against those of the fit."""
        data = observations(_in_order(x, self.feature_names, "x"), y, mask=mask, groups=groups, dtype=self.dtype)
        if (data.x is None) != (self.x_shape is None):
            problem = "no covariates, but the fit had some" if data.x is None else "covariates, but the fit had none"
            raise GPSError(f"there are {problem}: pass X and y as they were passed to fit")
        if data.x is not None:
            self._check_covariates(data.x)
        one_y = tuple(data.y.shape[1:])
        if len(one_y) != len(self.one_y) or one_y[self.measures :] != self.one_y[self.measures :]:
            raise GPSError(f"an observation in y has shape {one_y}, in the fit it had {self.one_y}")
        return replace(data, w=self.checked_concomitants(concomitants, len(data), groups))

    def new(self, x: Any, n_observations: int | None, about: About) -> Batch:
        """Return what is known of observations to predict; their y is zeros."""
        groups, given = about.get("groups"), about.get("concomitants")
        if x is None and groups is not None:
            raise GPSError("groups are labels of the rows of x: pass x, too")
        if x is not None and n_observations is not None:
            raise GPSError("n_observations is for models without covariates; with x there is one for each row")
        if x is None:
            w = self.checked_concomitants(given, 0 if given is None else len(given), None)
            y = torch.zeros(1, (n_observations or 1) if w is None else len(w), 1)
            return Batch(y, w=None if w is None else aligned(w))
        data = self.covariates(x, groups)
        return replace(data, w=self.checked_concomitants(given, len(data), groups)).rows()

    def _check_covariates(self, x: Tensor) -> None:
        shape = tuple(x.shape[1:])
        if self.x_shape is None or len(shape) != len(self.x_shape) or shape[-1] != self.x_shape[-1]:
            raise GPSError(f"one row of x has shape {shape}, in the fit it had {self.x_shape}")


def _in_order(table: Any, names: Sequence[str] | None, what: str) -> Any:
    """Return a table with its columns in the order of the fit; anything else as it is."""
    columns = getattr(table, "columns", None)
    if columns is None or names is None:
        return table
    there = [str(column) for column in columns]
    if sorted(there) != sorted(names):
        raise GPSError(f"{what} has columns {there}, the fit had {list(names)}")
    return table.iloc[:, [there.index(name) for name in names]]


def in_rows(values: Array, about: About, axis: int) -> Array:
    """Return predictions of groups, which have axes of observations and measures, by the rows of their long table."""
    groups = about.get("groups")
    if groups is None:
        return values
    codes, place = (part.numpy() for part in label_places(groups, len(np.asarray(groups))))
    index: Any = (*(slice(None),) * axis, codes, place)
    rows: Array = values[index]
    return rows


def row_index(y: Any, groups: Any) -> Any:
    """Return the names of observations: labels in order of appearance, or those that a table's rows have."""
    if groups is not None:
        return pd.Index(pd.unique(np.asarray(groups)), name="group")
    return y.index if isinstance(y, pd.Series | pd.DataFrame) else None
