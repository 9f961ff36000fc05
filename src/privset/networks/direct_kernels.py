"""The convolutions behind `privset.networks.patches` in Triton, without patches in memory: each tile gathers its own.

Patches repeat every number of a map six times. Where there are thousands of networks, writing them and reading them
again takes longer than the products; here a program reads what its tile of a product needs from the maps themselves.

A program looks at one network, whose number is the first thing it finds out: it reads the maps and weights of that one,
or those that all share, and writes a tile of its result. Whatever lies outside of a map, or of the channels there are,
is 0 on both sides of a product.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from privset.convolutions import channels_first
from privset.kernel_language import AVAILABLE, jit, tl, triton

TAPS = 25
FEWEST_NETWORKS = 16
"""With fewer there are too few tiles for all of a card; the library splits the sums of one product instead."""
MOST_JOINED = 32
"""Most channels of maps of which one program finds all 2 x 2 pixels at once. It reads slopes once for all of them, but
multiplies 36 taps, of which there are 25: of more channels, each of the four is found by itself, from its own taps."""
MOST_PIXELS = 2**22
"""Of all images of a network: they are counted in 32 bits, and a card's grid has an end."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """What one program finds.

    Args:
        along: Rows of a product.
        across: Its columns.
        deep: Terms of its sums that are taken at a time.
        warps: Of threads that share the work.
        stages: Of terms that are on their way from memory, and those multiplied.
    """

    along: int
    across: int
    deep: int
    warps: int
    stages: int = 3

    def launch(self) -> dict[str, int]:
        """By the names that kernels and Triton know them by."""
        shape = {"along": self.along, "across": self.across, "deep": self.deep}
        return shape | {"num_warps": self.warps, "num_stages": self.stages}


def fits(one: Tensor, other: Tensor, networks: int, pixels: int) -> bool:
    """Whether the kernels take these, and are worth it: on a card that may round to TF32, for many networks.

    Else the library's products of patches are faster; they have its precision.
    """
    return (
        AVAILABLE
        and one.is_cuda
        and one.dtype == other.dtype == torch.float32
        and _precision(one) == "tf32"
        and networks >= FEWEST_NETWORKS
        and pixels <= MOST_PIXELS
    )


def convolve(maps: Tensor, lines: Tensor) -> Tensor:
    """Maps ``[k, n, h, w, c]`` and lines ``[k, m, 25 c]`` -> maps ``[k, n, h / 2, w / 2, m]``, sides rounded up.

    Lines are those of `privset.networks.patch_kernels.lines`. What all networks share has a first axis of length 1.
    """
    height, width = maps.shape[2:4]
    return _gathered(maps, lines, ((height + 1) // 2, (width + 1) // 2), back=False)


def spread(slope: Tensor, lines: Tensor, size: tuple[int, int]) -> Tensor:
    """The gradient of `convolve` by maps of this size: slope ``[k, n, h / 2, w / 2, m]`` -> ``[k, n, h, w, c]``.

    Lines ``[k, c, 25 m]`` are those of the kernels with outs and channels exchanged.
    """
    if tuple((side + 1) // 2 for side in size) != slope.shape[2:4]:
        raise ValueError(f"slopes {list(slope.shape)} are not those of maps of {list(size)}")
    return _gathered(slope, lines, size, back=True)


def _gathered(maps: Tensor, lines: Tensor, size: tuple[int, int], *, back: bool) -> Tensor:
    """Maps of this size, of the first of two kernels below."""
    images, height, width, channels = maps.shape[1:]
    (tall, broad), outs = size, lines.shape[1]
    if lines.shape[2] != TAPS * channels:
        raise ValueError(f"lines {list(lines.shape)} are not for maps {list(maps.shape)}")
    networks, (maps, lines) = _together(maps, lines)
    found = maps.new_empty(networks, images, tall, broad, outs)
    if found.numel():
        joined = back and outs <= MOST_JOINED
        rows, columns = images * (height * width if back else tall * broad), 4 * outs if joined else outs
        tile = gathering_tile(rows, columns, channels)
        tiles, parts = triton.cdiv(rows, tile.along), triton.cdiv(columns, tile.across)
        kinds = 4 if back and not joined else 1
        with torch.cuda.device_of(maps):
            _gather_kernel[(networks * tiles * kinds * parts,)](
                maps,
                lines,
                found,
                images,
                _apart(maps) // channels,
                _apart(lines) // (TAPS * channels),
                height=height,
                width=width,
                channels=channels,
                tall=tall,
                broad=broad,
                outs=outs,
                back=back,
                joined=joined,
                tiles=tiles,
                kinds=kinds,
                parts=parts,
                precision=_precision(maps),
                **tile.launch(),
            )
    return found


def by_kernel(slope: Tensor, maps: Tensor) -> Tensor:
    """The gradient of `convolve` by the lines: slope ``[k, n, h / 2, w / 2, m]``, maps -> ``[k, m, 25 c]``."""
    images, height, width, channels = maps.shape[1:]
    high, wide, outs = (height + 1) // 2, (width + 1) // 2, slope.shape[4]
    if slope.shape[1:4] != (images, high, wide):
        raise ValueError(f"slopes {list(slope.shape)} are not those of maps {list(maps.shape)}")
    networks, (slope, maps) = _together(slope, maps)
    found = slope.new_empty(networks, outs, TAPS * channels)
    if found.numel():
        tile, rows = summing_tile(TAPS * channels, outs), images * high * wide
        padded = triton.cdiv(rows, tile.deep) * tile.deep
        tiles, parts = triton.cdiv(TAPS * channels, tile.along), triton.cdiv(outs, tile.across)
        with torch.cuda.device_of(slope):
            _sum_kernel[(networks * tiles * parts,)](
                channels_first(slope.flatten(1, 3).mT[..., None]),
                maps,
                _corners(maps, padded),
                found,
                _apart(slope) // rows if rows else 0,
                _apart(maps) // channels,
                rows=rows,
                padded=padded,
                width=width,
                channels=channels,
                outs=outs,
                tiles=tiles,
                parts=parts,
                even=math.gcd(channels, 4),
                precision=_precision(slope),
                **tile.launch(),
            )
    return found


def _corners(maps: Tensor, padded: int) -> Tensor:
    """For each place of the images of maps ``[k, n, h, w, c]`` the corner pixel it sees, and which it sees of 5 x 5.

    ``[2, padded]``: places that there are not see none. Else every program would have to find that out again.
    """
    images, height, width = maps.shape[1:4]
    found = maps.new_empty(2, padded, dtype=torch.int32)
    if padded:
        _corners_kernel[(triton.cdiv(padded, 2**10),)](
            found, images, padded, height=height, width=width, size=2**10, num_warps=4
        )
    return found


def gathering_tile(rows: int, columns: int, channels: int) -> Tile:
    """Of a product of so many rows and columns, whose terms are the channels of one tap after the other."""
    across = min(128, max(16, triton.next_power_of_2(columns)))
    along = min(128, max(16, triton.next_power_of_2(rows)))
    # Terms that are not there are multiplied too: of 42 channels, 48 are better than 64.
    deep = 32 if -channels % 32 < 16 else 16
    return Tile(along, across, deep, warps=8 if along * across >= 2**14 else 4)


def summing_tile(columns: int, outs: int) -> Tile:
    """Of a product of so many columns of patches and outs, whose terms are places of images."""
    along, across = (min(128, max(16, triton.next_power_of_2(count))) for count in (columns, outs))
    # More stages: where pixels lie is on its way before they are.
    return Tile(along, across, 32, warps=8 if along * across >= 2**14 else 4, stages=5)


def _together(*given: Tensor) -> tuple[int, list[Tensor]]:
    """How many networks there are in tensors of all or of one that they share; and these, as they are read.

    Raises:
        ValueError: They have different numbers of networks; a kernel would read what belongs to none.
    """
    if any(values.ndim > 3 and values.shape[1:4].numel() > MOST_PIXELS for values in given):
        raise ValueError(f"maps of more than {MOST_PIXELS} pixels do not fit a network")
    counts = {len(values) for values in given} - {1}
    if len(counts) > 1:
        raise ValueError(f"tensors of {sorted(counts)} networks do not go together")
    return counts.pop() if counts else 1, [values.contiguous() for values in given]


def _apart(values: Tensor) -> int:
    """From one network's values to the next; what is shared is read again by each."""
    return values[0].numel() if len(values) > 1 else 0


def _precision(values: Tensor) -> Any:
    """That of the library's products: TF32 where float32 may be rounded to it."""
    exact = values.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"


@jit
def _gather_kernel(
    maps,
    lines,
    found,
    images,
    maps_apart,
    lines_apart,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    outs: tl.constexpr,
    back: tl.constexpr,
    joined: tl.constexpr,
    tiles: tl.constexpr,
    kinds: tl.constexpr,
    parts: tl.constexpr,
    precision: tl.constexpr,
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
):
    """Some places of all images of a network, and some of the maps made there.

    A place looks at a square of pixels of the maps given, through one tap of the lines each. On the way ``back`` these
    maps are slopes at places, and what is made are pixels: even or odd in either direction, which are four kinds, each
    with taps of its own; if ``joined``, all four are columns beside each other.
    """
    network = (tl.program_id(0) // (tiles * kinds * parts)).to(tl.int64)
    within = tl.program_id(0) % (tiles * kinds * parts)
    column = within % parts * across + tl.arange(0, across)
    kind, first = within // parts % kinds, within // (parts * kinds) * along
    # In pixels and lines: that all of a pixel is read from an even place is known from its channels.
    own, weights = maps + network * maps_apart * channels, lines + network * lines_apart * (25 * channels)
    made = found + network * images * (tall * broad * outs)
    half: tl.constexpr = 2 if back else 1
    for each in tl.static_range(kinds):  # by itself, so that how many taps it has is known beforehand
        rows = images * ((tall + half - 1 - each // 2) // half) * ((broad + half - 1 - each % 2) // half)
        if (kind == each) & (first < rows):  # of odd pixels there may be fewer
            _gather(
                own,
                weights,
                made,
                images,
                first,
                column,
                each // 2,
                each % 2,
                height,
                width,
                channels,
                tall,
                broad,
                outs,
                back,
                joined,
                precision,
                along,
                across,
                deep,
            )


@jit
def _gather(
    maps,
    lines,
    found,
    images,
    first,
    column,
    down_odd: tl.constexpr,
    right_odd: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    outs: tl.constexpr,
    back: tl.constexpr,
    joined: tl.constexpr,
    precision: tl.constexpr,
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
):
    """One kind of these pixels, from the maps and lines of one network; odd ones have a place and a tap less."""
    step: tl.constexpr = 1 if back else 2
    before: tl.constexpr = 1 if back else 2
    # Of a side of 1 there are no odd pixels, and no program comes here; but nothing is divided by 0.
    high: tl.constexpr = (tall + 1 - down_odd) // 2 if back and tall > 1 else tall
    wide: tl.constexpr = (broad + 1 - right_odd) // 2 if back and broad > 1 else broad
    taps_high: tl.constexpr = 3 - down_odd if back else 5
    taps_wide: tl.constexpr = 3 - right_odd if back else 5
    blocks: tl.constexpr = (channels + deep - 1) // deep
    row = first + tl.arange(0, along)
    exists, line = row < images * (high * wide), row // wide
    image, y, x = line // high, line % high, row % wide
    top, left = y * step - before + down_odd, x * step - before + right_odd
    sights = tl.where(exists, _sights(top, left, height, width), 0)
    out, down_second, right_second, taken = column, column * 0 + down_odd, column * 0 + right_odd, column < outs
    if joined:
        out, down_second, right_second = column % outs, column // outs // 2, column // outs % 2
        taken = column < 4 * outs
    come = maps + ((image * height + top) * width + left).to(tl.int64) * channels
    weights = lines + out * (25 * channels)
    total = tl.zeros((along, across), dtype=found.dtype.element_ty)
    for term in range(taps_high * taps_wide * blocks):
        tap, channel = term // blocks, term % blocks * deep + tl.arange(0, deep)
        down, right = tap // taps_wide, tap % taps_wide
        seen = (sights >> (down * 5 + right)) & 1 != 0
        known, through = taken, column * 0 + tap
        if back:
            tap_down, tap_right = down_second + 4 - 2 * (down + down_odd), right_second + 4 - 2 * (right + right_odd)
            known, through = taken & (tap_down < 5) & (tap_right < 5), tap_down * 5 + tap_right
        shown_mask, weight_mask = seen[:, None], known[None, :]
        if channels % deep != 0:
            shown_mask, weight_mask = (
                shown_mask & (channel < channels)[None, :],
                weight_mask & (channel < channels)[:, None],
            )
        from_maps = come[:, None] + ((down * width + right) * channels + channel)[None, :]
        shown = tl.load(from_maps, mask=shown_mask, other=0.0)
        weight = tl.load((weights + through * channels)[None, :] + channel[:, None], mask=weight_mask, other=0.0)
        total = tl.dot(shown, weight, total, input_precision=precision, out_dtype=found.dtype.element_ty)
    inside, pixel = exists[:, None] & taken[None, :], (image * tall + y) * broad + x
    if back:
        inside &= (2 * y[:, None] + down_second[None, :] < tall) & (2 * x[:, None] + right_second[None, :] < broad)
        pixel = (image * tall + 2 * y) * broad + 2 * x
        out = (down_second * broad + right_second) * outs + out
    tl.store(found + pixel.to(tl.int64)[:, None] * outs + out[None, :], total, mask=inside)


@jit
def _sum_kernel(
    slope,
    maps,
    corners,
    found,
    slope_apart,
    maps_apart,
    rows: tl.constexpr,
    padded: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    outs: tl.constexpr,
    tiles: tl.constexpr,
    parts: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
):
    """Some columns of some lines of a network: a column is a tap and, within it, a channel.

    Hopper's matrix units take numbers with the terms of a sum side by side in memory, or from registers. Slopes lie so,
    ``[m, rows]``; pixels are put into registers by doing something with them: they change their sign, and sums do.
    """
    columns: tl.constexpr = 25 * channels
    network = (tl.program_id(0) // (tiles * parts)).to(tl.int64)
    column = tl.program_id(0) // parts % tiles * along + tl.arange(0, along)
    out = tl.program_id(0) % parts * across + tl.arange(0, across)
    tap, channel = tl.minimum(column // channels, 25)[:, None], (column % channels)[:, None]  # 25: that is never seen
    # Numbers that are read at once are channels of one tap, which is seen or not.
    beside = (tap // 5 * width + tap % 5) * channels + channel
    beside = tl.max_contiguous(tl.multiple_of(beside, [even, 1]), [even, 1])
    given = maps + network * maps_apart * channels
    slopes = slope + (network * slope_apart + out)[None, :] * rows
    total = tl.zeros((along, across), dtype=found.dtype.element_ty)
    for start in range(0, padded, deep):
        row = start + tl.arange(0, deep)
        pixel, sights = tl.load(corners + row).to(tl.int64), tl.load(corners + padded + row)
        seen = (sights[None, :] >> tap) & 1 != 0
        seen = tl.max_constancy(seen, [even, 1])
        shown = tl.load(given + ((pixel * channels)[None, :] + beside), mask=seen, other=0.0)
        taken = (row < rows)[:, None] & (out < outs)[None, :] if rows < padded else (out < outs)[None, :]
        by = tl.load(slopes + row[:, None], mask=taken, other=0.0)
        total = tl.dot(-shown, by, total, input_precision=precision, out_dtype=found.dtype.element_ty)
    go, inside = out[None, :] * columns + column[:, None], (out < outs)[None, :] & (column < columns)[:, None]
    tl.store(found + network * (outs * columns) + go, -total, mask=inside)


@jit
def _corners_kernel(found, images, padded, height: tl.constexpr, width: tl.constexpr, size: tl.constexpr):
    """Some places."""
    high: tl.constexpr = (height + 1) // 2
    wide: tl.constexpr = (width + 1) // 2
    row = tl.program_id(0) * size + tl.arange(0, size)
    line = row // wide
    image, top, left = line // high, line % high * 2 - 2, row % wide * 2 - 2
    sights = tl.where(image < images, _sights(top, left, height, width), 0)
    tl.store(found + row, (image * height + top) * width + left, mask=row < padded)
    tl.store(found + padded + row, sights, mask=row < padded)


@jit
def _sights(top, left, height: tl.constexpr, width: tl.constexpr):
    """Which of 5 x 5 pixels from these corners on lie within maps, as bits: that of row i and column j is 5 i + j."""
    down, right = _within(top, height), _within(left, width)
    apart = (down & 1) | ((down & 2) << 4) | ((down & 4) << 8) | ((down & 8) << 12) | ((down & 16) << 16)
    return apart * right


@jit
def _within(first, side: tl.constexpr):
    """Which of 5 numbers from these on are at least 0 and below a side, as bits."""
    return (31 >> tl.maximum(5 - side + first, 0)) & (31 << tl.maximum(-first, 0))
