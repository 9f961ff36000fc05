"""What wards say, bounded, added up and covered in noise: the answer to a `VotesQuestion`. Proof: docs/proofs/votes.md.

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
from privset.privacy.wards import Guardian, Public, Say, Wards


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


def tallied(question: VotesQuestion, parts: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Parts ``[w, ...]`` of what wards say -> the clean answer, float64, and how many wards were not finite.

    Guarantee: changing what one ward says, to anything at all, moves the answer by at most ``question.sensitivity`` in
    L2 (up to rounding of one contribution). A ward that says a NaN or an infinity contributes nothing.
    """
    found, form = [], torch.Size()
    for said in parts:
        form = said.shape[1:]
        found.append(_vectors(said, question) if question.bound is not None else _choices(said))
    total, bad = (torch.stack(some).sum(0) for some in zip(*found, strict=True))
    table = total.view(form)
    return (table.amax(-1) if question.kind == "lead" else table), bad


def answering(
    guardian: Guardian, noise: NoiseSource, tally: Tally
) -> tuple[Callable[..., None], Callable[..., Tensor]]:
    """The functions that check and answer (question, wards, say, public): closures, which alone hold the guardian."""

    def check(question: VotesQuestion, wards: Wards, say: Say, public: Public) -> None:
        check_said(question, guardian.rehearse(wards, say, public))

    def heard(question: VotesQuestion, wards: Wards, say: Say, public: Public) -> Iterator[Tensor]:
        for said in guardian.hear(wards, say, public):
            check_said(question, said)
            yield said

    def answer(question: VotesQuestion, wards: Wards, say: Say, public: Public) -> Tensor:
        clean, bad = tallied(question, heard(question, wards, say, public))
        tally.add(bad)
        _look(question, clean, tally)
        return noise.add_normal(clean, question.noise_multiplier * question.sensitivity).to(torch.float32)

    return check, answer


def _look(question: VotesQuestion, clean: Tensor, tally: Tally) -> None:
    """Count what the data holder may know of the answer: what it costs by an accountant that looks at it."""
    deviation = question.noise_multiplier * question.sensitivity
    if deviation and question.kind == "choices":
        tally.agreement.add_winners(clean, deviation)
    elif deviation and question.kind == "lead":
        tally.agreement.add_lead(clean.numel(), deviation)


def _vectors(said: Tensor, question: VotesQuestion) -> tuple[Tensor, Tensor]:
    """The sum ``[d]`` of contributions ``[w, ...]``, each shortened to the bound as a whole."""
    assert question.bound is not None
    return clipped_sum(said.flatten(1), question.bound)


def _choices(said: Tensor) -> tuple[Tensor, Tensor]:
    """Counts ``[d]`` of the largest number in each histogram ``[w, ..., bins]``: one of them, by this argmax."""
    good = said.flatten(1).isfinite().all(1)
    chosen = torch.zeros_like(said).scatter_(-1, said.nan_to_num().argmax(-1, keepdim=True), 1.0)
    return (chosen.flatten(1) * good[:, None]).sum(0, dtype=torch.float64), (~good).sum()
