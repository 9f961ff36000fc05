"""Moments: measure once, distil for free.

For a number of random networks, known by their seeds, the sums of unit-length features over all records of each
class are released once with noise. Everything after that is post-processing: the pixels of a synthetic set of
any size are optimised until its features have the same class means, and a small set is then made to teach what a
larger one of that kind does. Each network asks twice, for the mean of all features and then for the class sums
around it; nothing is ever noised again. See docs/methods/moments.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import torch
from torch import Tensor

from privset.facts import PublicFacts
from privset.methods.caution import counted
from privset.methods.checkpoint import Checkpoint, Stages
from privset.methods.descent import Descent, Spectrum, cosine
from privset.methods.measuring import Measured, MeasuringMethod, Statistics
from privset.methods.method import Execution, Synthesis
from privset.methods.moment_matching import Matching, feature_map, feature_maps, wave_lift
from privset.methods.plan import Plan
from privset.methods.refining import ridge_loss, trained_features
from privset.methods.settings import SetConfig, require, require_at_least_one, require_positive
from privset.networks.features import RandomFeatures, look, random_views
from privset.networks.precision import tensor_cores
from privset.networks.stacking import Stack
from privset.observer import Glimpse, Observer
from privset.privacy import Curator, GaussianEvent, PrivacyBudget, TotalQuestion
from privset.recording import recorded, sent

_DROWNED = 100
"""Records a class over the noise multiplier below which sets teach little, by experience."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentsConfig(SetConfig):
    """Settings of moments: `networks` to `count_share` are measured with, the others only distilled with."""

    networks: int = 40
    """Random networks whose features are measured; more see more, and each gets more noise."""
    width: int = 128
    """Channels of each of their blocks."""
    depth: int = 3
    """Their number of blocks."""
    resolution: int = 4
    """Features are averaged over a grid of this many cells a side."""
    warp: float = 1.0
    """Strength of the rotation, scaling and shift that each network sees all images through; 0 is none."""
    waves: int = 2048
    """Random waves that centred features are also seen through, so that more than their mean is measured."""
    bandwidth: float = 0.7
    """How far apart centred features, of length 1, have to be for the waves to tell them apart."""
    centre_share: float = 0.1
    """Share of the budget for the mean feature of all records, which is taken out before classes are compared."""
    count_share: float = 0.02
    """Share of the budget for the number of records in each class."""
    steps: int = 1500
    """Optimisation steps on the pixels, of the set and of the pool."""
    networks_per_step: int = 4
    """Networks matched in one step; fewer for more than 50 images a class."""
    image_rate: float = 0.05
    """Learning rate of the pixels at the start; it falls to nearly nothing along a cosine."""
    smoothness: float = 1.0
    """How much less a step changes fine waves of an image than coarse ones; 0 changes all alike."""
    averaging: float = 0.99
    """How much of the average of the past images is kept at each step; the average is what is published. The noise that
    images begin as is not in it."""
    pool: int = 100
    """Images a class of a larger set that a smaller one is made to stand in for; 0 leaves that out."""
    pool_networks: int = 4
    """Networks trained on the pool."""
    pool_training: int = 500
    """Minibatches that each of them is trained on."""
    refining_steps: int = 1500
    """Steps that make the small set stand in for the pool."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "networks", "width", "depth", "resolution", "waves", "steps", "networks_per_step")
        require_at_least_one(self, "pool_networks", "pool_training", "refining_steps")
        require(self.depth <= 16, f"depth must be at most 16, not {self.depth}")
        require_positive(self, "image_rate", "bandwidth")
        require(0 <= self.warp <= 3, f"warp must lie in [0, 3], not {self.warp}")
        require(0 <= self.smoothness <= 3, f"smoothness must lie in [0, 3], not {self.smoothness}")
        require(0 <= self.averaging < 1, f"averaging must lie in [0, 1), not {self.averaging}")
        require(self.pool >= 0, f"pool must be 0 or more, not {self.pool}")
        for name in ("centre_share", "count_share"):
            value = getattr(self, name)
            require(0 < value < 1, f"{name.replace('_', '-')} must lie in (0, 1), not {value}")
        require(self.centre_share + self.count_share < 1, "centre-share and count-share must leave something")

    @classmethod
    def light(cls, *, per_class: int = 10) -> MomentsConfig:
        """Fewer and narrower networks, and no pool: minutes on two CPU cores."""
        return cls(per_class=per_class, networks=10, width=32, waves=512, steps=700, networks_per_step=2, pool=0)


class Moments(MeasuringMethod[MomentsConfig]):
    """Class means of random features, measured once, matched by optimising pixels."""

    name = "moments"
    summary = "Noisy class means of random features, measured once; pixels optimised to match them"
    reference = "privset; after distribution matching (Zhao, Bilen: WACV 2023) with every answer noised once"
    config_type = MomentsConfig
    presets: ClassVar = {
        "standard": lambda per_class, _: MomentsConfig(per_class=per_class),
        "light": lambda per_class, _: MomentsConfig.light(per_class=per_class),
    }
    """``standard``: for a GPU; ``light``: for two CPU cores."""
    measured_with = frozenset(
        {"networks", "width", "depth", "resolution", "warp", "waves", "bandwidth", "centre_share", "count_share"}
    )

    @classmethod
    def preset_for(cls, device: str) -> str:
        """``light`` where there is no graphics card."""
        return "light" if device == "cpu" else "standard"

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """One question for the class sizes, and for each network one for the centre and one for the class sums."""
        counts = (1, self.config.networks, self.config.networks)

        def events(noise: float) -> tuple[GaussianEvent, ...]:
            return tuple(q.event(n) for q, n in zip(self._questions(noise), counts, strict=True))

        return Plan.calibrated(self, facts, budget, events, given=None, most=facts.size / len(facts.classes))

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:  # noqa: ARG002
        """That classes are too small for the noise, by experience."""
        records, needed = facts.size / len(facts.classes), _DROWNED * noise_multiplier
        if records >= needed:
            return None
        return (
            f"about {counted(records)} a class are few for this budget, and the set is likely to teach little; "
            f"{math.ceil(needed):,} or more would do better, or a larger epsilon, or fewer classes"
        )

    def _questions(self, noise: float) -> tuple[TotalQuestion, TotalQuestion, TotalQuestion]:
        """Questions for class sizes, centres and class sums; jointly they have the noise multiplier ``noise``.

        A share s of the budget means a share s of 1 / noise**2, which is what adds up for Gaussian answers.
        """
        config = self.config
        rest = 1 - config.count_share - config.centre_share
        return (
            TotalQuestion(bound=1.0, noise_multiplier=noise / math.sqrt(config.count_share)),
            TotalQuestion(
                bound=1.0, noise_multiplier=noise * math.sqrt(config.networks / config.centre_share), by_class=False
            ),
            TotalQuestion(bound=1.0, noise_multiplier=noise * math.sqrt(config.networks / rest)),
        )

    def shapes(self, facts: PublicFacts) -> dict[str, tuple[int, ...]]:
        """Class sizes ``[k, 1]``; for each network, feature sums ``[P, d]`` and lifted ones by class ``[P, k, e]``."""
        config, classes = self.config, len(facts.classes)
        with torch.device("meta"):  # the shape of features, and no computation
            features = feature_map(config, facts, 0)(torch.empty(1, *facts.shape)).shape[1]
        return {
            "class_sizes": (classes, 1),
            "feature_sums": (config.networks, features),
            "lifted_sums": (config.networks, classes, 2 * config.waves + features),
        }

    def _measure(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Statistics:
        config, facts = self.config, plan.facts
        # What cannot be built, or is too large for this machine, fails here, before anything is charged.
        lift = wave_lift(config, self.shapes(facts), execution)
        blank = torch.zeros(1, *facts.shape, device=execution.device)
        lift(next(feature_maps(config, facts, execution))(blank))
        size_question, centre_question, sum_question = self._questions(plan.noise_multiplier)
        for question, event in zip((size_question, centre_question, sum_question), plan.events, strict=True):
            curator.prepay(question, event.count)
        total = functools.partial(curator.total, block=execution.chunk)
        sizes = total(size_question, lambda image, _: image.new_ones(1))
        feature_sums, lifted_sums = [], []
        observer.phase("measuring", config.networks)
        for features in feature_maps(config, facts, execution):
            everyone = total(centre_question, lambda image, _, f=features: f(image[None])[0])[0]
            centre = everyone / facts.size

            def lifted(image: Tensor, _: Tensor, f: RandomFeatures = features, c: Tensor = centre) -> Tensor:
                with tensor_cores(image.device):
                    return lift(f(image[None]) - c)[0]

            by_class = total(sum_question, lifted)
            feature_sums.append(everyone)
            lifted_sums.append(by_class)
            observer.step()
        return {
            "class_sizes": sizes,
            "feature_sums": torch.stack(feature_sums),
            "lifted_sums": torch.stack(lifted_sums),
        }

    def _distil(
        self, measured: Measured[MomentsConfig], execution: Execution, observer: Observer, checkpoint: Checkpoint
    ) -> Synthesis:
        config = self.config
        generator = torch.Generator().manual_seed(config.seed)
        stages = Stages(generator, checkpoint, observer)
        matching = Matching(measured, execution)
        images = self._match(matching, config.per_class, "distilling", stages, generator)
        if config.per_class < config.pool:
            pool = self._match(matching, config.pool, "distilling a pool", stages, generator)
            images = self._refine(images, pool, matching, stages, generator, observer)
        return Synthesis(images.cpu(), matching.labels(config.per_class).cpu())

    def _match(
        self, matching: Matching, per_class: int, name: str, stages: Stages, generator: torch.Generator
    ) -> Tensor:
        """Images from noise, optimised until the class means of their lifted features are the measured ones."""
        config, facts, networks = self.config, matching.facts, networks_at_once(self.config, per_class)
        white = 0.5 * torch.randn(matching.classes * per_class, *facts.shape, generator=generator)
        start = Spectrum(white, smoothness=config.smoothness).image(white).to(matching.device)
        descent = Descent(start, facts, averaging=config.averaging, smoothness=config.smoothness)

        def step(chosen: Tensor) -> Tensor:
            distance = matching.follow(descent, chosen)
            descent.step()
            return distance

        take = recorded(step, matching.device)
        labels, distance = matching.labels(per_class), torch.zeros(())
        seen = lambda: Glimpse(descent.average, labels, {"distance": distance})  # noqa: E731 - the latest distance
        for number in stages.loop(name, config.steps, descent.tensors, outcome=("average",), look=seen):
            descent.set_rate(cosine(config.image_rate, number, config.steps))
            distance = take(matching.choose(networks, generator))
        return descent.average

    def _refine(
        self,
        start: Tensor,
        pool: Tensor,
        matching: Matching,
        stages: Stages,
        generator: torch.Generator,
        observer: Observer,
    ) -> Tensor:
        """Images that stand in for the pool, and still match what was measured."""
        config, facts, classes = self.config, matching.facts, matching.classes
        networks = max(1, config.networks_per_step // 2)  # beside those that were trained
        labels, pool_labels = matching.labels(config.per_class), matching.labels(config.pool)
        trained = Stack(
            trained_features(
                pool,
                pool_labels,
                classes=classes,
                width=config.width,
                depth=config.depth,
                count=config.pool_networks,
                steps=config.pool_training,
                seed=config.seed,
                observer=observer,
            )
        )
        descent = Descent(start, facts, averaging=config.averaging, smoothness=config.smoothness)

        def step(matched: Tensor, network: Tensor, examples: Tensor, view: Tensor) -> Tensor:
            matching.follow(descent, matched)
            features = functools.partial(trained, network)
            seen, aims = look(pool[examples], view), pool_labels[examples]
            error = descent.follow(
                lambda images: _REFINING * ridge_loss(features, look(images, view), labels, seen, aims, classes=classes)
            )
            descent.step()
            return error

        take = recorded(step, matching.device)
        total, error = config.refining_steps, torch.zeros(())
        seen = lambda: Glimpse(descent.average, labels, {"error": error})  # noqa: E731 - the latest error
        for number in stages.loop("refining", total, descent.tensors, outcome=("average",), look=seen):
            descent.set_rate(cosine(0.4 * config.image_rate, number, total))
            matched = matching.choose(networks, generator)
            examples = torch.randint(len(pool), (min(500, len(pool)),), generator=generator)
            view = random_views(1, generator)
            network = torch.randint(len(trained), (1,), generator=generator)
            error = take(matched, *(sent(drawn, matching.device) for drawn in (network, examples, view)))
        return descent.average


_REFINING = 4.0
"""Weight of the error on the pool beside the distance of one network's class means."""


def networks_at_once(config: MomentsConfig, per_class: int) -> int:
    """Networks matched in one step; beyond 50 images a class fewer, since the mean of more images wavers less.

    >>> [networks_at_once(MomentsConfig(), size) for size in (1, 50, 100, 500)]
    [4, 4, 2, 1]
    """
    return max(1, config.networks_per_step * 50 // max(50, per_class))
