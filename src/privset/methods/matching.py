"""How far two gradients point apart: the distance that gradient matching minimises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from privset.methods import matching_kernels
from privset.networks.set_gradients import set_gradient

_STABILISER = 1e-6
"""Added to the product of the norms, as in the published code."""


def row_cosine_distance(first: Iterable[Tensor | None], second: Iterable[Tensor]) -> Tensor:
    """Gradients, tensor by tensor -> [], the sum over output rows of one minus their cosine.

    Weights of two or more dimensions only, and None stands for one that has fewer: biases and the scales of
    normalisation layers do not count (the paper says "weight at the l-th layer"; conv biases before an instance norm
    have no gradient at all).

    >>> row_cosine_distance([torch.eye(2), None], [-torch.eye(2), torch.ones(2)])
    tensor(4.0000)
    """
    distances = []
    for a, b in zip(first, second, strict=True):
        if a is None or a.ndim < 2:
            continue
        a, b = a.flatten(1), b.flatten(1)
        cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1) + _STABILISER)
        distances.append((1 - cosine).sum())
    return torch.stack(distances).sum()


def distance_and_slopes(
    first: Sequence[Tensor | None], second: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor | None]]:
    """`row_cosine_distance`, and its slope by each tensor of ``first``."""
    first = [None if weight is None or weight.ndim < 2 else weight for weight in first]
    counted = [(a, b) for a, b in zip(first, second, strict=True) if a is not None]
    if all(matching_kernels.fits(weight) for weight, _ in counted):
        found = [matching_kernels.row_cosine(a, b, _STABILISER) for a, b in counted]
        distance, slopes = torch.cat([each for each, _ in found]).sum(), iter([slope for _, slope in found])
    else:
        weights = [weight.detach().requires_grad_() for weight, _ in counted]
        distance = row_cosine_distance(weights, [target for _, target in counted])
        distance, slopes = distance.detach(), iter(torch.autograd.grad(distance, weights))
    return distance, [None if weight is None else next(slopes) for weight in first]


def matching_slope(
    network: nn.Module, images: Tensor, labels: Tensor, target: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Distance ``[]`` of the set's gradient from ``target``, and its slope by the images ``[m, c, h, w]``."""
    found = set_gradient(network, images, labels)
    distance, slopes = distance_and_slopes(found.weights, target)
    return distance, found.pull(slopes)
