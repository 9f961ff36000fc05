"""Public ways to take a set of records apart."""

from __future__ import annotations

import hashlib

import torch

from privset.data.records import Records
from privset.errors import ConfigError


def held_out_count(size: int, fraction: float) -> int:
    """Number of records held out of ``size``; a function of the public size alone.

    >>> held_out_count(10, 0.25)
    2
    """
    count = round(size * fraction)
    if not 0 < count < size:
        raise ConfigError(f"holding out {fraction:g} of {size} records leaves one side empty")
    return count


def split(records: Records, fraction: float, seed: int = 0) -> tuple[Records, Records]:
    """The records kept and the share ``fraction`` held out, each in its old order.

    Every record has a rank of its own, a hash of its pixels and label, and the lowest ranks are held out. For a
    given number held out, one record more therefore changes the kept records by one: neighbours stay neighbours,
    and the guarantee for the records kept is one for all of them. The held-out records themselves are for
    evaluation and get no guarantee.

    >>> records = Records(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10))
    >>> split(records, 0.2)
    (Records(8 images 1x8x8), Records(2 images 1x8x8))
    """
    count = held_out_count(len(records), fraction)
    salt = f"privset test split {seed}".encode()
    ranks = [
        hashlib.sha256(salt + int(label).to_bytes(8, "little") + image.numpy().tobytes()).digest()
        for image, label in zip(records.images, records.labels, strict=True)
    ]
    order = sorted(range(len(records)), key=ranks.__getitem__)
    return _take(records, sorted(order[count:])), _take(records, sorted(order[:count]))


def _take(records: Records, positions: list[int]) -> Records:
    index = torch.tensor(positions, dtype=torch.int64)
    return Records(records.images[index], records.labels[index])
