from __future__ import annotations

import dataclasses

import pytest
import torch

from privset.data.records import Dataset, Records
from privset.errors import DataError
from privset.facts import PublicFacts

FACTS = PublicFacts(name="pets", channels=1, height=8, width=8, classes=("cat", "dog"), size=2, mean=(0.5,), std=(0.5,))
IMAGES = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)


def test_records_are_checked() -> None:
    with pytest.raises(DataError, match=r"8-bit images"):
        Records(IMAGES.float(), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(DataError, match=r"8-bit images"):
        Records(IMAGES[0], torch.zeros(1, dtype=torch.int64))
    with pytest.raises(DataError, match=r"one int64 label for each image"):
        Records(IMAGES, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(DataError, match=r"one int64 label"):
        Records(IMAGES, torch.zeros(2))


def test_dataset_agrees_with_its_facts() -> None:
    records = Records(IMAGES, torch.tensor([0, 1]))
    assert Dataset(FACTS, records, None).test is None
    with pytest.raises(DataError, match=r"does not have the shape"):
        Dataset(dataclasses.replace(FACTS, height=9), records, None)
    with pytest.raises(DataError, match=r"2 training records, but 3 stated"):
        Dataset(dataclasses.replace(FACTS, size=3), records, None)
    with pytest.raises(DataError, match=r"a label is outside 0..1"):
        Dataset(FACTS, records, Records(IMAGES, torch.tensor([0, 2])))
