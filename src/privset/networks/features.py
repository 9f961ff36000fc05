"""Random feature maps: what an untrained network, known by its seed alone, says about an image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts
from privset.networks.classifiers import ConvNet
from privset.networks.fused import FusedBlock, fuse


class RandomFeatures(nn.Module):
    """Images ``[n, c, h, w]`` -> unit vectors ``[n, d]``: pooled activations of every block of a random ConvNet.

    Each block's activations are averaged over a grid of ``resolution`` x ``resolution`` cells and scaled to
    unit length, so that every block has the same say; the whole is scaled to unit length again. Images may first
    be rotated, scaled and shifted, always in the same way: the same view of private and of synthetic images. It can
    be differentiated once.

    Args:
        facts: What is public about the images.
        seed: Everything random about the map.
        width: Channels of each block.
        depth: Number of blocks.
        resolution: Cells of the grid along each side.
        warp: Strength of the fixed view; 0 looks at images as they are, 1 turns by up to 15 degrees, scales by up
            to a fifth and shifts by up to 6 % of the side.
    """

    view: Tensor

    def __init__(
        self, facts: PublicFacts, *, seed: int, width: int = 128, depth: int = 3, resolution: int = 4, warp: float = 0.0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            blocks = ConvNet(facts.shape, 1, width=width, depth=depth).features
            draws = torch.rand(1, 5)
        self.blocks = fuse(blocks).requires_grad_(False)
        self.resolution = resolution
        grid = F.affine_grid(views(draws, warp), [1, *facts.shape], align_corners=False)
        self.register_buffer("view", grid if warp else torch.empty(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> unit vectors ``[n, d]``."""
        if self.view.numel():
            # A grid of its own for each image, also under vmap, which would else have one thread look at all of them.
            views = self.view + torch.zeros_like(images[:, 0, :, :, None])
            images = F.grid_sample(images, views, padding_mode="border", align_corners=False)
        found = []
        for block in self.blocks:
            if isinstance(block, FusedBlock):
                images = block(images)
                found.append(F.normalize(_cells(images, self.resolution).flatten(1), dim=1))
        return torch.cat(found, dim=1) / math.sqrt(len(found))


def _cells(maps: Tensor, resolution: int) -> Tensor:
    """Maps ``[n, c, h, w]`` averaged over a grid of cells; along an axis that is shorter, a pixel is a cell."""
    height, width = maps.shape[-2:]
    rows, columns = min(height, resolution), min(width, resolution)
    if (rows, columns) == (height, width):
        return maps
    if height % rows or width % columns:
        return F.adaptive_avg_pool2d(maps, (rows, columns))
    if maps.is_cuda:  # the same, and many times faster on a graphics card, backwards above all
        return maps.unflatten(3, (columns, -1)).unflatten(2, (rows, -1)).mean((3, 5))
    return F.avg_pool2d(maps, (height // rows, width // columns))


class WaveLift(nn.Module):
    """Centred features ``[n, d]`` -> unit vectors ``[n, 2 * waves + d]``: random waves of their direction, and itself.

    The mean of a direction says where a class lies; the means of many waves of it (random Fourier features of a
    Gaussian kernel) say how it is spread as well. Both halves have the same length for every image.

    Args:
        features: The dimension d.
        waves: Number of waves, each a cosine and a sine.
        bandwidth: Distance at which the kernel has fallen to 0.61 of its height; directions differ by up to 2.
        seed: Of the waves.
    """

    frequencies: Tensor

    def __init__(self, features: int, *, waves: int, bandwidth: float, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed ^ 0xFFFFFFFF)  # not the stream that a network comes from
        frequencies = torch.randn(features, waves, generator=generator) / bandwidth
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, centred: Tensor) -> Tensor:
        """Centred features ``[n, d]`` -> unit vectors."""
        direction = F.normalize(centred, dim=1)
        return torch.cat([waves_of(direction, self.frequencies), direction], dim=1) / math.sqrt(2)


def waves_of(vectors: Tensor, frequencies: Tensor) -> Tensor:
    """Vectors ``[n, d]``, frequencies ``[d, waves]`` -> unit vectors ``[n, 2 * waves]``: random Fourier features."""
    phase = vectors @ frequencies
    return torch.cat([phase.cos(), phase.sin()], dim=1) / math.sqrt(phase.shape[1])


def random_views(count: int, generator: torch.Generator) -> Tensor:
    """Small random rotations, scalings and shifts ``[count, 2, 3]``, for `look`."""
    return views(torch.rand(count, 5, generator=generator))


def look(images: Tensor, through: Tensor) -> Tensor:
    """Images ``[n, c, h, w]``, each through its own of n views, or all through one; on the edge, pixels go on."""
    return _sample(images, F.affine_grid(through, [len(through), *images.shape[1:]], align_corners=False))


def views(draws: Tensor, strength: float = 1.0) -> Tensor:
    """Uniform draws ``[n, 5]`` -> affine maps ``[n, 2, 3]``, see `RandomFeatures`."""
    turn, stretch, shift = (2 * draws - 1).split([1, 2, 2], dim=1)
    angle, scale = strength * turn * math.pi / 12, torch.exp(strength * stretch * 0.2)
    rows = [torch.cat([angle.cos(), -angle.sin()], dim=1), torch.cat([angle.sin(), angle.cos()], dim=1)]
    return torch.cat([torch.stack(rows, dim=1) * scale[:, :, None], (strength * shift * 0.12)[:, :, None]], dim=2)


def _sample(images: Tensor, grids: Tensor) -> Tensor:
    grids = grids.expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grids, padding_mode="border", align_corners=False)
