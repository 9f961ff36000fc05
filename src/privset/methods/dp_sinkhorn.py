"""DP-Sinkhorn: a generator drawn to the records by optimal transport (Cao, Bie, Vahdat, Fidler, Kreis; NeurIPS 2021).

In each step a few generated images and a Poisson sample of the records are compared by what it costs to move the ones
to the others. How that cost changes with the generated images is all that the generator learns of the records, and it
is asked for with noise. There is no critic, so nothing private is kept from one step to the next. docs/methods/
dp-sinkhorn.md lists where the published code differs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, cast

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.caution import faint
from privset.methods.checkpoint import Stages
from privset.methods.claim import Claim, classic_epsilon
from privset.methods.descent import Adam, approach, cosine, kept
from privset.methods.drawing import AT_ONCE, become_average, drawn, glimpse
from privset.methods.method import Execution, SetMethod, Synthesis
from privset.methods.plan import Plan
from privset.methods.settings import (
    SetConfig,
    require,
    require_at_least_one,
    require_generator,
    require_noise,
    require_positive,
)
from privset.methods.transport import Transport
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator
from privset.networks.linear import LinearGenerator
from privset.networks.transposed import TransposedGenerator
from privset.networks.transposed_step import generator_step
from privset.observer import Glimpse, Observer
from privset.privacy import RELATION, Curator, GaussianEvent, PrivacyBudget, PullbackQuestion
from privset.privacy.clipping import clip_factors
from privset.recording import Beside, sent

_ORDERS = (
    *(1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5),
    *map(float, range(5, 64)),
    *(2.0**power for power in range(7, 13)),
)
"""Renyi orders of the published accountant."""
TOGETHER = 16
"""Most steps between two looks at how far it is, which a graphics card would wait for."""
AHEAD = 8
"""For how many times as many steps codes and labels are drawn together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSinkhornConfig(SetConfig):
    """Settings of DP-Sinkhorn; those that no preset sets are the published ones, but for the number of steps."""

    earlier: ClassVar = {"shallow": False}

    steps: int = 400_000
    """Steps of the generator, one question each."""
    batch_size: int = 50
    """Images generated in each step, and the expected size of the Poisson sample they are compared with."""
    clip_norm: float = 0.5
    """Longest gradient, over all generated images of a step together."""
    noise_multiplier: float | None = None
    """Noise over twice the clip norm; None calibrates it to the budget, a number is refused if it costs more than
    that."""
    label_scale: float = 15.0
    """How far apart two labels are, beside pixels in [-1, 1]."""
    l1_weight: float = 1.0
    """Of the sum of absolute differences, beside that of squared ones."""
    blur: float = 0.05
    """Temperature at which the transport ends."""
    redrawn: float = 0.2
    """Share of the generated images that are drawn anew in the set that they are held apart from."""
    code: int = 16
    """Random numbers that the generator makes an image of, beside its label."""
    width: int = 256
    """Maps of the generator's first layer; of no use if it is shallow."""
    shallow: bool = False
    """Whether the generator is one linear layer, in place of the published one."""
    rate: float = 1e-5
    """Learning rate of the generator."""
    decay: bool = False
    """Whether the learning rate falls, along a cosine; if not, it stays."""
    weight_decay: float = 1e-5
    """How much of its own value is added to the slope of each weight."""
    averaging: float = 0.0
    """How much of the average of past weights is kept at each step; the average is what is published. 0: the last."""
    publish_generator: bool = True
    """Whether the generator is published with the set, so that `privset sample` can draw more images from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "steps")
        require_generator(self, "code", "width")
        require(self.batch_size >= 2, f"batch-size must be at least 2, for batch norm, not {self.batch_size}")
        require(self.width >= 4, f"width must be at least 4, not {self.width}")
        require(1e-6 <= self.clip_norm <= 1e6, f"clip-norm must lie between 1e-6 and 1e6, not {self.clip_norm}")
        require_positive(self, "rate", "blur")
        for name in ("label_scale", "l1_weight", "weight_decay"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name.replace('_', '-')} must be 0 or more, not {value}")
        for name in ("redrawn", "averaging"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must lie in [0, 1), not {value}")
        require_noise(self.noise_multiplier)

    @classmethod
    def paper(cls, *, per_class: int = 10, epsilon: float = 10.0) -> DpSinkhornConfig:
        """The published settings for MNIST at epsilon 10: 2872 epochs; at other budgets the noise is calibrated.

        >>> DpSinkhornConfig.paper().noise_multiplier
        1.1
        """
        noise = 1.1 if 10 <= epsilon < math.inf else None
        return cls(per_class=per_class, steps=3_446_400, noise_multiplier=noise)

    @classmethod
    def small(cls, *, per_class: int = 10) -> DpSinkhornConfig:
        """Seconds on two CPU cores for small images and few records, by a linear generator.

        Chosen by hand on training records of `digits`, part of which were held out: an accuracy on digits is a
        demonstration, not a result.
        """
        return cls(
            per_class=per_class,
            steps=2400,
            batch_size=20,
            code=4,
            shallow=True,
            rate=2e-2,
            decay=True,
            averaging=0.998,
        )


class DpSinkhorn(SetMethod[DpSinkhornConfig]):
    """A generator trained by noisy gradients of the cost of transport."""

    name = "dp-sinkhorn"
    summary = "A conditional generator trained by noisy gradients of the optimal transport to Poisson samples"
    reference = (
        "Cao, Bie, Vahdat, Fidler, Kreis: Don't Generate Me: Training Differentially Private Generative Models with "
        "Sinkhorn Divergence, NeurIPS 2021"
    )
    config_type = DpSinkhornConfig
    presets: ClassVar = {
        "standard": lambda per_class, _: DpSinkhornConfig(per_class=per_class, rate=1e-4, decay=True, averaging=0.9999),
        "paper": lambda per_class, epsilon: DpSinkhornConfig.paper(per_class=per_class, epsilon=epsilon),
        "small": lambda per_class, _: DpSinkhornConfig.small(per_class=per_class),
    }
    """``standard``: fewer and larger steps; ``paper``: the published ones; ``small``: seconds on a CPU."""
    paced_by = ("steps",)
    resumable = True
    claims = "the published noise is claimed to cost epsilon 10; proven is 8.53, and 9.16 by RDP alone (delta 1e-5)"

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """A pullback question in each step, on Poisson samples of rate batch / records."""
        config = self.config

        def events(noise: float) -> tuple[GaussianEvent, ...]:
            return (self._question(facts, noise).event(config.steps),)

        # Noise on an answer does not get smaller among more records, but steps average it out.
        given = config.noise_multiplier
        return Plan.calibrated(self, facts, budget, events, given=given, most=facts.size)

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:  # noqa: ARG002
        """That the noise is longer than the gradients can be, which are shortened to half the sensitivity."""
        numbers, better = self.config.batch_size * math.prod(facts.shape), "a larger epsilon, or smaller batches,"
        return faint(0.5, numbers, events[0], remedies=better)

    def claim(self, facts: PublicFacts, events: tuple[GaussianEvent, ...], delta: float) -> Claim:  # noqa: ARG002
        """The published accounting: the same sampled Gaussian mechanism, by a looser conversion to epsilon."""
        return Claim(
            epsilon=classic_epsilon(events, delta, _ORDERS),
            delta=delta,
            relation=RELATION,
            by="Cao, Bie, Vahdat, Fidler and Kreis (NeurIPS 2021)",
        )

    @property
    def answers_per_step(self) -> int:
        """All answers between two states that could be kept."""
        return max(size for size in range(1, TOGETHER + 1) if self.config.steps % size == 0)

    @property
    def generator_form(self) -> GeneratorForm | None:
        """That of the generator, if it is to be published."""
        return self._form if self.config.publish_generator else None

    @property
    def _form(self) -> GeneratorForm:
        if self.config.shallow:
            return GeneratorForm(architecture="linear", settings={"length": self.config.code})
        settings = {"length": self.config.code, "width": self.config.width}
        return GeneratorForm(architecture="transposed", settings=settings)

    def _question(self, facts: PublicFacts, noise: float) -> PullbackQuestion:
        rate = min(1.0, self.config.batch_size / facts.size)
        return PullbackQuestion(sampling_rate=rate, clip_norm=self.config.clip_norm, noise_multiplier=noise)

    def _pace(self, number: int) -> tuple[float, float]:
        """Learning rate of a step, and how much of the averages is kept at it."""
        config = self.config
        rate = cosine(config.rate, number, config.steps) if config.decay else config.rate
        return rate, kept(config.averaging, number)

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        config, facts, classes, (event,) = self.config, plan.facts, len(plan.facts.classes), plan.events
        question, device = self._question(facts, event.noise_multiplier), torch.device(execution.device)
        random = torch.Generator().manual_seed(config.seed)
        seed = int(torch.randint(2**31, (), generator=random))
        network = cast(TransposedGenerator | LinearGenerator, self._form.build(facts, seed=seed).to(device))
        step, weights = generator_step(network), list(network.parameters())
        # Without averaging, the last weights themselves.
        averages = [weight.detach().clone() if config.averaging else weight for weight in weights]
        adam = Adam(weights, betas=(0.9, 0.999), weight_decay=config.weight_decay)
        objective, beside = Objective(config, facts, device), Beside(device)
        together, batch, anew = self.answers_per_step, config.batch_size, round(config.redrawn * config.batch_size)
        # For many steps at once: a graphics card would wait for each draw longer than the step takes it.
        some_labels = torch.zeros(AHEAD * together, batch, dtype=torch.int64, device=device)
        some_codes = torch.zeros(AHEAD * together, batch + anew, config.code + classes, device=device)
        paces = torch.zeros(AHEAD * together, 2, device=device)  # the learning rate, and how much of averages is kept
        at = torch.zeros(1, dtype=torch.int64, device=device)  # which of these
        public: list[Tensor] = []  # what an answer is used with: the slope of what was drawn anew, and the pace

        def codes(labels: Tensor) -> Tensor:
            return sent(network.draw(labels, random), device)

        def draw(first: int) -> None:
            """Codes, labels and paces of the steps from this one on."""
            labels = torch.randint(classes, some_labels.shape, generator=random)
            some_labels.copy_(sent(labels, device))
            some_codes.copy_(codes(torch.cat([labels, labels[:, :anew]], dim=1).flatten()).view_as(some_codes))
            paces.copy_(sent(torch.tensor([self._pace(first + more) for more in range(len(paces))]), device))
            at.zero_()

        def generate() -> tuple[Tensor, ...]:
            """Images of the next codes, the slopes that hold them apart, and their labels."""
            labels = some_labels.index_select(0, at)[0]
            images = step.images(some_codes.index_select(0, at)[0])
            with beside.begin():
                slopes = objective.apart(images, labels)
                public[:] = [objective.shortened(slopes[batch:]), *paces.index_select(0, at)[0]]
            return images[:batch], slopes[:batch], labels

        def pull(generated: Tensor, apart: Tensor, labels: Tensor, *records: Tensor) -> Tensor:
            towards = objective.towards(generated, labels, *records)
            beside.join(apart, *public)
            return torch.add(apart, towards, alpha=2)

        def learn(answer: Tensor) -> None:
            shortened, rate, share = public
            adam.set_rate(rate)
            adam.step(step.slopes(torch.cat([answer, shortened])))
            if config.averaging:
                approach(averages, weights, 1 - share)
            at.add_(1)

        def look() -> Glimpse:
            return glimpse(network, config.per_class)

        curator.prepay(question, event.count)
        stages = Stages(random, curator.checkpoint, observer)
        outcome = network.state_dict() | {f"average {number}": one for number, one in enumerate(averages)}
        ahead = {"labels ahead": some_labels, "codes ahead": some_codes, "paces ahead": paces, "at": at}
        how = {"outcome": outcome.keys(), "look": look, "parts": together}
        changed = outcome | adam.tensors | ahead
        for number in stages.loop("training a generator", event.count // together, changed, **how):
            if number % AHEAD == 0:
                draw(number * together)
            curator.train_by_pullback(question, pull, generate, learn, steps=together)
            for part in range(1, together + 1):
                stages.part(look if part == together else None)
        become_average(network, averages, lambda: codes(torch.randint(classes, (AT_ONCE // 5,), generator=random)))
        labels = torch.arange(classes).repeat_interleave(config.per_class)
        trained = TrainedGenerator.of(self._form, network) if config.publish_generator else None
        return Synthesis(drawn(network, labels, random), labels, generator=trained)


class Objective:
    """Twice the cost of moving generated images to records, less that of moving them to generated ones.

    The second term keeps images of a class apart: without it all would become what is nearest to most records. The
    other generated ones are the same but for a share that is drawn anew, with the same labels.

    Args:
        config: Of the cost.
        facts: What is public about the images.
        device: Where they are.
    """

    def __init__(self, config: DpSinkhornConfig, facts: PublicFacts, device: torch.device | str = "cpu") -> None:
        self._clip_norm = config.clip_norm
        # From normalised images to pixels in [-1, 1].
        mean, std = (torch.tensor(some, device=device)[:, None, None] for some in (facts.mean, facts.std))
        self._shift, self._stretch = 2 * mean - 1, 2 * std
        self._transport = Transport(facts, label_scale=config.label_scale, l1_weight=config.l1_weight, blur=config.blur)

    def towards(
        self, generated: Tensor, labels: Tensor, images: Tensor, image_labels: Tensor, weights: Tensor
    ) -> Tensor:
        """How the cost to weighted normalised records changes with generated pixels ``[m, c, h, w]`` in [-1, 1].

        That is half the slope of the first term, the only one that a record enters.
        """
        records = torch.addcmul(self._shift.to(images), images, self._stretch.to(images)).flatten(1)
        (slope,) = self._transport.slopes(generated.flatten(1), labels, records, image_labels, weights, by_others=False)
        return slope.view_as(generated)

    def apart(self, images: Tensor, labels: Tensor) -> Tensor:
        """The slope of the second term by the images: labelled ones ``[m, ...]``, and behind them the redrawn ones."""
        anew, slopes = len(images) - len(labels), torch.zeros_like(images)
        generated, others = images[: len(labels)].flatten(1), images[anew:].flatten(1)
        of_others = torch.cat([labels[anew:], labels[:anew]])
        by_generated, by_others = self._transport.slopes(generated, labels, others, of_others)
        slopes[: len(labels)] -= by_generated.view_as(slopes[: len(labels)])
        slopes[anew:] -= by_others.view_as(slopes[anew:])
        return slopes

    def shortened(self, slope: Tensor) -> Tensor:
        """A slope in which no record plays a part, shortened like the others, so that neither drowns the other."""
        return slope * clip_factors(slope.square().sum(), self._clip_norm)
