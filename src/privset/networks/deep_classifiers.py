"""The two deep classifiers of the PSG paper: VGG11 and ResNet18, with instance norms for batch norms."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the name everyone knows it by
from torch import Tensor, nn

from privset.networks.classifiers import Shape
from privset.networks.geometry import Size, divided, extra_padding, halving, padded, plus


class VGG11(nn.Module):
    """Eight 3x3 convolutions in five pooled groups (64, 128, 256 256, 512 512, 512 512); a linear head.

    Images under 32 pixels leave out the poolings in the middle that would shrink a map to one pixel; images
    over 32 leave more than one pixel to the head.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels = shape[0]
        padding = extra_padding(shape[1:])
        size = padded(shape[1:], padding)
        groups = ((64,), (128,), (256, 256), (512, 512), (512, 512))
        layers: list[nn.Module] = []
        for group, widths in enumerate(groups):
            for width in widths:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=plus(padding, 1)),
                    nn.GroupNorm(width, width),
                    nn.ReLU(),
                ]
                channels, padding = width, (0, 0)
            pool = halving(size, least=1 if group == len(groups) - 1 else 2)
            size = divided(size, pool)
            layers.append(nn.MaxPool2d(pool))
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels * size[0] * size[1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))


class ResidualBlock(nn.Module):
    """Two normed 3x3 convolutions beside a shortcut: ``[n, before, h, w]`` -> ``[n, after, h/s, w/s]``.

    Args:
        before: Channels that come in.
        after: Channels that go out.
        stride: Of the first convolution, on each axis.
    """

    def __init__(self, before: int, after: int, stride: Size) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(after, after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(after, after),
        )
        self.shortcut: nn.Module = nn.Identity()
        # By channels, not by stride: on small images a stage may widen without shrinking.
        if before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.GroupNorm(after, after)
            )

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps in, feature maps out."""
        return F.relu(self.path(maps) + self.shortcut(maps))


class ResNet18(nn.Module):
    """Four stages of two residual blocks (64, 128, 256, 512), the mean over pixels, and a linear head.

    The first convolution keeps the size. A stage after the first halves it, unless fewer than two pixels
    would be left for the norms. The published 4x4 pooling is the mean over all pixels at 28 and 32.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        size = shape[1:]
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            nn.GroupNorm(64, 64),
            nn.ReLU(),
        ]
        channels = 64
        for stage, width in enumerate((64, 128, 256, 512)):
            # A padded stride rounds up, so 3 pixels may still become 2.
            stride = (1, 1) if stage == 0 else halving(plus(size, 1), least=2)
            size = divided(plus(size, (stride[0] - 1, stride[1] - 1)), stride)
            layers += [ResidualBlock(channels, width, stride), ResidualBlock(width, width, (1, 1))]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images).mean(dim=(-2, -1)))
