"""What the config of a saved model may say: numbers of the right type and in range, sizes as the tensors have them.

These checks come before anything is built: a short config cannot ask for much memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

import pandas as pd

from gpsuq.engine.diagnostics import Finding

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of every tensor of a saved model, as the head of its file has them."""


def number(
    config: Mapping[str, Any], name: str, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """Return a number of the config; raise where it is none, or out of range."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (above < value and least <= value <= most):
        raise ValueError(f"{name} cannot be {shortened(value)}")
    return value


def count(config: Mapping[str, Any], name: str, *, least: int = 0, most: float = math.inf) -> int:
    """Return a whole number of the config, at least 0 unless ``least`` says else."""
    value = number(config, name, least=least, most=most)
    if not isinstance(value, int):
        raise ValueError(f"{name} cannot be {value}")
    return value


def counts(values: Any, what: str, *, least: int = 0, most: float = math.inf) -> list[int]:
    """Return a list of whole numbers, each in range."""
    if not isinstance(values, list):
        raise ValueError(f"{what} cannot be {shortened(values)}")
    return [count({what: value}, what, least=least, most=most) for value in values]


def one_of(config: Mapping[str, Any], name: str, choices: Sequence[Any]) -> Any:
    """Return an entry of the config that has to be one of a few."""
    if not any(config[name] is choice or config[name] == choice for choice in choices):
        raise ValueError(f"{name} cannot be {shortened(config[name])}")
    return config[name]


def largest(shapes: Shapes) -> int:
    """Return the largest size of any tensor: no number of columns, chains or the like can be larger."""
    return max((size for shape in shapes.values() for size in shape), default=0)


def check_layers(shapes: Shapes, prefix: str, n_chains: int, widths: Sequence[Any]) -> None:
    """Raise unless the layers under a prefix have so many chains and these widths, the output's excepted."""
    held = [shapes[f"{prefix}layers.{depth}.weight"][:2] for depth in range(len(widths))]
    if held != [(n_chains, width) for width in widths]:
        raise ValueError(f"the layers in {prefix} are not those of {n_chains} chains and {shortened(list(widths))}")


def feature_names(config: Mapping[str, Any], n_features: int | None) -> list[str] | None:
    """Return the names of the columns that were fitted, if they had any: one text for each."""
    names = config["feature_names"]
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names must hold {n_features} names, got {shortened(names)}")
    return names


def findings(config: Mapping[str, Any]) -> list[Finding]:
    """Return what to be careful about; models of early versions hold nothing of it."""
    return [Finding(**{name: str(text) for name, text in held.items()}) for held in config.get("findings", [])]


def table(held: Any, index: str | None = None) -> pd.DataFrame:
    """Return a table that the config holds by columns, each a list of numbers or words."""
    if any(isinstance(cell, (list, dict)) for column in held.values() for cell in column):
        raise ValueError(f"a table cannot be {shortened(held)}")
    result = pd.DataFrame(held)
    return result if index is None else result.set_index(index)
