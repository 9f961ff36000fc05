"""The convolution of critics and teachers by products of matrices, against the library's own."""

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import grad, vmap

from privset.networks import patches
from privset.networks.patches import convolved, convolved_by_products

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 7, 4), (5, 1, 2)]


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_library(maps, kernel):
    return F.conv2d(maps, kernel, stride=2, padding=2)


def penalty(convolve):
    """Something with a gradient of a gradient in it, as the loss of a critic has."""

    def loss(kernel, maps):
        slopes = grad(lambda x: convolve(x, kernel).square().sum())(maps)
        return (slopes.square().sum((1, 2, 3)).sqrt() - 1).square().mean() + convolve(maps, kernel).sum()

    return loss


@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_of_the_library(shape):
    maps, kernel = drawn(4, *shape), drawn(6, shape[0], 5, 5, seed=1)
    expected = by_library(maps, kernel)
    found = convolved_by_products(maps, kernel)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected)
    assert torch.equal(convolved(maps, kernel), expected)  # a processor is left to the library


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("own_maps", [True, False])
def test_first_and_second_derivatives_of_many_networks_are_those_of_the_library(shape, own_maps):
    kernels = drawn(3, 6, shape[0], 5, 5, seed=1)
    maps = drawn(3, 4, *shape) if own_maps else drawn(4, *shape)
    dims = (0, 0 if own_maps else None)
    for by in (0, 1):
        found, expected = (
            vmap(grad(penalty(convolve), argnums=by), in_dims=dims)(kernels, maps)
            for convolve in (convolved_by_products, by_library)
        )
        assert found.shape == expected.shape
        assert torch.allclose(found, expected)


class OnACard(torch.Tensor):
    """Maps that say so."""

    is_cuda = True  # type: ignore[assignment]


def test_maps_on_a_card_are_convolved_by_products(monkeypatch):
    monkeypatch.setattr(patches, "convolved_by_products", lambda *_: "by products")
    maps, kernel = drawn(2, 1, 8, 8), drawn(3, 1, 5, 5)
    assert convolved(maps.as_subclass(OnACard), kernel) == "by products"
    assert torch.equal(convolved(maps, kernel), by_library(maps, kernel))


def test_channels_lie_side_by_side_from_one_layer_to_the_next():
    found = convolved_by_products(drawn(4, 3, 8, 8), drawn(6, 3, 5, 5))
    assert found.relu().permute(0, 2, 3, 1).is_contiguous()


def test_no_image_is_taken_by_itself():
    kernels, maps = drawn(2, 6, 3, 5, 5), drawn(2, 4, 3, 8, 8)
    with warnings.catch_warnings(), torch.profiler.profile() as profile:
        warnings.simplefilter("error")  # torch warns of what it does one by one
        for by in (0, 1):
            vmap(grad(penalty(convolved_by_products), argnums=by))(kernels, maps)
    calls = {event.key for event in profile.key_averages()}
    assert "aten::bmm" in calls
    assert not calls & {"aten::im2col", "aten::col2im", "aten::unfold_backward"}  # which a card is slow at


@pytest.mark.parametrize("shape", [(1, 4, 5), (2, 1, 3)])
def test_derivatives_of_all_three_operations_are_true_to_the_second_order(shape):
    channels, height, width = shape
    maps, kernel = drawn(2, height, width, channels), drawn(3, 5, 5, channels, seed=1)
    slope = drawn(2, (height + 1) // 2, (width + 1) // 2, 3, seed=2)
    for leaf in (maps, kernel, slope):
        leaf.requires_grad_()
    size = maps.shape[1:3]
    for operation, given in (
        (patches._Convolved.apply, (maps, kernel)),
        (lambda slope, kernel: patches._ByMaps.apply(slope, kernel, size), (slope, kernel)),
        (patches._ByKernel.apply, (slope, maps)),
    ):
        assert torch.autograd.gradcheck(operation, given)
        assert torch.autograd.gradgradcheck(operation, given)
