"""What wards say, bounded, added up and covered in noise: answers to `VotesQuestion`s. Proof: docs/proofs/votes.md.

The bound is enforced here, on what was said, whatever code said it: a mistake in a method costs accuracy, not privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.privacy.clipping import Tally, clipped_sum
from privset.privacy.noise import NoiseSource
from privset.privacy.questions import VotesQuestion
from privset.privacy.ward_steps import Public, Say
from privset.privacy.wards import Guardian, Wards

Questions = tuple[VotesQuestion, ...]
"""Asked about the same words; those of one group are charged before a ward is heard, and never change after that."""


def check_said(question: VotesQuestion, said: Tensor) -> None:
    """Refuse what cannot be bounded as the question says; ``said [w, ...]`` by wards, or by one in a rehearsal.

    Its form is that of public code, whatever a ward has learned, and so is what is said of it here.

    Guarantee: what passes is float32 or float64, and has, for choices, as many histograms as the noise is made for.
    """
    if said.dtype not in (torch.float32, torch.float64) or said.ndim < 2:
        raise ConfigError(
            "a ward must say float32 or float64 numbers, at least one axis of them, or its part would not be bounded; "
            f"this is {str(said.dtype).removeprefix('torch.')} of shape {list(said.shape[1:])}"
        )
    found = said[0, ..., 0].numel() if said.shape[-1] else 0
    if question.kind != "vectors" and found != question.histograms:
        raise ConfigError(f"wards choose in {found} histograms, but the question is about {question.histograms}")


def tallied(questions: Questions, parts: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Parts ``[w, ...]`` of what wards say -> each clean answer, float64, and how many wards were not finite.

    Guarantee: changing what one ward says, to anything at all, moves each answer by at most its question's
    ``sensitivity`` in L2 (up to rounding of one contribution). A ward that says a NaN or an infinity contributes
    nothing. The answers are functions of the same words, so each is to have noise of its own.
    """
    # Counts are the same for all questions about them. In parts: in float64, all of them might not fit in memory.
    found: dict[float | None, list[tuple[Tensor, Tensor]]] = {question.bound: [] for question in questions}
    form = torch.Size()
    for said in parts:
        form = said.shape[1:]
        for bound, some in found.items():
            some.append(_choices(said) if bound is None else clipped_sum(said.flatten(1), bound))
    answers = []
    for question in questions:
        total, bad = (torch.stack(some).sum(0) for some in zip(*found[question.bound], strict=True))
        table = total.view(form)
        answers.append((table.amax(-1) if question.kind == "lead" else table, bad))
    return answers


def answering(
    guardian: Guardian, noise: NoiseSource, tally: Tally
) -> tuple[
    Callable[[Questions, Wards, Say, Public], None], Callable[[Questions, Wards, Say, Public], tuple[Tensor, ...]]
]:
    """The functions that check and answer questions about the same words: closures, which alone hold the guardian."""

    def check(questions: Questions, wards: Wards, say: Say, public: Public) -> None:
        said = guardian.rehearse(wards, say, public)
        for question in questions:
            check_said(question, said)

    def heard(questions: Questions, wards: Wards, say: Say, public: Public) -> Iterator[Tensor]:
        for said in guardian.hear(wards, say, public):
            for question in questions:
                check_said(question, said)
            yield said

    def covered(question: VotesQuestion, clean: Tensor, bad: Tensor) -> Tensor:
        tally.add(bad)
        _look(question, clean, tally)
        return noise.add_normal(clean, question.noise_multiplier * question.sensitivity).to(torch.float32)

    def answer(questions: Questions, wards: Wards, say: Say, public: Public) -> tuple[Tensor, ...]:
        found = tallied(questions, heard(questions, wards, say, public))
        return tuple(covered(question, *clean) for question, clean in zip(questions, found, strict=True))

    return check, answer


def _look(question: VotesQuestion, clean: Tensor, tally: Tally) -> None:
    """Count what the data holder may know of the answer: what it costs by an accountant that looks at it."""
    deviation = question.noise_multiplier * question.sensitivity
    if deviation and question.kind == "choices":
        tally.agreement.add_winners(clean, deviation)
    elif deviation and question.kind == "lead":
        tally.agreement.add_lead(clean.numel(), deviation)


def _choices(said: Tensor) -> tuple[Tensor, Tensor]:
    """Counts ``[d]`` of the largest number in each histogram ``[w, ..., bins]``: one of them, by this argmax."""
    good = said.flatten(1).isfinite().all(1)
    chosen = torch.zeros_like(said).scatter_(-1, said.nan_to_num().argmax(-1, keepdim=True), 1.0)
    return (chosen.flatten(1) * good[:, None]).sum(0, dtype=torch.float64), (~good).sum()
