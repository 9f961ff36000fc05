import dataclasses
import hashlib

import numpy as np
import pytest
import safetensors.torch
import torch

from privset.errors import ReleaseError
from privset.facts import PublicFacts, normalise
from privset.methods.method import Synthesis
from privset.release import SyntheticSet

FACTS = PublicFacts(name="toy", channels=1, height=8, width=9, classes=("a", "b"), size=50, mean=(0.25,), std=(0.5,))


def synthesis(**changes: object) -> Synthesis:
    images = torch.linspace(-3, 3, 4 * 72).view(4, 1, 8, 9)
    return dataclasses.replace(Synthesis(images, torch.tensor([0, 1, 1, 1])), **changes)


def test_pixels_are_eight_bit_unless_floats_are_kept() -> None:
    pixels = SyntheticSet.from_synthesis(synthesis(), FACTS)
    floats = SyntheticSet.from_synthesis(synthesis(keep_floats=True), FACTS)

    assert (pixels.images.dtype, pixels.pixel_form) == (torch.uint8, "8-bit")
    assert (int(pixels.images.min()), int(pixels.images.max())) == (0, 255)
    assert (floats.images.dtype, floats.pixel_form) == (torch.float32, "unbounded floats")
    assert torch.equal(floats.images, synthesis().images)
    assert torch.equal(floats.pixels(), pixels.images)
    assert torch.equal(floats.normalised(), synthesis().images)
    assert torch.equal(pixels.normalised(), normalise(pixels.images, FACTS))
    assert pixels.per_class == (1, 3)


def test_classes_look_alike_if_no_pixel_tells_them_apart_on_average() -> None:
    white = torch.full((200, 1, 8, 9), 255, dtype=torch.uint8)
    labels = torch.arange(200) % 2
    assert SyntheticSet(white, labels, FACTS).looks_alike
    assert not SyntheticSet(white, torch.zeros_like(labels), FACTS).looks_alike  # there is nothing to tell apart
    darker = white.clone()
    darker[:98:2, 0, 3, 4] = 254  # 49 of the 100 of one class
    assert SyntheticSet(darker, labels, FACTS).looks_alike
    darker[98, 0, 3, 4] = 254
    assert not SyntheticSet(darker, labels, FACTS).looks_alike
    outside = torch.where(labels == 0, 3.0, 4.0)[:, None, None, None].expand(200, 1, 8, 9)
    assert SyntheticSet(outside, labels, FACTS).looks_alike  # as they are shown


def test_tensors_of_any_origin_are_taken() -> None:
    images = torch.randn(4, 9, 8, 1, dtype=torch.float64).permute(0, 3, 2, 1).requires_grad_()
    taken = SyntheticSet.from_synthesis(synthesis(images=images, keep_floats=True), FACTS)

    assert taken.images.is_contiguous()
    assert not taken.images.requires_grad
    assert SyntheticSet.from_bytes(taken.to_bytes(), FACTS).digest() == taken.digest()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("keep_floats", [True, False])
def test_images_that_are_not_finite_are_refused(value: float, keep_floats: bool) -> None:
    images = torch.zeros(4, 1, 8, 9)
    images[2, 0, 1, 1] = value
    with pytest.raises(ReleaseError, match="1 of 4 images have values that are not finite"):
        SyntheticSet.from_synthesis(synthesis(images=images, keep_floats=keep_floats), FACTS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"images": torch.zeros(4, 1, 9, 8)}, r"images have shape \[4, 1, 9, 8\]"),
        ({"images": torch.zeros(0, 1, 8, 9), "labels": torch.zeros(0).long()}, "one or more images"),
        ({"labels": torch.tensor([0, 1])}, "one label for each of the 4 images"),
        ({"labels": torch.zeros(4)}, "labels must be int64"),
        ({"labels": torch.tensor([0, 1, 2, 1])}, r"label 2 is outside 0\.\.1"),
        ({"labels": torch.tensor([0, 1, -1, 1])}, "label -1 is outside"),
    ],
)
def test_what_does_not_fit_the_facts_is_refused(changes: dict[str, torch.Tensor], sentence: str) -> None:
    with pytest.raises(ReleaseError, match=sentence):
        SyntheticSet.from_synthesis(synthesis(**changes), FACTS)


def test_digest_is_of_the_content_and_can_be_computed_without_privset() -> None:
    made = SyntheticSet.from_synthesis(synthesis(), FACTS)
    images, labels = made.to_numpy()
    content = b"images uint8 [4, 1, 8, 9]\n" + images.tobytes() + b"labels int64 [4]\n" + labels.astype("<i8").tobytes()

    assert made.digest() == hashlib.sha256(content).hexdigest()
    assert isinstance(images, np.ndarray)
    other = SyntheticSet(made.images.clone(), made.labels.flip(0), FACTS)
    assert other.digest() != made.digest()


def test_bytes_are_reproducible_and_come_back() -> None:
    made = SyntheticSet.from_synthesis(synthesis(), FACTS)
    back = SyntheticSet.from_bytes(made.to_bytes(), FACTS)

    assert made.to_bytes() == made.to_bytes()
    assert torch.equal(back.images, made.images)
    assert torch.equal(back.labels, made.labels)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not a readable safetensors file"),
        (b"\x80\x04pickle" * 9, "not a readable safetensors file"),
        (safetensors.torch.save({"images": torch.zeros(1)}), "holds exactly 'images' and 'labels'"),
        (
            safetensors.torch.save({"images": torch.zeros(1, 1, 8, 9).half(), "labels": torch.zeros(1).long()}),
            "uint8 pixels or float32",
        ),
    ],
)
def test_other_files_are_refused_by_name(content: bytes, sentence: str) -> None:
    with pytest.raises(ReleaseError, match=f"some/set.safetensors: .*{sentence}"):
        SyntheticSet.from_bytes(content, FACTS, "some/set.safetensors")
