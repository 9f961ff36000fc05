"""How generated images should change, as a loss that looks at records sees it: the answers to a `PullbackQuestion`.

A generator is trained by the gradient of a loss with respect to its images, carried back ("pulled back") to its
weights. Only that gradient has seen records, so it alone is bounded and covered in noise. It is bounded as a whole,
whatever was made of the records, so nothing needs to be known of the loss. Proof: docs/proofs/pullback.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.facts import PublicFacts, normalise
from privset.privacy.clipping import Tally, clip_factors
from privset.privacy.noise import NoiseSource
from privset.privacy.questions import PullbackQuestion
from privset.privacy.sampling import fixed_sample, seated_sample
from privset.privacy.ward_steps import Public, Say
from privset.privacy.wards import Guardian, Wards
from privset.recording import Beside, recorded

Pull = Callable[..., Tensor]
"""(generated [m, c, h, w], *public, images [k, c, h, w], labels [k], weights [k]) -> [m, c, h, w].

The gradient of a loss by the generated images, or any other function without memory. The images are normalised records,
weights add up to 1, and rows of weight 0 are blank."""
Make = Callable[[], tuple[Tensor, ...]]
"""The generated images of a step, and what else its pull is given."""
Use = Callable[[Tensor], None]
"""What is done with an answer."""


def shortened_sum(gradients: Tensor, clip_norm: float, *, each_image: bool) -> tuple[Tensor, Tensor]:
    """Gradients ``[n, m, ...]``, of n losses by m images -> their float64 sum ``[m, ...]``, how many were not finite.

    Each of the n is first shortened to ``clip_norm`` over all images together; with ``each_image``, each image's part
    of it to ``clip_norm / sqrt(m)``, which comes to the same bound.

    Guarantee: changing one of the n to anything at all moves the sum by at most 2 ``clip_norm`` in L2, over all images
    together (up to rounding of one of them). What is not finite counts as zero.
    """
    rows = gradients.flatten(2).to(torch.float64)
    squares = rows.square().sum(2)
    if each_image:
        factors = clip_factors(squares, clip_norm / math.sqrt(max(1, rows.shape[1])))
    else:
        factors = clip_factors(squares.sum(1, keepdim=True), clip_norm)
    bad = factors == 0
    # 0 * NaN is NaN, so what is bad is replaced, not multiplied away.
    kept = torch.where(bad[..., None], 0.0, rows * factors[..., None])
    total = kept[0] if len(kept) == 1 else kept.sum(0)
    return total.view(gradients.shape[1:]), bad.any(1).sum()


def places_for(size: int, rate: float) -> int:
    """How many records of a sample a loss is shown at most; a function of public numbers.

    A sample is larger once in tens of thousands of times; then its last records are left out.

    >>> places_for(60_000, 50 / 60_000), places_for(100, 1.0)
    (83, 100)
    """
    expected = rate * size
    return size if rate >= 1 else min(size, math.ceil(expected + 4 * math.sqrt(expected) + 4))


def pulling(
    images: Tensor, labels: Tensor, facts: PublicFacts, noise: NoiseSource, tally: Tally
) -> tuple[Callable[[PullbackQuestion, Pull, Make], Tensor], Callable[[PullbackQuestion, Pull, Make, Use, int], None]]:
    """The functions that answer about samples of records, once or step by step: closures, which alone hold them."""
    steps: dict[tuple[PullbackQuestion, Pull, Make, Use], Callable[[], Tensor]] = {}
    beside, bad = Beside(images.device), torch.zeros((), dtype=torch.int64, device=images.device)

    def answer(question: PullbackQuestion, pull: Pull, make: Make) -> Tensor:
        covered, not_finite = noisy(question, pull, make)
        tally.add(not_finite)
        return covered

    def train(question: PullbackQuestion, pull: Pull, make: Make, learn: Use, times: int) -> None:
        def step() -> Tensor:
            covered, not_finite = noisy(question, pull, make)
            learn(covered)
            return bad.add_(not_finite)

        if (asked := (question, pull, make, learn)) not in steps:
            steps.clear()
            steps[asked] = recorded(step, images.device, [noise.counted])
        bad.zero_()
        for _ in range(times):
            steps[asked]()
        tally.add(bad.clone())

    def noisy(question: PullbackQuestion, pull: Pull, make: Make) -> tuple[Tensor, Tensor]:
        """The answer, and 1 if the gradient is not finite.

        Sample and noise are drawn in here, by a graphics card in the same recording: no clean gradient leaves it.
        """
        with beside.begin():  # who takes part is not for what is generated to wait for
            places = places_for(facts.size, question.sampling_rate)
            numbers, count = seated_sample(noise, len(labels), question.sampling_rate, places, images.device)
            shown, any_shown = _shown(images, labels, facts, numbers, count), count > 0
        generated, *public = make()
        check_generated(generated)
        beside.join(any_shown, *shown)
        slope = pull(generated, *public, *shown)
        if slope.shape != generated.shape or slope.dtype != generated.dtype:
            raise ConfigError(
                f"a pull must be of the form of what is generated, {generated.dtype} of {list(generated.shape)}, and "
                f"not {slope.dtype} of {list(slope.shape)}"
            )
        # What is made of no records is no one's business.
        slope = torch.where(any_shown, slope, 0.0)
        total, not_finite = shortened_sum(slope.detach()[None], question.clip_norm, each_image=question.each_image)
        covered = noise.add_normal(total, question.noise_multiplier * question.sensitivity)
        return covered.to(generated.dtype), not_finite

    return answer, train


def pulling_by_wards(
    guardian: Guardian, noise: NoiseSource, tally: Tally
) -> tuple[
    Callable[[PullbackQuestion, Wards, Say, Public], None], Callable[[PullbackQuestion, Wards, Say, Public], Tensor]
]:
    """The functions that check and answer about wards, all or a secret few of them: closures, as above."""

    def check(question: PullbackQuestion, wards: Wards, say: Say, public: Public) -> None:
        _asked(question, wards)
        _check_said(guardian.rehearse(wards, say, public))

    def answer(question: PullbackQuestion, wards: Wards, say: Say, public: Public) -> Tensor:
        asked = _asked(question, wards)
        which = None if asked == wards.count else fixed_sample(noise, wards.count, asked)
        total, not_finite = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        for said in guardian.hear(wards, say, public, which):
            _check_said(said)
            added, bad = shortened_sum(said, question.clip_norm, each_image=question.each_image)
            total, not_finite = total.to(added) + added, not_finite.to(bad) + bad
        tally.add(not_finite)
        return noise.add_normal(total, question.noise_multiplier * question.sensitivity).to(torch.float32)

    return check, answer


def check_generated(generated: Tensor) -> None:
    """Refuse images whose gradient could not be bounded."""
    if generated.dtype not in (torch.float32, torch.float64):
        raise ConfigError("gradients are asked for in float32 or float64; in less, clipping would not hold")


def _check_said(said: Tensor) -> None:
    """Refuse what could not be bounded; the form of what wards say ``[w, ...]`` is that of public code."""
    if said.dtype not in (torch.float32, torch.float64) or said.ndim < 3:
        raise ConfigError(
            "a ward must give a gradient of float32 or float64 for each generated image, or its part would not be "
            f"bounded; this is {str(said.dtype).removeprefix('torch.')} of shape {list(said.shape[1:])}"
        )


def _asked(question: PullbackQuestion, wards: Wards) -> int:
    """How many wards take part: the share that is charged must be that of a whole number of them."""
    asked = round(question.sampling_rate * wards.count)
    if not question.of_wards or not asked or asked / wards.count > question.sampling_rate:
        raise ConfigError(
            f"the question is about {'wards' if question.of_wards else 'records'}, {question.sampling_rate:g} of them; "
            f"of {wards.count} wards that is no whole number of wards"
        )
    return asked


def _shown(
    images: Tensor, labels: Tensor, facts: PublicFacts, numbers: Tensor, count: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The first ``count []`` of these records, normalised ``[n, c, h, w]``, labels, weights ``[n]``; the rest is blank.

    Not filled up with other records, even of weight 0: a record that was not drawn must not be there at all.
    """
    drawn = torch.arange(len(numbers), device=count.device) < count
    weights = torch.where(drawn, 1 / count.clamp_min(1), 0.0)
    shown = torch.where(drawn[:, None, None, None], normalise(images[numbers], facts), 0.0)
    return shown, torch.where(drawn, labels[numbers], 0), weights
