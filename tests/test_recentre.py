from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gpsuq.recentre import LinearDraws, common_shift


def make(rng, n=300, p=2, draws=6, spread=0.5):
    x = torch.from_numpy(rng.normal(size=(n, p))).float()
    y = x @ torch.tensor([1.0, -1.0]) + 0.5 + 0.6 * torch.from_numpy(rng.normal(size=n)).float()
    slope = torch.from_numpy(spread * rng.normal(size=(2, draws, p))).float()
    return (
        x,
        y,
        LinearDraws(slope, torch.zeros(2, draws), torch.from_numpy(rng.uniform(0.4, 1.4, size=(2, draws))).float()),
    )


def loss(shift, x, y, weight, draws, chain, bandwidth):
    """Minus the kernel mean of every row, written out."""
    theta = draws.slope[chain].double().numpy() + shift[:-1]
    width = bandwidth + 2 * draws.sigma[chain].double().numpy() ** 2
    residual = y.double().numpy()[:, None] - x.double().numpy() @ theta.T - shift[-1]
    return -(weight.numpy()[:, None] * np.sqrt(bandwidth / width) * np.exp(-(residual**2) / width)).mean()


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_shift_minimises_the_loss(rng, spread):
    x, y, draws = make(rng, spread=spread)
    weight = torch.from_numpy(rng.exponential(size=(2, 300)))
    shift = common_shift(
        x, y, None, lambda rows: weight[:, rows], draws, torch.tensor([3.0, 6.0]), intercept=True, sweeps=60
    )
    for chain, bandwidth in enumerate((3.0, 6.0)):
        kept = LinearDraws(*(t[[chain]] for t in (draws.slope, draws.level, draws.sigma)))
        kept = kept.without_spread() if spread == 0.0 else kept
        best = minimize(loss, np.zeros(3), (x, y, weight[chain], kept, 0, bandwidth), method="BFGS", tol=1e-10)
        assert np.allclose(shift[chain].numpy(), best.x, atol=2e-3)


def test_no_sweep_makes_the_fit_worse(rng):
    x, y, draws = make(rng)
    y[:60] += 50.0
    ones = torch.ones(2, 300)
    losses = [
        loss(
            common_shift(
                x, y, None, lambda rows: ones[:, rows], draws, torch.tensor([2.0, 2.0]), intercept=True, sweeps=k
            )[0].numpy(),
            *(x, y, ones[0], draws, 0, 2.0),
        )
        for k in range(6)
    ]
    assert all(after <= before + 1e-9 for before, after in pairwise(losses))
    assert losses[-1] < losses[0] - 0.05


def test_padding_weighs_nothing_and_groups_of_one_are_rows(rng):
    x, y, draws = make(rng, n=40)
    ones = torch.ones(2, 40)
    arguments = {"intercept": True, "sweeps": 3}
    bandwidth = torch.tensor([3.0, 3.0])
    rows = common_shift(x, y, None, lambda r: ones[:, r], draws, bandwidth, **arguments)
    padded_x, padded_y = torch.zeros(40, 3, 2), torch.zeros(40, 3)
    padded_x[:, 0], padded_y[:, 0] = x, y
    mask = torch.zeros(40, 3, dtype=torch.bool)
    mask[:, 0] = True
    padded = common_shift(padded_x, padded_y, mask, lambda r: ones[:, r], draws, bandwidth, **arguments)
    assert torch.allclose(rows, padded, atol=1e-5)


def test_chunks_change_nothing(rng, monkeypatch):
    x, y, draws = make(rng)
    ones = torch.ones(2, 300)
    call = lambda: common_shift(  # noqa: E731
        x, y, None, lambda r: ones[:, r], draws, torch.tensor([3.0, 3.0]), intercept=False, sweeps=3
    )
    whole = call()
    monkeypatch.setattr("gpsuq.recentre._NUMBERS", 200)
    assert torch.allclose(call(), whole, atol=1e-5)
    assert whole.shape == (2, 2)
