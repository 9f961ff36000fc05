"""Images on their way down a gradient: within the range of pixels, and with the running average that is published."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from privset.facts import PublicFacts, pixel_range

_BETAS = (0.9, 0.99)


class Descent:
    """Adam on pixels. Every step is the same few operations in place, so that a graphics card can play them back.

    Whoever computes a gradient adds it to ``images.grad``; `step` uses it up.

    Args:
        start: Normalised images ``[n, c, h, w]`` to begin with.
        facts: What is public about them.
        averaging: How much of the average of the past images is kept at each step.
    """

    def __init__(self, start: Tensor, facts: PublicFacts, *, averaging: float) -> None:
        self._low, self._high = pixel_range(facts, start)
        self._averaging = averaging
        self.images = start.clamp(self._low, self._high).contiguous().requires_grad_()
        self.images.grad = torch.zeros_like(self.images)
        self.average = self.images.detach().clone()
        self._first, self._second = torch.zeros_like(self.average), torch.zeros_like(self.average)
        self._count, self._rate = start.new_zeros(()), start.new_zeros(())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that steps change from one to the next."""
        return {
            "images": self.images,
            "average": self.average,
            "first": self._first,
            "second": self._second,
            "count": self._count,
        }

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps that follow."""
        self._rate.fill_(rate)

    @torch.no_grad()
    def step(self) -> None:
        """Move the images along the gradient that was added up, and forget it."""
        slope = self.images.grad
        assert slope is not None
        self._count += 1
        self._first.lerp_(slope, 1 - _BETAS[0])
        self._second.lerp_(slope.square(), 1 - _BETAS[1])
        size = (self._second / (1 - _BETAS[1] ** self._count)).sqrt_().add_(1e-8)
        self.images -= self._rate / (1 - _BETAS[0] ** self._count) * self._first / size
        self.images.clamp_(self._low, self._high)
        self.average.lerp_(self.images, 1 - self._averaging)
        slope.zero_()


def cosine(rate: float, step: int, total: int) -> float:
    """A learning rate that falls from ``rate`` to a fiftieth of it along a cosine.

    >>> cosine(1.0, 0, 100), round(cosine(1.0, 50, 100), 2), round(cosine(1.0, 100, 100), 2)
    (1.0, 0.51, 0.02)
    """
    return rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / total)))
