"""
A table with subgroups or outliers
==================================

``GPSLinearRegression`` is a scikit-learn estimator. It finds out by itself whether the coefficients differ between
rows, and says how well their means are known.
"""

import numpy as np
import pandas as pd

from gpsuq import GPSLinearRegression
from gpsuq.datasets import correlated, scissors
from gpsuq.linear.baselines import BayesianLinearPosterior

# %%
# Outliers: a tenth of the responses are off by a Cauchy variable. The Bayesian posterior is pulled and widened.
data = correlated(150, 4, contamination=0.1, seed=3)
X = pd.DataFrame(data.X, columns=["age", "dose", "weight", "height"])
model = GPSLinearRegression(n_chains=10, n_steps=300).fit(X, data.y)
posterior = BayesianLinearPosterior().fit(X, data.y)
print(model.summary()[["mean", "estimation_sd", "mean_lower", "mean_upper"]].round(2))
print(posterior.summary().round(2))
print("truth", data.theta[0].round(2))
print(model.verdict())
figure = model.plot_coefficients(truth=data.theta[0])

# %%
# Which rows are outliers? The score counts nats of surprise; above 5 a row is called one.
rows = model.explain_rows(X, data.y)
print(rows[["outlier_score", "outlier"]].nlargest(5, "outlier_score").round(1))

# %%
# Subgroups: half the rows have slope 1, half -1. The test finds a difference, and held-out rows choose the law.
two = scissors(400, seed=1)
mixed = GPSLinearRegression(n_chains=6, n_steps=300).fit(two.X, two.y)
print(mixed.verdict())
print(mixed.lines().round(2))
print(mixed.spread_path_.round(3))
subgroup = mixed.explain_rows(two.X, two.y)["subgroup"]
clear = np.abs(two.X[:, 0]) > 0.5
print("rows put into the right subgroup:", (subgroup == (two.theta[:, 0] > 0))[clear].mean().round(3))

# %%
# Predictions are whole distributions: at x = 2 two regions are likely, at x = 0 one.
print(mixed.predict_quantiles(np.array([[0.0], [2.0]]), [0.05, 0.25, 0.5, 0.75, 0.95]).round(2))
