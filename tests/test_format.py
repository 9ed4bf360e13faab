"""What was saved gives the same draws: in a new process, and in versions to come."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_models

from gpsuq import GPSError, __version__, load
from gpsuq.storage import FORMAT

WRITTEN = Path(__file__).parent / "data"
"""Models of every format that was ever released, with their draws; written once, never again."""

INTENSITY_OF_VERSION_0_1 = [30.54638022, 29.92699029, 29.43874709, 30.14297258, 30.67880092, 30.6873061]
"""What 0.1 gave as the mean intensity of its point process: errors around it are drawn otherwise since."""


def test_a_new_process_gives_equal_draws(tmp_path):
    small_models.write(tmp_path)
    subprocess.run([sys.executable, small_models.__file__, "read", tmp_path], check=True)
    with np.load(tmp_path / small_models.DRAWS) as written, np.load(tmp_path / "again.npz") as read:
        assert set(written) == set(read) == set(small_models.CODE)
        for name in written:
            assert np.array_equal(written[name], read[name]), name


@pytest.mark.parametrize("folder", sorted(WRITTEN.glob("format*")), ids=lambda folder: folder.name)
def test_what_earlier_versions_saved_is_read(folder):
    with np.load(folder / small_models.DRAWS) as written:
        read = small_models.read(folder)
        assert set(written) == set(read)
        for name in set(written) - {"poisson"}:
            assert np.allclose(written[name], read[name], rtol=1e-5, atol=1e-5), name
    points = small_models.ROWS % 1.0
    assert load(folder / "poisson").intensity(points) == pytest.approx(INTENSITY_OF_VERSION_0_1)


def test_this_format_is_among_them():
    assert (WRITTEN / f"format{FORMAT}").is_dir()


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"format": 99, "gpsuq": "7.1.0"}, "install gpsuq 7.1.0, which wrote it, or fit again with this one"),
        ({"format": 0, "gpsuq": None}, "install the gpsuq that wrote it, or fit again with this one"),
        ({"type": "Surprise", "gpsuq": "7.1.0"}, "install gpsuq 7.1.0, which wrote it, or fit again with this one"),
    ],
)
def test_other_formats_say_what_to_do(tmp_path, change, advice):
    config = json.loads((WRITTEN / "format1" / "linear" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(GPSError, match=advice) as raised:
        load(tmp_path)
    assert __version__ in str(raised.value)
