"""gpsuq: uncertainty quantification by generative parameter samplers.

Three ways in: an observation model and :class:`GPS` for any model, an estimator for a table, the command line.
"""

from gpsuq._version import __version__
from gpsuq.algorithms import Algorithm, Algorithm1
from gpsuq.distances import MMD, EnergyDistance, SlicedWasserstein
from gpsuq.errors import GPSError, GPSWarning
from gpsuq.estimators import GPSClassifier, GPSLinearRegression, GPSPoissonProcess
from gpsuq.generators import MLP, FromModule
from gpsuq.gps import GPS
from gpsuq.io import load, save
from gpsuq.kernels import AdaptiveGaussian, Energy, Gaussian, Laplace, Mixture
from gpsuq.losses import class_score, predictive_score
from gpsuq.models import ObservationModel
from gpsuq.noise import NoisyNetwork, noisify
from gpsuq.parameters import Location, Parameter, Positive, Rate, Real, Scale, Slope
from gpsuq.recipes import PaperRecipe, Recipe
from gpsuq.uq import UQDistribution

__all__ = [
    "GPS",
    "MLP",
    "MMD",
    "AdaptiveGaussian",
    "Algorithm",
    "Algorithm1",
    "Energy",
    "EnergyDistance",
    "FromModule",
    "GPSClassifier",
    "GPSError",
    "GPSLinearRegression",
    "GPSPoissonProcess",
    "GPSWarning",
    "Gaussian",
    "Laplace",
    "Location",
    "Mixture",
    "NoisyNetwork",
    "ObservationModel",
    "PaperRecipe",
    "Parameter",
    "Positive",
    "Rate",
    "Real",
    "Recipe",
    "Scale",
    "SlicedWasserstein",
    "Slope",
    "UQDistribution",
    "__version__",
    "class_score",
    "load",
    "noisify",
    "predictive_score",
    "save",
]
