"""Instance norm, ReLU and average pooling on a processor, of maps whose channels lie last in memory.

A processor convolves such maps faster, and pools them several times as fast, but torch's own norm of each channel walks
through them slowly. Here it takes a few passes with all channels side by side, and keeps what the gradient needs. As
in `privset.networks.fused`, every map of every image is treated by itself, so no two images of a batch meet.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

from privset.networks.fused import folded
from privset.networks.geometry import Size


def norm_relu_pool_last(
    maps: Tensor, weight: Tensor, bias: Tensor, *, pool: Size = (1, 1), eps: float = 1e-5
) -> Tensor:
    """As `privset.networks.fused.norm_relu_pool`: maps ``[n, c, h, w]`` -> pooled maps, channels last in memory."""
    scales, shifts = weight.expand(len(maps), -1), bias.expand(len(maps), -1)
    return _NormReluPoolLast.apply(maps, scales, shifts, eps, pool)[0]


class _NormReluPoolLast(torch.autograd.Function):
    """``maps [n, c, h, w]``, ``weight`` and ``bias`` ``[n, c]`` -> pooled maps, and what their gradient needs."""

    @staticmethod
    def forward(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size) -> tuple[Tensor, ...]:
        pixels = _lines(maps)
        # Means as products: over all but the last axis, torch's own reductions are slower.
        mean = pixels.new_full((len(pixels), 1, pixels.shape[1]), 1 / pixels.shape[1])
        unit = pixels - torch.bmm(mean, pixels)
        width = (torch.bmm(mean, unit.square()) + eps).rsqrt()
        unit *= width
        active = torch.addcmul(bias[:, None], unit, weight[:, None]).relu_()
        pooled = F.avg_pool2d(_maps(active, maps.shape), pool)
        return pooled, unit, active, width

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        maps, weight, _, _, ctx.pool = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, *output[1:])
        ctx.size = maps.shape

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Any, ...]:  # type: ignore[override]
        weight, unit, active, width = ctx.saved_tensors
        shape, count = ctx.size, unit.shape[1]
        let = _maps(active, shape)
        slope = slope.contiguous(memory_format=torch.channels_last)
        spread = torch.ops.aten.avg_pool2d_backward(slope, let, ctx.pool, ctx.pool, (0, 0), False, True, None)
        through = _lines(torch.ops.aten.threshold_backward(spread, let, 0))
        ones = unit.new_ones(len(unit), 1, count)
        total, along = torch.bmm(ones, through), torch.bmm(ones, through * unit)
        found = (through - total / count).addcmul_(unit, along, value=-1 / count)
        found *= width * weight[:, None]
        return _maps(found, shape), along[:, 0], total[:, 0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        found = _NormReluPoolLast.apply(*folded(inputs[:3], in_dims, info.batch_size), *inputs[3:])
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in found), (0, 0, 0, 0)


def _lines(maps: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` -> ``[n, h w, c]``, as they lie in memory."""
    return maps.permute(0, 2, 3, 1).contiguous().flatten(1, 2)


def _maps(lines: Tensor, shape: torch.Size) -> Tensor:
    """The way back, to ``shape``."""
    return lines.unflatten(1, shape[2:]).permute(0, 3, 1, 2)
