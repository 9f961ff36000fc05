"""From 8-bit pixels to what networks see, and back, with public constants."""

from __future__ import annotations

import torch
from torch import Tensor

from privset.data.facts import PublicFacts


def _constants(facts: PublicFacts, like: Tensor) -> tuple[Tensor, Tensor]:
    mean = torch.tensor(facts.mean, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    std = torch.tensor(facts.std, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    return mean, std


def normalise(images: Tensor, facts: PublicFacts, dtype: torch.dtype = torch.float32) -> Tensor:
    """8-bit ``[..., c, h, w]`` -> floats with the data set's public mean and std taken out."""
    pixels = images.to(dtype) / 255
    mean, std = _constants(facts, pixels)
    return (pixels - mean) / std


def denormalise(images: Tensor, facts: PublicFacts) -> Tensor:
    """Normalised floats ``[..., c, h, w]`` -> 8-bit pixels, rounded and cut to the range 0..255."""
    mean, std = _constants(facts, images)
    return ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def pixel_range(facts: PublicFacts, like: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised values ``[c, 1, 1]`` of the darkest and the brightest pixel."""
    mean, std = _constants(facts, like)
    return -mean / std, (1 - mean) / std
