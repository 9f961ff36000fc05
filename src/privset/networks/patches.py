"""The convolution that critics and teachers have, 5x5 of stride 2, for thousands of networks with kernels of their own.

A graphics card takes that for a convolution of thousands of groups, which it is not made for; so many small products of
matrices suit it better. `torch.nn.functional.unfold`, which would cut maps into the patches for that, takes images one
by one there, and its gradient gathers each pixel from all over memory. So it is done here, by a few operations on all
images of all networks at once: with kernels of our own where there is Triton, otherwise with torch's operations.
Patches of many channels are larger than all else; `privset.networks.direct` does without them (`DIRECT`).

Its derivatives are products of patches too, and so are theirs: the convolution and its two gradients, by the maps and
by the kernel, are linear in both that they are given, and the derivatives of each of the three are the other two. Who
writes derivatives out calls the two by name (`by_maps`, `by_kernel`); others leave them to automatic differentiation.

All three take the values of one network or, under `torch.func.vmap`, those of many, which then have one more axis in
front; what all networks share comes without it, and is not copied for each. Private networks are kept apart by this
axis alone: what comes out at a place along it is made of what came in there, and of what is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from privset.convolutions import channels_first
from privset.networks import direct, patch_kernels

KERNEL, STRIDE, PADDING = 5, 2, 2
DIRECT = 8
"""Fewest channels of maps whose patches are not put into memory: what a tile gathers of a pixel is then worth it.
`benchmarks/critics.py` times both ways, for 11 channels and more; without patches an operation takes a fifth to three
quarters of the time. Numbers are cut to TF32 there, where the library rounds them: results are 2.6 times as far from
float64 (8e-4)."""


def convolved(maps: Tensor, kernel: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` and a kernel ``[m, c, 5, 5]`` -> maps ``[n, m, h / 2, w / 2]``, sides rounded up."""
    if maps.is_cuda:
        return convolved_by_products(maps, kernel)
    return F.conv2d(maps, kernel, stride=STRIDE, padding=PADDING)


def convolved_by_products(maps: Tensor, kernel: Tensor) -> Tensor:
    """As `convolved`; channels of a pixel lie side by side in memory afterwards, and are best given so."""
    return _Convolved.apply(maps.permute(0, 2, 3, 1), kernel).permute(0, 3, 1, 2)


def by_maps(slope: Tensor, kernel: Tensor, size: Sequence[int]) -> Tensor:
    """From the slope by what `convolved` gave, ``[n, m, h / 2, w / 2]``, that by maps of this size ``[n, c, h, w]``."""
    if slope.is_cuda:
        return by_maps_by_products(slope, kernel, size)
    shape = (len(slope), kernel.shape[1], *size)
    return conv2d_input(shape, kernel, slope, stride=STRIDE, padding=PADDING)


def by_maps_by_products(slope: Tensor, kernel: Tensor, size: Sequence[int]) -> Tensor:
    """As `by_maps`, as on a card."""
    return _ByMaps.apply(slope.permute(0, 2, 3, 1), kernel, torch.Size(size)).permute(0, 3, 1, 2)


def by_kernel(slope: Tensor, maps: Tensor) -> Tensor:
    """From the slope by what `convolved` gave, ``[n, m, h / 2, w / 2]``, that by the kernel ``[m, c, 5, 5]``."""
    if slope.is_cuda:
        return by_kernel_by_products(slope, maps)
    shape = (slope.shape[1], maps.shape[1], KERNEL, KERNEL)
    return conv2d_weight(maps, shape, slope, stride=STRIDE, padding=PADDING)


def by_kernel_by_products(slope: Tensor, maps: Tensor) -> Tensor:
    """As `by_kernel`, as on a card."""
    return _ByKernel.apply(slope.permute(0, 2, 3, 1), maps.permute(0, 2, 3, 1))


def patches(maps: Tensor, side: int = KERNEL, step: int = STRIDE) -> Tensor:
    """Maps ``[n, h, w, c]`` -> what a kernel sees at each place ``[n * h / step * w / step, side * side * c]``."""
    around = side // 2
    views = F.pad(maps, (0, 0) + (around,) * 4).unfold(1, side, step).unfold(2, side, step)
    return views.permute(0, 1, 2, 4, 5, 3).reshape(-1, side**2 * maps.shape[3])


class _Convolved(torch.autograd.Function):
    """Maps ``[n, h, w, c]`` and a kernel ``[m, c, 5, 5]`` -> maps ``[n, h / 2, w / 2, m]``."""

    @staticmethod
    def forward(maps: Tensor, kernel: Tensor) -> Tensor:  # type: ignore[override]
        if _direct(maps, kernel):
            return _of_both(direct.convolve, maps, _AXES, _lines(kernel), 2)
        count, (high, wide) = maps.shape[-4], ((side + 1) // 2 for side in maps.shape[-3:-1])
        found = _products(_patches(maps), _lines(kernel).mT)
        return found.unflatten(-2, (count, high, wide))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (maps, kernel), (by_maps, by_kernel) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _as_given(_ByMaps.apply(slope, kernel, maps.shape[-3:-1]), maps) if by_maps else None,
            _as_given(_ByKernel.apply(slope, maps), kernel) if by_kernel else None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return _side_by_side(_Convolved, info.batch_size, in_dims, inputs)


class _ByMaps(torch.autograd.Function):
    """The gradient of `_Convolved` by maps of this size: slope ``[n, h / 2, w / 2, m]``, kernel -> ``[n, h, w, c]``.

    2 x 2 pixels are seen from the same 3 x 3 places. Along an axis three places see the even pixel of the middle one
    through taps 4, 2 and 0, and the odd one through 5, 3 and 1; tap 5, which there is not, is 0.
    """

    @staticmethod
    def forward(slope: Tensor, kernel: Tensor, size: torch.Size) -> Tensor:  # type: ignore[override]
        if _direct(slope, kernel):
            return _of_both(direct.spread, slope, _AXES, _lines(kernel.transpose(-4, -3)), 2, tuple(size))
        found = _products(_patches(slope, 3, 1), _taps(kernel))
        return _pixels(found, slope.shape[-4:-1], size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (given, kernel), (by_given, by_kernel, _) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _as_given(_Convolved.apply(slope, kernel), given) if by_given else None,
            _as_given(_ByKernel.apply(given, slope), kernel) if by_kernel else None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return _side_by_side(_ByMaps, info.batch_size, in_dims, inputs)


class _ByKernel(torch.autograd.Function):
    """The gradient of `_Convolved` by the kernel: slope ``[n, h / 2, w / 2, m]``, maps -> ``[m, c, 5, 5]``."""

    @staticmethod
    def forward(slope: Tensor, maps: Tensor) -> Tensor:  # type: ignore[override]
        if _direct(maps, slope):
            found = _of_both(direct.by_kernel, slope, _AXES, maps, _AXES)
        else:
            found = _products(slope.flatten(-4, -2).mT, _patches(maps))
        lines = found.reshape(-1, KERNEL, KERNEL, maps.shape[-1]).permute(0, 3, 1, 2)
        # As weights lie, with which it will be added and multiplied.
        return channels_first(lines).unflatten(0, found.shape[:-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (given, maps), (by_given, by_maps) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _as_given(_Convolved.apply(maps, slope), given) if by_given else None,
            _as_given(_ByMaps.apply(given, slope, maps.shape[-3:-1]), maps) if by_maps else None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return _side_by_side(_ByKernel, info.batch_size, in_dims, inputs)


_AXES = 4
"""Of maps and kernels of one network."""


def _side_by_side(function: Any, count: int, dims: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, int]:
    """What the function makes of two tensors of ``count`` networks, which lie along these axes; they lie first in it.

    Where they are networks of networks, as of a vmap within another, all lie in a row, and what is shared is repeated.
    """
    given = [value if dim is None else value.movedim(dim, 0) for value, dim in zip(inputs[:2], dims[:2], strict=True)]
    own = [dim is not None for dim in dims[:2]]
    inner = [value.shape[each] for value, each in zip(given, own, strict=True) if value.ndim - each > _AXES]
    if not inner:
        return function.apply(*given, *inputs[2:]), 0
    rows = []
    for value, each in zip(given, own, strict=True):
        many = value if value.ndim - each > _AXES else value.unsqueeze(int(each))
        rows.append(many.expand(count, inner[0], *many.shape[-_AXES:]).flatten(0, 1))
    return function.apply(*rows, *inputs[2:]).unflatten(0, (count, inner[0])), 0


def _as_given(slope: Tensor, given: Tensor) -> Tensor:
    """The slope by what was given: of what all networks share, the sum of all of theirs."""
    return slope if slope.ndim == given.ndim else slope.sum(0)


def _products(one: Tensor, other: Tensor) -> Tensor:
    """Of two matrices, or of those of each network; one that is shared is read again for each, not repeated."""
    if one.ndim == other.ndim == 2:
        return one @ other
    count = len(one if one.ndim > 2 else other)
    # Not `matmul`, which may take the product of a shared matrix the other way round, and leave channels apart.
    return torch.bmm(one.expand(count, -1, -1), other.expand(count, -1, -1))


def _direct(seen: Tensor, other: Tensor) -> bool:
    """Whether products with what is seen of these maps are found without patches in memory."""
    networks = next((len(values) for values in (seen, other) if values.ndim > _AXES), 1)
    pixels = seen.shape[-4:-1].numel()
    return seen.shape[-1] >= DIRECT and direct.fits(seen, other, networks, pixels)


def _patches(maps: Tensor, side: int = KERNEL, step: int = STRIDE) -> Tensor:
    """`patches`, of one network or of many."""
    if patch_kernels.fits(maps):
        return _of_all(patch_kernels.patches, maps, _AXES, side, step)
    found = patches(maps.flatten(0, -4), side, step)
    return found if maps.ndim == _AXES else found.unflatten(0, (len(maps), -1))


def _lines(kernel: Tensor) -> Tensor:
    """A kernel ``[m, c, 5, 5]`` -> ``[m, 25 c]``, in the order of patches."""
    if patch_kernels.fits(kernel):
        return _of_all(patch_kernels.lines, kernel, _AXES)
    return kernel.movedim(-3, -1).flatten(-3)


def _taps(kernel: Tensor) -> Tensor:
    """A kernel ``[m, c, 5, 5]`` -> ``[9 m, 4 c]``, from 3 x 3 places to 2 x 2 pixels."""
    return _of_all(patch_kernels.taps, kernel, _AXES) if patch_kernels.fits(kernel) else taps_by_torch(kernel)


def taps_by_torch(kernel: Tensor) -> Tensor:
    """As `privset.networks.patch_kernels.taps`, where there is no Triton."""
    *lead, outs, channels = kernel.shape[:-2]
    split = F.pad(kernel, (0, 1, 0, 1)).reshape(-1, outs, channels, 3, 2, 3, 2).flip(3, 5)
    return split.permute(0, 3, 5, 1, 4, 6, 2).reshape(*lead, 9 * outs, STRIDE**2 * channels)


def _pixels(found: Tensor, places: torch.Size, size: torch.Size) -> Tensor:
    """What was found for 2 x 2 pixels of each of ``n, h / 2, w / 2`` places ``[..., 4 c]`` -> ``[n, h, w, c]``."""
    (count, high, wide), (height, width) = places, size
    if patch_kernels.fits(found):
        return _of_all(patch_kernels.pixels, found, 2, count, high, wide, (height, width))
    split = found.view(*found.shape[:-2], count, high, wide, STRIDE, STRIDE, -1).transpose(-4, -3)
    maps = split.reshape(*found.shape[:-2], count, STRIDE * high, STRIDE * wide, -1)
    return maps[..., :height, :width, :].contiguous()


def _of_all(work: Callable[..., Tensor], values: Tensor, axes: int, *others: Any) -> Tensor:
    """What a kernel makes of the values of many networks, or of one, which then have so many axes."""
    return work(values, *others) if values.ndim > axes else work(values[None], *others)[0]


def _of_both(work: Callable[..., Tensor], one: Tensor, axes: int, other: Tensor, others: int, *form: Any) -> Tensor:
    """As `_of_all` of two tensors, which have so many axes where they are those of one network, or shared by many."""
    many = one.ndim > axes, other.ndim > others
    given = (values if each else values[None] for values, each in zip((one, other), many, strict=True))
    found = work(*given, *form)
    return found if any(many) else found[0]
