import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset import networks
from privset.data import Records
from privset.errors import BudgetError, ConfigError
from privset.facts import PublicFacts, pixel_range
from privset.methods import Psg, PsgConfig, gradient_matching
from privset.methods.gradient_matching import _batches, _matching, _training
from privset.methods.matched import Pixels
from privset.methods.matching import row_cosine_distance
from privset.networks import set_gradients
from privset.observer import Observer
from privset.privacy import Curator, GradientQuestion, Ledger, PrivacyBudget, seeded_noise

MNIST = dataclasses.replace(facts_for(60_000, classes=10, side=28), name="mnist")
TINY_PSG = TINY["psg"]


class CountingCurator(Curator):
    """Notes every question and the parameters it was asked at."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.asked: list[tuple[GradientQuestion, int]] = []
        self.parameters: list[dict[str, torch.Tensor]] = []

    def gradient(self, question, loss, parameters, *, draws=1, transform=None):
        self.asked.append((question, draws))
        self.parameters.append({name: value.clone() for name, value in parameters.items()})
        return super().gradient(question, loss, parameters, draws=draws, transform=transform)


def run(config, *, epsilon=math.inf, noise_seed=0, records_seed=0):
    facts = facts_for(40)
    method = Psg(config)
    budget = PrivacyBudget(epsilon=epsilon, accountant="rdp")  # pld would take longer than the run
    plan = method.plan(facts, budget)
    curator = CountingCurator(records_for(facts, records_seed), facts, Ledger(budget), seeded_noise(noise_seed))
    return method.run(curator, plan), curator, plan


@pytest.mark.parametrize(
    ("per_class", "epsilon", "runs", "outer", "inner", "questions"),
    [
        (1, 10, 1000, 1, 1, 10_000),
        (10, 10, 1000, 10, 50, 100_000),
        (20, 10, 1000, 20, 25, 200_000),
        (50, 10, 1000, 50, 10, 500_000),
        (10, 1, 200, 10, 50, 20_000),
        (20, 1, 200, 20, 25, 40_000),
    ],
)
def test_the_paper_preset_is_the_papers(per_class, epsilon, runs, outer, inner, questions):
    config = PsgConfig.paper(per_class=per_class, epsilon=epsilon)
    assert (config.runs, config.outer_steps, config.inner_epochs) == (runs, outer, inner)
    assert (config.batches_per_step, config.batch_size, config.clip_norm) == (10, 256, 0.1)
    assert (config.image_rate, config.image_momentum, config.network_rate) == (0.1, 0.5, 0.01)
    assert config.keep_floats
    assert Psg(config).plan(MNIST, PrivacyBudget(epsilon=epsilon, accountant="rdp")).questions == questions


@pytest.mark.parametrize(("per_class", "epsilon", "noise"), [(10, 10, 0.966), (20, 1, 3.533)])
def test_the_paper_preset_has_the_published_noise_by_rdp(per_class, epsilon, noise):
    plan = Psg(PsgConfig.paper(per_class=per_class, epsilon=epsilon)).plan(
        MNIST, PrivacyBudget(epsilon=epsilon, accountant="rdp")
    )
    assert round(plan.noise_multiplier, 3) == noise


def test_exactly_runs_times_outer_times_batches_questions_are_asked():
    _, curator, plan = run(TINY_PSG, epsilon=5)
    assert [draws for _, draws in curator.asked] == [2] * 4  # R x T calls of K draws
    assert sum(draws for _, draws in curator.asked) == plan.questions == 2 * 2 * 2
    assert {question for question, _ in curator.asked} == {
        GradientQuestion(sampling_rate=16 / 40, clip_norm=0.1, noise_multiplier=plan.noise_multiplier)
    }


def test_networks_are_fresh_each_run_and_trained_on_the_set_between_outer_steps():
    _, curator, _ = run(TINY_PSG)
    first, trained, second, _ = ([value for value in p.values() if value.ndim >= 2] for p in curator.parameters)
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[0], trained[0])
    assert float((first[0] - trained[0]).norm()) < float((first[0] - second[0]).norm())


def trained_by_torch(network, batches):
    """Plain gradient descent, by torch's own optimiser, on one batch of images and labels after the other."""
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    for images, labels in batches:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimiser.step()
    return list(network.parameters())


@pytest.mark.parametrize("epochs", [1, 3, 53, 60])  # 53 is a prime, 60 is more than are recorded together
def test_inner_training_is_plain_sgd_over_the_whole_small_set(epochs):
    facts = facts_for(40)
    images, labels = torch.randn(6, *facts.shape), torch.arange(3).repeat_interleave(2)
    ours, theirs = (networks.build("mlp", facts, seed=1, width=4) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    _training(ours, images, labels, dataclasses.replace(TINY_PSG, inner_epochs=epochs))(generator)
    assert torch.equal(before, generator.get_state())  # nothing is drawn for a set that is taken whole
    for a, b in zip(ours.parameters(), trained_by_torch(theirs, [(images, labels)] * epochs), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_sets_larger_than_an_inner_batch_are_shuffled_through():
    facts = facts_for(40)
    config = dataclasses.replace(TINY_PSG, inner_epochs=2, inner_batch_size=4)
    images, labels = torch.randn(10, *facts.shape), torch.arange(10) % 3
    ours, theirs = (networks.build("mlp", facts, seed=1, width=4) for _ in range(2))
    _training(ours, images, labels, config)(torch.Generator().manual_seed(5))
    batches = list(_batches(10, config, torch.Generator().manual_seed(5)))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 2
    first, second = torch.cat(batches[:3]), torch.cat(batches[3:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()
    expected = trained_by_torch(theirs, [(images[batch], labels[batch]) for batch in batches])
    for a, b in zip(ours.parameters(), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("network", ["convnet", "mlp"])
@pytest.mark.parametrize("keep_floats", [True, False])
def test_a_step_of_matching_is_one_of_sgd_down_the_distance(network, keep_floats):
    facts = facts_for(40)
    low, high = pixel_range(facts, torch.zeros(1))
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(6, *facts.shape, generator=generator)
    theirs, labels = ours.clone().requires_grad_(), torch.arange(3).repeat_interleave(2)
    built = networks.build(network, facts, seed=1, width=4)
    pixels = Pixels(ours, labels, facts, rate=0.5, momentum=0.5, bounded=not keep_floats)
    match, optimiser = (
        _matching(built, pixels),
        torch.optim.SGD([theirs], lr=0.5, momentum=0.5),
    )
    weights = list(built.parameters())
    for _ in range(3):
        target = [torch.randn(weight.shape, generator=generator) for weight in weights]
        distance = match(torch.cat([value.flatten() for value in target]))
        loss = torch.nn.functional.cross_entropy(built(theirs), labels)
        expected = row_cosine_distance(torch.autograd.grad(loss, weights, create_graph=True), target)
        optimiser.zero_grad()
        (theirs.grad,) = torch.autograd.grad(expected, [theirs])
        optimiser.step()
        if not keep_floats:
            with torch.no_grad():
                theirs.copy_(theirs.clamp(low, high))
        assert float(distance) == pytest.approx(float(expected.detach()), rel=1e-4)
        assert torch.allclose(ours, theirs.detach(), atol=1e-4)


def test_without_noise_the_set_comes_to_give_the_gradients_of_the_records():
    class Distances(Observer):
        values: list[float]

        def show(self, look):
            self.values.append(float(look().values["distance"]))

    facts = facts_for(60, classes=2)
    images = torch.full((60, 1, 8, 8), 20, dtype=torch.uint8)
    images[30:, :, :, 4:] = 230
    images[:30, :, 4:] = 230
    records = Records(images, torch.arange(2).repeat_interleave(30))
    config = dataclasses.replace(
        TINY_PSG, runs=1, outer_steps=1, batches_per_step=60, batch_size=60, network="mlp", width=16, image_rate=1.0
    )
    budget, observer = PrivacyBudget(epsilon=math.inf), Distances()
    observer.values = []
    method = Psg(config)
    plan = method.plan(facts, budget)
    method.run(Curator(records, facts, Ledger(budget), seeded_noise(0)), plan, observer=observer)
    assert observer.values[-1] < 0.7 * observer.values[0]


def test_the_set_depends_on_the_records_the_noise_and_the_seed():
    base, _, _ = run(TINY_PSG, epsilon=5)
    for other in (
        run(TINY_PSG, epsilon=5, records_seed=1),
        run(TINY_PSG, epsilon=5, noise_seed=1),
        run(dataclasses.replace(TINY_PSG, seed=1), epsilon=5),
    ):
        assert not torch.equal(base.images, other[0].images)
    again, _, _ = run(TINY_PSG, epsilon=5)
    assert torch.equal(base.images, again.images)


def test_images_stay_in_pixel_range_unless_floats_are_kept():
    facts = facts_for(40)
    made, _, _ = run(TINY_PSG)
    low, high = pixel_range(facts, made.images)
    assert bool((made.images >= low).all() and (made.images <= high).all())
    floats, _, _ = run(dataclasses.replace(TINY_PSG, keep_floats=True))
    assert bool((floats.images > high).any())
    assert floats.keep_floats


def test_a_choice_that_a_network_does_not_have_is_refused_by_the_plan():
    for fields in ({"network": "lenet"}, {"network": "mlp", "depth": 2}):
        with pytest.raises(ConfigError, match="cannot be chosen"):
            Psg(dataclasses.replace(TINY_PSG, **fields)).plan(facts_for(40), PrivacyBudget(epsilon=5))


def test_a_depth_that_only_a_hostile_certificate_has_is_refused():
    with pytest.raises(ConfigError, match="depth must be at most 16, not 1000000"):
        dataclasses.replace(TINY_PSG, network="convnet", depth=1_000_000)


def test_noise_without_privacy_is_a_contradiction():
    with pytest.raises(ConfigError, match="leave noise-multiplier out"):
        Psg(dataclasses.replace(TINY_PSG, noise_multiplier=1.0)).plan(facts_for(40), PrivacyBudget(epsilon=math.inf))


def test_small_data_is_asked_whole():
    plan = Psg(TINY_PSG).plan(facts_for(10), PrivacyBudget(epsilon=5, accountant="rdp"))
    assert plan.events[0].sampling_rate == 1.0


def test_a_given_noise_multiplier_is_taken_or_refused():
    config = dataclasses.replace(TINY_PSG, noise_multiplier=3.0)
    assert Psg(config).plan(facts_for(40), PrivacyBudget(epsilon=10, accountant="rdp")).noise_multiplier == 3.0
    with pytest.raises(BudgetError, match="more than the budget 1"):
        Psg(config).plan(facts_for(40), PrivacyBudget(epsilon=1, accountant="rdp"))


def test_more_questions_than_can_be_paid_for_are_refused():
    config = PsgConfig.paper(per_class=10)
    with pytest.raises(BudgetError, match=r"100,000 question\(s\) cannot be paid for"):
        Psg(config).plan(facts_for(1000), PrivacyBudget(epsilon=0.5))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"per_class": 0}, "per-class must be at least 1"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"clip_norm": 0.0}, "clip-norm must lie between"),
        ({"image_momentum": 1.0}, "image-momentum must lie in"),
        ({"noise_multiplier": 0.0}, "leave it out to have it calibrated"),
        ({"noise_multiplier": 1e-153}, "leave it out to have it calibrated"),
        ({"network": "gpt"}, "network must be one of convnet"),
        ({"width": 0}, "width must be at least 1"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        PsgConfig(**fields)


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="presets paper, small"):
        Psg.preset("large", per_class=10, epsilon=1)


def test_a_delta_above_one_over_n_is_refused():
    facts = PublicFacts(
        name="few", channels=1, height=8, width=8, classes=("a", "b"), size=100, mean=(0.5,), std=(0.5,)
    )
    with pytest.raises(BudgetError, match="publishing one record"):
        Psg(TINY_PSG).plan(facts, PrivacyBudget(epsilon=10, delta=0.05))


def learned(device, per_class, *, rounds, width=None):
    """Images and weights after some rounds of training and matching with targets of pure noise."""
    config = PsgConfig.paper(per_class=per_class, epsilon=1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat_interleave(per_class).to(device)
    matched = Psg(config)._start(MNIST, labels, generator)
    network = networks.build("convnet", MNIST, seed=0, width=width).to(device)
    match, train = _matching(network, matched), _training(network, matched.images, labels, config)
    numbers = sum(weight.numel() for weight in network.parameters())
    for number in range(rounds):
        if number % config.outer_steps == 0:
            network.load_state_dict(networks.build("convnet", MNIST, seed=number, width=width).state_dict())
        for _ in range(config.batches_per_step):
            match(1e-3 * torch.randn(numbers, generator=generator).to(device))
        train(generator)
    return torch.cat([matched.images.flatten(), *(weight.detach().flatten() for weight in network.parameters())]).cpu()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("per_class", [1, 10, 20, 50])
def test_on_a_card_what_is_played_back_is_what_is_written(per_class, monkeypatch):
    played = learned("cuda", per_class, rounds=8)
    monkeypatch.setattr(gradient_matching, "recorded", lambda step, *_: step)
    written = learned("cuda", per_class, rounds=8)
    monkeypatch.setattr(set_gradients, "_width_of", lambda given: given.dtype)
    exact = learned("cuda", per_class, rounds=8)
    assert bool(played.isfinite().all())
    assert float((played - written).norm() / written.norm()) < 0.01  # where sums are rounded is not always the same
    assert float((written - exact).norm() / exact.norm()) < 0.02  # matched in float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("per_class", [10, 20, 50])
def test_on_a_card_many_steps_stay_finite(per_class):
    assert bool(learned("cuda", per_class, rounds=120).isfinite().all())
