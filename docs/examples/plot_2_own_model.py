"""
A model of your own: counts with a negative binomial
====================================================

Any distribution of ``torch.distributions`` is an observation model. Counts have a finite (truncated) support, so
expectations are summed exactly, without sampling.
"""

import numpy as np
from torch.distributions import NegativeBinomial

from gpsuq import GPS, Algorithm, ObservationModel, Positive, Real

rng = np.random.default_rng(0)
x = rng.normal(size=(400, 1))
y = rng.poisson(np.exp(1.0 + 0.5 * x[:, 0]) * rng.gamma(4.0, 0.25, size=400))

model = ObservationModel(
    lambda x, slope, level, size: NegativeBinomial(size, logits=level + (x * slope).sum(-1) - size.log()),
    slope=Real(1, random=False),
    level=Real(),
    size=Positive(random=False),
)
uq = GPS(model, algorithm=Algorithm(n_steps=300, n_draws=10), n_chains=2).fit(x, y)
print(uq.summary().round(2).T)

# %%
# What was declared ``random=False`` is one value for all observations; only the level varies.
figure = uq.plot_marginals(parameters=["level"])
