import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.data import Records, facts_of
from privset.errors import BudgetError, ConfigError
from privset.methods import Execution, Moments, MomentsConfig, moment_matching
from privset.methods.descent import Descent
from privset.methods.moment_matching import Matching, class_groups, feature_maps, network_moments
from privset.networks.features import RandomFeatures, WaveLift
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise

TINY_MOMENTS = TINY["moments"]


def measured(config, records, facts, *, epsilon=math.inf, noise_seed=0):
    method, budget = Moments(config), PrivacyBudget(epsilon=epsilon)
    plan = method.plan(facts, budget)
    curator = Curator(records, facts, Ledger(budget), seeded_noise(noise_seed))
    return method, method.measure(curator, plan)


def maps_and_moments(found):
    """Every network with the centre and the targets that were measured by it."""
    maps = feature_maps(found.config, found.facts, Execution())
    return zip(maps, *network_moments(found.statistics, found.facts, Execution()), strict=True)


def lift_of(found):
    """The lift that was measured with, which is known by its seed."""
    config, features = found.config, found.statistics["feature_sums"].shape[1]
    return WaveLift(features, waves=config.waves, bandwidth=config.bandwidth, seed=config.seed)


@pytest.mark.parametrize("networks", [1, 40])
@pytest.mark.parametrize(("epsilon", "noise"), [(1.0, 3.731), (10.0, 0.500)])
def test_all_questions_together_are_one_gaussian_mechanism(networks, epsilon, noise):
    config = MomentsConfig(networks=networks)
    plan = Moments(config).plan(facts_for(60_000, classes=10, side=28), PrivacyBudget(epsilon=epsilon))
    assert plan.noise_multiplier == pytest.approx(noise, abs=2e-3)
    assert plan.questions == 1 + 2 * networks
    joint = sum(event.count / event.noise_multiplier**2 for event in plan.events) ** -0.5
    assert joint == pytest.approx(plan.noise_multiplier, rel=1e-9)
    assert {(event.question, event.sampling_rate) for event in plan.events} == {("total", 1.0)}


def test_shares_of_the_budget_are_shares_of_precision():
    config = MomentsConfig(networks=10, centre_share=0.3, count_share=0.2)
    plan = Moments(config).plan(facts_for(6000), PrivacyBudget(epsilon=1.0))
    shares = [event.count * (plan.noise_multiplier / event.noise_multiplier) ** 2 for event in plan.events]
    assert shares == pytest.approx([0.2, 0.3, 0.5])


def test_without_noise_the_targets_are_the_class_means_of_the_centred_features():
    facts = facts_for(30)
    records = records_for(facts)
    _, found = measured(TINY_MOMENTS, records, facts)
    from privset.facts import normalise

    images = normalise(records.images, facts)
    for features, centre, targets in maps_and_moments(found):
        seen = features(images)
        assert torch.allclose(centre, seen.mean(0), atol=1e-5)
        lifted = lift_of(found)(seen - seen.mean(0))
        for label in range(3):
            assert torch.allclose(targets[label], lifted[records.labels == label].mean(0), atol=1e-5)


def test_classes_of_any_size_and_absent_ones_are_measured():
    facts = facts_for(21, classes=4)
    records = Records(records_for(facts).images, torch.tensor([0] * 18 + [1, 1, 3]))
    _, found = measured(TINY_MOMENTS, records, facts)
    for _, _, targets in maps_and_moments(found):
        assert bool(targets.isfinite().all())
        assert float(targets[2].abs().sum()) == 0  # nobody is there


def test_noise_in_few_records_makes_no_mean_longer_than_those_of_unit_vectors():
    facts = facts_for(40)
    _, found = measured(TINY_MOMENTS, records_for(facts), facts)
    loud = found.statistics | {"class_sizes": torch.tensor([[-3.0], [20.0], [0.5]])}
    for (_, quiet_centre, quiet), (_, centre, targets) in zip(
        maps_and_moments(found), maps_and_moments(dataclasses.replace(found, statistics=loud)), strict=True
    ):
        assert torch.allclose(targets[[0, 2]].norm(dim=1), torch.ones(2))
        assert torch.allclose(targets[0], torch.nn.functional.normalize(quiet[0], dim=0), atol=1e-6)
        assert float(targets[1].norm()) < 1  # left as it is
        # The number of records is public, so noise in class sizes does not move the mean of everyone.
        assert torch.equal(centre, quiet_centre)


def test_what_is_asked_about_a_map_does_not_depend_on_class_sizes(monkeypatch):
    facts = facts_for(40)
    _, whole = measured(TINY_MOMENTS, records_for(facts), facts)
    ask = Curator.total

    def halved(self, question, statistic, **options):
        answer = ask(self, question, statistic, **options)
        return answer / 2 if answer.shape[1] == 1 else answer

    monkeypatch.setattr(Curator, "total", halved)
    _, found = measured(TINY_MOMENTS, records_for(facts), facts)
    assert not torch.equal(found.statistics["class_sizes"], whole.statistics["class_sizes"])
    assert torch.equal(found.statistics["lifted_sums"], whole.statistics["lifted_sums"])


def test_settings_too_large_for_the_machine_are_found_before_anything_is_charged():
    facts, budget = facts_for(40), PrivacyBudget(epsilon=5.0)
    method = Moments(dataclasses.replace(TINY_MOMENTS, waves=10**13))
    ledger = Ledger(budget)
    curator = Curator(records_for(facts), facts, ledger, seeded_noise(0))
    with pytest.raises(RuntimeError):
        method.measure(curator, method.plan(facts, budget))
    assert ledger.events == ()


@pytest.mark.parametrize(("pixels", "sizes"), [(2**23, [6]), (4 * 64, [4, 2]), (1, [2, 2, 2])])
def test_groups_of_classes_have_the_gradient_of_all_of_them_at_once(monkeypatch, pixels, sizes):
    facts = facts_for(40)
    _, found = measured(TINY_MOMENTS, records_for(facts), facts)
    start = torch.randn(6, *facts.shape, generator=torch.Generator().manual_seed(0))
    centres, targets = network_moments(found.statistics, facts, Execution())
    images = start.clamp(-1, 1).requires_grad_()
    expected = torch.zeros(())
    for number, features in enumerate(feature_maps(found.config, facts, Execution())):
        lifted = lift_of(found)(features(images) - centres[number])
        expected = expected + (lifted.view(3, 2, -1).mean(1) - targets[number]).square().sum()
    (slope,) = torch.autograd.grad(expected, images)

    seen, look = [], RandomFeatures.forward
    monkeypatch.setattr(RandomFeatures, "forward", lambda self, some: seen.append(len(some)) or look(self, some))
    monkeypatch.setattr(moment_matching, "_PIXELS_AT_ONCE", pixels)
    descent = Descent(start, facts, averaging=0.0, smoothness=1.0)
    distance = Matching(found, Execution()).follow(descent, torch.tensor([0, 1]))
    assert seen == 2 * sizes
    assert torch.allclose(distance, expected)
    assert torch.allclose(descent._slope, slope, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "side", "per_class", "groups"),
    [(10, 32, 100, 1), (10, 32, 500, 1), (100, 64, 100, 5), (2, 64, 9999, 2)],
)
def test_classes_go_together_as_long_as_memory_allows(classes, side, per_class, groups):
    assert len(class_groups(facts_for(40, classes=classes, side=side), per_class)) == groups


def test_distilling_brings_the_set_to_the_targets_and_touches_no_record():
    facts = facts_for(60, classes=2, side=12)
    images = torch.full((60, 1, 12, 12), 20, dtype=torch.uint8)
    images[30:, :, :, 6:] = 230
    images[:30, :, 6:] = 230
    records = Records(images, torch.arange(2).repeat_interleave(30))
    config = dataclasses.replace(TINY_MOMENTS, networks=4, width=8, steps=150, networks_per_step=4, pool=0)
    method, found = measured(config, records, facts)

    def distance(made):
        total = 0.0
        for features, centre, targets in maps_and_moments(found):
            seen = lift_of(found)(features(made.images) - centre)
            total += float((seen.view(2, 2, -1).mean(1) - targets).square().sum())
        return total

    untouched = Moments(dataclasses.replace(config, steps=1)).distil(found)
    made = method.distil(found)
    assert distance(made) < 0.3 * distance(untouched)
    again = method.distil(found)
    assert torch.equal(made.images, again.images)
    larger = Moments(dataclasses.replace(config, per_class=5)).distil(found)
    assert larger.images.shape == (10, 1, 12, 12)  # the same answers, another size


def test_a_budget_too_small_for_the_classes_is_refused():
    with pytest.raises(BudgetError, match="cannot be paid for"):
        Moments(TINY_MOMENTS).plan(facts_for(40), PrivacyBudget(epsilon=0.05))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"networks": 0}, "networks must be at least 1"),
        ({"depth": 17}, "depth must be at most 16"),
        ({"waves": 0}, "waves must be at least 1"),
        ({"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ({"pool": -1}, "pool must be 0 or more"),
        ({"pool_training": 0}, "pool-training must be at least 1"),
        ({"warp": -1.0}, "warp must lie in"),
        ({"averaging": 1.0}, "averaging must lie in"),
        ({"centre_share": 0.0}, "centre-share must lie in"),
        ({"centre_share": 0.6, "count_share": 0.5}, "must leave something"),
        ({"image_rate": 0.0}, "image-rate must be a positive number"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        MomentsConfig(**fields)


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="presets standard, light"):
        Moments.preset("large", per_class=10, epsilon=1)


def test_the_light_preset_is_for_machines_without_a_graphics_card():
    assert Moments.preset_for("cpu") == "light"
    assert Moments.preset_for("cuda:1") == "standard"


@pytest.mark.parametrize(("data", "epsilon", "told"), [("digits", 1, 39), ("digits", 10, 288), ("mnist", 1, 1608)])
def test_a_plan_says_when_records_are_few_for_the_noise(data, epsilon, told):
    """These are the figures in docs/guide/choosing-epsilon.md."""
    facts = facts_of(data)
    plan = Moments(MomentsConfig()).plan(facts, PrivacyBudget(epsilon=epsilon))
    assert round(facts.size / 10 / plan.noise_multiplier) == told
    assert (plan.caution is not None) == (told < 100)
    assert (plan.caution or "").startswith("about 144 records a class are few for this budget" if told < 100 else "")
    assert plan.to_json()["caution"] == plan.caution
