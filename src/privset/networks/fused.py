"""Instance norm, ReLU and average pooling in one pass over memory, for networks that are differentiated once.

On a graphics card the convolutions of a narrow network are quick, and what follows them, taken step by step, reads
and writes every map several times. Here a map is read once, normalised in registers and written pooled; the gradient
does it all again from the map rather than keeping what lies between. Every map of every image is treated by itself,
in any company, so no two images of a batch meet.

`fused` gives an existing network this form; its weights stay where they are. Whoever needs second derivatives
(gradient matching does) keeps the plain layers: here they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from privset import convolutions
from privset.convolutions import Form
from privset.networks import kernels
from privset.networks.classifiers import AlexNet, ConvNet
from privset.networks.deep_classifiers import VGG11, ResidualBlock, ResNet18
from privset.networks.geometry import Size

_HALVES = (torch.bfloat16, torch.float16)
WIDE = 64
"""Maps from which on a convolution is taken as a product of large matrices."""


def norm_relu_pool(
    maps: Tensor, weight: Tensor, bias: Tensor, *, pool: Size = (1, 1), eps: float = 1e-5, relu: bool = True
) -> Tensor:
    """Maps ``[n, c, h, w]`` -> ``[n, c, h // pool[0], w // pool[1]]``: instance norm, ReLU, average pooling.

    Works under `torch.func.vmap`. By one kernel on a graphics card, by torch's own layers elsewhere.

    Args:
        maps: What a convolution gives; its bias makes no difference here.
        weight: Scale ``[c]`` after the norm.
        bias: Shift ``[c]`` after the norm.
        pool: Rows and columns that are averaged; what is left over at the end is dropped, as by `torch.nn.AvgPool2d`.
        eps: Added to the variance.
        relu: Whether what is below 0 becomes 0 before the pooling.
    """
    return _NormReluPool.apply(maps, weight.expand(len(maps), -1), bias.expand(len(maps), -1), eps, pool, relu)


class FusedBlock(nn.Module):
    """A convolution, an instance norm and perhaps a ReLU and an average pooling that belong to another network.

    The bias of the convolution is left out: the norm that follows takes it away again.

    Args:
        convolution: Of that network.
        norm: What follows it.
        pool: Rows and columns that are averaged after that.
        relu: Whether there is a ReLU between the two.

    Attributes:
        alone: Whether it is never called under vmap.
        first: Whether it is given images as well, no slope by which is wanted.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.GroupNorm, pool: Size = (1, 1), *, relu: bool = True) -> None:
        super().__init__()
        self.convolution, self.norm, self.pool, self.relu = convolution, norm, pool, relu
        self.alone = self.first = False

    def forward(self, images: Tensor) -> Tensor:
        """Images or maps ``[n, c, h, w]`` -> pooled maps."""
        weight, stride, padding = self.convolution.weight, self.convolution.stride, self.convolution.padding
        if self.first and not images.requires_grad and convolutions.of_images(images, weight):
            maps = _OfImages.apply(images, weight, Form.of(images, weight, cast(Size, stride), cast(Size, padding)))
        elif self.alone and convolutions.fits(images) and images.dtype in _HALVES:
            maps = _OfMaps.apply(images, weight, stride, padding)
        else:
            maps = F.conv2d(images, weight, None, stride, padding)
        return self.norm_after(maps)

    def norm_after(self, maps: Tensor) -> Tensor:
        """What follows the convolution."""
        how: dict[str, Any] = {"pool": self.pool, "eps": self.norm.eps, "relu": self.relu}
        return norm_relu_pool(maps, self.norm.weight, self.norm.bias, **how)


class FusedResidual(nn.Module):
    """A `ResidualBlock` of another network, with a `FusedBlock` for each of its convolutions.

    Args:
        block: Of that network.
    """

    def __init__(self, block: ResidualBlock) -> None:
        super().__init__()
        self.path, self.shortcut = fuse(block.path), block.shortcut
        if isinstance(block.shortcut, nn.Sequential):
            self.shortcut = fuse(block.shortcut)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps in, feature maps out."""
        return F.relu(self.path(maps) + self.shortcut(maps))


def fuse(layers: nn.Sequential, *, first: bool = False) -> nn.Sequential:
    """The same function of the same weights, with a `FusedBlock` wherever ``layers`` have the parts of one.

    With ``first`` these are the first layers of a network that is called alone: see there.

    >>> [type(layer).__name__ for layer in fuse(ConvNet((1, 8, 8), 2, depth=2).features)]
    ['FusedBlock', 'FusedBlock', 'Flatten']
    """
    blocks = nn.Sequential(*_blocks(list(layers)))
    for block in blocks.modules():
        if first and isinstance(block, FusedBlock):
            block.alone, block.first = True, block is blocks[0]
    return blocks


def _blocks(layers: list[nn.Module]) -> Iterator[nn.Module]:
    while layers:
        match layers:
            case [nn.Conv2d() as convolution, nn.GroupNorm() as norm, nn.ReLU(), nn.AvgPool2d() as pool, *layers]:
                yield FusedBlock(convolution, norm, pool.kernel_size)  # type: ignore[arg-type]
            case [nn.Conv2d() as convolution, nn.GroupNorm() as norm, nn.ReLU(), *layers]:
                yield FusedBlock(convolution, norm)
            case [nn.Conv2d() as convolution, nn.GroupNorm() as norm, *layers]:
                yield FusedBlock(convolution, norm, relu=False)
            case [ResidualBlock() as block, *layers]:
                yield FusedResidual(block)
            case [layer, *layers]:
                yield layer


def fused(network: nn.Module) -> nn.Module:
    """``network`` in the fastest form that can be differentiated once, of the same weights; on a processor, itself."""
    return fused_for_a_card(network) if kernels.AVAILABLE and next(network.parameters()).is_cuda else network


def fused_for_a_card(network: nn.Module) -> nn.Module:
    """As `fused`, by the form for a graphics card."""
    if isinstance(network, AlexNet):
        return nn.Sequential(_Last(), network.features, _Head(network.head))
    if not isinstance(network, ConvNet | ResNet18 | VGG11):
        return network
    head = _Head(network.head) if isinstance(network.head, nn.Linear) else network.head
    mean = [_Mean()] if isinstance(network, ResNet18) else []
    return nn.Sequential(fuse(network.features, first=True), *mean, head)


def half_type(network: nn.Module) -> torch.dtype | None:
    """In which type of 16 bits to keep the maps of a network while it learns; None for one that gains nothing by it.

    Of a wide ConvNet in bfloat16. In deep networks norms of maps of few pixels magnify what was rounded, layer by
    layer, and gradients would point elsewhere; float16 has as many digits as the TF32 in which a card convolves
    float32, and turns the first gradients as little (tests have both). Its slopes are to be
    `privset.networks.precision.magnified`.

    >>> half_type(ConvNet((1, 28, 28), 10)), half_type(ConvNet((1, 28, 28), 10, width=32))
    (torch.bfloat16, None)
    """
    if isinstance(network, AlexNet | VGG11 | ResNet18):
        return torch.float16
    if not isinstance(network, ConvNet):
        return None
    wide = any(isinstance(layer, nn.Conv2d) and layer.in_channels >= WIDE for layer in network.features)
    return torch.bfloat16 if wide else None


def logits(head: nn.Linear, values: Tensor) -> Tensor:
    """What a linear layer gives, as a product and then a sum, in the precision of its weights.

    In one operation, a graphics card takes an algorithm for it that is five times as slow for so few columns.
    """
    with torch.autocast(values.device.type, enabled=False):
        product = values.to(head.weight.dtype) @ head.weight.T
    return product if head.bias is None else product + head.bias


class _Head(nn.Module):
    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = head

    def forward(self, values: Tensor) -> Tensor:
        return logits(self.head, values)


class _Mean(nn.Module):
    """Maps ``[n, c, h, w]`` -> the mean of each ``[n, c]``."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(-2, -1))


class _Last(nn.Module):
    """Images whose channels lie side by side in memory: layers leave them so, and a card convolves them as they are."""

    def forward(self, images: Tensor) -> Tensor:
        return images.to(memory_format=torch.channels_last)


class _OfImages(torch.autograd.Function):
    """Images ``[n, c, h, w]``, weight ``[out, c, kh, kw]`` -> convolved maps, in the type that autocast asks for."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, form: Form) -> Tensor:
        ctx.save_for_backward(images)
        ctx.form = form
        coarse = torch.is_autocast_enabled(images.device.type)
        return convolutions.convolve(
            images, weight, form, torch.get_autocast_dtype(images.device.type) if coarse else weight.dtype
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (images,) = ctx.saved_tensors
        return None, convolutions.by_weight(slope, images, ctx.form), None


class _OfMaps(torch.autograd.Function):
    """Maps ``[n, c, h, w]`` of 16 bits, weight ``[out, c, kh, kw]`` of any width -> convolved maps.

    The library would turn maps, slope and weight anew for each of its three operations; here each is turned once.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: Size, padding: Size) -> Tensor:
        maps, narrow = convolutions.channels_last(maps), weight.to(maps.dtype, memory_format=torch.channels_last)
        ctx.save_for_backward(maps, narrow)
        ctx.places, ctx.dtype = (stride, padding), weight.dtype
        return convolutions.channels_first(F.conv2d(maps, narrow, None, stride, padding))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (maps, weight), wanted = ctx.saved_tensors, (True, True, False)
        by_maps, by_weight, _ = torch.ops.aten.convolution_backward(
            convolutions.channels_last(slope), maps, weight, None, *ctx.places, (1, 1), False, (0, 0), 1, wanted
        )
        by_weight = by_weight.to(ctx.dtype, memory_format=torch.contiguous_format)
        return convolutions.channels_first(by_maps), by_weight, None, None


class _NormReluPool(torch.autograd.Function):
    """``maps [n, c, h, w]``, ``weight`` and ``bias`` ``[n, c]`` -> pooled maps."""

    @staticmethod
    def forward(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, relu: bool) -> Tensor:
        return (kernels.norm_relu_pool if kernels.fits(maps) else _plain)(maps, weight, bias, eps, pool, relu)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 - as torch calls it
        *tensors, ctx.eps, ctx.pool, ctx.relu = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        affine = any(ctx.needs_input_grad[1:3])
        by_maps, *by_affine = _Slopes.apply(slope, *ctx.saved_tensors, ctx.eps, ctx.pool, affine, ctx.relu)
        return by_maps, *(by_affine if affine else (None, None)), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        pooled = _NormReluPool.apply(*folded(inputs[:3], in_dims, info.batch_size), *inputs[3:])
        return pooled.unflatten(0, (info.batch_size, -1)), 0


class _Slopes(torch.autograd.Function):
    """Gradients of `_NormReluPool` by maps, weight and bias; the last two are empty unless ``affine``."""

    @staticmethod
    def forward(slope: Tensor, maps: Tensor, *given: Any) -> Any:
        return (kernels.slopes if kernels.fits(maps) else _plain_slopes)(slope, maps, *given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:  # noqa: ARG004 - as torch calls it
        raise RuntimeError("norm_relu_pool has first derivatives only; for second ones keep the plain layers")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, tuple[int, ...]]:
        slopes = _Slopes.apply(*folded(inputs[:4], in_dims, info.batch_size), *inputs[4:])
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in slopes), (0, 0, 0)


def folded(tensors: tuple[Tensor, ...], in_dims: Any, size: int) -> list[Tensor]:
    """The dimension that vmap hides, made part of the first: ``[n, ...]`` each -> ``[size * n, ...]``."""
    dims = in_dims[: len(tensors)]
    shown = [
        t.movedim(at, 0) if at is not None else t.expand(size, *t.shape) for t, at in zip(tensors, dims, strict=True)
    ]
    return [tensor.flatten(0, 1) for tensor in shown]


def _plain(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, relu: bool) -> Tensor:
    active = _active(maps, weight, bias, eps, relu)
    # Forwards, on a processor, three times as fast as avg_pool2d; backwards it would be slower.
    (rows, columns), (height, width) = pool, active.shape[-2:]
    if max(pool) > 2:
        return F.avg_pool2d(active, pool)
    if rows == 2:
        active = active[..., 0 : height - 1 : 2, :] + active[..., 1:height:2, :]
    if columns == 2:
        active = active[..., 0 : width - 1 : 2] + active[..., 1:width:2]
    return active / (rows * columns)


def _active(maps: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool) -> Tensor:
    # One image with all the maps: its norm takes a weight and a bias for each.
    together = maps.to(weight.dtype).flatten(0, 1)[None]
    normed = F.group_norm(together, together.shape[1], weight.flatten(), bias.flatten(), eps)
    return (F.relu(normed) if relu else normed)[0].unflatten(0, maps.shape[:2])


def _plain_slopes(
    slope: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, eps: float, pool: Size, affine: bool, relu: bool
) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        maps = maps.detach().to(weight.dtype).requires_grad_()
        weight, bias = (value.detach().requires_grad_(affine) for value in (weight, bias))
        wanted = (maps, weight, bias) if affine else (maps,)
        pooled = F.avg_pool2d(_active(maps, weight, bias, eps, relu), pool)
        slopes = torch.autograd.grad(pooled, wanted, slope)
    return slopes if affine else (*slopes, maps.new_empty(len(maps), 0), maps.new_empty(len(maps), 0))
