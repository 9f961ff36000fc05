"""Images on their way down a gradient: within the range of pixels, and with the running average that is published."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from privset.facts import PublicFacts, pixel_range

_BETAS = (0.9, 0.99)


class Descent:
    """Adam on pixels. Every step is the same few operations in place, so that a graphics card can play them back.

    `follow` adds up the gradients of losses, `step` uses them up.

    Args:
        start: Normalised images ``[n, c, h, w]`` to begin with.
        facts: What is public about them.
        averaging: How much of the average of the past images is kept at each step.
    """

    def __init__(self, start: Tensor, facts: PublicFacts, *, averaging: float) -> None:
        self._low, self._high = pixel_range(facts, start)
        self._averaging = averaging
        self.images = start.clamp(self._low, self._high).contiguous()
        self.average = self.images.clone()
        self._slope, self._first, self._second = (torch.zeros_like(self.images) for _ in range(3))
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

    def follow(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The loss ``[]`` of the images; its gradient is added to those that the next step uses up."""
        # A leaf of its own for each loss: one that was differentiated elsewhere could not be recorded.
        images = self.images.detach().requires_grad_()
        value = loss(images)
        self._slope += torch.autograd.grad(value, images)[0]
        return value.detach()

    def step(self) -> None:
        """Move the images along the gradients that were added up, and forget them."""
        self._count += 1
        self._first.lerp_(self._slope, 1 - _BETAS[0])
        self._second.lerp_(self._slope.square(), 1 - _BETAS[1])
        size = (self._second / (1 - _BETAS[1] ** self._count)).sqrt_().add_(1e-8)
        self.images -= self._rate / (1 - _BETAS[0] ** self._count) * self._first / size
        self.images.clamp_(self._low, self._high)
        self.average.lerp_(self.images, 1 - self._averaging)
        self._slope.zero_()


def cosine(rate: float, step: int, total: int) -> float:
    """A learning rate that falls from ``rate`` to a fiftieth of it along a cosine.

    >>> cosine(1.0, 0, 100), round(cosine(1.0, 50, 100), 2), round(cosine(1.0, 100, 100), 2)
    (1.0, 0.51, 0.02)
    """
    return rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / total)))
