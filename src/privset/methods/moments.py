"""Moments: measure once, distil for free.

For a number of random networks, known by their seeds, the sums of unit-length features over all records of each
class are released once with noise. Everything after that is post-processing: the pixels of a synthetic set of
any size are optimised until its features have the same class means. Each network asks twice, for the mean of all
features and then for the class sums around it; nothing is ever noised again. See docs/methods/moments.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

from privset.errors import ConfigError
from privset.facts import PublicFacts, pixel_range
from privset.methods.checkpoint import Checkpoint, Loop
from privset.methods.measuring import Measured, MeasuringMethod, Statistics
from privset.methods.method import Execution, MethodConfig, Plan, Synthesis, require, require_at_least_one
from privset.networks.features import RandomFeatures
from privset.observer import Observer
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
    centre_share: float = 0.1
    """Share of the budget for the mean feature of all records, which is taken out before classes are compared."""
    count_share: float = 0.02
    """Share of the budget for the number of records in each class."""
    steps: int = 3000
    """Optimisation steps on the pixels."""
    networks_per_step: int = 4
    """Networks matched in one step."""
    image_rate: float = 0.05
    """Learning rate of the pixels at the start; it falls to nearly nothing along a cosine."""
    averaging: float = 0.99
    """How much of the average of the past images is kept at each step; the average is what is published."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "networks", "width", "depth", "resolution", "steps", "networks_per_step")
        require(self.depth <= 16, f"depth must be at most 16, not {self.depth}")
        require(0 < self.image_rate < float("inf"), f"image-rate must be a positive number, not {self.image_rate}")
        require(0 <= self.warp <= 3, f"warp must lie in [0, 3], not {self.warp}")
        require(0 <= self.averaging < 1, f"averaging must lie in [0, 1), not {self.averaging}")
        for name in ("centre_share", "count_share"):
            value = getattr(self, name)
            require(0 < value < 1, f"{name.replace('_', '-')} must lie in (0, 1), not {value}")
        require(self.centre_share + self.count_share < 1, "centre-share and count-share must leave something")

    @classmethod
    def light(cls, *, per_class: int = 10) -> MomentsConfig:
        """Fewer and narrower networks: minutes on two CPU cores."""
        return cls(per_class=per_class, networks=20, width=32, depth=2, steps=600, networks_per_step=2)


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkMoments:
    """What was measured with one network: noisy, so free to use for anything.

    Attributes:
        centre: Mean feature of all records ``[d]``.
        targets: Mean of the centred unit-length features of each class ``[classes, d]``.
    """

    centre: Tensor
    targets: Tensor


class Moments(MeasuringMethod[MomentsConfig]):
    """Class means of random features, measured once, matched by optimising pixels."""

    name = "moments"
    summary = "Noisy class means of random features, measured once; pixels optimised to match them"
    reference = "privset; after distribution matching (Zhao, Bilen: WACV 2023) with every answer noised once"
    config_type = MomentsConfig
    presets = ("standard", "light")
    measured_with = frozenset({"networks", "width", "depth", "resolution", "warp", "centre_share", "count_share"})

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
        """Class sizes ``[k, 1]``; for each network, feature sums ``[P, d]`` and centred ones by class ``[P, k, d]``."""
        config, classes = self.config, len(facts.classes)
        with torch.device("meta"):  # the shape of features, and no computation
            features = _feature_map(config, facts, 0)(torch.empty(1, *facts.shape)).shape[1]
        return {
            "class_sizes": (classes, 1),
            "feature_sums": (config.networks, features),
            "centred_sums": (config.networks, classes, features),
        }

    def _measure(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Statistics:
        size_question, centre_question, sum_question = self._questions(plan.noise_multiplier)
        for question, event in zip((size_question, centre_question, sum_question), plan.events, strict=True):
            curator.prepay(question, event.count)
        sizes = curator.total(size_question, lambda image, _: image.new_ones(1))
        feature_sums, centred_sums = [], []
        observer.phase("measuring", self.config.networks)
        for features in feature_maps(self.config, plan.facts, execution):
            total = curator.total(centre_question, lambda image, _, f=features: f(image[None])[0])[0]
            centre = _centre(total, sizes)
            sums = curator.total(
                sum_question, lambda image, _, f=features, c=centre: F.normalize(f(image[None])[0] - c, dim=0)
            )
            feature_sums.append(total)
            centred_sums.append(sums)
            observer.step()
        return {
            "class_sizes": sizes,
            "feature_sums": torch.stack(feature_sums),
            "centred_sums": torch.stack(centred_sums),
        }

    def _distil(
        self, measured: Measured[MomentsConfig], execution: Execution, observer: Observer, checkpoint: Checkpoint
    ) -> Synthesis:
        """Optimise pixels until the class means of their features are the measured ones."""
        config, facts, classes = self.config, measured.facts, len(measured.facts.classes)
        moments = network_moments(measured.statistics, execution)
        generator = torch.Generator().manual_seed(config.seed)
        start = 0.5 * torch.randn(classes * config.per_class, *facts.shape, generator=generator)
        low, high = pixel_range(facts, start.to(execution.device))
        images = start.to(execution.device).clamp(low, high).requires_grad_()
        average = images.detach().clone()
        optimiser = torch.optim.Adam([images], lr=config.image_rate, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps, 0.02 * config.image_rate)
        maps = list(feature_maps(measured.config, facts, execution))
        loop = Loop({"images": images, "average": average}, optimiser, schedule, generator)
        for _ in loop.steps("distilling", config.steps, checkpoint, observer):
            loss = images.new_zeros(())
            for number in torch.randperm(len(maps), generator=generator)[: config.networks_per_step].tolist():
                found = F.normalize(maps[number](images) - moments[number].centre, dim=1)
                means = found.view(classes, config.per_class, -1).mean(1)
                loss = loss + (means - moments[number].targets).square().sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                images.clamp_(low, high)
                average.lerp_(images, 1 - config.averaging)
        return Synthesis(average.cpu(), torch.arange(classes).repeat_interleave(config.per_class))


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


def network_moments(statistics: Statistics, execution: Execution) -> list[NetworkMoments]:
    """Means in place of sums: the noisy answers, divided by noisy class sizes."""
    sizes, totals, sums = (
        statistics[name].to(execution.device) for name in ("class_sizes", "feature_sums", "centred_sums")
    )
    return [
        NetworkMoments(_centre(total, sizes), table / sizes.clamp_min(1))
        for total, table in zip(totals, sums, strict=True)
    ]


def _centre(total: Tensor, sizes: Tensor) -> Tensor:
    return total / sizes.clamp_min(1).sum()
