"""Random changes of images."""

import pytest
import torch

from gpsuq import GPSError
from gpsuq.augment import ShiftAndFlip


def test_every_image_is_a_shifted_or_mirrored_part_of_its_padding():
    torch.manual_seed(0)
    x = torch.rand(30, 2, 6, 7)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2), mode="reflect")
    changed = ShiftAndFlip(2)(x)
    assert changed.shape == x.shape
    places, flips = set(), 0
    for image, whole in zip(changed, padded, strict=True):
        found = [
            (row, column, mirror)
            for row in range(5)
            for column in range(5)
            for mirror in (False, True)
            if torch.equal(image.flip(2) if mirror else image, whole[:, row : row + 6, column : column + 7])
        ]
        assert len(found) == 1
        places.add(found[0][:2])
        flips += found[0][2]
    assert len(places) > 10
    assert 5 < flips < 25


def test_nothing_changes_where_nothing_is_asked_for():
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(ShiftAndFlip(0, flip=False)(x), x)


def test_bad_input():
    with pytest.raises(GPSError, match="at least 0"):
        ShiftAndFlip(-1)
    with pytest.raises(GPSError, match="shape"):
        ShiftAndFlip(4)(torch.rand(3, 8, 8))
    with pytest.raises(GPSError, match="more than 4"):
        ShiftAndFlip(4)(torch.rand(3, 1, 4, 8))
