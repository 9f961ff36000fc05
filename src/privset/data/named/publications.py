"""The named sets as sources of records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from privset.data.named import cifar, idx
from privset.data.named.catalogue import NamedSet
from privset.data.named.places import fetch
from privset.data.outline import Outline
from privset.data.pixels import channels_first, fit
from privset.data.records import Records
from privset.errors import DataError
from privset.facts import PublicFacts
from privset.observer import Observer

_Split = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedSource:
    """A published data set, found wherever it is.

    Attributes:
        named: The catalogue's entry.
        data_dir: A folder to look in before all others.
    """

    named: NamedSet
    data_dir: Path | None = None

    def outline(self, observer: Observer) -> Outline:
        """What the catalogue says; nothing is read."""
        del observer  # constants take no time
        return self.named.outline()

    def read(self, facts: PublicFacts, observer: Observer) -> tuple[Records, Records | None]:
        """Find the files, verify them, and turn them into records."""
        train, test = self._splits(observer)
        return self._records(train, facts), self._records(test, facts)

    def _splits(self, observer: Observer) -> tuple[_Split, _Split]:
        if self.named.form == "bundled":
            return digits()
        contents = fetch(self.named, data_dir=self.data_dir, observer=observer)
        if self.named.form == "idx":
            arrays = [idx.parse(content, name) for name, content in contents.items()]
            return (arrays[0], arrays[1]), (arrays[2], arrays[3])
        batches = [cifar.parse(content, name) for name, content in contents.items()]
        images, labels = zip(*batches[:-1], strict=True)
        return (np.concatenate(images), np.concatenate(labels)), batches[-1]

    def _records(self, split: _Split, facts: PublicFacts) -> Records:
        images, labels = split
        if len(images) != len(labels):
            raise DataError(f"{self.named.name}: {len(images)} images but {len(labels)} labels")
        pixels = fit(channels_first(images, self.named.name), *facts.shape)
        return Records(pixels, torch.from_numpy(labels.astype(np.int64)))


def digits() -> tuple[_Split, _Split]:
    """scikit-learn's digits as 8-bit ``[n, 8, 8]`` and labels, split once and for all.

    A fifth of each class is the test split, by a permutation that NumPy promises never to change.

    >>> (images, labels), (test_images, test_labels) = digits()
    >>> images.shape, test_images.shape, int(images.max())
    ((1438, 8, 8), (359, 8, 8), 255)
    """
    # Imported here: it takes a second, and nothing else in this package needs it.
    from sklearn.datasets import load_digits

    images, labels = map(np.asarray, load_digits(return_X_y=True))
    pixels = np.rint(images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    order = np.random.RandomState(0).permutation(len(labels))
    held = np.zeros(len(labels), bool)
    for label in range(10):
        members = order[labels[order] == label]
        held[members[: round(len(members) / 5)]] = True
    return (pixels[~held], labels[~held]), (pixels[held], labels[held])
