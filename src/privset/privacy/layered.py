"""Gradients of each record of a network in layers, without vmap: what one record adds is known layer by layer.

The gradient that a record gives the weight of a linear layer is the product of two things a batch has anyway: what came
in, and the slope of the loss by what went out. One pass forwards and one back over the whole batch give both. That
costs little more than the gradient of the sum, where `vmap(grad(...))` has every record convolve with weights of its
own.

Why this is as safe as vmap, whatever the network:

- **Records stay apart.** A layer with weights is a convolution or a matrix product, both of which are called here (on a
  card partly `privset.convolutions`) and treat each record of a batch by itself, as the cross-entropy does. All else,
  before, between and after, is evaluated under vmap, but for `convolutions.turned`, by which a card moves the numbers
  of each record to other places. On a processor the first layer may be part of what follows it (`Stage.at_once`).
- **What is added is what was measured.** The gradients of a convolution are held, their lengths are taken of the
  numbers that are held, and these numbers are added up. Those of a matrix product have rank one, whose length is
  exactly the product of two lengths, and are added up in float64. So a layer that computes coarsely (on a graphics
  card, and on a processor that is faster so, convolutions and what they give are rounded to bfloat16) or whose slope is
  wrong would give a worse gradient, and never a longer one. On a card one kernel writes these numbers and their
  lengths, and that kernel has to be right.

`tests/privacy/test_layered.py` compares every kind of layer with vmap in float64.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.func import vmap

from privset import convolutions, processor
from privset.convolutions import Form
from privset.errors import ConfigError
from privset.privacy.clipping import Shares, Totals, clip_factors
from privset.privacy.held import Held, Products, at_least_float32, squares_of

Pair = tuple[int, int]

AT_HAND = 2**20
"""Numbers that a processor still has at hand soon after it wrote them."""
WIDE = 32
"""Maps that come in, from which on a processor convolves faster in bfloat16, if it has instructions for that."""
LARGE = 100
"""Pixels of an image, from which on a processor does so: of 8 x 8 it is not faster, and rounding goes further."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A layer with weights, and what follows it up to the next one.

    Attributes:
        weight: Name of its weight: ``[out, in]`` of a matrix product, ``[out, in, kh, kw]`` of a convolution.
        bias: Name of its bias, None if it has none or one that changes nothing.
        stride: Of a convolution.
        padding: Of a convolution, with zeros.
        then: From what the layer gives for one record, and the tensors named in ``scales``, to the next layer.
        scales: Names of what ``then`` learns: a few numbers, which every record is given a copy of.
        idle: Names of what changes nothing, such as a bias that a norm takes away again; its gradient is zero.
        at_once: Layer and ``then`` as one function of an image, of the weight and of the tensors named in ``scales``;
            in use if this is the first layer and nothing comes before it, on a processor. Like ``then`` it is evaluated
            under vmap, and every record is given a copy of the weight, which should be small. It knows of no bias.
    """

    weight: str
    bias: str | None = None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    then: Callable[..., Tensor] = lambda values: values
    scales: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    at_once: Callable[..., Tensor] | None = None

    def __post_init__(self) -> None:
        if self.at_once is not None and self.bias is not None:
            raise ConfigError(f"what is taken at once has no bias, whose gradient would be lost: {self.bias}")

    def map(self, weights: Mapping[str, Tensor], given: Tensor) -> Tensor:
        """What the layer makes of a batch ``[n, in]`` or ``[n, in, h, w]``; no two records meet."""
        weight, bias = weights[self.weight], None if self.bias is None else weights[self.bias]
        if weight.ndim == 2:
            with torch.autocast(given.device.type, enabled=False):
                return F.linear(given.to(weight.dtype), weight, bias)
        if not given.is_cuda and given.shape[1] == weight.shape[1]:  # if not, the library says so
            places = self.form(given, weight).found
            if any(step > 1 and count == 1 for step, count in zip(self.stride, places, strict=True)):
                return self._map_patches(weight, bias, given)
            # A processor is faster if the channels of a pixel lie side by side.
            given, weight = _channels_last(given), _channels_last(weight)
        elif given.dtype == torch.bfloat16:  # as the maps are laid
            weight = weight.to(given.dtype, memory_format=torch.channels_last)
        return F.conv2d(given, weight, bias, self.stride, self.padding)

    def _map_patches(self, weight: Tensor, bias: Tensor | None, given: Tensor) -> Tensor:
        """A convolution that would step along an axis where it has one place only, on a processor: as a matrix product.

        Where that is the width of maps the library (oneDNN) has read beside them, with torch 2.11 and 2.13: memory of
        other records, and freed memory. Of one channel; in bfloat16 on processors with AMX of any number.
        """
        high, wide = self.form(given, weight).found
        lines = weight.permute(0, 2, 3, 1).flatten(1)
        with torch.autocast(given.device.type, enabled=False):
            patches = _patches_last(given.to(weight.dtype), (weight.shape[2], weight.shape[3]), self)
            return F.linear(patches, lines, bias).transpose(1, 2).unflatten(2, (high, wide))

    def map_images(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """As `map`, of what no slope is wanted by."""
        weight = weights[self.weight]
        if weight.ndim == 4 and self.bias is None and convolutions.of_images(images, weight):
            return convolutions.convolve(images, weight, self.form(images, weight), torch.bfloat16)
        return self.map(weights, images)

    def form(self, given: Tensor, weight: Tensor) -> Form:
        """Of this convolution, over these maps."""
        return Form.of(given, weight, self.stride, self.padding)


OfRecord = Callable[[Tensor, Tensor], Tensor]
"""Of an image, or what became of it, and its label; evaluated under vmap."""


class LayeredLoss:
    """A loss of what a network in layers makes of one record: a `privset.privacy.clipping.Loss`.

    The curator knows it by its type and takes gradients layer by layer; by itself it is the loss of one record.

    Args:
        stages: The layers with weights, in order.
        before: From an image ``[c, h, w]`` and its label ``[]`` to what the first layer is given; None: the image.
        after: From what the last layer gives and the label to the loss ``[]``; None is the cross-entropy of logits.
    """

    def __init__(
        self, stages: Sequence[Stage], *, before: OfRecord | None = None, after: OfRecord | None = None
    ) -> None:
        self.stages, self.before, self.after = tuple(stages), before, after
        names = [name for stage in stages for name in _names(stage)]
        if len(set(names)) < len(names):
            raise ConfigError(f"a weight belongs to one layer only; these name one twice: {', '.join(names)}")

    def __call__(self, parameters: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        """Parameters, image ``[c, h, w]``, label ``[]`` -> ``[]``."""
        values = image if self.before is None else self.before(image, label)
        for stage in self.stages:
            mapped = stage.map(parameters, values[None])[0]
            values = stage.then(mapped, *(parameters[name] for name in stage.scales))
        return self.total(values[None], label[None])

    def total(self, values: Tensor, labels: Tensor) -> Tensor:
        """Values ``[n, ...]`` of the last layer and labels ``[n]`` -> the losses of all records, added up."""
        if self.after is None:
            return F.cross_entropy(values, labels, reduction="sum")
        return vmap(self.after)(values, labels).sum()

    def check(self, parameters: Mapping[str, Tensor]) -> None:
        """Refuse parameters that this loss has no gradient for, or that it lacks."""
        known = {name for stage in self.stages for name in _names(stage)}
        if known != set(parameters):
            raise ConfigError(
                f"this loss has the weights {', '.join(sorted(known))}; gradients were asked for at "
                f"{', '.join(sorted(parameters))}"
            )


def _names(stage: Stage) -> tuple[str, ...]:
    return (stage.weight, *(() if stage.bias is None else (stage.bias,)), *stage.scales, *stage.idle)


def layered_sums(
    loss: LayeredLoss,
    parameters: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    members: Tensor,
    clip_norm: float,
    totals: Totals,
) -> Tensor:
    """Add to ``totals`` the clipped gradients of the records of each of k samples.

    Guarantee: that of `privset.privacy.gradients.clipped_gradient_sums`, of which this is the fast path.

    Args:
        loss: In layers.
        parameters: Where gradients are taken.
        images: ``[n, ...]``, as the loss sees them.
        labels: ``[n]``.
        members: ``[k, n]``, which record is in which sample.
        clip_norm: The bound, over all parameters together.
        totals: Where they are added.

    Returns:
        Which records ``[n]`` have a gradient that is not finite, and were left out.
    """
    found = record_gradients(loss, parameters, images, labels)
    factors = clip_factors(sum(part.squares() for part in found.values()), clip_norm)  # type: ignore[arg-type]
    shares = Shares(members * factors)
    for name, part in found.items():
        part.add(shares, totals.of(name))
    return factors == 0


def record_gradients(
    loss: LayeredLoss, parameters: Mapping[str, Tensor], images: Tensor, labels: Tensor
) -> dict[str, Held | Products]:
    """Images ``[n, ...]``, labels ``[n]`` -> by each parameter, but idle ones, the gradients of all records."""
    images, weights = images.detach(), {name: value.detach() for name, value in parameters.items()}
    first, *later = loss.stages
    at_once = None if images.is_cuda or loss.before is not None else first.at_once
    stages = loss.stages if at_once is None else later
    copied = [name for stage in loss.stages for name in stage.scales] + ([] if at_once is None else [first.weight])
    copies = {name: weights[name].expand(len(images), *weights[name].shape).requires_grad_() for name in copied}
    given, mapped, versions = [], [], []
    with _coarse(images, weights.values()), torch.enable_grad():
        values = images if loss.before is None else vmap(loss.before)(images, labels)
        if at_once is not None:
            values = vmap(at_once)(values, copies[first.weight], *(copies[name] for name in first.scales))
        for stage in stages:
            # Laid once for the library and for the products below, and back for what follows.
            laid = stage is not first and convolutions.multiplies(values) and values.ndim == 4
            values = convolutions.turned(values, last=True) if laid else values
            given.append(values.detach())
            if stage is not first:
                values = stage.map(weights, values)
            else:  # the images want no slope, and what follows them does
                values = stage.map_images(weights, values).detach().requires_grad_()
            mapped.append(values)
            versions.append(values._version)
            values = convolutions.turned(values, last=False) if laid else values
            values = vmap(stage.then)(values, *(copies[name] for name in stage.scales))
        # Their sum, whose slope by what belongs to one record is that of its own loss.
        total = loss.total(values, labels)
        if versions != [one._version for one in mapped]:
            raise ConfigError(
                "what follows a layer must not change in place what that gave: slopes would be of another"
            )
        slopes = torch.autograd.grad(total, [*mapped, *copies.values()])
        found: dict[str, Held | Products] = {
            name: Held(_lines(slope)) for name, slope in zip(copies, slopes[len(mapped) :], strict=True)
        }
        for stage, values, slope in zip(stages, given, slopes[: len(mapped)], strict=True):
            found |= _of_stage(stage, weights[stage.weight], values, slope)
    return found


def coarsely(device: torch.device, weights: Iterable[Tensor], pixels: int) -> bool:
    """Whether convolutions are in bfloat16: on a graphics card, and where it is faster on a processor.

    That is so of wide networks and images of so many pixels, on a processor that has instructions for it.
    """
    wide = pixels >= LARGE and any(weight.ndim == 4 and weight.shape[1] >= WIDE for weight in weights)
    return device.type == "cuda" or (wide and processor.multiplies_bfloat16())


def _coarse(images: Tensor, weights: Iterable[Tensor]) -> contextlib.AbstractContextManager[object]:
    """Have convolutions in bfloat16, summed in float32, where that is faster; what is float64 stays so.

    Half as much is read and written. What comes of it is measured afterwards, as it is; and beside the noise that it is
    given, the error is little.
    """
    coarse = coarsely(images.device, weights, images.shape[1:][-2:].numel())
    return torch.autocast(images.device.type, torch.bfloat16, enabled=coarse)


def _of_stage(stage: Stage, weight: Tensor, given: Tensor, slope: Tensor) -> dict[str, Held | Products]:
    by_bias = {}
    if stage.bias is not None:
        by_bias[stage.bias] = Held(
            _lines(slope.flatten(2).sum(2, dtype=at_least_float32(slope)) if slope.ndim > 2 else slope)
        )
    if weight.ndim == 2:
        return {stage.weight: Products(slope, given), **by_bias}
    kernel = (weight.shape[2], weight.shape[3])
    if convolutions.multiplies(slope):
        rows, lengths = convolutions.products(slope, given, stage.form(given, weight))
        return {stage.weight: Held(rows, (*kernel, given.shape[1]), lengths), **by_bias}
    if slope.is_cuda:
        rows = torch.bmm(slope.flatten(2), _patches(given.to(slope.dtype), kernel, stage).transpose(1, 2))
        return {stage.weight: Held(rows), **by_bias}
    return {stage.weight: _on_a_processor(stage, kernel, slope, given.to(slope.dtype)), **by_bias}


def _on_a_processor(stage: Stage, kernel: Pair, slope: Tensor, given: Tensor) -> Held:
    """Gradients by the weight of a convolution: of a few records at a time, whose patches it then has at hand."""
    last = given.shape[1] >= 8  # fewer channels side by side are not worth it
    columns = kernel[0] * kernel[1] * given.shape[1]
    rows, squares = slope.new_empty(len(slope), slope.shape[1], columns), []
    some = max(1, AT_HAND // max(1, columns * max(slope[0, 0].numel(), slope.shape[1])))
    for into, slopes, values in zip(rows.split(some), slope.split(some), given.split(some), strict=True):
        lines = slopes.permute(0, 2, 3, 1).flatten(1, 2).transpose(1, 2)
        patches = _patches_last(values, kernel, stage) if last else _patches(values, kernel, stage).transpose(1, 2)
        torch.bmm(lines, patches, out=into)
        squares.append(squares_of(into))
    return Held(rows, (*kernel, given.shape[1]) if last else None, torch.cat(squares))


def _channels_last(values: Tensor) -> Tensor:
    """The same ``[n, c, h, w]``, channels of a pixel side by side in memory; one channel is given a second, of zeros.

    With one channel both orders are the same, and a tensor whose strides say which is meant is what the library has
    misread (see `Stage._map_patches`).
    """
    values = F.pad(values, (0, 0, 0, 0, 0, 1)) if values.shape[1] == 1 else values
    return values.contiguous(memory_format=torch.channels_last)


def _lines(rows: Tensor) -> Tensor:
    """``[n, ...]`` -> ``[n, 1, d]``."""
    return rows.flatten(1)[:, None]


def _patches(given: Tensor, kernel: Pair, stage: Stage) -> Tensor:
    """Maps ``[n, c, h, w]`` -> the patches ``[n, c kh kw, places]`` that a convolution takes its products with."""
    (high, wide), (down, right) = stage.padding, stage.stride
    padded = F.pad(given, (wide, wide, high, high))
    views = padded.unfold(2, kernel[0], down).unfold(3, kernel[1], right)
    return views.permute(0, 1, 4, 5, 2, 3).reshape(len(given), given.shape[1] * kernel[0] * kernel[1], -1)


def _patches_last(given: Tensor, kernel: Pair, stage: Stage) -> Tensor:
    """The same with channels last: ``[n, places, kh kw c]``."""
    (high, wide), (down, right) = stage.padding, stage.stride
    padded = F.pad(given.permute(0, 2, 3, 1), (0, 0, wide, wide, high, high))
    views = padded.unfold(1, kernel[0], down).unfold(2, kernel[1], right)
    return views.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)
