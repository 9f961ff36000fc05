"""Batch norm and a leaky ReLU by a few kernels, in Triton, of maps that lie channels last.

Every map of a batch is spread over the whole card: each program sums up a few rows, others put those sums together,
and then each program norms its rows.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

TILE = 4096
"""Numbers that a program holds."""
WIDEST = 1024
"""Most channels."""
MOST = 2**24
"""Most numbers: those that sum up the sums hold one of each program."""
BESIDE = 4
"""Channels whose sums a program puts together."""


def fits(maps: Tensor) -> bool:
    """Whether the kernels can take maps ``[n, c, h, w]``; of a single number there is no variance."""
    few = maps.shape[1] <= WIDEST and maps.shape[1] < maps.numel() <= MOST
    return AVAILABLE and maps.is_cuda and maps.dtype in (torch.bfloat16, torch.float32) and few


def norm_leaky(
    maps: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    *,
    momentum: float,
    eps: float,
    leak: float,
) -> tuple[Tensor, Tensor]:
    """Maps ``[n, c, h, w]``, scales and shifts ``[c]`` -> maps, normed and bent at 0; means and variances ``[2, c]``.

    The variance is that of the batch itself. What runs along, in place, is an estimate of that of all there could be.
    """
    maps = _laid(maps)
    found, moments, form = torch.empty_like(maps), weight.new_empty(2, len(weight)), _form(maps)
    running = (running_mean, running_variance)
    with torch.cuda.device_of(maps):
        sums = _sums(maps)
        _sums_kernel[(len(sums),)](maps, sums, **form)
        total = _together(sums)
        constants = {"momentum": momentum, "eps": eps, "leak": leak}
        _norm_kernel[(len(sums),)](maps, weight, bias, total, found, moments, *running, **constants, **form)
    return found, moments


def slopes(
    slope: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, moments: Tensor, *, eps: float, leak: float
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by what `norm_leaky` gives, those by maps, scales and shifts."""
    maps, slope = _laid(maps), _laid(slope)
    by_maps, by_affine, form = torch.empty_like(maps), weight.new_empty(2, len(weight)), _form(maps)
    given, constants = (slope, maps, weight, bias, moments), {"eps": eps, "leak": leak}
    with torch.cuda.device_of(maps):
        sums = _sums(maps)
        _slope_sums_kernel[(len(sums),)](*given, sums, **constants, **form)
        total = _together(sums)
        _slopes_kernel[(len(sums),)](*given, total, by_maps, by_affine, **constants, **form)
    return by_maps, by_affine[0], by_affine[1]


def _laid(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def _form(maps: Tensor) -> dict[str, int]:
    channels = maps.shape[1]
    wide = triton.next_power_of_2(channels)
    rows, high = maps.numel() // channels, max(1, TILE // wide)
    return {"rows": rows, "channels": channels, "wide": wide, "high": high, "num_warps": 8}


def _sums(maps: Tensor) -> Tensor:
    """Where each program leaves two sums for each channel."""
    form = _form(maps)
    shape = triton.cdiv(form["rows"], form["high"]), 2 * form["wide"]
    return torch.empty(shape, device=maps.device)


def _together(sums: Tensor) -> Tensor:
    """The sums of all programs ``[programs, n]`` -> ``[n]``."""
    total, (programs, count) = sums.new_empty(sums.shape[1]), sums.shape
    _together_kernel[(triton.cdiv(count, BESIDE),)](
        sums,
        total,
        programs=programs,
        count=count,
        high=triton.next_power_of_2(programs),
        beside=BESIDE,
        num_warps=4,
    )
    return total


@jit
def _together_kernel(sums, total, programs, count: tl.constexpr, high: tl.constexpr, beside: tl.constexpr):
    program, column = tl.arange(0, high), tl.program_id(0) * beside + tl.arange(0, beside)
    inside = (program < programs)[:, None] & (column < count)[None, :]
    values = tl.load(sums + program[:, None] * count + column[None, :], mask=inside, other=0.0)
    tl.store(total + column, tl.sum(values, axis=0), mask=column < count)


@jit
def _sums_kernel(maps, sums, rows, channels: tl.constexpr, wide: tl.constexpr, high: tl.constexpr):
    """Of how far numbers lie from the first one of their channel, and of the squares: no digits are lost to a mean."""
    channel, real, inside, place = _places(rows, channels, wide, high)
    first, values = _read(maps, channel, real), _read(maps, place, inside)
    apart = tl.where(inside, values - first[None, :], 0.0)
    _leave(sums, tl.sum(apart, axis=0), tl.sum(apart * apart, axis=0), wide)


@jit
def _norm_kernel(
    maps,
    weight,
    bias,
    total,
    found,
    moments,
    running_mean,
    running_variance,
    rows,
    momentum: tl.constexpr,
    eps: tl.constexpr,
    leak: tl.constexpr,
    channels: tl.constexpr,
    wide: tl.constexpr,
    high: tl.constexpr,
):
    channel, real, inside, place = _places(rows, channels, wide, high)
    values, first = _read(maps, place, inside), _read(maps, channel, real)
    apart, squares = tl.load(total + channel) / rows, tl.load(total + wide + channel) / rows
    mean, variance = first + apart, tl.maximum(squares - apart * apart, 0.0)
    if tl.program_id(0) == 0:
        tl.store(moments + channel, mean, mask=real)
        tl.store(moments + channels + channel, variance, mask=real)
        before = tl.load(running_mean + channel, mask=real, other=0.0)
        tl.store(running_mean + channel, before + momentum * (mean - before), mask=real)
        before, guess = tl.load(running_variance + channel, mask=real, other=0.0), variance * rows / (rows - 1)
        tl.store(running_variance + channel, before + momentum * (guess - before), mask=real)
    scale = tl.load(weight + channel, mask=real, other=0.0) / tl.sqrt(variance + eps)
    shift = tl.load(bias + channel, mask=real, other=0.0)
    values = (values - mean[None, :]) * scale[None, :] + shift[None, :]
    tl.store(found + place, tl.where(values > 0, values, leak * values), mask=inside)


@jit
def _slope_sums_kernel(
    slope,
    maps,
    weight,
    bias,
    moments,
    sums,
    rows,
    eps: tl.constexpr,
    leak: tl.constexpr,
    channels: tl.constexpr,
    wide: tl.constexpr,
    high: tl.constexpr,
):
    channel, real, inside, place = _places(rows, channels, wide, high)
    by_normed, normed, _ = _before(
        slope, maps, weight, bias, moments, channel, real, inside, place, eps, leak, channels
    )
    _leave(sums, tl.sum(by_normed * normed, axis=0), tl.sum(by_normed, axis=0), wide)


@jit
def _slopes_kernel(
    slope,
    maps,
    weight,
    bias,
    moments,
    total,
    by_maps,
    by_affine,
    rows,
    eps: tl.constexpr,
    leak: tl.constexpr,
    channels: tl.constexpr,
    wide: tl.constexpr,
    high: tl.constexpr,
):
    channel, real, inside, place = _places(rows, channels, wide, high)
    by_normed, normed, steep = _before(
        slope, maps, weight, bias, moments, channel, real, inside, place, eps, leak, channels
    )
    by_weight, by_bias = tl.load(total + channel), tl.load(total + wide + channel)
    if tl.program_id(0) == 0:
        tl.store(by_affine + channel, by_weight, mask=real)
        tl.store(by_affine + channels + channel, by_bias, mask=real)
    found = by_normed - (by_bias / rows)[None, :] - normed * (by_weight / rows)[None, :]
    tl.store(by_maps + place, found * steep[None, :], mask=inside)


@jit
def _places(rows, channels: tl.constexpr, wide: tl.constexpr, high: tl.constexpr):
    channel, row = tl.arange(0, wide), tl.program_id(0) * high + tl.arange(0, high)
    real = channel < channels
    return channel, real, (row < rows)[:, None] & real[None, :], row[:, None] * channels + channel[None, :]


@jit
def _before(
    slope,
    maps,
    weight,
    bias,
    moments,
    channel,
    real,
    inside,
    place,
    eps: tl.constexpr,
    leak: tl.constexpr,
    channels: tl.constexpr,
):
    """The slope by what was normed, that itself, and how fast it changes with the maps."""
    values, by_normed = _read(maps, place, inside), _read(slope, place, inside)
    mean = tl.load(moments + channel, mask=real, other=0.0)
    sharp = 1 / tl.sqrt(tl.load(moments + channels + channel, mask=real, other=1.0) + eps)
    scale, shift = tl.load(weight + channel, mask=real, other=0.0), tl.load(bias + channel, mask=real, other=0.0)
    normed = tl.where(inside, (values - mean[None, :]) * sharp[None, :], 0.0)
    by_normed = tl.where(normed * scale[None, :] + shift[None, :] > 0, by_normed, leak * by_normed)
    return by_normed, normed, sharp * scale


@jit
def _read(values, place, inside):
    """Numbers to compute with: half as many bits are enough to lie in memory with."""
    return tl.load(values + place, mask=inside, other=0.0).to(tl.float32)


@jit
def _leave(sums, first, second, wide: tl.constexpr):
    place = sums + tl.program_id(0) * 2 * wide + tl.arange(0, wide)
    tl.store(place, first)
    tl.store(place + wide, second)
