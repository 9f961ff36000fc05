"""Labelled 8-bit images in memory: the private records, and the test split beside them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from privset.errors import DataError
from privset.facts import PublicFacts


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """Images ``[n, channels, height, width]`` of 8-bit pixels with labels ``[n]``.

    Whoever holds one holds private records: outside `privset.data`, only the curator and the evaluation
    of a finished release do.

    >>> Records(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    Records(4 images 1x8x8)
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise DataError("records must be 8-bit images of shape [n, channels, height, width]")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise DataError("records need one int64 label for each image")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        channels, height, width = self.images.shape[1:]
        return f"Records({len(self)} images {channels}x{height}x{width})"

    def fingerprint(self) -> str:
        """Tells whether these are the same records, in the same order; for folders of whoever holds them only."""
        digest = hashlib.sha256(f"{list(self.images.shape)}\n".encode())
        for tensor in (self.images, self.labels):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as loaded: public facts, private training records, and the test split if there is one.

    Attributes:
        facts: What is public about it.
        train: The private records.
        test: The test split, if there is one.
        reading: How it was read, all of it public: options by name, and ``data`` if it has a name in the catalogue. No
            path is in it.
    """

    facts: PublicFacts
    train: Records
    test: Records | None
    reading: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for split in (self.train, self.test):
            if split is None:
                continue
            if tuple(split.images.shape[1:]) != self.facts.shape:
                raise DataError(f"{self.facts.name}: {split} does not have the shape {self.facts.shape}")
            if len(split) and not 0 <= int(split.labels.min()) <= int(split.labels.max()) < len(self.facts.classes):
                raise DataError(f"{self.facts.name}: a label is outside 0..{len(self.facts.classes) - 1}")
        if len(self.train) != self.facts.size:
            raise DataError(f"{self.facts.name}: {len(self.train)} training records, but {self.facts.size} stated")

    def held_out(self, every: int = 6) -> Dataset:
        """The training records alone, of which each ``every``-th is the test split: to choose settings by.

        >>> records = Records(torch.zeros(12, 1, 8, 8, dtype=torch.uint8), torch.arange(12) % 2)
        >>> facts = PublicFacts(
        ...     name="toy", channels=1, height=8, width=8, classes=("a", "b"), size=12, mean=(0.5,), std=(0.5,)
        ... )
        >>> found = Dataset(facts, records, None).held_out()
        >>> found.train, found.test, found.facts.size
        (Records(10 images 1x8x8), Records(2 images 1x8x8), 10)
        """
        held = torch.arange(len(self.train)) % every == every - 1
        train, test = (Records(self.train.images[some], self.train.labels[some]) for some in (~held, held))
        return dataclasses.replace(self, facts=dataclasses.replace(self.facts, size=len(train)), train=train, test=test)
