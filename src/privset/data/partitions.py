"""Public ways to take a set of records apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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

    Which positions are held out depends on the number of records and on ``seed``, never on a pixel or a
    label; the same data is always split the same way. The held-out records are for evaluation and get no
    privacy guarantee: the guarantee is for the records kept.

    >>> records = Records(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10))
    >>> split(records, 0.2)
    (Records(8 images 1x8x8), Records(2 images 1x8x8))
    """
    count = held_out_count(len(records), fraction)
    # NumPy promises that the stream of RandomState never changes; torch makes no such promise.
    order = np.random.RandomState(seed).permutation(len(records))
    held = torch.from_numpy(np.sort(order[:count]))
    kept = torch.from_numpy(np.sort(order[count:]))
    return _take(records, kept), _take(records, held)


def by_class(records: Records, classes: Sequence[int]) -> Records:
    """The records whose label is one of ``classes``, in their old order and with their old labels.

    >>> records = Records(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 1]))
    >>> by_class(records, [1]).labels
    tensor([1, 1])
    """
    wanted = torch.isin(records.labels, torch.tensor(list(classes), dtype=torch.int64))
    return _take(records, wanted.nonzero().squeeze(1))


def _take(records: Records, positions: torch.Tensor) -> Records:
    return Records(records.images[positions], records.labels[positions])
