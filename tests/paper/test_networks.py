"""The networks that come with the library."""

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, unfold

from gpsuq import noisify
from gpsuq.classify.networks import Standardise
from paper.networks import AddedConv, Residual, WhitenedPatches, WithMirrorImage, paper_cnn, paper_resnet, small_resnet


def test_the_papers_resnet_is_as_its_appendix_lists_it():
    network = paper_resnet(10)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [16, 16, 16, 16, 32, 32, 64, 64]
    assert all(layer.stride == (1, 1) and layer.kernel_size == (3, 3) for layer in convolutions)
    assert [isinstance(layer, AddedConv) for layer in convolutions] == [False] + [True] * 7
    affine = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in affine] == [200] * 6 + [10]
    assert affine[0].in_features == 64
    assert network.trunk(torch.rand(2, 3, 32, 32)).shape == (2, 64)


def test_the_papers_resnet_begins_with_what_patches_are_made_of(rng):
    steps = torch.tensor(rng.normal(size=(600, 3, 9, 9)), dtype=torch.float32)
    x = 2.0 + steps.cumsum(2).cumsum(3)
    network = paper_resnet(10, images=x)
    standardise, first = network.trunk.network[0], network.trunk.network[1]
    filters = first.weight.detach()
    assert torch.equal(filters[8:], -filters[:8])
    patches = unfold(standardise(x), 3).transpose(1, 2).flatten(0, 1)
    values = patches @ filters[:8].flatten(1).T
    squares = values.T @ values / len(values)
    assert torch.allclose(squares, squares.diag().diag(), atol=1e-3 * float(squares.max()))
    assert squares.trace() > 0.9 * patches.square().sum(1).mean()  # they are the main ones


def test_the_mirror_image_is_judged_by_the_papers_resnet_too():
    torch.manual_seed(0)
    x = torch.rand(4, 3, 16, 16)
    network = paper_resnet(10, images=x).eval()
    assert torch.allclose(network(x), network(x.flip(-1)), atol=1e-5)


@pytest.mark.parametrize("n_outputs", [3, 5])
def test_an_added_convolution_adds_its_input(n_outputs):
    torch.manual_seed(0)
    layer, x = AddedConv(3, n_outputs), torch.randn(2, 3, 6, 6)
    expected = conv2d(x, layer.weight, layer.bias, padding=1)
    expected[:, :3] = expected[:, :3] + x
    assert torch.allclose(layer(x), expected, atol=1e-6)
    layer(x).sum().backward()
    assert layer.weight.grad is not None


def test_a_residual_block_adds_its_input():
    block = Residual(4).eval()
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("make", [paper_resnet, small_resnet])
def test_residual_networks_take_noise(make):
    torch.manual_seed(0)
    x = torch.rand(4, 3, 32, 32)
    network = noisify(make(7, images=x), "head.0", example=x)
    assert network(x, draws=5).shape == (4, 5, 7)
    network(x, draws=5).sum().backward()


def test_whitened_patches_are_uncorrelated(rng):
    steps = torch.tensor(rng.normal(size=(200, 3, 9, 9)), dtype=torch.float32)
    x = 0.5 + 0.5 * steps.cumsum(2).cumsum(3)  # neighbours are much alike
    layer = WhitenedPatches(x)
    positive, negative = layer(x).chunk(2, 1)
    values = (positive - negative).transpose(0, 1).flatten(1)
    assert torch.allclose(values.detach() @ values.detach().T / values.shape[1], torch.eye(12), atol=0.05)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


def test_constant_images_are_whitened_to_nothing():
    x = torch.full((5, 3, 4, 4), 0.3)
    assert torch.allclose(WhitenedPatches(x)(x), torch.zeros(5, 24, 3, 3), atol=1e-4)


def test_mirror_images_are_judged_alike_in_evaluation_only():
    torch.manual_seed(0)
    x = torch.rand(4, 3, 16, 16)
    network = WithMirrorImage(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()))
    assert torch.equal(network(x), network.network(x))
    network.eval()
    assert torch.allclose(network(x), network(x.flip(-1)))


def test_convolutions_of_the_small_network_begin_as_the_identity():
    network = small_resnet(10, torch.rand(4, 3, 16, 16), width=12)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            x = torch.randn(1, layer.in_channels, 5, 5)
            assert torch.equal(layer(x)[:, : layer.in_channels], x)


def test_dropout_comes_behind_every_hidden_layer():
    for network, count in ((paper_cnn(10, dropout=0.2), 6), (paper_resnet(10, dropout=0.2), 6)):
        assert sum(isinstance(layer, nn.Dropout) for layer in network.modules()) == count


def test_images_are_standardised_by_channel(rng):
    x = torch.tensor(rng.normal(size=(50, 3, 4, 4)), dtype=torch.float32)
    x = x * torch.tensor([1.0, 5.0, 0.0])[:, None, None] + torch.tensor([0.0, 2.0, 7.0])[:, None, None]
    y = Standardise(x)(x)
    assert torch.allclose(y.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(y.std((0, 2, 3), correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5)
