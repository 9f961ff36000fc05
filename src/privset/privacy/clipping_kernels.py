"""Weighted sums of long rows on a graphics card, in float64: how clipped gradients are added up there."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton
from privset.privacy.clipping import Shares

TILE = 4096
"""Numbers that one program adds up together."""


def fits(values: Tensor) -> bool:
    """Whether the kernels can be used where this tensor is."""
    return AVAILABLE and values.is_cuda


def add(rows: Tensor, shares: Shares, totals: Tensor, *, taps: int, channels: int) -> None:
    """Rows ``[n, d]``: add to ``totals [k, d]``, in float64, their sums with these shares.

    A row that is left out is not read, so what is not finite in it goes nowhere. Numbers lie in a row by taps of a
    kernel and then by channels, and in a total the other way round.
    """
    (count, columns), samples = rows.shape, len(shares.each)
    # A kernel writes where it is told to: what does not fit would go into the sums of other samples, or beyond.
    if totals.shape != (samples, columns) or totals.stride(1) != 1 or columns % (taps * channels):
        raise ValueError(f"rows of {columns} numbers do not fit into sums of shape {list(totals.shape)}")
    if shares.each.shape[1] != count or totals.dtype != torch.float64:
        raise ValueError(f"{count} rows have {shares.each.shape[1]} shares, and sums are {totals.dtype}")
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


@jit
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
