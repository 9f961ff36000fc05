"""Which records take part in an answer: an exact Poisson sample, secret like the noise."""

from __future__ import annotations

from collections.abc import Sequence

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


def seated_sample(
    source: NoiseSource, size: int, rate: float, places: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The first ``places`` records of such a sample, behind them zeros ``[places]``, and how many they are ``[]``.

    On a graphics card all of it is made there, and the processor neither waits nor learns how many take part.
    """
    if device.type == "cpu":
        chosen = poisson_sample(source, size, rate)[:places]
        return torch.cat([chosen, chosen.new_zeros(places - len(chosen))]), torch.tensor(len(chosen))
    return seated(source.chosen(size, rate, device), places)


def seated(mask: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Who takes part ``[n]`` -> the first ``places`` of them, behind them zeros ``[places]``, and how many ``[]``.

    >>> [found.tolist() for found in seated(torch.tensor([False, True, False, True, True]), 2)]
    [[1, 3], 2]
    """
    return torch.nonzero_static(mask, size=places, fill_value=0)[:, 0], mask.sum().clamp_max(places)


def fixed_sample(source: NoiseSource, size: int, count: int) -> Tensor:
    """Sorted numbers ``[count]`` of a sample of exactly ``count`` of ``size``, without replacement.

    Guarantee: every set of that many is as likely as any other, exactly; one sample tells nothing of another.
    """
    places = np.arange(size)
    for place in range(count):  # the first steps of a shuffle
        other = place + int(source.integers(size - place, 1)[0])
        places[[place, other]] = places[[other, place]]
    return torch.from_numpy(np.sort(places[:count]))


def poisson_samples(source: NoiseSource, size: int, rate: float, draws: int, device: torch.device) -> list[Tensor]:
    """As many samples as there are draws, on a graphics card, each as by `poisson_sample`.

    The words are made on the device, and compared with the same threshold.
    """
    mask = source.chosen(draws * size, rate, device).view(draws, size)
    draw, record = mask.nonzero().unbind(1)
    return list(record.split(torch.bincount(draw, minlength=draws).tolist()))


def joined(samples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Samples of indices -> all that are in any ``[n]``, and which are in which ``[samples, n]``.

    Those of the first sample come first, then what the second adds, and so on: a run of them has few samples.

    >>> records, members = joined([torch.tensor([1, 4]), torch.tensor([0, 4])])
    >>> records.tolist(), members.tolist()
    ([1, 4, 0], [[True, True, False], [False, True, True]])
    """
    if len(samples) == 1:
        return samples[0], torch.ones(1, len(samples[0]), dtype=torch.bool, device=samples[0].device)
    record = torch.cat(list(samples))
    draw = torch.cat([torch.full_like(sample, number) for number, sample in enumerate(samples)])
    records, place = record.unique(return_inverse=True)
    first = torch.full_like(records, len(samples)).scatter_reduce_(0, place, draw, "amin")
    order = first.argsort(stable=True)
    members = torch.zeros(len(samples), len(records), dtype=torch.bool, device=record.device)
    members[draw, place] = True
    return records[order], members[:, order]


def samples_beside(
    stream: torch.cuda.Stream, source: NoiseSource, size: int, rate: float, draws: int
) -> tuple[Tensor, Tensor]:
    """As many samples, `joined`, made on a graphics card beside its other work; at a rate of 1 a single one.

    To learn how many take part, the processor waits for the drawing alone, and not for what the card has to do still.
    """
    with torch.cuda.stream(stream):
        taken, members = joined(poisson_samples(source, size, rate, 1 if rate >= 1 else draws, stream.device))
    around = torch.cuda.current_stream(stream.device)
    around.wait_stream(stream)
    for values in (taken, members):
        values.record_stream(around)
    return taken, members
