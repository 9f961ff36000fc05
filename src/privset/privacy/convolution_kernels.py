"""What each record gives the weight of a convolution, on a graphics card: one product of matrices for each record.

The slope ``[out, places]`` is multiplied with the patches ``[places, kh kw in]`` that the convolution looked at. To
write out the patches, nine times as large as what came in, and to read them again takes longer than the product. So a
program picks its own from what came in, and takes the squares of what it found while it still has it at hand.
"""
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
LARGEST, DEEP = 128, 32
"""Rows and columns of the product, and places, that one program takes at a time; all are powers of two."""
REGISTERS = 128
"""Of each thread; with more, a single program of eight warps would have a multiprocessor for itself, and wait alone."""

Pair = tuple[int, int]


def fits(slope: Tensor) -> bool:
    """Whether the kernel can be used where this tensor is, and for numbers of this type."""
    return AVAILABLE and slope.is_cuda and slope.dtype == torch.float32


def rows(slope: Tensor, given: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """Slopes ``[n, out, h', w']`` and what came in ``[n, in, h, w]`` -> gradients by the weight, and their squares.

    Products are taken of ten bits of each number, and summed in float32, as a graphics card convolves.

    Returns:
        The gradients ``[n, out, kh kw in]``, channels last, and ``[n, parts]``, float64: the squared lengths of the
        parts of each record's gradient, of the numbers that the first have.
    """
    count, outs, places = len(slope), slope.shape[1], slope.shape[2] * slope.shape[3]
    columns = kernel[0] * kernel[1] * given.shape[1]
    high, wide = (min(LARGEST, max(16, triton.next_power_of_2(size))) for size in (outs, columns))
    parts = triton.cdiv(outs, high) * triton.cdiv(columns, wide)
    warps = 8 if high * wide > 2**13 else 4
    found = slope.new_empty(count, outs, columns)
    squares = torch.empty(count, parts, dtype=torch.float64, device=slope.device)
    with torch.cuda.device_of(slope):
        _rows_kernel[(parts, count)](
            slope.contiguous(),
            given,
            found,
            squares,
            *given.stride(),
            outs=outs,
            channels=given.shape[1],
            height=given.shape[2],
            width=given.shape[3],
            out_width=slope.shape[3],
            places=places,
            kernel_height=kernel[0],
            kernel_width=kernel[1],
            down=stride[0],
            right=stride[1],
            above=padding[0],
            before=padding[1],
            high=high,
            wide=wide,
            deep=DEEP,
            num_warps=warps,
            maxnreg=REGISTERS if warps == 8 else None,
        )
    return found, squares


def _jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


@_jit
def _rows_kernel(
    slope,
    given,
    found,
    squares,
    record_stride,
    channel_stride,
    row_stride,
    column_stride,
    outs: tl.constexpr,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_width: tl.constexpr,
    places: tl.constexpr,
    kernel_height: tl.constexpr,
    kernel_width: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    deep: tl.constexpr,
):
    part, record = tl.program_id(0), tl.program_id(1).to(tl.int64)
    columns: tl.constexpr = kernel_height * kernel_width * channels
    across: tl.constexpr = (columns + wide - 1) // wide
    out = part // across * high + tl.arange(0, high)
    column = part % across * wide + tl.arange(0, wide)
    tap, channel = column // channels, column % channels
    total = tl.zeros([high, wide], dtype=tl.float32)
    for start in range(0, places, deep):
        place = start + tl.arange(0, deep)
        taken = (out < outs)[:, None] & (place < places)[None, :]
        values = slope + record * (outs * places) + out[:, None] * places + place[None, :]
        slopes = tl.load(values, mask=taken, other=0.0)
        y = (place // out_width * down - above)[:, None] + (tap // kernel_width)[None, :]
        x = (place % out_width * right - before)[:, None] + (tap % kernel_width)[None, :]
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        inside = inside & (place < places)[:, None] & (column < columns)[None, :]
        where = channel[None, :] * channel_stride + y * row_stride + x * column_stride
        patches = tl.load(given + record * record_stride + where, mask=inside, other=0.0)
        total = tl.dot(slopes, patches, total)
    within = (out < outs)[:, None] & (column < columns)[None, :]
    total = tl.where(within, total, 0.0)
    tl.store(found + record * (outs * columns) + out[:, None] * columns + column[None, :], total, mask=within)
    # A line at a time in float32, and lines in float64, like `squares` of what is held.
    square = tl.sum(tl.sum(total * total, axis=1).to(tl.float64), axis=0)
    tl.store(squares + record * tl.num_programs(0) + part, square)
