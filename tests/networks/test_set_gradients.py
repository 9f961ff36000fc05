"""The gradient of a set and its slope by the pixels, written out, against automatic differentiation."""

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from privset.networks import MLP, ConvNet, LeNet, kernels
from privset.networks import set_gradients as module
from privset.networks.set_gradients import set_gradient

INTERPRETED = kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
KERNELS = pytest.mark.skipif(
    not (INTERPRETED or (kernels.AVAILABLE and torch.cuda.is_available())), reason="needs a graphics card, or Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [((1, 28, 28), 3), ((3, 32, 32), 2), ((1, 8, 8), 3), ((3, 9, 7), 2), ((2, 5, 12), 1)]


def network_for(shape, *, depth=3, kind=ConvNet, **settings):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = kind(shape, 4, **({"width": 5, "depth": depth} if kind is ConvNet else settings)).double()
        with torch.no_grad():
            for (
                weight
            ) in network.parameters():  # norms begin with scales of one and shifts of zero, which would hide some
                weight += 0.2 * torch.randn_like(weight)
    return network


def images_for(shape, count=6):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64), torch.arange(count) % 4


def directions_for(network):
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight) if weight.ndim > 1 else None
        for weight in network.parameters()
    ]


def differentiated(network, images, labels, directions):
    """Gradient by weights that have rows, and the slope of its product with the directions, by automatic
    differentiation of the plain layers."""
    images = images.clone().requires_grad_()
    loss = F.cross_entropy(network(images), labels)
    weights = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    products = [(w * d).sum() for w, d in zip(weights, directions, strict=True) if d is not None]
    found = [weight.detach() if weight.ndim > 1 else None for weight in weights]
    return found, torch.autograd.grad(torch.stack(products).sum(), images)[0]


@pytest.mark.parametrize(("shape", "depth"), SHAPES)
def test_for_a_convnet_both_are_those_of_automatic_differentiation(shape, depth):
    network, (images, labels) = network_for(shape, depth=depth), images_for(shape)
    directions = directions_for(network)
    expected, slope = differentiated(network, images, labels, directions)
    found = set_gradient(network, images, labels)
    assert isinstance(found, module._ByHand)
    for one, other in zip(found.weights, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.allclose(one, other, rtol=0, atol=1e-13)
    pulled = found.pull(directions)
    assert float(slope.abs().max()) > 1e-4
    assert torch.allclose(pulled, slope, rtol=0, atol=1e-11 * float(slope.abs().max()))
    assert torch.equal(pulled, found.pull(directions))  # asking changes nothing


def test_the_slope_tells_how_the_gradient_changes_with_the_images():
    network, (images, labels) = network_for((1, 8, 8)), images_for((1, 8, 8))
    directions = directions_for(network)

    def product(images):
        pairs = zip(set_gradient(network, images, labels).weights, directions, strict=True)
        return float(sum((w * d).sum() for w, d in pairs if w is not None and d is not None))

    slope = set_gradient(network, images, labels).pull(directions)
    step = 1e-6 * torch.randn(images.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    change = product(images + step) - product(images - step)
    assert change == pytest.approx(2 * float((slope * step).sum()), rel=1e-4)


@pytest.mark.parametrize(("kind", "settings"), [(MLP, {"width": 6}), (LeNet, {})])
def test_for_other_networks_it_is_automatic(kind, settings):
    shape = (1, 28, 28)
    network, (images, labels) = network_for(shape, kind=kind, **settings), images_for(shape)
    directions = directions_for(network)
    expected, slope = differentiated(network, images, labels, directions)
    found = set_gradient(network, images, labels)
    for one, other in zip(found.weights, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert torch.allclose(one, other, atol=1e-13)
            assert not one.requires_grad
    assert torch.allclose(found.pull(directions), slope, atol=1e-13)
    assert not images.requires_grad


def test_a_direction_of_a_bias_or_of_no_weight_is_refused_for_a_convnet():
    network, (images, labels) = network_for((1, 8, 8)), images_for((1, 8, 8))
    found, directions = set_gradient(network, images, labels), directions_for(network)
    with pytest.raises(NotImplementedError, match="for every weight"):
        found.pull([torch.ones_like(weight) for weight in network.parameters()])
    with pytest.raises(NotImplementedError, match="for every weight"):
        found.pull([None, *directions[1:]])


@KERNELS
@pytest.mark.parametrize(("shape", "depth"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_the_kernels_give_what_the_plain_block_gives(shape, depth, dtype, tolerance):
    network = network_for(shape, depth=depth).to(DEVICE, dtype)
    images, _ = images_for(shape)
    given = images.to(DEVICE, dtype)
    generator = torch.Generator().manual_seed(4)

    def drawn(like):
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)

    layers: list[Any] = list(network.features)
    with torch.no_grad():
        for first in range(0, len(layers) - 1, 4):
            convolution, norm, _, pooling = layers[first : first + 4]
            maps = F.conv2d(given, convolution.weight, None, convolution.stride, convolution.padding)
            plain, kernel = (
                kind(convolution, norm, pooling.kernel_size, given, maps)
                for kind in (module._PlainBlock, module._KernelBlock)
            )
            pooled, moved = plain.pooled(), drawn(maps)
            slope, bent = drawn(pooled), drawn(pooled)
            for block in (plain, kernel):
                block.back(slope)
            pairs = [
                (kernel.pooled(), pooled),
                (kernel.slope, plain.slope),
                (kernel.rate(moved), plain.rate(moved)),
                (kernel.bent(bent), plain.bent(bent)),
            ]
            for ours, theirs in pairs:
                assert torch.allclose(ours, theirs, rtol=0, atol=tolerance * float(theirs.abs().max()))
            given = pooled
