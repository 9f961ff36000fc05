"""What to print beside a set's accuracy: the same evaluation with the real images, and with noise.

Both are for whoever holds the data: an accuracy on real training images is not differentially private.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privset.data import load as load_data
from privset.data.records import Dataset, Records
from privset.errors import ConfigError
from privset.evaluation.protocol import evaluate
from privset.evaluation.scores import Evaluation
from privset.facts import PublicFacts, normalise


def evaluate_real(
    data: Dataset | str | Path, *, per_class: int | None = None, seed: int = 0, **settings: Any
) -> Evaluation:
    """Train on the real training records: the ceiling.

    Args:
        data: The data, or what `load` takes.
        per_class: Take this many random records of each class; None takes all records.
        seed: Public seed of the choice and of the training.
        settings: As in `evaluate`.
    """
    dataset = data if isinstance(data, Dataset) else load_data(data)
    records = dataset.train if per_class is None else choose_per_class(dataset.train, per_class, dataset.facts, seed)
    images = normalise(records.images, dataset.facts)
    return evaluate(images, records.labels, dataset, seed=seed, trained_on="real", **settings)


def evaluate_noise(data: Dataset | str | Path, labels: Tensor, *, seed: int = 0, **settings: Any) -> Evaluation:
    """Train on standard normal pixels: the floor.

    Args:
        data: Whose test split is classified; or what `load` takes.
        labels: ``[n]`` of the set to compare with; the noise has as many images of each class.
        seed: Public seed of the noise and of the training.
        settings: As in `evaluate`.
    """
    dataset = data if isinstance(data, Dataset) else load_data(data)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(len(labels), *dataset.facts.shape, generator=generator)
    return evaluate(images, labels, dataset, seed=seed, trained_on="noise", **settings)


def choose_per_class(records: Records, per_class: int, facts: PublicFacts, seed: int) -> Records:
    """``per_class`` random records of each class, in the order of the classes."""
    if per_class < 1:
        raise ConfigError(f"at least one real image a class is needed, not {per_class}")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(records), generator=generator)
    shuffled = records.labels[order]
    chosen = []
    for label, name in enumerate(facts.classes):
        found = order[shuffled == label][:per_class]
        if len(found) < per_class:
            raise ConfigError(f"class {name} of {facts.name} has only {len(found)} of {per_class} real images")
        chosen.append(found)
    index = torch.cat(chosen)
    return Records(records.images[index], records.labels[index])
