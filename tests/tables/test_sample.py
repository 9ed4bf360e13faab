"""Rows that stand for a table: the same whoever reads it."""

import numpy as np
import pandas as pd

from gpsuq.tables.parquet import ParquetTable
from gpsuq.tables.sample import Smallest, sampled


def test_the_sample_does_not_depend_on_who_reads(rng):
    rows = np.arange(5000)
    whole, parts, merged = Smallest(100, 3), [Smallest(100, 3) for _ in range(3)], Smallest(100, 3)
    whole.add(rows)
    for part, some in zip(parts, np.array_split(rng.permutation(rows), 3), strict=True):
        for few in np.array_split(some, 20):
            part.add(few)
        merged.add(*part.taken())
    assert np.array_equal(whole.taken()[0], merged.taken()[0])
    assert len(whole.taken()[0]) == 100
    assert 2000 < whole.taken()[0].mean() < 3000


def test_some_rows_of_a_table_keep_their_numbers(tmp_path, rng, monkeypatch):
    table = pd.DataFrame({"a": rng.normal(size=700), "site": rng.choice(["north", "south"], 700)})
    for number, part in enumerate((table[:320], table[320:330], table[330:])):
        part.to_parquet(tmp_path / f"part-{number}.parquet", row_group_size=100)
    monkeypatch.setattr("gpsuq.tables.sample.SAMPLE", 50)
    some = sampled(ParquetTable(tmp_path))
    assert len(some) == 50
    pd.testing.assert_frame_equal(some, table.loc[some.index], check_dtype=False)
