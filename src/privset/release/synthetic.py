"""The synthetic set itself: labelled images that are free to publish, and how they are written down."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from privset.errors import ReleaseError
from privset.facts import PublicFacts, denormalise, normalise, scale
from privset.methods.method import Synthesis
from privset.release import tensors
from privset.release.generator import Generator
from privset.release.snapshots import Snapshots

FILE = "set.safetensors"

PixelForm = Literal["8-bit", "unbounded floats"]


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticSet:
    """Synthetic images ``[m, channels, height, width]`` with labels ``[m]``.

    >>> facts = PublicFacts(name="toy", channels=1, height=8, width=8, classes=("cat", "dog"), size=100,
    ...                     mean=(0.5,), std=(0.5,))
    >>> white = torch.full((4, 1, 8, 8), 255, dtype=torch.uint8)
    >>> toy = SyntheticSet(white, torch.tensor([0, 0, 1, 1]), facts)
    >>> toy
    SyntheticSet(4 images 1x8x8, 8-bit)
    >>> toy.per_class
    (2, 2)
    >>> float(toy.normalised().max())
    1.0

    Attributes:
        images: uint8 pixels in the data's own form, or unbounded float32 in the normalised space.
        labels: int64; label ``k`` means ``facts.classes[k]``.
        facts: The public description of the data the set stands for.
        generator: What made the images, if it is published with them; None otherwise.
        snapshots: The images as they were along the run, if they are published with them; None otherwise.
    """

    images: Tensor
    labels: Tensor
    facts: PublicFacts
    generator: Generator | None = None
    snapshots: Snapshots | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.images.shape)
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise ReleaseError(f"images must be uint8 pixels or float32, not {self.images.dtype}")
        if self.images.ndim != 4 or shape[0] < 1 or shape[1:] != self.facts.shape:
            expected = ", ".join(map(str, self.facts.shape))
            raise ReleaseError(f"images have shape {list(shape)}, but must be one or more images [m, {expected}]")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ReleaseError(
                f"labels must be int64 with one label for each of the {shape[0]} images, "
                f"not {self.labels.dtype} of shape {list(self.labels.shape)}"
            )
        classes = len(self.facts.classes)
        outside = (self.labels < 0) | (self.labels >= classes)
        if bool(outside.any()):
            raise ReleaseError(f"label {int(self.labels[outside][0])} is outside 0..{classes - 1}")
        if self.images.is_floating_point() and not bool(torch.isfinite(self.images).all()):
            bad = int((~torch.isfinite(self.images).flatten(1).all(dim=1)).sum())
            raise ReleaseError(f"{bad} of {shape[0]} images have values that are not finite; such a set is no use")
        if self.snapshots is not None:
            self.snapshots.check(self.images)

    @classmethod
    def from_synthesis(cls, synthesis: Synthesis, facts: PublicFacts) -> SyntheticSet:
        """What a method made, in the form it is published in: 8-bit pixels unless it keeps its floats.

        Raises:
            ReleaseError: The images are not finite, or shapes or labels do not fit the facts.
        """
        images = synthesis.images.detach().to("cpu", torch.float32).contiguous()
        # Checked as floats: turned into 8-bit pixels first, a NaN would silently become some grey value.
        floats = cls(images, synthesis.labels.detach().cpu().contiguous(), facts)
        generator = None if synthesis.generator is None else Generator(synthesis.generator, facts)

        def published(made: Tensor) -> Tensor:
            return made if synthesis.keep_floats else denormalise(made, facts)

        along = {answers: cls(one, floats.labels, facts).images for answers, one in synthesis.snapshots.items()}
        snapshots = Snapshots({answers: published(one) for answers, one in along.items()}) if along else None
        return cls(published(images), floats.labels, facts, generator, snapshots)

    @property
    def pixel_form(self) -> PixelForm:
        """Whether images are ordinary 8-bit pixels, or floats that need not fit into the range of pixels."""
        return "8-bit" if self.images.dtype == torch.uint8 else "unbounded floats"

    @property
    def keeps_floats(self) -> bool:
        """Whether images are unbounded floats."""
        return self.images.is_floating_point()

    @property
    def per_class(self) -> tuple[int, ...]:
        """How many images each class has."""
        return tuple(torch.bincount(self.labels, minlength=len(self.facts.classes)).tolist())

    @property
    def looks_alike(self) -> bool:
        """Whether the average images of all classes are the same, to half a grey level.

        That is what may become of a generator whose answers drown in their noise.
        """
        pixels = self.pixels()
        means = torch.stack([pixels[self.labels == label].float().mean(0) for label in self.labels.unique()])
        return len(means) > 1 and bool((means.amax(0) - means.amin(0) < 0.5).all())

    def normalised(self) -> Tensor:
        """float32 ``[m, c, h, w]``: what a network should be given."""
        return self.images if self.images.is_floating_point() else normalise(self.images, self.facts)

    def unit(self) -> Tensor:
        """float32 ``[m, c, h, w]``: pixels in [0, 1]; unbounded floats on the same scale, and not cut to it."""
        return scale(self.images, self.facts) if self.images.is_floating_point() else self.images.float() / 255

    def pixels(self) -> Tensor:
        """uint8 ``[m, c, h, w]``: what a person should be shown; unbounded floats are cut to the range."""
        return denormalise(self.images, self.facts) if self.images.is_floating_point() else self.images

    def to_numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """(images, labels) as NumPy arrays, images in the form they are published in."""
        return self.images.numpy(), self.labels.numpy()

    def digest(self) -> str:
        """SHA-256 of the content, however a file encodes it; see `privset.release.tensors.digest`."""
        return tensors.digest({"images": self.images, "labels": self.labels})

    def to_bytes(self) -> bytes:
        """The set as a safetensors file; the same set gives the same bytes."""
        return tensors.to_bytes({"images": self.images, "labels": self.labels})

    @classmethod
    def from_bytes(cls, content: bytes, facts: PublicFacts, where: str = FILE) -> SyntheticSet:
        """The set in a safetensors file's bytes; ``where`` names the file in messages.

        Raises:
            ReleaseError: Not a safetensors file, or not one that holds such a set and nothing else.
        """
        found = tensors.from_bytes(content, where)
        if set(found) != {"images", "labels"}:
            raise ReleaseError(f"{where}: holds {sorted(found)}; a set holds exactly 'images' and 'labels'")
        try:
            return cls(found["images"], found["labels"], facts)
        except ReleaseError as error:
            raise ReleaseError(f"{where}: {error}; get the release again from its source") from error

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"SyntheticSet({len(self)} images {'x'.join(map(str, self.facts.shape))}, {self.pixel_form})"
