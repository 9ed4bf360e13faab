"""Replicates: what is done is on disk at once, is not done again, and comes in the order that was asked for."""

import json

import joblib
import pytest

from gpsuq.errors import GPSError
from paper.replicates import run_replicates


def one(seed, *, progress):
    if seed < 0:
        raise RuntimeError("stopped")
    return {"seed": seed, "square": seed**2, "progress": progress}


def test_replicates_come_in_the_order_that_was_asked_for(tmp_path):
    with joblib.parallel_config("threading", n_jobs=2):
        found = run_replicates(one, [(3,), (1,), (2,)], tmp_path, force=False, progress=False)
    assert found["square"].tolist() == [9, 1, 4]
    kept = [json.loads(line) for line in (tmp_path / "replicates.jsonl").read_text().splitlines()]
    assert sorted(record["task"] for record in kept) == [[1], [2], [3]]


def test_what_is_done_is_not_done_again(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        run_replicates(one, [(1,), (-1,)], tmp_path, force=False)
    path = tmp_path / "replicates.jsonl"
    path.write_text(path.read_text().replace('"square": 1', '"square": 7') + '{"task": [2], "re')  # cut short
    found = run_replicates(one, [(2,), (1,)], tmp_path, force=False, progress=True)
    assert found["square"].tolist() == [4, 7]
    assert found["progress"].tolist() == [True, False]  # one that is alone shows its own bars
    assert run_replicates(one, [(1,)], tmp_path, force=True)["square"].tolist() == [1]


@pytest.mark.parametrize("line", ["{", "[]", '{"task": [1]}'])
def test_a_damaged_file_is_refused(tmp_path, line):
    (tmp_path / "replicates.jsonl").write_text(line + "\n")
    with pytest.raises(GPSError, match="damaged"):
        run_replicates(one, [(1,)], tmp_path, force=False)
