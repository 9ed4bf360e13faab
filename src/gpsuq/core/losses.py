r"""Losses for networks with draws, for gpsuq's own training and for anybody's loop.

.. math:: \text{score}_i = E\,k(Y_i, Y_i') - 2 E\,k(y_i, Y_i), \qquad Y_i, Y_i' \text{ from different draws}

For classes the kernel is :math:`1[y = y']`, and the exact score is Brier's score of the mean probability, less one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from gpsuq.core.expectations import kernel_score
from gpsuq.core.kernels import Gaussian, Kernel
from gpsuq.errors import GPSError

BOX = "box"
"""Instead of a size of patches: a box of another image in an image that is whole otherwise."""

PatchSize = int | str | None
PatchSizes = PatchSize | Sequence[PatchSize]
"""Sizes of patches in pixels, one or several; None is for single numbers, :data:`BOX` for boxes."""

_BOX_SIDES = 3 / 8, 3 / 4  # of the image's

_SAME_OR_NOT = Gaussian(0.1)  # of one-hot vectors: exp(-20) off the diagonal


def predictive_score(
    predictive: Distribution, y: Tensor, *, kernel: Kernel | None = None, n_outcomes: int | None = None
) -> Tensor:
    """Give the kernel score of observations y (n, ...) under draws of their distribution, of batch shape (n, M): (n,).

    Parameters
    ----------
    predictive
        What the network says of each observation in each draw, such as ``Normal(mean, sd)`` with tensors (n, M).
    kernel
        Of y; a Gaussian of bandwidth 1 unless given. Not for classes, which are equal or not.
    n_outcomes
        J: sample so many outcomes of each draw instead of integrating them out.

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Normal
    >>> predictive_score(Normal(torch.zeros(1, 2), 1.0), torch.zeros(1))
    tensor([-0.7075])
    """
    if len(predictive.batch_shape) != 2 or predictive.batch_shape[1] < 2:
        raise GPSError(
            f"the predictive must have batch shape (observations, draws) with at least 2 draws, got "
            f"{tuple(predictive.batch_shape)}"
        )
    if len(y) != predictive.batch_shape[0]:
        raise GPSError(f"y has {len(y)} observations, the predictive {predictive.batch_shape[0]}")
    if kernel is None:
        kernel = _SAME_OR_NOT if isinstance(predictive, Categorical) else Gaussian()
    with_chain = predictive.expand((1, *predictive.batch_shape))
    return kernel_score(kernel, with_chain, y[None, :, None], n_outcomes=n_outcomes, n_pairs=None).score[0]


def class_score(logits: Tensor, y: Tensor, *, n_outcomes: int | None = None) -> Tensor:
    """Give the kernel score of labels y (n,) under draws of logits (n, M, H): (n,).

    >>> import torch
    >>> class_score(torch.zeros(1, 2, 2), torch.tensor([0]))
    tensor([-0.5000])
    """
    if logits.dim() != 3 or y.shape != logits.shape[:1]:
        raise GPSError(
            f"logits must have shape (observations, draws, classes) and y (observations,), got {tuple(logits.shape)} "
            f"and {tuple(y.shape)}"
        )
    if n_outcomes is not None:
        return predictive_score(Categorical(logits=logits, validate_args=False), y, n_outcomes=n_outcomes)
    n_draws = logits.shape[1]
    if n_draws < 2:
        raise GPSError("the score compares different draws: at least 2 are needed")
    probability = torch.softmax(logits, -1)
    total = probability.sum(1)
    pairs = (total.square().sum(-1) - probability.square().sum((1, 2))) / (n_draws * (n_draws - 1))
    return pairs - (2.0 / n_draws) * total.gather(1, y.long()[:, None])[:, 0]


def shuffled_rows(x: Tensor, count: int) -> Tensor:
    """Give rows (count, ...) that take each of their numbers from a row of x (n, ...) drawn for it alone.

    Every number is as in the data, and no row is like any of them.

    >>> import torch
    >>> from gpsuq.core.losses import shuffled_rows
    >>> shuffled_rows(torch.tensor([[1.0, 10.0], [2.0, 20.0]]), 3).shape
    torch.Size([3, 2])
    """
    chosen = torch.randint(len(x), (count, *x.shape[1:]), device=x.device)
    return x.gather(0, chosen)


def shuffled_patches(x: Tensor, count: int, size: PatchSize) -> Tensor:
    """Give images (count, c, h, w) whose patches of ``size`` pixels squared come from images of x, drawn one by one.

    Every patch is as in the data, and no image is like any of them; None is :func:`shuffled_rows`, :data:`BOX`
    :func:`pasted_boxes`.

    >>> import torch
    >>> from gpsuq.core.losses import shuffled_patches
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
    """Give images (count, c, h, w) of x with a square box of another one, 3/8 to 3/4 of the shorter side, anywhere.

    >>> import torch
    >>> from gpsuq.core.losses import pasted_boxes
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
    """Give one size of patches or several as a tuple; raise where one is no number of pixels.

    >>> from gpsuq.core.losses import patch_sizes
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
    """Give ``count`` inputs in disorder, shares of :func:`shuffled_patches` with each of the sizes.

    >>> import torch
    >>> from gpsuq.core.losses import unlike_the_data
    >>> unlike_the_data(torch.rand(6, 1, 4, 4), 5, (None, 2)).shape
    torch.Size([5, 1, 4, 4])
    """
    shares = torch.arange(count).tensor_split(len(sizes))
    return torch.cat([shuffled_patches(x, len(share), size) for share, size in zip(shares, sizes, strict=True)])


def probability_spread(logits: Tensor) -> Tensor:
    """Give the variance over draws of the class probabilities, summed over classes, for logits (n, M, H): (n,).

    Examples
    --------
    Draws that agree, and draws that do not:

    >>> import torch
    >>> from gpsuq.core.losses import probability_spread
    >>> probability_spread(torch.tensor([[[0.0, 9.0], [0.0, 9.0]], [[0.0, 9.0], [9.0, 0.0]]])).round(decimals=2)
    tensor([0., 1.])
    """
    return torch.softmax(logits, -1).var(1).sum(-1)
