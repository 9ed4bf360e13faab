import torch

from gpsuq.core.parameters import Positive, Real, Slope
from gpsuq.core.shapes import Given, measure_dims, over_measures


def test_measures_are_what_x_and_y_begin_with():
    assert measure_dims((8, 3), (8,)) == 1
    assert measure_dims((8, 4, 3), (8, 2)) == 1
    assert measure_dims((8, 4, 3), (8, 4)) == 2
    assert measure_dims((8,), (8,)) == 0  # eight columns, not eight measures
    assert measure_dims((8, 3), ()) == 0
    assert measure_dims((7, 3), (8,)) == 0


def test_parameters_get_dimensions_in_front_of_their_own():
    values = torch.arange(24.0).reshape(2, 1, 4, 3)
    met = over_measures(Slope(), values, (8, 5, 3), (8,))
    assert met.shape == (2, 1, 4, 1, 1, 3)
    assert torch.equal(met.squeeze(), values.squeeze())
    assert over_measures(Real(3), values, (8, 5, 3), (8,)).shape == (2, 1, 4, 1, 3)
    assert over_measures(Positive(), values[..., 0], (8, 5, 3), (8,)).shape == (2, 1, 4, 1)
    assert over_measures(Slope(None), values[..., 0], (8, 3), (8,)).shape == (2, 1, 4, 1)
    assert over_measures(Real(3), values, (3,), ()) is values


def misfit(x, **parameters):
    tensors = {name: torch.zeros(2, 1, 4, *shape) for name, shape in parameters.items()}
    return Given(tensors, torch.zeros(1, 6, 1, *x), (8,)).misfit("it failed", misfit)


def test_a_misfit_says_what_was_passed_expected_and_where_to_look():
    lines = misfit((8, 3), slope=(1, 3), level=(1,)).splitlines()
    assert lines[0] == "it failed"
    assert lines[1].startswith("  passed    x (8, 3), y (8,), slope (1, 3), level (1,), behind batch shape (2, 6, 4)")
    assert lines[2] == "  expected  batch shape (2, 6, 4), (chain, observation, draw), event shape (8,)"
    assert "test_shapes.py" in lines[3]
    assert "def misfit(x, **parameters):" in lines[3]
    assert lines[4].startswith("  change    use operations on trailing dimensions only")


def test_the_advice_follows_the_shapes():
    assert "declare taste as Slope()" in misfit((8, 4, 3), taste=(1, 3))
    assert "effect.squeeze(-2)" in misfit((8, 3), effect=(1, 8))
    assert "takes [..., None]" in misfit((8, 4, 3), scale=(1,))
    assert "already" in misfit((8, 3), scale=(1,))
