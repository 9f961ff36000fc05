"""Entropic optimal transport between labelled images, computed with logarithms: the loss of DP-Sinkhorn.

The conventions are those of geomloss (Feydy et al., AISTATS 2019), which the published code uses: potentials are
averaged with their updates while the temperature falls by half from the diameter to the blur, and one more update at
the end carries the gradient. There every number of steps is a number of the data; here the diameter is a public
constant, so that a graphics card can play the steps back and their number tells nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods import transport_kernels


class Transport:
    """The cost of moving one weighted set of labelled images to another.

    Moving a point x to y costs ``|x - y|^2 + l1_weight |x - y|_1``, where a point is an image, pixels in [-1, 1], with
    ``label_scale`` times its one-hot label behind it.

    Args:
        facts: What is public about the images.
        label_scale: How far apart labels are.
        l1_weight: Of the distance that is not squared.
        blur: The last temperature.
        scaling: Each temperature over the one before.

    Attributes:
        l1_weight: As given.
        other_label: What it costs to move to another label.
        temperatures: That are gone through.
    """

    def __init__(
        self, facts: PublicFacts, *, label_scale: float, l1_weight: float, blur: float = 0.05, scaling: float = 0.5
    ) -> None:
        self.l1_weight = l1_weight
        # Two labels differ in two places.
        self.other_label = 2 * label_scale**2 + l1_weight * 2 * label_scale
        diameter = math.sqrt(4 * math.prod(facts.shape) + len(facts.classes) * label_scale**2)
        self.temperatures = falling(max(diameter, blur), blur, scaling)

    def costs(self, images: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
        """Images ``[n, d]`` and ``[k, d]``, and their labels -> what moving each to each costs ``[n, k]``."""
        squares = images.square().sum(1)[:, None] + others.square().sum(1) - 2 * images @ others.T
        lengths = torch.cdist(images, others, p=1.0)
        return squares + self.l1_weight * lengths + self.other_label * (labels[:, None] != other_labels)

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        others: Tensor,
        other_labels: Tensor,
        other_weights: Tensor | None = None,
    ) -> Tensor:
        """The entropic cost ``[]`` of moving images ``[n, d]``, all of one weight, to others ``[k, d]``.

        Its gradient is that of the cost under the plan it ends with. Others of weight 0 count for nothing.
        """
        weights = images.new_full((len(images),), 1 / len(images))
        alike = others.new_full((len(others),), 1 / len(others))
        other_weights = alike if other_weights is None else other_weights
        there = self.costs(images, labels, others.detach(), other_labels)
        back = self.costs(others, other_labels, images.detach(), labels) if others.requires_grad else there.detach().T
        logs, other_logs = weights.log(), other_weights.log()
        potential, other = potentials(there.detach(), logs, other_logs, self.temperatures)
        blur = self.temperatures[-1]
        last = softmin(there, other_logs + other / blur, blur)
        other_last = softmin(back, logs + potential / blur, blur)
        return (weights * last).sum() + (other_weights * other_last).sum()

    def slopes(
        self,
        images: Tensor,
        labels: Tensor,
        others: Tensor,
        other_labels: Tensor,
        other_weights: Tensor | None = None,
        *,
        by_others: bool = True,
    ) -> tuple[Tensor, ...]:
        """The gradient of the cost by the images ``[n, d]`` and, if wanted, by the others ``[k, d]``."""
        if not transport_kernels.fits(images, others):
            with torch.enable_grad():
                images, others = images.detach().requires_grad_(), others.detach().requires_grad_(by_others)
                cost = self(images, labels, others, other_labels, other_weights)
                return torch.autograd.grad(cost, (images, others) if by_others else images)
        weight = self.l1_weight
        costs = transport_kernels.costs(
            images, labels, others, other_labels, l1_weight=weight, other_label=self.other_label
        )
        there, back = transport_kernels.plans(*costs, other_weights, self.temperatures)
        slope = transport_kernels.slopes(images, others, there, l1_weight=weight)
        return (slope, transport_kernels.slopes(others, images, back.T, l1_weight=weight)) if by_others else (slope,)


@torch.no_grad()
def potentials(
    costs: Tensor, logs: Tensor, other_logs: Tensor, temperatures: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Costs ``[n, k]`` and logarithms of weights ``[n]`` and ``[k]`` -> the potentials ``[n]`` and ``[k]``.

    They are those at the last temperature, before the update that carries the gradient.
    """
    back = costs.T
    potential, other = softmin(costs, other_logs, temperatures[0]), softmin(back, logs, temperatures[0])
    for warmth in temperatures:
        new = softmin(costs, other_logs + other / warmth, warmth)
        other = (other + softmin(back, logs + potential / warmth, warmth)) / 2
        potential = (potential + new) / 2
    return potential, other


def softmin(costs: Tensor, logs: Tensor, temperature: float) -> Tensor:
    """Costs ``[n, k]`` and logarithms of weights ``[k]`` -> the smooth minimum over k of the costs ``[n]``.

    >>> softmin(torch.tensor([[1.0, 2.0]]), torch.zeros(2), 0.01)
    tensor([1.])
    """
    return -temperature * (logs - costs / temperature).logsumexp(1)


def falling(diameter: float, blur: float, scaling: float) -> tuple[float, ...]:
    """Temperatures from the diameter, which comes twice, down to the blur.

    >>> falling(4.0, 0.5, 0.5)
    (4.0, 4.0, 2.0, 1.0, 0.5)
    """
    between = math.ceil(round(math.log(blur / diameter) / math.log(scaling), 9))
    return (diameter, *(diameter * scaling**step for step in range(between)), blur)
