"""The distance of two gradients row by row, and where it grows, by one kernel on a graphics card."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

MOST = 2048
"""Numbers of a row that a program looks at together."""


def fits(weight: Tensor) -> bool:
    """Whether the kernel can be used where this gradient is."""
    return AVAILABLE and weight.is_cuda and weight.dtype == torch.float32


def row_cosine(first: Tensor, second: Tensor, stabiliser: float) -> tuple[Tensor, Tensor]:
    """Gradients ``[rows, ...]`` -> one minus the cosine of each two rows ``[rows]``, and its slope by ``first``.

    The stabiliser is added to the product of two norms. The slope of the norm of a row of zeros counts as zero.
    """
    rows, columns = len(first), first[0].numel()
    distances, slopes = first.new_empty(rows), torch.empty_like(first, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(first):
        _row_kernel[(rows,)](
            first.contiguous(),
            second.contiguous(),
            distances,
            slopes,
            columns,
            stabiliser=stabiliser,
            most=triton.cdiv(columns, MOST) * MOST if columns > MOST else triton.next_power_of_2(columns),
            block=min(MOST, triton.next_power_of_2(columns)),
            num_warps=4,
        )
    return distances, slopes


@jit
def _row_kernel(
    first,
    second,
    distances,
    slopes,
    columns,
    stabiliser: tl.constexpr,
    most: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    shared = tl.zeros([block], dtype=tl.float32)
    square, other = tl.zeros([block], dtype=tl.float32), tl.zeros([block], dtype=tl.float32)
    for start in range(0, most, block):
        column = start + tl.arange(0, block)
        a = tl.load(first + row * columns + column, mask=column < columns, other=0.0)
        b = tl.load(second + row * columns + column, mask=column < columns, other=0.0)
        shared += a * b
        square += a * a
        other += b * b
    product, length, across = tl.sum(shared, axis=0), tl.sqrt(tl.sum(square, axis=0)), tl.sqrt(tl.sum(other, axis=0))
    under = length * across + stabiliser
    tl.store(distances + row, 1 - product / under)
    along = tl.where(length > 0, product * across / (under * under * tl.where(length > 0, length, 1.0)), 0.0)
    for start in range(0, most, block):
        column = start + tl.arange(0, block)
        a = tl.load(first + row * columns + column, mask=column < columns, other=0.0)
        b = tl.load(second + row * columns + column, mask=column < columns, other=0.0)
        tl.store(slopes + row * columns + column, along * a - b / under, mask=column < columns)
