"""Generators: from a random code that ends in a label to an image of that class.

One that is to be published is also listed in `privset.networks.generator_forms`.
"""

from __future__ import annotations

import abc
import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts, pixel_range


def draw_codes(labels: Tensor, *, classes: int, length: int, generator: torch.Generator) -> Tensor:
    """Labels ``[n]`` -> codes ``[n, length + classes]``: standard normal numbers, and the label as a one-hot row.

    >>> draw_codes(torch.tensor([2]), classes=3, length=4, generator=torch.Generator())[0, 4:]
    tensor([0., 0., 1.])
    """
    numbers = torch.randn(len(labels), length, generator=generator)
    return torch.cat([numbers, F.one_hot(labels, classes).to(numbers.dtype)], dim=1)


def draw_centred_codes(labels: Tensor, *, classes: int, length: int, generator: torch.Generator) -> Tensor:
    """Labels ``[n]`` -> codes ``[n, length + classes]``: uniform numbers from [-1, 1), and the label as a one-hot row.

    >>> draw_centred_codes(torch.tensor([2]), classes=3, length=4, generator=torch.Generator())[0, 4:]
    tensor([0., 0., 1.])
    """
    numbers = 2 * torch.rand(len(labels), length, generator=generator) - 1
    return torch.cat([numbers, F.one_hot(labels, classes).to(numbers.dtype)], dim=1)


class ConditionalGenerator(nn.Module, abc.ABC):
    """What every generator has in common: codes can be drawn for it, and it makes images of them.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.

    Attributes:
        least_slope: Of the last sigmoid, if there is one, where a gradient is taken (`privset.networks.squashing`); not
            of all generators.
    """

    least_slope: float = 0.0

    def __init__(self, facts: PublicFacts, length: int) -> None:
        super().__init__()
        self.facts, self.length = facts, length

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes ``[n, ...]``, on the CPU, for labels ``[n]``: normal numbers and the label, unless overridden."""
        return draw_codes(labels, classes=len(self.facts.classes), length=self.length, generator=random)

    @abc.abstractmethod
    def normalised(self, codes: Tensor) -> Tensor:
        """Codes -> images ``[n, c, h, w]`` in the normalised space of the public facts."""


class UpsamplingGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [0, 1] ``[n, c, h, w]``: the generator of DP-MERF.

    Two linear layers with batch norm make 16 maps of a quarter of the image's height and width; two 5x5 convolutions,
    each after bilinear upsampling, make the image of them. Where a side is no multiple of 4, it is rounded up on the
    way and met exactly in the end. Images of a batch know each other through batch norm, except after ``eval()``.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Hidden units.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 200) -> None:
        super().__init__(facts, length)
        channels, height, breadth = facts.shape
        quarter, half = (((height + part - 1) // part, (breadth + part - 1) // part) for part in (4, 2))
        numbers = 16 * quarter[0] * quarter[1]
        # As for classifiers: of all generators only that of the CPU is moved, and put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Linear(length + len(facts.classes), width),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Linear(width, numbers),
                nn.BatchNorm1d(numbers),
                nn.Unflatten(1, (16, *quarter)),
                nn.Upsample(half, mode="bilinear", align_corners=True),
                nn.Conv2d(16, 8, 5, padding=2),
                nn.ReLU(),
                nn.Upsample((height, breadth), mode="bilinear", align_corners=True),
                nn.Conv2d(8, channels, 5, padding=2),
                nn.Sigmoid(),
            )
        # Nearly twice as fast on a processor, where the channels are few.
        self.layers.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        return self.layers(codes)

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), pixels)


class PerceptronGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [0, 1] ``[n, c, h, w]``: the generator of DP-CGAN.

    One hidden layer, and a sigmoid for each number of an image. Weights begin normal, of variance 2 over the inputs;
    biases are zero.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Hidden units.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 128) -> None:
        super().__init__(facts, length)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.hidden = nn.Linear(length + len(facts.classes), width)
            self.last = nn.Linear(width, math.prod(facts.shape))
            for layer in (self.hidden, self.last):
                nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes: uniform numbers from [-1, 1), and the label."""
        return draw_centred_codes(labels, classes=len(self.facts.classes), length=self.length, generator=random)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        return self.last(self.hidden(codes).relu()).sigmoid().view(-1, *self.facts.shape)

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), pixels)
