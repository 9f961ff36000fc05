import math
from pathlib import Path

import pytest
import torch
from tests.conftest import facts_for

from privset.errors import ConfigError
from privset.methods import DataLens, DataLensConfig
from privset.methods.datalens import signs
from privset.privacy import PrivacyBudget

MNIST = facts_for(60_000, classes=10, side=28, name="mnist")
ROOT = Path(__file__).parents[2]


def test_votes_are_signs_of_the_largest_numbers_and_right_on_average():
    random = torch.Generator().manual_seed(0)
    wished = torch.tensor([[3e-5, -1e-5, 4e-6, -2e-6, 1e-7], [0.0, 0.0, 0.0, 1e-9, -2e-9]])
    votes = torch.stack([signs(wished, 3, 1e-5, torch.rand(2, 5, generator=random)) for _ in range(4000)])
    assert set(votes.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert (votes.abs().sum(-1) == 3).all()
    assert torch.equal(votes[:, 0, 3:], torch.zeros(4000, 2))
    assert votes.mean(0)[0, :3].tolist() == pytest.approx([1, -1, 0.4], abs=0.06)
    assert votes.mean(0)[1, 3:].tolist() == pytest.approx([0.5, -1], abs=0.06)  # beside the largest, if all are small
    assert (signs(torch.zeros(1, 4), 2, 1e-5, torch.rand(1, 4)).abs().sum(-1) == 2).all()


def test_the_bound_is_the_length_of_all_votes_of_a_step():
    config = DataLensConfig(steps=1, top=200, images=15)
    (question,) = DataLens(config)._questions(MNIST, 1.0)
    assert question.kind == "vectors"
    assert question.bound == pytest.approx(math.sqrt(15 * 200))
    assert question.sensitivity == pytest.approx(2 * math.sqrt(3000))
    assert DataLensConfig(steps=1).top_for(MNIST) == 196
    with pytest.raises(ConfigError, match="top must be at most 784"):
        DataLensConfig(steps=1, top=785).top_for(MNIST)


@pytest.mark.parametrize(
    ("top", "sigma", "steps", "claimed"),
    [(200, 5000.0, 86, 1.0), (300, 800.0, 109, 10.0), (350, 1000.0, 146, 10.0)],
)
def test_the_published_noise_its_claim_and_what_it_costs_here(top, sigma, steps, claimed):
    config = DataLensConfig(teachers=4000, top=top, sigma=sigma, steps=steps)
    plan = DataLens(config).plan(MNIST, PrivacyBudget(epsilon=claimed))
    longer = DataLens(config)._events(MNIST, plan.noise_multiplier, steps + 1)
    assert plan.claim is not None
    assert plan.claim.epsilon <= claimed < DataLens(config).claim(MNIST, longer, 1e-5).epsilon
    total = 2 * top / sigma**2 * steps * config.images
    by_hand = min(total * order + math.log(1e5) / (order - 1) for order in (1.1, *range(2, 200)))
    assert plan.claim.epsilon == pytest.approx(by_hand)
    assert plan.claim.unsound is not None
    assert "several shards" in plan.claim.unsound
    assert plan.epsilon == pytest.approx({86: 0.738, 109: 8.496, 146: 8.497}[steps], abs=1e-3)
    assert f" {plan.epsilon:.3g} " in DataLens.claims


@pytest.mark.parametrize(("epsilon", "published"), [(1.0, (200, 5000, 0.7, 86)), (10.0, (300, 800, 0.2, 109))])
def test_the_published_settings(epsilon, published):
    config = DataLens.preset("paper", per_class=10, epsilon=epsilon)
    assert (config.top, config.sigma, config.threshold, config.steps) == published
    assert (config.teachers, config.batch_size, config.images) == (4000, 15, 15)
    assert config.pretraining + config.teacher_steps == 10  # lessons before the first question
    assert (config.teacher_steps, config.code, config.limit, config.step_size) == (2, 50, 1e-5, 1e-3)
    assert config.by_class
    assert config.same_codes


def test_pixels_without_votes_are_moved_by_the_published_noise_as_often_as_the_page_says():
    published = [(5000.0, 0.7), (800.0, 0.2), (1000.0, 0.27)]
    moved = [f"{math.erfc(threshold * 4000 / math.sqrt(2) / sigma):.2f}" for sigma, threshold in published]
    page = (ROOT / "docs" / "methods" / "datalens.md").read_text(encoding="utf-8")
    assert "which is {}, {} and {} for the three rows".format(*moved) in page


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [({"limit": 0.0}, "limit must"), ({"step_size": -1.0}, "step-size must"), ({"top": 0}, "top must be")],
)
def test_settings_that_make_no_sense_are_refused(fields, complaint):
    with pytest.raises(ConfigError, match=complaint):
        DataLensConfig(steps=5, **fields)
    with pytest.raises(ConfigError, match="has the presets standard, paper, small"):
        DataLens.preset("best", per_class=1, epsilon=1.0)
