"""Methods that train a classifier on the records: no set comes of them, but weights that are free to publish."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from privset import networks
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.methods.method import Execution, Method
from privset.methods.plan import Plan
from privset.methods.settings import Config
from privset.observer import Observer
from privset.privacy.curator import Curator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """Which network it is: with the public facts, all that is needed to build it again.

    Attributes:
        network: Name of the network.
        width: Its channels or hidden units; None for its own.
        depth: Its number of blocks; None for its own.
    """

    network: str
    width: int | None = None
    depth: int | None = None

    def build(self, facts: PublicFacts, *, seed: int = 0) -> nn.Module:
        """The network with fresh weights, which depend on the seed alone.

        Raises:
            ConfigError: There is no such network, or it has no such width or depth.
        """
        return networks.build(self.network, facts, seed=seed, width=self.width, depth=self.depth)

    def shapes(self, facts: PublicFacts) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight, without computing any.

        >>> facts = PublicFacts(name="toy", channels=1, height=8, width=8, classes=("cat", "dog"), size=100,
        ...                     mean=(0.5,), std=(0.5,))
        >>> Architecture(network="scattering").shapes(facts)
        {'head.weight': (2, 324), 'head.bias': (2,)}
        """
        with torch.device("meta"):
            return {name: tuple(value.shape) for name, value in self.build(facts).named_parameters()}


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """What a method trained: weights by name, free to publish.

    Attributes:
        architecture: Of the network they belong to.
        weights: float32, on the CPU.
    """

    architecture: Architecture
    weights: dict[str, Tensor]


class TrainingMethod(Method[Config]):
    """A method that trains a classifier, which is released itself: it is the limit that sets are compared with."""

    makes = "a classifier"

    @property
    @abc.abstractmethod
    def architecture(self) -> Architecture:
        """Of the network that is trained; the settings alone decide it."""

    def train(
        self,
        curator: Curator,
        plan: Plan,
        *,
        start: Mapping[str, Tensor] | None = None,
        execution: Execution | None = None,
        observer: Observer | None = None,
    ) -> Trained:
        """Ask exactly the planned questions and train the classifier with the answers.

        Args:
            curator: Holds the records.
            plan: What may be asked.
            start: Public weights to go on from, such as those of another party; fresh ones if there are none.
            execution: Where to compute.
            observer: Told about progress.
        """
        self._check(curator, plan)
        expected = self.architecture.shapes(plan.facts)
        if start is not None and {name: tuple(value.shape) for name, value in start.items()} != expected:
            raise ConfigError(
                f"the weights to start from are not those of a {self.architecture.network} for these classes"
            )
        weights = self._train(curator, plan, start, execution or Execution(), observer or Observer())
        found = {name: value.detach().to("cpu", torch.float32).contiguous() for name, value in weights.items()}
        return Trained(self.architecture, found)

    @abc.abstractmethod
    def _train(
        self,
        curator: Curator,
        plan: Plan,
        start: Mapping[str, Tensor] | None,
        execution: Execution,
        observer: Observer,
    ) -> dict[str, Tensor]:
        """The method itself; `train` has checked that plan, settings and curator belong together."""
