"""The kernels behind `privset.networks.direct`, in Triton: convolutions, and their gradients, of many networks.

A program looks at one network, whose number is the first thing it finds out: it reads the maps and weights of that one,
or those that all share, and writes a tile of its result. Whatever lies outside of a map, or of the channels there are,
is 0 on both sides of a product.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from privset.kernel_language import jit, tl


@jit
def gather_kernel(
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
def sum_kernel(
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
def corners_kernel(found, images, padded, height: tl.constexpr, width: tl.constexpr, size: tl.constexpr):
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
