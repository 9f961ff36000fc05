"""What clipped gradients need on a graphics card: patches of maps, and weighted sums of long rows, in float64."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with the builds of torch for graphics cards
    triton: Any = None

AVAILABLE = triton is not None
Pair = tuple[int, int]
TILE = 4096
"""Numbers that one program looks at together."""


def fits(rows: Tensor) -> bool:
    """Whether the kernel can be used where this tensor is."""
    return AVAILABLE and rows.is_cuda


def add(rows: Tensor, weights: Tensor, totals: Tensor) -> None:
    """Rows ``[n, d]``, weights ``[k, n]``: add ``weights @ rows`` to ``totals [k, d]``, in float64.

    A row of weight 0 is not read, so what is not finite in it goes nowhere.
    """
    (count, columns), samples = rows.shape, len(weights)
    # Long rows keep a card busy by themselves; of short ones a program takes many, or it would wait for each in turn.
    width = 512 if columns > 2**13 else 64
    with torch.cuda.device_of(rows):
        _add_kernel[(triton.cdiv(columns, width), samples)](
            rows.contiguous(),
            weights.to(torch.float64).contiguous(),
            totals,
            count,
            columns,
            totals.stride(0),
            most=triton.cdiv(count, 64) * 64,
            height=TILE // width,
            width=width,
            num_warps=4,
        )


def patches(given: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Maps ``[n, c, h, w]`` -> the patches ``[n, c kh kw, places]`` that a convolution takes its products with."""
    count, channels, height, width = given.shape
    high, wide = (
        (size + 2 * pad - of) // by + 1
        for size, pad, of, by in zip((height, width), padding, kernel, stride, strict=True)
    )
    found = given.new_empty(count, channels * kernel[0] * kernel[1], high * wide)
    with torch.cuda.device_of(given):
        _patches_kernel[(count, triton.cdiv(found[0].numel(), TILE))](
            given.contiguous(),
            found,
            numbers=found.shape[1] * found.shape[2],
            pixels=channels * height * width,
            height=height,
            width=width,
            high=high,
            wide=wide,
            kernel_high=kernel[0],
            kernel_wide=kernel[1],
            down=stride[0],
            right=stride[1],
            above=padding[0],
            before=padding[1],
            tile=TILE,
            num_warps=8,
        )
    return found


def _jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


@_jit
def _add_kernel(
    rows, weights, totals, count, columns, stride, most: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    sample = tl.program_id(1)
    column = tl.program_id(0) * width + tl.arange(0, width)
    inside = column < columns
    found = tl.zeros([height, width], dtype=tl.float64)
    for start in range(0, most, height):
        row = start + tl.arange(0, height)
        weight = tl.load(weights + sample * count + row, mask=row < count, other=0.0)
        # Most samples have none of these rows: they are not only left out, nothing is computed for them.
        if tl.max((weight != 0).to(tl.int32), axis=0) > 0:
            place = rows + row.to(tl.int64)[:, None] * columns + column[None, :]
            values = tl.load(place, mask=(weight != 0)[:, None] & inside[None, :], other=0.0)
            found += values.to(tl.float64) * weight[:, None]
    place = totals + sample.to(tl.int64) * stride + column
    tl.store(place, tl.load(place, mask=inside, other=0.0) + tl.sum(found, axis=0), mask=inside)


@_jit
def _patches_kernel(
    given,
    found,
    numbers: tl.constexpr,
    pixels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_high: tl.constexpr,
    kernel_wide: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    tile: tl.constexpr,
):
    record, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * tile + tl.arange(0, tile)
    line, place = at // (high * wide), at % (high * wide)
    channel, offset = line // (kernel_high * kernel_wide), line % (kernel_high * kernel_wide)
    row = place // wide * down + offset // kernel_wide - above
    column = place % wide * right + offset % kernel_wide - before
    inside = (at < numbers) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    pixel = channel * (height * width) + row * width + column
    values = tl.load(given + record * pixels + pixel, mask=inside, other=0.0)
    tl.store(found + record * numbers + at, values, mask=at < numbers)
