"""Data: the paper's synthetic designs."""

from gpsuq.datasets.synthetic import Regression, correlated, scissors

__all__ = ["Regression", "correlated", "scissors"]
