"""MNIST, section 4 of the paper: its network, Table 1 with all digits and Table 2 without "1"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from gpsuq.datasets import load_images
from gpsuq.datasets.download import AbsentError
from gpsuq.datasets.images import Images
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from paper import images
from paper.image_tables import Published
from paper.networks import feed_forward, paper_cnn
from paper.record import Asked

EPOCHS = 6
_PAPER: dict[int, Published] = {
    1: {
        "plain": (0.79, None, None),
        "dropout": (0.80, 0.30, 2.05),
        "gps-0.5": (0.72, 0.12, 2.99),
        "gps-0.25": (0.69, 0.15, 2.27),
    },
    2: {"dropout": (68.90, 69.76), "gps-0.5": (97.27, 97.28)},
}


def mnist_study() -> images.Study:
    """Return the study of MNIST with the paper's network."""

    def network(data: Images, dropout: float) -> nn.Module:
        return paper_cnn(len(data.classes), dropout=dropout)

    return images.Study(
        "mnist",
        load_images("mnist", "train"),
        load_images("mnist", "test"),
        network,
        "head.0",
        Recipe(epochs=EPOCHS),
        left_out=1,
        outside=_letters,
        paper=_PAPER,
    )


def digits_study() -> images.Study:
    """Return the study of scikit-learn's digits with a small network, for a quick try."""

    def network(data: Images, dropout: float) -> nn.Module:
        return nn.Sequential(nn.Flatten(), feed_forward(64, len(data.classes), width=64, depth=2, dropout=dropout))

    train, test = (load_images("digits", split) for split in ("train", "test"))
    return images.Study("digits", train, test, network, "1.0", Recipe(), left_out=1, members=2)


def _letters() -> Images | None:
    """Return notMNIST's letters, or None where they are absent."""
    try:
        return load_images("notmnist", "test")
    except AbsentError:
        return None


def run(asked: Asked, table: int, methods: Sequence[str], epochs: int | None, *, data: str) -> list[Path]:
    """Train and judge the methods; ``data="digits"`` takes a small network and digits that need no download."""
    studies = {"mnist": mnist_study, "digits": digits_study}
    if data not in studies:
        raise GPSError(f"data must be one of {', '.join(studies)}, got {data!r}")
    return images.run(images.with_epochs(studies[data](), epochs), asked, table, methods)
