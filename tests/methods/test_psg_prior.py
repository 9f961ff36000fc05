import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.linear_model import LogisticRegression
from tests.conftest import TINY, facts_for, records_for

from privset import networks
from privset.data import Records, load
from privset.errors import ConfigError
from privset.facts import normalise, pixel_range
from privset.methods import Psg, PsgPrior, PsgPriorConfig
from privset.methods.gradient_matching import _matching
from privset.methods.matched import Generated
from privset.methods.matching import row_cosine_distance
from privset.networks.deconvolution import DeconvolutionGenerator
from privset.observer import Observer
from privset.privacy import Curator, GradientQuestion, Ledger, PrivacyBudget, seeded_noise

MNIST = dataclasses.replace(facts_for(60_000, classes=10, side=28), name="mnist")
TINY_PRIOR = TINY["psg-prior"]


def run(config, *, epsilon=math.inf, observer=None, facts=None, records=None, kind=Curator):
    facts = facts or facts_for(40)
    method, budget = PsgPrior(config), PrivacyBudget(epsilon=epsilon, accountant="rdp")
    curator = kind(records or records_for(facts), facts, Ledger(budget), seeded_noise(0))
    return method.run(curator, method.plan(facts, budget), observer=observer)


def generated(facts, *, rate=0.01, bounded=True, per_class=2, dtype=torch.float32):
    network = DeconvolutionGenerator(facts, length=3, seed=1, width=4, bounded=bounded).to(dtype)
    labels = torch.arange(len(facts.classes)).repeat_interleave(per_class)
    codes = network.draw(labels, torch.Generator().manual_seed(2)).to(dtype)
    return Generated(network, codes, labels, rate=rate), codes


@pytest.mark.parametrize(
    ("per_class", "epsilon", "loops"),
    [(1, 10, (1000, 1, 1)), (10, 10, (1000, 10, 50)), (20, 10, (1000, 20, 25)), (20, 1, (200, 20, 25))],
)
def test_the_paper_preset_has_the_papers_loops_by_set_size(per_class, epsilon, loops):
    config = PsgPrior.preset("paper", per_class=per_class, epsilon=epsilon)
    assert (config.runs, config.outer_steps, config.inner_epochs) == loops
    assert (config.batches_per_step, config.batch_size, config.clip_norm, config.network_rate) == (10, 256, 0.1, 0.01)
    assert (config.generator_rate, config.code, config.generator_width) == (0.01, 10, 256)
    assert config.keep_floats


@pytest.mark.parametrize(("epsilon", "noise"), [(10.0, 0.668), (1.0, 2.553)])
def test_the_preset_of_the_published_code_asks_twenty_thousand_questions_at_its_noise(epsilon, noise):
    for per_class in (1, 10, 20):
        config = PsgPrior.preset("code", per_class=per_class, epsilon=epsilon)
        assert (config.runs, config.outer_steps, config.inner_epochs) == (1000, 2, 10)
    plan = PsgPrior(config).plan(MNIST, PrivacyBudget(epsilon=epsilon, accountant="rdp"))
    assert plan.questions == 20_000
    assert round(plan.noise_multiplier, 3) == noise


def test_it_asks_what_psg_would_ask_at_the_planned_noise_and_nothing_else():
    asked = []

    class Noting(Curator):
        def gradient(self, question, loss, parameters, *, draws=1, transform=None):
            asked.append((question, draws))
            return super().gradient(question, loss, parameters, draws=draws, transform=transform)

    facts, budget = facts_for(40), PrivacyBudget(epsilon=1, accountant="rdp")
    method = PsgPrior(TINY_PRIOR)
    plan, ledger = method.plan(facts, budget), Ledger(budget)
    method.run(Noting(records_for(facts), facts, ledger, seeded_noise(0)), plan)
    question = GradientQuestion(sampling_rate=16 / 40, clip_norm=0.1, noise_multiplier=plan.noise_multiplier)
    assert asked == [(question, 2)] * 4  # R x T calls of K draws
    assert ledger.events == plan.events == Psg(TINY["psg"]).plan(facts, budget).events


@pytest.mark.parametrize("network", ["convnet", "mlp"])
@pytest.mark.parametrize("bounded", [True, False])
def test_a_step_of_matching_is_one_of_adam_down_the_distance_by_the_generators_weights(network, bounded):
    # In float64: Adam makes a step of full length of a slope that is nothing but rounding.
    facts, dtype = facts_for(40), torch.float64
    ours, codes = generated(facts, rate=0.01, bounded=bounded, dtype=dtype)
    theirs = generated(facts, bounded=bounded, dtype=dtype)[0].network
    built = networks.build(network, facts, seed=1, width=4).to(dtype)
    match, optimiser = _matching(built, ours), torch.optim.Adam(theirs.parameters(), lr=0.01)
    weights, generator = list(built.parameters()), torch.Generator().manual_seed(0)
    for _ in range(3):
        target = [torch.randn(weight.shape, generator=generator, dtype=dtype) for weight in weights]
        distance = match(torch.cat([value.flatten() for value in target]))
        loss = F.cross_entropy(built(theirs(codes)), ours.labels)
        expected = row_cosine_distance(torch.autograd.grad(loss, weights, create_graph=True), target)
        slopes = torch.autograd.grad(expected, list(theirs.parameters()))
        for weight, slope in zip(theirs.parameters(), slopes, strict=True):
            weight.grad = slope
        optimiser.step()
        assert float(distance) == pytest.approx(float(expected.detach()), rel=1e-9)
        for a, b in zip(ours.network.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-7)
        assert torch.allclose(ours.images, theirs(codes).detach(), atol=1e-6)


def test_the_slope_by_the_weights_is_automatic_differentiations():
    facts = facts_for(40)
    ours, codes = generated(facts)
    slope, before = torch.randn(ours.images.shape), [w.detach().clone() for w in ours.network.parameters()]
    seen = []
    ours._adam.step = lambda slopes: seen.extend(slopes)  # type: ignore[method-assign]
    ours.move(slope)
    loss = (ours.network(codes) * slope).sum()
    for found, expected in zip(seen, torch.autograd.grad(loss, list(ours.network.parameters())), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(before, ours.network.parameters(), strict=True))


def test_codes_stay_as_they_are_and_the_images_are_what_the_generator_makes_of_them():
    facts = facts_for(40)
    ours, codes = generated(facts)
    first = codes.clone()
    for _ in range(3):
        ours.move(torch.randn(ours.images.shape, generator=torch.Generator().manual_seed(0)))
        assert torch.equal(ours.images, ours.network.normalised(first).detach())
    assert torch.equal(codes, first)


def test_its_tensors_are_all_that_a_step_needs_to_go_on():
    facts = facts_for(40)
    (ours, _), (theirs, _) = generated(facts), generated(facts)
    slopes = torch.randn(4, *ours.images.shape, generator=torch.Generator().manual_seed(0))
    for slope in slopes[:2]:
        ours.move(slope)
    for name, value in theirs.tensors.items():
        with torch.no_grad():
            value.copy_(ours.tensors[name])
    for slope in slopes[2:]:
        ours.move(slope)
        theirs.move(slope)
    assert torch.equal(ours.images, theirs.images)


def test_the_generator_that_is_published_made_the_images():
    facts = facts_for(40)
    made = run(TINY_PRIOR, epsilon=5)
    assert made.generator is not None
    # The seed decides the initial weights first, and the codes after them.
    public = torch.Generator().manual_seed(TINY_PRIOR.seed)
    torch.randint(2**31, (), generator=public)
    network = made.generator.network(facts)
    codes = network.draw(made.labels, public)
    assert torch.allclose(made.images, network.normalised(codes).detach(), atol=1e-6)


def test_a_generator_that_is_not_to_be_published_is_not():
    config = dataclasses.replace(TINY_PRIOR, publish_generator=False)
    made = run(config)
    assert made.generator is None
    assert PsgPrior(config).generator_form is None
    assert torch.equal(made.images, run(TINY_PRIOR).images)


def test_images_are_in_pixel_range_unless_floats_are_kept():
    low, high = pixel_range(facts_for(40), torch.zeros(1))
    made = run(TINY_PRIOR)
    assert bool((made.images >= low).all() and (made.images <= high).all())
    floats = run(dataclasses.replace(TINY_PRIOR, keep_floats=True, generator_rate=0.5))
    assert bool((floats.images > high).any())
    assert floats.keep_floats


def test_without_noise_the_set_comes_to_give_the_gradients_of_the_records():
    class Distances(Observer):
        values: list[float]

        def show(self, look):
            self.values.append(float(look().values["distance"]))

    facts, observer = facts_for(60, classes=2), Distances()
    images = torch.full((60, 1, 8, 8), 20, dtype=torch.uint8)
    images[30:, :, :, 4:] = 230
    images[:30, :, 4:] = 230
    records = Records(images, torch.arange(2).repeat_interleave(30))
    config = dataclasses.replace(
        TINY_PRIOR, runs=1, outer_steps=1, batches_per_step=60, batch_size=60, network="mlp", width=16
    )
    observer.values = []
    run(dataclasses.replace(config, generator_width=32), observer=observer, facts=facts, records=records)
    assert observer.values[-1] < 0.7 * observer.values[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"generator_rate": 0.0}, "generator-rate must be a positive number"),
        ({"network_rate": math.inf}, "network-rate must be a positive number"),
        ({"code": 0}, "code must lie between 1 and 65,536"),
        ({"generator_width": 10**9}, "generator-width must lie between 1 and 65,536"),
        ({"clip_norm": 0.0}, "clip-norm must lie between"),
        ({"per_class": 0}, "per-class must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        PsgPriorConfig(**fields)


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="presets paper, code, small"):
        PsgPrior.preset("large", per_class=10, epsilon=1)


class NoiseAlone(Curator):
    """Gives answers as loud as they would be, and nothing of the records in them."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.random = torch.Generator().manual_seed(0)

    def gradient(self, question, loss, parameters, *, draws=1, transform=None):
        answers = super().gradient(question, loss, parameters, draws=draws, transform=transform)
        return [
            {name: value.std() * torch.randn(value.shape, generator=self.random) for name, value in answer.items()}
            for answer in answers
        ]


def test_it_learns_digits_that_an_honest_classifier_can_use_and_of_noise_alone_it_learns_none():
    """Far fewer answers than the preset `small` asks for, and still far better than the tenth that chance gives."""
    digits = load("digits")
    assert digits.test is not None
    images, labels = normalise(digits.test.images, digits.facts).flatten(1).numpy(), digits.test.labels.numpy()

    def score(kind, seed):
        config = dataclasses.replace(
            PsgPriorConfig.small(per_class=5), runs=8, batch_size=256, generator_width=32, width=32, seed=seed
        )
        made = run(config, epsilon=4, facts=digits.facts, records=digits.train, kind=kind)
        model = LogisticRegression(max_iter=1000).fit(made.images.flatten(1).numpy(), made.labels.numpy())
        return model.score(images, labels)

    learned, control = (sum(score(kind, seed) for seed in range(3)) / 3 for kind in (Curator, NoiseAlone))
    assert learned > 0.4
    assert control < 0.17
