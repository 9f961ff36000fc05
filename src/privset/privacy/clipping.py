"""What one record may contribute: vectors, or gradients over all parameters together, of bounded length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.func import grad, vmap

from privset.errors import ConfigError

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters, Tensor, Tensor], Tensor]
"""(parameters, image [c, h, w], label []) -> scalar: a pure function of one record, with no memory of others."""


@dataclasses.dataclass
class Tally:
    """What only the data holder may see: it depends on the records and is never released.

    Attributes:
        not_finite: How many contributions were not finite and counted as zero.
    """

    not_finite: int = 0


def clip_factors(squared_norms: Tensor, bound: float) -> Tensor:
    """Squared lengths ``[n]`` -> factors ``[n]`` that bring each vector to at most ``bound``.

    Guarantee: ``factor * length <= bound`` up to one rounding; a length that is NaN or infinite gets 0.

    >>> clip_factors(torch.tensor([0.25, 16.0, float("nan")]), 2.0)
    tensor([1.0000, 0.5000, 0.0000])
    """
    norms = squared_norms.sqrt()
    return torch.where(norms.isfinite(), bound / norms.clamp_min(bound), 0.0)


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
    return clipped.sum(0, dtype=torch.float64), bad


def _clip(vectors: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    check_vectors(vectors)
    factors = clip_factors(vectors.square().sum(1), bound)
    bad = factors == 0
    # 0 * NaN is NaN, so a bad row is replaced, not multiplied away.
    return torch.where(bad[:, None], 0.0, vectors * factors[:, None]), bad.sum()


def clipped_sums(vectors: Tensor, rooms: Tensor, count: int, bound: float) -> tuple[Tensor, Tensor]:
    """Vectors ``[n, d]``, each with the number of its room ``[n]`` -> sums ``[count, d]`` by room, and bad rows.

    Guarantee: adding or removing one row moves all sums together by at most ``bound`` in L2, since a row is in
    one room. Otherwise as `clipped_sum`.
    """
    clipped, bad = _clip(vectors, bound)
    # A product, since thousands of additions to the same few rows would wait for each other on a graphics card.
    belongs = torch.nn.functional.one_hot(rooms, count).to(torch.float64)
    return belongs.T @ clipped.to(torch.float64), bad


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
    per_record = vmap(grad(loss), in_dims=(None, 0, 0))
    first = next(iter(parameters.values()))
    total = torch.zeros(sum(value.numel() for value in parameters.values()), dtype=torch.float64, device=first.device)
    not_finite = torch.zeros((), dtype=torch.int64, device=first.device)
    for images, labels in chunks:
        gradients = per_record(parameters, images, labels)
        added, bad = clipped_sum(torch.cat([g.flatten(1) for g in gradients.values()], dim=1), clip_norm)
        total += added
        not_finite += bad
    pieces = total.split([value.numel() for value in parameters.values()])
    return {name: piece.view_as(parameters[name]) for name, piece in zip(parameters, pieces, strict=True)}, not_finite
