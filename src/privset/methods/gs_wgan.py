"""GS-WGAN: a generator taught by private critics, through noisy gradients alone (Chen, Orekondy, Fritz; NeurIPS 2020).

Each critic is trained on a shard of the records, without noise, and never leaves the curator. What they tell the
generator is how its images should change, and only that gradient is bounded and covered in noise. The published
accounting does not hold, for two reasons; docs/methods/gs-wgan.md has both, and what is done instead.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.caution import faint
from privset.methods.claim import REPLACE, Claim
from privset.methods.descent import Adam, approach, kept
from privset.methods.drawing import become_average, drawn, glimpse
from privset.methods.lessons import Lessons
from privset.methods.method import Execution, SetMethod, Synthesis
from privset.methods.plan import Plan
from privset.methods.replay import Replay
from privset.methods.settings import (
    SetConfig,
    require,
    require_at_least_one,
    require_generator,
    require_noise,
    require_positive,
    require_shards,
)
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator
from privset.observer import Glimpse, Observer
from privset.privacy import Curator, GaussianEvent, PrivacyBudget, PullbackQuestion
from privset.recording import recorded, sent

_PUBLISHED_NOISE, _PUBLISHED_COST = 1.07 / math.sqrt(32), 386.0
"""Over what one record can do to the gradients of all 32 images; and a budget that covers it, which a test computes."""
_UNSOUND = (
    "It counts each image of a step as an answer of its own, of critics that are drawn for it alone, but the same "
    "critics answer for all; the published code moreover has critics learn when they are drawn, which gives the draw "
    "away."
)
_BETAS = (0.5, 0.9)
"""Of Adam, for the generator; critics have the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(SetConfig):
    """Settings of GS-WGAN; the defaults are those of the preset standard."""

    earlier: ClassVar = {"between": 1, "published_critics": False, "replayed": 0.0, "least_slope": 0.0}

    critics: int = 1000
    """Critics, each with its own shard of the records."""
    asked: int | None = None
    """Critics that a step of the generator asks, drawn in secret; None asks all of them (the published code: 1)."""
    steps: int = 1500
    """Steps of the generator, one question each."""
    taught: int = 100
    """Critics that learn in a lesson, in turn, those that are left over in one of their own; the first lesson is before
    the first step of the generator."""
    critic_steps: int = 2
    """Steps that each of these takes."""
    between: int = 1
    """Steps of the generator from one lesson to the next."""
    warm_up: int = 100
    """Steps that all critics take before the generator takes its first."""
    replayed: float = 0.0
    """Share of a lesson's generated images that are of earlier steps, so that critics go on knowing what these were
    like; 0: all are of this one."""
    critic_batch_size: int = 32
    """Records of its own shard that a critic learns from in a step."""
    batch_size: int = 32
    """Images generated in each step of the generator."""
    clip_norm: float = 1.0
    """Longest gradient of one critic with respect to one image."""
    noise_multiplier: float | None = None
    """Noise over how far one record can move an answer, 2 clip-norm sqrt(batch-size); None calibrates it to the budget,
    a number is refused if it costs more than that."""
    code: int = 10
    """Coins that the generator makes an image of, beside its label."""
    width: int = 64
    """Maps of the generator; of no use if networks are shallow."""
    critic_width: int = 32
    """Maps of a critic's first layer; its units, if networks are shallow."""
    shallow: bool = False
    """Whether critics have one dense layer, and the generator one linear layer, in place of the published ones."""
    published_critics: bool = False
    """Whether critics see pixels in [0, 1], and their class vectors begin as normal numbers, as published; if not, they
    see normalised images, and class vectors begin as other weights do."""
    least_slope: float = 0.0
    """Of the sigmoid that makes pixels, when the generator follows an answer: without any, one whose images are once
    all black or all white, to the last digit, stays so."""
    rate: float = 1e-3
    """Learning rate of the generator."""
    critic_rate: float = 2e-4
    """Learning rate of the critics."""
    averaging: float = 0.99
    """How much of the average of past weights is kept at each step; the average makes the images. 0: the last."""
    publish_generator: bool = True
    """Whether the generator is published with the set, so that `privset sample` can draw more images from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "critics", "asked", "steps", "taught", "critic_steps", "critic_batch_size")
        require_at_least_one(self, "batch_size", "critic_width", "between")
        require_generator(self, "code", "width")
        require(self.warm_up >= 0, f"warm-up must be 0 or more, not {self.warm_up}")
        for name in ("asked", "taught"):
            value = getattr(self, name)
            require(
                value is None or value <= self.critics,
                f"{name} (--{name}) must be at most the {self.critics} critics there are, not {value}",
            )
        require(1e-6 <= self.clip_norm <= 1e3, f"clip-norm must lie between 1e-6 and 1e3, not {self.clip_norm}")
        require(self.batch_size <= 10_000, f"batch-size must be at most 10000, not {self.batch_size}")
        require_positive(self, "rate", "critic_rate")
        of = self.critic_batch_size
        require(
            self.replayed == 0 or (0 < self.replayed < 1 and 0 < self.old < of),
            f"replayed must be 0, or a share of the {of} images of a class in a lesson (--critic-batch-size) that "
            f"leaves at least one to this step and one to earlier ones; {self.replayed} does not",
        )
        require(0 <= self.least_slope <= 0.25, f"least-slope must lie in [0, 0.25], not {self.least_slope}")
        require(0 <= self.averaging < 1, f"averaging must lie in [0, 1), not {self.averaging}")
        require_noise(self.noise_multiplier)

    @property
    def old(self) -> int:
        """How many of the generated images of a class, in a lesson, are of earlier steps."""
        return round(self.replayed * self.critic_batch_size)

    @classmethod
    def paper(cls, *, per_class: int = 10, epsilon: float = 10.0) -> GsWganConfig:
        """The published networks and numbers; the published noise where the budget covers it, otherwise calibrated.

        What critics learn, and when, is not as published: that takes a card days (docs/methods/gs-wgan.md). Here all of
        them learn along with the generator, a fifth of them in each of its steps, and remember what it made before.

        >>> GsWganConfig.paper(epsilon=10).noise_multiplier, round(GsWganConfig.paper(epsilon=386).noise_multiplier, 4)
        (None, 0.1892)
        """
        return cls(
            per_class=per_class,
            asked=1,
            noise_multiplier=_PUBLISHED_NOISE if _PUBLISHED_COST <= epsilon < math.inf else None,
            steps=20_000,
            taught=200,
            critic_steps=1,
            warm_up=100,
            replayed=0.5,
            least_slope=1e-6,
            width=256,
            critic_width=64,
            published_critics=True,
            rate=1e-4,
            critic_rate=1e-4,
            averaging=0.999,
        )

    @classmethod
    def small(cls, *, per_class: int = 10) -> GsWganConfig:
        """Seconds on a CPU for small images and few records, by shallow networks: see docs/methods/gs-wgan.md."""
        return cls(
            per_class=per_class,
            critics=100,
            steps=100,
            taught=20,
            critic_steps=1,
            warm_up=20,
            critic_batch_size=14,
            batch_size=20,
            code=4,
            critic_width=32,
            shallow=True,
            rate=0.05,
            critic_rate=0.01,
        )


class GsWgan(SetMethod[GsWganConfig]):
    """A generator taught by critics that never leave the curator."""

    name = "gs-wgan"
    summary = "A conditional generator taught by private critics on disjoint shards, through noisy gradients"
    reference = (
        "Chen, Orekondy, Fritz: GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private Generators, "
        "NeurIPS 2020"
    )
    config_type = GsWganConfig
    presets: ClassVar = {
        "standard": lambda per_class, _: GsWganConfig(per_class=per_class),
        "paper": lambda per_class, epsilon: GsWganConfig.paper(per_class=per_class, epsilon=epsilon),
        "small": lambda per_class, _: GsWganConfig.small(per_class=per_class),
    }
    """``standard``: all critics are asked; ``paper``: one is, as published; ``small``: seconds on a CPU."""
    paced_by = ("steps",)
    prelude: ClassVar = {"warm_up": "warming up critics"}
    claims = (
        "the published settings are claimed to cost epsilon 9.99; proven is 386, and only if critics do not learn when "
        "they are drawn (delta 1e-5)"
    )

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """A pullback question in each step of the generator, to all critics or to some of them."""
        config = self.config
        require_shards(facts, config.critics, "critics")

        def events(noise: float) -> tuple[GaussianEvent, ...]:
            return (self._question(noise).event(config.steps),)

        # Noise of an answer may be far above what critics say, since steps average it out.
        given = config.noise_multiplier
        return Plan.calibrated(self, facts, budget, events, given=given, most=facts.size)

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:  # noqa: ARG002
        """That the noise is longer than what critics say together, each no longer than half the sensitivity."""
        asked = self.config.critics * events[0].sampling_rate
        numbers, better = self.config.batch_size * math.prod(facts.shape), "a larger epsilon, or more critics,"
        return faint(asked / 2, numbers, events[0], remedies=better)

    def claim(self, facts: PublicFacts, events: tuple[GaussianEvent, ...], delta: float) -> Claim:  # noqa: ARG002
        """The published accounting, for this noise; where all critics are asked, its mistakes make no difference."""
        drawn = any(event.sampling_rate < 1 for event in events)
        return Claim(
            epsilon=claimed_epsilon(events, self.config.batch_size, delta),
            delta=delta,
            relation=REPLACE,
            by="Chen, Orekondy and Fritz (NeurIPS 2020)",
            unsound=_UNSOUND if drawn else None,
        )

    @property
    def generator_form(self) -> GeneratorForm | None:
        """That of the generator, if it is to be published."""
        return self._form if self.config.publish_generator else None

    @property
    def _form(self) -> GeneratorForm:
        if self.config.shallow:
            return GeneratorForm(architecture="linear", settings={"length": self.config.code})
        settings = {"length": self.config.code, "width": self.config.width}
        return GeneratorForm(architecture="published-residual", settings=settings)

    def _question(self, noise: float) -> PullbackQuestion:
        config = self.config
        return PullbackQuestion(
            sampling_rate=(config.asked or config.critics) / config.critics,
            clip_norm=config.clip_norm * math.sqrt(config.batch_size),
            noise_multiplier=noise,
            of_wards=True,
            each_image=True,
        )

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        config, facts, classes, (event,) = self.config, plan.facts, len(plan.facts.classes), plan.events
        question, device = self._question(event.noise_multiplier), torch.device(execution.device)
        random = torch.Generator().manual_seed(config.seed)
        seed = int(torch.randint(2**31, (), generator=random))
        network, lessons = self._form.build(facts, seed=seed).to(device), Lessons(config, facts)
        network.least_slope, replay = config.least_slope, Replay(random)
        weights = list(network.parameters())
        averages, share = [weight.detach().clone() for weight in weights], torch.zeros((), device=device)
        adam = Adam(weights, betas=_BETAS)
        adam.set_rate(config.rate)

        def codes(labels: Tensor) -> Tensor:
            return sent(network.draw(labels, random), device)

        images = network if config.published_critics else network.normalised

        @torch.no_grad()
        def made(codes: Tensor) -> Tensor:
            return images(codes)

        make = recorded(made, device)

        def follow(codes: Tensor, answer: Tensor) -> Tensor:
            """A step down the answer for images of these codes, which were made before."""
            network.eval()  # spectral norms followed when they were made
            slopes = torch.autograd.grad(images(codes), weights, answer)
            network.train()
            adam.step(slopes)
            approach(averages, weights, 1 - share)
            return answer

        learn = recorded(follow, device)

        def pool() -> Tensor:
            """Generated images ``[classes, batch, c, h, w]`` for critics to tell from records."""
            count = config.critic_batch_size - config.old
            labels = torch.arange(classes).repeat_interleave(count)
            return replay.beside(make(codes(labels)).view(classes, count, *facts.shape), config.old)

        def look() -> Glimpse:
            return glimpse(network, config.per_class)

        seeds = int(torch.randint(2**31, (), generator=random))
        critics = curator.appoint(
            config.critics, lambda which: lessons.begin(seeds, which, device), batch_size=config.critic_batch_size
        )
        observer.phase("warming up critics", config.warm_up)
        taken = torch.zeros((), device=device)
        for number in range(config.warm_up):
            curator.teach(critics, lessons.learn, {"pool": pool(), "taken": taken.fill_(number)})
            observer.step()

        curator.prepay(question, event.count)
        observer.phase("training a generator", event.count)
        if config.between > 1:  # what critics learn is for several steps
            observer.lap()
        turns = torch.arange(config.critics).split(config.taught)
        for number in range(event.count):
            if number % config.between == 0:
                # In turn: whom the next question is put to is a secret, and what they have learned must not tell it.
                before, turn = divmod(number // config.between, len(turns))
                shown = {"pool": pool(), "taken": taken.fill_(config.warm_up + before * config.critic_steps)}
                for _ in range(config.critic_steps):
                    curator.teach(critics, lessons.learn, shown, which=turns[turn])
                    taken += 1

            labels = torch.randint(classes, (config.batch_size,), generator=random)
            asked = codes(labels)
            shown = {"fakes": make(asked), "labels": sent(labels, device)}
            answer = curator.pullback_by(question, critics, lessons.say, shown)
            share.fill_(kept(config.averaging, number))
            learn(asked, answer)
            observer.step()
            if config.between > 1 and ((number + 1) % config.between == 0 or number + 1 == event.count):
                observer.lap()
            observer.show(look)
        become_average(network, averages, lambda: codes(torch.arange(classes)))
        labels = torch.arange(classes).repeat_interleave(config.per_class)
        trained = TrainedGenerator.of(self._form, network) if config.publish_generator else None
        return Synthesis(drawn(network, labels, random), labels, generator=trained)


def claimed_epsilon(events: tuple[GaussianEvent, ...], batch_size: int, delta: float) -> float:
    """What the published analysis says the events cost: every image of a step as if it had a critic of its own.

    It composes batch x steps answers, each subsampled by itself and with noise measured against one image's gradient;
    but all of a step come from the same critic. The least over integer orders of RDP + ln(1 / delta) / (order - 1).
    """
    import dp_accounting  # as in `privset.privacy.accounting`: it takes a second
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(range(2, 33), dp_accounting.NeighboringRelation.REPLACE_ONE)
    for event in events:
        asked, critics = event.sampling_rate.as_integer_ratio()
        answer = dp_accounting.GaussianDpEvent(event.noise_multiplier * math.sqrt(batch_size))
        subsampled = dp_accounting.SampledWithoutReplacementDpEvent(critics, asked, answer)
        accountant.compose(subsampled, event.count * batch_size)
    return float((accountant.rdp - math.log(delta) / (accountant.orders - 1)).min())
