"""The presets `small`, as they are, teach something at epsilon 10: by training records of `digits`, some held out."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.conftest import resized

from privset.data import Records, load
from privset.facts import normalise
from privset.methods import METHODS, SetMethod
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise

LEAST = {"dp-cgan": 50, "gs-wgan": 60, "dp-sinkhorn": 45, "g-pate": 25, "datalens": 35}
"""Percent of the held-out records; one in ten is right by chance. Sets differ by several percent."""


@pytest.fixture(scope="module")
def digits():
    """(facts, records to learn from, records to score on): of the training records, none of the test split."""
    loaded = load("digits")
    order = torch.randperm(len(loaded.train.labels), generator=torch.Generator().manual_seed(7))
    learned, held = (Records(loaded.train.images[some], loaded.train.labels[some]) for some in order.split(1150))
    return resized(loaded.facts, len(learned.labels)), learned, held


@pytest.mark.parametrize("name", LEAST)
def test_a_classifier_learns_digits_from_a_small_set(name, digits):
    facts, learned, held = digits
    budget = PrivacyBudget(epsilon=10.0)
    method = METHODS[name](METHODS[name].preset("small", per_class=50, epsilon=10.0))
    assert isinstance(method, SetMethod)
    made = method.run(Curator(learned, facts, Ledger(budget), seeded_noise(0)), method.plan(facts, budget))
    model = LogisticRegression(max_iter=1000).fit(made.images.flatten(1).numpy(), made.labels.numpy())
    shown = normalise(held.images, facts).flatten(1)
    assert 100 * model.score(shown.numpy(), held.labels.numpy()) > LEAST[name]
