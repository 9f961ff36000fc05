"""What votes cost by an accountant that looks at them: for the data holder alone, and no part of any guarantee.

Where wards agree by far, the winner of a histogram would almost surely be the same if one of them voted otherwise, and
to tell no more than the winner gives almost nothing away (Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson:
Scalable Private Learning with PATE, ICLR 2018; Theorem 6, with the orders of its appendix). The epsilon that comes of
it depends on the records, and tells about the votes itself. Nor is it a bound for these records: it is added up along
the one way that a run took, and later questions depend on earlier answers. So the curator counts it in its `Tally`, for
the data holder, and nothing of it is in a release.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ORDERS = (*(1 + number / 10 for number in range(1, 100)), *range(11, 65), *(2**n for n in range(7, 11)))
"""Orders of Renyi divergence at which it is counted."""


class Agreement:
    """Renyi divergence of the votes so far, at each of `ORDERS`."""

    def __init__(self) -> None:
        self._rdp: Tensor | None = None

    def add_winners(self, counts: Tensor, deviation: float) -> None:
        """Votes ``[..., bins]`` of which only the winners are told, with noise of that deviation on every count."""
        # So many histograms by so many orders would be too much at once.
        parts = counts.reshape(-1, counts.shape[-1]).split(4096)
        for part in parts:
            self._add(winner_divergence(log_surprise(part, deviation), deviation).sum(0))

    def add_lead(self, histograms: int, deviation: float) -> None:
        """Counts of the largest bins, each of which one ward moves by 1 at most: whatever they are."""
        self._add(histograms * torch.tensor(ORDERS, dtype=torch.float64) / (2 * deviation**2))

    def _add(self, rdp: Tensor) -> None:
        self._rdp = rdp if self._rdp is None else self._rdp.to(rdp.device) + rdp

    def epsilon(self, delta: float) -> float | None:
        """For these records and that delta; None if no one voted."""
        if self._rdp is None:
            return None
        from dp_accounting.rdp import rdp_privacy_accountant  # as in `accounting`: it takes a second

        return float(rdp_privacy_accountant.compute_epsilon(list(ORDERS), self._rdp.tolist(), delta)[0])


def log_surprise(counts: Tensor, deviation: float) -> Tensor:
    """Counts ``[n, bins]`` -> the logarithm of a bound on how likely another bin than the largest wins ``[n]``.

    >>> log_surprise(torch.tensor([[50.0, 50.0], [80.0, 20.0]]), 10.0).exp()
    tensor([5.0000e-01, 1.1045e-05], dtype=torch.float64)
    """
    if counts.shape[-1] < 2:
        return counts.new_full(counts.shape[:1], -math.inf, dtype=torch.float64)  # there is no other
    ordered = counts.to(torch.float64).sort(-1, descending=True).values
    behind = torch.special.log_ndtr((ordered[:, 1:] - ordered[:, :1]) / (math.sqrt(2) * deviation))
    return behind.logsumexp(-1).clamp_max(math.log(1 - 1 / counts.shape[-1]))  # the likeliest of so many


def winner_divergence(log_surprise: Tensor, deviation: float) -> Tensor:
    """Renyi divergence ``[n, orders]`` of the winners of histograms in which others win so rarely ``[n]``.

    That of noisy counts, order / deviation**2, or what Theorem 6 gives where it holds and is less.
    """
    surprise = log_surprise[:, None]
    orders = torch.tensor(ORDERS, dtype=torch.float64, device=surprise.device)
    second = deviation * (-surprise).sqrt()
    first = second + 1
    cost, other_cost = first / deviation**2, second / deviation**2
    bound = (second - 1) * other_cost - second * ((1 + 1 / (first - 1)).log() + (1 + 1 / (second - 1)).log())
    holds = (second > 1) & (first > orders) & (surprise <= bound) & (surprise + other_cost < 0)
    log_rest = _log_one_minus(surprise)
    usual = log_rest - _log_one_minus((surprise + other_cost).clamp_max(-1e-300) * (1 - 1 / second))
    rare = cost - surprise / (first - 1)
    total = torch.logaddexp(log_rest + (orders - 1) * usual, surprise + (orders - 1) * rare) / (orders - 1)
    always = (orders / deviation**2).expand_as(total)
    found = torch.where(holds & total.isfinite(), torch.minimum(total, always), always)
    return torch.where(surprise.isneginf(), 0.0, found)


def _log_one_minus(log: Tensor) -> Tensor:
    """The logarithm of 1 - exp(log), for negative numbers."""
    return torch.where(log > -math.log(2), (-torch.expm1(log)).log(), torch.log1p(-log.exp()))
