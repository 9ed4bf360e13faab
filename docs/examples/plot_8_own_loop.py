"""
A network with a Normal head, in your own training loop
=======================================================

``noisify`` gives any network a noise input, and ``predictive_score`` is the loss; all else is plain PyTorch. Here
a network says the mean of a Normal y, and the noise lets it differ between draws: two branches that a single mean would
average away.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.distributions import Normal

from gpsuq import Gaussian, noisify, predictive_score

torch.manual_seed(0)
x = 4.0 * torch.rand(1000, 1) - 2.0
branch = torch.where(torch.rand(1000) < 0.5, 1.0, -1.0)
y = branch * x[:, 0] ** 2 / 2.0 + 0.2 * torch.randn(1000)

module = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
network = noisify(module, "0", ratio=4, example=x[:2])
log_sd = nn.Parameter(torch.tensor(-2.0))  # of the noise; starts narrow, so that Z must explain the rest
optimizer = torch.optim.Adam([*network.parameters(), log_sd], lr=3e-3)

for _ in range(1500):
    rows = torch.randint(0, 1000, (100,))
    mean = network(x[rows], draws=16)[..., 0]  # (100, 16)
    predictive = Normal(mean, log_sd.exp().expand_as(mean))
    loss = predictive_score(predictive, y[rows], kernel=Gaussian(2.0)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
# Draws of the mean at each x: the network found both branches.

with torch.no_grad():
    grid = torch.linspace(-2, 2, 80)[:, None]
    means = network(grid, draws=60)[..., 0]

figure, ax = plt.subplots(figsize=(6.4, 4))
ax.plot(x[:, 0], y, ".", color="#7F7F7F", markersize=2, label="data")
ax.plot(grid.expand(-1, 60).flatten(), means.flatten(), ".", color="#0072B2", markersize=1.5, label="draws of the mean")
ax.set(xlabel="x", ylabel="y")
ax.legend(markerscale=4)
