"""Which records take part in an answer: an exact Poisson sample, secret like the noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privset.privacy.noise import NoiseSource

_BLOCK = 1 << 16


def poisson_sample(source: NoiseSource, size: int, rate: float) -> Tensor:
    """Sorted indices ``[n]`` of a sample that each of ``size`` records enters independently.

    Guarantee: the inclusion probability is floor(rate * 2**64) / 2**64, never above ``rate``; the cost of a
    subsampled answer grows with the rate, so accounting with ``rate`` is sound. A rate of 1 takes everyone.
    The sample may be empty. Memory is bounded by the sample and one block of draws.
    """
    if rate >= 1:
        return torch.arange(size)
    threshold = np.uint64(int(rate * 2**64))
    kept = [
        np.flatnonzero(source.bits(min(_BLOCK, size - start)) < threshold) + start for start in range(0, size, _BLOCK)
    ]
    return torch.from_numpy(np.concatenate([np.empty(0, np.int64), *kept]))


def fixed_sample(source: NoiseSource, size: int, count: int) -> Tensor:
    """Sorted numbers ``[count]`` of a sample of exactly ``count`` of ``size``, without replacement.

    Guarantee: every set of that many is as likely as any other, exactly; one sample tells nothing of another.
    """
    places = np.arange(size)
    for place in range(count):  # the first steps of a shuffle
        other = place + int(source.integers(size - place, 1)[0])
        places[[place, other]] = places[[other, place]]
    return torch.from_numpy(np.sort(places[:count]))
