import dataclasses

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.conftest import facts_for

from privset.facts import pixel_range
from privset.networks.generators import PerceptronGenerator, UpsamplingGenerator, draw_centred_codes, draw_codes
from privset.networks.linear import LinearGenerator
from privset.networks.transposed import TransposedGenerator


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


@pytest.mark.parametrize("training", [True, False])
def test_a_forward_pass_is_what_the_published_layers_compute(training):
    network = UpsamplingGenerator(facts_for(60_000, classes=10, side=28), length=5, seed=0).train(training)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():  # norms begin as what leaves no trace
        for name, value in network.state_dict().items():
            if "running" in name or value.ndim == 1:
                value.copy_(0.5 + torch.rand(value.shape, generator=random))
    in1, add1, scale1, shift1, in2, add2, scale2, shift2, kernel1, lift1, kernel2, lift2 = network.parameters()
    mean1, square1, mean2, square2 = averages = [
        value.clone() for name, value in network.state_dict().items() if "running" in name
    ]
    given = codes(10, count=20)
    norms = {"training": training, "momentum": 0.1, "eps": 1e-5}
    values = F.linear(given, in1, add1)
    values = F.relu(F.batch_norm(values, mean1, square1, scale1, shift1, **norms))
    values = F.batch_norm(F.linear(values, in2, add2), mean2, square2, scale2, shift2, **norms)
    values = values.view(20, 16, 7, 7)
    values = F.interpolate(values, scale_factor=2, mode="bilinear", align_corners=True)
    values = F.relu(F.conv2d(values, kernel1, lift1, padding=2))
    values = F.interpolate(values, scale_factor=2, mode="bilinear", align_corners=True)
    expected = torch.sigmoid(F.conv2d(values, kernel2, lift2, padding=2))
    assert torch.allclose(network(given), expected, atol=1e-5)
    assert float(expected.detach().std()) > 0.01  # not so far out that a sigmoid makes everything alike
    # What it has seen in training is what it takes for the mean and the spread afterwards.
    found = [value for name, value in network.state_dict().items() if "running" in name]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, averages, strict=True))


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


def test_centred_codes_are_uniform_and_end_in_the_label():
    labels = torch.tensor([2, 0]).repeat(2000)
    codes = draw_centred_codes(labels, classes=3, length=5, generator=torch.Generator().manual_seed(0))
    numbers, rows = codes[:, :5], codes[:, 5:]
    assert float(numbers.min()) >= -1
    assert float(numbers.max()) <= 1
    assert float(numbers.square().mean()) == pytest.approx(1 / 3, abs=0.02)
    assert rows[:2].tolist() == [[0, 0, 1], [1, 0, 0]]


def test_the_generator_of_dp_cgan_begins_as_published():
    facts = facts_for(40, classes=10, side=28)
    network = PerceptronGenerator(facts, length=100, seed=0)
    assert sum(weight.numel() for weight in network.parameters()) == 110 * 128 + 128 + 128 * 784 + 784
    assert float(network.hidden.weight.detach().std()) == pytest.approx((2 / 110) ** 0.5, rel=0.02)
    assert float(network.last.weight.detach().std()) == pytest.approx((2 / 128) ** 0.5, rel=0.02)
    assert not network.hidden.bias.any()
    assert not network.last.bias.any()
    pixels = network(network.draw(torch.tensor([1, 2]), torch.Generator())).detach()
    assert pixels.shape == (2, 1, 28, 28)
    assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1


@pytest.mark.parametrize("kind", [LinearGenerator, TransposedGenerator])
def test_what_transport_is_paid_for_are_the_pixels_that_are_published_from_minus_one_to_one(kind):
    facts = dataclasses.replace(facts_for(10), mean=(0.25,), std=(0.5,))
    generator = kind(facts, length=3, seed=0).eval()
    drawn = generator.draw(torch.arange(5) % len(facts.classes), torch.Generator().manual_seed(1))
    with torch.no_grad():
        images, centred = generator.normalised(drawn), generator.centred(drawn)
    darkest, brightest = pixel_range(facts, images)
    torch.testing.assert_close(centred, 2 * (images - darkest) / (brightest - darkest) - 1)
