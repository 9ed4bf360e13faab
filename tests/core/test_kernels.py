import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsuq.core.kernels import (
    AdaptiveGaussian,
    CallableKernel,
    Energy,
    Gaussian,
    Laplace,
    Mixture,
    as_kernel,
    median_squared_distance,
    squared_robust_scale,
)
from gpsuq.errors import GPSError

KERNELS = [Gaussian(0.7), Laplace(1.3), Energy(), Mixture((Gaussian(1.0), Laplace(2.0)), (0.3, 0.7))]


def test_the_papers_kernel_is_the_canonical_case():
    a, b = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0])
    assert float(Gaussian()(a, b, event_dims=1)) == pytest.approx(math.exp(-4.0))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), dim=st.integers(1, 4))
def test_kernels_are_symmetric_and_conditionally_positive_definite(kernel, seed, dim):
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(12, dim)))
    gram = kernel(points[:, None], points[None, :], event_dims=1)
    assert torch.allclose(gram, gram.T)
    center = torch.eye(12) - 1 / 12
    eigenvalues = torch.linalg.eigvalsh(center.double() @ gram @ center.double())
    assert eigenvalues.min() > -1e-9


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Laplace(1.3), Energy()], ids=lambda k: type(k).__name__)
def test_masked_coordinates_do_not_count(kernel):
    a, b = torch.randn(5, 4), torch.randn(5, 4)
    mask = torch.tensor([True, False, True, False]).expand(5, 4)
    assert torch.allclose(kernel(a, b, 1, mask), kernel(a[:, ::2], b[:, ::2], 1))


def test_energy_has_a_finite_gradient_where_points_coincide():
    a = torch.zeros(3, 2, requires_grad=True)
    Energy()(a, torch.zeros(3, 2), 1).sum().backward()
    assert torch.isfinite(a.grad).all()


def test_bandwidth_rules_read_scales_off_the_data():
    y = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 3.0
    assert squared_robust_scale(y) == pytest.approx(9.0, rel=0.1)
    assert median_squared_distance(y) == pytest.approx(2 * 9.0 * 0.4549, rel=0.1)  # median of chi-squared, 1 df
    assert Gaussian("robust", factor=4.0).resolve(y).value == pytest.approx(36.0, rel=0.1)
    assert Laplace("robust").resolve(y).value == pytest.approx(3.0, rel=0.1)
    assert Gaussian(lambda values, mask: 5.0).resolve(y).value == 5.0


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_rules_follow_the_units_of_y(scale):
    y = torch.randn(200, generator=torch.Generator().manual_seed(0))
    for rule in (squared_robust_scale, median_squared_distance):
        assert rule(y * scale) == pytest.approx(rule(y) * scale**2, rel=1e-4)


def test_robust_scale_falls_back_to_the_variance_under_ties():
    y = torch.tensor([0.0] * 8 + [1.0] * 2)
    assert squared_robust_scale(y) == pytest.approx(0.16)


def test_adaptive_kernel_starts_as_a_mixture_and_ends_at_the_noise():
    kernel = AdaptiveGaussian()
    assert isinstance(kernel.resolve(torch.randn(100)), Mixture)
    assert kernel.refine(0.04).value == pytest.approx(14 * 0.04)
    assert Gaussian().refine(1.0) is None


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan, math.inf])
def test_a_bandwidth_must_be_positive(bandwidth):
    with pytest.raises(GPSError, match="positive"):
        Gaussian(bandwidth)


def test_bad_kernels_are_named():
    with pytest.raises(GPSError, match="unknown bandwidth rule"):
        Gaussian("silverman")
    with pytest.raises(GPSError, match="hardly differ"):
        Gaussian("median").resolve(torch.ones(10))
    with pytest.raises(GPSError, match="resolve"):
        Gaussian("median")(torch.zeros(1), torch.zeros(1))
    with pytest.raises(GPSError, match="resolve"):
        AdaptiveGaussian()(torch.zeros(1), torch.zeros(1))
    with pytest.raises(GPSError, match="at least one kernel"):
        Mixture(())
    with pytest.raises(GPSError, match="function of two tensors"):
        as_kernel("gaussian")


def test_a_function_of_the_users_is_checked_on_the_data():
    y = torch.randn(50, 2)
    good = CallableKernel(lambda a, b: (1 + (a * b).sum(-1)).square())
    assert good.resolve(y) is good
    with pytest.raises(GPSError, match="not positive definite"):
        CallableKernel(lambda a, b: (a - b).square().sum(-1)).resolve(y)
    with pytest.raises(GPSError, match="not symmetric"):
        CallableKernel(lambda a, b: torch.exp(-(a - 2 * b).square().sum(-1))).resolve(y)
    with pytest.raises(GPSError, match="reduce the last dimension"):
        CallableKernel(lambda a, b: a * b).resolve(y)
    with pytest.raises(GPSError, match="padded"):
        good(y, y, 1, torch.ones(50, 2, dtype=torch.bool))
