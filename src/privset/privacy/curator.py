"""The only holder of the private records. It answers noisy questions, each charged before it is answered.

A method is handed a `Curator` and public facts, never a record: the records live in the closures of the two
answering functions below, and no data attribute, iterator or return value leads to them. That guards against
accidents, not against hostile code in the same process. Proofs of what each answer guarantees: docs/proofs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import vmap

from privset.data.records import Records
from privset.errors import ConfigError
from privset.facts import PublicFacts, normalise
from privset.privacy.accounting import GaussianEvent
from privset.privacy.clipping import Loss, Parameters, check_vectors, clipped_sums
from privset.privacy.gradients import RepeatedSums, clipped_gradient_sums, steady_chunk
from privset.privacy.kept import KeptAnswers
from privset.privacy.layered import LayeredLoss
from privset.privacy.ledger import Ledger
from privset.privacy.noise import NoiseSource
from privset.privacy.questions import GradientQuestion, TotalQuestion
from privset.privacy.sampling import joined, poisson_sample, samples_beside

Statistic = Callable[[Tensor, Tensor], Tensor]
"""(image [c, h, w], label []) -> vector [d]: like a loss, a pure function of one record."""

RECORDS = True
"""Whether a graphics card plays back the steps of a question that is asked again and again."""

Transform = Callable[[Tensor], Tensor]
"""image [c, h, w] -> what a loss is to see in its place: a pure function of one record, and a public one."""


class Tally:
    """What only the data holder may see: it depends on the records and is never released."""

    def __init__(self) -> None:
        self._not_finite: Tensor | int = 0

    @property
    def not_finite(self) -> int:
        """How many contributions were not finite and counted as zero."""
        return int(self._not_finite)

    def add(self, not_finite: Tensor) -> None:
        """Count so many more; a graphics card is not waited for."""
        self._not_finite = self._not_finite + not_finite


class Curator:
    """Answers questions about private records, within a budget.

    Args:
        records: The private records.
        facts: What is public about them.
        ledger: Where each question is charged before it is answered.
        noise: Source of noise and of samples.
        device: Where answers are computed.
        chunk: How many per-record gradients are held at once (memory and speed alone); None chooses.
        tally: Receives what the data holder alone may see.
        kept: Keeps the answers to `total` questions before they are given, and gives those it has again.
    """

    def __init__(
        self,
        records: Records,
        facts: PublicFacts,
        ledger: Ledger,
        noise: NoiseSource,
        *,
        device: str = "cpu",
        chunk: int | None = None,
        tally: Tally | None = None,
        kept: KeptAnswers | None = None,
    ) -> None:
        if len(records) != facts.size:
            raise ConfigError(f"{facts.name}: {len(records)} records, but the public facts say {facts.size}")
        ledger.budget.check_size(facts.size)
        if ledger.is_reopened and kept is None:
            raise ConfigError("a ledger that was opened again pays for kept answers only, and there are none here")
        self.facts = facts
        self._ledger = ledger
        self._device = device
        self._prepaid: dict[GaussianEvent, int] = {}
        self._keeps = kept is not None
        self._answer_gradient, self._answer_total, self._remember = _answers(
            records, facts, noise, device, chunk, tally or Tally(), kept
        )

    def prepay(self, question: GradientQuestion | TotalQuestion, count: int) -> None:
        """Charge ``count`` answers at once, so that a fast loop never waits for the disk.

        Raises `BudgetExceeded`, and charges nothing, if they do not all fit into the budget.
        """
        self._ledger.charge(question.event(count))
        single = question.event(1)
        self._prepaid[single] = self._prepaid.get(single, 0) + count

    def remember(self, transform: Transform, dtype: torch.dtype = torch.float32) -> None:
        """Apply a transform to all records now, and keep the values for `gradient`: nothing is answered or charged.

        What is too large for this machine, or cannot be computed, fails here, before anything was paid for.
        """
        self._remember(transform, dtype)

    def gradient(
        self,
        question: GradientQuestion,
        loss: Loss,
        parameters: Parameters,
        *,
        draws: int = 1,
        transform: Transform | None = None,
    ) -> list[Parameters]:
        """``draws`` independent noisy gradient sums at the same parameters, each on its own Poisson sample.

        Guarantee: each draw is one sampled Gaussian answer of sensitivity ``clip_norm``; all of them are charged
        before the first is computed. The sums are not divided by anything: divide by public constants only.

        Args:
            question: Rate, clipping and noise.
            loss: Of one record, a public function. A `privset.privacy.layered.LayeredLoss` is the fastest.
            parameters: Where the gradient is taken; public.
            draws: How many answers; together they take one pass over the records of all samples.
            transform: What the loss is given in place of an image, a public function that stays what it is. Evaluated
                under `torch.func.vmap`, once for each record: the curator remembers the values of the last one.
        """
        if any(value.dtype not in (torch.float32, torch.float64) for value in parameters.values()):
            raise ConfigError("gradients are asked for in float32 or float64; in less, clipping would not hold")
        if self._keeps:
            raise ConfigError("answers to gradient questions are not kept; a method that measures asks for totals only")
        if isinstance(loss, LayeredLoss):
            loss.check(parameters)
        self._pay(question, draws)
        return self._answer_gradient(question, loss, parameters, draws, transform)

    def total(self, question: TotalQuestion, statistic: Statistic, *, block: int | None = None) -> Tensor:
        """Noisy sums ``[classes, d]``, or ``[1, d]`` if not by class, of a statistic over all records.

        Guarantee: a Gaussian answer of sensitivity ``bound`` for every pure statistic that gives one vector of
        float32 or float64; any other is refused, on a blank image and before anything is charged. It is evaluated under
        `torch.func.vmap`, which keeps the records of a block apart; a vector longer than ``bound`` is shortened to
        it, and one that is not finite counts as zero. A class without records gives noise around zero. Where
        answers are kept, this one is durable before it is returned, and a kept one is returned as it is.

        Args:
            question: Bound and noise.
            statistic: Of one normalised record, a public function.
            block: Records looked at together (memory and speed alone); None chooses.
        """
        _check_statistic(statistic, self.facts, self._device)
        self._pay(question, 1)
        return self._answer_total(question, statistic, block)

    def _pay(self, question: GradientQuestion | TotalQuestion, count: int) -> None:
        if count < 1:
            raise ConfigError(f"ask for at least one answer, not {count}")
        single = question.event(1)
        credit = self._prepaid.get(single, 0)
        if credit < count:
            self.prepay(question, count - credit)
        self._prepaid[single] -= count


def _check_statistic(statistic: Statistic, facts: PublicFacts, device: str) -> None:
    """Refuse a statistic whose length could not be bounded; what it gives for a blank image tells, and no record."""
    blank = torch.zeros(1, *facts.shape, dtype=torch.uint8, device=device)
    with torch.no_grad():
        check_vectors(vmap(statistic)(normalise(blank, facts), torch.zeros(1, dtype=torch.int64, device=device)))


def _chunk_for(parameters: Parameters, device: str) -> int:
    """As many records as keep their gradients in a CPU's cache, or a GPU busy."""
    numbers = sum(value.numel() for value in parameters.values())
    return max(1, 2**28 // numbers) if device.startswith("cuda") else min(max(2**22 // numbers, 16), 256)


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


def _answers(
    records: Records,
    facts: PublicFacts,
    noise: NoiseSource,
    device: str,
    chunk: int | None,
    tally: Tally,
    kept: KeptAnswers | None,
) -> tuple[
    Callable[[GradientQuestion, Loss, Parameters, int, Transform | None], list[Parameters]],
    Callable[[TotalQuestion, Statistic, int | None], Tensor],
    Callable[[Transform, torch.dtype], Tensor],
]:
    """The functions that may look at the records, and the only references to them; the last answers no one."""
    images, labels = records.images.to(device), records.labels.to(device)
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

        most, samples = chunk or _chunk_for(parameters, device), len(members)
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

    return gradient, total, transformed
