"""What a generator is asked for: labels to train on, the set that is published, what is shown while it is trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from privset.networks.generators import ConditionalGenerator
from privset.observer import Glimpse

AT_ONCE = 1000
"""Images drawn at a time."""
_SHOWN = 10
"""Images a class that are shown."""
_SETTLING = 1000
"""Images that batch norm is settled on."""
_FOLLOWING = 50
"""Batches by which norms that follow slowly have forgotten what was before."""


def even_labels(count: int, classes: int, random: torch.Generator) -> Tensor:
    """Labels ``[count]``: each class as often as any other, or once more at most.

    >>> even_labels(4, 2, torch.Generator()).bincount().tolist()
    [2, 2]
    """
    decks = [torch.randperm(classes, generator=random) for _ in range(math.ceil(count / classes))]
    return torch.cat(decks)[:count]


def settled(generator: ConditionalGenerator, random: torch.Generator) -> ConditionalGenerator:
    """A copy to draw images from: batch norm has seen many of all classes, where a step's few leave it restless.

    What it has seen is made by the weights as they are, and not by those of the steps before.
    """
    network, device = copy.deepcopy(generator), next(generator.parameters()).device
    for layer in network.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.reset_running_stats()
            layer.momentum = 1.0
    with torch.no_grad():
        network(network.draw(torch.arange(_SETTLING) % len(network.facts.classes), random).to(device))
    return network.eval()


@torch.no_grad()
def become_average(network: ConditionalGenerator, averages: Iterable[Tensor], draw: Callable[[], Tensor]) -> None:
    """Give a network its averaged weights, and its norms what belongs to these.

    Batch norm remembers means, spectral norm directions; both follow whenever images are made, of codes from ``draw``.
    """
    for weight, average in zip(network.parameters(), averages, strict=True):
        weight.copy_(average)
    for _ in range(_FOLLOWING):
        network(draw())
    network.eval()


@torch.no_grad()
def drawn(network: ConditionalGenerator, labels: Tensor, random: torch.Generator) -> Tensor:
    """Normalised images ``[n, c, h, w]`` of these labels ``[n]``, on the processor, of codes from ``random``."""
    device = next(network.parameters()).device
    parts = [network.normalised(network.draw(part, random).to(device)).cpu() for part in labels.split(AT_ONCE)]
    return torch.cat(parts).contiguous()


def glimpse(
    network: ConditionalGenerator, per_class: int, values: Mapping[str, Tensor | float] | None = None
) -> Glimpse:
    """What the generator makes now; it stays as it is.

    The codes are the same each time, and not from the stream of the training.
    """
    labels = torch.arange(len(network.facts.classes)).repeat_interleave(min(per_class, _SHOWN))
    training = network.training
    network.eval()  # norms would follow what is shown
    images = drawn(network, labels, torch.Generator().manual_seed(0))
    network.train(training)
    return Glimpse(images, labels, values or {})
