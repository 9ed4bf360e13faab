r"""Losses for networks with draws, for gpsuq's own training and for anybody's loop.

.. math:: \text{score}_i = E\,k(Y_i, Y_i') - 2 E\,k(y_i, Y_i), \qquad Y_i, Y_i' \text{ from different draws}

For classes the kernel is :math:`1[y = y']`, and the exact score is Brier's score of the mean probability, less one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from gpsuq.core.expectations import kernel_score
from gpsuq.core.kernels import Gaussian, Kernel
from gpsuq.errors import GPSError

_SAME_OR_NOT = Gaussian(0.1)  # of one-hot vectors: exp(-20) off the diagonal
_MANY_CLASSES = 256


def predictive_score(
    predictive: Distribution, y: Tensor, *, kernel: Kernel | None = None, n_outcomes: int | None = None
) -> Tensor:
    """Return the kernel score (n,) of observations y (n, ...) under draws of their distribution, of batch shape (n, M).

    Parameters
    ----------
    predictive
        What the network says of each observation in each draw, such as ``Normal(mean, sd)`` with tensors (n, M).
    kernel
        Of y; a Gaussian of bandwidth 1 unless given. Not for classes, which are equal or not.
    n_outcomes
        J: sample so many outcomes of each draw. None integrates them out, or takes 5 where that has no closed form.

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
    """Return the kernel score (n,) of labels y (n,) under draws of logits (n, M, H).

    >>> import torch
    >>> class_score(torch.zeros(1, 2, 2), torch.tensor([0]))
    tensor([-0.5000])
    """
    _check_shapes(logits, y)
    if n_outcomes is not None:
        return predictive_score(Categorical(logits=logits, validate_args=False), y, n_outcomes=n_outcomes)
    n_draws = logits.shape[1]
    if n_draws < 2:
        raise GPSError("the score compares different draws: at least 2 are needed")
    probability = torch.softmax(logits, -1)
    total = probability.sum(1)
    pairs = (total.square().sum(-1) - probability.square().sum((1, 2))) / (n_draws * (n_draws - 1))
    return pairs - (2.0 / n_draws) * total.gather(1, y.long()[:, None])[:, 0]


def _check_shapes(logits: Tensor, y: Tensor) -> None:
    if logits.dim() != 3 or y.shape != logits.shape[:1]:
        raise GPSError(
            f"logits must have shape (observations, draws, classes) and y (observations,), got {tuple(logits.shape)} "
            f"and {tuple(y.shape)}"
        )


def log_score(logits: Tensor, y: Tensor) -> Tensor:
    """Return -log of the mean probability over draws (n,) of labels y (n,), for logits (n, M, H).

    >>> import torch  # one draw is sure, one is not: log 2 - log 1.5
    >>> log_score(torch.tensor([[[99.0, 0.0], [0.0, 0.0]]]), torch.tensor([0]))
    tensor([0.2877])
    """
    _check_shapes(logits, y)
    of_label = torch.log_softmax(logits, -1).gather(2, y.long()[:, None, None].expand(-1, logits.shape[1], 1))
    return math.log(logits.shape[1]) - of_label[:, :, 0].logsumexp(1)


def probability_spread(logits: Tensor) -> Tensor:
    """Return the variance over draws of the class probabilities, summed over classes, for logits (n, M, H): (n,).

    >>> import torch  # draws that agree, and draws that do not
    >>> probability_spread(torch.tensor([[[0.0, 9.0], [0.0, 9.0]], [[0.0, 9.0], [9.0, 0.0]]])).round(decimals=2)
    tensor([0., 1.])
    """
    probability = torch.softmax(logits, -1)
    if logits.shape[-1] <= _MANY_CLASSES:
        return probability.var(1).sum(-1)
    # The same up to rounding; of thousands of classes the function of torch takes most of a training step.
    away = probability - probability.mean(1, keepdim=True)
    return away.square().sum((1, 2)) / (logits.shape[1] - 1)
