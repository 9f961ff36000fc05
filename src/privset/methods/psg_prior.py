"""PSG with a generator as prior: Algorithm 2 of the PSG paper.

Everything is as in PSG (`gradient_matching.py`) but for what is learned: the images are what a conditional generator
makes of codes that were drawn once and stay as they are, and the gradients that are matched move the generator's
weights. The records play no other part than there, so set and generator are both free to publish.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.gradient_matching import GradientMatching, MatchingConfig, paper_loops
from privset.methods.matched import Generated, Matched
from privset.methods.method import Synthesis
from privset.methods.settings import require_generator, require_positive
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator


@dataclasses.dataclass(frozen=True, kw_only=True)
class PsgPriorConfig(MatchingConfig):
    """Settings of PSG with a generator; the defaults are the paper's for 10 images per class at epsilon 10."""

    generator_rate: float = 0.01
    """Learning rate of the generator, Adam."""
    code: int = 10
    """Random numbers that the generator makes an image of, beside its label."""
    generator_width: int = 256
    """Maps of its first layer."""
    publish_generator: bool = True
    """Whether the generator is published with the set, so that `privset sample` can draw more images from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "generator_rate")
        require_generator(self, "code", "generator_width")

    @classmethod
    def paper(cls, *, per_class: int = 10, epsilon: float = 10.0) -> PsgPriorConfig:
        """The paper's settings: R is 1000, and 200 for epsilon 1 and below; (T, J) are those of PSG for the set size.

        >>> PsgPriorConfig.paper(per_class=20).outer_steps
        20
        """
        outer, inner = paper_loops(per_class)
        return cls(per_class=per_class, runs=200 if epsilon <= 1 else 1000, outer_steps=outer, inner_epochs=inner)

    @classmethod
    def code_of_paper(cls, *, per_class: int = 10) -> PsgPriorConfig:
        """The settings of the published code: (T, J) are (2, 10) for every set size, and R is 1000 at any epsilon."""
        return cls(per_class=per_class, outer_steps=2, inner_epochs=10)

    @classmethod
    def small(cls, *, per_class: int = 10) -> PsgPriorConfig:
        """Minutes on two CPU cores for small images and few records: 300 questions to large samples.

        As for PSG, what is matched was chosen by hand on all of `digits`: an accuracy on digits is a demonstration, not
        a result.
        """
        return cls(
            per_class=per_class,
            runs=30,
            outer_steps=1,
            batch_size=1024,
            network="mlp",
            width=64,
            generator_width=64,
            keep_floats=False,
        )


class PsgPrior(GradientMatching[PsgPriorConfig]):
    """Private set generation by gradient matching, through a generator."""

    name = "psg-prior"
    summary = "PSG whose images are made by a conditional generator, which is what is learned (the paper's Algorithm 2)"
    reference = "Chen, Kerkouche, Fritz: Private Set Generation with Discriminative Information, NeurIPS 2022"
    config_type = PsgPriorConfig
    presets: ClassVar = {
        "paper": lambda per_class, epsilon: PsgPriorConfig.paper(per_class=per_class, epsilon=epsilon),
        "code": lambda per_class, _: PsgPriorConfig.code_of_paper(per_class=per_class),
        "small": lambda per_class, _: PsgPriorConfig.small(per_class=per_class),
    }
    """``paper``: its table of loops; ``code``: those of the published code; ``small``: seconds on a CPU."""

    @property
    def generator_form(self) -> GeneratorForm | None:
        """That of the generator, if it is to be published."""
        return self._form if self.config.publish_generator else None

    @property
    def _form(self) -> GeneratorForm:
        config = self.config
        # The published code ends without a sigmoid; the generator it is taken from has one.
        return GeneratorForm(
            architecture="deconvolution",
            settings={"length": config.code, "width": config.generator_width, "bounded": not config.keep_floats},
        )

    def _start(self, facts: PublicFacts, labels: Tensor, generator: torch.Generator) -> Generated:
        seed = int(torch.randint(2**31, (), generator=generator))
        network = self._form.build(facts, seed=seed).to(labels.device)
        codes = network.draw(labels.cpu(), generator).to(labels.device)
        return Generated(network, codes, labels, rate=self.config.generator_rate)

    def _made(self, matched: Matched) -> Synthesis:
        assert isinstance(matched, Generated)
        trained = TrainedGenerator.of(self._form, matched.network) if self.config.publish_generator else None
        images, labels = matched.images.cpu(), matched.labels.cpu()
        return Synthesis(images, labels, keep_floats=self.config.keep_floats, generator=trained)
