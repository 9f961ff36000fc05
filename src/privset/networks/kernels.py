"""The kernels behind `privset.networks.fused`, in Triton: one program looks at a tile of maps, held in registers.

What each reads it asks for before it computes anything, as far as the compiler leaves it so: memory answers late.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton
from privset.networks.geometry import Size, divided

LARGEST = 2**14
"""Pixels of a map, each side rounded up to a power of two, beyond which it does not fit in registers."""

TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
"""Of maps."""

TILE = 2**10
"""Pixels that one program looks at: several small maps, or a single larger one."""

WARP = 2**9
"""Pixels for each 32 threads."""


def fits(maps: Tensor) -> bool:
    """Whether the kernels can take ``maps [n, c, h, w]``."""
    if not (AVAILABLE and maps.is_cuda and maps.dtype in TYPES):
        return False
    height, width = _rounded_up(maps)
    return height * width <= LARGEST


def norm_relu_pool(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, relu: bool = True) -> Tensor:
    """Maps ``[n, c, h, w]``, scales and shifts ``[n, c]`` -> pooled maps, without the ReLU if told so."""
    pooled = maps.new_empty(*maps.shape[:2], *divided((maps.shape[2], maps.shape[3]), pool))
    _launch(_pool_kernel, maps, weight, bias, eps, pool, pooled, relu=relu)
    return pooled


def slopes(
    slope: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, affine: bool, relu: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by the pooled maps those by maps, scales and shifts; unless ``affine``, no numbers in these."""
    by_maps = torch.empty_like(maps, memory_format=torch.contiguous_format)
    by_weight, by_bias = (weight.new_empty(len(maps), maps.shape[1] if affine else 0) for _ in range(2))
    found = (by_maps, by_weight, by_bias)
    _launch(_slopes_kernel, maps, weight, bias, eps, pool, slope.contiguous(), *found, affine=affine, relu=relu)
    return found


def rates(moved: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size) -> Tensor:
    """How fast what `norm_relu_pool` gives changes when the maps change as fast as ``moved [n, c, h, w]``."""
    pooled = maps.new_empty(*maps.shape[:2], *divided((maps.shape[2], maps.shape[3]), pool))
    _launch(_rates_kernel, maps, weight, bias, eps, pool, moved.contiguous(), pooled)
    return pooled


def bends(
    bent: Tensor, slope: Tensor, moved: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size
) -> Tensor:
    """By the maps ``[n, c, h, w]``, the gradient of ``bent * norm_relu_pool(maps) + slope * rates(moved, maps)``."""
    by_maps = torch.empty_like(maps, memory_format=torch.contiguous_format)
    given = (bent.contiguous(), slope.contiguous(), moved.contiguous())
    _launch(_bends_kernel, maps, weight, bias, eps, pool, *given, by_maps)
    return by_maps


def _rounded_up(maps: Tensor) -> Size:
    return triton.next_power_of_2(maps.shape[2]), triton.next_power_of_2(maps.shape[3])


def _launch(
    kernel: Any, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, *others: Tensor, **options: bool
) -> None:
    count, (rows, columns) = maps.shape[0] * maps.shape[1], _rounded_up(maps)
    tile = max(1, TILE // (rows * columns))
    with torch.cuda.device_of(maps):
        kernel[(triton.cdiv(count, tile),)](
            maps.contiguous(),
            weight,
            bias,
            *others,
            count,
            maps.shape[1],
            *weight.stride(),
            *bias.stride(),
            eps=eps,  # as an argument it would be rounded to float32
            height=maps.shape[2],
            width=maps.shape[3],
            high=pool[0],
            wide=pool[1],
            tile=tile,
            rows=rows,
            columns=columns,
            num_warps=min(16, max(1, tile * rows * columns // WARP)),
            **options,
        )


@jit
def _wide(values):
    """Numbers to compute with: half as many bits are enough to lie in memory with, and too few for that."""
    half: tl.constexpr = (values.dtype == tl.bfloat16) | (values.dtype == tl.float16)
    return values.to(tl.float32) if half else values


@jit
def _places(
    count,
    height: tl.constexpr,
    width: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Which maps are this program's, and how their pixels ``[tile, rows * columns]`` lie."""
    which = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    row, column = tl.arange(0, rows * columns) // columns, tl.arange(0, rows * columns) % columns
    inside = (which < count)[:, None] & ((row < height) & (column < width))[None, :]
    place = which[:, None] * (height * width) + (row * width + column)[None, :]
    return which, row, column, place, inside


@jit
def _loaded(values, place, inside):
    return _wide(tl.load(values + place, mask=inside, other=0.0))


@jit
def _unit(values, inside, eps: tl.constexpr, pixels: tl.constexpr):
    """Maps less their mean and over their deviation, and one over that."""
    mean = tl.sum(values, axis=1) / pixels
    centred = tl.where(inside, values - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / pixels + eps)
    return centred * scale[:, None], scale


@jit
def _of_each(values, which, count, channels, image_stride, channel_stride):
    """The scale or shift of each map."""
    place = which // channels * image_stride + which % channels * channel_stride
    return tl.load(values + place, mask=which < count, other=0.0)


@jit
def _store_pooled(
    pooled,
    values,
    which,
    count,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Average over cells of ``high`` x ``wide`` pixels and write."""
    cells = tl.reshape(values, (tile, rows // high, high, columns // wide, wide))
    means = tl.sum(tl.sum(cells, axis=4), axis=2) / (high * wide)
    row, column = tl.arange(0, rows // high)[None, :, None], tl.arange(0, columns // wide)[None, None, :]
    place = which[:, None, None] * ((height // high) * (width // wide)) + row * (width // wide) + column
    inside = (which < count)[:, None, None] & (row < height // high) & (column < width // wide)
    tl.store(pooled + place, means, mask=inside)


@jit
def _spread(
    slope,
    which,
    row,
    column,
    inside,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
):
    """The gradient by the pooled maps, at every pixel that is pooled."""
    cell = (
        which[:, None] * ((height // high) * (width // wide))
        + (row // high * (width // wide) + column // wide)[None, :]
    )
    pooled = inside & ((row < height // high * high) & (column < width // wide * wide))[None, :]
    return _loaded(slope, cell, pooled) / (high * wide)


@jit
def _pool_kernel(
    maps,
    weight,
    bias,
    pooled,
    count,
    channels,
    weight_image_stride,
    weight_channel_stride,
    bias_image_stride,
    bias_channel_stride,
    eps: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    relu: tl.constexpr,
):
    which, _row, _column, place, inside = _places(count, height, width, tile, rows, columns)
    values = _loaded(maps, place, inside)
    factor = _of_each(weight, which, count, channels, weight_image_stride, weight_channel_stride)
    shift = _of_each(bias, which, count, channels, bias_image_stride, bias_channel_stride)
    unit, _ = _unit(values, inside, eps, height * width)
    normed = unit * factor[:, None] + shift[:, None]
    if relu:
        normed = tl.where(normed < 0, 0.0, normed)  # written so that what is not a number stays so
    _store_pooled(pooled, normed, which, count, height, width, high, wide, tile, rows, columns)


@jit
def _slopes_kernel(
    maps,
    weight,
    bias,
    slope,
    by_maps,
    by_weight,
    by_bias,
    count,
    channels,
    weight_image_stride,
    weight_channel_stride,
    bias_image_stride,
    bias_channel_stride,
    eps: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    affine: tl.constexpr,
    relu: tl.constexpr,
):
    which, row, column, place, inside = _places(count, height, width, tile, rows, columns)
    values = _loaded(maps, place, inside)
    by_pooled = _spread(slope, which, row, column, inside, height, width, high, wide)
    factor = _of_each(weight, which, count, channels, weight_image_stride, weight_channel_stride)
    shift = _of_each(bias, which, count, channels, bias_image_stride, bias_channel_stride)
    unit, scale = _unit(values, inside, eps, height * width)
    if relu:
        by_pooled = tl.where(unit * factor[:, None] + shift[:, None] <= 0, 0.0, by_pooled)  # as the ReLU lets through
    total, along = tl.sum(by_pooled, axis=1), tl.sum(by_pooled * unit, axis=1)
    found = by_pooled - (total[:, None] + unit * along[:, None]) / (height * width)
    tl.store(by_maps + place, found * (scale * factor)[:, None], mask=inside)
    if affine:
        tl.store(by_weight + which, along, mask=which < count)
        tl.store(by_bias + which, total, mask=which < count)


@jit
def _rates_kernel(
    maps,
    weight,
    bias,
    moved,
    pooled,
    count,
    channels,
    weight_image_stride,
    weight_channel_stride,
    bias_image_stride,
    bias_channel_stride,
    eps: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    which, _row, _column, place, inside = _places(count, height, width, tile, rows, columns)
    values, rate = _loaded(maps, place, inside), _loaded(moved, place, inside)
    factor = _of_each(weight, which, count, channels, weight_image_stride, weight_channel_stride)
    shift = _of_each(bias, which, count, channels, bias_image_stride, bias_channel_stride)
    unit, scale = _unit(values, inside, eps, height * width)
    mean, along = tl.sum(rate, axis=1) / (height * width), tl.sum(unit * rate, axis=1) / (height * width)
    bent = (rate - mean[:, None] - unit * along[:, None]) * (scale * factor)[:, None]
    active = tl.where(inside & (unit * factor[:, None] + shift[:, None] > 0), bent, 0.0)
    _store_pooled(pooled, active, which, count, height, width, high, wide, tile, rows, columns)


@jit
def _bends_kernel(
    maps,
    weight,
    bias,
    bent,
    slope,
    moved,
    by_maps,
    count,
    channels,
    weight_image_stride,
    weight_channel_stride,
    bias_image_stride,
    bias_channel_stride,
    eps: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    which, row, column, place, inside = _places(count, height, width, tile, rows, columns)
    values, rate = _loaded(maps, place, inside), _loaded(moved, place, inside)
    by_pooled = _spread(slope, which, row, column, inside, height, width, high, wide)
    bent_pooled = _spread(bent, which, row, column, inside, height, width, high, wide)
    factor = _of_each(weight, which, count, channels, weight_image_stride, weight_channel_stride)
    shift = _of_each(bias, which, count, channels, bias_image_stride, bias_channel_stride)
    pixels: tl.constexpr = height * width
    unit, scale = _unit(values, inside, eps, pixels)
    off = unit * factor[:, None] + shift[:, None] <= 0
    back, through = tl.where(off, 0.0, by_pooled) * factor[:, None], tl.where(off, 0.0, bent_pooled) * factor[:, None]
    along_back, along_rate = tl.sum(unit * back, axis=1) / pixels, tl.sum(unit * rate, axis=1) / pixels
    shared = tl.sum(back * rate, axis=1) / pixels - along_back * along_rate
    shared -= (tl.sum(back, axis=1) / pixels) * (tl.sum(rate, axis=1) / pixels)
    curved = along_rate[:, None] * back + along_back[:, None] * rate
    rest = tl.where(inside, through - scale[:, None] * curved, 0.0)
    mean, along = tl.sum(rest, axis=1) / pixels, tl.sum(unit * rest, axis=1) / pixels
    found = rest - mean[:, None] - unit * (along + scale * shared)[:, None]
    tl.store(by_maps + place, found * scale[:, None], mask=inside)
