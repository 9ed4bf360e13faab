"""The networks of the paper's appendix, and a residual network of today."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, unfold

from gpsuq.classify.networks import Standardise

_PATCHES_OF = 500  # images at once: their patches take megabytes
_LEAST_VARIANCE = 5e-4  # of a patch's coordinate, for pixels in [0, 1]: what is less is noise


def paper_cnn(n_classes: int, *, width: int = 800, depth: int = 6, dropout: float = 0.0) -> nn.Sequential:
    """Return the paper's network for 28 x 28 images of one channel; its noise enters at ``"head.0"``.

    conv[16,5,1,2]-BN-ReLU-max-pool[2]-conv[32,5,1,2]-BN-ReLU-max-pool[2], flattened to 1,568 numbers, then six layers
    of 800 nodes, each batch-normalised. The appendix names no activation and no last layer for the latter: here every
    node is rectified, and an affine layer to the classes follows. ``dropout`` comes behind every layer of 800 nodes.

    Examples
    --------
    >>> import torch
    >>> from gpsuq import noisify
    >>> from paper.networks import paper_cnn
    >>> network = noisify(paper_cnn(10, width=20, depth=2), "head.0")
    >>> network.noise_dim, network(torch.zeros(2, 1, 28, 28), draws=3).shape
    (784, torch.Size([2, 3, 10]))
    """
    trunk = nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )
    head = feed_forward(32 * 7 * 7, n_classes, width=width, depth=depth, dropout=dropout)
    return nn.Sequential(OrderedDict(trunk=trunk, head=head))


def paper_resnet(n_classes: int, *, images: Tensor | None = None, dropout: float = 0.0) -> nn.Sequential:
    """Return the paper's network for colour images; its noise enters at ``"head.0"``.

    conv[16,3,1,1]-BN-ReLU, then convres[N,3,1,1]-BN-ReLU with N = 16, 16, 16, 32, 32, 64, 64, all of stride 1, and six
    batch-normalised layers of 200 nodes, here rectified, and followed by an affine layer to the classes. The appendix
    leaves open how its output gets "size 64" and what is added where the width changes: here the mean over the image,
    and the input with zeros for the new channels. An image is judged together with its mirror image. With some
    ``images`` as examples, channels are standardised first, and the first convolution begins as the eight main
    directions of their 3 x 3 patches, with both signs.

    Examples
    --------
    >>> import torch
    >>> from paper.networks import paper_resnet
    >>> paper_resnet(10)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    wide = 16
    first = nn.Conv2d(3, wide, 3, padding=1)
    standardise = nn.Identity() if images is None else Standardise(images)
    if images is not None:
        main = patch_directions(standardise(images), 3)[1][-wide // 2 :]
        first.weight.data = torch.cat([main, -main])
    layers: list[nn.Module] = [standardise, *_normalised(first)]
    for width in (16, 16, 16, 32, 32, 64, 64):
        layers += _normalised(AddedConv(wide, width))
        wide = width
    trunk = WithMirrorImage(nn.Sequential(*layers, MeanOverImage()))
    head = feed_forward(wide, n_classes, width=200, depth=6, dropout=dropout)
    return nn.Sequential(OrderedDict(trunk=trunk, head=head))


def small_resnet(n_classes: int, images: Tensor, *, width: int = 32, dropout: float = 0.0) -> nn.Sequential:
    """Return a residual network that is small enough to be trained on a CPU; its noise enters at ``"head.0"``.

    Whitened patches (of ``images``, some examples), three stages of a convolution and a 2 x 2 max-pool, 2, 4 and 8
    times ``width`` channels wide, a residual block of two convolutions behind the first and the third, the maximum over
    the image, and two batch-normalised layers. Convolutions begin as the identity, as far as they have channels for it;
    an image is judged together with its mirror image.

    Examples
    --------
    >>> import torch
    >>> from paper.networks import small_resnet
    >>> images = torch.rand(20, 3, 16, 16)
    >>> small_resnet(10, images, width=6)(images).shape
    torch.Size([20, 10])
    """

    def stage(n_inputs: int, n_outputs: int) -> list[nn.Module]:
        # Pooled before it is normalised: a quarter of the work.
        convolution, *others = _normalised(_begun_as_identity(n_inputs, n_outputs))
        return [convolution, nn.MaxPool2d(2), *others]

    patches = WhitenedPatches(images)
    layers = nn.Sequential(
        patches,
        *stage(patches.n_outputs, 2 * width),
        Residual(2 * width),
        *stage(2 * width, 4 * width),
        *stage(4 * width, 8 * width),
        Residual(8 * width),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )
    head = feed_forward(8 * width, n_classes, width=200, depth=2, dropout=dropout)
    return nn.Sequential(OrderedDict(trunk=WithMirrorImage(layers), head=head))


def _normalised(layer: nn.Conv2d) -> list[nn.Module]:
    return [layer, nn.BatchNorm2d(layer.out_channels), nn.ReLU(inplace=True)]


def _begun_as_identity(n_inputs: int, n_outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(n_inputs, n_outputs, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight.data[:n_inputs])
    return layer


class WhitenedPatches(nn.Module):
    r"""Patches of 2 x 2 pixels, decorrelated, and rectified with both signs: (n, c, h, w) to (n, 8c, h - 1, w - 1).

    The filters are fixed, :math:`\pm v_k / \sqrt{\lambda_k + \varepsilon}` of the eigenvectors and eigenvalues of the
    patches' covariance in some images; the biases are trained. Neighbouring pixels are nearly equal, and so their
    differences are seen at the same scale as their mean.

    >>> import torch
    >>> from paper.networks import WhitenedPatches
    >>> images = torch.rand(20, 3, 8, 8)
    >>> WhitenedPatches(images)(images).shape
    torch.Size([20, 24, 7, 7])
    """

    center: Tensor
    filters: Tensor

    def __init__(self, example: Tensor) -> None:
        super().__init__()
        center = example.mean((0, 2, 3), keepdim=True)[0]
        values, directions = patch_directions(example - center, 2)
        filters = directions / (values + _LEAST_VARIANCE).sqrt()[:, None, None, None]
        self.register_buffer("center", center)
        self.register_buffer("filters", torch.cat([filters, -filters]))
        self.bias = nn.Parameter(torch.zeros(2 * len(filters)))

    @property
    def n_outputs(self) -> int:
        """The number of channels of the output."""
        return len(self.filters)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rectified coordinates of every patch."""
        return torch.relu(conv2d(x - self.center, self.filters, self.bias))


def patch_directions(images: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return ascending mean squares and orthonormal, uncorrelated directions (k, c, size, size) of image patches.

    >>> import torch
    >>> from paper.networks import patch_directions
    >>> flat = torch.ones(1, 1, 4, 4)  # patches vary together only
    >>> values, directions = patch_directions(flat, 2)
    >>> values.round(decimals=3).abs(), directions[-1].abs()
    (tensor([0., 0., 0., 4.]), tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]]))
    """
    products, count = torch.zeros((), dtype=torch.float64), 0
    for batch in images.split(_PATCHES_OF):
        patches = unfold(batch, size).transpose(1, 2).flatten(0, 1).double()  # (patch, pixel)
        products, count = products + patches.T @ patches, count + len(patches)
    values, vectors = torch.linalg.eigh(products / count)
    return values.float(), vectors.T.reshape(-1, images.shape[1], size, size).float()


class WithMirrorImage(nn.Module):
    """A network of images; in evaluation, what it gives is averaged over an image and its mirror image.

    >>> import torch
    >>> from torch import nn
    >>> from paper.networks import WithMirrorImage
    >>> WithMirrorImage(nn.Flatten()).eval()(torch.tensor([[[[0.0, 1.0]]]]))
    tensor([[0.5000, 0.5000]])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's outputs."""
        result: Tensor = self.network(x)
        return result if self.training else (result + self.network(x.flip(-1))) / 2.0


class MeanOverImage(nn.Module):
    """The mean over rows and columns, (n, c, h, w) to (n, c).

    Written as a sum, whose gradient is not copied to every pixel where channels are last in memory; that of ``mean``
    and of ``nn.AdaptiveAvgPool2d(1)`` is.

    >>> import torch
    >>> from paper.networks import MeanOverImage
    >>> MeanOverImage()(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]))
    tensor([[1.5000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of every channel."""
        return x.sum((2, 3)) / x[0, 0].numel()


class AddedConv(nn.Conv2d):
    """A 3 x 3 convolution plus its input, which has zeros for the channels that it lacks: the paper's convres.

    The sum is one convolution, whose filters are the weights plus the identity: no second pass over the images.

    >>> import torch
    >>> from paper.networks import AddedConv
    >>> layer = AddedConv(1, 2)
    >>> image = torch.rand(1, 1, 4, 4)
    >>> convolved = torch.nn.functional.conv2d(image, layer.weight, layer.bias, padding=1)
    >>> (layer(image) - convolved)[0, 0].allclose(image[0, 0], atol=1e-6)
    True
    """

    identity: Tensor

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__(n_inputs, n_outputs, 3, padding=1)
        self.register_buffer("identity", nn.init.dirac_(torch.empty_like(self.weight)), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input plus its convolution."""
        return conv2d(input, self.weight + self.identity, self.bias, padding=self.padding)


class Residual(nn.Module):
    """Two normalised and rectified 3 x 3 convolutions, plus their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        convolutions = (_begun_as_identity(width, width) for _ in range(2))
        self.path = nn.Sequential(*(layer for convolution in convolutions for layer in _normalised(convolution)))

    def forward(self, x: Tensor) -> Tensor:
        """Return x + path(x)."""
        return x + self.path(x)  # type: ignore[no-any-return]


def feed_forward(n_inputs: int, n_classes: int, *, width: int, depth: int, dropout: float = 0.0) -> nn.Sequential:
    """Return ``depth`` batch-normalised layers of ``width`` nodes, and an affine layer to the classes.

    >>> from paper.networks import feed_forward
    >>> [type(layer).__name__ for layer in feed_forward(4, 3, width=8, depth=1, dropout=0.5)]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Dropout', 'Linear']
    """

    def layers() -> Iterator[nn.Module]:
        wide = n_inputs
        for _ in range(depth):
            yield from (nn.Linear(wide, width), nn.BatchNorm1d(width), nn.ReLU())
            if dropout > 0.0:
                yield nn.Dropout(dropout)
            wide = width
        yield nn.Linear(wide, n_classes)

    return nn.Sequential(*layers())
