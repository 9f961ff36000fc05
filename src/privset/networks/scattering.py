"""Scattering: what waves of two sizes and eight directions see in an image, and what they see in that again.

A fixed transform (Bruna, Mallat 2013): nothing in it is learned and nothing random, so it costs no privacy, and a
linear layer on it is a good classifier of small pictures. Each number is an average, over about 4 x 4 pixels, of

* the image itself (1 map),
* the strength of its waves of one size and direction (16 maps), or
* the strength of the coarse waves in the map of a fine one (64 maps),

so it moves little when the image is shifted or bent a little. Waves are Morlet wavelets, applied by the discrete
Fourier transform of the image, reflected at its edges.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.networks.geometry import Size

STRIDE = 4
"""Pixels from one average to the next, on each axis: two halvings."""

ANGLES = 8
"""Directions of waves, over half a turn."""

MAPS = 1 + 2 * ANGLES + ANGLES**2
"""Averages for each channel and place: 81."""

GROUP = 3
"""Maps that are normalised together."""


class Scattering(nn.Module):
    """Images ``[n, c, h, w]`` -> averages ``[n, 81 * c, ceil(h / 4), ceil(w / 4)]``, of each channel by itself.

    Args:
        size: Height and width of the images, at least 8 each.
    """

    fine: Tensor
    coarse: Tensor
    rows: Tensor
    columns: Tensor
    half_rows: Tensor
    half_columns: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        # A margin of one step, and to a multiple of it: reflected pixels, that averages at the edge look at.
        self._margins = tuple((STRIDE, STRIDE + -side % STRIDE) for side in size)
        height, width = (side + sum(margin) for side, margin in zip(size, self._margins, strict=True))
        for name, value in _filters(size, (height, width)).items():
            self.register_buffer(name, value.to(torch.get_default_device(), copy=True), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> averages ``[n, 81 * c, ceil(h / 4), ceil(w / 4)]``."""
        (top, bottom), (left, right) = self._margins
        padded = F.pad(images, (left, right, top, bottom), mode="reflect")
        waves = torch.fft.fft2(padded)[:, :, None]
        fine = torch.fft.ifft2(waves * self.fine).abs()
        # Coarse waves need half the pixels.
        coarse = torch.fft.ifft2(_halved(waves * self.coarse)).abs()
        again = torch.fft.ifft2(_halved(torch.fft.fft2(fine)[:, :, :, None] * self.coarse)).abs()
        whole = torch.cat([padded[:, :, None], fine], dim=2)
        half = torch.cat([coarse, again.flatten(2, 3)], dim=2)
        found = [self.rows @ whole @ self.columns.T, self.half_rows @ half @ self.half_columns.T]
        return torch.cat(found, dim=2).flatten(1, 2)


class ScatteringNet(nn.Module):
    """A linear layer on normalised scattering averages: only that layer is learned.

    Every three maps of an image are brought to mean 0 and variance 1, and all its averages together to length 1. Both
    look at one image alone, and at no statistic of others.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        maps, (rows, columns) = MAPS * shape[0], (-(-side // STRIDE) for side in shape[1:])
        norm = nn.GroupNorm(maps // GROUP, maps, affine=False)
        self.features = nn.Sequential(Scattering(shape[1:]), norm, nn.Flatten(), _UnitLength())
        self.head = nn.Linear(maps * rows * columns, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.head(self.features(images))


class _UnitLength(nn.Module):
    """Vectors ``[n, d]`` -> the same of length 1; zero stays zero."""

    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=1)


@functools.lru_cache(maxsize=8)
def _filters(size: Size, padded: Size) -> dict[str, Tensor]:
    """All that the transform multiplies with, by name, in float32; made once for each size, since it takes long."""
    (rows, columns), (height, width) = size, padded
    # Also where only shapes are asked for: on the device "meta" so many small steps take seconds.
    with torch.device("cpu"):
        found = {name: morlets(padded, scale=scale) for scale, name in enumerate(("fine", "coarse"))} | {
            "rows": _averages(height, rows, 1),
            "columns": _averages(width, columns, 1),
            "half_rows": _averages(height, rows, 2),
            "half_columns": _averages(width, columns, 2),
        }
    return {name: value.to(torch.float32) for name, value in found.items()}


def morlets(size: Size, *, scale: int) -> Tensor:
    """Spectra ``[8, h, w]`` of the waves of one scale, 0 or 1, in eight directions, on a grid of this size.

    In space each is a Gaussian of deviation 0.8 * 2**scale, twice as long across the wave, times a complex wave of
    3/4 pi / 2**scale radians a pixel, less as much of the Gaussian alone as makes its sum 0: flat ground has no waves.
    """
    sigma, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    found = []
    for number in range(ANGLES):
        angle = math.pi * number / ANGLES
        wave = _gaussian(size, sigma=sigma, angle=angle, frequency=frequency)
        envelope = _gaussian(size, sigma=sigma, angle=angle, frequency=0.0)
        found.append(wave - wave[0, 0] / envelope[0, 0] * envelope)
    return torch.stack(found)


def _gaussian(size: Size, *, sigma: float, angle: float, frequency: float) -> Tensor:
    """Spectrum ``[h, w]``, in float64, of a Gaussian of sum 1, twice as long across, times a wave in that direction."""
    total = torch.zeros(size, dtype=torch.float64)
    down, right = (2 * math.pi * torch.fft.fftfreq(side, dtype=torch.float64) for side in size)
    # Pixels cannot tell frequencies that are whole turns apart: these fold onto each other.
    for turns in range(-2, 3):
        for others in range(-2, 3):
            y, x = down[:, None] + 2 * math.pi * turns, right + 2 * math.pi * others
            along = x * math.cos(angle) + y * math.sin(angle) - frequency
            across = y * math.cos(angle) - x * math.sin(angle)
            total += torch.exp(-0.5 * sigma**2 * (along.square() + 4 * across.square()))
    return total


def _averages(padded: int, side: int, skip: int) -> Tensor:
    """``[ceil(side / 4), padded / skip]``: from every ``skip``-th pixel of a padded line to its averages."""
    distance = torch.arange(padded, dtype=torch.float64)
    # A Gaussian of deviation 1.6, on a line that begins again at its end.
    bell = sum(torch.exp(-(distance + turn * padded).square() / (2 * 1.6**2)) for turn in range(-3, 4))
    assert isinstance(bell, Tensor)
    places = STRIDE * (1 + torch.arange(-(-side // STRIDE)))
    rows = bell[(torch.arange(0, padded, skip) - places[:, None]) % padded]
    return rows / rows.sum(dim=1, keepdim=True)


def _halved(spectrum: Tensor) -> Tensor:
    """The spectrum ``[..., h, w]`` of an image -> that of every second pixel of every second row."""
    height, width = (side // 2 for side in spectrum.shape[-2:])
    # Added by hand: a mean over these axes takes ten times as long on a processor.
    rows = spectrum[..., :height, :] + spectrum[..., height:, :]
    return (rows[..., :width] + rows[..., width:]) / 4
