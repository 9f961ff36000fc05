"""A classifier that was trained on private records: its weights, which are free to publish, and how to use them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor, nn

from privset.errors import ConfigError, DataError, ReleaseError
from privset.facts import PublicFacts, normalise
from privset.methods import Architecture, Trained
from privset.release import tensors

FILE = "classifier.safetensors"

_OVERSHOOT = 0.5
"""How far outside [0, 1] a pixel may be that was resized or rounded: normalised images are further."""
_AT_ONCE = 500


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A network with its weights, for images of the public facts.

    >>> facts = PublicFacts(name="toy", channels=1, height=8, width=8, classes=("cat", "dog"), size=100,
    ...                     mean=(0.5,), std=(0.5,))
    >>> architecture = Architecture(network="scattering")
    >>> blank = {name: torch.zeros(shape) for name, shape in architecture.shapes(facts).items()}
    >>> toy = Classifier(architecture, blank, facts)
    >>> toy
    Classifier(scattering, 650 weights)
    >>> toy.predict(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
    tensor([0, 0, 0])

    Attributes:
        architecture: Of the network.
        weights: float32 on the CPU, by name.
        facts: The public description of the data it was trained on; images to classify must be like these.
    """

    architecture: Architecture
    weights: dict[str, Tensor]
    facts: PublicFacts

    def __post_init__(self) -> None:
        try:
            expected = self.architecture.shapes(self.facts)
        except ConfigError as error:
            raise ReleaseError(f"there is no such classifier: {error}") from error
        found = {name: tuple(value.shape) for name, value in self.weights.items()}
        if found != expected:
            odd = sorted(name for name, _ in found.items() ^ expected.items())
            raise ReleaseError(f"these are not the weights of a {self.architecture.network}: {', '.join(set(odd))}")
        for name, value in self.weights.items():
            if value.dtype != torch.float32:
                raise ReleaseError(f"{name} must be float32, not {value.dtype}")
            if not bool(value.isfinite().all()):
                raise ReleaseError(f"{name} has values that are not finite: training diverged; lower the learning rate")
        # One order, that of the network, whatever order they are stored in: the digest depends on it.
        object.__setattr__(self, "weights", {name: self.weights[name] for name in expected})

    @classmethod
    def from_training(cls, trained: Trained, facts: PublicFacts) -> Classifier:
        """What a method trained, for these public facts.

        Raises:
            ReleaseError: Weights are missing, or not finite.
        """
        return cls(trained.architecture, trained.weights, facts)

    def network(self) -> nn.Module:
        """The network on the CPU; it maps normalised images ``[n, c, h, w]`` to logits ``[n, classes]``."""
        network = self.architecture.build(self.facts)
        with torch.no_grad():
            for name, value in network.named_parameters():
                value.copy_(self.weights[name])
        return network.eval()

    @torch.no_grad()
    def logits(self, images: Tensor | np.ndarray) -> Tensor:
        """Images ``[n, c, h, w]``, 8-bit pixels or floats in [0, 1], of torch or NumPy -> logits ``[n, classes]``.

        Raises:
            DataError: Images of another form than it was trained on.
        """
        images = torch.as_tensor(images)
        if images.ndim != 4 or tuple(images.shape[1:]) != self.facts.shape:
            expected = ", ".join(map(str, self.facts.shape))
            raise DataError(f"images have shape {list(images.shape)}, but this classifier is for [n, {expected}]")
        if not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise DataError(f"images must be uint8 pixels or floats in [0, 1], not {images.dtype}")
        # What resizing and rounding leave a little outside is cut off; a NaN is nowhere inside.
        if images.is_floating_point() and not bool(((images >= -_OVERSHOOT) & (images <= 1 + _OVERSHOOT)).all()):
            raise DataError(
                "images are floats far outside [0, 1], or no numbers; divide pixels from 0 to 255 by 255, or give them "
                "as uint8, and do not normalise: this classifier does that itself"
            )
        pixels = images if images.dtype == torch.uint8 else images.float().clamp(0, 1) * 255
        network = self.network()
        found = [network(normalise(part, self.facts)) for part in pixels.split(_AT_ONCE) if len(part)]
        return torch.cat([torch.zeros(0, len(self.facts.classes)), *found])

    def predict(self, images: Tensor | np.ndarray) -> Tensor:
        """Images, as for `logits` -> the label of each ``[n]``; label ``k`` means ``facts.classes[k]``."""
        return self.logits(images).argmax(dim=1)

    def digest(self) -> str:
        """SHA-256 of the content, however a file encodes it; see `privset.release.tensors.digest`."""
        return tensors.digest(self.weights)

    def to_bytes(self) -> bytes:
        """The weights as a safetensors file; the same weights give the same bytes."""
        return tensors.to_bytes(self.weights)

    @classmethod
    def from_bytes(
        cls, content: bytes, architecture: Architecture, facts: PublicFacts, where: str = FILE
    ) -> Classifier:
        """The classifier whose weights are in a safetensors file's bytes; ``where`` names the file in messages.

        Raises:
            ReleaseError: Not a safetensors file, or not one that holds such weights and nothing else.
        """
        weights = tensors.from_bytes(content, where)
        try:
            return cls(architecture, weights, facts)
        except ReleaseError as error:
            raise ReleaseError(f"{where}: {error}; get the release again from its source") from error

    def __len__(self) -> int:
        return sum(value.numel() for value in self.weights.values())

    def __repr__(self) -> str:
        return f"Classifier({self.architecture.network}, {len(self):,} weights)"
