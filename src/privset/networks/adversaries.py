"""The two networks of a conditional GAN, as G-PATE and DataLens publish them, for images of other sizes too.

Thousands of discriminators learn side by side under `torch.func.vmap`, so theirs is a function of its weights.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.facts import PublicFacts, pixel_range
from privset.networks.generators import ConditionalGenerator, draw_centred_codes
from privset.networks.patches import KERNEL, PADDING, convolved, patches

Weights = dict[str, Tensor]

_FIRST_DEVIATION = 0.02
"""Of all initial weights, as in DCGAN; a discriminator without batch norm has He's."""


class ConditionalDiscriminator:
    """Weights, pixels in [0, 1] ``[n, c, h, w]`` and labels ``[n]`` -> logits ``[n]``, high for a true image.

    Or several batches of images of the same labels, ``[g, n, c, h, w]`` -> ``[g, n]``: as one after the other, but that
    the weights, which are more than all the pixels, are read once.

    Two 5x5 convolutions of stride 2, to channels + classes and to ``maps`` + classes, a hidden layer and one number;
    the label is given to every layer. Batch norm, over the images of a batch, before all but the first activation.

    Args:
        facts: What is public about the images.
        maps: Of the second convolution, beside one for each class.
        width: Hidden units.
        norm: Whether there is batch norm, as published. With it a teacher is blind to what all images of a batch have
            in common; without it, its layers are scaled and shifted all the same.
        label_weight: What a label is multiplied by where it is given to a layer; 1 as published.
    """

    def __init__(
        self, facts: PublicFacts, *, maps: int = 32, width: int = 256, norm: bool = True, label_weight: float = 1.0
    ) -> None:
        self._norm, self._label_weight = norm, label_weight
        self._classes = classes = len(facts.classes)
        first, second = facts.channels + classes, maps + classes
        pixels = math.ceil(math.ceil(facts.height / 2) / 2) * math.ceil(math.ceil(facts.width / 2) / 2)
        self._shapes = {
            "first": (first, (facts.channels + classes) * KERNEL**2),
            "second": (second, (first + classes) * KERNEL**2),
            "hidden": (width, second * pixels + classes),
            "last": (1, width + classes),
        }

    def begin(self, seed: int, device: torch.device | None = None) -> Weights:
        """Initial weights, drawn where they are to lie: known by the seed and the kind of device."""
        random = torch.Generator(device or "cpu").manual_seed(seed)
        weights: Weights = {}
        for name, shape in self._shapes.items():
            # Nothing makes up for small weights without batch norm: layers would see labels and pixels apart.
            deviation = _FIRST_DEVIATION if self._norm else math.sqrt(2 / shape[1])
            weights[name] = deviation * torch.randn(shape, generator=random, device=device)
            weights[f"{name} bias"] = torch.zeros(shape[0], device=device)
        for name in ("second", "hidden"):
            weights[f"{name} scale"] = torch.ones(self._shapes[name][0], device=device)
        return weights

    def __call__(self, weights: Weights, pixels: Tensor, labels: Tensor) -> Tensor:
        """Logits ``[n]``, or ``[g, n]``."""
        batches = pixels.shape[:-3]
        marks = (labels[:, None] == torch.arange(self._classes, device=labels.device)).to(pixels.dtype)
        marks = (self._label_weight * marks).expand(*batches, -1).reshape(-1, self._classes)
        maps = convolved_with_marks(pixels.flatten(0, -4), marks, weights["first"], weights["first bias"])
        maps = convolved_with_marks(F.leaky_relu(maps, 0.2), marks, weights["second"], weights["second bias"])
        maps = self._normed(weights, "second", maps, len(labels))
        flat = torch.cat([F.leaky_relu(maps, 0.2).flatten(1), marks], dim=1)
        hidden = self._normed(weights, "hidden", flat @ weights["hidden"].T, len(labels))
        said = torch.cat([F.leaky_relu(hidden, 0.2), marks], dim=1) @ weights["last"].T + weights["last bias"]
        return said.view(batches)

    def _normed(self, weights: Weights, name: str, values: Tensor, count: int) -> Tensor:
        """Values ``[g * n, m, ...]``, normed over each batch of ``count`` = n, scaled and shifted."""
        shape = (-1,) + (1,) * (values.ndim - 2)
        factor, shift = weights[f"{name} scale"].view(shape), weights[f"{name} bias"].view(shape)
        if not self._norm:
            return torch.addcmul(shift, values, factor)
        values = values.unflatten(0, (-1, count))
        variance, mean = torch.var_mean(values, (1, *range(3, values.ndim)), correction=0, keepdim=True)
        factor = factor / (variance + 1e-5).sqrt()
        return torch.addcmul(shift - mean * factor, values, factor).flatten(0, 1)


def convolved_with_marks(maps: Tensor, marks: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """The 5x5 convolution of stride 2 of maps and, behind them, one constant map for each class.

    The constant maps are never made: what they come to is the same for all images of a class.

    Args:
        maps: ``[n, c, h, w]``.
        marks: What each class's map is filled with ``[n, k]``.
        kernel: ``[m, (c + k) * 25]``.
        bias: ``[m]``.

    Returns:
        Maps ``[n, m, h / 2, w / 2]``, sides rounded up.
    """
    count, channels, taps = len(maps), maps.shape[1], KERNEL**2
    own, of_marks = kernel[:, : channels * taps], kernel[:, channels * taps :].view(len(kernel), -1, taps)
    high, wide = ((side + 1) // 2 for side in maps.shape[2:])
    # At each place, which pixels of the kernel lie within; not `new_ones`, which vmap would make for each network.
    seen = patches(torch.ones(1, *maps.shape[2:], 1, dtype=maps.dtype, device=maps.device))
    constant = marks @ torch.einsum("pt,mkt->kpm", seen, of_marks).flatten(1) + bias.repeat(high * wide)
    constant = constant.view(count, high, wide, len(kernel)).permute(0, 3, 1, 2)
    return constant + convolved(maps, own.view(len(kernel), channels, KERNEL, KERNEL))


def _with_marks(maps: Tensor, marks: Tensor) -> Tensor:
    """Maps ``[n, c, h, w]`` and one-hot labels ``[n, k]`` -> ``[n, c + k, h, w]``: a constant map for each class."""
    return torch.cat([maps, marks[:, :, None, None].expand(-1, -1, *maps.shape[2:])], dim=1)


class ConditionalDcgan(ConditionalGenerator):
    """Codes ``[n, length + classes]`` -> pixels in [0, 1] ``[n, c, h, w]``.

    Two hidden layers, the second of them ``maps`` maps of a quarter of the image's height and width, and two transposed
    5x5 convolutions that double these; the label is given to every layer. Where a side is no multiple of 4 it is
    rounded up on the way and met exactly in the end. Images of a batch know each other through batch norm, except
    after ``eval()``.

    Args:
        facts: What is public about the images.
        length: Numbers of a code before its label.
        seed: Of the initial weights.
        width: Hidden units.
        maps: Of the layers between.
    """

    def __init__(self, facts: PublicFacts, *, length: int, seed: int, width: int = 1024, maps: int = 128) -> None:
        super().__init__(facts, length)
        self._classes = classes = len(facts.classes)
        sides = (facts.height, facts.width)
        half = tuple(math.ceil(side / 2) for side in sides)
        self._quarter = tuple(math.ceil(side / 2) for side in half)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.hidden = nn.Linear(length + classes, width)
            self.hidden_norm = nn.BatchNorm1d(width)
            self.spread = nn.Linear(width + classes, maps * math.prod(self._quarter))
            self.spread_norm = nn.BatchNorm1d(maps * math.prod(self._quarter))
            self.first = _doubling(maps + classes, maps, self._quarter, half)
            self.first_norm = nn.BatchNorm2d(maps)
            self.last = _doubling(maps + classes, facts.channels, half, sides)
            for layer in (self.hidden, self.spread, self.first, self.last):
                nn.init.normal_(layer.weight, std=_FIRST_DEVIATION)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def draw(self, labels: Tensor, random: torch.Generator) -> Tensor:
        """Fresh codes: uniform numbers from [-1, 1), and the label."""
        return draw_centred_codes(labels, classes=self._classes, length=self.length, generator=random)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> pixels ``[n, c, h, w]``."""
        marks = codes[:, self.length :]
        values = F.relu(self.hidden_norm(self.hidden(codes)))
        values = F.relu(self.spread_norm(self.spread(torch.cat([values, marks], dim=1))))
        maps = values.view(len(codes), -1, *self._quarter)
        maps = F.relu(self.first_norm(self.first(_with_marks(maps, marks))))
        return torch.sigmoid(self.last(_with_marks(maps, marks)))

    def normalised(self, codes: Tensor) -> Tensor:
        """Codes ``[n, length + classes]`` -> images ``[n, c, h, w]`` in the normalised space."""
        pixels = self(codes)
        return torch.lerp(*pixel_range(self.facts, pixels), pixels)


def _doubling(given: int, made: int, size: tuple[int, ...], target: tuple[int, ...]) -> nn.ConvTranspose2d:
    """A transposed convolution from maps of ``size`` to ones of ``target``, twice that or one less on each axis."""
    extra = tuple(goal - (2 * side - 1) for side, goal in zip(size, target, strict=True))
    return nn.ConvTranspose2d(given, made, KERNEL, stride=2, padding=PADDING, output_padding=extra)  # type: ignore[arg-type]
