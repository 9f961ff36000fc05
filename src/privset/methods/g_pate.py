"""G-PATE: teachers vote on where generated images should move (Long, Wang, Yang, Kailkhura, Zhang, Gunter, Li; 2021).

Every teacher projects its gradient of each image to a few random directions, and votes, in each of them, for one of ten
bins. Counts are answered with noise, and the image moves to the middle of the bin that won, if enough teachers agree.
docs/methods/g-pate.md has what is proven, which is not what the paper's accountant says, and where the code differs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.claim import REPLACE, Claim
from privset.methods.plan import Plan
from privset.methods.settings import require, require_at_least_one, require_positive
from privset.methods.teachers import Moves, TeacherConfig, TeacherMethod, claimed_epsilon, discriminator_of, wishes
from privset.privacy import Curator, GaussianEvent, VotesQuestion, Wards
from privset.privacy.ward_steps import Public, State
from privset.recording import sent


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig(TeacherConfig):
    """Settings of G-PATE."""

    projections: int = 10
    """Random directions that the gradient of each image is voted on in."""
    bins: int = 10
    """Bins of every vote."""
    limit: float = 1e-4
    """The bins divide the numbers from minus this to this; what lies outside is in the last."""
    check: float | None = None
    """Deviation of the noise of a separate question whether teachers agree, in multiples of sigma; None asks none, and
    has the noisy counts tell it, which costs nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "projections")
        require(self.bins >= 2, f"bins must be at least 2, not {self.bins}")
        require_positive(self, "limit", "check")

    @classmethod
    def paper(cls, *, per_class: int = 10, epsilon: float = 10.0) -> GPateConfig:
        """The published settings for epsilon 10, and for epsilon 1 and all below 10; as many steps as are proven.

        >>> GPateConfig.paper(epsilon=1).sigma
        1000.0
        """
        published = (100.0, 6.0, 2000, 30, 100) if epsilon >= 10 else (1000.0, 3.0, 4000, 15, 50)
        sigma, check, teachers, batch, code = published
        return cls(
            per_class=per_class,
            teachers=teachers,
            batch_size=batch,
            images=batch,
            code=code,
            same_codes=True,
            steps=1000 if math.isinf(epsilon) else None,
            sigma=None if math.isinf(epsilon) else sigma,
            check=check,
        )

    @classmethod
    def standard(cls, *, per_class: int = 10, epsilon: float = 10.0) -> GPateConfig:
        """The published networks; noise calibrated to what is proven, and no question that is not needed."""
        return cls(per_class=per_class, steps=1000 if epsilon >= 10 else 300)

    @classmethod
    def small(cls, *, per_class: int = 10) -> GPateConfig:
        """Seconds on two CPU cores for small images and a thousand records or so.

        Chosen on held-out training records of `digits`, but for what docs/methods/g-pate.md names: an accuracy on the
        test split of digits is a demonstration, not a result.
        """
        return cls(
            per_class=per_class,
            teachers=288,
            batch_size=4,
            pretraining=8,
            images=10,
            generator_steps=10,
            steps=40,
            rate=3e-3,
            threshold=0.0,
            code=8,
            generator_width=64,
            generator_maps=16,
            teacher_width=16,
            teacher_maps=4,
            teacher_norm=False,
            label_weight=4.0,
            projections=16,
            bins=2,
            limit=0.2,
        )


class GPate(TeacherMethod[GPateConfig]):
    """A generator trained by votes on random projections of gradients."""

    name = "g-pate"
    summary = "Teachers on disjoint shards vote on projected gradients of generated images; a generator follows"
    reference = (
        "Long, Wang, Yang, Kailkhura, Zhang, Gunter, Li: G-PATE: Scalable Differentially Private Data Generator via "
        "Private Aggregation of Teacher Discriminators, NeurIPS 2021"
    )
    config_type = GPateConfig
    presets: ClassVar = {
        "standard": lambda per_class, epsilon: GPateConfig.standard(per_class=per_class, epsilon=epsilon),
        "paper": lambda per_class, epsilon: GPateConfig.paper(per_class=per_class, epsilon=epsilon),
        "small": lambda per_class, _: GPateConfig.small(per_class=per_class),
    }
    """``standard``: calibrated noise; ``paper``: the published noise too; ``small``: seconds on a CPU."""
    claims = (
        "published are epsilon 1 and 10 by an accountant that looks at the votes, so that they depend on the records; "
        "where it does not look it gives 1.32 and 11.7, for replacing a record, for what is proven to cost 0.998 and "
        "9.93 for adding or removing one (delta 1e-5)"
    )

    @property
    def winners_only(self) -> bool:
        """With a separate check, as published; without, it is the noisy counts that are compared with the threshold."""
        return self.config.check is not None

    @property
    def _sums_of_a_vote(self) -> int:
        return self.config.bins

    def claim(self, facts: PublicFacts, events: tuple[GaussianEvent, ...], delta: float) -> Claim:  # noqa: ARG002
        """The upper end of the published accountant, where it does not look at the votes: the rest needs records."""
        return Claim(
            epsilon=claimed_epsilon(events, delta),
            delta=delta,
            relation=REPLACE,
            by="Long, Wang, Yang, Kailkhura, Zhang, Gunter and Li (NeurIPS 2021)",
            unsound=(
                "This is the upper end of their accountant, which looks at the votes: what they publish is less, holds "
                "for their records alone, depends on these, and is given without noise."
            ),
        )

    def _questions(self, facts: PublicFacts, noise: float) -> tuple[VotesQuestion, ...]:  # noqa: ARG002
        config = self.config
        histograms = config.images * config.projections
        counts = VotesQuestion(kind="choices", histograms=histograms, noise_multiplier=noise)
        if config.check is None:
            return (counts,)
        # The same deviation is more multiples of a sensitivity that is smaller.
        multiplier = noise * config.check * math.sqrt(2)
        return counts, VotesQuestion(kind="lead", histograms=histograms, noise_multiplier=multiplier)

    def _moves(self, curator: Curator, plan: Plan, wards: Wards, public: torch.Generator) -> Moves:
        config, facts = self.config, plan.facts
        discriminator, numbers = discriminator_of(config, facts), math.prod(facts.shape)
        questions = self._questions(facts, plan.noise_multiplier)

        def say(state: State, public: Public) -> Tensor:
            wished = wishes(discriminator, state, public["pixels"], public["labels"]).flatten(1)
            along = torch.einsum("nd,ndp->np", wished, public["directions"])
            places = ((along / config.limit + 1) / 2 * config.bins).floor().clamp(0, config.bins - 1)
            return (places[..., None] == torch.arange(config.bins, device=places.device)).to(along.dtype)

        def moves(pixels: Tensor, labels: Tensor) -> Tensor:
            drawn = torch.randn(len(pixels), numbers, config.projections, generator=public)
            directions = sent(drawn / math.sqrt(config.projections), pixels.device)
            shown = {"pixels": pixels, "labels": labels, "directions": directions}
            counts, *leads = curator.votes_together(questions, wards, say, shown)
            lead = leads[0] if leads else counts.amax(-1)
            return moved(counts, lead, directions, config, wards.count).view_as(pixels)

        return moves


def moved(counts: Tensor, leads: Tensor, directions: Tensor, config: GPateConfig, teachers: int) -> Tensor:
    """Noisy counts ``[n, p, bins]`` and of the largest ``[n, p]`` -> moves ``[n, d]`` along directions ``[n, d, p]``.

    To the middle of the bin that won, along each direction where enough teachers agree.
    """
    middles = config.limit * ((2 * counts.argmax(-1) + 1) / config.bins - 1)
    return torch.einsum("np,ndp->nd", middles * (leads >= config.threshold * teachers), directions)
