"""The set as PyTorch takes it: a map-style data set of (image, label), like those of torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from privset.facts import PublicFacts
from privset.release.synthetic import SyntheticSet


class LabelledImages(Dataset[tuple[Any, int]]):
    """Pairs of a float32 image ``[c, h, w]`` and its label, an int; for a `torch.utils.data.DataLoader`.

    Attributes:
        images: All images ``[m, c, h, w]``, before the transform.
        targets: All labels ``[m]``, under the name torchvision gives them.
        classes: Class names; label ``k`` means ``classes[k]``.
        class_to_idx: The label of each name.
        facts: The public constants that test images are to be normalised with, if these are.
    """

    def __init__(
        self, synthetic: SyntheticSet, transform: Callable[[Tensor], Any] | None = None, *, normalised: bool = False
    ) -> None:
        self.images: Tensor = synthetic.normalised() if normalised else synthetic.unit()
        self.targets: Tensor = synthetic.labels
        self.facts: PublicFacts = synthetic.facts
        self.classes = list(synthetic.facts.classes)
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        self._transform = transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        return image if self._transform is None else self._transform(image), int(self.targets[index])
