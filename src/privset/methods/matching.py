"""How far two gradients point apart: the distance that gradient matching minimises."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from privset.networks.set_gradients import set_gradient

_STABILISER = 1e-6
"""Added to the product of the norms, as in the published code."""


def row_cosine_distance(first: Iterable[Tensor], second: Iterable[Tensor]) -> Tensor:
    """Gradients, tensor by tensor -> [], the sum over output rows of one minus their cosine.

    Weights of two or more dimensions only: biases and the scales of normalisation layers do not count (the
    paper says "weight at the l-th layer"; conv biases before an instance norm have no gradient at all).

    >>> row_cosine_distance([torch.eye(2)], [-torch.eye(2)])
    tensor(4.0000)
    """
    distances = []
    for a, b in zip(first, second, strict=True):
        if a.ndim < 2:
            continue
        a, b = a.flatten(1), b.flatten(1)
        cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1) + _STABILISER)
        distances.append((1 - cosine).sum())
    return torch.stack(distances).sum()


def matching_slope(
    network: nn.Module, images: Tensor, labels: Tensor, target: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """Distance ``[]`` of the set's gradient from ``target``, and its slope by the images ``[m, c, h, w]``."""
    found = set_gradient(network, images, labels)
    weights = [weight.requires_grad_() for weight in found.weights]
    distance = row_cosine_distance(weights, target)
    return distance.detach(), found.pull(torch.autograd.grad(distance, weights, allow_unused=True))
