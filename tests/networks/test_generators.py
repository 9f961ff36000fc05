import dataclasses

import pytest
import torch
from tests.conftest import facts_for

from privset.networks.generators import UpsamplingGenerator, draw_codes


def codes(classes, count=6, length=5):
    labels = torch.arange(count) % classes
    return draw_codes(labels, classes=classes, length=length, generator=torch.Generator().manual_seed(0))


def weights(network):
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def test_a_code_is_normal_numbers_and_its_label():
    drawn = draw_codes(torch.arange(4).repeat(500), classes=4, length=3, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (2000, 7)
    assert torch.equal(drawn[:, 3:].argmax(1), torch.arange(4).repeat(500))
    assert torch.equal(drawn[:, 3:].sum(1), torch.ones(2000))
    assert float(drawn[:, :3].mean()) == pytest.approx(0, abs=0.05)
    assert float(drawn[:, :3].std()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (10, 13), (28, 28), (32, 32), (64, 64)])
@pytest.mark.parametrize("classes", [2, 100])
def test_images_of_every_shape(channels, height, width, classes):
    facts = dataclasses.replace(facts_for(200, classes=classes, channels=channels), height=height, width=width)
    pixels = UpsamplingGenerator(facts, length=5, seed=0)(codes(classes)).detach()
    assert pixels.shape == (6, channels, height, width)
    assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1
    assert float(pixels.std()) > 0


def test_for_mnist_it_is_the_published_one():
    network = UpsamplingGenerator(facts_for(60_000, classes=10, side=28), length=5, seed=0)
    counted = [sum(weight.numel() for weight in layer.parameters()) for layer in network.layers]
    assert [count for count in counted if count] == [15 * 200 + 200, 400, 200 * 784 + 784, 1568, 3208, 201]
    seen = codes(10)
    sizes = []
    for layer in network.layers:
        seen = layer(seen)
        sizes.append(tuple(seen.shape[1:]))
    assert sizes[5:] == [(16, 7, 7), (16, 14, 14), (8, 14, 14), (8, 14, 14), (8, 28, 28), (1, 28, 28), (1, 28, 28)]


def test_the_seed_alone_decides_the_weights_and_the_global_state_is_left_alone():
    torch.manual_seed(1)
    first = weights(UpsamplingGenerator(facts_for(9), length=2, seed=7))
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = weights(UpsamplingGenerator(facts_for(9), length=2, seed=7))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, weights(UpsamplingGenerator(facts_for(9), length=2, seed=8)))


def test_once_trained_an_image_depends_on_its_own_code_alone():
    network = UpsamplingGenerator(facts_for(9), length=5, seed=0)
    drawn = codes(3)
    assert not torch.allclose(network(drawn)[:2], network(drawn[:2]), atol=1e-4)  # batch norm
    network.eval()
    assert torch.allclose(network(drawn)[:2], network(drawn[:2]), atol=1e-6)
