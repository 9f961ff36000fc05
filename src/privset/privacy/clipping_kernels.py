"""Weighted sums of long rows on a graphics card: every row is read once, and added up in float64."""
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
