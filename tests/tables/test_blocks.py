"""Blocks of rows: which process gets which row groups."""

from gpsuq.tables.blocks import dealt


def test_many_row_groups_are_dealt_whole():
    shards = dealt([1000] * 40 + [10], 4)
    assert all(piece.parts == 1 for shard in shards for piece in shard)
    assert sorted(piece.group for shard in shards for piece in shard) == list(range(41))
