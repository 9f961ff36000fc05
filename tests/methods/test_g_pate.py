import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.errors import ConfigError
from privset.methods import GPate, GPateConfig
from privset.methods.g_pate import moved
from privset.methods.teachers import claimed_epsilon
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise
from privset.privacy.wards import Guardian

MNIST = facts_for(60_000, classes=10, side=28, name="mnist")
CONFIG = TINY["g-pate"]


def test_a_step_asks_for_counts_and_if_told_for_the_lead_with_noise_in_multiples_of_sigma():
    facts = facts_for(40)
    counts, lead = GPate(CONFIG)._questions(facts, 2.0)
    assert (counts.kind, lead.kind) == ("choices", "lead")
    assert counts.histograms == lead.histograms == 6
    sigma = counts.noise_multiplier * counts.sensitivity
    assert sigma == pytest.approx(2 * math.sqrt(12))
    assert lead.noise_multiplier * lead.sensitivity == pytest.approx(CONFIG.check * sigma)
    (only,) = GPate(dataclasses.replace(CONFIG, check=None))._questions(facts, 2.0)
    assert only == counts


@pytest.mark.parametrize("check", [2.0, None])
def test_teachers_are_heard_once_in_a_step_whatever_is_asked_of_them(check, monkeypatch):
    facts, budget, heard = facts_for(40), PrivacyBudget(epsilon=math.inf), []
    hear = Guardian.hear

    def counted(*args):
        heard.append(args)
        return hear(*args)

    monkeypatch.setattr(Guardian, "hear", counted)
    method = GPate(dataclasses.replace(CONFIG, check=check))
    curator = Curator(records_for(facts), facts, Ledger(budget), seeded_noise(0))
    method.run(curator, method.plan(facts, budget))
    assert len(heard) == CONFIG.steps


@pytest.mark.parametrize(
    ("epsilon", "sigma", "check", "teachers", "batch", "code"),
    [(1.0, 1000, 3000, 4000, 15, 50), (10.0, 100, 600, 2000, 30, 100)],
)
def test_the_published_settings(epsilon, sigma, check, teachers, batch, code):
    config = GPate.preset("paper", per_class=10, epsilon=epsilon)
    assert config.check is not None
    assert (config.sigma, sigma * config.check, config.teachers) == (sigma, check, teachers)
    assert (config.batch_size, config.images, config.code, config.projections, config.bins) == (
        batch,
        batch,
        code,
        10,
        10,
    )
    assert (config.limit, config.threshold, config.rate) == (1e-4, 0.5, 1e-3)
    plan = GPate(config).plan(MNIST, PrivacyBudget(epsilon=epsilon))
    assert 0.99 * epsilon < plan.epsilon <= epsilon
    assert {event.count for event in plan.events} == {{1.0: 226, 10.0: 65}[epsilon]}


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_the_published_accountant_at_its_upper_end_is_looser_than_what_is_proven(epsilon):
    config = GPateConfig.paper(epsilon=epsilon)
    assert config.sigma is not None
    assert config.check is not None
    plan = GPate(config).plan(MNIST, PrivacyBudget(epsilon=epsilon))
    (counts, _), claim = plan.events, plan.claim
    assert claim is not None
    # Each histogram by itself: two counts move by 1, and the largest one by 1.
    each = 1 / config.sigma**2 + 0.5 / (config.check * config.sigma) ** 2
    total = each * counts.count * config.images * config.projections
    by_hand = min(total * order + math.log(1e5) / (order - 1) for order in (1.1, *range(2, 200)))
    assert claim.epsilon == claimed_epsilon(plan.events, 1e-5) == pytest.approx(by_hand)
    assert claim.epsilon > plan.epsilon
    assert claim.unsound is not None
    assert "depends on these" in claim.unsound
    for number in (claim.epsilon, plan.epsilon):
        assert f" {number:.3g}" in GPate.claims


def test_an_image_moves_to_the_middle_of_the_bin_that_won_where_enough_teachers_agree():
    config = GPateConfig(steps=1, bins=4, limit=2.0, projections=3, threshold=0.5)
    counts = torch.tensor([[[9.0, 1, 0, 0], [0, 3, 4, 3], [0, 0, 1, 9]]])
    directions = torch.eye(3)[None]
    moves = moved(counts, counts.amax(-1), directions, config, teachers=10)
    assert moves.tolist() == [[-1.5, 0.0, 1.5]]
    loose = moved(counts, torch.full((1, 3), 100.0), directions, config, teachers=10)
    assert loose.tolist() == [[-1.5, 0.5, 1.5]]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"bins": 1}, "bins must be"),
        ({"limit": 0.0}, "limit must be"),
        ({"check": -1.0}, "check must be"),
        ({"projections": 0}, "projections must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, complaint):
    with pytest.raises(ConfigError, match=complaint):
        GPateConfig(steps=5, **fields)
    with pytest.raises(ConfigError, match="has the presets standard, paper, small"):
        GPate.preset("best", per_class=1, epsilon=1.0)
