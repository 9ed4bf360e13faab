"""Random changes of images."""

import pytest
import torch

from gpsuq import GPSError
from paper.augment import ShiftAndFlip, WindowsFirst


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


def test_the_first_epochs_see_windows_and_the_others_whole_images():
    torch.manual_seed(0)
    rows = torch.arange(32.0)[None, None, :, None].expand(3, 1, 32, 48)
    columns = torch.arange(48.0).expand(3, 1, 32, 48)
    x = torch.cat([rows, columns], 1)
    augment = WindowsFirst(ShiftAndFlip(0, flip=False), epochs=2)
    corners = set()
    for number in [0, 1] * 100:
        window = augment.for_epoch(number)(x)
        row, column = (int(place) for place in window[0, :, 0, 0])
        assert torch.equal(window, x[:, :, row : row + 26, column : column + 39])
        corners.add((row, column))
    assert {row for row, _ in corners} == set(range(7))
    assert {column for _, column in corners} == set(range(10))
    assert torch.equal(augment.for_epoch(2)(x), x)
    assert torch.equal(augment(x), x)
    tiny = torch.rand(2, 3, 2, 2)
    assert torch.equal(augment.for_epoch(0)(tiny), tiny)


def test_bad_input():
    with pytest.raises(GPSError, match="epochs must be an integer"):
        WindowsFirst(ShiftAndFlip(2), epochs=-1)
    with pytest.raises(GPSError, match="shape"):
        WindowsFirst(torch.relu, epochs=1).for_epoch(0)(torch.rand(3, 8))
    with pytest.raises(GPSError, match="at least 0"):
        ShiftAndFlip(-1)
    with pytest.raises(GPSError, match="shape"):
        ShiftAndFlip(4)(torch.rand(3, 8, 8))
    with pytest.raises(GPSError, match="more than 4"):
        ShiftAndFlip(4)(torch.rand(3, 1, 4, 8))
