"""What the paper compares to."""

from gpsuq.baselines.bayesian_linear import BayesianLinearPosterior
from gpsuq.baselines.classifiers import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.baselines.intensity import HomogeneousIntensity, KernelIntensity, LogLinearIntensity

__all__ = [
    "BayesianLinearPosterior",
    "DropoutClassifier",
    "EnsembleClassifier",
    "HomogeneousIntensity",
    "KernelIntensity",
    "LogLinearIntensity",
    "PlainClassifier",
]
