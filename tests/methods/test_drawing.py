import torch
from tests.conftest import facts_for

from privset.methods.drawing import AT_ONCE, drawn, glimpse
from privset.networks.generators import UpsamplingGenerator

FACTS = facts_for(40)


def generator():
    return UpsamplingGenerator(FACTS, length=3, seed=1, width=5)


def test_images_are_those_of_the_codes_in_turn_however_many_are_drawn_at_a_time():
    network, labels = generator().eval(), torch.arange(AT_ONCE + 7) % 3
    images = drawn(network, labels, torch.Generator().manual_seed(2))
    assert images.shape == (AT_ONCE + 7, *FACTS.shape)
    random = torch.Generator().manual_seed(2)
    network.draw(labels[:AT_ONCE], random)
    with torch.no_grad():
        rest = network.normalised(network.draw(labels[AT_ONCE:], random))
    torch.testing.assert_close(images[AT_ONCE:], rest)


def test_being_looked_at_changes_nothing_and_shows_the_same_codes():
    network = generator()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first, second = glimpse(network, 20), glimpse(network, 20, {"loss": 1.5})
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(first.images, second.images)
    assert first.labels.bincount().tolist() == [10, 10, 10]  # no more than ten of a class
    assert second.values == {"loss": 1.5}
