import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.data import Records
from privset.errors import ConfigError
from privset.facts import scale
from privset.methods import dp_sinkhorn
from privset.methods.dp_sinkhorn import DpSinkhorn, DpSinkhornConfig, Objective
from privset.networks.transposed import TransposedGenerator
from privset.privacy import RELATION, Curator, GaussianEvent, Ledger, PrivacyBudget, seeded_noise, spend

FREE = PrivacyBudget(epsilon=math.inf)
MNIST = facts_for(60_000, classes=10, side=28, name="mnist")


def published(noise, epochs):
    return (GaussianEvent(question="pullback", sampling_rate=50 / 60_000, noise_multiplier=noise, count=1200 * epochs),)


@pytest.mark.parametrize(("noise", "epochs"), [(1.1, 2872), (0.9, 1510)])
def test_the_published_noise_is_claimed_to_cost_ten_and_is_proven_to_cost_less(noise, epochs):
    events = published(noise, epochs)
    claim = DpSinkhorn(DpSinkhornConfig()).claim(MNIST, events, 1e-5)
    assert claim.epsilon == pytest.approx(10.0007, abs=5e-4)
    assert (claim.relation, claim.unsound) == (RELATION, None)  # it holds, and a smaller one does too
    cost = spend(events, 1e-5)
    assert cost.rdp == pytest.approx(9.161, abs=2e-3)
    assert cost.best == cost.pld == pytest.approx({1.1: 8.5331, 0.9: 8.5266}[noise], abs=1e-4)
    for number in (claim.epsilon, cost.rdp, cost.best):
        assert f" {number:.3g}" in DpSinkhorn.claims


def test_the_paper_preset_asks_what_was_published_and_fits_its_budget():
    plan = DpSinkhorn(DpSinkhornConfig.paper(epsilon=10)).plan(MNIST, PrivacyBudget(epsilon=10))
    assert plan.events == published(1.1, 2872)
    assert plan.epsilon < 10
    assert DpSinkhornConfig.paper(epsilon=1).noise_multiplier is None
    assert DpSinkhornConfig.paper(epsilon=math.inf).noise_multiplier is None


def test_the_gradient_of_the_objective_draws_images_to_records_of_their_class():
    facts = facts_for(40, classes=2)
    objective = Objective(dataclasses.replace(TINY["dp-sinkhorn"], redrawn=0.0), facts)
    bright, dark = torch.ones(1, 1, 8, 8), -torch.ones(1, 1, 8, 8)
    generated, labels = torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])
    slope = objective.apart(generated, labels) + 2 * objective.towards(
        generated, labels, torch.cat([bright, dark]), torch.tensor([0, 1]), torch.tensor([0.5, 0.5])
    )
    assert bool((slope[0] < 0).all())
    assert bool((slope[1] > 0).all())


def test_the_gradient_is_that_of_twice_the_cost_to_records_less_the_cost_to_generated_ones():
    facts = facts_for(40, classes=2)
    objective = Objective(TINY["dp-sinkhorn"], facts)
    random = torch.Generator().manual_seed(0)
    images, records = (0.5 * torch.randn(6, 1, 8, 8, generator=random).double() for _ in range(2))
    labels, weights = torch.tensor([0, 1, 1, 0]), torch.tensor([0.3, 0.2, 0.1, 0.2, 0.2, 0.0]).double()
    generated, redrawn, kinds = images[:4].clone().requires_grad_(), images[4:].clone().requires_grad_(), weights > 0.15

    def cost(first, second, others, of_others, weights=None):
        return objective._transport(first.flatten(1), second, others.flatten(1), of_others, weights)

    pixels = 2 * scale(records, facts) - 1
    towards = cost(generated, labels, pixels, kinds.long(), weights)
    between = cost(generated, labels, torch.cat([generated[2:], redrawn]), torch.cat([labels[2:], labels[:2]]))
    expected = torch.autograd.grad(2 * towards - between, (generated, redrawn))
    apart = objective.apart(images, labels)
    towards = objective.towards(images[:4], labels, records, kinds.long(), weights)
    torch.testing.assert_close(2 * towards + apart[:4], expected[0])
    torch.testing.assert_close(apart[4:], expected[1])


def test_images_drawn_anew_are_held_apart_by_no_more_than_the_clip_norm():
    facts = facts_for(40, classes=2)
    objective = Objective(dataclasses.replace(TINY["dp-sinkhorn"], clip_norm=0.25), facts)
    images = 0.1 * torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    slope = objective.apart(images, torch.tensor([0, 0, 1, 1]))[4:]
    assert slope.shape == (2, 1, 8, 8)
    short = objective.shortened(slope)
    assert float(short.norm()) == pytest.approx(0.25, rel=1e-5)
    assert torch.allclose(short / short.norm(), slope / slope.norm())
    assert torch.equal(objective.shortened(1e-3 * short), 1e-3 * short)
    assert objective.shortened(objective.apart(images, torch.tensor([0, 0, 1, 1, 0, 1]))[6:]).shape[0] == 0


def watch(curator, asked, monkeypatch):
    """Note what each step asks about: images, the slopes that hold them apart, and labels."""
    train = curator.train_by_pullback

    def watched(question, pull, make, learn, *, steps):
        def made():
            asked.append(tuple(part.clone() for part in make()))
            return asked[-1]

        train(question, pull, made, learn, steps=steps)

    monkeypatch.setattr(curator, "train_by_pullback", watched)


def test_a_step_goes_along_the_whole_gradient_shortened_in_two_parts(monkeypatch):
    """What the generator is moved by: the answer on generated images, and the slope of those drawn anew."""
    facts, moved, asked = facts_for(40, classes=2), [], []
    config = dataclasses.replace(TINY["dp-sinkhorn"], steps=1, batch_size=10, redrawn=0.3, clip_norm=0.01)
    grad = torch.autograd.grad

    def by_weights(values, by, *slope, **options):
        moved.extend(one.detach().clone() for one in slope)
        return grad(values, by, *slope, **options)

    curator = Curator(records_for(facts), facts, Ledger(FREE), seeded_noise(0))
    watch(curator, asked, monkeypatch)
    monkeypatch.setattr(torch.autograd, "grad", by_weights)
    redrawn = []
    whole = Objective.apart

    def apart(self, images, labels):
        redrawn.append(images[len(labels) :].clone())
        return whole(self, images, labels)

    monkeypatch.setattr(Objective, "apart", apart)
    method = DpSinkhorn(config)
    method.run(curator, method.plan(facts, FREE))
    ((generated, given, labels),) = asked
    objective = Objective(config, facts)
    expected = whole(objective, torch.cat([generated, redrawn[0]]), labels)
    torch.testing.assert_close(given, expected[:10])
    assert bool(given.any())
    (slope,) = moved
    assert slope.shape == (13, 1, 8, 8)
    assert float(slope[:10].norm()) == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(slope[10:], objective.shortened(expected[10:]))
    assert float(slope[10:].norm()) == pytest.approx(0.01, rel=1e-4)


def test_every_step_has_codes_and_labels_of_its_own_however_many_are_drawn_ahead(monkeypatch):
    facts, asked, seen = facts_for(40, classes=2), [], []
    monkeypatch.setattr(dp_sinkhorn, "AHEAD", 2)
    monkeypatch.setattr(dp_sinkhorn, "TOGETHER", 2)
    config = dataclasses.replace(TINY["dp-sinkhorn"], steps=6, batch_size=10, redrawn=0.3)
    forward = TransposedGenerator.forward

    def generate(self, codes):
        seen.append(codes.clone())
        return forward(self, codes)

    curator = Curator(records_for(facts), facts, Ledger(FREE), seeded_noise(0))
    watch(curator, asked, monkeypatch)
    monkeypatch.setattr(TransposedGenerator, "forward", generate)
    method = DpSinkhorn(config)
    method.run(curator, method.plan(facts, FREE))
    steps = seen[:6]
    assert len({tuple(codes.flatten().tolist()) for codes in steps}) == 6
    for codes, (_, _, labels) in zip(steps, asked, strict=True):
        assert torch.equal(codes[:, 3:].argmax(1), torch.cat([labels, labels[:3]]))
    assert len({tuple(labels.tolist()) for _, _, labels in asked}) > 3


def test_without_noise_images_come_to_look_like_the_records_of_their_class():
    facts = facts_for(60, classes=2)
    labels = torch.arange(60) % 2
    records = Records((labels * 200 + 20).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous(), labels)
    config = DpSinkhornConfig(per_class=3, steps=50, batch_size=10, width=8, rate=0.02)
    method = DpSinkhorn(config)
    curator = Curator(records, facts, Ledger(FREE), seeded_noise(0))
    made = method.run(curator, method.plan(facts, FREE))
    pixels = (made.images * 0.5 + 0.5) * 255
    assert float(pixels[:3].mean()) < 70
    assert float(pixels[3:].mean()) > 170


def test_other_noise_makes_another_set():
    facts = facts_for(40)
    still = DpSinkhorn(dataclasses.replace(TINY["dp-sinkhorn"], steps=1, noise_multiplier=5.0))
    sets = []
    for seed in (0, 1):
        curator = Curator(
            records_for(facts), facts, Ledger(PrivacyBudget(epsilon=5, accountant="rdp")), seeded_noise(seed)
        )
        sets.append(still.run(curator, still.plan(facts, PrivacyBudget(epsilon=5, accountant="rdp"))).images)
    assert not torch.equal(*sets)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 1},
        {"width": 3},
        {"redrawn": 1.0},
        {"rate": 0.0},
        {"clip_norm": 0.0},
        {"blur": -1.0},
        {"noise_multiplier": 0.0},
        {"averaging": 1.0},
        {"steps": 0},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        DpSinkhornConfig(**settings)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match="dp-sinkhorn has the presets standard, paper, small"):
        DpSinkhorn.preset("large", per_class=1, epsilon=1.0)
