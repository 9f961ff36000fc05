"""The first block of a ConvNet on a processor: convolution, instance norm, ReLU and average pooling of images, at once.

What a convolution sees at a place is short: 9 numbers for 3 x 3 of one channel, where what it makes of them has 128.
So mean and covariance are taken of these patches; those of a map follow by its weights. The norm is known before there
is a map, and becomes part of the weights. What is left is to multiply, to leave out what is below zero and to add up,
over few enough images at a time that a processor has them at hand. The gradient does it again rather than keeping the
maps, and all of it follows from one more product, of patches with slopes.

Each image has weights of its own, so that under vmap the gradient by them is that image's; no two images meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

from privset.convolutions import Form
from privset.networks.fused import folded
from privset.networks.geometry import Size

BLOCK = 2**19
"""Numbers of the maps that are looked at together."""


def convolve_norm_relu_pool(
    images: Tensor,
    weights: Tensor,
    scales: Tensor,
    shifts: Tensor,
    *,
    stride: Size = (1, 1),
    padding: Size = (0, 0),
    pool: Size = (1, 1),
    eps: float = 1e-5,
) -> Tensor:
    """Images ``[n, c, h, w]`` -> pooled maps, channels last in memory; no slope by the images is to be had.

    Pixels whose squares are infinite give maps or slopes that are not finite, of their image alone.

    Args:
        images: To be convolved.
        weights: Of each image ``[n, out, c, kh, kw]``; a bias would make no difference.
        scales: Of each image, after the norm ``[n, out]``.
        shifts: Of each image, after the norm ``[n, out]``.
        stride: Of the convolution.
        padding: Of the convolution, with zeros.
        pool: Rows and columns that are averaged; what is left over at the end is dropped, as by `torch.nn.AvgPool2d`.
        eps: Added to the variance.

    Raises:
        ValueError: Images, weights and pools do not go together.
    """
    return _FirstBlock.apply(images, weights, scales, shifts, stride, padding, pool, eps)[0]


class _FirstBlock(torch.autograd.Function):
    """-> pooled maps, and what the slopes are made of: patches, their covariance, and the width of each map."""

    @staticmethod
    def forward(
        images: Tensor,
        weights: Tensor,
        scales: Tensor,
        shifts: Tensor,
        stride: Size,
        padding: Size,
        pool: Size,
        eps: float,
    ) -> tuple[Tensor, ...]:
        coarse = torch.is_autocast_enabled("cpu") and weights.dtype == torch.float32
        kind = torch.get_autocast_dtype("cpu") if coarse else weights.dtype
        with torch.autocast("cpu", enabled=False):
            form = Form.of(images, weights[0], stride, padding)
            patches, covariance, size = _patches(images, form, pool)
            lines = weights.flatten(2)
            variance = (torch.bmm(lines, covariance) * lines).sum(2).clamp_min_(0)  # rounding may go below
            width = (variance + eps).rsqrt_()
            found, parts = [], pool[0] * pool[1]
            # What is positive stays so, whatever it is divided by.
            for some, whole, room in _blocks(patches, _affine(lines, scales, shifts, width) / parts):
                active = torch.bmm(some.transpose(1, 2), whole, out=room).relu_().unflatten(1, (parts, -1))
                total = active[:, 0]
                for part in active.unbind(1)[1:]:
                    total += part
                found.append(total.to(kind, copy=True))
            pooled = torch.cat(found).unflatten(1, size).permute(0, 3, 1, 2)
            return pooled, patches, covariance, width

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, weights, scales, shifts, _, _, ctx.pool, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, scales, shifts, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Any, ...]:  # type: ignore[override]
        if ctx.needs_input_grad[0]:
            raise RuntimeError("the first block of a network has no slope by its images")
        weights, scales, shifts, patches, covariance, width = ctx.saved_tensors
        found, parts = [], ctx.pool[0] * ctx.pool[1]
        with torch.autocast("cpu", enabled=False):
            lines = weights.flatten(2)
            spread = slope.permute(0, 2, 3, 1).flatten(1, 2)
            for some, whole, room, given in _blocks(patches, _affine(lines, scales, shifts, width), spread):
                active = torch.bmm(some.transpose(1, 2), whole, out=room).unflatten(1, (parts, -1))
                given = (given.to(active.dtype) / parts)[:, None].expand_as(active)
                torch.ops.aten.threshold_backward.grad_input(given, active, 0, grad_input=active)
                found.append(torch.bmm(some, room))
            by_patches = torch.cat(found).transpose(1, 2)
            by_lines, total = by_patches[:, :, :-1], by_patches[:, :, -1]
            # By a map's own scale; and what moves a map as a whole, or along itself, the norm takes away again.
            along = (by_lines * lines).sum(2) * width
            by_lines = by_lines - (along * width)[:, :, None] * torch.bmm(lines, covariance)
            by_weights = ((scales * width)[:, :, None] * by_lines).view_as(weights)
        return None, by_weights, along, total, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        found = _FirstBlock.apply(*folded(inputs[:4], in_dims, info.batch_size), *inputs[4:])
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in found), (0, 0, 0, 0)


def _patches(images: Tensor, form: Form, pool: Size) -> tuple[Tensor, Tensor, Size]:
    """What a convolution sees at each place, less its mean over all places, and how it varies.

    Returns:
        ``[n, d + 1, places]``, a line of ones last: first what comes first in each pool, then what comes second, and so
        on, without what the pooling drops; the covariance ``[n, d, d]`` over all places; and the size after pooling.
    """
    (height, width), (rows, columns) = form.found, pool
    size = (height // rows, width // columns)
    if min(size) < 1:
        raise ValueError(f"maps of {height} x {width} have no room for a pool of {rows} x {columns}")
    high, wide = form.padding
    seen = F.pad(images, (wide, wide, high, high))
    seen = seen.unfold(2, form.kernel[0], form.stride[0]).unfold(3, form.kernel[1], form.stride[1])
    lines = seen.permute(0, 1, 4, 5, 2, 3).flatten(1, 3)  # [n, d, h, w]
    lines = lines - lines.mean((2, 3), keepdim=True)
    flat = lines.flatten(2)
    covariance = torch.bmm(flat, flat.transpose(1, 2)).div_(flat.shape[2])
    kept = lines[:, :, : size[0] * rows, : size[1] * columns].unflatten(3, (size[1], columns))
    kept = kept.unflatten(2, (size[0], rows)).permute(0, 1, 3, 5, 2, 4)
    patches = lines.new_ones(len(lines), lines.shape[1] + 1, rows * columns * size[0] * size[1])
    patches[:, :-1].view(kept.shape).copy_(kept)
    return patches, covariance, size


def _affine(lines: Tensor, scales: Tensor, shifts: Tensor, width: Tensor) -> Tensor:
    """Weights ``[n, out, d]`` with what follows them -> ``[n, d + 1, out]``, by which patches are multiplied."""
    return torch.cat([lines * (width * scales)[:, :, None], shifts[:, :, None]], dim=2).transpose(1, 2)


def _blocks(patches: Tensor, whole: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same tensors, some images at a time, and after the second, room for the maps: the same for all of them."""
    count = max(1, BLOCK // max(1, patches.shape[2] * whole.shape[2]))
    room = patches.new_empty(min(count, len(patches)), patches.shape[2], whole.shape[2])
    for some, whole_, *rest in zip(*(tensor.split(count) for tensor in (patches, whole, *others)), strict=True):
        yield some, whole_, room[: len(some)], *rest
