"""Figures of UQ distributions, in one colour-blind safe style."""

from gpsuq.plots.classes import class_boxplots, image_gallery, reliability_curves, risk_coverage_curves
from gpsuq.plots.coefficients import coefficients
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.plots.surfaces import envelope, intensity

__all__ = [
    "COLORS",
    "class_boxplots",
    "coefficients",
    "envelope",
    "figure_style",
    "image_gallery",
    "intensity",
    "marginals",
    "pairs",
    "reliability_curves",
    "risk_coverage_curves",
    "save_figure",
]
