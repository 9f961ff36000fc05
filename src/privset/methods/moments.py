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
import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.methods.checkpoint import Checkpoint, Stages
from privset.methods.descent import Descent, Spectrum, cosine
from privset.methods.measuring import Measured, MeasuringMethod, Statistics
from privset.methods.method import Execution, MethodConfig, Plan, Synthesis, require, require_at_least_one
from privset.methods.refining import ridge_loss, trained_features
from privset.networks.features import RandomFeatures, WaveLift, look, random_views
from privset.networks.precision import tensor_cores
from privset.networks.recording import recorded, sent
from privset.networks.stacking import Stack
from privset.observer import Glimpse, Observer
from privset.privacy import Curator, GaussianEvent, PrivacyBudget, TotalQuestion, calibrate


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentsConfig(MethodConfig):
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
    """Networks matched in one step."""
    image_rate: float = 0.05
    """Learning rate of the pixels at the start; it falls to nearly nothing along a cosine."""
    smoothness: float = 1.0
    """How much less a step changes fine waves of an image than coarse ones; 0 changes all alike."""
    averaging: float = 0.99
    """How much of the average of the past images is kept at each step; the average is what is published."""
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
        for name in ("image_rate", "bandwidth"):
            value = getattr(self, name)
            require(0 < value < float("inf"), f"{name.replace('_', '-')} must be a positive number, not {value}")
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
    presets = ("standard", "light")
    measured_with = frozenset(
        {"networks", "width", "depth", "resolution", "warp", "waves", "bandwidth", "centre_share", "count_share"}
    )

    @classmethod
    def preset_for(cls, device: str) -> str:
        """``light`` where there is no graphics card."""
        return "light" if device == "cpu" else "standard"

    @classmethod
    def preset(cls, name: str, *, per_class: int, epsilon: float) -> MomentsConfig:  # noqa: ARG003 - for other methods
        """``standard``: for a GPU; ``light``: for two CPU cores."""
        if name == "standard":
            return MomentsConfig(per_class=per_class)
        if name == "light":
            return MomentsConfig.light(per_class=per_class)
        raise ConfigError(f"moments has the presets {', '.join(cls.presets)}, not {name!r}")

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """One question for the class sizes, and for each network one for the centre and one for the class sums."""
        budget.check_size(facts.size)
        counts = (1, self.config.networks, self.config.networks)

        def events(noise: float) -> tuple[GaussianEvent, ...]:
            return tuple(q.event(n) for q, n in zip(self._questions(noise), counts, strict=True))

        noise = calibrate(events, budget, most=facts.size / len(facts.classes))
        return Plan.make(self, facts, budget, noise, events(noise))

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
            features = _feature_map(config, facts, 0)(torch.empty(1, *facts.shape)).shape[1]
        return {
            "class_sizes": (classes, 1),
            "feature_sums": (config.networks, features),
            "lifted_sums": (config.networks, classes, 2 * config.waves + features),
        }

    def _measure(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Statistics:
        config, facts = self.config, plan.facts
        # What cannot be built, or is too large for this machine, fails here, before anything is charged.
        lift = _lift(config, self.shapes(facts), execution)
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
        together = config.networks_per_step
        images = self._match(matching, config.per_class, together, "distilling", stages, generator)
        if config.per_class < config.pool:
            # A larger set needs fewer networks at once: its own mean is less noisy.
            fewer = max(1, together // 2)
            pool = self._match(matching, config.pool, fewer, "distilling a pool", stages, generator)
            images = self._refine(images, pool, matching, fewer, stages, generator, observer)
        return Synthesis(images.cpu(), matching.labels(config.per_class).cpu())

    def _match(
        self, matching: Matching, per_class: int, networks: int, name: str, stages: Stages, generator: torch.Generator
    ) -> Tensor:
        """Images from noise, optimised until the class means of their lifted features are the measured ones."""
        config, facts = self.config, matching.facts
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
        networks: int,
        stages: Stages,
        generator: torch.Generator,
        observer: Observer,
    ) -> Tensor:
        """Images that stand in for the pool, and still match what was measured."""
        config, facts, classes = self.config, matching.facts, matching.classes
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


_PIXELS_AT_ONCE = 2**23
"""Pixels that go through a network together: those of 8192 images of 32x32."""


class Matching:
    """How far the class means of images are from the measured ones, network by network.

    The weights of all networks are stacked, so that a choice of networks is a choice of rows: a tensor on the
    device, which a recorded step can be given.

    Args:
        measured: What was measured.
        execution: Where to compute.
    """

    def __init__(self, measured: Measured[MomentsConfig], execution: Execution) -> None:
        self.facts, self.classes = measured.facts, len(measured.facts.classes)
        self.device = torch.device(execution.device)
        self._maps = Stack(list(feature_maps(measured.config, measured.facts, execution)))
        self._centres, self._targets = network_moments(measured.statistics, measured.facts, execution)
        shapes = {name: tuple(value.shape) for name, value in measured.statistics.items()}
        self._lift = _lift(measured.config, shapes, execution)

    def labels(self, per_class: int) -> Tensor:
        """Labels ``[classes * per_class]`` of a set, class by class."""
        return torch.arange(self.classes, device=self.device).repeat_interleave(per_class)

    def choose(self, count: int, generator: torch.Generator) -> Tensor:
        """The numbers ``[count]`` of different networks; of all of them if there are fewer."""
        return sent(torch.randperm(len(self._centres), generator=generator)[:count], self.device)

    def follow(self, descent: Descent, chosen: Tensor) -> Tensor:
        """The squared distance ``[]`` of the images of a descent by these networks, which it is to bring down."""
        # One network and one group of classes after the other, so that the memory of one is enough.
        rows = [chosen[position : position + 1] for position in range(len(chosen))]
        parts = itertools.product(rows, class_groups(self.facts, len(descent.images) // self.classes))
        with tensor_cores(self.device):
            found = [descent.follow(lambda images, p=part: self._distance(images, *p)) for part in parts]
        return torch.stack(found).sum()

    def _distance(self, images: Tensor, row: Tensor, group: slice) -> Tensor:
        """The part of the squared distance ``[]`` by one network that is due to a group of classes."""
        some = images.unflatten(0, (self.classes, -1))[group].flatten(0, 1)
        centre, target = self._centres.index_select(0, row)[0], self._targets.index_select(0, row)[0]
        lifted = self._lift(self._maps(row, some) - centre)
        return (lifted.unflatten(0, (len(target[group]), -1)).mean(1) - target[group]).square().sum()


def class_groups(facts: PublicFacts, per_class: int) -> list[slice]:
    """The classes in groups whose images go through a network together; a class is never divided."""
    together = max(1, _PIXELS_AT_ONCE // (per_class * facts.height * facts.width))
    return [slice(first, first + together) for first in range(0, len(facts.classes), together)]


def feature_maps(config: MomentsConfig, facts: PublicFacts, execution: Execution) -> Iterator[RandomFeatures]:
    """The networks, from the public seed alone."""
    for number in range(config.networks):
        yield _feature_map(config, facts, number).to(execution.device)


def _feature_map(config: MomentsConfig, facts: PublicFacts, number: int) -> RandomFeatures:
    return RandomFeatures(
        facts,
        seed=config.seed * 1_000_003 + number,
        width=config.width,
        depth=config.depth,
        resolution=config.resolution,
        warp=config.warp,
    )


def _lift(config: MomentsConfig, shapes: Mapping[str, tuple[int, ...]], execution: Execution) -> WaveLift:
    features = shapes["feature_sums"][1]
    return WaveLift(features, waves=config.waves, bandwidth=config.bandwidth, seed=config.seed).to(execution.device)


def network_moments(statistics: Statistics, facts: PublicFacts, execution: Execution) -> tuple[Tensor, Tensor]:
    """Of each network the mean feature ``[P, d]``, and the mean lifted feature of each class ``[P, classes, e]``.

    Sums are divided by the number of records, which is public, or by noisy class sizes. A mean of unit vectors is no
    longer than 1; one of a class that is, by noise in few records, is shortened to that.
    """
    sizes, totals, sums = (
        statistics[name].to(execution.device) for name in ("class_sizes", "feature_sums", "lifted_sums")
    )
    targets = sums / sizes.clamp_min(1)
    return totals / facts.size, targets / targets.norm(dim=2, keepdim=True).clamp_min(1)
