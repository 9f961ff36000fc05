import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from privset.release import SyntheticSet
from privset.release.preview import draw, encode, same_pixels


def test_one_row_a_class_with_clean_squares(workshop: Any) -> None:
    made = workshop.set()
    sheet = np.array(draw(made))

    # 8x8 pixels are drawn 8 times as large, with gaps of 2: rows for 3 classes, columns for 4 images.
    assert sheet.shape == (2 + 3 * 66, 2 + 4 * 66)
    tile = sheet[2 + 66 : 66 + 66, 2:66]
    assert np.array_equal(tile[::8, ::8], made.images[4, 0].numpy())
    assert np.array_equal(tile, np.kron(made.images[4, 0].numpy(), np.ones((8, 8), dtype=np.uint8)))


@pytest.mark.parametrize(
    ("classes", "per_class", "channels", "height", "width"),
    [(100, 20, 3, 32, 32), (10, 30, 1, 28, 28), (2, 1, 3, 300, 200), (1000, 1, 1, 8, 8), (30, 3, 3, 512, 8)],
)
def test_size_is_bounded(workshop: Any, classes: int, per_class: int, channels: int, height: int, width: int) -> None:
    facts = dataclasses.replace(
        workshop.facts,
        channels=channels,
        height=height,
        width=width,
        classes=tuple(map(str, range(classes))),
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
    )
    sheet = draw(workshop.set(facts, per_class=per_class))

    assert sheet.width <= 1600
    assert sheet.height <= 2400
    assert sheet.mode == ("L" if channels == 1 else "RGB")


def test_classes_of_different_sizes_and_floats_can_be_shown(workshop: Any) -> None:
    images = torch.full((3, 1, 8, 8), 100.0)
    sheet = np.array(draw(SyntheticSet(images, torch.tensor([1, 1, 1]), workshop.facts)))

    assert sheet.shape == (2 + 3 * 66, 2 + 3 * 66)
    assert (sheet[68:132, 2:66] == 255).all()
    assert (sheet[:66] == 128).all()


def test_png_comes_back_pixel_for_pixel(workshop: Any) -> None:
    sheet = draw(workshop.set())
    content = encode(sheet)
    changed = sheet.copy()
    changed.putpixel((5, 5), 7 if sheet.getpixel((5, 5)) != 7 else 8)

    assert content == encode(draw(workshop.set()))
    assert same_pixels(content, sheet)
    assert not same_pixels(content, changed)
