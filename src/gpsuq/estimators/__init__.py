"""scikit-learn faces of the generative parameter sampler."""

from gpsuq.estimators.classifier import GPSClassifier
from gpsuq.estimators.linear import GPSLinearRegression
from gpsuq.estimators.poisson import GPSPoissonProcess

__all__ = ["GPSClassifier", "GPSLinearRegression", "GPSPoissonProcess"]
