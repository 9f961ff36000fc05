"""One pass against the plain layers, and the kernels against the plain path where something can run them.

That is a graphics card, or Triton's interpreter: TRITON_INTERPRET=1, with Triton installed.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.conftest import facts_for
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.grad import conv2d_input, conv2d_weight

from privset.networks import MLP, VGG11, ConvNet, LeNet, ResNet18, build, fused, kernels
from privset.networks.fused import FusedBlock, fuse, fused_for_a_card, half_type, norm_relu_pool
from privset.networks.precision import magnified

INTERPRETED = kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (kernels.AVAILABLE and torch.cuda.is_available())
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SIZES = [
    ((8, 8), (2, 2)),
    ((7, 9), (2, 2)),
    ((20, 24), (1, 2)),
    ((5, 64), (2, 1)),
    ((4, 4), (1, 1)),
    ((2, 3), (2, 1)),
    ((1, 5), (1, 2)),
]


def inputs_for(size: tuple[int, int], count: int = 3, channels: int = 4, device: str = "cpu") -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    shapes = ((count, channels, *size), (channels,), (channels,))
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes)


def by_layers(maps: Tensor, weight: Tensor, bias: Tensor, pool: tuple[int, int], relu: bool = True) -> Tensor:
    normed = F.group_norm(maps, len(weight), weight, bias)
    return F.avg_pool2d(F.relu(normed) if relu else normed, pool)


def slopes(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], dtype: torch.dtype = torch.float64, **settings: object
) -> tuple[Tensor, ...]:
    """Down a direction whose numbers are of this type."""
    inputs = tuple(value.detach().requires_grad_() for value in inputs)
    result = function(*inputs, **settings)
    direction = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    return torch.autograd.grad(result, inputs, direction.to(result.device, result.dtype))


@pytest.mark.parametrize(("size", "pool"), SIZES)
@pytest.mark.parametrize("relu", [True, False])
def test_values_and_gradients_are_those_of_the_layers(size: tuple[int, int], pool: tuple[int, int], relu: bool) -> None:
    inputs, how = inputs_for(size), {"pool": pool, "relu": relu}

    torch.testing.assert_close(norm_relu_pool(*inputs, pool=pool, relu=relu), by_layers(*inputs, pool=pool, relu=relu))
    for ours, theirs in zip(slopes(norm_relu_pool, inputs, **how), slopes(by_layers, inputs, **how), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_gradients_are_those_of_finite_differences() -> None:
    inputs = [value.requires_grad_() for value in inputs_for((5, 4), count=2, channels=2)]

    assert torch.autograd.gradcheck(lambda *given: norm_relu_pool(*given, pool=(2, 2)), inputs)


def test_maps_alone_may_want_a_gradient() -> None:
    maps, weight, bias = inputs_for((6, 6))
    maps.requires_grad_()

    norm_relu_pool(maps, weight, bias, pool=(2, 2)).square().sum().backward()

    expected = maps.detach().requires_grad_()
    by_layers(expected, weight, bias, (2, 2)).square().sum().backward()
    assert maps.grad is not None
    torch.testing.assert_close(maps.grad, expected.grad)


def test_a_second_derivative_is_refused() -> None:
    maps, weight, bias = inputs_for((6, 6))
    maps.requires_grad_()
    (slope,) = torch.autograd.grad(norm_relu_pool(maps, weight, bias).square().sum(), maps, create_graph=True)

    with pytest.raises(RuntimeError, match="first derivatives only"):
        slope.square().sum().backward()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        grad(lambda m: grad(lambda n: norm_relu_pool(n, weight, bias).square().sum())(m).square().sum())(maps)


def test_under_vmap_each_image_is_as_alone() -> None:
    maps, weight, bias = inputs_for((6, 7), count=5)
    others = torch.stack([weight + number for number in range(5)])

    def one(image: Tensor, weight: Tensor) -> Tensor:
        return norm_relu_pool(image[None], weight, bias, pool=(2, 2))[0]

    together = norm_relu_pool(maps, weight, bias, pool=(2, 2))
    torch.testing.assert_close(vmap(one, in_dims=(0, None))(maps, weight), together)
    torch.testing.assert_close(
        vmap(one, in_dims=(1, None), out_dims=1)(maps.movedim(0, 1), weight), together.movedim(0, 1)
    )
    expected = torch.stack([one(image, other) for image, other in zip(maps, others, strict=True)])
    torch.testing.assert_close(vmap(one)(maps, others), expected)
    each = vmap(grad(lambda weight, image: one(image, weight).square().sum()), in_dims=(None, 0))(weight, maps)
    whole = grad(lambda weight: norm_relu_pool(maps, weight, bias, pool=(2, 2)).square().sum())(weight)
    torch.testing.assert_close(each.sum(dim=0), whole)


def test_gradients_reach_through_vmap() -> None:
    maps, weight, bias = inputs_for((6, 6))
    maps.requires_grad_()

    vmap(lambda image: norm_relu_pool(image[None], weight, bias)[0])(maps).square().sum().backward()

    assert maps.grad is not None
    torch.testing.assert_close(
        maps.grad, torch.autograd.grad(norm_relu_pool(maps, weight, bias).square().sum(), maps)[0]
    )


@pytest.mark.parametrize("network", [ConvNet((1, 28, 20), 3, width=4, depth=4), VGG11((1, 8, 8), 3)])
def test_a_fused_network_is_the_same_function_of_the_same_weights(network: ConvNet | VGG11) -> None:
    network = network.double()
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3), dtype=weight.dtype)
    images = torch.randn(2, 1, *((28, 20) if isinstance(network, ConvNet) else (8, 8)), dtype=torch.float64)
    layers = fuse(network.features)

    assert not any(isinstance(layer, nn.GroupNorm | nn.ReLU | nn.AvgPool2d) for layer in layers)
    assert set(map(id, layers.parameters())) == set(map(id, network.features.parameters()))
    torch.testing.assert_close(layers(images), network.features(images))


@pytest.mark.parametrize(
    "network",
    [
        ConvNet((1, 12, 12), 3, width=4),
        VGG11((1, 8, 8), 3),
        ResNet18((1, 8, 8), 3),
        LeNet((3, 16, 16), 3),
    ],
)
def test_for_a_card_every_network_is_the_same_function_of_the_same_weights(network: Any) -> None:
    network = network.double()
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3), dtype=weight.dtype)
    first = next(layer for layer in network.modules() if isinstance(layer, nn.Conv2d))
    side = {ConvNet: 12, VGG11: 8, ResNet18: 8}.get(type(network), 16)
    images = torch.randn(2, first.in_channels, side, side, dtype=torch.float64)
    quick = fused_for_a_card(network)

    assert set(map(id, quick.parameters())) == set(map(id, network.parameters()))
    torch.testing.assert_close(quick(images), network(images))
    # The bias of a convolution before a norm does nothing, so there the plain network has rounding and ours nothing.
    ours, theirs = (
        torch.autograd.grad(one(images).square().sum(), list(network.parameters()), allow_unused=True)
        for one in (quick, network)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert other is not None
        torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other)


def test_a_residual_network_has_no_plain_norm_left_and_only_its_first_convolution_sees_images() -> None:
    quick = fused_for_a_card(ResNet18((1, 8, 8), 3))
    blocks = [module for module in quick.modules() if isinstance(module, FusedBlock)]

    norms = {id(block.norm) for block in blocks}
    assert {id(module) for module in quick.modules() if isinstance(module, nn.GroupNorm)} == norms
    assert [block.first for block in blocks] == [True] + [False] * (len(blocks) - 1)
    assert all(block.alone for block in blocks)


def slopes_of(network: nn.Module, dtype: torch.dtype | None = None) -> torch.Tensor:
    """All that a network, in the form for a card, learns from a few images, with maps of this type."""
    random = torch.Generator().manual_seed(0)
    images, labels = torch.rand(16, 1, 28, 28, generator=random), torch.arange(16) % 10
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        logits = fused_for_a_card(network)(images)
    assert logits.dtype == torch.float32  # the head is not of half width
    loss = magnified(dtype) * F.cross_entropy(logits, labels)
    slopes = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    return torch.cat([slope.flatten() for slope in slopes if slope is not None]) / magnified(dtype)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(("name", "least", "most"), [("convnet", 0.001, 0.1), ("vgg11", 0.2, 2.0)])
def test_in_bfloat16_a_convnet_keeps_its_direction_and_a_deep_network_does_not(
    name: str, least: float, most: float
) -> None:
    network = build(name, facts_for(10, classes=10, side=28), seed=0)
    assert (half_type(network) == torch.bfloat16) == (name == "convnet")
    assert least < apart(slopes_of(network, torch.bfloat16), slopes_of(network)) < most


class ByTf32(torch.autograd.Function):
    """A convolution of numbers that are rounded as a card's matrix units do, and so its gradients."""

    @staticmethod
    def forward(ctx, maps, weight, stride, padding):
        maps, weight, ctx.places = to_tf32(maps), to_tf32(weight), (stride, padding)
        ctx.save_for_backward(maps, weight)
        return F.conv2d(maps, weight, None, stride, padding)

    @staticmethod
    def backward(ctx, slope):  # type: ignore[override]
        (maps, weight), slope = ctx.saved_tensors, to_tf32(slope)
        by_maps = conv2d_input(maps.shape, weight, slope, *ctx.places)
        return by_maps, conv2d_weight(maps, weight.shape, slope, *ctx.places), None, None


def to_tf32(values: torch.Tensor) -> torch.Tensor:
    return ((values.contiguous().view(torch.int32) + 2**12) & -(2**13)).view(torch.float32)


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "resnet18"])
def test_in_float16_deep_networks_turn_as_little_as_in_tf32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = build(name, facts_for(10, classes=10, side=28), seed=0)
    assert half_type(network) == torch.float16
    exact, halved, coarse = slopes_of(network), slopes_of(network, torch.float16), slopes_of(network, torch.bfloat16)

    def convolved(self: nn.Conv2d, maps: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None):
        found = ByTf32.apply(maps, weight, self.stride, self.padding)
        return found if bias is None else found + bias[:, None, None]

    monkeypatch.setattr(nn.Conv2d, "_conv_forward", convolved)
    monkeypatch.setattr(
        FusedBlock,
        "forward",
        lambda self, maps: self.norm_after(convolved(self.convolution, maps, self.convolution.weight, None)),
    )
    tensor_cores = slopes_of(network)
    assert apart(tensor_cores, exact) > 0
    assert 0 < apart(halved, exact) < 1.4 * apart(tensor_cores, exact)
    assert apart(halved, exact) < 0.5 * apart(coarse, exact)


def test_shallow_networks_are_learned_with_as_they_are() -> None:
    shape = (1, 28, 28)
    assert [half_type(kind(shape, 10)) for kind in (MLP, LeNet)] == [None, None]
    assert [half_type(ConvNet(shape, 10, width=width)) for width in (63, 64)] == [None, torch.bfloat16]


def test_a_bias_of_the_convolution_would_make_no_difference() -> None:
    layers = ConvNet((1, 8, 8), 2, width=4, depth=1).features.double()
    (block, _) = fuse(layers)
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    before = layers(images)

    assert isinstance(block, FusedBlock)
    assert block.convolution.bias is not None
    with torch.no_grad():
        block.convolution.bias += 10
    torch.testing.assert_close(layers(images), before)


def test_on_a_processor_a_network_stays_as_it_is() -> None:
    network = ConvNet((1, 8, 8), 2, width=4)

    assert fused.fused(network) is network


def test_shapes_are_known_without_numbers() -> None:
    with torch.device("meta"):
        assert norm_relu_pool(torch.empty(2, 3, 9, 4), torch.empty(3), torch.empty(3), pool=(2, 1)).shape == (
            2,
            3,
            4,
            4,
        )


@pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")
@pytest.mark.parametrize(("size", "pool"), [*SIZES, ((32, 32), (2, 2)), ((64, 64), (2, 2)), ((104, 128), (2, 2))])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("relu", [True, False])
def test_kernels_against_the_plain_path(
    size: tuple[int, int], pool: tuple[int, int], dtype: torch.dtype, relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, *affine = inputs_for(size, count=5, channels=3, device=DEVICE)
    # Maps alone are ever of half width; what is computed in between is not, so the error is that of the last rounding.
    inputs = (maps.to(dtype), *(value.to(torch.promote_types(dtype, torch.float32)) for value in affine))
    how: dict[str, Any] = {"pool": pool, "relu": relu}
    expected = (norm_relu_pool(*(value.cpu().double() for value in inputs), **how),)
    expected += slopes(norm_relu_pool, tuple(value.cpu().double() for value in inputs), dtype, **how)
    monkeypatch.setattr(kernels, "fits", lambda _: True)

    found = (norm_relu_pool(*inputs, **how), *slopes(norm_relu_pool, inputs, dtype, **how))

    for ours, theirs in zip(found, expected, strict=True):
        error = (ours.cpu().double() - theirs).norm() / theirs.norm().clamp_min(1e-12)
        assert error < {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    assert [value.dtype for value in found] == [dtype, *(value.dtype for value in inputs)]


@pytest.mark.parametrize("bias", [True, False])
def test_logits_are_those_of_the_linear_layer(bias: bool) -> None:
    head, values = nn.Linear(7, 3, bias=bias).double(), torch.randn(4, 7, dtype=torch.float64)

    torch.testing.assert_close(fused.logits(head, values), head(values))
