import gc
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import facts_for, records_for, resized, without
from torch.func import functional_call

from privset import networks
from privset.data import Records
from privset.errors import BudgetError, ConfigError
from privset.facts import PublicFacts, normalise
from privset.networks.features import RandomFeatures
from privset.privacy import (
    BudgetExceeded,
    Curator,
    GradientQuestion,
    Ledger,
    PrivacyBudget,
    Tally,
    TotalQuestion,
    seeded_noise,
)
from privset.privacy.ledger import read

FREE = PrivacyBudget(epsilon=math.inf)


def curator_for(records, facts, budget=FREE, path=None, seed=0, tally=None):
    return Curator(records, facts, Ledger(budget, path), seeded_noise(seed), tally=tally)


def loss_of(network):
    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    return loss, {name: value.detach() for name, value in network.named_parameters()}


def pixels(image, label):
    return image.flatten()


def test_the_noise_on_a_total_has_the_stated_deviation_in_every_class(facts, records):
    curator = curator_for(records, facts)
    truth = curator.total(TotalQuestion(bound=2.0, noise_multiplier=0.0), pixels)
    noisy = torch.stack([curator.total(TotalQuestion(bound=2.0, noise_multiplier=1.5), pixels) for _ in range(50)])
    residues = (noisy - truth) / 3.0
    for label in range(3):
        part = residues[:, label]
        assert float(part.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * part.numel()))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100), index=st.integers(0, 9), bound=st.sampled_from([0.01, 1.0, 100.0]))
def test_one_record_moves_a_total_by_at_most_the_bound_over_all_classes_together(seed, index, bound):
    facts = facts_for(10)
    records = records_for(facts, seed)
    question = TotalQuestion(bound=bound, noise_multiplier=0.0)

    def statistic(image, label):
        return torch.cat([image.flatten() * (1 + label), label[None].to(image.dtype)])

    before = curator_for(records, facts).total(question, statistic)
    after = curator_for(without(records, index), resized(facts, 9)).total(question, statistic)
    assert float((before - after).norm()) <= bound * (1 + 1e-5)


def test_totals_are_the_sums_by_class_and_an_absent_class_gives_zeros():
    facts = facts_for(6, classes=4)
    records = Records(torch.full((6, 1, 8, 8), 255, dtype=torch.uint8), torch.tensor([0, 0, 0, 1, 1, 3]))
    sums = curator_for(records, facts).total(
        TotalQuestion(bound=100.0, noise_multiplier=0.0), lambda image, label: image.mean()[None]
    )
    assert sums.flatten().tolist() == [3.0, 2.0, 0.0, 1.0]


def test_a_total_over_everyone_is_the_sum_of_the_totals_by_class(facts, records):
    curator = curator_for(records, facts)
    by_class = curator.total(TotalQuestion(bound=3.0, noise_multiplier=0.0), pixels, block=7)
    together = curator.total(TotalQuestion(bound=3.0, noise_multiplier=0.0, by_class=False), pixels)
    assert together.shape == (1, 64)
    assert torch.allclose(by_class.sum(0, keepdim=True), together, atol=1e-5)
    noisy = TotalQuestion(bound=3.0, noise_multiplier=2.0, by_class=False)
    residues = torch.stack([curator.total(noisy, pixels) - together for _ in range(200)]) / 6.0
    assert float(residues.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * residues.numel()))


def test_every_question_is_on_disk_before_its_answer_is_computed(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(epsilon=5.0)
    seen = []

    def statistic(image, label):
        seen.append(read(path)[1] if path.exists() else ())
        return image.flatten()

    question = TotalQuestion(bound=1.0, noise_multiplier=10.0)
    curator_for(records, facts, budget, path).total(question, statistic)
    assert seen == [(), (question.event(1),)]  # a blank image first, which is no record


def test_a_crash_while_answering_leaves_the_charge_standing(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"

    def broken(image, label):
        if path.exists():
            raise RuntimeError("power cut")
        return image.flatten()

    question = TotalQuestion(bound=1.0, noise_multiplier=10.0)
    with pytest.raises(RuntimeError):
        curator_for(records, facts, PrivacyBudget(epsilon=5.0), path).total(question, broken)
    assert read(path)[1] == (question.event(1),)


def test_a_question_past_the_budget_is_not_even_computed(facts, records):
    calls = []

    def statistic(image, label):
        calls.append(image)
        return image.flatten()

    curator = curator_for(records, facts, PrivacyBudget(epsilon=1.0))
    with pytest.raises(BudgetExceeded):
        curator.total(TotalQuestion(bound=1.0, noise_multiplier=1.0), statistic)
    assert len(calls) == 1  # a blank image, which is no record


@pytest.mark.parametrize(
    "statistic",
    [
        lambda image, label: (image.flatten() * 100).to(torch.uint8),
        lambda image, label: (image.flatten() * 1e5).to(torch.int32),
        lambda image, label: image.flatten().half(),
        lambda image, label: image.flatten().bfloat16(),
        lambda image, label: image[0],
        lambda image, label: image.sum(),
    ],
    ids=["uint8", "int32", "half", "bfloat16", "table", "scalar"],
)
def test_a_statistic_that_cannot_be_bounded_is_refused_before_it_is_charged(facts, records, tmp_path, statistic):
    path = tmp_path / "ledger.jsonl"
    curator = curator_for(records, facts, PrivacyBudget(epsilon=5.0), path)
    with pytest.raises(ConfigError, match="one vector of float32 or float64"):
        curator.total(TotalQuestion(bound=1.0, noise_multiplier=10.0), statistic)
    assert not path.exists()


@pytest.mark.parametrize("warp", [0.0, 1.0])
def test_an_extreme_record_leaves_the_random_features_of_all_others_as_they_are(warp):
    facts = facts_for(40, classes=40)  # a class for each record, so that the total shows its row
    images, labels = records_for(facts).images, torch.arange(40)
    extreme = images.clone()
    extreme[17] = torch.arange(64).reshape(1, 8, 8) % 2 * 255
    features = RandomFeatures(facts, seed=0, width=8, depth=2, resolution=2, warp=warp)
    question = TotalQuestion(bound=2.0, noise_multiplier=0.0)
    before, after = (
        curator_for(Records(some, labels), facts).total(question, lambda image, _: features(image[None])[0], block=16)
        for some in (images, extreme)
    )
    assert (before != after).any(1).nonzero().flatten().tolist() == [17]


def test_prepaid_questions_are_charged_once_and_not_more_is_answered_than_paid(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    loss, parameters = loss_of(networks.build("mlp", facts, seed=0, width=3))
    question = GradientQuestion(sampling_rate=0.1, clip_norm=1.0, noise_multiplier=2.0)
    curator = curator_for(records, facts, PrivacyBudget(epsilon=50.0, accountant="rdp"), path)
    curator.prepay(question, 5)
    curator.gradient(question, loss, parameters, draws=3)
    curator.gradient(question, loss, parameters, draws=2)
    assert read(path)[1] == (question.event(5),)
    curator.gradient(question, loss, parameters)  # the credit is used up: this one is charged by itself
    assert read(path)[1] == (question.event(6),)
    other = GradientQuestion(sampling_rate=0.1, clip_norm=1.0, noise_multiplier=3.0)
    curator.prepay(question, 1)
    curator.gradient(other, loss, parameters)  # credit for one kind does not pay for another
    assert read(path)[1] == (question.event(7), other.event(1))


def test_contributions_that_are_not_finite_are_tallied_for_the_holder_alone(facts, records):
    tally = Tally()
    curator = curator_for(records, facts, tally=tally)
    curator.total(TotalQuestion(bound=1.0, noise_multiplier=0.0), lambda image, label: image.flatten() / 0)
    assert tally.not_finite == len(records)
    assert not any(isinstance(value, Tally) for value in vars(curator).values())


def test_a_statistic_cannot_mix_records(facts, records):
    shapes = set()

    def statistic(image, label):
        shapes.add((tuple(image.shape), tuple(label.shape)))
        return image.flatten()

    curator_for(records, facts).total(TotalQuestion(bound=1.0, noise_multiplier=0.0), statistic)
    assert shapes == {((1, 8, 8), ())}


def test_no_attribute_of_a_curator_leads_to_a_record(facts, records):
    curator = curator_for(records, facts)
    reached, waiting = [], [curator]
    while waiting:
        value = waiting.pop()
        if id(value) in {id(other) for other in reached} or (callable(value) and value is not curator):
            continue
        reached.append(value)
        assert not isinstance(value, Records | torch.Tensor)
        if isinstance(value, dict):
            waiting.extend([*value.keys(), *value.values()])
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif hasattr(value, "__dict__"):
            waiting.extend(vars(value).values())
    assert any(isinstance(value, PublicFacts) for value in reached)
    assert any(isinstance(other, Records) for other in gc.get_objects())  # the walk could have found one


def test_a_curator_refuses_records_that_contradict_the_public_facts(facts, records):
    with pytest.raises(ConfigError, match="40 records, but the public facts say 41"):
        curator_for(records, resized(facts, 41))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan, 1e-41, 1e30])
def test_a_bound_that_bounds_nothing_is_refused(bound):
    with pytest.raises(ConfigError, match="must lie between 1e-6 and 1e6"):
        GradientQuestion(sampling_rate=1.0, clip_norm=bound, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match="must lie between 1e-6 and 1e6"):
        TotalQuestion(bound=bound, noise_multiplier=1.0)


def test_a_delta_too_large_for_the_records_is_refused(facts, records):
    with pytest.raises(BudgetError, match="publishing one record in the clear"):
        curator_for(records, facts, PrivacyBudget(epsilon=1.0, delta=0.1))


def test_half_precision_from_outside_is_refused_before_it_is_charged(facts, records, tmp_path):
    curator = curator_for(records, facts, path=tmp_path / "ledger")
    question = TotalQuestion(bound=1.0, noise_multiplier=1.0)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConfigError, match="half precision"):
        curator.total(question, pixels)
    assert not (tmp_path / "ledger").exists()


def test_answers_are_about_normalised_images(facts, records):
    sums = curator_for(records, facts).total(TotalQuestion(bound=1e6, noise_multiplier=0.0), pixels)
    expected = normalise(records.images, facts)[records.labels == 1].sum(0).flatten()
    assert torch.allclose(sums[1], expected, atol=1e-4)
