"""What the presets `small` are made of teaches something, on training records of `digits` that were held out."""

import dataclasses

import pytest
import torch
from tests.conftest import resized

from privset.data import Records, load
from privset.facts import normalise
from privset.methods import DataLens, GPate
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise

CLASSES = 3
"""The first digits alone, for speed."""


@pytest.fixture(scope="module")
def digits():
    """(facts, records to learn from, records to score on): the first three digits of the training records."""
    loaded = load("digits")
    few = (loaded.train.labels < CLASSES).nonzero()[:, 0]
    few = few[torch.randperm(len(few), generator=torch.Generator().manual_seed(0))]
    learned, held = few[: 4 * len(few) // 5], few[4 * len(few) // 5 :]
    facts = dataclasses.replace(resized(loaded.facts, len(learned)), classes=loaded.facts.classes[:CLASSES])
    parts = [Records(loaded.train.images[some], loaded.train.labels[some]) for some in (learned, held)]
    return facts, *parts


def accuracy(images, labels, facts, held):
    """Of the nearest mean of a class, in percent; what is common to all images is taken out of both sides."""
    means = torch.stack([images[labels == label].mean(0) for label in range(CLASSES)]).flatten(1)
    true = normalise(held.images, facts).flatten(1)
    means, true = (torch.nn.functional.normalize(some - some.mean(0)) for some in (means, true))
    return 100 * float(((true @ means.T).argmax(1) == held.labels).float().mean())


@pytest.mark.parametrize("kind", [DataLens, GPate])
def test_settings_like_small_learn_to_tell_classes_apart_at_epsilon_ten(kind, digits):
    facts, learned, held = digits
    preset = kind.preset("small", per_class=10, epsilon=10.0)
    config = dataclasses.replace(preset, teachers=86, images=CLASSES, steps=25)
    budget = PrivacyBudget(epsilon=10.0)
    method = kind(config)
    made = method.run(Curator(learned, facts, Ledger(budget), seeded_noise(0)), method.plan(facts, budget))
    assert accuracy(made.images, made.labels, facts, held) > 70  # one in three is right by chance
