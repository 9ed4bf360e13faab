"""
One pattern cannot tell a rough mean from a Cox field
=====================================================

In a log-Gaussian Cox process the intensity itself is random. One pattern shows one intensity: whether its hills would
be there again next time, the data cannot say. Replicates can.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpsuq import GPSPoissonProcess
from gpsuq.datasets import log_gaussian_cox
from gpsuq.poisson.maps import draw_points, draw_surface

patterns = log_gaussian_cox(20, seed=1)
window = patterns[0].window
options = {"n_chains": 5, "n_steps": 200}
one = GPSPoissonProcess(**options).fit(patterns[0].points, window)
many = GPSPoissonProcess(**options).fit([pattern.points for pattern in patterns], window)

# %%
# Fitted to the first pattern alone, the hills are in the mean surface. Fitted to all twenty, the mean is nearly flat
# and the hills have become spread: the part of log intensity that differs from one block to the next.

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
draw_points(axes[0], patterns[0].points)
axes[0].set(title="first of 20 patterns", xlabel="x", ylabel="y", aspect="equal")
for ax, model, title in ((axes[1], one, "mean, fitted to the first"), (axes[2], many, "mean, fitted to all")):
    draw_surface(ax, model.grid_, model.surface().mean, "points per unit of area", vmin=0, vmax=900)
    ax.set_title(title)

for name, model in (("one pattern", one), ("20 patterns", many)):
    surfaces = model.fit_.surfaces(model.grid_.nodes.reshape(-1, 2))
    spread = np.sqrt(np.square(surfaces.loading).sum(-1)).mean()
    print(f"{name}: sd of log mean over the window {surfaces.log_mean.std():.2f}, spread {spread:.2f}")

# %%
# They differ in what they expect of the next pattern: the first fit expects the same hills again. Nothing in the first
# pattern could tell it otherwise: a Poisson process whose fixed mean has these very hills would make such points, too.

block = (0.0, 0.25, 0.0, 0.25)
counts = sorted(int((pattern.points < 0.25).all(1).sum()) for pattern in patterns)
print("counts in the lower left corner:", counts)
for name, model in (("one pattern", one), ("20 patterns", many)):
    row = model.region_counts(block).iloc[0]
    print(f"{name}: 95% interval for a new count {row['count_lower']:.0f} to {row['count_upper']:.0f}")
