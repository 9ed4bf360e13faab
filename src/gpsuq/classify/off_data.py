"""Inputs unlike the data, made of the data: what a classifier may be uncertain about, and is trained to be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gpsuq.errors import GPSError

BOX = "box"
"""Instead of a size of patches: a box of another image in an image that is whole otherwise."""

PatchSize = int | str | None
PatchSizes = PatchSize | Sequence[PatchSize]
"""Sizes of patches in pixels, one or several; None is for single numbers, :data:`BOX` for boxes."""

_BOX_SIDES = 3 / 8, 3 / 4  # of the image's


def shuffled_rows(x: Tensor, count: int) -> Tensor:
    """Return rows (count, ...) that take each of their numbers from a row of x (n, ...) drawn for it alone.

    Every number is as in the data, and no row is like any of them.

    >>> import torch
    >>> from gpsuq.classify.off_data import shuffled_rows
    >>> shuffled_rows(torch.tensor([[1.0, 10.0], [2.0, 20.0]]), 3).shape
    torch.Size([3, 2])
    """
    chosen = torch.randint(len(x), (count, *x.shape[1:]), device=x.device)
    return x.gather(0, chosen)


def shuffled_patches(x: Tensor, count: int, size: PatchSize) -> Tensor:
    """Return images (count, c, h, w) whose patches of ``size`` pixels squared come from images of x, drawn one by one.

    Every patch is as in the data, and no image is like any of them; None is :func:`shuffled_rows`, :data:`BOX`
    :func:`pasted_boxes`.

    >>> import torch
    >>> from gpsuq.classify.off_data import shuffled_patches
    >>> shuffled_patches(torch.arange(3.0)[:, None, None, None].expand(3, 1, 4, 4), 5, 2).shape
    torch.Size([5, 1, 4, 4])
    """
    if size is None:
        return shuffled_rows(x, count)
    if x.dim() != 4:
        raise GPSError(f"patches are taken from images (n, channel, row, column), got inputs of shape {tuple(x.shape)}")
    if isinstance(size, str):
        return pasted_boxes(x, count)
    n, channels, height, width = x.shape
    patches = math.ceil(height / size), math.ceil(width / size)
    chosen = torch.randint(n, (count, 1, *patches), device=x.device)
    chosen = chosen.repeat_interleave(size, 2).repeat_interleave(size, 3)[..., :height, :width]
    return x.gather(0, chosen.expand(-1, channels, -1, -1))


def pasted_boxes(x: Tensor, count: int) -> Tensor:
    """Return images (count, c, h, w) of x with a square box of another one, 3/8 to 3/4 of the shorter side, anywhere.

    >>> import torch
    >>> from gpsuq.classify.off_data import pasted_boxes
    >>> images = torch.arange(2.0)[:, None, None, None].expand(2, 1, 8, 8)  # a black one and a white one
    >>> sorted({3, 4, 5, 6} & set(pasted_boxes(images, 100).mean((1, 2, 3)).mul(64).sqrt().tolist()))
    [3, 4, 5, 6]
    """
    n, _, height, width = x.shape
    low, high = (max(1, round(part * min(height, width))) for part in _BOX_SIDES)
    side = torch.randint(low, high + 1, (count, 1), device=x.device)

    def within(length: int) -> Tensor:
        first = (torch.rand(count, 1, device=x.device) * (length - side + 1)).long()
        places = torch.arange(length, device=x.device)
        return (places >= first) & (places < first + side)

    around = torch.randint(n, (count,), device=x.device)
    another = (around + torch.randint(1, max(2, n), (count,), device=x.device)) % n
    box = within(height)[:, None, :, None] & within(width)[:, None, None, :]
    return torch.where(box, x[another], x[around])


def patch_sizes(sizes: PatchSizes) -> tuple[PatchSize, ...]:
    """Return one size of patches or several as a tuple; raise where one is no number of pixels.

    >>> from gpsuq.classify.off_data import patch_sizes
    >>> patch_sizes(4), patch_sizes([None, 16, "box"])
    ((4,), (None, 16, 'box'))
    """
    several = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    known = (size is None or size == BOX or (isinstance(size, int) and size >= 1) for size in several)
    if not several or not all(known):
        raise GPSError(
            f'off_data_patch must be None, a positive number of pixels, "box", or a list of those, got {sizes!r}'
        )
    return several


def unlike_the_data(x: Tensor, count: int, sizes: tuple[PatchSize, ...]) -> Tensor:
    """Return ``count`` inputs in disorder, shares of :func:`shuffled_patches` with each of the sizes.

    >>> import torch
    >>> from gpsuq.classify.off_data import unlike_the_data
    >>> unlike_the_data(torch.rand(6, 1, 4, 4), 5, (None, 2)).shape
    torch.Size([5, 1, 4, 4])
    """
    shares = torch.arange(count).tensor_split(len(sizes))
    return torch.cat([shuffled_patches(x, len(share), size) for share, size in zip(shares, sizes, strict=True)])
