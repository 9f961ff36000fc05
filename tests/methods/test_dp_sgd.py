import dataclasses
import itertools
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.data import Dataset
from privset.errors import BudgetError, ConfigError, ReleaseError
from privset.methods import Architecture, DpSgd, DpSgdConfig, Psg, Trained
from privset.observer import Observer
from privset.pipeline import generate, train
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise
from privset.release import verify

MNIST = facts_for(60_000, classes=10, side=28, name="mnist")
BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")
FREE = PrivacyBudget(epsilon=math.inf)


class CountingCurator(Curator):
    """Notes the parameters of each question, and its answer."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.asked: list[dict[str, torch.Tensor]] = []
        self.answers: list[dict[str, torch.Tensor]] = []

    def gradient(self, question, loss, parameters, *, draws=1, transform=None):
        self.asked.append({name: value.clone() for name, value in parameters.items()})
        answers = super().gradient(question, loss, parameters, draws=draws, transform=transform)
        self.answers.extend({name: value.clone() for name, value in answer.items()} for answer in answers)
        return answers


def run(config, *, budget=FREE, facts=None):
    facts = facts or facts_for(40)
    method = DpSgd(config)
    curator = CountingCurator(records_for(facts), facts, Ledger(budget), seeded_noise(0))
    return method.train(curator, method.plan(facts, budget)), curator


def test_the_strong_preset_asks_everyone_and_is_accounted_for_exactly():
    config = DpSgd.preset("strong", per_class=10, epsilon=1.0)
    assert config == DpSgdConfig()
    assert (config.network, config.epochs, config.batch_size, config.clip_norm) == ("scattering", 200, None, 0.1)
    assert (config.rate, config.momentum, config.decay, config.averaging) == (250.0, 0.9, False, 0.0)
    plan = DpSgd(config).plan(MNIST, PrivacyBudget(epsilon=1.0))
    (event,) = plan.events
    assert (event.question, event.sampling_rate, event.count) == ("gradient", 1.0, 200)
    # 3.7306 is the noise of one Gaussian answer at epsilon 1.
    assert plan.noise_multiplier == pytest.approx(3.7306 * math.sqrt(200), rel=1e-4)


def test_the_small_preset_is_short_and_its_rate_falls():
    config = DpSgd.preset("small", per_class=10, epsilon=10.0)
    assert (config.network, config.epochs, config.rate, config.decay) == ("scattering", 20, 200.0, True)


@pytest.mark.parametrize(("epsilon", "noise"), [(1.0, 3.195), (10.0, 0.744)])
def test_the_preset_for_a_convnet_has_settings_of_smaller_ones(epsilon, noise):
    config = DpSgd.preset("convnet", per_class=10, epsilon=epsilon)
    plan = DpSgd(config).plan(MNIST, PrivacyBudget(epsilon=epsilon))
    assert plan.events[0].count == 2344
    assert plan.noise_multiplier == pytest.approx(noise, abs=6e-4)
    found = (config.network, config.batch_size, config.clip_norm, config.rate, config.momentum, config.epochs)
    assert found == ("convnet", 1024, 0.1, 1.0, 0.9, 40)


def test_the_paper_preset_is_what_is_published_of_it():
    config = DpSgd.preset("paper", per_class=10, epsilon=10.0)
    assert (config.network, config.batch_size, config.clip_norm) == ("convnet", 256, 0.1)
    assert (config.rate, config.momentum, config.averaging, config.decay) == (0.01, 0.0, 0.0, False)
    (event,) = DpSgd(config).plan(MNIST, PrivacyBudget(epsilon=10.0, accountant="rdp")).events
    assert (event.sampling_rate, event.count) == (256 / 60_000, 2344)  # ten epochs


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 0}, "batch-size must be at least 1"),
        ({"clip_norm": 0.0}, "clip-norm must lie"),
        ({"rate": 0.0}, "rate must be a positive number"),
        ({"momentum": 1.0}, "momentum must lie"),
        ({"averaging": -0.1}, "averaging must lie"),
        ({"noise_multiplier": 0.0}, "leave it out to have it calibrated"),
        ({"network": "transformer"}, "network must be one of convnet"),
        ({"network": "convnet", "depth": 17}, "depth must be at most 16"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        DpSgdConfig(**settings)


def test_plans_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="the width of scattering cannot be chosen"):
        DpSgd(DpSgdConfig(width=4)).plan(MNIST, BUDGET)
    with pytest.raises(ConfigError, match="without privacy there is no noise"):
        DpSgd(DpSgdConfig(noise_multiplier=1.0)).plan(MNIST, FREE)
    with pytest.raises(BudgetError, match="would cost epsilon"):
        DpSgd(DpSgdConfig(noise_multiplier=1.0)).plan(MNIST, BUDGET)
    with pytest.raises(BudgetError, match="cannot be paid for"):
        DpSgd(DpSgdConfig(epochs=1000)).plan(facts_for(40), PrivacyBudget(epsilon=0.1))
    with pytest.raises(ConfigError, match="dp-sgd has the presets strong, convnet, paper, small"):
        DpSgd.preset("large", per_class=1, epsilon=1.0)


@pytest.mark.parametrize("budget", [FREE, BUDGET])
def test_steps_are_those_of_sgd_with_momentum_along_the_answers_over_the_expected_size_of_a_sample(budget):
    """That answers are sums of clipped gradients, tests/privacy shows, and tests/oracle that both make DP-SGD."""
    config = DpSgdConfig(epochs=2, batch_size=16, rate=2.0, momentum=0.6)
    made, curator = run(config, budget=budget)
    assert len(curator.asked) == 5  # of 16 of 40 records each
    built = DpSgd(config).architecture.build(facts_for(40), seed=config.seed)
    weights = dict(built.named_parameters())
    optimiser = torch.optim.SGD(weights.values(), lr=2.0, momentum=0.6)
    for asked, answer in zip([*curator.asked[1:], made.weights], curator.answers, strict=True):
        for name, weight in weights.items():
            weight.grad = answer[name] / 16
        optimiser.step()
        assert all(torch.allclose(asked[name], weight, rtol=1e-5, atol=1e-6) for name, weight in weights.items())


def test_a_batch_beyond_the_records_is_everyone():
    everyone, _ = run(DpSgdConfig(epochs=3))
    made, curator = run(DpSgdConfig(epochs=3, batch_size=1000))
    assert len(curator.asked) == 3
    assert isinstance(made, Trained)
    assert made.architecture == Architecture(network="scattering")
    assert made.weights.keys() == everyone.weights.keys()
    assert all(torch.equal(value, everyone.weights[name]) for name, value in made.weights.items())


def test_the_rate_falls_in_a_straight_line_or_stays():
    settings = {"epochs": 4, "momentum": 0.0, "rate": 0.1}  # so little that gradients hardly change
    for decay, expected in ((True, [1.0, 0.75, 0.5, 0.25]), (False, [1.0] * 4)):
        made, curator = run(DpSgdConfig(decay=decay, **settings))
        places = [asked["head.bias"] for asked in curator.asked] + [made.weights["head.bias"]]
        lengths = torch.stack([(b - a).norm() for a, b in itertools.pairwise(places)])
        assert torch.allclose(lengths / lengths[0], torch.tensor(expected), atol=0.02)


def test_what_is_published_is_the_last_or_the_average():
    settings = {"epochs": 20, "rate": 1.0}
    last, curator = run(DpSgdConfig(**settings))
    average, other = run(DpSgdConfig(averaging=0.5, **settings))
    places = [asked["head.bias"] for asked in curator.asked] + [last.weights["head.bias"]]
    assert all(torch.equal(a["head.bias"], b["head.bias"]) for a, b in zip(curator.asked, other.asked, strict=True))
    expected = places[0]
    for number, place in enumerate(places[1:]):
        kept = min(0.5, (1 + number) / (10 + number))
        expected = kept * expected + (1 - kept) * place
    assert torch.allclose(average.weights["head.bias"], expected, atol=1e-5)


def test_it_learns_to_tell_classes_apart():
    facts = facts_for(300, classes=2)
    images = torch.randint(0, 60, (300, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(300) % 2
    images[labels == 0, :, :, ::2] += 150  # stripes, upright or not
    images[labels == 1, :, ::2] += 150
    records = type(records_for(facts))(images.to(torch.uint8), labels)
    method = DpSgd(DpSgdConfig.small())
    plan = method.plan(facts, PrivacyBudget(epsilon=5.0))
    made = method.train(Curator(records, facts, Ledger(plan.budget), seeded_noise(0)), plan)
    logits = made.architecture.build(facts)
    logits.load_state_dict(made.weights)
    answers = logits((images.float() / 255 - 0.5) / 0.5).argmax(dim=1)
    assert float((answers == labels).float().mean()) > 0.95


def dataset():
    return Dataset(facts_for(40), records_for(facts_for(40)), records_for(facts_for(12), seed=9))


class Switched(Observer):
    """Stops a run after its first step, like a machine that is switched off."""

    def step(self, count=1, **values):
        raise RuntimeError("power cut")


class Diverged(DpSgd):
    def _train(self, curator, plan, start, execution, observer):
        weights = super()._train(curator, plan, start, execution, observer)
        return {name: value * torch.nan for name, value in weights.items()}


def test_a_run_that_dies_leaves_its_charges_and_no_release_and_the_same_call_goes_on(tmp_path):
    out, config = tmp_path / "model", TINY["dp-sgd"]
    with pytest.raises(RuntimeError):
        train(dataset(), method=DpSgd(config), budget=BUDGET, out=out, observer=Switched())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.ledger.jsonl", "model.unfinished"]
    other = train(dataset(), method=DpSgd(config), budget=BUDGET, out=tmp_path / "other")
    with pytest.raises(ReleaseError, match="start was None and is "):
        train(dataset(), method=DpSgd(config), budget=BUDGET, out=out, start=other)
    assert verify(train(dataset(), method=DpSgd(config), budget=BUDGET, out=out).path).ok


def test_weights_that_are_not_finite_are_never_published(tmp_path):
    with pytest.raises(ReleaseError, match="not finite: training diverged"):
        train(dataset(), method=Diverged(TINY["dp-sgd"]), budget=BUDGET, out=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_training_goes_on_from_a_verified_private_classifier_and_says_so(tmp_path):
    method = DpSgd(TINY["dp-sgd"])
    first = train(dataset(), method=method, budget=BUDGET, out=tmp_path / "first")
    second = train(dataset(), method=method, budget=BUDGET, out=tmp_path / "second", start=first)
    assert verify(second.path).ok
    (said,) = second.certificate.not_accounted[len(first.certificate.not_accounted) :]
    assert first.certificate.seal in said
    assert "the epsilons add up" in said

    seeded = train(dataset(), method=method, budget=BUDGET, out=tmp_path / "seeded", noise=seeded_noise(1))
    with pytest.raises(ConfigError, match="is not private, and what goes on from it"):
        train(dataset(), method=method, budget=BUDGET, out=tmp_path / "third", start=seeded)
    weights = tmp_path / "first" / "classifier.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(ReleaseError, match="nothing is trained from it"):
        train(dataset(), method=method, budget=BUDGET, out=tmp_path / "third", start=first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "seeded"]  # and nothing was charged


def test_a_transform_that_fails_costs_nothing(tmp_path, monkeypatch):
    def fails(self, transform, dtype=torch.float32):
        raise MemoryError("too large")

    monkeypatch.setattr(Curator, "remember", fails)
    config = dataclasses.replace(DpSgd.preset("strong", per_class=1, epsilon=5.0), epochs=1)
    with pytest.raises(MemoryError):
        train(dataset(), method=DpSgd(config), budget=BUDGET, out=tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_classifier_is_not_generated_and_a_set_is_not_trained(tmp_path):
    with pytest.raises(ConfigError, match="makes no synthetic set"):
        generate(dataset(), method=DpSgd(TINY["dp-sgd"]), budget=BUDGET, out=tmp_path / "set")
    with pytest.raises(ConfigError, match="psg trains no classifier"):
        train(dataset(), method=Psg(TINY["psg"]), budget=BUDGET, out=tmp_path / "set")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_progress_has_a_step_for_each_answer():
    class Steps(Observer):
        def __init__(self):
            self.phases, self.steps = [], 0

        def phase(self, name, total):
            self.phases.append((name, total))

        def step(self, count=1, **values):
            self.steps += count

    facts, method, observer = facts_for(40), DpSgd(TINY["dp-sgd"]), Steps()
    plan = method.plan(facts, FREE)
    method.train(Curator(records_for(facts), facts, Ledger(FREE), seeded_noise(0)), plan, observer=observer)
    assert observer.phases == [("training privately", plan.questions)]
    assert observer.steps == plan.questions
