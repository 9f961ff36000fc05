"""A step of the generator of DP-Sinkhorn: images, and then the gradients of its weights by a slope of the images.

On a graphics card autograd would norm, bend and turn maps by dozens of operations, one after the other. There the step
is written out: maps lie channels last throughout, a norm and what bends it are one, and gradients by weights, which
nothing waits for before the end, are computed beside those by maps.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.networks import batch_kernels, image_kernels
from privset.networks.geometry import Size
from privset.networks.precision import tensor_cores
from privset.networks.transposed import TransposedGenerator
from privset.recording import Beside


class GeneratorStep(abc.ABC):
    """What a generator makes of codes, and how its weights are to follow; the two are taken in turn."""

    @abc.abstractmethod
    def images(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``, constants."""

    @abc.abstractmethod
    def slopes(self, slope: Tensor) -> Sequence[Tensor]:
        """From the slope by the last images, those by all weights, in their order."""


def generator_step(network: TransposedGenerator) -> GeneratorStep:
    """The fastest form where the network is. On a graphics card its weights come to lie channels last."""
    return _ByHand(network) if next(network.parameters()).is_cuda and batch_kernels.AVAILABLE else _ByAutograd(network)


class _ByAutograd(GeneratorStep):
    def __init__(self, network: TransposedGenerator) -> None:
        self._network, self._weights = network, list(network.parameters())
        self._made: list[Tensor] = []

    def images(self, codes: Tensor) -> Tensor:
        with torch.enable_grad():
            self._made = [self._network(codes)]
        return self._made[0].detach()

    def slopes(self, slope: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(self._made.pop(), self._weights, slope)


class _Norm:
    """A batch norm that learns, and the leaky ReLU behind it."""

    def __init__(self, norm: nn.Module, bend: nn.Module) -> None:
        self._norm, self._bend = cast(nn.BatchNorm2d, norm), cast(nn.LeakyReLU, bend)
        self._maps = self._moments = self._norm.weight.detach()

    def values(self, maps: Tensor) -> Tensor:
        """Of maps ``[n, c, h, w]``."""
        self._maps, norm, leak = maps, self._norm, self._bend.negative_slope
        cast(Tensor, norm.num_batches_tracked).add_(1)
        running = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        momentum = cast(float, norm.momentum)
        if batch_kernels.fits(maps):
            options = {"momentum": momentum, "eps": norm.eps, "leak": leak}
            found, self._moments = batch_kernels.norm_leaky(maps, norm.weight, norm.bias, *running, **options)
            return found
        return F.leaky_relu(F.batch_norm(maps, *running, norm.weight, norm.bias, True, momentum, norm.eps), leak)

    def slopes(self, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """By the maps, by scales and by shifts."""
        maps, norm, leak = self._maps, self._norm, self._bend.negative_slope
        if batch_kernels.fits(maps):
            given = (slope, maps, norm.weight, norm.bias, self._moments)
            return batch_kernels.slopes(*given, eps=norm.eps, leak=leak)
        with torch.enable_grad():
            given, weight, bias = (value.detach().requires_grad_() for value in (maps, norm.weight, norm.bias))
            normed = F.batch_norm(given, None, None, weight, bias, True, 0.0, norm.eps)
            by_maps, by_weight, by_bias = torch.autograd.grad(F.leaky_relu(normed, leak), (given, weight, bias), slope)
        return by_maps, by_weight, by_bias


class _ByHand(GeneratorStep):
    def __init__(self, network: TransposedGenerator) -> None:
        network.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        first, *between, last, _ = network.layers
        self._network, self._first = network, cast(nn.ConvTranspose2d, first).weight
        self._last = cast(nn.Conv2d, last)
        self._norms = [_Norm(*between[at : at + 2]) for at in range(0, len(between), 3)]
        self._grows = [cast(nn.ConvTranspose2d, layer) for layer in between[2::3]]
        self._device = self._last.weight.device
        self._beside = Beside(self._device)
        self._kept: list[Tensor] = []

    @torch.no_grad()
    def images(self, codes: Tensor) -> Tensor:
        network, (rows, columns) = self._network, self._first.shape[2:]
        with tensor_cores(self._device):
            values = network.embedded(codes)
            maps = (values @ _flat(self._first)).view(len(codes), rows, columns, -1).permute(0, 3, 1, 2)
            found = [self._norms[0].values(maps)]
            for norm, grow in zip(self._norms[1:], self._grows, strict=True):
                maps = F.conv_transpose2d(found[-1], grow.weight, None, grow.stride, cast(Size, grow.padding))
                found.append(norm.values(maps))
            weight, bias = self._last.weight, cast(Tensor, self._last.bias)
            if image_kernels.fits(found[-1], weight):
                whole = image_kernels.drawn(found[-1], weight, bias)
            else:
                whole = F.conv2d(found[-1], weight, bias, padding=self._last.padding).tanh()
        self._kept = [codes, values, *found, whole]
        return network.cut(whole)

    @torch.no_grad()
    def slopes(self, slope: Tensor) -> Sequence[Tensor]:
        (codes, values, *found, whole), beside = self._kept, self._beside
        lower, right = (whole.shape[side] - slope.shape[side] for side in (2, 3))
        slope = F.pad(slope, (0, right, 0, lower)) if lower or right else slope
        with tensor_cores(self._device):
            by_found, slopes = self._by_image(slope, whole, found[-1])
            for norm, grow, before in zip(self._norms[:0:-1], self._grows[::-1], found[-2::-1], strict=True):
                by_maps, *affine = norm.slopes(by_found)
                with beside.begin():
                    slopes = [_by(by_maps, before, grow, weight=True), *affine, *slopes]
                self._kept.append(by_maps)  # for as long as it is looked at beside
                by_found = _by(by_maps, before, grow, weight=False)
            by_maps, *affine = self._norms[0].slopes(by_found)
            by_maps = by_maps.permute(0, 2, 3, 1).flatten(1)
            with beside.begin():
                by_first = (values.T @ by_maps).view(_last(self._first).shape).permute(0, 3, 1, 2)
            by_values = by_maps @ _flat(self._first).T
            classes, length = len(self._network.embedding), self._network.length
            by_embedding = codes[:, -classes:].T @ by_values[:, length:]
        slopes = [by_embedding, by_first, *affine, *slopes]
        beside.join(*slopes)
        self._kept = []
        return slopes

    def _by_image(self, slope: Tensor, whole: Tensor, maps: Tensor) -> tuple[Tensor, list[Tensor]]:
        """By the maps that the image is made of; by weight and bias of what makes it."""
        weight = self._last.weight
        if not image_kernels.fits(maps, weight):
            slope = torch.ops.aten.tanh_backward(slope, whole)
            by_maps, *others = torch.ops.aten.convolution_backward(
                slope, maps, weight, [len(weight)], (1, 1), self._last.padding, (1, 1), False, (0, 0), 1, (True,) * 3
            )
            return by_maps, others
        by_maps, around = image_kernels.slopes(slope, whole, maps, weight)
        with self._beside.begin():
            by_taps = around @ maps.permute(0, 2, 3, 1).flatten(0, 2)
            by_weight = by_taps.unflatten(1, tuple(weight.shape[2:])).permute(0, 3, 1, 2)
            by_bias = around[:, around.shape[1] // 2].sum(1)
        self._kept.append(around)
        return by_maps, [by_weight, by_bias]


def _by(slope: Tensor, maps: Tensor, grow: nn.ConvTranspose2d, *, weight: bool) -> Tensor:
    """The slope of a transposed convolution by its weight, or by the maps that it was given."""
    given, places = (slope, maps, grow.weight, None), (grow.stride, grow.padding, (1, 1), True, (0, 0), 1)
    return torch.ops.aten.convolution_backward(*given, *places, (not weight, weight, False))[weight]


def _last(weight: Tensor) -> Tensor:
    return weight.permute(0, 2, 3, 1)


def _flat(weight: Tensor) -> Tensor:
    """A weight ``[c, out, h, w]`` -> ``[c, h w out]``."""
    return _last(weight).flatten(1)
