"""Changes of images at random, for ``augment=`` of a classifier's ``fit``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpsuq.errors import GPSError


class ShiftAndFlip:
    """Shift every image (n, channel, row, column) by up to ``pixels`` in both directions; mirror half of them.

    What a shift uncovers shows the image reflected at its border.

    Examples
    --------
    >>> import torch
    >>> from gpsuq.augment import ShiftAndFlip
    >>> ShiftAndFlip(2)(torch.rand(10, 3, 8, 8)).shape
    torch.Size([10, 3, 8, 8])
    """

    def __init__(self, pixels: int = 4, *, flip: bool = True) -> None:
        if not isinstance(pixels, int) or pixels < 0:
            raise GPSError(f"pixels must be an integer of at least 0, got {pixels!r}")
        self.pixels = pixels
        self.flip = flip

    def __call__(self, x: Tensor) -> Tensor:
        """Give changed copies of the images."""
        if x.dim() != 4 or min(x.shape[2:]) <= self.pixels:
            raise GPSError(
                f"images must have shape (n, channel, row, column) and more than {self.pixels} rows and columns, got "
                f"{tuple(x.shape)}"
            )
        n, _, height, width = x.shape
        padded = pad(x, (self.pixels,) * 4, mode="reflect")
        first = torch.randint(0, 2 * self.pixels + 1, (2, n, 1), device=x.device)
        rows = first[0] + torch.arange(height, device=x.device)
        columns = first[1] + torch.arange(width, device=x.device)
        if self.flip:
            mirrored = torch.rand(n, 1, device=x.device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        images = torch.arange(n, device=x.device)[:, None, None]
        # Indices around a slice give (n, row, column, channel): seen as images, the channels come last in memory.
        return padded[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return f"ShiftAndFlip({self.pixels}, flip={self.flip})"
