from ._version import __version__
from .classify.estimator import GPSClassifier
from .core.censored import Censored
from .core.conformal import Conformal
from .core.distances import MMD, EnergyDistance, SlicedWasserstein
from .core.generators import MLP, FromModule
from .core.kernels import AdaptiveGaussian, Energy, Gaussian, Laplace, Mixture
from .core.likelihood import LogScore
from .core.losses import class_score, predictive_score
from .core.models import ObservationModel
from .core.noise import NoisyNetwork, noisify
from .core.ordinal import Ordinal
from .core.parameters import Cuts, Location, Parameter, Positive, Rate, Real, Scale, Slope
from .core.truncated import Truncated
from .core.zero_inflated import ZeroInflated
from .engine.settings import Algorithm, Algorithm1, PaperRecipe, Recipe
from .errors import GPSError, GPSWarning
from .gps import GPS
from .linear.estimator import GPSLinearRegression
from .poisson.estimator import GPSPoissonProcess
from .regress.estimator import GPSRegressor
from .storage import load, save
from .tables.streaming import ParquetRows
from .uq.distribution import UQDistribution

__all__ = [
    "GPS",
    "MLP",
    "MMD",
    "AdaptiveGaussian",
    "Algorithm",
    "Algorithm1",
    "Censored",
    "Conformal",
    "Cuts",
    "Energy",
    "EnergyDistance",
    "FromModule",
    "GPSClassifier",
    "GPSError",
    "GPSLinearRegression",
    "GPSPoissonProcess",
    "GPSRegressor",
    "GPSWarning",
    "Gaussian",
    "Laplace",
    "Location",
    "LogScore",
    "Mixture",
    "NoisyNetwork",
    "ObservationModel",
    "Ordinal",
    "PaperRecipe",
    "Parameter",
    "ParquetRows",
    "Positive",
    "Rate",
    "Real",
    "Recipe",
    "Scale",
    "SlicedWasserstein",
    "Slope",
    "Truncated",
    "UQDistribution",
    "ZeroInflated",
    "__version__",
    "class_score",
    "load",
    "noisify",
    "predictive_score",
    "save",
]
