"""The loss of one record by a network, in the form whose gradients the curator takes fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn
from torch.func import functional_call

from privset.networks import MLP, VGG11, AlexNet, ConvNet, LeNet
from privset.networks.first_block import convolve_norm_relu_pool
from privset.networks.fused import norm_relu_pool
from privset.networks.geometry import Size
from privset.networks.last_channels import norm_relu_pool_last
from privset.privacy.clipping import Loss
from privset.privacy.layered import LayeredLoss, Stage

Named = tuple[str, nn.Module]
"""A layer, and what the names of its parameters begin with."""


def record_loss(network: nn.Module, prefix: str = "", *, fused: bool = True) -> Loss:
    """Cross-entropy of one record, as a function of the network's parameters.

    Layer by layer if the network is a sequence of layers (all classifiers here but ResNet18 are), else as a whole.

    Args:
        network: From images to logits; what its own parameters are plays no part.
        prefix: What the names of the parameters have before those of the network.
        fused: Whether what follows a convolution is one operation; by default it is.
    """
    if (layered := _layered(_layers(network, prefix), fused)) is not None:
        return layered

    def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        own = {name.removeprefix(prefix): value for name, value in parameters.items()}
        return F.cross_entropy(functional_call(network, own, (image[None],)), label[None])

    return loss


def _layers(network: nn.Module, prefix: str) -> list[Named]:
    """What a network does one after the other; one that is no sequence is a layer by itself."""
    if type(network) in (ConvNet, MLP, LeNet, AlexNet, VGG11, nn.Sequential):  # a subclass may do something else
        return [layer for name, part in network.named_children() for layer in _layers(part, f"{prefix}{name}.")]
    return [(prefix, network)]


def _layered(layers: Sequence[Named], fused: bool) -> LayeredLoss | None:
    """The layers in stages; None if one of them is not known to keep records apart, or learns in a way of its own."""
    heads = [number for number, (_, layer) in enumerate(layers) if _is_linear(layer)]
    if not heads or not all(_is_linear(layer) or type(layer) in _BETWEEN for _, layer in layers):
        return None
    if any(_scales(layer) for _, layer in layers[: heads[0]]):
        return None
    stages = [
        _stage(*layers[start], layers[start + 1 : end], fused)
        for start, end in zip(heads, [*heads[1:], len(layers)], strict=True)
    ]
    if not heads[0]:
        return LayeredLoss(stages)
    first = _sequence([layer for _, layer in layers[: heads[0]]], fused)
    return LayeredLoss(stages, before=lambda image, _: first(image))


_BETWEEN = (nn.GroupNorm, nn.ReLU, nn.AvgPool2d, nn.MaxPool2d, nn.Flatten)


def _is_linear(layer: nn.Module) -> bool:
    """Whether this is a matrix product, or a convolution as a `Stage` has them."""
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        return plain and isinstance(layer.padding, tuple)
    return isinstance(layer, nn.Linear)


def _scales(layer: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, _ in layer.named_parameters())


def _stage(prefix: str, layer: nn.Module, after: Sequence[Named], fused: bool) -> Stage:
    following = [part for _, part in after]
    bias = None if layer.bias is None else f"{prefix}bias"
    # The norm of each map takes away again whatever was added to all of it.
    useless = bool(following) and isinstance(following[0], nn.GroupNorm) and _of_each_map(following[0])
    places = {"stride": layer.stride, "padding": layer.padding} if isinstance(layer, nn.Conv2d) else {}
    return Stage(
        weight=f"{prefix}weight",
        bias=None if useless else bias,
        idle=(bias,) if useless and bias is not None else (),
        then=_sequence(following, fused),
        scales=tuple(f"{start}{name}" for start, part in after for name in _scales(part)),
        at_once=_at_once(layer, following) if fused and useless and isinstance(layer, nn.Conv2d) else None,
        **cast(dict[str, Size], places),
    )


FEW = 16
"""Numbers of a patch, up to which it is faster to take a block as one than layer by layer."""


def _at_once(layer: nn.Conv2d, following: Sequence[nn.Module]) -> Callable[..., Tensor] | None:
    """A convolution of short patches and what follows it, as one function of an image and of their parameters."""
    if layer.weight[0].numel() > FEW or (block := _block(following)) is None:
        return None
    norm, pool, rest = block
    if any(getattr(part, "inplace", False) for part in rest):  # what comes out may not be changed in place
        return None
    stride, padding, after = cast(Size, layer.stride), cast(Size, layer.padding), _sequence(rest, fused=True)

    def at_once(image: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *scales: Tensor) -> Tensor:
        given = (one[None] for one in (image, weight, scale, shift))
        pooled = convolve_norm_relu_pool(*given, stride=stride, padding=padding, pool=pool, eps=norm.eps)
        return after(pooled.squeeze(0), *scales)

    return at_once


def _of_each_map(norm: nn.GroupNorm) -> bool:
    return norm.num_groups == norm.num_channels


def _block(layers: Sequence[nn.Module]) -> tuple[nn.GroupNorm, Size, Sequence[nn.Module]] | None:
    """What follows the convolution of a block: its norm, the size of its pools, and the layers after these."""
    match list(layers):
        case [nn.GroupNorm() as norm, nn.ReLU(), nn.AvgPool2d() as pool, *rest] if size := _side_by_side(pool):
            pass
        case [nn.GroupNorm() as norm, nn.ReLU(), *rest]:
            size = (1, 1)
        case _:
            return None
    return (norm, size, rest) if norm.affine and norm.bias is not None and _of_each_map(norm) else None


def _side_by_side(pool: nn.AvgPool2d) -> Size | None:
    """Rows and columns that a pooling averages, if its pools lie one beside the other."""
    size, stride, padding = map(_pair, (pool.kernel_size, pool.stride, pool.padding))
    plain = size == stride and padding == (0, 0) and not pool.ceil_mode and pool.divisor_override is None
    return size if plain else None


def _pair(size: int | Sequence[int]) -> Size:
    """One number for both axes, or one for each."""
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes[0], sizes[-1]


def _sequence(layers: Sequence[nn.Module], fused: bool) -> Callable[..., Tensor]:
    """The layers, one after the other, of one record and of the parameters they have."""
    if fused and (block := _block(layers)) is not None:
        norm, pool, rest = block
        steps = [_fused(norm, pool), *map(_step, rest)]
    else:
        steps = [_step(layer) for layer in layers]

    def through(values: Tensor, *scales: Tensor) -> Tensor:
        for step, count in steps:
            values = step(values, *scales[:count])
            scales = scales[count:]
        return values

    return through


_Step = tuple[Callable[..., Tensor], int]
"""A function of one record and of a few parameters, and how many these are."""


def _step(layer: nn.Module) -> _Step:
    names = _scales(layer)

    def step(values: Tensor, *scales: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(names, scales, strict=True)), (values[None],))[0]

    return step, len(names)


def _fused(norm: nn.GroupNorm, pool: Size) -> _Step:
    def step(values: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        together = norm_relu_pool if values.is_cuda else norm_relu_pool_last
        return together(values[None], scale, shift, pool=pool, eps=norm.eps).squeeze(0)

    return step, 2
