"""The idx format of MNIST: a magic number, big-endian sizes, then bytes."""

from __future__ import annotations

import struct

import numpy as np

from privset.errors import DataError

# Two zero bytes, then the kind of value; 8 is unsigned byte, the only kind images and labels come in.
_UNSIGNED_BYTE = 8


def parse(content: bytes, where: str) -> np.ndarray:
    """Unpacked idx bytes -> an 8-bit array of the shape its header states.

    >>> parse(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels")
    array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE or not 1 <= content[3] <= 3:
        raise DataError(
            f"{where}: not an idx file of bytes (it starts with {content[:4].hex() or 'nothing'}); "
            "use the original file, unpacked or in gzip"
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{where}: truncated inside the header; fetch the file again")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + int(np.prod(shape, dtype=object))
    if len(content) < expected:
        raise DataError(f"{where}: truncated: {len(content)} bytes of {expected}; fetch the file again")
    if len(content) > expected:
        raise DataError(f"{where}: {len(content) - expected} bytes too many; fetch the file again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def build(array: np.ndarray) -> bytes:
    """An 8-bit array -> unpacked idx bytes; what `parse` undoes.

    >>> build(np.array([7, 8, 9], np.uint8)).hex()
    '0000080100000003070809'
    """
    header = bytes([0, 0, _UNSIGNED_BYTE, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + np.ascontiguousarray(array, np.uint8).tobytes()
