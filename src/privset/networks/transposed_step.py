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
from privset.networks.linear import LinearGenerator
from privset.networks.precision import tensor_cores
from privset.networks.transposed import TransposedGenerator
from privset.recording import Beside


class GeneratorStep(abc.ABC):
    """What a generator makes of codes, and how its weights are to follow; the two are taken in turn."""

    @abc.abstractmethod
    def images(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels in [-1, 1] ``[n, c, h, w]``, constants."""

    @abc.abstractmethod
    def slopes(self, slope: Tensor) -> Sequence[Tensor]:
        """From the slope by the last images, those by all weights, in their order."""


def generator_step(network: TransposedGenerator | LinearGenerator) -> GeneratorStep:
    """The fastest form where the network is. On a graphics card the weights of maps come to lie channels last."""
    on_card = next(network.parameters()).is_cuda and batch_kernels.AVAILABLE
    grows = isinstance(network, TransposedGenerator)
    return _ByHand(network, torch.bfloat16) if grows and on_card else _ByAutograd(network)


class _ByAutograd(GeneratorStep):
    def __init__(self, network: TransposedGenerator | LinearGenerator) -> None:
        self._network, self._weights = network, list(network.parameters())
        self._made: list[Tensor] = []

    def images(self, codes: Tensor) -> Tensor:
        with torch.enable_grad():
            self._made = [self._network.centred(codes)]
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
        normed = F.batch_norm(maps.to(norm.weight), *running, norm.weight, norm.bias, True, momentum, norm.eps)
        return F.leaky_relu(normed, leak).to(maps.dtype)

    def slopes(self, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """By the maps, by scales and by shifts."""
        maps, norm, leak = self._maps, self._norm, self._bend.negative_slope
        if batch_kernels.fits(maps):
            given = (slope, maps, norm.weight, norm.bias, self._moments)
            return batch_kernels.slopes(*given, eps=norm.eps, leak=leak)
        with torch.enable_grad():
            given, weight, bias = (
                value.detach().requires_grad_() for value in (maps.to(norm.weight), norm.weight, norm.bias)
            )
            normed = F.batch_norm(given, None, None, weight, bias, True, 0.0, norm.eps)
            by_maps, by_weight, by_bias = torch.autograd.grad(
                F.leaky_relu(normed, leak), (given, weight, bias), slope.to(given)
            )
        return by_maps.to(maps.dtype), by_weight, by_bias


class _ByHand(GeneratorStep):
    """Maps, weights that make maps of maps and gradients by them in few bits; sums within, and the weights, in all.

    Args:
        network: Whose steps.
        narrow: In what maps lie in memory.
    """

    def __init__(self, network: TransposedGenerator, narrow: torch.dtype) -> None:
        network.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        first, *between, last, _ = network.layers
        self._network, self._first = network, cast(nn.ConvTranspose2d, first).weight
        self._last, self._narrow = cast(nn.Conv2d, last), narrow
        self._norms = [_Norm(*between[at : at + 2]) for at in range(0, len(between), 3)]
        self._grows = [cast(nn.ConvTranspose2d, layer) for layer in between[2::3]]
        self._device = self._last.weight.device
        # One for each weight: they wait for nothing but the maps.
        self._beside = [Beside(self._device) for _ in range(2 + len(self._grows))]
        self._kept: list[Tensor] = []
        self._narrowed: list[Tensor] = []

    @torch.no_grad()
    def images(self, codes: Tensor) -> Tensor:
        network, (rows, columns) = self._network, self._first.shape[2:]
        with tensor_cores(self._device):
            with self._beside[0].begin():
                grows = [grow.weight.to(self._narrow) for grow in self._grows]
            values, first = network.embedded(codes).to(self._narrow), _flat(self._first).to(self._narrow)
            maps = (values @ first).view(len(codes), rows, columns, -1).permute(0, 3, 1, 2)
            found = [self._norms[0].values(maps)]
            self._beside[0].join(*grows)
            for norm, grow, weight in zip(self._norms[1:], self._grows, grows, strict=True):
                maps = F.conv_transpose2d(found[-1], weight, None, grow.stride, cast(Size, grow.padding))
                found.append(norm.values(maps))
            weight, bias = self._last.weight, cast(Tensor, self._last.bias)
            if image_kernels.fits(found[-1], weight):
                whole = image_kernels.drawn(found[-1], weight, bias)
            else:
                whole = F.conv2d(found[-1].to(weight), weight, bias, padding=self._last.padding).tanh()
        self._kept, self._narrowed = [codes, values, *found, whole], [first, *grows]
        return network.cut(whole)

    @torch.no_grad()
    def slopes(self, slope: Tensor) -> Sequence[Tensor]:
        (codes, values, *found, whole), (first, *grows) = self._kept, self._narrowed
        lower, right = (whole.shape[side] - slope.shape[side] for side in (2, 3))
        slope, wide = F.pad(slope, (0, right, 0, lower)) if lower or right else slope, self._first.dtype
        with tensor_cores(self._device):
            by_found, slopes = self._by_image(slope, whole, found[-1])
            each = zip(self._norms[1:], self._grows, grows, found, self._beside[2:], strict=False)
            for norm, grow, weight, before, beside in reversed(list(each)):
                by_maps, *affine = norm.slopes(by_found)
                with beside.begin():
                    slopes = [_by(by_maps, before, weight, grow, of_weight=True).to(wide), *affine, *slopes]
                self._kept.append(by_maps)  # for as long as it is looked at beside
                by_found = _by(by_maps, before, weight, grow, of_weight=False)
            by_maps, *affine = self._norms[0].slopes(by_found)
            by_maps = by_maps.permute(0, 2, 3, 1).flatten(1)
            with self._beside[1].begin():
                by_first = (values.T @ by_maps).to(wide).view(_last(self._first).shape).permute(0, 3, 1, 2)
            classes, length = len(self._network.embedding), self._network.length
            by_embedding = codes[:, -classes:].T @ (by_maps @ first.T)[:, length:].to(wide)
        slopes = [by_embedding, by_first, *affine, *slopes]
        for beside in self._beside:
            beside.join(*slopes)
        self._kept, self._narrowed = [], []
        return slopes

    def _by_image(self, slope: Tensor, whole: Tensor, maps: Tensor) -> tuple[Tensor, list[Tensor]]:
        """By the maps that the image is made of; by weight and bias of what makes it."""
        weight = self._last.weight
        if not image_kernels.fits(maps, weight):
            slope, places = torch.ops.aten.tanh_backward(slope, whole), ((1, 1), self._last.padding, (1, 1))
            given, what = (slope, maps.to(weight), weight, [len(weight)]), (True, True, True)
            by_maps, *others = torch.ops.aten.convolution_backward(*given, *places, False, (0, 0), 1, what)
            return by_maps.to(maps), others
        by_maps, around = image_kernels.slopes(slope, whole, maps, weight)
        with self._beside[0].begin():
            by_taps = (around @ maps.permute(0, 2, 3, 1).flatten(0, 2)).to(weight.dtype)
            by_weight = by_taps.unflatten(1, tuple(weight.shape[2:])).permute(0, 3, 1, 2)
            by_bias = around[:, around.shape[1] // 2].sum(1, dtype=weight.dtype)
        self._kept.append(around)
        return by_maps, [by_weight, by_bias]


def _by(slope: Tensor, maps: Tensor, weight: Tensor, grow: nn.ConvTranspose2d, *, of_weight: bool) -> Tensor:
    """The slope of a transposed convolution by its weight, or by the maps that it was given."""
    places, what = (grow.stride, grow.padding, (1, 1), True, (0, 0), 1), (not of_weight, of_weight, False)
    return torch.ops.aten.convolution_backward(slope, maps, weight, None, *places, what)[of_weight]


def _last(weight: Tensor) -> Tensor:
    return weight.permute(0, 2, 3, 1)


def _flat(weight: Tensor) -> Tensor:
    """A weight ``[c, out, h, w]`` -> ``[c, h w out]``."""
    return _last(weight).flatten(1)
