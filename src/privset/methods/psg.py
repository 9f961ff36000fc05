"""PSG: private set generation with discriminative information (Chen, Kerkouche, Fritz; NeurIPS 2022).

Gradient matching (`gradient_matching.py`) of which the pixels of the images are what is learned. docs/methods/psg.md
lists where paper and published code differ, and what is done here.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.gradient_matching import GradientMatching, MatchingConfig, paper_loops
from privset.methods.matched import Matched, Pixels
from privset.methods.method import Synthesis
from privset.methods.settings import require, require_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class PsgConfig(MatchingConfig):
    """Settings of PSG; the defaults are the paper's for 10 images per class at epsilon 10."""

    image_rate: float = 0.1
    """Learning rate of the images."""
    image_momentum: float = 0.5
    """Momentum of the images; its memory lasts over all runs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "image_rate")
        require(0 <= self.image_momentum < 1, f"image-momentum must lie in [0, 1), not {self.image_momentum}")

    @classmethod
    def paper(cls, *, per_class: int = 10, epsilon: float = 10.0) -> PsgConfig:
        """The published settings; R is 1000, and 200 for epsilon 1 and below.

        For set sizes the paper does not have, (T, J) are those of the nearest smaller one it has.

        >>> PsgConfig.paper(per_class=20, epsilon=1).runs
        200
        """
        outer, inner = paper_loops(per_class)
        return cls(
            per_class=per_class,
            runs=200 if epsilon <= 1 else 1000,
            outer_steps=outer,
            inner_epochs=inner,
        )

    @classmethod
    def small(cls, *, per_class: int = 10) -> PsgConfig:
        """Minutes on two CPU cores for small images and few records: 300 questions to large samples.

        Chosen by hand on random splits of all of `digits`, so images of its test split took part: an accuracy on
        digits is a demonstration, not a result.
        """
        return cls(
            per_class=per_class,
            runs=30,
            outer_steps=1,
            batch_size=1024,
            network="mlp",
            width=64,
            image_rate=1.0,
            keep_floats=False,
        )


class Psg(GradientMatching[PsgConfig]):
    """Private set generation by gradient matching."""

    name = "psg"
    summary = "Gradient matching on many networks, noisy Poisson-sampled gradients (the paper's method)"
    reference = "Chen, Kerkouche, Fritz: Private Set Generation with Discriminative Information, NeurIPS 2022"
    config_type = PsgConfig
    presets: ClassVar = {
        "paper": lambda per_class, epsilon: PsgConfig.paper(per_class=per_class, epsilon=epsilon),
        "small": lambda per_class, _: PsgConfig.small(per_class=per_class),
    }
    """``paper``: the published settings; ``small``: a run of seconds on a CPU."""

    def _start(self, facts: PublicFacts, labels: Tensor, generator: torch.Generator) -> Pixels:
        config, images = self.config, torch.randn(len(labels), *facts.shape, generator=generator).to(labels.device)
        return Pixels(
            images,
            labels,
            facts,
            rate=config.image_rate,
            momentum=config.image_momentum,
            bounded=not config.keep_floats,
        )

    def _made(self, matched: Matched) -> Synthesis:
        return Synthesis(matched.images.cpu(), matched.labels.cpu(), keep_floats=self.config.keep_floats)
