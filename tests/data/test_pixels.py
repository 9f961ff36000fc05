from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from privset.data.pixels import channels_first, eight_bit, fit, layout, recolour
from privset.errors import DataError


@pytest.mark.parametrize("shape", [(5, 8), (5, 8, 8, 2), (5, 8, 8, 4), (5, 1, 8, 8, 1)])
def test_strange_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"a.npz: x: shape .* is none of"):
        layout(shape, "a.npz: x")


def test_ambiguous_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"channels first or last"):
        layout((5, 3, 8, 1), "a.npz: x")


@settings(deadline=None)  # other work on the machine must not fail a test
@given(st.lists(st.integers(0, 255), min_size=1, max_size=30))
def test_floats_and_integers_give_the_same_bytes(values: list[int]) -> None:
    expected = np.array(values, np.uint8)
    for dtype in (np.int8, np.int16, np.uint32, np.int64):
        if max(values) <= np.iinfo(dtype).max:
            assert np.array_equal(eight_bit(expected.astype(dtype), "a"), expected)
    for dtype in (np.float32, np.float64):
        assert np.array_equal(eight_bit((expected / 255).astype(dtype), "a"), expected)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0.0], [np.nan]]), r"a.npz: x\[1\] has NaN or infinite pixels"),
        (np.array([[np.inf]]), r"x\[0\] has NaN or infinite"),
        (np.array([[0.5], [0.1], [200.0]]), r"x\[2\] has pixels outside \[0, 1\]; divide by 255"),
        (np.array([[-0.1]]), r"outside \[0, 1\]"),
        (np.array([[256]]), r"x\[0\] has pixels outside 0..255"),
        (np.array([[-1]]), r"outside 0..255"),
        (np.array([[True]]), "pixels are bool"),
        (np.array([[1j]]), "pixels are complex128"),
    ],
)
def test_bad_pixels_are_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        eight_bit(array, "a.npz: x")


def test_channels_first_from_every_layout(pixels: np.ndarray) -> None:
    last = channels_first(pixels, "a")
    assert last.shape == (6, 3, 12, 10)
    assert torch.equal(last, channels_first(np.moveaxis(pixels, 3, 1), "a"))
    assert channels_first(pixels[..., 0], "a").shape == (6, 1, 12, 10)


def test_grey_is_what_pillow_makes(pixels: np.ndarray) -> None:
    ours = recolour(channels_first(pixels, "a"), 1)
    theirs = np.stack([np.array(Image.fromarray(image).convert("L")) for image in pixels])
    assert np.array_equal(ours[:, 0].numpy(), theirs)


def test_colour_copies_grey() -> None:
    grey = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    assert torch.equal(fit(grey, 3, 8, 8)[0, 2], grey[0, 0])
    larger = fit(grey, 3, 16, 16)
    assert torch.equal(larger[:, :1], fit(grey, 1, 16, 16))
    assert torch.equal(larger[:, 1], larger[:, 2])


def test_resizing_is_antialiased() -> None:
    board = torch.zeros(1, 1, 64, 64, dtype=torch.uint8)
    board[..., ::2] = 255
    small = fit(board, 1, 8, 8).float()
    assert (small - 127.5).abs().max() < 16  # without antialiasing it would be black or white


def test_fit_leaves_fitting_images_alone() -> None:
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert fit(images, 1, 8, 8) is images
