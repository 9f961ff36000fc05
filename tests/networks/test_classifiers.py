"""Promises that every classifier keeps, and the published sizes of each."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.func import functional_call, grad, vmap

from privset.networks import CLASSIFIERS, ConvNet

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


@pytest.mark.parametrize(
    ("name", "grey", "colour"),
    [
        ("convnet", 317_706, 320_010),
        ("mlp", 118_282, 411_146),
        ("lenet", 61_706, 62_006),
        ("alexnet", 1_865_802, 1_872_202),
        ("vgg11", 9_229_962, 9_231_114),
        ("resnet18", 11_172_810, 11_173_962),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, grey: int, colour: int) -> None:
    with torch.device("meta"):
        assert count(CLASSIFIERS[name](GREY, 10)) == grey
        assert count(CLASSIFIERS[name](COLOUR, 10)) == colour


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 13), (1, 20, 9), (3, 37, 64), (1, 64, 64), (3, 97, 128)])
@pytest.mark.parametrize("classes", [2, 131])
def test_any_size_gives_logits(name: str, shape: tuple[int, int, int], classes: int) -> None:
    with torch.device("meta"):
        assert CLASSIFIERS[name](shape, classes)(torch.empty(3, *shape)).shape == (3, classes)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 12)])
def test_small_images_reach_the_logits_and_every_weight_learns(name: str, shape: tuple[int, int, int]) -> None:
    """A norm over a single pixel would let nothing through."""
    torch.manual_seed(0)
    network = CLASSIFIERS[name](shape, 5)
    images = torch.randn(4, *shape)

    logits = network(images)
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()

    assert logits.std(dim=0).min() > 1e-4
    for key, weight in network.named_parameters():
        assert weight.grad is not None
        if weight.ndim > 1:
            assert weight.grad.abs().max() > 1e-7, key


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_per_example_gradients_under_vmap_add_up_to_that_of_the_batch(name: str) -> None:
    """Also shows that no image of a batch touches another."""
    torch.manual_seed(0)
    network = CLASSIFIERS[name]((1, 8, 8), 3).double()
    images, labels = torch.randn(2, 1, 8, 8, dtype=torch.float64), torch.tensor([2, 0])
    weights = {key: weight.detach() for key, weight in network.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(network, weights, (image[None],)), label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
    F.cross_entropy(network(images), labels, reduction="sum").backward()

    for key, weight in network.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(each[key].sum(dim=0), weight.grad)


def test_gradients_can_be_differentiated_again() -> None:
    """What gradient matching does: the gradient of the weights, differentiated by the images."""
    torch.manual_seed(0)
    network = ConvNet((1, 8, 8), 2, width=4).double()
    weights = list(network.parameters())
    images, direction = torch.randn(2, 2, 1, 8, 8, dtype=torch.float64)
    images.requires_grad_()

    def squared_gradient(images: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(network(images), torch.tensor([0, 1]))
        parts = torch.autograd.grad(loss, weights, create_graph=True)
        return torch.stack([part.square().sum() for part in parts]).sum()

    (slope,) = torch.autograd.grad(squared_gradient(images), images)

    step = 1e-6 * direction
    difference = squared_gradient(images + step) - squared_gradient(images - step)
    torch.testing.assert_close((slope * direction).sum(), difference / 2e-6, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("width", "depth"), [(8, 1), (16, 2), (4, 6)])
def test_convnet_width_and_depth(width: int, depth: int) -> None:
    network = ConvNet((1, 8, 8), 2, width=width, depth=depth)
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]

    assert [module.out_channels for module in convolutions] == [width] * depth
    assert network(torch.randn(1, 1, 8, 8)).abs().max() > 0
