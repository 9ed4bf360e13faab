import pytest
import torch
from torch.distributions import Independent, Normal, Poisson

from gpsuq.core.expectations import draw_shifts, kernel_score
from gpsuq.core.fused import (
    gaussian_normal_score,
    poisson_half_sums,
    product,
    sum_of_gaussians,
    sum_of_products,
)
from gpsuq.core.kernels import Gaussian, Mixture

KERNEL = Mixture((Gaussian(0.3), Gaussian(2.0)), (0.3, 0.7))
C, N, M = 2, 5, 6
SHAPES = [
    ((C, N, M), (C, 1, M)),
    ((C, N, M), (C, N, M)),
    ((C, N, M), (C, 1, 1)),
    ((C, 1, M), (C, 1, M)),
    ((C, 1, M), (C, N, M)),
    ((C, N, 1), (C, 1, M)),
]


def inputs(shapes, chains=1):
    torch.manual_seed(0)
    loc = torch.randn(shapes[0], dtype=torch.float64, requires_grad=True)
    scale = (0.2 + torch.rand(shapes[1], dtype=torch.float64)).requires_grad_()
    return loc, scale, torch.randn(chains, N, 1, dtype=torch.float64)


@pytest.mark.parametrize("chains", [1, C])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_agrees_with_the_registered_closed_form(shapes, chains):
    """The same observations as vectors of length one take the registered path."""
    loc, scale, y = inputs(shapes, chains)
    gradients = []
    for vector in (False, True):
        predictive = Normal(loc, scale)
        if vector:
            predictive = Independent(Normal(predictive.loc.unsqueeze(-1), predictive.scale.unsqueeze(-1)), 1)
        terms = kernel_score(KERNEL, predictive, y.unsqueeze(-1) if vector else y, n_pairs=2)
        loc.grad = scale.grad = None
        weights = torch.linspace(0.5, 2.0, N, dtype=torch.float64)
        (weights * (terms.fit + 0.7 * terms.pair)).sum().backward()
        gradients.append((terms.fit.detach(), terms.pair.detach(), loc.grad, scale.grad))
    for fused, registered in zip(*gradients, strict=True):
        assert torch.allclose(fused, registered, rtol=1e-9)


@pytest.mark.parametrize("shapes", SHAPES[:4], ids=str)
def test_gradients_are_right(shapes):
    loc, scale, y = inputs(shapes)
    shifts = draw_shifts(M, None)
    assert torch.autograd.gradcheck(
        lambda a, b: gaussian_normal_score(a, b, y, [(0.3, 0.4), (2.0, 0.6)], shifts), (loc, scale)
    )


def test_nothing_is_kept_where_no_gradient_is_wanted():
    loc, scale, y = inputs(SHAPES[0])
    with torch.no_grad():
        fit, pair = gaussian_normal_score(loc, scale, y, [(1.0, 1.0)], [(1, 1.0)])
    assert not fit.requires_grad
    assert not pair.requires_grad


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_extreme_units_neither_overflow_nor_vanish(unit):
    loc, scale, y = (t.detach().float() for t in inputs(SHAPES[0]))
    gradients = []
    for factor in (1.0, unit):
        a, b = (loc * factor).requires_grad_(), (scale * factor).requires_grad_()
        fit, pair = gaussian_normal_score(a, b, y * factor, [(0.5 * factor**2, 1.0)], [(1, 1.0)])
        (fit + pair).sum().backward()
        gradients.append((a.grad * factor, b.grad * factor))
    for plain, scaled in zip(*gradients, strict=True):
        assert torch.allclose(plain, scaled, rtol=1e-3, atol=1e-6)


def test_a_scale_that_all_chains_share_is_one_row(rng):
    """A model with a fixed scale has one for all chains: the same score as when it is written out for each."""
    loc = torch.from_numpy(rng.normal(size=(3, 5, 4))).requires_grad_()
    y = torch.from_numpy(rng.normal(size=(1, 5, 1)))
    arguments = (y, [(1.0, 1.0)], [(1, 1.0)])
    shared = gaussian_normal_score(loc, torch.ones(1, 1, 1, dtype=torch.float64), *arguments)
    each = gaussian_normal_score(loc, torch.ones(3, 5, 4, dtype=torch.float64), *arguments)
    for one, other in zip(shared, each, strict=True):
        assert torch.allclose(one, other)


def test_sums_of_poisson_tables_are_those_of_whole_tables():
    torch.manual_seed(0)
    rate, weight = (torch.rand(2, 3, 7, dtype=torch.float64).mul(scale).requires_grad_() for scale in (30.0, 1.0))
    counts = torch.arange(80, dtype=torch.float64)
    table = weight.unsqueeze(-1) * Poisson(rate.unsqueeze(-1)).log_prob(counts).exp()
    ones = torch.ones_like(counts)
    sums = poisson_half_sums(rate, weight, counts, ones)
    assert torch.allclose(sums, torch.stack([table[:, :, :3].sum(2), table[:, :, 3:].sum(2)], 2), atol=1e-6)
    assert torch.autograd.gradcheck(lambda r, w: poisson_half_sums(r, w, counts, ones) @ counts.sin(), (rate, weight))


def test_products_and_sums_of_kernels_have_their_gradients():
    torch.manual_seed(0)
    chance = torch.rand(2, 3, 4, dtype=torch.float64).requires_grad_()
    levels, mask = [(0.2, 0.8, 0.5), (0.9, 0.1, 0.5)], torch.tensor([True, True, False, True])
    plain = sum(w * (o + g * chance[..., mask]).prod(-1) for o, g, w in levels)
    assert torch.allclose(sum_of_products(chance, levels, mask), plain)
    assert torch.autograd.gradcheck(lambda c: sum_of_products(c, levels, mask), chance)
    assert torch.autograd.gradcheck(product, chance)
    assert torch.autograd.gradcheck(lambda c: sum_of_gaussians(c, [(1.0, 0.5), (3.0, 0.2)]), chance)
