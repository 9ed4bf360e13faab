"""Shapes of one observation: how parameters meet its measures, and the words for shapes that do not fit.

An observation may have several *measures*: a person's T choices, a subject's visits. Its y then has shape ``(T, ...)``,
and its x begins with the same dimensions: ``(T, p)``, or ``(T, alternatives, p)``. All of them share the observation's
parameters, which get a dimension of size 1 for them, so that a model written for trailing dimensions broadcasts.
"""

from __future__ import annotations

import itertools
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from gpsuq.core.expectations import BATCH_DIMS, DRAW_DIM, base_distribution
from gpsuq.core.parameters import Parameter

Shape = tuple[int, ...]


def measure_dims(one_x: Sequence[int], one_y: Sequence[int]) -> int:
    """Return how many dimensions run over measures: those that one y and one x, but for its columns, begin with.

    >>> measure_dims((8, 3), (8,)), measure_dims((8, 4, 3), (8,))  # 8 measures; 8 choices among 4
    (1, 1)
    >>> measure_dims((3,), (8,)), measure_dims((28, 28), ())  # covariates of a subject; an image with one label
    (0, 0)
    """
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one_x[:-1], one_y, strict=False))))


def over_measures(parameter: Parameter, value: Tensor, one_x: Shape, one_y: Shape) -> Tensor:
    """Return a parameter (chain, 1 or observation, draw, *shape) with a dimension of size 1 for what shares it.

    Coefficients of the columns of x get one for each other dimension of x, all others one for each dimension of the
    measures.

    >>> import torch
    >>> from gpsuq import Real, Scale, Slope
    >>> def shape(parameter, *own):
    ...     return tuple(over_measures(parameter, torch.zeros(1, 1, 1, *own), (8, 4, 3), (8,)).shape[3:])
    >>> shape(Slope(), 3), shape(Scale()), shape(Real(4), 4)
    ((1, 1, 3), (1,), (1, 4))
    """
    own = tuple(value.shape[BATCH_DIMS:])
    of_columns = len(own) == 1 and (parameter.size == "features" or parameter.unit == "slope")
    ones = len(one_x) - 1 if of_columns else measure_dims(one_x, one_y)
    return value.reshape(*value.shape[:BATCH_DIMS], *(1,) * ones, *own) if ones else value


def not_offered(x: Tensor) -> Tensor | None:
    """Return which alternatives of x (..., alternative, column) were not offered, rows of NaN; None where all were.

    >>> import torch
    >>> not_offered(torch.tensor([[1.0, 2.0], [torch.nan, torch.nan]]))
    tensor([False,  True])
    """
    if torch.isfinite(x.sum()):
        return None
    missing = x.isnan().all(-1)
    return missing if bool(missing.any()) else None


@dataclass(frozen=True)
class Given:
    """What a model's function is given: x (1, observation, 1, *one_x) or None, and parameters for ``one_y`` at it."""

    parameters: dict[str, Tensor]
    x: Tensor | None
    one_y: Shape | None

    @property
    def measures(self) -> Shape:
        """Sizes of the dimensions that run over an observation's measures."""
        one_x = () if self.x is None else tuple(self.x.shape[BATCH_DIMS:])
        return one_x[: measure_dims(one_x, self.one_y or ())]

    @property
    def batch_shape(self) -> Shape:
        """Numbers of chains, observations (1 without covariates) and draws."""
        first = next(iter(self.parameters.values()))
        return first.shape[0], 1 if self.x is None else self.x.shape[1], first.shape[DRAW_DIM]

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of x, y and each parameter for one observation."""
        shapes = {} if self.x is None else {"x": tuple(self.x.shape[BATCH_DIMS:])}
        shapes |= {} if self.one_y is None else {"y": self.one_y}
        return shapes | {name: tuple(value.shape[BATCH_DIMS:]) for name, value in self.parameters.items()}

    def misfit(
        self,
        problem: str,
        function: Callable[..., Any],
        *,
        made: Distribution | None = None,
        change: str | None = None,
        error: BaseException | None = None,
    ) -> str:
        """Say what was passed, what came out, what was expected, at which line, and what to change there."""
        shapes = self.shapes()
        batch = f"batch shape {self.batch_shape}, (chain, observation, draw)"
        lines = {
            "passed": ", ".join(f"{name} {shape}" for name, shape in shapes.items()) + ", behind " + batch,
            "made": made
            and f"{_name(made)} of batch shape {tuple(made.batch_shape)}, event shape {tuple(made.event_shape)}",
            "expected": batch if self.one_y is None else f"{batch}, event shape {self.one_y}",
            "line": _line(function, error),
            "change": change or _change(shapes),
        }
        return "\n".join([problem, *(f"  {label:<9} {text}" for label, text in lines.items() if text)])


def _name(distribution: Distribution) -> str:
    return type(base_distribution(distribution)).__name__


def _change(shapes: Mapping[str, Shape]) -> str:
    """Return what to change, judging by the shapes that one observation has."""
    general = "use operations on trailing dimensions only, as for one observation: (x * slope).sum(-1)"
    one_x, one_y = shapes.get("x", ()), shapes.get("y", ())
    for name, shape in shapes.items():
        if name in ("x", "y") or not shape or len(one_x) < 2:
            continue
        if shape[-1] == one_x[-1] and 1 < len(shape) < len(one_x):
            return f'declare {name} as Slope() or Real("features"), so that it meets the columns of x; or {general}'
        if shape == (1, *one_y):
            return f"if {name} has an entry for each measure, write {name}.squeeze(-2); otherwise {general}"
    if len(one_x) > 2:
        return f"{general}; a number that meets alternatives as well as measures takes [..., None]"
    return f"{general}; parameters have a dimension for measures already" if len(one_x) > 1 else general


def _line(function: Callable[..., Any], error: BaseException | None) -> str | None:
    """Return the line of the user's function that failed, or where the function begins."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    numbers = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    number = numbers[-1] if numbers and numbers[-1] is not None else code.co_firstlineno
    source = linecache.getline(code.co_filename, number).strip()
    return f"{Path(code.co_filename).name}, line {number}" + (f": {source}" if source else "")
