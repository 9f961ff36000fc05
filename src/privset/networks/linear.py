"""A generator for few records, of any method: what it has to learn is so little that it is heard above the noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from privset.facts import PublicFacts, pixel_range
from privset.networks.generators import ConditionalGenerator
from privset.networks.residual import draw_bits
from privset.networks.squashing import squashed


class LinearGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [0, 1] ``[n, c, h, w]``: one linear layer and a sigmoid.

    An image for each class, and a change of all of them for each coin that falls on 1. Every generated image of a class
    moves the same numbers, so noise averages out as fast as it can.

    Args:
        facts: What is public about the images.
        length: Coins of a code before its label.
        seed: Of the initial weights.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int) -> None:
        super().__init__(facts, length)
        # As for classifiers: of all generators only that of the CPU is moved, and put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.layer = nn.Linear(length + len(facts.classes), math.prod(facts.shape))

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes: fair coins, 0 or 1, and the label."""
        return draw_bits(labels, classes=len(self.facts.classes), length=self.length, generator=random)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        return squashed(self.layer(codes), self.least_slope).view(-1, *self.facts.shape)

    def centred(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels in [-1, 1] ``[n, c, h, w]``."""
        return 2 * self(codes) - 1

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), pixels)
