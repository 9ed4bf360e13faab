import subprocess
import sys

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("absent", "code", "message"),
    [
        ("shapely", "from gpsuq.datasets import scissors, load_images; load_images('digits')", None),
        (
            "shapely",
            "from gpsuq.datasets import simulated_pattern",
            "reading windows needs shapely: pip install 'gpsuq[points]'",
        ),
        ("shapely", "from gpsuq import GPSPoissonProcess", "needs shapely: pip install 'gpsuq[points]'"),
        ("pooch", "from gpsuq.datasets import load_images; load_images('mnist')", "pip install 'gpsuq[images]'"),
    ],
)
def test_extras_are_named_where_they_are_missing(absent, code, message, monkeypatch):
    for name in ("GPSUQ_HOME", "GPSUQ_DATA"):
        monkeypatch.delenv(name, raising=False)
    program = f"import sys; sys.modules[{absent!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == (message is None), done.stderr
    assert message is None or message in done.stderr.splitlines()[-1]
