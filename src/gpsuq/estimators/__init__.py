"""scikit-learn faces of the generative parameter sampler."""

from gpsuq.estimators.linear import GPSLinearRegression

__all__ = ["GPSLinearRegression"]
