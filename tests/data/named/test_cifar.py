from __future__ import annotations

import numpy as np
import pytest

from privset.data.named import cifar
from privset.errors import DataError


def test_channels_rows_columns() -> None:
    records = np.zeros((2, 3073), np.uint8)
    records[1, 0] = 9
    records[1, 1 + 2 * 1024 + 3 * 32 + 4] = 77
    images, labels = cifar.parse(records.tobytes(), "batch")
    assert labels.tolist() == [0, 9]
    assert images[1, 2, 3, 4] == 77
    assert images.sum() == 77


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "batch: 0 bytes are no whole number of records"),
        (bytes(5000), "batch: 5000 bytes .* truncated, or not the binary release"),
        (bytes([10]) + bytes(3072), "batch: a label is 10"),
    ],
)
def test_bad_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cifar.parse(content, "batch")
