"""
Whole distributions at every x
==============================

``GPSRegressor`` predicts a distribution: as wide, as skewed and with as many modes as the data have there.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gpsuq import GPSRegressor
from gpsuq.plots.style import COLORS, figure_style
from gpsuq.regress.effects import effect, importance
from gpsuq.regress.plots import density_strips, effect_curves
from gpsuq.regress.report import predictive_strips

# %%
# On the left the noise grows, on the right outcomes follow one of two branches. Where a site was not written down, the
# cell is empty; text and gaps need no preparation.


def made(n, seed):
    rng = np.random.default_rng(seed)
    x, site = rng.uniform(-2.0, 2.0, n), rng.choice(["north", "south"], n)
    branch = np.where(rng.random(n) < 0.5, 1.0, -1.0) * np.maximum(x, 0.0) * 1.5
    noise = (0.1 + 0.5 * np.maximum(-x, 0.0)) * rng.normal(size=n)
    y = np.sin(2.0 * x) + branch + 0.8 * (site == "south") + noise
    table = pd.DataFrame({"x": x, "site": site})
    table.loc[rng.random(n) < 0.1, "site"] = None
    return table, pd.Series(y, name="y")


X, y = made(1000, seed=0)
X_new, y_new = made(200, seed=1)
model = GPSRegressor(n_chains=4, n_steps=1000).fit(X, y)  # a shorter training than by default
print("generators", {name: round(weight, 2) for name, weight in model.members_.items()})
print("CRPS of new rows", model.crps(X_new, y_new).mean().round(3))
inside = model.predict_interval(X_new, 0.9)
print("in 90% intervals", ((inside["lower"] <= y_new) & (y_new <= inside["upper"])).mean().round(3))

# %%
# The predictive density over x, at the north.
at, values = np.linspace(-2.0, 2.0, 120), np.linspace(-4.5, 5.0, 160)
north = pd.DataFrame({"x": np.repeat(at, len(values)), "site": "north"})
density = model.predict_density(north, np.tile(values, len(at))).reshape(len(at), len(values))
with figure_style():
    figure, ax = plt.subplots(figsize=(6.5, 4))
    brightest = np.quantile(np.sqrt(density), 0.995)
    shown = ax.pcolormesh(at, values, np.sqrt(density).T, cmap="cividis", shading="auto", vmax=brightest)
    of_north = (X["site"] == "north").to_numpy()
    ax.plot(X["x"][of_north], y[of_north], ".", color="white", markersize=2.5, alpha=0.7)
    ax.set(xlabel="x", ylabel="y")
    ax.grid(visible=False)
    figure.colorbar(shown, label="square root of the density")

# %%
# Single rows: narrow, wide, and with two modes.
rows = pd.DataFrame({"x": [-0.2, -1.8, 1.0, 1.8], "site": ["north", "south", "north", None]})
names = ["x = -0.2, north", "x = -1.8, south", "x = 1.0, north", "x = 1.8, unknown"]
figure = density_strips(predictive_strips(model, rows, names=names), target="y")

# %%
# Which columns matter (by how much the score of predictions grows when one is shuffled), and how.
print(importance(model, X_new, y_new).round(2))
figure = effect_curves([effect(model, X_new, "x"), effect(model, X_new, "site")], target="y")

# %%
# Noise that more data do not reduce, and what chains do not agree on: at x = 3 there are no data.
far = pd.DataFrame({"x": [-1.8, 0.0, 3.0], "site": "north"})
print(np.sqrt(model.uncertainty(far)).round(2))
with figure_style():
    figure, ax = plt.subplots(figsize=(6.5, 3))
    along = pd.DataFrame({"x": np.linspace(-3.0, 3.0, 150), "site": "north"})
    parts = np.sqrt(model.uncertainty(along))
    ax.plot(along["x"], parts["aleatoric"], color=COLORS["gps"], label="aleatoric")
    ax.plot(along["x"], parts["epistemic"], "--", color=COLORS["bayes"], label="epistemic")
    ax.axvspan(-2.0, 2.0, color=COLORS["data"], alpha=0.15, label="data")
    ax.set(xlabel="x", ylabel="standard deviation")
    ax.legend()

# %%
# Intervals that cover by construction, in each site by itself, by rows that were not fitted.
known = X_new["site"].notna()
model.calibrate(X_new[known], y_new[known], groups=X_new["site"][known])
X_later, y_later = made(1000, seed=2)
known = X_later["site"].notna()
guarded = model.predict_interval(X_later[known], 0.9, groups=X_later["site"][known])
held = (guarded["lower"] <= y_later[known]) & (y_later[known] <= guarded["upper"])
print(held.groupby(X_later["site"][known]).mean().round(3))
