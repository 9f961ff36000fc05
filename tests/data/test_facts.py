from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from privset.data.facts import PublicFacts
from privset.errors import DataError

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
