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


def normed(maps):
    positive = torch.relu(maps)
    return positive / (positive.pow(2).mean(1, keepdim=True) + 1e-8).sqrt()


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
    first, second, third = network.layers
    linear = network.first[0]
    assert isinstance(linear, torch.nn.Linear)
    values = (given @ linear.weight.T + linear.bias).view(6, 8, 4, 4)
    values = first(normed(values))[:, :, :7, :7]
    expected = third(normed(second(normed(values))))
    assert torch.allclose(network(given), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("side", "strides", "made", "kept"),
    [
        (28, (1, 1, 2), (8, 11, 28), (slice(0, 7), slice(0, 11))),
        (32, (1, 2, 2), (8, 13, 32), (slice(1, 6), slice(0, 13))),
        (64, (3, 2, 2), (14, 29, 64), (slice(0, 13), slice(0, 29))),
    ],
)
def test_maps_grow_by_the_documented_strides_and_their_middle_goes_on(side, strides, made, kept):
    network = DeconvolutionGenerator(facts_for(40, side=side), length=3, seed=0, width=8)
    taken, left = [], []
    for layer in network.layers:
        layer.register_forward_pre_hook(lambda _, given: taken.append(given[0]))
        layer.register_forward_hook(lambda _, __, out: left.append(out))
    image = network(codes(network))
    assert [layer.stride for layer in network.layers] == [(stride, stride) for stride in strides]
    assert [maps.shape[2:] for maps in left] == [(rows, rows) for rows in made]
    assert taken[0].shape[2:] == (4, 4)
    for maps, rows, seen in zip(left[:2], kept, taken[1:], strict=True):
        assert torch.allclose(seen, normed(maps[:, :, rows, rows]), atol=1e-6)
    assert torch.equal(image, left[2])


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
def test_maps_are_always_large_enough_to_be_cropped_and_strides_as_documented(side):
    start, first, middle, second, last = _layers(side)
    assert min(start, middle, last) >= 4
    assert middle <= (start - 1) * first + 5
    assert last <= (middle - 1) * second + 5
    assert side <= (last - 1) * 2 + 8
    # As documented: 1 up to 12 rows and 2 beyond; and the least, up to 3, with which 4 rows are enough.
    assert second == (1 if last <= 12 else 2)
    assert first == next((stride for stride in (1, 2) if 3 * stride + 5 >= middle), 3)
    assert start == 4 or first == 3


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
