import dataclasses
import math
from pathlib import Path

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for, resized, without

from privset.data import Records
from privset.errors import BudgetError, ConfigError
from privset.methods import DpCgan, DpCganConfig, Execution, dp_cgan
from privset.methods.claim import classic_epsilon
from privset.methods.dp_cgan import Game
from privset.privacy import Curator, GaussianEvent, GradientQuestion, Ledger, PrivacyBudget, seeded_noise, spend
from privset.privacy.clipping import clipped_gradient_sum

TINY_CGAN = TINY["dp-cgan"]
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
MNIST = facts_for(60_000, classes=10, side=28, name="mnist")
PAGE = Path(__file__).parents[2] / "docs" / "methods" / "dp-cgan.md"


def game_for(facts, config=TINY_CGAN):
    return Game(config, facts, torch.Generator().manual_seed(0), torch.device("cpu"))


def run(config, records, facts, *, epsilon=math.inf, noise=0, device="cpu", curator_type=Curator):
    method, budget = DpCgan(config), PrivacyBudget(epsilon=epsilon, accountant="rdp")
    curator = curator_type(records, facts, Ledger(budget), seeded_noise(noise), device=device)
    return method.run(curator, method.plan(facts, budget), execution=Execution(device=device))


def test_the_published_settings_and_their_two_epsilons():
    config = DpCgan.preset("paper", per_class=10, epsilon=10)
    plan = DpCgan(config).plan(MNIST, PrivacyBudget(epsilon=10))
    asked = GradientQuestion(sampling_rate=0.01, clip_norm=1.1, noise_multiplier=1.12)
    assert plan.events == (asked.event(30_303),)
    assert (config.clip_norm, config.code, config.width) == (1.1, 100, 128)
    assert (config.rate, config.last_rate, config.decay_steps, config.generator_rate) == (0.1, 0.052, 10_000, 0.001)
    assert plan.claim is not None
    assert plan.claim.unsound is not None
    assert plan.claim.epsilon == pytest.approx(9.6, abs=1e-3)
    assert 9.6 < plan.epsilon < dp_cgan._PUBLISHED_COST
    assert "noise times the clip norm" in plan.claim.unsound
    one_by_one = [dataclasses.replace(event, noise_multiplier=1.12 / math.sqrt(4)) for event in plan.events]
    for number in (plan.claim.epsilon, plan.epsilon, spend(one_by_one, 1e-5).best):
        assert f" {number:.3g} " in DpCgan.claims
        assert f" {number:.3g} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("noise", "by_the_formula", "proven", "one_by_one"), [(1.12, 9.55, 9.57, 67.6), (2.1, 4.11, 3.77, 10.8)]
)
def test_what_the_noise_of_the_code_costs_and_that_of_the_psg_paper(noise, by_the_formula, proven, one_by_one):
    event = GaussianEvent(question="gradient", sampling_rate=0.01, noise_multiplier=noise, count=30_000)
    claim = DpCgan(DpCganConfig()).claim(MNIST, (event,), 1e-5).epsilon
    apart = dataclasses.replace(event, noise_multiplier=noise / math.sqrt(4))
    costs = (claim, spend([event], 1e-5).best, spend([apart], 1e-5).best)
    for cost, rounded_up in zip(costs, (by_the_formula, proven, one_by_one), strict=True):
        assert rounded_up * 0.99 < cost <= rounded_up
        assert f" {rounded_up:g} " in PAGE.read_text(encoding="utf-8")


def test_the_claim_follows_the_published_formula_and_not_the_noise_there_is():
    method, events = (
        DpCgan(DpCganConfig()),
        (GaussianEvent(question="gradient", sampling_rate=0.01, noise_multiplier=2),),
    )
    assert method.claim(MNIST, events, 1e-5).epsilon == classic_epsilon((of(2.2),), 1e-5, dp_cgan._ORDERS)
    narrow = DpCgan(DpCganConfig(clip_norm=0.5))
    assert narrow.claim(MNIST, events, 1e-5).epsilon == classic_epsilon((of(1.0),), 1e-5, dp_cgan._ORDERS)
    orders = tuple(1 + step / 100 for step in range(1, 5000))
    exact = 1 / 8 + math.sqrt(2 * math.log(1e5)) / 2  # the least over all orders
    assert classic_epsilon((of(2.0, rate=1.0),), 1e-5, orders) == pytest.approx(exact, rel=1e-4)


def of(noise, rate=0.01):
    return GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise)


def test_the_published_noise_is_not_for_budgets_below_its_cost():
    assert DpCganConfig.paper(epsilon=9).noise_multiplier is None
    assert DpCganConfig.paper(epsilon=math.inf).noise_multiplier is None
    with pytest.raises(BudgetError, match=r"would cost epsilon 10\.36, more than the budget 10"):
        DpCgan(DpCganConfig.paper()).plan(MNIST, PrivacyBudget(epsilon=10, accountant="rdp"))
    with pytest.raises(ConfigError, match="without privacy there is no noise"):
        DpCgan(DpCganConfig.paper()).plan(MNIST, PrivacyBudget(epsilon=math.inf))


def test_no_record_moves_the_answer_by_more_than_the_clip_norm_over_all_tensors_together():
    facts = facts_for(12)
    records, game = records_for(facts), game_for(facts)
    question = GradientQuestion(sampling_rate=1.0, clip_norm=0.01, noise_multiplier=0.0)

    def answer(records, facts):
        curator = Curator(records, facts, Ledger(PrivacyBudget(epsilon=math.inf)), seeded_noise(0))
        (found,) = curator.gradient(question, game.loss_of_record(), game.discriminator)
        return torch.cat([value.flatten() for value in found.values()])

    whole = answer(records, facts)
    assert len(whole) == (64 + 3) * 8 + 8 + 8 + 1  # every tensor of the discriminator is in it
    for index in (0, 5):
        moved = whole - answer(without(records, index), resized(facts, 11))
        assert float(moved.norm()) == pytest.approx(0.01, rel=1e-4)  # it is reached, and so cannot be lowered


def test_gradients_on_records_are_those_of_the_loss_by_every_weight():
    facts = facts_for(12, channels=3)
    records, game = records_for(facts), game_for(facts)
    for value in game.discriminator.values():
        value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    question = GradientQuestion(sampling_rate=1.0, clip_norm=1e4, noise_multiplier=0.0)
    curator = Curator(records, facts, Ledger(PrivacyBudget(epsilon=math.inf)), seeded_noise(0))
    (found,) = curator.gradient(question, game.loss_of_record(), game.discriminator)
    seen = torch.cat([records.images.flatten(1) / 255, torch.nn.functional.one_hot(records.labels, 3)], dim=1)
    weights = {name: value.clone().requires_grad_() for name, value in game.discriminator.items()}
    hidden = (seen @ weights["weight1"].T + weights["bias1"]).relu()
    loss = torch.nn.functional.softplus(-(hidden @ weights["weight2"].T + weights["bias2"])).sum()
    for name, expected in zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True):
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-4)


def test_weights_begin_normal_with_a_variance_of_2_over_the_inputs():
    game = game_for(facts_for(12, side=20), dataclasses.replace(TINY_CGAN, width=200))
    assert float(game.discriminator["weight1"].var()) == pytest.approx(2 / 403, rel=0.05)
    assert float(game.discriminator["weight2"].var()) == pytest.approx(2 / 200, rel=0.4)


@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_gradients_on_generated_images_are_those_of_the_loss_clipped_one_by_one(clip_norm):
    facts = facts_for(12, channels=3)
    game = game_for(facts, dataclasses.replace(TINY_CGAN, clip_norm=clip_norm))
    labels = torch.tensor([0, 1, 2, 2, 1])
    seen = torch.cat([torch.rand(5, 192), torch.nn.functional.one_hot(labels, 3).float()], dim=1)

    def loss(weights, image, _):
        hidden = (weights["weight1"] @ image + weights["bias1"]).relu()
        return torch.nn.functional.softplus(weights["weight2"] @ hidden + weights["bias2"]).squeeze()

    expected, _ = clipped_gradient_sum(loss, game.discriminator, [(seen, labels)], clip_norm=clip_norm)
    found = game.fake_gradient(seen)
    for name, value in expected.items():
        assert torch.allclose(found[name], (value / 5).float(), atol=1e-6), name


class Recording(Curator):
    """Notes what it was asked, and where."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.paid, self.asked = [], []

    def prepay(self, question, count):
        super().prepay(question, count)
        self.paid.append(count)

    def gradient(self, question, loss, parameters, **options):
        self.asked.append({name: value.clone() for name, value in parameters.items()})
        return super().gradient(question, loss, parameters, **options)


def test_the_whole_run_is_paid_for_at_once_and_the_rate_falls_as_published():
    facts = facts_for(40)
    config = dataclasses.replace(TINY_CGAN, steps=3, decay_steps=2, rate=0.4, last_rate=0.2)
    method, budget = DpCgan(config), PrivacyBudget(epsilon=math.inf)
    plan = method.plan(facts, budget)
    curator = Recording(records_for(facts), facts, Ledger(budget), seeded_noise(0))
    rates = []
    original = Game.set_rate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Game, "set_rate", lambda self, rate: (rates.append(rate), original(self, rate))[1])
        method.run(curator, plan)
    assert curator.paid == [3]
    assert rates == pytest.approx([0.4, 0.3, 0.2])
    first, second, third = (one["weight1"] for one in curator.asked)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_answers_are_divided_by_the_expected_sample_whatever_the_sample_was(monkeypatch):
    answers, given = [], []

    class Listening(Curator):
        def gradient(self, *arguments, **options):
            answers.extend(found := super().gradient(*arguments, **options))
            return found

    original = Game.step
    monkeypatch.setattr(Game, "step", lambda self, codes, *real: (given.append(real), original(self, codes, *real))[1])
    facts = facts_for(40)
    run(TINY_CGAN, records_for(facts), facts, epsilon=5.0, curator_type=Listening)
    assert len(answers) == len(given) == TINY_CGAN.steps
    for answer, real in zip(answers, given, strict=True):
        for ours, theirs in zip(answer.values(), real, strict=True):
            assert torch.allclose(ours / 16, theirs)  # 16 of 40, and not however many took part


def test_a_step_adds_the_gradients_on_records_and_on_generated_images():
    facts = facts_for(40)
    game = game_for(facts)
    codes = game.generator.draw(torch.tensor([0, 1, 2, 0]), torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in game.discriminator.items()}
    with torch.no_grad():
        fake = game.fake_gradient(torch.cat([game._pixels(codes), codes[:, -3:]], dim=1))
    real = [torch.full_like(value, 0.5) for value in before.values()]
    game.set_rate(0.1)
    game.step(codes, *real)
    for name, value in game.discriminator.items():
        assert torch.allclose(value, before[name] - 0.1 * (0.5 + fake[name]), atol=1e-6)


def test_a_label_is_seen_as_strongly_as_is_set_on_records_and_on_generated_images(monkeypatch):
    facts = facts_for(12)
    record = (torch.zeros(1, 8, 8), torch.tensor(1))
    for weight in (1.0, 3.0):
        game = game_for(facts, dataclasses.replace(TINY_CGAN, label_weight=weight))
        seen = torch.cat([torch.full((64,), 0.5), weight * torch.tensor([0.0, 1.0, 0.0])])
        weights = game.discriminator
        logit = weights["weight2"] @ (weights["weight1"] @ seen + weights["bias1"]).relu() + weights["bias2"]
        assert torch.allclose(game.loss_of_record()(weights, *record), torch.nn.functional.softplus(-logit[0]))
        given, nothing = [], {name: torch.zeros_like(value) for name, value in weights.items()}
        monkeypatch.setattr(game, "fake_gradient", lambda seen, given=given, none=nothing: given.append(seen) or none)
        codes = game.generator.draw(torch.tensor([2]), torch.Generator().manual_seed(0))
        game.step(codes, *nothing.values())
        assert given[0][0, -3:].tolist() == [0, 0, weight]


def halves(count, side=8):
    """Images whose upper or left half is bright, and their labels."""
    images = torch.full((count, 1, side, side), 20, dtype=torch.uint8)
    labels = torch.arange(count) % 2
    images[labels == 0, :, : side // 2] = 230
    images[labels == 1, :, :, : side // 2] = 230
    return Records(images, labels), facts_for(count, classes=2, side=side)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CARD)])
def test_the_generator_learns_what_classes_look_like_and_makes_as_many_of_each(device):
    records, facts = halves(80)
    config = DpCganConfig.small(per_class=600)
    config = dataclasses.replace(config, steps=250, batch_size=80, width=32, rate=1.0, last_rate=0.5)
    made = run(config, records, facts, device=device)
    assert made.labels.tolist() == [0] * 600 + [1] * 600
    pixels = made.images[:, 0] / 2 + 0.5
    assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1
    # Where one class is bright and the other is dark.
    upper_right, lower_left = pixels[:, :4, 4:].mean((1, 2)), pixels[:, 4:, :4].mean((1, 2))
    assert float((upper_right - lower_left)[:600].mean()) > 0.4
    assert float((lower_left - upper_right)[600:].mean()) > 0.4


def test_labels_of_records_do_not_decide_which_labels_are_generated_for(monkeypatch):
    drawn = []
    original = Game.step

    def step(self, codes, *real):
        drawn.append(codes.clone())
        return original(self, codes, *real)

    monkeypatch.setattr(Game, "step", step)
    facts = facts_for(40)
    records = records_for(facts)
    run(TINY_CGAN, records, facts)
    run(TINY_CGAN, Records(records.images, torch.zeros_like(records.labels)), facts)
    assert len(drawn) == 2 * TINY_CGAN.steps
    for one, two in zip(drawn[: TINY_CGAN.steps], drawn[TINY_CGAN.steps :], strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch_size": 0}, "batch-size must be at least 1"),
        ({"decay_steps": 0}, "decay-steps must be at least 1"),
        ({"clip_norm": 0.0}, "clip-norm must lie between"),
        ({"rate": 0.0}, "rate must be a positive number"),
        ({"last_rate": math.inf}, "last-rate must be a positive number"),
        ({"generator_rate": -1.0}, "generator-rate must be a positive number"),
        ({"label_weight": 0.0}, "label-weight must be a positive number"),
        ({"noise_multiplier": 0.0}, "leave it out to have it calibrated"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        DpCganConfig(**fields)


def test_unknown_presets_and_budgets_too_small_for_the_questions_are_refused():
    with pytest.raises(ConfigError, match="presets standard, paper, small"):
        DpCgan.preset("large", per_class=10, epsilon=1)
    with pytest.raises(BudgetError, match="cannot be paid for"):
        DpCgan(DpCganConfig()).plan(facts_for(40), PrivacyBudget(epsilon=0.05))
