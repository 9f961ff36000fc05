"""How far the class means of a synthetic set's features are from those that moments measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.descent import Descent
from privset.methods.measuring import Measured, Statistics
from privset.methods.method import Execution
from privset.networks.features import RandomFeatures, WaveLift
from privset.networks.precision import tensor_cores
from privset.networks.stacking import Stack
from privset.recording import sent

if TYPE_CHECKING:
    from privset.methods.moments import MomentsConfig

_PIXELS_AT_ONCE = 2**23
"""Pixels that go through a network together: those of 8192 images of 32x32."""


class Matching:
    """How far the class means of images are from the measured ones, network by network.

    The weights of all networks are stacked, so that a choice of networks is a choice of rows: a tensor on the
    device, which a recorded step can be given.

    Args:
        measured: What was measured.
        execution: Where to compute.
    """

    def __init__(self, measured: Measured[MomentsConfig], execution: Execution) -> None:
        self.facts, self.classes = measured.facts, len(measured.facts.classes)
        self.device = torch.device(execution.device)
        self._maps = Stack(list(feature_maps(measured.config, measured.facts, execution)))
        self._centres, self._targets = network_moments(measured.statistics, measured.facts, execution)
        shapes = {name: tuple(value.shape) for name, value in measured.statistics.items()}
        self._lift = wave_lift(measured.config, shapes, execution)

    def labels(self, per_class: int) -> Tensor:
        """Labels ``[classes * per_class]`` of a set, class by class."""
        return torch.arange(self.classes, device=self.device).repeat_interleave(per_class)

    def choose(self, count: int, generator: torch.Generator) -> Tensor:
        """The numbers ``[count]`` of different networks; of all of them if there are fewer."""
        return sent(torch.randperm(len(self._centres), generator=generator)[:count], self.device)

    def follow(self, descent: Descent, chosen: Tensor) -> Tensor:
        """The squared distance ``[]`` of the images of a descent by these networks, which it is to bring down."""
        # One network and one group of classes after the other, so that the memory of one is enough.
        rows = [chosen[position : position + 1] for position in range(len(chosen))]
        parts = itertools.product(rows, class_groups(self.facts, len(descent.images) // self.classes))
        with tensor_cores(self.device):
            found = [descent.follow(lambda images, p=part: self._distance(images, *p)) for part in parts]
        return torch.stack(found).sum()

    def _distance(self, images: Tensor, row: Tensor, group: slice) -> Tensor:
        """The part of the squared distance ``[]`` by one network that is due to a group of classes."""
        some = images.unflatten(0, (self.classes, -1))[group].flatten(0, 1)
        centre, target = self._centres.index_select(0, row)[0], self._targets.index_select(0, row)[0]
        lifted = self._lift(self._maps(row, some) - centre)
        return (lifted.unflatten(0, (len(target[group]), -1)).mean(1) - target[group]).square().sum()


def class_groups(facts: PublicFacts, per_class: int) -> list[slice]:
    """The classes in groups whose images go through a network together; a class is never divided."""
    together = max(1, _PIXELS_AT_ONCE // (per_class * facts.height * facts.width))
    return [slice(first, first + together) for first in range(0, len(facts.classes), together)]


def feature_maps(config: MomentsConfig, facts: PublicFacts, execution: Execution) -> Iterator[RandomFeatures]:
    """All the networks, one after the other, on the device."""
    for number in range(config.networks):
        yield feature_map(config, facts, number).to(execution.device)


def feature_map(config: MomentsConfig, facts: PublicFacts, number: int) -> RandomFeatures:
    """The network of that number, from the public seed alone."""
    return RandomFeatures(
        facts,
        seed=config.seed * 1_000_003 + number,
        width=config.width,
        depth=config.depth,
        resolution=config.resolution,
        warp=config.warp,
    )


def wave_lift(config: MomentsConfig, shapes: Mapping[str, tuple[int, ...]], execution: Execution) -> WaveLift:
    """The lift of features of the shapes that were, or will be, measured."""
    features = shapes["feature_sums"][1]
    return WaveLift(features, waves=config.waves, bandwidth=config.bandwidth, seed=config.seed).to(execution.device)


def network_moments(statistics: Statistics, facts: PublicFacts, execution: Execution) -> tuple[Tensor, Tensor]:
    """Of each network the mean feature ``[P, d]``, and the mean lifted feature of each class ``[P, classes, e]``.

    Sums are divided by the number of records, which is public, or by noisy class sizes. A mean of unit vectors is no
    longer than 1; one of a class that is, by noise in few records, is shortened to that.
    """
    sizes, totals, sums = (
        statistics[name].to(execution.device) for name in ("class_sizes", "feature_sums", "lifted_sums")
    )
    targets = sums / sizes.clamp_min(1)
    return totals / facts.size, targets / targets.norm(dim=2, keepdim=True).clamp_min(1)
