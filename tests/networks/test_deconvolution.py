import dataclasses

import pytest
import torch
from tests.conftest import facts_for

from privset.facts import pixel_range
from privset.networks.deconvolution import DeconvolutionGenerator, _layers

MNIST = facts_for(60_000, classes=10, side=28)


def codes(network, count=6):
    labels = torch.arange(count) % len(network.facts.classes)
    return network.draw(labels, torch.Generator().manual_seed(0))


def weights(network):
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def test_for_mnist_it_is_the_published_one():
    network = DeconvolutionGenerator(MNIST, length=10, seed=0)
    assert len(weights(network)) == 1_114_305
    sizes = []
    for layer in (network.first, *network.layers):
        layer.register_forward_hook(lambda _, __, made: sizes.append(tuple(made.shape[1:])))
    assert network(codes(network)).shape == (6, 1, 28, 28)
    assert sizes == [(256, 4, 4), (128, 8, 8), (64, 11, 11), (1, 28, 28)]  # 8 is cropped to 7 on the way


def test_a_forward_pass_is_what_the_published_layers_compute():
    network = DeconvolutionGenerator(MNIST, length=10, seed=0, width=8)
    given = codes(network)

    def normed(maps):
        positive = torch.relu(maps)
        return positive / (positive.pow(2).mean(1, keepdim=True) + 1e-8).sqrt()

    first, second, third = network.layers
    linear = network.first[0]
    assert isinstance(linear, torch.nn.Linear)
    values = (given @ linear.weight.T + linear.bias).view(6, 8, 4, 4)
    values = first(normed(values))[:, :, :7, :7]
    expected = third(normed(second(normed(values))))
    assert torch.allclose(network(given), expected, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (10, 13), (28, 32), (32, 32), (64, 64)])
@pytest.mark.parametrize("bounded", [True, False])
def test_images_of_every_shape(channels, height, width, bounded):
    facts = dataclasses.replace(facts_for(200, classes=4, channels=channels), height=height, width=width)
    network = DeconvolutionGenerator(facts, length=3, seed=0, width=64, bounded=bounded)
    images = network.normalised(codes(network)).detach()
    assert images.shape == (6, channels, height, width)
    low, high = pixel_range(facts, images)
    assert bool(((images >= low) & (images <= high)).all()) or not bounded
    # Every pixel hears of its code: strides leave no holes, crops no empty rows.
    assert float(images.std(0).min()) > 0


@pytest.mark.parametrize("side", range(8, 200))
def test_maps_are_always_large_enough_to_be_cropped(side):
    start, first, middle, second, last = _layers(side)
    assert min(start, middle, last) >= 4
    assert middle <= (start - 1) * first + 5
    assert last <= (middle - 1) * second + 5
    assert side <= (last - 1) * 2 + 8
    assert max(first, second) <= 5  # else pixels would fall between two windows


def test_without_a_sigmoid_values_are_unbounded():
    bounded, free = (DeconvolutionGenerator(facts_for(9), length=3, seed=0, width=8, bounded=b) for b in (True, False))
    with torch.no_grad():
        for network in (bounded, free):
            next(iter(network.layers[-1].parameters())).mul_(100)
    assert float(free(codes(free)).detach().abs().max()) > 2
    assert float(bounded(codes(bounded)).detach().abs().max()) <= 1


def test_the_seed_alone_decides_the_weights_and_the_global_state_is_left_alone():
    torch.manual_seed(1)
    first = weights(DeconvolutionGenerator(facts_for(9), length=2, seed=7, width=4))
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = weights(DeconvolutionGenerator(facts_for(9), length=2, seed=7, width=4))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, weights(DeconvolutionGenerator(facts_for(9), length=2, seed=8, width=4)))
