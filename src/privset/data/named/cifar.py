"""The binary release of CIFAR-10: records of one label byte and 3 x 32 x 32 pixel bytes."""

from __future__ import annotations

import numpy as np

from privset.errors import DataError

_RECORD = 1 + 3 * 32 * 32


def parse(content: bytes, where: str, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of one batch file -> 8-bit images ``[n, 3, 32, 32]`` and labels ``[n]``.

    >>> images, labels = parse(bytes([4]) + bytes(3072), "data_batch_1.bin")
    >>> images.shape, labels.tolist()
    ((1, 3, 32, 32), [4])
    """
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{where}: {len(content)} bytes are no whole number of records of {_RECORD} bytes; "
            "it is truncated, or not the binary release"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() >= classes:
        raise DataError(f"{where}: a label is {labels.max()}; CIFAR-10 has the labels 0..{classes - 1}")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
