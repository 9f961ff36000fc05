"""Arrays of pixels in whatever form they come -> 8-bit images ``[n, channels, height, width]``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privset.errors import DataError

# Images are converted in blocks, so that a float or resized copy of the whole set never exists.
_BLOCK = 4096


def layout(shape: tuple[int, ...], where: str) -> tuple[int, int, int, int]:
    """(channels axis, channels, height, width) of ``[n, h, w]``, ``[n, h, w, c]`` or ``[n, c, h, w]``.

    The channels axis is 0 where there is none.

    >>> layout((100, 28, 28), "a.npz"), layout((100, 32, 32, 3), "a.npz"), layout((100, 1, 28, 28), "a.npz")
    ((0, 1, 28, 28), (3, 3, 32, 32), (1, 1, 28, 28))
    """
    if len(shape) == 3:
        return 0, 1, shape[1], shape[2]
    if len(shape) == 4:
        first, last = shape[1] in (1, 3), shape[3] in (1, 3)
        if first and last:
            raise DataError(f"{where}: shape {shape} may be channels first or last; images that small cannot be told")
        if last:
            return 3, shape[3], shape[1], shape[2]
        if first:
            return 1, shape[1], shape[2], shape[3]
    raise DataError(f"{where}: shape {shape} is none of [n, h, w], [n, h, w, c], [n, c, h, w] with c 1 or 3")


def eight_bit(array: np.ndarray, where: str) -> np.ndarray:
    """``array`` as 8-bit values: integers in 0..255 as they are, floats in [0, 1] times 255 and rounded.

    >>> eight_bit(np.array([[0.0, 0.5, 1.0]]), "a.npz")
    array([[  0, 128, 255]], dtype=uint8)
    """
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iuf":
        raise DataError(f"{where}: pixels are {array.dtype}; they must be integers in 0..255 or floats in [0, 1]")
    pixels = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), _BLOCK):
        block = array[start : start + _BLOCK]
        if array.dtype.kind == "f":
            _refuse(~np.isfinite(block), start, where, "NaN or infinite pixels; mend or remove the image")
            advice = "pixels outside [0, 1]; divide by 255, or store 8-bit integers"
            _refuse((block < 0) | (block > 1), start, where, advice)
            block = np.rint(block.astype(np.float64) * 255)
        else:
            _refuse((block < 0) | (block > 255), start, where, "pixels outside 0..255; rescale to 8 bits")
        pixels[start : start + _BLOCK] = block.astype(np.uint8)
    return pixels


def _refuse(bad: np.ndarray, start: int, where: str, what: str) -> None:
    if bad.any():
        index = start + int(bad.reshape(len(bad), -1).any(axis=1).argmax())
        raise DataError(f"{where}[{index}] has {what}")


def channels_first(array: np.ndarray, where: str) -> Tensor:
    """8-bit ``[n, h, w]``, ``[n, h, w, c]`` or ``[n, c, h, w]`` -> ``[n, c, h, w]``."""
    axis = layout(array.shape, where)[0]
    array = array[:, None] if axis == 0 else np.moveaxis(array, axis, 1)
    return torch.from_numpy(np.array(array, order="C"))


def fit(images: Tensor, channels: int, height: int, width: int) -> Tensor:
    """8-bit ``[n, c, h, w]`` -> ``[n, channels, height, width]``; resizing is bilinear and antialiased."""
    if tuple(images.shape[1:]) == (channels, height, width):
        return images
    fitted = torch.empty(len(images), channels, height, width, dtype=torch.uint8)
    for start in range(0, len(images), _BLOCK):
        block = recolour(images[start : start + _BLOCK], channels)
        if tuple(block.shape[2:]) != (height, width):
            # A view made by expand() has zero strides, which the 8-bit kernel does not read correctly.
            block = functional.interpolate(block.contiguous(), size=(height, width), mode="bilinear", antialias=True)
        fitted[start : start + _BLOCK] = block
    return fitted


def recolour(images: Tensor, channels: int) -> Tensor:
    """8-bit ``[n, c, h, w]`` with 1 or 3 channels -> the same with ``channels`` channels."""
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    # ITU-R 601 luma in the fixed point of Pillow: an image gives the same grey from a file and from an array.
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32).view(1, 3, 1, 1)
    grey = (images.to(torch.int32) * weights).sum(1, keepdim=True, dtype=torch.int32)
    return ((grey + 0x8000) >> 16).to(torch.uint8)
