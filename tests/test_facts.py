from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from privset.data.named import catalogue
from privset.errors import DataError
from privset.facts import PublicFacts, denormalise, normalise

FACTS = PublicFacts(name="pets", channels=1, height=8, width=9, classes=("cat", "dog"), size=5, mean=(0.5,), std=(0.5,))


def test_shape() -> None:
    assert FACTS.shape == (1, 8, 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 2}, "pets: images must have 1 or 3 channels, not 2"),
        ({"height": 7}, r"pets: images are 7x9; the smallest size is 8x8 \(use --size\)"),
        ({"classes": ("cat",)}, r"pets: found 1 class\(es\); at least two"),
        ({"size": 0}, "pets: no training records"),
        ({"mean": (0.5, 0.5)}, "one normalisation mean and std for each channel"),
        ({"std": (0.0,)}, "std must be positive"),
    ],
)
def test_impossible_facts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataclasses.replace(FACTS, **changes)


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_pixel_survives_there_and_back(name: str, dtype: torch.dtype) -> None:
    facts = catalogue.facts(name)
    pixels = torch.arange(256, dtype=torch.uint8).view(16, 1, 4, 4).expand(-1, facts.channels, -1, -1)
    there = normalise(pixels, facts, dtype)
    assert there.dtype == dtype
    assert torch.equal(denormalise(there, facts), pixels)


def test_values_beyond_the_range_are_cut() -> None:
    facts = catalogue.facts("digits")
    wild = torch.tensor([-9.0, 9.0]).view(1, 1, 1, 2)
    assert denormalise(wild, facts).flatten().tolist() == [0, 255]


def test_constants_are_taken_out_by_channel() -> None:
    facts = catalogue.facts("cifar10")
    black = normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), facts, torch.float64).flatten()
    expected = [-mean / std for mean, std in zip(facts.mean, facts.std, strict=True)]
    assert black.tolist() == pytest.approx(expected)
