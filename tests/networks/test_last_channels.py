import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import vmap

from privset.networks import last_channels
from privset.networks.last_channels import norm_relu_pool_last

SIZES = [((8, 8), (2, 2)), ((7, 9), (2, 2)), ((4, 6), (1, 2)), ((4, 4), (1, 1)), ((1, 5), (1, 2))]


def inputs_for(size: tuple[int, int], count: int = 3, channels: int = 4, *, last: bool = True) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    shapes = ((count, channels, *size), (channels,), (channels,))
    maps, *affine = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return maps.contiguous(memory_format=torch.channels_last) if last else maps, *affine


def by_layers(maps: Tensor, weight: Tensor, bias: Tensor, pool: tuple[int, int]) -> Tensor:
    return F.avg_pool2d(F.relu(F.group_norm(maps, len(weight), weight, bias)), pool)


@pytest.mark.parametrize(("size", "pool"), SIZES)
@pytest.mark.parametrize("last", [True, False])
def test_values_and_gradients_are_those_of_the_layers(size, pool, last):
    found = []
    for way in (norm_relu_pool_last, by_layers):
        inputs = [value.detach().requires_grad_() for value in inputs_for(size, last=last)]
        result = way(*inputs, pool=pool)
        direction = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        found.append((result, *torch.autograd.grad(result, inputs, direction)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("block", [1, 2 * 4 * 7 * 9, 10**6])
def test_however_many_images_are_looked_at_together_the_same_comes_out(block, monkeypatch):
    monkeypatch.setattr(last_channels, "BLOCK", block)
    test_values_and_gradients_are_those_of_the_layers((7, 9), (2, 2), True)


def test_nothing_that_is_given_is_changed():
    inputs = [value.detach().requires_grad_() for value in inputs_for((6, 6))]
    before = [value.detach().clone() for value in inputs]
    torch.autograd.grad(norm_relu_pool_last(*inputs, pool=(2, 2)).square().sum(), inputs)
    for now, then in zip(inputs, before, strict=True):
        assert torch.equal(now, then)


def test_maps_of_fewer_bits_round_what_comes_and_goes_and_nothing_between():
    """Far from zero their mean has to be taken with more digits than they have."""
    maps, weight, bias = (value.float() for value in inputs_for((32, 32), channels=8))
    maps = (maps + 30).bfloat16()
    found = []
    for way, values in ((norm_relu_pool_last, maps), (by_layers, maps.double())):
        affine = [value.to(torch.promote_types(values.dtype, torch.float32)) for value in (weight, bias)]
        inputs = [value.detach().requires_grad_() for value in (values, *affine)]
        with torch.autocast("cpu", torch.bfloat16):  # as around what calls it
            result = way(*inputs, pool=(2, 2))
            slopes = torch.autograd.grad(result, inputs, torch.ones_like(result).cumsum(3) / 16)
        found.append((result.detach(), *slopes))
    assert [value.dtype for value in found[0]] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    for ours, exact, digits in zip(*found, (8, 8, 16, 16), strict=True):
        assert float((ours - exact).norm() / exact.norm()) < 2.0**-digits


def test_what_comes_out_has_its_channels_last_as_well():
    maps, weight, bias = inputs_for((6, 6))
    maps.requires_grad_()
    result = norm_relu_pool_last(maps, weight, bias, pool=(2, 2))
    (slope,) = torch.autograd.grad(result.square().sum(), maps)
    for values in (result, slope):
        assert values.is_contiguous(memory_format=torch.channels_last)


def test_under_vmap_each_image_is_as_alone():
    maps, weight, bias = inputs_for((6, 7), count=5)
    others = torch.stack([weight + number for number in range(5)]).requires_grad_()

    def one(image, weight):
        return norm_relu_pool_last(image[None], weight, bias, pool=(2, 2))[0]

    together = vmap(one)(maps, others)
    alone = torch.stack([one(image, other) for image, other in zip(maps, others, strict=True)])
    torch.testing.assert_close(together, alone)
    (slopes,) = torch.autograd.grad(together.square().sum(), others)
    (expected,) = torch.autograd.grad(alone.square().sum(), others)
    torch.testing.assert_close(slopes, expected)
    broken = maps.clone()
    broken[2, 1, 3, 3] = math.nan
    kept = torch.arange(5) != 2
    assert torch.equal(vmap(one)(broken, others)[kept], together[kept])
    assert bool(vmap(one)(broken, others)[2, 1].isnan().all())


def test_a_second_derivative_is_refused():
    maps, weight, bias = inputs_for((6, 6))
    maps.requires_grad_()
    (slope,) = torch.autograd.grad(norm_relu_pool_last(maps, weight, bias).square().sum(), maps, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()
