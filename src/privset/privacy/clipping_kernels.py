"""What clipped gradients need on a graphics card: convolved images, gradients of each record, and their sums."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from privset.privacy.clipping import Shares

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with the builds of torch for graphics cards
    triton: Any = None

AVAILABLE = triton is not None
Pair = tuple[int, int]
TILE = 4096
"""Numbers that one program adds up together."""
BLOCK = 128
"""Most rows and columns of a gradient that one program holds."""
FEW = 32
"""Most numbers of a patch of which a convolution is done one by one; of more, matrix units are faster."""


def fits(values: Tensor) -> bool:
    """Whether the kernels can be used where this tensor is."""
    return AVAILABLE and values.is_cuda


@dataclasses.dataclass(frozen=True)
class Form:
    """How a convolution lies over its maps.

    Args:
        given: Shape of a map that comes in.
        kernel: Of its weight.
        stride: From place to place.
        padding: Zeros around a map.
    """

    given: Pair
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def taps(self) -> int:
        """Pixels of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def found(self) -> Pair:
        """Shape of a map that goes out."""
        high, wide = (
            (size + 2 * pad - of) // by + 1
            for size, pad, of, by in zip(self.given, self.padding, self.kernel, self.stride, strict=True)
        )
        return high, wide

    def constants(self) -> dict[str, int]:
        """By the names that the kernels know them by."""
        (height, width), (high, wide) = self.given, self.found
        return {
            "height": height,
            "width": width,
            "high": high,
            "wide": wide,
            "kernel_high": self.kernel[0],
            "kernel_wide": self.kernel[1],
            "down": self.stride[0],
            "right": self.stride[1],
            "above": self.padding[0],
            "before": self.padding[1],
        }


def convolves(given: Tensor, weight: Tensor) -> bool:
    """Whether `convolve` takes these, and is worth it: images of few channels in float32, on a card."""
    return fits(given) and given.dtype == torch.float32 and weight[0].numel() <= FEW


def convolve(given: Tensor, weight: Tensor, form: Form) -> Tensor:
    """Images ``[n, c, h, w]``, weight ``[out, c, kh, kw]`` -> maps in bfloat16, of sums in float32; has no slope."""
    found = given.new_empty(len(given), len(weight), *form.found, dtype=torch.bfloat16)
    outs, places = 32, 256
    grid = (len(given), triton.cdiv(form.found[0] * form.found[1], places), triton.cdiv(len(weight), outs))
    with torch.cuda.device_of(given):
        _convolve_kernel[grid](
            given.contiguous(),
            weight.contiguous(),
            found,
            len(weight),
            channels=given.shape[1],
            **form.constants(),
            outs=outs,
            places=places,
            num_warps=4,
        )
    return found


def multiplies(slope: Tensor) -> bool:
    """Whether `products` takes this slope: bfloat16, for which there are matrix units, on a card."""
    return fits(slope) and slope.dtype == torch.bfloat16


def products(slope: Tensor, given: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    """The gradient of each record by the weight of a convolution, in bfloat16, and its squared length.

    The length is that of the numbers written, not of those they were rounded from.

    Args:
        slope: Of the loss by what the convolution gave, ``[n, out, h', w']``.
        given: What came in, ``[n, c, h, w]``.
        form: Of the convolution.

    Returns:
        Rows ``[n, out, kh kw c]``, and squares ``[n]`` in float64.
    """
    count, outs, channels = len(slope), slope.shape[1], given.shape[1]
    columns = form.taps * channels
    block = next((size for size in (BLOCK, 64, 32, 16) if channels % size == 0), None)
    across = block or min(BLOCK, max(16, triton.next_power_of_2(columns)))
    along = min(BLOCK, max(16, triton.next_power_of_2(outs)))
    grid = (count, triton.cdiv(columns, across), triton.cdiv(outs, along))
    rows = slope.new_empty(count, outs, columns)
    squares = slope.new_empty(count, grid[1] * grid[2], dtype=torch.float64)
    with torch.cuda.device_of(slope):
        _products_kernel[grid](
            slope.contiguous(),
            given.contiguous(),
            rows,
            squares,
            outs=outs,
            channels=channels,
            **form.constants(),
            along=along,
            across=across,
            deep=64,
            together=block is not None,
            num_warps=4,
            num_stages=2 if block else 1,  # measured
        )
    return rows, squares.sum(1)


def add(rows: Tensor, shares: Shares, totals: Tensor, *, taps: int, channels: int) -> None:
    """Rows ``[n, d]``: add to ``totals [k, d]``, in float64, their sums with these shares.

    A row that is left out is not read, so what is not finite in it goes nowhere. Numbers lie in a row by taps of a
    kernel and then by channels, and in a total the other way round.
    """
    (count, columns), samples = rows.shape, len(shares.each)
    order, counts = shares.taken
    # Long rows keep a card busy by themselves; of short ones a program takes many, or it would wait for each in turn.
    width = 1024 if columns > 2**13 else 64
    with torch.cuda.device_of(rows):
        _add_kernel[(triton.cdiv(columns, width), samples)](
            rows.contiguous(),
            shares.each.to(torch.float64).contiguous(),
            order,
            counts,
            totals,
            count,
            columns,
            totals.stride(0),
            taps=taps,
            channels=channels,
            rows_together=TILE // width,
            width=width,
            num_warps=4,
        )


def _jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


@_jit
def _add_kernel(
    rows,
    shares,
    order,
    counts,
    totals,
    count,
    columns,
    stride,
    taps: tl.constexpr,
    channels: tl.constexpr,
    rows_together: tl.constexpr,
    width: tl.constexpr,
):
    sample = tl.program_id(1)
    column = tl.program_id(0) * width + tl.arange(0, width)
    inside = column < columns
    found = tl.zeros([rows_together, width], dtype=tl.float64)
    taken = tl.load(counts + sample)
    start = 0
    while start < taken:
        at = start + tl.arange(0, rows_together)
        row = tl.load(order + sample * (count + 1) + at, mask=at < taken, other=0)
        share = tl.load(shares + sample * count + row, mask=at < taken, other=0.0)
        place = rows + row.to(tl.int64)[:, None] * columns + column[None, :]
        values = tl.load(place, mask=(at < taken)[:, None] & inside[None, :], other=0.0)
        found += values.to(tl.float64) * share[:, None]
        start += rows_together
    line, tap, channel = column // (taps * channels), column // channels % taps, column % channels
    place = totals + sample.to(tl.int64) * stride + (line * channels + channel) * taps + tap
    tl.store(place, tl.load(place, mask=inside, other=0.0) + tl.sum(found, axis=0), mask=inside)


@_jit
def _convolve_kernel(
    given,
    weight,
    found,
    count,
    channels: tl.constexpr,
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
    outs: tl.constexpr,
    places: tl.constexpr,
):
    record = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * places + tl.arange(0, places)
    out = tl.program_id(2) * outs + tl.arange(0, outs)
    values = tl.zeros([outs, places], dtype=tl.float32)
    for line in tl.static_range(channels * kernel_high * kernel_wide):
        row = place // wide * down + line % (kernel_high * kernel_wide) // kernel_wide - above
        column = place % wide * right + line % kernel_wide - before
        inside = (place < high * wide) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        pixel = (record * channels + line // (kernel_high * kernel_wide)) * (height * width) + row * width + column
        shown = tl.load(given + pixel, mask=inside, other=0.0)
        factor = tl.load(weight + out * (channels * kernel_high * kernel_wide) + line, mask=out < count, other=0.0)
        values += factor[:, None] * shown[None, :]
    at = (record * count + out[:, None]) * (high * wide) + place[None, :]
    tl.store(found + at, values, mask=(out < count)[:, None] & (place < high * wide)[None, :])


@_jit
def _products_kernel(
    slope,
    given,
    rows,
    squares,
    outs: tl.constexpr,
    channels: tl.constexpr,
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
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
    together: tl.constexpr,
):
    """A tile of one record's gradient; ``together``, if all its columns belong to the same pixel of the kernel."""
    columns: tl.constexpr = kernel_high * kernel_wide * channels
    record = tl.program_id(0).to(tl.int64)
    out = tl.program_id(2) * along + tl.arange(0, along)
    column = tl.program_id(1) * across + tl.arange(0, across)
    channel = column % channels
    found = tl.zeros([along, across], dtype=tl.float32)
    for start in range(0, high * wide, deep):
        place = start + tl.arange(0, deep)
        row, left = place // wide * down - above, place % wide * right - before
        if together:  # the same for all columns: a quarter of the work
            tap = tl.program_id(1) * across // channels
            row, left = row + tap // kernel_wide, left + tap % kernel_wide
            seen = ((place < high * wide) & (row >= 0) & (row < height) & (left >= 0) & (left < width))[None, :]
            pixel = channel[:, None] * (height * width) + (row * width + left)[None, :]
        else:
            tap = column // channels
            rows_seen = row[None, :] + (tap // kernel_wide)[:, None]
            left_seen = left[None, :] + (tap % kernel_wide)[:, None]
            seen = (place < high * wide)[None, :] & (column < columns)[:, None]
            seen = seen & (rows_seen >= 0) & (rows_seen < height) & (left_seen >= 0) & (left_seen < width)
            pixel = channel[:, None] * (height * width) + rows_seen * width + left_seen
        shown = tl.load(given + record * (channels * height * width) + pixel, mask=seen, other=0.0)
        at = (record * outs + out[:, None]) * (high * wide) + place[None, :]
        by = tl.load(slope + at, mask=(out < outs)[:, None] & (place < high * wide)[None, :], other=0.0)
        found = tl.dot(by, tl.trans(shown.to(by.dtype)), found)
    held = found.to(tl.bfloat16)
    inside = (out < outs)[:, None] & (column < columns)[None, :]
    tl.store(rows + (record * outs + out[:, None]) * columns + column[None, :], held, mask=inside)
    exact = held.to(tl.float32)
    lines = tl.sum(exact * exact, axis=1)  # in float32 along a line, in float64 from line to line
    tile = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    place = record * tl.num_programs(1) * tl.num_programs(2) + tile
    tl.store(squares + place, tl.sum(lines.to(tl.float64), axis=0))
