"""Small data sets made by hand: scikit-learn's digits, and two classes anyone can tell apart."""

import pytest
import torch
from sklearn.datasets import load_digits

from privset.data.records import Dataset, Records
from privset.facts import PublicFacts


@pytest.fixture(scope="session")
def digits() -> Dataset:
    loaded = load_digits()
    pixels = torch.tensor(loaded.images * 255 / 16).round().to(torch.uint8)[:, None]  # type: ignore[attr-defined]
    labels = torch.tensor(loaded.target)  # type: ignore[attr-defined]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    facts = PublicFacts(
        name="digits",
        channels=1,
        height=8,
        width=8,
        classes=tuple("0123456789"),
        size=1437,
        mean=(0.5,),
        std=(0.5,),
    )
    return Dataset(facts, Records(pixels[train], labels[train]), Records(pixels[test], labels[test]))


@pytest.fixture(scope="session")
def halves() -> Dataset:
    """Colour images that are bright above (class 0) or below (class 1)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    images = torch.randint(0, 100, (40, 3, 8, 8), generator=generator)
    images[labels == 0, :, :4] += 100
    images[labels == 1, :, 4:] += 100
    facts = PublicFacts(
        name="halves",
        channels=3,
        height=8,
        width=8,
        classes=("above", "below"),
        size=20,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
    )
    records = images.to(torch.uint8)
    return Dataset(facts, Records(records[:20], labels[:20]), Records(records[20:], labels[20:]))
