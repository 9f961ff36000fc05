"""Convolutions of images of few channels, such as the first of every network.

A graphics card convolves many channels at once; with one or three it is idle most of the time. Here the few products
of a pixel are added up one after the other, and what comes out has its channels last, as later convolutions like it.
Every image of a batch is treated by itself.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with the builds of torch for graphics cards
    triton: Any = None

AVAILABLE = triton is not None
MOST = 32
"""Products of a pixel that are still few."""

PLACES, CHANNELS = 64, 128
"""Pixels, and channels of each, that one program looks at."""

Pair = tuple[int, int]


def fits(images: Tensor, weight: Tensor) -> bool:
    """Whether this is a convolution for `convolve`."""
    known = images.is_cuda and images.dtype in (torch.float32, torch.float64)
    return AVAILABLE and known and weight.shape[1:].numel() <= MOST


def convolve(images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
    """Images ``[n, c, h, w]``, weight ``[out, c, kh, kw]`` -> maps ``[n, out, h', w']``, channels last in memory."""
    (count, channels, height, width), (outs, _, high, wide) = images.shape, weight.shape
    size = (height + 2 * padding[0] - high) // stride[0] + 1, (width + 2 * padding[1] - wide) // stride[1] + 1
    maps = images.new_empty(count, *size, outs)
    tile = min(CHANNELS, triton.next_power_of_2(outs))
    with torch.cuda.device_of(images):
        _convolve_kernel[(triton.cdiv(size[0] * size[1], PLACES), triton.cdiv(outs, tile), count)](
            images.contiguous(),
            weight.contiguous(),
            maps,
            outs=outs,
            channels=channels,
            height=height,
            width=width,
            out_width=size[1],
            places=size[0] * size[1],
            high=high,
            wide=wide,
            down=stride[0],
            right=stride[1],
            above=padding[0],
            before=padding[1],
            rows=PLACES,
            tile=tile,
            num_warps=8,
        )
    return maps.permute(0, 3, 1, 2)


def by_weight(slope: Tensor, images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
    """From the gradient by the maps, that by the weight."""
    padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0]))
    views = padded.unfold(2, weight.shape[2], stride[0]).unfold(3, weight.shape[3], stride[1])
    patches = views.permute(0, 2, 3, 1, 4, 5).reshape(len(images), -1, weight.shape[1:].numel())
    return torch.bmm(_lines(slope).transpose(1, 2), patches).sum(0).view(weight.shape)


def by_images(pairs: list[tuple[Tensor, Tensor]], size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Pairs of a gradient by maps and a weight -> the sum of the gradients by images of this size."""
    (first, weight), *others = pairs
    products = _lines(first).flatten(0, 1) @ weight.flatten(1)
    for slope, other in others:
        products.addmm_(_lines(slope).flatten(0, 1), other.flatten(1))
    columns = products.view(len(first), -1, products.shape[1]).transpose(1, 2)
    return F.fold(columns, size, (weight.shape[2], weight.shape[3]), padding=padding, stride=stride)


def _lines(maps: Tensor) -> Tensor:
    """``[n, out, h, w]`` -> ``[n, places, out]``."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


class Thin(torch.autograd.Function):
    """`convolve`, to be differentiated once: of images, weight, stride and padding."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
        """See `convolve`."""
        return convolve(images, weight, stride, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 - as torch calls it
        """Keep what came in."""
        *tensors, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """By images and weight, as far as anyone wants to know."""
        images, weight = ctx.saved_tensors
        how, (wants_images, wants_weight) = (ctx.stride, ctx.padding), ctx.needs_input_grad[:2]
        size = (images.shape[2], images.shape[3])
        return (
            by_images([(slope, weight)], size, *how) if wants_images else None,
            by_weight(slope, images, weight, *how) if wants_weight else None,
            None,
            None,
        )


def _jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


@_jit
def _convolve_kernel(
    images,
    weight,
    maps,
    outs: tl.constexpr,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_width: tl.constexpr,
    places: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    rows: tl.constexpr,
    tile: tl.constexpr,
):
    place, image = tl.program_id(0) * rows + tl.arange(0, rows), tl.program_id(2).to(tl.int64)
    out = tl.program_id(1) * tile + tl.arange(0, tile)
    top, left = place // out_width * down - above, place % out_width * right - before
    total = tl.zeros([rows, tile], dtype=maps.dtype.element_ty)
    for tap in tl.static_range(channels * high * wide):
        y, x = top + tap // wide % high, left + tap % wide
        inside = (place < places) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        pixels = images + (image * channels + tap // (high * wide)) * (height * width) + y * width + x
        values = tl.load(pixels, mask=inside, other=0.0)
        factors = tl.load(weight + out * (channels * high * wide) + tap, mask=out < outs, other=0.0)
        total += values[:, None] * factors[None, :]
    within = (place < places)[:, None] & (out < outs)[None, :]
    tl.store(maps + image * (places * outs) + place[:, None] * outs + out[None, :], total, mask=within)
