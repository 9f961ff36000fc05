"""The convolution that critics and teachers have, 5x5 of stride 2, for thousands of networks with kernels of their own.

A graphics card takes that for a convolution of thousands of groups, which it is not made for; so many small products of
matrices suit it better. `torch.nn.functional.unfold`, which would cut maps into the patches for that, takes images one
by one there, and its gradient gathers each pixel from all over memory. So it is done here, by a few operations on all
images of all networks at once.

Its derivatives are products of patches too, and so are theirs, which a gradient penalty needs: the convolution and its
two gradients, by the maps and by the kernel, are linear in both that they are given, and the derivatives of each of the
three are the other two.
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
    return _Convolved.apply(maps.permute(0, 2, 3, 1), kernel.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def patches(maps: Tensor, side: int = KERNEL, step: int = STRIDE) -> Tensor:
    """Maps ``[n, h, w, c]`` -> what a kernel sees at each place ``[n * h / step * w / step, side * side * c]``."""
    around = side // 2
    views = F.pad(maps, (0, 0) + (around,) * 4).unfold(1, side, step).unfold(2, side, step)
    return views.permute(0, 1, 2, 4, 5, 3).reshape(-1, side**2 * maps.shape[3])


class _Convolved(torch.autograd.Function):
    """Maps ``[n, h, w, c]`` and a kernel ``[m, 5, 5, c]`` -> maps ``[n, h / 2, w / 2, m]``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor, kernel: Tensor) -> Tensor:  # type: ignore[override]
        high, wide = ((side + 1) // 2 for side in maps.shape[1:3])
        return (patches(maps) @ kernel.flatten(1).T).view(len(maps), high, wide, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (maps, kernel), (by_maps, by_kernel) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _ByMaps.apply(slope, kernel, maps.shape[1:3]) if by_maps else None,
            _ByKernel.apply(slope, maps) if by_kernel else None,
        )


class _ByMaps(torch.autograd.Function):
    """The gradient of `_Convolved` by maps of this size: slope ``[n, h / 2, w / 2, m]``, kernel -> ``[n, h, w, c]``.

    2 x 2 pixels are seen from the same 3 x 3 places. Along an axis three places see the even pixel of the middle one
    through taps 4, 2 and 0, and the odd one through 5, 3 and 1; tap 5, which there is not, is 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(slope: Tensor, kernel: Tensor, size: torch.Size) -> Tensor:  # type: ignore[override]
        (count, high, wide, _), channels, (height, width) = slope.shape, kernel.shape[3], size
        taps = F.pad(kernel, (0, 0, 0, 1, 0, 1)).unflatten(1, (3, 2)).unflatten(3, (3, 2))
        taps = taps.flip(1, 3).permute(1, 3, 0, 2, 4, 5).reshape(-1, STRIDE**2 * channels)
        found = (patches(slope, 3, 1) @ taps).view(count, high, wide, STRIDE, STRIDE, channels)
        pixels = found.transpose(2, 3).reshape(count, STRIDE * high, STRIDE * wide, channels)
        return pixels[:, :height, :width]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (given, kernel), (by_given, by_kernel, _) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _Convolved.apply(slope, kernel) if by_given else None,
            _ByKernel.apply(given, slope) if by_kernel else None,
            None,
        )


class _ByKernel(torch.autograd.Function):
    """The gradient of `_Convolved` by the kernel: slope ``[n, h / 2, w / 2, m]``, maps -> ``[m, 5, 5, c]``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(slope: Tensor, maps: Tensor) -> Tensor:  # type: ignore[override]
        return (slope.flatten(0, 2).T @ patches(maps)).view(slope.shape[3], KERNEL, KERNEL, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (given, maps), (by_given, by_maps) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _Convolved.apply(maps, slope) if by_given else None,
            _ByMaps.apply(given, slope, maps.shape[1:3]) if by_maps else None,
        )
