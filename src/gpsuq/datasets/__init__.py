"""Data: the paper's synthetic designs, images, and real tables and point patterns from a directory of the user's."""

from gpsuq.datasets.directory import data_directory, regression_table
from gpsuq.datasets.images import Images, load_images
from gpsuq.datasets.patterns import log_gaussian_cox, real_covariates, real_pattern, simulated_pattern
from gpsuq.datasets.synthetic import Regression, correlated, scissors

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
