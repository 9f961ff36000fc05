"""Adam whose every step is the same few operations in place, so that a graphics card can play them back.

`Descent` has it move images: wave by wave, within the range of pixels, and with the running average that is published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from privset.convolutions import lying_like
from privset.facts import PublicFacts, pixel_range

_PIECE = 2**14
"""Numbers that are moved as one piece, or more: a tensor is at most `_PIECES`, so that few calls move all of them."""
_PIECES = 32


class Adam:
    """Adam on a few tensors, in place.

    Args:
        values: What is moved.
        betas: How much of the mean slope, and of the mean square, is kept at each step.
        weight_decay: How much of its own value is added to the slope of each.
    """

    def __init__(self, values: Sequence[Tensor], *, betas: tuple[float, float], weight_decay: float = 0.0) -> None:
        self._values, self._betas, self._decay = values, betas, weight_decay
        self._means = [torch.zeros_like(value) for value in values]
        self._squares = [torch.zeros_like(value) for value in values]
        self._count, self._rate = (values[0].new_zeros(()) for _ in range(2))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that steps change from one to the next, but the values themselves."""
        moments = {"mean": self._means, "square": self._squares}
        named = {f"{name} {number}": one for name, some in moments.items() for number, one in enumerate(some)}
        return named | {"count": self._count}

    def set_rate(self, rate: float | Tensor) -> None:
        """The learning rate of the steps that follow; as a tensor ``[]``, one that is on the device."""
        self._rate.fill_(rate)

    @torch.no_grad()
    def step(self, slopes: Sequence[Tensor]) -> None:
        """Move the values down these slopes."""
        self._count += 1
        if self._count.is_cuda:  # to start all these operations takes a card longer than to do them
            self._at_once(slopes)
            return
        if self._decay:
            slopes = [slope + self._decay * value for slope, value in zip(slopes, self._values, strict=True)]
        rate = self._rate / (1 - self._betas[0] ** self._count)
        for value, slope, mean, square in zip(self._values, slopes, self._means, self._squares, strict=True):
            mean.lerp_(slope, 1 - self._betas[0])
            square.lerp_(slope.square(), 1 - self._betas[1])
            value -= rate * mean / (square / (1 - self._betas[1] ** self._count)).sqrt_().add_(1e-8)

    def _at_once(self, slopes: Sequence[Tensor]) -> None:
        """A step whose count was raised already, by one operation."""
        # Which wants all that belong together to lie alike.
        alike = [lying_like(value, slope) for value, slope in zip(self._values, slopes, strict=True)]
        together = zip(self._values, alike, self._means, self._squares, strict=True)
        kept = zip(*(piece for some in together for piece in _in_pieces(some)), strict=True)
        _move(*kept, count=self._count.float(), rate=self._rate.float(), betas=self._betas, decay=self._decay)


def _move(
    values: Sequence[Tensor],
    slopes: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    *,
    count: Tensor,
    rate: Tensor | float,
    betas: tuple[float, float],
    decay: float = 0.0,
) -> None:
    """Step number ``count`` of Adam, in place, as one operation on all values."""
    counts = [count] * len(values)  # it only reads them
    torch._fused_adam_(  # type: ignore[attr-defined] - as torch.optim does
        list(values),
        list(slopes),
        list(means),
        list(squares),
        [],
        counts,
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=decay,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


def _in_pieces(alike: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Tensors that lie alike -> smaller ones: of one that is whole, a small part of a card would take care."""
    if not all(one.is_contiguous() or _is_last(one) for one in alike):
        raise ValueError("what a card is to move must lie in one piece in memory")
    size = max(_PIECE, -(-alike[0].numel() // _PIECES))
    return list(zip(*(one.as_strided((one.numel(),), (1,)).split(size) for one in alike), strict=True))


def _is_last(value: Tensor) -> bool:
    return value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last)


def kept(averaging: float, number: int) -> float:
    """How much of the average of weights is kept at a step; at first there is little to average.

    >>> kept(0.99, 0), kept(0.99, 100_000)
    (0.1, 0.99)
    """
    return min(averaging, (1 + number) / (10 + number))


@torch.no_grad()
def approach(averages: Sequence[Tensor], values: Sequence[Tensor], share: Tensor) -> None:
    """Move averages, in place, a share ``[]`` of the way to values."""
    if share.is_cuda:
        _approach_at_once(averages, values, share)
        return
    for average, value in zip(averages, values, strict=True):
        average.lerp_(value, share)


def _approach_at_once(averages: Sequence[Tensor], values: Sequence[Tensor], share: Tensor) -> None:
    """As `approach`, by three operations however many there are."""
    ways = torch._foreach_sub(values, averages)  # type: ignore[attr-defined] - as torch.optim does
    torch._foreach_mul_(ways, share)  # type: ignore[attr-defined]
    torch._foreach_add_(averages, ways)  # type: ignore[attr-defined]


def step_of_adam(
    values: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    slopes: Sequence[Tensor],
    *,
    taken: Tensor,
    rate: float,
    betas: tuple[float, float],
) -> None:
    """Move values down their slopes, in place, and what Adam remembers of these; also under `torch.func.vmap`.

    Every number is read and written once, where several operations one after the other would do so each time. That
    counts where thousands of networks learn side by side, of whose weights there are many and each is little used.

    Args:
        values: What is moved.
        means: Of the slopes so far, at first 0.
        squares: Likewise.
        slopes: Of what is to become less.
        taken: How many steps were taken before ``[]``; the same for all networks.
        rate: The learning rate.
        betas: How much of the mean slope, and of the mean square, is kept at each step.
    """
    _Step.apply(taken, rate, betas, *values, *means, *squares, *slopes)


class _Step(torch.autograd.Function):
    """`step_of_adam`, which vmap has no other rule for: its numbers are moved one by one, however they are stacked."""

    @staticmethod
    def forward(taken: Tensor, rate: float, betas: tuple[float, float], *tensors: Tensor) -> Tensor:  # type: ignore[override]
        count = len(tensors) // 4
        # In a row, since a card wants all four to lie alike.
        kept = [tensor.view(-1) for tensor in tensors[:-count]]
        slopes = [slope.reshape(-1) for slope in tensors[-count:]]
        values, means, squares = kept[:count], kept[count:-count], kept[-count:]
        _move(values, slopes, means, squares, count=taken + 1, rate=rate, betas=betas)
        return taken + 1

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keeps nothing: no one asks for the gradient of a step."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, None]:
        taken, rate, betas, *tensors = inputs
        if in_dims[0] is not None:
            raise ValueError("networks side by side take their steps together")
        if None in in_dims[3 : 3 + 3 * len(tensors) // 4]:  # all of them would write it, where vmap refuses that
            raise ValueError("what a step moves, and what is remembered of it, must be each network's own")
        stacked = (
            tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
            for tensor, axis in zip(tensors, in_dims[-len(tensors) :], strict=True)
        )
        return _Step.apply(taken, rate, betas, *stacked), None


class Spectrum:
    """Images as sums of cosines, each as strong as such a wave is in pictures: the finer, the weaker.

    Steps of one size along every wave would fill images with fine noise: the finest waves are by far the most, and
    what is measured of an image hardly tells them.

    Args:
        like: Images ``[n, c, h, w]`` of the kind.
        smoothness: A wave of f half periods a side has the strength f**-smoothness; 0 leaves all alike.

    >>> spectrum = Spectrum(torch.zeros(1, 1, 4, 8), smoothness=1.0)
    >>> image = torch.rand(1, 1, 4, 8)
    >>> torch.allclose(spectrum.image(spectrum.waves(image) / spectrum.strength**2), image, atol=1e-5)
    True
    """

    def __init__(self, like: Tensor, *, smoothness: float) -> None:
        self._rows, self._columns = (_cosines(side).to(like) for side in like.shape[2:])
        rows, columns = (torch.arange(side, device=like.device) for side in like.shape[2:])
        strength = torch.hypot(rows[:, None].to(like), columns.to(like)).clamp_min(1) ** -smoothness
        self.strength = strength / strength.square().mean().sqrt()
        """Of each wave ``[h, w]``, 1 in the mean square: what is white stays as long as it is."""

    def waves(self, images: Tensor) -> Tensor:
        """Images or gradients ``[n, c, h, w]`` -> their products with each wave, times its strength."""
        return self._rows @ images @ self._columns.T * self.strength

    def image(self, waves: Tensor) -> Tensor:
        """The sum of waves with these coefficients, each times its strength; of white noise, a smooth one."""
        return self._rows.T @ (waves * self.strength) @ self._columns


def _cosines(side: int) -> Tensor:
    """The orthonormal cosine transform ``[wave, pixel]`` (DCT-II), in float64."""
    number = torch.arange(side, dtype=torch.float64)
    cosines = torch.cos(math.pi / side * number[:, None] * (number + 0.5)) * math.sqrt(2 / side)
    cosines[0] /= math.sqrt(2)
    return cosines


class Descent:
    """Images on their way down a gradient. `follow` adds up the gradients of losses, `step` uses them up.

    Args:
        start: Normalised images ``[n, c, h, w]`` to begin with.
        facts: What is public about them.
        averaging: How much less an image counts in the average with each step after it; the start does not count.
        smoothness: How much less of fine than of coarse waves a step changes, see `Spectrum`.
    """

    def __init__(self, start: Tensor, facts: PublicFacts, *, averaging: float, smoothness: float) -> None:
        self._low, self._high = pixel_range(facts, start)
        self._averaging = averaging
        self.images = start.clamp(self._low, self._high).contiguous()
        self.average = self.images.clone()
        self._weight = start.new_zeros(())  # of all images in the average together, where the last one has 1
        self._slope = torch.zeros_like(self.images)
        self._spectrum, self._moves = Spectrum(start, smoothness=smoothness), torch.zeros_like(self.images)
        self._adam = Adam([self._moves], betas=(0.9, 0.99))
        self.set_rate = self._adam.set_rate

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that steps change from one to the next."""
        return {"images": self.images, "average": self.average, "weight": self._weight, **self._adam.tensors}

    def follow(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The loss ``[]`` of the images; its gradient is added to those that the next step uses up."""
        # A leaf of its own for each loss: one that was differentiated elsewhere could not be recorded.
        images = self.images.detach().requires_grad_()
        value = loss(images)
        self._slope += torch.autograd.grad(value, images)[0]
        return value.detach()

    def step(self) -> None:
        """Move the images along the gradients that were added up, and forget them."""
        self._adam.step([self._spectrum.waves(self._slope)])
        self.images += self._spectrum.image(self._moves)
        self.images.clamp_(self._low, self._high)
        self._weight.mul_(self._averaging).add_(1)
        self.average.lerp_(self.images, 1 / self._weight)
        self._slope.zero_()
        self._moves.zero_()


def cosine(rate: float, step: int, total: int) -> float:
    """A learning rate that falls from ``rate`` to a fiftieth of it along a cosine.

    >>> cosine(1.0, 0, 100), round(cosine(1.0, 50, 100), 2), round(cosine(1.0, 100, 100), 2)
    (1.0, 0.51, 0.02)
    """
    return rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / total)))
