"""Data: the paper's synthetic designs, images, and real tables and point patterns from a directory of the user's."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpsuq.datasets.directory import data_directory, regression_table
from gpsuq.datasets.images import Images, load_images
from gpsuq.datasets.synthetic import Regression, correlated, scissors

if TYPE_CHECKING:
    from gpsuq.datasets.patterns import log_gaussian_cox, real_covariates, real_pattern, simulated_pattern

__all__ = [
    "Images",
    "Regression",
    "correlated",
    "data_directory",
    "load_images",
    "log_gaussian_cox",
    "real_covariates",
    "real_pattern",
    "regression_table",
    "scissors",
    "simulated_pattern",
]


def __getattr__(name: str) -> Any:
    """Load point patterns when they are asked for: they need shapely, which is an extra."""
    if name in __all__:
        return getattr(import_module("gpsuq.datasets.patterns"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
