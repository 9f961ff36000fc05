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
from privset.methods.record_loss import record_loss
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
from privset.privacy.clipping import clipped_gradient_sum
from privset.privacy.ledger import read

FREE = PrivacyBudget(epsilon=math.inf)


def curator_for(records, facts, budget=FREE, path=None, seed=0, tally=None):
    return Curator(records, facts, Ledger(budget, path), seeded_noise(seed), tally=tally)


def loss_of(network):
    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    return loss, {name: value.detach() for name, value in network.named_parameters()}


def flat(gradients):
    return torch.cat([value.flatten() for value in gradients.values()])


def pixels(image, label):
    return image.flatten()


def test_the_noise_on_a_gradient_has_the_stated_deviation_over_every_parameter(facts, records):
    loss, parameters = loss_of(networks.build("convnet", facts, seed=0, width=8))
    clean = GradientQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=0.0)
    noisy = GradientQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=3.0)
    curator = curator_for(records, facts)
    (truth,) = curator.gradient(clean, loss, parameters)
    answers = curator.gradient(noisy, loss, parameters, draws=20)
    residues = torch.stack([flat(answer) - flat(truth) for answer in answers]) / (3.0 * 0.5)
    # Each tensor's own noise, so that a layer left without any would show.
    sizes = [value.numel() for value in parameters.values()]
    for part in residues.split(sizes, dim=1):
        assert float(part.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * part.numel()))
    assert float(residues.mean()) == pytest.approx(0.0, abs=5 / math.sqrt(residues.numel()))
    # Draws are independent, not one noise repeated.
    assert float((residues[0] * residues[1]).mean().abs()) < 5 / math.sqrt(residues.shape[1])


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


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100), index=st.integers(0, 9), clip_norm=st.sampled_from([1e-3, 0.1, 5.0]))
def test_one_record_moves_a_full_batch_gradient_by_at_most_the_clip_norm(seed, index, clip_norm):
    facts = facts_for(10)
    records = records_for(facts, seed)
    loss, parameters = loss_of(networks.build("mlp", facts, seed=seed, width=5).double())
    question = GradientQuestion(sampling_rate=1.0, clip_norm=clip_norm, noise_multiplier=0.0)
    (before,) = curator_for(records, facts).gradient(question, loss, parameters)
    (after,) = curator_for(without(records, index), resized(facts, 9)).gradient(question, loss, parameters)
    assert float((flat(before) - flat(after)).norm()) <= clip_norm * (1 + 1e-9)


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


def test_a_sampled_gradient_is_the_sum_over_the_records_of_a_fresh_poisson_sample():
    # Record i shows the number i in its first pixel, and the gradient is the unit vector i: the sum lists the sample.
    facts = facts_for(40)
    images = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(40)
    records = Records(images, torch.zeros(40, dtype=torch.int64))

    def loss(parameters, image, label):
        number = ((image[0, 0, 0] * 0.5 + 0.5) * 255).round()
        return (parameters["w"] * (torch.arange(40) == number)).sum()

    question = GradientQuestion(sampling_rate=0.25, clip_norm=10.0, noise_multiplier=0.0)
    answers = curator_for(records, facts).gradient(question, loss, {"w": torch.zeros(40)}, draws=400)
    taken = torch.stack([answer["w"] for answer in answers])
    assert set(taken.unique().tolist()) == {0.0, 1.0}
    assert float(taken.sum(1).mean()) == pytest.approx(10, abs=1)
    assert float(taken.sum(1).var()) == pytest.approx(7.5, rel=0.4)
    assert (taken.mean(0) - 0.25).abs().max() < 0.12


def test_an_empty_sample_is_answered_with_noise_alone(facts, records):
    question = GradientQuestion(sampling_rate=1e-9, clip_norm=1.0, noise_multiplier=2.0)
    (answer,) = curator_for(records, facts).gradient(
        question, lambda p, x, y: (p["w"] * x.sum()).sum(), {"w": torch.zeros(20_000)}
    )
    assert float(answer["w"].std()) == pytest.approx(2.0, rel=0.05)


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


def test_parameters_too_coarse_for_clipping_are_refused_before_they_are_charged(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match="float32 or float64"):
        curator_for(records, facts, path=path).gradient(
            question, lambda p, x, y: p["w"].sum(), {"w": torch.zeros(3, dtype=torch.bfloat16)}
        )
    assert not path.exists()


def test_half_precision_from_outside_is_refused_before_it_is_charged(facts, records, tmp_path):
    curator = curator_for(records, facts, path=tmp_path / "ledger")
    question = TotalQuestion(bound=1.0, noise_multiplier=1.0)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConfigError, match="half precision"):
        curator.total(question, pixels)
    assert not (tmp_path / "ledger").exists()


def test_a_long_sum_of_short_contributions_does_not_round_past_the_bound():
    # In float32 the sum of thousands of equal contributions drifts; one record less must still move it by C alone.
    facts = facts_for(6000)
    records = records_for(facts)

    def loss(parameters, image, label):
        return parameters["w"].sum() * 3

    def clean(some, facts):
        images = normalise(some.images, facts)
        total, _ = clipped_gradient_sum(loss, {"w": torch.zeros(1)}, [(images, some.labels)], clip_norm=0.1)
        return float(total["w"])

    moved = clean(records, facts) - clean(without(records, 17), resized(facts, 5999))
    assert moved == pytest.approx(0.1, rel=1e-6)


def test_answers_are_about_normalised_images(facts, records):
    sums = curator_for(records, facts).total(TotalQuestion(bound=1e6, noise_multiplier=0.0), pixels)
    expected = normalise(records.images, facts)[records.labels == 1].sum(0).flatten()
    assert torch.allclose(sums[1], expected, atol=1e-4)


def test_a_transform_is_part_of_the_loss_and_made_once_for_each_record(facts, records):
    looked = []

    def halves(image):
        looked.append(image.shape)
        return image.flatten()[:32].tanh()

    def short(parameters, seen, label):
        return F.cross_entropy((parameters["weight"] @ seen)[None], label[None])

    def whole(parameters, image, label):
        return short(parameters, image.flatten()[:32].tanh(), label)

    generator = torch.Generator().manual_seed(0)
    parameters = {"weight": torch.randn(3, 32, generator=generator, dtype=torch.float64)}
    for rate in (1.0, 0.4):
        question = GradientQuestion(sampling_rate=rate, clip_norm=0.2, noise_multiplier=0.5)
        curator = curator_for(records, facts)
        answers = curator.gradient(question, short, parameters, draws=2, transform=halves)
        answers += curator.gradient(question, short, parameters, transform=halves)
        expected = curator_for(records, facts).gradient(question, whole, parameters, draws=3)
        for ours, theirs in zip(answers, expected, strict=True):
            assert torch.allclose(ours["weight"], theirs["weight"], atol=1e-12)
    assert len(looked) == 4  # for each curator a blank image, and then all 40 records together
    curator_for(records, facts).gradient(
        question, lambda p, x, y: short(p, x[:32], y), parameters, transform=torch.flatten
    )


def test_what_is_remembered_is_not_charged_and_not_computed_again(facts, records):
    calls = []

    def halves(image):
        calls.append(1)
        return image.flatten() / 2

    curator = curator_for(records, facts)
    curator.remember(halves)
    looked = len(calls)
    assert looked > 0
    assert curator._ledger.events == ()
    parameters = {"w": torch.zeros(facts.channels * facts.height * facts.width)}
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=2.0)
    curator.gradient(question, lambda p, x, y: (p["w"] * x).sum(), parameters, transform=halves)
    assert len(calls) == looked


def test_one_record_moves_what_follows_a_transform_by_the_clip_norm_at_most(facts, records):
    def loud(image):
        return 1e4 * image.flatten()

    def loss(parameters, seen, label):
        return F.cross_entropy((parameters["weight"] @ seen)[None], label[None])

    question = GradientQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=0.0)
    parameters = {"weight": torch.zeros(3, 64)}
    (every,) = curator_for(records, facts).gradient(question, loss, parameters, transform=loud)
    for index in (0, 17):
        curator = curator_for(without(records, index), resized(facts, 39))
        (fewer,) = curator.gradient(question, loss, parameters, transform=loud)
        assert float((every["weight"] - fewer["weight"]).norm()) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("layered", [True, False])
def test_draws_at_once_are_draws_one_after_the_other(facts, records, rate, layered):
    network = networks.build("convnet", facts, seed=0, width=4, depth=2).double()
    loss, parameters = loss_of(network)
    question = GradientQuestion(sampling_rate=rate, clip_norm=0.2, noise_multiplier=5.0)
    together = curator_for(records, facts).gradient(
        question, record_loss(network) if layered else loss, parameters, draws=4
    )
    alone = curator_for(records, facts)
    alone.prepay(question, 4)
    for answer in together:
        (expected,) = alone.gradient(question, loss, parameters)
        torch.testing.assert_close(flat(answer), flat(expected), rtol=1e-10, atol=1e-12)
    assert len({float(flat(answer)[0]) for answer in together}) == 4


def test_noise_and_bound_of_the_fast_path_are_those_stated(facts, records):
    network = networks.build("convnet", facts, seed=0, width=8)
    _, parameters = loss_of(network)
    clean = GradientQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=0.0)
    noisy = GradientQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=3.0)
    curator = curator_for(records, facts)
    (truth,) = curator.gradient(clean, record_loss(network), parameters)
    answers = curator.gradient(noisy, record_loss(network), parameters, draws=20)
    residues = torch.stack([flat(answer) - flat(truth) for answer in answers]) / (3.0 * 0.5)
    for part in residues.split([value.numel() for value in parameters.values()], dim=1):
        assert float(part.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * part.numel()))  # idle biases as well
    assert float((residues[0] * residues[1]).mean().abs()) < 5 / math.sqrt(residues.shape[1])
    (fewer,) = curator_for(without(records, 3), resized(facts, 39)).gradient(clean, record_loss(network), parameters)
    assert float((flat(truth) - flat(fewer)).norm()) == pytest.approx(0.5, rel=1e-4)


def test_parameters_that_a_loss_does_not_have_are_refused_before_they_are_charged(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=10.0)
    loss = record_loss(networks.build("mlp", facts, seed=0, width=3))
    with pytest.raises(ConfigError, match="this loss has the weights"):
        curator_for(records, facts, PrivacyBudget(epsilon=5.0), path).gradient(question, loss, {"w": torch.zeros(3)})
    assert not path.exists()


def test_a_broken_record_is_tallied_once_for_every_draw_it_is_in(facts):
    images = records_for(facts).images

    def loss(parameters, image, label):
        return (parameters["w"] * image.sum() / (image[0, 0, 0] + 1)).sum()  # black pixels are -1

    images[:, 0, 0, 0] = 255
    images[7, 0, 0, 0] = 0
    tally = Tally()
    curator = curator_for(Records(images, torch.zeros(40, dtype=torch.int64)), facts, tally=tally)
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=0.0)
    curator.gradient(question, loss, {"w": torch.zeros(3)}, draws=3)
    assert tally.not_finite == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("layered", [True, False])
def test_on_a_graphics_card_answers_are_those_of_the_processor(layered):
    facts = facts_for(300, side=28, classes=10)
    records = records_for(facts)
    network = networks.build("convnet", facts, seed=0, width=16)
    clean = GradientQuestion(sampling_rate=1.0, clip_norm=0.1, noise_multiplier=0.0)
    found = {}
    for device in ("cpu", "cuda"):
        placed = network.to(device)
        loss, parameters = loss_of(placed)
        curator = Curator(records, facts, Ledger(FREE), seeded_noise(0), device=device)
        (answer,) = curator.gradient(clean, record_loss(placed) if layered else loss, parameters)
        found[device] = flat(answer).cpu()
    assert float((found["cuda"] - found["cpu"]).norm() / found["cpu"].norm()) < 1e-2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
def test_on_a_graphics_card_every_draw_has_a_sample_and_noise_of_its_own():
    facts = facts_for(400)
    images = torch.zeros(400, 1, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = torch.arange(400) // 20, torch.arange(400) % 20
    records = Records(images, torch.zeros(400, dtype=torch.int64))

    def loss(parameters, image, label):
        pixels = ((image[0, 0] * 0.5 + 0.5) * 255).round()
        return (parameters["w"] * (torch.arange(400, device=image.device) == pixels[0] * 20 + pixels[1])).sum()

    curator = Curator(records, facts, Ledger(FREE), seeded_noise(0), device="cuda")
    weights = {"w": torch.zeros(400, device="cuda")}
    clean = GradientQuestion(sampling_rate=0.25, clip_norm=10.0, noise_multiplier=0.0)
    taken = torch.stack([answer["w"] for answer in curator.gradient(clean, loss, weights, draws=300)]).cpu()
    assert set(taken.unique().tolist()) == {0.0, 1.0}
    assert float(taken.sum(1).mean()) == pytest.approx(100, abs=3)
    assert float(taken.sum(1).var()) == pytest.approx(75, rel=0.4)
    assert (taken.mean(0) - 0.25).abs().max() < 0.14
    noisy = GradientQuestion(sampling_rate=1e-9, clip_norm=1.0, noise_multiplier=2.0)
    drawn = torch.stack([answer["w"] for answer in curator.gradient(noisy, loss, weights, draws=50)]).cpu()
    assert float(drawn.std()) == pytest.approx(2.0, rel=0.05)
    assert float((drawn[1:] * drawn[:-1]).mean().abs()) < 4 * 5 / math.sqrt(drawn[1:].numel())
