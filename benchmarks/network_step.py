"""Training steps of the CIFAR-10 networks, batch 100.

The paper's convres in one convolution, and in two operations; the modern network on whole images, and in windows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from common import interleaved, write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paper.augment import WindowsFirst
from paper.networks import AddedConv, paper_resnet, small_resnet

BATCH = 100


class ConvThenAdd(AddedConv):
    """The same layer as it is usually written: the convolution, then the sum."""

    def forward(self, input: Tensor) -> Tensor:
        result = nn.Conv2d.forward(self, input)
        if self.in_channels == self.out_channels:
            return result + input
        result[:, : self.in_channels] += input
        return result


def training_step(network: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.manual_seed(0)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    images = images.to(memory_format=torch.channels_last)
    usual = paper_resnet(10, images=images)
    for layer in usual.modules():
        if isinstance(layer, AddedConv):
            layer.__class__ = ConvThenAdd
    networks = {
        "paper": paper_resnet(10, images=images),
        "paper, convolution then sum": usual,
        "modern": small_resnet(10, images),
    }
    steps = {name: training_step(network, images, labels) for name, network in networks.items()}
    windows = WindowsFirst(nn.Identity(), epochs=1).for_epoch(0)(images)
    steps["modern, windows"] = training_step(small_resnet(10, images), windows, labels)
    times = interleaved(steps, seconds=options.seconds)

    def ratio(of: str, to: str) -> float:
        return round(times[of] / times[to], 3)

    result = {
        "milliseconds": times,
        "convolution then sum, to one convolution": ratio("paper, convolution then sum", "paper"),
        "windows, to whole images": ratio("modern, windows", "modern"),
    }
    print(result)
    write(options.out, "network_step", f"python benchmarks/network_step.py --seconds {options.seconds:g}", result)


if __name__ == "__main__":
    main()
