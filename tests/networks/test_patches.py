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
    assert_derivatives_are_those_of_the_library(kernels, maps, (0, 0 if own_maps else None))


def assert_derivatives_are_those_of_the_library(kernels, maps, dims):
    for by in (0, 1):
        found, expected = (
            vmap(grad(penalty(convolve), argnums=by), in_dims=dims)(kernels, maps)
            for convolve in (convolved_by_products, by_library)
        )
        assert found.shape == expected.shape
        assert torch.allclose(found, expected)


def test_networks_lie_along_any_axis_and_in_any_order():
    kernels, maps = drawn(6, 3, 3, 5, 5, seed=1), drawn(4, 3, 7, 3, 5)
    dims, laid = (1, 3), (kernels.movedim(1, 0), maps.movedim(3, 0))
    found, expected = (
        vmap(grad(penalty(convolve), argnums=(0, 1)), in_dims=dims)(kernels, maps)
        for convolve in (convolved_by_products, by_library)
    )
    again = vmap(grad(penalty(convolved_by_products), argnums=(0, 1)))(*laid)
    for one, other, third in zip(found, expected, again, strict=True):
        assert torch.allclose(one, other)
        assert torch.allclose(one, third)


@pytest.mark.parametrize("inner", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("outer", [(0, 0), (0, None), (None, 0)])
def test_networks_of_networks_are_laid_in_a_row(inner, outer):
    shapes = [
        tuple(size for size, dim in ((2, out), (3, within)) if dim is not None)
        for out, within in zip(outer, inner, strict=True)
    ]
    kernels, maps = drawn(*shapes[0], 2, 3, 5, 5, seed=1), drawn(*shapes[1], 4, 3, 5, 4)
    found, expected = (
        vmap(vmap(grad(penalty(convolve), argnums=(0, 1)), in_dims=inner), in_dims=outer)(kernels, maps)
        for convolve in (convolved_by_products, by_library)
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_slopes_of_all_networks_together_are_sums_over_them(dims):
    """As of a loss that looks at many networks, whose gradient is taken outside of vmap; and its own gradient."""
    kernels, maps = (
        drawn(*((3,) if dim == 0 else ()), *shape, seed=seed)
        for seed, (dim, shape) in enumerate(zip(dims, ((2, 3, 5, 5), (4, 3, 5, 4)), strict=True))
    )

    def total(convolve):
        return lambda kernels, maps: vmap(lambda k, x: convolve(x, k).pow(3).sum(), in_dims=dims)(kernels, maps).sum()

    def steepness(convolve):
        return lambda *given: sum(slope.square().sum() for slope in grad(total(convolve), argnums=(0, 1))(*given))

    for of in (total, steepness):
        found, expected = (grad(of(c), argnums=(0, 1))(kernels, maps) for c in (convolved_by_products, by_library))
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert torch.allclose(one, other)


def test_what_all_networks_are_shown_is_cut_into_patches_once(monkeypatch):
    cut, plain = [], patches.patches
    monkeypatch.setattr(patches, "patches", lambda maps, *form: cut.append(maps.shape) or plain(maps, *form))
    vmap(convolved_by_products, in_dims=(None, 0))(drawn(4, 3, 8, 8), drawn(7, 6, 3, 5, 5))
    assert cut == [(4, 8, 8, 3)]


def test_what_one_network_is_shown_changes_no_other():
    assert_networks_are_apart("cpu")


def assert_networks_are_apart(device):
    kernels, maps = drawn(5, 3, 2, 5, 5, seed=1).to(device), drawn(5, 3, 2, 7, 5).to(device)
    before = vmap(grad(penalty(convolved_by_products)))(kernels, maps)
    kernels[2], maps[2] = float("nan"), float("nan")
    after = vmap(grad(penalty(convolved_by_products)))(kernels, maps)
    others = [0, 1, 3, 4]
    assert torch.equal(before[others], after[others])
    assert after[2].isnan().all()


def test_slopes_lie_as_maps_and_weights_do():
    """Else whatever they are multiplied with next would be walked through in another order, which a card is slow at."""
    kernels, maps = drawn(3, 6, 2, 5, 5), drawn(3, 4, 7, 7, 2).permute(0, 1, 4, 2, 3)
    loss = lambda kernel, maps: convolved_by_products(maps, kernel).square().sum()  # noqa: E731
    by_kernel, by_maps = vmap(grad(loss, argnums=(0, 1)))(kernels, maps)
    assert by_kernel.is_contiguous()
    assert by_maps.stride() == maps.stride()


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


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # that of torch 2.11 says so whenever it begins
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
    maps, kernel = drawn(2, height, width, channels), drawn(3, channels, 5, 5, seed=1)
    slope = drawn(2, (height + 1) // 2, (width + 1) // 2, 3, seed=2)
    assert_derivatives_are_true(maps, kernel, slope)


def assert_derivatives_are_true(maps, kernel, slope, **how):
    for leaf in (maps, kernel, slope):
        leaf.requires_grad_()
    size = maps.shape[1:3]
    for operation, given in (
        (patches._Convolved.apply, (maps, kernel)),
        (lambda slope, kernel: patches._ByMaps.apply(slope, kernel, size), (slope, kernel)),
        (patches._ByKernel.apply, (slope, maps)),
    ):
        assert torch.autograd.gradcheck(operation, given, **how)
        assert torch.autograd.gradgradcheck(operation, given, **how)
