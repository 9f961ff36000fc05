"""Instance norm, ReLU and average pooling on a processor, of maps whose channels lie last in memory.

A processor convolves such maps faster, and pools them several times as fast, but torch's own norm of each channel walks
through them slowly. Here it takes a few passes with all channels side by side, over few enough images at a time that a
processor has them at hand from pass to pass. The gradient does it all again from the maps rather than keeping what lies
between. Maps may have fewer bits than the scales: all that lies between has as many as these. As in
`privset.networks.fused`, every map of every image is treated by itself, so no two images of a batch meet.
"""

from __future__ import annotations

from collections.abc import Iterator
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


BLOCK = 2**19
"""Numbers of the maps that are looked at together: few enough for a processor to keep them at hand between passes."""


class _NormReluPoolLast(torch.autograd.Function):
    """``maps [n, c, h, w]``, ``weight`` and ``bias`` ``[n, c]`` -> pooled maps, and the mean and width of each map."""

    @staticmethod
    def forward(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size) -> tuple[Tensor, ...]:
        found = []
        with torch.autocast("cpu", enabled=False):
            for some, scale, shift in _blocks(maps, weight, bias):
                pixels = _lines(some).to(weight.dtype)
                # Means as products: over all but the last axis, torch's own reductions are slower.
                mean = pixels.new_full((len(pixels), 1, pixels.shape[1]), 1 / pixels.shape[1])
                middle = torch.bmm(mean, pixels)
                centred = pixels - middle
                width = (torch.bmm(mean, centred.square()) + eps).rsqrt_()
                active = torch.addcmul(shift[:, None], centred, width * scale[:, None], out=centred).relu_()
                found.append((F.avg_pool2d(_maps(active, some.shape), pool).to(maps.dtype), middle, width))
            return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *given, _, ctx.pool = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Any, ...]:  # type: ignore[override]
        maps, *others = ctx.saved_tensors
        found, sums = maps.new_empty(len(maps), maps.shape[2:].numel(), maps.shape[1]), []
        with torch.autocast("cpu", enabled=False):
            for into, *given in _blocks(found, slope, maps, *others):
                by_maps, *by_affine = _slopes(*given, pool=ctx.pool)
                into.copy_(by_maps)
                sums.append(by_affine)
            along, total = (torch.cat(parts) for parts in zip(*sums, strict=True))
        return _maps(found, maps.shape), along, total, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        found = _NormReluPoolLast.apply(*folded(inputs[:3], in_dims, info.batch_size), *inputs[3:])
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in found), (0, 0, 0)


def _slopes(
    slope: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, width: Tensor, *, pool: Size
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a few maps: the slope by them ``[n, h w, c]``, by their scale ``[n, c]`` and by their shift ``[n, c]``."""
    unit = (_lines(maps).to(weight.dtype) - mean).mul_(width)
    active = torch.addcmul(bias[:, None], unit, weight[:, None])
    slope = slope.to(weight.dtype).contiguous(memory_format=torch.channels_last)
    let = _maps(active, maps.shape)
    spread = torch.ops.aten.avg_pool2d_backward(slope, let, pool, pool, (0, 0), False, True, None)
    through = _lines(torch.ops.aten.threshold_backward(spread, let, 0))
    ones = unit.new_ones(len(unit), 1, unit.shape[1])
    total, along = torch.bmm(ones, through), torch.bmm(ones, torch.mul(through, unit, out=active))
    scale, share = width * weight[:, None], -1 / unit.shape[1]
    found = torch.addcmul(total * scale * share, unit, along * scale * share, out=unit).addcmul_(through, scale)
    return found, along[:, 0], total[:, 0]


def _blocks(maps: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same tensors, some images at a time."""
    count = max(1, BLOCK // max(1, maps.shape[1:].numel()))
    return zip(*(tensor.split(count) for tensor in (maps, *others)), strict=True)


def _lines(maps: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` -> ``[n, h w, c]``, as they lie in memory."""
    return maps.permute(0, 2, 3, 1).contiguous().flatten(1, 2)


def _maps(lines: Tensor, shape: torch.Size) -> Tensor:
    """The way back, to ``shape``."""
    return lines.unflatten(1, shape[2:]).permute(0, 3, 1, 2)
