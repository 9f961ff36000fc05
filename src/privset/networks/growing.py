"""Layers by which generators grow images, in forms that suit a graphics card; on a processor they are the plain ones.

A transposed convolution is to the library the gradient of one, and it takes it so: of a stride of 2 it computes all
taps everywhere, three in four of them for nothing, and to few channels it pads them to dozens. So here

- of maps of one pixel it is a product of matrices,
- to few channels, as a convolution to few is too, it is a product of matrices that gives what every pixel adds to the
  patch around it, and a sum of these where they overlap,
- else, with a stride, it is a convolution to the channels of all phases, which are then put between each other.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.networks.geometry import Size

FEW = 4
"""Most channels of what is summed up by overlaps: more would have to be written for every tap before."""


def grown(layer: nn.Module, maps: Tensor) -> Tensor:
    """What a layer makes of maps ``[n, c, h, w]``; transposed convolutions may have strides and paddings, no more."""
    if not maps.is_cuda:
        return layer(maps)
    return grown_on_a_card(layer, maps)


def grown_on_a_card(layer: nn.Module, maps: Tensor) -> Tensor:
    """As `grown`, by the forms for a graphics card."""
    if isinstance(layer, nn.ConvTranspose2d):
        stride, padding = _pair(layer.stride), _pair(layer.padding)
        if maps.shape[2:] == (1, 1) and padding == (0, 0):
            return _biased(of_pixels(maps, layer.weight), layer.bias)
        if layer.out_channels <= FEW:
            return _biased(by_overlaps(maps, layer.weight, stride, padding), layer.bias)
        if stride != (1, 1):
            return _biased(by_phases(maps, layer.weight, stride, padding), layer.bias)
    if isinstance(layer, nn.Conv2d) and layer.stride == (1, 1) and layer.out_channels <= FEW:
        # Seen from what comes in: a pixel adds to the patch around it by the taps in reverse.
        (high, wide), (above, before) = layer.kernel_size, _pair(layer.padding)
        taps = layer.weight.transpose(0, 1).flip(2, 3)
        return _biased(by_overlaps(maps, taps, (1, 1), (high - 1 - above, wide - 1 - before)), layer.bias)
    return layer(maps)


def of_pixels(maps: Tensor, weight: Tensor) -> Tensor:
    """The transposed convolution of maps ``[n, c, 1, 1]`` with a weight ``[c, out, kh, kw]``."""
    return (maps.flatten(1) @ weight.flatten(1)).unflatten(1, weight.shape[1:])


def by_overlaps(maps: Tensor, weight: Tensor, stride: Size, padding: Size) -> Tensor:
    """The transposed convolution of maps ``[n, c, h, w]`` with a weight ``[c, out, kh, kw]``; derivatives likewise."""
    size, weight = _size(maps, weight, stride), _divided(weight, stride)
    taps = weight.flatten(1).T.expand(len(maps), -1, -1)
    added = torch.bmm(taps, maps.flatten(2)).unflatten(2, maps.shape[2:]).unflatten(1, weight.shape[1:])
    return _within(_Overlapped.apply(added, stride), size, padding)


def by_phases(maps: Tensor, weight: Tensor, stride: Size, padding: Size) -> Tensor:
    """As `by_overlaps`; derivatives are those that the library has for it, which it takes for plain convolutions."""
    return _ByPhases.apply(maps, weight, stride, padding)


class _Overlapped(torch.autograd.Function):
    """What pixels add to patches ``[n, c, kh, kw, h, w]`` -> its sum where they overlap, ``[n, c, h', w']``.

    The strides divide the sides of the patches.
    """

    @staticmethod
    def forward(added: Tensor, stride: Size) -> Tensor:  # type: ignore[override]
        (count, channels, *kernel, high, wide), (down, right) = added.shape, stride
        # Patches are rows and columns of blocks as large as a stride, so that blocks lie upon whole blocks.
        rows, columns = kernel[0] // down, kernel[1] // right
        around = F.pad(added.contiguous(), (columns - 1, columns - 1, rows - 1, rows - 1))
        image, channel, line, tap, below, beside = around.stride()
        # A block that is one further in the patch is there for the pixel that is one before.
        blocks = around.as_strided(
            (count, channels, high + rows - 1, down, wide + columns - 1, right, rows, columns),
            (image, channel, below, line, beside, tap, down * line - below, right * tap - beside),
            around.storage_offset() + (rows - 1) * below + (columns - 1) * beside,
        )
        return blocks.sum((6, 7)).flatten(4, 5).flatten(2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.kernel, ctx.stride = inputs[0].shape[2:4], inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return _Cut.apply(slope, ctx.kernel, ctx.stride), None


class _Cut(torch.autograd.Function):
    """The gradient of `_Overlapped`, and the other way round: the patches of an image, for every pixel its own."""

    @staticmethod
    def forward(image: Tensor, kernel: Size, stride: Size) -> Tensor:  # type: ignore[override]
        patches = image.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
        return patches.permute(0, 1, 4, 5, 2, 3).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.stride = inputs[2]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return _Overlapped.apply(slope, ctx.stride), None, None


class _ByPhases(torch.autograd.Function):
    """Maps ``[n, c, h, w]``, a weight ``[c, out, kh, kw]`` -> maps ``[n, out, h', w']``."""

    @staticmethod
    def forward(maps: Tensor, weight: Tensor, stride: Size, padding: Size) -> Tensor:  # type: ignore[override]
        (down, right), size = stride, _size(maps, weight, stride)
        taps = _divided(weight, stride).unflatten(3, (-1, right)).unflatten(2, (-1, down))
        taps = taps.flip(2, 4).permute(1, 3, 5, 0, 2, 4).flatten(0, 2)  # [out down right, c, rows, columns]
        phases = F.conv2d(maps, taps, padding=(taps.shape[2] - 1, taps.shape[3] - 1))
        mixed = phases.unflatten(1, (-1, down, right)).permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        return _within(mixed, size, padding).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        maps, weight, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(maps, weight)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (maps, weight), wanted = ctx.saved_tensors, (*ctx.needs_input_grad[:2], False)
        by_maps, by_weight, _ = torch.ops.aten.convolution_backward(
            slope, maps, weight, None, ctx.stride, ctx.padding, (1, 1), True, (0, 0), 1, wanted
        )
        return by_maps, by_weight, None, None


def _size(maps: Tensor, weight: Tensor, stride: Size) -> Size:
    """That of what a transposed convolution makes, before what is padding is cut off."""
    high, wide = ((side - 1) * by + of for side, by, of in zip(maps.shape[2:], stride, weight.shape[2:], strict=True))
    return high, wide


def _divided(weight: Tensor, stride: Size) -> Tensor:
    """A weight ``[c, out, kh, kw]`` with taps of 0 behind, so that strides divide its sides."""
    more, wider = (-side % step for side, step in zip(weight.shape[2:], stride, strict=True))
    return F.pad(weight, (0, wider, 0, more)) if more or wider else weight


def _within(maps: Tensor, size: Size, padding: Size) -> Tensor:
    return maps[:, :, padding[0] : size[0] - padding[0], padding[1] : size[1] - padding[1]]


def _biased(maps: Tensor, bias: Tensor | None) -> Tensor:
    return maps if bias is None else maps + bias[:, None, None]


def _pair(sides: Any) -> Size:
    high, wide = sides
    return high, wide
