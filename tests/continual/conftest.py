"""Six classes that are easy to tell apart, methods of a second, and an exam of less."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from tests.conftest import TINY

from privset.continual import Exam, Stage, receive
from privset.data import Dataset, PublicFacts, Records
from privset.evaluation import RECIPES, Recipe
from privset.methods import METHODS, DpSgdConfig
from privset.privacy import PrivacyBudget
from privset.release import Certificate

CLASSES = ("ant", "bee", "cat", "dog", "eel", "fox")
BUDGET = PrivacyBudget(epsilon=4.0, accountant="rdp")  # pld would take longer than all the rest
EXAM = Exam(classifier="mlp", recipes=("tiny",), networks=2)

SETTINGS = TINY | {
    "dp-sgd": DpSgdConfig(
        network="mlp",
        width=32,
        epochs=40,
        batch_size=None,
        clip_norm=1.0,
        rate=1.0,
        momentum=0.9,
        decay=True,
        averaging=0.0,
    ),
}
"""Settings of every method: dp-sgd learns something, the others need not."""


def method_named(name, **settings):
    return METHODS[name](dataclasses.replace(SETTINGS[name], **settings))


def records_of(counts, seed):
    """Each class is bright in its own rows, with noise; ``counts[k]`` records of class k."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    images = torch.randint(0, 60, (len(labels), 1, 8, 8), generator=generator)
    for label in range(len(counts)):
        images[labels == label, :, label : label + 2] += 180
    order = torch.randperm(len(labels), generator=generator)
    return Records(images[order].to(torch.uint8), labels[order])


def dataset_of(counts=(30, 20, 25, 40, 20, 15), name="zoo"):
    facts = PublicFacts(
        name=name,
        channels=1,
        height=8,
        width=8,
        classes=CLASSES[: len(counts)],
        size=sum(counts),
        mean=(0.5,),
        std=(0.5,),
    )
    return Dataset(facts, records_of(counts, 0), records_of([10] * len(counts), 1))


@pytest.fixture
def dataset():
    return dataset_of()


@pytest.fixture(autouse=True)
def _tiny_recipe(monkeypatch):
    def tiny(*, channels, images_per_class):
        return Recipe(name="tiny", epochs=5, full_rate_epochs=4, augment=False)

    monkeypatch.setitem(RECIPES, "tiny", tiny)


def stage(
    dataset,
    classes,
    folder,
    number: Any = 1,
    method: Any = "dp-merf",
    received=(),
    budget: Any = BUDGET,
    seed: Any = 7,
    **options,
):
    one = Stage.prepare(
        dataset,
        classes,
        number=number,
        method=method_named(method),
        budget=budget,
        out=folder,
        noise_seed=seed,
        **options,
    )
    one.check_free()
    return one.run(receive(received, budget, private=False))


def forged(path, change):
    """The release with another certificate, sealed anew."""
    file = path / "certificate.json"
    document = json.loads(file.read_text())
    change(document)
    certificate = Certificate.model_validate_json(json.dumps(document)).resealed()
    file.write_bytes(certificate.to_bytes())
