"""Layers by which generators grow images, in forms that suit a graphics card; on a processor they are the plain ones.

Three that the library takes badly there:

- a transposed convolution of maps of one pixel, which is a product of matrices;
- one of many channels, which it takes as the gradient of a convolution by a slow algorithm: as a plain convolution to
  the channels of all phases of its stride, put between each other, it is faster;
- a convolution to few channels, which it pads to dozens: a product of matrices gives what every pixel adds to the
  patch around it, and these are summed up where they overlap.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.networks.geometry import Size

FEW = 4
"""Most channels of what is summed up by overlaps: more would have to be written for every tap before."""
MANY = 256
"""Least channels of maps of which a transposed convolution is taken by phases."""


def grown(layer: nn.Module, maps: Tensor) -> Tensor:
    """What a layer makes of maps ``[n, c, h, w]``."""
    return grown_on_a_card(layer, maps) if maps.is_cuda else layer(maps)


def grown_on_a_card(layer: nn.Module, maps: Tensor) -> Tensor:
    """As `grown`, by the forms for a graphics card."""
    if not _plain(layer):
        return layer(maps)
    if isinstance(layer, nn.ConvTranspose2d):
        stride, padding = _pair(layer.stride), _pair(layer.padding)
        if maps.shape[2:] == (1, 1) and padding == (0, 0):
            return _biased(of_pixels(maps, layer.weight), layer.bias)
        if layer.in_channels >= MANY:
            return _biased(by_phases(maps, layer.weight, stride, padding), layer.bias)
    if isinstance(layer, nn.Conv2d) and layer.stride == (1, 1) and layer.out_channels <= FEW:
        return _biased(by_overlaps(maps, layer.weight, _pair(layer.padding)), layer.bias)
    return layer(maps)


def _plain(layer: nn.Module) -> bool:
    """Whether it is a convolution, perhaps transposed, with a stride and with less zeros around than taps, no more."""
    if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) or not isinstance(layer.padding, tuple):
        return False
    odd = layer.groups != 1 or any(one != 1 for one in layer.dilation) or any(layer.output_padding)
    narrow = all(around < side for around, side in zip(layer.padding, layer.kernel_size, strict=True))
    return narrow and not odd and layer.padding_mode == "zeros"


def of_pixels(maps: Tensor, weight: Tensor) -> Tensor:
    """The transposed convolution of maps ``[n, c, 1, 1]`` with a weight ``[c, out, kh, kw]``."""
    return (maps.flatten(1) @ weight.flatten(1)).unflatten(1, weight.shape[1:])


def by_overlaps(maps: Tensor, weight: Tensor, padding: Size) -> Tensor:
    """The convolution of maps ``[n, c, h, w]`` with a weight ``[out, c, kh, kw]``, and its derivatives likewise."""
    # Seen from what comes in: a pixel adds to the patch around it by the taps in reverse.
    taps = weight.flip(2, 3).transpose(0, 1)
    lines = taps.flatten(1).T.expand(len(maps), -1, -1)
    added = torch.bmm(lines, maps.flatten(2)).unflatten(2, maps.shape[2:]).unflatten(1, taps.shape[1:])
    high, wide = weight.shape[2:]
    return _within(_Overlapped.apply(added), _size(maps, taps, (1, 1)), (high - 1 - padding[0], wide - 1 - padding[1]))


def by_phases(maps: Tensor, weight: Tensor, stride: Size, padding: Size) -> Tensor:
    """The transposed convolution of maps ``[n, c, h, w]`` with a weight ``[c, out, kh, kw]``.

    Derivatives are those that the library has for it, which it takes for plain convolutions.
    """
    return _ByPhases.apply(maps, weight, stride, padding)


class _Overlapped(torch.autograd.Function):
    """What pixels add to patches ``[n, c, kh, kw, h, w]`` -> its sum where they overlap, ``[n, c, h', w']``."""

    @staticmethod
    def forward(added: Tensor) -> Tensor:  # type: ignore[override]
        *_, rows, columns, high, wide = added.shape
        return F.fold(added.flatten(1, 3).flatten(2), (high + rows - 1, wide + columns - 1), (rows, columns))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.kernel = inputs[0].shape[2:4]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        return _Cut.apply(slope, ctx.kernel)


class _Cut(torch.autograd.Function):
    """The gradient of `_Overlapped`, and the other way round: the patches of an image, for every pixel its own."""

    @staticmethod
    def forward(image: Tensor, kernel: Size) -> Tensor:  # type: ignore[override]
        patches = image.unfold(2, kernel[0], 1).unfold(3, kernel[1], 1)
        return patches.permute(0, 1, 4, 5, 2, 3).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]  # noqa: ARG004
        return _Overlapped.apply(slope), None


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
