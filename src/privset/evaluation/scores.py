"""How good the trained classifiers are on images that no one synthesised."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from privset.data.records import Records
from privset.errors import ConfigError, DataError
from privset.evaluation.recipes import Recipe
from privset.facts import PublicFacts, normalise
from privset.networks.fused import fused

CHUNK = 500
"""Test images classified at once: deep networks on large images then still fit in a small memory."""


AS_TRAINED = "as trained"
"""In place of the name of a recipe: what was published is a classifier, and no one trains it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Test accuracy of a classifier trained several times on one set, or of one that was published itself.

    Attributes:
        data: Name of the data set whose test split was classified.
        trained_on: What was trained on: ``set``, ``real`` or ``noise``; ``private`` for a published classifier, which
            was trained on private records and is tested as it is.
        images: Number of images trained on.
        classifier: Name of the network.
        recipe: How it was trained; None for a published classifier.
        accuracies: Percent of the test images, one for each network.
        confusion: Test images by truth (row) and answer (column), summed over the networks.
        classes: Names of the rows and columns.
        seeds: One for each network; none for a published one.
        seconds: Training and testing together.
        device: What it ran on.
    """

    data: str
    trained_on: str
    images: int
    classifier: str
    recipe: Recipe | None
    accuracies: tuple[float, ...]
    confusion: tuple[tuple[int, ...], ...]
    classes: tuple[str, ...]
    seeds: tuple[int, ...]
    seconds: float
    device: str

    @property
    def recipe_name(self) -> str:
        """What the recipe is called; "as trained" where there is none."""
        return AS_TRAINED if self.recipe is None else self.recipe.name

    @property
    def mean(self) -> float:
        """Mean accuracy in percent."""
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Sample standard deviation of the accuracies in percent; 0 if there is only one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    @property
    def class_accuracies(self) -> tuple[float | None, ...]:
        """Percent of each class's test images; None for a class that has none."""
        totals = [sum(row) for row in self.confusion]
        return tuple(
            100 * row[label] / total if total else None
            for label, (row, total) in enumerate(zip(self.confusion, totals, strict=True))
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as plain lists, numbers and strings."""
        return {
            "data": self.data,
            "trained_on": self.trained_on,
            "images": self.images,
            "classifier": self.classifier,
            "recipe": self.recipe_name,
            "recipe_settings": None if self.recipe is None else dataclasses.asdict(self.recipe),
            "accuracy": {"mean": self.mean, "std": self.std, "runs": list(self.accuracies)},
            "class_accuracy": list(self.class_accuracies),
            "confusion": [list(row) for row in self.confusion],
            "classes": list(self.classes),
            "seeds": list(self.seeds),
            "seconds": self.seconds,
            "device": self.device,
        }

    @classmethod
    def from_json(cls, document: Any) -> Evaluation:
        """What `to_json` wrote, read with suspicion: mean, deviation and shares are computed again, not believed.

        Raises:
            DataError: It is something else, and where.
        """
        try:
            written = {name: document[name] for name in _WRITTEN_AS_THEY_ARE}
            written |= {"recipe": document["recipe_settings"], "accuracies": document["accuracy"]["runs"]}
            found = TypeAdapter(cls).validate_json(json.dumps(written))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise DataError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
        except KeyError as error:
            raise DataError(f"{error} is missing") from error
        except (ConfigError, TypeError) as error:
            raise DataError(str(error) if isinstance(error, ConfigError) else "not an object") from error
        size = len(found.classes)
        if [len(row) for row in found.confusion] != [size] * size or min(map(min, found.confusion), default=0) < 0:
            raise DataError(f"confusion: not counts of {size} by {size} classes")
        if not found.accuracies or not all(0 <= accuracy <= 100 for accuracy in found.accuracies):
            raise DataError("accuracy: not percentages")
        return found


_WRITTEN_AS_THEY_ARE = tuple(
    field.name for field in dataclasses.fields(Evaluation) if field.name not in ("recipe", "accuracies")
)


@torch.no_grad()
def confusion(network: nn.Module, records: Records, facts: PublicFacts) -> Tensor:
    """Counts ``[classes, classes]`` of ``records`` by truth (row) and answer (column), on the CPU.

    The records are normalised and moved to the network's device chunk by chunk.
    """
    network, weight = fused(network), next(network.parameters())
    classes = len(facts.classes)
    counts = torch.zeros(classes * classes, dtype=torch.int64, device=weight.device)
    for start in range(0, len(records), CHUNK):
        images = records.images[start : start + CHUNK].to(weight.device)
        truth = records.labels[start : start + CHUNK].to(weight.device)
        answer = network(normalise(images, facts, weight.dtype)).argmax(dim=1)
        counts += torch.bincount(truth * classes + answer, minlength=classes * classes)
    return counts.view(classes, classes).cpu()
