"""The generator of GS-WGAN in its DCGAN form, which PSG takes as a prior: transposed convolutions and pixel norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts, pixel_range
from privset.networks.generators import ConditionalGenerator
from privset.networks.geometry import Size
from privset.networks.growing import grown

_LEAST = 4
"""Rows and columns that maps have at least."""


class DeconvolutionGenerator(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> normalised images ``[n, c, h, w]``.

    A linear layer makes ``width`` small maps; transposed convolutions of 5x5, 5x5 and 8x8 make half as many, a quarter
    as many, and the image of them. A ReLU and a pixel norm stand before each. For 28x28 these are the published layers,
    of 1,114,305 weights for one channel; for other sizes strides and crops are chosen to fit, axis by axis.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Maps of the first layer.
        bounded: Whether a sigmoid ends it, so that images lie in the range of pixels; if not, values are unbounded.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 256, bounded: bool = False) -> None:
        super().__init__(facts, length)
        high, wide = (_layers(side) for side in (facts.height, facts.width))
        (start, *steps), self._bounded = zip(high, wide, strict=True), bounded
        self._sizes: list[Size] = [*steps[1::2], (facts.height, facts.width)]
        maps = width, max(1, width // 2), max(1, width // 4)
        # As for classifiers: of all generators only that of the CPU is moved, and put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.first = nn.Sequential(
                nn.Linear(length + len(facts.classes), maps[0] * start[0] * start[1]),
                nn.Unflatten(1, (maps[0], *start)),
            )
            self.layers = nn.ModuleList(
                [
                    nn.ConvTranspose2d(maps[0], maps[1], 5, stride=steps[0]),
                    nn.ConvTranspose2d(maps[1], maps[2], 5, stride=steps[2]),
                    nn.ConvTranspose2d(maps[2], facts.channels, 8, stride=2),
                ]
            )

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> normalised images ``[n, c, h, w]``."""
        values = self.first(codes)
        for layer, size in zip(self.layers, self._sizes, strict=True):
            values = _cropped(grown(layer, _pixel_norm(F.relu(values))), size)
        return torch.lerp(*pixel_range(self.facts, values), values.sigmoid()) if self._bounded else values

    def normalised(self, codes: Tensor) -> Tensor:
        """The same as calling it."""
        return self(codes)


def _layers(side: int) -> tuple[int, int, int, int, int]:
    """Of an image with this side: that of the first maps, then stride and side of each layer before the last.

    The last layer, of stride 2, makes 2 n + 6 of n; strides are 1 as long as small maps are large enough for it.

    >>> _layers(28), _layers(32), _layers(64)
    ((4, 1, 7, 1, 11), (4, 1, 5, 2, 13), (4, 3, 13, 2, 29))
    """
    last = max(_LEAST, _needed(side, 2, 8))
    stride = 1 if last <= 2 * _LEAST + 4 else 2
    middle = max(_LEAST, _needed(last, stride, 5))
    first = min(3, max(1, -(-(middle - 5) // (_LEAST - 1))))
    return max(_LEAST, _needed(middle, first, 5)), first, middle, stride, last


def _needed(side: int, stride: int, kernel: int) -> int:
    """The least side of maps that a transposed convolution makes at least ``side`` of."""
    return -(-(side - kernel) // stride) + 1


def _cropped(maps: Tensor, size: Size) -> Tensor:
    """The middle of maps ``[n, c, h, w]``."""
    top, left = ((have - want) // 2 for have, want in zip(maps.shape[2:], size, strict=True))
    return maps[:, :, top : top + size[0], left : left + size[1]]


def _pixel_norm(maps: Tensor) -> Tensor:
    """Every pixel of maps ``[n, c, h, w]`` with a mean square of 1 over its channels."""
    return maps * torch.rsqrt(maps.square().mean(dim=1, keepdim=True) + 1e-8)
