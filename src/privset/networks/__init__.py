"""Public architectures: the classifiers that methods train or match gradients on and that evaluation trains."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping

import torch
from torch import nn

from privset.errors import ConfigError, did_you_mean
from privset.facts import PublicFacts
from privset.networks.classifiers import MLP, AlexNet, ConvNet, LeNet, Shape
from privset.networks.deep_classifiers import VGG11, ResNet18
from privset.networks.scattering import ScatteringNet

__all__ = ["CLASSIFIERS", "MLP", "VGG11", "AlexNet", "ConvNet", "LeNet", "ResNet18", "ScatteringNet", "Shape", "build"]

CLASSIFIERS: Mapping[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "lenet": LeNet,
    "alexnet": AlexNet,
    "vgg11": VGG11,
    "resnet18": ResNet18,
    "mlp": MLP,
    "scattering": ScatteringNet,
}
"""Every classifier by the name the command line knows it by."""


def build(
    name: str,
    facts: PublicFacts,
    *,
    seed: int | None = None,
    width: int | None = None,
    depth: int | None = None,
) -> nn.Module:
    """A freshly initialised classifier for the images and classes of ``facts``, on the CPU, in float32.

    The weights depend on ``seed`` alone: the global random state is neither read nor moved, on any device.

    Args:
        name: One of `CLASSIFIERS`.
        facts: What is public about the data.
        seed: Seed of the initial weights; None draws one from the operating system.
        width: Channels or hidden units, for the networks that have the choice (convnet, mlp).
        depth: Number of blocks, for the networks that have the choice (convnet).

    >>> facts = PublicFacts(name="digits", channels=1, height=8, width=8, classes=tuple("0123456789"),
    ...                     size=1437, mean=(0.5,), std=(0.5,))
    >>> build("convnet", facts, seed=0, width=16)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if name not in CLASSIFIERS:
        known = ", ".join(sorted(CLASSIFIERS))
        raise ConfigError(f"there is no classifier {name!r}.{did_you_mean(name, CLASSIFIERS)} Known: {known}.")
    constructor = CLASSIFIERS[name]
    options = {key: value for key, value in (("width", width), ("depth", depth)) if value is not None}
    for option, value in options.items():
        if option not in inspect.signature(constructor).parameters:
            raise ConfigError(f"the {option} of {name} cannot be chosen")
        if value < 1:
            raise ConfigError(f"the {option} of {name} must be at least 1, not {value}")
    # torch.manual_seed would also reset the generators of every graphics card, which fork_rng(devices=[])
    # does not put back; the generator of the CPU is the only one that initialisation draws from.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        return constructor(facts.shape, len(facts.classes), **options)
