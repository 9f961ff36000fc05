"""The gradient that a set of images gives a network's weights, and how the images would have to change to change it.

Gradient matching moves images so that their gradient comes nearer to another one. Its slope by the pixels is a
derivative of a derivative; left to automatic differentiation, each layer is taken apart into many small operations,
twice. For the network that is matched most, `ConvNet`, it is written out here. With v the direction in which the
gradient should change, the slope of <gradient, v> by the images is the gradient, by the images, of how fast the loss
changes when the weights move along v: beside every value its rate of change is carried forwards (``...rate``), and
back again beside every gradient (``bent``).
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset import convolutions
from privset.convolutions import Form
from privset.networks import kernels
from privset.networks.classifiers import ConvNet
from privset.networks.fused import logits
from privset.networks.geometry import Size

Directions = Sequence[Tensor | None]
"""For every weight of a network, in its order, a tensor of its shape, or None for zeros."""


class SetGradient(abc.ABC):
    """The gradient of the mean cross-entropy of a network over labelled images.

    Attributes:
        weights: By every weight of the network, in its order, constants; None for biases and norms, which no distance
            of gradients looks at.
    """

    weights: list[Tensor | None]

    @abc.abstractmethod
    def pull(self, directions: Directions) -> Tensor:
        """Slope by the images ``[n, c, h, w]`` of the sum of the products of `weights` with ``directions``."""


def set_gradient(network: nn.Module, images: Tensor, labels: Tensor) -> SetGradient:
    """The gradient of the mean cross-entropy over images ``[n, c, h, w]`` with labels ``[n]``."""
    by = _ByHand if isinstance(network, ConvNet) else _ByAutograd
    return by(network, images.detach(), labels)  # type: ignore[arg-type]


class _ByAutograd(SetGradient):
    """For any network that can be differentiated twice."""

    def __init__(self, network: nn.Module, images: Tensor, labels: Tensor) -> None:
        self._images = images.requires_grad_()
        loss = F.cross_entropy(network(self._images), labels)
        self._graph = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
        self.weights = [slope.detach() if slope.ndim > 1 else None for slope in self._graph]

    def pull(self, directions: Directions) -> Tensor:
        chosen = [
            (slope, towards) for slope, towards in zip(self._graph, directions, strict=True) if towards is not None
        ]
        slopes, towards = zip(*chosen, strict=True)
        return torch.autograd.grad(slopes, self._images, towards, retain_graph=True)[0]


class _Block(abc.ABC):
    """The norm, ReLU and pooling that follow a convolution, of known maps: their value, its gradient, and both bent.

    Kernels take maps that lie pixel beside pixel, and the library convolves bfloat16 channel beside channel. What goes
    into a convolution here, and what comes out of it, is `_laid` for that; what a block is given otherwise is not.

    Args:
        convolution: What made the maps.
        norm: What follows it.
        pool: Rows and columns that are averaged after that.
        given: What came in ``[n, c, h, w]``, laid for the convolution unless it is images.
        maps: What the convolution made of it; a bias before a norm changes nothing, and is left out.

    Attributes:
        weight: Of the convolution, as wide as the maps, and laid.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.GroupNorm, pool: Size, given: Tensor, maps: Tensor) -> None:
        self.convolution, self.norm, self.pool, self.given, self.maps = convolution, norm, pool, given, maps
        self.weight = _as_weight(convolution.weight, maps.dtype)

    def moved(self, direction: Tensor, rate: Tensor | None) -> Tensor:
        """How fast the maps change when the weight does so along ``direction``, and what is given as fast as ``rate``.

        Images do not change, which is meant by None.
        """
        moved = _convolved(self.convolution, self.given, direction, self.maps.dtype)
        if rate is not None:
            moved = moved + _convolved(self.convolution, _laid(rate), self.weight, self.maps.dtype)
        return _unlaid(moved)

    def backwards(self) -> Tensor:
        """From the gradient that `back` found that by what was given."""
        return _unlaid(self._by_given(self.laid, self.weight))

    def backwards_bent(self, bent: Tensor, direction: Tensor) -> Tensor:
        """As `backwards`, of ``bent``; and how fast its own changes when the weight moves along ``direction``."""
        if self._sees_images:
            weight = self.convolution.weight
            return convolutions.by_images([(bent, weight), (self.slope, direction)], self._form)
        return _unlaid(self._by_given(_laid(bent), self.weight) + self._by_given(self.laid, direction))

    def by_weight(self) -> Tensor:
        """The gradient by the weight of the convolution."""
        if self._sees_images:
            return convolutions.by_weight(self.slope, self.given, self._form)
        found = self._slopes(self.laid, self.weight, (False, True, False))[1]
        return found.to(self.convolution.weight.dtype, memory_format=torch.contiguous_format)

    @functools.cached_property
    def laid(self) -> Tensor:
        """What `back` found, laid."""
        return _laid(self.slope)

    @property
    def _sees_images(self) -> bool:
        return convolutions.of_images(self.given, self.convolution.weight)

    @property
    def _form(self) -> Form:
        return _form(self.convolution, self.given)

    def _by_given(self, slope: Tensor, weight: Tensor) -> Tensor:
        return self._slopes(slope, weight, (True, False, False))[0]

    def _slopes(self, slope: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]) -> tuple[Tensor, Tensor, Tensor]:
        stride, padding, given = self.convolution.stride, self.convolution.padding, self.given.to(slope.dtype)
        backward = torch.ops.aten.convolution_backward
        weight = _as_weight(weight, slope.dtype)
        return backward(slope, given, weight, None, stride, padding, (1, 1), False, (0, 0), 1, wanted)

    @abc.abstractmethod
    def pooled(self) -> Tensor:
        """What comes out ``[n, c, h', w']``."""

    @abc.abstractmethod
    def back(self, slope: Tensor) -> None:
        """From the gradient by `pooled` that by the maps, which is kept as ``slope``."""

    slope: Tensor

    @abc.abstractmethod
    def rate(self, moved: Tensor) -> Tensor:
        """How fast `pooled` changes when the maps change as fast as ``moved``, which is kept."""

    @abc.abstractmethod
    def bent(self, bent: Tensor) -> Tensor:
        """By the maps, the gradient of what depends on `pooled` by ``bent``, and on `rate` as the loss on `pooled`."""


class _PlainBlock(_Block):
    """By torch's own operations."""

    def pooled(self) -> Tensor:
        maps, (scale, shift) = (
            self.maps - _mean(self.maps),
            (self.norm.weight[:, None, None], self.norm.bias[:, None, None]),
        )
        self._width = torch.rsqrt(_mean(maps.square()) + self.norm.eps)
        self._unit = maps * self._width
        normed = torch.addcmul(shift, self._unit, scale)
        self._on, self._scale = normed > 0, scale
        return F.avg_pool2d(F.relu(normed), self.pool)

    def back(self, slope: Tensor) -> None:
        self._back = self._spread(slope) * self._scale
        self._along = _mean(self._unit * self._back)
        self.slope = self._unbend(self._back)

    def rate(self, moved: Tensor) -> Tensor:
        self._moved = moved
        return F.avg_pool2d(torch.where(self._on, self._unbend(moved) * self._scale, 0.0), self.pool)

    def bent(self, bent: Tensor) -> Tensor:
        back, moved, along = self._back, self._moved, _mean(self._unit * self._moved)
        curved = self._width * (along * back + self._along * moved)
        shared = _mean(back * moved) - _mean(back) * _mean(moved) - self._along * along
        return self._unbend(self._spread(bent) * self._scale - curved) - self._width.square() * self._unit * shared

    def _unbend(self, values: Tensor) -> Tensor:
        """What a change of the normalised maps means for the maps, and the other way round."""
        return self._width * (values - _mean(values) - self._unit * _mean(self._unit * values))

    def _spread(self, pooled: Tensor) -> Tensor:
        """From a gradient by the pooled maps that by what the ReLU let through."""
        high, wide = self.pool
        grown = pooled.repeat_interleave(high, 2).repeat_interleave(wide, 3) if high * wide > 1 else pooled
        left = self.maps.shape[3] - grown.shape[3], self.maps.shape[2] - grown.shape[2]
        grown = F.pad(grown, (0, left[0], 0, left[1])) if any(left) else grown
        return torch.where(self._on, grown / (high * wide), 0.0)


class _KernelBlock(_Block):
    """By one kernel each, on a graphics card; nothing between is written to memory."""

    def pooled(self) -> Tensor:
        return kernels.norm_relu_pool(self.maps, *self._affine())

    def back(self, slope: Tensor) -> None:
        self._given_slope = slope
        self.slope, _, _ = kernels.slopes(slope, self.maps, *self._affine(), affine=False)

    def rate(self, moved: Tensor) -> Tensor:
        self._moved = moved
        return kernels.rates(moved, self.maps, *self._affine())

    def bent(self, bent: Tensor) -> Tensor:
        return kernels.bends(bent, self._given_slope, self._moved, self.maps, *self._affine())

    def _affine(self) -> tuple[Tensor, Tensor, float, Size]:
        scale, shift = (value.expand(len(self.maps), -1) for value in (self.norm.weight, self.norm.bias))
        return scale, shift, self.norm.eps, self.pool


def _block(convolution: nn.Conv2d, norm: nn.GroupNorm, _: nn.ReLU, pooling: nn.AvgPool2d, *, given: Tensor) -> _Block:
    given = _laid(given)
    maps = _unlaid(_convolved(convolution, given, convolution.weight, _width_of(given)))
    kind = _KernelBlock if kernels.fits(maps) else _PlainBlock
    return kind(convolution, norm, cast(Size, pooling.kernel_size), given, maps)


def _width_of(given: Tensor) -> torch.dtype:
    """In which maps lie in memory: on a card in half of float32's, as where the networks are trained."""
    return torch.bfloat16 if kernels.fits(given) and given.dtype == torch.float32 else given.dtype


def _convolved(convolution: nn.Conv2d, given: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    if convolutions.of_images(given, weight):
        return convolutions.convolve(given, weight, _form(convolution, given), dtype)
    return F.conv2d(given.to(dtype), _as_weight(weight, dtype), None, convolution.stride, convolution.padding)


def _as_weight(direction: Tensor, dtype: torch.dtype) -> Tensor:
    """What has the form of a weight, as wide as the maps, and laid."""
    return direction.to(dtype, memory_format=torch.channels_last) if dtype == torch.bfloat16 else direction


def _laid(maps: Tensor) -> Tensor:
    """As the library convolves them, if these are bfloat16."""
    return convolutions.channels_last(maps) if maps.dtype == torch.bfloat16 else maps


def _unlaid(maps: Tensor) -> Tensor:
    return convolutions.channels_first(maps) if maps.dtype == torch.bfloat16 else maps


def _form(convolution: nn.Conv2d, given: Tensor) -> Form:
    return Form.of(given, convolution.weight, cast(Size, convolution.stride), cast(Size, convolution.padding))


class _ByHand(SetGradient):
    """For a ConvNet."""

    @torch.no_grad()
    def __init__(self, network: ConvNet, images: Tensor, labels: Tensor) -> None:
        self._head, self._blocks = network.head, []
        layers, values = list(network.features), images
        for first in range(0, len(layers) - 1, 4):
            self._blocks.append(_block(*layers[first : first + 4], given=values))  # type: ignore[arg-type]
            values = self._blocks[-1].pooled()
        self._said, self._form = values.flatten(1).to(images.dtype), values.shape
        self._chances = F.softmax(logits(self._head, self._said), dim=1)
        wanted = F.one_hot(labels, self._chances.shape[1]).to(self._chances)
        self._missed = (self._chances - wanted) / len(images)
        self.weights = self._back()

    def _back(self) -> list[Tensor | None]:
        found = [None, self._missed.T @ self._said]  # from the last weight to the first
        slope = (self._missed @ self._head.weight).view(self._form)
        for number, block in reversed(list(enumerate(self._blocks))):
            block.back(slope)
            found += [None, None, None, block.by_weight()]
            if number:
                slope = block.backwards()
        return found[::-1]

    @torch.no_grad()
    def pull(self, directions: Directions) -> Tensor:
        """See `SetGradient`; a direction of a bias or of a norm is refused, for no distance here has one."""
        *inner, by_head, by_head_bias = directions
        towards = [cast(Tensor, direction) for direction in (*inner[::4], by_head)]
        others = [direction for number, direction in enumerate(inner) if number % 4]
        if any(direction is None for direction in towards) or any(o is not None for o in (*others, by_head_bias)):
            raise NotImplementedError("a direction for every weight of a convolution and of the head, and for no other")
        first, *inner, by_head = towards
        # Once for both ways; where images come in, it is wanted as wide as they are.
        towards = [
            first,
            *(_as_weight(one, block.maps.dtype) for block, one in zip(self._blocks[1:], inner, strict=True)),
        ]
        rate = None
        for block, direction in zip(self._blocks, towards, strict=True):
            rate = block.rate(block.moved(direction, rate))
        said = cast(Tensor, rate).flatten(1).to(self._said.dtype) @ self._head.weight.T + self._said @ by_head.T
        bent = self._chances * (said - (self._chances * said).sum(1, keepdim=True)) / len(said)
        bent = (bent @ self._head.weight + self._missed @ by_head).view(self._form)
        for block, direction in zip(reversed(self._blocks), reversed(towards), strict=True):
            bent = block.backwards_bent(block.bent(bent), direction)
        return bent.to(self._said.dtype)


def _mean(maps: Tensor) -> Tensor:
    return maps.mean((2, 3), keepdim=True)
