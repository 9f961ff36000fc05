"""The potentials of optimal transport by one kernel on a graphics card, where torch starts hundreds of small ones."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import functools

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

MOST = 16_384
"""Costs that one program can hold."""


def fits(costs: Tensor) -> bool:
    """Whether the kernel can be used for these costs, where they are."""
    return AVAILABLE and costs.is_cuda and small(costs)


def small(costs: Tensor) -> bool:
    """Whether one program can hold them: those of 128 images and as many others, or fewer."""
    return costs.dtype == torch.float32 and _held(costs)[2] <= MOST


def potentials(
    costs: Tensor, logs: Tensor, other_logs: Tensor, temperatures: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """As `privset.methods.transport.potentials`; where all weights of a side are 0, not finite."""
    (rows, columns), (high, wide, held) = costs.shape, _held(costs)
    potential, other = costs.new_empty(rows), costs.new_empty(columns)
    with torch.cuda.device_of(costs):
        _potentials_kernel[(1,)](
            costs.contiguous(),
            logs.contiguous(),
            other_logs.contiguous(),
            potential,
            other,
            _on_device(temperatures, costs.device),
            rows,
            columns,
            steps=len(temperatures),
            high=high,
            wide=wide,
            num_warps=8 if held > 2048 else 4,
        )
    return potential, other


@functools.cache
def _on_device(temperatures: tuple[float, ...], device: torch.device) -> Tensor:
    """Made once, and never freed: what is sent while a step is being recorded could not be played back."""
    return torch.tensor(temperatures, device=device)


def _held(costs: Tensor) -> tuple[int, int, int]:
    high, wide = (max(16, triton.next_power_of_2(side)) for side in costs.shape)
    return high, wide, high * wide


@jit
def _potentials_kernel(
    costs,
    logs,
    other_logs,
    potentials,
    others,
    temperatures,
    rows,
    columns,
    steps: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
):
    """Weights of what lies outside are 0, so that it counts for nothing; what is found for it is not kept."""
    row, column = tl.arange(0, high), tl.arange(0, wide)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    cost = tl.load(costs + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    log = tl.load(logs + row, mask=row < rows, other=float("-inf"))
    other_log = tl.load(other_logs + column, mask=column < columns, other=float("-inf"))
    first = tl.load(temperatures)
    potential, other = _softmin(cost, other_log[None, :], first, 1), _softmin(cost, log[:, None], first, 0)
    for step in range(steps):
        warmth = tl.load(temperatures + step)
        new = _softmin(cost, (other_log + other / warmth)[None, :], warmth, 1)
        other = (other + _softmin(cost, (log + potential / warmth)[:, None], warmth, 0)) / 2
        potential = (potential + new) / 2
    tl.store(potentials + row, potential, mask=row < rows)
    tl.store(others + column, other, mask=column < columns)


@jit
def _softmin(cost, logs, warmth, axis: tl.constexpr):
    values = logs - cost / warmth
    largest = tl.max(values, axis=axis)
    inner = values - (largest[:, None] if axis == 1 else largest[None, :])
    return -warmth * (largest + tl.log(tl.sum(tl.exp(inner), axis=axis)))
