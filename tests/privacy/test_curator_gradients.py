"""What a curator answers to `gradient` questions: bound, noise, samples, draws at once, transforms."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import facts_for, records_for, resized, without
from tests.privacy.test_curator import FREE, curator_for, loss_of

from privset import networks
from privset.data import Records
from privset.errors import ConfigError
from privset.methods.record_loss import record_loss
from privset.privacy import Curator, GradientQuestion, Ledger, PrivacyBudget, Tally, seeded_noise


def flat(gradients):
    return torch.cat([value.flatten() for value in gradients.values()])


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


def test_parameters_too_coarse_for_clipping_are_refused_before_they_are_charged(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match="float32 or float64"):
        curator_for(records, facts, path=path).gradient(
            question, lambda p, x, y: p["w"].sum(), {"w": torch.zeros(3, dtype=torch.bfloat16)}
        )
    assert not path.exists()


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
    far = 0.08 if layered else 1e-2  # layer by layer, maps are bfloat16 there
    assert float((found["cuda"] - found["cpu"]).norm() / found["cpu"].norm()) < far


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
