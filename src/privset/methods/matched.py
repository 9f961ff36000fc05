"""What is moved when gradients are matched: the pixels of a set, or the generator that makes it."""

from __future__ import annotations

import abc

import torch
from torch import Tensor

from privset.facts import PublicFacts, pixel_range
from privset.methods.descent import Adam
from privset.networks.generators import ConditionalGenerator


class Matched(abc.ABC):
    """Labelled images, and what lies behind them. All of it changes in place, so that steps can be recorded.

    Attributes:
        images: As they are now ``[m, c, h, w]``, normalised.
        labels: Of the images ``[m]``, on the same device.
    """

    images: Tensor
    labels: Tensor

    @property
    @abc.abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All that `move` changes from one step to the next, the images among it."""

    @abc.abstractmethod
    def move(self, slope: Tensor) -> None:
        """One step down ``slope`` ``[m, c, h, w]``, by which a distance grows with the images as they are now."""


class Pixels(Matched):
    """The images themselves, by gradient descent with momentum.

    Args:
        images: To begin with; they are changed in place.
        labels: Of the images.
        facts: What is public about them.
        rate: Learning rate.
        momentum: How much of the last step is kept.
        bounded: Whether they are kept in the range of pixels.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, facts: PublicFacts, *, rate: float, momentum: float, bounded: bool
    ) -> None:
        self.images, self.labels = images, labels
        self._rate, self._momentum, self._bounded = rate, momentum, bounded
        self._velocity, (self._low, self._high) = torch.zeros_like(images), pixel_range(facts, images)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """See `Matched`."""
        return {"images": self.images, "velocity": self._velocity}

    def move(self, slope: Tensor) -> None:
        """See `Matched`."""
        self._velocity.mul_(self._momentum).add_(slope)
        self.images.sub_(self._rate * self._velocity)
        if self._bounded:
            self.images.clamp_(self._low, self._high)


class Generated(Matched):
    """A generator, by Adam; the images are what it makes of codes that stay as they are.

    Args:
        network: The generator, already on its device.
        codes: One for each image, on the same device.
        labels: Of the images.
        rate: Learning rate.
    """

    def __init__(self, network: ConditionalGenerator, codes: Tensor, labels: Tensor, *, rate: float) -> None:
        self.network, self.labels, self._codes = network, labels, codes
        self._weights = list(network.parameters())
        self._adam = Adam(self._weights, betas=(0.9, 0.999))
        self._adam.set_rate(rate)
        with torch.no_grad():
            self.images = network.normalised(codes).contiguous()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """See `Matched`."""
        return {"images": self.images} | self.network.state_dict() | self._adam.tensors

    def move(self, slope: Tensor) -> None:
        """See `Matched`; by the chain rule, the slope by the images is all that the generator has to know."""
        self._adam.step(torch.autograd.grad(self.network.normalised(self._codes), self._weights, slope))
        with torch.no_grad():
            self.images.copy_(self.network.normalised(self._codes))
