"""The published 'crop_scale_rotate' augmentation, for a whole batch at once on the device it is on.

Each image is, independently, cropped or scaled or rotated, with a third of the probability each:

* crop: padded by 4 pixels of the batch's channel mean, then cut at an offset uniform in {0..7} on each axis;
* scale: height and width to ``int(U(0.8, 1.2) * size)`` by nearest neighbour, centred on zeros or cut;
* rotate: about the centre by a whole angle in [-45, 44] degrees, filled with the batch's channel mean.

Two things differ from the published loop. It rotates with scipy's cubic splines, this with bilinear
interpolation, which runs on any device. And its 4 pixels belong to images of 28: others are padded in
proportion.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows it by
from torch import Tensor

SCALE = 0.2
MAX_ANGLE = 45
CROP, RESCALE, ROTATE = 0, 1, 2


def crop_padding(size: int) -> int:
    """How far a crop may move an image of ``size`` pixels.

    >>> crop_padding(28), crop_padding(8), crop_padding(64)
    (4, 1, 9)
    """
    return max(1, round(4 * size / 28))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """What happens to each of n images; ``choice`` says which of the three fields below it counts.

    Attributes:
        choice: ``[n]`` of 0 (crop), 1 (scale), 2 (rotate).
        offset: ``[n, 2]`` rows and columns of the padded image that are cut off before it.
        size: ``[n, 2]`` height and width to scale to.
        angle: ``[n]`` whole degrees, anticlockwise as the image is seen.
    """

    choice: Tensor
    offset: Tensor
    size: Tensor
    angle: Tensor

    @classmethod
    def random(cls, count: int, size: tuple[int, int], generator: torch.Generator, *, rotate: bool = True) -> Draw:
        """The published distribution for ``count`` images of ``size``, on the generator's device.

        Without ``rotate`` an image is cropped or scaled, with half of the probability each.
        """

        def integers(low: int, high: int) -> Tensor:
            return torch.randint(low, high, (count,), generator=generator, device=generator.device)

        choice = integers(0, 3 if rotate else 2)
        offset = torch.stack([integers(0, 2 * crop_padding(side)) for side in size], dim=1)
        # In float64 so that the same stretch rounds down to the same size as it does in Python.
        stretch = torch.rand(count, 2, generator=generator, device=generator.device, dtype=torch.float64) * (
            2 * SCALE
        ) + (1 - SCALE)
        sides = torch.stack([stretch[:, axis] * side for axis, side in enumerate(size)], dim=1)
        return cls(choice=choice, offset=offset, size=sides.long(), angle=integers(-MAX_ANGLE, MAX_ANGLE))

    @classmethod
    def stack(cls, draws: list[Draw]) -> Draw:
        """The draws of several batches, for images with a leading dimension; each field ``[e, n, ...]``."""
        fields = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: torch.stack([getattr(draw, name) for draw in draws]) for name in fields})


def augment(images: Tensor, draw: Draw) -> Tensor:
    """Images ``[n, c, h, w]``, or ``[e, n, c, h, w]`` of e batches -> the same shape, changed as drawn.

    All three changes are made to every image and one is kept: images are small, and picking them out would
    make the device wait for the host.
    """
    mean = images.mean(dim=(-4, -2, -1), keepdim=True)
    flat = images.flatten(0, -4)
    fill = mean.expand(*images.shape[:-2], 1, 1).flatten(0, -4)
    choice = draw.choice.flatten()[:, None, None, None]
    moved = _regrid(flat, fill, draw)
    turned = _rotate(flat, fill, draw.angle.flatten())
    return torch.where(choice == ROTATE, turned, moved).view_as(images)


def _regrid(images: Tensor, fill: Tensor, draw: Draw) -> Tensor:
    """Crops and scales ``[n, c, h, w]``: each pixel is one pixel of the image, or the filling."""
    choice, offset, target = draw.choice.flatten(), draw.offset.flatten(0, -2), draw.size.flatten(0, -2)
    cropped = (choice == CROP)[:, None]
    canvas = target.amax(dim=1).clamp(min=max(images.shape[-2:]))
    sources, insides = [], []
    for axis, side in enumerate(images.shape[-2:]):
        place = torch.arange(side, device=images.device)
        shifted = place + offset[:, axis, None] - crop_padding(side)
        # The published code centres the scaled image on a square canvas and cuts the centre out of that;
        # both halves round down, which matters for odd differences.
        length = target[:, axis, None]
        pasted = place + ((canvas - side) // 2)[:, None] - (canvas[:, None] - length) // 2
        source = torch.where(cropped, shifted, pasted * side // length)
        inside = torch.where(cropped, (shifted >= 0) & (shifted < side), (pasted >= 0) & (pasted < length))
        sources.append(source.clamp(0, side - 1))
        insides.append(inside)
    rows, columns = sources
    which = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[:, None, None]
    taken = images[which, channel, rows[:, None, :, None], columns[:, None, None, :]]
    inside = insides[0][:, None, :, None] & insides[1][:, None, None, :]
    return torch.where(inside, taken, fill * cropped[:, :, None, None])


def _rotate(images: Tensor, fill: Tensor, degrees: Tensor) -> Tensor:
    """Images ``[n, c, h, w]`` turned anticlockwise about their centre by ``[n]`` degrees, bilinearly."""
    height, width = images.shape[-2:]
    angle = degrees.to(images.dtype)[:, None, None] * (math.pi / 180)
    down = torch.arange(height, device=images.device, dtype=images.dtype)[:, None] - (height - 1) / 2
    right = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    # Where each pixel comes from, in pixels from the centre, then in the units of grid_sample.
    from_right = right * angle.cos() - down * angle.sin()
    from_down = right * angle.sin() + down * angle.cos()
    grid = torch.stack([from_right * (2 / width), from_down * (2 / height)], dim=-1)
    # Zeros outside, so the filling has to be zero while the image is turned.
    return F.grid_sample(images - fill, grid, padding_mode="zeros", align_corners=False) + fill
