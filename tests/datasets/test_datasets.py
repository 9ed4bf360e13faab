import numpy as np

from gpsuq.datasets import scissors


def test_scissors_are_as_in_the_paper():
    data = scissors(20_000, seed=1)
    assert data.X.shape == (20_000, 1)
    assert set(np.unique(data.theta)) == {-1.0, 1.0}
    assert abs((data.theta > 0).mean() - 0.5) < 0.015
    residual = data.y - data.theta[:, 0] * data.X[:, 0]
    assert abs(residual.std() - 0.2) < 0.005
    assert abs(np.corrcoef(residual, data.X[:, 0])[0, 1]) < 0.03
    assert np.array_equal(scissors(seed=1).y[:5], scissors(seed=1).y[:5])
    assert len(scissors().y) == 2000
