"""A generator that is published with a set: its weights, free to publish, and the images that are drawn from it."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from privset.errors import ConfigError, ReleaseError
from privset.facts import PublicFacts
from privset.methods import Synthesis
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator
from privset.release import tensors

FILE = "generator.safetensors"

_AT_ONCE = 1000
"""Images drawn at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class Generator:
    """A conditional generator with its weights, for images of the public facts.

    >>> facts = PublicFacts(name="toy", channels=1, height=8, width=8, classes=("cat", "dog"), size=100,
    ...                     mean=(0.5,), std=(0.5,))
    >>> form = GeneratorForm(architecture="upsampling", settings={"length": 2, "width": 3})
    >>> blank = {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in form.blank(facts).items()}
    >>> toy = Generator(TrainedGenerator(form, blank), facts)
    >>> toy
    Generator(upsampling, 3,950 numbers)
    >>> toy.draw(per_class=3, seed=0).images.shape
    torch.Size([6, 1, 8, 8])

    Attributes:
        trained: Its form and its state, float32 but for counters.
        facts: The public description of the data it was trained for.
    """

    trained: TrainedGenerator
    facts: PublicFacts

    def __post_init__(self) -> None:
        form, state = self.trained.form, self.trained.state
        try:
            expected = form.blank(self.facts)
        except ConfigError as error:
            raise ReleaseError(f"there is no such generator: {error}") from error
        kinds = [{name: (value.dtype, value.shape) for name, value in one.items()} for one in (state, expected)]
        if kinds[0] != kinds[1]:
            odd = sorted({name for name, _ in kinds[0].items() ^ kinds[1].items()})
            raise ReleaseError(f"these are not the weights of a generator {form.architecture}: {', '.join(odd)}")
        for name, value in state.items():
            if not bool(value.isfinite().all()):
                raise ReleaseError(f"{name} has values that are not finite: training diverged; lower the learning rate")
        # One order, that of the network, whatever order they are stored in: the digest depends on it.
        ordered = TrainedGenerator(form, {name: state[name] for name in expected})
        object.__setattr__(self, "trained", ordered)

    @torch.no_grad()
    def draw(self, *, per_class: int, seed: int, device: str = "cpu") -> Synthesis:
        """Fresh normalised images, ``per_class`` of each class; the same seed gives the same codes on every device."""
        network = self.trained.network(self.facts).to(device)
        random = torch.Generator().manual_seed(seed)
        labels = torch.arange(len(self.facts.classes)).repeat_interleave(per_class)
        made = [network.normalised(network.draw(some, random).to(device)).cpu() for some in labels.split(_AT_ONCE)]
        return Synthesis(torch.cat(made), labels)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its state, by name."""
        return self.trained.state

    def digest(self) -> str:
        """SHA-256 of the content, however a file encodes it; see `privset.release.tensors.digest`."""
        return tensors.digest(self.tensors)

    def to_bytes(self) -> bytes:
        """The state as a safetensors file; the same state gives the same bytes."""
        return tensors.to_bytes(self.tensors)

    @classmethod
    def from_bytes(cls, content: bytes, form: GeneratorForm, facts: PublicFacts, where: str = FILE) -> Generator:
        """The generator whose state is in a safetensors file's bytes; ``where`` names the file in messages.

        Raises:
            ReleaseError: Not a safetensors file, or not one that holds such a state and nothing else.
        """
        try:
            return cls(TrainedGenerator(form, tensors.from_bytes(content, where)), facts)
        except ReleaseError as error:
            raise ReleaseError(f"{where}: {error}; get the release again from its source") from error

    def __len__(self) -> int:
        return sum(value.numel() for value in self.tensors.values())

    def __repr__(self) -> str:
        return f"Generator({self.trained.form.architecture}, {len(self):,} numbers)"
