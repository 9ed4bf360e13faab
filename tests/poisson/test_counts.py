import numpy as np
import pytest
import torch
from scipy.stats import poisson
from torch.distributions import Independent, Normal, Poisson

from gpsuq import GPSError
from gpsuq.core.observations import Batch
from gpsuq.poisson.counts import (
    MOST_EXACT,
    TAIL,
    BlockScore,
    _exact,
    _features,
    _normal,
    bandwidth_ladder,
    count_score,
    stabilised,
)

BANDWIDTH = 4.0
ONE = (BANDWIDTH,)


def by_hand(rate, y, last):
    """Both terms of one unit from the definition: probabilities of the censored count against the Gram matrix."""
    atoms = np.arange(last + 1)
    pmf = poisson.pmf(atoms[None], np.asarray(rate)[:, None])
    pmf[:, -1] = 1.0 - pmf[:, :-1].sum(1)
    t = 2.0 * np.sqrt(atoms + 0.375)
    gram = np.exp(-((t[:, None] - t) ** 2) / BANDWIDTH)
    fit = -2.0 * (pmf @ gram[:, int(y)]).mean()
    pairs = pmf @ gram @ pmf.T
    m = len(rate)
    return fit, (pairs.sum() - np.trace(pairs)) / (m * (m - 1))


def test_small_counts_are_exact(rng):
    rate = torch.from_numpy(rng.uniform(0.01, 8.0, size=(6, 3)))
    y = torch.from_numpy(rng.poisson(3.0, size=6)).double()
    last = int(poisson.isf(TAIL, float(y.max())))
    terms = count_score(rate, y, ONE)
    for unit in range(6):
        fit, pair = by_hand(rate[unit].numpy(), y[unit], last)
        assert terms.fit[unit].item() == pytest.approx(fit, abs=1e-6)
        assert terms.pair[unit].item() == pytest.approx(pair, abs=1e-6)


@pytest.mark.parametrize("largest", [1, MOST_EXACT])
def test_cubics_are_the_sums_that_they_stand_for(largest):
    """Between the means that were summed, at no mean at all, and beyond the last."""
    features, _ = _features(largest, ONE)
    rate = torch.tensor([0.0, 1e-6, 0.37, 1.91, 7.7, 23.1, 49.3, 61.7, 200.0], dtype=torch.float64)
    last = features.shape[1] - 1
    pmf = torch.from_numpy(poisson.pmf(np.arange(last + 1), rate[:, None].numpy()))
    pmf[:, -1] = 1.0 - pmf[:, :-1].sum(1)
    y = torch.full((len(rate),), float(largest), dtype=torch.float64)
    expected = -2.0 * (pmf @ features.T) @ features[:, largest]
    assert torch.allclose(_exact(rate[:, None].expand(-1, 2), y, ONE).fit, expected, rtol=0.0, atol=1e-8)


def test_rates_that_are_no_numbers_stay_with_their_units():
    rate = torch.tensor([[float("nan"), 1.0], [2.0, 3.0]], requires_grad=True)
    terms = count_score(rate, torch.tensor([1.0, 2.0]), ONE)
    assert terms.score.isnan().tolist() == [True, False]


def test_the_score_agrees_with_simulated_counts(rng):
    """400,000 outcomes of each draw; standard errors are below 0.001."""
    rate, y = np.array([0.5, 2.0, 4.0]), 2.0
    last = poisson.isf(TAIL, y)
    t, other = (2.0 * np.sqrt(np.minimum(rng.poisson(rate, size=(400_000, 3)), last) + 0.375) for _ in range(2))
    fit = -2.0 * np.exp(-((t - 2.0 * np.sqrt(y + 0.375)) ** 2) / BANDWIDTH).mean()
    pairs = [np.exp(-((t[:, i] - other[:, j]) ** 2) / BANDWIDTH).mean() for i in range(3) for j in range(3) if i != j]
    terms = count_score(torch.from_numpy(rate)[None], torch.tensor([y]), ONE)
    assert terms.fit.item() == pytest.approx(fit, abs=0.004)
    assert terms.pair.item() == pytest.approx(np.mean(pairs), abs=0.004)


def test_gradients_are_those_of_the_score(rng):
    rate = torch.from_numpy(rng.uniform(0.1, 80.0, size=(8, 3))).requires_grad_()
    y = torch.tensor([0.0, 1.0, 5.0, 20.0, 50.0, 51.0, 70.0, 3.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda r: torch.stack(list(count_score(r, y, ONE))), (rate,))


@pytest.mark.parametrize("mean", [30.0, 50.0, 200.0])
def test_the_normal_approximation_meets_the_exact_score(mean):
    rate, y = mean * torch.tensor([[0.8, 1.0, 1.2]]), torch.tensor([mean])
    # Far above what training uses, so that the support is not censored near the draws.
    exact = _exact(torch.cat([rate, rate]), torch.tensor([mean, 2.0 * mean]), ONE)
    normal = _normal(rate, y, ONE)
    assert normal.fit[0].item() == pytest.approx(exact.fit[0].item(), abs=0.006)
    assert normal.pair[0].item() == pytest.approx(exact.pair[0].item(), abs=0.006)


def test_large_and_small_counts_are_scored_side_by_side():
    rate = torch.tensor([[1.0, 2.0], [90.0, 110.0], [0.5, 0.1]])
    y = torch.tensor([1.0, 100.0, 0.0])
    assert y.max() > MOST_EXACT
    together = count_score(rate, y, ONE)
    assert together.score[1] == _normal(rate[[1]], y[[1]], ONE).score[0]
    assert torch.allclose(together.score[[0, 2]], _exact(rate[[0, 2]], y[[0, 2]], ONE).score)


def test_the_true_mean_has_the_lowest_score(rng):
    """Propriety: the mean score over 20,000 counts is lowest at the true rate, among rates 10% apart."""
    for truth in (0.3, 3.0, 80.0):
        y = torch.from_numpy(rng.poisson(truth, size=20_000)).float()
        rates = truth * torch.tensor([0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3])
        scores = [count_score(rate.expand(len(y), 2), y, ONE).score.mean() for rate in rates]
        assert int(torch.stack(scores).argmin()) == 3


def test_spread_is_rewarded_where_counts_are_overdispersed(rng):
    rate = np.exp(0.6 * rng.normal(size=20_000)) * 10.0
    y = torch.from_numpy(rng.poisson(rate)).float()
    z = torch.from_numpy(rng.normal(size=(20_000, 8))).float()
    scores = [count_score(10.0 * torch.exp(s * z), y, ONE).score.mean().item() for s in (0.0, 0.3, 0.6, 0.9)]
    assert np.argmin(scores) == 2


def test_huge_rates_stay_finite():
    rate = torch.tensor([[1e30, 1e6], [0.0, 0.0]], requires_grad=True)
    terms = count_score(rate, torch.tensor([3.0, 0.0]), ONE)
    terms.score.sum().backward()
    assert torch.isfinite(terms.score).all()
    assert torch.isfinite(rate.grad).all()


def test_one_draw_is_refused():
    with pytest.raises(GPSError, match="at least 2"):
        count_score(torch.ones(3, 1), torch.ones(3), ONE)


# --- blocks ----------------------------------------------------------------------------------------------------------


def tiles(rng, chains=2, n=3, draws=4, side=4):
    rate = torch.from_numpy(rng.uniform(0.1, 3.0, size=(chains, n, draws, side * side)))
    y = torch.from_numpy(rng.poisson(1.0, size=(chains, n, 1, side * side))).double()
    return Independent(Poisson(rate), 1), Batch(y), rate, y


def test_blocks_are_sums_of_neighbouring_cells(rng):
    predictive, batch, rate, y = tiles(rng)
    found = BlockScore(4, (2,), (ONE,) * 1).terms(predictive, batch)
    cells = rate.reshape(2, 3, 4, 4, 4)
    expected = 0.0
    for i in (0, 2):
        for j in (0, 2):
            block = cells[..., i : i + 2, j : j + 2].sum((-1, -2))
            count = y.reshape(2, 3, 4, 4)[..., i : i + 2, j : j + 2].sum((-1, -2))
            expected = expected + count_score(block, count, ONE).fit
    # Here each block is censored by its own largest count, there all by the largest of all.
    assert torch.allclose(found.fit, expected, atol=0.1)
    assert not torch.allclose(found.fit, BlockScore(4, (1,), (ONE,) * 1).terms(predictive, batch).fit, atol=1.0)


def test_scales_add_up(rng):
    predictive, batch, _, _ = tiles(rng)
    both = BlockScore(4, (1, 4), (ONE,) * 2).terms(predictive, batch).score
    each = [BlockScore(4, (scale,), (ONE,)).terms(predictive, batch).score for scale in (1, 4)]
    assert torch.allclose(both, each[0] + each[1])


def test_an_ensemble_is_judged_by_its_mixture(rng):
    predictive, batch, rate, y = tiles(rng, chains=4)
    score = BlockScore(4, (1,), (ONE,) * 1, ensemble=2)
    assert torch.allclose(
        score.terms(predictive, batch).score, BlockScore(4, (1,), (ONE,) * 1).terms(predictive, batch).score
    )
    mixed = score.precise().terms(predictive, batch)
    single = BlockScore(4, (1,), (ONE,) * 1).terms(predictive, batch)
    assert torch.allclose(mixed.fit[0], single.fit[:2].mean(0))
    # Every pair of one draw of each chain, by hand: a mixture of two has half its pairs across.
    across = 0.0
    for shift in range(4):
        two = torch.stack([rate[2], rate[3].roll(shift, 1)], 2).flatten(0, 1)  # (tile x draw, 2, cell)
        counts = y[2].expand(3, 4, 16).reshape(12, 16)
        across = across + count_score(two.swapaxes(1, 2), counts, ONE).pair.sum(-1).reshape(3, 4).mean(1) / 4
    expected = 0.5 * single.pair[2:].mean(0) + 0.5 * across
    assert torch.allclose(mixed.pair[3], expected, atol=0.02)
    assert torch.equal(mixed.score[2], mixed.score[3])


def test_blocks_must_fit_and_counts_be_poisson(rng):
    with pytest.raises(GPSError, match="divide"):
        BlockScore(4, (3,), (ONE,) * 1)
    _, batch, rate, _ = tiles(rng)
    with pytest.raises(GPSError, match="Poisson"):
        BlockScore(4, (1,), (ONE,) * 1).terms(Independent(Normal(rate, 1.0), 1), batch)


def test_stabilised_counts_have_variance_one(rng):
    for mean in (5.0, 50.0, 500.0):
        t = stabilised(torch.from_numpy(rng.poisson(mean, size=50_000)).double())
        assert t.var().item() == pytest.approx(1.0, abs=0.04)


def test_kernels_are_averaged(rng):
    rate = torch.tensor([[2.0, 3.0], [80.0, 120.0]])
    y = torch.tensor([1.0, 100.0])
    both = count_score(rate, y, (4.0, 64.0)).score
    each = [count_score(rate, y, (bandwidth,)).score for bandwidth in (4.0, 64.0)]
    assert torch.allclose(both, (each[0] + each[1]) / 2.0, atol=1e-5)


def test_wide_kernels_see_counts_that_are_far_off():
    """A block of 10,000 where 1,000 are expected: the narrow kernel has no slope, the ladder has."""
    counts = torch.tensor([10_000.0, 10.0])
    ladder = bandwidth_ladder(counts, 4.0)
    assert ladder[0] == 4.0
    assert len(ladder) > 2
    assert bandwidth_ladder(torch.tensor([0.0, 1.0, 3.0]), 4.0) == (4.0,)
    for bandwidths, visible in (((4.0,), False), (ladder, True)):
        rate = torch.full((1, 2), 1000.0, requires_grad=True)
        count_score(rate, counts[:1], bandwidths).score.sum().backward()
        assert (rate.grad.abs().max() > 1e-7) == visible
