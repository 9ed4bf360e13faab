"""Data: the paper's synthetic designs."""

from gpsuq.datasets.synthetic import Regression, scissors

__all__ = ["Regression", "scissors"]
