"""Optimal transport of few images by three kernels on a graphics card, where torch starts hundreds of small ones.

What each image costs to move to each other, the plan that is cheapest, and how its cost changes with the images.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import functools

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

MOST = 128
"""Images on each side whose costs one program can hold."""
SQUARE = 64
"""Others whose costs it holds side by side; more are held in two halves."""
BESIDE = 16
"""Others that a program compares an image with together."""


def fits(images: Tensor, others: Tensor) -> bool:
    """Whether the kernels can be used for images ``[n, d]`` and ``[k, d]``, where they are."""
    return AVAILABLE and images.is_cuda and small(images, others)


def small(images: Tensor, others: Tensor) -> bool:
    """Whether one program can hold all costs."""
    return images.dtype == others.dtype == torch.float32 and max(len(images), len(others)) <= MOST


def costs(
    images: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor, *, l1_weight: float, other_label: float
) -> tuple[Tensor, Tensor]:
    """As `privset.methods.transport.Transport.costs`, of ``[n, d]`` and ``[k, d]``: ``[n, k]``, and turned ``[k, n]``.

    They are sums over differences, not over products.
    """
    found, turned = images.new_empty(len(images), len(others)), images.new_empty(len(others), len(images))
    with torch.cuda.device_of(images):
        _costs_kernel[(len(images), triton.cdiv(len(others), BESIDE))](
            images.contiguous(),
            labels.contiguous(),
            others.contiguous(),
            other_labels.contiguous(),
            found,
            turned,
            rows=len(images),
            columns=len(others),
            pixels=images.shape[1],
            l1_weight=l1_weight,
            other_label=other_label,
            beside=BESIDE,
            deep=256,
            num_warps=4,
        )
    return found, turned


def plans(
    costs: Tensor, turned: Tensor, other_weights: Tensor | None, temperatures: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """The cheapest way to move images, all of one weight, to others, at the last temperature.

    Args:
        costs: Of moving each to each, ``[n, k]``.
        turned: The same once more ``[k, n]``.
        other_weights: Of the others, ``[k]``; None if theirs are all one, too. If all are 0, nothing found is finite.
        temperatures: That are gone through.

    Returns:
        How much of the weight of each image goes where, and of each other one, both ``[n, k]``.
    """
    if max(costs.shape) > MOST:
        raise ValueError(f"one program holds the costs of {MOST} images and as many others, not {tuple(costs.shape)}")
    (rows, columns), (high, wide, halves) = costs.shape, _held(*costs.shape)
    costs, turned = costs.contiguous(), turned.contiguous()
    there, back = torch.empty_like(costs), torch.empty_like(costs)
    with torch.cuda.device_of(costs):
        _plans_kernel[(1,)](
            costs,
            turned,
            costs if other_weights is None else other_weights.contiguous(),  # which is not read then
            there,
            back,
            _on_device(temperatures, costs.device),
            rows=rows,
            columns=columns,
            weighted=other_weights is not None,
            steps=len(temperatures),
            high=high,
            wide=wide,
            halves=halves,
            num_warps=min(32, max(4, high * wide // 128)),
        )
    return there, back


def slopes(images: Tensor, others: Tensor, plan: Tensor, *, l1_weight: float) -> Tensor:
    """How the cost of moving images ``[n, d]`` to others ``[k, d]`` by a plan ``[n, k]`` changes with the images."""
    found = torch.empty_like(images, memory_format=torch.contiguous_format)
    deep = 128
    with torch.cuda.device_of(images):
        _slopes_kernel[(len(images), triton.cdiv(images.shape[1], deep))](
            images.contiguous(),
            others.contiguous(),
            plan,
            found,
            *plan.stride(),
            columns=len(others),
            pixels=images.shape[1],
            l1_weight=l1_weight,
            beside=BESIDE,
            deep=deep,
            num_warps=4,
        )
    return found


@functools.cache
def _on_device(temperatures: tuple[float, ...], device: torch.device) -> Tensor:
    """Made once, and never freed: what is sent while a step is being recorded could not be played back."""
    return torch.tensor(temperatures, device=device)


def _held(rows: int, columns: int) -> tuple[int, int, int]:
    """Rows and columns of the tiles that costs are held in, and how many of these are beside each other."""
    high, wide = (max(16, triton.next_power_of_2(side)) for side in (rows, columns))
    return high, min(wide, SQUARE), max(1, wide // SQUARE)


@jit
def _costs_kernel(
    images,
    labels,
    others,
    other_labels,
    costs,
    turned,
    rows: tl.constexpr,
    columns: tl.constexpr,
    pixels: tl.constexpr,
    l1_weight: tl.constexpr,
    other_label: tl.constexpr,
    beside: tl.constexpr,
    deep: tl.constexpr,
):
    row, column = tl.program_id(0), tl.program_id(1) * beside + tl.arange(0, beside)
    total = tl.zeros([beside], dtype=tl.float32)
    for start in range(0, pixels, deep):
        place = start + tl.arange(0, deep)
        image = tl.load(images + row * pixels + place, mask=place < pixels, other=0.0)
        inside = (column < columns)[:, None] & (place < pixels)[None, :]
        apart = image[None, :] - tl.load(others + column[:, None] * pixels + place[None, :], mask=inside, other=0.0)
        total += tl.sum(apart * apart + l1_weight * tl.abs(apart), axis=1)
    differ = tl.load(labels + row) != tl.load(other_labels + column, mask=column < columns, other=0)
    total += tl.where(differ, other_label, 0.0)
    tl.store(costs + row * columns + column, total, mask=column < columns)
    tl.store(turned + column * rows + row, total, mask=column < columns)


@jit
def _plans_kernel(
    costs,
    turned_costs,
    other_weights,
    there,
    back,
    temperatures,
    rows: tl.constexpr,
    columns: tl.constexpr,
    weighted: tl.constexpr,
    steps: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    halves: tl.constexpr,
):
    """Weights of what lies outside are 0, so that it counts for nothing; what is found for it is not kept.

    The costs are held twice, once turned, so that a tile is always summed up along its last axis, which mostly lies
    within a warp; and, of many others, in two halves: square tiles are summed up several times as fast as wide ones.
    """
    row, column = tl.arange(0, high), tl.arange(0, wide)
    cost, turned = _held_costs(costs, turned_costs, row, column, rows, columns)
    weight, other_weight = tl.where(row < rows, 1.0 / rows, 0.0), _weights(other_weights, column, columns, weighted)
    log, other_log = _log(weight), _log(other_weight)
    # The other half; where there is none, the first again, which is not looked at.
    more = column + wide * (halves - 1)
    more_cost, more_turned = _held_costs(costs, turned_costs, row, more, rows, columns)
    more_weight = _weights(other_weights, more, columns, weighted)
    more_log = _log(more_weight)
    warmth = tl.load(temperatures)
    potential, _, _ = _softmin(cost, more_cost, other_log, more_log, warmth, halves)
    other, _, _ = _softmin(turned, turned, log, log, warmth, 1)
    more_other, _, _ = _softmin(more_turned, more_turned, log, log, warmth, 1)
    for step in range(steps):
        warmth = tl.load(temperatures + step)
        logs, more_logs = other_log + other / warmth, more_log + more_other / warmth
        new, _, _ = _softmin(cost, more_cost, logs, more_logs, warmth, halves)
        logs = log + potential / warmth
        other_new, _, _ = _softmin(turned, turned, logs, logs, warmth, 1)
        potential, other = (potential + new) / 2, (other + other_new) / 2
        if halves == 2:
            more_new, _, _ = _softmin(more_turned, more_turned, logs, logs, warmth, 1)
            more_other = (more_other + more_new) / 2
    logs, more_logs = other_log + other / warmth, more_log + more_other / warmth
    _, shares, more_shares = _softmin(cost, more_cost, logs, more_logs, warmth, halves)
    _keep(there, weight[:, None] * shares, row[:, None], column[None, :], rows, columns)
    logs = log + potential / warmth
    _, shares, _ = _softmin(turned, turned, logs, logs, warmth, 1)
    _keep(back, other_weight[:, None] * shares, row[None, :], column[:, None], rows, columns)
    if halves == 2:
        _keep(there, weight[:, None] * more_shares, row[:, None], more[None, :], rows, columns)
        _, shares, _ = _softmin(more_turned, more_turned, logs, logs, warmth, 1)
        _keep(back, more_weight[:, None] * shares, row[None, :], more[:, None], rows, columns)


@jit
def _held_costs(costs, turned, row, column, rows: tl.constexpr, columns: tl.constexpr):
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    turned_inside = (column < columns)[:, None] & (row < rows)[None, :]
    held = tl.load(costs + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    return held, tl.load(turned + column[:, None] * rows + row[None, :], mask=turned_inside, other=0.0)


@jit
def _weights(weights, column, columns: tl.constexpr, weighted: tl.constexpr):
    found = tl.where(column < columns, 1.0 / columns, 0.0)
    if weighted:
        found = tl.load(weights + column, mask=column < columns, other=0.0)
    return found


@jit
def _keep(plan, values, row, column, rows: tl.constexpr, columns: tl.constexpr):
    tl.store(plan + row * columns + column, values, mask=(row < rows) & (column < columns))


@jit
def _log(weight):
    return tl.where(weight > 0, tl.log(tl.where(weight > 0, weight, 1.0)), float("-inf"))


@jit
def _softmin(cost, more_cost, logs, more_logs, warmth, halves: tl.constexpr):
    """The smooth minimum of each row, of one tile or of two beside each other, and the share of each cost in it."""
    cold = 1.0 / warmth  # one division for all of them
    values = logs[None, :] - cost * cold
    largest, more = tl.max(values, axis=1), values
    if halves == 2:
        more = more_logs[None, :] - more_cost * cold
        largest = tl.maximum(largest, tl.max(more, axis=1))
        more = tl.exp(more - largest[:, None])
    values = tl.exp(values - largest[:, None])
    total = tl.sum(values, axis=1)
    if halves == 2:
        total += tl.sum(more, axis=1)
    return -warmth * (largest + tl.log(total)), values / total[:, None], more / total[:, None]


@jit
def _slopes_kernel(
    images,
    others,
    plan,
    slopes,
    row_stride,
    column_stride,
    columns: tl.constexpr,
    pixels: tl.constexpr,
    l1_weight: tl.constexpr,
    beside: tl.constexpr,
    deep: tl.constexpr,
):
    row, place = tl.program_id(0), tl.program_id(1) * deep + tl.arange(0, deep)
    image = tl.load(images + row * pixels + place, mask=place < pixels, other=0.0)
    found = tl.zeros([deep], dtype=tl.float32)
    for start in range(0, columns, beside):
        column = start + tl.arange(0, beside)
        inside = (column < columns)[:, None] & (place < pixels)[None, :]
        apart = image[None, :] - tl.load(others + column[:, None] * pixels + place[None, :], mask=inside, other=0.0)
        weight = tl.load(plan + row * row_stride + column * column_stride, mask=column < columns, other=0.0)
        sign = tl.where(apart > 0, 1.0, 0.0) - tl.where(apart < 0, 1.0, 0.0)
        found += tl.sum(weight[:, None] * (2 * apart + l1_weight * sign), axis=0)
    tl.store(slopes + row * pixels + place, found, mask=place < pixels)
