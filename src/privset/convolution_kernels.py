"""The kernels behind `privset.convolutions`, in Triton; a program looks at one image alone."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from privset.kernel_language import jit, tl


@jit
def turn_kernel(given, found, rows, columns, size: tl.constexpr):
    """Some rows and columns of one image's table, the other way round."""
    table = tl.program_id(0).to(tl.int64) * rows * columns
    row = tl.program_id(1) * size + tl.arange(0, size)
    column = tl.program_id(2) * size + tl.arange(0, size)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(given + table + row[:, None] * columns + column[None, :], mask=inside)
    at = found + table + column[:, None] * rows + row[None, :]
    tl.store(at, tl.trans(values), mask=(column < columns)[:, None] & (row < rows)[None, :])


@jit
def convolve_kernel(
    given,
    weight,
    found,
    count,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_high: tl.constexpr,
    kernel_wide: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    outs: tl.constexpr,
    places: tl.constexpr,
):
    """Some places of some maps of one image."""
    record = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * places + tl.arange(0, places)
    out = tl.program_id(2) * outs + tl.arange(0, outs)
    values = tl.zeros([outs, places], dtype=tl.float32)
    for line in tl.static_range(channels * kernel_high * kernel_wide):
        row = place // wide * down + line % (kernel_high * kernel_wide) // kernel_wide - above
        column = place % wide * right + line % kernel_wide - before
        inside = (place < high * wide) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        pixel = (record * channels + line // (kernel_high * kernel_wide)) * (height * width) + row * width + column
        shown = tl.load(given + pixel, mask=inside, other=0.0)
        factor = tl.load(weight + out * (channels * kernel_high * kernel_wide) + line, mask=out < count, other=0.0)
        values += factor[:, None] * shown[None, :]
    at = (record * count + out[:, None]) * (high * wide) + place[None, :]
    tl.store(found + at, values, mask=(out < count)[:, None] & (place < high * wide)[None, :])


@jit
def products_kernel(
    slope,
    given,
    rows,
    squares,
    outs: tl.constexpr,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_high: tl.constexpr,
    kernel_wide: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
):
    """A tile of one image's gradient, of maps whose pixels lie side by side."""
    columns: tl.constexpr = kernel_high * kernel_wide * channels
    record, out, column = _tile(outs, columns, along, across)
    channel, tap = column % channels, column // channels
    found = tl.zeros([along, across], dtype=tl.float32)
    for start in range(0, high * wide, deep):
        place = start + tl.arange(0, deep)
        row = (place // wide * down - above)[None, :] + (tap // kernel_wide)[:, None]
        left = (place % wide * right - before)[None, :] + (tap % kernel_wide)[:, None]
        seen = (place < high * wide)[None, :] & (column < columns)[:, None]
        seen = seen & (row >= 0) & (row < height) & (left >= 0) & (left < width)
        pixel = channel[:, None] * (height * width) + row * width + left
        shown = tl.load(given + record * (channels * height * width) + pixel, mask=seen, other=0.0)
        at = (record * outs + out[:, None]) * (high * wide) + place[None, :]
        by = tl.load(slope + at, mask=(out < outs)[:, None] & (place < high * wide)[None, :], other=0.0)
        found = tl.dot(by, tl.trans(shown.to(by.dtype)), found, input_precision="tf32x3")
    _keep(found, record, out, column, rows, squares, outs, columns)


@jit
def tap_products_kernel(
    slope,
    given,
    rows,
    squares,
    outs: tl.constexpr,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    high: tl.constexpr,
    wide: tl.constexpr,
    kernel_high: tl.constexpr,
    kernel_wide: tl.constexpr,
    down: tl.constexpr,
    right: tl.constexpr,
    above: tl.constexpr,
    before: tl.constexpr,
    along: tl.constexpr,
    across: tl.constexpr,
    deep: tl.constexpr,
):
    """The same of maps whose channels lie side by side, where all columns of a tile belong to one pixel of the kernel.

    So what is read lies in lines of many channels, and whether a line is seen is one question.
    """
    columns: tl.constexpr = kernel_high * kernel_wide * channels
    record, out, column = _tile(outs, columns, along, across)
    parts: tl.constexpr = channels // across
    part = tl.program_id(0) % (columns // across)
    tap, channel = part // parts, part % parts * across + tl.arange(0, across)
    found = tl.zeros([along, across], dtype=tl.float32)
    for start in range(0, high * wide, deep):
        place = start + tl.arange(0, deep)
        row = place // wide * down - above + tap // kernel_wide
        left = place % wide * right - before + tap % kernel_wide
        seen = (place < high * wide) & (row >= 0) & (row < height) & (left >= 0) & (left < width)
        pixel = record * (height * width) + row * width + left
        shown = tl.load(given + pixel[:, None] * channels + channel[None, :], mask=seen[:, None], other=0.0)
        at = (record * (high * wide) + place)[:, None] * outs + out[None, :]
        if outs % along == 0:
            by = tl.load(slope + at, mask=(place < high * wide)[:, None], other=0.0)
        else:
            by = tl.load(slope + at, mask=(place < high * wide)[:, None] & (out < outs)[None, :], other=0.0)
        found = tl.dot(tl.trans(by), shown, found, input_precision="tf32x3")
    _keep(found, record, out, column, rows, squares, outs, columns)


@jit
def _tile(outs: tl.constexpr, columns: tl.constexpr, along: tl.constexpr, across: tl.constexpr):
    """Which image, outputs and columns of its gradient are this program's; those of an image follow each other."""
    wide: tl.constexpr = (columns + across - 1) // across
    tiles: tl.constexpr = wide * ((outs + along - 1) // along)
    tile = tl.program_id(0) % tiles
    out = tile // wide * along + tl.arange(0, along)
    return (tl.program_id(0) // tiles).to(tl.int64), out, tile % wide * across + tl.arange(0, across)


@jit
def _keep(
    found,
    record,
    out,
    column,
    rows,
    squares,
    outs: tl.constexpr,
    columns: tl.constexpr,
):
    """Write a tile, and the squared length of what is written."""
    held = found.to(rows.dtype.element_ty)
    inside = (out < outs)[:, None] & (column < columns)[None, :]
    tl.store(rows + (record * outs + out[:, None]) * columns + column[None, :], held, mask=inside)
    exact = held.to(tl.float32)
    lines = tl.sum(exact * exact, axis=1)  # in float32 along a line, in float64 from line to line
    tl.store(squares + tl.program_id(0), tl.sum(lines.to(tl.float64), axis=0))
