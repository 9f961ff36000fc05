"""The generator of GS-WGAN: a residual network that doubles maps of 4 x 4 pixels until an image fits in."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from privset.facts import PublicFacts, pixel_range
from privset.networks.generators import ConditionalGenerator
from privset.networks.squashing import squashed

_START = 4
"""Height and width of the first maps."""


def draw_bits(labels: Tensor, *, classes: int, length: int, generator: torch.Generator) -> Tensor:
    """Labels ``[n]`` -> codes ``[n, length + classes]``: fair coins, 0 or 1, and the label as a one-hot row.

    >>> draw_bits(torch.tensor([1]), classes=2, length=3, generator=torch.Generator())[0, 3:]
    tensor([0., 1.])
    """
    coins = torch.randint(2, (len(labels), length), generator=generator)
    return torch.cat([coins, F.one_hot(labels, classes)], dim=1).to(torch.float32)


def pixel_norm(maps: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` with the mean square over the channels of each pixel brought to 1."""
    return maps * torch.rsqrt(maps.square().mean(1, keepdim=True) + 1e-10)


class ResidualGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [0, 1] ``[n, c, h, w]``.

    A linear layer, a ReLU and a pixel norm make maps of 4 x 4 pixels. Blocks double their size until the image fits in:
    a 3x3 convolution of what was normed by pixels, a pixel norm, a ReLU and another convolution, and a 1x1 convolution
    of what came in beside them. A last 3x3 convolution, without padding, makes an image, of which the first rows and
    columns are taken, as published. All layers have spectral norm. Images of a batch do not know each other.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Maps.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 256) -> None:
        super().__init__(facts, length)
        channels, self._height, self._breadth = facts.shape
        self._width, side = width, max(self._height, self._breadth)
        doublings = next(number for number in range(1, 32) if (_START << number) - 2 >= side)  # a border is lost
        # As for classifiers: of all generators only that of the CPU is moved, and put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.start = spectral_norm(nn.Linear(length + len(facts.classes), width * _START**2))
            self.blocks = nn.ModuleList(_Block(width) for _ in range(doublings))
            self.end = spectral_norm(nn.Conv2d(width, channels, 3))

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes: coins, and the label."""
        return draw_bits(labels, classes=len(self.facts.classes), length=self.length, generator=random)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        maps = pixel_norm(F.relu(self.start(codes).view(-1, self._width, _START, _START)))
        for block in self.blocks:
            maps = block(maps)
        return squashed(self.end(maps)[:, :, : self._height, : self._breadth], self.least_slope)

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), pixels)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = spectral_norm(nn.Conv2d(width, width, 3, padding=1))
        self.second = spectral_norm(nn.Conv2d(width, width, 3, padding=1))
        self.beside = spectral_norm(nn.Conv2d(width, width, 1))

    def forward(self, maps: Tensor) -> Tensor:
        larger = F.interpolate(maps, scale_factor=2)
        changed = self.second(F.relu(pixel_norm(self.first(pixel_norm(larger)))))
        return changed + self.beside(larger)
