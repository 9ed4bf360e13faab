import numpy as np
import pytest
import torch
from scipy import stats

from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.errors import GPSError


def test_bootstrap_weights_are_exponential_and_balanced_over_chains():
    """Exponential weights over their mean: C times a Beta(1, C - 1), near an exponential for many chains."""
    for n_chains, law in ((4, stats.beta(1, 3, scale=4)), (400, stats.expon)):
        weights = ChainWeights(ChainPlan(n_chains, holdout=0.0), 20_000, None, seed=0)(torch.arange(20_000)).numpy()
        assert np.allclose(weights.mean(1), 1.0)
        assert np.allclose(weights.mean(0), 1.0, atol=0.05)
        assert stats.kstest(weights[0], law.cdf).pvalue > 1e-3
        assert np.corrcoef(weights[:2])[0, 1] == pytest.approx(-1 / (n_chains - 1), abs=0.03)


def test_frequency_weights_give_gamma_weights():
    frequency = torch.full((20_000,), 3.0)
    frequency[:100] = 0.0
    weights = ChainWeights(ChainPlan(200, holdout=0.0), 20_000, frequency, seed=0)(torch.arange(20_000))[0]
    assert (weights[:100] == 0).all()
    positive = weights[100:] / weights[100:].mean() * 3.0
    assert stats.kstest(positive.numpy(), stats.gamma(3.0).cdf).pvalue > 1e-3


def test_one_chain_weighs_as_it_was_told():
    frequency = torch.tensor([1.0, 2.0, 0.0, 5.0])
    weights = ChainWeights(ChainPlan(1, holdout=0.0), 4, frequency, seed=0)(torch.arange(4))[0]
    assert torch.allclose(weights, frequency.double() / 2.0)


def test_each_chain_leaves_out_its_own_rows_and_never_trains_on_them():
    chains = ChainWeights(ChainPlan(3, holdout=0.2), 500, None, seed=1)
    assert chains.held_out.shape == (3, 100)
    weights = chains(torch.arange(500))
    for chain in range(3):
        left_out = torch.zeros(500, dtype=torch.bool)
        left_out[chains.held_out[chain]] = True
        assert ((weights[chain] == 0) == left_out).all()
    assert not torch.equal(chains.held_out[0], chains.held_out[1])


def test_folds_are_dealt_once_and_shared_by_chains():
    chains = ChainWeights(ChainPlan(6, None, folds=(0, 1, 2, 0, 1, 2)), 100, None, seed=0)
    assert chains.held_out.shape == (6, 33)
    assert torch.equal(chains.held_out[:3], chains.held_out[3:])
    assert len(chains.held_out[:3].unique()) == 99
    weights = chains(torch.arange(100))
    assert ((weights == 0).sum(1) == 33).all()
    with pytest.raises(GPSError, match="cannot be split"):
        ChainWeights(ChainPlan(2, None, folds=(0, 5)), 3, None, seed=0)


def test_rows_are_dealt_anew():
    """The same rows are left out in each deal, two of a fold of the first are hardly in one of the second."""
    chains = ChainWeights(ChainPlan(10, None, folds=range(10), deals=2), 104, None, seed=0)
    first, second = chains.held_out[:5], chains.held_out[5:]
    assert torch.equal(first.flatten().sort().values, second.flatten().sort().values)
    common = [[len(np.intersect1d(a, b)) for b in second] for a in first]
    assert np.sum(common) == 100
    assert 0 < np.max(common) < 12


def test_no_row_of_a_group_is_trained_on_where_one_is_held_out():
    groups = torch.arange(20_000) // 100
    chains = ChainWeights(ChainPlan(4, None, holdout=0.0, folds=[0, 1, 0, 1]), 20_000, None, seed=0, groups=groups)
    weights = chains(torch.arange(20_000))
    for chain in range(4):
        unseen = torch.isin(groups, groups[chains.held_out[chain]])
        assert len(chains.held_out[chain]) < int(unseen.sum())  # only some of the rows are scored
        assert torch.equal(weights[chain] == 0, unseen)


def test_few_observations_are_not_held_out():
    assert ChainWeights(ChainPlan(2, holdout=0.1), 50, None, seed=0).held_out is None


def test_held_out_rows_do_not_grow_with_n():
    chains = ChainWeights(ChainPlan(2, holdout=0.1), 200_000, None, seed=0)
    assert chains.held_out.shape[1] == 410
    rows = torch.arange(1000, 2000)
    assert torch.equal(chains(rows), chains(torch.arange(3000))[:, 1000:2000])


def test_uniform_says_whether_weights_are_equal():
    assert ChainWeights(ChainPlan(2, None, 0.0), 50, None, seed=0).uniform
    assert not ChainWeights(ChainPlan(2, None, 0.5), 50, None, seed=0).uniform


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_chains": 0}, "n_chains"),
        ({"reweight": "jackknife"}, "reweight"),
        ({"holdout": 1.0}, "holdout"),
        ({"n_chains": 2, "spread_weight": [0.1]}, "one per chain"),
        ({"n_chains": 2, "folds": [0]}, "fold"),
        ({"n_chains": 2, "folds": [0, 0]}, "fold"),
        ({"n_chains": 2, "folds": [-1, 1]}, "fold"),
    ],
)
def test_bad_plans_are_named(options, match):
    with pytest.raises(GPSError, match=match):
        ChainPlan(**options)
