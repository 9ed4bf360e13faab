"""Inputs unlike the data: every part of them is of the data, and none of them is."""

import pytest
import torch

from gpsuq import GPSError
from gpsuq.classify.off_data import BOX, pasted_boxes, shuffled_patches, shuffled_rows


def test_shuffled_rows_keep_columns_and_break_rows():
    torch.manual_seed(0)
    x = torch.arange(20.0)[:, None] + 100.0 * torch.arange(3.0)  # columns move together
    y = shuffled_rows(x, 4000)
    assert y.shape == (4000, 3)
    for column in range(3):
        values, counts = y[:, column].unique(return_counts=True)
        assert torch.equal(values, x[:, column])
        assert float(counts.min()) > 130
    assert float((torch.corrcoef(y.T) - torch.eye(3)).abs().max()) < 0.06
    assert shuffled_rows(torch.rand(5, 2, 3), 7).shape == (7, 2, 3)


def test_shuffled_patches_come_whole_from_one_image_each():
    x = torch.arange(50.0)[:, None, None, None] * torch.tensor([1.0, 100.0])[:, None, None].expand(50, 2, 6, 7)
    y = shuffled_patches(x, 400, 3)
    assert y.shape == (400, 2, 6, 7)
    patch = y[:, :, :3, :3]
    assert torch.equal(patch[:, 1], 100.0 * patch[:, 0])  # all channels from the same image
    assert torch.equal(patch, patch[:, :, :1, :1].expand_as(patch))
    assert (y[:, 0, 0, 0] == y[:, 0, 0, 3]).float().mean() < 0.1  # neighbours from others
    assert (y[:, 0, 0, 3] == y[:, 0, 0, 6]).float().mean() < 0.1  # a narrower patch at the edge
    with pytest.raises(GPSError, match="patches are taken from images"):
        shuffled_patches(torch.rand(5, 3), 2, 2)
    assert shuffled_patches(torch.rand(5, 3), 2, None).shape == (2, 3)


def test_boxes_of_another_image_are_whole_and_anywhere():
    x = torch.arange(1.0, 51.0)[:, None, None, None] * torch.tensor([1.0, 100.0])[:, None, None]
    y = pasted_boxes(x.expand(50, 2, 16, 24), 500)
    assert torch.equal(y[:, 1], 100.0 * y[:, 0])  # all channels from the same image
    sides, places = set(), torch.zeros(16, 24)
    for image in y[:, 0]:
        kinds, counts = image.unique(return_counts=True)
        assert len(kinds) == 2  # never of the image itself
        inside = image == kinds[counts.argmin()]
        rows, columns = inside.any(1), inside.any(0)
        assert inside.sum() == rows.sum() * columns.sum()
        assert rows.sum() == columns.sum()
        sides.add(int(rows.sum()))
        places += inside
    assert sides == set(range(6, 13))
    assert (places > 0).all()
    assert shuffled_patches(torch.rand(1, 3, 8, 8), 4, BOX).shape == (4, 3, 8, 8)  # a single image has no other
    with pytest.raises(GPSError, match="patches are taken from images"):
        shuffled_patches(torch.rand(5, 3), 2, BOX)
