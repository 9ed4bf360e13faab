"""Point patterns: windows, grids of counts, covariates, simulation, and the L function."""

from gpsuq.spatial.covariates import CovariateGrid, read_covariate
from gpsuq.spatial.grids import Grid, cells_for
from gpsuq.spatial.patterns import PointPattern, point_pattern, thin
from gpsuq.spatial.simulation import simulate_poisson
from gpsuq.spatial.statistics import Envelope, l_envelope, l_function
from gpsuq.spatial.windows import Window, as_window, read_window

__all__ = [
    "CovariateGrid",
    "Envelope",
    "Grid",
    "PointPattern",
    "Window",
    "as_window",
    "cells_for",
    "l_envelope",
    "l_function",
    "point_pattern",
    "read_covariate",
    "read_window",
    "simulate_poisson",
    "thin",
]
