from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from privset.data.named import idx
from privset.errors import DataError


@settings(deadline=None)  # other work on the machine must not fail a test
@given(arrays.arrays(np.uint8, st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)))
def test_parse_undoes_build(array: np.ndarray) -> None:
    assert np.array_equal(idx.parse(idx.build(array), "file"), array)


@settings(deadline=None)  # other work on the machine must not fail a test
@given(st.binary(max_size=40))
def test_any_bytes_are_parsed_or_refused(content: bytes) -> None:
    with contextlib.suppress(DataError):
        assert idx.build(idx.parse(content, "file")) == content


WHOLE = idx.build(np.zeros((4, 8, 8), np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file: not an idx file .*starts with nothing"),
        (b"\x1f\x8b\x08\x00", "not an idx file .*starts with 1f8b0800"),
        (b"\0\0\x0d\x03" + WHOLE[4:], "not an idx file"),
        (WHOLE[:10], "file: truncated inside the header"),
        (WHOLE[:100], "file: truncated: 100 bytes of 272; fetch the file again"),
        (WHOLE + b"ab", "file: 2 bytes too many"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "truncated: 16 bytes of"),
    ],
)
def test_bad_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        idx.parse(content, "file")
