"""The generator of DP-Sinkhorn: a code and a label, grown to an image by transposed convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts, pixel_range
from privset.networks.generators import ConditionalGenerator
from privset.networks.growing import grown

_EMBEDDING = 8
"""Numbers that a label becomes."""


def draw_uniform_codes(labels: Tensor, *, classes: int, length: int, generator: torch.Generator) -> Tensor:
    """Labels ``[n]`` -> codes ``[n, length + classes]``: uniform numbers from [0, 1), and the label as a one-hot row.

    >>> draw_uniform_codes(torch.tensor([2]), classes=3, length=4, generator=torch.Generator())[0, 4:]
    tensor([0., 0., 1.])
    """
    numbers = torch.rand(len(labels), length, generator=generator)
    return torch.cat([numbers, F.one_hot(labels, classes).to(numbers.dtype)], dim=1)


class TransposedGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [-1, 1] ``[n, c, h, w]``.

    The label is embedded; a transposed convolution makes maps of a quarter of the image's height and width of code and
    label, two more double their size and halve their number, and a 3x3 convolution makes the image. Where a side is no
    multiple of 4 it is rounded up on the way, and what is too much is cut off in the end. Images of a batch know each
    other through batch norm, except after ``eval()``.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Maps of the first layer.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 256) -> None:
        super().__init__(facts, length)
        channels, self._height, self._breadth = facts.shape
        quarter = (self._height + 3) // 4, (self._breadth + 3) // 4
        maps = width, max(1, width // 2), max(1, width // 4)
        self._classes = len(facts.classes)
        # As for classifiers: of all generators only that of the CPU is moved, and put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.embedding = nn.Parameter(torch.randn(self._classes, _EMBEDDING))
            self.layers = nn.Sequential(
                nn.ConvTranspose2d(length + _EMBEDDING, maps[0], quarter, bias=False),
                *_finished(maps[0]),
                nn.ConvTranspose2d(maps[0], maps[1], 4, stride=2, padding=1, bias=False),
                *_finished(maps[1]),
                nn.ConvTranspose2d(maps[1], maps[2], 4, stride=2, padding=1, bias=False),
                *_finished(maps[2]),
                nn.Conv2d(maps[2], channels, 3, padding=1),
                nn.Tanh(),
            )

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes: uniform numbers from [0, 1), and the label."""
        return draw_uniform_codes(labels, classes=self._classes, length=self.length, generator=random)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        values = self.embedded(codes)[:, :, None, None]
        for layer in self.layers:
            values = grown(layer, values)
        return self.cut(values)

    def centred(self, codes: Tensor) -> Tensor:
        """As it makes them."""
        return self(codes)

    def embedded(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]``, with what their labels become ``[n, values]``."""
        numbers, labels = codes[:, : -self._classes], codes[:, -self._classes :]
        return torch.cat([numbers, labels @ self.embedding], dim=1)

    def cut(self, images: Tensor) -> Tensor:
        """Without what is too much of them, images ``[n, c, h, w]``."""
        return images[:, :, : self._height, : self._breadth]

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), (pixels + 1) / 2)


def _finished(width: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(width), nn.LeakyReLU(0.2)
