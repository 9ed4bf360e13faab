"""Rows of Parquet files: what one pass learns, who reads which rows, in which order."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Normal
from torch.utils.data import DataLoader
from two_ranks import Threads

from gpsuq import GPS, Algorithm, GPSError, Location, ObservationModel
from gpsuq.tables import streaming
from gpsuq.tables.reading import split_table
from gpsuq.tables.streaming import ParquetRows


@pytest.fixture
def table(rng):
    n = 700
    return pd.DataFrame(
        {
            "a": rng.normal(1e6, 1.0, n),
            "site": rng.choice(["north", "south", "east"], n),
            "old": rng.random(n) < 0.3,
            "count": rng.integers(0, 50, n),
            "y": rng.normal(size=n),
            "w": rng.integers(0, 3, n).astype(float),
        }
    )


@pytest.fixture
def folder(tmp_path, table):
    """Three files of different sizes, with row groups of 100."""
    for number, part in enumerate((table[:320], table[320:330], table[330:])):
        part.to_parquet(tmp_path / f"part-{number}.parquet", row_group_size=100)
    return tmp_path


def test_one_pass_learns_what_a_table_in_memory_tells(folder, table):
    rows, whole = ParquetRows(folder, "y", drop=["w"]), split_table(table, "y", drop=["w"])
    assert rows.columns == list(whole.X.columns) == ["a", "site=north", "site=south", "old=True", "count"]
    assert rows.n_rows == rows.total_weight == 700
    assert np.array_equal(rows.lowest, whole.X.min())
    assert np.array_equal(rows.highest, whole.X.max())
    both = whole.X.assign(y=whole.y).to_numpy(dtype=float)
    assert np.allclose(rows.facts.mean, both.mean(0), rtol=1e-14)
    assert np.allclose(rows.facts.covariance, np.cov(both.T, ddof=0), rtol=1e-10, atol=1e-12)
    mean, second = rows.moments(np.full(5, 2.0), np.full(5, 10.0))
    scaled = (whole.X.to_numpy(dtype=float) - 2.0) / 10.0
    assert np.allclose(mean, scaled.mean(0))
    assert np.allclose(second, scaled.T @ scaled / 700)
    blocks = list(rows.blocks())
    assert np.array_equal(np.concatenate([block.X for block in blocks]), whole.X.to_numpy(dtype=float))
    assert np.array_equal(np.concatenate([block.row for block in blocks]), np.arange(700))


def test_weights_count_rows_and_zero_is_no_row(folder, table):
    rows = ParquetRows(folder, "y", weights="w", drop=["site", "old"])
    used = table[table["w"] > 0]
    assert (rows.n_rows, rows.total_weight) == (len(used), used["w"].sum())
    assert np.allclose(rows.facts.mean[-1], np.average(used["y"], weights=used["w"]))
    assert np.array_equal(np.concatenate([block.row for block in rows.blocks()]), used.index)
    assert np.array_equal(rows.sample_table().y, used["y"])


def test_a_missing_value_is_named_with_its_file_or_left_out(folder, table):
    table.loc[[325, 329], "a"] = np.nan
    table.loc[400, "site"] = None
    table[320:330].to_parquet(folder / "part-1.parquet")
    table[330:].to_parquet(folder / "part-2.parquet", row_group_size=100)
    with pytest.raises(GPSError, match=r"part-1.parquet: missing .* in columns a, rows 6, 10 .*drop_missing"):
        ParquetRows(folder, "y")
    rows = ParquetRows(folder, "y", drop_missing=True)
    kept = np.setdiff1d(np.arange(700), [325, 329, 400])
    assert np.array_equal(np.concatenate([block.row for block in rows.blocks()]), kept)
    assert rows.n_rows == 697


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({}, {"target": "z"}, "no column 'z'"),
        ({}, {"target": "site"}, "column 'site' holds .*string, where numbers are needed"),
        ({"w": -1.0}, {"weights": "w"}, "part-0.parquet: column 'w' is negative in rows 1, 2"),
        ({"site": "north"}, {}, "nothing but 'north'"),
        ({"site": [f"name {i}" for i in range(700)]}, {}, "700 different texts"),
        ({"site": "1,5"}, {}, "numbers with commas"),
        ({"site=north": 1.0}, {}, "there is a column 'site=north' already"),
        ({"a": 1e300}, {"target": "a"}, None),
        ({}, {"batch_size": 0}, "batch_size"),
        ({"w": 0.0}, {"weights": "w"}, "no row is left"),
    ],
)
def test_bad_tables_are_told(tmp_path, table, change, arguments, said):
    table.assign(**change).to_parquet(tmp_path / "part-0.parquet")
    if said is None:
        ParquetRows(tmp_path, **arguments)
        return
    with pytest.raises(GPSError, match=said):
        ParquetRows(tmp_path, **{"target": "y"} | arguments)


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5])
def test_shards_have_every_row_once_and_nearly_as_many_each(folder, n_shards, monkeypatch):
    monkeypatch.setattr("gpsuq.tables.parquet.BLOCK", 30)
    found = []
    for shard in range(n_shards):
        rows = ParquetRows(folder, "y")
        rows.shard(shard, n_shards)
        found.append(np.concatenate([block.row for block in rows.blocks()]))
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(700))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 0.1 * max(sizes) + 10


def test_an_epoch_has_every_row_at_most_once_in_an_order_of_its_own(folder, table):
    rows = ParquetRows(folder, "y", drop=["w"], batch_size=50)
    epochs = []
    for number in (0, 1, 0):
        rows.set_epoch(number)
        x, y, weight, row = (torch.cat(parts) for parts in zip(*rows, strict=True))
        assert torch.allclose(y.double(), torch.from_numpy(table["y"].to_numpy()[row]), atol=1e-6)
        assert x.dtype == y.dtype == torch.float32
        assert row.dtype == torch.int64
        assert bool((weight == 1.0).all())
        epochs.append(row)
    assert len(epochs[0]) == 700
    assert len(set(epochs[0].tolist())) == 700
    assert len(rows) == 14
    assert torch.equal(epochs[0], epochs[2])
    assert not torch.equal(epochs[0], epochs[1])
    together = (epochs[0][1:] - epochs[0][:-1]).abs() == 1
    assert together.float().mean() < 0.05  # neighbours in the file are not neighbours in a batch


def test_the_buffer_keeps_every_row_when_it_is_smaller_than_the_table(folder, monkeypatch):
    monkeypatch.setattr("gpsuq.tables.blocks._BUFFER", 120)
    rows = torch.cat([batch[3] for batch in ParquetRows(folder, "y", batch_size=7)])
    assert len(rows) == len(set(rows.tolist())) == 700


@pytest.mark.slow
def test_workers_share_an_epoch(folder):
    loader = DataLoader(ParquetRows(folder, "y", batch_size=50), batch_size=None, num_workers=2)
    batches = [batch[3] for batch in loader]
    assert len(batches) == len(loader) == 14
    rows = torch.cat(batches).tolist()
    assert len(rows) == 700
    assert len(set(rows)) > 600


def test_two_processes_learn_together_what_one_learns(folder, monkeypatch):
    alone = ParquetRows(folder, "y", weights="w")
    fake = Threads(2)
    monkeypatch.setattr(streaming, "ranks", fake)

    def learned(rank):
        fake.own.rank = rank
        rows = ParquetRows(folder, "y", weights="w")
        return rows.encoding, rows.facts, np.concatenate([block.row for block in rows.blocks()])

    with ThreadPoolExecutor(2) as pool:
        (first, facts, mine), (second, others, yours) = pool.map(learned, range(2))
    assert first == second == alone.encoding
    assert np.array_equal(np.sort(np.concatenate([mine, yours])), alone.sample.row)
    for one, two, whole in zip(facts[:-1], others[:-1], alone.facts[:-1], strict=True):
        assert np.array_equal(one, two)
        assert np.allclose(one, whole, rtol=1e-12)
    assert np.array_equal(facts.sample.X, alone.sample.X)


def test_gps_trains_on_a_stream_as_it_does_in_memory(folder, table):
    """Batches of another order, the same weights of the same rows: the means agree, and chains differ."""
    model = ObservationModel(lambda x, theta: Normal(theta, 1.0), theta=Location())
    gps = GPS(model, algorithm=Algorithm(n_steps=60, batch_size=50, n_draws=5), n_chains=2)
    rows = ParquetRows(folder, "y", drop=["site", "old", "w", "a"], batch_size=50)
    streamed, held = (fit.draws(400)["theta"] for fit in (gps.fit(rows), gps.fit(table[["count"]], table["y"])))
    assert streamed.shape == held.shape == (2, 400)
    assert np.allclose(streamed.mean(1), held.mean(1), atol=0.15)
    assert streamed[0].mean() != streamed[1].mean()


def test_a_shard_may_have_fewer_rows_than_a_batch(folder):
    rows = ParquetRows(folder, "y", batch_size=690)
    seen = []
    for shard in range(3):
        rows.shard(shard, 3)
        (batch,) = rows
        seen += batch[3].tolist()
    assert len(set(seen)) == len(seen) > 600
    rows.shard(900, 1000)
    with pytest.raises(GPSError, match="700 rows are too few for 1000 processes"):
        next(iter(rows))
