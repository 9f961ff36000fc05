"""DP-SGD: a classifier trained on the records themselves, with noisy gradients (Abadi et al., CCS 2016).

What comes of it is no set but one network. It says how much a privacy budget can teach, and so what a
synthetic set of the same budget is to be compared with. The records enter through one kind of answer only: the noisy
gradient sum of a Poisson sample, or of everyone. docs/methods/dp-sgd.md has the settings and where they come from.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from privset.facts import PublicFacts
from privset.methods.caution import few_records
from privset.methods.checkpoint import Stages
from privset.methods.descent import kept
from privset.methods.method import Execution
from privset.methods.plan import Plan
from privset.methods.record_loss import record_loss
from privset.methods.settings import (
    MethodConfig,
    require,
    require_at_least_one,
    require_network,
    require_noise,
    require_positive,
)
from privset.methods.training import Architecture, TrainingMethod
from privset.observer import Observer
from privset.privacy import Curator, GaussianEvent, GradientQuestion, PrivacyBudget
from privset.privacy.clipping import Loss
from privset.privacy.sums import Transform


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSgdConfig(MethodConfig):
    """Settings of DP-SGD; the defaults are the strong ones."""

    network: str = "scattering"
    """The architecture to train; see `privset methods`."""
    width: int | None = None
    """Channels of a ConvNet's layers (hidden units of an MLP); None is the architecture's own."""
    depth: int | None = None
    """Blocks of a ConvNet; None is the architecture's own."""
    epochs: int = 200
    """How often each record takes part, on average; with everyone in each step, the number of steps."""
    batch_size: int | None = None
    """Expected size of a Poisson sample; None has everyone take part in each step, which is accounted for exactly."""
    clip_norm: float = 0.1
    """Longest gradient of one record."""
    noise_multiplier: float | None = None
    """Noise over clip norm; None calibrates it to the budget, a number is refused if it costs more than that."""
    rate: float = 250.0
    """Learning rate at the start, of gradients divided by the expected size of a sample."""
    momentum: float = 0.9
    """Share of the last step that is taken again."""
    decay: bool = False
    """Whether the learning rate falls to zero, in a straight line; if not, it stays."""
    averaging: float = 0.0
    """How much of the average of past weights is kept at each step; the average is what is published. 0: the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "epochs", "batch_size", "width", "depth")
        require(1e-6 <= self.clip_norm <= 1e6, f"clip-norm must lie between 1e-6 and 1e6, not {self.clip_norm}")
        require_positive(self, "rate")
        for name in ("momentum", "averaging"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must lie in [0, 1), not {value}")
        require_noise(self.noise_multiplier)
        require_network(self.network, self.depth)

    @classmethod
    def convnet(cls) -> DpSgdConfig:
        """A ConvNet by settings that Tramer and Boneh published for smaller ones, the same for all data."""
        return cls(network="convnet", epochs=40, batch_size=1024, rate=1.0)

    @classmethod
    def paper(cls) -> DpSgdConfig:
        """Those of the PSG paper's continual-learning baseline, all that it says of DP-SGD (docs/methods/dp-sgd.md)."""
        return cls(network="convnet", epochs=10, batch_size=256, rate=0.01, momentum=0.0)

    @classmethod
    def small(cls) -> DpSgdConfig:
        """Fewer and smaller steps, for a thousand records or so, among which noise is louder.

        Chosen by hand on training records of `digits`, part of which were held out: an accuracy on digits is a
        demonstration, not a result.
        """
        return cls(epochs=20, rate=200.0, decay=True)


class DpSgd(TrainingMethod[DpSgdConfig]):
    """Gradient descent on clipped and noisy gradients of the records."""

    name = "dp-sgd"
    summary = "A classifier trained on clipped, noisy gradients and released itself: the limit to compare sets with"
    reference = (
        "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016; "
        "scattering after Tramer, Boneh: Differentially Private Learning Needs Better Features, ICLR 2021"
    )
    config_type = DpSgdConfig
    presets: ClassVar = {
        "strong": lambda *_: DpSgdConfig(),
        "convnet": lambda *_: DpSgdConfig.convnet(),
        "paper": lambda *_: DpSgdConfig.paper(),
        "small": lambda *_: DpSgdConfig.small(),
    }
    """``strong``: everyone in each step, on scattering; two of a ConvNet; ``small``: for few records."""
    paced_by = ("epochs",)
    resumable = True

    @property
    def architecture(self) -> Architecture:
        """Of the network that is trained."""
        config = self.config
        return Architecture(network=config.network, width=config.width, depth=config.depth)

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """As many gradient questions as there are steps in the epochs."""
        config = self.config
        self.architecture.shapes(facts)  # refuses a width or depth that the network does not have
        rate = 1.0 if config.batch_size is None else min(1.0, config.batch_size / facts.size)
        steps = max(1, round(config.epochs / rate))

        def events(noise: float) -> tuple[GaussianEvent, ...]:
            question = GradientQuestion(sampling_rate=rate, clip_norm=config.clip_norm, noise_multiplier=noise)
            return (question.event(steps),)

        given = config.noise_multiplier
        return Plan.calibrated(self, facts, budget, events, given=given, most=rate * facts.size)

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:  # noqa: ARG002
        """That the noise is longer than what the records can add to the answers."""
        return few_records(facts.size, sum(map(math.prod, self.architecture.shapes(facts).values())), events[0])

    def _train(
        self,
        curator: Curator,
        plan: Plan,
        start: Mapping[str, Tensor] | None,
        execution: Execution,
        observer: Observer,
    ) -> dict[str, Tensor]:
        config, facts, (event,) = self.config, plan.facts, plan.events
        question = GradientQuestion(
            sampling_rate=event.sampling_rate, clip_norm=config.clip_norm, noise_multiplier=event.noise_multiplier
        )
        expected_batch = event.sampling_rate * facts.size
        network = self.architecture.build(facts, seed=config.seed).to(execution.device)
        first = dict(network.named_parameters()) if start is None else start
        weights = {name: value.detach().to(execution.device, copy=True) for name, value in first.items()}
        steps = {name: torch.zeros_like(value) for name, value in weights.items()}
        averages = {name: value.clone() for name, value in weights.items()}
        transform, loss = _seen(network)

        if transform is not None:  # first, since it takes memory and time: a machine that lacks them pays nothing
            curator.remember(transform)
        curator.prepay(question, event.count)
        changed = {
            f"{kind}.{name}": value
            for kind, tensors in (("weight", weights), ("step", steps), ("average", averages))
            for name, value in tensors.items()
        }
        # Nothing but the answers is random here.
        stages = Stages(torch.Generator(), curator.checkpoint, observer)
        for number in stages.loop("training privately", event.count, changed):
            (answer,) = curator.gradient(question, loss, weights, transform=transform)
            rate = config.rate * (1 - number / event.count if config.decay else 1.0)
            share = kept(config.averaging, number)
            for name, weight in weights.items():
                steps[name].mul_(config.momentum).add_(answer[name] / expected_batch)
                weight -= rate * steps[name]
                averages[name].lerp_(weight, 1 - share)
        return averages


def _seen(network: nn.Module) -> tuple[Transform | None, Loss]:
    """What a network makes of an image before it learns anything, if it does, and the loss of one record after that."""
    features, head = network.get_submodule("features"), network.get_submodule("head")
    if any(True for _ in features.parameters()):
        return None, record_loss(network)
    return (lambda image: features(image[None])[0]), record_loss(head, "head.")
