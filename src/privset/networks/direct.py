"""The convolutions behind `privset.networks.patches` on a graphics card, without patches in memory.

Patches repeat every number of a map six times. Where there are thousands of networks, writing them and reading them
again takes longer than the products; here each tile of a product gathers its own from the maps themselves.

All tensors have networks along their first axis, or what they share, which then has length 1 and is not repeated.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from privset.convolutions import channels_first
from privset.kernel_language import AVAILABLE, triton
from privset.networks import direct_kernels as kernels

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

    Lines are those of `privset.networks.patch_kernels.lines`.
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
    """Maps of this size, from others and from lines."""
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
            kernels.gather_kernel[(networks * tiles * kinds * parts,)](
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
            kernels.sum_kernel[(networks * tiles * parts,)](
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
        kernels.corners_kernel[(triton.cdiv(padded, 2**10),)](
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
