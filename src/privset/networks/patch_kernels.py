"""The kernels behind `privset.networks.patches`, in Triton: what lies scattered in memory is put side by side, once.

Nothing is computed here but where a number comes from. Torch would do the same by padding, flipping and copying along
axes that it walks through slowly; these kernels read each number from where it lies and write in the order of memory.
Products that need no patches in memory are in `privset.networks.direct`.

A program looks at a few images, or at the weight of one network: what it writes for an image comes from that alone.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

TILE = 2**10
"""Numbers that one program moves at a time."""
MOST_COLUMNS = 2**7
"""Of such a tile, next to each other in memory."""
IMAGES = 4
"""That one program looks at, one after the other: where their numbers lie is found once for all of them."""


def fits(values: Tensor) -> bool:
    """Whether the kernels can take these numbers where they are; batches of `torch.func.vmap` they cannot."""
    return AVAILABLE and values.is_cuda and values.is_floating_point()


def patches(maps: Tensor, side: int, step: int) -> Tensor:
    """Maps ``[k, n, h, w, c]`` of any strides -> ``[k, n * h / step * w / step, side * side * c]``, with zeros around.

    As `privset.networks.patches.patches`, for each of k networks.
    """
    networks, images, height, width, channels = maps.shape
    high, wide, columns = -(-height // step), -(-width // step), side**2 * channels
    found = maps.new_empty(networks, images * high * wide, columns)
    if found.numel():
        across, places = _tile(columns, high * wide)
        tiles = triton.cdiv(high * wide, places)
        with torch.cuda.device_of(maps):
            _patches_kernel[(triton.cdiv(networks * images, IMAGES) * tiles,)](
                maps,
                found,
                networks * images,
                images,
                *maps.stride(),
                height=height,
                width=width,
                channels=channels,
                high=high,
                wide=wide,
                side=side,
                step=step,
                together=IMAGES,
                tiles=tiles,
                places=places,
                across=across,
                num_warps=8,  # a thread that moved more numbers would need too many registers to know where each lies
            )
    return found


def pixels(found: Tensor, images: int, high: int, wide: int, size: tuple[int, int]) -> Tensor:
    """What was found for 2 x 2 pixels of each place, ``[k, n * high * wide, 4 c]`` -> maps ``[k, n, h, w, c]``.

    Pixels outside maps of this size are left out; maps lie row by row, the channels of a pixel side by side.
    """
    networks, channels, (height, width) = len(found), found.shape[2] // 4, size
    maps = found.new_empty(networks, images, height, width, channels)
    if maps.numel():
        across, places = _tile(channels, height * width)
        tiles, parts = triton.cdiv(height * width, places), triton.cdiv(channels, across)
        with torch.cuda.device_of(found):
            _pixels_kernel[(networks * images * tiles * parts,)](
                found.contiguous(),
                maps,
                height=height,
                width=width,
                channels=channels,
                high=high,
                wide=wide,
                tiles=tiles,
                parts=parts,
                places=places,
                across=across,
                num_warps=4,
            )
    return maps


def lines(kernel: Tensor) -> Tensor:
    """Kernels ``[k, m, c, 5, 5]`` of any strides -> ``[k, m, 25 c]``, in the order of the columns of `patches`."""
    return _laid(kernel, kernel.new_empty(*kernel.shape[:2], 25 * kernel.shape[2]), apart=False)


def taps(kernel: Tensor) -> Tensor:
    """Kernels ``[k, m, c, 5, 5]`` of any strides -> what 3 x 3 places make of 2 x 2 pixels ``[k, 9 m, 4 c]``.

    As in `privset.networks.patches`: along an axis through taps 4, 2 and 0, and 5, 3 and 1; tap 5 is 0.
    """
    networks, outs, channels = kernel.shape[:3]
    return _laid(kernel, kernel.new_empty(networks, 9 * outs, 4 * channels), apart=True)


def _laid(kernel: Tensor, found: Tensor, *, apart: bool) -> Tensor:
    networks, outs, channels = kernel.shape[:3]
    if found.numel():
        across = min(32, triton.next_power_of_2(channels))
        parts = triton.cdiv(channels, across)
        with torch.cuda.device_of(kernel):
            _taps_kernel[(networks * outs * parts,)](
                kernel,
                found,
                *kernel.stride(),
                outs=outs,
                channels=channels,
                parts=parts,
                across=across,
                apart=apart,
                side=6 if apart else 5,
                taps=64 if apart else 32,
                num_warps=4,
            )
    return found


def _tile(columns: int, places: int) -> tuple[int, int]:
    """Columns and places of a tile; a card lets a program have powers of two."""
    across = min(MOST_COLUMNS, triton.next_power_of_2(columns))
    return across, min(TILE // across, triton.next_power_of_2(places))


@jit
def _patches_kernel(
    maps,
    found,
    count,
    images,
    network_stride,
    image_stride,
    row_stride,
    column_stride,
    channel_stride,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    side: tl.constexpr,
    step: tl.constexpr,
    together: tl.constexpr,
    tiles: tl.constexpr,
    places: tl.constexpr,
    across: tl.constexpr,
):
    """Some places of a few images, a tile of columns at a time: a column is a tap and, within it, a channel.

    Columns are the first axis of a tile: in doubt Triton has neighbouring threads read along that one.
    """
    columns: tl.constexpr = side * side * channels
    first = (tl.program_id(0) // tiles).to(tl.int64) * together
    place = tl.program_id(0) % tiles * places + tl.arange(0, places)
    top, left = place // wide * step - side // 2, place % wide * step - side // 2
    corner = top.to(tl.int64) * row_stride + left.to(tl.int64) * column_stride
    for start in range(0, columns, across):
        column = start + tl.arange(0, across)
        tap, channel = column // channels, column % channels
        down, right = tap // side, tap % side
        beside = down.to(tl.int64) * row_stride + right.to(tl.int64) * column_stride
        beside += channel.to(tl.int64) * channel_stride
        row, pixel = down[:, None] + top[None, :], right[:, None] + left[None, :]
        inside = (column < columns)[:, None] & (place < high * wide)[None, :]
        seen = inside & (row >= 0) & (row < height) & (pixel >= 0) & (pixel < width)
        come, go = beside[:, None] + corner[None, :], column[:, None] + place.to(tl.int64)[None, :] * columns
        for number in range(together):
            image = first + number
            if image < count:
                given = maps + image // images * network_stride + image % images * image_stride
                values = tl.load(given + come, mask=seen, other=0.0)
                tl.store(found + image * (high * wide * columns) + go, values, mask=inside)


@jit
def _pixels_kernel(
    found,
    maps,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    tiles: tl.constexpr,
    parts: tl.constexpr,
    places: tl.constexpr,
    across: tl.constexpr,
):
    """Some pixels of one image, and some of their channels."""
    image = (tl.program_id(0) // (tiles * parts)).to(tl.int64)
    pixel = tl.program_id(0) // parts % tiles * places + tl.arange(0, places)
    channel = tl.program_id(0) % parts * across + tl.arange(0, across)
    row, column = pixel // width, pixel % width
    place = row // 2 * wide + column // 2
    come = channel[:, None] + (place * 4 + row % 2 * 2 + column % 2).to(tl.int64)[None, :] * channels
    inside = (channel < channels)[:, None] & (pixel < height * width)[None, :]
    values = tl.load(found + image * (high * wide * 4 * channels) + come, mask=inside, other=0.0)
    go = channel[:, None] + pixel.to(tl.int64)[None, :] * channels
    tl.store(maps + image * (height * width * channels) + go, values, mask=inside)


@jit
def _taps_kernel(
    kernel,
    found,
    network_stride,
    out_stride,
    channel_stride,
    row_stride,
    column_stride,
    outs: tl.constexpr,
    channels: tl.constexpr,
    parts: tl.constexpr,
    across: tl.constexpr,
    apart: tl.constexpr,
    side: tl.constexpr,
    taps: tl.constexpr,
):
    """Some channels of what makes one map; if even and odd taps go ``apart``, from 6 x 6 of which there are 5 x 5."""
    network = (tl.program_id(0) // (outs * parts)).to(tl.int64)
    out = tl.program_id(0) // parts % outs
    channel = tl.program_id(0) % parts * across + tl.arange(0, across)
    tap = tl.arange(0, taps)
    row, column = tap // side, tap % side
    taken = (channel < channels)[:, None] & ((row < 5) & (column < 5))[None, :]
    come = channel.to(tl.int64)[:, None] * channel_stride
    come += (row.to(tl.int64) * row_stride + column.to(tl.int64) * column_stride)[None, :]
    given = kernel + network * network_stride + out.to(tl.int64) * out_stride
    values = tl.trans(tl.load(given + come, mask=taken, other=0.0))
    line = out * 25 + tap
    if apart:
        place, pixel = (2 - row // 2) * 3 + 2 - column // 2, row % 2 * 2 + column % 2
        line = (place * outs + out) * 4 + pixel
    inside = (tap < side * side)[:, None] & (channel < channels)[None, :]
    go = line[:, None] * channels + channel[None, :]
    tl.store(found + network * (side * side * outs * channels) + go, values, mask=inside)
