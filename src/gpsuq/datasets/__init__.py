"""Data: the paper's synthetic designs, and real tables from a directory of the user's."""

from gpsuq.datasets.directory import data_directory, regression_table
from gpsuq.datasets.synthetic import Regression, correlated, scissors

__all__ = ["Regression", "correlated", "data_directory", "regression_table", "scissors"]
