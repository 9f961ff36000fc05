import base64
import dataclasses
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from tests.release.conftest import FACTS, Workshop

from privset.facts import PublicFacts
from privset.release import SyntheticSet
from privset.report import gallery


def images_in(page: str) -> list[np.ndarray]:
    found = re.findall(r'<img src="data:image/(?:png|webp);base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def colour(images: int, classes: int, side: int = 32) -> SyntheticSet:
    """Noise, which no one can compress."""
    facts = PublicFacts(
        name="toy",
        channels=3,
        height=side,
        width=side,
        classes=tuple(map(str, range(classes))),
        size=100,
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, generator=generator)
    return SyntheticSet(pixels, torch.arange(images) % classes, facts)


def test_every_image_is_one_of_the_set_pixel_by_pixel_in_the_order_of_classes() -> None:
    made = Workshop.set(FACTS, per_class=4)
    shown = images_in(gallery.gallery(made, "toy"))
    order = torch.argsort(made.labels, stable=True)
    assert len(shown) == 12
    assert all(np.array_equal(a, b) for a, b in zip(shown, made.images[order, 0].numpy(), strict=True))


def test_colours_are_in_their_order() -> None:
    made = colour(3, 3, side=8)
    assert np.array_equal(images_in(gallery.gallery(made, "x"))[1], made.images[1].permute(1, 2, 0).numpy())


def test_floats_are_shown_as_pixels_and_the_page_says_so() -> None:
    made = Workshop.set(FACTS, keep_floats=True)
    page = gallery.gallery(made, "toy")
    assert np.array_equal(images_in(page)[0], made.pixels()[0, 0].numpy())
    assert "unbounded floats" in page


def test_large_pages_are_compressed_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_CHARACTERS", 100_000)
    made = colour(60, 2)
    page = gallery.gallery(made, "x")
    assert "data:image/webp" in page
    assert sum(map(len, re.findall(r'src="([^"]+)"', page))) <= 100_000
    assert "compressed" in page
    assert "compressed" not in gallery.gallery(colour(4, 2), "x")


def test_of_many_images_the_first_of_each_class_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_IMAGES", 6)
    made = Workshop.set(FACTS, per_class=4)
    page = gallery.gallery(made, "toy")
    assert len(images_in(page)) == 6
    assert "up to 2 images of each of the classes, of 12 in all" in page
    assert 'aria-label="one, image 2 of 4"' in page


def test_a_class_without_images_is_named_all_the_same() -> None:
    made = Workshop.set(FACTS, per_class=2)
    page = gallery.gallery(dataclasses.replace(made, labels=torch.zeros_like(made.labels)), "toy")
    assert page.count("no image of this class") == 2
