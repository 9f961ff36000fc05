import dataclasses

import pytest
import torch
from tests.conftest import facts_for
from torch import nn

from privset.networks import growing
from privset.networks.deconvolution import DeconvolutionGenerator
from privset.networks.growing import by_phases, grown, grown_on_a_card, of_pixels
from privset.networks.transposed import TransposedGenerator

LAYERS = {
    "from a pixel": (nn.ConvTranspose2d(6, 9, (7, 5), bias=False), (1, 1)),
    "from a pixel, padded": (nn.ConvTranspose2d(6, 2, (3, 4), padding=1), (1, 1)),
    "of many": (nn.ConvTranspose2d(7, 6, 4, stride=2, padding=1, bias=False), (7, 7)),
    "of many, higher than wide": (nn.ConvTranspose2d(6, 5, (4, 6), stride=(2, 3), padding=(0, 2)), (5, 2)),
    "of many without a stride": (nn.ConvTranspose2d(6, 5, 5), (4, 6)),
    "of many without a stride, padded": (nn.ConvTranspose2d(6, 1, (3, 5), padding=(1, 2)), (5, 6)),
    "of many whose stride divides nothing": (nn.ConvTranspose2d(6, 2, (5, 4), stride=(2, 3), padding=(1, 0)), (4, 3)),
    "of many whose stride leaves holes": (nn.ConvTranspose2d(6, 2, 2, stride=3), (4, 3)),
    "of few": (nn.ConvTranspose2d(3, 5, 5, stride=2), (4, 3)),
    "a convolution to few": (nn.Conv2d(6, 1, 3, padding=1), (28, 28)),
    "a convolution to three": (nn.Conv2d(2, 3, (3, 5), padding=(1, 0)), (7, 9)),
    "a convolution to few, not padded": (nn.Conv2d(2, 2, (4, 2), bias=False), (5, 4)),
    "a convolution to many": (nn.Conv2d(2, 5, 3), (7, 6)),
    "a convolution with a stride": (nn.Conv2d(2, 1, 3, stride=2), (7, 6)),
    "a convolution with more zeros than taps": (nn.Conv2d(2, 1, 3, padding=3), (6, 6)),
    "a convolution with holes": (nn.Conv2d(2, 1, 3, dilation=2), (6, 6)),
    "a convolution that mirrors": (nn.Conv2d(2, 1, 3, padding=1, padding_mode="reflect"), (6, 6)),
    "a convolution of the same size": (nn.Conv2d(2, 1, 3, padding="same"), (6, 6)),
    "of many, a little larger": (nn.ConvTranspose2d(6, 2, 3, stride=2, output_padding=1), (4, 3)),
    "of many in groups": (nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2), (4, 3)),
    "no convolution": (nn.LeakyReLU(0.2), (3, 2)),
}
TAKEN = ("of_pixels", "by_phases", "by_overlaps")


@pytest.fixture(autouse=True)
def six_are_many(monkeypatch):
    monkeypatch.setattr(growing, "MANY", 6)


def derivatives(layer, maps, make):
    """What is made of maps, its derivatives, and theirs."""
    inputs = [maps.clone().requires_grad_(), *layer.parameters()]
    made = make(layer, inputs[0])
    random = torch.Generator().manual_seed(1)
    slope = torch.randn(made.shape, generator=random, dtype=made.dtype).requires_grad_()
    first = torch.autograd.grad(made, inputs, slope, create_graph=True)
    along = [torch.randn(one.shape, generator=random, dtype=made.dtype) for one in first]
    total = sum((one * by).sum() for one, by in zip(first, along, strict=True))
    assert isinstance(total, torch.Tensor)
    second = torch.autograd.grad(total, [*inputs, slope], allow_unused=True, materialize_grads=True)
    return made, *first, *second


@pytest.mark.parametrize("name", LAYERS)
def test_a_card_makes_of_maps_what_a_layer_does_and_derivatives_of_two_orders_too(name):
    layer, size = LAYERS[name]
    layer = layer.double()
    channels = getattr(layer, "in_channels", 4)
    maps = torch.randn(3, channels, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = derivatives(layer, maps, lambda layer, maps: layer(maps))
    for ours, theirs in zip(derivatives(layer, maps, grown_on_a_card), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(grown(layer, maps), layer(maps))


@pytest.mark.parametrize(
    ("name", "taken"),
    [("from a pixel", TAKEN[0]), ("of many", TAKEN[1]), ("of few", None), ("a convolution to few", TAKEN[2])],
)
def test_each_layer_has_the_form_that_was_measured_for_it(name, taken, monkeypatch):
    used = []
    for form in TAKEN:
        plain = getattr(growing, form)
        monkeypatch.setattr(growing, form, lambda *given, form=form, plain=plain: (used.append(form), plain(*given))[1])
    layer, size = LAYERS[name]
    grown_on_a_card(layer.float(), torch.zeros(1, layer.in_channels, *size))
    assert used == ([] if taken is None else [taken])


def test_every_tap_is_where_it_belongs():
    maps, weight = torch.zeros(1, 1, 3, 4, dtype=torch.float64), torch.arange(1.0, 25, dtype=torch.float64)
    maps[0, 0, 1, 2] = 1
    weight = weight.view(1, 1, 4, 6)
    found = by_phases(maps, weight, (2, 3), (0, 0))
    assert found.shape == (1, 1, 8, 15)
    assert torch.equal(found[0, 0, 2:6, 6:12], weight[0, 0])
    assert float(found.sum()) == float(weight.sum())


def test_of_one_pixel_it_is_the_kernel():
    weight = torch.randn(2, 3, 4, 5)
    assert torch.equal(of_pixels(torch.tensor([[0.0, 1.0]])[:, :, None, None], weight)[0], weight[1])


def test_maps_may_lie_in_memory_as_they_like():
    layer, size = LAYERS["a convolution to few"]
    maps = torch.randn(3, 6, *size).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(grown_on_a_card(layer.float(), maps), layer(maps))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [(28, 28), (32, 32), (13, 10)])
@pytest.mark.parametrize("kind", [TransposedGenerator, DeconvolutionGenerator])
def test_on_a_card_a_generator_makes_and_learns_the_same(kind, side, channels, monkeypatch):
    facts = dataclasses.replace(facts_for(40, classes=3, channels=channels), height=side[0], width=side[1])
    network = kind(facts, length=4, seed=0, width=20).double()
    codes = network.draw(torch.arange(5) % 3, torch.Generator().manual_seed(0)).double()
    slope = torch.randn(5, *facts.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, asked = growing.grown, []

    def of(make):
        # Each of the modules knows it by a name of its own.
        monkeypatch.setattr(f"{kind.__module__}.grown", make)
        images = network.normalised(codes)
        return images, *torch.autograd.grad(images, list(network.parameters()), slope)

    def on_a_card(layer, maps):
        asked.append(layer)
        return grown_on_a_card(layer, maps)

    for ours, theirs in zip(of(on_a_card), of(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert {layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)} <= set(asked)
