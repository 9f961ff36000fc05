"""Plans that say, before anything is paid, that records are few for the noise."""

import dataclasses
import math

import pytest
import torch
from tests.conftest import facts_for

from privset.data import facts_of
from privset.methods import METHODS
from privset.methods.caution import faint, few_records
from privset.methods.dp_cgan import DpCganConfig, Game
from privset.privacy import GaussianEvent, PrivacyBudget

CAUTIOUS = {  # settings with which two records are not refused
    "moments": {},
    "psg": {"runs": 1, "batches_per_step": 5},
    "psg-prior": {"runs": 1, "outer_steps": 1, "batches_per_step": 5},
    "dp-merf": {},
    "dp-sgd": {"epochs": 5},
    "dp-cgan": {"steps": 5},
}


def planned(name, facts, epsilon, preset=None, **changes):
    method = METHODS[name]
    config = method.preset(preset or method.preset_for("cpu"), per_class=1, epsilon=epsilon)
    budget = PrivacyBudget(epsilon=epsilon, accountant="rdp")
    return method(dataclasses.replace(config, **changes)).plan(facts, budget)


@pytest.mark.parametrize("name", CAUTIOUS)
def test_two_records_are_few_at_any_usual_epsilon_and_those_of_mnist_are_not(name):
    few = dataclasses.replace(facts_of("mnist"), classes=("cat", "dog"), size=2)
    caution = planned(name, few, 20.0, **CAUTIOUS[name]).caution
    assert caution is not None
    assert caution.startswith("about 1 record a class are" if name in ("moments", "dp-merf") else "about 2 records are")
    assert planned(name, facts_of("mnist"), 10.0).caution is None


def test_published_noise_on_few_records_is_cautioned_about_too():
    assert planned("dp-merf", facts_for(2), 1.0, "paper").caution is not None
    assert planned("dp-merf", facts_of("mnist"), 1.0, "paper").caution is None


def test_without_noise_no_records_are_too_few():
    assert planned("dp-merf", facts_for(2), math.inf).caution is None


@pytest.mark.parametrize(("count", "rate"), [(1, 1.0), (50, 1.0), (50, 0.1)])
def test_the_line_is_where_noise_is_as_long_as_all_records_can_make_the_answers(count, rate):
    numbers, noise = 400, 3.0
    event = GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise, count=count)
    drawn = noise * torch.randn(count, numbers, generator=torch.Generator().manual_seed(0))
    enough = float(drawn.square().sum().sqrt()) / (count * rate)  # records that all say the same, as loudly as they may
    assert few_records(1.1 * enough, numbers, event) is None
    assert few_records(0.9 * enough, numbers, event) is not None


@pytest.mark.parametrize(
    ("name", "data", "epsilon", "words"),
    [
        ("gs-wgan", "mnist", 1.0, "all answers together carry noise 1."),
        ("dp-sinkhorn", "mnist", 1.0, "all answers together carry noise 1."),
        ("g-pate", "digits", 10.0, "each sum of 95 votes carries noise 2"),
        (
            "g-pate",
            "mnist",
            1.0,
            "each count carries noise 1.21e+03, more than the 400 of 4,000 votes that each of 10 ",
        ),
        ("datalens", "digits", 10.0, "each sum of 95 votes carries noise 2"),
    ],
)
def test_answers_that_drown_in_their_noise_are_cautioned_about(name, data, epsilon, words):
    caution = planned(name, facts_of(data), epsilon, "standard").caution
    assert caution is not None
    assert caution.startswith(words)
    assert planned(name, facts_of("mnist"), 10.0, "standard").caution is None
    assert planned(name, facts_of(data), math.inf, "standard").caution is None


def test_of_histograms_the_line_is_what_a_bin_has_if_teachers_do_not_agree():
    facts, sigma = facts_of("mnist"), 400.0
    assert planned("g-pate", facts, 50.0, sigma=sigma, steps=1).caution is None
    assert planned("g-pate", facts, 50.0, sigma=1.01 * sigma, steps=1).caution is not None
    assert planned("g-pate", facts, 50.0, sigma=sigma, steps=1, bins=11).caution is not None


def test_of_critics_those_that_are_asked_are_counted():
    config = METHODS["gs-wgan"].preset("standard", per_class=1, epsilon=1.0)
    all_of_them = planned("gs-wgan", facts_of("mnist"), 1.0, "standard", critics=2 * config.critics)
    assert all_of_them.caution is None


@pytest.mark.parametrize("length", [0.5, 7.0])
def test_the_line_is_where_noise_is_as_long_as_all_answers_can_be(length):
    numbers, count, noise = 400, 50, 3.0
    drawn = noise * torch.randn(count, numbers, generator=torch.Generator().manual_seed(0))
    ratio = float(drawn.square().sum().sqrt()) / (count * length)
    for louder, cautioned in ((1.1, False), (0.9, True)):
        event = GaussianEvent(
            question="pullback", sampling_rate=0.1, noise_multiplier=noise / (louder * ratio), count=count
        )
        assert (faint(length, numbers, event, remedies="more") is not None) is cautioned


def test_a_discriminator_has_as_many_weights_as_its_plan_takes_it_to_have(monkeypatch):
    facts, asked = facts_for(40), []
    monkeypatch.setattr("privset.methods.dp_cgan.few_records", lambda _, numbers, event: asked.append(numbers))
    planned("dp-cgan", facts, 10.0, width=7, steps=2, batch_size=40)
    game = Game(DpCganConfig(width=7), facts, torch.Generator().manual_seed(0), torch.device("cpu"))
    assert asked == [sum(weights.numel() for weights in game.discriminator.values())]
