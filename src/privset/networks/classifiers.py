"""The four shallow classifiers of the PSG paper: ConvNet, MLP, LeNet and AlexNet.

Every classifier of this package maps images ``[n, channels, height, width]`` to logits ``[n, classes]``,
keeps PyTorch's default initialisation, and couples no two images of a batch (instance norm, no dropout), so
that it works under `torch.func` and its per-example gradients mean something. ``features`` ends in a flat
vector; ``head`` is what turns it into logits.

Instance norm is written ``GroupNorm(C, C)``: `torch.nn.functional.instance_norm` in torch 2.13 gives
silently wrong gradients under ``grad(jvp(...))``.
"""

from __future__ import annotations

from torch import Tensor, nn

from privset.networks.geometry import Size, divided, extra_padding, halving, padded, plus

Shape = tuple[int, int, int]
"""(channels, height, width) of one image."""


class ConvNet(nn.Module):
    """``depth`` blocks of 3x3 convolution, instance norm, ReLU and 2x2 average pooling; a linear head.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
        width: Channels of every convolution.
        depth: Number of blocks.
    """

    def __init__(self, shape: Shape, classes: int, *, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        channels, size = shape[0], shape[1:]
        layers: list[nn.Module] = []
        for block in range(depth):
            padding = extra_padding(size) if block == 0 else (0, 0)
            size = padded(size, padding)
            pool = halving(size, least=1 if block == depth - 1 else 2)
            size = divided(size, pool)
            layers += [
                nn.Conv2d(channels, width, 3, padding=plus(padding, 1)),
                nn.GroupNorm(width, width),
                nn.ReLU(),
                nn.AvgPool2d(pool),
            ]
            channels = width
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels * size[0] * size[1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))


class MLP(nn.Module):
    """Two hidden layers of ``width`` ReLU units on the flattened pixels.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
        width: Units of each hidden layer.
    """

    def __init__(self, shape: Shape, classes: int, *, width: int = 128) -> None:
        super().__init__()
        pixels = shape[0] * shape[1] * shape[2]
        self.features = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling, without norms.

    Its 5x5 convolutions take no padding beyond what brings the image to a multiple of 8; where that would
    leave fewer than 8 pixels (from images under 24) they keep the size instead.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        first, size = self._padding(shape[1:], extra_padding(shape[1:]))
        size = divided(size, (2, 2))
        second, size = self._padding(size, (0, 0))
        size = divided(size, (2, 2))
        self.features = nn.Sequential(
            nn.Conv2d(shape[0], 6, 5, padding=first),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=second),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(16 * size[0] * size[1], 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    @staticmethod
    def _padding(size: Size, wanted: Size) -> tuple[Size, Size]:
        """The padding of a 5x5 convolution on maps of ``size``, and the size of what comes out."""
        out = plus(padded(size, wanted), -4)
        padding = (wanted[0] if out[0] >= 8 else 2, wanted[1] if out[1] >= 8 else 2)
        return padding, plus(padded(size, padding), -4)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))


class AlexNet(nn.Module):
    """Five convolutions (128, 192, 256, 192, 192) with ReLU, three max poolings and a linear head; no norms.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        extra = extra_padding(shape[1:])
        size = padded(shape[1:], extra)
        for _ in range(3):
            size = divided(size, (2, 2))
        self.features = nn.Sequential(
            nn.Conv2d(shape[0], 128, 5, padding=plus(extra, 2)),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(192, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 192, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(192, 192, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(192 * size[0] * size[1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))
