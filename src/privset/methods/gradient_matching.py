"""Gradient matching, whatever is learned by it: pixels (`psg.py`) or a generator that makes them (`psg_prior.py`).

Synthetic images are learned so that the gradient they give a network equals the gradient the private
records give it, for many networks from initialisation to the end of their training on the synthetic
images themselves. The records enter through one kind of answer only: the noisy gradient sum of a Poisson
sample.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset import networks
from privset.facts import PublicFacts
from privset.methods.caution import few_records
from privset.methods.checkpoint import Stages
from privset.methods.matched import Matched
from privset.methods.matching import matching_slope
from privset.methods.method import Execution, SetMethod, Synthesis
from privset.methods.plan import Plan
from privset.methods.record_loss import record_loss
from privset.methods.settings import (
    SetConfig,
    require,
    require_at_least_one,
    require_network,
    require_noise,
    require_positive,
)
from privset.networks.fused import fused
from privset.networks.precision import half_width
from privset.observer import Glimpse, Observer
from privset.privacy import Curator, GaussianEvent, GradientQuestion, PrivacyBudget
from privset.recording import Step, recorded, sent

_PAPER_LOOPS = {
    1: (1, 1),
    10: (10, 50),
    20: (20, 25),
    30: (30, 20),
    40: (40, 15),
    50: (50, 10),
    100: (50, 10),
}
"""Images per class -> (outer steps, inner epochs), as published."""


def paper_loops(per_class: int) -> tuple[int, int]:
    """(outer steps, inner epochs) of the paper; for a set size it does not have, those of the nearest smaller one."""
    require(per_class >= 1, f"per-class must be at least 1, not {per_class}")
    return _PAPER_LOOPS[max(size for size in _PAPER_LOOPS if size <= per_class)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchingConfig(SetConfig):
    """Settings of gradient matching, whatever is learned by it; the defaults are the paper's at epsilon 10."""

    runs: int = 1000
    """Fresh networks that the set is matched on, one after the other (the paper's R)."""
    outer_steps: int = 10
    """Points along a network's training at which gradients are matched (T)."""
    batches_per_step: int = 10
    """Private gradients asked for, and image updates made, at each such point (K)."""
    inner_epochs: int = 50
    """Epochs over the synthetic set that a network trains between two such points (J)."""
    batch_size: int = 256
    """Expected size of a Poisson sample; the sampling rate is this over the public number of records."""
    clip_norm: float = 0.1
    """Longest gradient of one record (C)."""
    noise_multiplier: float | None = None
    """Noise over clip norm; None calibrates it to the budget, a number is refused if it costs more than that."""
    network: str = "convnet"
    """The architecture to match gradients on; see `privset methods`."""
    width: int | None = None
    """Channels of a ConvNet's layers (hidden units of an MLP); None is the architecture's own 128."""
    depth: int | None = None
    """Blocks of a ConvNet; None is the architecture's own 3, which leaves an 8x8 image a single pixel."""
    network_rate: float = 0.01
    """Learning rate of the networks, plain SGD."""
    inner_batch_size: int = 256
    """Batch size in the inner epochs."""
    keep_floats: bool = True
    """Whether images are published as unbounded floats, as in the paper; if not, they stay in pixel range and end as
    8-bit pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "runs", "outer_steps", "batches_per_step", "inner_epochs", "batch_size")
        require_at_least_one(self, "inner_batch_size", "width", "depth")
        require(1e-6 <= self.clip_norm <= 1e6, f"clip-norm must lie between 1e-6 and 1e6, not {self.clip_norm}")
        require_noise(self.noise_multiplier)
        require_network(self.network, self.depth)
        require_positive(self, "network_rate")


Config = TypeVar("Config", bound=MatchingConfig)


class GradientMatching(SetMethod[Config]):
    """Learns something that makes images, by matching the gradients these give many networks."""

    paced_by = ("runs", "outer_steps", "batches_per_step")
    resumable = True
    keeps_snapshots = True

    @property
    def answers_per_step(self) -> int:
        """All answers at one point of a network's training."""
        return self.config.batches_per_step

    @abc.abstractmethod
    def _start(self, facts: PublicFacts, labels: Tensor, generator: torch.Generator) -> Matched:
        """What is learned, as it is in the beginning; all that is random about it comes from ``generator``."""

    @abc.abstractmethod
    def _made(self, matched: Matched) -> Synthesis:
        """What was learned, to be published."""

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """R x T x K gradient questions on Poisson samples of rate batch / records."""
        config = self.config
        rate = min(1.0, config.batch_size / facts.size)

        def events(noise_multiplier: float) -> tuple[GaussianEvent, ...]:
            question = GradientQuestion(
                sampling_rate=rate, clip_norm=config.clip_norm, noise_multiplier=noise_multiplier
            )
            return (question.event(config.runs * config.outer_steps * config.batches_per_step),)

        self._numbers(facts)  # refuses a width or depth that the network does not have
        given = config.noise_multiplier
        return Plan.calibrated(self, facts, budget, events, given=given, most=rate * facts.size)

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:  # noqa: ARG002
        """That the noise is longer than what the records can add to the answers."""
        return few_records(facts.size, self._numbers(facts), events[0])

    def _numbers(self, facts: PublicFacts) -> int:
        """How many weights the networks have, without computing any."""
        config = self.config
        with torch.device("meta"):
            network = networks.build(config.network, facts, width=config.width, depth=config.depth)
        return sum(weights.numel() for weights in network.parameters())

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        """Algorithm 1 of the paper, with the inner training inside the outer loop (see docs/methods/psg.md)."""
        config, facts = self.config, plan.facts
        (event,) = plan.events
        question = GradientQuestion(
            sampling_rate=event.sampling_rate,
            clip_norm=config.clip_norm,
            noise_multiplier=event.noise_multiplier,
        )
        expected_batch = event.sampling_rate * facts.size
        generator = torch.Generator().manual_seed(config.seed)

        labels = torch.arange(len(facts.classes)).repeat_interleave(config.per_class).to(execution.device)
        matched = self._start(facts, labels, generator)
        images, network = matched.images, self._network(facts, 0).to(execution.device)
        loss, match, train = (
            record_loss(network),
            _matching(network, matched),
            _training(network, images, labels, config),
        )
        distance = torch.zeros((), device=execution.device)
        snapshots = torch.zeros(len(plan.snapshots), *images.shape)

        def look() -> Glimpse:
            return Glimpse(images, labels, {"distance": distance})  # of charged answers alone

        curator.prepay(question, event.count)
        stages = Stages(generator, curator.checkpoint, observer)
        made = matched.tensors | ({"snapshots": snapshots} if plan.snapshots else {})
        changed = made | network.state_dict(prefix="network.")
        how = {"outcome": made.keys(), "look": look, "parts": config.batches_per_step}
        for point in stages.loop("matching gradients", config.runs * config.outer_steps, changed, **how):
            if point % config.outer_steps == 0:  # a run begins
                fresh = self._network(facts, int(torch.randint(2**31, (), generator=generator)))
                network.load_state_dict(fresh.state_dict())  # in place, so that recorded steps go on with it
            else:  # no gradient is matched after the last training, so none is done
                train(generator)
            parameters = {name: value.detach() for name, value in network.named_parameters()}
            for answer in curator.gradient(question, loss, parameters, draws=config.batches_per_step):
                distance = match(torch.cat([total.flatten() for total in answer.values()]) / expected_batch)
                stages.part(look)
            if (used := (point + 1) * config.batches_per_step) in plan.snapshots:
                snapshots[plan.snapshots.index(used)] = images
        return dataclasses.replace(
            self._made(matched), snapshots=dict(zip(plan.snapshots, snapshots.unbind(), strict=True))
        )

    def _network(self, facts: PublicFacts, seed: int) -> nn.Module:
        config = self.config
        return networks.build(config.network, facts, seed=seed, width=config.width, depth=config.depth)


def _matching(network: nn.Module, matched: Matched) -> Step:
    """Moves what is matched towards images that give the network a gradient ``[d]``."""
    shapes = [weight.shape for weight in network.parameters()]

    def step(target: Tensor) -> Tensor:
        pieces = target.split([shape.numel() for shape in shapes])
        gradient = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        distance, slope = matching_slope(network, matched.images, matched.labels, gradient)
        matched.move(slope)
        return distance

    return recorded(step, matched.images.device)


def _training(
    network: nn.Module, images: Tensor, labels: Tensor, config: MatchingConfig
) -> Callable[[torch.Generator], None]:
    """Trains the network on the images for all inner epochs, by plain gradient descent; batches are drawn by chance."""
    weights, forward = list(network.parameters()), fused(network)

    def update(images: Tensor, labels: Tensor) -> Tensor:
        with half_width(images.device):
            loss = F.cross_entropy(forward(images), labels)
        slopes = torch.autograd.grad(loss, weights, allow_unused=True)  # a bias before a norm has none
        moved: list[Tensor] = [weight for weight, slope in zip(weights, slopes, strict=True) if slope is not None]
        by = [slope for slope in slopes if slope is not None]
        with torch.no_grad():  # all at once: to start an operation for each takes a card longer than to do it
            torch._foreach_add_(moved, by, alpha=-config.network_rate)  # type: ignore[attr-defined] - as torch.optim does
        return loss.detach()

    if len(labels) > config.inner_batch_size:
        step = recorded(lambda batch: update(images[batch], labels[batch]), images.device)

        def train(generator: torch.Generator) -> None:
            for batch in _batches(len(labels), config, generator):
                step(sent(batch, labels.device))

        return train

    # The same images in every epoch, so that a card can play back many at once.
    together = max(size for size in range(1, _TOGETHER + 1) if config.inner_epochs % size == 0)

    def epochs() -> Tensor:
        return torch.stack([update(images, labels) for _ in range(together)])

    several = recorded(epochs, images.device)

    def train_whole(generator: torch.Generator) -> None:  # noqa: ARG001 - there is nothing to draw
        for _ in range(config.inner_epochs // together):
            several()

    return train_whole


_TOGETHER = 50
"""Most epochs over a set that fits into one batch that a graphics card records together."""


def _batches(size: int, config: MatchingConfig, generator: torch.Generator) -> Iterator[Tensor]:
    """Numbers of images ``[n]``, batch by batch, for all inner epochs, each of which shuffles them anew."""
    for _ in range(config.inner_epochs):
        yield from torch.randperm(size, generator=generator).split(config.inner_batch_size)
