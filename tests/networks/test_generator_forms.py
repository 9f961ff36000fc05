import inspect

import pytest
import torch
from tests.conftest import facts_for

from privset.errors import ConfigError
from privset.networks.generator_forms import GENERATORS, GeneratorForm, TrainedGenerator
from privset.networks.generators import ConditionalGenerator

SETTINGS = {
    "upsampling": {"length": 3, "width": 5},
    "linear": {"length": 3},
    "deconvolution": {"length": 3, "width": 8, "bounded": True},
    "perceptron": {"length": 3, "width": 5},
    "published-residual": {"length": 3, "width": 4},
    "transposed": {"length": 3, "width": 3},
    "conditional-dcgan": {"length": 3, "width": 5, "maps": 2},
}
"""Small settings of every generator that can be published; a new one adds its own here."""

FACTS = facts_for(40)


@pytest.fixture(params=GENERATORS)
def form(request):
    return GeneratorForm(architecture=request.param, settings=SETTINGS[request.param])


def test_every_generator_is_one_and_has_plain_settings(form):
    assert isinstance(form.build(FACTS), ConditionalGenerator)
    for name, parameter in inspect.signature(GENERATORS[form.architecture]).parameters.items():
        assert name == "facts" or parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert {type(value) for value in form.settings.values()} <= {int, bool}


def test_a_trained_generator_makes_the_same_images_once_it_is_built_again(form):
    network = form.build(FACTS, seed=3)
    labels = torch.arange(6) % 3
    with torch.no_grad():
        for _ in range(2):  # moves the averages of batch norm, which are part of the state
            network.normalised(network.draw(labels, torch.Generator().manual_seed(5)))
    trained = TrainedGenerator.of(form, network)
    network.eval()
    codes = network.draw(labels, torch.Generator().manual_seed(1))
    again = trained.network(FACTS)
    assert not again.training
    assert torch.equal(network.normalised(codes), again.normalised(codes))
    assert {name: value.shape for name, value in form.blank(FACTS).items()} == {
        name: value.shape for name, value in trained.state.items()
    }


def test_the_state_of_a_trained_generator_is_a_copy(form):
    network = form.build(FACTS)
    trained = TrainedGenerator.of(form, network)
    name, weight = next(iter(network.named_parameters()))
    with torch.no_grad():
        weight.add_(1)
    assert not torch.equal(trained.state[name], weight)


def test_codes_depend_on_the_generator_they_are_drawn_from_alone(form):
    network, labels = form.build(FACTS), torch.tensor([2, 0])
    torch.manual_seed(1)
    first = network.draw(labels, torch.Generator().manual_seed(4))
    torch.manual_seed(2)
    assert torch.equal(first, network.draw(labels, torch.Generator().manual_seed(4)))
    assert not torch.equal(first, network.draw(labels, torch.Generator().manual_seed(5)))


@pytest.mark.parametrize(
    ("architecture", "settings", "words"),
    [
        ("gpt", {}, "there is no generator 'gpt'; there are upsampling"),
        ("upsampling", {"length": 3}, "has the settings length, width, and these are length"),
        ("upsampling", {}, "and these are none"),
        ("upsampling", {"length": 3, "width": 5, "code": 1}, "has the settings length, width"),
        ("upsampling", {"length": 3, "width": 10**12}, "width of a generator must lie between 1 and 65,536"),
        ("deconvolution", {"length": 0, "width": 8, "bounded": True}, "length of a generator must lie"),
    ],
)
def test_a_generator_that_only_a_hostile_certificate_has_is_refused(architecture, settings, words):
    with pytest.raises(ConfigError, match=words):
        GeneratorForm(architecture=architecture, settings=settings).blank(FACTS)
