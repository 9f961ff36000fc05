"""The convolution that critics have, 5x5 of stride 2, for thousands of networks with kernels of their own.

A graphics card takes that for a convolution of thousands of groups, which it is not made for; so many small products of
matrices suit it better. `torch.nn.functional.unfold`, which would cut maps into the patches for that, takes images one
by one there. So it is done here, by a few operations on all images of all networks at once; and so are its first and
second derivatives, which a gradient penalty needs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

KERNEL, STRIDE, PADDING = 5, 2, 2


def convolved(maps: Tensor, kernel: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` and a kernel ``[m, c, 5, 5]`` -> maps ``[n, m, h / 2, w / 2]``, sides rounded up."""
    if maps.is_cuda:
        return convolved_by_products(maps, kernel)
    return F.conv2d(maps, kernel, stride=STRIDE, padding=PADDING)


def convolved_by_products(maps: Tensor, kernel: Tensor) -> Tensor:
    """As `convolved`; channels of a pixel lie side by side in memory afterwards, and are best given so."""
    patches = _Patches.apply(maps.permute(0, 2, 3, 1))
    table = kernel.permute(2, 3, 1, 0).flatten(0, 2)
    return (patches.flatten(3) @ table).permute(0, 3, 1, 2)


class _Patches(torch.autograd.Function):
    """Maps ``[n, h, w, c]`` -> what the kernel sees at each place ``[n, h / 2, w / 2, 25, c]``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor) -> Tensor:  # type: ignore[override]
        padded = F.pad(maps, (0, 0, *(PADDING,) * 4))
        views = padded.unfold(1, KERNEL, STRIDE).unfold(2, KERNEL, STRIDE)
        return views.permute(0, 1, 2, 4, 5, 3).flatten(3, 4)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004 - as torch calls it
        ctx.size = inputs[0].shape[1:3]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        return _Folded.apply(slope, ctx.size)  # type: ignore[return-value]


class _Folded(torch.autograd.Function):
    """The transpose of `_Patches`: ``[n, h / 2, w / 2, 25, c]`` -> maps ``[n, h, w, c]`` of this height and width."""

    generate_vmap_rule = True

    @staticmethod
    def forward(patches: Tensor, size: torch.Size) -> Tensor:  # type: ignore[override]
        (count, high, wide, _, channels), (height, width) = patches.shape, size
        # Not `torch.zeros`, which vmap would not make for each network.
        padded = patches.new_zeros(count, height + 2 * PADDING, width + 2 * PADDING, channels)
        for tap, seen in enumerate(patches.unbind(3)):
            top, left = divmod(tap, KERNEL)
            padded[:, top : top + STRIDE * high : STRIDE, left : left + STRIDE * wide : STRIDE] += seen
        return padded[:, PADDING : PADDING + height, PADDING : PADDING + width]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # noqa: ARG004
        return _Patches.apply(slope), None  # type: ignore[return-value]
