"""Generators that are published: known by the name of their architecture and its settings, never by code or pickle.

An architecture that is listed here can never change its layers or their names again: a change is a new name.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.networks.adversaries import ConditionalDcgan
from privset.networks.deconvolution import DeconvolutionGenerator
from privset.networks.generators import ConditionalGenerator, PerceptronGenerator, UpsamplingGenerator
from privset.networks.linear import LinearGenerator
from privset.networks.residual import ResidualGenerator
from privset.networks.transposed import TransposedGenerator

GENERATORS: Mapping[str, Callable[..., ConditionalGenerator]] = {
    "upsampling": UpsamplingGenerator,
    "linear": LinearGenerator,
    "deconvolution": DeconvolutionGenerator,
    "perceptron": PerceptronGenerator,
    "published-residual": ResidualGenerator,
    "transposed": TransposedGenerator,
    "conditional-dcgan": ConditionalDcgan,
}
"""Every generator that can be published, by its name; called with public facts, a seed, and its settings by name."""

MOST = 2**16
"""The largest setting of a generator; more only a hostile certificate has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorForm:
    """Which generator it is: with the public facts, all that is needed to build it again.

    Attributes:
        architecture: One of `GENERATORS`.
        settings: Every setting of it, by name.
    """

    architecture: str
    settings: Mapping[str, int | bool]

    def build(self, facts: PublicFacts, *, seed: int = 0) -> ConditionalGenerator:
        """The generator with fresh weights, which depend on the seed alone.

        Raises:
            ConfigError: There is no such generator, or it has no such settings.
        """
        if self.architecture not in GENERATORS:
            raise ConfigError(f"there is no generator {self.architecture!r}; there are {', '.join(GENERATORS)}")
        kind = GENERATORS[self.architecture]
        known = inspect.signature(kind).parameters.keys() - {"facts", "seed"}
        if self.settings.keys() != known:
            raise ConfigError(
                f"a generator {self.architecture} has the settings {', '.join(sorted(known))}, and these are "
                f"{', '.join(sorted(self.settings)) or 'none'}"
            )
        for name, value in self.settings.items():
            if not isinstance(value, bool) and not 1 <= value <= MOST:
                raise ConfigError(f"{name} of a generator must lie between 1 and {MOST:,}, not {value}")
        return kind(facts, seed=seed, **self.settings)

    def blank(self, facts: PublicFacts) -> dict[str, Tensor]:
        """Name, shape and dtype of every tensor of its state, without computing or holding any.

        >>> facts = PublicFacts(name="toy", channels=1, height=28, width=28, classes=tuple("0123456789"), size=100,
        ...                     mean=(0.5,), std=(0.5,))
        >>> form = GeneratorForm(architecture="deconvolution", settings={"length": 10, "width": 256, "bounded": False})
        >>> sum(value.numel() for value in form.blank(facts).values())
        1114305
        """
        with torch.device("meta"):
            return dict(self.build(facts).state_dict())


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedGenerator:
    """A generator as a method trained it; free to publish.

    Attributes:
        form: Which one it is.
        state: Its weights, and the averages of its norms, by name; on the CPU.
    """

    form: GeneratorForm
    state: dict[str, Tensor]

    @classmethod
    def of(cls, form: GeneratorForm, network: ConditionalGenerator) -> TrainedGenerator:
        """The state of a network of this form, as it is now."""
        state = {name: value.detach().cpu().clone().contiguous() for name, value in network.state_dict().items()}
        return cls(form, state)

    def network(self, facts: PublicFacts) -> ConditionalGenerator:
        """The generator on the CPU, as it is used after training."""
        network = self.form.build(facts)
        network.load_state_dict(self.state)
        return network.eval()
