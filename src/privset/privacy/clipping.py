"""What one record may contribute: vectors, or gradients over all parameters together, of bounded length."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.func import grad, vmap

from privset.errors import ConfigError
from privset.privacy.agreement import Agreement

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters, Tensor, Tensor], Tensor]
"""(parameters, image [c, h, w], label []) -> scalar: a pure function of one record, with no memory of others."""


class Tally:
    """What only the data holder may see: it depends on the records and is never released."""

    def __init__(self) -> None:
        self._not_finite: Tensor | int = 0
        self.left_out = 0
        """Records that no ward learns from, since their class has too many for the seats there are: of each time that
        wards are appointed."""
        self.agreement = Agreement()
        """What votes cost by an accountant that looks at them."""

    @property
    def not_finite(self) -> int:
        """How many contributions were not finite and counted as zero."""
        return int(self._not_finite)

    def add(self, not_finite: Tensor) -> None:
        """Count so many more; a graphics card is not waited for."""
        self._not_finite = self._not_finite + not_finite


def clip_factors(squared_norms: Tensor, bound: float) -> Tensor:
    """Squared lengths ``[n]`` -> factors ``[n]`` that bring each vector to at most ``bound``.

    Guarantee: ``factor * length <= bound`` up to one rounding; a length that is NaN or infinite gets 0.

    >>> clip_factors(torch.tensor([0.25, 16.0, float("nan")]), 2.0)
    tensor([1.0000, 0.5000, 0.0000])
    """
    # Of an infinite length this is 0 by itself.
    return (bound / squared_norms.sqrt().clamp_min(bound)).nan_to_num(nan=0.0)


def check_vectors(vectors: Tensor) -> None:
    """Refuse what is not one vector of float32 or float64 for each record, ``[n, d]``.

    Guarantee: what passes can be clipped. Squares of integers wrap and those of halves overflow or vanish, so that a
    long vector would look short; the length of a table is not that of its rows.
    """
    if vectors.ndim != 2 or vectors.dtype not in (torch.float32, torch.float64):
        raise ConfigError(
            "each record must give one vector of float32 or float64, else its part would not be bounded; this is "
            f"{str(vectors.dtype).removeprefix('torch.')} of shape {list(vectors.shape[1:])} for each of them"
        )


def clipped_sum(vectors: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Vectors ``[n, d]`` -> the sum ``[d]`` of them, each shortened to ``bound``, and how many were not finite.

    Guarantee: adding or removing one row moves the sum by at most ``bound`` in L2 (up to rounding of one row). A
    row with a NaN or an infinity counts as zero; no rows give zeros. The sum is float64: added up in float32,
    thousands of rows round by more than one of them may count.
    """
    clipped, bad = _clip(vectors, bound)
    return clipped.sum(0, dtype=torch.float64), bad.sum()


def _clip(vectors: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    check_vectors(vectors)
    factors = clip_factors(vectors.square().sum(1), bound)
    bad = factors == 0
    # 0 * NaN is NaN, so a bad row is replaced, not multiplied away.
    return torch.where(bad[:, None], 0.0, vectors * factors[:, None]), bad


def clipped_sums(vectors: Tensor, rooms: Tensor, count: int, bound: float) -> tuple[Tensor, Tensor]:
    """Vectors ``[n, d]``, each with the number of its room ``[n]`` -> sums ``[count, d]`` by room, and bad rows.

    Guarantee: adding or removing one row moves all sums together by at most ``bound`` in L2, since a row is in
    one room. Otherwise as `clipped_sum`.
    """
    clipped, bad = _clip(vectors, bound)
    # A product, since thousands of additions to the same few rows would wait for each other on a graphics card.
    belongs = torch.nn.functional.one_hot(rooms, count).to(torch.float64)
    return belongs.T @ clipped.to(torch.float64), bad.sum()


@dataclasses.dataclass(frozen=True)
class Shares:
    """How much of each of n rows goes into each of k sums: ``each [k, n]``; a share of 0 leaves a row out."""

    each: Tensor

    @functools.cached_property
    def taken(self) -> tuple[Tensor, Tensor]:
        """For each sum the numbers of the rows that are in it, one after the other ``[k, n + 1]``, and how many."""
        inside = self.each != 0
        count = self.each.shape[1]
        places = torch.where(inside, inside.cumsum(1) - 1, count)  # the last place is for all that are left out
        numbers = torch.arange(count, dtype=torch.int32, device=self.each.device).expand_as(places)
        order = torch.zeros(len(self.each), count + 1, dtype=torch.int32, device=self.each.device)
        return order.scatter_(1, places, numbers), inside.sum(1, dtype=torch.int32)


class Totals:
    """Sums of gradients for each of several samples, in float64, by name of the parameter.

    Args:
        parameters: What gradients are taken by.
        samples: How many sums.
    """

    def __init__(self, parameters: Parameters, samples: int) -> None:
        device = next(iter(parameters.values())).device
        self._shapes = {name: value.shape for name, value in parameters.items()}
        self.flat = torch.zeros(
            samples, sum(map(torch.Size.numel, self._shapes.values())), dtype=torch.float64, device=device
        )
        """``[samples, d]``, all parameters laid end to end."""
        parts = self.flat.split([shape.numel() for shape in self._shapes.values()], dim=1)
        self._parts = dict(zip(self._shapes, parts, strict=True))

    def of(self, name: str) -> Tensor:
        """The part ``[samples, numbers]`` of one parameter; what is added to it is added to the totals."""
        return self._parts[name]

    def each(self, flat: Tensor | None = None) -> list[Parameters]:
        """The totals of each sample, or numbers ``[n, d]`` laid out like them, in the shapes of the parameters."""
        sizes = [shape.numel() for shape in self._shapes.values()]
        return [
            {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), row.split(sizes), strict=True)}
            for row in (self.flat if flat is None else flat)
        ]


def vmapped_sums(
    loss: Loss,
    parameters: Parameters,
    images: Tensor,
    labels: Tensor,
    members: Tensor,
    clip_norm: float,
    totals: Totals,
) -> Tensor:
    """Add to ``totals`` the clipped gradients of the records of each of k samples, for any loss.

    Guarantee: that of `privset.privacy.gradients.clipped_gradient_sums`. The loss is evaluated under
    `torch.func.vmap`, which keeps the records apart, on parameters that lie in memory as plainly as they can.

    Args:
        loss: Of one record, and pure; it leaves weights of convolutions in the order in which they are given.
        parameters: Where gradients are taken.
        images: ``[n, ...]``, as the loss sees them.
        labels: ``[n]``.
        members: ``[k, n]``, which record is in which sample.
        clip_norm: The bound, over all parameters together.
        totals: Where they are added.

    Returns:
        Which records ``[n]`` have a gradient that is not finite, or too long for its length to be, and were left out.
    """
    # Weights of one channel that say they lie channels last have a processor's library read beside the maps, memory of
    # other records; `contiguous` would leave them so.
    plain = {name: value.clone(memory_format=torch.contiguous_format) for name, value in parameters.items()}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(plain, images, labels)
    clipped, bad = _clip(torch.cat([g.flatten(1) for g in gradients.values()], dim=1), clip_norm)
    for total, member in zip(totals.flat, members, strict=True):
        if clipped.is_cuda:
            total += member.to(torch.float64) @ clipped.to(torch.float64)
        elif member.any():  # a chunk has records of few samples
            total += (clipped if member.all() else clipped[member]).sum(0, dtype=torch.float64)
    return bad


def clipped_gradient_sum(
    loss: Loss, parameters: Parameters, chunks: Iterable[tuple[Tensor, Tensor]], *, clip_norm: float
) -> tuple[Parameters, Tensor]:
    """Chunks of (images ``[n, c, h, w]``, labels ``[n]``) -> summed gradients, and how many were not finite.

    Each record's gradient, over all parameters together, is shortened to ``clip_norm`` first.

    Guarantee: adding or removing one record moves the sum, over all parameters together, by at most
    ``clip_norm`` in L2 (up to float rounding). A gradient that is not finite, or too long for its length to
    be, counts as zero; an empty batch gives zeros.

    Args:
        loss: Of one record, and pure; evaluated under `torch.func.vmap`, which keeps the records of a chunk apart.
        parameters: Where the gradient is taken; float32 or float64. The sums are float64.
        chunks: The batch in pieces; their size changes memory and speed alone.
        clip_norm: The bound.
    """
    totals = Totals(parameters, 1)
    not_finite = torch.zeros((), dtype=torch.int64, device=totals.flat.device)
    for images, labels in chunks:
        everyone = torch.ones(1, len(labels), dtype=torch.bool, device=labels.device)
        not_finite += vmapped_sums(loss, parameters, images, labels, everyone, clip_norm, totals).sum()
    return totals.each()[0], not_finite
