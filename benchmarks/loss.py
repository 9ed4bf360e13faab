"""Time and memory of one loss (forward and backward): exact and sampled scores beside a plain torch.cdist.

The plain implementation is what one would write from the paper: sample J outcomes for each of M draws, take all
pairwise distances with ``torch.cdist``, and leave out pairs of one draw with a mask. All see the same linear model with
Normal noise, the same kernel, and gradients with respect to slope and sigma of every draw. ``exact`` and ``sampled``
pair each draw with two others, as training does; ``exact_all_pairs`` pairs all, as the plain implementation does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from common import interleaved, saved_megabytes, write
from torch import Tensor
from torch.distributions import Normal

from gpsuq.core.distances import DEFAULT_PAIRS
from gpsuq.core.expectations import kernel_score
from gpsuq.core.kernels import Gaussian

BANDWIDTH = 0.5
OUTCOMES = 5


def plain_cdist(y: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Score by all pairwise distances of all outcomes, for tensors (chain, observation, draw)."""
    outcomes = mean + scale * torch.randn(OUTCOMES, *mean.shape)
    n_chains, n, n_draws = mean.shape
    points = outcomes.permute(1, 2, 3, 0).reshape(n_chains * n, n_draws * OUTCOMES, 1)
    draw = torch.arange(n_draws).repeat_interleave(OUTCOMES)
    different = (draw[:, None] != draw[None, :]).float()
    pair = torch.exp(-torch.cdist(points, points).square() / BANDWIDTH) * different
    fit = torch.exp(
        -torch.cdist(points, y.reshape(1, n, 1, 1).expand(n_chains, n, 1, 1).reshape(-1, 1, 1)).square() / BANDWIDTH
    )
    return (pair.sum((1, 2)) / different.sum() - 2 * fit.mean((1, 2))).mean()


def measure(n_chains: int, n: int, n_draws: int) -> dict[str, float]:
    torch.manual_seed(0)
    x, y = torch.randn(1, n, 1), torch.randn(1, n, 1)
    slope = torch.randn(n_chains, 1, n_draws, requires_grad=True)
    scale = (0.2 + torch.rand(n_chains, 1, n_draws)).requires_grad_()
    kernel = Gaussian(BANDWIDTH)

    def ours(n_outcomes: int | None, n_pairs: int | None = DEFAULT_PAIRS) -> Tensor:
        predictive = Normal(x * slope, scale, validate_args=False)
        return kernel_score(kernel, predictive, y, n_outcomes=n_outcomes, n_pairs=n_pairs).score.mean()

    losses = {
        "exact": lambda: ours(None),
        "exact_all_pairs": lambda: ours(None, None),
        "sampled": lambda: ours(OUTCOMES),
        "cdist": lambda: plain_cdist(y, x * slope, scale),
    }
    row: dict[str, float] = {"chains": n_chains, "n0": n, "M": n_draws}
    times = interleaved({name: (lambda loss=loss: loss().backward()) for name, loss in losses.items()})
    row |= {f"{name}_ms": value for name, value in times.items()}
    row |= {f"{name}_saved_mb": saved_megabytes(loss) for name, loss in losses.items()}
    for name in ("exact", "exact_all_pairs", "sampled"):
        row[f"{name}_times_faster"] = round(times["cdist"] / times[name], 2)
        row[f"{name}_times_leaner"] = round(row["cdist_saved_mb"] / row[f"{name}_saved_mb"], 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    out = parser.parse_args().out
    cases = [(1, 100, m) for m in (2, 5, 10, 50, 100)] + [(1, n, 20) for n in (25, 200, 800)]
    cases += [(c, 100, 20) for c in (4, 16)]
    rows = []
    for case in cases:
        rows.append(measure(*case))
        print(rows[-1], flush=True)
    print(write(out, "loss", "make bench", rows))


if __name__ == "__main__":
    main()
