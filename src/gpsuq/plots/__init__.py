"""Figures of UQ distributions, in one colour-blind safe style."""

from gpsuq.plots.coefficients import coefficients
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.plots.surfaces import envelope, intensity

__all__ = ["COLORS", "coefficients", "envelope", "figure_style", "intensity", "marginals", "pairs", "save_figure"]
