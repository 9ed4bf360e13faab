"""
Scissors: two slopes in one cloud
=================================

Half the observations have slope 1, half -1. Least squares and the Bayesian posterior see 0; the UQ distribution sees
both.
"""

from gpsuq import GPS, Algorithm
from gpsuq.core.models import linear_regression
from gpsuq.datasets import scissors
from gpsuq.linear.baselines import BayesianLinearPosterior
from paper.scissors import three_panels

data = scissors(n=1000, seed=0)
uq = GPS(linear_regression(intercept=False), algorithm=Algorithm(n_steps=800)).fit(data.X, data.y)
posterior = BayesianLinearPosterior(fit_intercept=False).fit(data.X, data.y)
figure = three_panels(data, posterior, uq)

# %%
# Heterogeneity (within chains) is large, estimation uncertainty (between chains) small: the slopes differ, and the
# data say so clearly.
print(uq.summary().round(2).T)

# %%
# The highest-density region of the slope has two pieces.
print(uq.interval(0.9, of="population", kind="highest-density")["slope"][0].round(2))
