"""
A point pattern and its intensity
=================================

Points on the unit square, simulated from two smooth bumps. ``GPSPoissonProcess`` learns a law of intensity surfaces;
how sharp they may be is chosen by points that were left out. (Fewer chains and steps than the default, so that this
page builds quickly.)
"""

from gpsuq import GPSPoissonProcess
from gpsuq.datasets import simulated_pattern

pattern = simulated_pattern("bumps", seed=0)
model = GPSPoissonProcess(n_chains=5, n_steps=200).fit(pattern.points, pattern.window)
print(model.smoothness_path_.round(3))

# %%
# Mean intensity, and its standard deviation relative to the mean: draws of Z and differences between chains together.

figure = model.plot()

# %%
# How many points does a region expect, and how many would a new pattern have there? Regions may be anything that can be
# a window: rectangles, polygons, files.

import shapely  # noqa: E402

print(model.region_counts([(0.2, 0.4, 0.25, 0.45), shapely.Point(0.7, 0.7).buffer(0.15)]).round(1).to_string())

# %%
# Where does the intensity miss points? Residuals are in standard deviations of chance.

from gpsuq.poisson.check_plots import residuals  # noqa: E402

figure = residuals(model.residuals(), pattern.points)

# %%
# Suppose that the points are of two types, the first of which is more common in the east. Lines surround where it is
# surely more or less likely than overall.

import numpy as np  # noqa: E402

from gpsuq.poisson.risk import relative_risk  # noqa: E402

types = np.where(np.random.default_rng(0).random(len(pattern)) < pattern.points[:, 0], "eastern", "western")
figure = relative_risk(pattern.points, types, pattern.window).plot()

# %%
# New patterns come by thinning from a drawn surface. Their L functions tell whether the points cluster (or keep apart)
# more than a Poisson process with this intensity would.

from gpsuq.poisson.plots import envelope  # noqa: E402

figure = envelope(model.goodness_of_fit())
