"""Random feature maps: what an untrained network, known by its seed alone, says about an image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts
from privset.networks.classifiers import ConvNet


class RandomFeatures(nn.Module):
    """Images ``[n, c, h, w]`` -> unit vectors ``[n, d]``: pooled activations of every block of a random ConvNet.

    Each block's activations are averaged over a grid of ``resolution`` x ``resolution`` cells and scaled to
    unit length, so that every block has the same say; the whole is scaled to unit length again. Images may first
    be rotated, scaled and shifted, always in the same way: the same view of private and of synthetic images.

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
            turn, stretch, shift = (2 * torch.rand(count) - 1 for count in (1, 2, 2))
        self.blocks = blocks.requires_grad_(False)
        self.resolution = resolution
        angle, scale = warp * turn * math.pi / 12, torch.exp(warp * stretch * 0.2)
        rotation = torch.stack([torch.cat([angle.cos(), -angle.sin()]), torch.cat([angle.sin(), angle.cos()])])
        affine = torch.cat([rotation * scale[:, None], (warp * shift * 0.12)[:, None]], dim=1)
        grid = F.affine_grid(affine[None], [1, *facts.shape], align_corners=False)
        self.register_buffer("view", grid if warp else torch.empty(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]`` -> unit vectors ``[n, d]``."""
        if self.view.numel():
            views = self.view.expand(len(images), -1, -1, -1)
            images = F.grid_sample(images, views, padding_mode="border", align_corners=False)
        found = []
        for layer in self.blocks:
            images = layer(images)
            if isinstance(layer, nn.AvgPool2d):
                cells = F.adaptive_avg_pool2d(images, self.resolution) if images.shape[-1] > self.resolution else images
                found.append(F.normalize(cells.flatten(1), dim=1))
        return torch.cat(found, dim=1) / math.sqrt(len(found))
