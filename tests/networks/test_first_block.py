import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import vmap

from privset.networks import first_block
from privset.networks.first_block import convolve_norm_relu_pool

CASES = [
    ((1, 8, 8), (3, 3), {"padding": (1, 1), "pool": (2, 2)}),
    ((1, 7, 9), (3, 3), {"padding": (3, 2), "pool": (2, 2)}),
    ((2, 9, 6), (2, 3), {"stride": (2, 1), "pool": (1, 2)}),
    ((3, 5, 5), (1, 1), {}),
    ((1, 6, 11), (5, 2), {"stride": (1, 3), "padding": (2, 0), "pool": (3, 2)}),
]
"""Shape of an image, kernel, and how it is gone over."""


def inputs_for(shape: tuple[int, int, int], kernel: tuple[int, int], count: int = 5) -> list[Tensor]:
    """Images, and one weight, scale and shift for all of them."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((count, *shape), (4, shape[0], *kernel), (4,), (4,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def at_once(images: Tensor, *own: Tensor, **how) -> Tensor:
    return convolve_norm_relu_pool(images, *(value.expand(len(images), *value.shape) for value in own), **how)


def by_layers(images, weight, scale, shift, *, stride=(1, 1), padding=(0, 0), pool=(1, 1), eps=1e-5) -> Tensor:
    maps = F.conv2d(images, weight, None, stride, padding)
    return F.avg_pool2d(F.relu(F.group_norm(maps, len(weight), scale, shift, eps)), pool)


def values_and_slopes(way, images: Tensor, own: list[Tensor], how) -> list[Tensor]:
    own = [value.detach().requires_grad_() for value in own]
    result = way(images, *own, **how)
    direction = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [result, *torch.autograd.grad(result, own, direction.bfloat16().to(result.dtype))]


@pytest.mark.parametrize(("shape", "kernel", "how"), CASES)
def test_values_and_slopes_are_those_of_the_layers(shape, kernel, how):
    images, *own = inputs_for(shape, kernel)
    found = (values_and_slopes(way, images, own, how) for way in (at_once, by_layers))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("block", [1, 3 * 4 * 64, 10**6])
def test_however_many_images_are_looked_at_together_the_same_comes_out(block, monkeypatch):
    monkeypatch.setattr(first_block, "BLOCK", block)
    test_values_and_slopes_are_those_of_the_layers(*CASES[0])


@pytest.mark.parametrize("image", ["nothing", "one grey", "far from zero"])
def test_images_without_contrast_are_as_by_the_layers(image):
    """The width of a map that hardly varies is that of ``eps``; rounding must not make it less than nothing."""
    images, *own = inputs_for((1, 8, 8), (3, 3))
    images = {"nothing": images * 0, "one grey": images * 0 + 0.3, "far from zero": images + 1000}[image]
    how = {"pool": (2, 2)}  # without padding, so that there is no edge
    exact = values_and_slopes(by_layers, images, own, how)
    for ours, theirs in zip(values_and_slopes(at_once, images, own, how), exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    found = at_once(images.float(), *(value.float() for value in own), **how)
    torch.testing.assert_close(found.double(), exact[0], rtol=2e-3, atol=2e-3)


def test_nothing_that_is_given_is_changed():
    images, *own = inputs_for((1, 8, 8), (3, 3))
    before = [value.clone() for value in (images, *own)]
    values_and_slopes(at_once, images, own, {"pool": (2, 2)})
    for now, then in zip((images, *own), before, strict=True):
        assert torch.equal(now, then)


def test_where_layers_are_coarse_what_comes_out_has_few_bits_and_slopes_have_all():
    images, *own = inputs_for((1, 28, 28), (3, 3))
    how = {"padding": (1, 1), "pool": (2, 2)}
    exact = values_and_slopes(by_layers, images, own, how)
    with torch.autocast("cpu", torch.bfloat16):
        found = values_and_slopes(at_once, images.float(), [value.float() for value in own], how)
        double = values_and_slopes(at_once, images, own, how)  # what is float64 stays so
    assert [value.dtype for value in found] == [torch.bfloat16, *3 * [torch.float32]]
    for ours, theirs, digits in zip(found, exact, (8, 14, 14, 14), strict=True):
        assert float((ours - theirs).detach().norm() / theirs.detach().norm()) < 2.0**-digits
    for ours, theirs in zip(double, exact, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_rounding_does_not_make_a_variance_less_than_nothing():
    """Of a ramp that the weights see nothing of: a mean of zero, and even."""
    ramp = torch.linspace(-1, 1, 28)
    image = 1000 * (ramp[:, None] + 0.7 * ramp)[None, None]
    weights = torch.randn(1, 32, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    weights = weights - weights.mean((3, 4), keepdim=True)
    found = convolve_norm_relu_pool(image, weights + weights.flip(3, 4), torch.ones(1, 32), torch.zeros(1, 32))
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    ("shape", "how"),
    [((2, 8, 8), {}), ((1, 2, 8), {}), ((1, 4, 8), {"pool": (3, 1)})],
)
def test_what_does_not_go_together_is_refused(shape, how):
    _, *own = inputs_for((1, 8, 8), (3, 3))
    with pytest.raises(ValueError, match=r"cannot convolve maps|no room for a pool"):
        at_once(torch.zeros(5, *shape, dtype=torch.float64), *own, **how)
    with pytest.raises(RuntimeError, match="Double but found Float"):
        at_once(torch.zeros(5, 1, 8, 8), *own)


def test_what_comes_out_has_its_channels_last():
    images, *own = inputs_for((1, 8, 8), (3, 3))
    assert at_once(images, *own, pool=(2, 2)).is_contiguous(memory_format=torch.channels_last)


def test_under_vmap_each_image_is_as_alone_and_a_broken_one_by_itself():
    images, weight, scale, shift = inputs_for((1, 8, 8), (3, 3))
    others = torch.stack([weight + number for number in range(5)]).requires_grad_()

    def one(image, weight):
        own = (value[None] for value in (image, weight, scale, shift))
        return convolve_norm_relu_pool(*own, padding=(1, 1), pool=(2, 2))[0]

    together = vmap(one)(images, others)
    alone = torch.stack([one(image, other) for image, other in zip(images, others, strict=True)])
    torch.testing.assert_close(together, alone)
    (slopes,) = torch.autograd.grad(together.square().sum(), others)
    (expected,) = torch.autograd.grad(alone.square().sum(), others)
    torch.testing.assert_close(slopes, expected)
    kept = torch.arange(5) != 2
    for value in (1e150, math.nan, math.inf):
        broken = images.clone()
        broken[2, 0, 3, 3] = value
        found = vmap(one)(broken, others)
        (theirs,) = torch.autograd.grad(found[kept].square().sum(), others)
        assert torch.equal(found[kept], together[kept])
        assert torch.equal(theirs[kept], slopes[kept])
        if not math.isfinite(value):
            assert bool(found[2].isnan().any())


def test_slopes_that_it_has_not_are_refused():
    images, *own = inputs_for((1, 8, 8), (3, 3))
    with pytest.raises(RuntimeError, match="by its images"):
        at_once(images.requires_grad_(), *own).sum().backward()
    weight = own[0].requires_grad_()
    (slope,) = torch.autograd.grad(at_once(images.detach(), *own).square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()
