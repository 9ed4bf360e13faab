"""What the paper compares to."""

from gpsuq.baselines.bayesian_linear import BayesianLinearPosterior

__all__ = ["BayesianLinearPosterior"]
