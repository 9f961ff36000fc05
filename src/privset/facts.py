"""What everyone may know about a data set, all that a method is told; and pixels scaled by these public constants."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import Tensor

from privset.errors import DataError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """The public description of a labelled image set; nothing in it is computed from a pixel.

    The number of training records is treated as public, as the whole DP-SGD literature does; so are the
    class names. The certificate of every release says so.

    Attributes:
        name: The catalogue name, or the file name of a user's own data.
        channels: 1 or 3.
        height: Pixels from top to bottom.
        width: Pixels from left to right.
        classes: Class names; label ``k`` means ``classes[k]``.
        size: Number of training records.
        mean: Per-channel constant subtracted from pixels in [0, 1].
        std: Per-channel constant that pixels are divided by afterwards.
    """

    name: str
    channels: int
    height: int
    width: int
    classes: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise DataError(f"{self.name}: images must have 1 or 3 channels, not {self.channels}")
        if self.height < 8 or self.width < 8:
            raise DataError(
                f"{self.name}: images are {self.height}x{self.width}; the smallest size is 8x8 (use --size)"
            )
        if len(self.classes) < 2:
            raise DataError(f"{self.name}: found {len(self.classes)} class(es); at least two are needed")
        if self.size < 1:
            raise DataError(f"{self.name}: no training records")
        if len(self.mean) != self.channels or len(self.std) != self.channels:
            raise DataError(f"{self.name}: give one normalisation mean and std for each channel")
        if any(value <= 0 for value in self.std):
            raise DataError(f"{self.name}: the normalisation std must be positive, not {self.std}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return (self.channels, self.height, self.width)


def _constants(facts: PublicFacts, like: Tensor) -> tuple[Tensor, Tensor]:
    return _sent(facts.mean, like.dtype, like.device), _sent(facts.std, like.dtype, like.device)


@functools.cache  # to send them again would wait for all that a card has to do; what it records must find them there
def _sent(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)


def normalise(images: Tensor, facts: PublicFacts, dtype: torch.dtype = torch.float32) -> Tensor:
    """8-bit ``[..., c, h, w]`` -> floats with the data set's public mean and std taken out."""
    pixels = images.to(dtype) / 255
    mean, std = _constants(facts, pixels)
    return (pixels - mean) / std


def scale(images: Tensor, facts: PublicFacts) -> Tensor:
    """Normalised floats ``[..., c, h, w]`` -> floats on the scale where pixels lie in [0, 1]; nothing is cut."""
    mean, std = _constants(facts, images)
    return images * std + mean


def denormalise(images: Tensor, facts: PublicFacts) -> Tensor:
    """Normalised floats ``[..., c, h, w]`` -> 8-bit pixels, rounded and cut to the range 0..255."""
    return (scale(images, facts) * 255).round().clamp(0, 255).to(torch.uint8)


def pixel_range(facts: PublicFacts, like: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised values ``[c, 1, 1]`` of the darkest and the brightest pixel."""
    mean, std = _constants(facts, like)
    return -mean / std, (1 - mean) / std
