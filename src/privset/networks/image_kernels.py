"""The last layer of a generator, a convolution to few channels and tanh, in Triton, of maps that lie channels last.

The library takes such a convolution for one to many channels, most of which it throws away.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

PIXELS = 64
"""That a program looks at."""
FEW = 4
"""Most channels of an image."""
WIDEST = 128
"""Most maps that an image is made of."""


def fits(maps: Tensor, weight: Tensor) -> bool:
    """Whether the kernels can make an image of maps ``[n, c, h, w]`` by a weight ``[few, c, k, k]`` of odd sides."""
    few = len(weight) <= FEW and maps.shape[1] <= WIDEST and all(side % 2 for side in weight.shape[2:])
    return AVAILABLE and maps.is_cuda and maps.dtype in (torch.bfloat16, torch.float32) and few


def drawn(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]``, weight ``[few, c, k, k]`` of odd sides, bias -> tanh of their convolution, as large."""
    maps = maps.contiguous(memory_format=torch.channels_last)
    images = weight.new_empty(len(maps), len(weight), *maps.shape[2:])
    with torch.cuda.device_of(maps):
        _drawn_kernel[(_programs(maps),)](maps, _laid(weight), bias, images, **_form(maps, weight))
    return images


def slopes(slope: Tensor, images: Tensor, maps: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """From the slope by the images, that by the maps; and, before tanh, that of what each pixel of the maps is part of.

    The latter, ``[few, k k, n h w]``, times the maps is the slope by the weight; of its middle, the sum is that by the
    bias.
    """
    by_maps = torch.empty_like(maps, memory_format=torch.channels_last)
    form = _form(maps, weight)
    around = maps.new_empty(len(weight), weight[0, 0].numel(), form["count"])
    given = (slope.contiguous(), images, _laid(weight))
    with torch.cuda.device_of(maps):
        _slopes_kernel[(_programs(maps),)](*given, by_maps, around, **form)
    return by_maps, around


def _laid(weight: Tensor) -> Tensor:
    return weight.detach().permute(0, 2, 3, 1).contiguous()


def _programs(maps: Tensor) -> int:
    return triton.cdiv(maps.numel() // maps.shape[1], PIXELS)


def _form(maps: Tensor, weight: Tensor) -> dict[str, int]:
    channels, (height, width) = maps.shape[1], maps.shape[2:]
    sizes = {"count": len(maps) * height * width, "height": height, "width": width, "few": len(weight)}
    kernel = {"tall": weight.shape[2], "broad": weight.shape[3], "channels": channels}
    # Of fewer threads, each would have to put some of so many channels aside.
    warps = 8 if channels > 64 else 4
    return sizes | kernel | {"wide": triton.next_power_of_2(channels), "pixels": PIXELS, "num_warps": warps}


@jit
def _drawn_kernel(
    maps,
    weight,
    bias,
    images,
    count,
    height: tl.constexpr,
    width: tl.constexpr,
    few: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    channels: tl.constexpr,
    wide: tl.constexpr,
    pixels: tl.constexpr,
):
    pixel, channel = tl.program_id(0) * pixels + tl.arange(0, pixels), tl.arange(0, wide)
    row, column, image = pixel // width % height, pixel % width, pixel // (height * width)
    for of in tl.static_range(few):
        total = tl.zeros([pixels], dtype=tl.float32) + tl.load(bias + of)
        for tap in tl.static_range(tall * broad):
            down, right = tap // broad - tall // 2, tap % broad - broad // 2
            inside = (pixel < count) & (row + down >= 0) & (row + down < height)
            inside = inside & (column + right >= 0) & (column + right < width)
            there = (pixel + down * width + right)[:, None] * channels + channel[None, :]
            values = tl.load(maps + there, mask=inside[:, None] & (channel < channels)[None, :], other=0.0).to(
                tl.float32
            )
            by = tl.load(weight + (of * tall * broad + tap) * channels + channel, mask=channel < channels, other=0.0)
            total += tl.sum(values * by[None, :], axis=1)
        bent = 2 / (1 + tl.exp(-2 * total)) - 1
        tl.store(images + (image * few + of) * height * width + row * width + column, bent, mask=pixel < count)


@jit
def _slopes_kernel(
    slope,
    images,
    weight,
    by_maps,
    around,
    count,
    height: tl.constexpr,
    width: tl.constexpr,
    few: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    channels: tl.constexpr,
    wide: tl.constexpr,
    pixels: tl.constexpr,
):
    pixel, channel = tl.program_id(0) * pixels + tl.arange(0, pixels), tl.arange(0, wide)
    row, column, image = pixel // width % height, pixel % width, pixel // (height * width)
    found = tl.zeros([pixels, wide], dtype=tl.float32)
    for of in tl.static_range(few):
        for tap in tl.static_range(tall * broad):
            # A pixel of the image sees this one by the tap if this one lies so far from it.
            down, right = tap // broad - tall // 2, tap % broad - broad // 2
            inside = (pixel < count) & (row - down >= 0) & (row - down < height)
            inside = inside & (column - right >= 0) & (column - right < width)
            there = (image * few + of) * height * width + (row - down) * width + column - right
            bent = tl.load(images + there, mask=inside, other=0.0)
            part = tl.load(slope + there, mask=inside, other=0.0) * (1 - bent * bent)
            by = tl.load(weight + (of * tall * broad + tap) * channels + channel, mask=channel < channels, other=0.0)
            found += part[:, None] * by[None, :]
            tl.store(around + (of * tall * broad + tap) * count + pixel, part, mask=pixel < count)
    place = pixel[:, None] * channels + channel[None, :]
    tl.store(by_maps + place, found, mask=(pixel < count)[:, None] & (channel < channels)[None, :])
