"""The forest as a generator: trees as arrays are those of scikit-learn, rows that are left out are not remembered."""

import numpy as np
from sklearn.tree import ExtraTreeRegressor

from gpsuq.regress import forest as module
from gpsuq.regress.forest import grow

RNG = np.random.default_rng(0)


def test_every_row_is_remembered_by_trees_that_saw_it():
    x = RNG.normal(size=(200, 3)).astype(np.float32)
    y = RNG.normal(size=200)
    grown = grow(x, y, None, [np.array([], dtype=np.int64)], 8, 0)
    assert grown.roots.shape == (1, 8)
    found = grown.remembered(x)[:, 0]
    assert (np.abs(found - y[:, None]) < 1e-6).all()
    between = grown.remembered((x + x[::-1]) / 2)[:, 0]
    assert np.isin(between.astype(np.float32), y.astype(np.float32)).all()
    assert (between.std(1) > 0).mean() > 0.9  # where nothing was seen trees disagree


def test_rows_left_out_are_not_remembered():
    x = RNG.normal(size=(300, 2)).astype(np.float32)
    y = np.arange(300.0)
    out = [np.arange(0, 100), np.arange(100, 200)]
    found = grow(x, y, None, out, 6, 0).remembered(x)
    for chain, rows in enumerate(out):
        assert not np.isin(found[:, chain], rows).any()


def test_trees_go_the_same_way_as_scikit_learn(monkeypatch):
    x = RNG.integers(0, 5, size=(400, 4)).astype(np.float32) / np.float32(3.0)
    y = x.sum(1) + RNG.normal(size=400)
    made = []

    class Kept(ExtraTreeRegressor):
        def fit(self, *data):
            made.append(self)
            return super().fit(*data)

    monkeypatch.setattr(module, "ExtraTreeRegressor", Kept)
    grown = grow(x, y, None, [np.array([], dtype=np.int64)], 5, 3)
    new = RNG.integers(0, 5, size=(100, 4)).astype(np.float32) / np.float32(3.0)
    theirs = np.stack([tree.apply(new) for tree in made], axis=1) + grown.roots[0]
    node = np.tile(grown.roots[0], (100, 1))
    for _ in range(grown.depth):
        down = np.take_along_axis(new, grown.column[node], 1) <= grown.threshold[node]
        node = np.where(down, grown.below[node], grown.above[node])
    assert (node == theirs).all()
    assert (grown.outcome[theirs] == grown.remembered(new)[:, 0]).all()


def test_rows_find_the_same_leaves_however_many_go_together(monkeypatch):
    x = RNG.normal(size=(300, 3)).astype(np.float32)
    grown = grow(x, x.sum(1).astype(float), None, [np.array([], dtype=np.int64)] * 2, 4, 0)
    whole = grown.parameters(x)
    for cells in (1, 700, 1 << 20):
        monkeypatch.setattr(module, "_CELLS", cells)
        parts = list(grown.blocks(x, 70))
        assert [len(part["loc"]) for part in parts] == [70, 70, 70, 70, 20]
        for name, values in whole.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)


def test_work_does_not_grow_with_n(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    x = RNG.normal(size=(2000, 2)).astype(np.float32)
    grown = grow(x, x[:, 0].astype(float), None, [np.array([], dtype=np.int64)], 3, 0)
    assert len(grown.outcome) < 3 * 100
    parameters = grown.parameters(x[:7])
    assert parameters["loc"].shape == parameters["scale"].shape == (7, 3, 1)
    assert (parameters["scale"] > 0).all()
