"""Which shard each record is in: disjoint, and so that one record more or less changes one of them at most.

Either every record draws a shard by itself; or shards are dealt class by class, so that wards have about as many
records of each. Proof of both: docs/proofs/votes.md. A shuffled list cut into equal pieces has not got the property:
one record more moves the borders of all pieces, and then every ward may differ.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privset.privacy.noise import NoiseSource

NONE = -1
"""The shard of a record that has none."""


def drawn(noise: NoiseSource, size: int, count: int) -> Tensor:
    """Shards ``[size]`` from 0 to ``count - 1``, of as many records.

    Guarantee: each is uniform, and independent of all others: one record more changes one shard, by that record.
    """
    return torch.from_numpy(noise.integers(count, size))


def dealt(noise: NoiseSource, labels: Tensor, count: int, *, classes: int, seats: int) -> Tensor:
    """Shards of records of these labels ``[n]``, of which none has more than ``seats`` of one class; or `NONE`.

    Guarantee: disjoint, and one record more changes one shard at most: it is in it, perhaps in place of another of its
    class. Of a class of more than ``count * seats`` records some, drawn by lot, are in none. Seats are of a public
    number; NaN cannot occur, and a class without records leaves its seats empty.
    """
    shards = np.full(len(labels), NONE, dtype=np.int64)
    of_class = labels.cpu().numpy()
    for name in range(classes):
        members = np.flatnonzero(of_class == name)
        seating, guests = (_shuffled(noise, number) for number in (count * seats, len(members)))
        seated = min(len(seating), len(guests))
        shards[members[guests[:seated]]] = seating[:seated] % count
    return torch.from_numpy(shards)


def seats_for(size: int, count: int, classes: int) -> int:
    """Of each class in each of ``count`` shards: as many as there would be if all classes had as many records.

    >>> seats_for(60_000, 4000, 10), seats_for(60_000, 2000, 10)
    (2, 3)
    """
    return -(-size // (count * classes))


def _shuffled(noise: NoiseSource, count: int) -> np.ndarray:
    """The numbers below ``count`` in random order, each equally likely: words of which two are alike are not used."""
    words = noise.bits(count)
    while len(np.unique(words)) < count:
        words = noise.bits(count)
    return words.argsort()
