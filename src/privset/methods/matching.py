"""How far two gradients point apart: the distance that gradient matching minimises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from privset.methods import matching_kernels
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


def distance_and_slopes(first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor | None]]:
    """`row_cosine_distance`, and its slope by each tensor of ``first``; None for one that does not count."""
    if all(matching_kernels.fits(weight) for weight in first):
        found = [
            matching_kernels.row_cosine(a, b, _STABILISER) if a.ndim > 1 else None
            for a, b in zip(first, second, strict=True)
        ]
        distances = torch.cat([each[0] for each in found if each is not None])
        return distances.sum(), [None if each is None else each[1] for each in found]
    weights = [weight.detach().requires_grad_() for weight in first]
    distance = row_cosine_distance(weights, second)
    return distance.detach(), torch.autograd.grad(distance, weights, allow_unused=True)


def matching_slope(
    network: nn.Module, images: Tensor, labels: Tensor, target: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Distance ``[]`` of the set's gradient from ``target``, and its slope by the images ``[m, c, h, w]``."""
    found = set_gradient(network, images, labels)
    distance, slopes = distance_and_slopes(found.weights, target)
    return distance, found.pull(slopes)
