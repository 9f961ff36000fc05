"""The sigmoid that makes pixels, through which a gradient can find its way back from black and white."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def squashed(given: Tensor, least_slope: float = 0.0) -> Tensor:
    """The sigmoid of each number, whose slope counts as ``least_slope`` where it is less.

    Far from 0 a sigmoid is 0 or 1 to the last digit and its slope is nothing, so what is out there stays. A little of a
    slope does not change which way is down, and next to slopes of other pixels it does not count.

    >>> x = torch.tensor([0.0, -200.0], requires_grad=True)
    >>> torch.autograd.grad(squashed(x, 1e-3).sum(), x)[0]
    tensor([0.2500, 0.0010])
    """
    return _Squashed.apply(given, least_slope) if least_slope else torch.sigmoid(given)


class _Squashed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, least_slope: float) -> Tensor:
        found = torch.sigmoid(given)
        ctx.save_for_backward(found)
        ctx.least_slope = least_slope
        return found

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (found,) = ctx.saved_tensors
        return slopes[0] * (found * (1 - found)).clamp_min(ctx.least_slope), None
