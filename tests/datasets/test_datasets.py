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


SAID = """
import sys
from gpsuq.errors import GPSError

def said(code):
    try:
        exec(code)
    except (GPSError, ImportError) as error:
        print(*str(error).split())
    else:
        print("nothing")
"""


@pytest.mark.parametrize(
    ("absent", "messages"),
    [
        (
            "shapely",
            {
                "from gpsuq.datasets import scissors, load_images; load_images('digits')": "nothing",
                "from gpsuq.datasets import simulated_pattern": "a point pattern needs shapely: pip install "
                "'gpsuq[points]'",
                "from gpsuq import GPSPoissonProcess": "needs shapely: pip install 'gpsuq[points]'",
            },
        ),
        ("pooch", {"from gpsuq.datasets import load_images; load_images('mnist')": "pip install 'gpsuq[images]'"}),
    ],
)
def test_extras_are_named_where_they_are_missing(absent, messages, monkeypatch):
    for name in ("GPSUQ_HOME", "GPSUQ_DATA"):
        monkeypatch.delenv(name, raising=False)
    program = "\n".join([SAID, f"sys.modules[{absent!r}] = None", *(f"said({code!r})" for code in messages)])
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    for line, message in zip(done.stdout.splitlines(), messages.values(), strict=True):
        assert message in line
