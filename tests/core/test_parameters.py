import pytest
import torch
from torch.distributions import constraints

from gpsuq.core.parameters import DataScale, Location, Parameter, ParameterMap, Positive, Real, Scale, Slope
from gpsuq.errors import GPSError

SCALE = DataScale(
    y_center=torch.tensor(100.0), y_scale=torch.tensor(10.0), x_center=torch.zeros(2), x_scale=torch.tensor([1.0, 5.0])
)


def test_raw_numbers_become_parameters_in_the_users_units():
    declared = {"a": Location(), "b": Slope(), "c": Scale(), "d": Real(3), "e": Location(random=False)}
    pm = ParameterMap(declared, 2, SCALE)
    assert pm.width(random=True) == 1 + 2 + 1 + 3
    assert pm.width(random=False) == 1
    values = pm(torch.ones(4, 1, 6, 7), random=True)
    assert {name: tuple(v.shape) for name, v in values.items()} == {
        "a": (4, 1, 6),
        "b": (4, 1, 6, 2),
        "c": (4, 1, 6),
        "d": (4, 1, 6, 3),
    }
    assert float(values["a"].flatten()[0]) == pytest.approx(110.0)
    assert values["b"].flatten()[:2].tolist() == pytest.approx([10.0, 2.0])
    assert float(values["c"].flatten()[0]) == pytest.approx(10.0 * torch.e)
    assert float(values["d"].flatten()[0]) == 1.0
    assert set(pm(torch.ones(4, 1, 6, 1), random=False)) == {"e"}


def test_several_outputs_have_units_of_their_own():
    scale = DataScale(y_center=torch.tensor([0.0, 100.0]), y_scale=torch.tensor([1.0, 10.0]))
    values = ParameterMap({"a": Location(2)}, None, scale)(torch.ones(1, 1, 1, 2), random=True)
    assert values["a"].flatten().tolist() == [1.0, 110.0]


@pytest.mark.parametrize("support", [constraints.positive, constraints.unit_interval, constraints.simplex])
def test_any_constraint_of_torch_distributions_serves(support):
    values = ParameterMap({"a": Parameter(3, support)}, None, SCALE)(torch.randn(50, 3), random=True)
    assert support.check(values["a"]).all()


def test_bad_declarations_are_named():
    with pytest.raises(GPSError, match="needs covariates"):
        ParameterMap({"a": Slope()}, None, SCALE)
    with pytest.raises(GPSError, match="needs covariates"):
        ParameterMap({"a": Slope(2)}, None, DataScale(torch.tensor(0.0), torch.tensor(1.0)))
    with pytest.raises(GPSError, match="positive integers"):
        ParameterMap({"a": Positive(0)}, None, SCALE)
    with pytest.raises(GPSError, match="no parameters"):
        ParameterMap({}, None, SCALE)
