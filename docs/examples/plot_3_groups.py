"""
One slope per subject: ragged groups
====================================

A subject's repeated measures are one observation: they share one theta. Groups may have different lengths.
"""

import numpy as np

from gpsuq import GPS, Algorithm
from gpsuq.core.models import linear_regression

rng = np.random.default_rng(0)
slopes = np.where(rng.random(120) < 0.4, 1.0, -1.0)
X = [rng.normal(size=(length, 1)) for length in rng.integers(2, 6, size=120)]
y = [x[:, 0] * slope + 0.3 * rng.normal(size=len(x)) for x, slope in zip(X, slopes, strict=True)]

uq = GPS(linear_regression(intercept=False), algorithm=Algorithm(n_steps=600, n_draws=50), n_chains=2).fit(X, y)
print(f"subjects with a positive slope: {(slopes > 0).mean():.2f}, draws: {(uq.draws()['slope'] > 0).mean():.2f}")
figure = uq.plot_marginals()
