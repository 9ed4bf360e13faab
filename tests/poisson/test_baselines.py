import numpy as np
import pytest
import shapely

from gpsuq import GPSError
from gpsuq.datasets import real_covariates, real_pattern, simulated_pattern
from gpsuq.poisson.baselines import HomogeneousIntensity, KernelIntensity, LogLinearIntensity
from gpsuq.spatial import CovariateGrid, PointPattern, Window, simulate_poisson, thin

SQUARE = Window.rectangle(0, 1, 0, 1)


def test_a_constant_is_the_number_of_points_over_the_area(rng):
    model = HomogeneousIntensity(PointPattern(rng.random((50, 2)) * [2, 1], Window.rectangle(0, 2, 0, 1)))
    assert np.allclose(model.intensity(rng.random((3, 2))), 25.0)
    assert model.log_likelihood(rng.random((50, 2))) == pytest.approx(np.log(25.0) - 1.0)
    with pytest.raises(GPSError, match="needs points"):
        model.log_likelihood(np.empty((0, 2)))


def test_log_linear_coefficients_are_found_again(rng):
    """Slope 2 on about 900 points: standard error 0.13, tolerance three of them."""
    axis = np.linspace(0, 1, 50)
    x = CovariateGrid("x", axis, axis, np.tile(axis, (50, 1)))
    points = simulate_poisson(lambda s: np.exp(5.5 + 2.0 * s[:, 0]), SQUARE, rng)
    model = LogLinearIntensity(PointPattern(points, SQUARE), [x])
    assert model.coefficients[0] == pytest.approx(2.0, abs=0.4)
    assert model.integral() == pytest.approx(len(points), rel=1e-3)


def test_edge_correction_keeps_a_constant_flat(rng):
    """Means over 20 patterns of 500 points: near the edge as in the middle, where no correction would give half."""
    spots = np.array([[0.5, 0.5], [0.0, 0.5], [1.0, 1.0]])
    for window in (SQUARE, Window(shapely.Polygon([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0.5), (0.001, 0.5)]))):
        values = [KernelIntensity(PointPattern(rng.random((500, 2)), window), 0.15).intensity(spots) for _ in range(20)]
        assert np.allclose(np.mean(values, 0), 500.0, rtol=0.15)


def test_the_kernel_estimate_integrates_to_about_n(rng):
    model = KernelIntensity(PointPattern(rng.random((300, 2)), SQUARE), 0.1)
    assert model.integral() == pytest.approx(300, rel=0.05)


def test_cross_validation_likes_wide_kernels_for_flat_and_narrow_for_sharp_patterns():
    flat = [KernelIntensity(simulated_pattern("constant", seed)).bandwidth for seed in range(3)]
    sharp = KernelIntensity(simulated_pattern("ridge", 0)).bandwidth
    assert np.median(flat) > 0.25
    assert sharp < 0.05


def test_a_bandwidth_must_be_positive(rng):
    with pytest.raises(GPSError, match="positive"):
        KernelIntensity(PointPattern(rng.random((5, 2)), SQUARE), 0.0)


@pytest.mark.usefixtures("data_directory")
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_bei_gives_the_published_values():
    """Against ../shared/data/README.md: ppm's coefficients to 1%, held-out log-likelihoods to 0.01."""
    pattern, covariates = real_pattern("bei"), real_covariates("bei", ("elev", "grad"))
    model = LogLinearIntensity(pattern, covariates)
    assert np.allclose([model.intercept, *model.coefficients], [-8.5636, 0.02144, 5.8465], rtol=0.01)
    train, test = thin(pattern.points, 0.5, seed=0)
    assert (len(train), len(test)) == (1832, 1772)
    half = PointPattern(train, pattern.window)
    assert HomogeneousIntensity(half).log_likelihood(test) == pytest.approx(-6.643, abs=0.001)
    assert LogLinearIntensity(half, covariates).log_likelihood(test) == pytest.approx(-6.565, abs=0.002)
    assert KernelIntensity(half, 12.0).log_likelihood(test) == pytest.approx(-6.046, abs=0.01)
