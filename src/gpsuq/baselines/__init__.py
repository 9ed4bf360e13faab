"""What the paper compares to."""

from gpsuq.baselines.bayesian_linear import BayesianLinearPosterior
from gpsuq.baselines.intensity import HomogeneousIntensity, KernelIntensity, LogLinearIntensity

__all__ = ["BayesianLinearPosterior", "HomogeneousIntensity", "KernelIntensity", "LogLinearIntensity"]
