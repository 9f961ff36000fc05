"""What a critic sees in images, and how its weights change that: the gradients of WGAN-GP, written out.

The penalty is on the length of a score's slope by an image, so what a critic learns from it is a derivative of a
derivative. Left to automatic differentiation, for many critics side by side, a step is thousands of small operations,
and takes each layer twice as often as it need. But between the bends of its ReLUs a critic is linear
in its images and in each of its weights: the slope is a product of all of them, and no bends are left in it. So what is
penalised is sent forwards through the same layers, without their biases, and meets the slopes on their way back.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from privset.networks import patches

Weights = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Layer:
    """What comes before a ReLU: a convolution, or a product with all numbers of an image.

    Attributes:
        weight: Its name among the weights of a critic.
        bias: Likewise.
        dense: Whether it is a product.
    """

    weight: str
    bias: str
    dense: bool

    def __call__(self, weight: Tensor, given: Tensor) -> Tensor:
        """Maps ``[n, c, h, w]`` -> maps ``[n, m, h', w']``, or numbers ``[n, m, 1, 1]``, without the bias."""
        if self.dense:
            return (given.flatten(1) @ weight.T)[:, :, None, None]
        return patches.convolved(given, weight)

    def by_given(self, weight: Tensor, slope: Tensor, given: Tensor) -> Tensor:
        """From the slope by what it gave that by what it was given, or by something of that form."""
        if self.dense:
            return (slope.flatten(1) @ weight).reshape(len(slope), *given.shape[1:])
        return patches.by_maps(slope, weight, given.shape[2:])

    def by_weight(self, slope: Tensor, given: Tensor) -> Tensor:
        """From the slope by what it gave that by its weight."""
        if self.dense:
            return slope.flatten(1).T @ given.flatten(1)
        return patches.by_kernel(slope, given)


class Look:
    """What a critic sees in images.

    Args:
        layers: Of the critic.
        normed: Its weights, divided by their stretch.
        images: ``[n, c, h, w]``.
        labels: Their classes ``[n]``.

    Attributes:
        scores: How real they look ``[n]``.
    """

    def __init__(self, layers: list[Layer], normed: Weights, images: Tensor, labels: Tensor) -> None:
        self._layers, self._normed, self._given, self._on = layers, normed, [images], []
        for layer in layers:
            maps = layer(normed[layer.weight], self._given[-1]) + normed[layer.bias][:, None, None]
            self._on.append(maps > 0)
            self._given.append(torch.relu(maps))
        self._features = self._given.pop().flatten(1)
        # Not `one_hot`, which looks at its labels, and so cannot be evaluated side by side.
        classes = torch.arange(len(normed["classes"]), device=labels.device)
        self._belongs = (labels[:, None] == classes).to(images.dtype)
        self._towards = normed["linear"] + self._belongs @ normed["classes"]
        self.scores = (self._features * self._towards).sum(1) + normed["bias"]

    def back(self, by_scores: Tensor) -> list[Tensor]:
        """From slopes by the scores ``[n]`` those by what each layer gave, before its ReLU."""
        slope, found = (by_scores[:, None] * self._towards).reshape(self._on[-1].shape), []
        for layer, given, on in reversed(list(zip(self._layers, self._given, self._on, strict=True))):
            found.append(slope := torch.where(on, slope, 0.0))
            if given is not self._given[0]:
                slope = layer.by_given(self._normed[layer.weight], slope, given)
        return found[::-1]

    def by_images(self, slope: Tensor) -> Tensor:
        """From the slope by what the first layer gave, for some of the images, that by these images."""
        first = self._layers[0]
        return first.by_given(self._normed[first.weight], slope, self._given[0])

    def by_weights(self, by_scores: Tensor, slopes: list[Tensor], pushed: Tensor) -> Weights:
        """The gradient by normed weights: of scores, and of the slopes by the last of the images.

        Args:
            by_scores: Of the loss by the scores ``[n]``; of the images whose slopes count, 1 each.
            slopes: What `back` makes of that.
            pushed: Of the loss by the slopes by the last of the images ``[k, c, h, w]``, whose scores do not count.
        """
        scored, found = len(by_scores) - len(pushed), {}
        for layer, given, on, slope in zip(self._layers, self._given, self._on, slopes, strict=True):
            found[layer.weight] = layer.by_weight(slope, torch.cat([given[:scored], pushed]))
            found[layer.bias] = slope[:scored].sum((0, 2, 3))
            pushed = torch.where(on[scored:], layer(self._normed[layer.weight], pushed), 0.0)
        features = torch.cat([by_scores[:scored, None] * self._features[:scored], pushed.flatten(1)])
        found["linear"], found["classes"] = features.sum(0)[None], self._belongs.T @ features
        return found | {"bias": by_scores[:scored].sum()[None]}


@dataclasses.dataclass(frozen=True)
class Stretch:
    """How far a weight stretches what it is given, at most, by one step of the power method.

    Attributes:
        out: Direction ``[m]`` in which it does.
        back: Direction ``[d]`` of what is stretched.
        size: How far ``[]``.
    """

    out: Tensor
    back: Tensor
    size: Tensor

    def divided(self, weight: Tensor) -> Tensor:
        """The weight over its stretch."""
        return weight / self.size

    def by_weight(self, weight: Tensor, slope: Tensor) -> Tensor:
        """From the slope by what is `divided` that by the weight; the size is its product with both directions."""
        along = (slope * weight).sum() / self.size
        grown = (self.out[:, None] * self.back).reshape(weight.shape)
        return (slope - along * grown) / self.size


def penalty_slope(slopes: Tensor, weight: float) -> Tensor:
    """Slopes by images ``[n, c, h, w]`` -> that of ``weight`` times the mean square of how much their length is not 1.

    >>> float(penalty_slope(torch.full((1, 1, 1, 4), 1.0), 3.0)[0, 0, 0, 0])  # 2 x 3 x (2 - 1) / 2
    3.0
    """
    lengths = (slopes.flatten(1).square().sum(1) + 1e-12).sqrt()
    factors = 2 * weight / len(slopes) * (lengths - 1) / lengths
    return slopes * factors[:, None, None, None]
