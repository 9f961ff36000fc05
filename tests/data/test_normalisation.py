from __future__ import annotations

import pytest
import torch

from privset.data import catalogue
from privset.data.normalisation import denormalise, normalise


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
