"""Clipped gradient sums of several samples of the same records, at the same parameters and in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

from privset.privacy.clipping import Loss, Parameters, Totals, vmapped_sums
from privset.privacy.layered import LayeredLoss, layered_sums
from privset.recording import recorded

Look = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Numbers ``[n]`` of records -> their images ``[n, ...]``, as a loss sees them, and their labels ``[n]``."""


def clipped_gradient_sums(
    loss: Loss,
    parameters: Parameters,
    chunks: Iterable[tuple[Tensor, Tensor, Tensor]],
    *,
    samples: int,
    clip_norm: float,
) -> tuple[Totals, Tensor]:
    """Chunks of (images ``[n, ...]``, labels ``[n]``, members ``[samples, n]``) -> a summed gradient for each sample.

    Each record's gradient, over all parameters together, is shortened to ``clip_norm`` first. It is computed once,
    however many samples the record is in.

    Guarantee: adding or removing one record moves the sum of every sample that it is in, over all parameters
    together, by at most ``clip_norm`` in L2 (up to float rounding), and leaves all other sums as they are. A gradient
    that is not finite, or too long for its length to be, counts as zero; a sample without records gives zeros.

    Args:
        loss: Of one record, and pure. A `LayeredLoss` is taken layer by layer, any other under `torch.func.vmap`.
        parameters: Where the gradient is taken; float32 or float64. The sums are float64.
        chunks: The records of all samples, each once; how they are divided changes memory and speed alone.
        samples: How many.
        clip_norm: The bound.

    Returns:
        The sums, and how many contributions were not finite.
    """
    totals = Totals(parameters, samples)
    not_finite = torch.zeros((), dtype=torch.int64, device=totals.flat.device)
    for images, labels, members in chunks:
        if not len(labels):
            continue
        _add(loss, parameters, images, labels, members, clip_norm, totals, not_finite)
    return totals, not_finite


def _add(
    loss: Loss,
    parameters: Parameters,
    images: Tensor,
    labels: Tensor,
    members: Tensor,
    clip_norm: float,
    totals: Totals,
    not_finite: Tensor,
) -> None:
    add = layered_sums if isinstance(loss, LayeredLoss) else vmapped_sums
    bad = add(loss, parameters, images, labels, members, clip_norm, totals)  # type: ignore[arg-type]
    not_finite += (members & bad).sum()


class RepeatedSums:
    """`clipped_gradient_sums` for the same loss again and again, in steps that a graphics card plays back.

    All that a step reads or writes stays where it is: parameters are copied in, and every chunk has the same size. One
    that is not full has the first record in its empty places, which is in no sample.

    Args:
        loss: Of one record.
        parameters: Of the shapes to come.
        look: Finds records; the records stay where they are too.
        samples: How many.
        clip_norm: The bound.
        chunk: Records of a step.
    """

    def __init__(
        self, loss: Loss, parameters: Parameters, look: Look, *, samples: int, clip_norm: float, chunk: int
    ) -> None:
        self._parameters = {name: value.detach().clone() for name, value in parameters.items()}
        self._totals, self._chunk = Totals(parameters, samples), chunk
        self._not_finite = torch.zeros((), dtype=torch.int64, device=self._totals.flat.device)

        def step(part: Tensor, members: Tensor) -> Tensor:
            images, labels = look(part)
            _add(loss, self._parameters, images, labels, members, clip_norm, self._totals, self._not_finite)
            return self._not_finite

        self._step = recorded(step, self._totals.flat.device)

    def sums(self, parameters: Parameters, records: Tensor, members: Tensor) -> tuple[Totals, Tensor]:
        """Numbers of records ``[n]``, members ``[samples, n]`` -> as `clipped_gradient_sums`, until the next call.

        Guarantee: every record is in one chunk, however many chunks that takes; none is dropped.
        """
        for name, value in parameters.items():
            self._parameters[name].copy_(value)
        self._totals.flat.zero_()
        self._not_finite.zero_()
        for part, own in filled(records, members, self._chunk):
            self._step(part, own)
        return self._totals, self._not_finite


def filled(records: Tensor, members: Tensor, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Records ``[n]``, members ``[samples, n]`` -> chunks of one size; record 0 fills the last, a member of nothing.

    >>> [(part.tolist(), own.tolist()) for part, own in filled(torch.tensor([3, 4, 7]), torch.ones(1, 3).bool(), 2)]
    [([3, 4], [[True, True]]), ([7, 0], [[True, False]])]
    """
    missing = -len(records) % chunk
    records, members = F.pad(records, (0, missing)), F.pad(members, (0, missing))
    return zip(records.split(chunk), members.split(chunk, dim=1), strict=True) if len(records) else iter(())


def steady_chunk(size: int, rate: float, draws: int, most: int) -> int:
    """A size of chunks, at most ``most``, for which nearly always the same number of them is full or nearly so.

    A public function of the question: so many records as take part in any of its draws, and four deviations more, fit.

    >>> steady_chunk(60_000, 256 / 60_000, 10, 845), steady_chunk(12_000, 256 / 12_000, 10, 845)
    (677, 834)
    >>> steady_chunk(1000, 1.0, 1, 300)
    250
    """
    chance = 1 - (1 - min(1.0, rate)) ** draws
    expected = min(size, size * chance + 4 * math.sqrt(size * chance * (1 - chance)))
    chunks = max(1, math.ceil(expected / most))
    return max(1, math.ceil(expected / chunks))
