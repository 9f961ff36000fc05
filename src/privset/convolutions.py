"""Convolutions by kernels of our own, on a graphics card.

Those of images, for one: with so few channels the library converts and pads more than it computes. And the gradient by
the weight for each image by itself, with its length.

Clipped gradients of private records rest on this: a program looks at one image alone, and the length it gives is that
of the numbers it writes.
"""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

from privset import convolution_kernels as kernels
from privset.kernel_language import AVAILABLE, triton

Pair = tuple[int, int]
BLOCK = 128
"""Most rows and columns of a gradient that one program holds."""
TURNED = 64
"""Rows and columns of a table that one program turns."""
FEW = 32
"""Most numbers of a patch of which a convolution is done one by one; of more, matrix units are faster."""


def fits(values: Tensor) -> bool:
    """Whether the kernels can be used where this tensor is."""
    return AVAILABLE and values.is_cuda


@dataclasses.dataclass(frozen=True)
class Form:
    """How a convolution lies over its maps.

    Args:
        given: Shape of a map that comes in.
        kernel: Of its weight.
        stride: From place to place.
        padding: Zeros around a map.
    """

    given: Pair
    kernel: Pair
    stride: Pair
    padding: Pair

    @classmethod
    def of(cls, given: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Form:
        """That of a convolution of maps ``[n, c, h, w]`` with a weight ``[out, c, kh, kw]``.

        Raises:
            ValueError: They do not go together; a kernel would read what belongs to neither.
        """
        form = cls((given.shape[2], given.shape[3]), (weight.shape[2], weight.shape[3]), stride, padding)
        if given.shape[1] != weight.shape[1] or min(form.found) < 1:
            raise ValueError(f"a weight of {list(weight.shape)} cannot convolve maps of {list(given.shape)}")
        return form

    @property
    def taps(self) -> int:
        """Pixels of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def found(self) -> Pair:
        """Shape of a map that goes out."""
        high, wide = (
            (size + 2 * pad - of) // by + 1
            for size, pad, of, by in zip(self.given, self.padding, self.kernel, self.stride, strict=True)
        )
        return high, wide

    def constants(self) -> dict[str, int]:
        """By the names that the kernels know them by."""
        (height, width), (high, wide) = self.given, self.found
        return {
            "height": height,
            "width": width,
            "high": high,
            "wide": wide,
            "kernel_high": self.kernel[0],
            "kernel_wide": self.kernel[1],
            "down": self.stride[0],
            "right": self.stride[1],
            "above": self.padding[0],
            "before": self.padding[1],
        }


def channels_last(maps: Tensor) -> Tensor:
    """The same ``[n, c, h, w]`` with the channels of a pixel side by side in memory, as the library convolves bfloat16.

    It would do so by itself, for every operation anew; who needs a tensor several times is faster with this.
    """
    if maps.is_contiguous(memory_format=torch.channels_last) or not _turns(maps):
        return maps.contiguous(memory_format=torch.channels_last)
    found = torch.empty_like(maps, memory_format=torch.channels_last)
    _turn(maps.contiguous(), found, maps.shape[1], maps[0, 0].numel())
    return found


def channels_first(maps: Tensor) -> Tensor:
    """The other way round: the pixels of a map side by side."""
    if maps.is_contiguous() or not (_turns(maps) and maps.is_contiguous(memory_format=torch.channels_last)):
        return maps.contiguous()
    found = torch.empty_like(maps, memory_format=torch.contiguous_format)
    _turn(maps, found, maps[0, 0].numel(), maps.shape[1])
    return found


def lying_like(other: Tensor, values: Tensor) -> Tensor:
    """Values of the shape of another tensor, in memory as that lies: themselves, or a copy."""
    return values if values.stride() == other.stride() else torch.empty_like(other).copy_(values)


def turned(maps: Tensor, *, last: bool) -> Tensor:
    """As `channels_last` or `channels_first`, and so that slopes are turned back on their way."""
    return _Turned.apply(maps, last)


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, last: bool) -> Tensor:
        ctx.last = last
        return (channels_last if last else channels_first)(maps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return (channels_first if ctx.last else channels_last)(slope), None


def _turns(maps: Tensor) -> bool:
    return fits(maps) and min(maps.shape) > 0 and maps.shape[1] > 1


def _turn(given: Tensor, found: Tensor, rows: int, columns: int) -> None:
    """Tables ``[n, rows, columns]``, as they lie in memory -> ``[n, columns, rows]``."""
    grid = (len(given), triton.cdiv(rows, TURNED), triton.cdiv(columns, TURNED))
    with torch.cuda.device_of(given):
        kernels.turn_kernel[grid](given, found, rows, columns, size=TURNED, num_warps=4)


def of_images(given: Tensor, weight: Tensor) -> bool:
    """Whether `convolve` and `by_weight` take these, and are worth it: few channels, float32, on a card."""
    return fits(given) and given.dtype == weight.dtype == torch.float32 and weight[0].numel() <= FEW


def convolve(given: Tensor, weight: Tensor, form: Form, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images ``[n, c, h, w]``, weight ``[out, c, kh, kw]`` -> maps ``[n, out, h', w']``, of sums in float32."""
    found = given.new_empty(len(given), len(weight), *form.found, dtype=dtype)
    outs, places = 32, 256
    grid = (len(given), triton.cdiv(form.found[0] * form.found[1], places), triton.cdiv(len(weight), outs))
    with torch.cuda.device_of(given):
        kernels.convolve_kernel[grid](
            given.contiguous(),
            weight.contiguous(),
            found,
            len(weight),
            channels=given.shape[1],
            **form.constants(),
            outs=outs,
            places=places,
            num_warps=4,
        )
    return found


def by_weight(slope: Tensor, given: Tensor, form: Form) -> Tensor:
    """From the slope by the maps that by the weight ``[out, c, kh, kw]``, in float32."""
    rows, _ = products(slope, given, form, torch.float32)
    return rows.sum(0).unflatten(1, (*form.kernel, given.shape[1])).permute(0, 3, 1, 2).contiguous()


def by_images(terms: Sequence[tuple[Tensor, Tensor]], form: Form) -> Tensor:
    """From slopes by the maps, each with the weight that made them, the sum of those by the images.

    For so few channels a product of matrices, which takes maps as they lie, and nine numbers a pixel to add up: the
    library would first turn maps and pad channels.

    Args:
        terms: Of slopes ``[n, out, h', w']`` and weights ``[out, c, kh, kw]``.
        form: Of the convolution.

    Returns:
        ``[n, c, h, w]``, in float32 at least.
    """
    columns = [
        torch.bmm(weight.flatten(1).T.to(slope.dtype).contiguous().expand(len(slope), -1, -1), slope.flatten(2))
        for slope, weight in terms
    ]
    total = torch.stack(columns).sum(0, dtype=torch.promote_types(columns[0].dtype, torch.float32))
    return F.fold(total, form.given, form.kernel, padding=form.padding, stride=form.stride)


def _across(columns: int) -> int:
    return min(BLOCK, max(16, triton.next_power_of_2(columns)))


def multiplies(slope: Tensor) -> bool:
    """Whether `products` is worth it: bfloat16, for which matrix units are fastest, on a card."""
    return fits(slope) and slope.dtype == torch.bfloat16


def products(slope: Tensor, given: Tensor, form: Form, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    """The gradient of each image by the weight of a convolution, and its squared length.

    The length is that of the numbers written, not of those they were rounded from.

    Args:
        slope: Of the loss by what the convolution gave, ``[n, out, h', w']``.
        given: What came in, ``[n, c, h, w]``.
        form: Of the convolution.
        dtype: Of the numbers that are written.

    Returns:
        Rows ``[n, out, kh kw c]``, and squares ``[n]`` in float64.
    """
    count, outs, channels = len(slope), slope.shape[1], given.shape[1]
    columns = form.taps * channels
    block = next((size for size in (BLOCK, 64, 32, 16) if channels % size == 0), None)
    along = min(BLOCK, max(16, triton.next_power_of_2(outs)))
    if block is None:
        kernel, laid, across = kernels.products_kernel, (slope.contiguous(), given.contiguous()), _across(columns)
    else:  # of wider numbers, tiles might be too large for a small card
        laid = channels_last(slope), channels_last(given.to(slope.dtype))
        kernel, across = kernels.tap_products_kernel, block
    tiles = triton.cdiv(columns, across) * triton.cdiv(outs, along)
    rows = slope.new_empty(count, outs, columns, dtype=dtype)
    squares = slope.new_empty(count, tiles, dtype=torch.float64)
    with torch.cuda.device_of(slope):
        kernel[(count * tiles,)](
            *laid,
            rows,
            squares,
            outs=outs,
            channels=channels,
            **form.constants(),
            along=along,
            across=across,
            deep=64,
            num_warps=4 if block is None else 8,
            num_stages=1 if block is None else 3,
        )
    return rows, squares.sum(1)
