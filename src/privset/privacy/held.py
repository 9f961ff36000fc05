"""Gradients of many records by one tensor, as they are held: how long each is, and their sums by shares.

What is added up is what was measured, number for number: that is what a bound on a sum of clipped gradients rests on.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from privset.privacy import clipping_kernels
from privset.privacy.clipping import Shares

SHORT = 256
"""Numbers of a row, up to which a processor, too, adds rows up by one product: such as those of biases and scales."""
TOGETHER, PIECE = 8, 2**18
"""Rows that a processor adds up in one go, and how much of each: few enough numbers to be at hand in float64."""
LINE = 1152
"""Numbers that are measured together in float32, such as 3 x 3 of 128 maps: with many more, rounding would add up."""


@dataclasses.dataclass(frozen=True)
class Held:
    """The gradients of all records by one tensor, as they are: ``rows [n, a, b]``.

    If ``last`` is (kh, kw, c), a line has the channels of a convolution's weight last, and not first. ``lengths`` are
    the squared ones ``[n]``, float64, where they were taken as the rows were written.
    """

    rows: Tensor
    last: tuple[int, int, int] | None = None
    lengths: Tensor | None = None

    def squares(self) -> Tensor:
        """Squared lengths ``[n]``, float64: of each line in its own type, float32 or more, of lines in float64."""
        return squares_of(self.rows) if self.lengths is None else self.lengths

    def add(self, shares: Shares, totals: Tensor) -> None:
        """Add to ``totals [k, a b]``, float64, the sums with these shares."""
        rows, weights = self.rows.flatten(1), shares.each
        high, wide, channels = self.last or (1, 1, rows.shape[1])
        if clipping_kernels.fits(rows):
            clipping_kernels.add(rows, shares, totals, taps=high * wide, channels=channels)
            return
        # A card would have to wait to see which are left out, and short rows are soon copied; 0 * NaN is NaN.
        if rows.is_cuda or (rows.shape[1] <= SHORT and self.last is None):
            rows = torch.where((weights != 0).any(0)[:, None], rows, 0.0)
            totals += weights.to(torch.float64) @ rows.to(torch.float64)
            return
        for total, own in zip(totals, weights.to(torch.float64), strict=True):
            added = _sum(rows, own)
            if self.last is not None:
                total = total.view(-1, channels, high, wide)
                added = added.view(-1, high, wide, channels).permute(0, 3, 1, 2)
            total += added


@dataclasses.dataclass(frozen=True)
class Products:
    """Gradients of rank one: of record i the product of ``slopes[i]`` and ``given[i]``, which is never written out."""

    slopes: Tensor
    given: Tensor

    def squares(self) -> Tensor:
        """Squared lengths ``[n]``, float64."""
        # In float64 from the start: a square that vanishes in float32 can be one of a slope that meets a huge value.
        lengths = [torch.linalg.vector_norm(v, dim=1, dtype=torch.float64) for v in (self.slopes, self.given)]
        return (lengths[0] * lengths[1]).square()

    def add(self, shares: Shares, totals: Tensor) -> None:
        """As that of `Held`."""
        taken = (shares.each != 0).any(0)[:, None]
        slopes, given = (torch.where(taken, values, 0.0).to(torch.float64) for values in (self.slopes, self.given))
        if clipping_kernels.fits(given):  # all sums by one product: to start one for each takes longer than to do it
            totals += ((shares.each[:, None] * slopes.T).flatten(0, 1) @ given).view_as(totals)
            return
        for total, own in zip(totals, shares.each, strict=True):
            if own.is_cuda or own.any():
                total += ((slopes * own[:, None]).T @ given).flatten()


def _sum(rows: Tensor, shares: Tensor) -> Tensor:
    """Rows ``[n, d]`` and their shares ``[n]``, float64 -> the sum ``[d]``, float64; a row of no share is not read."""
    found, taken = shares.new_zeros(rows.shape[1]), shares.nonzero()[:, 0].split(TOGETHER)
    room = shares.new_empty(TOGETHER, min(PIECE, rows.shape[1]))
    for piece, into in zip(rows.split(PIECE, dim=1), found.split(PIECE), strict=True):
        for some in taken:
            here = room[: len(some), : piece.shape[1]]
            for place, number in zip(here, some.tolist(), strict=True):
                place.copy_(piece[number])
            into.addmv_(here.T, shares[some])
    return found


def squares_of(rows: Tensor) -> Tensor:
    """Rows ``[n, a, b]`` -> squared lengths ``[n]``, float64: of lines in float32 or more, of these in float64."""
    pieces = rows.split(LINE, dim=2)
    lengths = (torch.linalg.vector_norm(piece, dim=2, dtype=at_least_float32(rows)) for piece in pieces)
    return torch.stack([length.to(torch.float64).square().sum(1) for length in lengths]).sum(0)


def at_least_float32(values: Tensor) -> torch.dtype:
    """The type that sums of these values are taken in."""
    return torch.promote_types(values.dtype, torch.float32)
