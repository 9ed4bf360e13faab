import numpy as np
import pandas as pd
import pytest
import torch

from gpsuq.core.observations import observations
from gpsuq.errors import GPSError


def test_arrays_tensors_and_tables_are_the_same(rng):
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for inputs, targets in ((X, y), (torch.from_numpy(X), torch.from_numpy(y)), (frame, pd.Series(y)), (X, y.tolist())):
        data = observations(inputs, targets)
        assert data.y.dtype == torch.float32
        assert np.allclose(data.x.numpy(), X, atol=1e-6)
        assert np.allclose(data.y.numpy(), y, atol=1e-6)


def test_batches_line_up_with_chains_and_draws(rng):
    data = observations(rng.normal(size=(6, 4, 2)), rng.normal(size=(6, 4)))
    batch = data.rows(torch.tensor([1, 3]))
    assert batch.x.shape == (1, 2, 1, 4, 2)
    assert batch.y.shape == (1, 2, 1, 4)
    assert len(batch) == 2


def test_ragged_groups_are_padded_and_masked(rng):
    X = [rng.normal(size=(k, 2)) for k in (3, 1, 4)]
    y = [rng.normal(size=k) for k in (3, 1, 4)]
    data = observations(X, y)
    assert data.y.shape == (3, 4)
    assert data.x.shape == (3, 4, 2)
    assert data.mask.sum(1).tolist() == [3, 1, 4]
    assert np.allclose(data.y[2].numpy(), y[2], atol=1e-6)
    scale = data.scale()
    assert np.allclose(scale.x_scale.numpy(), np.concatenate(X).std(0), atol=1e-5)


def test_nan_is_fine_where_the_mask_says_unobserved():
    y = np.array([[1.0, np.nan], [2.0, 3.0], [0.5, 1.0]])
    data = observations(None, y, mask=~np.isnan(y))
    assert torch.isfinite(data.y).all()
    with pytest.raises(GPSError, match="row 0"):
        observations(None, y)


def test_scales_survive_constant_columns_and_ties():
    data = observations(np.column_stack([np.full(10, 7.0), np.arange(10.0)]), np.array([0.0] * 8 + [3.0, 4.0]))
    scale = data.scale()
    assert scale.x_scale[0] == 7.0
    assert scale.y_scale > 0
    assert observations(None, np.zeros(5)).scale().y_scale == 1.0


def test_read_only_and_non_contiguous_input_is_copied(rng):
    X = rng.normal(size=(4, 6)).T[::2]
    y = np.arange(3.0)
    y.flags.writeable = False
    data = observations(X, y)
    assert data.x.is_contiguous()
    assert torch.equal(observations(torch.from_numpy(X.copy())[:, ::2], y).x, data.x[:, ::2])


def test_a_long_table_becomes_one_observation_for_each_label(rng):
    people = np.array(["b", "a", "b", "c", "a", "b"])
    X, y = rng.normal(size=(6, 4, 2)), np.arange(6.0)
    data = observations(X, y, groups=people)
    assert data.y.tolist() == [[0.0, 2.0, 5.0], [1.0, 4.0, 0.0], [3.0, 0.0, 0.0]]  # in order of appearance
    assert data.mask.sum(1).tolist() == [3, 2, 1]
    assert np.allclose(data.x[1, :2].numpy(), X[[1, 4]], atol=1e-6)
    lists = observations([X[people == p] for p in "bac"], [y[people == p] for p in "bac"])
    assert all(torch.equal(getattr(data, name), getattr(lists, name)) for name in ("x", "y", "mask"))
    assert observations(None, y, groups=[0, 1, 0, 1, 0, 1]).mask is None  # nothing is padded
    with pytest.raises(GPSError, match="X has NaN or infinite values in row 4"):
        observations(np.where(np.arange(6)[:, None] == 4, np.nan, X[:, 0]), y, groups=people)


def test_rows_that_pad_choices_say_nothing_about_scale(rng):
    X, y = [rng.normal(5.0, 1.0, size=(k, 4, 2)) for k in (3, 1, 9)], [np.arange(float(k)) for k in (3, 1, 9)]
    scale = observations(X, y).scale()
    assert np.allclose(scale.x_scale.numpy(), np.concatenate(X).reshape(-1, 2).std(0), atol=1e-4)


@pytest.mark.parametrize(
    ("x", "y", "options", "match"),
    [
        (None, [], {}, "empty"),
        (None, np.zeros((3, 0)), {}, "without entries"),
        (None, ["a", "b"], {}, "must hold numbers"),
        (None, [1.0 + 2j], {}, "must hold numbers"),
        (None, torch.tensor([1.0 + 2j]), {}, "real numbers"),
        (None, [1.0, np.inf], {}, "row 1"),
        (None, [np.nan] * 7, {}, "and 2 more"),
        (np.zeros(3), np.zeros(3), {}, "reshape"),
        (np.zeros((4, 1)), np.zeros(3), {}, "4 rows but y has 3"),
        ([[np.nan], [0.0]], [0.0, 1.0], {}, "X has NaN"),
        (None, np.zeros(3), {"weight": [1.0, 1.0]}, "one entry per observation"),
        (None, np.zeros(3), {"weight": [1.0, -1.0, 1.0]}, "row 1"),
        (None, np.zeros(3), {"weight": [0.0, 0.0, 0.0]}, "all weights are zero"),
        (None, np.zeros((2, 2)), {"mask": np.ones((2, 3))}, "must be equal"),
        (None, np.zeros((2, 2)), {"mask": [[1, 1], [0, 0]]}, "nothing observed in row 1"),
        (None, np.zeros(2), {"mask": [True, False]}, "leave out rows"),
        (None, [[1.0], [1.0, 2.0]], {"mask": [[1]]}, "not both"),
        ([[[0.0]]], [[1.0], [1.0, 2.0]], {}, "groups"),
        ([[[0.0]], [[0.0]]], [[1.0], [1.0, 2.0]], {}, "group 1"),
        (None, [1e300, 1.0], {}, "range of"),
        (np.zeros((6, 4, 1)), np.zeros((4, 6)), {}, r"6 rows but y has 4: y of shape \(4, 6\) seems to be transposed"),
        ([np.zeros((2, 1)), np.zeros((3, 1))], np.zeros((2, 3)), {}, "group 0: X has 2 rows but y has 3"),
        ([np.zeros((2, 1)), np.zeros((3, 1))], np.zeros(2), {}, "give y as a list of arrays, too"),
        ([np.zeros((2, 1)), np.zeros((3, 2))], [[1.0, 2.0], [1.0, 2.0, 3.0]], {}, "group 1: a measure in X has shape"),
        ([np.zeros(2), np.zeros(3)], [[1.0, 2.0], [1.0, 2.0, 3.0]], {}, "reshape"),
        (None, np.zeros(3), {"groups": [1, 2]}, "one label per row"),
        (None, np.zeros(2), {"groups": [1.0, np.nan]}, "missing label in row 1"),
        (np.zeros((3, 1)), np.zeros(2), {"groups": [1, 2]}, "one for each measure"),
        (None, np.zeros((2, 2)), {"groups": [1, 2], "mask": np.ones((2, 2))}, "not both"),
    ],
)
def test_bad_input_is_named(x, y, options, match):
    with pytest.raises(GPSError, match=match):
        observations(x, y, **options)
