"""Changes of images at random, for ``augment=`` of a classifier's ``fit``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpsuq.errors import GPSError

_WINDOW = 13 / 16  # of an image's side


class ShiftAndFlip:
    """Shift every image (n, channel, row, column) by up to ``pixels`` in both directions; mirror half of them.

    What a shift uncovers shows the image reflected at its border.

    Examples
    --------
    >>> import torch
    >>> from paper.augment import ShiftAndFlip
    >>> ShiftAndFlip(2)(torch.rand(10, 3, 8, 8)).shape
    torch.Size([10, 3, 8, 8])
    """

    def __init__(self, pixels: int = 4, *, flip: bool = True) -> None:
        if not isinstance(pixels, int) or pixels < 0:
            raise GPSError(f"pixels must be an integer of at least 0, got {pixels!r}")
        self.pixels = pixels
        self.flip = flip

    def __call__(self, x: Tensor) -> Tensor:
        """Return changed copies of the images."""
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


class WindowsFirst:
    """Let the first epochs see windows of the images, 13/16 as high and wide, and the others whole images.

    A window is at random, and the same for all images of a batch. For a convolutional network that takes images of any
    size, such an epoch is seven tenths of the work. ``augment`` changes the images before; :meth:`for_epoch` is what
    training asks for.

    Examples
    --------
    >>> import torch
    >>> from paper.augment import ShiftAndFlip, WindowsFirst
    >>> augment = WindowsFirst(ShiftAndFlip(2), epochs=6)
    >>> images = torch.rand(10, 3, 32, 32)
    >>> augment.for_epoch(5)(images).shape, augment.for_epoch(6)(images).shape
    (torch.Size([10, 3, 26, 26]), torch.Size([10, 3, 32, 32]))
    """

    def __init__(self, augment: Callable[[Tensor], Tensor], *, epochs: int) -> None:
        if not isinstance(epochs, int) or epochs < 0:
            raise GPSError(f"epochs must be an integer of at least 0, got {epochs!r}")
        self.augment = augment
        self.epochs = epochs

    def __call__(self, x: Tensor) -> Tensor:
        """Return changed copies of whole images."""
        return self.augment(x)

    def for_epoch(self, number: int) -> Callable[[Tensor], Tensor]:
        """Return what changes the images of an epoch, counted from 0."""
        return self._windows if number < self.epochs else self.augment

    def _windows(self, x: Tensor) -> Tensor:
        images = self.augment(x)
        if images.dim() != 4:
            raise GPSError(f"images must have shape (n, channel, row, column), got {tuple(images.shape)}")
        height, width = (round(_WINDOW * side) for side in images.shape[2:])
        spare = torch.tensor(images.shape[2:]) - torch.tensor([height, width])
        row, column = (torch.rand(2) * (spare + 1)).long().tolist()
        return images[:, :, row : row + height, column : column + width]

    def __repr__(self) -> str:
        return f"WindowsFirst({self.augment!r}, epochs={self.epochs})"
