"""Answers that are sums over records: of their gradients, on samples, and of their statistics, on everyone.

Records live in the closures that `summing` makes; the curator holds these, and charges before it asks them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import vmap

from privset.facts import PublicFacts, normalise
from privset.privacy.clipping import Loss, Parameters, Tally, check_vectors, clipped_sums
from privset.privacy.gradients import RepeatedSums, clipped_gradient_sums, steady_chunk
from privset.privacy.kept import KeptAnswers
from privset.privacy.layered import LayeredLoss, coarsely
from privset.privacy.noise import NoiseSource
from privset.privacy.questions import GradientQuestion, TotalQuestion
from privset.privacy.sampling import joined, poisson_sample, samples_beside

Statistic = Callable[[Tensor, Tensor], Tensor]
"""(image [c, h, w], label []) -> vector [d]: like a loss, a pure function of one record."""

RECORDS = True
"""Whether a graphics card plays back the steps of a question that is asked again and again."""

Transform = Callable[[Tensor], Tensor]
"""image [c, h, w] -> what a loss is to see in its place: a pure function of one record, and a public one."""


def check_statistic(statistic: Statistic, facts: PublicFacts, device: str) -> None:
    """Refuse a statistic whose length could not be bounded; what it gives for a blank image tells, and no record."""
    blank = torch.zeros(1, *facts.shape, dtype=torch.uint8, device=device)
    with torch.no_grad():
        check_vectors(vmap(statistic)(normalise(blank, facts), torch.zeros(1, dtype=torch.int64, device=device)))


def _chunk_for(loss: Loss, parameters: Parameters, device: str, pixels: int) -> int:
    """As many records as were fastest on a CPU, by how much memory their gradients take, or as keep a GPU busy.

    Gradients that are taken layer by layer are written once and read once: more records at a time are faster then.
    """
    layered = isinstance(loss, LayeredLoss)
    # Of a matrix product's gradient, which has rank one, only the two sides are held, in float64.
    numbers = sum(2 * sum(one.shape) if layered and one.ndim == 2 else one.numel() for one in parameters.values())
    if device.startswith("cuda"):
        return max(1, 2**29 // numbers)
    held = 2**24 if not layered else 2**26 if coarsely(torch.device(device), parameters.values(), pixels) else 2**25
    return min(max(held // numbers, 16), 256)


def _parts(count: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Starts and ends of parts of about the same size, none larger than ``chunk``.

    >>> list(_parts(7, 3))
    [(0, 3), (3, 5), (5, 7)]
    """
    parts = -(-count // chunk)
    borders = [-(-count * number // parts) for number in range(parts + 1)] if parts else []
    return itertools.pairwise(borders)


def _block_for(device: str) -> int:
    """Records to look at together: on a CPU more would leave its caches, on a GPU fewer would leave it idle."""
    if not device.startswith("cuda"):
        return 200
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return max(100, min(10_000, free // 2**22))  # 4 MB a record, for networks of 128 channels on 32x32 pixels


def summing(
    images: Tensor,
    labels: Tensor,
    facts: PublicFacts,
    noise: NoiseSource,
    device: str,
    chunk: int | None,
    tally: Tally,
    kept: KeptAnswers | None,
) -> tuple[
    Callable[[GradientQuestion, Loss, Parameters, int, Transform | None], list[Parameters]],
    Callable[[TotalQuestion, Statistic, int | None], Tensor],
    Callable[[Transform, torch.dtype], None],
]:
    """The functions that may look at the records, and the only references to them; the last answers no one."""
    seen: dict[tuple[Transform, torch.dtype], Tensor] = {}

    def transformed(transform: Transform, dtype: torch.dtype) -> Tensor:
        """What a transform gives for every record, whoever takes part: each is looked at by itself, and once."""
        if (transform, dtype) not in seen:
            seen.clear()
            of_each, block = vmap(transform), chunk or _block_for(device)
            with torch.no_grad():
                blank = of_each(normalise(images[:1].new_zeros(1, *images.shape[1:]), facts, dtype))
                values = blank.new_empty(len(images), *blank.shape[1:])
                for start in range(0, len(images), block):
                    values[start : start + block] = of_each(normalise(images[start : start + block], facts, dtype))
            seen[transform, dtype] = values
        return seen[transform, dtype]

    def remember(transform: Transform, dtype: torch.dtype) -> None:
        transformed(transform, dtype)

    repeated: dict[tuple[object, ...], RepeatedSums] = {}
    sampling = torch.cuda.Stream(images.device) if images.is_cuda else None

    def drawn(rate: float, std: float, draws: int, numbers: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Who takes part in any draw ``[n]``, who in which ``[draws or 1, n]``, and noise ``[draws, numbers]``."""
        if sampling is None:
            chosen, noises = [], []
            for _ in range(draws):  # one after the other, so that a seed gives the same however many are asked for
                chosen.append(poisson_sample(noise, len(labels), rate))
                noises.append(noise.normals(numbers, labels.device) if std else None)
            taken, members = joined(chosen[:1] if rate >= 1 else chosen)
            return taken, members, torch.stack(noises) if std else None
        taken, members = samples_beside(sampling, noise, len(labels), rate, draws)
        return taken, members, noise.normals(draws * numbers, labels.device).view(draws, numbers) if std else None

    def gradient(
        question: GradientQuestion, loss: Loss, parameters: Parameters, draws: int, transform: Transform | None
    ) -> list[Parameters]:
        first, std = next(iter(parameters.values())), question.noise_multiplier * question.clip_norm
        numbers = sum(value.numel() for value in parameters.values())
        taken, members, noises = drawn(question.sampling_rate, std, draws, numbers)

        seen_before = None if transform is None else transformed(transform, first.dtype)

        def look(part: Tensor) -> tuple[Tensor, Tensor]:
            given = normalise(images[part], facts, first.dtype) if seen_before is None else seen_before[part]
            return given, labels[part]

        most, samples = chunk or _chunk_for(loss, parameters, device, math.prod(facts.shape[1:])), len(members)
        if RECORDS and images.is_cuda and isinstance(loss, LayeredLoss):
            key = (question, loss, transform, samples, first.dtype)
            if key not in repeated:
                repeated.clear()
                size = steady_chunk(len(labels), question.sampling_rate, samples, most)
                repeated[key] = RepeatedSums(
                    loss, parameters, look, samples=samples, clip_norm=question.clip_norm, chunk=size
                )
            totals, bad = repeated[key].sums(parameters, taken, members)
        else:
            parts = [(taken[start:end], members[:, start:end]) for start, end in _parts(len(taken), most)]
            chunks = ((*look(part), own) for part, own in parts)
            totals, bad = clipped_gradient_sums(loss, parameters, chunks, samples=samples, clip_norm=question.clip_norm)
        tally.add(bad * (draws // len(members)))
        sums = totals.flat.expand(draws, -1)  # with everyone in each draw, all have the same sum
        return totals.each((sums.clone() if noises is None else sums + std * noises).to(first.dtype))

    def total(question: TotalQuestion, statistic: Statistic, block: int | None) -> Tensor:
        std = question.noise_multiplier * question.bound
        if kept is not None and (answer := kept.recall(question)) is not None:
            # Drawn and thrown away: noise from a seed must go on where it stood, and never serve two questions.
            noise.add_normal(torch.zeros_like(answer, device=device), std)
            return answer.to(device)
        block = block or _block_for(device)
        of_each, rooms = vmap(statistic), len(facts.classes) if question.by_class else 1
        sums = torch.zeros(rooms, 1, dtype=torch.float64, device=device)
        not_finite = torch.zeros((), dtype=torch.int64, device=device)
        for start in range(0, len(labels), block):
            part = labels[start : start + block]
            with torch.no_grad():
                rows = of_each(normalise(images[start : start + block], facts), part)
            room = part if question.by_class else torch.zeros_like(part)
            added, bad = clipped_sums(rows, room, rooms, question.bound)
            sums, not_finite = sums + added, not_finite + bad
        tally.add(not_finite)
        answer = noise.add_normal(sums, std).to(torch.float32)
        return answer if kept is None else kept.keep(question, answer)

    return gradient, total, remember
